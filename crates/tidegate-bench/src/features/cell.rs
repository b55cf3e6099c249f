//! The cells of the bench `features`, with the streams and consumers that each needs. Pure.

use serde_json::{Value, json};

/// The size of each message's payload in bytes.
pub(super) const PAYLOAD_BYTES: usize = 128;
/// The subjects at which the bench publishes; stream `n` of a cell has `in.<n>.>`.
const SUBJECT: &str = "in";
/// The pattern of the subjects at which the republished messages arrive.
pub(super) const COPIES: &str = "out.>";

/// One feature of streams. The bench measures its speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// Workers take all messages from a work queue, and acknowledge each.
    WorkQueue { workers: u64 },
    /// A new mirror takes in all messages of a stream.
    Mirror,
    /// A new stream takes in all messages of this many streams.
    Sources { streams: u64 },
    /// A subscriber gets all messages that a stream publishes again while it stores them.
    Republish,
}

/// A feature with the number of messages that pass through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) name: &'static str,
    pub(super) feature: Feature,
    pub(super) messages: u64,
}

/// Returns all cells, with the number of messages multiplied by `scale`.
pub(super) fn cells(scale: f64) -> Vec<Cell> {
    let cell = |name, feature, messages: u64| Cell {
        name,
        feature,
        // Sources share the messages evenly.
        messages: ((messages as f64 * scale / 10.0).round() as u64).max(1) * 10,
    };
    vec![
        cell("work-queue-1", Feature::WorkQueue { workers: 1 }, 200_000),
        cell("work-queue-16", Feature::WorkQueue { workers: 16 }, 200_000),
        cell("mirror", Feature::Mirror, 500_000),
        cell("sources-10", Feature::Sources { streams: 10 }, 500_000),
        cell("republish", Feature::Republish, 500_000),
    ]
}

impl Cell {
    /// Describes the cell for the user, in the table's head.
    pub(super) fn text(&self) -> String {
        let n = self.messages;
        match self.feature {
            Feature::WorkQueue { workers: 1 } => {
                format!("{n} messages of a work queue, taken and acknowledged by 1 worker")
            }
            Feature::WorkQueue { workers } => {
                format!("{n} messages of a work queue, taken and acknowledged by {workers} workers")
            }
            Feature::Mirror => format!("a new mirror of a stream with {n} messages"),
            Feature::Sources { streams } => {
                format!("a new stream with {streams} sources, which have {n} messages together")
            }
            Feature::Republish => {
                format!("{n} messages that a stream stores and publishes again to one subscriber")
            }
        }
    }

    /// Returns the number of streams at which the bench publishes.
    const fn origins(&self) -> u64 {
        match self.feature {
            Feature::Sources { streams } => streams,
            _ => 1,
        }
    }

    /// Returns the configurations of the streams at which the bench publishes.
    pub(super) fn streams(&self) -> Vec<Value> {
        let stream = |n: u64| {
            let mut config = json!({
                "name": origin(n), "subjects": [format!("{SUBJECT}.{n}.>")], "storage": "file", "num_replicas": 1,
            });
            match self.feature {
                Feature::WorkQueue { .. } => config["retention"] = json!("workqueue"),
                Feature::Republish => {
                    config["republish"] = json!({ "src": format!("{SUBJECT}.>"), "dest": COPIES });
                }
                Feature::Mirror | Feature::Sources { .. } => {}
            }
            config
        };
        (0..self.origins()).map(stream).collect()
    }

    /// Returns the configuration of the stream that takes in all messages, for a mirror and for sources.
    pub(super) fn taker(&self) -> Option<Value> {
        let mut config = json!({ "name": "TAKER", "storage": "file", "num_replicas": 1 });
        match self.feature {
            Feature::Mirror => config["mirror"] = json!({ "name": origin(0) }),
            Feature::Sources { streams } => {
                let sources: Vec<Value> =
                    (0..streams).map(|n| json!({ "name": origin(n) })).collect();
                config["sources"] = sources.into();
            }
            Feature::WorkQueue { .. } | Feature::Republish => return None,
        }
        Some(config)
    }

    /// Returns the subject of message `n`.
    pub(super) fn subject(&self, n: u64) -> String {
        format!("{SUBJECT}.{}.x", n % self.origins())
    }
}

/// Returns the name of stream `n`, at which the bench publishes.
pub(super) fn origin(n: u64) -> String {
    format!("ORIGIN-{n}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_scaled_and_shared_by_the_sources() {
        let all = cells(0.001);
        assert_eq!(all[0].messages, 200);
        assert!(cells(1e-9).iter().all(|cell| cell.messages == 10));
        let sources = &all[3];
        assert_eq!(sources.streams().len(), 10);
        assert_eq!(sources.taker().unwrap()["sources"][9]["name"], origin(9));
        assert_eq!(
            (sources.subject(9), sources.subject(10)),
            ("in.9.x".into(), "in.0.x".into())
        );
        assert_eq!(all[0].streams()[0]["retention"], "workqueue");
        assert_eq!(all[4].taker(), None);
    }
}
