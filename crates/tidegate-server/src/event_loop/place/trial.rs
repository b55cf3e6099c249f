//! A trial of two ways to sync: the loop takes them by turns for a short spell each, and the trial compares
//! the bytes that became durable a second.
//!
//! No model predicts the faster way. With one caller the wake-ups decide. With several callers, the batches
//! decide: while the log thread syncs, the loop reads the callers that come next, and while the loop's thread
//! syncs, it reads none of them. Callers that wait for each acknowledgement send more if the acknowledgements
//! come sooner, so the bytes tell which way serves them better. The spells alternate, so that a change of the
//! load affects both ways, and the median of the pairs decides, so that one slow sync decides nothing. The
//! idea is that of the trials of the Redis client (`tidegate-redis`, `trial.rs`).

use std::time::Duration;

use tidegate::Time;

use super::{Place, Way};

/// The pairs of spells in a trial at most. Their median decides, so the trial ends once three of them agree.
const PAIRS: usize = 5;
/// The syncs of a spell that do not count, because the change of the way disturbs them.
const SETTLING: u64 = 4;
/// The syncs of a spell that count.
const COUNTED: u64 = 28;

/// A trial, see the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// The two ways that the trial compares.
    ways: [Way; 2],
    /// The least ratio with which the second way wins: bytes a second in the second way over those in the
    /// first.
    wanted: f64,
    /// The number of pairs so far that the first way won, and the number that the second way won.
    won: [usize; 2],
    /// The number of spells that have ended.
    spells: usize,
    /// The rate of the first spell of the present pair, in bytes a nanosecond.
    first: f64,
    spell: Spell,
}

/// The counts of the present spell.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    /// The syncs and the durable bytes at the beginning of the spell's counted part, and (`since`) its time;
    /// `None` until the way has settled.
    begun: Option<(u64, u64, Time)>,
    /// The number of syncs from which on the counted part may begin; `None` before the thread of the spell
    /// has the duty of writing.
    settled: Option<u64>,
    /// The time since the begin of the counted part for which callers sent nothing.
    idle: Duration,
}

/// The counts at the end of a turn of the loop, by which a trial compares the ways.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The thread that has the duty of writing now.
    pub(super) place: Place,
    pub(super) now: Time,
    /// The number of syncs since the log was opened.
    pub(super) syncs: u64,
    /// The bytes of the log that are durable.
    pub(super) durable: u64,
    /// The time before this turn for which no caller sent anything, if it was long; otherwise zero.
    pub(super) idle: Duration,
}

impl Trial {
    /// Creates a trial that the second way wins from the ratio `wanted` on.
    pub(super) const fn new(ways: [Way; 2], wanted: f64) -> Self {
        Self {
            ways,
            wanted,
            won: [0; 2],
            spells: 0,
            first: 0.0,
            spell: Spell {
                begun: None,
                settled: None,
                idle: Duration::ZERO,
            },
        }
    }

    /// Returns the two ways that the trial compares.
    pub(super) const fn ways(&self) -> [Way; 2] {
        self.ways
    }

    /// Returns the way that the present spell measures. Each pair begins with the way with which the pair
    /// before ended, so that the trial changes the way once a spell and a drift of the load cancels out.
    pub(super) const fn way(&self) -> Way {
        self.ways[self.side()]
    }

    /// Returns which of the two ways the present spell measures.
    const fn side(&self) -> usize {
        match self.spells % 4 {
            0 | 3 => 0,
            _ => 1,
        }
    }

    /// Takes the counts of a turn. Returns true once the median of the pairs says that the second way makes
    /// enough more bytes durable a second, and false once it says that it does not.
    pub(super) fn observe(&mut self, seen: Seen) -> Option<bool> {
        let side = self.side();
        if seen.place != self.ways[side].place() {
            return None;
        }
        let spell = &mut self.spell;
        let Some((syncs, durable, since)) = spell.begun else {
            let settled = *spell.settled.get_or_insert(seen.syncs + SETTLING);
            if seen.syncs >= settled {
                spell.begun = Some((seen.syncs, seen.durable, seen.now));
            }
            return None;
        };
        spell.idle += seen.idle;
        if seen.syncs < syncs + COUNTED {
            return None;
        }
        let took = (seen.now - since).saturating_sub(spell.idle);
        let rate = (seen.durable - durable) as f64 / took.as_nanos().max(1) as f64;
        if self.spells.is_multiple_of(2) {
            self.first = rate;
        } else {
            let ratio = match side {
                1 => rate / self.first,
                _ => self.first / rate,
            };
            self.won[usize::from(ratio >= self.wanted)] += 1;
        }
        (self.spells, self.spell) = (self.spells + 1, Spell::default());
        let [first, second] = self.won.map(|pairs| pairs > PAIRS / 2);
        (first || second).then_some(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a trial in which a sync with the log thread covers 2,000 bytes in 200 us, and one with the
    /// loop's thread `bytes` bytes in `us` microseconds; each fifth spell has one sync of 20 ms. Returns
    /// whether the loop's thread wins if it must have `wanted` times the bytes a second.
    fn wins(bytes: u64, us: u64, wanted: f64) -> bool {
        let mut trial = Trial::new([Way::LogThread, Way::Loop], wanted);
        let (mut now, mut syncs, mut durable) = (Time::ZERO, 0, 0);
        for turn in 1.. {
            let place = trial.way().place();
            let (bytes, mut us) = match place {
                Place::Loop => (bytes, us),
                Place::LogThread => (2_000, 200),
            };
            if turn % (5 * COUNTED) == 0 {
                us += 20_000;
            }
            now = now + Duration::from_micros(us);
            (syncs, durable) = (syncs + 1, durable + bytes);
            let idle = Duration::ZERO;
            let seen = Seen {
                place,
                now,
                syncs,
                durable,
                idle,
            };
            if let Some(wins) = trial.observe(seen) {
                return wins;
            }
        }
        unreachable!("a trial ends")
    }

    #[test]
    fn the_place_with_more_bytes_a_second_wins_in_spite_of_slow_syncs() {
        assert!(wins(2_000, 160, 1.24) && !wins(2_000, 160, 1.26));
        assert!(wins(1_000, 160, 0.62) && !wins(1_000, 160, 0.63));
    }

    #[test]
    fn a_trial_ends_once_its_median_is_certain() {
        let mut trial = Trial::new([Way::LogThread, Way::Loop], 1.0);
        let (mut seen, mut spells) = (Seen::default(), 0);
        while trial.won.iter().max() < Some(&2) {
            seen.place = trial.way().place();
            let us = if seen.place == Place::Loop { 100 } else { 120 };
            seen.now = seen.now + Duration::from_micros(us);
            (seen.syncs, seen.durable) = (seen.syncs + 1, seen.durable + 1_000);
            assert_eq!(trial.observe(seen), None);
            spells = trial.spells;
        }
        assert_eq!((spells, trial.won), (4, [0, 2]));
    }

    #[test]
    fn turns_of_the_other_place_and_idle_time_do_not_count() {
        let mut trial = Trial::new([Way::LogThread, Way::Loop], 0.999);
        let mut seen = Seen {
            place: Place::Loop,
            ..Seen::default()
        };
        for _ in 0..1000 {
            seen.syncs += 1;
            assert_eq!(trial.observe(seen), None);
        }
        assert_eq!(trial.way().place(), Place::LogThread);
        loop {
            // Every turn comes after a second without callers, and takes 100 us with either place.
            seen.place = trial.way().place();
            seen.idle = Duration::from_secs(1);
            seen.now = seen.now + seen.idle + Duration::from_micros(100);
            (seen.syncs, seen.durable) = (seen.syncs + 1, seen.durable + 1_000);
            if let Some(wins) = trial.observe(seen) {
                assert!(wins);
                break;
            }
        }
        assert_eq!(trial.won, [0, 3]);
    }
}
