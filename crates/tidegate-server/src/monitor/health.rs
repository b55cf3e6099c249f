//! Makes the answers to health checks, with the parameters, the words and the codes of nats-server, so that
//! probes for nats-server find the same.

use serde_json::{Value, json};

use crate::event_loop::report::Report;
use crate::event_loop::report::health::Found;
use crate::event_loop::report::query::{ACCOUNT, HealthQuery};

/// A fault that a check has found.
struct Fault {
    kind: &'static str,
    stream: Option<String>,
    consumer: Option<String>,
    text: String,
}

impl Fault {
    const fn of(kind: &'static str, text: String) -> Self {
        Self {
            kind,
            stream: None,
            consumer: None,
            text,
        }
    }
}

/// Returns whether the server is ready, as a health check without parameters says.
pub(super) fn is_ready(r: &Report) -> bool {
    let forming = r.cluster.as_ref().is_some_and(|c| c.forming);
    let behind = r.streams.as_ref().and_then(|s| s.behind.as_deref());
    !forming && behind.is_none()
}

/// Makes the answer to a health check: its status code, and the body without that code.
pub(crate) fn healthz(r: &Report, query: &HealthQuery) -> (u16, Value) {
    let (code, faults) = match wrong(query) {
        Some(text) => (400, vec![Fault::of("BAD_REQUEST", text)]),
        None => check(r, query),
    };
    let body = match (faults.first(), query.details) {
        (None, _) => json!({ "status": "ok" }),
        (Some(first), false) => {
            let status = if code == 400 { "error" } else { "unavailable" };
            json!({ "status": status, "error": first.text })
        }
        (Some(_), true) => {
            let errors: Vec<Value> = faults.iter().map(|fault| detail(fault, query)).collect();
            json!({ "status": "error", "errors": errors })
        }
    };
    (code, body)
}

fn detail(fault: &Fault, query: &HealthQuery) -> Value {
    let mut out = json!({ "type": fault.kind, "error": fault.text });
    if fault.stream.is_some() || fault.kind == "ACCOUNT" {
        out["account"] = query.account.as_deref().unwrap_or(ACCOUNT).into();
    }
    for (name, value) in [("stream", &fault.stream), ("consumer", &fault.consumer)] {
        if let Some(value) = value {
            out[name] = value.as_str().into();
        }
    }
    out
}

/// Returns why the parameters do not fit together; `None` if they do.
fn wrong(query: &HealthQuery) -> Option<String> {
    let (lacking, what) = match (&query.account, &query.stream, &query.consumer) {
        (None, Some(_), _) => ("account", "stream"),
        (_, None, Some(_)) => ("stream", "consumer"),
        _ => return None,
    };
    Some(format!(
        "{lacking:?} must not be empty when checking {what} health"
    ))
}

fn check(r: &Report, query: &HealthQuery) -> (u16, Vec<Fault>) {
    if query.server_only || query.enabled_only {
        return (200, Vec::new());
    }
    if r.cluster.as_ref().is_some_and(|c| c.forming) {
        let text = "the cluster is not formed: its nodes have not all met";
        return (503, vec![Fault::of("JETSTREAM", text.into())]);
    }
    let Some(streams) = &r.streams else {
        return (200, Vec::new());
    };
    let health = &streams.health;
    if let Some(why) = &health.directory {
        return (503, vec![Fault::of("JETSTREAM", why.clone())]);
    }
    if query.meta_only {
        return (200, Vec::new());
    }
    let account = query.account.as_deref().unwrap_or(ACCOUNT);
    let stream = query.stream.as_deref().unwrap_or_default();
    let consumer = query.consumer.as_deref().unwrap_or_default();
    let missing = match health.found {
        Found::All => None,
        Found::NoAccount => Some(Fault::of(
            "ACCOUNT",
            format!("JetStream account {account:?} not found"),
        )),
        Found::NoStream => Some(Fault {
            stream: query.stream.clone(),
            ..Fault::of(
                "STREAM",
                format!("JetStream stream {stream:?} not found on account {account:?}"),
            )
        }),
        Found::NoConsumer => Some(Fault {
            stream: query.stream.clone(),
            consumer: query.consumer.clone(),
            ..Fault::of(
                "CONSUMER",
                format!(
                    "JetStream consumer {consumer:?} not found for stream {stream:?} on account {account:?}"
                ),
            )
        }),
    };
    if let Some(missing) = missing {
        return (404, vec![missing]);
    }
    let faults = health.faults.iter().map(|fault| match &fault.stream {
        None => Fault::of("JETSTREAM", fault.why.clone()),
        Some(name) => {
            let text = format!(
                "JetStream stream '{account} > {name}' is not current: {}",
                fault.why
            );
            Fault {
                stream: Some(name.clone()),
                ..Fault::of("STREAM", text)
            }
        }
    });
    let faults: Vec<Fault> = faults.collect();
    (if faults.is_empty() { 200 } else { 503 }, faults)
}
