//! Samples the server's boundaries once a second while a reader looks, for all readers together.
//!
//! The [`Sampler`] decides; this module has its clock, asks the event loop, and runs the task that goes on
//! between the requests. Without a reader no task runs, and the event loop is not asked.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use tidegate::Time;
use tidegate_monitor::{EVERY, SAMPLES_MAX, Sampler};
use tokio::sync::Mutex;

use super::json::Process;
use super::overview::{Overview, Sample};
use super::{REPORT_TIMEOUT, machine};
use crate::event_loop::handle::{Busy, Handle};
use crate::event_loop::report::query::{List, Query};
use crate::event_loop::report::server::rfc3339;

/// The shortest sleep of the task between two samples, so that it never spins.
const SLEEP_MIN: Duration = Duration::from_millis(10);

/// The figures that a reader of the samples wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Boundaries,
    Overview,
}

impl Wanted {
    /// Returns the figures at this path of the monitor; `None` for a path without samples.
    pub(super) fn at(path: &str) -> Option<Self> {
        match path {
            "/boundaries" => Some(Self::Boundaries),
            "/overview" => Some(Self::Overview),
            _ => None,
        }
    }
}

/// The samples of a server, which all requests share.
#[derive(Clone)]
pub(super) struct Sampling {
    handle: Handle,
    /// True if readers with the token may read messages, so that the page offers it.
    shows_messages: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    sampler: Sampler,
    overview: Overview,
    /// The event loop's time at a moment of this process, from which the sampler's time goes on; `None`
    /// before the first answer of the loop.
    base: Option<(Time, Instant)>,
    /// True while a task takes the samples between requests.
    is_running: bool,
}

impl State {
    fn now(&self) -> Time {
        self.base.map_or(Time::ZERO, |(at, since)| {
            at.after(tidegate::nanos(since.elapsed()))
        })
    }

    /// Records a sample if one is due. Returns `None` if the event loop does not answer in time.
    async fn sample(&mut self, handle: &Handle) -> Option<()> {
        if !self.sampler.is_due(self.now()) {
            return Some(());
        }
        let (at, observed) = ask(|to| handle.observe(to)).await?;
        let report = ask(|to| handle.report(Query::new(List::Nothing), to)).await?;
        self.base.get_or_insert_with(|| (at, Instant::now()));
        let now = self.now();
        let directory = report.streams.as_ref().map(|s| &s.settings.directory);
        let disk = directory.and_then(|path| machine::disk(path));
        let memory = Process::now().memory_bytes;
        let sample = Sample::new(now, &report, memory, disk, machine::threads());
        self.sampler.record(now, observed);
        self.overview.record(sample, report);
        Some(())
    }
}

/// Waits for the event loop's answer to `send`, without blocking the other readers; `None` if the loop does
/// not answer in time.
pub(super) async fn ask<T: Send + 'static>(
    send: impl FnOnce(SyncSender<T>) -> Result<(), Busy>,
) -> Option<T> {
    let (sender, receiver) = sync_channel(1);
    send(sender).ok()?;
    let waiting = tokio::task::spawn_blocking(move || receiver.recv_timeout(REPORT_TIMEOUT));
    waiting.await.ok()?.ok()
}

impl Sampling {
    pub(super) fn new(handle: Handle, shows_messages: bool) -> Self {
        Self {
            handle,
            shows_messages,
            state: Arc::default(),
        }
    }

    /// Returns the figures that the reader wants as JSON, with the history of the newest `history_s` seconds
    /// if the reader wants it; `None` if the event loop does not answer in time.
    pub(super) async fn answer(&self, wanted: Wanted, history_s: Option<u64>) -> Option<Vec<u8>> {
        let mut state = self.state.lock().await;
        state.sample(&self.handle).await?;
        let now = state.now();
        state.sampler.ask(now);
        if !std::mem::replace(&mut state.is_running, true) {
            tokio::spawn(go_on(self.clone()));
        }
        let wall = rfc3339(SystemTime::now());
        let mut text = match wanted {
            Wanted::Boundaries => {
                serde_json::to_vec(&state.sampler.boundaries(now, &wall, history_s)).ok()?
            }
            Wanted::Overview => {
                let mut all = state.overview.json(now, &wall, history_s);
                all["cores"] = machine::cores().into();
                all["shows_messages"] = self.shows_messages.into();
                all.to_string().into()
            }
        };
        text.push(b'\n');
        Some(text)
    }
}

/// Takes a sample each second until no reader looks any more.
async fn go_on(sampling: Sampling) {
    let mut wait = EVERY;
    loop {
        tokio::time::sleep(wait).await;
        let mut state = sampling.state.lock().await;
        if !state.sampler.is_watched(state.now()) {
            state.is_running = false;
            return;
        }
        // The event loop may be too busy to answer. The task then asks again after a while.
        let taken = state.sample(&sampling.handle).await;
        let left = state.sampler.due_at().since(state.now());
        wait = match taken {
            Some(()) => Duration::from_nanos(left).max(SLEEP_MIN),
            None => EVERY,
        };
    }
}

/// Reads the parameter `history` of a request: a number of seconds.
///
/// # Errors
/// The value is not a number, or the sampler keeps no samples of that age.
pub(super) fn history(text: &str) -> Result<Option<u64>, String> {
    let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let Some((_, value)) = pairs.find(|(key, _)| *key == "history") else {
        return Ok(None);
    };
    let seconds = value.parse().ok();
    let known = seconds.filter(|s| (1..=SAMPLES_MAX as u64).contains(s));
    let error = || format!("history: expected a number of seconds from 1 to {SAMPLES_MAX}");
    known.map(Some).ok_or_else(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_bounded() {
        assert_eq!(history(""), Ok(None));
        assert_eq!(history("x=1&history=600"), Ok(Some(600)));
        for wrong in [
            "0",
            "601",
            "-1",
            "",
            "1.5",
            "%31",
            "99999999999999999999999",
        ] {
            assert!(history(&format!("history={wrong}")).is_err(), "{wrong}");
        }
    }
}
