//! A node's durable store: the log, the checkpoints of its groups' states, and the rules by which the store
//! releases log segments. The store drives the groups of the node. Callers name a group by its slot: the
//! group's place in [`Options::groups`].
//!
//! **[`Opening::begin`] -> [`Opening::replay`] -> [`Store`].** After the opening, one event loop owns the
//! store. The loop proposes entries, calls [`Store::poll`] after each call of the waker, and calls
//! [`Store::poll_due`] until it returns `None`. The log has a thread of its own, which writes and syncs
//! batches, and decides which batches a sync covers. The store has a reading thread, a scrubbing thread and
//! a thread for each group's checkpoints. These threads only carry out jobs that the store gives them.
//!
//! ```text
//! <data>/tidegate/lock             held while a process has the directory
//! <data>/tidegate/version          the format of the directory
//! <data>/tidegate/state-<index>    a checkpoint: the state after the entry of that index
//! <data>/tidegate/state-<group>-<index>-<position>   the same where there are several groups
//! <data>/tidegate/log/             the log (docs/log-format.md)
//! ```

mod applying;
mod catch_up;
mod check;
pub mod checkpoint;
mod checkpoints;
mod chunks;
mod compaction;
mod error;
mod giving;
mod holding;
mod laggards;
mod live;
mod member;
mod members;
mod missing;
mod open;
mod quota;
mod reading;
mod renewal;
mod reserve;
mod room;
mod scrub;
#[cfg(feature = "lab")]
mod second_write;
mod seen;
#[cfg(feature = "lab")]
mod slow;
mod staged;
mod upkeep;
mod worker;

use std::sync::Arc;

use bytes::Bytes;
use tidegate_cluster::groups::ALL;
use tidegate_cluster::slots::PerGroup;
use tidegate_log::{
    Append, AppendError, Appended, Appender, Duty, Failure, Log, Lsn, Record, Storage, batch_bytes,
};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::Place;

use crate::replica::records;
use crate::replica::{Committed, ENTRY_BYTES_MAX, EntryId, Group, ProposeError, Term};

pub use applying::{Replaying, account, relocate};
pub use catch_up::{Fetched, InstallError};
pub use check::{Check, CheckpointFile, MEMBERS_FILE};
pub use checkpoints::Parts;
pub use compaction::LyingIn;
pub use error::{OpenError, WriteError};
pub use giving::{Part, read_given};
pub use live::Live;
pub use missing::{Missing, MissingIn, missing, missing_from};
pub use open::{Opening, Options, REPAIRED_FILE, VERSION_FILE, claim, end_repair, write_version};
pub use reading::{Fetch, Peeked};
pub use scrub::Scrubbed;
pub use staged::Staged;
pub use tidegate_cluster::slots::GroupSlot;
pub use upkeep::Space;

use compaction::Compaction;
use laggards::Search;
use member::{Applied, Member};
use quota::Quota;
use reading::Reading;
use room::Room;
use scrub::Scrub;
#[cfg(feature = "lab")]
use second_write::SecondWrite;

/// The version of the data directory's format, so that an older program refuses a newer directory. So far
/// only one version exists.
const VERSION: u32 = 1;

/// Wakes the event loop that owns the store. The store's threads call this function when they have a result
/// for the loop. The function must not block.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// The next step that the event loop must carry out on the streams, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The entry is committed, and the event loop must apply it to the streams.
    Entry(Committed),
    /// The store has copied a message, and the event loop must note the message's new place. If the stream
    /// has removed the message, the new place has no effect.
    Relocated(Relocated),
}

/// A message that the store has copied to another place in the log, so that its stream must note the new
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocated {
    /// The id of the stream that holds the copied message.
    pub stream: StreamNumber,
    /// The number of the copied message in its stream: with the stream's id, it identifies the message.
    pub seq: StreamSeq,
    /// The place of the copy in the log, at which readers find the message from now on.
    pub place: Place,
}

/// Keeps a node's streams durable: drives the log, and the node's members of all groups with their
/// checkpoints; see the [module](self).
pub struct Store {
    members: PerGroup<Member>,
    /// The slot of the group that [`poll_due`](Self::poll_due) asks first for its next step, so that the
    /// groups take turns.
    turn: GroupSlot,
    /// The slot of the group that appends its waiting batches first, because the log had no room for its
    /// batch the last time.
    appending: GroupSlot,
    appender: Appender,
    log: Log,
    reading: Reading,
    /// The search in the log for the next entry that a lagging follower needs; `None` if no follower waits.
    search: Option<Search>,
    /// The slot of the group at which the store begins its next search for a lagging follower, so that the
    /// groups take turns.
    searched: GroupSlot,
    /// Writes each message a second time, in measurements only (feature `lab`); `None` in a serving node.
    #[cfg(feature = "lab")]
    second_write: Option<SecondWrite>,
    compaction: Compaction,
    scrub: Scrub,
    /// The number of the log's segment to which the store appended its last batch. By it the store notices
    /// that a new segment begins.
    segment: u64,
    /// The log position at the end of the last appended batch. The next batch begins there.
    end: Lsn,
    /// True if the store must review the segments, because an event may allow it to release or compact one.
    review: bool,
    /// The result of the last comparison of the store's files with the quota.
    quota: Quota,
    /// The space, and whether the files were near the quota, at the last turn of the upkeep. A change of
    /// either makes the store review the segments.
    reviewed_at: (Space, bool),
    /// The number of times since the start of the node that the store has looked for space on a full disk.
    looks_for_space: u32,
    options: Options,
    waker: Waker,
    /// The data directory of the node, beside the log. The process holds the directory's lock as long as
    /// this value lives.
    storage: Arc<dyn Storage>,
}

impl Store {
    /// Proposes an entry, for the commit of which `callers` callers wait, and hands it to the log.
    /// [`poll_due`](Self::poll_due) returns the entry once it is committed.
    ///
    /// # Errors
    /// See [`WriteError`]; a refused proposal has changed nothing.
    pub fn propose(
        &mut self,
        at: GroupSlot,
        entry: Bytes,
        callers: u64,
    ) -> Result<EntryId, WriteError> {
        if self.members[at].group.poll_append().is_some() || !self.may_propose(at) {
            return Err(WriteError::Full);
        }
        let bytes = batch_bytes(&[records::entry(ALL, EntryId::ZERO, entry.clone())]);
        self.appender.check(bytes).map_err(WriteError::from)?;
        match self.room_to_propose(&entry, bytes) {
            Room::Enough => {}
            Room::Later => return Err(WriteError::Full),
            Room::No => return Err(WriteError::DiskFull),
        }
        let proposed = self.members[at].group.propose(entry, callers);
        let proposed = proposed.map_err(|e| match e {
            ProposeError::NotLeader => WriteError::NotLeader,
            ProposeError::Full { .. } => WriteError::Full,
            ProposeError::TooLarge { bytes } => WriteError::TooLarge {
                bytes,
                most: ENTRY_BYTES_MAX,
            },
        })?;
        self.append_entries()?;
        Ok(proposed)
    }

    /// Returns whether the group takes a proposal now. The answer is always true, unless a measurement
    /// bounds the entries in flight (feature `lab`).
    #[must_use]
    pub fn may_propose(&self, at: GroupSlot) -> bool {
        let (group, lab) = (&self.members[at].group, self.options.lab);
        let idle = || group.is_durable() && self.writing_twice(at).is_none();
        let room = |max| group.in_flight() < max;
        (!lab.one_at_a_time() || idle()) && lab.in_flight_max().is_none_or(room)
    }

    /// Returns whether this member leads and has applied every entry that was committed before it led. Only
    /// then does this member know the group's current state.
    #[must_use]
    pub fn leads_settled(&self, at: GroupSlot) -> bool {
        let writing = self.writing_twice(at);
        let group = &self.members[at].group;
        group.leads_settled() && writing.is_none_or(|term| term == group.term())
    }

    /// Returns whether the store writes each message a second time, as a measurement asks for (feature
    /// `lab`).
    #[cfg(feature = "lab")]
    const fn writes_twice(&self) -> bool {
        self.second_write.is_some()
    }

    #[cfg(not(feature = "lab"))]
    const fn writes_twice(&self) -> bool {
        false
    }

    /// Returns the term of the entry that the store is writing a second time in a measurement, if the entry
    /// belongs to this group; otherwise `None`.
    #[cfg(feature = "lab")]
    fn writing_twice(&self, at: GroupSlot) -> Option<Term> {
        self.second_write.as_ref()?.writing(at)
    }

    #[cfg(not(feature = "lab"))]
    const fn writing_twice(&self, _: GroupSlot) -> Option<Term> {
        None
    }

    /// Takes the results of the log, of the reading thread and of the checkpoint threads, and does the work
    /// that they make due. The caller calls this function after each wake-up, and after [`step`](Self::step)
    /// and [`tick`](Self::tick).
    ///
    /// # Errors
    /// Returns the failure if a write or a sync of the log failed: nothing more can become durable, and the
    /// process must end now. All acknowledged entries are safe; [`Failure::durable`] is the position up to
    /// which the log is durable.
    pub fn poll(&mut self) -> Result<(), Failure> {
        // The store reads the failure before the durable position, so that the groups still learn of all
        // records that became durable before the failure.
        let failure = self.log.failure();
        let durable = self.log.durable();
        for member in &mut self.members {
            member.group.handle_durable(durable);
            member.catching_up.handle_durable(durable);
        }
        self.take_copies(durable);
        self.reading.poll();
        self.serve_laggards();
        for at in self.members.slots() {
            self.take_delayed(at);
        }
        let appended = self.append_entries();
        match (failure, appended) {
            (Some(failure), _) | (None, Err(WriteError::Failed(failure))) => return Err(failure),
            (None, _) => {}
        }
        self.keep_up();
        Ok(())
    }

    /// Returns the next step that the event loop must carry out, and the slot of its group. Returns each
    /// step of a group once, in order. A call confirms that the event loop has carried out the previous
    /// step.
    pub fn poll_due(&mut self) -> Option<(GroupSlot, Due)> {
        self.poll_due_if(|_, _| true)
    }

    /// Returns the next step as [`Store::poll_due`] does, but no entry for which `is_ready` returns false.
    /// The entry and all later steps of its group wait until a later call, so that the event loop can prepare
    /// itself for an entry in parts. The steps of other groups do not wait.
    pub fn poll_due_if(
        &mut self,
        mut is_ready: impl FnMut(GroupSlot, &Bytes) -> bool,
    ) -> Option<(GroupSlot, Due)> {
        for _ in 0..self.members.len() {
            if let Some(due) = self.poll_due_of(self.turn, &mut is_ready) {
                return Some((self.turn, due));
            }
            self.turn = self.turn.next_around(self.members.len());
        }
        None
    }

    fn poll_due_of(
        &mut self,
        at: GroupSlot,
        is_ready: &mut impl FnMut(GroupSlot, &Bytes) -> bool,
    ) -> Option<Due> {
        let member = &mut self.members[at];
        if member.catching_up.is_installed() {
            return None;
        }
        // A checkpoint that ends behind an entry must include the relocations that precede the entry in the
        // log. So all durable relocations come before the next entry.
        if let Some(relocated) = member.relocated.pop_front() {
            return Some(Due::Relocated(relocated));
        }
        loop {
            let next = member.group.peek_committed().map(|entry| &entry.data);
            if next.is_some_and(|data| !data.is_empty() && !is_ready(at, data)) {
                return None;
            }
            let mut next = || member.group.poll_committed();
            #[cfg(feature = "lab")]
            let entry = match &mut self.second_write {
                Some(second) => second.poll(at, next)?,
                None => next()?,
            };
            #[cfg(not(feature = "lab"))]
            let entry = next()?;
            member.applied = Applied {
                entry: entry.id(),
                next: behind(&entry),
            };
            // An empty entry serves only Raft and changes no stream. It still advances `applied`, because
            // another member may ask for a state that ends with this entry.
            if !entry.data.is_empty() {
                return Some(Due::Entry(entry));
            }
        }
    }

    /// Reads the message of the group at this place, for a consumer or a client. The result is the bytes of
    /// the message, followed by the rest of its entry.
    pub fn read(&mut self, at: GroupSlot, place: Place) -> Fetch {
        within(self.read_entry(at, place.lsn), place)
    }

    /// Returns the bytes of the message at this place if they are in memory. Starts no read of the log, for
    /// callers without exclusive access.
    #[must_use]
    pub fn peek(&self, at: GroupSlot, place: Place) -> Peeked {
        let lsn = Lsn::new(place.lsn);
        let peeked = match self.members[at].group.cached(lsn) {
            Some(entry) => Peeked {
                fetch: Fetch::Ready(entry.clone()),
                ask: false,
            },
            None => self.reading.peek(lsn),
        };
        Peeked {
            fetch: within(peeked.fetch, place),
            ..peeked
        }
    }

    fn read_entry(&mut self, at: GroupSlot, lsn: u64) -> Fetch {
        let lsn = Lsn::new(lsn);
        match self.members[at].group.cached(lsn) {
            Some(entry) => Fetch::Ready(entry.clone()),
            None => self.reading.read(lsn),
        }
    }

    /// Returns the last entry that the store returned to the event loop as due. The group's state includes
    /// this entry and no later one.
    #[must_use]
    pub fn applied(&self, at: GroupSlot) -> EntryId {
        self.members[at].applied.entry
    }

    /// Returns the counts of the group's live bytes, in which the event loop records the messages that the
    /// streams store and remove.
    pub fn live_mut(&mut self, at: GroupSlot) -> &mut Live {
        &mut self.members[at].live
    }

    /// Returns the number of messages removed together, such as by a purge, that the store has subtracted
    /// from their segments since the last call.
    #[cfg(feature = "sim")]
    pub fn take_reclaimed(&mut self) -> u64 {
        let members = self.members.iter_mut();
        members.map(|m| m.live.take_reclaimed()).sum()
    }

    /// Subtracts all messages that streams removed together from their segments at once, for a simulation
    /// that shows the harm of that.
    #[cfg(feature = "sim")]
    pub fn reclaim_all(&mut self) {
        for member in self.members.iter_mut() {
            member.live.reclaim(usize::MAX);
        }
    }

    /// Does one job of each of the store's threads on the calling thread, for simulations without threads.
    /// Returns whether a job waited.
    #[cfg(feature = "sim")]
    pub fn work(&mut self) -> bool {
        #[cfg(feature = "lab")]
        let wrote = self.second_write.as_mut().is_some_and(SecondWrite::step);
        #[cfg(not(feature = "lab"))]
        let wrote = false;
        let read = self.reading.step() | self.step_scrub();
        let checkpoints = self.members.iter_mut().map(|m| m.checkpoints.step());
        checkpoints.fold(false, |any, did| any | did) || read || wrote
    }

    /// Returns the number of syncs of the second write of messages; 0 if the store makes no second write.
    #[cfg(feature = "lab")]
    #[must_use]
    pub fn second_syncs(&self) -> u64 {
        self.second_write.as_ref().map_or(0, SecondWrite::syncs)
    }

    /// Asks the log thread for the duty of writing the log, so that the event loop can write and sync
    /// itself, or withdraws the request ([`Appender::want_duty`]).
    pub fn want_duty(&self, wants: bool) {
        self.appender.want_duty(wants);
    }

    /// Takes the duty of writing the log for the event loop, if the log thread offers it
    /// ([`Appender::take_duty`]).
    #[must_use]
    pub fn take_duty(&self) -> Option<Duty> {
        self.appender.take_duty()
    }

    /// Returns the log position behind the last appended batch. Everything appended is durable once the log
    /// is durable up to there.
    #[must_use]
    pub const fn appended(&self) -> Lsn {
        self.end
    }

    /// Returns the number of the log's segment that holds the last appended batch, so that a caller notices
    /// a new segment.
    #[must_use]
    pub const fn segment(&self) -> u64 {
        self.segment
    }

    /// Returns the log of the store, for its counters and its durable position.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// Returns this node's member of the group in this slot, for its role, term and indices.
    #[must_use]
    pub fn group(&self, at: GroupSlot) -> &Group {
        &self.members[at].group
    }

    /// Returns the number of groups of which this node is a member, and so of slots.
    #[must_use]
    pub const fn groups_len(&self) -> usize {
        self.members.len()
    }

    /// Returns the slots of all groups of this node, in order, for a loop over the groups.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = GroupSlot> + use<> {
        self.members.slots()
    }

    /// Waits until all accepted records are durable and the checkpoints in progress are written, and ends the
    /// store's threads.
    ///
    /// # Errors
    /// Returns the failure if a write or a sync of the log failed, now or before. A failed checkpoint is no
    /// error, because the next start only replays more entries.
    pub fn close(self) -> Result<(), Failure> {
        drop((self.reading, self.scrub));
        for member in self.members {
            if let Err(error) = member.checkpoints.finish() {
                tracing::warn!(
                    "the server ends, but could not write its last checkpoint, so the next start replays more entries of the log: {error}"
                );
            }
        }
        self.appender.close()
    }

    /// Hands the groups' waiting batches to the log until the log has no more room. If the disk has no space
    /// for the batch of one group, goes on with the other groups.
    fn append_entries(&mut self) -> Result<(), WriteError> {
        for at in self.appending.around(self.members.len()) {
            while let Some(batch) = self.members[at].group.poll_append() {
                let (records, callers) = (batch.records.clone(), batch.callers);
                match self.append(records, callers) {
                    Ok(appended) => self.members[at]
                        .group
                        .handle_appended(&appended.records, appended.end),
                    Err(error @ AppendError::Failed(_)) => return Err(error.into()),
                    // The disk has no space for the batch. The batch stays the first of its group, and the
                    // store offers it to the log again in a later turn. The batch of another group may be
                    // smaller or may free space.
                    Err(AppendError::DiskFull) => break,
                    // The log has no room for the batch yet. The batch's group appends first the next time,
                    // so that the other groups cannot starve it.
                    Err(_) => {
                        self.appending = at;
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether a group has a batch to append. The store writes such batches before copies of
    /// messages, because callers wait for the batches.
    fn has_entries(&self) -> bool {
        self.members.iter().any(|m| m.group.poll_append().is_some())
    }

    fn append(&mut self, records: Vec<Record>, callers: u64) -> Result<Appended, AppendError> {
        let append = Append::new(records).callers(callers);
        let appended = self.appender.append(append).map_err(|(_, error)| error)?;
        self.end = appended.end;
        if appended.segment != self.segment {
            self.segment = appended.segment;
            // The batch is the first in its segment, so the segment begins at the position of this batch.
            for member in &mut self.members {
                member.live.begin(appended.at.get());
            }
            self.review = true;
        }
        Ok(appended)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("groups", &self.members.len())
            .finish_non_exhaustive()
    }
}

/// Returns the log position behind the record of a committed entry, at which a checkpoint that includes the
/// entry ends.
fn behind(entry: &Committed) -> Lsn {
    let record = records::entry(ALL, EntryId::ZERO, entry.data.clone());
    entry.lsn.after(record.stored_bytes())
}

/// Removes the bytes of an entry that come before the message at this place, so that the message comes first.
fn within(entry: Fetch, place: Place) -> Fetch {
    match entry {
        Fetch::Ready(entry) => match usize::try_from(place.offset) {
            Ok(offset) if offset <= entry.len() => Fetch::Ready(entry.slice(offset..)),
            _ => Fetch::Damaged,
        },
        other => other,
    }
}
