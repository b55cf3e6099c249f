//! Writes the reports on traced messages, in nats-server's form (its `MsgTraceEvent`).

use serde_json::{Map, Value, json};

use crate::event_loop::report::Report;
use crate::event_loop::report::query::ACCOUNT;
use crate::monitor::json::WallClock;
use crate::sessions::traces::{End, Trace};

/// The numbers by which nats-server tells the kinds of ends apart.
const CLIENT: u64 = 0;
const ROUTER: u64 = 1;

/// Makes the report on a message: from where it came to this server, and to which receivers it goes.
pub(super) fn event(trace: &Trace, server: Value, report: &Report, wall: &WallClock) -> Value {
    let at = wall.at(trace.at.as_nanos());
    let mut headers = Map::new();
    for (name, value) in &trace.headers {
        let values = headers.entry(text(name)).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(text(value).into());
        }
    }
    let mut ingress = step("in", &trace.from, &at, report);
    ingress["subj"] = text(&trace.subject).into();
    let mut events = vec![ingress];
    if let Some(stream) = &trace.stream {
        let subject = text(&trace.subject);
        events.push(json!({ "type": "js", "ts": at, "stream": stream, "subject": subject }));
    }
    for receiver in &trace.receivers {
        let mut egress = step("eg", &receiver.end, &at, report);
        if matches!(receiver.end, End::Client { .. }) {
            egress["sub"] = text(&receiver.pattern).into();
            if let Some(queue) = &receiver.queue {
                egress["queue"] = text(queue).into();
            }
        }
        events.push(egress);
    }
    json!({
        "server": server,
        "request": { "header": headers, "msgsize": trace.size },
        "events": events,
    })
}

fn step(kind: &str, end: &End, at: &str, report: &Report) -> Value {
    let (kind_of_end, cid, name) = match end {
        End::Client { cid, name } => (CLIENT, *cid, name.clone()),
        End::Peer(slot) => {
            let peers = report.cluster.iter().flat_map(|cluster| &cluster.peers);
            let peer = peers.into_iter().find(|peer| peer.slot == *slot);
            (
                ROUTER,
                0,
                peer.map(|peer| peer.name.clone()).unwrap_or_default(),
            )
        }
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
