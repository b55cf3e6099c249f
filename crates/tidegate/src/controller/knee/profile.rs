//! Anticipation: expects callers to return after a completion, and decides whether a wait for them pays.
//!
//! In a closed loop completions cause arrivals. The profile divides the time `a` after a completion, the cost
//! of a flush, into 16 intervals, and keeps a moving average of the arrivals in each interval. It sees
//! arrivals with or without a wait, so it needs no probes. A wait of d is worth the arrivals expected in d,
//! each of which saves a flush of `a`, less the time that the queue spends waiting. A lone caller never
//! waits, because the profile never expects another caller. The method is anticipatory disk scheduling (Iyer
//! and Druschel, SOSP 2001) for batches; see docs/controllers.md.

const SLOTS: usize = 16;
/// The number of completed batches after which the controller relies on the profile of arrivals.
const LEARN: u64 = 4;
/// The least gain of a wait at which the controller waits: this share of the cost `a` of a flush, for each
/// waiting item.
const WORTH: f64 = 0.02;

/// A histogram of the arrivals after the completion of a flush, averaged over many completions. Each of its
/// intervals counts the arrivals within a sixteenth of `a`, the cost of a flush.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    mean: [f64; SLOTS],
    current: [f64; SLOTS],
    completions: u64,
    /// The sum of `mean`, apart from rounding: no wait can bring more arrivals than this number.
    total: f64,
    /// The sum of `current`: the arrivals since the last completion, which are no longer expected.
    came: f64,
    /// True once an item has arrived. Until then all intervals are zero, and a completion need not average
    /// them.
    any: bool,
}

/// The least mean that an interval keeps. A smaller mean becomes zero: it would affect no decision, and would
/// decay into denormal numbers, which make arithmetic a hundred times slower.
const MEAN_MIN: f64 = 1e-30;
/// The number of completions between two passes that set small means to zero. A mean takes far more
/// completions to decay from [`MEAN_MIN`] to a denormal number.
const TIDY: u64 = 256;

impl Profile {
    /// Records `items` items that arrived `dt` nanoseconds after the last completion, where a flush costs `a`
    /// nanoseconds.
    pub(super) fn arrived(&mut self, dt: f64, a: f64, items: u64) {
        if let Some(slot) = self.current.get_mut(slot_of(dt, a)) {
            *slot += items as f64;
            self.came += items as f64;
            self.any = true;
        }
    }

    /// Records that a batch is complete: the arrivals since the previous completion join the average.
    pub(super) fn completed(&mut self) {
        self.completions += 1;
        if !self.any {
            return;
        }
        let gain = match self.completions {
            few @ ..32 => 1.0 / few as f64,
            _ => 1.0 / 32.0,
        };
        for (m, c) in self.mean.iter_mut().zip(&mut self.current) {
            *m += (*c - *m) * gain;
            *c = 0.0;
        }
        self.total += (std::mem::take(&mut self.came) - self.total) * gain;
        if self.completions.is_multiple_of(TIDY) {
            self.tidy();
        }
    }

    #[cold]
    fn tidy(&mut self) {
        for m in &mut self.mean {
            if *m < MEAN_MIN {
                *m = 0.0;
            }
        }
    }

    /// Returns how much longer to wait, in nanoseconds, `dt` nanoseconds after the last completion with
    /// `queued` items waiting; 0 if a wait does not pay.
    pub(super) fn wait(&self, dt: f64, a: f64, queued: u64) -> f64 {
        let least = WORTH * (queued as f64).max(1.0);
        // The queue flushes at once if all expected arrivals together, even at once, would not be worth a
        // wait. The margin covers rounding.
        if self.completions < LEARN || self.total < least * 0.99 {
            return 0.0;
        }
        let first = slot_of(dt, a);
        if first >= SLOTS {
            return 0.0;
        }
        let width = a / SLOTS as f64;
        // Arrivals that came early are arrivals that the profile no longer expects.
        let due: f64 = self.mean[..first].iter().sum::<f64>()
            + self.mean[first] * (dt - width * first as f64) / width;
        let came: f64 = self.current[..=first].iter().sum();
        let mut surplus = (came - due).max(0.0);
        let (mut gain, mut waiting) = (0.0, queued as f64);
        let (mut best, mut best_wait) = (0.0, 0.0);
        for j in first..SLOTS {
            let end = width * (j + 1) as f64;
            let d = end - dt.max(width * j as f64);
            let mut expected = self.mean[j] * d / width;
            let early = surplus.min(expected);
            expected -= early;
            surplus -= early;
            gain += expected * a - (waiting + expected / 2.0) * d;
            waiting += expected;
            if gain > best + 1e-9 * a {
                (best, best_wait) = (gain, end - dt);
            }
        }
        if best > WORTH * a * (queued as f64).max(1.0) {
            best_wait
        } else {
            0.0
        }
    }
}

/// A gate that closes where waits turn out not to pay. The profile knows the times of arrivals, but not
/// whether the callers are new. For example, a caller that returns before the driver reports its batch as
/// done looks like one more caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    /// The gain of a wait for each item of its batch, in costs of a flush, as a moving average. If it is too
    /// low, the gate closes.
    worth: f64,
    batches: u64,
    /// The wait in progress: its start in nanoseconds, and the number of items that waited then. `None` while
    /// no batch is held back.
    held: Option<(u64, u64)>,
}

/// If waits gain less than this share of a flush on average, for each item of their batch, the gate closes.
const GAIN: f64 = 0.03;
/// The CPU time of a wait, in nanoseconds: a few turns of a runtime's scheduler, or a sleep and a wake-up.
const WAIT_CPU_NS: f64 = 10_000.0;
/// The interval of probes while the gate is closed: one batch in this many may still wait, to measure the
/// gain.
const PROBE: u64 = 64;

impl Gate {
    pub(super) const fn new() -> Self {
        Self {
            worth: 0.5,
            batches: 0,
            held: None,
        }
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.held.is_none() && self.worth < GAIN && !self.batches.is_multiple_of(PROBE)
    }

    pub(super) fn held(&mut self, now_ns: u64, queued: u64) {
        self.held.get_or_insert((now_ns, queued));
    }

    /// Records the start of a batch. If the batch was held back, compares the saving (`flush` for each item
    /// that joined) with the time that the waiting items lost and the CPU time of the wait. Either side
    /// counts for at most a flush an item, so that a hiccup of a timer or of the machine is no more than one
    /// bad wait.
    pub(super) fn started(&mut self, now_ns: u64, items: u64, flush: f64) {
        self.batches += 1;
        if let Some((since, queued)) = self.held.take() {
            let flush = flush.max(1.0);
            let lost = now_ns.saturating_sub(since) as f64 * queued as f64 + WAIT_CPU_NS;
            let saved = items.saturating_sub(queued) as f64 * flush;
            let worth = (saved - lost) / (flush * items.max(1) as f64);
            self.worth += (worth.clamp(-1.0, 1.0) - self.worth) / 16.0;
        }
    }
}

/// Returns the interval of the profile for a time `dt` after a completion; [`SLOTS`] or more if `dt` is
/// beyond all intervals.
fn slot_of(dt: f64, a: f64) -> usize {
    // The cast to 32 bits takes fewer instructions, and larger values are beyond the profile.
    (dt / a * SLOTS as f64) as u32 as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_regular_callers_and_not_for_those_that_are_back() {
        let mut p = Profile::default();
        for _ in 0..8 {
            p.arrived(0.1, 1.0, 7);
            p.completed();
        }
        let wait = p.wait(0.0, 1.0, 1);
        assert!(
            (wait - 0.125).abs() < 1e-9,
            "until the end of the slot they come in: {wait}"
        );
        p.arrived(0.01, 1.0, 7);
        assert_eq!(p.wait(0.02, 1.0, 8), 0.0, "all seven came early");
        assert_eq!(p.wait(1.5, 1.0, 1), 0.0, "past the profile");
    }

    #[test]
    fn a_mean_that_decays_becomes_zero_and_no_denormal_number() {
        let mut p = Profile::default();
        p.arrived(0.5, 1.0, 1);
        for _ in 0..100_000 {
            p.arrived(0.1, 1.0, 1);
            p.completed();
            assert!(p.mean.iter().all(|m| *m == 0.0 || m.is_normal()));
        }
        assert_eq!(p.mean.iter().filter(|m| **m > 0.0).count(), 1);
    }

    #[test]
    fn a_profile_that_is_not_worth_a_look_holds_no_wait() {
        let (mut waits, mut skipped) = (0, 0);
        for seed in 1..4_000_u64 {
            let of = |salt: u64, most: u64| ((seed.wrapping_mul(salt) >> 20) & 0xffff_ffff) % most;
            let mut p = Profile::default();
            for i in 0..4 + of(0x9e37_79b9_7f4a, 60) {
                if of(0x85eb_ca6b_0f35 + 2 * i, 1 << (seed % 5)) == 0 {
                    let dt = of(0xc2b2_ae35_66d1 + 4 * i, 1200) as f64 / 1000.0;
                    p.arrived(dt, 1.0, 1 + of(0x27d4_eb2f_1656 + 6 * i, 3));
                }
                p.completed();
            }
            let whole = Profile {
                total: f64::INFINITY,
                ..p.clone()
            };
            for queued in [0, 1, 5, 20, 80, 400] {
                let wait = p.wait(0.01, 1.0, queued);
                assert_eq!(wait, whole.wait(0.01, 1.0, queued), "{p:?}");
                waits += u32::from(wait > 0.0);
                skipped += u32::from(p.total < WORTH * queued as f64);
            }
        }
        assert!(waits > 100 && skipped > 100, "{waits} {skipped}");
    }

    #[test]
    fn one_hiccup_does_not_outweigh_a_few_gains() {
        let mut gate = Gate::new();
        for _ in 0..8 {
            gate.held(0, 8);
            gate.started(100, 16, 1000.0);
        }
        gate.held(0, 15);
        gate.started(1_000_000_000, 15, 1000.0);
        assert!(!gate.is_closed());
    }

    #[test]
    fn a_wait_that_costs_more_cpu_than_it_saves_does_not_pay() {
        let worth = |flush| {
            let mut gate = Gate::new();
            for _ in 1..PROBE {
                gate.held(0, 1);
                gate.started(100, 2, flush);
            }
            !gate.is_closed()
        };
        assert!(!worth(5_000.0), "half the CPU of the wait");
        assert!(worth(50_000.0));
    }

    #[test]
    fn a_lone_caller_never_waits() {
        let mut p = Profile::default();
        for _ in 0..50 {
            p.arrived(0.1, 1.0, 1);
            assert_eq!(p.wait(0.1, 1.0, 1), 0.0);
            p.completed();
        }
    }
}
