//! A progress line on the terminal, for commands that take more than two seconds.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::face;

/// A command shorter than this shows no progress.
const QUIET: Duration = Duration::from_secs(2);
/// The interval between two updates.
const DRAWN: Duration = Duration::from_millis(100);

/// The progress of a command that counts something; the line is gone when this is dropped.
pub(crate) struct Progress {
    what: &'static str,
    start: Instant,
    drawn: Instant,
    /// `None` before the first line.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts to measure. `what` follows the count, in the plural.
    pub(crate) fn start(what: &'static str) -> Self {
        let start = Instant::now();
        Self {
            what,
            start,
            drawn: start,
            bar: None,
        }
    }

    /// Shows the count, if it is time to.
    pub(crate) fn show(&mut self, count: u64) {
        let now = Instant::now();
        if now - self.start < QUIET || now - self.drawn < DRAWN {
            return;
        }
        self.drawn = now;
        let bar = self.bar.get_or_insert_with(|| {
            // The template is a constant and well formed.
            let style = ProgressStyle::with_template("{spinner} {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            face::bar(ProgressBar::no_length()).with_style(style)
        });
        let rate = count as f64 / (now - self.start).as_secs_f64();
        let (count, rate) = (HumanCount(count), HumanCount(rate as u64));
        bar.set_message(format!("{count} {}, {rate}/s", self.what));
        bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
