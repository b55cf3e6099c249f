//! Keeps the accounts of one stretch of a trace: the part of one boundary's entries without a gap. A stretch
//! knows when each item arrived and ended, and the cost of each batch.
//!
//! Items leave the backlog in the order of their arrival. Where the driver reports a larger backlog than the
//! reported arrivals explain, the stretch spreads the other arrivals over the time since the last known
//! backlog.

use std::collections::{HashMap, VecDeque};

use crate::controller::{BatchId, Bounds, Entry, Event, Load, When};

/// The most pieces and batches that one stretch keeps, so that a long trace does not fill the memory.
pub(super) const KEEP: usize = 600_000;
/// The most pieces into which the stretch cuts unreported arrivals.
const SPREAD: u64 = 8;
/// The time that stands for an unknown time.
const UNKNOWN: u64 = u64::MAX;

/// Items that arrived at one time and left in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The time of the arrival, in nanoseconds.
    pub(super) at: u64,
    /// The time at which the batch ended; `None` if it did not end in the stretch.
    pub(super) done: Option<u64>,
    /// The number of items, and their bytes.
    pub(super) items: u32,
    pub(super) bytes: u32,
}

/// A batch that ended in the stretch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) started: u64,
    /// The time from the start to the end of the batch, in nanoseconds: as the driver reports it, or its cost
    /// if the cost is longer.
    pub(super) took_ns: u64,
    /// The cost that the controller learned, in nanoseconds.
    pub(super) cost_ns: u64,
    pub(super) items: u32,
    /// The number of batches that ran at the start of this batch, itself included.
    pub(super) running: u32,
    /// The time that the driver took from the end of the last batch to the start of this one, while items
    /// waited and the controller held nothing back.
    pub(super) turn_ns: Option<u32>,
    /// The time that the driver took from an arrival at the idle boundary to the start of this batch.
    pub(super) wake_ns: Option<u32>,
}

/// The counts of the events of a stretch, by which the fit judges the driver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    /// The items of these arrivals.
    pub(super) arrived_items: u64,
    pub(super) expected: u64,
    pub(super) replied: u64,
    pub(super) started: u64,
    /// The batches before which the driver asked the controller.
    pub(super) asked: u64,
    /// The batches that the driver started although the controller still held them back.
    pub(super) overruled: u64,
    /// The items for which the stretch estimated the arrival.
    pub(super) estimated: u64,
    /// The arrivals of several items that the driver cut in two.
    pub(super) splits: u64,
    /// The batches of which the driver reports the start at their end.
    pub(super) instant: u64,
    pub(super) failed: u64,
}

struct Waiting {
    at: u64,
    load: Load,
    is_reported: bool,
    /// True once a batch, or the driver's loss of items, took a part of these items.
    is_begun: bool,
}

struct Running {
    ran: Ran,
    /// The pieces of the batch, as a range of indexes.
    pieces: (usize, usize),
}

/// The accounts of one stretch.
pub(super) struct Stretch {
    pub(super) bounds: Bounds,
    /// The time of the first entry; `None` before it.
    pub(super) start: Option<u64>,
    /// The time of the last kept entry.
    pub(super) end: u64,
    pub(super) pieces: Vec<Piece>,
    pub(super) ran: Vec<Ran>,
    pub(super) tally: Tally,
    /// The largest number of batches in flight and limit in items that a decision allowed.
    pub(super) allowed: u32,
    pub(super) limit_items: u64,
    /// True if a decision set a limit in bytes below the bound.
    pub(super) limits_bytes: bool,
    waiting: VecDeque<Waiting>,
    backlog: u64,
    running: HashMap<BatchId, Running>,
    /// The time of the last report of the backlog; `None` while the backlog is unknown, after a gap.
    seen: Option<u64>,
    free_since: Option<u64>,
    /// The controller's answer to the last question since the last start, if the driver asked.
    answer: Option<When>,
    held: bool,
}

impl Stretch {
    /// Begins a stretch. `is_first` is true at the start of a boundary, where the backlog is empty.
    pub(super) fn new(bounds: Bounds, is_first: bool) -> Self {
        Self {
            bounds,
            start: None,
            end: 0,
            pieces: Vec::new(),
            ran: Vec::new(),
            tally: Tally::default(),
            allowed: 1,
            limit_items: 1,
            limits_bytes: false,
            waiting: VecDeque::new(),
            backlog: 0,
            running: HashMap::new(),
            seen: is_first.then_some(0),
            free_since: None,
            answer: None,
            held: false,
        }
    }

    /// Returns the number of records that the stretch keeps.
    pub(super) fn kept(&self) -> usize {
        self.pieces.len() + self.ran.len() + self.waiting.len() + self.running.len()
    }

    /// Handles the next entry of the boundary. Its time is not before that of the last one.
    pub(super) fn handle(&mut self, entry: &Entry) {
        let now = entry.now.as_nanos();
        if self.start.is_none() {
            self.start = Some(now);
            self.seen = self.seen.map(|_| now);
        }
        self.end = now;
        let d = &entry.decision;
        self.allowed = self.allowed.max(d.in_flight);
        self.limit_items = self.limit_items.max(d.limit_items);
        self.limits_bytes |= d.limit_bytes < self.bounds.bytes_max;
        match entry.event {
            Event::Arrived(load) => {
                self.tally.arrived += 1;
                self.tally.arrived_items = self.tally.arrived_items.saturating_add(load.items);
                self.push(now, load, true);
            }
            Event::Ready { backlog, oldest } => {
                self.settle(now, backlog, oldest.as_nanos());
                self.answer = Some(d.when);
                self.held |= d.when != When::Now;
            }
            Event::Started {
                id, batch, left, ..
            } => {
                let all = Load {
                    items: batch.items.saturating_add(left.items),
                    bytes: batch.bytes.saturating_add(left.bytes),
                };
                self.settle(now, all, UNKNOWN);
                let answer = self.answer.take();
                self.tally.started += 1;
                self.tally.asked += u64::from(answer.is_some());
                self.tally.overruled += u64::from(holds(answer, now, all.items));
                self.begin(now, id, batch);
            }
            Event::Done { id, cost_ns, ok } => self.end_of(now, id, cost_ns, ok),
            Event::Expected { .. } => self.tally.expected += 1,
            Event::Replied { .. } => self.tally.replied += 1,
            Event::Blocking => {}
        }
    }

    fn push(&mut self, at: u64, load: Load, is_reported: bool) {
        if load.items > 0 {
            self.backlog = self.backlog.saturating_add(load.items);
            self.waiting.push_back(Waiting {
                at,
                load,
                is_reported,
                is_begun: false,
            });
        }
    }

    /// Makes the accounts agree with the backlog `all` that the driver reports.
    fn settle(&mut self, now: u64, all: Load, oldest: u64) {
        let missing = all.items.saturating_sub(self.backlog);
        let each = all.bytes / all.items.max(1);
        match self.seen {
            _ if missing == 0 => self.forget(self.backlog - all.items.min(self.backlog)),
            // The arrivals before the stretch are unknown, so no figure counts these items.
            None => {
                self.backlog += missing;
                self.waiting.push_front(Waiting {
                    at: UNKNOWN,
                    load: Load::new(missing, missing.saturating_mul(each)),
                    is_reported: false,
                    is_begun: false,
                });
            }
            Some(seen) => {
                self.tally.estimated = self.tally.estimated.saturating_add(missing);
                let is_empty = self.waiting.is_empty();
                let first = match oldest {
                    at if is_empty && (seen..=now).contains(&at) => at,
                    _ => seen + (now - seen) / 2 / missing.min(SPREAD),
                };
                let parts = missing.min(SPREAD);
                for i in 0..parts {
                    let items = missing / parts + u64::from(i < missing % parts);
                    let at = first + (now - first) / parts * i;
                    self.push(at, Load::new(items, items.saturating_mul(each)), false);
                }
            }
        }
        self.seen = Some(now);
    }

    /// Removes items from the front of the backlog: their callers gave up, or the driver dropped them.
    fn forget(&mut self, items: u64) {
        self.take(items, |_, _, _| ());
    }

    /// Takes items from the front of the backlog, and calls `taken` with the parts of each arrival.
    fn take(&mut self, mut items: u64, mut taken: impl FnMut(&mut Tally, u64, Load)) {
        while items > 0
            && let Some(first) = self.waiting.front_mut()
        {
            let n = first.load.items.min(items);
            let bytes = (first.load.bytes / first.load.items.max(1)).saturating_mul(n);
            let part = Load::new(n, bytes.min(first.load.bytes));
            taken(&mut self.tally, first.at, part);
            first.is_begun = true;
            first.load.items -= n;
            first.load.bytes -= part.bytes;
            self.backlog = self.backlog.saturating_sub(n);
            items -= n;
            if first.load.items == 0 {
                self.waiting.pop_front();
            }
        }
    }

    fn begin(&mut self, now: u64, id: BatchId, batch: Load) {
        let oldest = self.waiting.front().map_or(UNKNOWN, |w| w.at);
        let (mut turn_ns, mut wake_ns) = (None, None);
        if self.running.is_empty() && !self.held {
            match self.free_since {
                Some(since) => turn_ns = Some(short(now - since)),
                None if oldest <= now => wake_ns = Some(short(now - oldest)),
                None => {}
            }
        }
        (self.held, self.free_since) = (false, None);
        let from = self.pieces.len();
        let mut pieces = std::mem::take(&mut self.pieces);
        self.take(batch.items, |_, at, part| {
            if at != UNKNOWN {
                pieces.push(Piece {
                    at,
                    done: None,
                    items: short(part.items),
                    bytes: short(part.bytes),
                });
            }
        });
        self.pieces = pieces;
        let last = self.pieces[from..].last().map(|piece| piece.at);
        let rest = self.waiting.front();
        let is_cut = rest.is_some_and(|w| w.is_reported && w.is_begun && Some(w.at) == last);
        self.tally.splits += u64::from(is_cut);
        // A batch under the id of a running batch replaces it: the controller treats that batch as lost.
        self.running.remove(&id);
        let ran = Ran {
            started: now,
            took_ns: 0,
            cost_ns: 0,
            items: short(batch.items),
            running: short(self.running.len() as u64 + 1),
            turn_ns,
            wake_ns,
        };
        let pieces = (from, self.pieces.len());
        self.running.insert(id, Running { ran, pieces });
    }

    fn end_of(&mut self, now: u64, id: BatchId, cost_ns: u64, ok: bool) {
        // A batch that began before the stretch is unknown.
        let Some(Running { mut ran, pieces }) = self.running.remove(&id) else {
            return;
        };
        for piece in &mut self.pieces[pieces.0..pieces.1] {
            piece.done = Some(now);
        }
        let span = now - ran.started;
        self.tally.instant += u64::from(span == 0 && cost_ns > 0);
        if ok {
            (ran.cost_ns, ran.took_ns) = (cost_ns, span.max(cost_ns));
            self.ran.push(ran);
        } else {
            self.tally.failed += 1;
        }
        if self.running.is_empty() && self.backlog > 0 {
            (self.free_since, self.held) = (Some(now), false);
        }
    }
}

/// Returns whether this answer holds a backlog of `items` items back at `now`.
fn holds(answer: Option<When>, now: u64, items: u64) -> bool {
    match answer {
        None | Some(When::Now) => false,
        Some(When::At(until)) => until.as_nanos() > now,
        Some(When::After {
            items: least,
            until,
        }) => items < least && until.as_nanos() > now,
    }
}

/// Returns `n`, or the largest number that fits.
fn short(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
