//! Bugs planted by the harness, to see that they are found. None is in the server: the harness passes on
//! something else than it was given, or gives back another disk than was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use raft::eraftpb::{Message, MessageType};
use tidegate_log::{Append, Doing, Log, SimDisk};
use tidegate_server::replica::records::{self, HardState};

use crate::ledger::Ledgers;
use crate::node::time;
use crate::oracle::ids;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// What is written counts as durable at once; a crash before the disk is done loses it.
    AckBeforeSync,
    /// After a crash a node does not know for whom it has voted in its term.
    VoteLost,
    /// After a crash the end of what was durable is gone, and the log opens as if nothing were missing.
    TailCut,
    /// An answer to an append, even to one that does not fit, names the newest position that was ever
    /// acknowledged.
    StaleAnswer,
    /// A term's entries are written before the term and the vote: a crash between leaves the entries alone.
    VoteAfterEntries,
    /// A checkpoint does not remember the ids of messages.
    DedupLost,
    /// A node that lost its disk takes its place without asking in which terms the others are.
    TermNotAsked,
    /// It takes its place as it should, and votes before it has what it had.
    VotesAtOnce,
}

/// All of them.
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
    /// The one with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }
}

/// What a planted bug remembers of a node.
#[derive(Default)]
pub(crate) struct Planted {
    /// The disk as it was before a sync that is not to have happened.
    before: Option<SimDisk>,
    /// Syncs that were told and not done.
    told: u64,
    /// By group.
    acked: BTreeMap<u32, u64>,
}

/// The disk as a crash leaves it that keeps nothing but what is durable.
fn durable(disk: &SimDisk) -> SimDisk {
    disk.crash(false, |_, _| false)
}

impl Planted {
    /// A sync is about to be done, or only to be told.
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

    /// A sync that was told is done; whether all are.
    pub(crate) fn after_sync(&mut self) -> bool {
        self.told = self.told.saturating_sub(1);
        if self.told == 0 {
            self.before = None;
        }
        self.told == 0
    }

    /// What is on the log's disk after a crash. Whatever is planted there, the ledger does not see.
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
                term: was.term.saturating_sub(1).max(1),
                vote: 0,
            }),
            Bug::StaleAnswer | Bug::DedupLost | Bug::TermNotAsked | Bug::VotesAtOnce => disk,
        }
    }

    /// What is sent instead of a message.
    pub(crate) fn message(&mut self, bug: Bug, group: u32, message: &mut Message) {
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

/// When a crash was, and what the log's segments take.
pub(crate) struct Crash {
    pub(crate) now: u64,
    pub(crate) segment_bytes: u64,
    /// The node's groups that have other members.
    pub(crate) groups: Vec<u32>,
}

/// Has the log end with another hard state of each group with other members.
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
    // What is wrong with it is found when the node runs.
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

/// The state without what it knows of ids: each becomes another of the same length.
pub(crate) fn without_ids(state: &[u8]) -> Vec<u8> {
    let mut without = state.to_vec();
    ids(state).for_each(|id| without[id.start] ^= 0x40);
    without
}
