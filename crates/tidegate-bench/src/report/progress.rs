//! Shows the progress of a report on standard error: one line on a terminal, and otherwise a line at each
//! start and end of a step.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::time::{Time, left_s, span};

/// The most characters of a bench's own words in the progress line.
const SAID_MAX: usize = 60;
/// The interval at which the terminal's line moves.
const TICK: Duration = Duration::from_millis(250);

/// The progress of a report through the steps that it measures.
pub(super) struct Progress {
    names: Vec<&'static str>,
    times: Vec<Time>,
    start: Instant,
    step: Instant,
    at: usize,
    said: String,
    /// The line on a terminal; `None` if standard error is no terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts with the steps to measure and their expected times.
    pub(super) fn start(steps: Vec<(&'static str, Time)>) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            // The template is a constant and valid, so the fallback never applies.
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
        });
        if let Some(bar) = &bar {
            bar.enable_steady_tick(TICK);
        }
        Self {
            names: steps.iter().map(|(name, _)| *name).collect(),
            times: steps.into_iter().map(|(_, time)| time).collect(),
            start: now,
            step: now,
            at: 0,
            said: String::new(),
            bar,
        }
    }

    /// Begins the step at this place.
    pub(super) fn begin(&mut self, at: usize) {
        (self.at, self.step) = (at, Instant::now());
        self.said.clear();
        match self.bar {
            Some(_) => self.show(""),
            None => eprintln!("tidegate-bench: {}", self.line()),
        }
    }

    /// Shows the words of the running bench; empty words leave the last ones.
    pub(super) fn show(&mut self, said: &str) {
        if !said.is_empty() {
            let said = said
                .trim_start_matches("tidegate-bench: ")
                .trim_start_matches("tidegate: ");
            self.said = said
                .chars()
                .filter(|c| !c.is_control())
                .take(SAID_MAX)
                .collect();
        }
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}  {}", self.line(), self.said));
        }
    }

    /// Ends the running step after this time, with a remark if it has no whole result.
    pub(super) fn end(&mut self, took_s: f64, failure: Option<&str>) {
        let name = self.names[self.at];
        let expected_s = match self.times[self.at] {
            Time::Guessed(s) | Time::Earlier(s) => s,
            Time::Done { expected_s, .. } => expected_s,
        };
        // A step that could not run says nothing about the durations of the others.
        if failure.is_none() {
            self.times[self.at] = Time::Done { expected_s, took_s };
        } else {
            self.times[self.at] = Time::Earlier(0.0);
        }
        let outcome = failure
            .map(|failure| format!(": {failure}"))
            .unwrap_or_default();
        let text = format!("tidegate-bench: {name}: {}{outcome}", span(took_s));
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    fn line(&self) -> String {
        let left = left_s(&self.times, self.at, self.step.elapsed().as_secs_f64());
        format!(
            "step {} of {}: {}, {} elapsed, about {} left",
            self.at + 1,
            self.names.len(),
            self.names[self.at],
            span(self.start.elapsed().as_secs_f64()),
            span(left)
        )
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
