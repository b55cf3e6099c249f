//! Bugs planted by the harness, to see that they are found. None is in the server: the harness passes on something else than it was
//! given, or gives back another disk than was written.

use std::sync::Arc;

use raft::eraftpb::{Message, MessageType};
use tidegate_log::{Append, Doing, Log, Record, SimDisk};
use tidegate_server::replica::records::{self, HardState};

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
    /// An answer to an append names the newest position that was ever acknowledged, of whatever log.
    StaleAnswer,
    /// A term's entries are written before the term and the vote: a crash between leaves the entries alone.
    VoteAfterEntries,
    /// A checkpoint does not remember the ids of messages.
    DedupLost,
}

/// All of them.
const ALL: [Bug; 6] = [
    Bug::AckBeforeSync,
    Bug::VoteLost,
    Bug::TailCut,
    Bug::StaleAnswer,
    Bug::VoteAfterEntries,
    Bug::DedupLost,
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
    acked: u64,
}

/// The disk as a crash leaves it that keeps nothing but what is durable.
fn durable(disk: &SimDisk) -> SimDisk {
    disk.crash(false, |_, _| false)
}

impl Planted {
    /// A sync is about to be done, `early` if it is only told.
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

    /// What is on the disk after a crash.
    pub(crate) fn after_crash(
        &mut self,
        bug: Bug,
        disk: SimDisk,
        now: u64,
        was: HardState,
    ) -> SimDisk {
        self.told = 0;
        let before = self.before.take();
        match bug {
            Bug::AckBeforeSync | Bug::TailCut => before.unwrap_or(disk),
            Bug::VoteLost => rewrite(&disk, now, HardState { vote: 0, ..was }),
            Bug::VoteAfterEntries => {
                let term = was.term.saturating_sub(1);
                rewrite(&disk, now, HardState { term, vote: 0 })
            }
            Bug::StaleAnswer | Bug::DedupLost => disk,
        }
    }

    /// What is sent instead of a message.
    pub(crate) fn message(&mut self, bug: Bug, message: &mut Message) {
        let answers = message.get_msg_type() == MessageType::MsgAppendResponse && !message.reject;
        if bug == Bug::StaleAnswer && answers {
            self.acked = self.acked.max(message.index);
            message.index = self.acked;
        }
    }
}

/// Has the log end with this hard state.
fn rewrite(disk: &SimDisk, now: u64, state: HardState) -> SimDisk {
    let image = durable(disk);
    let opened = Log::open_stepped(
        Arc::new(image.clone()),
        tidegate_log::Options::default().seed(1),
        time(now),
        |_| {},
    );
    let (mut opened, mut steps) = opened.unwrap_or_else(|e| panic!("the log opens: {e}"));
    let record: Record = records::hard_state(1, state);
    if opened.appender.append(Append::new(vec![record])).is_ok() {
        while steps.step(time(now + 1_000_000)) == Doing::Syncing {
            steps.sync(time(now + 1_000_000));
        }
    }
    image.killed()
}

/// The state without what it knows of ids: each becomes another of the same length.
pub(crate) fn without_ids(state: &[u8]) -> Vec<u8> {
    let mut without = state.to_vec();
    ids(state).for_each(|id| without[id.start] = b'x');
    without
}
