//! Parses and prints controllers by name, for command lines and configuration.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{
    Aimd, Bounded, Bounds, BoundsError, Controller, Exponential, Fixed, Greedy, Knee, KneeError,
    Objective, RueidisStats, StormAimd,
};

/// A controller and its options, as a value of `--controller`. A choice parses from and prints as one of
/// these texts:
///
/// | text | controller |
/// | --- | --- |
/// | `knee`, `knee:lean`, `knee:throughput` | [`Knee`], [anticipating](Knee::anticipating) |
/// | `knee:within=5%`, `knee:p99=20ms`, `knee:cost=1%`, `knee:inflation=3%` | [`Knee`] with that objective |
/// | `greedy`, `greedy:64` | [`Greedy`], the latter with up to 64 batches at once |
/// | `fixed:1000`, `fixed:1000,5ms` | [`Fixed`], the latter with a linger |
/// | `exponential`, `aimd:64`, `storm-aimd:1000`, `rueidis-stats:100us` | the historical rules |
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Choice {
    /// The default controller, [`Knee`], with this objective.
    Knee(Objective),
    /// The rule [`Greedy`]: each batch takes the whole backlog.
    Greedy {
        /// The greatest number of batches that the controller runs at once, within the bounds; 0 counts as 1.
        in_flight: u32,
    },
    /// The rule [`Fixed`]: batches up to a constant limit, one at a time. A batch below the limit may wait
    /// for company.
    Fixed {
        /// The greatest number of items of a batch under this rule.
        limit: u64,
        /// The time that a batch below the limit waits for company, at most [`Bounds::age_max`]; with 0 it
        /// never waits.
        linger: Duration,
    },
    /// gen_batch_server's rule of doubling and halving, [`Exponential`].
    Exponential,
    /// gen_batch_server's rule of additive growth, [`Aimd`].
    Aimd {
        /// The number of items by which the limit grows after each full batch.
        step: u64,
    },
    /// Storm's rule for the buffer of a producer, [`StormAimd`].
    StormAimd {
        /// The largest limit that the rule may reach, in items of a batch.
        ceiling: u64,
    },
    /// The rule [`RueidisStats`] of the Redis client rueidis: a delay computed from statistics of earlier
    /// flushes.
    RueidisStats {
        /// The longest time by which the rule delays a flush.
        max_delay: Duration,
    },
}

impl Choice {
    /// The default controller, [`Knee`], with the default objective.
    pub const KNEE: Self = Self::Knee(Objective::Lean);

    /// The rule [`Greedy`] with one batch at a time.
    pub const GREEDY: Self = Self::Greedy { in_flight: 1 };

    /// Every form in which text can name a controller, for error messages.
    pub const FORMS: &'static str = "knee, knee:throughput, knee:within=5%, knee:p99=20ms, knee:cost=1%, \
         knee:inflation=3%, greedy, greedy:64, fixed:1000, fixed:1000,5ms, exponential, aimd:64, \
         storm-aimd:1000 or rueidis-stats:100us";

    /// Builds the controller within `bounds`. A rule with bounds of its own takes them from `bounds`, too.
    ///
    /// # Errors
    /// Bounds that no batch can satisfy, or an objective outside its range.
    pub fn build(self, bounds: Bounds) -> Result<Box<dyn Controller>, ChoiceError> {
        fn boxed<C: Controller + 'static>(
            c: C,
            bounds: Bounds,
        ) -> Result<Box<dyn Controller>, ChoiceError> {
            Ok(Box::new(Bounded::new(c, bounds)?))
        }
        bounds.check()?;
        let (min, max) = (bounds.items_min, bounds.items_max);
        match self {
            // `Knee` may anticipate at any boundary: if the driver reports no arrivals, the controller
            // expects none and never waits for callers.
            Self::Knee(objective) => boxed(Knee::new(objective, bounds)?.anticipating(), bounds),
            Self::Greedy { in_flight } => boxed(Greedy.with_in_flight(in_flight), bounds),
            Self::Fixed { limit: 0, .. } => Err(ChoiceError::Bounds(BoundsError::ZeroItems)),
            Self::Fixed { limit, linger } => {
                boxed(Fixed::new(limit).with_linger(linger).controller(), bounds)
            }
            Self::Exponential => boxed(Exponential::between(min, max).controller(), bounds),
            Self::Aimd { step } => boxed(Aimd::between(step, min, max).controller(), bounds),
            Self::StormAimd { ceiling } => {
                boxed(StormAimd::new(ceiling.min(max)).controller(), bounds)
            }
            Self::RueidisStats { max_delay } => boxed(RueidisStats::new(max_delay), bounds),
        }
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self::KNEE
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Knee(Objective::Lean) => f.write_str("knee"),
            Self::Knee(Objective::LatencyP99(within)) => write!(f, "knee:p99={}", Span(*within)),
            Self::Knee(objective) => write!(f, "knee:{objective}"),
            Self::Greedy { in_flight: 0 | 1 } => f.write_str("greedy"),
            Self::Greedy { in_flight } => write!(f, "greedy:{in_flight}"),
            Self::Fixed {
                limit,
                linger: Duration::ZERO,
            } => write!(f, "fixed:{limit}"),
            Self::Fixed { limit, linger } => write!(f, "fixed:{limit},{}", Span(*linger)),
            Self::Exponential => f.write_str("exponential"),
            Self::Aimd { step } => write!(f, "aimd:{step}"),
            Self::StormAimd { ceiling } => write!(f, "storm-aimd:{ceiling}"),
            Self::RueidisStats { max_delay } => write!(f, "rueidis-stats:{}", Span(*max_delay)),
        }
    }
}

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let (name, options) = text
            .split_once(':')
            .map_or((text, None), |(n, o)| (n, Some(o)));
        let needs = |form| ChoiceError::Option {
            text: text.into(),
            form,
        };
        match (name, options) {
            ("knee", o) => Ok(Self::Knee(objective(text, o.unwrap_or("lean"))?)),
            ("greedy", None) => Ok(Self::GREEDY),
            ("greedy", Some(o)) => {
                let in_flight = o.parse().ok().filter(|&batches: &u32| batches > 0);
                let form = "greedy or greedy:BATCHES, the most at once, such as greedy:64";
                Ok(Self::Greedy {
                    in_flight: in_flight.ok_or_else(|| needs(form))?,
                })
            }
            ("exponential", None) => Ok(Self::Exponential),
            ("fixed", o) => {
                let form = "fixed:LIMIT or fixed:LIMIT,LINGER, such as fixed:1000,5ms";
                let o = o.ok_or_else(|| needs(form))?;
                let (limit, linger) = o.split_once(',').map_or((o, None), |(l, d)| (l, Some(d)));
                let linger = linger
                    .map_or(Some(Duration::ZERO), span)
                    .ok_or_else(|| needs(form))?;
                Ok(Self::Fixed {
                    limit: positive(limit).ok_or_else(|| needs(form))?,
                    linger,
                })
            }
            ("aimd", o) => {
                let step = o
                    .and_then(positive)
                    .ok_or_else(|| needs("aimd:STEP, such as aimd:64"))?;
                Ok(Self::Aimd { step })
            }
            ("storm-aimd", o) => {
                let form = "storm-aimd:CEILING, such as storm-aimd:1000";
                Ok(Self::StormAimd {
                    ceiling: o.and_then(positive).ok_or_else(|| needs(form))?,
                })
            }
            ("rueidis-stats", o) => {
                let form = "rueidis-stats:MAX_DELAY, such as rueidis-stats:100us";
                Ok(Self::RueidisStats {
                    max_delay: o.and_then(span).ok_or_else(|| needs(form))?,
                })
            }
            _ => Err(ChoiceError::Unknown { text: text.into() }),
        }
    }
}

fn objective(text: &str, option: &str) -> Result<Objective, ChoiceError> {
    let parsed = match option.split_once('=').map_or((option, ""), |(n, v)| (n, v)) {
        ("lean", "") => Some(Objective::Lean),
        ("throughput", "") => Some(Objective::Throughput),
        ("within", v) => share(v).map(Objective::Within),
        ("p99", v) => span(v).map(Objective::LatencyP99),
        ("cost", v) => share(v).map(Objective::CostBudget),
        ("inflation", v) => share(v).map(Objective::Inflation),
        _ => None,
    };
    let form =
        "knee:OBJECTIVE, one of lean, throughput, within=5%, p99=20ms, cost=1%, inflation=3%";
    let o = parsed.ok_or_else(|| ChoiceError::Option {
        text: text.into(),
        form,
    })?;
    o.check().map_err(KneeError::Objective)?;
    Ok(o)
}

fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|&n| n > 0)
}

/// Parses a share such as `5%` or `0.05` in the option of a controller; returns `None` for any other text.
fn share(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|p| p / 100.0),
        None => text.parse().ok(),
    }
}

/// Parses a duration such as `20ms`, `100us`, `1.5s` or `300ns` in the option of a controller; returns `None`
/// for any other text.
fn span(text: &str) -> Option<Duration> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(u, s)| Some((text.strip_suffix(u)?, s)))?;
    let seconds = number.parse::<f64>().ok().filter(|n| *n >= 0.0)? * unit;
    Duration::try_from_secs_f64(seconds).ok()
}

struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = crate::nanos(self.0);
        match ns {
            0 => f.write_str("0s"),
            n if n % 1_000_000_000 == 0 => write!(f, "{}s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
            n => write!(f, "{n}ns"),
        }
    }
}

/// The error of a text or of bounds from which no controller can be built.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChoiceError {
    /// No controller has the name that the text begins with.
    Unknown {
        /// The text that the user gave for the controller.
        text: String,
    },
    /// An option of the controller is missing or cannot be parsed.
    Option {
        /// The text that the user gave for the controller.
        text: String,
        /// The form that the option of this controller must have.
        form: &'static str,
    },
    /// No batch can satisfy the bounds given.
    Bounds(BoundsError),
    /// The default controller [`Knee`] rejects its objective or its bounds.
    Knee(KneeError),
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { text } => write!(
                f,
                "unknown controller `{text}`: give one of {}",
                Choice::FORMS
            ),
            Self::Option { text, form } => write!(f, "controller `{text}`: expected {form}"),
            Self::Bounds(e) => e.fmt(f),
            Self::Knee(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ChoiceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bounds(e) => Some(e),
            Self::Knee(e) => Some(e),
            Self::Unknown { .. } | Self::Option { .. } => None,
        }
    }
}

impl From<BoundsError> for ChoiceError {
    fn from(e: BoundsError) -> Self {
        Self::Bounds(e)
    }
}

impl From<KneeError> for ChoiceError {
    fn from(e: KneeError) -> Self {
        Self::Knee(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_prints_as_it_parses() {
        for text in [
            "knee",
            "knee:throughput",
            "knee:within=5%",
            "knee:p99=20ms",
            "knee:p99=300us",
            "knee:cost=1%",
            "knee:inflation=3%",
            "greedy",
            "greedy:64",
            "fixed:1000",
            "fixed:1000,5ms",
            "exponential",
            "aimd:64",
            "storm-aimd:1000",
            "rueidis-stats:100us",
        ] {
            let choice: Choice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            assert!(choice.build(Bounds::default()).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_unavailable_choice_names_the_available_ones() {
        let says = |text: &str, part: &str| {
            let e = text.parse::<Choice>().unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        };
        says("clever", "storm-aimd:1000");
        says("aimd", "aimd:64");
        says("aimd:0", "aimd:64");
        says("greedy:0", "greedy:64");
        says("greedy:many", "greedy:64");
        says("fixed:10,soon", "fixed:1000,5ms");
        says("knee:p99=0ms", "above 0");
        says("knee:within=500%", "at most 50 %");
        says("knee:inflation=NaN", "at most 100 %");
        says("knee:fast", "throughput");
        let e = Choice::Exponential
            .build(Bounds::items(10, 5))
            .map(|_| ())
            .unwrap_err();
        assert!(e.to_string().contains("above the ceiling"), "{e}");
        assert!(std::error::Error::source(&e).is_some());
    }
}
