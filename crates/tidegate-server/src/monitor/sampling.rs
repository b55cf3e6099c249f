//! Samples the server's boundaries once a second while a reader looks, for all readers together.
//!
//! The [`Sampler`] decides; this module has its clock, asks the event loop, and runs the task that goes on
//! between the requests. Without a reader no task runs, and the event loop is not asked.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use tidegate::Time;
use tidegate_monitor::{EVERY, SAMPLES_MAX, Sampler};
use tokio::sync::Mutex;

use super::REPORT_TIMEOUT;
use crate::event_loop::handle::Handle;
use crate::event_loop::report::server::rfc3339;

/// The samples of a server's boundaries, which all requests share.
#[derive(Clone)]
pub(super) struct Sampling {
    handle: Handle,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    sampler: Sampler,
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
        let (sender, receiver) = sync_channel(1);
        handle.observe(sender).ok()?;
        let waiting = tokio::task::spawn_blocking(move || receiver.recv_timeout(REPORT_TIMEOUT));
        let (at, observed) = waiting.await.ok()?.ok()?;
        self.base.get_or_insert_with(|| (at, Instant::now()));
        self.sampler.record(self.now(), observed);
        Some(())
    }
}

impl Sampling {
    pub(super) fn new(handle: Handle) -> Self {
        Self {
            handle,
            state: Arc::default(),
        }
    }

    /// Returns the answer to `/boundaries`, with the history of the newest `history_s` seconds if the reader
    /// wants it; `None` if the event loop does not answer in time.
    pub(super) async fn answer(&self, history_s: Option<u64>) -> Option<Vec<u8>> {
        let mut state = self.state.lock().await;
        state.sample(&self.handle).await?;
        let now = state.now();
        state.sampler.ask(now);
        if !std::mem::replace(&mut state.is_running, true) {
            tokio::spawn(go_on(self.clone()));
        }
        let all = state
            .sampler
            .boundaries(now, &rfc3339(SystemTime::now()), history_s);
        drop(state);
        let mut text = Vec::with_capacity(4096);
        all.serialize(&mut serde_json::Serializer::pretty(&mut text))
            .ok()?;
        text.push(b'\n');
        Some(text)
    }
}

/// Takes a sample each second until no reader looks any more.
async fn go_on(sampling: Sampling) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick ends at once, and the request has just taken a sample.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let mut state = sampling.state.lock().await;
        if !state.sampler.is_watched(state.now()) {
            state.is_running = false;
            return;
        }
        // The event loop may be too busy to answer; the next tick asks again.
        let _ = state.sample(&sampling.handle).await;
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
