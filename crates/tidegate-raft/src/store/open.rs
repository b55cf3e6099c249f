//! Opens a data directory: takes its lock, checks its version, loads the newest checkpoints, and replays the
//! log behind them.
//!
//! The only member of a group has committed every entry that is durable in its log, so it applies all these
//! entries before Raft begins. A member of a larger group applies the entries that the log records as
//! committed, and hands the entries behind them to Raft unapplied.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
#[cfg(feature = "sim")]
use tidegate::Time;
use tidegate::boundary::DecisionLog;
use tidegate::controller::{Bounds, Fixed, Knee, Objective};
use tidegate_cluster::groups::{ALL, GroupId, GroupOf};
use tidegate_cluster::slots::{GroupSlot, PerGroup};
#[cfg(feature = "sim")]
use tidegate_log::Steps;
use tidegate_log::{
    Disk, KIND_LOST, Log, Lsn, Opened, ReadError, Record, RecordInfo, Recovery, SegmentInfo,
    Storage, StorageFile,
};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{ENTRY_HEADER_BYTES, Place};

use super::catch_up::CatchingUp;
use super::checkpoint::Header;
use super::checkpoints::{self, Checkpoints, Kept, Naming};
use super::compaction::Compaction;
use super::error::OpenError;
use super::live::Live;
use super::member::{Applied, Member};
use super::quota::Quota;
use super::reading::Reading;
use super::scrub::Scrub;
#[cfg(feature = "lab")]
use super::second_write::SecondWrite;
use super::seen::Seen;
#[cfg(feature = "lab")]
use super::slow::Slow;
use super::staged::Staged;
use super::worker::By;
use super::{Due, Relocated, Space, Store, VERSION, Waker};
use crate::lab::Lab;
use crate::replica::records::{KIND_ENTRY, KIND_FETCHED, KIND_LAST, KIND_RELOCATED};
use crate::replica::{Committed, EntryId, Group, GroupOptions, Index, LoggedEntry, Restored, Term};

/// The name of the file that holds the format version of a data directory. The file also shows that the
/// store has opened the directory before, so that the log must exist.
pub const VERSION_FILE: &str = "version";
const VERSION_NEW: &str = "version-new";
/// The name of the file in which a repair lists the parts of the log that it has given up, so that a start
/// does not count them as damage.
pub const REPAIRED_FILE: &str = "repaired";
/// The last line of the file [`REPAIRED_FILE`] once the repair has ended. Without this line, the repair was
/// interrupted.
const REPAIR_ENDED: &str = "the repair ended\n";
/// The bounds on the batches that one sync covers, for the controller that decides about syncs. They equal
/// the log's defaults.
const SYNC_BOUNDS: Bounds = Bounds {
    items_min: 1,
    items_max: u64::MAX,
    bytes_max: 8 << 20,
    age_max: Duration::from_secs(1),
    in_flight_max: None,
};
/// The number of bytes of the log that the replay reads at once, to save system calls.
const REPLAY_BYTES: usize = 4 << 20;

/// The options with which a node opens the store in its data directory. Each has a default.
#[derive(Clone, Debug)]
pub struct Options {
    /// The id of this node in its groups; never 0. The id stays the same for the life of the data directory.
    pub id: u64,
    /// The groups of which this node is a member, with [`ALL`] first. They stay the same for the life of the
    /// data directory.
    pub groups: Vec<GroupOf>,
    /// The term from which on this node takes part again after it lost its disk; `None` if it did not lose
    /// the disk, or has every entry again that it may have acknowledged.
    pub rejoined: Option<Term>,
    /// True if the node had a log in an earlier run. If the directory has no log now, the log is lost, and
    /// the store does not open.
    pub begun: bool,
    /// The length of a segment of the log, in bytes: whole pages of 4096 bytes. The store frees disk space
    /// by whole segments.
    pub segment_bytes: u64,
    /// The disk space in bytes that the log reserves for each segment while the log is new; see
    /// [`tidegate_log::Options::first_bytes`].
    pub first_bytes: u64,
    /// The greatest number of bytes of entries that the leader of a group may have proposed and not applied
    /// yet.
    pub uncommitted_bytes_max: u64,
    /// The greatest number of bytes of applied entries that each group keeps in memory, for followers and
    /// readers.
    pub tail_bytes_max: u64,
    /// The greatest number of bytes of log that the store keeps in its cache for readers of messages, to
    /// bound its memory.
    pub read_bytes_max: usize,
    /// The least number of bytes by which the log grows between two checkpoints of a group. More frequent
    /// checkpoints cost writes, and rarer ones a longer replay at a start.
    pub checkpoint_bytes_min: u64,
    /// The quota: the bytes of log and checkpoints beyond which the store refuses more messages; `None` sets
    /// no bound.
    pub max_file_store: Option<u64>,
    /// The seed of the salts of the log's segments; `None` draws the seed from the system. Only simulations
    /// set the seed, so that each run writes the same bytes.
    pub seed: Option<u64>,
    /// The time in which the scrub reads the whole log once to look for damage; zero turns the scrub off.
    pub scrub_period: Duration,
    /// The number that chooses the segment of the log with which the scrub begins after a start of the node.
    /// A new number for each start lets the scrub cover the whole log despite frequent restarts.
    pub scrub_seed: u64,
    /// True if the log delays a sync for callers that are about to return with the next record, where the
    /// delay raises the throughput.
    pub anticipation: bool,
    /// The decision log in which the log's controller records its decisions about syncs; `None` for no
    /// record.
    pub decisions: Option<DecisionLog>,
    /// The settings by which a measured node deviates from the product; a serving node has none.
    pub lab: Lab,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            id: 1,
            groups: vec![GroupOf {
                number: ALL,
                members: vec![1],
            }],
            rejoined: None,
            begun: false,
            segment_bytes: 64 << 20,
            // An empty server so takes below 5 MB of the disk: two segments of this length, and small files.
            first_bytes: 2 << 20,
            uncommitted_bytes_max: 16 << 20,
            tail_bytes_max: 32 << 20,
            read_bytes_max: 32 << 20,
            checkpoint_bytes_min: 256 << 20,
            max_file_store: None,
            seed: None,
            scrub_period: Duration::ZERO,
            scrub_seed: 0,
            anticipation: true,
            decisions: None,
            lab: Lab::NONE,
        }
    }
}

/// A data directory that the store has examined and not yet replayed. The opening has settled the end of the
/// log, and removed unfinished checkpoints.
pub struct Opening {
    opened: Opened,
    /// The checkpoints and log records that the opening found for each group, for the replay.
    found: PerGroup<Found>,
    options: Options,
    waker: Waker,
    /// The choice who does the store's background work: threads of the store, or the caller in a simulation.
    by: By,
    /// The storage of the data directory. The process holds the directory's lock as long as this value lives.
    storage: Arc<dyn Storage>,
}

/// The checkpoints and log records of one group that the opening found, from which the group continues.
struct Found {
    of: GroupOf,
    seen: Seen,
    /// The header of the group's newest checkpoint; `state` holds the encoded state in that checkpoint.
    header: Header,
    state: Option<Bytes>,
    naming: Naming,
    kept: Vec<Kept>,
}

impl Opening {
    /// Locks the data directory `dir`, which it creates if needed, and examines the directory. Other threads
    /// call `waker` when the event loop has something to do for the store.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn begin(dir: &Path, options: Options, waker: Waker) -> Result<Self, OpenError> {
        let io = OpenError::io;
        let dir = dir.join("tidegate");
        let state = Disk::open(&dir).map_err(io("opening the data directory"))?;
        let log = Disk::open(dir.join("log")).map_err(io("opening the log's directory"))?;
        #[cfg(feature = "lab")]
        let log = Slow::new(log, options.lab.sync_delay);
        let log: Arc<dyn Storage> = Arc::new(log);
        Self::on(Arc::new(state), log, options, waker)
    }

    /// Examines a data directory as [`begin`](Self::begin) does, in any two storages, for instance in
    /// simulated ones: `storage` for the checkpoints, and `log` for the log.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn on(
        storage: Arc<dyn Storage>,
        log: Arc<dyn Storage>,
        options: Options,
        waker: Waker,
    ) -> Result<Self, OpenError> {
        let open = |log_options, note: &mut dyn FnMut(&RecordInfo)| {
            Log::open(log, log_options, |r| note(&r))
        };
        Self::of(storage, options, waker, By::Thread, open)
    }

    /// Examines a data directory as [`on`](Self::on) does, but starts no threads: the caller does the
    /// threads' work through [`Store::work`] and the [`Steps`] of the log.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(feature = "sim")]
    pub fn stepped(
        storage: Arc<dyn Storage>,
        log: Arc<dyn Storage>,
        options: Options,
        now: Time,
    ) -> Result<(Self, Steps), OpenError> {
        let mut steps = None;
        let open = |log_options, note: &mut dyn FnMut(&RecordInfo)| {
            let (opened, of_log) = Log::open_stepped(log, log_options, now, |r| note(&r))?;
            steps = Some(of_log);
            Ok(opened)
        };
        let opening = Self::of(storage, options, Arc::new(|| ()), By::Caller, open)?;
        let steps = steps.ok_or_else(|| OpenError::Damaged("no log was opened".to_owned()));
        Ok((opening, steps?))
    }

    fn of(
        storage: Arc<dyn Storage>,
        options: Options,
        waker: Waker,
        by: By,
        open: impl FnOnce(
            tidegate_log::Options,
            &mut dyn FnMut(&RecordInfo),
        ) -> Result<Opened, tidegate_log::OpenError>,
    ) -> Result<Self, OpenError> {
        let io = OpenError::io;
        if !storage.lock().map_err(io("locking the data directory"))? {
            return Err(OpenError::InUse);
        }
        let was_opened = has_version(&*storage)?;
        let names = storage.list().map_err(io("listing the data directory"))?;
        let repaired = names.iter().any(|n| n == REPAIRED_FILE);
        let unfinished = has_unfinished_repair(&*storage)?;
        let known = |group| options.groups.iter().any(|g| g.number == group);
        if let Some(group) = checkpoints::stranger(&names, known) {
            return Err(OpenError::Stranger { group });
        }
        let alone = options.groups.len() == 1;
        let look = |of: &GroupOf| {
            let naming = Naming {
                group: of.number,
                alone,
            };
            let kept = checkpoints::look(&*storage, naming)?;
            Ok(Found {
                of: of.clone(),
                seen: Seen::new(of.number, kept.iter().map(|k| k.next)),
                header: Header::default(),
                state: None,
                naming,
                kept,
            })
        };
        let found: Result<PerGroup<Found>, OpenError> = options.groups.iter().map(look).collect();
        let mut found = found?;
        let wake = Arc::clone(&waker);
        let mut log_options = tidegate_log::Options::default()
            .segment_bytes(options.segment_bytes)
            .first_bytes(options.first_bytes)
            .must_be_there(was_opened || options.begun)
            .waker(move || wake());
        if let Some(seed) = options.seed {
            log_options = log_options.seed(seed);
        }
        if let Some(limit) = options.lab.sync_limit() {
            log_options = log_options.controller(Box::new(Fixed::new(limit).controller()));
        } else if !options.anticipation
            && let Ok(knee) = Knee::new(Objective::Lean, SYNC_BOUNDS).and_then(Knee::in_bytes)
        {
            // This controller is the log's default, but without the delay of syncs for callers that are about
            // to return.
            log_options = log_options.controller(Box::new(knee));
        }
        if let Some(decisions) = options.decisions.clone() {
            log_options = log_options.decisions(decisions);
        }
        let mut stranger = None;
        let mut newer = None;
        let opened = open(log_options, &mut |record| {
            if record.kind > KIND_LAST && record.kind != KIND_LOST {
                newer = newer.or(Some((record.kind, record.lsn)));
            }
            if record.kind == KIND_LOST {
                // A repair has put a placeholder here for a lost record. The lost record may have belonged
                // to any group, so every group notes the loss.
                let end = record.lsn.after(1);
                found.iter_mut().for_each(|f| f.seen.note_lost(end));
                return;
            }
            let of = |f: &&mut Found| f.of.number.get() == record.group;
            match found.iter_mut().find(of) {
                Some(found) => found.seen.note(record),
                None => stranger = Some(GroupId::new(record.group)),
            }
        })?;
        if let Some((kind, at)) = newer {
            // A newer program wrote this record. The store does not open the directory, because the state
            // would lack the content of the record.
            return Err(OpenError::NewerRecord { kind, at });
        }
        if let Some(group) = stranger {
            return Err(OpenError::Stranger { group });
        }
        if !was_opened {
            // The log exists now, so the store writes the version file. From this file, each later start
            // knows that the log must exist.
            write_version(&*storage)?;
        }
        if opened.recovery.shortened && found.iter().any(|f| f.of.members.len() > 1) {
            return Err(OpenError::shortened());
        }
        let segments = opened.log.segments();
        let holes = segments
            .windows(2)
            .filter(|w| w[0].segment + 1 < w[1].segment);
        // The log may have a hole, because the store does not release segments in the order of their
        // positions. So the log may still hold an entry, and lack the later entry that replaced it.
        for hole in holes {
            for found in &mut found {
                found.seen.note_hole(hole[1].range.start);
                if repaired {
                    found.seen.note_lost(hole[1].range.start);
                }
            }
        }
        for found in &mut found {
            found.follow(&*storage, opened.recovery.end, (repaired, unfinished))?;
        }
        if unfinished && let Err(error) = end_repair(&*storage) {
            // The start goes on without the note, because a full disk must not keep the store from making
            // space. The next start tries again.
            tracing::warn!(
                "the server cannot note that the last repair of the log has ended, goes on, and tries again at its next start: {error}"
            );
        }
        Ok(Self {
            opened,
            found,
            options,
            waker,
            by,
            storage,
        })
    }

    /// Returns the report of the log's opening, for the operator: the state in which the opening found the
    /// end of the log.
    #[must_use]
    pub const fn recovery(&self) -> &Recovery {
        &self.opened.recovery
    }

    /// Returns the number of groups of which this node is a member, and so of slots.
    #[must_use]
    pub const fn groups_len(&self) -> usize {
        self.found.len()
    }

    /// Returns the slots of all groups of this node, in order, for a loop over the groups.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = GroupSlot> + use<> {
        self.found.slots()
    }

    /// Returns the indices of a group's entries that a repair gave up and that no checkpoint includes. The
    /// state lacks the effects of these entries.
    #[must_use]
    pub fn missing_entries(&self, at: GroupSlot) -> &[Range<Index>] {
        self.found[at].seen.missing()
    }

    /// Returns, once, a group's encoded state from its newest checkpoint, for the caller to decode before
    /// the replay; `None` if the group has no checkpoint. The replay then covers the whole log.
    pub fn take_state(&mut self, at: GroupSlot) -> Option<Bytes> {
        self.found[at].state.take()
    }

    /// Replays the log behind the checkpoints and returns the store. Calls `each` with each step that is due,
    /// in order for each group, and with the counts of live bytes in which `each` records stored and removed
    /// messages.
    ///
    /// # Errors
    /// Fails if the store cannot read a durable part of the log, or cannot start a thread.
    pub fn replay(
        mut self,
        each: impl FnMut(GroupSlot, Due, &mut Live),
    ) -> Result<Store, OpenError> {
        let io = OpenError::io;
        let segments = self.opened.log.segments();
        let replaying = self.go_through(&segments, each)?;
        let reader = self.opened.log.reader();
        let waker = &self.waker;
        let scrubbing = (self.options.scrub_period, self.options.scrub_seed);
        let scrub = Scrub::start(self.by, reader.clone(), scrubbing, Arc::clone(waker));
        let reading = Reading::start(
            self.by,
            reader,
            self.options.read_bytes_max,
            Arc::clone(waker),
        );
        let storage = Arc::clone(&self.storage);
        #[cfg(feature = "lab")]
        let second_write = match self.options.lab.writes_twice() {
            true => Some(SecondWrite::start(
                self.by,
                &*storage,
                self.options.lab.sync_delay,
                Arc::clone(waker),
            )),
            false => None,
        };
        let member = |replayed: Replayed| replayed.finish(&self.options, self.by, &storage, waker);
        let members: Result<PerGroup<Member>, OpenError> =
            replaying.into_iter().map(member).collect();
        let mut store = Store {
            members: members?,
            turn: GroupSlot::FIRST,
            appending: GroupSlot::FIRST,
            log: self.opened.log,
            appender: self.opened.appender,
            reading: reading.map_err(io("starting a thread"))?,
            search: None,
            searched: GroupSlot::FIRST,
            #[cfg(feature = "lab")]
            second_write: second_write
                .transpose()
                .map_err(io("making a file for second writes"))?,
            compaction: Compaction::default(),
            scrub: scrub.map_err(io("starting a thread"))?,
            end: self.opened.recovery.end,
            segment: segments.last().map_or(u64::MAX, |s| s.segment),
            review: true,
            quota: Quota::default(),
            reviewed_at: (Space::Free, false),
            looks_for_space: 0,
            options: self.options,
            waker: self.waker,
            storage: self.storage,
        };
        store.bound_batches();
        // The only member of a group won its election when the group was opened, a moment ago. The store
        // appends the records of such elections. If the log has no room for them now, the next poll appends
        // them.
        let _ = store.append_entries();
        Ok(store)
    }

    /// Replays the log as [`replay`](Self::replay) does, and then closes the log. Calls `each` in the same
    /// way. Writes no record and starts no member, so a tool can use it on the directory of any node.
    ///
    /// # Errors
    /// The same errors as those of [`replay`](Self::replay), and an error if the store cannot close the log.
    pub fn look(mut self, each: impl FnMut(GroupSlot, Due, &mut Live)) -> Result<(), OpenError> {
        let segments = self.opened.log.segments();
        self.go_through(&segments, each)?;
        let closed = self.opened.appender.close();
        closed.map_err(|e| OpenError::Damaged(e.to_string()))
    }

    fn go_through(
        &mut self,
        segments: &[SegmentInfo],
        mut each: impl FnMut(GroupSlot, Due, &mut Live),
    ) -> Result<PerGroup<Replayed>, OpenError> {
        let replaying = std::mem::take(&mut self.found).into_iter().map(|found| {
            let mut replaying = Replayed::begin(found)?;
            for segment in segments {
                replaying.live.begin(segment.range.start.get());
            }
            Ok(replaying)
        });
        let replaying: Result<PerGroup<Replayed>, OpenError> = replaying.collect();
        let mut replaying = replaying?;
        let reader = self.opened.log.reader();
        let firsts = replaying.iter().map(|r| r.found.header.next);
        let mut from = firsts.min().unwrap_or(Lsn::ZERO);
        loop {
            let chunk = reader.scan(from, REPLAY_BYTES).map_err(unreadable)?;
            if chunk.next == from {
                break;
            }
            for (lsn, record) in chunk.records {
                let of = |r: &Replayed| r.found.of.number.get() == record.group;
                let Some(at) = replaying.position(of) else {
                    continue;
                };
                let replayed = &mut replaying[at];
                if let Some(due) = replayed.take(lsn, record) {
                    each(at, due, &mut replayed.live);
                }
            }
            from = chunk.next;
        }
        Ok(replaying)
    }
}

impl Found {
    /// Loads the newest checkpoint of the group, and checks that the log has all entries behind the
    /// checkpoint.
    fn follow(
        &mut self,
        storage: &dyn Storage,
        end: Lsn,
        (repaired, unfinished): (bool, bool),
    ) -> Result<(), OpenError> {
        // An interrupted repair may have given up the end of the log and kept checkpoints behind that end.
        // The log assigns these positions again, so the opening removes such a checkpoint.
        while let Some(newest) = self.kept.pop_if(|k| unfinished && k.next > end) {
            checkpoints::remove(storage, &newest)?;
        }
        if let Some(newest) = self.kept.last() {
            let (header, state) = checkpoints::load(storage, newest)?;
            (self.header, self.state) = (header, Some(state));
        }
        if self.header.next > end {
            return Err(OpenError::ends_early(end, self.header.next));
        }
        self.seen.follow(&self.header, repaired)
    }
}

/// The progress of a group during the replay of the log, from which the opening builds the member.
struct Replayed {
    found: Found,
    /// True if this node is the only member of the group, so that every durable entry is committed.
    alone: bool,
    /// The group's commit index, as the log and the checkpoint have it. The replay applies the entries up to
    /// it.
    committed: Index,
    /// The last committed entry of the group that the replay has passed, with the log position behind its
    /// record. The group's state includes it.
    applied: Applied,
    /// The entries of the group behind the last committed entry, which Raft gets unapplied.
    tail: Vec<LoggedEntry>,
    live: Live,
    staged: Staged,
}

impl Replayed {
    fn begin(found: Found) -> Result<Self, OpenError> {
        let alone = found.of.members.len() == 1;
        if !alone && (!found.seen.missing().is_empty() || found.seen.lost()) {
            return Err(OpenError::lacks_entries());
        }
        let committed = match alone {
            true => found.seen.last().index,
            false => found.seen.committed(),
        };
        Ok(Self {
            alone,
            committed,
            applied: Applied {
                entry: found.header.entry,
                next: found.header.next,
            },
            tail: Vec::new(),
            live: Live::restored(&found.header.live),
            staged: Staged::default(),
            found,
        })
    }

    /// Handles the next record of the group in the replay. Returns the step that the record makes due for the
    /// event loop, if any.
    fn take(&mut self, lsn: Lsn, record: Record) -> Option<Due> {
        if lsn < self.found.header.next {
            // The replay starts at the oldest of the groups' newest checkpoints. The newer checkpoint of this
            // group already includes the record.
            return None;
        }
        if self.is_entry(lsn, &record) {
            let entry = EntryId::new(record.index, record.term);
            if entry.index > self.committed {
                self.tail.push(logged(lsn, record));
                return None;
            }
            self.applied = Applied {
                entry,
                next: lsn.after(record.stored_bytes()),
            };
        }
        if record.kind == KIND_FETCHED {
            let bytes = record.stored_bytes();
            if let Some(fetched) = moved(lsn, &record).filter(|_| !self.alone) {
                self.staged.insert(&fetched);
                self.staged.note(lsn, bytes);
            }
            return None;
        }
        self.due(lsn, record)
    }

    /// Builds this node's member of the group from the results of the replay, once the replay has read the
    /// whole log.
    fn finish(
        mut self,
        options: &Options,
        by: By,
        storage: &Arc<dyn Storage>,
        waker: &Waker,
    ) -> Result<Member, OpenError> {
        let group = GroupOptions {
            group: self.found.of.number,
            id: options.id,
            voters: self.found.of.members,
            uncommitted_bytes_max: options.uncommitted_bytes_max,
            tail_bytes_max: options.tail_bytes_max,
            // The store adapts this bound to the log's reservation.
            batch_bytes_max: options.segment_bytes / 4,
            // The only member of a group cannot fetch its lost entries from another node, so it never rejoins
            // its group.
            rejoined: options.rejoined.filter(|_| !self.alone),
            lab: options.lab,
        };
        let seen = &mut self.found.seen;
        let restored = Restored {
            hard_state: seen.hard_state(),
            applied: match self.alone {
                true => seen.last(),
                false => self.applied.entry,
            },
            tail: self.tail,
            history: seen.take_history(),
            installed: !self.alone && seen.installed(),
        };
        let checkpoints = Checkpoints::start(
            by,
            Arc::clone(storage),
            self.found.naming,
            self.found.kept,
            Arc::clone(waker),
        );
        Ok(Member {
            group: Group::open(group, restored),
            delayed: VecDeque::new(),
            checkpoints: checkpoints.map_err(OpenError::io("starting a thread"))?,
            catching_up: CatchingUp::default(),
            staged: self.staged,
            live: self.live,
            relocated: VecDeque::new(),
            applied: self.applied,
            tried: self.found.header.next,
            blocks_release: false,
            failed: false,
            keep_back_at: Lsn::ZERO,
        })
    }

    /// Returns whether the replay must handle the record as an entry: it is a valid entry of the group that
    /// the checkpoint's state does not include.
    fn is_entry(&self, lsn: Lsn, record: &Record) -> bool {
        record.kind == KIND_ENTRY
            && Index::new(record.index) > self.found.header.entry.index
            && self.found.seen.counts(Index::new(record.index), lsn)
    }

    /// Returns the step that a record makes due for the event loop: to apply an entry, or to note a message's
    /// new place. Returns `None` for a record that only Raft needs.
    fn due(&self, lsn: Lsn, record: Record) -> Option<Due> {
        match record.kind {
            KIND_ENTRY if self.is_entry(lsn, &record) && !record.payload.is_empty() => {
                let LoggedEntry {
                    index,
                    term,
                    lsn,
                    data,
                } = logged(lsn, record);
                Some(Due::Entry(Committed {
                    index,
                    term,
                    lsn,
                    data,
                }))
            }
            KIND_RELOCATED => moved(lsn, &record).map(Due::Relocated),
            _ => None,
        }
    }
}

fn logged(lsn: Lsn, record: Record) -> LoggedEntry {
    let EntryId { index, term } = EntryId::new(record.index, record.term);
    LoggedEntry {
        index,
        term,
        lsn,
        data: record.payload,
    }
}

/// Returns the message in a record of the kind relocated or fetched, with the message's place in the log.
fn moved(lsn: Lsn, record: &Record) -> Option<Relocated> {
    Some(Relocated {
        stream: u32::try_from(record.term).ok().map(StreamNumber::new)?,
        seq: StreamSeq::new(record.index),
        place: Place {
            lsn: lsn.get(),
            offset: ENTRY_HEADER_BYTES as u32,
        },
    })
}

fn unreadable(error: ReadError) -> OpenError {
    match error {
        ReadError::Io(error) => OpenError::io("reading the log")(error),
        ReadError::Damaged { at } => OpenError::Damaged(format!("the log cannot be read at {at}")),
        error => OpenError::Damaged(error.to_string()),
    }
}

/// Locks the data directory `dir`, so that no server can start in it, and creates the directory if needed.
/// The lock lasts as long as the returned value lives.
///
/// # Errors
/// Fails if another process holds the directory, or if the operating system refuses an operation.
pub fn claim(dir: &Path) -> Result<Disk, OpenError> {
    let io = OpenError::io;
    let disk = Disk::open(dir.join("tidegate")).map_err(io("opening the data directory"))?;
    match disk.lock().map_err(io("locking the data directory"))? {
        true => Ok(disk),
        false => Err(OpenError::InUse),
    }
}

/// Returns whether the data directory has a version file. Returns an error for any version other than
/// [`VERSION`].
pub(super) fn has_version(storage: &dyn Storage) -> Result<bool, OpenError> {
    let text = read_file(storage, VERSION_FILE);
    let text = text.map_err(OpenError::io("reading the data directory's version"))?;
    let text = text.unwrap_or_default();
    // A crash of an earlier release may have left the version file empty. The log has no records then, so an
    // empty file counts as none.
    if text.is_empty() {
        return Ok(false);
    }
    let version = std::str::from_utf8(&text)
        .ok()
        .and_then(|t| t.trim().parse().ok());
    match version {
        Some(VERSION) => Ok(true),
        Some(version) if version > VERSION => Err(OpenError::Newer { version }),
        _ => Err(OpenError::Version),
    }
}

/// Returns whether the newest repair of the directory was interrupted, so that checkpoints behind the log's
/// end may remain.
pub(super) fn has_unfinished_repair(storage: &dyn Storage) -> Result<bool, OpenError> {
    let Some(note) = open_note(storage)? else {
        return Ok(false);
    };
    let read = || {
        let mut last = [0; REPAIR_ENDED.len()];
        let at = note.bytes()?.checked_sub(last.len() as u64);
        let Some(at) = at else {
            return Ok(true);
        };
        note.read_at(&mut last, at)?;
        Ok(last != REPAIR_ENDED.as_bytes())
    };
    read().map_err(OpenError::io("reading the note on repairs"))
}

/// Notes that the newest repair has ended, so that later starts keep all checkpoints.
///
/// # Errors
/// Fails if the operating system refuses to read or to write the note.
pub fn end_repair(storage: &dyn Storage) -> Result<(), OpenError> {
    let Some(note) = open_note(storage)? else {
        return Ok(());
    };
    let write = || {
        note.write_at(&[IoSlice::new(REPAIR_ENDED.as_bytes())], note.bytes()?)?;
        note.sync()
    };
    write().map_err(OpenError::io("writing the note on repairs"))
}

fn open_note(storage: &dyn Storage) -> Result<Option<Arc<dyn StorageFile>>, OpenError> {
    match storage.open(REPAIRED_FILE) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(OpenError::io("opening the note on repairs")(e)),
    }
}

/// Returns the content of a small file of the directory, at most 64 KiB, so that a wrong file cannot fill
/// the memory; `None` if the directory has no such file.
pub(super) fn read_file(storage: &dyn Storage, name: &str) -> std::io::Result<Option<Vec<u8>>> {
    let file = match storage.open(name) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let bytes = usize::try_from(file.bytes()?).unwrap_or(usize::MAX);
    let mut text = vec![0; bytes.min(1 << 16)];
    let read = file.read_at(&mut text, 0)?;
    text.truncate(read);
    Ok(Some(text))
}

/// Durably writes the version file, which marks the directory as opened.
///
/// # Errors
/// Fails if the operating system refuses an operation.
pub fn write_version(storage: &dyn Storage) -> Result<(), OpenError> {
    let write = || {
        // The store writes a separate file and renames it, so that a crash cannot leave a version file that
        // is empty or holds zeros.
        let file = storage.create(VERSION_NEW)?;
        file.write_at(&[IoSlice::new(format!("{VERSION}\n").as_bytes())], 0)?;
        file.sync()?;
        storage.rename(VERSION_NEW, VERSION_FILE)?;
        storage.sync_names()
    };
    write().map_err(OpenError::io("writing the data directory's version"))
}
