//! Flush policies: the rules that decide when the client writes queued commands. Each policy selects a
//! controller, and the manner in which the driver serves it.
//!
//! This module defines the policies and two controllers: [`Auto`] (waits for the callers just answered, then
//! weighs the cost of a wait) and [`Spaced`] (a fixed delay). The engine defines the other controllers.

mod auto;
mod spaced;

use std::fmt;
use std::time::Duration;

use tidegate::boundary::Boundary;
use tidegate::controller::{Bounds, Controller, Greedy, Knee, Objective, RueidisStats};

use crate::error::ConfigError;

pub use auto::Auto;
pub use spaced::Spaced;

/// The rule that decides when the client writes queued commands. docs/redis.md gives the cost of each rule.
#[derive(Default)]
#[non_exhaustive]
pub enum Policy {
    /// Adapts to the load. A lone caller never waits. A flush waits until the callers just answered have
    /// submitted their next commands; otherwise it waits for at most 3 % of the round trip. The client looks
    /// for replies without sleeping if callers submit again at once.
    #[default]
    Auto,
    /// Gives up a little latency or throughput for the least CPU, in the client and in Redis. The client
    /// never looks for replies without sleeping.
    MinCpu(Concession),
    /// Writes all queued commands at once. While commands are in flight, it hands out replies in parts, so
    /// that both the client and Redis stay busy.
    Latency,
    /// Flushes at most once in this time, counted from the start of the previous flush. A lone caller never
    /// waits.
    Fixed(Duration),
    /// Delays a flush by a time that rueidis's rule derives from earlier flushes; the delay is at most this
    /// long.
    RueidisStats(Duration),
    /// Flushes all queued commands as soon as the previous flush is written. The commands that arrive while a
    /// flush is being written form the next one.
    Off,
    /// Asks a controller that the program supplies. Its answer to
    /// [`Event::Ready`](tidegate::controller::Event::Ready) decides about each flush.
    Custom(Box<dyn Controller>),
}

/// The latency or throughput that [`Policy::MinCpu`] may give up to save CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Concession {
    /// The client holds a command back for at most this time, so that other commands can join the flush.
    AddedLatency(Duration),
    /// The client keeps at least this fraction of the best throughput: 0.95 gives up 5 %.
    ThroughputFraction(f64),
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("Auto"),
            Self::MinCpu(c) => write!(f, "MinCpu({c:?})"),
            Self::Latency => f.write_str("Latency"),
            Self::Fixed(d) => write!(f, "Fixed({d:?})"),
            Self::RueidisStats(d) => write!(f, "RueidisStats({d:?})"),
            Self::Off => f.write_str("Off"),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// The manner in which the driver serves a policy: whether it hands out replies in parts, spins, and yields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Manner {
    /// The number of parts into which the driver splits the replies to the commands in flight, while the task
    /// sleeps between reads. The driver flushes after each part. With 1 it does not split the replies.
    pub(crate) parts: u64,
    /// The least number of replies that the driver hands out before a flush, while more replies have arrived,
    /// so that flushes do not become tiny.
    pub(crate) part_min: u64,
    /// True if the driver may look for replies without sleeping, which spends CPU to save latency.
    pub(crate) spin: bool,
    /// The gain that splitting replies must bring: the driver splits replies only if a trial shows that it
    /// then answers more commands, by at least this fraction. With `None` the driver splits replies without a
    /// trial.
    pub(crate) parts_gain: Option<f64>,
    /// True if the driver may bridge a short wait by yielding to other tasks instead of sleeping, because a
    /// timer would end the wait late.
    pub(crate) precise: bool,
    /// True if callers also run on other threads. A yield then does not let them run, and costs time: the
    /// runtime wakes another thread or polls the system for events. So the task looks for replies within its
    /// turn, and sleeps instead of yielding.
    pub(crate) many_threads: bool,
}

impl Manner {
    /// Adapts the manner to callers that are threads. The wake-up of a thread takes about as long as a small
    /// flush, so both the client and Redis are busy anyway, and splitting the replies would only add flushes.
    pub(crate) const fn for_threads(self) -> Self {
        Self {
            parts: 1,
            many_threads: true,
            ..self
        }
    }
}

/// A policy ready for use: its controller within the bounds of a batch, and the manner in which the driver
/// serves the policy.
pub(crate) struct Plan {
    pub(crate) boundary: Boundary,
    pub(crate) manner: Manner,
}

/// The number of parts into which the driver splits replies while the task sleeps between reads. Two parts
/// would not keep both the client and Redis busy, because a wake-up of the task takes some time.
const PARTS: u64 = 4;
/// The least number of parts that keeps both the client and Redis busy, for policies that save CPU. Each
/// further part costs each side a system call or two.
const PARTS_CHEAP: u64 = 2;

/// The least number of commands in a part. A smaller flush costs the client more than a busy server gains by
/// getting it earlier.
const PART_MIN: u64 = 8;

/// The longest time that any policy may hold a command back, even if its controller decides to wait longer.
const AGE_MAX: Duration = Duration::from_secs(1);

impl Policy {
    pub(crate) fn plan(self, commands_max: u64) -> Result<Plan, ConfigError> {
        let precise = !matches!(self, Self::MinCpu(_));
        // The objective `AddedLatency` makes the parts larger. The other policies keep throughput, which with
        // few callers depends on a busy client and a busy Redis, so they allow smaller parts.
        let patient = matches!(self, Self::MinCpu(Concession::AddedLatency(_)));
        let bounds = Bounds {
            age_max: AGE_MAX,
            ..Bounds::items(1, commands_max)
        };
        let manner = |parts, spin| Manner {
            parts,
            part_min: if patient { 2 * PART_MIN } else { PART_MIN },
            spin,
            parts_gain: None,
            precise,
            many_threads: false,
        };
        let (controller, manner): (Box<dyn Controller>, _) = match self {
            Self::Auto => (
                Box::new(Auto::new(knee(0.03, bounds)?)),
                manner(PARTS, true),
            ),
            Self::MinCpu(Concession::ThroughputFraction(x)) => {
                if !(x > 0.0 && x < 1.0) {
                    return Err(ConfigError::Fraction(x));
                }
                // A caller that keeps the fraction x of its throughput may wait for the share 1 - x of its
                // round trip R + d, where d is the delay: d = R (1 - x) / x.
                let share = ((1.0 - x) / x).min(1.0);
                let manner = Manner {
                    // Trials are noisy, so the margin for splitting replies stays a little below the
                    // permitted loss of throughput.
                    parts_gain: Some(0.8 * share),
                    ..manner(PARTS_CHEAP, false)
                };
                (Box::new(Auto::new(knee(share, bounds)?)), manner)
            }
            Self::MinCpu(Concession::AddedLatency(d)) => (
                Box::new(Auto::new(knee(0.03, bounds)?).waiting(d)),
                manner(PARTS_CHEAP, false),
            ),
            Self::Latency => (Box::new(Greedy.controller()), manner(PARTS, true)),
            Self::Fixed(d) => (Box::new(Spaced::new(d)), manner(1, false)),
            Self::RueidisStats(d) => (Box::new(RueidisStats::new(d)), manner(1, false)),
            Self::Off => (Box::new(Greedy.controller()), manner(1, false)),
            Self::Custom(c) => (c, manner(PARTS, true)),
        };
        let boundary = Boundary::new(controller, bounds);
        let boundary = boundary.map_err(|_| ConfigError::ZeroBound("commands_max"))?;
        Ok(Plan { boundary, manner })
    }
}

fn knee(share: f64, bounds: Bounds) -> Result<Knee, ConfigError> {
    Knee::new(Objective::Inflation(share), bounds)
        .map_err(|_| ConfigError::ZeroBound("commands_max"))
}
