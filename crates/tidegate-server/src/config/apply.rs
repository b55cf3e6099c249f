//! Turns the tree of a configuration file into [`Settings`], setting by setting. [`super::known`] says which
//! settings exist. The server refuses an unknown setting with its name and line, so that it ignores no
//! misspelt setting.

use std::path::{Path, PathBuf};

use tidegate_nats::settings::Account;

use super::cluster::cluster;
use super::reading::{Reading, Report};
use super::streams::jetstream;
use super::tls::tls;
use super::tree::{self, Map, SyntaxError, System, Value};
use super::users::{accounts, authorization, system_account};
use super::values::{
    advertised, base_path, boolean, count, duration, error, file, hosts, listen, message_token,
    metadata, name, number, payload, port, positive, series, tags, text, value, write_timeout,
};
use super::{Settings, StreamSettings};

/// The reason why the server cannot use a configuration file, as the operator reads it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The server cannot read the configuration file, for example because it does not exist.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The path of the configuration file, for the operator.
        path: PathBuf,
        /// The error of the operating system, which names the cause.
        source: std::io::Error,
    },
    /// The configuration file has a syntax error, or a setting with an impossible value, so the server does
    /// not start.
    #[error("{}: {error}", path.display())]
    Wrong {
        /// The path of the configuration file, for the operator.
        path: PathBuf,
        /// The line and the cause of the error, for the operator.
        error: SyntaxError,
    },
    /// The server refuses settings of the configuration file, because it would break a promise of theirs.
    #[error("{}: {first}{}", path.display(), and_more(*.more))]
    Refused {
        /// The path of the configuration file, for the operator.
        path: PathBuf,
        /// The line of the first setting that the server refuses, and the cause, for the operator.
        first: SyntaxError,
        /// The number of further settings that the server refuses, so that the operator expects more errors.
        more: usize,
    },
}

impl ConfigError {
    /// Makes the error for a file with settings that the server refuses; `None` if the report has none.
    #[must_use]
    pub fn of(path: &Path, report: &Report) -> Option<Self> {
        let first = report.refused.first()?.clone();
        let (path, more) = (path.into(), report.refused.len() - 1);
        Some(Self::Refused { path, first, more })
    }
}

fn and_more(more: usize) -> String {
    match more {
        0 => String::new(),
        n => format!(" (and {n} more: `tidegate serve -t` lists all)"),
    }
}

/// Reads the operator's configuration file at `path`, and overwrites the `settings` that the file names.
/// Reads a file that ends in `.toml` as TOML, and any other file in nats-server's syntax.
///
/// Returns the report on all settings of the file, also on those that the server refuses.
///
/// # Errors
/// The file cannot be read, or violates the syntax. The error then names the line.
pub fn read_file(path: &Path, settings: &mut Settings) -> Result<Report, ConfigError> {
    let bytes = std::fs::read(path).map_err(|source| ConfigError::Read {
        path: path.into(),
        source,
    })?;
    let wrong = |error| ConfigError::Wrong {
        path: path.into(),
        error,
    };
    let text = String::from_utf8(bytes).map_err(|e| {
        let read = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + read.iter().filter(|b| **b == b'\n').count();
        let message = "expected UTF-8, found other bytes: save the file as UTF-8".into();
        wrong(SyntaxError { line, message })
    })?;
    let map = if path.extension().is_some_and(|e| e == "toml") {
        tree::read_toml(&text)
    } else {
        let directory = path.parent().unwrap_or_else(|| Path::new("")).into();
        tree::read_nats(&text, &System { directory })
    };
    Ok(read(&map.map_err(wrong)?, settings))
}

/// Applies the tree of a configuration file to the settings, for callers that need no report.
///
/// # Errors
/// The server refuses a setting, or a setting cannot have its value. The error names the line of the first
/// such setting.
pub fn apply(map: &Map, s: &mut Settings) -> Result<(), SyntaxError> {
    match read(map, s).refused.into_iter().next() {
        Some(first) => Err(first),
        None => Ok(()),
    }
}

/// Applies the tree of a configuration file to the settings, and reports what the server does with each
/// setting. Goes on after a setting that the server refuses, so that the report has all of them.
pub fn read(map: &Map, s: &mut Settings) -> Report {
    let mut reading = Reading::default();
    // The reading needs the name of the system account before it reads the accounts, wherever the file gives
    // the name.
    let system = system_account(map);
    reading.block("", map, &mut |reading, key, item| {
        match key {
            "host" => s.host = text(key, item)?,
            "port" => s.port = port(key, item)?,
            "listen" => listen(key, item, &mut s.host, &mut s.port)?,
            "server_name" => s.server_name = Some(name(key, item)?),
            "client_advertise" => s.client_advertise = advertised(key, item)?,
            "max_connections" => s.max_connections = count(key, item, 1)?,
            "max_subscriptions" => s.sessions.max_subscriptions = count(key, item, 0)?,
            "max_payload" => s.sessions.max_payload = payload(key, item)?,
            "no_header_support" => s.sessions.headers = !boolean(key, item)?,
            "max_control_line" => s.sessions.max_control_line = count(key, item, 64)?,
            "max_pending" => s.max_pending = count(key, item, 1)?,
            "ping_interval" => s.sessions.ping_interval = positive(key, item)?,
            "ping_max" => s.sessions.ping_max = number(key, item, 1)?,
            "write_deadline" => s.sessions.write_deadline = positive(key, item)?,
            "write_timeout" => write_timeout(key, item)?,
            "authorization" => authorization(reading, key, item, s)?,
            "accounts" => accounts(reading, key, item, &system, s)?,
            "system_account" => s.system_account = text(key, item)?,
            "no_system_account" => drop(boolean(key, item)?),
            "jetstream" => jetstream(reading, key, item, s)?,
            "cluster" => cluster(reading, key, item, s.cluster.get_or_insert_default())?,
            "store_dir" => {
                let directory = file(key, item)?;
                s.streams
                    .get_or_insert_with(|| StreamSettings::new(PathBuf::new()))
                    .directory = directory;
            }
            "no_auth_user" => s.sessions.no_auth_user = Some(text(key, item)?),
            "tls" => s.tls = Some(tls(reading, key, item)?),
            "allow_non_tls" => s.allow_non_tls = boolean(key, item)?,
            "http_port" => s.http_port = Some(port(key, item)?),
            "http" => {
                let mut http_port = 0;
                let mut host = s.http_host.clone().unwrap_or_default();
                listen(key, item, &mut host, &mut http_port)?;
                s.http_host = Some(host).filter(|h| !h.is_empty());
                s.http_port = Some(http_port);
            }
            "http_base_path" => s.http_base_path = base_path(&text(key, item)?),
            "dashboard" => s.dashboard = Some(boolean(key, item)?),
            "dashboard_hosts" => s.dashboard_hosts = hosts(key, item)?,
            "message_token" => s.message_token = Some(message_token(key, item)?),
            "metrics_streams" => s.metrics_streams = series(key, item)?,
            "metrics_consumers" => s.metrics_consumers = series(key, item)?,
            "lame_duck_duration" => s.lame_duck_duration = duration(key, item)?,
            "lame_duck_grace_period" => s.lame_duck_grace_period = duration(key, item)?,
            "pid_file" => s.pid_file = Some(file(key, item)?),
            "log_file" => s.log_file = Some(file(key, item)?),
            "debug" => s.debug = boolean(key, item)?,
            "server_tags" => s.tags = tags(key, item)?,
            "server_metadata" => s.metadata = metadata(key, item)?,
            "insecure" => s.insecure = boolean(key, item)?,
            "strict" => reading.strict = boolean(key, item)?,
            "controller" => {
                let choice = text(key, item)?.parse();
                s.controller = choice.map_err(|e| error(item, format!("{e}")))?;
            }
            _ => unreachable!("the table names only settings with code: {key}"),
        }
        Ok(())
    });
    check_users(&mut reading, map, s);
    reading.finish()
}

/// Checks the settings that name a user, which is possible only once the reading has found all users.
fn check_users(reading: &mut Reading, map: &Map, s: &Settings) {
    let users = &s.sessions.users;
    let line = |key| value(map, key).map_or(0, |item| item.line);
    if users
        .iter()
        .enumerate()
        .any(|(i, u)| users[..i].iter().any(|v| v.name == u.name))
    {
        let line = line("authorization").max(line("accounts"));
        let message = "a user is named twice".into();
        reading.refuse(SyntaxError { line, message });
    }
    if let Some(user) = &s.sessions.no_auth_user
        && !users.iter().any(|u| u.name == *user)
    {
        let line = line("no_auth_user");
        let message = format!("no_auth_user `{user}` is not among the users of `authorization`");
        reading.refuse(SyntaxError { line, message });
    }
    if s.tls.as_ref().is_some_and(|tls| tls.maps_users) && !users.is_empty() {
        let line = line("tls");
        let message = "the setting `tls.verify_and_map` does not exist here together with users: this server takes the user's name from CONNECT, not from the certificate";
        let message = message.into();
        reading.refuse(SyntaxError { line, message });
    }
    let without = value(map, "no_system_account").is_some_and(|i| i.value == Value::Bool(true));
    if without && users.iter().any(|u| u.account == Account::System) {
        let line = line("no_system_account");
        let message = "`no_system_account` is true, and `accounts` has users of the system account";
        let message = message.into();
        reading.refuse(SyntaxError { line, message });
    }
}

#[cfg(test)]
mod tests;
