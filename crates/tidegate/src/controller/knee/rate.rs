//! Estimates the arrival rate of items, and computes the best size of the parts into which the controller
//! cuts a backlog.

/// The arrival rate of items: the ratio of two sums, arrivals and time, which decay by 7/8 with each batch. A
/// second, slow pair of sums decays by 63/64, so that a short gap does not hide a high rate.
///
/// The driver reports arrivals, or the controller infers them from the growth of the backlog between two
/// looks at the backlog. The rate never counts an arrival twice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// The length of the backlog at the last look, plus the arrivals reported since, in items. The rate has
    /// counted all of these; only items above this number are further arrivals.
    seen: u64,
    /// The number of arrivals reported since the last look, which the decayed sums do not contain yet.
    items: f64,
    /// The time, in nanoseconds, up to which the decayed sums reach. The next look adds the time since.
    looked: Option<u64>,
    fast: Decayed,
    slow: Decayed,
    /// The higher of the fast and the slow rate, in arrivals a nanosecond: the rate that decisions use.
    per_ns: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Decayed {
    items: f64,
    ns: f64,
}

impl Decayed {
    fn fold(&mut self, keep: f64, items: f64, ns: f64) {
        self.items = self.items * keep + items;
        self.ns = self.ns * keep + ns;
    }

    fn per_ns(&self) -> f64 {
        if self.ns > 0.0 {
            self.items / self.ns
        } else {
            0.0
        }
    }
}

impl Rate {
    pub(super) fn arrived(&mut self, items: u64) {
        self.items += items as f64;
        self.seen = self.seen.saturating_add(items);
    }

    /// Records that the backlog is `backlog` at `now_ns`, to infer the arrivals since the last look. `first`
    /// marks the first look since the last batch.
    pub(super) fn look(&mut self, now_ns: u64, backlog: u64, first: bool) {
        self.items += backlog.saturating_sub(self.seen) as f64;
        self.seen = backlog;
        if !first {
            return;
        }
        let items = std::mem::take(&mut self.items);
        if let Some(before) = self.looked
            && now_ns > before
        {
            let ns = (now_ns - before) as f64;
            self.fast.fold(0.875, items, ns);
            self.slow.fold(0.984_375, items, ns);
            let rate = || self.fast.per_ns().max(self.slow.per_ns());
            self.per_ns = (self.fast.ns > 0.0).then(rate);
        }
        self.looked = Some(now_ns);
    }

    pub(super) const fn left(&mut self, backlog: u64) {
        self.seen = backlog;
    }

    /// Returns the arrival rate over the last few batches, in items a nanosecond; `None` before the driver
    /// took two batches.
    pub(super) const fn per_ns(&self) -> Option<f64> {
        self.per_ns
    }
}

/// Returns the part size that makes the mean latency least while batches drain a backlog of `backlog` at cost
/// a + b·n and `rate` items arrive a nanosecond (fluid limit). With rate 0 it is sqrt(backlog · a / b).
pub(super) fn drain_chunk(a: f64, b: f64, rate: f64, backlog: f64) -> f64 {
    // The bound on the rate matters only close to the server's capacity, so lower rates do without the
    // division.
    let rate = if rate * b < 0.94 {
        rate
    } else {
        rate.min(0.95 / b)
    };
    let spare = b * (1.0 - rate * b);
    let r = rate * a * b;
    (r + (r * r + spare * a * (rate * a + backlog)).sqrt()) / spare
}

/// Learns whether cutting a backlog into parts works at this boundary. A part is worth its cost only if no
/// backlog is left after the last part.
///
/// Cutting does not work where callers return as soon as their part is done, or where batches cost something
/// else than the fit predicts. Each failure doubles the number of backlogs taken in one go before the next
/// attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drain {
    /// The size of the backlog in progress when its first part was taken, to see whether parts take it down;
    /// 0 without a backlog.
    whole: u64,
    /// The number of items (or bytes) that parts have taken so far out of the backlog in progress.
    taken: u64,
    parts: u32,
    /// The number of backlogs that the controller takes in one go after the next failure of cutting, before
    /// it cuts again.
    skips: u32,
    /// The number of backlogs still to take in one go, after a failure, before the controller cuts a backlog
    /// again.
    left: u32,
}

/// The greatest number of backlogs that the controller takes in one go between two attempts to cut a backlog,
/// so that it notices if cutting works again.
const SKIPS_MAX: u32 = 256;

impl Drain {
    /// Returns whether the controller may cut a backlog into parts now, that is, whether no failure is
    /// recent.
    pub(super) const fn may_cut(&self) -> bool {
        self.left == 0
    }

    /// Records a batch of `n` items out of `backlog`, taken as a part if `is_part`; `could` says whether the
    /// backlog could be cut.
    pub(super) fn started(&mut self, n: u64, backlog: u64, is_part: bool, could: bool) {
        if self.left > 0 {
            self.left -= u32::from(could);
            return;
        }
        if self.whole == 0 {
            if !is_part {
                return;
            }
            (self.whole, self.taken, self.parts) = (backlog, 0, 0);
        }
        self.taken = self.taken.saturating_add(n);
        self.parts += 1;
        let left = backlog - n.min(backlog);
        if left == 0 {
            self.whole = 0;
            self.skips /= 2;
        } else if self.taken >= self.whole
            || self.parts > 1 && left > self.whole.saturating_sub(self.taken / 2)
        {
            // The attempt failed: the parts have taken as many items as the whole backlog had and some are
            // left, or arrivals fill the backlog up at half the rate at which parts take from it.
            self.whole = 0;
            self.skips = (self.skips * 2).clamp(1, SKIPS_MAX);
            self.left = self.skips;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_arrivals_the_chunk_is_the_square_root_law() {
        let n = drain_chunk(3e6, 11_718.75, 0.0, 10_000.0);
        assert!((n - 1600.0).abs() < 1e-6, "{n}");
    }

    #[test]
    fn a_backlog_that_fills_up_again_is_soon_taken_in_one_go() {
        let mut drain = Drain::default();
        let mut parts = 0;
        for _ in 0..1000 {
            let is_part = drain.may_cut();
            parts += u32::from(is_part);
            let n = if is_part { 50 } else { 100 };
            // As many callers return as received answers, so parts never take the backlog down.
            drain.started(n, 100, is_part, true);
        }
        assert!(parts < 40, "{parts} of 1000 batches were parts");
    }

    #[test]
    fn a_backlog_that_goes_is_cut_every_time() {
        let mut drain = Drain::default();
        for _ in 0..100 {
            for left in [4, 3, 2, 1] {
                assert!(drain.may_cut());
                drain.started(25, left * 25, left > 1, left > 1);
            }
        }
    }

    #[test]
    fn arrivals_are_counted_once_whether_told_or_seen() {
        let mut told = Rate::default();
        let mut seen = Rate::default();
        for t in 0..10u64 {
            told.arrived(100);
            for r in [&mut told, &mut seen] {
                r.look(t * 1000, 100, true);
                r.look(t * 1000 + 1, 100, false);
                r.left(0);
            }
        }
        assert_eq!(told.per_ns(), Some(0.1));
        assert_eq!(seen.per_ns(), Some(0.1));
    }
}
