//! The longest wait of a flush that blocks no sender: a share of its latency without the wait.
//!
//! The latency of replies is fitted as L = L0 + beta·n over the batch that carried them. The fit leaves out
//! the time that the batch waited, because a delay that is a share of a latency that contains the delay feeds
//! on itself. A wait ends when every known caller is queued, when the batch's own cost reaches the share, or
//! at the share of L0. A gate closes when waits gain no caller; one flush in 64 then keeps probing. See
//! docs/controllers.md.

/// The interval of probes while the gate is closed: one flush in this many waits.
const PROBE: u64 = 64;

#[derive(Clone, Debug)]
pub(super) struct Inflation {
    share: f64,
    in_flight: u64,
    /// The most callers queued and in flight so far, which decays slowly.
    callers: f64,
    /// The share of waits that gained a caller, as a moving average.
    gained: f64,
    flushes: u64,
    /// The sums over replies, with decay: of 1, n, n², L and nL.
    sums: [f64; 5],
    base: f64,
    slope: f64,
    /// The number of items queued at the first look at the present batch.
    first_queued: Option<u64>,
    waited: bool,
}

impl Inflation {
    pub(super) const fn new(share: f64) -> Self {
        Self {
            share,
            in_flight: 0,
            callers: 1.0,
            gained: 1.0,
            flushes: 0,
            sums: [0.0; 5],
            base: 0.0,
            slope: 0.0,
            first_queued: None,
            waited: false,
        }
    }

    /// Returns how long the oldest of `queued` items may wait, in nanoseconds; 0 to flush now.
    pub(super) fn linger(&mut self, queued: u64) -> f64 {
        self.first_queued.get_or_insert(queued);
        let total = queued.saturating_add(self.in_flight) as f64;
        self.callers = self.callers.max(total);
        let everyone = total >= self.callers - 0.5;
        let costly = queued as f64 * self.slope >= self.share * self.base;
        let closed = self.gained < 0.25 && !self.flushes.is_multiple_of(PROBE);
        if everyone || costly || closed {
            0.0
        } else {
            self.share * self.base
        }
    }

    pub(super) const fn held(&mut self) {
        self.waited = true;
    }

    pub(super) fn flushed(&mut self, items: u64) {
        self.flushes += 1;
        self.in_flight = self.in_flight.saturating_add(items);
        if self.callers > items as f64 {
            self.callers -= self.callers / 4096.0;
        }
        if std::mem::take(&mut self.waited) {
            let came = self.first_queued.is_some_and(|q| items > q);
            self.gained += (f64::from(u8::from(came)) - self.gained) / 16.0;
        }
        self.first_queued = None;
    }

    pub(super) fn replied(&mut self, items: u64, batch: u64, took_ns: f64) {
        self.in_flight = self.in_flight.saturating_sub(items);
        let n = batch as f64;
        for s in &mut self.sums {
            *s *= 127.0 / 128.0;
        }
        for (s, v) in self
            .sums
            .iter_mut()
            .zip([1.0, n, n * n, took_ns, n * took_ns])
        {
            *s += v;
        }
        let [s0, s1, s2, t0, t1] = self.sums;
        let d = s0 * s2 - s1 * s1;
        if d > 0.01 * s1 * s1 {
            self.slope = ((s0 * t1 - s1 * t0) / d).max(0.0);
        }
        self.base = ((t0 - self.slope * s1) / s0).max(0.0);
    }
}
