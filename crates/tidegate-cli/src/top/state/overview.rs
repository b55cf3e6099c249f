//! Reads the answer to `/overview`, which a Tidegate server gives in place of several others: whether the
//! server is ready, its alarms, its streams and their directory, its threads, and its acknowledgements.

use serde_json::{Value, json};

use super::json::{at, flag, list, num, text};
use super::lists::{self, Directory};

/// The most threads and the most alarms that are read from one answer.
const THREADS_MAX: usize = 64;
const ALARMS_MAX: usize = 256;

/// The figures of one answer to `/overview`.
#[derive(Clone, Debug)]
pub(crate) struct Overview {
    body: Value,
}

/// The times from publishes to their acknowledgements in the last seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Acks {
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    /// The number of acknowledgements.
    pub(crate) count: f64,
}

impl Overview {
    /// Reads an answer; `None` if it has no figures, as before the server's first sample.
    pub(crate) fn read(mut body: Value) -> Option<Self> {
        text(&body, "server_id")?;
        // The views show the newest entry of the threads alone.
        if let Some(history) = body.get_mut("history").and_then(Value::as_object_mut) {
            history.retain(|name, _| name == "threads" || name == "span_ms");
        }
        Some(Self { body })
    }

    /// Returns whether the server is ready; an error says why it is not.
    pub(crate) fn health(&self) -> Result<(), String> {
        if flag(&self.body, "cluster.forming") {
            return Err("the cluster is not formed: its nodes have not all met".into());
        }
        match text(&self.body, "behind").filter(|why| !why.is_empty()) {
            Some(why) => Err(why.to_owned()),
            None => Ok(()),
        }
    }

    /// Returns the alarms of the server: whether one is critical, and its words.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = (bool, &str)> {
        let all = list(&self.body, "alarms").iter().take(ALARMS_MAX);
        all.filter_map(|alarm| {
            let critical = text(alarm, "level") == Some("critical");
            Some((critical, text(alarm, "text")?))
        })
    }

    /// Returns the counts of streams in the form of `/jsz`.
    pub(crate) fn storage(&self) -> Value {
        match at(&self.body, "streams") {
            Value::Object(_) => at(&self.body, "streams").clone(),
            _ => json!({ "disabled": true }),
        }
    }

    /// Returns the nodes that keep the directory of streams; `None` for a single server.
    pub(crate) fn directory(&self) -> Option<Directory> {
        lists::directory(&self.body)
    }

    /// Returns the times from publishes to their acknowledgements; `None` if there were none lately, or the
    /// server does not measure them.
    pub(crate) fn acks(&self) -> Option<Acks> {
        let of = |name: &str| num(&self.body, &format!("ack_ns.{name}"));
        Some(Acks {
            p50_ns: of("p50")?,
            p99_ns: of("p99")?,
            count: of("count")?,
        })
    }

    /// Returns whether the server measures the times from publishes to their acknowledgements.
    pub(crate) fn measures_acks(&self) -> bool {
        self.body.get("ack_ns").is_some()
    }

    /// Returns the bytes of the disk that are free, and all of them.
    pub(crate) fn disk(&self) -> Option<(f64, f64)> {
        let of = |name: &str| num(&self.body, name);
        of("disk.free_bytes").zip(of("disk.total_bytes"))
    }

    /// Returns the processor time of the threads since the last sample but one, in cores, by name, the
    /// busiest first.
    pub(crate) fn threads(&self) -> Vec<(String, f64)> {
        let last = |value: &Value| value.as_array()?.last()?.as_f64();
        let span_ns = last(at(&self.body, "history.span_ms")).filter(|ms| *ms > 0.0);
        let (Some(span_ns), Some(all)) = (
            span_ns.map(|ms| ms * 1e6),
            at(&self.body, "history.threads").as_object(),
        ) else {
            return Vec::new();
        };
        let one = |(name, series): (&String, &Value)| {
            let ns = last(series).filter(|ns| ns.is_finite())?;
            Some((name.clone(), ns / span_ns))
        };
        let mut threads: Vec<(String, f64)> =
            all.iter().take(THREADS_MAX).filter_map(one).collect();
        threads.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| a.cmp(b)));
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Overview {
        Overview::read(body).unwrap()
    }

    #[test]
    fn figures_of_an_answer() {
        assert!(Overview::read(json!({ "now": "x" })).is_none());
        let o = read(json!({
            "server_id": "A", "behind": null, "streams": { "streams": 2 },
            "ack_ns": { "p50": 5, "p99": 9, "count": 3 },
            "disk": { "free_bytes": 1, "total_bytes": 4 },
            "alarms": [{ "level": "warning", "text": "a" }, { "level": "critical", "text": "b" }, 7],
            "history": { "span_ms": [500, 1000], "threads": { "loop": [0, 5e8], "log": [0, 9e8], "x": [] } },
        }));
        assert_eq!(o.health(), Ok(()));
        let alarms: Vec<_> = o.alarms().collect();
        assert_eq!(alarms, [(false, "a"), (true, "b")]);
        assert_eq!(o.acks().map(|a| (a.p50_ns, a.count)), Some((5.0, 3.0)));
        assert_eq!((o.disk(), o.measures_acks()), (Some((1.0, 4.0)), true));
        let threads = [("log".to_owned(), 0.9), ("loop".to_owned(), 0.5)];
        assert_eq!(o.threads(), threads);
        assert_eq!(o.storage()["streams"], 2);
    }

    #[test]
    fn a_server_that_is_not_ready_says_why() {
        let o = read(json!({ "server_id": "A", "behind": "it waits", "streams": null }));
        assert_eq!(o.health(), Err("it waits".to_owned()));
        assert_eq!(
            (o.storage()["disabled"].clone(), o.acks()),
            (true.into(), None)
        );
        let o = read(json!({ "server_id": "A", "cluster": { "forming": true } }));
        assert!(o.health().is_err() && o.threads().is_empty());
    }
}
