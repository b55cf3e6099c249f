//! Runs interleaved rounds: in each round, every contestant of a cell runs once. A ratio compares two runs of
//! one round, which are close in time, so a disturbance of the machine affects both. The bench then takes the
//! median of the ratios over the rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use tidegate_cli::report::Row;

/// The figures of one measurement of one system, from which the bench makes a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) mean_us: Option<f64>,
    pub(crate) batches: Option<f64>,
    pub(crate) batch_mean: Option<f64>,
    pub(crate) batch_max: Option<f64>,
    pub(crate) cpu_s: Option<f64>,
    pub(crate) allocs: Option<f64>,
    pub(crate) rss_mb: Option<f64>,
    /// Further figures of the measurement, by their names, for the row's extra keys.
    pub(crate) extra: BTreeMap<String, f64>,
}

/// The reason for a missing measurement, which the row shows as a note.
pub(crate) type Failure = String;

/// Measures a contestant once. The context `C` is the state that contestants share.
pub(crate) type Measure<'a, C> = Box<dyn FnMut(&mut C) -> Result<Sample, Failure> + 'a>;

/// A contestant of a cell: a system with one setting, and the function that measures it.
pub(crate) struct Contestant<'a, C> {
    pub(crate) system: String,
    pub(crate) version: Option<String>,
    pub(crate) controller: Option<String>,
    /// True for the system that the bench compares with the others: the other rows show its ratios to them.
    pub(crate) subject: bool,
    pub(crate) run: Measure<'a, C>,
}

/// Runs `rounds` rounds of a cell. A contestant that fails does not run again, and its row has the reason as
/// a note. If `stop` returns true, the rounds end early, and the rows have fewer rounds.
pub(crate) fn play<C>(
    case: &str,
    contestants: &mut [Contestant<'_, C>],
    context: &mut C,
    rounds: usize,
    stop: impl Fn() -> bool,
) -> Vec<Row> {
    let mut seen: Vec<Result<Vec<Sample>, Failure>> =
        contestants.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..rounds {
        for turn in 0..contestants.len() {
            // The order rotates from round to round, so that no contestant always runs after the same other
            // contestant.
            let who = (turn + round) % contestants.len();
            if stop() {
                break;
            }
            if let Ok(samples) = &mut seen[who] {
                match (contestants[who].run)(context) {
                    Ok(sample) => samples.push(sample),
                    Err(failure) => seen[who] = Err(failure),
                }
            }
        }
    }
    let mut rows: Vec<_> = contestants
        .iter()
        .zip(&seen)
        .map(|(who, seen)| row(case, who, seen))
        .collect();
    for subject in (0..rows.len()).filter(|&who| contestants[who].subject) {
        add_ratios(&mut rows, &seen, subject);
    }
    rows
}

fn row<C>(case: &str, who: &Contestant<'_, C>, seen: &Result<Vec<Sample>, Failure>) -> Row {
    let mut row = Row {
        system: who.system.clone(),
        version: who.version.clone(),
        case: case.into(),
        controller: who.controller.clone(),
        ..Row::default()
    };
    let samples = match seen {
        Ok(samples) => samples,
        Err(failure) => {
            row.extra.insert("note".into(), json!(failure));
            return row;
        }
    };
    let mid =
        |field: fn(&Sample) -> Option<f64>| median(samples.iter().filter_map(field).collect());
    let most =
        |field: fn(&Sample) -> Option<f64>| samples.iter().filter_map(field).reduce(f64::max);
    let ops = || {
        samples
            .iter()
            .map(|sample| sample.ops_per_s)
            .collect::<Vec<_>>()
    };
    row.ops_per_s = median(ops());
    row.q1 = quantile(ops(), 0.25);
    row.q3 = quantile(ops(), 0.75);
    row.rounds = Some(samples.len() as u64);
    row.p50_us = mid(|sample| sample.p50_us);
    row.p99_us = mid(|sample| sample.p99_us);
    row.mean_us = mid(|sample| sample.mean_us);
    row.batches = mid(|sample| sample.batches);
    row.batch_mean = mid(|sample| sample.batch_mean);
    row.batch_max = most(|sample| sample.batch_max);
    row.cpu_s = mid(|sample| sample.cpu_s);
    row.allocs = mid(|sample| sample.allocs);
    row.rss_mb = most(|sample| sample.rss_mb);
    for key in samples.iter().flat_map(|sample| sample.extra.keys()) {
        let values = samples
            .iter()
            .filter_map(|sample| sample.extra.get(key).copied())
            .collect();
        if let Some(value) = median(values) {
            row.extra.insert(key.clone(), json!(value));
        }
    }
    row
}

/// A function that returns one figure of a sample, so that one loop can compare several figures.
type Field = fn(&Sample) -> Option<f64>;

/// Adds ratios to every row but the subject's: the subject's throughput divided by the row's. If both rows
/// have them, adds the ratios of mean latency, p99 latency and processor time of an operation.
fn add_ratios(rows: &mut [Row], seen: &[Result<Vec<Sample>, Failure>], subject: usize) {
    let fields: [(&str, Field); 5] = [
        ("ratio", |sample| Some(sample.ops_per_s)),
        ("mean_ratio", |sample| sample.mean_us),
        ("p99_ratio", |sample| sample.p99_us),
        ("cpu_ratio", |sample| {
            sample.extra.get("client_cpu_us").copied()
        }),
        ("server_cpu_ratio", |sample| {
            sample.extra.get("server_cpu_us").copied()
        }),
    ];
    let Ok(own) = &seen[subject] else { return };
    for (key, field) in fields {
        let mut ratios = serde_json::Map::new();
        for (other, theirs) in seen
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != subject)
        {
            let Ok(theirs) = theirs else { continue };
            let both = own
                .iter()
                .zip(theirs)
                .filter_map(|(own, theirs)| Some((field(own)?, field(theirs)?)));
            let by_round = both
                .filter(|(_, theirs)| *theirs > 0.0)
                .map(|(own, theirs)| own / theirs);
            if let Some(ratio) = median(by_round.collect()) {
                ratios.insert(rows[other].label(), json!(ratio));
            }
        }
        if !ratios.is_empty() {
            rows[subject]
                .extra
                .insert(key.into(), Value::Object(ratios));
        }
    }
}

/// Returns a measurement that lasts about `target`. The first call of the measurement finds the number of
/// items for that time, and warms up.
pub(crate) fn calibrated<'a, C>(
    target: Duration,
    mut run: impl FnMut(&mut C, u64) -> Result<Sample, Failure> + 'a,
) -> impl FnMut(&mut C) -> Result<Sample, Failure> + 'a {
    let mut items = None;
    move |context| {
        let items = match items {
            Some(items) => items,
            None => {
                let seconds = target.as_secs_f64();
                // The calibration has two steps: a run of a guessed number of items, then a run of a tenth of
                // the time.
                let guess = run(context, (1e6 * seconds) as u64 + 1)?;
                let better = run(context, (guess.ops_per_s * seconds / 10.0) as u64 + 1)?;
                *items.insert((better.ops_per_s * seconds) as u64 + 1)
            }
        };
        run(context, items)
    }
}

/// Returns the median, which is the middle value or the mean of the two middle values; `None` without values.
pub(crate) fn median(values: Vec<f64>) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the value below which the share `q` of the values lies, interpolated between two values.
pub(crate) fn quantile(mut values: Vec<f64>, q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = q * last as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// Returns the mean and the standard deviation of the values; `None` without values.
pub(crate) fn mean_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let square = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / values.len() as f64;
    Some((mean, square.sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contestant<'a>(
        system: &str,
        subject: bool,
        ops: Vec<f64>,
        order: usize,
    ) -> Contestant<'a, Vec<usize>> {
        let mut ops = ops.into_iter();
        Contestant {
            system: system.into(),
            version: None,
            controller: None,
            subject,
            run: Box::new(move |seen: &mut Vec<usize>| {
                seen.push(order);
                let ops_per_s = ops.next().ok_or("gone")?;
                Ok(Sample {
                    ops_per_s,
                    p99_us: Some(1.0),
                    ..Sample::default()
                })
            }),
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut seen = Vec::new();
        // The machine was ten times slower in the second round, which does not change the ratio.
        let mut both = [
            contestant("a", true, vec![20.0, 2.0, 30.0], 0),
            contestant("b", false, vec![10.0, 1.0, 15.0], 1),
        ];
        let rows = play("c", &mut both, &mut seen, 3, || false);
        assert_eq!(seen, [0, 1, 1, 0, 0, 1]);
        assert_eq!(rows[0].extra["ratio"], json!({"b": 2.0}));
        assert_eq!(rows[0].extra["p99_ratio"], json!({"b": 1.0}));
        assert!(!rows[0].extra.contains_key("mean_ratio"));
        assert_eq!(
            (rows[1].ops_per_s, rows[1].q1, rows[1].rounds),
            (Some(10.0), Some(5.5), Some(3))
        );
    }

    #[test]
    fn a_system_that_fails_is_not_asked_again() {
        let mut seen = Vec::new();
        let mut both = [
            contestant("a", true, vec![1.0; 3], 0),
            contestant("b", false, vec![1.0], 1),
        ];
        let rows = play("c", &mut both, &mut seen, 3, || false);
        assert_eq!(seen, [0, 1, 1, 0, 0]);
        assert_eq!(
            (rows[1].note(), rows[1].ops_per_s, rows[0].rounds),
            (Some("gone"), None, Some(3))
        );
    }

    #[test]
    fn quantiles() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(quantile(vec![1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), Some((2.0, 1.0)));
    }
}
