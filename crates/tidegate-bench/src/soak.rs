//! `tidegate-bench topology --soak`: compares the controller Knee with the best static batch size over a long
//! time. Each of them has a topology that lives through the whole run, and the two topologies run in turns of
//! one window, so that a disturbance of the machine affects both.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tidegate::controller::Choice;

use super::OURS;
use super::rounds::{Sample, mean_and_deviation, median, quantile};
use super::session::Session;
use super::text::Text;
use super::topology::{SIZES, Window, fixed, plan};
use tidegate_cli::interrupt;
use tidegate_cli::report::Row;
use tidegate_cli::topology::{self, Live};

/// The durations of a turn: the length of its window, and `settle`, the time for which a topology runs before
/// its window, and the time that it has to come to rest after the window.
struct Times {
    window: Duration,
    settle: Duration,
}

/// The figures of one window of one contestant, from which the bench makes its row.
struct Seen {
    sample: Sample,
    /// The smallest and the largest limit, in items, that the producers of the splitters had in the window.
    limits: Option<(u64, u64)>,
}

/// Runs Knee and the best static batch size, each for the duration `each`.
pub(super) fn run(session: &mut Session, text: &Text, each: Duration) -> anyhow::Result<()> {
    let smoke = session.is_smoke();
    let ms = Duration::from_millis;
    let times = if smoke {
        Times {
            window: ms(50),
            settle: ms(5),
        }
    } else {
        Times {
            window: ms(10_000),
            settle: ms(500),
        }
    };
    let windows = (each.as_secs_f64() / times.window.as_secs_f64())
        .ceil()
        .max(1.0) as usize;
    let windows = if smoke { windows.min(3) } else { windows };
    let case = format!(
        "soak of {} s, windows of {} s",
        each.as_secs(),
        times.window.as_secs_f64()
    );
    if !session.wants(&case) {
        return Ok(());
    }
    let best = best_size(text, &times, smoke)?;
    session.say(&format!("the best static size is {best}"));
    let choices = [Choice::KNEE, fixed(best)];
    let seen = turns(choices, text, windows, &times)?;
    // Knee learns in the first minute, so the bench leaves this minute out of the figures.
    let learning = if smoke { 1 } else { 6 };
    let rows = choices
        .iter()
        .zip(&seen)
        .map(|(choice, seen)| row(&case, *choice, seen, learning))
        .collect();
    session.keep(&case, rows)
}

/// Returns the static batch size with the most words a second. Each size runs alone for a while, and the
/// bench goes through all sizes several times, so that a disturbance does not decide.
fn best_size(text: &Text, times: &Times, smoke: bool) -> anyhow::Result<u64> {
    let mut found = SIZES.map(|size| (size, Vec::new()));
    for _ in 0..if smoke { 1 } else { 3 } {
        for (size, seen) in &mut found {
            let part = Times {
                window: times.window / 5,
                settle: times.settle,
            };
            let window = turns([fixed(*size)], text, 1, &part)?;
            seen.extend(window[0].iter().map(|window| window.sample.ops_per_s));
        }
    }
    let best = found
        .into_iter()
        .map(|(size, seen)| (size, median(seen).unwrap_or(0.0)));
    best.max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(size, _)| size)
        .context("no static size")
}

/// Runs a topology for each controller in `choices`, one topology at a time, in turns of one window.
fn turns<const N: usize>(
    choices: [Choice; N],
    text: &Text,
    windows: usize,
    times: &Times,
) -> anyhow::Result<[Vec<Seen>; N]> {
    let plans = choices.map(|choice| plan(choice, None));
    let lives = plans.map(|plan| Live::new(plan.split));
    let mut seen = [const { Vec::new() }; N];
    lives.iter().for_each(|live| live.pause(true));
    std::thread::scope(|scope| {
        let topologies: Vec<_> = plans
            .iter()
            .zip(&lives)
            .map(|(plan, live)| scope.spawn(move || topology::run(plan, &mut text.endless(), live)))
            .collect();
        for turn in 0..windows * N {
            if interrupt::asked() {
                break;
            }
            let live = &lives[turn % N];
            live.pause(false);
            std::thread::sleep(times.settle);
            let mut window = Window::start(live);
            window.pass(live, times.window);
            let sample = window.end(live);
            live.pause(true);
            seen[turn % N].push(Seen {
                sample,
                limits: live.take_limits(),
            });
            // This pause lets the topology handle its queued words before the next topology starts.
            std::thread::sleep(times.settle);
        }
        lives.iter().for_each(Live::stop);
        for topology in topologies {
            topology.join().ok().context("a topology panicked")??;
        }
        Ok(seen)
    })
}

fn row(case: &str, choice: Choice, seen: &[Seen], learning: usize) -> Row {
    let mut row = Row {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        case: case.into(),
        controller: Some(choice.to_string()),
        rounds: Some(seen.len() as u64),
        ..Row::default()
    };
    let all = |field: fn(&Sample) -> Option<f64>| -> Vec<f64> {
        seen.iter()
            .filter_map(|window| field(&window.sample))
            .collect()
    };
    let ops = || all(|sample| Some(sample.ops_per_s));
    row.ops_per_s = median(ops());
    row.q1 = quantile(ops(), 0.25);
    row.q3 = quantile(ops(), 0.75);
    row.mean_us = median(all(|sample| sample.mean_us));
    row.p50_us = median(all(|sample| sample.p50_us));
    row.p99_us = median(all(|sample| sample.p99_us));
    // The figures cover only the windows after the first minute, or all windows if the run was shorter.
    let late = if seen.len() > learning {
        &seen[learning..]
    } else {
        seen
    };
    let deviation = |field: fn(&Sample) -> Option<f64>| {
        let values: Vec<_> = late
            .iter()
            .filter_map(|window| field(&window.sample))
            .collect();
        mean_and_deviation(&values)
    };
    if let Some((mean, deviation)) = deviation(|sample| Some(sample.ops_per_s)) {
        row.extra
            .insert("ops_deviation".into(), json!(deviation / mean));
    }
    let mut note = String::new();
    if let Some((mean, deviation)) = deviation(|sample| sample.mean_us) {
        row.extra
            .insert("mean_us_deviation".into(), json!(deviation));
        note = format!("mean latency {mean:.1} us, deviation {deviation:.1} us");
    }
    let limits = late.iter().filter_map(|window| window.limits);
    if let Some((min, max)) = limits.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
        row.extra.insert("limit_min".into(), json!(min));
        row.extra.insert("limit_max".into(), json!(max));
        row.extra
            .insert("limit_grid_steps".into(), json!(grid_steps(min, max)));
        note += &format!(", limit {min}..{max} ({} grid steps)", grid_steps(min, max));
    }
    row.extra.insert("note".into(), json!(note));
    row
}

/// Returns the number of steps between two limits on Knee's grid of 2^e and 1.5 x 2^e, for the report.
fn grid_steps(min: u64, max: u64) -> u64 {
    // The grid of limits is 1, 2, 3, 4, 6, 8, 12, ..., so there is no step between 1 and 2.
    let place = |limit: u64| {
        let octave = limit.max(2).ilog2();
        let half = limit >= (1 << octave) + (1 << (octave - 1));
        2 * octave + u32::from(half) - u32::from(limit < 2)
    };
    u64::from(place(max).saturating_sub(place(min)))
}

#[cfg(test)]
mod tests {
    use super::grid_steps;

    #[test]
    fn half_octaves() {
        assert_eq!(
            [(96, 96), (96, 128), (64, 96), (64, 128), (100, 100), (1, 2)]
                .map(|(a, b)| grid_steps(a, b)),
            [0, 1, 1, 2, 0, 1]
        );
    }
}
