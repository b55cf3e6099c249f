//! Writes the reports on traced messages, in nats-server's form (its `MsgTraceEvent`).

use serde_json::{Map, Value, json};
use tidegate_cluster::roster::PeerSlot;

use crate::event_loop::report::query::ACCOUNT;
use crate::event_loop::report::{Peer, Report};
use crate::monitor::json::WallClock;
use crate::sessions::traces::{End, Trace};

/// The numbers by which nats-server tells the kinds of ends apart.
const CLIENT: u64 = 0;
const ROUTER: u64 = 1;

/// The header in which a report names the place of its node on the path of the message.
const HOP: &str = "Nats-Trace-Hop";

/// Makes the report on a message: from where it came to this server, and to which receivers it goes.
pub(super) fn event(trace: &Trace, server: Value, report: &Report, wall: &WallClock) -> Value {
    let at = wall.at(trace.at.as_nanos());
    let hop = hop(trace, report);
    let mut headers = Map::new();
    for (name, value) in &trace.headers {
        let values = headers.entry(text(name)).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(text(value).into());
        }
    }
    if let Some(hop) = &hop {
        headers.insert(HOP.to_owned(), json!([hop]));
    }
    let mut ingress = step("in", &trace.from, &at, report);
    ingress["subj"] = text(&trace.subject).into();
    let mut events = vec![ingress];
    if let Some(stream) = &trace.stream {
        let subject = text(&trace.subject);
        events.push(json!({ "type": "js", "ts": at, "stream": stream, "subject": subject }));
    }
    let mut hops = 0;
    for receiver in &trace.receivers {
        let mut egress = step("eg", &receiver.end, &at, report);
        match &receiver.end {
            End::Client { .. } => {
                egress["sub"] = text(&receiver.pattern).into();
                if let Some(queue) = &receiver.queue {
                    egress["queue"] = text(queue).into();
                }
            }
            End::Peer(slot) => {
                hops += 1;
                let to = peer(*slot, report).map_or(0, |peer| peer.id);
                egress["hop"] = match &hop {
                    Some(hop) => format!("{hop}.{to}"),
                    None => to.to_string(),
                }
                .into();
            }
        }
        events.push(egress);
    }
    let mut out = json!({
        "server": server,
        "request": { "header": headers, "msgsize": trace.size },
        "events": events,
    });
    if hops > 0 {
        out["hops"] = hops.into();
    }
    out
}

/// Returns the place of this node on the path of a message that came from another node: the number of each
/// node that received it, joined by dots. nats-server counts the receivers of each node instead, and writes
/// the count into the message. The number of a node needs no change of the message, and tools only compare.
fn hop(trace: &Trace, report: &Report) -> Option<String> {
    let End::Peer(from) = trace.from else {
        return None;
    };
    let own = report.cluster.as_ref().map_or(0, |cluster| cluster.id);
    Some(match trace.passed {
        0 | 1 => own.to_string(),
        _ => format!("{}.{own}", peer(from, report).map_or(0, |peer| peer.id)),
    })
}

fn peer(slot: PeerSlot, report: &Report) -> Option<&Peer> {
    let mut peers = report.cluster.iter().flat_map(|cluster| &cluster.peers);
    peers.find(|peer| peer.slot == slot)
}

fn step(kind: &str, end: &End, at: &str, report: &Report) -> Value {
    let (kind_of_end, cid, name) = match end {
        End::Client { cid, name } => (CLIENT, *cid, name.clone()),
        End::Peer(slot) => (
            ROUTER,
            0,
            peer(*slot, report)
                .map(|peer| peer.name.clone())
                .unwrap_or_default(),
        ),
    };
    let mut out = json!({ "type": kind, "ts": at, "kind": kind_of_end, "cid": cid });
    if !name.is_empty() {
        out["name"] = name.into();
    }
    if kind_of_end == CLIENT {
        out["acc"] = ACCOUNT.into();
    }
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
