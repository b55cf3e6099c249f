//! Answers why a message became durable when it did: the sync that covered the message's entry, the waits
//! before it, and the time that a sync at once would have taken.
//!
//! The event loop finds the place of the message. This module reads the record there on a thread that may
//! block, and asks the log for the sync of the record. The arithmetic ([`Times`]) is pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tidegate_log::{Log, Lsn, PastSync, Record, SyncOf, batch_bytes};
use tidegate_raft::replica::records::{KIND_ENTRY, KIND_FETCHED, KIND_RELOCATED};
use tidegate_stream::stream::Entry;

use crate::event_loop::report::query::Message;
use crate::event_loop::report::server::rfc3339;
use crate::event_loop::report::why::{Here, Located};

/// The greatest difference, in microseconds, by which an entry may seem younger than its sync. Two readings
/// of clocks differ by so much; after a greater one an operator has set the clock.
const CLOCKS_DIFFER_US: i64 = 2_000;
/// The number of times that the monitor asks for a sync that has ended but that the log has not noted yet.
const ASKS: usize = 100;
/// The time between two of these questions.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// Makes the answer about `message` from its place on this node. Blocks while it reads the log. The first
/// part of the result is true if the answer names the sync.
pub(super) fn answer(message: &Message, located: Option<&Located>) -> (bool, Value) {
    let name = &message.stream;
    let seq = message.seq;
    let (outcome, text) = match located {
        Some(Located::Here(here)) => match explain(here) {
            Ok(mut sync) => {
                sync["outcome"] = "found".into();
                sync["stream"] = name.as_str().into();
                sync["seq"] = seq.into();
                return (true, sync);
            }
            Err(reason) => reason,
        },
        Some(Located::InMemory) => (
            "memory",
            "the stream keeps its messages in memory, so no sync made the message durable".into(),
        ),
        Some(Located::Removed) => (
            "removed",
            format!("the stream has removed message {seq}, and its place in the log with it"),
        ),
        Some(Located::NotYet(last)) => (
            "not_yet",
            format!("the stream has no message {seq} yet: its last one is {last}"),
        ),
        Some(Located::Elsewhere) => (
            "elsewhere",
            "only other nodes keep the stream: ask one of them; `tidegate stream info` lists them"
                .into(),
        ),
        Some(Located::UnknownStream) => ("unknown_stream", "no stream has this name".into()),
        None => (
            "no_streams",
            "the server has no streams: it runs without them, or has not opened them yet".into(),
        ),
    };
    let answer = json!({ "outcome": outcome, "stream": name, "seq": seq, "text": text });
    (false, answer)
}

/// Describes the sync of a message in this node's log, or says why the node cannot name it.
fn explain(here: &Here) -> Result<Value, (&'static str, String)> {
    let record = here.log.reader().read(here.lsn, None);
    let record = record.map_err(|e| ("unreadable", format!("cannot read the log: {e}")))?;
    match record.kind {
        KIND_ENTRY => {}
        KIND_RELOCATED => {
            let text = "the server has copied the message to another place in the log to free space, and so has forgotten its sync";
            return Err(("moved", text.into()));
        }
        KIND_FETCHED => {
            let text =
                "this node has fetched the message from another node, which decided about its sync";
            return Err(("fetched", text.into()));
        }
        kind => {
            return Err((
                "unreadable",
                format!("the log has a record of kind {kind} there"),
            ));
        }
    }
    let now = Now::read(&here.log);
    let (sync, before) = match settled(&here.log, here.lsn) {
        SyncOf::Sync(sync, before) => (sync, before),
        SyncOf::Earlier => {
            let text = "the message was durable before the server's start, and the server has forgotten the syncs of that time";
            return Err(("before_start", text.into()));
        }
        SyncOf::Forgotten(oldest) => {
            let oldest = rfc3339(now.wall(now.us_of(oldest.as_nanos())));
            return Err((
                "forgotten",
                format!("forgotten, the oldest kept is of {oldest}"),
            ));
        }
        _ => return Err(("not_durable", "no sync has covered the message yet".into())),
    };
    let entry_us = Entry::decode(&record.payload).ok().map(|e| e.time_us());
    let started_us = now.us_of(sync.started.as_nanos());
    let times = entry_us.and_then(|entry_us| {
        let idle_us = before.map(|t| now.us_of(t.as_nanos()));
        Times::new(entry_us as i64, started_us, idle_us)
    });
    Ok(json!({
        "leads": here.leads,
        "message_bytes": here.bytes,
        "entry": {
            "time": entry_us.map(|us| rfc3339(now.wall(us as i64))),
            "bytes": record.payload.len(),
            "position": here.lsn.get(),
        },
        "sync": {
            "started": rfc3339(now.wall(started_us)),
            "took_ns": sync.took_ns,
            "callers": sync.callers,
            "bytes": sync.end.since(sync.begin),
            "begin": sync.begin.get(),
            "end": sync.end.get(),
            "reason": sync.reason.as_str(),
        },
        "wait": times.map(|t| json!({ "behind_sync_ns": t.behind_ns, "held_ns": t.held_ns })),
        "fit": sync.fit.map(|(a, b)| json!({
            "sync_ns": a,
            "byte_ns": b,
            "expected_ns": expected_ns((a, b), sync.end.since(sync.begin)),
        })),
        "greedy": times.zip(sync.fit).map(|(times, fit)| greedy(times, fit, &sync, &record)),
    }))
}

/// The expected end of the message's sync after its entry, had the log synced as soon as the disk was free:
/// if the sync had taken the entry alone, and if it had taken all that the real sync took.
fn greedy(times: Times, fit: (f64, f64), sync: &PastSync, record: &Record) -> Value {
    let after = |bytes| times.behind_ns as f64 + expected_ns(fit, bytes);
    json!({
        "done_after_ns_min": after(batch_bytes(std::slice::from_ref(record))),
        "done_after_ns_max": after(sync.end.since(sync.begin)),
    })
}

fn expected_ns((a, b): (f64, f64), bytes: u64) -> f64 {
    a + b * bytes as f64
}

/// Asks the log for the sync of a durable record. The log notes a sync shortly after it has told of the
/// durable position, so the monitor asks again while the two do not agree.
fn settled(log: &Log, lsn: Lsn) -> SyncOf {
    for _ in 0..ASKS {
        match log.sync_of(lsn) {
            SyncOf::Later if log.durable() > lsn => std::thread::sleep(ASK_AGAIN),
            found => return found,
        }
    }
    log.sync_of(lsn)
}

/// The wall clock and the clock of the log at one moment, to give the log's times as times of day.
#[derive(Clone, Copy, Debug)]
struct Now {
    wall_us: i64,
    log_ns: u64,
}

impl Now {
    /// Reads both clocks. If the thread pauses between the two, reads them again.
    fn read(log: &Log) -> Self {
        let mut best = (
            u64::MAX,
            Self {
                wall_us: 0,
                log_ns: 0,
            },
        );
        for _ in 0..5 {
            let before = log.now();
            let wall = SystemTime::now().duration_since(UNIX_EPOCH);
            let wall_us = wall.map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX));
            let apart = log.now().since(before);
            let log_ns = before.as_nanos() + apart / 2;
            if apart < best.0 {
                best = (apart, Self { wall_us, log_ns });
            }
        }
        best.1
    }

    /// Returns the time of day, in microseconds since 1970, of a time on the log's clock.
    fn us_of(self, log_ns: u64) -> i64 {
        let ago_us = i64::try_from(self.log_ns.saturating_sub(log_ns) / 1000).unwrap_or(i64::MAX);
        self.wall_us.saturating_sub(ago_us)
    }

    fn wall(self, us: i64) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }
}

/// The two waits of an entry before its sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    /// The time for which the entry waited for the end of the sync before, in nanoseconds.
    behind_ns: i64,
    /// The time for which the disk was free and the entry still waited: the controller held it back, or no
    /// thread ran.
    held_ns: i64,
}

impl Times {
    /// Computes the waits of an entry of the time `entry_us` before a sync that started at `started_us`. The
    /// sync before ended at `idle_us`. Returns `None` if an operator has set the clock in between.
    fn new(entry_us: i64, started_us: i64, idle_us: Option<i64>) -> Option<Self> {
        let waited = started_us - entry_us;
        if waited < -CLOCKS_DIFFER_US {
            return None;
        }
        let waited = waited.max(0);
        let behind = idle_us.map_or(0, |idle| (idle - entry_us).clamp(0, waited));
        Some(Self {
            behind_ns: behind * 1000,
            held_ns: (waited - behind) * 1000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_waits_behind_a_sync_and_then_for_company() {
        let times = |entry, started, idle| {
            Times::new(entry, started, idle).map(|t| (t.behind_ns, t.held_ns))
        };
        assert_eq!(times(1000, 1500, Some(1300)), Some((300_000, 200_000)));
        assert_eq!(times(1000, 1500, Some(900)), Some((0, 500_000)));
        assert_eq!(times(1000, 1500, Some(1600)), Some((500_000, 0)));
        assert_eq!(times(1000, 1500, None), Some((0, 500_000)));
        assert_eq!(times(1000, 990, Some(1600)), Some((0, 0)));
        assert_eq!(times(900_000, 990, None), None);
    }

    #[test]
    fn messages_without_a_sync_have_a_reason_each() {
        let message = Message {
            stream: "a\"b".into(),
            seq: 7,
        };
        let cases = [
            Some(Located::InMemory),
            Some(Located::Removed),
            Some(Located::NotYet(3)),
            Some(Located::Elsewhere),
            Some(Located::UnknownStream),
            None,
        ];
        let mut outcomes = Vec::new();
        for located in cases {
            let (found, answer) = answer(&message, located.as_ref());
            assert!(!found && !answer["text"].as_str().unwrap().is_empty());
            assert_eq!(
                (&answer["stream"], &answer["seq"]),
                (&json!("a\"b"), &json!(7))
            );
            outcomes.push(answer["outcome"].as_str().unwrap().to_owned());
        }
        outcomes.sort();
        outcomes.dedup();
        assert_eq!(outcomes.len(), 6);
    }
}
