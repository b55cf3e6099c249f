//! Flush policies: which controller decides, and what the driver may do to serve it.
//!
//! Owns the choice and two controllers of its own: [`Auto`] (events first, then a price on waiting) and
//! [`Spaced`] (a fixed delay). The others are the engine's.

mod auto;
mod spaced;

use std::fmt;
use std::time::Duration;

use tidegate::boundary::Boundary;
use tidegate::controller::{Bounds, Controller, Greedy, Knee, Objective, RueidisStats};

use crate::error::ConfigError;

pub use auto::Auto;
pub use spaced::Spaced;

/// When queued commands are written. docs/redis.md says what each costs.
#[derive(Default)]
#[non_exhaustive]
pub enum Policy {
    /// Finds its own: a lone caller is never held up; callers that were just answered are waited for, by
    /// count; beyond that a flush waits at most for 3 % of the round trip. Replies are awaited without
    /// sleeping where callers come back at once.
    #[default]
    Auto,
    /// Gives up a little for the least CPU, here and in Redis. Never spins.
    MinCpu(Concession),
    /// Writes whatever is there, at once, in parts that keep both sides busy.
    Latency,
    /// At most one flush in this time, but for a lone caller.
    Fixed(Duration),
    /// A delay drawn from statistics of earlier flushes, at most this long.
    RueidisStats(Duration),
    /// Flushes whenever the queue is empty, and nothing else: natural batching.
    Off,
    /// A controller of one's own. [`Event::Ready`](tidegate::controller::Event::Ready) asks it for a
    /// decision.
    Custom(Box<dyn Controller>),
}

/// What [`Policy::MinCpu`] may give up.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Concession {
    /// No command waits longer than this for company.
    AddedLatency(Duration),
    /// At least this fraction of the best throughput is kept: 0.95 gives up 5 %.
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

/// How the driver serves a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Manner {
    /// Into how many parts what is in flight is split while the task sleeps between reads: replies of a burst
    /// are handed out part by part, each followed by a flush. 1: not at all.
    pub(crate) parts: u64,
    /// The fewest replies handed out at once while there are more.
    pub(crate) part_min: u64,
    /// It may look for replies without sleeping.
    pub(crate) spin: bool,
    /// Replies are handed out in parts only where that answers this part more commands.
    pub(crate) parts_gain: Option<f64>,
    /// It may pass short waits by yielding, and so end them on time.
    pub(crate) precise: bool,
    /// Callers run on other threads, too, and yielding is no way to let them run: it wakes a thread that
    /// looks for something to do, or has the system asked for events. The task looks for replies within its
    /// turn, and sleeps where it would yield for nothing.
    pub(crate) many_threads: bool,
}

impl Manner {
    /// For callers that are threads: waking one takes about as long as a small flush, so both sides are busy
    /// anyway, and flushes in parts are only more of them.
    pub(crate) const fn for_threads(self) -> Self {
        Self {
            parts: 1,
            many_threads: true,
            ..self
        }
    }
}

/// A policy made ready: its controller within the bounds, and how to serve it.
pub(crate) struct Plan {
    pub(crate) boundary: Boundary,
    pub(crate) manner: Manner,
}

/// Parts while the task sleeps: a wake-up takes some time, so more than two keep both sides busy.
const PARTS: u64 = 4;
/// The fewest that keep both sides busy: a part costs each side a system call or two.
const PARTS_CHEAP: u64 = 2;

/// Fewer commands in a flush cost more than keeping the other side busy gains.
const PART_MIN: u64 = 8;

/// The longest any policy may hold a command back.
const AGE_MAX: Duration = Duration::from_secs(1);

impl Policy {
    pub(crate) fn plan(self, commands_max: u64) -> Result<Plan, ConfigError> {
        let precise = !matches!(self, Self::MinCpu(_));
        // Throughput is to be kept where both sides' being busy is what makes it, with few callers.
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
                // Of R + d a round trip, the delay d may be the share 1 - x: d = R (1 - x) / x.
                let share = ((1.0 - x) / x).min(1.0);
                let manner = Manner {
                    // Trials are noisy: a little less than may be given up.
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
