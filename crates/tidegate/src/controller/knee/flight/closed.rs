//! Searches for the concurrency, the number of batches that run at once, in a closed loop, where the same
//! callers call again and again.
//!
//! With c batches at once, each batch carries an equal part of the callers. The search therefore compares the
//! items that end in a given time, for any cost curve and any server, and needs no slowdown. A trial of a
//! concurrency (`number`) lasts whole turnovers: in a turnover, as many batches end as may run at once. At
//! first the concurrency doubles or halves. Once that no longer pays, the search steps by a factor of 1.5,
//! ever more rarely, and now and then by a factor of two or four, because throughput may have several peaks.

use super::super::pace::Pace;
use super::{BLOCK, CLIMB_ROUGH, Flight, PATIENCE, REST, ROUGH, Trial, WORTH};

/// The factors of the steps in concurrency once the doubling has ended, in turn. The search tries each factor
/// once up and once down.
const FAR: [f64; 6] = [1.5, 1.5, 2.0, 1.5, 4.0, 1.5];

/// The state of the search for the concurrency in a closed loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Closed {
    /// The number of callers that call again and again, which bounds the concurrency; 0 if the loop is not
    /// closed.
    callers: u64,
    /// True in the first part of the search, where each step doubles or halves the concurrency to come near
    /// the best one soon.
    fast: bool,
    /// True once the search has measured the first step, whether the step paid or not. From then on, the
    /// first step that does not pay ends the doubling and halving of the concurrency.
    stepped: bool,
    /// The number of steps in a row that did not pay, counted once the doubling has ended. It determines the
    /// factor of the next step.
    vain: usize,
    /// The rate at which items end at the concurrency in force, and at the concurrency on trial: the search
    /// compares the two.
    pace: Pace,
    tried: Pace,
}

impl Closed {
    /// Returns whether the loop is closed, so that this search applies: the same callers call again and
    /// again.
    pub(super) const fn is_on(&self) -> bool {
        self.callers > 0
    }

    /// Records that a batch ended and did its work for `items` of its items, for the rates that the search
    /// compares. `number` is the concurrency in force, `on_trial` true if the batch belongs to a trial of
    /// another concurrency.
    pub(super) fn done(&mut self, now_ns: u64, items: u64, number: u32, on_trial: bool) {
        if on_trial {
            self.tried.done(now_ns, items);
        } else {
            self.pace.done(now_ns, items);
            self.pace.fade(number);
        }
    }

    /// Records that batches of another concurrency start from now on. The time until the next batch ends then
    /// counts for neither concurrency, because batches of both run in it.
    pub(super) const fn turned(&mut self) {
        self.pace.pause();
    }

    /// Records that a trial of another concurrency begins, so that its rate starts empty.
    pub(super) fn begin(&mut self) {
        self.tried = Pace::default();
    }
}

impl Flight {
    /// Records the number of callers, if the loop is closed. Starts the search again when the loop closes or
    /// opens.
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

    /// Learns from a batch of a closed loop that ended. Ends the trial in progress if it has a result; begins
    /// a trial if none runs and one is due.
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
        let Some((gain, error)) = self.closed.tried.against(&self.closed.pace, noise) else {
            return;
        };
        let block = block as u32;
        let tried = self.closed.tried.batches as u32;
        let is_clear = tried >= (2 * number).max(2 * BLOCK.0 as u32)
            && (gain - 1.0).abs() > 3.0 * error + WORTH;
        // All batches that run at once may end together, so a trial ends only after whole turnovers.
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
            self.closed.vain = 0;
            self.step();
        } else {
            self.up = !is_up;
            if !self.closed.fast {
                self.closed.vain += 1;
            }
            self.closed.fast &= !self.closed.stepped;
            self.closed.stepped = true;
            self.rest = block + self.rests * number.max(BLOCK.0 as u32);
            self.rests = (self.rests * 2).clamp(1, REST.1);
        }
    }

    /// Begins a trial of a larger or smaller concurrency, alternately, to find out whether the step pays.
    fn step(&mut self) {
        let number = self.number;
        // No concurrency on trial is above the number of callers, because some batches would then have no
        // items.
        let most = u64::from(self.most).min(self.closed.callers) as u32;
        let by = match self.closed.fast {
            true => 2.0,
            false => FAR[self.closed.vain / 2 % FAR.len()],
        };
        let (up, down) = (f64::from(number) * by, f64::from(number) / by);
        let above = (up as u32).max(number.saturating_add(1)).min(most);
        let below = (down.ceil() as u32).min(number - 1).max(1);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the concurrency in force after `batches` batches that end one after the other. `rate` gives
    /// the items that end in a nanosecond, and the search begins at `number`.
    fn found(rate: impl Fn(u32) -> f64, number: u32, batches: u32) -> u32 {
        found_where(|_| true, rate, number, batches)
    }

    /// Returns the concurrency in force like [`found`], where batches do their work only at a concurrency for
    /// which `works` returns true.
    fn found_where(
        works: impl Fn(u32) -> bool,
        rate: impl Fn(u32) -> f64,
        number: u32,
        batches: u32,
    ) -> u32 {
        const CALLERS: u64 = 64;
        let mut flight = Flight::new(CALLERS as u32);
        flight.callers(Some(CALLERS));
        flight.number = number;
        flight.closed.fast = false;
        let (mut running, mut now) = (Vec::new(), 0.0);
        for _ in 0..batches {
            while running.len() < flight.allowed() as usize {
                let of = flight.allowed();
                let items = CALLERS / u64::from(of);
                running.push((of, items, flight.started(now as u64, items, 0, true)));
            }
            let (of, items, start) = running.remove(0);
            now += items as f64 / rate(of);
            flight.done(now as u64, items, works(of), start);
            flight.learn_closed(0.05);
        }
        flight.number
    }

    #[test]
    fn a_better_number_is_found_behind_worse_ones() {
        // At a concurrency of 16 the rate is a fifth above that of its neighbours, and below that of `better`
        // concurrencies.
        let rate = |better: bool, of: u32| match of {
            16 => 1.2e-6,
            _ if better => 2e-6,
            _ => 1e-6,
        };
        let number = found(|of| rate(of < 6, of), 16, 30_000);
        assert!(number < 6, "{number}");
        let number = found(|of| rate(of > 46, of), 16, 30_000);
        assert!(number > 46, "{number}");
    }

    #[test]
    fn a_server_that_refuses_batches_quickly_is_not_fast() {
        // The server refuses batches beyond 16 at once, ten times as fast as it handles a batch.
        let rate = |of: u32| if of > 16 { 1e-5 } else { 1e-6 };
        let number = found_where(|of| of <= 16, rate, 12, 10_000);
        assert!(number <= 16, "{number}");
    }

    #[test]
    fn a_number_that_is_best_stays() {
        let number = found(|of| 1e-6 / f64::from(1 + of.abs_diff(12)), 12, 10_000);
        assert_eq!(number, 12);
    }
}
