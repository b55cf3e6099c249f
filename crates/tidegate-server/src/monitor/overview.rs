//! The overview of the server for the dashboard: rates, threads, the disk, the cluster, and alarms. Pure: the
//! sampling passes the time and the figures in.
//!
//! The overview keeps the newest samples for all readers, as the sampler of the boundaries does, and takes
//! them at the same moments.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use tidegate::Time;
use tidegate_cluster::groups::GroupId;
use tidegate_monitor::{EVERY, SAMPLES_MAX};

use super::alarms::{self, Facts};
use super::json;
use super::machine::Disk;
use crate::event_loop::report::{Cluster, Report, Streams};
use crate::sessions::ack_times::AckTimes;

/// The names of the counts in each sample; the history shows their differences.
const COUNTS: [&str; 16] = [
    "in_msgs",
    "in_bytes",
    "out_msgs",
    "out_bytes",
    "syncs",
    "sync_ns",
    "commands",
    "entries",
    "slow_consumers",
    "stalls",
    "held_back",
    "refused",
    "late_turns",
    "api_requests",
    "stale_connections",
    "auth_failures",
];
/// The number of samples over which the overview says how long acknowledgements take now.
const RECENT: usize = 10;

/// The names of the levels in each sample; the history shows them as they are.
const LEVELS: [&str; 8] = [
    "connections",
    "subscriptions",
    "memory_bytes",
    "storage_bytes",
    "used_bytes",
    "waiting_bytes",
    "leads",
    "moving",
];

/// The figures of one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Time,
    counts: [u64; COUNTS.len()],
    levels: [u64; LEVELS.len()],
    pub(super) disk: Option<Disk>,
    threads: BTreeMap<String, u64>,
    /// The leader of the group of all nodes, empty without one; the entries that each other node lacks, if
    /// this node knows that; and the elections since the sample before in the groups of this node.
    leader: String,
    lags: BTreeMap<String, u64>,
    elections: u64,
    /// The times that 50 and 99 per cent of the acknowledgements since the sample before did not exceed, in
    /// nanoseconds; `None` without acknowledgements.
    ack_ns: [Option<u64>; 2],
}

impl Sample {
    pub(super) fn new(
        at: Time,
        r: &Report,
        memory_bytes: u64,
        disk: Option<Disk>,
        threads: BTreeMap<String, u64>,
    ) -> Self {
        let (t, s) = (&r.stats.traffic, r.streams.as_ref());
        let of = |get: &dyn Fn(&Streams) -> u64| s.map_or(0, get);
        let others = s.into_iter().flat_map(|s| &s.cluster.replicas);
        let lags = others.map(|peer| (peer.name.clone(), peer.lag));
        Self {
            at,
            counts: [
                t.in_msgs,
                t.in_bytes,
                t.out_msgs,
                t.out_bytes,
                of(&|s| s.log.syncs),
                of(&|s| s.log.sync_ns),
                of(&|s| s.stats.commands),
                of(&|s| s.stats.entries),
                r.stats.slow_consumers,
                r.stats.stalls,
                of(&|s| s.stats.held_back),
                of(&|s| s.stats.refused),
                r.turns.late,
                of(&|s| s.stats.api_requests),
                r.stats.stale_connections,
                r.stats.auth_failures,
            ],
            levels: [
                r.connections as u64,
                r.sublist.len as u64,
                memory_bytes,
                of(&|s| s.file.bytes),
                of(&|s| s.used_bytes),
                of(&|s| s.waiting_bytes as u64 + s.log.pending_bytes),
                of(&|s| s.leads as u64),
                of(&|s| s.moving as u64),
            ],
            disk,
            threads,
            leader: s.map_or_else(String::new, |s| s.cluster.leader.clone()),
            lags: lags.collect(),
            elections: 0,
            ack_ns: [None; 2],
        }
    }

    #[cfg(test)]
    pub(super) fn with_disk(at: Time, disk: Disk) -> Self {
        Self {
            at,
            counts: [0; COUNTS.len()],
            levels: [0; LEVELS.len()],
            disk: Some(disk),
            threads: BTreeMap::new(),
            leader: String::new(),
            lags: BTreeMap::new(),
            elections: 0,
            ack_ns: [None; 2],
        }
    }

    #[cfg(test)]
    pub(super) fn set(&mut self, name: &str, value: u64) {
        let place = COUNTS.iter().position(|n| *n == name);
        self.counts[place.unwrap()] = value;
    }

    #[cfg(test)]
    pub(super) fn set_level(&mut self, name: &str, value: u64) {
        let place = LEVELS.iter().position(|n| *n == name);
        self.levels[place.unwrap()] = value;
    }

    /// Returns the level with this name, one of [`LEVELS`].
    pub(super) fn level(&self, name: &str) -> u64 {
        let place = LEVELS.iter().position(|n| *n == name);
        place.map_or(0, |at| self.levels[at])
    }

    /// Returns the count with this name, one of [`COUNTS`].
    pub(super) fn count(&self, name: &str) -> u64 {
        let place = COUNTS.iter().position(|n| *n == name);
        place.map_or(0, |at| self.counts[at])
    }
}

/// The newest samples of the server, oldest first, and the latest report.
#[derive(Debug, Default)]
pub(super) struct Overview {
    samples: VecDeque<Sample>,
    latest: Option<Report>,
    /// The times of acknowledgements at the newest samples, oldest first: [`RECENT`] samples and the one
    /// before them.
    acks: VecDeque<(Time, AckTimes)>,
}

impl Overview {
    pub(super) fn record(&mut self, mut sample: Sample, report: Report) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        if let Some((_, before)) = self.acks.back() {
            sample.ack_ns = quantiles(&report.ack_times.since(before));
        }
        let before = self.latest.as_ref().and_then(|r| r.streams.as_ref());
        let terms = before.zip(report.streams.as_ref());
        sample.elections = terms.map_or(0, |(old, new)| elections(&old.terms, &new.terms));
        if self.acks.len() > RECENT {
            self.acks.pop_front();
        }
        self.acks.push_back((sample.at, report.ack_times.clone()));
        self.samples.push_back(sample);
        self.latest = Some(report);
    }

    /// Returns the answer to `/overview` at `now`, with the history of the newest `history_s` seconds if the
    /// reader wants it. `wall` is the wall-clock time as RFC 3339 text.
    pub(super) fn json(&self, now: Time, wall: &str, history_s: Option<u64>) -> Value {
        let (Some(r), Some(last)) = (&self.latest, self.samples.back()) else {
            return json!({ "now": wall });
        };
        let behind = r.streams.as_ref().and_then(|s| s.behind.as_deref());
        let full_in_s = alarms::full_in_s(&self.samples);
        let facts = Facts {
            report: r,
            samples: &self.samples,
            full_in_s,
        };
        let mut out = json!({
            "now": wall,
            "uptime_ms": now.as_nanos() / 1_000_000,
            "sample_ms": tidegate::nanos(EVERY) / 1_000_000,
            "server_name": r.info.server_name,
            "server_id": r.info.server_id,
            "version": env!("CARGO_PKG_VERSION"),
            "behind": behind,
            "alarms": alarms::alarms(&facts),
            "max_connections": r.max_connections,
            "ack_ns": self.ack_ns(),
            "turn_cpu_ns": { "p50": r.turns.cpu_ns[0], "p99": r.turns.cpu_ns[1] },
            "disk": last.disk.map(|d| json!({
                "free_bytes": d.free_bytes,
                "total_bytes": d.total_bytes,
                "full_in_s": full_in_s,
            })),
            "streams": r.streams.as_ref().map(|s| json!({
                "streams": s.streams,
                "consumers": s.consumers,
                "messages": s.messages,
                "bytes": s.bytes,
                "damaged_bytes": s.scrubbed.damaged_bytes,
            })),
            "cluster": r.cluster.as_ref().map(|c| cluster(c, r)),
            "meta_cluster": r.streams.as_ref().and_then(json::meta),
        });
        for (name, value) in COUNTS.iter().zip(last.counts) {
            out[*name] = value.into();
        }
        for (name, value) in LEVELS.iter().zip(last.levels) {
            out[*name] = value.into();
        }
        if let Some(s) = history_s {
            let since = now
                .as_nanos()
                .saturating_sub(s.saturating_mul(1_000_000_000));
            out["history"] = self.history(Time::from_nanos(since));
        }
        out
    }

    /// Makes the times from publishes to their acknowledgements over the newest samples; null without
    /// acknowledgements in that time.
    fn ack_ns(&self) -> Value {
        let (Some((from, before)), Some((to, now))) = (self.acks.front(), self.acks.back()) else {
            return Value::Null;
        };
        let recent = now.since(before);
        let [Some(p50), Some(p99)] = quantiles(&recent) else {
            return Value::Null;
        };
        let span_ms = to.since(*from) / 1_000_000;
        json!({ "p50": p50, "p99": p99, "count": recent.len(), "span_ms": span_ms })
    }

    fn history(&self, since: Time) -> Value {
        let pairs = || {
            let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
            pairs.filter(move |(_, s)| s.at >= since)
        };
        let each = |of: &dyn Fn(&Sample, &Sample) -> Value| -> Value {
            pairs().map(|(before, s)| of(before, s)).collect()
        };
        let mut out = json!({
            "uptime_ms": each(&|_, s| (s.at.as_nanos() / 1_000_000).into()),
            "span_ms": each(&|b, s| (s.at.since(b.at) / 1_000_000).into()),
            "free_bytes": each(&|_, s| s.disk.map(|d| d.free_bytes).into()),
            "leader": each(&|_, s| s.leader.as_str().into()),
            "elections": each(&|_, s| s.elections.into()),
            "ack_p50_ns": each(&|_, s| s.ack_ns[0].into()),
            "ack_p99_ns": each(&|_, s| s.ack_ns[1].into()),
        });
        for (at, name) in COUNTS.iter().enumerate() {
            out[*name] = each(&|b, s| s.counts[at].saturating_sub(b.counts[at]).into());
        }
        for (at, name) in LEVELS.iter().enumerate() {
            out[*name] = each(&|_, s| s.levels[at].into());
        }
        let names = self.samples.back().map(|s| s.lags.keys());
        let mut lags = json!({});
        for name in names.into_iter().flatten() {
            lags[name] = each(&|_, s| s.lags.get(name).copied().into());
        }
        out["lag"] = lags;
        let names = self.samples.back().map(|s| s.threads.keys());
        let mut threads = json!({});
        for name in names.into_iter().flatten() {
            let cpu = |s: &Sample| s.threads.get(name).copied().unwrap_or(0);
            threads[name] = each(&|b, s| cpu(s).saturating_sub(cpu(b)).into());
        }
        out["threads"] = threads;
        out
    }
}

/// Returns the number of elections between two moments, by the terms of the groups that the node had at both.
fn elections(before: &[(GroupId, u64)], now: &[(GroupId, u64)]) -> u64 {
    let risen = now.iter().map(|(group, term)| {
        let old = before.iter().find(|(of, _)| of == group);
        old.map_or(0, |(_, old)| term.saturating_sub(*old))
    });
    risen.sum()
}

/// Returns the times that 50 and 99 per cent of the acknowledgements did not exceed, in nanoseconds; `None`
/// without acknowledgements.
fn quantiles(times: &AckTimes) -> [Option<u64>; 2] {
    [0.5, 0.99].map(|q| times.quantile(q))
}

/// Makes the facts about the cluster and each of its members, as this node knows them.
fn cluster(c: &Cluster, r: &Report) -> Value {
    let info = r.streams.as_ref().map(|s| &s.cluster);
    let leader = info.map_or("", |i| i.leader.as_str());
    let member = |name: &String| {
        let is_self = *name == r.info.server_name;
        let replica = info.and_then(|i| i.replicas.iter().find(|p| p.name == *name));
        json!({
            "name": name,
            "this": is_self,
            "leader": name == leader,
            "connected": is_self || c.peers.iter().any(|p| p.name == *name),
            // Only the leader knows how far the others are.
            "current": replica.map(|p| p.current),
            "lag": replica.map(|p| p.lag),
            "heard_ns": replica.map(|p| p.active),
        })
    };
    json!({
        "name": c.name,
        "leader": leader,
        "forming": c.forming,
        "tls": c.tls,
        "groups": r.streams.as_ref().map(|s| s.terms.len()),
        "members": c.members.iter().map(member).collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terms_of_groups_that_were_there_before_count_as_elections() {
        let [a, b, c] = [1, 2, 3].map(GroupId::new);
        let before = [(a, 7), (b, 2)];
        assert_eq!(elections(&before, &[(a, 9), (b, 2), (c, 40)]), 2);
        assert_eq!(
            elections(&before, &[(b, 1)]),
            0,
            "a node that was set up again"
        );
    }
}
