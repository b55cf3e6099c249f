//! What a node keeps on disk: the log, checkpoints of the states it leads to, and what of the log may go.
//! Drives the node's groups, which share the log: each is spoken of by its place among [`Options::groups`].
//!
//! **[`Opening::begin`] -> [`Opening::replay`] -> [`Store`].** From then on one loop owns the store: it
//! proposes, calls [`Store::poll`] whenever the waker was called, and takes what is due by
//! [`Store::poll_due`] until there is nothing more. A thread of the log's writes and syncs, one of the
//! store's reads, and one writes checkpoints; none of them decides anything.
//!
//! ```text
//! <data>/tidegate/lock             held while a process has the directory
//! <data>/tidegate/version          the format of the directory
//! <data>/tidegate/state-<index>    a checkpoint: the state after the entry of that index
//! <data>/tidegate/state-<group>-<index>-<position>   the same where there are several groups
//! <data>/tidegate/log/             the log (docs/log-format.md)
//! ```

mod apart;
mod applying;
mod catch_up;
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
mod upkeep;
mod worker;

use std::sync::Arc;

use bytes::Bytes;
use tidegate_log::{
    Append, AppendError, Appended, Appender, Failure, Log, Lsn, Record, Storage, batch_bytes,
};

use crate::replica::records;
use crate::replica::{Committed, ENTRY_BYTES_MAX, Group, ProposeError, Proposed};
use crate::stream::Place;

pub use apart::Apart;
pub use applying::{Replaying, account, relocate};
pub use catch_up::{Fetched, InstallError};
pub use checkpoints::Parts;
pub use compaction::LyingIn;
pub use error::{OpenError, WriteError};
pub use giving::{Part, read_given};
pub use live::Live;
pub use missing::{Missing, MissingIn, missing};
pub use open::{Opening, Options, REPAIRED_FILE, VERSION_FILE, claim};
pub use reading::Fetch;
pub use scrub::Scrubbed;
pub use upkeep::Space;

use compaction::Compaction;
use laggards::Search;
use member::Member;
use reading::Reading;
use room::Room;
use scrub::Scrub;
#[cfg(feature = "lab")]
use second_write::SecondWrite;

/// Called from other threads when the loop has something to do. It must not block.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// What is to be done with the state next, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Due {
    /// An entry to apply.
    Entry(Committed),
    /// A message lies at another place from now on. If it is there no more, this is nothing.
    Relocated(Relocated),
}

/// A message that was appended again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocated {
    /// Its stream's id.
    pub stream: u32,
    /// Its sequence.
    pub seq: u64,
    /// Where it lies now.
    pub place: Place,
}

/// See the [module](self).
pub struct Store {
    members: Vec<Member>,
    /// Whose turn it is to be asked for what is due.
    turn: usize,
    /// Whose turn it is to have something written.
    appending: usize,
    appender: Appender,
    log: Log,
    reading: Reading,
    /// What is being read for a follower that lags.
    search: Option<Search>,
    /// In which group it is looked first whether somebody lags.
    searched: usize,
    /// Where messages are written twice.
    #[cfg(feature = "lab")]
    second_write: Option<SecondWrite>,
    compaction: Compaction,
    scrub: Scrub,
    /// The segment last appended to.
    segment: u64,
    /// Where the next batch goes.
    end: Lsn,
    /// Something happened after which there may be something to release or to compact.
    review: bool,
    /// Whether the log takes more than its quota, and how far it was when that was counted.
    over_quota: (bool, Lsn),
    /// How often space was looked for on a full disk.
    looks_for_space: u32,
    options: Options,
    waker: Waker,
    /// Held with its lock.
    storage: Arc<dyn Storage>,
}

impl Store {
    /// Proposes an entry for so many callers and hands it to the log. It is due, to be applied, once it is
    /// durable.
    ///
    /// # Errors
    /// See [`WriteError`]; nothing has changed then.
    pub fn propose(
        &mut self,
        at: usize,
        entry: Bytes,
        callers: u64,
    ) -> Result<Proposed, WriteError> {
        if self.members[at].group.poll_append().is_some() || !self.may_propose(at) {
            return Err(WriteError::Full);
        }
        let bytes = batch_bytes(&[records::entry(0, 0, 0, entry.clone())]);
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

    /// Returns whether a proposal may come now: always, unless entries are written one at a time.
    #[must_use]
    pub fn may_propose(&self, at: usize) -> bool {
        !self.options.lab.one_at_a_time()
            || (self.members[at].group.is_durable() && self.writing_twice(at).is_none())
    }

    /// Returns whether this member decides, and everything decided before it led was due: only now does it
    /// know the state.
    #[must_use]
    pub fn leads_settled(&self, at: usize) -> bool {
        let writing = self.writing_twice(at);
        let group = &self.members[at].group;
        group.leads_settled() && writing.is_none_or(|term| term == group.term())
    }

    /// Returns whether each message is written a second time.
    #[cfg(feature = "lab")]
    const fn writes_twice(&self) -> bool {
        self.second_write.is_some()
    }

    #[cfg(not(feature = "lab"))]
    const fn writes_twice(&self) -> bool {
        false
    }

    /// The term of the group's entry that is being written a second time.
    #[cfg(feature = "lab")]
    fn writing_twice(&self, at: usize) -> Option<u64> {
        self.second_write.as_ref()?.writing(at)
    }

    #[cfg(not(feature = "lab"))]
    const fn writing_twice(&self, _: usize) -> Option<u64> {
        None
    }

    /// Takes what other threads have done. Call it after each wake-up, and after [`step`](Self::step) and
    /// [`tick`](Self::tick).
    ///
    /// # Errors
    /// A write or a sync failed: nothing more can become durable, and the process must end now. What was
    /// acknowledged is safe; [`Failure::durable`] says how far the log is.
    pub fn poll(&mut self) -> Result<(), Failure> {
        // In this order: what became durable before a failure is told.
        let failure = self.log.failure();
        let durable = self.log.durable();
        for member in &mut self.members {
            member.group.handle_durable(durable);
            member.catching_up.handle_durable(durable);
        }
        self.take_copies(durable);
        self.reading.poll();
        self.serve_laggards();
        for at in 0..self.members.len() {
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

    /// What is due next, and in which group: of each in order, each once. To ask for the next says that the
    /// one before was done.
    pub fn poll_due(&mut self) -> Option<(usize, Due)> {
        for _ in 0..self.members.len() {
            if let Some(due) = self.poll_due_of(self.turn) {
                return Some((self.turn, due));
            }
            self.turn = (self.turn + 1) % self.members.len();
        }
        None
    }

    fn poll_due_of(&mut self, at: usize) -> Option<Due> {
        let member = &mut self.members[at];
        if member.catching_up.is_installed() {
            return None;
        }
        // Those before an entry in the log come first, so that a checkpoint behind the entry has them. All
        // that are durable do.
        if let Some(relocated) = member.relocated.pop_front() {
            return Some(Due::Relocated(relocated));
        }
        loop {
            let mut next = || member.group.poll_committed();
            #[cfg(feature = "lab")]
            let entry = match &mut self.second_write {
                Some(second) => second.poll(at, next)?,
                None => next()?,
            };
            #[cfg(not(feature = "lab"))]
            let entry = next()?;
            member.applied = (entry.index, entry.term, behind(&entry));
            // What only Raft needs changes nothing, but a state is as of it, too: others may ask for that.
            if !entry.data.is_empty() {
                return Some(Due::Entry(entry));
            }
        }
    }

    /// The bytes of the message of this group at this place, with what follows it in its entry.
    pub fn read(&mut self, at: usize, place: Place) -> Fetch {
        match self.read_entry(at, place.lsn) {
            Fetch::Ready(entry) => match usize::try_from(place.offset) {
                Ok(offset) if offset <= entry.len() => Fetch::Ready(entry.slice(offset..)),
                _ => Fetch::Damaged,
            },
            other => other,
        }
    }

    fn read_entry(&mut self, at: usize, lsn: u64) -> Fetch {
        let lsn = Lsn::new(lsn);
        match self.members[at].group.cached(lsn) {
            Some(entry) => Fetch::Ready(entry.clone()),
            None => self.reading.read(lsn),
        }
    }

    /// Index and term of the last entry that was due: what the state is as of.
    #[must_use]
    pub fn applied(&self, at: usize) -> (u64, u64) {
        let (index, term, _) = self.members[at].applied;
        (index, term)
    }

    /// Where to note what messages came and went, as the streams tell it.
    pub fn live_mut(&mut self, at: usize) -> &mut Live {
        &mut self.members[at].live
    }

    /// Reads and writes what the store's threads would, where there are none; whether there was anything to
    /// do.
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

    /// Syncs of second writes, where there are such.
    #[cfg(feature = "lab")]
    #[must_use]
    pub fn second_syncs(&self) -> u64 {
        self.second_write.as_ref().map_or(0, SecondWrite::syncs)
    }

    /// The log, to look at.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// A group, to look at.
    #[must_use]
    pub fn group(&self, at: usize) -> &Group {
        &self.members[at].group
    }

    /// How many groups there are.
    #[must_use]
    pub fn groups_len(&self) -> usize {
        self.members.len()
    }

    /// Makes everything accepted durable, waits for the checkpoint that is being written, and ends the
    /// threads.
    ///
    /// # Errors
    /// A failure, then or before. A checkpoint that could not be written is none: the next start replays
    /// more.
    pub fn close(self) -> Result<(), Failure> {
        drop((self.reading, self.scrub));
        for member in self.members {
            if let Err(error) = member.checkpoints.finish() {
                tracing::warn!("no checkpoint was written: {error}");
            }
        }
        self.appender.close()
    }

    /// Hands the log what the groups want written, as far as it takes it.
    fn append_entries(&mut self) -> Result<(), WriteError> {
        let groups = self.members.len();
        let first = self.appending;
        for at in (0..groups).map(|n| (first + n) % groups) {
            while let Some(batch) = self.members[at].group.poll_append() {
                let (records, callers) = (batch.records.clone(), batch.callers);
                match self.append(records, callers) {
                    Ok(appended) => self.members[at]
                        .group
                        .handle_appended(&appended.records, appended.end),
                    Err(error @ AppendError::Failed(_)) => return Err(error.into()),
                    // It stays the next: whoever waits for it is told once there is room. What another group
                    // wants may be smaller, and make room.
                    Err(AppendError::DiskFull) => break,
                    // The next room is this group's, lest it waits for ever.
                    Err(_) => {
                        self.appending = at;
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether a group has something to be written that comes before what only moves messages:
    /// somebody waits for it.
    fn has_entries(&self) -> bool {
        self.members.iter().any(|m| m.group.poll_append().is_some())
    }

    fn append(&mut self, records: Vec<Record>, callers: u64) -> Result<Appended, AppendError> {
        let append = Append::new(records).callers(callers);
        let appended = self.appender.append(append).map_err(|(_, error)| error)?;
        self.end = appended.end;
        if appended.segment != self.segment {
            self.segment = appended.segment;
            // Its first batch stands where it begins.
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

/// The position behind an entry's record.
fn behind(entry: &Committed) -> Lsn {
    let record = records::entry(0, 0, 0, entry.data.clone());
    entry.lsn.after(record.stored_bytes())
}
