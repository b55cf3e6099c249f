//! A group as its member sees it: Raft, told of everything in the order it insists on.
//!
//! Raft hands out what is to be written in batches with growing numbers. A batch's hard state stands before its entries in one
//! append, appends are made in the order of their numbers, and Raft hears that a batch is persisted once the log is durable to
//! its end; so nothing is committed that is not. Persisted means durable here: the asynchronous way (`advance_append_async`,
//! `on_persist_ready`), so that proposals go on while a sync runs.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{Entry, Message, MessageType};
use raft::{Config, RawNode, StateRole};
use tidegate_log::{Lsn, Record};

use super::records::{self, HardState};
use super::tail::Tail;

/// What is chosen when a group is opened.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The group's number in the log.
    pub group: u32,
    /// Who this is; never 0.
    pub id: u64,
    /// Who may vote.
    pub voters: Vec<u64>,
    /// The most bytes proposed and not yet committed. A single larger entry is accepted alone.
    pub uncommitted_bytes_max: u64,
    /// The most bytes of applied entries kept in memory.
    pub tail_bytes_max: u64,
}

/// What is known of a group from before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Its term and vote.
    pub hard_state: HardState,
    /// The index and the term of its last entry; zeros if there is none. All up to it were applied.
    pub last: (u64, u64),
}

/// What belongs into the log as one append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Raft's number for it.
    number: u64,
    /// In this order.
    pub records: Vec<Record>,
    /// How many callers wait for it.
    pub callers: u64,
}

/// Where an entry is going to be, if this member stays leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// Its index.
    pub index: u64,
    /// The term it was proposed in: another entry with that index has another one.
    pub term: u64,
}

/// An entry that is committed, to be applied before the next is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Where its record is in the log.
    pub lsn: Lsn,
    /// Its bytes.
    pub data: Bytes,
}

/// Why something cannot be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// Too much waits to be committed.
    #[error(
        "too much waits to be committed ({missing_bytes} bytes over the bound): try again when something was committed"
    )]
    Full {
        /// How many bytes too many.
        missing_bytes: u64,
    },
    /// Another member decides.
    #[error("this node does not lead its group: ask the leader")]
    NotLeader,
}

/// A member of a group: what may be proposed, what is to be written, what is committed.
pub struct Group {
    raft: RawNode<Tail>,
    options: GroupOptions,
    /// As the log has it, or will have it when what waits is appended.
    hard_state: HardState,
    /// To be appended; the numbers grow.
    outgoing: VecDeque<Batch>,
    /// Appended and not yet durable: where they end, and their numbers.
    undurable: VecDeque<(Lsn, u64)>,
    committed: VecDeque<Committed>,
    uncommitted_bytes: u64,
    /// Callers of what was proposed since the last batch.
    callers: u64,
}

impl Group {
    /// The group as it was left. Alone in its group, it leads at once: its election waits to be appended.
    #[must_use]
    pub fn open(options: GroupOptions, restored: Restored) -> Self {
        let (last, term) = restored.last;
        let tail = Tail::new(
            (last, term),
            last,
            restored.hard_state,
            options.voters.clone(),
        );
        let config = Config {
            id: options.id,
            applied: last,
            election_tick: 10,
            heartbeat_tick: 2,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 64,
            pre_vote: true,
            check_quorum: true,
            max_committed_size_per_ready: COMMITTED_BYTES_MAX,
            ..Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&config, tail, &silent);
        let mut group = Self {
            raft: raft.expect("the configuration is sound and the tail answers"),
            hard_state: restored.hard_state,
            outgoing: VecDeque::new(),
            undurable: VecDeque::new(),
            committed: VecDeque::new(),
            uncommitted_bytes: 0,
            callers: 0,
            options,
        };
        if group.options.voters == [group.options.id] {
            let won = group.raft.campaign();
            won.expect("who is alone may campaign");
        }
        group.collect();
        group
    }

    /// Whether this member decides.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// Its term and vote, as they stand in the log once everything handed out is durable.
    #[must_use]
    pub const fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// The term of the entry with this index, if that is known.
    #[must_use]
    pub fn term_at(&self, index: u64) -> Option<u64> {
        let term = self.raft.raft.raft_log.term(index).ok();
        term.filter(|term| *term > 0)
    }

    /// The index of the last entry.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.raft.raft.raft_log.last_index()
    }

    /// Bytes proposed and not yet committed.
    #[must_use]
    pub const fn uncommitted_bytes(&self) -> u64 {
        self.uncommitted_bytes
    }

    /// Proposes an entry, not an empty one, for so many callers.
    ///
    /// # Errors
    /// See [`ProposeError`]; nothing has changed then.
    pub fn propose(&mut self, entry: Bytes, callers: u64) -> Result<Proposed, ProposeError> {
        assert!(!entry.is_empty(), "an empty entry is Raft's own");
        let bytes = entry.len() as u64;
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        let missing_bytes =
            (self.uncommitted_bytes + bytes).saturating_sub(self.options.uncommitted_bytes_max);
        if missing_bytes > 0 && self.uncommitted_bytes > 0 {
            return Err(ProposeError::Full { missing_bytes });
        }
        let mut proposal = Entry::default();
        proposal.set_data(entry);
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.set_from(self.options.id);
        message.set_entries(vec![proposal].into());
        let taken = self.raft.step(message);
        // Of a leader Raft takes it, unless it is about to hand over.
        taken.map_err(|_| ProposeError::NotLeader)?;
        self.uncommitted_bytes += bytes;
        self.callers += callers;
        let proposed = Proposed {
            index: self.last_index(),
            term: self.raft.raft.term,
        };
        self.collect();
        Ok(proposed)
    }

    /// What is to be appended next. It stays the next until [`handle_appended`](Self::handle_appended).
    #[must_use]
    pub fn poll_append(&self) -> Option<&Batch> {
        self.outgoing.front()
    }

    /// The log has accepted what was to be appended next: its records are at these positions, and it ends there.
    pub fn handle_appended(&mut self, positions: &[Lsn], end: Lsn) {
        let batch = self.outgoing.pop_front();
        let batch = batch.expect("something was to be appended");
        assert_eq!(batch.records.len(), positions.len());
        let tail = self.raft.mut_store();
        for (record, &lsn) in batch.records.iter().zip(positions) {
            if record.kind == records::KIND_ENTRY {
                tail.placed(record.index, record.term, lsn);
            }
        }
        self.undurable.push_back((end, batch.number));
    }

    /// The log is durable up to there.
    pub fn handle_durable(&mut self, durable: Lsn) {
        let count = self.undurable.partition_point(|&(end, _)| end <= durable);
        let persisted = self.undurable.drain(..count).next_back();
        if let Some((_, number)) = persisted {
            self.raft.on_persist_ready(number);
            self.collect();
        }
    }

    /// The next entry to apply, in order, each once; those that only Raft needs are left out. To ask for the next says that the
    /// one before was applied.
    pub fn poll_committed(&mut self) -> Option<Committed> {
        let committed = self.committed.pop_front()?;
        self.uncommitted_bytes -= committed.data.len() as u64;
        self.raft.advance_apply_to(committed.index);
        let bytes_max = self.options.tail_bytes_max;
        self.raft.mut_store().trim(committed.index, bytes_max);
        Some(committed)
    }

    /// The bytes of the entry whose record is at this position, if they are still in memory.
    #[must_use]
    pub fn cached(&self, lsn: Lsn) -> Option<&Bytes> {
        self.raft.store().at(lsn)
    }

    /// Takes everything Raft has to say.
    fn collect(&mut self) {
        while self.raft.has_ready() {
            let mut ready = self.raft.ready();
            let mut batch = Batch {
                number: ready.number(),
                ..Batch::default()
            };
            if let Some(hs) = ready.hs() {
                let state = HardState {
                    term: hs.get_term(),
                    vote: hs.get_vote(),
                };
                if state != self.hard_state {
                    self.hard_state = state;
                    let record = records::hard_state(self.options.group, state);
                    batch.records.push(record);
                }
            }
            for mut entry in ready.take_entries() {
                let (index, term, data) = (entry.get_index(), entry.get_term(), entry.take_data());
                let record = records::entry(self.options.group, index, term, data.clone());
                batch.records.push(record);
                self.raft.mut_store().push(index, term, data);
            }
            self.take_committed(&ready.take_committed_entries());
            self.raft.advance_append_async(ready);
            self.hand_out(batch);
        }
    }

    fn take_committed(&mut self, entries: &[Entry]) {
        for entry in entries {
            let found = self.raft.store().get(entry.get_index());
            let placed = found.and_then(|(lsn, _, data)| Some((lsn?, data.clone())));
            let (lsn, data) = placed.expect("what is committed was appended and is in the tail");
            if data.is_empty() {
                continue;
            }
            self.committed.push_back(Committed {
                index: entry.get_index(),
                term: entry.get_term(),
                lsn,
                data,
            });
        }
    }

    fn hand_out(&mut self, mut batch: Batch) {
        if !batch.records.is_empty() {
            batch.callers = std::mem::take(&mut self.callers);
            self.outgoing.push_back(batch);
        } else if self.outgoing.is_empty() && self.undurable.is_empty() {
            // Nothing of it, and nothing before it, is to be written.
            self.raft.on_persist_ready(batch.number);
        }
    }
}

/// Raft hands out committed entries in portions of so many bytes.
const COMMITTED_BYTES_MAX: u64 = 8 << 20;

#[cfg(test)]
mod tests;
