//! Snapshots of a client's measurements.

use std::fmt;

use tidegate::controller::Snapshot;

/// The number of commands that flushes carried, in buckets of powers of two.
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

    /// Returns the number of flushes of 2^i to 2^(i+1) - 1 commands, by i.
    #[must_use]
    pub const fn buckets(&self) -> &[u64; 24] {
        &self.buckets
    }

    /// Returns the total number of flushes.
    #[must_use]
    pub const fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Returns the mean number of commands in a flush; 0 before the first flush.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.flushes {
            0 => 0.0,
            n => self.commands as f64 / n as f64,
        }
    }
}

/// The measurements of a client's shared connection at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// True while the client is connected.
    pub connected: bool,
    /// The version of RESP that the connection speaks, 2 or 3; 0 before the first connection.
    pub protocol: u8,
    /// The number of connections that the client made in place of a lost one.
    pub reconnects: u64,
    /// Commands submitted.
    pub commands: u64,
    /// The number of callers to which the client has given a reply.
    pub replies: u64,
    /// Commands waiting to be written.
    pub queued: u64,
    /// Commands written and not yet answered.
    pub in_flight: u64,
    /// The number of commands that the flushes carried.
    pub depths: Depths,
    /// The time from a flush to its first reply, a moving average in microseconds.
    pub rtt_us: f64,
    /// The shortest time from a flush to its first reply.
    pub rtt_min_us: f64,
    /// The cost of writing a flush, a moving average in microseconds.
    pub write_us: f64,
    /// The delay of the precise timer, a moving average in microseconds. The timer compensates for it.
    pub overshoot_us: f64,
    /// The average time for which the policy held flushes back, in microseconds per command.
    pub delay_us: f64,
    /// The CPU time of the connection's task in microseconds per command, estimated from the
    /// duration of its runs.
    pub cpu_us: f64,
    /// The number of times that the driver looked for replies without sleeping.
    pub spins: u64,
    /// The number of times that the driver armed the precise timer.
    pub timers: u64,
    /// The number of times that the connection's task ran.
    pub polls: u64,
    /// The share of commands from callers that came back as soon as they were answered.
    pub closed_loop: f64,
    /// The state of the flush policy: the reasons of its flushes, its waits, its measurements.
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
