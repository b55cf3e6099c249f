//! How many batches run at once where the same callers come again and again.
//!
//! Such callers share themselves out among the batches: c batches of 1/c of them each. Then the items that
//! end in a time tell which number is best, whatever a batch costs and however the server works. No slowdown
//! has to be told from a cost. A number is tried over whole turns of its batches, and the items that ended in
//! that time are compared with those under the number in force. At first numbers double or halve. Once that
//! no longer pays they grow by half or shrink by a third, ever more seldom.

use super::super::pace::Pace;
use super::{BLOCK, CLIMB_ROUGH, Flight, PATIENCE, REST, ROUGH, Trial, WORTH};

/// The search in a closed loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Closed {
    /// The callers, 0 where they are not the same.
    callers: u64,
    /// Numbers double or halve.
    fast: bool,
    /// A step paid, or the first of them did not: the next that does not pay ends the haste.
    stepped: bool,
    /// Under the number in force, and under the one on trial.
    pace: Pace,
    tried: Pace,
}

impl Closed {
    /// Returns whether the callers are the same.
    pub(super) const fn is_on(&self) -> bool {
        self.callers > 0
    }

    /// A batch of `items` ended.
    pub(super) fn done(&mut self, now_ns: u64, items: u64, on_trial: bool) {
        let pace = match on_trial {
            true => &mut self.tried,
            false => &mut self.pace,
        };
        pace.done(now_ns, items);
    }

    /// Batches of another number start from now on.
    pub(super) const fn turned(&mut self) {
        self.pace.pause();
    }

    /// A trial begins.
    pub(super) fn begin(&mut self) {
        self.tried = Pace::default();
    }

    /// How many times faster items end under the number on trial than under the one in force, and the error
    /// of that, where single costs scatter by `noise`.
    fn gain(&self, noise: f64) -> Option<(f64, f64)> {
        let (tried, usual) = (self.tried.rate()?, self.pace.rate()?);
        let error = self.tried.error(noise).hypot(self.pace.error(noise));
        Some((tried / usual, error))
    }
}

impl Flight {
    /// Takes in how many callers come again and again, if they are the same.
    pub(in super::super) fn callers(&mut self, callers: Option<u64>) {
        let callers = callers.unwrap_or(0);
        if (callers > 0) != self.closed.is_on() {
            self.closed = Closed {
                fast: true,
                ..Closed::default()
            };
            if self.climbs {
                self.number = self.allowed();
                self.climbs = false;
            }
            self.trial = None;
            self.size = None;
            self.rest = 1;
            self.rests = REST.0;
            self.forget_others();
            self.turned();
        }
        self.closed.callers = callers;
    }

    /// A batch of a closed loop ended.
    pub(super) fn learn_closed(&mut self, noise: f64) {
        let rough = match self.closed.fast {
            true => noise / CLIMB_ROUGH,
            false => noise / ROUGH,
        };
        let block = (rough * rough).clamp(BLOCK.0, BLOCK.1);
        let Some(trial) = &mut self.trial else {
            self.rest = self.rest.saturating_sub(1);
            let known = block.max(2.0 * BLOCK.0).max(f64::from(self.number));
            if self.rest == 0 && self.closed.pace.batches >= known {
                self.step();
            }
            return;
        };
        trial.batches += 1;
        let Trial { number, batches } = *trial;
        let Some((gain, error)) = self.closed.gain(noise) else {
            return;
        };
        let block = block as u32;
        let tried = self.closed.tried.batches as u32;
        let is_clear = tried >= (2 * number).max(2 * BLOCK.0 as u32)
            && (gain - 1.0).abs() > 3.0 * error + WORTH;
        // The batches of a number may end together.
        let is_whole = tried.is_multiple_of(number);
        let is_over = is_whole && (tried >= block || is_clear);
        if !is_over && batches < PATIENCE * (number + block) {
            return;
        }
        self.trial = None;
        self.turned();
        let is_up = number > self.number;
        let least = if is_up { 1.0 + WORTH } else { 1.0 - WORTH };
        if gain > least {
            self.number = number;
            self.closed.pace = self.closed.tried;
            self.rests = REST.0;
            self.up = is_up;
            self.closed.stepped = true;
            self.step();
        } else {
            self.up = !is_up;
            self.closed.fast &= !self.closed.stepped;
            self.closed.stepped = true;
            self.rest = block + self.rests * number.max(BLOCK.0 as u32);
            self.rests = (self.rests * 2).clamp(1, REST.1);
        }
    }

    /// Begins a trial of the next number up or down.
    fn step(&mut self) {
        let number = self.number;
        // More batches than callers would have nothing to take.
        let most = u64::from(self.most).min(self.closed.callers) as u32;
        let (up, down) = match self.closed.fast {
            true => (number, number / 2),
            false => (number / 2, number / 3),
        };
        let above = number.saturating_add(up.max(1)).min(most);
        let below = number.saturating_sub(down.max(1)).max(1);
        let (can_grow, can_shrink) = (above > number, below < number);
        if can_grow && (self.up || !can_shrink) {
            self.begin(above);
        } else if can_shrink {
            self.begin(below);
        } else {
            self.rest = BLOCK.1 as u32;
        }
    }
}
