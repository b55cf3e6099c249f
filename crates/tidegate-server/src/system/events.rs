//! Makes the messages about clients' connections for the system account, in nats-server's form.

use serde_json::{Value, json};
use tidegate_nats::session::CloseReason;
use tidegate_nats::settings::Account;

use crate::event_loop::report::Report;
use crate::event_loop::report::query::ACCOUNT;
use crate::event_loop::report::server::rfc3339;
use crate::monitor::json::WallClock;
use crate::sessions::audits::Audit;
use crate::sessions::system::{Connection, subject_of_connection, subject_of_server};

/// Returns the subject at which this server publishes an event of the kind `verb`.
pub(super) fn subject(report: &Report, verb: &str) -> String {
    subject_of_server(&report.info.server_id, verb)
}

/// Makes the subject and the body of the message that tells the system account's clients of a new connection,
/// so that they can watch who uses the server.
pub(super) fn connected(
    of: &Connection,
    server: Value,
    seq: u64,
    report: &Report,
    wall: &WallClock,
) -> (String, Value) {
    let subject = subject_of_connection(account(of, report), "CONNECT");
    let mut body = event(
        "io.nats.server.advisory.v1.client_connect",
        server,
        seq,
        wall,
        report,
    );
    body["client"] = client(of, report, wall);
    (subject, body)
}

/// Makes the subject and the body of the message that tells the system account's clients of the end of a
/// connection.
pub(super) fn disconnected(
    of: &Connection,
    reason: CloseReason,
    server: Value,
    seq: u64,
    report: &Report,
    wall: &WallClock,
) -> (String, Value) {
    let subject = subject_of_connection(account(of, report), "DISCONNECT");
    let kind = "io.nats.server.advisory.v1.client_disconnect";
    let mut body = event(kind, server, seq, wall, report);
    let mut client = client(of, report, wall);
    client["stop"] = wall.at(of.until.as_nanos()).into();
    body["client"] = client;
    // nats-server names the counts from the view of the client: the client sent the messages that the server
    // received.
    let t = of.traffic;
    body["sent"] = json!({ "msgs": t.in_msgs, "bytes": t.in_bytes });
    body["received"] = json!({ "msgs": t.out_msgs, "bytes": t.out_bytes });
    body["reason"] = reason.as_str().into();
    (subject, body)
}

/// Makes the body of the message about a client's request to the streams' API and the answer to it.
pub(super) fn audited(audit: &Audit, seq: u64, report: &Report, wall: &WallClock) -> Value {
    let kind = "io.nats.jetstream.advisory.v1.api_audit";
    let server = report.info.server_name.as_str().into();
    let mut body = event(kind, server, seq, wall, report);
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes));
    if let Some(domain) = &report.domain {
        body["domain"] = domain.as_str().into();
    }
    body["client"] = client(&audit.client, report, wall);
    body["subject"] = text(&audit.subject);
    if !audit.request.is_empty() {
        body["request"] = text(&audit.request);
    }
    body["response"] = text(&audit.response);
    body
}

fn event(kind: &str, server: Value, seq: u64, wall: &WallClock, report: &Report) -> Value {
    // The id is unique, because only this server has the server's id in it, and no other event of this server
    // has the number.
    let id: String = report.info.server_id.chars().take(12).collect();
    json!({
        "type": kind,
        "id": format!("{id}{seq:010}"),
        "timestamp": rfc3339(wall.now()),
        "server": server,
    })
}

fn account<'a>(of: &Connection, report: &'a Report) -> &'a str {
    match of.account {
        Account::Global => ACCOUNT,
        Account::System => &report.system_account,
    }
}

fn client(of: &Connection, report: &Report, wall: &WallClock) -> Value {
    let mut out = json!({
        "start": wall.at(of.since.as_nanos()),
        "host": of.address.ip().to_string(),
        "id": of.cid,
        "acc": account(of, report),
        "kind": "Client",
        "client_type": "nats",
    });
    let texts = [("name", &of.name), ("lang", &of.lang), ("ver", &of.version)];
    for (name, text) in texts {
        if !text.is_empty() {
            out[name] = text.as_str().into();
        }
    }
    if let Some(user) = &of.user {
        out["user"] = user.as_str().into();
    }
    out
}
