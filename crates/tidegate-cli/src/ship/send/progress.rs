//! What is to be seen while sending: sent, acked, how long acks take, how fast it goes. On a terminal while
//! it runs, as one line when it is over.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

/// Blocks whose acks are timed at once; with more unacked, some are not.
const MARKS: usize = 4096;
/// The longest ack lag told apart.
const LAG_MAX_NS: u64 = 3_600_000_000_000;
/// Between two drawings.
const DRAWN: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Progress {
    start: Instant,
    bar: ProgressBar,
    /// Records the receiver had before.
    resumed: u64,
    state: Mutex<State>,
}

struct State {
    sent: u64,
    bytes: u64,
    acked: u64,
    /// Blocks sent and not acked: their last record, and when they were sent.
    marks: VecDeque<(u64, Instant)>,
    last_lag: Duration,
    lags: Histogram<u64>,
    drawn: Instant,
}

impl Progress {
    /// Of `bytes`, if that is known, after `resumed` records.
    pub(super) fn new(bytes: Option<u64>, resumed: u64) -> Self {
        let start = Instant::now();
        let (bar, template) = match bytes {
            Some(bytes) => (ProgressBar::new(bytes), "{bar:30} {msg}"),
            None => (ProgressBar::no_length(), "{spinner} {msg}"),
        };
        // A template of our own is always well formed.
        let style = ProgressStyle::with_template(template);
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let lags = Histogram::new_with_bounds(1, LAG_MAX_NS, 2);
        Self {
            start,
            bar,
            resumed,
            state: Mutex::new(State {
                sent: resumed,
                bytes: 0,
                acked: resumed,
                marks: VecDeque::new(),
                last_lag: Duration::ZERO,
                // The bounds are constants, and possible.
                lags: lags.unwrap_or_else(|_| unreachable!("possible bounds")),
                drawn: start,
            }),
        }
    }

    /// A block of `bytes`, up to record `last`, was handed to the client.
    pub(super) fn sent(&self, last: u64, bytes: u64) {
        let now = Instant::now();
        let mut state = self.lock();
        state.sent = last;
        state.bytes += bytes;
        if state.marks.len() < MARKS && last > state.acked {
            state.marks.push_back((last, now));
        }
        self.draw(&mut state, now);
    }

    /// Everything up to record `position` was acked.
    pub(super) fn acked(&self, position: u64) {
        let now = Instant::now();
        let mut state = self.lock();
        state.acked = position.max(state.acked);
        while let Some(&(last, sent)) = state.marks.front()
            && last <= position
        {
            state.marks.pop_front();
            state.last_lag = now - sent;
            let lag = u64::try_from(state.last_lag.as_nanos()).unwrap_or(u64::MAX);
            state.lags.saturating_record(lag.max(1));
        }
        self.draw(&mut state, now);
    }

    fn draw(&self, state: &mut State, now: Instant) {
        if self.bar.is_hidden() || now - state.drawn < DRAWN {
            return;
        }
        state.drawn = now;
        let seconds = (now - self.start).as_secs_f64().max(1e-3);
        self.bar.set_position(state.bytes);
        self.bar.set_message(format!(
            "{} sent, {} acked, ack lag {:.1} ms, {}/s, {}/s",
            HumanCount(state.sent),
            HumanCount(state.acked),
            state.last_lag.as_secs_f64() * 1e3,
            HumanCount(((state.acked - self.resumed) as f64 / seconds) as u64),
            HumanBytes((state.bytes as f64 / seconds) as u64),
        ));
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// The last line.
    pub(super) fn report(&self) {
        let state = self.lock();
        let seconds = self.start.elapsed().as_secs_f64().max(1e-3);
        let records = state.acked - self.resumed;
        let lag = |quantile| state.lags.value_at_quantile(quantile) as f64 / 1e6;
        eprintln!(
            "tidegate: sent and acknowledged {} records, {} in {seconds:.1} s: {}/s; ack lag p50 {:.1} ms, p99 {:.1} ms",
            HumanCount(records),
            HumanBytes(state.bytes),
            HumanCount((records as f64 / seconds) as u64),
            lag(0.5),
            lag(0.99),
        );
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
