//! The settings of the monitor: its address, its paths, and who may open the dashboard.

use std::net::SocketAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, USER_AGENT};
use tidegate_monitor::page::{self, Refusal};

use crate::config::MessageToken;
/// The most streams, and the most consumers, with series of their own in `/metrics`, if the operator sets no
/// other number.
pub const SERIES_DEFAULT: usize = 1000;
/// The greatest number that the operator may set: the text of all series stays below some 10 MB.
pub const SERIES_MAX: usize = 10_000;

/// The settings of a [`Monitor`](super::Monitor).
#[derive(Clone, Debug)]
pub struct Options {
    /// The host and the port at which the monitor listens; port 0 takes a free one.
    pub host: String,
    /// The port; see `host`.
    pub port: u16,
    /// The beginning of all paths: empty, or it begins with a slash and does not end with one.
    pub base: String,
    /// True and false turn the dashboard on and off. `None` turns it on where only this machine reaches the
    /// monitor.
    pub dashboard: Option<bool>,
    /// The names under which browsers reach the dashboard, besides addresses and `localhost`.
    pub dashboard_hosts: Vec<String>,
    /// The token with which a reader may read messages. `None` allows no reader.
    pub message_token: Option<MessageToken>,
    /// The most streams with series of their own in `/metrics`: the first ones by name. 0 shows none, and the
    /// monitor takes a number above [`SERIES_MAX`] for that number.
    pub metrics_streams: usize,
    /// The most consumers of these streams with series of their own, with the same bounds.
    pub metrics_consumers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: 0,
            base: String::new(),
            dashboard: None,
            dashboard_hosts: Vec::new(),
            message_token: None,
            metrics_streams: SERIES_DEFAULT,
            metrics_consumers: SERIES_DEFAULT,
        }
    }
}

/// The rule by which a running monitor lets browsers in.
#[derive(Clone, Debug)]
pub(super) struct Doors {
    pub(super) dashboard: bool,
    is_local: bool,
    names: Vec<String>,
    message_token: Option<MessageToken>,
}

/// The reason why a reader may not read messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The operator has not allowed it.
    Off,
    /// The request has no token, or a wrong one.
    Token,
}

impl Doors {
    /// Makes the rule of a monitor that listens at `address`.
    pub(super) fn new(options: &Options, address: SocketAddr) -> Self {
        let is_local = address.ip().is_loopback();
        Self {
            dashboard: options.dashboard.unwrap_or(is_local),
            is_local,
            names: options.dashboard_hosts.clone(),
            message_token: options.message_token.clone(),
        }
    }

    /// Returns whether the operator allows readers with the token to read messages.
    pub(super) const fn shows_messages(&self) -> bool {
        self.message_token.is_some()
    }

    /// Checks a request for messages: it must carry the token in the header `Authorization`, which no page of
    /// another site can send.
    pub(super) fn check_messages(&self, headers: &HeaderMap) -> Result<(), Closed> {
        let token = self.message_token.as_ref().ok_or(Closed::Off)?;
        let given = text(headers, &AUTHORIZATION).unwrap_or("");
        let given = given
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let is_right = given.is_some_and(|(_, given)| token.admits(given.trim().as_bytes()));
        is_right.then_some(()).ok_or(Closed::Token)
    }

    /// Checks a request for the page or its files.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        page::check(text(headers, &HOST), text(headers, &ORIGIN), &self.names)
    }

    /// Checks a request for figures. Programs that collect figures may use any name of the server. A browser
    /// on this machine may not, because a page of an attacker could otherwise read the figures by a name of
    /// its own.
    pub(super) fn check_figures(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = text(headers, &HOST).unwrap_or("");
        let agent = text(headers, &USER_AGENT).unwrap_or("");
        if self.is_local && agent.starts_with("Mozilla/") {
            return self.check(headers);
        }
        match page::is_own(host, text(headers, &ORIGIN)) {
            true => Ok(()),
            false => Err(Refusal::OtherOrigin),
        }
    }
}

/// Returns the value of a header; `None` if the request has none. Several values, and a value that is no
/// text, count as an empty value, which no check allows.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().unwrap_or("");
    Some(if values.next().is_none() { first } else { "" })
}
