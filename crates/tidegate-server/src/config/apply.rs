//! Turns the tree of a configuration file into [`Settings`], setting by setting. [`super::known`] says which
//! settings exist; an unknown one is refused with its name and line, so that no misspelt setting is ignored.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_nats::permissions::{Pattern, Permissions, ResponseRule, Rules};
use tidegate_nats::settings::{Secret, User};
use tidegate_nats::subject;

use super::cluster::cluster;
use super::host_port::{HostPort, HostPortError};
use super::tree::{self, Item, Map, SyntaxError, System, Value};
use super::{DATA_DIRECTORY, HandshakeFirst, Settings, StreamSettings, TlsSettings};

/// The reason why the server cannot use a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The server cannot read the configuration file.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The path of the configuration file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The configuration file has a syntax error, or a setting with an impossible value.
    #[error("{}: {error}", path.display())]
    Wrong {
        /// The path of the configuration file.
        path: PathBuf,
        /// The line and the cause of the error.
        error: SyntaxError,
    },
}

/// Reads `path` over `settings`: TOML where it ends in `.toml`, else nats-server's syntax.
///
/// # Errors
/// The file cannot be read or used. The error names the line.
pub fn read_file(path: &Path, settings: &mut Settings) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.into(),
        source,
    })?;
    let wrong = |error| ConfigError::Wrong {
        path: path.into(),
        error,
    };
    let map = if path.extension().is_some_and(|e| e == "toml") {
        tree::read_toml(&text)
    } else {
        let directory = path.parent().unwrap_or_else(|| Path::new("")).into();
        tree::read_nats(&text, &System { directory })
    };
    apply(&map.map_err(wrong)?, settings).map_err(wrong)
}

/// Applies the tree of a configuration file to the settings.
///
/// # Errors
/// The server refuses a setting, or a setting cannot have its value. The error names the line of the first
/// such setting.
pub fn apply(map: &Map, s: &mut Settings) -> Result<(), SyntaxError> {
    let referenced = |key: &str| matches!(key.chars().next(), Some('A'..='Z'));
    for (key, item) in map {
        match key.as_str() {
            "host" | "net" => s.host = text(key, item)?,
            "port" => s.port = port(key, item)?,
            "listen" => listen(key, item, &mut s.host, &mut s.port)?,
            "server_name" => s.server_name = Some(name(key, item)?),
            "client_advertise" => s.client_advertise = advertised(key, item)?,
            "max_connections" | "max_conn" => s.max_connections = count(key, item, 1)?,
            "max_subscriptions" | "max_subs" => s.sessions.max_subscriptions = count(key, item, 0)?,
            "max_payload" => s.sessions.max_payload = payload(key, item)?,
            "max_control_line" => s.sessions.max_control_line = count(key, item, 64)?,
            "max_pending" => s.max_pending = count(key, item, 1)?,
            "ping_interval" => s.sessions.ping_interval = positive(key, item)?,
            "ping_max" => s.sessions.ping_max = number(key, item, 1)?,
            "write_deadline" => s.sessions.write_deadline = positive(key, item)?,
            "authorization" => authorization(key, item, s)?,
            "jetstream" => jetstream(key, item, s)?,
            "cluster" => cluster(key, item, s.cluster.get_or_insert_default())?,
            "store_dir" => {
                let directory = PathBuf::from(text(key, item)?);
                s.streams
                    .get_or_insert_with(|| StreamSettings::new(PathBuf::new()))
                    .directory = directory;
            }
            "no_auth_user" => s.sessions.no_auth_user = Some(text(key, item)?),
            "tls" => s.tls = Some(tls(key, item)?),
            "allow_non_tls" => s.allow_non_tls = boolean(key, item)?,
            "http_port" | "monitor_port" => s.http_port = Some(port(key, item)?),
            "http" => {
                let mut http_port = 0;
                let mut host = s.http_host.clone().unwrap_or_default();
                listen(key, item, &mut host, &mut http_port)?;
                s.http_host = Some(host).filter(|h| !h.is_empty());
                s.http_port = Some(http_port);
            }
            "lame_duck_duration" => s.lame_duck_duration = duration(key, item)?,
            "lame_duck_grace_period" => s.lame_duck_grace_period = duration(key, item)?,
            "pid_file" | "pidfile" => s.pid_file = Some(text(key, item)?.into()),
            "log_file" | "logfile" => s.log_file = Some(text(key, item)?.into()),
            "debug" => s.debug = boolean(key, item)?,
            "insecure" => s.insecure = boolean(key, item)?,
            "controller" => {
                let choice = text(key, item)?.parse();
                s.controller = choice.map_err(|e| error(item, format!("{e}")))?;
            }
            // The key is no setting, but variables refer to it.
            _ if referenced(key) => {}
            _ => unknown(key, item)?,
        }
    }
    if let Some(user) = &s.sessions.no_auth_user
        && !s.sessions.users.iter().any(|u| u.name == *user)
    {
        let line = map
            .iter()
            .find(|(k, _)| k == "no_auth_user")
            .map_or(0, |(_, i)| i.line);
        let message = format!("no_auth_user `{user}` is not among the users of `authorization`");
        return Err(SyntaxError { line, message });
    }
    Ok(())
}

fn authorization(key: &str, item: &Item, s: &mut Settings) -> Result<(), SyntaxError> {
    let (mut user, mut password) = (None, None);
    let mut default = None;
    (s.sessions.token, s.sessions.users) = (None, Vec::new());
    for (key, item) in entries(key, item)? {
        match key.as_str() {
            "user" | "username" => user = Some(credential("authorization", key, item)?),
            "pass" | "password" => password = Some(credential("authorization", key, item)?),
            "token" => {
                s.sessions.token = Some(Secret::new(&credential("authorization", key, item)?))
            }
            "timeout" => s.sessions.auth_timeout = positive(key, item)?,
            "default_permissions" => default = Some(permissions(key, item)?),
            "users" => {
                for item in list(key, item)? {
                    s.sessions.users.push(Arc::new(one_user(key, item)?));
                }
            }
            _ => unknown(&format!("authorization.{key}"), item)?,
        }
    }
    match (user, password) {
        (Some(name), Some(password)) => s.sessions.users.push(Arc::new(User {
            name,
            secret: Secret::new(&password),
            permissions: None,
        })),
        (None, None) => {}
        _ => {
            return Err(error(
                item,
                "a user needs a password, and a password a user",
            ));
        }
    }
    for user in &mut s.sessions.users {
        if user.permissions.is_none() && default.is_some() {
            Arc::make_mut(user).permissions.clone_from(&default);
        }
    }
    let twice =
        |(i, u): (usize, &Arc<User>)| s.sessions.users[..i].iter().any(|v| v.name == u.name);
    if s.sessions.users.iter().enumerate().any(twice) {
        return Err(error(item, "a user is named twice"));
    }
    Ok(())
}

/// Reads `jetstream: enabled`, or a map with nats-server's names.
fn jetstream(key: &str, item: &Item, s: &mut Settings) -> Result<(), SyntaxError> {
    let default = || StreamSettings::new(DATA_DIRECTORY.into());
    let map = match &item.value {
        Value::Map(map) => map,
        Value::Bool(on) => {
            s.streams = on.then(|| s.streams.take().unwrap_or_else(default));
            return Ok(());
        }
        Value::Text(word) if matches!(word.as_str(), "enabled" | "enable") => {
            s.streams.get_or_insert_with(default);
            return Ok(());
        }
        Value::Text(word) if matches!(word.as_str(), "disabled" | "disable") => {
            s.streams = None;
            return Ok(());
        }
        _ => {
            return Err(wrong(
                key,
                item,
                "enabled, disabled, or a map such as { store_dir: DIR }",
            ));
        }
    };
    let mut streams = s.streams.take().unwrap_or_else(default);
    let mut on = true;
    for (key, item) in map {
        match key.as_str() {
            "enabled" | "enable" => on = boolean(key, item)?,
            "store_dir" | "storedir" | "store" => streams.directory = text(key, item)?.into(),
            "max_memory_store" | "max_mem_store" | "max_mem" => {
                streams.max_memory_bytes = bytes(key, item)?
            }
            "max_file_store" | "max_file" => streams.max_file_bytes = bytes(key, item)?,
            "domain" => streams.domain = Some(name(key, item)?),
            // Every acknowledgement follows its sync, so the server satisfies any interval.
            "sync_interval" | "sync" if matches!(&item.value, Value::Text(t) if t == "always") => {}
            "sync_interval" | "sync" => drop(duration(key, item)?),
            // The server refuses unknown fields in requests, always.
            "strict" if boolean(key, item)? => {}
            "strict" => return Err(wrong(key, item, "true: requests are always read strictly")),
            "limits" => {
                for (key, item) in entries(key, item)? {
                    match key.as_str() {
                        "max_streams" => {
                            streams.max_streams = Some(count(key, item, 0)?).filter(|n| *n > 0)
                        }
                        "max_consumers" => {
                            streams.max_consumers = Some(count(key, item, 0)?).filter(|n| *n > 0)
                        }
                        _ => unknown(&format!("jetstream.limits.{key}"), item)?,
                    }
                }
            }
            _ => unknown(&format!("jetstream.{key}"), item)?,
        }
    }
    s.streams = on.then_some(streams);
    Ok(())
}

/// Reads a number of bytes; 0 or -1 means no bound.
fn bytes(key: &str, item: &Item) -> Result<Option<u64>, SyntaxError> {
    let n: i64 = number(key, item, -1)?;
    Ok(u64::try_from(n).ok().filter(|n| *n > 0))
}

fn one_user(key: &str, item: &Item) -> Result<User, SyntaxError> {
    let (mut name, mut password, mut rules) = (None, None, None);
    for (key, item) in entries(key, item)? {
        match key.as_str() {
            "user" | "username" => name = Some(credential("users", key, item)?),
            "pass" | "password" => password = Some(credential("users", key, item)?),
            "permissions" | "permission" | "authorization" => rules = Some(permissions(key, item)?),
            _ => unknown(&format!("users.{key}"), item)?,
        }
    }
    let (Some(name), Some(password)) = (name, password) else {
        return Err(error(item, "a user needs `user` and `password`"));
    };
    Ok(User {
        name,
        secret: Secret::new(&password),
        permissions: rules,
    })
}

fn permissions(key: &str, item: &Item) -> Result<Permissions, SyntaxError> {
    let mut p = Permissions::default();
    for (key, item) in entries(key, item)? {
        match key.as_str() {
            "pub" | "publish" => p.publish = rules(key, item, false)?,
            "sub" | "subscribe" => p.subscribe = rules(key, item, true)?,
            "allow_responses" | "allow_response" => p.responses = responses(key, item)?,
            _ => unknown(&format!("permissions.{key}"), item)?,
        }
    }
    Ok(p)
}

fn rules(key: &str, item: &Item, queues: bool) -> Result<Rules, SyntaxError> {
    let mut rules = Rules::default();
    match &item.value {
        Value::Map(map) => {
            for (key, item) in map {
                match key.as_str() {
                    "allow" => rules.allow = Some(patterns(key, item, queues)?),
                    "deny" => rules.deny = patterns(key, item, queues)?,
                    _ => unknown(&format!("permissions.{key}"), item)?,
                }
            }
        }
        _ => rules.allow = Some(patterns(key, item, queues)?),
    }
    Ok(rules)
}

fn patterns(key: &str, item: &Item, queues: bool) -> Result<Vec<Pattern>, SyntaxError> {
    let one = |item: &Item| {
        let text = text(key, item)?;
        let mut words = text.split_whitespace();
        let (subject, queue) = (words.next().unwrap_or_default(), words.next());
        let good = subject::is_pattern(subject.as_bytes())
            && queue.is_none_or(|q| queues && subject::is_pattern(q.as_bytes()));
        if !good || words.next().is_some() {
            return Err(error(item, format!("`{text}` is not a subject or pattern")));
        }
        Ok(Pattern {
            subject: subject.as_bytes().into(),
            queue: queue.map(|q| q.as_bytes().into()),
        })
    };
    match &item.value {
        Value::List(items) => items.iter().map(one).collect(),
        _ => Ok(vec![one(item)?]),
    }
}

fn responses(key: &str, item: &Item) -> Result<Option<ResponseRule>, SyntaxError> {
    let mut rule = ResponseRule {
        max: Some(1),
        expires: Some(Duration::from_secs(120)),
    };
    match &item.value {
        Value::Bool(on) => Ok(on.then_some(rule)),
        Value::Map(map) => {
            for (key, item) in map {
                match key.as_str() {
                    "max" | "max_msgs" => {
                        rule.max = Some(number::<i64>(key, item, -1)?)
                            .filter(|m| *m > 0)
                            .map(i64::unsigned_abs)
                    }
                    "expires" | "expiration" | "ttl" => {
                        rule.expires = Some(duration(key, item)?).filter(|d| !d.is_zero())
                    }
                    _ => unknown(&format!("allow_responses.{key}"), item)?,
                }
            }
            Ok(Some(rule))
        }
        _ => Err(wrong(key, item, "true, false, or { max, expires }")),
    }
}

fn tls(key: &str, item: &Item) -> Result<TlsSettings, SyntaxError> {
    let mut tls = TlsSettings {
        cert_file: PathBuf::new(),
        key_file: PathBuf::new(),
        ca_file: None,
        verify: false,
        timeout: Duration::from_secs(2),
        handshake_first: HandshakeFirst::Never,
        connection_rate_limit: 0,
    };
    for (key, item) in entries(key, item)? {
        match key.as_str() {
            "cert_file" => tls.cert_file = text(key, item)?.into(),
            "key_file" => tls.key_file = text(key, item)?.into(),
            "ca_file" => tls.ca_file = Some(text(key, item)?.into()),
            "verify" => tls.verify = boolean(key, item)?,
            "timeout" => tls.timeout = positive(key, item)?,
            "connection_rate_limit" => {
                tls.connection_rate_limit = count(key, item, 0)? as u64;
            }
            "handshake_first" | "first" | "immediate" => {
                tls.handshake_first = match &item.value {
                    Value::Bool(true) => HandshakeFirst::Always,
                    Value::Bool(false) => HandshakeFirst::Never,
                    Value::Text(t) if t.eq_ignore_ascii_case("auto") => {
                        HandshakeFirst::After(Duration::from_millis(50))
                    }
                    _ => HandshakeFirst::After(positive(key, item)?),
                };
            }
            _ => unknown(&format!("tls.{key}"), item)?,
        }
    }
    if tls.cert_file.as_os_str().is_empty() || tls.key_file.as_os_str().is_empty() {
        return Err(error(item, "tls needs cert_file and key_file"));
    }
    if tls.verify && tls.ca_file.is_none() {
        return Err(error(
            item,
            "tls.verify needs ca_file: the certificates that sign clients'",
        ));
    }
    Ok(tls)
}

fn listen(key: &str, item: &Item, host: &mut String, port: &mut u16) -> Result<(), SyntaxError> {
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
        // A password or a name may look like a number.
        Value::Integer(n) => Ok(n.to_string()),
        _ => Err(wrong(key, item, "text")),
    }
}

/// Reads the address that the server advertises. As in nats-server, empty text sets none.
fn advertised(key: &str, item: &Item) -> Result<Option<HostPort>, SyntaxError> {
    let text = text(key, item)?;
    if text.is_empty() {
        return Ok(None);
    }
    let read = text.parse();
    read.map(Some)
        .map_err(|e: HostPortError| error(item, format!("`{key}`: {e}")))
}

/// Reads text that admits a client, as a setting of `of`. Empty text would admit every client or none.
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
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(wrong(key, item, "a name without blanks"));
    }
    Ok(name)
}

pub(super) fn boolean(key: &str, item: &Item) -> Result<bool, SyntaxError> {
    match item.value {
        Value::Bool(b) => Ok(b),
        _ => Err(wrong(key, item, "true or false")),
    }
}

fn number<N: TryFrom<i64>>(key: &str, item: &Item, min: i64) -> Result<N, SyntaxError> {
    let expected = || wrong(key, item, &format!("a number not below {min}"));
    match item.value {
        Value::Integer(n) if n >= min => n.try_into().map_err(|_| expected()),
        _ => Err(expected()),
    }
}

fn count(key: &str, item: &Item, min: i64) -> Result<usize, SyntaxError> {
    // nats-server writes -1 for any number.
    if min == 0 && item.value == Value::Integer(-1) {
        return Ok(0);
    }
    number(key, item, min)
}

fn payload(key: &str, item: &Item) -> Result<usize, SyntaxError> {
    const MAX: usize = 64 * 1024 * 1024;
    match count(key, item, 1)? {
        n if n <= MAX => Ok(n),
        _ => Err(wrong(key, item, "at most 64MB")),
    }
}

pub(super) fn port(key: &str, item: &Item) -> Result<u16, SyntaxError> {
    // nats-server writes -1 for any free port.
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

/// Reads text such as `1m30s` or `250ms`, or a number of seconds.
fn duration(key: &str, item: &Item) -> Result<Duration, SyntaxError> {
    let expected = || {
        wrong(
            key,
            item,
            "a duration such as 2s, 250ms or 1m30s, or a number of seconds",
        )
    };
    let seconds = match &item.value {
        Value::Integer(n) => *n as f64,
        Value::Float(f) => *f,
        Value::Text(t) => parse_duration(t).ok_or_else(expected)?,
        _ => return Err(expected()),
    };
    // The bound is about a century: sums with longer times make no sense.
    if !(0.0..=3.2e9).contains(&seconds) {
        return Err(expected());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

fn parse_duration(text: &str) -> Option<f64> {
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

/// Refuses an unknown key, unless a variable refers to it.
pub(super) fn unknown(key: &str, item: &Item) -> Result<(), SyntaxError> {
    if item.referenced {
        return Ok(());
    }
    Err(error(
        item,
        format!(
            "the setting `{key}` does not exist here: remove it (docs/nats-support.md lists what does)"
        ),
    ))
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

    fn read(text: &str) -> Result<Settings, String> {
        let mut s = Settings::default();
        let directory = PathBuf::new();
        let map = tree::read_nats(text, &System { directory }).map_err(|e| e.to_string())?;
        apply(&map, &mut s).map_err(|e| e.to_string())?;
        Ok(s)
    }

    #[test]
    fn a_configuration_as_people_write_them() {
        let s = read(
            "listen: 0.0.0.0:4333\nhttp: localhost:8222\nmax_payload: 8MB\nping_interval: \"1m30s\"\nwrite_deadline: 2\n\
             authorization {\n  default_permissions = { publish = \"a.>\" }\n  ADMIN = 1\n}\n",
        );
        assert_eq!(
            s.unwrap_err(),
            "line 8: the setting `authorization.ADMIN` does not exist here: remove it (docs/nats-support.md lists what does)"
        );
        let s = read(
            "PASS: s3\nlisten: 0.0.0.0:4333\nhttp: localhost:8222\nmax_payload: 8MB\nping_interval: \"1m30s\"\n\
             authorization {\n  default_permissions = { publish = \"a.>\", subscribe = {allow: [\"b q\"], deny: c} }\n\
             users = [ {user: x, password: $PASS}, {user: y, password: 12,\n permissions: {allow_responses: true}} ]\n}\n\
             no_auth_user: x",
        )
        .unwrap();
        assert_eq!(
            (s.host.as_str(), s.port, s.http_port, s.sessions.max_payload),
            ("0.0.0.0", 4333, Some(8222), 8 << 20)
        );
        assert_eq!(s.sessions.ping_interval, Duration::from_secs(90));
        let x = s.sessions.users[0].permissions.as_ref().unwrap();
        assert!(x.may_publish(b"a.b") && !x.may_publish(b"b") && x.may_subscribe(b"b", Some(b"q")));
        assert!(!x.may_subscribe(b"b", None) && !x.may_subscribe(b"c", None));
        let y = s.sessions.users[1].permissions.as_ref().unwrap();
        assert!(
            !y.may_publish(b"a.b")
                && y.responses
                    == Some(ResponseRule {
                        max: Some(1),
                        expires: Some(Duration::from_secs(120))
                    })
        );
    }

    #[test]
    fn unknown_settings_are_refused_by_name_and_line() {
        for (text, part) in [
            (
                "port: 1\nleafnodes: {}",
                "line 2: the setting `leafnodes` does not exist here",
            ),
            ("cluster { pool_size: 3 }", "`cluster.pool_size`"),
            ("cluster { authorization { user: a } }", "`password`"),
            ("cluster { routes: [\"http://h:1\"] }", "nats-route://"),
            (
                "cluster { tls { cert_file: a } }",
                "needs cert_file, key_file and ca_file",
            ),
            ("jetstream { cipher: aes }", "`jetstream.cipher`"),
            ("jetstream: maybe", "enabled, disabled"),
            ("jetstream { max_file: -2 }", "not below -1"),
            (
                "tls { cert_file: a, key_file: b, pinned_certs: [] }",
                "`tls.pinned_certs`",
            ),
            ("tls { cert_file: a }", "needs cert_file and key_file"),
            ("port: 70000", "a port from 0 to 65535"),
            ("debug: 3", "true or false"),
            ("ping_interval: soon", "a duration"),
            ("ping_interval: -3s", "a duration"),
            ("max_payload: 65MB", "at most 64MB"),
            ("authorization { user: a }", "needs a password"),
            (
                "port: 1\nauthorization { user: a, password: \"\" }",
                "line 2: `authorization.password` is empty",
            ),
            (
                "authorization { user: '', password: b }",
                "`authorization.user` is empty",
            ),
            (
                "authorization { token: \"\" }",
                "`authorization.token` is empty",
            ),
            (
                "authorization { users: [{user: a, password: b}, {user: c, password: \"\"}] }",
                "`users.password` is empty",
            ),
            (
                "authorization { users: [{user: \"\", password: b}] }",
                "`users.user` is empty",
            ),
            (
                "EMPTY: ''\nauthorization { token: $EMPTY }",
                "line 2: `authorization.token` is empty",
            ),
            (
                "cluster { authorization { user: a, password: \"\" } }",
                "`cluster.authorization.password` is empty",
            ),
            (
                "cluster { authorization { token: \"\" } }",
                "`cluster.authorization.token` is empty",
            ),
            (
                "authorization { users: [{user: a, password: b}, {user: a, password: c}] }",
                "named twice",
            ),
            (
                "authorization { users: [{user: a, password: b, permissions: {publish: \"a..b\"}}] }",
                "not a subject",
            ),
            ("no_auth_user: carol", "is not among the users"),
            ("controller: clever", "storm-aimd"),
            ("server_name: \"a b\"", "without blanks"),
            ("jetstream { strict: false }", "always read strictly"),
        ] {
            let e = read(text).unwrap_err();
            assert!(e.contains(part), "{text:?}: {e}");
        }
    }

    #[test]
    fn empty_credentials_are_refused_in_toml_too() {
        for text in [
            "[authorization]\nuser = \"a\"\npassword = \"\"",
            "[authorization]\ntoken = \"\"",
            "[authorization]\nusers = [{ user = \"a\", password = \"\" }]",
            "[[authorization.users]]\nuser = \"\"\npassword = \"b\"",
        ] {
            let map = tree::read_toml(text).unwrap();
            let e = apply(&map, &mut Settings::default()).unwrap_err();
            assert!(e.message.contains("is empty"), "{text}: {e}");
        }
    }

    #[test]
    fn the_value_of_a_variable_may_stand_anywhere() {
        let s = read(
            "listen: \"127.0.0.1:-1\"\nauthorization { mine = { publish: { deny: a } }\n \
             users: [ { user: u, password: p, permissions: $mine } ] }",
        );
        let s = s.unwrap();
        assert!(s.port == 0 && s.sessions.users[0].permissions.is_some());
        let e = read("authorization { mine = { publish: { deny: a } } }").unwrap_err();
        assert!(e.contains("authorization.mine"), "{e}");
    }

    #[test]
    fn streams_as_nats_server_names_them() {
        let streams = |text| read(text).unwrap().streams;
        assert_eq!(streams("port: 1"), None);
        assert_eq!(
            streams("jetstream: enabled"),
            Some(StreamSettings::new(DATA_DIRECTORY.into()))
        );
        assert_eq!(streams("store_dir: /d\njetstream: disabled"), None);
        let s = streams(
            "jetstream { store_dir: /d, max_mem: 1MB, max_file: 1GB, domain: hub, sync_interval: always, strict: true, limits { max_streams: 3 } }",
        );
        let s = s.unwrap();
        assert_eq!((s.directory, s.domain), ("/d".into(), Some("hub".into())));
        assert_eq!(
            (s.max_memory_bytes, s.max_file_bytes, s.max_streams),
            (Some(1 << 20), Some(1 << 30), Some(3))
        );
    }

    #[test]
    fn a_cluster_as_nats_server_has_it() {
        let s = read(
            "server_name: n1\ncluster { name: tide, listen: \"127.0.0.1:6333\", no_advertise: true, connect_backoff: true\n\
             authorization { user: u, password: p }\n routes: [ \"nats-route://u:p@h:1\", \"nats://h:2\" ] }",
        );
        let c = s.unwrap().cluster.unwrap();
        assert_eq!((c.name.as_str(), c.port, c.routes.len()), ("tide", 6333, 2));
        assert_eq!(c.secret.as_ref().unwrap().reveal(), "u:p");
        assert!(c.no_advertise && c.longest_pause == Duration::from_secs(30));
        c.check(Some("n1")).unwrap();
    }

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
