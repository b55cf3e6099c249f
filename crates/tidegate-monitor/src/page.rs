//! The files of the dashboard, the headers that go with them, and the check of a request's `Host` and
//! `Origin`. Pure: the driver has the socket.
//!
//! The dashboard asks the paths beside it for figures, so a program that serves it at `BASE/dashboard`
//! answers `BASE/boundaries` and, if it has one, `BASE/overview`. The page says which figures are missing.
//!
//! A page of another origin cannot read the answers, because they carry no permission for it. DNS rebinding
//! gets around that: a name that an attacker owns leads to this machine, and the browser takes both for one
//! origin. [`check`] therefore refuses every name that the operator has not set.

use core::net::IpAddr;

/// A file of the dashboard, as the browser gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct File {
    /// The value of the header `Content-Type`.
    pub content_type: &'static str,
    /// The contents.
    pub body: &'static [u8],
}

/// The path of the page.
pub const PAGE: &str = "/dashboard";

/// The headers of the page and its files, besides the type: the page runs no script and no style but its own,
/// shows in no frame, and tells no other site about itself.
pub const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-cache"),
];

/// Returns the file of the dashboard at `path`; `None` for any other path.
#[must_use]
pub fn file(path: &str) -> Option<File> {
    let (content_type, body): (_, &[u8]) = match path {
        PAGE => (
            "text/html; charset=utf-8",
            include_bytes!("../dist/index.html"),
        ),
        "/dashboard/app.js" => (
            "text/javascript; charset=utf-8",
            include_bytes!("../dist/app.js"),
        ),
        "/dashboard/app.css" => ("text/css; charset=utf-8", include_bytes!("../dist/app.css")),
        "/dashboard/icon.svg" => ("image/svg+xml", include_bytes!("../dist/icon.svg")),
        _ => return None,
    };
    Some(File { content_type, body })
}

/// Returns whether a browser asks for a page: the value of its header `Accept` names HTML.
#[must_use]
pub fn accepts_html(accept: &str) -> bool {
    accept.split(',').any(|one| {
        let kind = one.split(';').next().unwrap_or("").trim();
        kind.eq_ignore_ascii_case("text/html")
    })
}

/// The reason why the dashboard refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The request has no valid header `Host`.
    NoHost,
    /// The host is a name that the operator has not set.
    UnknownHost,
    /// A page of another origin sent the request.
    OtherOrigin,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoHost => "expected one header Host with the address of this server",
            Self::UnknownHost => {
                "expected an address or localhost as the host; set further names in `dashboard_hosts`"
            }
            Self::OtherOrigin => "the dashboard answers no page of another origin",
        })
    }
}

impl std::error::Error for Refusal {}

/// Checks that a request comes from a page of this server, by the values of its headers `Host` and `Origin`.
/// An IP address and `localhost` are always allowed, because no attacker can make a name of them; `names` are
/// the further names of this server.
///
/// # Errors
/// The host is missing or unknown, or the origin is not the host.
pub fn check(host: Option<&str>, origin: Option<&str>, names: &[String]) -> Result<(), Refusal> {
    let host = host.ok_or(Refusal::NoHost)?;
    let name = name_of(host).ok_or(Refusal::NoHost)?;
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_local = name.eq_ignore_ascii_case("localhost");
    let is_named = names.iter().any(|n| n.eq_ignore_ascii_case(name));
    if !is_address && !is_local && !is_named {
        return Err(Refusal::UnknownHost);
    }
    is_own(host, origin)
        .then_some(())
        .ok_or(Refusal::OtherOrigin)
}

/// Returns whether a request with these headers comes from no page, or from a page of the same host. A proxy
/// may serve the page by TLS, so the schemes may differ.
#[must_use]
pub fn is_own(host: &str, origin: Option<&str>) -> bool {
    let Some(origin) = origin else {
        return true;
    };
    let rest = origin.strip_prefix("http://");
    let rest = rest.or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|of| of.eq_ignore_ascii_case(host))
}

/// Returns the name in a `Host` such as `a.example:8222` or `[::1]:8222`; `None` if it is none.
fn name_of(host: &str) -> Option<&str> {
    let end = match host.starts_with('[') {
        true => host.find(']')? + 1,
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.is_empty() || !digits.is_empty() && digits.len() < port.len();
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    (!name.is_empty() && is_port && is_number).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_set_names_are_hosts() {
        let names = ["Monitor.example".to_owned()];
        for host in [
            "127.0.0.1:8222",
            "127.0.0.1",
            "[::1]:8222",
            "[::1]",
            "localhost:8222",
            "LOCALHOST",
            "192.168.1.7:8222",
            "monitor.example:443",
        ] {
            assert_eq!(check(Some(host), None, &names), Ok(()), "{host}");
        }
        for host in [
            "evil.example:8222",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "1",
        ] {
            let refused = check(Some(host), None, &names);
            assert_eq!(refused, Err(Refusal::UnknownHost), "{host}");
        }
        for host in [
            "",
            ":8222",
            "[::1",
            "localhost:",
            "localhost:8x",
            "[::1]8222",
            "a:1:2",
        ] {
            assert!(check(Some(host), None, &names).is_err(), "{host}");
        }
        assert_eq!(check(None, None, &names), Err(Refusal::NoHost));
    }

    #[test]
    fn only_the_own_origin_may_ask() {
        let of = |origin| check(Some("127.0.0.1:8222"), Some(origin), &[]);
        assert_eq!(of("http://127.0.0.1:8222"), Ok(()));
        assert_eq!(of("https://127.0.0.1:8222"), Ok(()));
        for origin in [
            "null",
            "",
            "http://127.0.0.1:8223",
            "http://127.0.0.1",
            "http://evil.example",
            "ftp://127.0.0.1:8222",
            "http://127.0.0.1:8222.evil.example",
        ] {
            assert_eq!(of(origin), Err(Refusal::OtherOrigin), "{origin}");
        }
    }

    #[test]
    fn each_file_has_a_type_and_contents() {
        for path in [
            PAGE,
            "/dashboard/app.js",
            "/dashboard/app.css",
            "/dashboard/icon.svg",
        ] {
            let file = file(path).unwrap();
            assert!(
                !file.body.is_empty() && file.content_type.contains('/'),
                "{path}"
            );
        }
        assert_eq!(file("/dashboard/"), None);
        assert_eq!(file("/dashboard/../Cargo.toml"), None);
    }

    /// The policy forbids inline scripts and styles, so the page has none; its files stand beside it.
    #[test]
    fn the_page_keeps_its_own_policy() {
        let page = std::str::from_utf8(file(PAGE).unwrap().body).unwrap();
        for banned in [
            "style=",
            "<style",
            "javascript:",
            "://",
            "onload",
            "onclick",
            "<script>",
        ] {
            assert!(!page.contains(banned), "{banned}");
        }
        assert!(page.contains("src=\"dashboard/app.js\"") && page.contains("lang=\"en\""));
        let (_, policy) = HEADERS[0];
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"));
    }

    #[test]
    fn browsers_are_known_by_what_they_accept() {
        assert!(accepts_html(
            "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
        ));
        assert!(accepts_html("application/json, Text/HTML ;q=0.5"));
        assert!(!accepts_html("*/*") && !accepts_html("application/json") && !accepts_html(""));
    }
}
