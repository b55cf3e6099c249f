//! Computes the longest wait of a flush for [`Objective::Inflation`](super::Objective::Inflation), where the
//! flush blocks no sender: a share of the latency that its replies have without the wait.
//!
//! The latency of replies is fitted as L = L0 + beta·n over the size n of the batch that carried the items.
//! The fit leaves out the time that the batch waited, because a delay that is a share of a latency that
//! contains the delay feeds on itself. A wait ends when every known caller is queued, when beta·n of the
//! batch reaches the share of L0, or when the wait has lasted for the share of L0. A gate closes when waits
//! gain no caller; then one flush in 64 still waits, to find out whether waits gain callers again. See
//! docs/controllers.md.

/// While the gate is closed because waits gain no caller, one flush in this many still waits, to find out
/// whether waits gain callers again.
const PROBE: u64 = 64;

#[derive(Clone, Debug)]
pub(super) struct Inflation {
    share: f64,
    in_flight: u64,
    /// The greatest number of callers that were queued and in flight together. The number decays slowly. A
    /// flush does not wait while all of them are queued or in flight.
    callers: f64,
    /// The share of waits during which a further caller came, as a moving average. If it is low, the gate
    /// closes.
    gained: f64,
    flushes: u64,
    /// The decayed sums over replies of 1, n, n², L and n·L, from which the latency L of a reply to a batch
    /// of n is fitted.
    sums: [f64; 5],
    base: f64,
    slope: f64,
    /// The number of queued items when the controller first decided on the next batch. A larger batch shows
    /// that a wait gained callers.
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

    /// Returns how long the oldest of `queued` items may wait for company, in nanoseconds; 0 to flush now.
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
