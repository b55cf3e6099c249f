//! Whether not sleeping pays, found by trying: a slow bandit with two arms.
//!
//! Pure. On some machines and at some numbers of callers a client that looks for replies without sleeping answers half as many
//! commands again; on others (Redis woken on our core, callers on several threads, no core to spare) fewer. No model
//! tells which. So the other arm is tried for a few short spells now and then, in turn with the one in use so that what changes meanwhile
//! touches both, and what was answered in the spells of each is compared. Sleeping costs less, so where both come out alike it is
//! used. The pulse says where looking may be tried at all; the driver does either.

use tidegate::Time;

/// The least time a spell takes; it takes some round trips, too.
const SPELL_NS: u64 = 1_000_000;
const ROUND_TRIPS: f64 = 16.0;
/// What a change of arms disturbs is not counted: this part of a spell.
const SETTLE: u64 = 4;
/// Spells of a trial: the other arm and the one in use in turn.
const SPELLS: u32 = 6;
/// Trials are this many spells apart, and twice as many after each that confirms the arm in use, up to this many.
const APART: u32 = 32;
const APART_MAX: u32 = 512;
/// Looking must answer this many times as many commands to be taken up, and to be kept.
const TAKE_UP: f64 = 1.05;
const KEEP: f64 = 1.02;
/// Fewer answers in the spells of an arm say nothing.
const ANSWERS_MIN: u64 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// The arm in use: looking for replies, or sleeping.
    looks: bool,
    /// Spells left of the trial under way; 0: none is.
    left: u32,
    /// Spells until the next trial.
    rest: u32,
    apart: u32,
    /// The spell under way began then, and counts from then.
    began: Time,
    counts_from: Time,
    answered: u64,
    /// Answers and time of the trial under way: of the arm in use, of the other.
    arms: [Arm; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    answered: u64,
    took_ns: u64,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            looks: true,
            left: 0,
            rest: 2,
            apart: APART,
            began: Time::ZERO,
            counts_from: Time::ZERO,
            answered: 0,
            arms: [Arm::default(); 2],
        }
    }
}

impl Trial {
    /// Whether to look now.
    pub(crate) const fn looks(&self) -> bool {
        self.looks != self.is_other()
    }

    /// Looking found nothing: there is nothing to compare. It is tried again in its time.
    pub(crate) const fn sleep(&mut self) {
        (self.looks, self.left, self.rest) = (false, 0, self.apart);
    }

    /// So many commands were answered, at this round trip. `eligible`: looking is possible, and the load waits for replies.
    pub(crate) fn answered(&mut self, now: Time, commands: u64, rtt_ns: f64, eligible: bool) {
        if !eligible {
            // What was counted so far is not comparable to what comes.
            (self.left, self.rest) = (0, self.rest.max(1));
            self.begin(now);
            return;
        }
        if now >= self.counts_from {
            self.answered += commands;
        }
        let spell = SPELL_NS.max((ROUND_TRIPS * rtt_ns) as u64);
        let took_ns = now.since(self.began);
        if took_ns < spell {
            return;
        }
        // Nothing was answered for long: an idle time, not a slow arm.
        if took_ns > 4 * spell {
            self.begin(now);
            return;
        }
        if self.left > 0 {
            let arm = &mut self.arms[usize::from(self.is_other())];
            arm.answered += self.answered;
            arm.took_ns += now.since(self.counts_from);
            self.left -= 1;
            if self.left == 0 {
                self.judge();
            }
        } else {
            self.rest -= 1;
            if self.rest == 0 {
                self.left = SPELLS;
                self.arms = [Arm::default(); 2];
            }
        }
        self.begin(now);
        self.counts_from = now.after(spell / SETTLE);
    }

    /// In a trial the other arm comes first, then the one in use, in turn.
    const fn is_other(&self) -> bool {
        self.left > 0 && self.left.is_multiple_of(2)
    }

    fn judge(&mut self) {
        self.rest = self.apart;
        let [used, other] = self.arms;
        if used.answered + other.answered < ANSWERS_MIN {
            return;
        }
        let (looking, sleeping) = if self.looks {
            (used, other)
        } else {
            (other, used)
        };
        let gain = looking.rate() / sleeping.rate().max(f64::MIN_POSITIVE);
        let looks = gain >= if self.looks { KEEP } else { TAKE_UP };
        self.apart = if looks == self.looks {
            (2 * self.apart).min(APART_MAX)
        } else {
            APART
        };
        self.looks = looks;
        self.rest = self.apart;
    }

    const fn begin(&mut self, now: Time) {
        self.began = now;
        self.counts_from = now;
        self.answered = 0;
    }
}

impl Arm {
    fn rate(self) -> f64 {
        self.answered as f64 / self.took_ns.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A closed loop in which a cycle answers `callers` commands and takes what `cycle_ns` says of the arm and the cycle.
    fn run(trial: &mut Trial, ms: u64, callers: u64, cycle_ns: impl Fn(bool, u64) -> u64) -> f64 {
        let mut now = trial.began;
        let end = now.after(ms * 1_000_000);
        let (mut looked, mut cycles) = (0, 0u64);
        while now < end {
            let looks = trial.looks();
            let took_ns = cycle_ns(looks, cycles);
            now = now.after(took_ns);
            cycles += 1;
            looked += if looks { took_ns } else { 0 };
            trial.answered(now, callers, 10_000.0, true);
        }
        looked as f64 / (ms * 1_000_000) as f64
    }

    fn settled(cycle_ns: impl Fn(bool, u64) -> u64 + Copy) -> f64 {
        let mut trial = Trial::default();
        run(&mut trial, 300, 8, cycle_ns);
        run(&mut trial, 3_000, 8, cycle_ns)
    }

    #[test]
    fn the_arm_that_answers_more_is_used_but_for_short_trials() {
        let looking = settled(|looks, _| if looks { 7_000 } else { 10_000 });
        assert!(looking > 0.97, "{looking}");
        let looking = settled(|looks, _| if looks { 12_000 } else { 10_000 });
        assert!(looking < 0.03, "{looking}");
    }

    #[test]
    fn where_both_are_alike_it_sleeps() {
        let looking = settled(|_, _| 10_000);
        assert!(looking < 0.03, "{looking}");
        let looking = settled(|looks, _| if looks { 9_900 } else { 10_000 });
        assert!(looking < 0.03, "{looking}");
    }

    #[test]
    fn what_slows_both_down_for_a_while_changes_nothing() {
        // Every second 20 ms somebody else takes most of the machine, and each cycle varies by a fifth.
        let noisy = |looks: bool, cycle: u64| {
            let base = if looks { 8_000 } else { 10_000 };
            let slow = if (cycle / 2_000).is_multiple_of(2) {
                1
            } else {
                3
            };
            base * slow * (80 + cycle.wrapping_mul(2_654_435_761) % 40) / 100
        };
        let looking = settled(noisy);
        assert!(looking > 0.9, "{looking}");
    }

    #[test]
    fn a_load_that_changes_is_found_out_within_a_second() {
        let mut trial = Trial::default();
        run(
            &mut trial,
            5_000,
            8,
            |looks, _| if looks { 7_000 } else { 10_000 },
        );
        assert!(trial.looks);
        run(
            &mut trial,
            1_100,
            8,
            |looks, _| if looks { 13_000 } else { 10_000 },
        );
        assert!(!trial.looks);
    }

    #[test]
    fn a_load_that_waits_for_nobody_is_left_out() {
        let mut trial = Trial::default();
        let mut now = Time::ZERO;
        for _ in 0..100_000 {
            now = now.after(10_000);
            trial.answered(now, 1, 10_000.0, false);
        }
        assert!(trial.looks() && trial.left == 0);
    }
}
