//! Tests `/metrics` as Prometheus reads it: the format, the names, and the bounds of the series of streams
//! and consumers.

mod exposition;
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::Instant;

use serde_json::{Value, json};
use tidegate_server::{Monitor, MonitorOptions};

use self::exposition::{Family, read};
use super::monitor::{ask, get};
use super::raw::{PATIENCE, Raw};
use super::{Running, run, settings, start};

/// A metric in the tables of docs/observability.md: its type and its labels.
#[derive(Debug, PartialEq, Eq)]
struct Documented {
    kind: String,
    labels: BTreeSet<String>,
}

/// Reads the tables of metrics in docs/observability.md, by the names under which queries find them.
fn documented() -> BTreeMap<String, Documented> {
    let path = tidegate_testing::root().join("docs/observability.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut all = BTreeMap::new();
    for row in text.lines().filter(|l| l.starts_with("| `tidegate_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, meaning, _] = cells[..] else {
            panic!("{row}");
        };
        assert!(!meaning.is_empty(), "{row}");
        let labels = labels.split(", ").filter(|l| !l.is_empty());
        let one = Documented {
            kind: kind.to_owned(),
            labels: labels.map(|l| l.trim_matches('`').to_owned()).collect(),
        };
        let name = name.trim_matches('`').to_owned();
        assert!(all.insert(name, one).is_none(), "twice: {row}");
    }
    all
}

/// Reads the answer to `/metrics`, as the tables of the document show it.
fn shown(families: &BTreeMap<String, Family>) -> BTreeMap<String, Documented> {
    let one = |(name, family): (&String, &Family)| {
        let kind = family.kind.clone();
        let labels = family.labels();
        (family.queried(name), Documented { kind, labels })
    };
    families.iter().map(one).collect()
}

fn monitor(server: &Running, streams: usize, consumers: usize) -> Monitor {
    let options = MonitorOptions {
        host: "127.0.0.1".into(),
        metrics_streams: streams,
        metrics_consumers: consumers,
        ..MonitorOptions::default()
    };
    Monitor::start_with(&options, server.handle.clone()).unwrap()
}

fn scrape(monitor: &Monitor) -> BTreeMap<String, Family> {
    let (status, text) = get(monitor.address(), "/metrics");
    assert_eq!(status, 200, "{text}");
    read(&text)
}

/// Returns the values of a metric by the values of its labels, in the order of the labels' names.
fn values(families: &BTreeMap<String, Family>, name: &str) -> BTreeMap<Vec<String>, f64> {
    let samples = families.get(name).map_or(&[][..], |f| &f.samples);
    let one = |(_, labels, value): &(String, BTreeMap<String, String>, f64)| {
        (labels.values().cloned().collect(), *value)
    };
    samples.iter().map(one).collect()
}

fn value(families: &BTreeMap<String, Family>, name: &str) -> f64 {
    values(families, name)[&Vec::new()]
}

fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn stream(name: &str, replicas: u32) -> (String, Value) {
    let config = json!({"name": name, "subjects": [name], "num_replicas": replicas});
    (format!("STREAM.CREATE.{name}"), config)
}

fn consumer(stream: &str, name: &str) -> (String, Value) {
    let config = json!({"durable_name": name, "ack_policy": "explicit"});
    let body = json!({"stream_name": stream, "config": config});
    (format!("CONSUMER.CREATE.{stream}.{name}"), body)
}

const HELLO: &str = "CONNECT {\"verbose\":false}\r\nSUB r.a 1\r\nSUB pulled 2\r\n";

#[test]
fn a_cluster_shows_the_documented_metrics_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    // The system gives out free ports, and other tests may not take them while these sockets hold them.
    let held: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap())
        .collect();
    let ports: Vec<u16> = held
        .iter()
        .map(|l| l.local_addr().unwrap().port())
        .collect();
    let routes: Vec<String> = ports
        .iter()
        .map(|p| format!("nats-route://127.0.0.1:{p}"))
        .collect();
    drop(held);
    let nodes: Vec<Running> = (0..3)
        .map(|n| {
            let store = directory.path().join(n.to_string());
            start(&format!(
                "server_name: n{n}\njetstream {{ store_dir: {store:?} }}\n\
                 cluster {{ name: tide, listen: \"127.0.0.1:{}\", routes: {routes:?} }}",
                ports[n]
            ))
        })
        .collect();
    let monitors: Vec<Monitor> = nodes.iter().map(|n| monitor(n, 1000, 1000)).collect();
    let begun = Instant::now();
    let until = |what: &str, is_done: &dyn Fn() -> bool| {
        while !is_done() {
            assert!(begun.elapsed() < PATIENCE, "{what}");
        }
    };
    until("all nodes are ready", &|| {
        let ready = |m: &Monitor| value(&scrape(m), "tidegate_ready") == 1.0;
        monitors.iter().all(ready)
    });
    let mut client = Raw::connect(&nodes[0]);
    client.done(HELLO);
    ask(&mut client, &[stream("S", 3)]);
    ask(&mut client, &[consumer("S", "c")]);
    let leads = |m: &Monitor| values(&scrape(m), "tidegate_stream_state_leader");
    until("every node keeps the stream", &|| {
        monitors.iter().all(|m| leads(m).len() == 1)
    });
    // Exactly one node serves a stream, and so shows its consumers.
    let leaders: f64 = monitors.iter().flat_map(|m| leads(m).into_values()).sum();
    assert_eq!(leaders, 1.0);
    let all: Vec<_> = monitors.iter().map(scrape).collect();
    let shows_consumers = all
        .iter()
        .filter(|f| f.contains_key("tidegate_consumer_pending"));
    assert_eq!(shows_consumers.count(), 1);
    let union: BTreeMap<String, Documented> = all.iter().flat_map(shown).collect();
    assert_eq!(union, documented());
}

#[test]
fn a_server_without_streams_shows_none_of_their_metrics() {
    let server = start("");
    let documented = documented();
    let shown = shown(&scrape(&monitor(&server, 1000, 1000)));
    assert!(
        shown
            .iter()
            .all(|(name, one)| documented.get(name) == Some(one))
    );
    assert!(
        !shown.keys().any(|name| name.contains("stream")),
        "{shown:?}"
    );
}

#[test]
fn figures_of_a_stream_and_its_consumers() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&format!(
        "jetstream {{ store_dir: {:?} }}",
        directory.path()
    ));
    let monitor = monitor(&server, 1000, 1000);
    let mut client = Raw::connect(&server);
    client.done(HELLO);
    ask(&mut client, &[stream("S", 1), stream("EMPTY", 1)]);
    ask(&mut client, &[consumer("S", "c"), consumer("S", "asleep")]);
    for n in 1..=5 {
        client.send("PUB S r.a 5\r\nhello\r\n");
        client.until(&format!("\"seq\":{n}"));
    }
    let purge = ("STREAM.PURGE.S".to_owned(), json!({"seq": 2}));
    ask(&mut client, &[purge]);
    client.send("PUB $JS.API.CONSUMER.MSG.NEXT.S.c pulled 2\r\n10\r\n");
    for _ in 2..=5 {
        client.until("hello\r\n");
    }
    let families = scrape(&monitor);
    let of_stream = |name: &str| {
        let all = values(&families, &format!("tidegate_stream_state_{name}"));
        [all[&keys(&["EMPTY"])], all[&keys(&["S"])]]
    };
    assert_eq!(of_stream("messages"), [0.0, 4.0]);
    assert_eq!(of_stream("subjects"), [0.0, 1.0]);
    assert_eq!(of_stream("first_sequence"), [0.0, 2.0]);
    assert_eq!(of_stream("last_sequence"), [0.0, 5.0]);
    assert_eq!(of_stream("consumers"), [0.0, 2.0]);
    assert_eq!(of_stream("leader"), [1.0, 1.0]);
    assert!(of_stream("bytes")[1] > 20.0);
    let of_consumer = |name: &str| {
        let all = values(&families, &format!("tidegate_consumer_{name}"));
        // The labels are in the order of their names: the consumer, then the stream.
        [all[&keys(&["asleep", "S"])], all[&keys(&["c", "S"])]]
    };
    assert_eq!(of_consumer("pending"), [4.0, 0.0]);
    assert_eq!(of_consumer("ack_pending"), [0.0, 4.0]);
    assert_eq!(of_consumer("waiting_pulls"), [0.0, 1.0]);
    assert_eq!(of_consumer("delivered_sequence")[1], 5.0);
    let (_, overview) = get(monitor.address(), "/varz");
    let varz: Value = serde_json::from_str(&overview).unwrap();
    assert_eq!(value(&families, "tidegate_streams"), 2.0);
    assert!(varz["jetstream"]["stats"]["storage"].as_f64().unwrap() > 0.0);
    let by_reason = values(&families, "tidegate_boundary_batches");
    let syncs: f64 = by_reason
        .iter()
        .filter(|(labels, _)| labels[0] == "log_syncs")
        .map(|(_, n)| n)
        .sum();
    assert_eq!(syncs, value(&families, "tidegate_sync_batches"));
    assert!(value(&families, "tidegate_sync_seconds") > 0.0);
}

#[test]
fn the_series_are_bounded_and_complete_over_several_slices() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&format!(
        "jetstream {{ store_dir: {:?} }}",
        directory.path()
    ));
    let mut client = Raw::connect(&server);
    client.done(HELLO);
    // More of each than the event loop reads in one slice.
    let names: Vec<String> = (0..300).map(|n| format!("S{n:03}")).collect();
    let streams = names.iter().map(|name| stream(name, 1));
    ask(&mut client, &streams.collect::<Vec<_>>());
    let consumers = (0..290).map(|n| consumer("S010", &format!("c{n:03}")));
    ask(&mut client, &consumers.collect::<Vec<_>>());
    ask(&mut client, &[consumer("S299", "last")]);
    let shown = |streams: usize, consumers: usize| {
        let families = scrape(&monitor(&server, streams, consumers));
        let of = |name: &str| -> Vec<Vec<String>> { values(&families, name).into_keys().collect() };
        let left_out = ["streams", "consumers"]
            .map(|what| value(&families, &format!("tidegate_series_left_out_{what}")));
        (
            of("tidegate_stream_state_messages").concat(),
            of("tidegate_consumer_pending"),
            left_out,
        )
    };
    let (streams, consumers, left_out) = shown(1000, 1000);
    assert_eq!(streams, names);
    assert_eq!(consumers.len(), 291);
    assert!(consumers.contains(&keys(&["last", "S299"])));
    assert_eq!(left_out, [0.0, 0.0]);
    let (streams, consumers, left_out) = shown(11, 7);
    assert_eq!(streams, names[..11]);
    let first: Vec<Vec<String>> = (0..7)
        .map(|n| keys(&[&format!("c{n:03}"), "S010"]))
        .collect();
    assert_eq!(consumers, first);
    assert_eq!(left_out, [289.0, 284.0]);
    // The bound on consumers does not end the streams behind them.
    let (streams, consumers, left_out) = shown(300, 290);
    assert_eq!((streams.len(), consumers.len()), (300, 290));
    assert_eq!(left_out, [0.0, 1.0]);
    let (streams, consumers, left_out) = shown(0, 1000);
    assert_eq!((streams.len(), consumers.len()), (0, 0));
    assert_eq!(left_out, [300.0, 291.0]);
}

#[test]
fn labels_have_escapes() {
    let name = "a\"b\\c\nd";
    let mut settings = settings("");
    settings.server_name = Some(name.to_owned());
    let server = run(settings);
    let families = scrape(&monitor(&server, 10, 10));
    let (_, labels, one) = &families["tidegate_build_info"].samples[0];
    assert_eq!((labels["server_name"].as_str(), *one), (name, 1.0));
    assert_eq!(labels["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_bounds_are_settings() {
    let set = settings("metrics_streams: 0\nmetrics_consumers: 10000");
    assert_eq!((set.metrics_streams, set.metrics_consumers), (0, 10_000));
    let set = settings("");
    assert_eq!((set.metrics_streams, set.metrics_consumers), (1000, 1000));
    for wrong in ["10001", "-1", "all"] {
        let text = format!("metrics_streams: {wrong}");
        let error = super::try_settings(&text).unwrap_err();
        assert!(error.contains("a whole number from 0 to 10000"), "{error}");
    }
}
