//! A member's view of its group: drives the crate `raft`, and calls it in the order that it requires.
//!
//! Raft returns the records for the log in batches with growing numbers. One append writes a batch, with the
//! hard state before the entries. The log appends the batches in the order of their numbers. Raft learns that
//! a batch is persisted once the log is durable to the batch's end, so every committed entry is durable. Raft
//! runs in its asynchronous mode (`advance_append_async`, `on_persist_ready`), so that the leader takes
//! proposals during a sync. A leader sends its messages at once. All other members send a message once the
//! batch with which Raft returned it is durable.

mod fetch;
mod install;
mod peers;
mod rejoin;
mod renew;

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{Entry, Message, MessageType};
use raft::{Config, RawNode, StateRole};
use tidegate_cluster::groups::GroupId;
use tidegate_log::{Lsn, Record, batch_bytes};

use self::install::Installing;
use super::history::History;
use super::id::{EntryId, Index, Term};
use super::outbox::Outbox;
use super::records::{self, HardState};
use super::tail::Tail;
use crate::lab::Lab;

pub use self::fetch::Lagging;
pub use self::install::{CatchUp, Unneeded};
pub use self::peers::{PeerProgress, Role, TransferError};

/// The number of ticks without a message after which the follower of the lowest rank stands for election.
pub const ELECTION_TICKS: u64 = 10;
/// The number of ticks by which the member of each next rank waits longer before it stands for election. So
/// candidates do not collide, and no random timeout is needed.
pub const RANK_TICKS: u64 = 3;
/// The number of ticks between two heartbeats of a leader.
pub const HEARTBEAT_TICKS: u64 = 2;
/// The most bytes of an entry: more than any useful entry has, and few enough for memory and for a message.
pub const ENTRY_BYTES_MAX: u64 = 64 << 20;
/// The bytes of entries that a message holds, approximately; a message holds at least one entry.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;
/// The most messages with entries in flight to one follower. With the bound of a message's bytes, this bounds
/// the memory that a leader needs for a follower.
const IN_FLIGHT_MAX: usize = 64;

/// Options of a group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The group's number in the log.
    pub group: GroupId,
    /// The id of this member; never 0.
    pub id: u64,
    /// The ids of all voters.
    pub voters: Vec<u64>,
    /// The most bytes of entries that the leader has proposed and not applied yet. The leader accepts a
    /// larger entry if no other entry is in flight.
    pub uncommitted_bytes_max: u64,
    /// The most bytes of applied entries that the member keeps in memory.
    pub tail_bytes_max: u64,
    /// The most bytes of entries in one batch. A larger entry gets a batch of its own.
    pub batch_bytes_max: u64,
    /// The term from which on this member takes part again after it lost its disk: see [`Group::is_whole`].
    pub rejoined: Option<Term>,
    /// Deviations from the product for measurements: for instance, the leader sends an entry only after its
    /// own sync.
    pub lab: Lab,
}

/// A group's data from before the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The group's term and vote.
    pub hard_state: HardState,
    /// The last entry that the member knows as committed; [`EntryId::ZERO`] if there is none. The member has
    /// applied all entries up to it.
    pub applied: EntryId,
    /// The entries behind the entry `applied`, without a gap. Any of them may be committed or not.
    pub tail: Vec<LoggedEntry>,
    /// The positions of the entries in the log.
    pub history: History,
    /// True if the member took over a state as of `applied` and the log does not record it yet.
    pub installed: bool,
}

/// An entry in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    /// The entry's index.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
    /// The position of the entry's record in the log.
    pub lsn: Lsn,
    /// The entry's bytes; empty for an entry that serves only Raft.
    pub data: Bytes,
}

/// Records that the caller must write to the log in one append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Raft's number of the batch.
    number: u64,
    /// The records, in the order in which the log must have them.
    pub records: Vec<Record>,
    /// The number of callers that wait for the batch.
    pub callers: u64,
    /// The tick in which Raft created the batch.
    since: u64,
    /// True if the log holds these entries already, and the batch writes them again.
    again: bool,
}

/// An entry that this member proposed as leader and has not applied yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    index: Index,
    bytes: u64,
}

/// A committed entry. The caller applies it before it asks for the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The entry's index.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
    /// The position of the entry's record in the log.
    pub lsn: Lsn,
    /// The entry's bytes; empty for an entry that serves only Raft.
    pub data: Bytes,
}

impl LoggedEntry {
    /// Returns the index and the term of the entry.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        EntryId {
            index: self.index,
            term: self.term,
        }
    }
}

impl Committed {
    /// Returns the index and the term of the entry.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        EntryId {
            index: self.index,
            term: self.term,
        }
    }
}

/// The reason why a member refuses a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// The leader has too many bytes of entries in flight.
    #[error(
        "too much waits to be committed ({missing_bytes} bytes over the bound): try again when something was committed"
    )]
    Full {
        /// The number of bytes by which the entry exceeds the bound.
        missing_bytes: u64,
    },
    /// Another member leads.
    #[error("this node does not lead its group: ask the leader")]
    NotLeader,
    /// The entry is larger than any entry may be.
    #[error("an entry of {bytes} bytes where at most {ENTRY_BYTES_MAX} are taken: split it")]
    TooLarge {
        /// The number of bytes of the entry.
        bytes: u64,
    },
}

/// A member of a group: takes proposals, and returns the records to write, the messages to send and the
/// committed entries.
///
/// After each [`step`](Self::step), [`tick`](Self::tick), [`propose`](Self::propose) and
/// [`handle_durable`](Self::handle_durable), the caller first appends the waiting batches, then sends the
/// messages, then applies the committed entries.
pub struct Group {
    raft: RawNode<Tail>,
    options: GroupOptions,
    /// The term and the vote that the log has once all waiting batches are appended.
    hard_state: HardState,
    /// The commit index that the log has once all waiting batches are appended.
    committed_written: Index,
    /// The batches that the caller must append, in order.
    outgoing: VecDeque<Batch>,
    outgoing_bytes: u64,
    /// The batches that the caller has appended and that are not yet durable: the end, the number and the
    /// creation tick of each batch.
    undurable: VecDeque<(Lsn, u64, u64)>,
    renewed: Option<renew::Renewed>,
    committed: VecDeque<Committed>,
    outbox: Outbox,
    /// The entries that this member proposed in the term that it leads, and has not applied yet.
    proposed: VecDeque<Waiting>,
    uncommitted_bytes: u64,
    /// The term that this member leads.
    leads: Option<Term>,
    /// The number of callers that wait for the entries proposed since the last batch.
    callers: u64,
    /// The number of ticks so far.
    ticks: u64,
    catch_up: Option<CatchUp>,
    installing: Option<Installing>,
    /// The entries that this member refused last, because the log had no room: their term and the log bytes
    /// that they need.
    refused: Option<(Term, u64)>,
    /// True while the member handles a heartbeat that it must not answer.
    silent: bool,
    /// The tick before which the member does not stand for election.
    stands_at: u64,
    /// The commit index at which this member last lost its quorum as a leader, and how often it had lost the
    /// quorum at this index before.
    gave_way: (Index, u32),
}

impl Group {
    /// Opens the group with the data that the log and the checkpoint had at the start. A sole member wins its
    /// election at once, and leads once the caller has appended the record of that election.
    #[must_use]
    pub fn open(mut options: GroupOptions, mut restored: Restored) -> Self {
        let rejoins = rejoin::begin(&options, &mut restored);
        options.voters.sort_unstable();
        options.voters.dedup();
        let rank = options.voters.iter().position(|v| *v == options.id);
        let rank = rank.expect("a member is one of the voters") as u64;
        // The rank of a member depends on the group's number, so that in the next group another member stands
        // first and the leaders of the groups spread over the members.
        let voters = options.voters.len() as u64;
        let rank = (rank + voters - u64::from(options.group.get() - 1) % voters) % voters;
        let applied = restored.applied;
        let mut tail = Tail::new(
            applied,
            restored.history,
            restored.hard_state,
            options.voters.clone(),
        );
        for entry in restored.tail {
            tail.restore(entry.id(), entry.lsn, entry.data);
        }
        let timeout = (ELECTION_TICKS + rank * RANK_TICKS) as usize;
        let config = Config {
            id: options.id,
            applied: applied.index.get(),
            // A member that heard from a leader within this time does not vote for another member.
            election_tick: ELECTION_TICKS as usize,
            // Raft draws the election timeout at random from this range, which holds only one number.
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
            committed_written: applied.index,
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
            gave_way: (Index::ZERO, 0),
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
            let record = records::installed(group.options.group, applied);
            // The group adds this batch itself. It has no number of Raft, which does not wait for it.
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

    /// Returns whether this member leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// Returns whether this member leads, and the caller has taken every entry that was committed before.
    /// Only then does the caller know the current state.
    #[must_use]
    pub fn leads_settled(&self) -> bool {
        let before = |c: &Committed| c.term < self.term();
        self.leads()
            && !self.committed.front().is_some_and(before)
            && self.raft.raft.commit_to_current_term()
    }

    /// Returns whether the group has no other member.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.options.voters.len() == 1
    }

    /// Returns the group's number in the log.
    #[must_use]
    pub const fn number(&self) -> GroupId {
        self.options.group
    }

    /// Returns the term and the vote that the log has once all batches are durable.
    #[must_use]
    pub const fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// Returns the number of entries that this member proposed as leader and that the caller has not taken as
    /// committed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.proposed.len()
    }

    /// Returns whether all batches are durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.outgoing.is_empty() && self.undurable.is_empty()
    }

    /// Returns the number of ticks since the start.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Returns the batches that wait to be appended, in order.
    pub fn outgoing(&self) -> impl Iterator<Item = &Batch> {
        self.outgoing.iter()
    }

    /// Divides these records into batches, and returns the number of bytes that each batch takes in the log.
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

    /// Returns the index of the last entry.
    #[must_use]
    pub fn last_index(&self) -> Index {
        Index::new(self.raft.raft.raft_log.last_index())
    }

    /// Returns the index of the last entry that this member knows as committed.
    #[must_use]
    pub fn committed_index(&self) -> Index {
        Index::new(self.raft.raft.raft_log.committed)
    }

    /// Returns the index of the first entry that this member can still send.
    #[must_use]
    pub fn first_index(&self) -> Index {
        self.raft.store().first()
    }

    /// Returns the number of bytes of the entries that this member has proposed as leader and not applied
    /// yet.
    #[must_use]
    pub const fn uncommitted_bytes(&self) -> u64 {
        self.uncommitted_bytes
    }

    /// Proposes an entry for `callers` callers. The entry must not be empty. Returns the index and the term
    /// that the entry gets if this member stays leader. Another entry at this index has another term.
    ///
    /// # Errors
    /// See [`ProposeError`]; nothing has changed then.
    pub fn propose(&mut self, entry: Bytes, callers: u64) -> Result<EntryId, ProposeError> {
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
        // The crate `raft` takes every proposal of a leader, unless the leader is handing leadership over.
        taken.map_err(|_| ProposeError::NotLeader)?;
        self.uncommitted_bytes += bytes;
        self.callers += callers;
        let proposed = EntryId {
            index: self.last_index(),
            term: self.term(),
        };
        let index = proposed.index;
        self.proposed.push_back(Waiting { index, bytes });
        self.collect();
        Ok(proposed)
    }

    /// Returns the next batch that the caller must append. Returns the same batch until
    /// [`handle_appended`](Self::handle_appended).
    #[must_use]
    pub fn poll_append(&self) -> Option<&Batch> {
        self.outgoing.front()
    }

    /// Notes that the log has accepted the next batch: the batch's records are at `positions`, and the batch
    /// ends at `end`.
    pub fn handle_appended(&mut self, positions: &[Lsn], end: Lsn) {
        let batch = self.outgoing.pop_front();
        let batch = batch.expect("something was to be appended");
        assert_eq!(batch.records.len(), positions.len());
        let tail = self.raft.mut_store();
        for (record, &lsn) in batch.records.iter().zip(positions) {
            self.outgoing_bytes -= record.payload.len() as u64;
            if record.kind == records::KIND_ENTRY && !batch.again {
                tail.placed(EntryId::new(record.index, record.term), lsn);
            }
        }
        if batch.again {
            let entries = batch.records.iter();
            let entries = entries.map(|r| EntryId::new(r.index, r.term));
            let entries = entries.zip(positions.iter().copied());
            self.renewed = Some((end, entries.collect()));
        }
        self.undurable.push_back((end, batch.number, batch.since));
    }

    /// Notes that the log is durable up to this position.
    pub fn handle_durable(&mut self, durable: Lsn) {
        self.place_renewed(durable);
        let count = self.undurable.partition_point(|&(end, ..)| end <= durable);
        let numbers = self.undurable.drain(..count).map(|(_, number, _)| number);
        if let Some(number) = numbers.max() {
            self.persisted(number);
            self.collect();
        }
    }

    /// Notes that the log has released everything before this position.
    pub fn handle_released(&mut self, before: Lsn) {
        self.raft.mut_store().released(before);
        // The call makes Raft repeat its requests for entries that the log has released, and these requests
        // now fail.
        self.handle_read(Index::ZERO, Vec::new());
    }

    /// Returns the next entry that the caller must apply: each entry once, in order. With the call the caller
    /// confirms that it has applied the previous entry.
    pub fn poll_committed(&mut self) -> Option<Committed> {
        let committed = self.committed.pop_front()?;
        let index = committed.index;
        let count = self
            .proposed
            .partition_point(|waiting| waiting.index <= index);
        let taken = self.proposed.drain(..count).map(|waiting| waiting.bytes);
        self.uncommitted_bytes -= taken.sum::<u64>();
        self.raft.advance_apply_to(index.get());
        let bytes_max = self.options.tail_bytes_max;
        let tail = self.raft.mut_store();
        tail.applied(committed.id(), bytes_max);
        Some(committed)
    }

    /// Returns the bytes of the entry that has its record at this position, if the bytes are still in memory.
    #[must_use]
    pub fn cached(&self, lsn: Lsn) -> Option<&Bytes> {
        self.raft.store().at(lsn)
    }

    /// Reports to Raft that all batches up to this number are durable.
    fn persisted(&mut self, number: u64) {
        self.raft.on_persist_ready(number);
        self.outbox.release(number);
        self.finish_install();
    }

    /// Takes all output of Raft, and distributes it to the batches, the outbox and the committed entries.
    fn collect(&mut self) {
        while self.raft.has_ready() {
            let mut ready = self.raft.ready();
            let mut batch = Batch {
                number: ready.number(),
                since: self.ticks,
                ..Batch::default()
            };
            let snapshot = ready.snapshot().get_metadata();
            let state = EntryId::new(snapshot.index, snapshot.term);
            if state.index > Index::ZERO {
                self.raft.mut_store().reset(state);
                let record = records::installed(self.options.group, state);
                batch.records.push(record);
            }
            if let Some(hs) = ready.hs() {
                let state = HardState {
                    term: Term::new(hs.get_term()),
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
        let leads = self.leads().then_some(self.term());
        if leads != self.leads {
            // The member has begun or ceased to lead. Entries that it proposed before may never be committed,
            // or another leader may commit them, so it no longer counts them.
            self.leads = leads;
            self.raft.mut_store().forget_waiting();
            self.proposed.clear();
            (self.uncommitted_bytes, self.callers) = (0, 0);
        }
    }

    fn take_entries(&mut self, entries: Vec<Entry>, batch: &mut Batch) {
        let first = entries.first().map(|e| Index::new(e.get_index()));
        if first.is_some_and(|first| first <= self.raft.store().last()) {
            // These entries replace older ones. A leader may later send an entry with the contents of the
            // older one again. Raft would then take the durability of the first write for that of the later
            // one. So Raft learns only when the last batch is durable.
            self.undurable.iter_mut().for_each(|(_, n, _)| *n = 0);
            self.outgoing.iter_mut().for_each(|b| b.number = 0);
        }
        for mut entry in entries {
            let id = EntryId::new(entry.get_index(), entry.get_term());
            let data = entry.take_data();
            let record = records::entry(self.options.group, id, data.clone());
            batch.records.push(record);
            self.raft.mut_store().push(id, data);
        }
        // A sole member has committed all its durable entries. With other members, the group writes the
        // commit index only together with other records.
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
            let EntryId { index, term } = EntryId::new(entry.get_index(), entry.get_term());
            let found = self.raft.store().get(index);
            let placed = found.and_then(|(lsn, _, data)| Some((lsn?, data.clone())));
            let (lsn, data) = placed.expect("a committed entry was appended and is in the tail");
            self.committed.push_back(Committed {
                index,
                term,
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
        // The batch has no record to write, so it counts as durable together with the batch before it.
        let number = batch.number;
        if let Some(last) = self.outgoing.back_mut() {
            last.number = number;
        } else if let Some((_, last, _)) = self.undurable.back_mut() {
            *last = number;
        } else {
            self.persisted(number);
        }
    }

    /// Divides a batch that is too large for one append. Only the last part has Raft's number of the batch.
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

/// Returns the index of the first record that does not fit into one append together with the records before
/// it.
fn over(records: &[Record], batch_bytes_max: u64) -> Option<usize> {
    let mut bytes = 0;
    records.iter().position(|record| {
        bytes += record.payload.len() as u64;
        bytes > batch_bytes_max && bytes > record.payload.len() as u64
    })
}

/// The most bytes of committed entries that Raft returns at once.
const COMMITTED_BYTES_MAX: u64 = 8 << 20;

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod tests;
