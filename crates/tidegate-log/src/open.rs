//! Opening a log: reports its state, cuts off a torn tail, and finds the place where writing continues.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::thread::JoinHandle;

use tidegate::Clock;
use tidegate::boundary::Boundary;
use tidegate::queue::{Builder, Wait};

use crate::append::{Appender, Now};
use crate::catalog::Catalog;
use crate::driver::Driver;
use crate::gather::Gather;
use crate::index::{IndexBuilder, RecordInfo};
use crate::keeper::{Keeper, force_catalog, keep_reserve, tidy};
use crate::load::{
    Content, Damage, DamageKind, Files, Follows, Found, SegmentDamage, State, look, read_segment,
};
use crate::options::room;
use crate::planner::Planner;
use crate::recovery::{SegmentBytes, Verdict};
use crate::segment::{SegmentHeader, name};
use crate::shared::{Segment, Shared, Spare, lock};
use crate::storage::{Storage, StorageFile, read_all};
use crate::writer::Writer;
use crate::{Log, Lsn, OpenError, Options};

/// An open log.
pub struct Opened {
    /// The entry for batches.
    pub appender: Appender,
    /// The handle for everything else.
    pub log: Log,
    /// The report of the opening.
    pub recovery: Recovery,
}

/// The state in which an opening found the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The state of the log's end. Each opening reports it again until a batch is appended.
    pub verdict: Verdict,
    /// The first position that the log still has.
    pub first: Lsn,
    /// The position at which the log ends and continues.
    pub end: Lsn,
    /// The number of records.
    pub records: u64,
    /// The number of segments.
    pub segments: usize,
    /// The number of segments that the opening read from end to end, for lack of an index.
    pub scanned: usize,
    /// True if the log had been closed.
    pub closed: bool,
    /// The last segment's file is shorter than when it was made. No crash causes that, and durable bytes
    /// may have stood there: unlike an interrupted write this is damage, regardless of the verdict.
    pub shortened: bool,
}

/// The end of the log, where writing continues, as the files have it.
struct Tail {
    segment: Arc<Segment>,
    index: IndexBuilder,
    room: u64,
}

/// The segments loaded from their files.
struct Loaded {
    segments: Vec<Arc<Segment>>,
    tail: Option<Tail>,
    epoch: u32,
    recovery: Recovery,
}

impl Log {
    /// Opens the log in `storage`, or makes one; calls `visit` with every record of the
    /// log, in the order they were written.
    ///
    /// The opening cuts off a batch that a crash left half written at the end; [`Recovery::verdict`]
    /// reports it. It never cuts off damage to durable bytes: then the log does not open.
    ///
    /// # Errors
    /// See [`OpenError`]. The directory is unchanged then.
    pub fn open(
        storage: Arc<dyn Storage>,
        options: Options,
        mut visit: impl FnMut(RecordInfo),
    ) -> Result<Opened, OpenError> {
        let clock = Clock::start();
        let mut parts = Parts::open(storage, options, Now::Clock(clock), &mut visit)?;
        let (driver, keeper) = (parts.driver, parts.keeper);
        parts.opened.appender.threads = vec![
            spawn("log", move || driver.run(clock))?,
            spawn("log-keeper", move || keeper.run())?,
        ];
        Ok(parts.opened)
    }
}

/// A log without its threads, and the work of these threads.
pub(crate) struct Parts {
    pub(crate) opened: Opened,
    pub(crate) driver: Driver,
    pub(crate) keeper: Keeper,
}

impl Parts {
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        options: Options,
        now: Now,
        visit: &mut dyn FnMut(RecordInfo),
    ) -> Result<Self, OpenError> {
        let io = OpenError::io;
        options.check()?;
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
        // The directory changes from here on.
        let mut catalog = files.map(|files| files.catalog).unwrap_or_default();
        // Headers may have later epochs only if the catalog was rebuilt.
        catalog.epoch = catalog.epoch.max(loaded.epoch) + 1;
        let (catalog, mut following) = without_spares(catalog, &loaded);
        // A crash may have left the next segment's file in no catalog. The keeper uses its space again.
        while storage.open(&name(following)).is_ok() {
            following += 1;
        }
        force_catalog(&*storage, &catalog).map_err(io("writing the catalog"))?;
        assemble(storage, options, now, (catalog, following), loaded)
    }
}

/// Assembles a log around the loaded segments.
fn assemble(
    storage: Arc<dyn Storage>,
    mut options: Options,
    now: Now,
    (catalog, following): (Catalog, u64),
    loaded: Loaded,
) -> Result<Parts, OpenError> {
    let epoch = catalog.epoch;
    let end = loaded.recovery.end;
    let boundary = Boundary::new(options.take_controller()?, options.bounds());
    let mut boundary = boundary.map_err(|_| OpenError::Options("impossible bounds"))?;
    if let Some(log) = options.decisions.take() {
        boundary.log_to(&log, "sync");
    }
    let waker = std::mem::replace(&mut options.waker, Box::new(|| ()));
    let shared = Arc::new(Shared::new(storage, end, waker));
    let mut keeper = keeper(&shared, &options, catalog, following)?;
    for segment in loaded.segments {
        shared.insert(segment);
    }
    let tail = match loaded.tail {
        Some(tail) => tail,
        None => first_segment(&shared, end)?,
    };
    keeper
        .top_up()
        .map_err(OpenError::io("allocating a segment"))?;
    let here = tail.segment.header;
    let following = following + u64::from(here.segment == following);
    let place = (here.segment, here.base, tail.room);
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

/// Creates the keeper, removes the leftovers of a crash and allocates the first spares.
fn keeper(
    shared: &Arc<Shared>,
    options: &Options,
    catalog: Catalog,
    next: u64,
) -> Result<Keeper, OpenError> {
    let io = OpenError::io;
    let storage = &*shared.storage;
    // Abandoned spares are the first files to be used again.
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
        seed: options
            .seed
            .unwrap_or_else(|| RandomState::new().hash_one(0)),
        deferred: BTreeSet::new(),
        one_more: false,
        unlisted: None,
    };
    keeper.top_up().map_err(io("allocating a segment"))?;
    Ok(keeper)
}

/// Returns the catalog without segments that were never used, and the number after all of them. A crash
/// may have left pieces of a first batch in such a segment, so its number and its salt are not used again.
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

/// Makes the first segment of a log that has none.
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
    })
}

/// Reads every segment; fails if durable bytes cannot be read.
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
            segment.seal();
        } else {
            let bytes = file
                .bytes()
                .map_err(OpenError::io("reading a segment's length"))?;
            loaded.recovery.shortened = bytes < header.bytes;
            loaded.tail = Some(Tail {
                segment,
                index,
                // A segment with an index is full, even if no segment follows it yet.
                room: match content.sealed {
                    true => content.end.since(header.base),
                    false => room(header.bytes),
                },
            });
        }
    }
    match damage.segments.is_empty() {
        true => Ok(loaded),
        false => Err(OpenError::Damaged(Box::new(damage))),
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

/// Returns the damage that shows before any batch is read.
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

/// Returns the segments with content, in order.
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
        // Consecutive numbers: no segment in between can have been released.
        Some((next, _)) if next.segment == used[n].0.segment + 1 => Follows::At(next.base),
        Some(_) => Follows::Something,
    }
}

/// Lists the unreadable parts of a segment that was durable up to `durable`.
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
