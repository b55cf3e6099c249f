//! Writes the figures of the accounts as JSON, with nats-server's names: one account for clients and their
//! streams, and the system account.

use serde_json::{Value, json};
use tidegate_nats::settings::Account;

use super::json::WallClock;
use crate::event_loop::report::Report;
use crate::event_loop::report::lists::AccountFigures;
use crate::event_loop::report::query::Query;
use crate::event_loop::report::server::rfc3339;

/// Makes the monitor's answer to `/accountz`: the names of the accounts, or the facts about one account if
/// the request names it, as nats-server does.
///
/// # Errors
/// The server has no account of the name in the request.
pub(crate) fn accountz(r: &Report, query: &Query, wall: &WallClock) -> Result<Value, String> {
    let mut out = json!({
        "server_id": r.info.server_id,
        "now": rfc3339(wall.now()),
        "system_account": r.system_account,
    });
    match &query.account {
        Some(name) => out["account_detail"] = info(r, name, wall)?,
        None => {
            let names = r.listed.accounts.iter().map(|a| a.name.as_str());
            out["accounts"] = names.collect();
        }
    }
    Ok(out)
}

/// Makes the facts about the account with this name for an answer.
///
/// # Errors
/// The server has no such account.
pub(crate) fn info(r: &Report, name: &str, wall: &WallClock) -> Result<Value, String> {
    let of = r.listed.accounts.iter().find(|a| a.name == name);
    let of = of.ok_or_else(|| format!("Account {name} does not exist"))?;
    let is_system = of.account == Account::System;
    let mut out = json!({
        "account_name": of.name,
        "update_time": wall.at(r.configured_ns),
        "expired": false,
        "complete": true,
        "jetstream_enabled": r.streams.is_some() && !is_system,
        "leafnode_connections": 0,
        "client_connections": of.connections,
        "subscriptions": of.subscriptions,
        "sublist_stats": { "num_subscriptions": of.subscriptions },
    });
    if is_system {
        out["is_system"] = true.into();
    }
    Ok(out)
}

/// Makes the monitor's answer to `/accstatz`: the connections, messages and bytes of the accounts. Leaves out
/// an account without connections unless the request names it, as nats-server does.
pub(crate) fn accstatz(r: &Report, query: &Query, wall: &WallClock) -> Value {
    let wanted = |a: &&AccountFigures| match &query.account {
        Some(name) => a.name == *name,
        None => a.connections > 0 || query.accounts,
    };
    let all = r.listed.accounts.iter().filter(wanted);
    let all: Vec<Value> = all.map(|a| statistics(r, a)).collect();
    json!({
        "server_id": r.info.server_id,
        "now": rfc3339(wall.now()),
        "account_statz": all,
    })
}

fn statistics(r: &Report, a: &AccountFigures) -> Value {
    json!({
        "acc": a.name,
        "name": a.name,
        "conns": a.connections,
        "leafnodes": 0,
        "total_conns": a.connections,
        "num_subscriptions": a.subscriptions,
        "sent": { "msgs": a.traffic.out_msgs, "bytes": a.traffic.out_bytes },
        "received": { "msgs": a.traffic.in_msgs, "bytes": a.traffic.in_bytes },
        "slow_consumers": if a.account == Account::Global { r.stats.slow_consumers } else { 0 },
    })
}
