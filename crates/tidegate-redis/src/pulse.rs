//! The pulse of one connection: measurements of round trips, of the cost of a write, of the share of callers
//! that submit again as soon as they are answered, and of the share of spins that find a reply. To spin is to
//! look for replies without sleeping.
//!
//! This module is pure. It decides whether the driver may spin, and asks `trial` whether spinning pays. The
//! controller decides when to flush.

use tidegate::Time;

use crate::trial::Trial;

/// The longest time, in nanoseconds, for which the driver looks for replies before it sleeps, to bound the
/// CPU that it spends.
pub(crate) const SPIN_NS: u64 = 50_000;
/// The time, in nanoseconds, after a delivery of replies within which the next command counts as one of an
/// answered caller that came back at once.
const RETURN_NS: u64 = 25_000;
/// The fraction by which a client that looks for replies without sleeping must answer more commands than a
/// sleeping client, to go on so. Sleep has the advantage that it leaves the core to other processes.
const LOOKING: f64 = 0.05;
/// The least share of commands from callers that come back at once after their reply, for the client to spin.
/// From this share on, most callers wait for their replies before they submit again.
const CLOSED_LOOP: f64 = 0.75;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    /// The moving average of the time from a flush to its first reply, in nanoseconds; 0 before the first
    /// reply. It sets the length of a trial's spells.
    pub(crate) rtt_ns: f64,
    pub(crate) rtt_min_ns: u64,
    /// The moving average of the cost of writing a flush, in nanoseconds, for the statistics.
    pub(crate) write_ns: f64,
    pub(crate) commands: u64,
    pub(crate) replies: u64,
    pub(crate) flushes: u64,
    pub(crate) spins: u64,
    /// The number of recently answered callers that the client still expects to submit their next command at
    /// once.
    owed: u64,
    delivered_at: Time,
    returned: u64,
    fresh: u64,
    /// The moving average of the share of commands that come from callers which came back at once after their
    /// reply. If it is low, spinning finds no replies.
    closed_loop: f64,
    /// The moving average of the share of spins that end with a reply. If it falls below a half, the client
    /// stops spinning until the next trial.
    hits: f64,
    trial: Trial,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            rtt_ns: 0.0,
            rtt_min_ns: u64::MAX,
            write_ns: 0.0,
            commands: 0,
            replies: 0,
            flushes: 0,
            spins: 0,
            owed: 0,
            delivered_at: Time::ZERO,
            returned: 0,
            fresh: 0,
            closed_loop: 0.0,
            hits: 1.0,
            trial: Trial::new(LOOKING),
        }
    }
}

impl Pulse {
    /// Creates a pulse with a trial that allows more CPU only if the client then answers more commands, by at
    /// least the fraction `gain`.
    pub(crate) fn pricing(gain: f64) -> Self {
        Self {
            trial: Trial::new(gain),
            ..Self::default()
        }
    }

    pub(crate) fn arrived(&mut self, now: Time, commands: u64) {
        self.commands += commands;
        if now.since(self.delivered_at) > RETURN_NS {
            self.owed = 0;
        }
        if self.owed > 0 {
            self.owed -= 1;
            self.returned += 1;
        } else {
            self.fresh += 1;
        }
    }

    pub(crate) fn delivered(&mut self, now: Time, callers: u64) {
        self.replies += callers;
        self.owed += callers;
        self.delivered_at = now;
        self.trial
            .answered(now, callers, self.rtt_ns, self.closed_loop >= CLOSED_LOOP);
    }

    pub(crate) fn round_trip(&mut self, took_ns: u64) {
        self.rtt_min_ns = self.rtt_min_ns.min(took_ns);
        ewma(&mut self.rtt_ns, took_ns as f64);
    }

    pub(crate) fn wrote(&mut self, cost_ns: u64) {
        self.flushes += 1;
        ewma(&mut self.write_ns, cost_ns as f64);
        let all = self.returned + self.fresh;
        if all > 0 {
            let share = self.returned as f64 / all as f64;
            self.closed_loop += (share - self.closed_loop) / 8.0;
            (self.returned, self.fresh) = (0, 0);
        }
    }

    /// Returns whether it pays to spend more CPU, for looking for replies without sleeping or for more
    /// flushes than necessary. It does if callers come back at once, and the trial found that the client then
    /// answers enough more commands.
    pub(crate) fn pays(&self) -> bool {
        self.closed_loop >= CLOSED_LOOP && self.trial.is_dear()
    }

    /// Records the end of a spin, for the share of spins that find a reply; `hit` says whether this spin did.
    pub(crate) fn spun(&mut self, hit: bool) {
        self.spins += 1;
        self.hits += (f64::from(u8::from(hit)) - self.hits) / 16.0;
        if self.hits < 0.5 {
            self.hits = 1.0;
            self.trial.give_up();
        }
    }

    /// Returns the recent share of commands from callers that came back at once after their reply.
    pub(crate) const fn closed_loop(&self) -> f64 {
        self.closed_loop
    }
}

fn ewma(mean: &mut f64, x: f64) {
    *mean = if *mean == 0.0 {
        x
    } else {
        *mean + (x - *mean) / 16.0
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates one caller that submits a command `think_ns` after the reply before it. With a short time
    /// the caller comes back because of the reply, with a long one it follows a schedule of its own.
    fn run(think_ns: u64, cycles: u64) -> Pulse {
        let mut p = Pulse::default();
        let mut now = Time::from_nanos(1_000_000);
        for _ in 0..cycles {
            now = now.after(think_ns);
            p.arrived(now, 1);
            p.wrote(5_000);
            now = now.after(20_000);
            p.round_trip(20_000);
            p.delivered(now, 1);
        }
        p
    }

    #[test]
    fn callers_that_come_back_at_once_open_the_gate() {
        assert!(run(1_000, 40).pays());
    }

    #[test]
    fn a_caller_each_millisecond_keeps_it_shut() {
        assert!(!run(1_000_000, 40).pays());
        assert!(run(1_000_000, 40).closed_loop() < 0.1);
    }

    #[test]
    fn spins_that_find_nothing_shut_it_until_it_is_tried_again() {
        let mut p = run(1_000, 40);
        for _ in 0..20 {
            p.spun(false);
        }
        assert!(!p.pays());
        let mut now = p.delivered_at;
        let mut tried = false;
        for _ in 0..10_000 {
            p.arrived(now, 1);
            p.wrote(5_000);
            now = now.after(21_000);
            p.delivered(now, 1);
            tried |= p.pays();
        }
        assert!(tried);
    }
}
