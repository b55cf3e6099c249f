//! Parses the addresses of the NATS servers that the user gives: the credentials, the transport, and the
//! addresses to connect to.

use anyhow::anyhow;
use async_nats::ServerAddr;
use tidegate_nats::url::{EscapeError, unescape};

use crate::Usage;

/// The servers that `--server` lists, with the credentials that the client sends to each of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Servers {
    pub(super) credentials: Option<Credentials>,
    pub(super) addresses: Vec<ServerAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// The name of a user, and the user's password, with which the client logs in.
    User(String, String),
    Token(String),
}

impl Servers {
    /// Returns the addresses for an error message, without credentials, so that no secret gets into a log.
    pub(super) fn names(&self) -> String {
        let name = |address: &ServerAddr| format!("{}:{}", address.host(), address.port());
        self.addresses
            .iter()
            .map(name)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Parses addresses separated by commas. The client uses the credentials of one address for all addresses.
///
/// # Errors
/// A [`Usage`] for an address without a host, another scheme, or two addresses with different credentials.
pub(super) fn parse(list: &str) -> anyhow::Result<Servers> {
    let mut servers = Servers {
        credentials: None,
        addresses: Vec::new(),
    };
    for url in list.split(',') {
        let (credentials, address) = one(url.trim())?;
        if let Some(credentials) = credentials {
            let known = servers.credentials.replace(credentials.clone());
            if known.is_some_and(|known| known != credentials) {
                let what = "--server: give all servers of the list the same credentials";
                return Err(anyhow!(Usage::new(what)));
            }
        }
        servers.addresses.push(address);
    }
    Ok(servers)
}

fn one(url: &str) -> anyhow::Result<(Option<Credentials>, ServerAddr)> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
    if !matches!(scheme, "nats" | "tls") {
        let what = format!("{scheme}: expected nats:// or tls://");
        return Err(anyhow!(Usage::new(what)));
    }
    let (credentials, host) = match rest.rsplit_once('@') {
        Some((credentials, host)) => (Some(credentials), host),
        None => (None, rest),
    };
    let host = host.trim_end_matches('/');
    if host.is_empty() || host.starts_with(':') {
        let what = "--server or NATS_URL names no host: expected [nats://]HOST[:PORT]";
        return Err(anyhow!(Usage::new(what)));
    }
    let address = format!("{scheme}://{host}")
        .parse()
        .map_err(|e| anyhow!(Usage::new(format!("{host}: {e}"))))?;
    let credentials = credentials.map(|text| {
        Ok::<_, EscapeError>(match text.split_once(':') {
            Some((user, pass)) => Credentials::User(unescape(user)?, unescape(pass)?),
            None => Credentials::Token(unescape(text)?),
        })
    });
    let credentials = credentials.transpose();
    let credentials = credentials.map_err(|e| Usage::new(format!("--server or NATS_URL: {e}")))?;
    Ok((credentials, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let text = |list: &str| {
            let servers = parse(list).unwrap();
            let tls = servers.addresses.iter().any(ServerAddr::tls_required);
            format!("{:?} {} {tls}", servers.credentials, servers.names())
        };
        assert_eq!(text("localhost"), "None localhost:4222 false");
        assert_eq!(text("nats://h:1/"), "None h:1 false");
        assert_eq!(text("tls://h"), "None h:4222 true");
        assert_eq!(text("nats://t0k@h"), r#"Some(Token("t0k")) h:4222 false"#);
        assert_eq!(
            text("nats://u:p@[::1]:5"),
            r#"Some(User("u", "p")) ::1:5 false"#
        );
        assert_eq!(
            text("nats://u:p@a:1,b:2, u:p@c"),
            r#"Some(User("u", "p")) a:1, b:2, c:4222 false"#
        );
        assert_eq!(
            text("nats://us%40er:p%3A%2C%25@h"),
            r#"Some(User("us@er", "p:,%")) h:4222 false"#
        );
        assert_eq!(text("t%40k@h"), r#"Some(Token("t@k")) h:4222 false"#);
        for bad in [
            "u:50%@h",
            "u:%zz@h",
            "%4@h",
            "u:%ff@h",
            "http://h",
            "",
            "nats://",
            ":4222",
            "u:p@",
            "a,",
            "h:x",
            "u:p@a,u:q@b",
        ] {
            assert!(parse(bad).unwrap_err().is::<Usage>(), "{bad}");
        }
    }
}
