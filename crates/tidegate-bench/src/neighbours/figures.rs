//! The figures of one neighbour: its latencies and failures before, during and after the attack. Pure.
//!
//! An operation belongs to the phase in which it was due, however late its answer is. A failed operation
//! counts with the time that its client waited, so that a refusal does not look like a fast answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::latency::{histogram, quantile_us};

/// The figures of all neighbours by the neighbours' names, as their process returns them.
pub(super) type Report = BTreeMap<String, ByPhase>;

/// The phase of a run: before, during or after the attack. The report compares a neighbour's figures by
/// phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Before,
    During,
    After,
}

/// The times at which the phases start and the last phase ends, in nanoseconds of the clients' clock. One
/// thread sets the times, the other threads read them.
#[derive(Debug)]
pub(super) struct Starts([AtomicU64; 4]);

impl Starts {
    /// Creates the starts of the phases, all of them in the future: the clients warm up until the first
    /// start.
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(u64::MAX)))
    }

    /// Sets the start of the next phase to `now`. If the last phase has begun, sets the end of that phase.
    pub(super) fn advance(&self, now: u64) {
        let ahead = |at: &&AtomicU64| at.load(Ordering::Relaxed) == u64::MAX;
        if let Some(next) = self.0.iter().find(ahead) {
            next.store(now, Ordering::Relaxed);
        }
    }

    /// Returns the phase in which the time `at` lies; `None` in the warm-up and after the end.
    pub(super) fn phase(&self, at: u64) -> Option<Phase> {
        let passed = self.0.iter().filter(|s| s.load(Ordering::Relaxed) <= at);
        match passed.count() {
            1 => Some(Phase::Before),
            2 => Some(Phase::During),
            3 => Some(Phase::After),
            _ => None,
        }
    }

    /// Returns whether the last phase, after the attack, has ended, so that the neighbours stop.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.0[3].load(Ordering::Relaxed) <= now
    }
}

/// Collects the latencies and failures of one neighbour, by phase, while the neighbour runs.
#[derive(Debug)]
pub(super) struct Recorder([Tally; 3]);

#[derive(Debug)]
struct Tally {
    latencies: Histogram<u64>,
    failures: u64,
    said: Option<String>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        let tally = |_| Tally {
            latencies: histogram(),
            failures: 0,
            said: None,
        };
        Self(std::array::from_fn(tally))
    }

    /// Records an operation that took `waited` nanoseconds. `failure` is the reason if the operation failed.
    pub(super) fn record(&mut self, phase: Option<Phase>, waited: u64, failure: Option<&str>) {
        let Some(phase) = phase else { return };
        let tally = &mut self.0[phase as usize];
        // The histogram grows with its values, so `record` does not fail.
        let _ = tally.latencies.record(waited);
        if let Some(failure) = failure {
            tally.failures += 1;
            tally.said.get_or_insert_with(|| failure.to_owned());
        }
    }

    /// Returns the neighbour's figures so far, by phase.
    pub(super) fn figures(&self) -> ByPhase {
        let [before, during, after] = &self.0;
        ByPhase {
            before: before.figures(),
            during: during.figures(),
            after: after.figures(),
        }
    }
}

impl Tally {
    fn figures(&self) -> Figures {
        let all = &self.latencies;
        let quantile = |q| (!all.is_empty()).then(|| quantile_us(all, q));
        Figures {
            count: all.len(),
            failures: self.failures,
            said: self.said.clone(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            worst_us: quantile(1.0),
        }
    }
}

/// The figures of one neighbour, by phase, so that the report shows the effect of the attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ByPhase {
    pub(super) before: Figures,
    pub(super) during: Figures,
    pub(super) after: Figures,
}

/// The figures of one neighbour in one phase. If no operation was due in the phase, it has no quantiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The number of operations that were due in the phase, with the failed ones.
    pub(super) count: u64,
    pub(super) failures: u64,
    /// The reason why the first of the failed operations failed.
    pub(super) said: Option<String>,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
    pub(super) worst_us: Option<f64>,
}

impl Figures {
    /// Returns the microseconds by which the neighbour's p99.9 and its worst latency exceed those of its
    /// floor, the bare write or the bare echo, because the floor is not the server's fault.
    pub(super) fn excess_us(&self, floor: &Self) -> (Option<f64>, Option<f64>) {
        let above = |own: Option<f64>, floor: Option<f64>| Some(own? - floor?);
        (
            above(self.p999_us, floor.p999_us),
            above(self.worst_us, floor.worst_us),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_belongs_to_the_phase_in_which_it_was_due() {
        let starts = Starts::new();
        assert_eq!(starts.phase(5), None);
        for at in [10, 20, 30, 40] {
            starts.advance(at);
        }
        let phases = [9, 10, 29, 30, 40].map(|at| starts.phase(at));
        use Phase::{After, Before, During};
        assert_eq!(
            phases,
            [None, Some(Before), Some(During), Some(After), None]
        );
        assert!(!starts.is_over(39) && starts.is_over(40));
    }

    #[test]
    fn quantiles_include_failures() {
        let mut recorder = Recorder::new();
        for n in 1..=998 {
            recorder.record(Some(Phase::During), n * 1000, None);
        }
        recorder.record(Some(Phase::During), 5_000_000, Some("closed"));
        recorder.record(Some(Phase::During), 7_000_000, Some("refused"));
        recorder.record(None, 9_000_000_000, Some("warm-up"));
        let all = recorder.figures();
        let during = &all.during;
        assert_eq!((during.count, during.failures), (1000, 2));
        assert_eq!(during.said.as_deref(), Some("closed"));
        let near = |value: Option<f64>, wanted: f64| {
            let value = value.unwrap();
            assert!((value / wanted - 1.0).abs() < 0.002, "{value} {wanted}");
        };
        near(during.p50_us, 500.0);
        near(during.p99_us, 990.0);
        near(during.p999_us, 5000.0);
        near(during.worst_us, 7000.0);
        assert_eq!(all.before, Figures::default());
    }

    #[test]
    fn the_excess_is_the_difference_to_the_floor() {
        let of = |p999_us, worst_us| Figures {
            p999_us,
            worst_us,
            ..Figures::default()
        };
        let floor = of(Some(100.0), Some(300.0));
        assert_eq!(
            of(Some(150.0), Some(250.0)).excess_us(&floor),
            (Some(50.0), Some(-50.0))
        );
        assert_eq!(of(None, Some(1.0)).excess_us(&floor).0, None);
    }
}
