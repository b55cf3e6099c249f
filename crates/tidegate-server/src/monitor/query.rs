//! Reads the parameters of a request to the monitor, with nats-server's names and errors, so that tools for
//! nats-server can ask.

use std::borrow::Cow;
use std::num::IntErrorKind;

use tidegate_nats::subject;

use crate::event_loop::report::query::{
    By, HealthQuery, List, Message, PAGE_MAX, Query, Sort, State,
};

/// The greatest length of a text to search for, in bytes: the search looks at each entry of a list.
const SEARCH_MAX: usize = 256;

/// Reads the parameters in the request's `text` that the page at `path` knows. Ignores unknown parameters, as
/// nats-server does.
///
/// # Errors
/// A parameter has a value that nats-server refuses too.
pub(super) fn parse(path: &str, text: &str) -> Result<Query, String> {
    if path == "/why" {
        return message(text);
    }
    if path == "/healthz" {
        return health(text).map(Query::of_health);
    }
    let mut query = Query::new(match path {
        "/connz" => List::Connections,
        "/subsz" | "/subscriptionsz" => List::Subscriptions,
        "/jsz" => List::Streams,
        "/consumerz" => List::Consumers,
        "/accountz" | "/accstatz" => List::Accounts,
        _ => return Ok(Query::new(List::Nothing)),
    });
    for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = decode(value)?;
        let value = &*value;
        if value.is_empty() {
            continue;
        }
        match (key, query.list) {
            ("offset", _) => query.offset = at_least_zero(key, value)?,
            ("limit", _) => {
                query.limit = match at_least_zero(key, value)? {
                    0 => PAGE_MAX,
                    limit => limit.min(PAGE_MAX),
                }
            }
            ("acc", _) => query.account = Some(value.into()),
            ("subs", List::Connections) if value.eq_ignore_ascii_case("detail") => {
                query.subscriptions = true;
            }
            ("subs", List::Connections | List::Subscriptions) => {
                query.subscriptions = truth(key, value)?;
            }
            ("cid", List::Connections) => {
                let cid = value.parse();
                let wrong = || format!("Error decoding uint64 for '{key}': expected a number");
                query.cid = Some(cid.map_err(|_| wrong())?);
            }
            ("user", List::Connections) => query.user = Some(value.into()),
            ("sort", List::Connections) => query.sort = sort_of(value)?,
            ("sort", List::Streams | List::Consumers) => {
                query.by = Some(by(query.list, value)?);
            }
            ("stream", List::Consumers) => query.stream = Some(value.into()),
            ("search", List::Connections | List::Streams | List::Consumers) => {
                if value.len() > SEARCH_MAX {
                    return Err(format!("search: expected at most {SEARCH_MAX} bytes"));
                }
                query.search = Some(value.into());
            }
            ("state", List::Connections) => query.state = state(value)?,
            ("test", List::Subscriptions) => {
                if !subject::is_literal(value.as_bytes()) {
                    return Err(format!(
                        "invalid test subject, must be valid publish subject: {value}"
                    ));
                }
                query.test = Some(value.into());
            }
            ("unused", List::Accounts) => query.accounts = truth(key, value)?,
            ("accounts", List::Streams) => query.accounts = truth(key, value)?,
            ("streams", List::Streams) => query.streams = truth(key, value)?,
            ("consumers", List::Streams) => query.consumers = truth(key, value)?,
            _ => {}
        }
    }
    // The monitor takes the connection number 0 for no choice of a connection, as nats-server does.
    query.cid = query.cid.filter(|cid| *cid > 0);
    if query.cid.is_some() {
        query.limit = 1;
    }
    check_sort(&query)?;
    Ok(query)
}

/// Reads the parameters of a health check.
fn health(text: &str) -> Result<HealthQuery, String> {
    let mut check = HealthQuery::default();
    for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = decode(value)?;
        if value.is_empty() {
            continue;
        }
        match key {
            "js-enabled" | "js-enabled-only" => check.enabled_only |= truth(key, &value)?,
            "js-server-only" => check.server_only = truth(key, &value)?,
            "js-meta-only" => check.meta_only = truth(key, &value)?,
            "details" => check.details = truth(key, &value)?,
            "account" => check.account = Some(value.into_owned()),
            "stream" => check.stream = Some(value.into_owned()),
            "consumer" => check.consumer = Some(value.into_owned()),
            _ => {}
        }
    }
    Ok(check)
}

/// Reads the message that the reader wants explained: both parameters must be there.
fn message(text: &str) -> Result<Query, String> {
    let (mut stream, mut seq) = (None, None);
    for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = decode(value)?;
        match key {
            "stream" if value.is_empty() => return Err("stream: expected a name".into()),
            "stream" => stream = Some(value.into_owned()),
            "seq" => {
                let number = value.parse::<u64>().ok().filter(|n| *n > 0);
                seq = Some(number.ok_or("seq: expected a number from 1 on")?);
            }
            _ => {}
        }
    }
    let (Some(stream), Some(seq)) = (stream, seq) else {
        return Err("expected /why?stream=NAME&seq=NUMBER".into());
    };
    let message = Some(Message { stream, seq });
    Ok(Query {
        message,
        ..Query::new(List::Nothing)
    })
}

/// Reads a number from a parameter. Takes a negative number for 0, as nats-server does.
fn at_least_zero(key: &str, value: &str) -> Result<usize, String> {
    match value.parse::<i64>() {
        Ok(n) => Ok(usize::try_from(n).unwrap_or(0)),
        Err(e) if *e.kind() == IntErrorKind::PosOverflow => Ok(usize::MAX),
        Err(_) => Err(format!(
            "Error decoding int for '{key}': expected a number, not {value}"
        )),
    }
}

fn truth(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        _ => Err(format!(
            "Error decoding boolean for '{key}': expected true or false, not {value}"
        )),
    }
}

fn state(value: &str) -> Result<State, String> {
    match &*value.to_ascii_lowercase() {
        "open" => Ok(State::Open),
        "closed" => Ok(State::Closed),
        "any" | "all" => Ok(State::All),
        _ => Err(format!("Error decoding state for {value}")),
    }
}

/// Reads the figure by which a reader wants connections in order.
///
/// # Errors
/// nats-server knows no such figure.
pub(crate) fn sort_of(value: &str) -> Result<Sort, String> {
    Ok(match value {
        // This server measures no round trips, so all of them are equal.
        "cid" | "rtt" => Sort::Cid,
        "start" | "uptime" => Sort::Start,
        "subs" => Sort::Subscriptions,
        "pending" => Sort::Pending,
        "msgs_to" => Sort::MsgsTo,
        "msgs_from" => Sort::MsgsFrom,
        "bytes_to" => Sort::BytesTo,
        "bytes_from" => Sort::BytesFrom,
        "last" => Sort::Last,
        "idle" => Sort::Idle,
        "stop" => Sort::Stop,
        "reason" => Sort::Reason,
        _ => return Err(format!("invalid sorting option: {value}")),
    })
}

/// Checks that the connections which the reader wants have the figure by which it sorts them.
///
/// # Errors
/// Only closed connections have that figure.
pub(crate) fn check_sort(query: &Query) -> Result<(), String> {
    let of_closed = match query.sort {
        Sort::Stop => "stop",
        Sort::Reason => "reason",
        _ => return Ok(()),
    };
    match query.state {
        State::Closed => Ok(()),
        _ => Err(format!(
            "sort by {of_closed} only valid on closed connections"
        )),
    }
}

fn by(list: List, value: &str) -> Result<By, String> {
    let known: &[(&str, By)] = match list {
        List::Consumers => &[
            ("name", By::Name),
            ("pending", By::Pending),
            ("ack_pending", By::AckPending),
            ("redelivered", By::Redelivered),
        ],
        _ => &[
            ("name", By::Name),
            ("messages", By::Messages),
            ("bytes", By::Bytes),
            ("consumers", By::Consumers),
            ("last", By::Last),
        ],
    };
    let found = known.iter().find(|(name, _)| *name == value);
    found.map(|(_, by)| *by).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("sort: expected one of {}, not {value}", names.join(", "))
    })
}

/// Decodes the value of a parameter, which browsers encode: `%XX` into a byte, and `+` into a blank.
pub(super) fn decode(value: &str) -> Result<Cow<'_, str>, String> {
    if !value.contains(['%', '+']) {
        return Ok(value.into());
    }
    let wrong = || format!("expected %XX for a byte: {value}");
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || Some((rest.next()? as char).to_digit(16)? as u8);
                let (high, low) = (digit(), digit());
                high.zip(low).map(|(h, l)| 16 * h + l).ok_or_else(wrong)?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes)
        .map(Into::into)
        .map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_each_page() {
        let query = parse("/connz", "state=ALL&cid=7&subs=detail&user=a%20b&x=y").unwrap();
        let wanted = Query {
            state: State::All,
            cid: Some(7),
            subscriptions: true,
            user: Some("a b".into()),
            limit: 1,
            ..Query::new(List::Connections)
        };
        assert_eq!(query, wanted);
        let query = parse("/connz", "sort=msgs_from&search=a%2Fb").unwrap();
        assert_eq!(
            (query.sort, query.search.as_deref()),
            (Sort::MsgsFrom, Some("a/b"))
        );
        assert_eq!(parse("/subsz", "search=x&sort=no").unwrap().search, None);
        let query = parse("/subsz", "subs=1&test=a.b&acc=%24G&offset=3&limit=2").unwrap();
        let wanted = Query {
            subscriptions: true,
            test: Some("a.b".into()),
            account: Some("$G".into()),
            offset: 3,
            limit: 2,
            ..Query::new(List::Subscriptions)
        };
        assert_eq!(query, wanted);
        let query = parse("/jsz", "consumers=true&acc=other&limit=9999&offset=-1").unwrap();
        let wanted = Query {
            consumers: true,
            account: Some("other".into()),
            ..Query::new(List::Streams)
        };
        assert_eq!(query, wanted);
        assert!(!query.shows_account());
        let query = parse("/consumerz", "sort=ack_pending&stream=S&search=c").unwrap();
        let wanted = Query {
            by: Some(By::AckPending),
            stream: Some("S".into()),
            search: Some("c".into()),
            ..Query::new(List::Consumers)
        };
        assert_eq!(query, wanted);
        assert_eq!(parse("/jsz", "sort=bytes").unwrap().by, Some(By::Bytes));
        assert_eq!(parse("/varz", "limit=x").unwrap().list, List::Nothing);
        let query = parse("/connz", "sort=stop&state=closed").unwrap();
        assert_eq!((query.sort, query.state), (Sort::Stop, State::Closed));
        let text =
            "js-enabled-only=1&account=%24G&stream=S&consumer=C&details=true&x=y&js-meta-only=";
        let wanted = HealthQuery {
            enabled_only: true,
            account: Some("$G".into()),
            stream: Some("S".into()),
            consumer: Some("C".into()),
            details: true,
            ..HealthQuery::default()
        };
        let query = parse("/healthz", text).unwrap();
        assert_eq!(query.health.as_deref(), Some(&wanted));
        assert_eq!(
            parse("/connz", "limit=0&cid=&state=").unwrap(),
            Query::new(List::Connections)
        );
    }

    #[test]
    fn wrong_values_are_refused() {
        for (path, text) in [
            ("/connz", "limit=x"),
            ("/connz", "state=asleep"),
            ("/connz", "subs=yes"),
            ("/connz", "cid=-1"),
            ("/connz", "user=%2"),
            ("/subsz", "test=a.*"),
            ("/connz", "sort=name"),
            ("/jsz", "streams=2"),
            ("/jsz", "streams=1&sort=pending"),
            ("/consumerz", "sort=bytes"),
            ("/healthz", "details=perhaps"),
        ] {
            assert!(parse(path, text).is_err(), "{path} {text}");
        }
        for (text, error) in [
            ("sort=name", "invalid sorting option: name"),
            ("state=asleep", "Error decoding state for asleep"),
            ("sort=stop", "sort by stop only valid on closed connections"),
            (
                "sort=reason&state=any",
                "sort by reason only valid on closed connections",
            ),
        ] {
            assert_eq!(parse("/connz", text).unwrap_err(), error);
        }
        let long = format!("search={}", "x".repeat(SEARCH_MAX + 1));
        assert!(parse("/jsz", &long).is_err());
    }
}
