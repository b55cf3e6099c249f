//! Writes the monitor's figures in the text format of OpenMetrics, which Prometheus reads, for programs that
//! collect metrics.
//!
//! The names are stable: docs/observability.md lists each of them, and a test compares the list with an
//! answer. [`super::series`] has the figures of single streams and consumers.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::health;
use super::json::Process;
use super::machine::{self, Disk};
use super::series;
use crate::event_loop::report::{Cluster, Report, Streams};
use crate::event_loop::turns::{TURN_BOUNDS_US, TurnStats};
use crate::sessions::ack_times::{ACK_BOUNDS_US, AckTimes};
use crate::sessions::routes::PeerView;

/// A metric that goes up and down, and (`COUNTER`) a metric that only grows, for [`encode_labelled`].
pub(super) const GAUGE: (MetricType, fn(f64) -> ConstGauge<f64>) =
    (MetricType::Gauge, ConstGauge::new);
const COUNTER: (MetricType, fn(u64) -> ConstCounter<u64>) =
    (MetricType::Counter, ConstCounter::new);

/// Makes the monitor's answer to `/metrics`: all figures of the report, as text that Prometheus collects.
/// Asks the system for the room on the disk, which may take long.
pub(super) fn text(report: Report) -> Vec<u8> {
    let mut registry = Registry::with_prefix("tidegate");
    let directory = report.streams.as_ref().map(|s| &s.settings.directory);
    let disk = directory.and_then(|path| machine::disk(path));
    registry.register_collector(Box::new(Figures { report, disk }));
    let mut out = String::new();
    // The encoding never fails, because it writes into a string.
    let _ = encode(&mut out, &registry);
    out.into_bytes()
}

#[derive(Debug)]
struct Figures {
    report: Report,
    /// The room on the disk of the streams; `None` without streams, or where the system does not say it.
    disk: Option<Disk>,
}

impl Collector for Figures {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let r = &self.report;
        let (t, flow, process) = (r.stats.traffic, r.flow, Process::now());
        let counters = [
            ("in_messages", "Messages published by clients", t.in_msgs),
            (
                "in_bytes",
                "Bytes of messages published by clients",
                t.in_bytes,
            ),
            (
                "out_messages",
                "Copies of messages delivered to clients",
                t.out_msgs,
            ),
            (
                "out_bytes",
                "Bytes of messages delivered to clients",
                t.out_bytes,
            ),
            (
                "connections_accepted",
                "Connections accepted",
                r.stats.total_connections,
            ),
            (
                "slow_consumers",
                "Connections closed because they did not read",
                r.stats.slow_consumers,
            ),
            (
                "stalls",
                "Publishers paused for a receiver that was behind",
                r.stats.stalls,
            ),
            (
                "auth_failures",
                "Connections refused for their credentials",
                r.stats.auth_failures,
            ),
            ("sublist_lookups", "Subjects looked up", r.sublist.lookups),
            (
                "sublist_hits",
                "Subjects found in the cache of subscriptions",
                r.sublist.hits,
            ),
            (
                "loop_turns",
                "Turns of the event loop, that is wake-ups and turns that found more to do",
                r.turns.turns,
            ),
            (
                "loop_late",
                "Number of times that the event loop was late by 100 ms or more",
                r.turns.late,
            ),
            (
                "loop_syncs",
                "Syncs of the log on the thread of the event loop, not on the log thread",
                r.turns.syncs,
            ),
            (
                "write_batches",
                "Rounds of socket writes",
                flow.counts.batches(),
            ),
            (
                "write_batch_items",
                "Copies of messages carried by rounds of socket writes",
                flow.counts.items,
            ),
            (
                "write_batch_resets",
                "Number of times that the controller learned the cost of socket writes again",
                flow.resets,
            ),
        ];
        encode_each(&mut to, counters, ConstCounter::new)?;
        turn_cpu(&r.turns, &mut to)?;
        publish_ack(&r.ack_times, &mut to)?;
        batches_by_reason(r, &mut to)?;
        if let Some(streams) = &r.streams {
            streams_figures(streams, &mut to)?;
            series::encode(streams, &mut to)?;
        }
        if let Some(disk) = &self.disk {
            let gauges = [
                (
                    "disk_free_bytes",
                    "Room left on the file system of the streams",
                    disk.free_bytes as f64,
                ),
                (
                    "disk_size_bytes",
                    "Size of the file system of the streams",
                    disk.total_bytes as f64,
                ),
            ];
            encode_each(&mut to, gauges, ConstGauge::new)?;
        }
        if let Some(cluster) = &r.cluster {
            cluster_figures(cluster, &mut to)?;
            members(cluster, r, &mut to)?;
        }
        let about = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("server_name", r.info.server_name.as_str()),
            ("server_id", r.info.server_id.as_str()),
        ];
        let help = "The server, in the labels; always 1";
        encode_labelled(&mut to, "build_info", help, [(about, 1.0)], GAUGE)?;
        let gauges = [
            (
                "ready",
                "1 if the server is ready, as /healthz says, else 0",
                f64::from(u8::from(health::is_ready(r))),
            ),
            ("connections", "Connections now", r.connections as f64),
            (
                "connections_max",
                "The most connections that the server accepts",
                r.max_connections as f64,
            ),
            ("subscriptions", "Subscriptions now", r.sublist.len as f64),
            (
                "write_batch_limit",
                "The most copies gathered before the server writes to sockets",
                flow.limit as f64,
            ),
            (
                "uptime_seconds",
                "Time since the start of the server",
                r.uptime_ns as f64 / 1e9,
            ),
            (
                "memory_bytes",
                "Resident memory",
                process.memory_bytes as f64,
            ),
            (
                "cpu_seconds",
                "CPU time of the process",
                process.cpu_seconds,
            ),
        ];
        encode_each(&mut to, gauges, ConstGauge::new)
    }
}

/// Encodes the histogram of the CPU time that the event loop takes for a turn, from which an operator sees
/// how busy the loop is.
fn turn_cpu(turns: &TurnStats, to: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let bounds = TURN_BOUNDS_US.iter().map(|us| *us as f64 / 1e6);
    let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(turns.within).collect();
    let help = "CPU time of the event loop's thread in one turn";
    let mut encoder = to.encode_descriptor(
        "loop_turn_cpu",
        help,
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    encoder.encode_histogram::<NoLabelSet>(turns.total_ns as f64 / 1e9, turns.turns, &buckets, None)
}

/// Encodes the histogram of the times from publishes to their acknowledgements.
fn publish_ack(times: &AckTimes, to: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let bounds = ACK_BOUNDS_US.iter().map(|us| *us as f64 / 1e6);
    let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(times.within()).collect();
    let help = "Time from the read of a publish into a stream to the write of its PubAck";
    let mut encoder = to.encode_descriptor(
        "publish_ack",
        help,
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    encoder.encode_histogram::<NoLabelSet>(
        times.total_ns() as f64 / 1e9,
        times.len(),
        &buckets,
        None,
    )
}

/// Encodes the batches of each boundary by the reason of their cut, from which an operator sees why the
/// engine decided as it did. The names of the boundaries are those of the dashboard.
fn batches_by_reason(r: &Report, to: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let streams = r.streams.iter().flat_map(|s| {
        [
            ("log_syncs", &s.log.controller),
            ("entries", &s.proposals),
            ("flow_acks", &s.fast_acks),
        ]
    });
    let boundaries = streams.chain([("socket_writes", &r.flow)]);
    let rows = boundaries.flat_map(|(boundary, snapshot)| {
        let reasons = snapshot.counts.by_reason.iter();
        reasons.map(move |(reason, n)| ([("boundary", boundary), ("reason", reason.as_str())], n))
    });
    let help = "Batches of a boundary, by the reason for which they were cut";
    encode_labelled(to, "boundary_batches", help, rows, COUNTER)
}

/// Encodes the members of the cluster, as this node knows them.
fn members(c: &Cluster, r: &Report, to: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let own = &r.info.server_name;
    let others = c.members.iter().filter(|name| *name != own);
    let connected = others.map(|name| {
        let connected = c.peers.iter().any(|p| p.name == *name);
        ([("peer", name.as_str())], f64::from(u8::from(connected)))
    });
    let help = "1 if this node is connected with the other member of the cluster, else 0";
    encode_labelled(to, "peer_connected", help, connected, GAUGE)?;
    let Some(info) = r.streams.as_ref().map(|s| &s.cluster) else {
        return Ok(());
    };
    let lags = info
        .replicas
        .iter()
        .map(|p| ([("peer", p.name.as_str())], p.lag as f64));
    let help =
        "Entries that the other member lacks; only the leader of the group of all nodes knows";
    encode_labelled(to, "peer_lag_entries", help, lags, GAUGE)?;
    let truth = |is: bool| f64::from(u8::from(is));
    let gauges = [
        (
            "cluster_leader",
            "1 if this node leads the group of all nodes, else 0",
            truth(info.leader == *own),
        ),
        (
            "cluster_has_leader",
            "1 if this node knows a leader of the group of all nodes, else 0",
            truth(!info.leader.is_empty()),
        ),
        (
            "cluster_members",
            "Members of the cluster",
            c.members.len() as f64,
        ),
    ];
    encode_each(to, gauges, ConstGauge::new)
}

fn cluster_figures(c: &Cluster, to: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let sum = |f: fn(&PeerView) -> u64| c.peers.iter().map(|p| f(&p.view)).sum::<u64>();
    let counters = [
        (
            "routed_out_messages",
            "Messages sent to other nodes, once for each",
            sum(|v| v.traffic.out_msgs),
        ),
        (
            "routed_in_messages",
            "Messages that came from other nodes",
            sum(|v| v.traffic.in_msgs),
        ),
    ];
    encode_each(to, counters, ConstCounter::new)?;
    let gauges = [
        ("routes", "Other nodes connected", c.peers.len() as f64),
        (
            "routed_pending_bytes",
            "Bytes that wait for other nodes",
            sum(|v| v.pending_bytes as u64) as f64,
        ),
        (
            "remote_subscriptions",
            "Subjects that other nodes subscribed to for their clients",
            sum(|v| v.interests as u64) as f64,
        ),
    ];
    encode_each(to, gauges, ConstGauge::new)
}

fn streams_figures(s: &Streams, to: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let (syncs, entries, acks) = (s.log.controller, s.proposals, s.fast_acks);
    let counters = [
        (
            "api_requests",
            "Requests of the stream API",
            s.stats.api_requests,
        ),
        (
            "api_errors",
            "Requests of the stream API refused",
            s.stats.api_errors,
        ),
        ("entries", "Entries proposed", s.stats.entries),
        ("commands", "Commands in entries proposed", s.stats.commands),
        (
            "held_back",
            "Publishers not read for a while because too much waited for the log",
            s.stats.held_back,
        ),
        (
            "refused",
            "Requests refused because too much waited for the log",
            s.stats.refused,
        ),
        ("syncs", "Syncs of the log", s.log.syncs),
        ("log_bytes", "Bytes written to the log", s.log.bytes),
        (
            "scrubbed_bytes",
            "Bytes of the log read again to find damage",
            s.scrubbed.bytes,
        ),
        (
            "damaged_bytes",
            "Bytes of the log found damaged by reading it again",
            s.scrubbed.damaged_bytes,
        ),
        (
            "sync_batches",
            "Batches of the log's syncs",
            syncs.counts.batches(),
        ),
        (
            "sync_batch_items",
            "Commands carried by syncs",
            syncs.counts.items,
        ),
        (
            "entry_batch_items",
            "Commands carried by entries",
            entries.counts.items,
        ),
        (
            "fast_ack_batches",
            "Rounds of acknowledgements to fast-ingest batches",
            acks.counts.batches(),
        ),
        (
            "fast_ack_batch_items",
            "Messages acknowledged to fast-ingest batches",
            acks.counts.items,
        ),
    ];
    encode_each(to, counters, ConstCounter::new)?;
    let seconds = [(
        "sync_seconds",
        "Time of the writes and syncs of the log",
        s.log.sync_ns as f64 / 1e9,
    )];
    encode_each(to, seconds, ConstCounter::new)?;
    let gauges = [
        ("streams", "Streams", s.streams as f64),
        ("consumers", "Consumers", s.consumers as f64),
        ("stream_messages", "Messages in streams", s.messages as f64),
        (
            "stream_bytes",
            "Bytes of messages in streams",
            s.bytes as f64,
        ),
        (
            "waiting_bytes",
            "Bytes that wait for the log",
            s.waiting_bytes as f64,
        ),
        (
            "disk_bytes",
            "Bytes of the log and of checkpoints",
            s.used_bytes as f64,
        ),
        (
            "sync_batch_limit",
            "The most bytes that one sync of the log covers",
            syncs.limit as f64,
        ),
        (
            "entry_batch_limit",
            "The most commands that one entry holds",
            entries.limit as f64,
        ),
        (
            "fast_ack_limit",
            "Messages of a fast batch that one acknowledgement covers",
            acks.limit as f64,
        ),
    ];
    encode_each(to, gauges, ConstGauge::new)
}

/// Encodes one metric for each row of a name, a help text and a value. `metric` gives the metric's type.
pub(super) fn encode_each<V, M: EncodeMetric>(
    to: &mut DescriptorEncoder<'_>,
    rows: impl IntoIterator<Item = (&'static str, &'static str, V)>,
    metric: fn(V) -> M,
) -> Result<(), fmt::Error> {
    for (name, help, value) in rows {
        let metric = metric(value);
        metric.encode(to.encode_descriptor(name, help, None, metric.metric_type())?)?;
    }
    Ok(())
}

/// Encodes the samples of one metric: for each row its labels and its value. Encodes nothing without rows.
pub(super) fn encode_labelled<'a, V, M: EncodeMetric, const N: usize>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = ([(&'a str, &'a str); N], V)>,
    (kind, metric): (MetricType, fn(V) -> M),
) -> Result<(), fmt::Error> {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let mut family = to.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in rows {
        metric(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
