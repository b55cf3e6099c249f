//! The cells of the bench `many`: the kind of things that a server has to hold in great number (streams,
//! consumers or subjects), and the requests that make them. Pure.

use serde_json::json;

/// The name of the first stream. The bench measures the acknowledgements of this stream before it makes any
/// other stream.
pub(super) const ONE: &str = "ONE";
/// The number of streams in the cell that makes consumers, over which it spreads the consumers.
const STREAMS_OF_CONSUMERS: u64 = 1000;
/// The number of streams in the cell of a cluster, and the number of nodes and of replicas of each stream.
const STREAMS_OF_CLUSTER: u64 = 20_000;
const NODES: usize = 3;
/// The number of groups of a stream's subjects, so that a consumer's filter covers a hundredth of the
/// subjects.
const GROUPS: u64 = 100;

/// The kind of things that a cell makes in great number, to find out how the server bears them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    /// The cell makes streams in files, each with one subject of its own.
    Streams,
    /// The cell makes durable pull consumers, in turns on this many streams.
    Consumers { streams: u64 },
    /// The cell makes subjects of one stream, each with one small message.
    Subjects,
}

/// A cell of the bench `many`: very many things of one kind on one server, or on one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) thing: Thing,
    pub(super) count: u64,
    /// The number of nodes, and of replicas of each stream.
    pub(super) nodes: usize,
}

/// The cells that the user adds to the usual ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct More {
    /// The number of subjects of a stream that a further cell makes.
    pub(super) subjects: Option<u64>,
    /// True for a further cell that makes streams of three replicas on three nodes.
    pub(super) cluster: bool,
}

/// A request to the server's API, with which a cell makes one thing, as the request's subject and its body.
pub(crate) type Request = (String, String);

/// Returns the usual cells and then those that the user adds, with their counts multiplied by `scale`.
pub(super) fn cells(scale: f64, more: More) -> Vec<Cell> {
    let streams = Thing::Streams;
    let consumers = Thing::Consumers {
        streams: scaled(STREAMS_OF_CONSUMERS, scale),
    };
    let mut all = vec![
        ("streams", streams, 1000),
        ("streams", streams, 10_000),
        ("streams", streams, 100_000),
        ("consumers", consumers, 100_000),
        ("subjects", Thing::Subjects, 1_000_000),
    ];
    all.extend(
        more.subjects
            .map(|count| ("subjects", Thing::Subjects, count)),
    );
    let cell = |(kind, thing, count)| Cell {
        name: format!("{kind}-{}", short(count)),
        thing,
        count: scaled(count, scale),
        nodes: 1,
    };
    let mut all: Vec<_> = all.into_iter().map(cell).collect();
    all.extend(more.cluster.then(|| Cell {
        name: format!("streams-{}-r{NODES}", short(STREAMS_OF_CLUSTER)),
        thing: streams,
        count: scaled(STREAMS_OF_CLUSTER, scale),
        nodes: NODES,
    }));
    // The cell that the flag `--subjects` adds may equal the cell before it. This call removes the second
    // one, so that the bench runs equal cells once.
    all.dedup();
    all
}

fn scaled(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale).round() as u64).max(1)
}

fn short(count: u64) -> String {
    match count {
        n if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{}m", n / 1_000_000),
        n if n >= 1000 && n.is_multiple_of(1000) => format!("{}k", n / 1000),
        n => n.to_string(),
    }
}

impl Cell {
    /// Describes the cell for the user, in the table's head.
    pub(super) fn text(&self) -> String {
        let count = self.count;
        match self.thing {
            Thing::Streams if self.nodes > 1 => {
                let nodes = self.nodes;
                format!(
                    "{count} streams in files, {nodes} replicas each; the figures are of all {nodes} nodes together"
                )
            }
            Thing::Streams => {
                format!(
                    "{count} streams in files, one replica each, each with a subject of its own"
                )
            }
            Thing::Consumers { streams } => {
                format!("{count} durable pull consumers on {streams} streams")
            }
            Thing::Subjects => format!("{count} subjects of one stream, a message of 2 B on each"),
        }
    }

    /// Returns the number of requests that prepare the server for the cell, before the measurement.
    pub(super) const fn prepared(&self) -> u64 {
        match self.thing {
            Thing::Streams => 0,
            Thing::Consumers { streams } => streams,
            Thing::Subjects => 1,
        }
    }

    /// Returns request `n` of those that prepare the server for the cell.
    pub(super) fn prepare(&self, n: u64) -> Request {
        let subject = match self.thing {
            Thing::Subjects => "many.>".to_owned(),
            Thing::Streams | Thing::Consumers { .. } => format!("many.{n}"),
        };
        create_stream(&stream(n), &subject, self.nodes)
    }

    /// Returns the request that makes thing `n` of the cell: a stream, a consumer or a subject.
    pub(super) fn make(&self, n: u64) -> Request {
        match self.thing {
            Thing::Streams => create_stream(&stream(n), &format!("many.{n}"), self.nodes),
            Thing::Consumers { streams } => {
                create_consumer(&stream(n % streams), &format!("C{n}"), None)
            }
            Thing::Subjects => (subject(n), "xx".into()),
        }
    }

    /// Returns the name of the last stream and a subject of this stream, after the bench has made `made`
    /// things.
    pub(super) fn last(&self, made: u64) -> (String, String) {
        let last = made.saturating_sub(1);
        match self.thing {
            Thing::Streams => (stream(last), format!("many.{last}")),
            Thing::Consumers { streams } => {
                let last = last.min(streams - 1);
                (stream(last), format!("many.{last}"))
            }
            Thing::Subjects => (stream(0), subject(last)),
        }
    }
}

fn stream(n: u64) -> String {
    format!("MANY-{n}")
}

fn subject(n: u64) -> String {
    format!("many.{}.{n}", n % GROUPS)
}

/// Returns the filter that covers a hundredth of the subjects, for a consumer with few of them.
pub(super) const fn filter() -> &'static str {
    "many.7.*"
}

/// Returns the request that creates a stream in files with this number of replicas, in the form of the NATS
/// API.
pub(super) fn create_stream(name: &str, subject: &str, replicas: usize) -> Request {
    let body = json!({
        "name": name, "subjects": [subject], "storage": "file", "retention": "limits",
        "num_replicas": replicas,
    });
    (format!("$JS.API.STREAM.CREATE.{name}"), body.to_string())
}

/// Returns the request that creates a durable pull consumer which begins with the last message of each
/// subject of a cell that makes subjects.
pub(super) fn create_last_consumer(stream: &str, name: &str) -> Request {
    let config = json!({
        "durable_name": name, "ack_policy": "explicit", "deliver_policy": "last_per_subject",
        "filter_subject": "many.>",
    });
    let body = json!({"stream_name": stream, "config": config});
    (
        format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}"),
        body.to_string(),
    )
}

/// Returns the request that creates a durable pull consumer, in the form of the NATS API.
pub(super) fn create_consumer(stream: &str, name: &str, filter: Option<&str>) -> Request {
    let mut config = json!({"durable_name": name, "ack_policy": "explicit"});
    if let Some(filter) = filter {
        config["filter_subject"] = json!(filter);
    }
    let body = json!({"stream_name": stream, "config": config});
    (
        format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}"),
        body.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: f64, subjects: Option<u64>) -> Vec<(String, u64)> {
        let more = More {
            subjects,
            cluster: false,
        };
        let all = cells(scale, more).into_iter();
        all.map(|cell| (cell.name, cell.count)).collect()
    }

    #[test]
    fn cells_are_scaled_and_keep_their_names() {
        let owned = |(name, count): (&str, u64)| (name.to_owned(), count);
        let usual = [
            ("streams-1k", 10),
            ("streams-10k", 100),
            ("streams-100k", 1000),
            ("consumers-100k", 1000),
            ("subjects-1m", 10_000),
        ];
        assert_eq!(names(0.01, None), usual.map(owned));
        assert_eq!(names(0.01, Some(1_000_000)).len(), usual.len());
        let more = names(0.01, Some(10_000_000));
        assert_eq!(more.last(), Some(&owned(("subjects-10m", 100_000))));
        assert_eq!(names(0.0001, Some(1234))[5], owned(("subjects-1234", 1)));
    }

    #[test]
    fn a_cluster_has_a_cell_of_its_own() {
        let more = More {
            subjects: None,
            cluster: true,
        };
        let all = cells(0.01, more);
        let last = &all[all.len() - 1];
        assert_eq!(
            (&*last.name, last.count, last.nodes),
            ("streams-20k-r3", 200, 3)
        );
        assert!(last.make(7).1.contains("\"num_replicas\":3"));
        assert!(all[..all.len() - 1].iter().all(|cell| cell.nodes == 1));
    }

    #[test]
    fn the_last_stream_exists_even_if_the_cell_ended_early() {
        let all = cells(1.0, More::default());
        let last = |n: usize, made| all[n].last(made).0;
        assert_eq!(last(0, 7), "MANY-6");
        assert_eq!(last(0, 0), "MANY-0");
        assert_eq!(
            (last(3, 100_000), last(3, 3)),
            ("MANY-999".into(), "MANY-2".into())
        );
        assert_eq!(all[4].last(108), ("MANY-0".into(), "many.7.107".into()));
        // The filter covers this subject, so that the consumer has at least one message.
        assert!(filter().starts_with("many.7."));
        assert_eq!(all[4].prepare(0).1.matches("many.>").count(), 1);
    }

    #[test]
    fn consumers_are_spread_over_the_streams() {
        let cell = &cells(1.0, More::default())[3];
        assert_eq!(cell.prepared(), 1000);
        let (subject, body) = cell.make(2001);
        assert_eq!(subject, "$JS.API.CONSUMER.DURABLE.CREATE.MANY-1.C2001");
        assert!(body.contains("\"durable_name\":\"C2001\""), "{body}");
        assert!(!body.contains("deliver_subject"), "{body}");
    }
}
