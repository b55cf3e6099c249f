//! The flush delay that a Redis client computed from statistics of its earlier flushes.
//!
//! Source: redis/rueidis, pull 159 (never merged). Over the last 16 flushes, delay = wait·flush / (wait +
//! work). Here `flush` is the mean duration of a flush, `work` is the duration of the flushes per byte, and
//! `wait` is the duration of the gaps before them per byte. The delay never exceeds the user's maximum, and a
//! lone caller has no delay. The rule sees neither round trips nor the gain of the delay.

use super::{Controller, Decision, Event, Load, Reason, Snapshot, When};
use crate::{Time, nanos};

const WINDOW: usize = 16;

/// Delays each flush by a time computed from the statistics of the last 16 flushes. The flush starts at most
/// `max_delay` after the start of the previous flush.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Time;
/// use tidegate::controller::{Controller, Event, Load, RueidisStats, When};
///
/// let mut rule = RueidisStats::new(Duration::from_micros(100));
/// assert_eq!(rule.delay_ns(), 100_000); // before the first flush
/// let oldest = Time::from_nanos(1_000_000);
/// let lone = rule.on(oldest, Event::Ready { backlog: Load::items(1), oldest });
/// assert_eq!(lone.when, When::Now);
/// ```
#[derive(Clone, Debug)]
pub struct RueidisStats {
    max_delay_ns: u64,
    flushes: [Flush; WINDOW],
    seen: usize,
    begun: Option<Time>,
    ended: Option<Time>,
    open: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flush {
    bytes: u64,
    took_ns: u64,
    gap_ns: u64,
}

impl RueidisStats {
    /// Creates the rule, which never delays a flush by more than `max_delay`.
    #[must_use]
    pub fn new(max_delay: std::time::Duration) -> Self {
        Self {
            max_delay_ns: nanos(max_delay),
            flushes: [Flush::default(); WINDOW],
            seen: 0,
            begun: None,
            ended: None,
            open: None,
        }
    }

    /// Returns the delay in force, in nanoseconds: the whole of `max_delay` before the first measured flush.
    #[must_use]
    pub fn delay_ns(&self) -> u64 {
        let n = self.seen.min(WINDOW) as u64;
        if n == 0 {
            return self.max_delay_ns;
        }
        let mut sum = Flush::default();
        for f in &self.flushes[..n as usize] {
            sum.bytes = sum.bytes.saturating_add(f.bytes);
            sum.took_ns = sum.took_ns.saturating_add(f.took_ns);
            sum.gap_ns = sum.gap_ns.saturating_add(f.gap_ns);
        }
        let (work, wait) = (sum.took_ns as f64, sum.gap_ns as f64);
        if work + wait <= 0.0 {
            return 0;
        }
        let mean = work / n as f64;
        self.max_delay_ns.min((wait * mean / (wait + work)) as u64)
    }

    fn ready(&self, now: Time, backlog: Load) -> Decision {
        let lone = backlog.items <= 1;
        let due = self.begun.map_or(Time::ZERO, |t| t.after(self.delay_ns()));
        if lone || now >= due {
            return Decision::now(u64::MAX, Reason::Drained);
        }
        Decision {
            when: When::At(due),
            ..Decision::now(u64::MAX, Reason::Linger)
        }
    }
}

impl Controller for RueidisStats {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        match event {
            Event::Ready { backlog, .. } => return self.ready(now, backlog),
            Event::Started { batch, .. } => {
                let gap = self.ended.map_or(0, |t| now.since(t));
                self.open = Some((batch.bytes.max(batch.items), gap));
                self.begun = Some(now);
            }
            Event::Done {
                cost_ns, ok: true, ..
            } => {
                if let Some((bytes, gap_ns)) = self.open.take() {
                    self.flushes[self.seen % WINDOW] = Flush {
                        bytes,
                        took_ns: cost_ns,
                        gap_ns,
                    };
                    self.seen += 1;
                }
                self.ended = Some(now);
            }
            _ => {}
        }
        Decision::now(u64::MAX, Reason::Limit)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            limit: u64::MAX,
            binding: Some(Reason::Linger),
            ..Snapshot::default()
        }
    }

    /// Returns false: the rule learns from batches only, so the driver need not report arrivals.
    fn wants_arrivals(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::BatchId;

    #[test]
    fn a_lone_caller_never_waits_and_a_delay_stays_below_the_flush_time() {
        let mut c = RueidisStats::new(std::time::Duration::from_micros(100));
        let mut now = Time::ZERO;
        for _ in 0..40 {
            now = now.after(30_000);
            let oldest = now;
            let one = c.on(
                now,
                Event::Ready {
                    backlog: Load::items(1),
                    oldest,
                },
            );
            assert_eq!(one.when, When::Now);
            c.on(
                now,
                Event::Started {
                    id: BatchId::default(),
                    batch: Load::new(2, 128),
                    left: Load::default(),
                    reason: Reason::Drained,
                },
            );
            now = now.after(10_000);
            c.on(
                now,
                Event::Done {
                    id: BatchId::default(),
                    cost_ns: 10_000,
                    ok: true,
                },
            );
        }
        // With gaps of 30 us and flushes of 10 us the delay is 30 * 10 / 40 = 7.5 us. The first gap was
        // unknown and is no longer among the last 16 flushes.
        assert_eq!(c.delay_ns(), 7_500);
        let d = c.on(
            now,
            Event::Ready {
                backlog: Load::items(2),
                oldest: now,
            },
        );
        assert_eq!(
            d.when,
            When::Now,
            "10 us have passed since the last flush began"
        );
    }
}
