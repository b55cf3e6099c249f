//! The general figures of the watched server, and their rates: the difference of two answers, divided by the
//! time between them.
//!
//! The time is the reader's, which no clock of the server can set back. After a restart the rates
//! start over.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use super::json::{count, flag, num, text};

/// The number of samples that each series keeps.
const SAMPLES: usize = 600;
/// The time for which the picture mentions an event, such as a restart.
pub(crate) const RECENT: Duration = Duration::from_secs(60);
/// The least time from which the picture foretells a full storage.
const FORETOLD_FROM: Duration = Duration::from_secs(30);

/// A figure that the server counts up, and of which the picture shows the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    InMsgs,
    OutMsgs,
    InBytes,
    OutBytes,
    Syncs,
    SyncNs,
    Commands,
    Requests,
    CpuSeconds,
}

impl Rate {
    const COUNT: usize = Self::PATHS.len();
    /// The members of `/varz` with the counts, in the order of the variants.
    const PATHS: [&str; 9] = [
        "in_msgs",
        "out_msgs",
        "in_bytes",
        "out_bytes",
        "log.syncs",
        "log.sync_ns",
        "log.commands",
        "jetstream.stats.api.total",
        "cpu_seconds",
    ];
}

/// Counts that should not rise: each rise is worth an alarm. The words follow the number.
const WORRIES: [(&str, &str); 5] = [
    (
        "slow_consumers",
        "clients read too slowly and were disconnected",
    ),
    (
        "stale_connections",
        "clients did not answer pings and were disconnected",
    ),
    ("auth_failures", "connections had wrong credentials"),
    (
        "loop.late",
        "times the event loop was late by 100 ms or more",
    ),
    (
        "log.requests_refused",
        "requests were refused for want of room",
    ),
];

/// A count that rose a short time ago.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rise {
    pub(crate) words: &'static str,
    pub(crate) by: u64,
    pub(crate) at: Duration,
}

/// The figures of `/varz`, with all that follows from several answers.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    body: Value,
    at: Duration,
    rates: [Option<f64>; Rate::COUNT],
    series: [VecDeque<f64>; Rate::COUNT],
    rises: [Option<Rise>; WORRIES.len()],
    restarted: Option<Duration>,
    /// The times before and after a step back of the server's clock, and the moment of the step.
    set_back: Option<(String, String, Duration)>,
    storage: VecDeque<(Duration, f64)>,
    /// The time between the last two answers, for which the rates stand.
    span: Option<Duration>,
}

impl Server {
    /// Takes in the first answer; `None` if the body is not that of a server of NATS clients.
    pub(crate) fn read(now: Duration, body: Value) -> Option<Self> {
        text(&body, "server_id")?;
        let mut server = Self {
            body,
            at: now,
            rates: [None; Rate::COUNT],
            series: std::array::from_fn(|_| VecDeque::new()),
            rises: std::array::from_fn(|_| None),
            restarted: None,
            set_back: None,
            storage: VecDeque::new(),
            span: None,
        };
        server.note_storage(now);
        Some(server)
    }

    /// Takes in a further answer. Returns false, and changes nothing, if the body is not that of a server.
    pub(crate) fn update(&mut self, now: Duration, body: Value) -> bool {
        let Some(mut next) = Self::read(now, body) else {
            return false;
        };
        let new = |path: &str| num(&next.body, path);
        let old = |path: &str| num(&self.body, path);
        let is_same = |path: &str| text(&self.body, path) == text(&next.body, path);
        let fell = Rate::PATHS.iter().any(|path| new(path) < old(path));
        let span = now.saturating_sub(self.at);
        if !is_same("server_id") || !is_same("start") || fell {
            next.series = std::mem::take(&mut self.series);
            next.restarted = Some(now);
            *self = next;
            return true;
        }
        for (at, path) in Rate::PATHS.iter().enumerate() {
            let difference = new(path).zip(old(path)).map(|(new, old)| new - old);
            next.rates[at] = difference
                .filter(|_| !span.is_zero())
                .map(|difference| difference / span.as_secs_f64());
        }
        for (at, (path, words)) in WORRIES.iter().enumerate() {
            let by = count(&next.body, path)
                .zip(count(&self.body, path))
                .and_then(|(new, old)| new.checked_sub(old).filter(|by| *by > 0));
            let recent = self.rises[at]
                .take()
                .filter(|rise| now.saturating_sub(rise.at) < RECENT);
            next.rises[at] = match (by, recent) {
                (Some(by), recent) => Some(Rise {
                    words,
                    by: by.saturating_add(recent.map_or(0, |rise| rise.by)),
                    at: now,
                }),
                (None, recent) => recent,
            };
        }
        next.set_back = match (seconds(&self.body), seconds(&next.body)) {
            (Some(old), Some(new)) if new < old => Some((old.to_owned(), new.to_owned(), now)),
            _ => self.set_back.take(),
        };
        next.span = Some(span);
        next.restarted = self.restarted;
        next.series = std::mem::take(&mut self.series);
        next.storage = std::mem::take(&mut self.storage);
        next.note_storage(now);
        for (series, rate) in next.series.iter_mut().zip(next.rates) {
            if series.len() == SAMPLES {
                series.pop_front();
            }
            series.extend(rate);
        }
        *self = next;
        true
    }

    fn note_storage(&mut self, now: Duration) {
        if self.storage.len() == SAMPLES {
            self.storage.pop_front();
        }
        let bytes = self.num("jetstream.stats.storage");
        self.storage.extend(bytes.map(|bytes| (now, bytes)));
    }

    /// Returns the whole answer.
    pub(crate) const fn body(&self) -> &Value {
        &self.body
    }

    /// Returns the number at `path` of the latest answer.
    pub(crate) fn num(&self, path: &str) -> Option<f64> {
        num(&self.body, path)
    }

    /// Returns the text at `path` of the latest answer, unless it is empty.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        text(&self.body, path).filter(|text| !text.is_empty())
    }

    /// Returns whether the member at `path` of the latest answer is true.
    pub(crate) fn flag(&self, path: &str) -> bool {
        flag(&self.body, path)
    }

    /// Returns the rate a second; `None` before the second answer, or if the server does not count this.
    pub(crate) const fn rate(&self, rate: Rate) -> Option<f64> {
        self.rates[rate as usize]
    }

    /// Returns the rates of the last answers, oldest first.
    pub(crate) const fn series(&self, rate: Rate) -> &VecDeque<f64> {
        &self.series[rate as usize]
    }

    /// Returns the time for which the rates stand.
    pub(crate) const fn span(&self) -> Option<Duration> {
        self.span
    }

    /// Returns the counts that should not rise and rose less than a minute ago.
    pub(crate) fn rises(&self, now: Duration) -> impl Iterator<Item = &Rise> {
        let recent = move |rise: &&Rise| now.saturating_sub(rise.at) < RECENT;
        self.rises.iter().flatten().filter(recent)
    }

    /// Returns the time of a restart less than a minute ago.
    pub(crate) fn restarted(&self, now: Duration) -> Option<Duration> {
        self.restarted.filter(|at| now.saturating_sub(*at) < RECENT)
    }

    /// Returns the server's times before and after its clock was set back, less than a minute ago.
    pub(crate) fn set_back(&self, now: Duration) -> Option<(&str, &str)> {
        let (old, new, at) = self.set_back.as_ref()?;
        (now.saturating_sub(*at) < RECENT).then_some((old, new))
    }

    /// Returns the bound on the bytes of streams in files, and the seconds until the streams reach it at the
    /// rate of the last minutes; `None` if there is no bound, or the streams do not grow.
    pub(crate) fn full_in(&self) -> Option<(f64, f64)> {
        let most = self
            .num("jetstream.config.max_storage")
            .filter(|most| *most > 0.0)?;
        let ((from, first), (to, last)) = self.storage.front().zip(self.storage.back())?;
        let span = to.saturating_sub(*from);
        let grown = last - first;
        if span < FORETOLD_FROM || grown <= 0.0 {
            return None;
        }
        let left = (most - last).max(0.0);
        Some((most, left / grown * span.as_secs_f64()))
    }
}

/// Returns the server's time up to its seconds. The order of such texts is the order of the times.
fn seconds(body: &Value) -> Option<&str> {
    let now = text(body, "now")?;
    let is_time = now.ends_with('Z') && now.is_ascii() && now.len() > 19;
    is_time.then(|| &now[..19])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn body(now: &str, msgs: u64, late: u64) -> Value {
        json!({ "server_id": "A", "start": "x", "now": now, "in_msgs": msgs, "loop": { "late": late } })
    }

    #[test]
    fn rates_are_differences() {
        assert!(Server::read(s(0), json!({ "status": "ok" })).is_none());
        let mut server = Server::read(s(0), body("2026-01-01T00:00:09.5Z", 100, 1)).unwrap();
        assert_eq!(server.rate(Rate::InMsgs), None);
        assert!(server.update(s(2), body("2026-01-01T00:00:11Z", 300, 1)));
        assert_eq!(server.rate(Rate::InMsgs), Some(100.0));
        assert_eq!(
            server.rate(Rate::Syncs),
            None,
            "the server has no such count"
        );
        assert_eq!(server.rises(s(2)).count(), 0);
        // No time between two answers gives no rate.
        assert!(server.update(s(2), body("2026-01-01T00:00:11Z", 400, 1)));
        assert_eq!(server.rate(Rate::InMsgs), None);
        assert!(!server.update(s(3), json!([])), "the old figures stay");
        assert_eq!(server.num("in_msgs"), Some(400.0));
        assert_eq!(server.series(Rate::InMsgs), &[100.0]);
    }

    #[test]
    fn a_rise_is_told_for_a_minute() {
        let mut server = Server::read(s(0), body("", 0, 1)).unwrap();
        server.update(s(1), body("", 0, 3));
        server.update(s(2), body("", 0, 4));
        let rise = server.rises(s(2)).next().unwrap();
        assert_eq!((rise.by, rise.at), (3, s(2)));
        assert_eq!(server.rises(s(62)).count(), 0);
    }

    #[test]
    fn after_a_restart_the_rates_start_over() {
        let mut server = Server::read(s(0), body("2026-01-01T00:00:09Z", 100, 9)).unwrap();
        server.update(s(1), body("2026-01-01T00:00:10Z", 7, 0));
        assert_eq!(server.restarted(s(1)), Some(s(1)));
        assert_eq!(server.rate(Rate::InMsgs), None);
        assert_eq!(server.rises(s(1)).count(), 0);
        server.update(s(2), body("2026-01-01T00:00:11Z", 9, 0));
        assert_eq!(server.rate(Rate::InMsgs), Some(2.0));
        assert_eq!(server.restarted(s(60)), Some(s(1)));
        assert_eq!(server.restarted(s(61)), None);
    }

    #[test]
    fn a_clock_set_back_leaves_the_rates() {
        let mut server = Server::read(s(0), body("2026-01-01T01:00:00.1Z", 0, 0)).unwrap();
        server.update(s(1), body("2026-01-01T00:30:00.9Z", 5, 0));
        assert_eq!(server.rate(Rate::InMsgs), Some(5.0));
        let times = ("2026-01-01T01:00:00", "2026-01-01T00:30:00");
        assert_eq!(server.set_back(s(1)), Some(times));
        server.update(s(2), body("2026-01-01T00:30:01.0Z", 5, 0));
        assert_eq!(server.set_back(s(2)), Some(times));
        assert_eq!(server.set_back(s(61)), None);
    }

    #[test]
    fn a_full_storage_is_foretold() {
        let with = |bytes: u64| {
            json!({ "server_id": "A", "jetstream": {
                "config": { "max_storage": 1000 }, "stats": { "storage": bytes } } })
        };
        let mut server = Server::read(s(0), with(100)).unwrap();
        server.update(s(29), with(200));
        assert_eq!(server.full_in(), None, "too short");
        server.update(s(50), with(200));
        assert_eq!(server.full_in(), Some((1000.0, 400.0)));
    }

    #[test]
    fn the_series_are_bounded() {
        let mut server = Server::read(s(0), body("", 0, 0)).unwrap();
        for n in 1..2000 {
            server.update(s(n), body("", n, 0));
        }
        assert_eq!(server.series(Rate::InMsgs).len(), SAMPLES);
    }
}
