//! Writes the monitor's answers to its readers as JSON, with nats-server's field names, so that tools for
//! nats-server can read them.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tidegate::controller::{Reason, Snapshot};
use tidegate_nats::sublist::SublistStats;
use tidegate_stream::schema::level::API_LEVEL;

use crate::event_loop::report::details::Described;
use crate::event_loop::report::lists::{Connection, Subscription};
use crate::event_loop::report::query::{ACCOUNT, Query};
use crate::event_loop::report::server::rfc3339;
use crate::event_loop::report::{Report, Streams};
use crate::event_loop::turns::TurnStats;
use crate::sessions::ack_times::AckTimes;

/// The paths that the monitor answers; `/` lists them, and the monitor counts requests by them.
pub(super) const PATHS: &[&str] = &[
    "/healthz",
    "/varz",
    "/connz",
    "/jsz",
    "/consumerz",
    "/routez",
    "/subsz",
    "/accountz",
    "/accstatz",
    "/raftz",
    "/why",
    "/messages",
    "/boundaries",
    "/overview",
    "/metrics",
];

/// The wall-clock times of the server's start and of the monitor's answer, from which the monitor writes
/// times for people.
pub(crate) struct WallClock {
    start: SystemTime,
    now: SystemTime,
}

impl WallClock {
    pub(crate) const fn new(start: SystemTime, now: SystemTime) -> Self {
        Self { start, now }
    }

    /// Returns the wall-clock time of the monitor's answer, which most answers show.
    pub(crate) const fn now(&self) -> SystemTime {
        self.now
    }

    /// Returns the wall-clock time, as text for an answer, that is `ns` nanoseconds after the server's start.
    pub(crate) fn at(&self, ns: u64) -> String {
        rfc3339(self.start + Duration::from_nanos(ns))
    }
}

/// Makes the monitor's answer to `/`: the list of the monitor's paths, from which a reader finds the others.
pub(crate) fn index() -> Value {
    json!({ "endpoints": PATHS })
}

/// Makes the monitor's answer to `/varz`: the general figures of the server, for an operator's first look.
pub(crate) fn varz(r: &Report, wall: &WallClock) -> Value {
    let process = Process::now();
    let mut out = json!({
        "server_id": r.info.server_id,
        "server_name": r.info.server_name,
        "version": r.info.version,
        "proto": r.info.proto,
        "go": r.info.go,
        "host": r.info.host,
        "port": r.info.port,
        "auth_required": r.auth_required,
        "tls_required": r.info.tls_required,
        "tls_verify": r.info.tls_verify,
        "max_connections": r.max_connections,
        "max_payload": r.info.max_payload,
        "max_control_line": r.max_control_line,
        "max_pending": r.max_pending,
        "ping_interval": r.ping_interval_ns,
        "ping_max": r.ping_max,
        "write_deadline": r.write_deadline_ns,
        "now": rfc3339(wall.now),
        "start": rfc3339(wall.start),
        "uptime": uptime(r.uptime_ns),
        "mem": process.memory_bytes,
        "cpu": process.cpu_percent(r.uptime_ns),
        "cpu_seconds": process.cpu_seconds,
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "connections": r.connections,
        "total_connections": r.stats.total_connections,
        "routes": r.cluster.as_ref().map_or(0, |c| c.peers.len()),
        "remotes": 0,
        "leafnodes": 0,
        "subscriptions": r.sublist.len,
        "slow_consumers": r.stats.slow_consumers,
        "stalled_clients": r.stats.stalls,
        "auth_failures": r.stats.auth_failures,
        "in_msgs": r.stats.traffic.in_msgs,
        "out_msgs": r.stats.traffic.out_msgs,
        "in_bytes": r.stats.traffic.in_bytes,
        "out_bytes": r.stats.traffic.out_bytes,
        "loop_turns": r.turns.turns,
        "batching": { "socket_writes": controller(&r.flow) },
        "lame_duck_mode": r.info.ldm,
    });
    out["loop"] = turns(&r.turns);
    out["publish_ack_ns"] = acks(&r.ack_times);
    for (all, of_clients) in [
        ("in_msgs", "in_client_msgs"),
        ("out_msgs", "out_client_msgs"),
        ("in_bytes", "in_client_bytes"),
        ("out_bytes", "out_client_bytes"),
    ] {
        out[of_clients] = out[all].clone();
    }
    out["stale_connections"] = r.stats.stale_connections.into();
    out["slow_consumer_stats"] = by_kind(r.stats.slow_consumers);
    out["stale_connection_stats"] = by_kind(r.stats.stale_connections);
    out["max_subscriptions"] = r.max_subscriptions.into();
    out["http_host"] = r.http_host.as_str().into();
    out["http_port"] = r.http_port.into();
    out["http_base_path"] = r.http_base_path.as_str().into();
    out["https_port"] = 0.into();
    out["auth_timeout"] = r.auth_timeout_s.into();
    out["tls_timeout"] = r.tls_timeout_s.into();
    out["system_account"] = r.system_account.as_str().into();
    out["config_load_time"] = wall.at(r.configured_ns).into();
    for part in [
        "cluster",
        "gateway",
        "leaf",
        "mqtt",
        "websocket",
        "jetstream",
    ] {
        out[part] = json!({});
    }
    if !r.tags.is_empty() {
        out["tags"] = r.tags.clone().into();
    }
    if !r.metadata.is_empty() {
        out["metadata"] = json!(r.metadata);
    }
    if let Some(cluster) = &r.cluster {
        out["cluster"] = json!({
            "name": cluster.name,
            "addr": cluster.address.ip().to_string(),
            "cluster_port": cluster.address.port(),
            "urls": cluster.routes,
            "tls_required": cluster.tls,
            "tls_verify": cluster.tls,
            "members": cluster.members,
        });
        out["connect_urls"] = r.info.connect_urls.clone().into();
        out["routed_out_msgs"] = r.stats.routed_out.into();
    }
    if let Some(streams) = &r.streams {
        let batching = &mut out["batching"];
        batching["log_syncs"] = controller(&streams.log.controller);
        batching["proposals"] = controller(&streams.proposals);
        batching["fast_ingest_acks"] = controller(&streams.fast_acks);
        out["jetstream"] = jetstream(streams);
        out["log"] = log(streams);
    }
    out
}

/// Makes the times from publishes to their acknowledgements for `/varz`, in nanoseconds since the server's
/// start; null without publishes.
fn acks(times: &AckTimes) -> Value {
    json!({
        "count": times.len(),
        "p50": times.quantile(0.5),
        "p99": times.quantile(0.99),
        "p99.9": times.quantile(0.999),
        "max": times.quantile(1.0),
    })
}

/// Makes the count of connections by kind for `/varz`: the server has only clients, so the other kinds are 0.
fn by_kind(clients: u64) -> Value {
    json!({ "clients": clients, "routes": 0, "gateways": 0, "leafs": 0 })
}

/// Makes the figures of the event loop's turns for `/varz`, from which an operator sees how busy the loop is.
fn turns(turns: &TurnStats) -> Value {
    let [p50, p99, p999, max] = turns.cpu_ns;
    json!({
        "late": turns.late,
        "log_syncs": turns.syncs,
        "turn_cpu_ns": { "p50": p50, "p99": p99, "p99.9": p999, "max": max },
    })
}

/// Makes the monitor's answer to `/jsz`: the figures of the streams, for an operator who watches storage.
pub(crate) fn jsz(r: &Report, query: &Query, wall: &WallClock) -> Value {
    let Some(streams) = &r.streams else {
        return json!({
            "server_id": r.info.server_id,
            "now": rfc3339(wall.now),
            "disabled": true,
        });
    };
    let mut out = stats(streams);
    out["server_id"] = r.info.server_id.as_str().into();
    out["now"] = rfc3339(wall.now).into();
    out["config"] = config(streams);
    out["streams"] = streams.streams.into();
    out["consumers"] = streams.consumers.into();
    out["messages"] = streams.messages.into();
    out["bytes"] = streams.bytes.into();
    out["total"] = 1.into();
    out["log"] = log(streams);
    if let Some(meta) = meta(streams) {
        out["meta_cluster"] = meta;
    }
    if query.shows_account() {
        out["account_details"] = json!([account_detail(r, streams, query)]);
    }
    if let Some(found) = r.listed.found {
        out["found"] = found.into();
    }
    out
}

/// Makes the monitor's answer to `/consumerz`: the consumers of all streams, or of one, in the order of a
/// figure, for an operator who looks for consumers that are behind.
pub(super) fn consumerz(r: &Report, query: &Query, wall: &WallClock) -> Value {
    let consumers = r.listed.consumers.iter().map(|c| described(&c.info));
    json!({
        "server_id": r.info.server_id,
        "now": rfc3339(wall.now),
        "total": r.listed.found.unwrap_or(0),
        "offset": query.offset,
        "limit": query.limit,
        "consumers": consumers.collect::<Value>(),
    })
}

/// Makes the figures of the streams for `/varz`, which reports on the whole server.
pub(crate) fn jetstream(s: &Streams) -> Value {
    let mut out = json!({ "config": config(s), "stats": stats(s), "limits": {} });
    if let Some(meta) = meta(s) {
        out["meta"] = meta;
    }
    out
}

/// Makes the figures of the nodes that keep the directory of streams; `None` for a single server, which has
/// no such nodes.
pub(super) fn meta(s: &Streams) -> Option<Value> {
    (s.nodes > 1).then(|| {
        json!({
            "name": s.cluster.name,
            "leader": s.cluster.leader,
            "cluster_size": s.nodes,
            "quorum_needed": s.nodes / 2 + 1,
            "replicas": s.cluster.replicas,
            "pending": 0,
        })
    })
}

/// Makes the answer to `/raftz`: the state of the group that keeps the directory of streams, in the form of
/// nats-server's Raft groups; nothing for a single server.
pub(crate) fn raftz(r: &Report) -> Value {
    let Some(streams) = r.streams.as_ref().filter(|s| s.nodes > 1) else {
        return json!({});
    };
    let leader = &streams.cluster.leader;
    let leads = *leader == r.info.server_name;
    let others = streams.cluster.replicas.iter();
    let peers: serde_json::Map<String, Value> = others
        .map(|peer| {
            (
                peer.name.clone(),
                json!({ "name": peer.name, "known": true }),
            )
        })
        .collect();
    let group = json!({
        "id": "_meta_",
        "state": if leads { "LEADER" } else { "FOLLOWER" },
        "size": streams.nodes,
        "quorum_needed": streams.nodes / 2 + 1,
        "leader": leader,
        "ever_had_leader": !leader.is_empty(),
        "system_account": true,
        "traffic_account": r.system_account,
        "peers": peers,
    });
    let mut groups = json!({});
    groups[&r.system_account] = json!({ "_meta_": group });
    groups
}

/// Makes the figures of the streams' account for `/jsz` and the system account, with its streams if the
/// reader asks for them.
pub(crate) fn account_detail(r: &Report, s: &Streams, query: &Query) -> Value {
    let mut account = stats(s);
    account["name"] = ACCOUNT.into();
    account["id"] = ACCOUNT.into();
    if !r.listed.streams.is_empty() {
        let details = r.listed.streams.iter();
        let details = details.map(|stream| detail(stream, query.consumers));
        account["stream_detail"] = details.collect();
    }
    account
}

/// Makes the description of a stream for `/jsz`, with the stream's consumers if the reader asks for them.
fn detail(stream: &Described, consumers: bool) -> Value {
    let mut value = described(&stream.info);
    value["name"] = stream.name.as_str().into();
    if consumers {
        value["consumer_detail"] = stream.consumers.iter().map(|c| described(c)).collect();
    }
    value
}

/// Reads the answer to an info request, and removes the type of the answer, which a list does not have.
fn described(json: &[u8]) -> Value {
    let mut value: Value = serde_json::from_slice(json).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("type");
    }
    value
}

fn config(s: &Streams) -> Value {
    let bound = |n: Option<u64>| n.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
    json!({
        "max_memory": bound(s.settings.max_memory_bytes),
        "max_storage": bound(s.settings.max_file_bytes),
        "store_dir": s.settings.directory,
        "domain": s.settings.domain,
        // `sync_always` is true on every server, because the server always syncs the log before it
        // acknowledges a message.
        "sync_always": true,
        "strict": true,
    })
}

fn stats(s: &Streams) -> Value {
    json!({
        "memory": s.memory.bytes,
        "storage": s.file.bytes,
        "reserved_memory": s.memory.reserved,
        "reserved_storage": s.file.reserved,
        "accounts": 1,
        "ha_assets": 0,
        "api": { "level": API_LEVEL, "total": s.stats.api_requests, "errors": s.stats.api_errors },
    })
}

fn log(s: &Streams) -> Value {
    let log = json!({
        "entries": s.stats.entries,
        "commands": s.stats.commands,
        "entry_bytes": s.stats.bytes,
        "waiting_bytes": s.waiting_bytes as u64 + s.log.pending_bytes,
        "publishers_held_back": s.stats.held_back,
        "requests_refused": s.stats.refused,
        "syncs": s.log.syncs,
        "sync_ns": s.log.sync_ns,
        "segments_allocated": s.log.allocated,
        "segments_recycled": s.log.recycled,
        "used_bytes": s.used_bytes,
        "checkpoint_bytes": s.checkpoint_bytes,
        "scrub_rounds": s.scrubbed.rounds,
        "scrubbed_bytes": s.scrubbed.bytes,
        "damaged_bytes": s.scrubbed.damaged_bytes,
    });
    #[cfg(feature = "lab")]
    let log = {
        let mut log = log;
        log["second_syncs"] = s.second_syncs.into();
        log
    };
    log
}

/// Makes the monitor's answer to `/connz`: the figures of the client connections, for an operator who looks
/// for a client.
pub(crate) fn connz(r: &Report, query: &Query, wall: &WallClock) -> Value {
    let page = &r.listed.connections;
    let entries = page.entries.iter();
    let connections: Vec<Value> = entries.map(|c| connection(c, r.uptime_ns, wall)).collect();
    json!({
        "server_id": r.info.server_id,
        "now": rfc3339(wall.now),
        "num_connections": connections.len(),
        "total": page.total,
        "offset": query.offset,
        "limit": query.limit,
        "connections": connections,
    })
}

/// Makes the monitor's answer to `/routez`: the figures of the connections to the other nodes, for an
/// operator who watches the cluster.
pub(crate) fn routez(r: &Report, wall: &WallClock) -> Value {
    let peers = r.cluster.iter().flat_map(|c| &c.peers);
    let routes: Vec<Value> = peers
        .map(|p| {
            json!({
                "rid": p.slot.index(),
                "remote_id": format!("{:016x}", p.id),
                "remote_name": p.name,
                "ip": p.address.ip().to_string(),
                "port": p.address.port(),
                "did_solicit": p.told,
                "heard": p.heard,
                "pending_size": p.view.pending_bytes,
                "in_msgs": p.view.traffic.in_msgs,
                "out_msgs": p.view.traffic.out_msgs,
                "in_bytes": p.view.traffic.in_bytes,
                "out_bytes": p.view.traffic.out_bytes,
                "subscriptions": p.view.interests,
            })
        })
        .collect();
    json!({
        "server_id": r.info.server_id,
        "server_name": r.info.server_name,
        "now": rfc3339(wall.now),
        "num_routes": routes.len(),
        "routes": routes,
    })
}

/// Makes the monitor's answer to `/subsz`: the figures of subscriptions, and a page of subscriptions if the
/// reader asks for it.
pub(crate) fn subsz(r: &Report, query: &Query, wall: &WallClock) -> Value {
    // The monitor shows no subscriptions for an account that does not exist, as nats-server does.
    let s = match query.is_of_account(ACCOUNT) {
        true => r.sublist,
        false => SublistStats::default(),
    };
    let rate = if s.lookups == 0 {
        0.0
    } else {
        s.hits as f64 / s.lookups as f64
    };
    let page = &r.listed.subscriptions;
    let mut out = json!({
        "server_id": r.info.server_id,
        "now": rfc3339(wall.now),
        "num_subscriptions": s.len,
        "num_inserts": s.inserts,
        "num_removes": s.removes,
        "num_matches": s.lookups,
        "cache_hit_rate": rate,
        "total": page.total,
        "offset": query.offset,
        "limit": query.limit,
    });
    if !page.entries.is_empty() {
        out["subscriptions_list"] = page.entries.iter().map(subscription).collect();
    }
    out
}

fn subscription(s: &Subscription) -> Value {
    let mut out = json!({
        "account": s.account,
        "subject": s.subject,
        "sid": s.sid,
        "msgs": s.delivered,
        "cid": s.cid,
    });
    if let Some(queue) = &s.queue {
        out["qgroup"] = queue.as_str().into();
    }
    if s.max > 0 {
        out["max"] = s.max.into();
    }
    out
}

fn connection(c: &Connection, now_ns: u64, wall: &WallClock) -> Value {
    let until_ns = c.end.map_or(now_ns, |(at, _)| at);
    let mut out = json!({
        "cid": c.cid,
        "kind": "Client",
        "type": "nats",
        "ip": c.address.ip().to_string(),
        "port": c.address.port(),
        "start": wall.at(c.since_ns),
        "last_activity": wall.at(c.active_ns),
        "uptime": uptime(until_ns.saturating_sub(c.since_ns)),
        "idle": uptime(until_ns.saturating_sub(c.active_ns)),
        "pending_bytes": c.pending_bytes,
        "in_msgs": c.traffic.in_msgs,
        "out_msgs": c.traffic.out_msgs,
        "in_bytes": c.traffic.in_bytes,
        "out_bytes": c.traffic.out_bytes,
        "subscriptions": c.subscriptions,
        "name": c.name,
        "lang": c.lang,
        "version": c.version,
        "account": c.account,
    });
    if let Some((at_ns, reason)) = c.end {
        out["stop"] = wall.at(at_ns).into();
        out["reason"] = reason.as_str().into();
    }
    if let Some(user) = &c.user {
        out["authorized_user"] = user.as_str().into();
    }
    if c.tls {
        out["tls"] = true.into();
    }
    if !c.subjects.is_empty() {
        out["subscriptions_list"] = c.subjects.clone().into();
    }
    out
}

fn controller(s: &Snapshot) -> Value {
    let reasons: serde_json::Map<String, Value> = s
        .counts
        .by_reason
        .iter()
        .filter(|(_, batches)| *batches > 0)
        .map(|(reason, batches)| (reason.as_str().into(), batches.into()))
        .collect();
    json!({
        "limit": s.limit,
        "binding": s.binding.map(Reason::as_str),
        "batches": s.counts.batches(),
        "items": s.counts.items,
        "bytes": s.counts.bytes,
        "batch_mean": s.counts.mean(),
        "batch_max": s.counts.items_max,
        "cost_fixed_ns": s.model.map(|m| m.a_ns),
        "cost_item_ns": s.model.map(|m| m.b_ns),
        "cost_fixed_err_ns": s.model.map(|m| m.a_err_ns),
        "cost_item_err_ns": s.model.map(|m| m.b_err_ns),
        "cost_noise": s.model.map(|m| m.noise),
        "waits": s.counts.waits,
        "by_reason": reasons,
    })
}

/// The memory and CPU time that this process uses, as the operating system reports them, for the monitor's
/// answers.
pub(crate) struct Process {
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_seconds: f64,
}

impl Process {
    pub(crate) fn now() -> Self {
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|s| s.split(' ').nth(1)?.parse::<u64>().ok());
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self {
            memory_bytes: pages.unwrap_or(0) * rustix::param::page_size() as u64,
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        }
    }

    /// Returns the mean CPU use of the process since the server's start, in percent of one core.
    pub(crate) fn cpu_percent(&self, uptime_ns: u64) -> f64 {
        let seconds = uptime_ns.max(1) as f64 / 1e9;
        (self.cpu_seconds / seconds * 1000.0).round() / 10.0
    }
}

pub(super) fn bytes(value: &Value) -> Vec<u8> {
    let mut text = format!("{value:#}").into_bytes();
    text.push(b'\n');
    text
}

/// Writes a duration as nats-server does, for readers of the monitor: `1d2h3m4s`, without leading units that
/// are zero.
fn uptime(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    let (d, h, m, s) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => format!("{m}m{s}s"),
        (0, _, _) => format!("{h}h{m}m{s}s"),
        _ => format!("{d}d{h}h{m}m{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn times() {
        let wall = WallClock::new(UNIX_EPOCH, UNIX_EPOCH);
        assert_eq!(wall.at(1_500_000_005), "1970-01-01T00:00:01.500000005Z");
        assert_eq!(uptime(59_999_999_999), "59s");
        assert_eq!(uptime(90_061_000_000_000), "1d1h1m1s");
    }
}
