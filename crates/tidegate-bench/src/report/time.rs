//! Estimates the time that is left of a report, from the durations of earlier runs, the finished steps and
//! the guesses of the plan. Pure.

/// The time of one step, as far as the report knows it, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Time {
    /// The plan's guess.
    Guessed(f64),
    /// The step took this long in an earlier run of the same length.
    Earlier(f64),
    /// The step took the second time in this run; the first is what the report expected.
    Done { expected_s: f64, took_s: f64 },
}

/// The bounds of the factor by which the finished steps correct the guesses.
const FACTOR: std::ops::RangeInclusive<f64> = 0.05..=20.0;

/// Returns the seconds until the end of all steps. The step at `running` has run for `elapsed_s` seconds. The
/// finished steps of this run correct the guesses about the others.
pub(super) fn left_s(times: &[Time], running: usize, elapsed_s: f64) -> f64 {
    let (mut expected, mut took) = (0.0, 0.0);
    for time in times {
        if let Time::Done { expected_s, took_s } = time {
            expected += expected_s;
            took += took_s;
        }
    }
    let factor = match expected > 0.0 {
        true => (took / expected).clamp(*FACTOR.start(), *FACTOR.end()),
        false => 1.0,
    };
    let left = times.iter().enumerate().map(|(at, time)| {
        let whole = match time {
            Time::Guessed(guess) => guess * factor,
            Time::Earlier(took) => *took,
            Time::Done { .. } => 0.0,
        };
        match at == running {
            true => (whole - elapsed_s).max(0.0),
            false => whole,
        }
    });
    left.sum()
}

/// Formats a duration in hours, minutes and seconds for the user.
pub(super) fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_steps_correct_the_guesses() {
        let none = [Time::Guessed(100.0), Time::Earlier(30.0)];
        assert_eq!(left_s(&none, 0, 0.0), 130.0);
        assert_eq!(left_s(&none, 0, 40.0), 90.0);
        // A step that takes longer than expected counts as about to end.
        assert_eq!(left_s(&none, 0, 400.0), 30.0);
        let done = Time::Done {
            expected_s: 100.0,
            took_s: 50.0,
        };
        assert_eq!(
            left_s(&[done, Time::Guessed(100.0), Time::Earlier(30.0)], 1, 10.0),
            70.0
        );
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(
            [0.9, 61.0, 7322.0].map(span),
            ["0 s", "1 min 1 s", "2 h 2 min"]
        );
    }
}
