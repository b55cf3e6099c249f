//! Trials that find out whether an expensive method pays: a slow bandit with an expensive arm
//! and a cheap one.
//!
//! This module is pure. On some machines and at some numbers of callers, a client that looks for replies
//! without sleeping answers half as many commands again. On others it answers fewer: Redis runs on the
//! client's core, callers run on several threads, or no core is free. The same holds for handing out replies
//! in parts where CPU is expensive. No model predicts the better method, so now and then a trial measures
//! both. For a few short spells the client alternates between the other arm and the arm in use, so that a
//! change of the load affects both, and the trial compares the commands answered by each. The expensive arm
//! stays in use only if it answers more by a margin. The pulse decides whether the load allows a trial; the
//! driver carries out either arm.

use tidegate::Time;

/// The least duration of a spell, the time for which a trial measures one method, in nanoseconds. A spell
/// also lasts at least [`ROUND_TRIPS`] round trips.
const SPELL_NS: u64 = 1_000_000;
const ROUND_TRIPS: f64 = 16.0;
/// The fraction of a spell, one in this many, that the trial does not count: the change of arms disturbs it.
const SETTLE: u64 = 4;
/// The number of spells in a trial, alternately of the other arm and of the arm in use.
const SPELLS: u32 = 6;
/// The number of spells between trials. The number doubles, up to [`APART_MAX`], with each trial that
/// confirms the arm in use.
const APART: u32 = 32;
const APART_MAX: u32 = 512;
/// The gain that keeps the expensive arm, as a part of the gain that starts its use. Without
/// this margin, noise would change the arm all the time.
const KEEP: f64 = 0.5;
/// With fewer answers than this, a trial decides nothing.
const ANSWERS_MIN: u64 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// The fraction by which the expensive arm must answer more than the cheap one.
    gain: f64,
    /// True while the expensive arm is in use.
    dear: bool,
    /// True if the previous trial favoured the other arm. The trial is then repeated, because another process
    /// may have disturbed a single trial.
    doubt: bool,
    /// The number of spells left of the trial in progress; 0 if there is none.
    left: u32,
    /// The number of spells until the next trial.
    rest: u32,
    apart: u32,
    /// The start of the current spell, and the time from which it counts answers.
    began: Time,
    counts_from: Time,
    answered: u64,
    /// Answers and time in the current trial: of the arm in use, then of the other arm.
    arms: [Arm; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    answered: u64,
    took_ns: u64,
}

impl Trial {
    /// Creates a trial that uses the expensive arm if it answers more by the fraction `gain`: 0.05 is a
    /// twentieth.
    pub(crate) fn new(gain: f64) -> Self {
        Self {
            gain,
            dear: true,
            doubt: true,
            left: 0,
            rest: 2,
            apart: APART,
            began: Time::ZERO,
            counts_from: Time::ZERO,
            answered: 0,
            arms: [Arm::default(); 2],
        }
    }

    /// Returns whether the expensive arm is in use now.
    pub(crate) const fn is_dear(&self) -> bool {
        self.dear != self.is_other()
    }

    /// Changes to the cheap arm, because the expensive one was of no use. The next trial comes
    /// at its usual time.
    pub(crate) const fn give_up(&mut self) {
        (self.dear, self.left, self.rest) = (false, 0, self.apart);
    }

    /// Counts answered commands, at this round trip. `eligible` says that the callers wait for replies before
    /// they submit again.
    pub(crate) fn answered(&mut self, now: Time, commands: u64, rtt_ns: f64, eligible: bool) {
        if !eligible {
            // The answers so far cannot be compared with those under another load.
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
        // After a long time without an answer, the connection was idle; that says nothing about the arm.
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

    /// Returns whether this spell belongs to the other arm: in a trial the other arm starts,
    /// and the two alternate.
    const fn is_other(&self) -> bool {
        self.left > 0 && self.left.is_multiple_of(2)
    }

    fn judge(&mut self) {
        self.rest = self.apart;
        let [used, other] = self.arms;
        if used.answered + other.answered < ANSWERS_MIN {
            return;
        }
        let (rate, cheap) = if self.dear {
            (used.rate(), other.rate())
        } else {
            (other.rate(), used.rate())
        };
        let wanted = if self.dear {
            self.gain * KEEP
        } else {
            self.gain
        };
        let dear = rate >= cheap * (1.0 + wanted);
        if dear == self.dear {
            self.apart = (2 * self.apart).min(APART_MAX);
            self.doubt = false;
        } else if self.doubt {
            self.apart = APART;
            (self.dear, self.doubt) = (dear, false);
        } else {
            self.doubt = true;
            self.rest = 1;
            return;
        }
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

    /// Simulates a closed loop. One cycle answers `callers` commands, and takes the time that
    /// `cycle_ns` returns for the arm and the cycle.
    fn run(trial: &mut Trial, ms: u64, callers: u64, cycle_ns: impl Fn(bool, u64) -> u64) -> f64 {
        let mut now = trial.began;
        let end = now.after(ms * 1_000_000);
        let (mut spent, mut cycles) = (0, 0u64);
        while now < end {
            let dear = trial.is_dear();
            let took_ns = cycle_ns(dear, cycles);
            now = now.after(took_ns);
            cycles += 1;
            spent += if dear { took_ns } else { 0 };
            trial.answered(now, callers, 10_000.0, true);
        }
        spent as f64 / (ms * 1_000_000) as f64
    }

    fn settled(cycle_ns: impl Fn(bool, u64) -> u64 + Copy) -> f64 {
        let mut trial = Trial::new(0.05);
        run(&mut trial, 300, 8, cycle_ns);
        run(&mut trial, 3_000, 8, cycle_ns)
    }

    #[test]
    fn the_arm_that_answers_more_is_used_but_for_short_trials() {
        let share = settled(|dear, _| if dear { 7_000 } else { 10_000 });
        assert!(share > 0.97, "{share}");
        let share = settled(|dear, _| if dear { 12_000 } else { 10_000 });
        assert!(share < 0.03, "{share}");
    }

    #[test]
    fn where_both_are_alike_the_cheap_one_is_used() {
        let share = settled(|_, _| 10_000);
        assert!(share < 0.03, "{share}");
        let share = settled(|dear, _| if dear { 9_900 } else { 10_000 });
        assert!(share < 0.03, "{share}");
    }

    #[test]
    fn a_slowdown_of_both_for_a_while_changes_nothing() {
        // In every second interval of 20 ms another process takes most of the machine, and each
        // cycle varies by a fifth.
        let noisy = |dear: bool, cycle: u64| {
            let base = if dear { 8_000 } else { 10_000 };
            let slow = if (cycle / 2_000).is_multiple_of(2) {
                1
            } else {
                3
            };
            base * slow * (80 + cycle.wrapping_mul(2_654_435_761) % 40) / 100
        };
        let share = settled(noisy);
        assert!(share > 0.9, "{share}");
    }

    #[test]
    fn a_load_that_changes_is_found_out_within_a_second() {
        let mut trial = Trial::new(0.05);
        run(
            &mut trial,
            5_000,
            8,
            |dear, _| if dear { 7_000 } else { 10_000 },
        );
        assert!(trial.dear);
        run(
            &mut trial,
            1_100,
            8,
            |dear, _| if dear { 13_000 } else { 10_000 },
        );
        assert!(!trial.dear);
    }

    #[test]
    fn an_open_loop_is_left_out() {
        let mut trial = Trial::new(0.05);
        let mut now = Time::ZERO;
        for _ in 0..100_000 {
            now = now.after(10_000);
            trial.answered(now, 1, 10_000.0, false);
        }
        assert!(trial.is_dear() && trial.left == 0);
    }
}
