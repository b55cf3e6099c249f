//! The objectives of a controller: the goal that a user sets in place of a batch size.

use std::fmt;
use std::time::Duration;

/// The goal of [`Knee`](super::Knee). Each objective but [`Objective::Lean`] and
/// [`Objective::Throughput`] names a price.
///
/// ```
/// use std::time::Duration;
/// use tidegate::controller::{Bounds, Knee, Objective};
///
/// // At most 5 ms for 99 of 100 items, at the least cost.
/// let knee = Knee::new(Objective::LatencyP99(Duration::from_millis(5)), Bounds::default());
/// assert!(knee.is_ok());
/// assert!(Objective::Within(1.5).check().is_err(), "expected a share below one");
/// assert_eq!(Objective::default(), Objective::Lean);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Objective {
    /// The smallest batches that lose next to nothing. The controller starts from a line through the costs:
    /// there at most 1/17 of a full batch is overhead. Where that limit cuts batches and a backlog stays,
    /// the controller tries other sizes, and the size with the highest measured throughput replaces it; a
    /// larger size must gain 3 % a doubling. Batches wait only for callers that are about to return.
    #[default]
    Lean,
    /// The controller makes batches as large as the bounds allow, unless larger batches were measured to be
    /// worse.
    Throughput,
    /// The smallest batches within this share, above 0 and up to 0.5, of the throughput at the hard bound:
    /// `Within(0.05)` gives up 5 %.
    Within(f64),
    /// The 99th percentile of latency, from an item's arrival to the end of its batch, stays below this time.
    /// If that is impossible, the controller reports it.
    LatencyP99(Duration),
    /// Flushing costs at most this share of one core, above 0 and up to 1: `CostBudget(0.01)` is 1 %.
    /// While flushing costs less, no flush waits. [`Bounds::age_max`](super::Bounds::age_max) takes
    /// precedence over the share: a flush goes before its items wait longer, and the controller
    /// reports the budget as infeasible.
    CostBudget(f64),
    /// A flush may wait as long as the wait adds at most this share, above 0 and up to 1, to the latency
    /// without waiting: `Inflation(0.03)` is 3 %.
    Inflation(f64),
}

impl Objective {
    /// Checks that a controller can pursue this objective.
    ///
    /// # Errors
    /// A share outside its range or a latency of zero. The error says which values are allowed.
    pub fn check(self) -> Result<(), ObjectiveError> {
        let (share, name, most) = match self {
            Self::Lean | Self::Throughput => return Ok(()),
            Self::LatencyP99(x) if x.is_zero() => return Err(ObjectiveError::ZeroLatency),
            Self::LatencyP99(_) => return Ok(()),
            Self::Within(x) => (x, "within", 0.5),
            Self::CostBudget(x) => (x, "cost budget", 1.0),
            Self::Inflation(x) => (x, "inflation", 1.0),
        };
        // A NaN makes the comparison false, so that the check refuses it as a share.
        if share > 0.0 && share <= most {
            Ok(())
        } else {
            Err(ObjectiveError::Share { name, share, most })
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lean => f.write_str("lean"),
            Self::Throughput => f.write_str("throughput"),
            Self::Within(x) => write!(f, "within={}%", x * 100.0),
            Self::LatencyP99(x) => write!(f, "p99={x:?}"),
            Self::CostBudget(x) => write!(f, "cost={}%", x * 100.0),
            Self::Inflation(x) => write!(f, "inflation={}%", x * 100.0),
        }
    }
}

/// The error of an objective that no controller can meet: a latency of zero, or a share outside its range.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ObjectiveError {
    /// The objective is a latency of zero.
    ZeroLatency,
    /// The share in the objective is out of range: it must be above 0 and at most `most`.
    Share {
        /// The name of the objective.
        name: &'static str,
        /// The share that the user gave.
        share: f64,
        /// The largest share that the user may give with this objective.
        most: f64,
    },
}

impl fmt::Display for ObjectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLatency => {
                f.write_str("a latency objective of zero: give a duration above 0, such as 20ms")
            }
            Self::Share { name, share, most } => write!(
                f,
                "the {name} objective is a share above 0 % and at most {} %, not {} %",
                most * 100.0,
                share * 100.0
            ),
        }
    }
}

impl std::error::Error for ObjectiveError {}
