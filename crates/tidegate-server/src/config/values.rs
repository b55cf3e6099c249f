//! Reads the value of one setting for the code of the blocks: text, a number, a duration, an address. An
//! error gives the operator the setting's name and line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_cluster::greeting::TAGS_BYTES_MAX;

use super::MessageToken;
use super::host_port::{HostPort, HostPortError};
use super::known;
use super::tree::{Item, Map, SyntaxError, Value};
use crate::SERIES_MAX;

/// The most further names of a host, for the dashboard.
const HOSTS_MAX: usize = 64;

pub(super) fn listen(
    key: &str,
    item: &Item,
    host: &mut String,
    port: &mut u16,
) -> Result<(), SyntaxError> {
    let expected = "HOST:PORT or PORT";
    match &item.value {
        Value::Integer(_) => *port = self::port(key, item)?,
        Value::Text(text) => {
            let (h, p) = text
                .rsplit_once(':')
                .ok_or_else(|| wrong(key, item, expected))?;
            *port = match p {
                "-1" => 0,
                _ => p.parse().map_err(|_| wrong(key, item, expected))?,
            };
            *host = h.trim_matches(['[', ']']).into();
        }
        _ => return Err(wrong(key, item, expected)),
    }
    Ok(())
}

pub(super) fn entries<'a>(key: &str, item: &'a Item) -> Result<&'a Map, SyntaxError> {
    match &item.value {
        Value::Map(map) => Ok(map),
        _ => Err(wrong(key, item, "{ ... }")),
    }
}

pub(super) fn list<'a>(key: &str, item: &'a Item) -> Result<&'a [Item], SyntaxError> {
    match &item.value {
        Value::List(list) => Ok(list),
        _ => Err(wrong(key, item, "[ ... ]")),
    }
}

pub(super) fn text(key: &str, item: &Item) -> Result<String, SyntaxError> {
    match &item.value {
        Value::Text(text) => Ok(text.clone()),
        // A setting that is text, such as a password, may look like a number in the file. The server then
        // takes the number's digits as the text, so that the operator need not quote it.
        Value::Integer(n) => Ok(n.to_string()),
        // The file no longer says how the operator wrote the number, so it cannot stand for a password.
        Value::Size(_) | Value::Float(_) => {
            Err(wrong(key, item, "text in quotes, and not a number"))
        }
        _ => Err(wrong(key, item, "text")),
    }
}

/// Reads the path of a file or a directory. Refuses empty text, which would stand for the current directory.
pub(super) fn file(key: &str, item: &Item) -> Result<PathBuf, SyntaxError> {
    let text = text(key, item)?;
    if text.is_empty() {
        let message =
            format!("`{key}` is empty: give a path (a variable may be unset), or remove it");
        return Err(error(item, message));
    }
    Ok(text.into())
}

/// Reads the address that the server advertises to clients. Empty text sets no address, as in nats-server.
pub(super) fn advertised(key: &str, item: &Item) -> Result<Option<HostPort>, SyntaxError> {
    let text = text(key, item)?;
    if text.is_empty() {
        return Ok(None);
    }
    let read = text.parse();
    read.map(Some)
        .map_err(|e: HostPortError| error(item, format!("`{key}`: {e}")))
}

/// Reads a user's name, a password or a token, the setting `key` in the block `of`. Refuses empty text, which
/// would admit every client or none.
pub(super) fn credential(of: &str, key: &str, item: &Item) -> Result<String, SyntaxError> {
    let text = text(key, item)?;
    if text.is_empty() {
        let message = format!(
            "`{of}.{key}` is empty, so it is no credential: fill it in (a variable may be unset), or remove it"
        );
        return Err(error(item, message));
    }
    Ok(text)
}

pub(super) fn name(key: &str, item: &Item) -> Result<String, SyntaxError> {
    let name = text(key, item)?;
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty() || name.contains(odd) {
        let expected = "a name without blanks and control characters";
        return Err(wrong(key, item, expected));
    }
    Ok(name)
}

pub(super) fn boolean(key: &str, item: &Item) -> Result<bool, SyntaxError> {
    match item.value {
        Value::Bool(b) => Ok(b),
        _ => Err(wrong(key, item, "true or false")),
    }
}

pub(super) fn number<N: TryFrom<i64>>(key: &str, item: &Item, min: i64) -> Result<N, SyntaxError> {
    match item.value {
        Value::Integer(n) | Value::Size(n) if n >= min => {
            let too_large = |_| error(item, format!("`{key}`: {n} is too large"));
            n.try_into().map_err(too_large)
        }
        _ => {
            let expected = format!("a whole number not below {min}");
            Err(wrong(key, item, &expected))
        }
    }
}

pub(super) fn count(key: &str, item: &Item, min: i64) -> Result<usize, SyntaxError> {
    // nats-server's configuration has -1 for no limit, so the code turns it into the 0 of [`Settings`].
    if min == 0 && item.value == Value::Integer(-1) {
        return Ok(0);
    }
    number(key, item, min)
}

/// Reads a bound on the series in the monitor's `/metrics`.
pub(super) fn series(key: &str, item: &Item) -> Result<usize, SyntaxError> {
    let wanted: Option<usize> = number(key, item, 0).ok();
    let expected = || wrong(key, item, &format!("a whole number from 0 to {SERIES_MAX}"));
    wanted.filter(|n| *n <= SERIES_MAX).ok_or_else(expected)
}

pub(super) fn payload(key: &str, item: &Item) -> Result<usize, SyntaxError> {
    const MAX: i64 = 64 << 20;
    match item.value {
        Value::Integer(n) | Value::Size(n) if (1..=MAX).contains(&n) => Ok(n as usize),
        _ => {
            let expected = format!("a number of bytes from 1 to {MAX}, such as 8MB");
            Err(wrong(key, item, &expected))
        }
    }
}

pub(super) fn port(key: &str, item: &Item) -> Result<u16, SyntaxError> {
    // nats-server's configuration has -1 for any free port, so the code turns it into the 0 of the settings.
    if item.value == Value::Integer(-1) {
        return Ok(0);
    }
    number(key, item, 0)
        .map_err(|_| wrong(key, item, "a port from 0 to 65535, or -1 for any free one"))
}

pub(super) fn positive(key: &str, item: &Item) -> Result<Duration, SyntaxError> {
    match duration(key, item)? {
        Duration::ZERO => Err(wrong(key, item, "a duration above 0, such as 2s")),
        d => Ok(d),
    }
}

/// Reads a duration from text such as `1m30s` or `250ms`, or from a number of seconds, as nats-server does.
pub(super) fn duration(key: &str, item: &Item) -> Result<Duration, SyntaxError> {
    let expected = || {
        wrong(
            key,
            item,
            "a duration such as 2s, 250ms or 1m30s, or a number of seconds",
        )
    };
    let seconds = match &item.value {
        Value::Integer(n) | Value::Size(n) => *n as f64,
        Value::Float(f) => *f,
        Value::Text(t) => parse_duration(t).ok_or_else(expected)?,
        _ => return Err(expected()),
    };
    // A duration may have at most about a century, so that a sum of times cannot overflow.
    if !(0.0..=3.2e9).contains(&seconds) {
        return Err(expected());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

pub(super) fn parse_duration(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * unit;
        rest = tail;
    }
    (!text.is_empty()).then_some(sum)
}

/// Finds the last item at the top level that sets this setting, under any of the setting's names, because the
/// last item counts.
pub(super) fn value<'a>(map: &'a Map, name: &str) -> Option<&'a Item> {
    let has = |key: &str| known::find("", key).is_some_and(|s| s.names[0] == name);
    map.iter()
        .rev()
        .find(|(key, _)| has(key))
        .map(|(_, item)| item)
}

/// Checks that the configuration asks the server to close the connection of a client that does not read
/// within `write_deadline`. The server refuses other values, because it knows no other reaction; this one is
/// nats-server's default.
pub(super) fn write_timeout(key: &str, item: &Item) -> Result<(), SyntaxError> {
    match text(key, item)?.as_str() {
        "default" | "close" => Ok(()),
        _ => Err(wrong(
            key,
            item,
            "close: the server closes the connection of a client that does not read",
        )),
    }
}

/// Returns the prefix of the monitor's paths in the form that the monitor expects: with a slash before it and
/// none after it.
pub(super) fn base_path(text: &str) -> String {
    match text.trim_matches('/') {
        "" => String::new(),
        path => format!("/{path}"),
    }
}

/// Reads the names of a host, without a scheme, a port or a path.
pub(super) fn hosts(key: &str, item: &Item) -> Result<Vec<String>, SyntaxError> {
    let names: Vec<String> = match &item.value {
        Value::List(items) => items
            .iter()
            .map(|item| text(key, item))
            .collect::<Result<_, _>>()?,
        _ => vec![text(key, item)?],
    };
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let is_host = |name: &String| (1..=253).contains(&name.len()) && name.bytes().all(is_part);
    match names.len() <= HOSTS_MAX && names.iter().all(is_host) {
        true => Ok(names),
        false => Err(wrong(
            key,
            item,
            "names of hosts, without schemes and ports",
        )),
    }
}

/// Reads the token with which readers of the monitor may read messages.
pub(super) fn message_token(key: &str, item: &Item) -> Result<MessageToken, SyntaxError> {
    MessageToken::new(&text(key, item)?).ok_or_else(|| {
        wrong(
            key,
            item,
            "a token of 16 to 256 printable ASCII characters without blanks",
        )
    })
}

/// Reads the tags of a server: a text, or a list of them. Turns them to lower case, as nats-server does.
pub(super) fn tags(key: &str, item: &Item) -> Result<Vec<String>, SyntaxError> {
    let mut tags = match &item.value {
        Value::List(items) => items
            .iter()
            .map(|item| text(key, item))
            .collect::<Result<_, _>>()?,
        _ => vec![text(key, item)?],
    };
    for tag in &mut tags {
        *tag = tag.trim().to_lowercase();
    }
    tags.sort_unstable();
    tags.dedup();
    let bad = |tag: &String| tag.is_empty() || tag.contains(|c: char| c == ',' || c.is_control());
    if tags.iter().any(bad) {
        return Err(wrong(key, item, "tags without commas"));
    }
    match tags.iter().map(|tag| tag.len() + 1).sum::<usize>() <= TAGS_BYTES_MAX {
        true => Ok(tags),
        false => Err(wrong(
            key,
            item,
            &format!("at most {TAGS_BYTES_MAX} bytes of tags"),
        )),
    }
}

/// Reads the names and values that the operator gives a server, for the monitor to show.
pub(super) fn metadata(key: &str, item: &Item) -> Result<BTreeMap<String, String>, SyntaxError> {
    let entries = entries(key, item)?.iter();
    entries
        .map(|(name, item)| Ok((name.clone(), text(name, item)?)))
        .collect()
}

pub(super) fn wrong(key: &str, item: &Item, expected: &str) -> SyntaxError {
    error(item, format!("`{key}`: expected {expected}"))
}

pub(super) fn error(item: &Item, message: impl Into<String>) -> SyntaxError {
    SyntaxError {
        line: item.line,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("2s", 2000),
            ("250ms", 250),
            ("1h1m1s", 3_661_000),
            ("1.5s", 1500),
        ] {
            let d = Duration::from_secs_f64(parse_duration(text).unwrap());
            assert_eq!(d.as_millis(), ms, "{text}");
        }
        assert!(
            parse_duration("").is_none()
                && parse_duration("3").is_none()
                && parse_duration("s").is_none()
        );
    }
}
