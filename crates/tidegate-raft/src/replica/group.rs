//! A node's membership in one Raft group: drives the crate `raft`, and calls it in the order that the crate
//! requires.
//!
//! Raft returns the records for the log in batches with growing numbers. One append writes a batch, with the
//! hard state before the entries. The log appends the batches in the order of their numbers. Raft learns
//! that a batch is persisted once the log is durable to the batch's end, so every committed entry is
//! durable. Raft runs in its asynchronous mode (`advance_append_async`, `on_persist_ready`), so that the
//! leader takes proposals during a sync. A leader sends its messages at once. Another member holds each
//! message back until the batch with which Raft returned the message is durable, because the message
//! promises that batch.

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

/// The number of ticks without a message of a leader after which a follower of rank 0 stands for election. A
/// member's rank is its place in the order in which the members stand for election.
pub const ELECTION_TICKS: u64 = 10;
/// The number of ticks that each rank adds to the time after which a member stands for election. So two
/// members do not stand at the same time, and Raft needs no random timeout.
pub const RANK_TICKS: u64 = 3;
/// The number of ticks between two heartbeats of a leader, with which it keeps its followers from standing
/// for election.
pub const HEARTBEAT_TICKS: u64 = 2;
/// The greatest number of bytes that an entry may have: more than any useful entry needs, and few enough for
/// a node's memory and for one message.
pub const ENTRY_BYTES_MAX: u64 = 64 << 20;
/// The bytes of entries beyond which a leader adds no further entry to a message. The leader sends a single
/// larger entry nevertheless.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;
/// The greatest number of messages with entries that a leader has sent to one follower and that the follower
/// has not acknowledged. With the bound on a message's bytes, this bounds the memory that the leader needs
/// for a follower.
const IN_FLIGHT_MAX: usize = 64;

/// The options with which a node opens its membership in a group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The number of the group, which its records carry in the log that all groups of the node share.
    pub group: GroupId,
    /// The id of this member in the group; never 0, because Raft uses 0 for "no member".
    pub id: u64,
    /// The ids of all members that vote in the group, including this member.
    pub voters: Vec<u64>,
    /// The greatest number of bytes of entries that the leader may have proposed and not applied yet, to
    /// bound its memory. The leader accepts a larger entry if no other entry is in flight.
    pub uncommitted_bytes_max: u64,
    /// The greatest number of bytes of applied entries that the member keeps in memory. For older entries,
    /// the member reads the log.
    pub tail_bytes_max: u64,
    /// The greatest number of bytes of entries in one batch for the log. The member puts a larger entry into
    /// a batch of its own.
    pub batch_bytes_max: u64,
    /// The term from which on this member takes part again after it lost its disk, see [`Group::is_whole`];
    /// `None` if it did not lose its disk, or has recovered every entry that it may have acknowledged.
    pub rejoined: Option<Term>,
    /// The settings by which this member deviates from the product in a measurement: for instance, the leader
    /// sends an entry only after its own sync.
    pub lab: Lab,
}

/// The data of a group that a node finds in its log and its checkpoint at its start, from which the member
/// continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The term that this member was in and the vote that it gave there, as the log or the checkpoint records
    /// them.
    pub hard_state: HardState,
    /// The last entry that this member knows as committed; [`EntryId::ZERO`] if there is none. The group
    /// counts all entries up to it as applied.
    pub applied: EntryId,
    /// The entries behind the entry `applied`, without a gap. The member does not know yet which of them are
    /// committed.
    pub tail: Vec<LoggedEntry>,
    /// The positions and terms of the group's entries in the log, by which the store finds entries for
    /// lagging followers.
    pub history: History,
    /// True if the member took over the state as of `applied` from another member and the log does not record
    /// the takeover yet.
    pub installed: bool,
}

/// An entry of a group that the log held at the start of the node, which the member must still commit or
/// replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    /// The entry's index: its number in the group's log.
    pub index: Index,
    /// The entry's term: the term of the leader that proposed the entry.
    pub term: Term,
    /// The log position of the entry's record, at which the store can read the entry.
    pub lsn: Lsn,
    /// The entry's bytes; empty for an entry of Raft itself, with which a leader begins its term.
    pub data: Bytes,
}

/// Records of a group that the caller must write to the log in one append, so that a crash keeps all or
/// none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The number that Raft gave to the batch. This member reports the number to Raft once the batch is
    /// durable; 0 if Raft does not wait for the batch.
    number: u64,
    /// The records of the batch, in the order in which the log must have them, because later ones override
    /// earlier ones.
    pub records: Vec<Record>,
    /// The number of callers that wait for the entries in the batch. The log's controller uses the number to
    /// decide about the sync.
    pub callers: u64,
    /// The tick in which Raft created the batch, counted from the start of the node. From the age of its
    /// batches the member learns that its disk hangs.
    since: u64,
    /// True if the log holds the batch's entries already, and the group writes them again so that the log can
    /// release the old records.
    again: bool,
}

/// An entry that this member proposed as leader and has not applied yet, with its share of the bytes in
/// flight.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    index: Index,
    bytes: u64,
}

/// A committed entry, which the caller applies before it asks the group for the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The entry's index: its number in the group's log.
    pub index: Index,
    /// The entry's term: the term of the leader that proposed the entry.
    pub term: Term,
    /// The log position of the entry's record, at which the store can read the entry.
    pub lsn: Lsn,
    /// The entry's bytes; empty for an entry of Raft itself, with which a leader begins its term.
    pub data: Bytes,
}

impl LoggedEntry {
    /// Returns the id of the logged entry, which identifies it in the group: its index and its term.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        EntryId {
            index: self.index,
            term: self.term,
        }
    }
}

impl Committed {
    /// Returns the id of the committed entry, which identifies it in the group: its index and its term.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        EntryId {
            index: self.index,
            term: self.term,
        }
    }
}

/// The reason why a member refuses to propose an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// The leader has too many bytes of entries in flight: the caller tries again once more of them are
    /// committed.
    #[error(
        "too many bytes of entries wait for their commit ({missing_bytes} over the bound): try again once more are committed"
    )]
    Full {
        /// The number of bytes by which the refused entry would exceed the bound on the bytes of entries in
        /// flight.
        missing_bytes: u64,
    },
    /// This member does not lead its group, and only the leader may propose.
    #[error("this node does not lead its group: ask the leader")]
    NotLeader,
    /// The proposed entry has more than [`ENTRY_BYTES_MAX`] bytes.
    #[error("an entry of {bytes} bytes where at most {ENTRY_BYTES_MAX} are taken: split it")]
    TooLarge {
        /// The number of bytes of the refused entry, which the caller must split.
        bytes: u64,
    },
}

/// One member of a Raft group: takes proposals, and returns the records to write, the messages to send and
/// the committed entries.
///
/// After each [`step`](Self::step), [`tick`](Self::tick), [`propose`](Self::propose) and
/// [`handle_durable`](Self::handle_durable), the caller first appends the waiting batches, then sends the
/// messages, then applies the committed entries.
pub struct Group {
    raft: RawNode<Tail>,
    options: GroupOptions,
    /// The member's term and vote, as the log will have them once the caller has appended all waiting
    /// batches.
    hard_state: HardState,
    /// The group's commit index, as the log will record it once the caller has appended all waiting batches.
    committed_written: Index,
    /// The batches that the caller must append to the log, in this order.
    outgoing: VecDeque<Batch>,
    outgoing_bytes: u64,
    /// The batches that the caller has appended and that are not yet durable. Each has the position of its
    /// end, its number in Raft, and the tick in which Raft created it.
    undurable: VecDeque<(Lsn, u64, u64)>,
    renewed: Option<renew::Renewed>,
    committed: VecDeque<Committed>,
    outbox: Outbox,
    /// The entries in flight: this member proposed them in the term that it leads, and the caller has not
    /// taken them to apply.
    proposed: VecDeque<Waiting>,
    uncommitted_bytes: u64,
    /// The term in which this member leads; `None` if it does not lead. From it the member notices that it
    /// has begun or ceased to lead.
    leads: Option<Term>,
    /// The number of callers that wait for newly proposed entries, which Raft has not yet returned in a
    /// batch.
    callers: u64,
    /// The number of ticks of this member's clock since the start of the node, by which the member measures
    /// how long its disk takes.
    ticks: u64,
    catch_up: Option<CatchUp>,
    installing: Option<Installing>,
    /// The term of the leader that sent the entries which this member refused last, because its log had no
    /// room for them, and the bytes that these entries need in the log.
    refused: Option<(Term, u64)>,
    /// True while the member handles a heartbeat that it must not answer: it cannot take the leader's
    /// entries, so it must not count in the leader's quorum.
    silent: bool,
    /// The tick before which this member does not stand for election, so that another member can lead; 0 if
    /// the member need not wait.
    stands_at: u64,
    /// The commit index at which this member last lost its quorum as a leader, and the number of times that
    /// it had lost the quorum at this index before. Each further time doubles the member's wait before it
    /// stands again, so that another member gets its turn.
    gave_way: (Index, u32),
}

impl Group {
    /// Opens the group with the data that the log and the checkpoint had at the start of the node. A sole
    /// member wins its election at once, and leads once the caller has appended the record of that election.
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
            // Raft refuses its vote to a candidate as long as the member has heard from a leader within this
            // number of ticks.
            election_tick: ELECTION_TICKS as usize,
            // Raft draws the election timeout at random from this range. The range holds only one number, so
            // that the rank decides.
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
            // Raft did not create this batch and does not wait for it, so the batch has the number 0.
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

    /// Returns whether this member leads the group, and so may propose entries.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// Returns whether this member leads and the caller knows the current state: the leader has committed an
    /// entry of its own term, and the caller has taken all committed entries of earlier terms.
    #[must_use]
    pub fn leads_settled(&self) -> bool {
        let before = |c: &Committed| c.term < self.term();
        self.leads()
            && !self.committed.front().is_some_and(before)
            && self.raft.raft.commit_to_current_term()
    }

    /// Returns whether this member is the only one of its group, and so needs no other member to commit.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.options.voters.len() == 1
    }

    /// Returns the number of the group, by which the node's log tells the groups apart.
    #[must_use]
    pub const fn number(&self) -> GroupId {
        self.options.group
    }

    /// Returns the member's term and vote, as the log has them once all batches of the group are durable,
    /// for a checkpoint.
    #[must_use]
    pub const fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// Returns the number of entries that this member proposed as leader and that the caller has not yet
    /// taken as committed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.proposed.len()
    }

    /// Returns whether the log has all records of the group durably, so that nothing of the group waits for
    /// the disk.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.outgoing.is_empty() && self.undurable.is_empty()
    }

    /// Returns the number of ticks of the member's clock since the start of the node, for callers that
    /// measure time by it.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Returns the batches of the group that the caller has not appended to the log yet, in order, so that
    /// the caller can reckon the room that they need.
    pub fn outgoing(&self) -> impl Iterator<Item = &Batch> {
        self.outgoing.iter()
    }

    /// Sets the greatest number of bytes of one append, [`GroupOptions::batch_bytes_max`] until then, because
    /// the log takes larger appends once it has reserved more of its segments.
    pub const fn set_batch_bytes_max(&mut self, bytes: u64) {
        self.options.batch_bytes_max = bytes;
    }

    /// Divides records of the group into batches as the group does, and returns the number of bytes that
    /// each batch takes in the log. So the caller knows before a write whether the log has room.
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

    /// Returns the index of the last entry in this member's log, whether or not the entry is committed.
    #[must_use]
    pub fn last_index(&self) -> Index {
        Index::new(self.raft.raft.raft_log.last_index())
    }

    /// Returns the index of the last entry that this member knows as committed: entries up to it can never
    /// change.
    #[must_use]
    pub fn committed_index(&self) -> Index {
        Index::new(self.raft.raft.raft_log.committed)
    }

    /// Returns the index of the first entry that this member can still send to a follower, from memory or
    /// from the log. A follower that needs an earlier entry must fetch a state.
    #[must_use]
    pub fn first_index(&self) -> Index {
        self.raft.store().first()
    }

    /// Returns the number of bytes of the entries that this member has proposed as leader and that the caller
    /// has not taken as committed yet.
    #[must_use]
    pub const fn uncommitted_bytes(&self) -> u64 {
        self.uncommitted_bytes
    }

    /// Proposes an entry, for the commit of which `callers` callers wait. The entry must not be empty.
    /// Returns the index and the term that the entry gets if this member stays leader. If another leader's
    /// entry takes this index, that entry has another term.
    ///
    /// # Errors
    /// See [`ProposeError`]; a refused proposal has changed nothing.
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
        // The crate `raft` refuses a leader's proposal only while the leader is handing its leadership over.
        // The member then answers as if it no longer led.
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

    /// Returns the next batch that the caller must append to the log. Returns the same batch until the caller
    /// calls [`handle_appended`](Self::handle_appended).
    #[must_use]
    pub fn poll_append(&self) -> Option<&Batch> {
        self.outgoing.front()
    }

    /// Notes that the log has accepted the next batch of the group, so that the group knows where its
    /// entries are: the records lie at the log positions `positions`, and the batch ends at `end`.
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

    /// Notes that the log is durable up to this position, and reports to Raft the batches that have become
    /// durable, so that Raft can commit their entries.
    pub fn handle_durable(&mut self, durable: Lsn) {
        self.place_renewed(durable);
        let count = self.undurable.partition_point(|&(end, ..)| end <= durable);
        let numbers = self.undurable.drain(..count).map(|(_, number, _)| number);
        if let Some(number) = numbers.max() {
            self.persisted(number);
            self.collect();
        }
    }

    /// Notes that the log has released all records before this position, so that Raft no longer gets entries
    /// from there.
    pub fn handle_released(&mut self, before: Lsn) {
        self.raft.mut_store().released(before);
        // With this call Raft repeats its requests for entries. A request for a released entry now fails, so
        // that the leader offers the state to the lagging follower instead.
        self.handle_read(Index::ZERO, Vec::new());
    }

    /// Returns the entry that [`Group::poll_committed`] returns next, so that the caller can prepare itself
    /// for the entry before it takes the entry.
    #[must_use]
    pub fn peek_committed(&self) -> Option<&Committed> {
        self.committed.front()
    }

    /// Returns the next committed entry for the caller to apply: each entry once, in order. With this call
    /// the caller confirms that it has applied the previous entry.
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

    /// Returns the bytes of the entry with its record at this log position, if the bytes are still in
    /// memory, to save a read of the log.
    #[must_use]
    pub fn cached(&self, lsn: Lsn) -> Option<&Bytes> {
        self.raft.store().at(lsn)
    }

    /// Reports to Raft that all batches up to Raft's number `number` are durable, and releases the messages
    /// that waited for them.
    fn persisted(&mut self, number: u64) {
        self.raft.on_persist_ready(number);
        self.outbox.release(number);
        self.finish_install();
    }

    /// Takes all output of Raft, and distributes it: records into batches, messages into the outbox, and
    /// committed entries into their queue.
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
            // The member has begun or ceased to lead. It no longer counts the entries that it proposed
            // before: another leader may commit them, or no leader ever does.
            self.leads = leads;
            self.raft.mut_store().forget_waiting();
            self.proposed.clear();
            (self.uncommitted_bytes, self.callers) = (0, 0);
        }
    }

    fn take_entries(&mut self, entries: Vec<Entry>, batch: &mut Batch) {
        let first = entries.first().map(|e| Index::new(e.get_index()));
        if first.is_some_and(|first| first <= self.raft.store().last()) {
            // The new entries replace older ones that may not be durable yet. A later leader may send one of
            // the older entries again, with the same index and term. Raft would then take the durability of
            // the older write for that of the new one. So the earlier batches lose their numbers, and Raft
            // learns of them only when the new batch is durable.
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
        // A sole member needs no record of the commit index, because all its durable entries are committed. A
        // larger group writes this record only in a batch with other records, so that a commit alone causes
        // no write.
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
        // The batch has no record to write, so Raft learns of it together with the batch before it.
        let number = batch.number;
        if let Some(last) = self.outgoing.back_mut() {
            last.number = number;
        } else if let Some((_, last, _)) = self.undurable.back_mut() {
            *last = number;
        } else {
            self.persisted(number);
        }
    }

    /// Divides a batch that is too large for one append into several. Only the last part gets Raft's number
    /// of the batch, so that Raft waits for all parts.
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

/// Returns the place in `records` at which an append of at most `batch_bytes_max` bytes must end; `None` if
/// all records fit into one append.
fn over(records: &[Record], batch_bytes_max: u64) -> Option<usize> {
    let mut bytes = 0;
    records.iter().position(|record| {
        bytes += record.payload.len() as u64;
        bytes > batch_bytes_max && bytes > record.payload.len() as u64
    })
}

/// The greatest number of bytes of committed entries that Raft hands to the member at once; Raft hands over
/// the others in the next round.
const COMMITTED_BYTES_MAX: u64 = 8 << 20;

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod tests;
