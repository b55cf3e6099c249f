//! The JSON of `tidegate top --once --json`, pure. docs/operating.md describes its members.

use serde_json::{Map, Value, json};

use super::alarms::alarms;
use super::state::State;
use super::state::json::{at, num};
use super::state::overview::Overview;
use super::state::server::Rate;

/// Makes the document. A figure that the server does not tell is null.
pub(super) fn document(state: &State) -> Value {
    let (server, overview) = (state.server.as_ref(), state.overview.as_ref());
    let text = |path: &str| server.and_then(|s| s.text(path)).map(str::to_owned);
    let number = |path: &str| server.map_or(Value::Null, |s| at(s.body(), path).clone());
    let rate = |of: Rate| server.and_then(|s| s.rate(of));
    let syncs = rate(Rate::Syncs).filter(|n| *n > 0.0);
    let sync_ns = syncs
        .zip(rate(Rate::SyncNs))
        .map(|(syncs, cost)| cost / syncs);
    let of_storage = |path: &str| state.storage.as_ref().and_then(|s| num(s, path));
    let has_streams = of_storage("streams").is_some();
    let alarms: Vec<Value> = alarms(state)
        .into_iter()
        .map(|alarm| json!({ "bad": alarm.bad, "words": alarm.words }))
        .collect();
    json!({
        "url": state.settings.url,
        "server": {
            "name": text("server_name"),
            "id": text("server_id"),
            "version": text("version"),
            "uptime": text("uptime"),
            "now": text("now"),
            "tidegate": state.is_tidegate(),
        },
        "ready": state.health.as_ref().map(Result::is_ok),
        "not_ready": state.health.as_ref().and_then(|h| h.as_ref().err()),
        "alarms": alarms,
        "rates": {
            "seconds": server.and_then(|s| s.span()).map(|span| span.as_secs_f64()),
            "in_msgs_per_s": rate(Rate::InMsgs),
            "out_msgs_per_s": rate(Rate::OutMsgs),
            "in_bytes_per_s": rate(Rate::InBytes),
            "out_bytes_per_s": rate(Rate::OutBytes),
            "syncs_per_s": rate(Rate::Syncs),
            "sync_mean_ns": sync_ns,
            "commands_per_s": rate(Rate::Commands),
            "api_requests_per_s": rate(Rate::Requests),
            "cpu_cores": rate(Rate::CpuSeconds),
        },
        "publish_ack_ns": overview.and_then(Overview::acks).map(|a| json!({
            "p50": a.p50_ns, "p99": a.p99_ns, "count": a.count,
        })),
        "threads_cores": overview.map(Overview::threads).map(|threads| -> Value {
            threads.into_iter().map(|(name, cores)| (name, cores.into())).collect::<Map<_, _>>().into()
        }),
        "disk": overview.and_then(Overview::disk).map(|(free, total)| json!({
            "free_bytes": free, "total_bytes": total,
        })),
        "memory_bytes": number("mem"),
        "log_bytes": number("log.used_bytes"),
        "checkpoint_bytes": number("log.checkpoint_bytes"),
        "connections": number("connections"),
        "subscriptions": number("subscriptions"),
        "streams": has_streams.then(|| json!({
            "streams": of_storage("streams"),
            "consumers": of_storage("consumers"),
            "messages": of_storage("messages"),
            "bytes": of_storage("bytes"),
        })),
        "cluster": cluster(state),
        "boundaries": state.raw_boundaries.as_ref().map(|body| at(body, "boundaries")),
        "missing": state.missing,
    })
}

/// Makes the members of the cluster; null for a single server.
fn cluster(state: &State) -> Value {
    let server = state.server.as_ref();
    let name = server.and_then(|s| s.text("cluster.name"));
    let directory = state.directory.as_ref();
    if name.is_none() && directory.is_none() {
        return Value::Null;
    }
    let replicas: Vec<Value> = directory
        .iter()
        .flat_map(|d| &d.replicas)
        .map(|r| {
            json!({
                "name": r.name, "current": r.current, "offline": r.offline, "lag": r.lag,
                "heard_ns_ago": r.active_ns,
            })
        })
        .collect();
    let routes = state.routes.as_deref().unwrap_or_default();
    json!({
        "name": name,
        "leader": directory.and_then(|d| d.leader.as_deref()),
        "nodes": directory.and_then(|d| d.size),
        "replicas": replicas,
        "routes": routes.iter().map(|r| json!({ "name": r.name, "address": r.address })).collect::<Vec<_>>(),
    })
}

/// Formats the document so that no name in it can change a terminal: the form of JSON escapes some control
/// characters, and this function the rest.
pub(super) fn harmless(document: &Value) -> String {
    let text = format!("{document:#}");
    let mut out = String::with_capacity(text.len() + 1);
    let mut units = [0; 2];
    for c in text.chars() {
        let is_layout = c == '\n';
        let is_plain = c.is_ascii() && !c.is_ascii_control();
        if is_layout || is_plain || c.is_alphanumeric() {
            out.push(c);
            continue;
        }
        // Such a character stands in a string, where an escape means the same.
        for unit in c.encode_utf16(&mut units) {
            out += &format!("\\u{unit:04x}");
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_the_same_and_become_harmless() {
        let names = json!({ "a": ["\u{1b}[2J", "\u{9b}2J", "\u{202e}x", "日本\u{1f600}", "\"\\\n\t", "\u{7f}"] });
        let text = harmless(&names);
        assert!(!text.replace('\n', "").contains(char::is_control), "{text}");
        assert!(
            !text.contains('\u{202e}') && text.contains("日本"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), names);
    }
}
