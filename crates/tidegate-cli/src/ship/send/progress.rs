//! Measures the progress of sending for the user: records sent and acked, the delay of acks, and the rate. A
//! terminal shows the progress as a bar; at the end the program prints it as one line.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::face;

/// The greatest number of blocks of records for which the program measures the delay of the ack at the same
/// time, to bound the memory. The program does not measure further blocks.
const MARKS: usize = 4096;
/// The longest delay of an ack that the histogram records, in nanoseconds: one hour.
const LAG_MAX_NS: u64 = 3_600_000_000_000;
/// The interval between two updates of the progress bar, so that the updates cost little.
const DRAWN: Duration = Duration::from_millis(100);

/// The progress of sending, which the program shows in the bar and in the line at the end.
pub(super) struct Progress {
    start: Instant,
    bar: ProgressBar,
    /// The number of records that the receiver had before this run, which the line at the end does not count.
    resumed: u64,
    state: Mutex<State>,
}

struct State {
    /// True while the source gives a block of records to the client, so that acks are still to come.
    sending: bool,
    sent: u64,
    bytes: u64,
    acked: u64,
    /// Blocks of records that are sent and not acked, to measure the delay of their acks: the number of each
    /// block's last record, and the time at which the source sent the block.
    marks: VecDeque<(u64, Instant)>,
    last_lag: Duration,
    lags: Histogram<u64>,
    drawn: Instant,
}

impl Progress {
    /// Starts the progress of an input of `bytes` bytes, if its length is known, after the `resumed` records
    /// that the receiver had before.
    pub(super) fn new(bytes: Option<u64>, resumed: u64) -> Self {
        let start = Instant::now();
        let (bar, template) = match bytes {
            Some(bytes) => (ProgressBar::new(bytes), "{bar:30} {msg}"),
            None => (ProgressBar::no_length(), "{spinner} {msg}"),
        };
        // The template of the progress bar is a constant and valid, so the fallback never applies.
        let style = ProgressStyle::with_template(template);
        let bar = face::bar(bar).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let lags = Histogram::new_with_bounds(1, LAG_MAX_NS, 2);
        Self {
            start,
            bar,
            resumed,
            state: Mutex::new(State {
                sending: false,
                sent: resumed,
                bytes: 0,
                acked: resumed,
                marks: VecDeque::new(),
                last_lag: Duration::ZERO,
                // The bounds of the histogram are constants and valid, so its creation does not fail.
                lags: lags.unwrap_or_else(|_| unreachable!("possible bounds")),
                drawn: start,
            }),
        }
    }

    /// Records that the source begins to give a block of records to the client, so that `awaits_acks` already
    /// counts the block.
    pub(super) fn begin(&self) {
        self.lock().sending = true;
    }

    /// Records that the source has given a block of `bytes` bytes to the client, up to record `last`.
    pub(super) fn sent(&self, last: u64, bytes: u64) {
        let now = Instant::now();
        let mut state = self.lock();
        state.sending = false;
        state.sent = last;
        state.bytes += bytes;
        if state.marks.len() < MARKS && last > state.acked {
            state.marks.push_back((last, now));
        }
        self.draw(&mut state, now);
    }

    /// Records that the receiver has acked all records up to `position`, and measures the delay of the acks.
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

    /// Returns whether the receiver still has to ack records, so that the sender must wait.
    pub(super) fn awaits_acks(&self) -> bool {
        let state = self.lock();
        state.sending || state.sent > state.acked
    }

    /// Returns the number of the last record that the source has given to the client.
    pub(super) fn given(&self) -> u64 {
        self.lock().sent
    }

    /// Returns the number of records that the receiver has acked in this run, for messages to the user.
    pub(super) fn acked_len(&self) -> u64 {
        self.lock().acked - self.resumed
    }

    /// Removes the progress bar from the terminal.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints the line with the results of sending for the user.
    pub(super) fn report(&self) {
        let state = self.lock();
        let seconds = self.start.elapsed().as_secs_f64().max(1e-3);
        let records = state.acked - self.resumed;
        let lag = |quantile| state.lags.value_at_quantile(quantile) as f64 / 1e6;
        face::note(format_args!(
            "sent and acknowledged {} records, {} in {seconds:.1} s: {}/s; ack lag p50 {:.1} ms, p99 {:.1} ms",
            HumanCount(records),
            HumanBytes(state.bytes),
            HumanCount((records as f64 / seconds) as u64),
            lag(0.5),
            lag(0.99),
        ));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
