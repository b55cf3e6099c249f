//! Flush policies: each selects a controller, and the manner in which the driver serves it.
//!
//! This module defines that choice and two controllers: [`Auto`] (events first, then a price on
//! waiting) and [`Spaced`] (a fixed delay). The engine defines the others.

mod auto;
mod spaced;

use std::fmt;
use std::time::Duration;

use tidegate::boundary::Boundary;
use tidegate::controller::{Bounds, Controller, Greedy, Knee, Objective, RueidisStats};

use crate::error::ConfigError;

pub use auto::Auto;
pub use spaced::Spaced;

/// The rule that decides when the client writes queued commands. docs/redis.md gives the cost of each.
#[derive(Default)]
#[non_exhaustive]
pub enum Policy {
    /// Adapts to the load. A lone caller never waits. A flush waits for the callers just answered, up to
    /// their number; beyond that it waits for at most 3 % of the round trip. The client looks for replies
    /// without sleeping if callers submit again at once.
    #[default]
    Auto,
    /// Gives up a little latency or throughput for the least CPU, in the client and in Redis. Never spins.
    MinCpu(Concession),
    /// Writes all queued commands at once, in parts that keep the client and Redis busy.
    Latency,
    /// Flushes at most once in this time, except for a lone caller.
    Fixed(Duration),
    /// Waits for a delay drawn from the statistics of earlier flushes, at most this long.
    RueidisStats(Duration),
    /// Flushes all queued commands as soon as the flush before is written, and never waits: natural batching.
    Off,
    /// A controller that the program supplies.
    /// [`Event::Ready`](tidegate::controller::Event::Ready) asks it for a decision.
    Custom(Box<dyn Controller>),
}

/// The cost that [`Policy::MinCpu`] may cause.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Concession {
    /// No command waits longer than this for company.
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

/// The manner in which the driver serves a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Manner {
    /// The number of parts into which the driver splits the replies to the commands in flight, while the task
    /// sleeps between reads. A flush follows each part. With 1 the driver does not split the replies.
    pub(crate) parts: u64,
    /// The fewest replies that the driver hands out at once while it has more.
    pub(crate) part_min: u64,
    /// True if the driver may look for replies without sleeping.
    pub(crate) spin: bool,
    /// The driver splits replies only if it then answers more commands, by at least this fraction.
    pub(crate) parts_gain: Option<f64>,
    /// True if the driver may spend short waits yielding, and so end them on time.
    pub(crate) precise: bool,
    /// True if callers also run on other threads. Yielding does not let them run: it wakes a thread that
    /// looks for work, or has the runtime poll the system for events. So the task looks for replies within
    /// its turn, and sleeps instead of yielding.
    pub(crate) many_threads: bool,
}

impl Manner {
    /// Adapts the manner to callers that are threads. Waking a thread takes about as long as a small flush,
    /// so both sides are busy anyway, and flushes in parts only add flushes.
    pub(crate) const fn for_threads(self) -> Self {
        Self {
            parts: 1,
            many_threads: true,
            ..self
        }
    }
}

/// A policy ready for use: its controller within the bounds, and the manner of serving it.
pub(crate) struct Plan {
    pub(crate) boundary: Boundary,
    pub(crate) manner: Manner,
}

/// The number of parts while the task sleeps. A wake-up takes some time, so two parts do not keep both sides
/// busy.
const PARTS: u64 = 4;
/// The fewest parts that keep both sides busy. A part costs each side a system call or two.
const PARTS_CHEAP: u64 = 2;

/// The least commands of a part. A smaller flush costs more than a busy server gains by getting it earlier.
const PART_MIN: u64 = 8;

/// The longest any policy may hold a command back.
const AGE_MAX: Duration = Duration::from_secs(1);

impl Policy {
    pub(crate) fn plan(self, commands_max: u64) -> Result<Plan, ConfigError> {
        let precise = !matches!(self, Self::MinCpu(_));
        // The other policies keep throughput, which with few callers depends on both sides
        // being busy, so they allow smaller parts.
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
                // The delay d may take the share 1 - x of a round trip R + d: d = R (1 - x) / x.
                let share = ((1.0 - x) / x).min(1.0);
                let manner = Manner {
                    // Trials are noisy, so the margin stays a little below the permitted loss.
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
