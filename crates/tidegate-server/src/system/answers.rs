//! Makes the answers to questions of the system account's clients as JSON, in nats-server's form, so that
//! tools for nats-server can read them.

use serde_json::{Value, json};
use tidegate_nats::permissions::{Pattern, Permissions, Rules};
use tidegate_nats::settings::Account;

use super::questions::Asked;
use crate::event_loop::report::Report;
use crate::event_loop::report::query::ACCOUNT;
use crate::event_loop::report::server::rfc3339;
use crate::monitor::json::{self, Process, WallClock};
use crate::monitor::{accounts, health};
use crate::sessions::system::{About, Asker, Page, Question};

/// The answer of the server to a question of a client of the system account, as the thread makes it.
#[derive(Debug)]
pub(super) enum Answer {
    /// The server answers the question with this data, beside the facts about the server.
    Data(Value),
    /// The server has carried out the client's request, so it answers without data.
    Nothing,
    /// The server sends no answer to the client, for example because it has nothing to list.
    Silence,
    /// The server answers with its figures, in the form of nats-server's STATSZ.
    Stats(Value),
    /// The server answers with this document alone, without the facts about the server around it.
    Bare(Value),
    /// The server answers with an error of this code and text, because it cannot do what the client asks.
    Error(u16, String),
}

impl Answer {
    /// Makes the body of the answer, with `server`, the facts about the answering server, which every answer
    /// but [`Bare`](Self::Bare) shows; `None` if the server sends no answer.
    pub(super) fn body(self, server: Value) -> Option<Value> {
        Some(match self {
            Self::Data(data) => json!({ "server": server, "data": data }),
            Self::Nothing => json!({ "server": server }),
            Self::Silence => return None,
            Self::Stats(stats) => json!({ "server": server, "statsz": stats }),
            Self::Bare(document) => document,
            Self::Error(code, text) => {
                json!({ "server": server, "error": { "code": code, "description": text } })
            }
        })
    }
}

/// Makes the answer to a client's question for which the thread needs only a report of the event loop.
pub(super) fn answer(
    about: &About,
    question: &Question,
    asked: &Asked,
    report: &Report,
    wall: &WallClock,
) -> Answer {
    match about {
        About::User => Answer::Data(user(question.account, question.asker.as_ref(), report)),
        About::Account(name) => match accounts::info(report, name, wall) {
            Ok(info) => Answer::Data(info),
            Err(text) => Answer::Error(500, text),
        },
        About::PageOf(Page::Streams, name) => match &report.streams {
            Some(streams) if name == ACCOUNT => {
                Answer::Data(json::account_detail(report, streams, &asked.query))
            }
            _ => Answer::Error(500, format!("jetstream not enabled for account {name:?}")),
        },
        About::Page(page) | About::PageOf(page, _) => answer_page(*page, asked, report, wall),
        About::Reload | About::Kick | About::LameDuck => Answer::Silence,
    }
}

fn answer_page(page: Page, asked: &Asked, report: &Report, wall: &WallClock) -> Answer {
    let (info, query) = (&report.info, &asked.query);
    let nothing = |list: &str, count: &str| {
        let mut out = json!({ "server_id": info.server_id, "now": rfc3339(wall.now()) });
        out[count] = 0.into();
        out[list] = json!([]);
        out
    };
    Answer::Data(match page {
        Page::Id => {
            let id = json!({ "name": info.server_name, "host": info.host, "id": info.server_id });
            return Answer::Bare(id);
        }
        Page::Stats => return Answer::Stats(stats(report, wall)),
        Page::Var => json::varz(report, wall),
        Page::Connections => json::connz(report, query, wall),
        Page::Subscriptions => json::subsz(report, query, wall),
        Page::Routes => json::routez(report, wall),
        Page::Gateways => json!({
            "server_id": info.server_id,
            "now": rfc3339(wall.now()),
            "outbound_gateways": {},
            "inbound_gateways": {},
        }),
        Page::LeafNodes => nothing("leafs", "leafnodes"),
        Page::Accounts => match accounts::accountz(report, query, wall) {
            Ok(accounts) => accounts,
            Err(text) => return Answer::Error(500, text),
        },
        Page::AccountStats => {
            let all = accounts::accstatz(report, query, wall);
            let none = all["account_statz"].as_array().is_none_or(Vec::is_empty);
            if none && !query.accounts {
                return Answer::Silence;
            }
            all
        }
        Page::Streams => json::jsz(report, query, wall),
        Page::Health => {
            let check = query.health.as_deref().cloned().unwrap_or_default();
            let (code, mut health) = health::healthz(report, &check);
            health["status_code"] = code.into();
            health
        }
        Page::Raft => json::raftz(report),
        Page::Queues => json!({}),
        Page::Profile => {
            let text = "this server has no profile of Go: profile the process with perf";
            return Answer::Error(501, text.into());
        }
        Page::Variables => json!({}),
    })
}

/// Makes the figures of the server that the answer to STATSZ shows, from which a client watches it.
pub(super) fn stats(r: &Report, wall: &WallClock) -> Value {
    let process = Process::now();
    let t = r.stats.traffic;
    let (sent, received) = (
        json!({ "msgs": t.out_msgs, "bytes": t.out_bytes }),
        json!({ "msgs": t.in_msgs, "bytes": t.in_bytes }),
    );
    let peers = r.cluster.as_ref().map_or(&[][..], |c| &c.peers[..]);
    let routes = peers.iter().map(|p| {
        let t = p.view.traffic;
        json!({
            "rid": p.slot.index() + 1,
            "name": p.name,
            "sent": { "msgs": t.out_msgs, "bytes": t.out_bytes },
            "received": { "msgs": t.in_msgs, "bytes": t.in_bytes },
            "pending": p.view.pending_bytes,
        })
    });
    let routes: Vec<Value> = routes.collect();
    let mut out = json!({
        "start": wall.at(0),
        "mem": process.memory_bytes,
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "cpu": process.cpu_percent(r.uptime_ns),
        "connections": r.connections,
        "total_connections": r.stats.total_connections,
        "active_accounts": 1,
        "subscriptions": r.sublist.len,
        "sent": sent,
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": r.stats.slow_consumers,
        "stale_connections": r.stats.stale_connections,
        "stalled_clients": r.stats.stalls,
        "active_servers": peers.len() + 1,
    });
    if !routes.is_empty() {
        out["routes"] = routes.into();
    }
    if let Some(streams) = &r.streams {
        out["jetstream"] = json::jetstream(streams);
    }
    out
}

/// Makes the facts about the client that asks: its user, account and permissions, because it asked about
/// itself.
fn user(account: Account, asker: Option<&Asker>, report: &Report) -> Value {
    let name = match account {
        Account::Global => ACCOUNT,
        Account::System => &report.system_account,
    };
    let mut out = json!({
        "user": asker.and_then(|a| a.user.as_deref()).unwrap_or_default(),
        "account": name,
        "account_name": name,
    });
    if let Some(permissions) = asker.and_then(|a| a.permissions.as_ref()) {
        out["permissions"] = rights(permissions);
    }
    out
}

fn rights(p: &Permissions) -> Value {
    let pattern = |p: &Pattern| {
        let subject = String::from_utf8_lossy(&p.subject);
        match &p.queue {
            Some(queue) => format!("{subject} {}", String::from_utf8_lossy(queue)),
            None => subject.into_owned(),
        }
    };
    let rules = |r: &Rules| {
        let list = |all: &[Pattern]| all.iter().map(pattern).collect::<Vec<_>>();
        let mut out = json!({});
        if let Some(allow) = &r.allow {
            out["allow"] = list(allow).into();
        }
        if !r.deny.is_empty() {
            out["deny"] = list(&r.deny).into();
        }
        out
    };
    let mut out = json!({ "publish": rules(&p.publish), "subscribe": rules(&p.subscribe) });
    if let Some(rule) = p.responses {
        let ttl = rule
            .expires
            .map_or(-1, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
        let max = rule
            .max
            .map_or(-1, |max| i64::try_from(max).unwrap_or(i64::MAX));
        out["responses"] = json!({ "max": max, "ttl": ttl });
    }
    out
}
