//! Plants bugs, to check that the tests find them. The server has none of them: the harness passes on a
//! changed message, or gives the node another disk than the server wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use raft::eraftpb::{Message, MessageType};
use tidegate_cluster::groups::GroupId;
use tidegate_log::{Append, Doing, Log, SimDisk};
use tidegate_raft::replica::Term;
use tidegate_raft::replica::records::{self, HardState};

use crate::ledger::Ledgers;
use crate::node::time;
use crate::oracle::ids;

/// A bug that the harness plants at the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The log reports written bytes as durable at once, so a crash before the end of the sync loses them.
    AckBeforeSync,
    /// A crash makes a node forget its vote in its term.
    VoteLost,
    /// A crash loses the end of the durable log, and the log opens as if nothing were missing.
    TailCut,
    /// An answer to an append, even to an append that does not fit, names the newest index ever acknowledged.
    StaleAnswer,
    /// The log writes a term's entries before the term and the vote: a crash between them leaves
    /// the entries alone.
    VoteAfterEntries,
    /// A checkpoint forgets the ids of messages, so the node stores a repeated message twice.
    DedupLost,
    /// A node that lost its disk takes its place without asking the other nodes for their terms.
    TermNotAsked,
    /// A node that lost its disk takes its place correctly, but votes before it has all entries again.
    VotesAtOnce,
}

/// All bugs that the harness can plant.
const ALL: [Bug; 8] = [
    Bug::AckBeforeSync,
    Bug::VoteLost,
    Bug::TailCut,
    Bug::StaleAnswer,
    Bug::VoteAfterEntries,
    Bug::DedupLost,
    Bug::TermNotAsked,
    Bug::VotesAtOnce,
];

impl Bug {
    /// Returns the bug with this name, for a run that the environment asks for.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }
}

/// The state of a planted bug at a node, by which the harness changes disks and messages.
#[derive(Default)]
pub(crate) struct Planted {
    /// The disk before a sync that the bug undoes at the next crash.
    before: Option<SimDisk>,
    /// The number of syncs that the harness has reported to the node and not done yet.
    told: u64,
    /// The newest index that the node has ever acknowledged, by group.
    acked: BTreeMap<GroupId, u64>,
}

/// Returns the disk as a crash leaves it that keeps only durable bytes.
fn durable(disk: &SimDisk) -> SimDisk {
    disk.crash(false, |_, _| false)
}

impl Planted {
    /// Prepares the bug for a sync, or for the early report of a sync.
    pub(crate) fn before_sync(&mut self, bug: Bug, disk: &SimDisk) {
        match bug {
            Bug::AckBeforeSync => {
                self.told += 1;
                self.before.get_or_insert_with(|| durable(disk));
            }
            Bug::TailCut => self.before = Some(durable(disk)),
            _ => {}
        }
    }

    /// Records that the harness has done a sync that it reported before. Returns whether it has done all of
    /// them.
    pub(crate) fn after_sync(&mut self) -> bool {
        self.told = self.told.saturating_sub(1);
        if self.told == 0 {
            self.before = None;
        }
        self.told == 0
    }

    /// Returns the log's disk after a crash, with the bug's damage. The ledger does not see the planted
    /// damage.
    pub(crate) fn after_crash(
        &mut self,
        bug: Bug,
        disk: SimDisk,
        of: &Crash,
        ledgers: &mut Ledgers,
    ) -> SimDisk {
        self.told = 0;
        let before = self.before.take();
        match bug {
            Bug::AckBeforeSync | Bug::TailCut => before.unwrap_or(disk),
            Bug::VoteLost => rewrite(&disk, of, ledgers, |was| HardState { vote: 0, ..was }),
            Bug::VoteAfterEntries => rewrite(&disk, of, ledgers, |was| HardState {
                term: Term::new(was.term.get().saturating_sub(1).max(1)),
                vote: 0,
            }),
            Bug::StaleAnswer | Bug::DedupLost | Bug::TermNotAsked | Bug::VotesAtOnce => disk,
        }
    }

    /// Changes a message of the node before the harness sends it, if the bug does so.
    pub(crate) fn message(&mut self, bug: Bug, group: GroupId, message: &mut Message) {
        if bug != Bug::StaleAnswer || message.get_msg_type() != MessageType::MsgAppendResponse {
            return;
        }
        let acked = self.acked.entry(group).or_default();
        if !message.reject {
            *acked = (*acked).max(message.index);
        }
        (message.reject, message.reject_hint) = (false, 0);
        message.index = *acked;
    }
}

/// The facts about a crash by which a bug damages the disk: its time, and the length of the log's segments.
pub(crate) struct Crash {
    pub(crate) now: u64,
    pub(crate) segment_bytes: u64,
    /// The node's groups that have other members, which the bug affects.
    pub(crate) groups: Vec<GroupId>,
}

/// Appends another hard state of each group with other members to the log, as a bug would leave it.
pub(crate) fn rewrite(
    disk: &SimDisk,
    of: &Crash,
    ledgers: &mut Ledgers,
    change: impl Fn(HardState) -> HardState,
) -> SimDisk {
    let image = durable(disk);
    let options = tidegate_log::Options::default()
        .segment_bytes(of.segment_bytes)
        .seed(1);
    let opened = Log::open_stepped(Arc::new(image.clone()), options, time(of.now), |_| {});
    let (mut opened, mut steps) = opened.unwrap_or_else(|e| panic!("the log opens: {e}"));
    // The ledger's verdict does not matter here, because the running node finds its mistakes itself.
    let _ = ledgers.read_on(&opened.log, |_, _, _, _| Ok(()));
    let states = of.groups.iter();
    let states = states.map(|g| records::hard_state(*g, change(ledgers.of(*g).hard_state)));
    let appended = opened.appender.append(Append::new(states.collect()));
    let later = time(of.now + 1_000_000);
    while appended.is_ok() && steps.step(later) == Doing::Syncing {
        steps.sync(later);
    }
    ledgers.durable = opened.log.durable();
    image.killed()
}

/// Returns the state with other message ids of equal lengths, so that the node no longer knows the clients'
/// ids.
pub(crate) fn without_ids(state: &[u8]) -> Vec<u8> {
    let mut without = state.to_vec();
    ids(state).for_each(|id| without[id.start] ^= 0x40);
    without
}
