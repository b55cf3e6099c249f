//! Opens a log after a close or a crash: reports the log's state, cuts off a torn tail, and finds the
//! position at which the writer continues.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use tidegate::Clock;
use tidegate::boundary::Boundary;
use tidegate::queue::{Builder, Wait};

use crate::append::{Appender, Now};
use crate::catalog::Catalog;
use crate::driver::Driver;
use crate::gather::Gather;
use crate::growth::Growth;
use crate::index::{IndexBuilder, RecordInfo};
use crate::keeper::{Keeper, force_catalog, keep_reserve, tidy};
use crate::load::{
    Content, Damage, DamageKind, Files, Follows, Found, SegmentDamage, State, look, read_segment,
};
use crate::options::room;
use crate::planner::Planner;
use crate::recovery::{SegmentBytes, Verdict};
use crate::segment::{PAGE, SegmentHeader, name, offset};
use crate::shared::{Segment, Shared, Spare, lock};
use crate::storage::{Storage, StorageFile, is_full, read_all};
use crate::writer::Writer;
use crate::{Log, Lsn, OpenError, Options};

/// The result of an opening: the handles of the open log, and the report.
pub struct Opened {
    /// The log's appender: the caller appends batches through it.
    pub appender: Appender,
    /// The handle of the log for reads, waits, releases and counters.
    pub log: Log,
    /// The report of the opening: the state in which the opening found the log.
    pub recovery: Recovery,
}

/// The report of an opening: the state in which the opening found the log, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The state of the log's end: whole, or torn by a crash and cut off. Later openings report the same
    /// state until the log has written a batch.
    pub verdict: Verdict,
    /// The first log position that the log still has. The log has released all earlier positions.
    pub first: Lsn,
    /// The log position at which the log ends, and at which the next batch begins.
    pub end: Lsn,
    /// The number of records that the opening found in the log, for the operator's report.
    pub records: u64,
    /// The number of segments with batches that the opening found in the log, for the operator's report.
    pub segments: usize,
    /// The number of segments that the opening had to read from end to end, because they have no intact
    /// index. It explains a slow opening.
    pub scanned: usize,
    /// True if the last user of the log closed it in order; false after a crash.
    pub closed: bool,
    /// True if the file of the last segment is shorter than at its creation. Durable bytes may have stood in
    /// the missing part. No crash shortens a file, so this is damage, regardless of the verdict.
    pub shortened: bool,
}

/// The last segment of the log, in which the writer continues, with its index so far and its room in bytes.
struct Tail {
    segment: Arc<Segment>,
    index: IndexBuilder,
    room: u64,
    /// True if the segment does not grow with later ones: it is sealed, or another length is reserved of it.
    whole: bool,
}

/// The segments of the log, as the opening loaded them from their files, from which it assembles the open
/// log.
struct Loaded {
    segments: Vec<Arc<Segment>>,
    tail: Option<Tail>,
    epoch: u32,
    recovery: Recovery,
}

impl Log {
    /// Opens the log in `storage`, or creates one there. Calls `visit` with every record of the log, in the
    /// order in which the log wrote them.
    ///
    /// The opening cuts off a batch that a crash left half written at the end; [`Recovery::verdict`] reports
    /// that. If durable bytes are damaged, the opening cuts nothing off and fails.
    ///
    /// # Errors
    /// See [`OpenError`]. After an error because the log is in use, newer, gone or damaged, the log is
    /// unchanged.
    pub fn open(
        storage: Arc<dyn Storage>,
        options: Options,
        mut visit: impl FnMut(RecordInfo),
    ) -> Result<Opened, OpenError> {
        let clock = Clock::start();
        let mut parts = Parts::open(storage, options, Now::Clock(clock), &mut visit)?;
        let (driver, keeper) = (Box::new(parts.driver), parts.keeper);
        parts.opened.appender.threads = vec![
            spawn("log", move || driver.run(clock))?,
            spawn("log-keeper", move || keeper.run())?,
        ];
        Ok(parts.opened)
    }
}

/// An open log before its threads run: the log itself, the driver of the log thread and the keeper. The
/// caller runs driver and keeper in threads, or step by step in a simulation.
pub(crate) struct Parts {
    pub(crate) opened: Opened,
    pub(crate) driver: Driver,
    pub(crate) keeper: Keeper,
}

impl Parts {
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        mut options: Options,
        now: Now,
        visit: &mut dyn FnMut(RecordInfo),
    ) -> Result<Self, OpenError> {
        let io = OpenError::io;
        options.check()?;
        let boundary = Boundary::new(options.take_controller()?, options.bounds());
        let boundary = boundary.map_err(|_| {
            OpenError::Options(
                "the controller refuses sync_bytes_max: give another number of bytes",
            )
        })?;
        if !storage.lock().map_err(io("locking the log's directory"))? {
            return Err(OpenError::InUse);
        }
        let files = look(&*storage)?;
        if files.is_none() && options.must_be_there {
            return Err(OpenError::Gone);
        }
        let loaded = load(files.as_ref(), options.visit_from, visit)?;
        if options.refuse_shortened
            && loaded.recovery.shortened
            && let Some(tail) = &loaded.tail
        {
            let damage = Damage {
                catalog: false,
                segments: vec![SegmentDamage {
                    segment: tail.segment.header.segment,
                    what: DamageKind::Shortened,
                    lost: Vec::new(),
                }],
            };
            return Err(OpenError::Damaged(Box::new(damage)));
        }
        // The checks above change nothing, so that a refused log stays as it was. From here on, the opening
        // changes the directory.
        let mut catalog = files.map(|files| files.catalog).unwrap_or_default();
        // This opening takes the next epoch after the latest one. The catalog names the latest epoch, unless
        // a repair rebuilt the catalog; then a batch header may have a later one.
        catalog.epoch = catalog.epoch.max(loaded.epoch) + 1;
        let (catalog, mut following) = without_spares(catalog, &loaded);
        // A crash may have left files of further segments that no catalog lists. The opening skips the
        // numbers of these files, so that no new file replaces one, and the keeper uses the files again.
        while storage.open(&name(following)).is_ok() {
            following += 1;
        }
        force_catalog(&*storage, &catalog).map_err(io("writing the catalog"))?;
        assemble(
            storage,
            (options, boundary),
            now,
            (catalog, following),
            loaded,
        )
    }
}

/// Builds the appender, the log thread's driver and the keeper, which continue the log behind the loaded
/// segments.
fn assemble(
    storage: Arc<dyn Storage>,
    (mut options, mut boundary): (Options, Boundary),
    now: Now,
    (catalog, following): (Catalog, u64),
    loaded: Loaded,
) -> Result<Parts, OpenError> {
    let epoch = catalog.epoch;
    let end = loaded.recovery.end;
    if let Some(log) = options.decisions.take() {
        boundary.log_to(&log, "sync");
    }
    let waker = std::mem::replace(&mut options.waker, Box::new(|| ()));
    let shared = Arc::new(Shared::new(storage, end, now.clone(), waker));
    let growth = Growth::new(options.first_bytes, options.segment_bytes);
    let mut tail = loaded.tail;
    // The bytes behind the end of a log with a torn tail are the evidence for the verdict, so they stay until
    // the log writes there.
    let torn = loaded.recovery.verdict != Verdict::Clean;
    let reserved = match &mut tail {
        Some(tail) => reserve_tail(tail, growth, end, torn)?,
        None => growth.at(end),
    };
    shared.reserved.store(reserved, Ordering::Release);
    let mut keeper = keeper(&shared, &options, growth, catalog, following)?;
    keeper.reserve = growth.at(end);
    for segment in loaded.segments {
        shared.insert(segment);
    }
    let tail = match tail {
        Some(mut tail) => {
            let number = tail.segment.header.segment;
            if shared.allocated().reserved < reserved {
                // The disk had space only for shorter spare segments.
                tail.room = tail.room.min(room(reserved));
                tail.whole = true;
            } else if !growth.is_whole(reserved) && !tail.whole {
                let file = Arc::clone(&tail.segment.file);
                keeper.growing.push((number, file));
            }
            keeper.torn = torn.then_some(number);
            tail
        }
        None => first_segment(&shared, end)?,
    };
    keeper
        .top_up()
        .map_err(OpenError::io("allocating a segment"))?;
    let here = tail.segment.header;
    let following = following + u64::from(here.segment == following);
    let place = (here.segment, here.base, tail.room, tail.whole);
    let planner = Planner::new(place, end, following, options.segment_bytes);
    let queue = Builder::new(options.pending_batches_max)
        .wait(Wait::Park)
        .build();
    let (queue, consumer) =
        queue.map_err(|_| OpenError::Options("pending_batches_max is too large"))?;
    let writer = Writer::new(Arc::clone(&shared), tail.segment, tail.index, end, epoch);
    let driver = Driver::new(
        Arc::clone(&shared),
        consumer,
        Gather::new(boundary),
        writer,
        options.marker_after,
    );
    let opened = Opened {
        log: Log::new(Arc::clone(&shared)),
        appender: Appender {
            shared,
            queue,
            planner,
            now,
            pending_bytes_max: options.pending_bytes_max,
            pending_batches_max: options.pending_batches_max,
            spares: options.spares,
            growth,
            asked_bytes: 0,
            threads: Vec::new(),
        },
        recovery: loaded.recovery,
    };
    Ok(Parts {
        opened,
        driver,
        keeper,
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread
        .spawn(run)
        .map_err(OpenError::io("starting a thread"))
}

/// Creates the keeper, removes the files that a crash left behind and allocates the first spare segments, so
/// that the log can accept batches at once.
fn keeper(
    shared: &Arc<Shared>,
    options: &Options,
    growth: Growth,
    catalog: Catalog,
    next: u64,
) -> Result<Keeper, OpenError> {
    let io = OpenError::io;
    let storage = &*shared.storage;
    // The previous run left spare segments, which this opening abandons. The keeper uses their files first,
    // so it must keep at least as many files as it needs spares.
    let recycled_max = options.recycled_max.max(options.spares);
    let recyclable = tidy(storage, &catalog, next, recycled_max);
    keep_reserve(storage, &catalog).map_err(io("reserving space"))?;
    let mut keeper = Keeper {
        shared: Arc::clone(shared),
        catalog,
        next,
        recyclable: recyclable.map_err(io("removing leftovers"))?,
        recycled_max: options.recycled_max,
        spares: options.spares,
        segment_bytes: options.segment_bytes,
        growth,
        reserve: 0,
        growing: Vec::new(),
        torn: None,
        seed: options
            .seed
            .unwrap_or_else(|| RandomState::new().hash_one(0)),
        deferred: BTreeSet::new(),
        one_more: false,
        unlisted: None,
    };
    keeper.begin().map_err(io("allocating a segment"))?;
    Ok(keeper)
}

/// Returns the catalog without the spare segments, and the number that follows on the highest number of a
/// segment. A crash may have left pieces of a first batch in a spare segment, so the log uses neither its
/// number nor its salt again.
fn without_spares(mut catalog: Catalog, loaded: &Loaded) -> (Catalog, u64) {
    let next = catalog.segments().last().map_or(0, |&(s, _)| s + 1);
    let used = |n: u64| loaded.segments.iter().any(|s| s.header.segment == n);
    let spares: Vec<u64> = catalog
        .segments()
        .iter()
        .map(|&(s, _)| s)
        .filter(|&s| !used(s))
        .collect();
    spares.into_iter().for_each(|s| catalog.remove(s));
    (catalog, next)
}

/// Turns a spare segment into the first segment of an empty log, so that the writer has a segment to write
/// to.
fn first_segment(shared: &Shared, base: Lsn) -> Result<Tail, OpenError> {
    let spare: Option<Spare> = lock(&shared.spares).pop_front();
    let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
    let spare = spare.ok_or_else(|| OpenError::io("allocating the first segment")(full()))?;
    let header = SegmentHeader {
        segment: spare.segment,
        base,
        salt: spare.salt,
        bytes: spare.bytes,
    };
    let segment = Arc::new(Segment::new(header, spare.file));
    shared.insert(Arc::clone(&segment));
    Ok(Tail {
        segment,
        index: IndexBuilder::new(base),
        room: room(header.bytes),
        whole: false,
    })
}

/// Reserves disk space for the front of the segment in which the writer continues, because a crash may have
/// lost what the last run reserved. Returns the bytes that are reserved of each segment from this one on. On
/// a full disk they are less than the log's end calls for, and at least the part that holds batches. Gives
/// the space of failed attempts back, unless the log's end is `torn`.
fn reserve_tail(tail: &mut Tail, growth: Growth, end: Lsn, torn: bool) -> Result<u64, OpenError> {
    let header = tail.segment.header;
    let file = &tail.segment.file;
    let failed = OpenError::io("reserving space");
    if tail.whole {
        return Ok(growth.at(end));
    }
    if !growth.suits(header.bytes) {
        // The segment has the length that an earlier run gave it, so the steps do not suit it.
        tail.whole = true;
        match file.reserve_front(0, header.bytes) {
            Err(e) if is_full(&e) => tail.room = end.since(header.base),
            reserved => reserved.map_err(failed)?,
        }
        return Ok(growth.at(end));
    }
    let least = offset(header.base, end).next_multiple_of(PAGE);
    let mut wanted = growth.at(end);
    loop {
        match file.reserve_front(0, wanted) {
            Ok(()) => break,
            Err(e) if is_full(&e) && wanted > least => {
                wanted = (wanted / 2).next_multiple_of(PAGE).max(least);
            }
            // The file has this part already, so the next batch goes into the next segment.
            Err(e) if is_full(&e) => break,
            Err(e) => return Err(failed(e)),
        }
    }
    if wanted < growth.at(end) && !torn {
        // The log needs no space there, so a failure to give it back is no error.
        let _ = file.give_back(wanted..growth.at(end));
    }
    Ok(wanted)
}

/// Reads every segment of the log for an opening, and calls `visit` with the records from `visit_from` on.
/// Fails if durable bytes cannot be read.
fn load(
    files: Option<&Files>,
    visit_from: Lsn,
    visit: &mut dyn FnMut(RecordInfo),
) -> Result<Loaded, OpenError> {
    let mut loaded = Loaded {
        segments: Vec::new(),
        tail: None,
        epoch: 0,
        recovery: Recovery {
            verdict: Verdict::Clean,
            first: Lsn::ZERO,
            end: Lsn::ZERO,
            records: 0,
            segments: 0,
            scanned: 0,
            closed: false,
            shortened: false,
        },
    };
    let Some(files) = files else {
        return Ok(loaded);
    };
    if let Some(damage) = missing(files) {
        return Err(OpenError::Damaged(Box::new(damage)));
    }
    let used = used(files);
    let mut damage = Damage::default();
    for (n, (header, file)) in used.iter().enumerate() {
        let follows = follows(&used, n);
        let last = n + 1 == used.len();
        let mut index = IndexBuilder::new(header.base);
        let content = read_segment(*header, &**file, follows, true, &mut |entry| {
            if last {
                index.push(&entry);
            }
            if entry.lsn >= visit_from {
                visit(entry);
            }
        })?;
        if let Verdict::Damaged { durable, .. } = content.verdict {
            damage.segments.push(damaged(*header, &**file, durable)?);
            continue;
        }
        let segment = Arc::new(Segment::new(*header, Arc::clone(file)));
        segment.reached(content.end, content.records);
        loaded.segments.push(Arc::clone(&segment));
        note(&mut loaded, &content, n == 0, header.base);
        if !last {
            segment.seal(taken(header, content.end));
        } else {
            let bytes = file
                .bytes()
                .map_err(OpenError::io("reading a segment's length"))?;
            loaded.recovery.shortened = bytes < header.bytes;
            loaded.tail = Some(Tail {
                segment,
                index,
                // A segment with an index is full, because the log sealed it, even if a crash came before the
                // next segment was begun.
                room: match content.sealed {
                    true => content.end.since(header.base),
                    false => room(header.bytes),
                },
                whole: content.sealed,
            });
        }
    }
    match damage.segments.is_empty() {
        true => Ok(loaded),
        false => Err(OpenError::Damaged(Box::new(damage))),
    }
}

/// Returns the bytes of disk space that the file of a sealed segment takes: its whole length, or the part
/// with batches if that is less than half. The log leaves so much of a segment unused only if it is short of
/// space, or for a batch of at least that length.
fn taken(header: &SegmentHeader, end: Lsn) -> u64 {
    let used = offset(header.base, end);
    match used < header.bytes / 2 {
        true => used,
        false => header.bytes,
    }
}

fn note(loaded: &mut Loaded, content: &Content, first: bool, base: Lsn) {
    loaded.epoch = loaded.epoch.max(content.epoch);
    let recovery = &mut loaded.recovery;
    if first {
        recovery.first = base;
    }
    recovery.end = content.end;
    recovery.records += content.records;
    recovery.segments += 1;
    recovery.scanned += usize::from(content.scanned);
    recovery.closed = content.closed;
    recovery.verdict = content.verdict.clone();
}

/// Returns the damage that is known before a batch is read: an unreadable catalog, missing files, and
/// unreadable segment headers. Returns `None` if the log has no such damage.
pub(crate) fn missing(files: &Files) -> Option<Damage> {
    let damaged = |f: &Found| {
        let what = match f.state {
            State::Missing => DamageKind::Missing,
            State::BadHeader(_) => DamageKind::Header,
            State::Spare | State::Used(..) => return None,
        };
        Some(SegmentDamage {
            segment: f.segment,
            what,
            lost: Vec::new(),
        })
    };
    let damage = Damage {
        catalog: files.rebuilt,
        segments: files.found.iter().filter_map(damaged).collect(),
    };
    (damage != Damage::default()).then_some(damage)
}

/// Returns the header and the file of each segment to which the log has written, in the order of their
/// numbers, for a reader that leaves out spare segments.
pub(crate) fn used(files: &Files) -> Vec<(SegmentHeader, Arc<dyn StorageFile>)> {
    let used = files.found.iter().filter_map(|f| match &f.state {
        State::Used(header, file) => Some((*header, Arc::clone(file))),
        _ => None,
    });
    used.collect()
}

pub(crate) fn follows(used: &[(SegmentHeader, Arc<dyn StorageFile>)], n: usize) -> Follows {
    match used.get(n + 1) {
        None => Follows::Nothing,
        // The present segment and the next one have consecutive numbers, so the log has released no segment
        // between them, and the present one ends where the next one begins.
        Some((next, _)) if next.segment == used[n].0.segment + 1 => Follows::At(next.base),
        Some(_) => Follows::Something,
    }
}

/// Reads a damaged segment that was durable up to log position `durable`, and lists its unreadable parts for
/// the report of the damage.
pub(crate) fn damaged(
    header: SegmentHeader,
    file: &dyn StorageFile,
    durable: Lsn,
) -> Result<SegmentDamage, OpenError> {
    let all = read_all(file).map_err(OpenError::io("reading a segment"))?;
    let survey = SegmentBytes::new(header, &all).survey(durable);
    Ok(SegmentDamage {
        segment: header.segment,
        what: DamageKind::Batches,
        lost: survey.lost.iter().map(|&(from, to)| from..to).collect(),
    })
}
