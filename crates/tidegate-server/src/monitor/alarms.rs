//! Decides which conditions of the server need an operator, and says them in words. Pure.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::overview::Sample;
use crate::event_loop::report::Report;

/// The least time over which the fall of the disk's room counts, in nanoseconds. The log takes whole
/// segments, so a shorter time shows steps.
const FALL_NS: u64 = 60_000_000_000;
/// The time to a full disk below which the overview warns, and (`FULL_SOON_S`) below which the warning is
/// urgent, in seconds.
const FULL_S: u64 = 24 * 3600;
const FULL_SOON_S: u64 = 3600;
/// The time until the streams reach the bound on their bytes below which the overview warns, in seconds.
const BOUND_S: u64 = 7 * 24 * 3600;
/// The share of the connections from which the overview warns that few are left: all but one in this number.
const CONNECTIONS_SHARE: usize = 10;
/// The share of free room on the disk below which the overview warns in any case: one in this number.
const FREE_SHARE: u64 = 50;
/// The time in which events such as slow consumers count for an alarm, in nanoseconds.
const LATELY_NS: u64 = 60_000_000_000;
/// The time without a message from a member after which the overview warns, in nanoseconds.
const UNHEARD_NS: u64 = 5_000_000_000;

/// The facts from which the alarms follow.
pub(super) struct Facts<'a> {
    pub(super) report: &'a Report,
    pub(super) samples: &'a VecDeque<Sample>,
    pub(super) full_in_s: Option<u64>,
}

/// Returns the seconds until the disk is full at the rate of the samples; `None` if its room does not shrink,
/// or the samples cover too little time to say.
pub(super) fn full_in_s(samples: &VecDeque<Sample>) -> Option<u64> {
    let (first, last) = (samples.front()?, samples.back()?);
    let ns = last.at.since(first.at);
    let (before, now) = (first.disk?.free_bytes, last.disk?.free_bytes);
    let fallen = before.checked_sub(now).filter(|fallen| *fallen > 0)?;
    let left = u128::from(now) * u128::from(ns) / u128::from(fallen) / 1_000_000_000;
    (ns >= FALL_NS).then(|| u64::try_from(left).unwrap_or(u64::MAX))
}

/// Returns the alarms as a list of `level` (`critical` or `warning`) and `text`, the urgent ones first.
pub(super) fn alarms(facts: &Facts<'_>) -> Value {
    let mut all: Vec<(bool, String)> = Vec::new();
    disk(facts, &mut all);
    bound(facts, &mut all);
    members(facts.report, &mut all);
    lately(facts.samples, &mut all);
    let r = facts.report;
    if let Some(streams) = &r.streams {
        if let Some(why) = &streams.behind {
            all.push((
                true,
                format!("the streams of this node are not ready: {why}"),
            ));
        }
        if let (len, Some(first)) = &streams.stuck {
            let more = match len - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            all.push((false, format!("{first}{more}")));
        }
        let damaged = streams.scrubbed.damaged_bytes;
        if damaged > 0 {
            all.push((true, format!("{damaged} bytes of the log are damaged: see docs/operating.md, damage and repair")));
        }
        for (name, s) in [
            ("log_syncs", &streams.log.controller),
            ("entries", &streams.proposals),
            ("flow_acks", &streams.fast_acks),
        ] {
            if s.infeasible {
                all.push((
                    false,
                    format!("the objective of {name} cannot be met at this rate"),
                ));
            }
        }
    }
    if r.flow.infeasible {
        all.push((
            false,
            "the objective of socket_writes cannot be met at this rate".into(),
        ));
    }
    let most = r.max_connections;
    if r.connections >= most {
        all.push((true, format!("all {most} connections are taken")));
    } else if most - r.connections <= most / CONNECTIONS_SHARE {
        let open = r.connections;
        all.push((
            false,
            format!("{open} of at most {most} connections are open"),
        ));
    }
    if r.info.ldm {
        all.push((
            false,
            "lame duck mode: the server closes its connections and ends".into(),
        ));
    }
    all.sort_by_key(|(critical, _)| !critical);
    let level = |critical: &bool| if *critical { "critical" } else { "warning" };
    let one = |(critical, text): &(bool, String)| json!({"level": level(critical), "text": text});
    all.iter().map(one).collect()
}

fn disk(facts: &Facts<'_>, all: &mut Vec<(bool, String)>) {
    if facts.report.streams.is_none() {
        return;
    }
    let Some(disk) = facts.samples.back().and_then(|s| s.disk) else {
        return;
    };
    if let Some(s) = facts.full_in_s.filter(|s| *s < FULL_S) {
        all.push((
            s < FULL_SOON_S,
            format!("disk full in {} at this rate", about(s)),
        ));
    }
    if disk.free_bytes <= disk.total_bytes / FREE_SHARE {
        let mib = disk.free_bytes >> 20;
        all.push((
            true,
            format!("the disk of the streams has only {mib} MiB left"),
        ));
    }
}

/// Adds the alarm for streams that soon reach the bound on their bytes (`max_file_store`).
fn bound(facts: &Facts<'_>, all: &mut Vec<(bool, String)>) {
    let streams = facts.report.streams.as_ref();
    let Some(most) = streams.and_then(|s| s.settings.max_file_bytes) else {
        return;
    };
    if let Some(s) = reaches_in_s(facts.samples, most).filter(|s| *s < BOUND_S) {
        let text = match s {
            0 => "the streams have reached max_file_store".into(),
            _ => format!(
                "the streams reach max_file_store in {} at this rate",
                about(s)
            ),
        };
        all.push((s < FULL_SOON_S, text));
    }
}

/// Returns the seconds until the streams in files have `most` bytes at the rate of the samples; 0 if they
/// have them now. `None` if the streams do not grow, or the samples cover too little time to say.
fn reaches_in_s(samples: &VecDeque<Sample>, most: u64) -> Option<u64> {
    let (first, last) = (samples.front()?, samples.back()?);
    let (before, now) = (first.level("storage_bytes"), last.level("storage_bytes"));
    if now >= most {
        return Some(0);
    }
    let ns = last.at.since(first.at);
    let grown = now.checked_sub(before).filter(|grown| *grown > 0)?;
    let left = u128::from(most - now) * u128::from(ns) / u128::from(grown) / 1_000_000_000;
    (ns >= FALL_NS).then(|| u64::try_from(left).unwrap_or(u64::MAX))
}

fn members(r: &Report, all: &mut Vec<(bool, String)>) {
    let Some(cluster) = &r.cluster else {
        return;
    };
    if cluster.forming {
        all.push((
            true,
            "the cluster is not formed: its nodes have not all met".into(),
        ));
    }
    for name in cluster.members.iter().filter(|n| **n != r.info.server_name) {
        if !cluster.peers.iter().any(|p| p.name == *name) {
            all.push((true, format!("{name} is not connected")));
        }
    }
    let Some(info) = r.streams.as_ref().map(|s| &s.cluster) else {
        return;
    };
    if info.leader.is_empty() && !cluster.forming && cluster.members.len() > 1 {
        all.push((true, "no node leads the group of all nodes".into()));
    }
    for replica in info.replicas.iter().filter(|p| !p.offline) {
        let name = &replica.name;
        if replica.active > UNHEARD_NS {
            let s = replica.active / 1_000_000_000;
            all.push((false, format!("{name} lags {}", about(s))));
        } else if !replica.current {
            all.push((false, format!("{name} lags {} entries", replica.lag)));
        }
    }
}

/// Adds the alarms for events of the last minute.
fn lately(samples: &VecDeque<Sample>, all: &mut Vec<(bool, String)>) {
    let Some(last) = samples.back() else {
        return;
    };
    let recent = |s: &&Sample| last.at.since(s.at) <= LATELY_NS;
    let Some(first) = samples.iter().find(recent) else {
        return;
    };
    for (name, text) in [
        ("slow_consumers", "connections closed as slow consumers"),
        (
            "held_back",
            "publishes held back, because the log is too slow",
        ),
        ("refused", "requests refused, because too much waits"),
        (
            "stale_connections",
            "connections closed, because the clients did not answer pings",
        ),
        ("auth_failures", "logins failed"),
        (
            "late_turns",
            "times the event loop was late by 100 ms or more",
        ),
    ] {
        let n = last.count(name).saturating_sub(first.count(name));
        if n > 0 {
            all.push((false, format!("{n} {text} in the last minute")));
        }
    }
}

/// Writes a number of seconds as a person says it: two digits at most, in one unit.
fn about(s: u64) -> String {
    match s {
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s / 60),
        7200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Disk;
    use super::*;
    use tidegate::Time;

    fn sample(s: u64, free_bytes: u64) -> Sample {
        let disk = Disk {
            free_bytes,
            total_bytes: 1 << 40,
        };
        Sample::with_disk(Time::from_nanos(s * 1_000_000_000), disk)
    }

    #[test]
    fn a_shrinking_disk_is_full_at_a_time_that_follows_from_its_rate() {
        let falls = VecDeque::from([sample(0, 2000), sample(100, 1000)]);
        assert_eq!(full_in_s(&falls), Some(100));
        let short = VecDeque::from([sample(0, 2000), sample(59, 1000)]);
        assert_eq!(full_in_s(&short), None);
        let grows = VecDeque::from([sample(0, 1000), sample(100, 2000)]);
        assert_eq!(full_in_s(&grows), None);
        assert_eq!(full_in_s(&VecDeque::new()), None);
    }

    #[test]
    fn growing_streams_reach_their_bound_at_a_time_that_follows_from_their_rate() {
        let mut samples = VecDeque::from([sample(0, 1), sample(100, 1)]);
        for (at, bytes) in [1000, 2000].into_iter().enumerate() {
            samples[at].set_level("storage_bytes", bytes);
        }
        assert_eq!(reaches_in_s(&samples, 5000), Some(300));
        assert_eq!(reaches_in_s(&samples, 2000), Some(0));
        samples[1].at = Time::from_nanos(59_000_000_000);
        assert_eq!(reaches_in_s(&samples, 5000), None, "too short");
        samples[1].set_level("storage_bytes", 900);
        assert_eq!(reaches_in_s(&samples, 5000), None, "the streams shrink");
    }

    #[test]
    fn times_are_said_in_one_unit() {
        let said = [14, 119, 120, 7199, 10_800, 172_800].map(about);
        assert_eq!(said, ["14 s", "119 s", "2 min", "119 min", "3 h", "2 d"]);
    }

    #[test]
    fn only_events_of_the_last_minute_are_alarms() {
        let mut samples = VecDeque::from([sample(0, 1), sample(30, 1), sample(100, 1)]);
        samples[1].set("slow_consumers", 4);
        samples[2].set("slow_consumers", 4);
        let mut all = Vec::new();
        lately(&samples, &mut all);
        assert!(all.is_empty(), "{all:?}");
        samples[2].set("refused", 2);
        samples.push_back(samples[2].clone());
        samples[3].at = Time::from_nanos(101_000_000_000);
        samples[3].set("refused", 5);
        lately(&samples, &mut all);
        assert_eq!(all.len(), 1);
        assert!(all[0].1.starts_with("3 requests refused"), "{all:?}");
    }
}
