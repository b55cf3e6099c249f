//! The present figures of a server, from two answers of its monitor. Pure.

use std::time::Duration;

use serde_json::Value;
use tidegate::sim::headroom::Syncs;

/// The present load of a server, and the costs by which its log decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    /// The costs of syncs as the log has fitted them.
    pub(super) syncs: Syncs,
    /// The standard errors of the fixed time of a sync and of the time of a byte, in nanoseconds.
    pub(super) errors_ns: (f64, f64),
    /// The rate of messages for which publishers wait, in messages a second, and the mean number of them in a
    /// sync; 0 if none came.
    pub(super) rate: f64,
    pub(super) batch: f64,
    /// The mean bytes of the log's syncs so far, up to which the fit rests on measurements.
    pub(super) batch_bytes: f64,
    /// The processor time of the whole server for each of these messages, in nanoseconds, and the cores of
    /// the machine.
    pub(super) cpu_ns: Option<f64>,
    pub(super) cores: f64,
    /// True if the server replicates its streams to other nodes.
    pub(super) clustered: bool,
}

/// The reason why the answers have no figures to predict from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Unknown {
    #[error("the server has no streams: it runs without them, or has not opened them yet")]
    NoStreams,
    #[error(
        "the log has no fit of its costs yet, after {syncs} syncs: publish at different rates for some seconds, for instance with `tidegate pub --lines FILE SUBJECT`, and ask again"
    )]
    NoFit { syncs: u64 },
    #[error("the monitor's answer lacks {0}: is the server as new as this program?")]
    Odd(&'static str),
}

impl Figures {
    /// Reads the figures from two answers of `/varz`, the second of which came `apart` later.
    pub(super) fn read(first: &Value, second: &Value, apart: Duration) -> Result<Self, Unknown> {
        let log = |answer: &Value| answer["batching"]["log_syncs"].clone();
        let (before, now) = (log(first), log(second));
        if now.is_null() || before.is_null() {
            return Err(Unknown::NoStreams);
        }
        let number = |key| {
            now[key]
                .as_f64()
                .ok_or(Unknown::Odd("a count of log_syncs"))
        };
        let (items, bytes, batches) = (number("items")?, number("bytes")?, number("batches")?);
        let since = |key: &str, now: f64| now - before[key].as_f64().unwrap_or(now);
        let (new_items, new_bytes) = (since("items", items), since("bytes", bytes));
        let new_batches = since("batches", batches);
        // A server that started again between the two answers counts from 0.
        let is_new = new_items > 0.0 && new_bytes > 0.0 && new_batches > 0.0;
        let costs = [
            "cost_fixed_ns",
            "cost_item_ns",
            "cost_fixed_err_ns",
            "cost_item_err_ns",
            "cost_noise",
        ];
        if now["cost_fixed_ns"].is_null() {
            let syncs = batches as u64;
            return Err(Unknown::NoFit { syncs });
        }
        let mut known = [0.0; 5];
        for (known, key) in known.iter_mut().zip(costs) {
            *known = now[key]
                .as_f64()
                .ok_or(Unknown::Odd("the costs of log_syncs"))?;
        }
        let [sync_ns, byte_ns, sync_err_ns, byte_err_ns, noise] = known;
        let message_bytes = match is_new {
            true => new_bytes / new_items,
            false => bytes / items.max(1.0),
        };
        let cpu = |answer: &Value| answer["cpu_seconds"].as_f64();
        let used = cpu(second)
            .zip(cpu(first))
            .map(|(now, before)| now - before);
        Ok(Self {
            syncs: Syncs {
                sync_ns,
                byte_ns,
                noise,
                message_bytes,
                bytes_max: tidegate_log::SYNC_BYTES_MAX,
            },
            errors_ns: (sync_err_ns, byte_err_ns),
            rate: if is_new {
                new_items / apart.as_secs_f64()
            } else {
                0.0
            },
            batch: if is_new { new_items / new_batches } else { 0.0 },
            batch_bytes: bytes / batches.max(1.0),
            cpu_ns: used
                .filter(|used| is_new && *used > 0.0)
                .map(|used| used * 1e9 / new_items),
            cores: second["cores"].as_f64().unwrap_or(1.0),
            clustered: second["cluster"]["name"].is_string(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// An answer of `/varz` with these counts of the log.
    pub(in crate::headroom) fn varz(items: u64, bytes: u64, batches: u64, cpu_s: f64) -> Value {
        json!({
            "server_id": "x", "cores": 2, "cpu_seconds": cpu_s,
            "batching": {"log_syncs": {
                "items": items, "bytes": bytes, "batches": batches,
                "cost_fixed_ns": 1e6, "cost_item_ns": 0.5, "cost_fixed_err_ns": 2e4,
                "cost_item_err_ns": 0.05, "cost_noise": 0.05,
            }},
        })
    }

    #[test]
    fn two_answers_give_the_present_load() {
        let (first, second) = (
            varz(1000, 900_000, 100, 1.0),
            varz(3000, 2_100_000, 300, 1.1),
        );
        let second_half = Figures::read(&first, &second, Duration::from_secs(2)).unwrap();
        assert_eq!(second_half.rate, 1000.0);
        assert_eq!(second_half.batch, 10.0);
        assert_eq!(second_half.syncs.message_bytes, 600.0);
        assert!((second_half.cpu_ns.unwrap() - 50_000.0).abs() < 1.0);
        // Without new messages the mean size since the start counts.
        let idle = Figures::read(&second, &second, Duration::from_secs(2)).unwrap();
        assert_eq!((idle.rate, idle.cpu_ns), (0.0, None));
        assert_eq!(idle.syncs.message_bytes, 700.0);
        // The server started again in between.
        let again = Figures::read(&second, &first, Duration::from_secs(2)).unwrap();
        assert_eq!((again.rate, again.syncs.message_bytes), (0.0, 900.0));
    }

    #[test]
    fn missing_figures_have_their_reasons() {
        let read = |answer: &Value| Figures::read(answer, answer, Duration::from_secs(1));
        assert_eq!(read(&json!({"server_id": "x"})), Err(Unknown::NoStreams));
        let mut answer = varz(7, 700, 7, 0.0);
        answer["batching"]["log_syncs"]["cost_fixed_ns"] = Value::Null;
        assert_eq!(read(&answer), Err(Unknown::NoFit { syncs: 7 }));
        for key in ["items", "cost_noise", "cost_item_ns"] {
            let mut answer = varz(7, 700, 7, 0.0);
            answer["batching"]["log_syncs"][key] = json!("text");
            assert!(matches!(read(&answer), Err(Unknown::Odd(_))), "{key}");
        }
    }
}
