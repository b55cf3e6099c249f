//! Parses the URLs that name a Redis server and its login into a configuration.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::config::{Address, Config, Protocol};
use crate::error::ConfigError;
use crate::tls::Tls;

pub(crate) fn parse(text: &str) -> Result<Config, ConfigError> {
    let url = Url::parse(text).map_err(|e| ConfigError::Url(e.to_string()))?;
    let address = match url.scheme() {
        "redis" | "rediss" => tcp(&url)?,
        "redis+unix" | "unix" => unix(&url)?,
        other => return Err(ConfigError::Scheme(other.to_owned())),
    };
    let over_tcp = matches!(address, Address::Tcp { .. });
    let mut config = Config::new(address);
    if url.scheme() == "rediss" {
        config = config.tls(Tls::system());
    }
    if !url.username().is_empty() {
        config = config.user(decoded(url.username())?);
    }
    if let Some(password) = url.password() {
        config = config.password(decoded(password)?);
    }
    let db = url.path().trim_start_matches('/');
    if over_tcp && !db.is_empty() {
        config = config.db(db
            .parse()
            .map_err(|_| ConfigError::Database(db.to_owned()))?);
    }
    url.query_pairs().try_fold(config, |config, (name, value)| {
        parameter(config, &name, &value)
    })
}

fn tcp(url: &Url) -> Result<Address, ConfigError> {
    let host = url
        .host_str()
        .filter(|h| !h.is_empty())
        .ok_or(ConfigError::NoHost)?;
    // A URL puts brackets around an IPv6 address, and the resolver expects none, so the client removes them.
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    Ok(Address::Tcp {
        host: decoded(bare.unwrap_or(host))?,
        port: url.port().unwrap_or(6379),
    })
}

fn unix(url: &Url) -> Result<Address, ConfigError> {
    let path = decoded(url.path())?;
    if path.is_empty() || path == "/" || url.host_str().is_some_and(|h| !h.is_empty()) {
        return Err(ConfigError::NoHost);
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

fn parameter(config: Config, name: &str, value: &str) -> Result<Config, ConfigError> {
    let bad = |name, wanted| ConfigError::Value {
        name,
        wanted,
        got: value.to_owned(),
    };
    let number = |name| {
        value
            .parse::<u64>()
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| bad(name, "a number above 0"))
    };
    Ok(match name {
        "db" => config.db(value
            .parse()
            .map_err(|_| ConfigError::Database(value.to_owned()))?),
        "name" => config.name(value),
        "protocol" => match value {
            "2" | "resp2" => config.protocol(Protocol::Resp2),
            "3" | "resp3" => config.protocol(Protocol::Best),
            _ => return Err(bad("protocol", "2 or 3")),
        },
        "timeout_ms" => config.timeout(Duration::from_millis(number("timeout_ms")?)),
        "connect_timeout_ms" => {
            config.connect_timeout(Duration::from_millis(number("connect_timeout_ms")?))
        }
        "keepalive_s" => config.keepalive(Duration::from_secs(number("keepalive_s")?)),
        other => return Err(ConfigError::Parameter(other.to_owned())),
    })
}

fn decoded(text: &str) -> Result<String, ConfigError> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into)
        .map_err(|_| ConfigError::Url("escapes that are not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_everything() {
        let c =
            parse("redis://us%65r:p%40ss@[::1]:7000/3?name=app&timeout_ms=250&protocol=2").unwrap();
        let tcp = |host: &str, port| Address::Tcp {
            host: host.to_owned(),
            port,
        };
        assert_eq!(c.login.address, tcp("::1", 7000));
        assert_eq!(c.login.address.to_string(), "[::1]:7000");
        assert_eq!(
            (c.login.user.as_deref(), c.login.password.as_deref()),
            (Some("user"), Some("p@ss"))
        );
        assert_eq!((c.login.db, c.login.name.as_deref()), (3, Some("app")));
        assert_eq!(
            (c.limits.timeout, c.login.protocol),
            (Duration::from_millis(250), Protocol::Resp2)
        );
        assert_eq!(parse("redis://h").unwrap().login.address, tcp("h", 6379));
        assert!(
            !format!("{c:?}").contains("p@ss"),
            "a password shows in no log"
        );
        assert!(parse("rediss://h").unwrap().login.tls.is_some());
        assert!(parse("redis://:pw@h").unwrap().login.user.is_none());
        let unix = parse("redis+unix:///run/re%20dis.sock?db=2").unwrap();
        assert_eq!(unix.login.address, Address::Unix("/run/re dis.sock".into()));
        assert_eq!(unix.login.db, 2);
    }

    #[test]
    fn malformed_urls_are_refused_with_the_expected_form() {
        for bad in [
            "",
            "localhost:6379",
            "http://h",
            "redis://",
            "redis+unix://",
            "redis+unix://host/x",
            "redis://h/x",
            "redis://h?db=-1",
            "redis://h?nmae=x",
            "redis://h?timeout_ms=0",
            "redis://h?protocol=4",
            "redis://h:99999",
            "redis://u%ff@h",
        ] {
            let e = parse(bad).expect_err(bad).to_string();
            assert!(
                e.contains("expected") || e.contains("unknown"),
                "{bad}: {e}"
            );
        }
    }
}
