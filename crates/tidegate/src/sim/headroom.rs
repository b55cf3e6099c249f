//! The headroom of a log: the rate of messages at which the 99th percentile of their latency reaches a bound,
//! by the fitted costs of the log's syncs.
//!
//! The model has Poisson arrivals of messages of one size. One sync runs at a time, and a batch of `n` bytes
//! takes `a + b·n`, with lognormal noise. The default controller of a log decides the batches. The latency of
//! a message runs from its arrival to the end of its sync. [`Syncs::p99`] simulates that at one rate, and
//! [`Syncs::headroom`] searches for the rate. Both draw seeded random numbers, so the same call gives the
//! same result.
//!
//! A batch may have millions of messages. The simulation therefore moves *clumps* of successive messages. The
//! gaps between clumps have the distribution of the sum of as many gaps between messages, so the arrivals
//! stay those of a Poisson process, seen at a coarser grain.

use std::collections::VecDeque;
use std::time::Duration;

use super::Rng;
use crate::Time;
use crate::boundary::{Boundary, Cut, Step};
use crate::controller::{Bounds, Knee, Load, Objective};

/// The clumps in a batch of the expected size.
const CLUMPS: f64 = 24.0;
/// The steps in which the rate of messages grows to the wanted one before the simulation measures, and the
/// batches in each step. So the controller learns the costs of small and large batches, as that of a running
/// server has.
const STEPS: i32 = 12;
const STEP_BATCHES: usize = 20;
/// The factor between the rates of two steps.
const STEP: f64 = 1.6;
/// The least batches and latencies that the search measures at a rate. The messages of a batch share the
/// noise of its sync, so noisy syncs need more batches.
const BATCHES: f64 = 400.0;
const BATCHES_OF_NOISE: f64 = 4_000.0;
const BATCHES_MAX: f64 = 2_000.0;
const LATENCIES: usize = 12_000;
/// The clumps that wait in a log that cannot keep up.
const WAITING_MAX: usize = 100_000;
/// The seed of the search.
const SEED: u32 = 20;
/// The largest factor between the two rates, at one of which the bound holds and at the other not, at which
/// the search ends.
const PRECISION: f64 = 1.01;
/// The factor by which the search first goes from rate to rate.
const STRIDE: f64 = 1.4;
/// The lowest rate that the search tries, in messages for the time of a sync of one message: the messages
/// hardly ever meet.
const SPARSE: f64 = 1e-3;

/// The costs of a log's syncs, and the size of the messages: the input of the model in the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Syncs {
    /// The fixed time of a sync (`a`), in nanoseconds.
    pub sync_ns: f64,
    /// The time that each byte adds to a sync (`b`), in nanoseconds.
    pub byte_ns: f64,
    /// The relative noise of the time of one sync, as a standard deviation.
    pub noise: f64,
    /// The bytes that one message adds to the log.
    pub message_bytes: f64,
    /// The most bytes that one sync may cover.
    pub bytes_max: u64,
}

/// The result of [`Syncs::headroom`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Headroom {
    /// The bound holds up to this rate, in messages a second, and breaks above it.
    UpTo(f64),
    /// The bound holds at no rate: at rare messages the 99th percentile is already this many nanoseconds.
    Never(f64),
}

/// Successive messages that arrive as one: all after the clump before, the last at `last`.
#[derive(Clone, Copy)]
struct Clump {
    messages: u64,
    first: f64,
    last: f64,
}

impl Syncs {
    /// Simulates messages at `rate_per_s` a second, and returns the 99th percentile of their latency in
    /// nanoseconds, over at least `batches` batches. Returns infinity if the log cannot keep up with the
    /// rate.
    #[must_use]
    pub fn p99(&self, rate_per_s: f64, batches: usize, seed: u32) -> f64 {
        self.run(rate_per_s, batches, f64::INFINITY, seed)
    }

    /// Searches for the highest rate at which the 99th percentile of the latency is at most `p99_ns`.
    #[must_use]
    pub fn headroom(&self, p99_ns: f64) -> Headroom {
        let batches = (BATCHES + BATCHES_OF_NOISE * self.noise).min(BATCHES_MAX) as usize;
        let holds = |rate: f64| self.run(rate, batches, p99_ns, SEED) <= p99_ns;
        let sparse = SPARSE * 1e9 / self.lone_ns().max(1.0);
        let least = self.p99(sparse, batches, SEED);
        if !p99_ns.is_finite() || least > p99_ns {
            return Headroom::Never(least);
        }
        // In a log that syncs without a pause, a message waits for at most one sync before its own. With
        // batches of equal size both take a/(1 - b·rate), so this rate is near the one searched for.
        let busy = (1.0 - 2.0 * self.sync_ns / p99_ns).max(0.02);
        let item_ns = self.byte_ns * self.message_bytes;
        let near = busy * 1e9 / item_ns.max(f64::MIN_POSITIVE);
        let mut low = near.min(self.rate_max() / STRIDE).max(sparse);
        let mut high = low;
        while low > sparse && !holds(low) {
            (low, high) = ((low / STRIDE).max(sparse), low);
        }
        while high == low {
            match holds(low * STRIDE) {
                true => (low, high) = (low * STRIDE, low * STRIDE),
                false => high = low * STRIDE,
            }
        }
        while high > low * PRECISION {
            let middle = (low * high).sqrt();
            match holds(middle) {
                true => low = middle,
                false => high = middle,
            }
        }
        Headroom::UpTo(low)
    }

    /// Returns the time of a sync of one message, in nanoseconds.
    fn lone_ns(&self) -> f64 {
        self.sync_ns + self.byte_ns * self.message_bytes
    }

    /// Returns the rate at which the log syncs the largest batches without a pause, in messages a second. It
    /// cannot keep up with a higher one.
    fn rate_max(&self) -> f64 {
        let most = self.bytes_max as f64;
        let messages = (most / self.message_bytes).max(1.0);
        messages * 1e9 / (self.sync_ns + self.byte_ns * messages * self.message_bytes)
    }

    /// Simulates like [`Syncs::p99`], and stops early with infinity once messages wait far longer than
    /// `goal`.
    fn run(&self, rate_per_s: f64, batches: usize, goal: f64, seed: u32) -> f64 {
        let Some(mut log) = Log::new(self, rate_per_s, seed) else {
            return f64::INFINITY;
        };
        let hopeless = 20.0 * goal.max(self.lone_ns());
        if rate_per_s > self.rate_max() {
            return f64::INFINITY;
        }
        let mut latencies = Vec::new();
        for step in (0..=STEPS).rev() {
            log.set_rate(rate_per_s / STEP.powi(step));
            for _ in 0..STEP_BATCHES {
                log.sync(&mut latencies);
            }
        }
        latencies.clear();
        let mut batch = 0;
        while batch < batches || latencies.len() < LATENCIES {
            let worst = log.sync(&mut latencies);
            batch += 1;
            if worst > hopeless || log.waiting.len() > WAITING_MAX {
                return f64::INFINITY;
            }
        }
        let at = (0.99 * latencies.len() as f64) as usize;
        *latencies.select_nth_unstable_by(at, f64::total_cmp).1
    }
}

/// The simulated log: its clock, its controller, and the clumps that wait.
struct Log<'a> {
    costs: &'a Syncs,
    boundary: Boundary<Knee>,
    rng: Rng,
    waiting: VecDeque<Clump>,
    /// The messages in the waiting clumps.
    backlog: u64,
    /// The next clump, which has not arrived yet.
    coming: Clump,
    /// The mean gap between two messages, in nanoseconds.
    gap: f64,
    /// The messages in a clump.
    clump: u64,
    now: f64,
}

impl<'a> Log<'a> {
    /// Creates a log at rest. Returns `None` if the costs or the rate are no positive numbers.
    fn new(costs: &'a Syncs, rate_per_s: f64, seed: u32) -> Option<Self> {
        let numbers = [rate_per_s, costs.sync_ns, costs.message_bytes];
        if numbers.iter().any(|n| !n.is_finite() || *n <= 0.0) || costs.bytes_max == 0 {
            return None;
        }
        let bounds = Bounds {
            items_min: 1,
            items_max: u64::MAX,
            bytes_max: costs.bytes_max,
            age_max: Duration::from_secs(1),
            in_flight_max: None,
        };
        // A log has this controller unless its user chooses another.
        let knee = Knee::new(Objective::Lean, bounds).and_then(Knee::in_bytes);
        let boundary = Boundary::new(knee.ok()?.anticipating(), bounds).ok()?;
        let mut log = Self {
            costs,
            boundary,
            rng: Rng::new(seed),
            waiting: VecDeque::new(),
            backlog: 0,
            coming: Clump {
                messages: 1,
                first: 0.0,
                last: 0.0,
            },
            gap: 0.0,
            clump: 1,
            now: 0.0,
        };
        log.set_rate(rate_per_s);
        log.draw();
        Some(log)
    }

    /// Sets the rate of the messages to come, and the number of them that a clump has.
    fn set_rate(&mut self, rate_per_s: f64) {
        let costs = self.costs;
        self.gap = 1e9 / rate_per_s;
        let busy = (costs.byte_ns * costs.message_bytes / self.gap).clamp(0.0, 0.98);
        let batch = (costs.sync_ns / (1.0 - busy) / self.gap)
            .min(costs.bytes_max as f64 / costs.message_bytes);
        self.clump = (batch / CLUMPS).clamp(1.0, 1e12) as u64;
    }

    /// Draws the next clump: its last message comes as many gaps later as it has messages.
    fn draw(&mut self) {
        let before = self.coming.last;
        let gaps = match self.clump {
            n @ 0..=32 => {
                let product: f64 = (0..n).map(|_| 1.0 - self.rng.random()).product();
                -product.ln()
            }
            // The sum of many exponential gaps is close to a normal distribution.
            n => {
                let n = n as f64;
                (n + self.rng.normal(n.sqrt())).max(0.0)
            }
        };
        let last = before + gaps * self.gap;
        // The first message of a clump comes about one gap after the last one of the clump before.
        let first = (before + self.gap).min(last);
        self.coming = Clump {
            messages: self.clump,
            first,
            last,
        };
    }

    fn load(&self, messages: u64) -> Load {
        let bytes = messages as f64 * self.costs.message_bytes;
        Load::new(messages, bytes.ceil() as u64)
    }

    /// Lets the clumps up to the present arrive.
    fn receive(&mut self) {
        while self.coming.last <= self.now {
            self.waiting.push_back(self.coming);
            self.backlog += self.coming.messages;
            let at = self.boundary.at(time(self.coming.last));
            // The boundary refuses only times that go back, which `at` prevents.
            let _ = self.boundary.arrived(at, self.load(self.coming.messages));
            self.draw();
        }
    }

    /// Waits for the next sync, runs it, and adds the latencies of its messages. Returns the longest latency.
    fn sync(&mut self, latencies: &mut Vec<f64>) -> f64 {
        if self.waiting.is_empty() {
            self.now = self.now.max(self.coming.last);
        }
        self.receive();
        let limit = self.wait();
        let (mut taken, mut messages) = (0, 0);
        for clump in &self.waiting {
            let with = messages + clump.messages;
            if taken > 0 && self.load(with).bytes > limit.bytes {
                break;
            }
            (taken, messages) = (taken + 1, with);
        }
        self.backlog -= messages;
        let (batch, left) = (self.load(messages), self.load(self.backlog));
        let cut = match left.items {
            0 => Cut::Drained,
            _ => Cut::Items,
        };
        let started = self.boundary.started(self.time(), batch, left, cut);
        let noise = match self.costs.noise > 0.0 {
            true => self.rng.normal(self.costs.noise).exp(),
            false => 1.0,
        };
        let bytes = messages as f64 * self.costs.message_bytes;
        self.now += (self.costs.sync_ns + self.costs.byte_ns * bytes) * noise;
        // The log learns of the arrivals during a sync before it learns of the end of the sync.
        self.receive();
        if let Ok(id) = started {
            let _ = self.boundary.done(self.time(), id, true);
        }
        let mut worst = 0.0_f64;
        for clump in self.waiting.drain(..taken) {
            worst = worst.max(self.now - clump.first);
            match clump.messages {
                1 => latencies.push(self.now - clump.last),
                _ => {
                    let middle = (clump.first + clump.last) / 2.0;
                    latencies.extend([clump.first, middle, clump.last].map(|t| self.now - t));
                }
            }
        }
        worst
    }

    /// Waits as long as the controller holds the waiting messages back. Returns the limit of the next batch.
    fn wait(&mut self) -> Load {
        loop {
            let oldest = self.waiting.front().map_or(self.now, |c| c.last);
            let backlog = self.load(self.backlog);
            let now = self.time();
            match self.boundary.poll(now, backlog, time(oldest).min(now)) {
                Ok(Step::Hold { until, .. }) => {
                    let until = (until.as_nanos() as f64).max(self.now + 1.0);
                    self.now = until.min(self.coming.last.max(self.now));
                    self.receive();
                }
                Ok(Step::Take(limit)) => return limit,
                _ => return self.boundary.limit(),
            }
        }
    }

    fn time(&self) -> Time {
        self.boundary.at(time(self.now))
    }
}

fn time(ns: f64) -> Time {
    Time::from_nanos(ns.round() as u64)
}

#[cfg(test)]
mod tests;
