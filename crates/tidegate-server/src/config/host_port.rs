//! Reads the address, as `HOST` or `HOST:PORT`, that a server advertises to clients in place of the address
//! on which it listens.

use std::str::FromStr;

/// An address that a server advertises to clients, of the form `HOST` or `HOST:PORT`, with an IPv6 address in
/// brackets. The host may be a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: Option<u16>,
}

/// The error for an advertised address that is not a host with an optional port; it holds the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected HOST or HOST:PORT, an IPv6 address in brackets: {0}")]
pub struct HostPortError(String);

impl HostPort {
    /// Returns the host of the advertised address for INFO, as the configuration gives it, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port of the advertised address, or `default`, the port on which the server listens, if the
    /// address has none.
    #[must_use]
    pub fn port_or(&self, default: u16) -> u16 {
        self.port.unwrap_or(default)
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        let wrong = || HostPortError(text.into());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
                let port = rest.strip_prefix(':').ok_or_else(wrong);
                (host, (!rest.is_empty()).then_some(port).transpose()?)
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            // The ports "0" and "-1" count as no port, as in nats-server. The server then advertises the port
            // on which it listens.
            None | Some("0" | "-1") => None,
            Some(port) => Some(port.parse().map_err(|_| wrong())?),
        };
        let strange = |c: char| c.is_whitespace() || c.is_control() || "/@[]".contains(c);
        if host.is_empty() || host.contains(strange) {
            return Err(wrong());
        }
        Ok(Self {
            host: host.into(),
            port,
        })
    }
}

/// Joins `host` and `port` into the text of an address, with brackets around an IPv6 address, so that a
/// client can parse it.
pub(crate) fn joined(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        let read = |text: &str| {
            let read: HostPort = text.parse().unwrap();
            joined(read.host(), read.port_or(4222))
        };
        assert_eq!(read("n1.example"), "n1.example:4222");
        assert_eq!(read("n1.example:7"), "n1.example:7");
        assert_eq!(read("10.0.0.1:-1"), "10.0.0.1:4222");
        assert_eq!(read("[::1]"), "[::1]:4222");
        assert_eq!(read("[::1]:7"), "[::1]:7");
        for bad in [
            "",
            ":7",
            "::1",
            "[::1",
            "[::1]7",
            "h:x",
            "h:70000",
            "nats://h:1",
            "u@h",
            "h h",
        ] {
            assert!(bad.parse::<HostPort>().is_err(), "{bad}");
        }
    }
}
