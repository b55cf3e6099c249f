//! The address of a monitor, pure: `[http://]HOST[:PORT][/PATH]`.

use hyper::Uri;
use hyper::http::uri::Scheme;

use crate::Usage;

/// The port of a monitor if the address names none, as in `tidegate serve -m 8222`.
const PORT: u16 = 8222;

/// The address of a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The beginning of all paths: empty, or with a slash at its start and none at its end.
    pub(crate) base: String,
}

impl Url {
    /// Parses the address.
    ///
    /// # Errors
    /// A [`Usage`] for another scheme, no host, credentials, or parameters.
    pub(crate) fn parse(text: &str) -> Result<Self, Usage> {
        const EXPECTED: &str =
            "expected [http://]HOST[:PORT][/PATH] of a monitor, such as http://127.0.0.1:8222";
        let wrong = |why: &str| Usage::new(format!("{}: {why}: {EXPECTED}", text.escape_debug()));
        let whole = match text.contains("://") {
            true => text.to_owned(),
            false => format!("http://{text}"),
        };
        if whole.contains(['?', '#']) {
            return Err(wrong("an address without `?` and `#`"));
        }
        let uri: Uri = whole.parse().map_err(|e| wrong(&format!("{e}")))?;
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS => {
                return Err(wrong("a monitor speaks HTTP without TLS"));
            }
            _ => return Err(wrong("the scheme of a monitor is http")),
        }
        let authority = uri.authority().map(|a| a.as_str()).unwrap_or_default();
        if authority.contains('@') {
            return Err(wrong("a monitor takes no credentials"));
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("the address names no host"))?;
        let port = match uri.port() {
            Some(port) => port.as_u16(),
            None if authority.len() > host.len() => {
                return Err(wrong("the port is no number up to 65535"));
            }
            None => PORT,
        };
        if port == 0 {
            return Err(wrong("0 is no port of a server"));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Returns the address as the header `Host` has it.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the host as a resolver takes it: an IPv6 address without brackets.
    pub(crate) fn bare_host(&self) -> &str {
        let inner = self
            .host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'));
        inner.unwrap_or(&self.host)
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("127.0.0.1:8222", "http://127.0.0.1:8222"),
            ("localhost", "http://localhost:8222"),
            ("http://h", "http://h:8222"),
            ("http://h:80/", "http://h:80"),
            ("HTTP://h:1", "http://h:1"),
            ("h:1/nats/", "http://h:1/nats"),
            ("http://[::1]:5/a/b", "http://[::1]:5/a/b"),
            ("[::1]", "http://[::1]:8222"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(Url::parse("[::1]:5").unwrap().bare_host(), "::1");
    }

    #[test]
    fn wrong_addresses_are_refused_in_one_line() {
        for bad in [
            "",
            "http://",
            "https://h",
            "nats://h:4222",
            "u:p@h",
            "h:x",
            "h:99999",
            "h:",
            "h:0",
            "::1",
            "h/?a=b",
            "h#x",
            "h 1",
            "h\n1",
            "/varz",
            "\u{1b}[2J",
        ] {
            let said = Url::parse(bad).unwrap_err().to_string();
            assert!(said.contains("127.0.0.1:8222"), "{bad}: {said}");
            assert!(!said.contains(char::is_control), "{bad}: {said}");
        }
    }
}
