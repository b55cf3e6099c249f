//! A group as its member sees it: Raft, told of everything in the order it insists on.
//!
//! Raft hands out what is to be written in batches with growing numbers. A batch's hard state stands before
//! its entries in one append, appends are made in the order of their numbers, and Raft hears that a batch is
//! persisted once the log is durable to its end; so nothing is committed that is not. Persisted means durable
//! here: the asynchronous way (`advance_append_async`, `on_persist_ready`), so that proposals go on while a
//! sync runs. What a leader says to the others leaves at once, what anybody else says once the batch it came
//! with is durable.

mod fetch;
mod install;
mod peers;
mod rejoin;
mod renew;

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{Entry, Message, MessageType};
use raft::{Config, RawNode, StateRole};
use tidegate_log::{Lsn, Record, batch_bytes};

use self::install::Installing;
use super::history::History;
use super::outbox::Outbox;
use super::records::{self, HardState};
use super::tail::Tail;
use crate::lab::Lab;

pub use self::fetch::Lagging;
pub use self::install::{CatchUp, Unneeded};
pub use self::peers::{PeerProgress, Role, TransferError};

/// A follower that hears nothing for so many ticks stands for election, if it is the first of the members by
/// their ids.
pub const ELECTION_TICKS: u64 = 10;
/// By so much longer waits each next one: so they do not stand in each other's way, and no dice are needed.
pub const RANK_TICKS: u64 = 3;
/// A leader is heard once in so many ticks.
pub const HEARTBEAT_TICKS: u64 = 2;
/// Larger than any entry there can be a use for; it fits into memory and into a message.
pub const ENTRY_BYTES_MAX: u64 = 64 << 20;
/// About so many bytes of entries go into a message, one entry at least.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;
/// So many messages with entries are on their way to a follower at once; with the bytes of each, its share of
/// memory is bounded.
const IN_FLIGHT_MAX: usize = 64;

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
    /// The most bytes of entries in one batch. A single larger entry has one for itself.
    pub batch_bytes_max: u64,
    /// This member's disk was lost, and it takes part again from this term on: see [`Group::is_whole`].
    pub rejoined: Option<u64>,
    /// Ways of writing that only measurements take: a leader that sends an entry only after its own sync.
    pub lab: Lab,
}

/// What is known of a group from before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Its term and vote.
    pub hard_state: HardState,
    /// The index and the term of the last entry known to be committed; zeros if there is none. All up to it
    /// were applied.
    pub applied: (u64, u64),
    /// The entries after it, which may be committed or not, without a gap.
    pub tail: Vec<LoggedEntry>,
    /// Where the entries are in the log.
    pub history: History,
    /// A state was taken over as of `applied`, and the log does not say so yet.
    pub installed: bool,
}

/// An entry in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Where its record is in the log.
    pub lsn: Lsn,
    /// Its bytes; none in one that only Raft needs.
    pub data: Bytes,
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
    /// The tick it was made in.
    since: u64,
    /// Entries that are in the log already.
    again: bool,
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
    /// Its bytes; none in one that only Raft needs.
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
    /// No entry may be so large.
    #[error("an entry of {bytes} bytes where at most {ENTRY_BYTES_MAX} are taken: split it")]
    TooLarge {
        /// What it has.
        bytes: u64,
    },
}

/// A member of a group: what may be proposed, what is to be written, what is committed, what the others are
/// told.
///
/// After each [`step`](Self::step), [`tick`](Self::tick), [`propose`](Self::propose) and
/// [`handle_durable`](Self::handle_durable): first what is to be appended, then messages, then what is
/// committed.
pub struct Group {
    raft: RawNode<Tail>,
    options: GroupOptions,
    /// As the log has it, or will have it when what waits is appended.
    hard_state: HardState,
    /// The commit index the log has, or will have.
    committed_written: u64,
    /// To be appended; the numbers grow.
    outgoing: VecDeque<Batch>,
    outgoing_bytes: u64,
    /// Appended and not yet durable: where they end, their numbers, and the tick they were made in.
    undurable: VecDeque<(Lsn, u64, u64)>,
    renewed: Option<renew::Renewed>,
    committed: VecDeque<Committed>,
    outbox: Outbox,
    /// What this member proposed in the term it leads and was not taken since: index and bytes.
    proposed: VecDeque<(u64, u64)>,
    uncommitted_bytes: u64,
    /// The term it leads.
    leads: Option<u64>,
    /// Callers of what was proposed since the last batch.
    callers: u64,
    /// How many there were.
    ticks: u64,
    catch_up: Option<CatchUp>,
    installing: Option<Installing>,
    /// The term and the bytes of the last entries that the log had no room for.
    refused: Option<(u64, u64)>,
    /// The member hears heartbeats and does not answer them.
    silent: bool,
    /// The member does not stand for election before this tick.
    stands_at: u64,
    /// The commit index when this member last lost its quorum as a leader, and how often it had lost it there
    /// before.
    gave_way: (u64, u32),
}

impl Group {
    /// The group as it was left. Alone in its group, it leads at once: its election waits to be appended.
    #[must_use]
    pub fn open(mut options: GroupOptions, mut restored: Restored) -> Self {
        let rejoins = rejoin::begin(&options, &mut restored);
        options.voters.sort_unstable();
        options.voters.dedup();
        let rank = options.voters.iter().position(|v| *v == options.id);
        let rank = rank.expect("a member is one of the voters") as u64;
        // Another member stands first in the next group, so that not one of them leads all.
        let voters = options.voters.len() as u64;
        let rank = (rank + voters - u64::from(options.group - 1) % voters) % voters;
        let applied = restored.applied;
        let mut tail = Tail::new(
            applied,
            restored.history,
            restored.hard_state,
            options.voters.clone(),
        );
        for entry in restored.tail {
            tail.restore(entry.index, entry.term, entry.lsn, entry.data);
        }
        let timeout = (ELECTION_TICKS + rank * RANK_TICKS) as usize;
        let config = Config {
            id: options.id,
            applied: applied.0,
            // Whoever heard of a leader this long ago helps nobody to depose it.
            election_tick: ELECTION_TICKS as usize,
            // Raft draws from this range: there is one number in it.
            min_election_tick: timeout,
            max_election_tick: timeout + 1,
            heartbeat_tick: HEARTBEAT_TICKS as usize,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: IN_FLIGHT_MAX,
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
            committed_written: applied.0,
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            undurable: VecDeque::new(),
            renewed: None,
            committed: VecDeque::new(),
            outbox: Outbox::default(),
            proposed: VecDeque::new(),
            uncommitted_bytes: 0,
            leads: None,
            callers: 0,
            ticks: 0,
            catch_up: None,
            installing: None,
            refused: None,
            silent: false,
            stands_at: 0,
            gave_way: (0, 0),
            options,
        };
        if rejoins {
            let record = records::hard_state(group.options.group, group.hard_state);
            group.put_out(Batch {
                records: vec![record],
                ..Batch::default()
            });
        }
        if restored.installed {
            let record = records::installed(group.options.group, applied.0, applied.1);
            // No batch of Raft's: it waits for nothing that this is durable.
            group.put_out(Batch {
                records: vec![record],
                ..Batch::default()
            });
        }
        if group.options.voters.len() == 1 {
            let won = group.raft.campaign();
            won.expect("who is alone may campaign");
        }
        group.collect();
        group
    }

    /// Returns whether this member decides.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// Returns whether it decides, and everything decided before it led was handed out to be applied: only
    /// now does it know the state it decides about.
    #[must_use]
    pub fn leads_settled(&self) -> bool {
        let before = |c: &Committed| c.term < self.raft.raft.term;
        self.leads()
            && !self.committed.front().is_some_and(before)
            && self.raft.raft.commit_to_current_term()
    }

    /// Returns whether it has no other member.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.options.voters.len() == 1
    }

    /// Its number in the log.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.options.group
    }

    /// Its term and vote, as they stand in the log once everything handed out is durable.
    #[must_use]
    pub const fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// Returns whether everything that was to be written is durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.outgoing.is_empty() && self.undurable.is_empty()
    }

    /// How many ticks it has lived.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Returns the batches that wait to be appended, in order.
    pub fn outgoing(&self) -> impl Iterator<Item = &Batch> {
        self.outgoing.iter()
    }

    /// The bytes that these records take of the log, in each of the appends they are divided into.
    #[must_use]
    pub fn batches_of(&self, mut records: &[Record]) -> Vec<u64> {
        let mut batches = Vec::new();
        while let Some(at) = over(records, self.options.batch_bytes_max) {
            let (batch, rest) = records.split_at(at);
            batches.push(batch_bytes(batch));
            records = rest;
        }
        batches.push(batch_bytes(records));
        batches
    }

    /// The index of the last entry.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.raft.raft.raft_log.last_index()
    }

    /// The index of the last entry known to be committed.
    #[must_use]
    pub fn committed_index(&self) -> u64 {
        self.raft.raft.raft_log.committed
    }

    /// The index of the first entry another member could still be sent.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.raft.store().first()
    }

    /// Bytes this member proposed since it leads and that were not applied yet.
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
        if bytes > ENTRY_BYTES_MAX {
            return Err(ProposeError::TooLarge { bytes });
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
        self.proposed.push_back((proposed.index, bytes));
        self.collect();
        Ok(proposed)
    }

    /// What is to be appended next. It stays the next until [`handle_appended`](Self::handle_appended).
    #[must_use]
    pub fn poll_append(&self) -> Option<&Batch> {
        self.outgoing.front()
    }

    /// The log has accepted what was to be appended next: its records are at these positions, and it ends
    /// there.
    pub fn handle_appended(&mut self, positions: &[Lsn], end: Lsn) {
        let batch = self.outgoing.pop_front();
        let batch = batch.expect("something was to be appended");
        assert_eq!(batch.records.len(), positions.len());
        let tail = self.raft.mut_store();
        for (record, &lsn) in batch.records.iter().zip(positions) {
            self.outgoing_bytes -= record.payload.len() as u64;
            if record.kind == records::KIND_ENTRY && !batch.again {
                tail.placed(record.index, record.term, lsn);
            }
        }
        if batch.again {
            let entries = batch.records.iter().map(|r| (r.index, r.term));
            let entries = entries.zip(positions.iter().copied());
            self.renewed = Some((end, entries.collect()));
        }
        self.undurable.push_back((end, batch.number, batch.since));
    }

    /// The log is durable up to there.
    pub fn handle_durable(&mut self, durable: Lsn) {
        self.place_renewed(durable);
        let count = self.undurable.partition_point(|&(end, ..)| end <= durable);
        let numbers = self.undurable.drain(..count).map(|(_, number, _)| number);
        if let Some(number) = numbers.max() {
            self.persisted(number);
            self.collect();
        }
    }

    /// The log has let go of what stands before this position.
    pub fn handle_released(&mut self, before: Lsn) {
        self.raft.mut_store().released(before);
        // Whoever waits for what is gone learns it.
        self.handle_read(0, Vec::new());
    }

    /// The next entry to apply, in order, each once. To ask for the next says that the one before was
    /// applied.
    pub fn poll_committed(&mut self) -> Option<Committed> {
        let committed = self.committed.pop_front()?;
        let index = committed.index;
        let count = self.proposed.partition_point(|(i, _)| *i <= index);
        let taken = self.proposed.drain(..count).map(|(_, bytes)| bytes);
        self.uncommitted_bytes -= taken.sum::<u64>();
        self.raft.advance_apply_to(index);
        let bytes_max = self.options.tail_bytes_max;
        let tail = self.raft.mut_store();
        tail.applied(index, committed.term, bytes_max);
        Some(committed)
    }

    /// The bytes of the entry whose record is at this position, if they are still in memory.
    #[must_use]
    pub fn cached(&self, lsn: Lsn) -> Option<&Bytes> {
        self.raft.store().at(lsn)
    }

    /// All batches up to this number are durable.
    fn persisted(&mut self, number: u64) {
        self.raft.on_persist_ready(number);
        self.outbox.release(number);
        self.finish_install();
    }

    /// Takes everything Raft has to say.
    fn collect(&mut self) {
        while self.raft.has_ready() {
            let mut ready = self.raft.ready();
            let mut batch = Batch {
                number: ready.number(),
                since: self.ticks,
                ..Batch::default()
            };
            let snapshot = ready.snapshot().get_metadata();
            let (index, term) = (snapshot.index, snapshot.term);
            if index > 0 {
                self.raft.mut_store().reset(index, term);
                let record = records::installed(self.options.group, index, term);
                batch.records.push(record);
            }
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
            self.take_entries(ready.take_entries(), &mut batch);
            match self.options.lab.one_at_a_time() {
                true => self.outbox.hold(batch.number, ready.take_messages()),
                false => self.outbox.send(ready.take_messages()),
            }
            let mut held = ready.take_persisted_messages();
            if self.silent {
                held.retain(|m| m.get_msg_type() != MessageType::MsgHeartbeatResponse);
            }
            self.outbox.hold(batch.number, held);
            self.take_committed(&ready.take_committed_entries());
            self.raft.advance_append_async(ready);
            self.hand_out(batch);
        }
        let leads = self.leads().then_some(self.raft.raft.term);
        if leads != self.leads {
            // What was proposed before may never be committed, or by others.
            self.leads = leads;
            self.raft.mut_store().forget_waiting();
            self.proposed.clear();
            (self.uncommitted_bytes, self.callers) = (0, 0);
        }
    }

    fn take_entries(&mut self, entries: Vec<Entry>, batch: &mut Batch) {
        let first = entries.first().map_or(u64::MAX, Entry::get_index);
        if first <= self.raft.store().last() {
            // Should what is written over be written a third time as it was at first, Raft would take the
            // first for the third. So it hears only of the last.
            self.undurable.iter_mut().for_each(|(_, n, _)| *n = 0);
            self.outgoing.iter_mut().for_each(|b| b.number = 0);
        }
        for mut entry in entries {
            let (index, term, data) = (entry.get_index(), entry.get_term(), entry.take_data());
            let record = records::entry(self.options.group, index, term, data.clone());
            batch.records.push(record);
            self.raft.mut_store().push(index, term, data);
        }
        // Of one that is alone all is committed that is durable. A commit index is worth no write of its own.
        let committed = self.committed_index();
        if committed > self.committed_written
            && !batch.records.is_empty()
            && self.options.voters.len() > 1
        {
            self.committed_written = committed;
            let record = records::committed(self.options.group, committed);
            batch.records.push(record);
        }
    }

    fn take_committed(&mut self, entries: &[Entry]) {
        for entry in entries {
            let found = self.raft.store().get(entry.get_index());
            let placed = found.and_then(|(lsn, _, data)| Some((lsn?, data.clone())));
            let (lsn, data) = placed.expect("what is committed was appended and is in the tail");
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
            self.divide(batch);
            return;
        }
        // Nothing of it is to be written: it is persisted with what is to be before it.
        let number = batch.number;
        if let Some(last) = self.outgoing.back_mut() {
            last.number = number;
        } else if let Some((_, last, _)) = self.undurable.back_mut() {
            *last = number;
        } else {
            self.persisted(number);
        }
    }

    /// What is too much for one append goes into several. Raft hears of the last.
    fn divide(&mut self, mut batch: Batch) {
        if let Some(at) = over(&batch.records, self.options.batch_bytes_max) {
            let rest = batch.records.split_off(at);
            let (number, callers) = (std::mem::take(&mut batch.number), 0);
            let (since, again) = (batch.since, batch.again);
            self.put_out(batch);
            self.divide(Batch {
                number,
                records: rest,
                callers,
                since,
                again,
            });
        } else {
            self.put_out(batch);
        }
    }

    fn put_out(&mut self, batch: Batch) {
        let bytes = batch.records.iter().map(|r| r.payload.len() as u64);
        self.outgoing_bytes += bytes.sum::<u64>();
        self.outgoing.push_back(batch);
    }
}

/// The first record that is too much for one append beside those before it.
fn over(records: &[Record], batch_bytes_max: u64) -> Option<usize> {
    let mut bytes = 0;
    records.iter().position(|record| {
        bytes += record.payload.len() as u64;
        bytes > batch_bytes_max && bytes > record.payload.len() as u64
    })
}

/// Raft hands out committed entries in portions of so many bytes.
const COMMITTED_BYTES_MAX: u64 = 8 << 20;

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod tests;
