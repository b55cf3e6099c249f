//! Parses `nats://` addresses: the credentials, and the address to connect to.

use anyhow::anyhow;

pub(super) type Parts = (Option<String>, Option<String>, Option<String>, String);

/// Returns user, password, token and `host:port`.
pub(super) fn parse(url: &str) -> anyhow::Result<Parts> {
    let rest = match url.split_once("://") {
        None => url,
        Some(("nats", rest)) => rest,
        Some((scheme, _)) => {
            return Err(anyhow!(crate::Usage::new(format!(
                "{scheme}: expected nats://"
            ))));
        }
    };
    let (credentials, host) = rest
        .rsplit_once('@')
        .map_or((None, rest), |(c, h)| (Some(c), h));
    let host = host.trim_end_matches('/');
    if host.is_empty() || host.starts_with(':') {
        let what = "--server or NATS_URL names no host: expected [nats://]HOST[:PORT]";
        return Err(anyhow!(crate::Usage::new(what)));
    }
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, p)| p.parse::<u16>().is_ok());
    let address = if has_port {
        host.to_owned()
    } else {
        format!("{host}:4222")
    };
    let (user, pass, token) = match credentials.map(|c| c.split_once(':').ok_or(c)) {
        None => (None, None, None),
        Some(Ok((user, pass))) => (Some(user.to_owned()), Some(pass.to_owned()), None),
        Some(Err(token)) => (None, None, Some(token.to_owned())),
    };
    Ok((user, pass, token, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let text = |url: &str| format!("{:?}", parse(url).unwrap());
        assert_eq!(text("localhost"), r#"(None, None, None, "localhost:4222")"#);
        assert_eq!(text("nats://h:1/"), r#"(None, None, None, "h:1")"#);
        assert_eq!(
            text("nats://t0k@h"),
            r#"(None, None, Some("t0k"), "h:4222")"#
        );
        assert_eq!(
            text("nats://u:p@[::1]:5"),
            r#"(Some("u"), Some("p"), None, "[::1]:5")"#
        );
        for bad in ["tls://h", "", "nats://", ":4222", "u:p@"] {
            assert!(parse(bad).unwrap_err().is::<crate::Usage>(), "{bad}");
        }
    }
}
