//! The reports of a producer to the controller that sets the limit of its buffer: one report for each flush,
//! and none for a single item.

use super::claims::Claims;
use crate::Time;
use crate::boundary::{Boundary, Cut};
use crate::controller::{Bounds, Controller, Load, Reason, Snapshot};

/// The nanoseconds that an item costs its producer besides the item's share of the claim: the push into the
/// buffer, 1.1 ns by docs/benchmarks.md. A flush cannot measure the push, because the measurement costs
/// more than the push. Without this constant, a claim would seem expensive beside the few nanoseconds that
/// copying takes.
const ITEM_NS: u64 = 1;

/// The boundary of a producer with a controller, and the rule by which the producer chooses the flushes that
/// it measures.
pub(super) struct Control {
    boundary: Boundary,
    claims: Claims,
    flushes: u64,
    /// True if the controller tries the size of the next flush as a probe, and the flush before was no probe.
    /// The producer then measures the next flush.
    probes: bool,
    /// The number of slots of the producer's buffer. If the controller's limit is larger, this number is the
    /// limit.
    slots: u64,
    reason: Reason,
    /// The number of items at which the producer flushes its buffer at present.
    pub(super) limit: u64,
}

impl Control {
    pub(super) fn new(controller: Box<dyn Controller>, slots: u64, now: Time) -> Self {
        let boundary = Boundary::new(controller, Bounds::items(1, u64::MAX));
        let mut boundary = boundary.unwrap_or_else(|_| unreachable!("bounds without a limit"));
        let told = boundary.blocking(now);
        debug_assert!(told.is_ok(), "{told:?}");
        Self {
            claims: Claims::default(),
            flushes: 0,
            probes: false,
            slots,
            reason: cut_by(boundary.reason()),
            limit: boundary.limit().items.clamp(1, slots),
            boundary,
        }
    }

    /// Returns the reason for the flush of a producer's buffer that has reached its present limit. The
    /// metrics of the queue count the flush under this reason.
    pub(super) const fn reason(&self) -> Reason {
        self.reason
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }

    /// Returns whether the producer measures its next flush: each of the first 64, then one in 13, and
    /// every probe, since a probe without a measurement is wasted. If a controller calls every batch a
    /// probe, the producer measures only one in 13, too.
    pub(super) const fn samples(&self) -> bool {
        self.flushes < 64 || self.flushes.is_multiple_of(13) || self.probes
    }

    /// Reports the items that left the buffer to the controller, and returns the next limit. The report has
    /// a cost only if the limit cut the flush: the cost of an expensive claim of this size (see
    /// [`Claims`]).
    pub(super) fn told(
        &mut self,
        swept: u64,
        flushed: u64,
        left: u64,
        reason: Reason,
        measured: Option<(Time, Time)>,
    ) -> u64 {
        let now = measured.map_or(Time::ZERO, |(_, end)| end);
        let now = self.boundary.at(now);
        if swept > 0 {
            self.ran(now, swept, flushed + left, Reason::Linger, None);
        }
        if flushed > 0 {
            self.flushes += 1;
            let measured = measured.filter(|_| flushed == self.limit);
            let cost_ns = measured.map(|(start, end)| {
                self.claims.took(flushed, end.since(start)) + ITEM_NS * flushed
            });
            self.ran(now, flushed, left, reason, cost_ns);
        }
        let before = std::mem::replace(&mut self.reason, cut_by(self.boundary.reason()));
        self.probes = self.reason == Reason::Probe && before != Reason::Probe;
        self.limit = self.boundary.limit().items.clamp(1, self.slots);
        self.limit
    }

    fn ran(&mut self, now: Time, items: u64, left: u64, reason: Reason, cost_ns: Option<u64>) {
        let (batch, left, cut) = (Load::items(items), Load::items(left), Cut::Forced(reason));
        let (cost_ns, ok) = (cost_ns.unwrap_or(0), cost_ns.is_some());
        let ran = self.boundary.ran(now, batch, left, cut, cost_ns, ok);
        debug_assert!(ran.is_ok(), "{ran:?}");
    }
}

/// Returns the reason of a batch that reaches the limit. A controller that sees almost no backlog gives the
/// reason `Drained`, under which nothing bounds a batch; this function then returns `Limit`, because the
/// buffer was full.
const fn cut_by(reason: Reason) -> Reason {
    match reason {
        Reason::Drained => Reason::Limit,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{Bounds, Knee, Objective};

    /// A simulated producer for the tests: its flushes take no real time, and the test gives the cost of each
    /// flush.
    struct Producer {
        control: Control,
        now: u64,
        draw: u64,
    }

    impl Producer {
        fn new(slots: u64) -> Self {
            let knee = Knee::new(Objective::Lean, Bounds::items(1, slots)).unwrap();
            Self {
                control: Control::new(Box::new(knee), slots, Time::ZERO),
                now: 0,
                draw: 1,
            }
        }

        /// Returns a number below `n`, from a linear congruential generator.
        fn below(&mut self, n: u64) -> u64 {
            self.draw = self
                .draw
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.draw >> 33) % n
        }

        /// Simulates `flushes` flushes that each reach the limit, in phases of 200 flushes. In `far` of 100
        /// phases the ring's cache lines are far from the producer's core, so that claims are expensive. Each
        /// cost is within a fifth of its mean, and one flush in 2,000 is interrupted for up to a millisecond.
        /// Returns the smallest and the largest limit.
        fn run(&mut self, flushes: u64, far: u64) -> (u64, u64) {
            let (mut least, mut most) = (u64::MAX, 0);
            let mut is_far = false;
            for flush in 0..flushes {
                if flush.is_multiple_of(200) {
                    is_far = self.below(100) < far;
                }
                let n = self.control.limit;
                let mean = if is_far { 200 + n } else { 40 + n * 3 / 10 };
                let mut cost = mean * (80 + self.below(41)) / 100;
                if self.below(2000) == 0 {
                    cost += self.below(1_000_000);
                }
                let start = Time::from_nanos(self.now + n);
                let measured = self.control.samples().then(|| (start, start.after(cost)));
                self.now = start.after(cost).as_nanos();
                self.control.told(0, n, 0, self.control.reason(), measured);
                let limit = self.control.snapshot().limit;
                (least, most) = (least.min(limit), most.max(limit));
            }
            (least, most)
        }
    }

    /// Returns whether two limits are at most one step apart on the grid of 2^e and 1.5 x 2^e.
    const fn within_a_step((least, most): (u64, u64)) -> bool {
        most * 2 <= least * 3
    }

    #[test]
    fn the_limit_stays_while_the_ring_is_near_and_far_by_turns() {
        let mut producer = Producer::new(8192);
        producer.run(200_000, 50);
        let mut seen = (u64::MAX, 0);
        // The percentage of phases with far claims goes from 90 down to 0 and up again. The limit must not
        // follow it.
        for far in [90, 50, 20, 0, 50, 90, 20, 60] {
            let (least, most) = producer.run(100_000, far);
            seen = (seen.0.min(least), seen.1.max(most));
        }
        assert!(within_a_step(seen), "{seen:?}");
        // The limit is the knee of far claims: 16 times their fixed cost of 200 ns, divided by 2 ns for each
        // item.
        assert!((1024..=3072).contains(&seen.0), "{seen:?}");
    }

    #[test]
    fn near_claims_alone_have_a_smaller_limit() {
        let mut producer = Producer::new(8192);
        producer.run(200_000, 0);
        let seen = producer.run(200_000, 0);
        assert!(within_a_step(seen), "{seen:?}");
        // The knee of near claims is 16 times their fixed cost of 40 ns, divided by 1.3 ns for each item: 492
        // items.
        assert!((256..=768).contains(&seen.0), "{seen:?}");
    }

    #[test]
    fn every_probe_is_measured_and_a_flush_that_is_not_full_teaches_nothing() {
        let mut producer = Producer::new(1024);
        producer.run(10_000, 0);
        let learnt = producer.control.snapshot().model;
        for _ in 0..1000 {
            let dear = Some((Time::ZERO, Time::from_nanos(1_000_000)));
            producer.control.told(0, 1, 0, Reason::Blocking, dear);
        }
        assert_eq!(producer.control.snapshot().model, learnt);
        let mut probes = 0;
        for _ in 0..1000 {
            probes += u32::from(producer.control.reason() == Reason::Probe);
            assert!(producer.control.reason() != Reason::Probe || producer.control.samples());
            producer.run(1, 0);
        }
        assert!(probes >= 1000 / 16, "{probes}");
    }

    #[test]
    fn the_events_of_a_producer_replay_bit_for_bit() {
        use crate::controller::{Event, Recorder, replay};
        use std::sync::{Arc, Mutex};

        let knee = || Knee::new(Objective::Lean, Bounds::items(1, 1024)).unwrap();
        let recorder = Arc::new(Mutex::new(Recorder::new(knee(), 100_000)));
        let mut producer = Producer::new(1024);
        producer.control = Control::new(Box::new(Arc::clone(&recorder)), 1024, Time::ZERO);
        producer.run(3000, 30);
        producer.control.told(3, 2, 0, Reason::Blocking, None);
        assert_eq!(producer.control.snapshot().counts.batches(), 3002);
        let recorder = recorder.lock().unwrap();
        let log = recorder.log();
        let started = |e: &Event| matches!(e, Event::Started { .. });
        let batches = log.iter().filter(|e| started(&e.event)).count();
        assert_eq!(batches, 3002, "a flush each, and a sweep");
        replay(&mut knee(), log).unwrap();
    }
}
