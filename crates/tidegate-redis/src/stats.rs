//! What a client measured, read as a snapshot.

use std::fmt;

use tidegate::controller::Snapshot;

/// How many commands a flush carried, in buckets of powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    buckets: [u64; 24],
    commands: u64,
    flushes: u64,
}

impl Depths {
    pub(crate) fn record(&mut self, commands: u64) {
        let bucket = commands.max(1).ilog2().min(23);
        self.buckets[bucket as usize] += 1;
        self.commands += commands;
        self.flushes += 1;
    }

    /// Flushes of 2^i to 2^(i+1) - 1 commands, by i.
    #[must_use]
    pub const fn buckets(&self) -> &[u64; 24] {
        &self.buckets
    }

    /// Flushes in all.
    #[must_use]
    pub const fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Mean commands a flush; 0 before the first.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.flushes {
            0 => 0.0,
            n => self.commands as f64 / n as f64,
        }
    }
}

/// A client's shared connection at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Whether the connection stands.
    pub connected: bool,
    /// The protocol spoken, 2 or 3; 0 before the first connection.
    pub protocol: u8,
    /// Connections made in place of a lost one.
    pub reconnects: u64,
    /// Commands submitted.
    pub commands: u64,
    /// Callers answered.
    pub replies: u64,
    /// Commands waiting to be written.
    pub queued: u64,
    /// Commands written and not answered.
    pub in_flight: u64,
    /// How many commands the flushes carried.
    pub depths: Depths,
    /// From a flush to its first reply, a moving average in microseconds.
    pub rtt_us: f64,
    /// The shortest of them.
    pub rtt_min_us: f64,
    /// What writing a flush costs, a moving average in microseconds.
    pub write_us: f64,
    /// How late the precise timer fires, a moving average in microseconds, which it makes up for.
    pub overshoot_us: f64,
    /// How long flushes were held back on average, in microseconds a command.
    pub delay_us: f64,
    /// CPU the connection's task used, in microseconds a command: an estimate from how long it ran.
    pub cpu_us: f64,
    /// How often replies were awaited without sleeping.
    pub spins: u64,
    /// How often the precise timer was armed.
    pub timers: u64,
    /// How often the connection's task ran.
    pub polls: u64,
    /// The share of commands from callers that came back as soon as they were answered.
    pub closed_loop: f64,
    /// The flush policy: reasons of flushes, waits, what it measured.
    pub policy: Snapshot,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} commands in {} flushes (mean {:.1}), rtt {:.1} us, delay {:.2} us, cpu {:.2} us a command, {} in flight, {} queued, {} reconnects",
            self.commands,
            self.depths.flushes(),
            self.depths.mean(),
            self.rtt_us,
            self.delay_us,
            self.cpu_us,
            self.in_flight,
            self.queued,
            self.reconnects
        )
    }
}
