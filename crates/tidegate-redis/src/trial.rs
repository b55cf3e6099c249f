//! Trials that find out whether an expensive method pays: they compare it with a cheap one now and then, in
//! the running program. The two methods are called the arms of the trial.
//!
//! This module is pure. On some machines and at some numbers of callers, a client that spins (looks for
//! replies without sleeping) answers 50 % more commands than a sleeping client. On others it answers fewer:
//! Redis runs on the client's core, callers run on several threads, or no core is free. A policy that saves
//! CPU has the same question about handing out replies in parts. No model predicts the better arm, so a trial
//! measures both. For a few short spells the client alternates between the arm in use and the other arm, so
//! that a change of the load affects both, and the trial compares the numbers of commands answered. The
//! expensive arm stays in use only if it answers more commands by a margin. The pulse decides whether the
//! load allows a trial; the driver carries out either arm.

use tidegate::Time;

/// The least duration of a spell, the time for which a trial measures one method, in nanoseconds. A spell
/// also lasts at least [`ROUND_TRIPS`] round trips.
const SPELL_NS: u64 = 1_000_000;
const ROUND_TRIPS: f64 = 16.0;
/// The divisor that gives the uncounted first part of a spell, which the change of arms disturbs: with 4, the
/// trial leaves out the first quarter of each spell.
const SETTLE: u64 = 4;
/// The number of spells in a trial. The other arm and the arm in use alternate, so that both meet changes of
/// the load.
const SPELLS: u32 = 6;
/// The number of spells between two trials. The number doubles, up to [`APART_MAX`], with each trial that
/// confirms the arm in use.
const APART: u32 = 32;
const APART_MAX: u32 = 512;
/// The fraction of the required gain that is enough to keep the expensive arm in use. If keeping it took the
/// whole gain, noise would change the arm all the time.
const KEEP: f64 = 0.5;
/// The least number of answered commands from which a trial draws a conclusion, because fewer would be
/// chance.
const ANSWERS_MIN: u64 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// The fraction by which the expensive arm must answer more commands than the cheap arm to come into use.
    gain: f64,
    /// True if the expensive arm is in use outside of trials.
    dear: bool,
    /// True if the previous trial favoured the arm that is not in use, or if no trial has run yet. The next
    /// trial then decides; one trial alone does not, because another process may have disturbed it.
    doubt: bool,
    /// The number of spells left in the present trial; 0 if there is none.
    left: u32,
    /// The number of spells (measured times) until the next trial.
    rest: u32,
    apart: u32,
    /// The time at which the current spell, in which the trial measures one arm, began.
    began: Time,
    /// The time from which on the current spell counts answered commands, after the first part that it does
    /// not count.
    counts_from: Time,
    answered: u64,
    /// The commands answered in the current trial and the time for them: of the arm in use, then of the other
    /// arm.
    arms: [Arm; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    answered: u64,
    took_ns: u64,
}

impl Trial {
    /// Creates a trial that uses the expensive arm if it answers more commands than the cheap arm, by the
    /// fraction `gain`: 0.05 is a twentieth.
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

    /// Returns whether the driver uses the expensive arm now, because it is in use or because a trial tests
    /// it.
    pub(crate) const fn is_dear(&self) -> bool {
        self.dear != self.is_other()
    }

    /// Changes to the cheap arm, because the expensive arm was of no use. The next trial comes at its usual
    /// time.
    pub(crate) const fn give_up(&mut self) {
        (self.dear, self.left, self.rest) = (false, 0, self.apart);
    }

    /// Counts answered commands. The round trip `rtt_ns` sets how long a spell lasts. `eligible` is true if
    /// the callers wait for replies before they submit again; otherwise no trial runs.
    pub(crate) fn answered(&mut self, now: Time, commands: u64, rtt_ns: f64, eligible: bool) {
        if !eligible {
            // Callers no longer wait for replies, so the trial starts again later: its counts so far cannot
            // be compared with counts under another load.
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
        // The connection was idle for long, which says nothing about the arm, so the spell starts again.
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

    /// Returns whether the current spell belongs to the other arm: in a trial the other arm starts, and the
    /// two arms alternate.
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

    /// Simulates callers that wait for their replies before they submit again. One cycle answers `callers`
    /// commands, and takes the time that `cycle_ns` returns for the arm and the cycle.
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
        // Another process takes most of the machine in every second interval of 20 ms, and each cycle varies
        // by a fifth.
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
