//! Snapshots of the measurements of a client's shared connection, for a program's metrics.

use std::fmt;

use tidegate::controller::Snapshot;

/// The number of commands that each flush carried, in buckets of powers of two, which shows how well flushes
/// are shared.
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

    /// Returns the counts of flushes by size: entry i counts the flushes of 2^i to 2^(i+1) - 1 commands. The
    /// last entry also counts all larger flushes.
    #[must_use]
    pub const fn buckets(&self) -> &[u64; 24] {
        &self.buckets
    }

    /// Returns the number of flushes on the shared connection since the client was opened.
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

/// The measurements of a client's shared connection at one moment, for a program's metrics.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// True while the client has a connection to the server.
    pub connected: bool,
    /// The version of RESP that the connection speaks, 2 or 3; 0 before the first connection.
    pub protocol: u8,
    /// The number of times that the client replaced a lost connection, since the client was opened.
    pub reconnects: u64,
    /// The number of commands submitted on the shared connection since the client was opened.
    pub commands: u64,
    /// The number of callers that have got a reply since the client was opened.
    pub replies: u64,
    /// The number of commands that wait in the client's queue to be written.
    pub queued: u64,
    /// The number of commands that the client has written and the server has not answered yet.
    pub in_flight: u64,
    /// The distribution of the number of commands in a flush, which shows how well callers share flushes.
    pub depths: Depths,
    /// The time from a flush to its first reply, in microseconds: a moving average over flushes.
    pub rtt_us: f64,
    /// The shortest time from a flush to its first reply since the client was opened, in microseconds.
    pub rtt_min_us: f64,
    /// The time that the client spends on writing a flush, in microseconds: a moving average over flushes.
    pub write_us: f64,
    /// The time by which the precise timer's wake-ups come too late, a moving average in microseconds. The
    /// client sets the timer to fire that much earlier.
    pub overshoot_us: f64,
    /// The time for which the policy held commands back, in microseconds per command: the average since the
    /// client was opened.
    pub delay_us: f64,
    /// The CPU time of the connection's task in microseconds per command, the average since the client was
    /// opened. The client estimates it from the duration of the task's runs.
    pub cpu_us: f64,
    /// The number of spins since the client was opened. In a spin the driver looks for replies without
    /// sleeping.
    pub spins: u64,
    /// The number of times that the driver armed its precise timer, since the client was opened.
    pub timers: u64,
    /// The number of times that the connection's task ran, since the client was opened.
    pub polls: u64,
    /// The share of recent commands that came from callers which submitted again as soon as they were
    /// answered.
    pub closed_loop: f64,
    /// The state of the flush policy: its counts of flushes by reason, its waits, and its measurements.
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
