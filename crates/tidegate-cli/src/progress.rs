//! Shows a progress line on the terminal, for commands that take more than two seconds.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::face;

/// The time after its start for which a command shows no progress, because most commands end earlier.
const QUIET: Duration = Duration::from_secs(2);
/// The least interval between two updates of the progress line, so that the updates cost little.
const DRAWN: Duration = Duration::from_millis(100);

/// The progress line of a command that counts something. The drop removes the line from the terminal.
pub(crate) struct Progress {
    what: &'static str,
    start: Instant,
    drawn: Instant,
    /// The bar that shows the line on the terminal; `None` before the first update.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts to measure the time. `what` names the counted things in the plural, for the text of the line.
    pub(crate) fn start(what: &'static str) -> Self {
        let start = Instant::now();
        Self {
            what,
            start,
            drawn: start,
            bar: None,
        }
    }

    /// Shows `count` on the progress line, if the last update is at least 100 ms ago.
    pub(crate) fn show(&mut self, count: u64) {
        let now = Instant::now();
        if now - self.start < QUIET || now - self.drawn < DRAWN {
            return;
        }
        self.drawn = now;
        let bar = self.bar.get_or_insert_with(|| {
            // The template of the progress line is a constant and valid, so the fallback never applies.
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
