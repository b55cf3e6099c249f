//! The settings of the block `jetstream.remotes`: other clusters, of Tidegate or of nats-server, from which
//! streams take in messages. nats-server connects clusters by leaf nodes and gateways instead.

use std::fmt;
use std::path::PathBuf;

use super::reading::Reading;
use super::tree::{Item, Map, SyntaxError};
use super::values::{credential, entries, error, file, list, text, wrong};

/// The subject prefix of the API of a server without a domain.
const API: &str = "$JS.API";

/// Another cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// The addresses of the cluster's servers: `nats://HOST:PORT` or `tls://HOST:PORT`, also with
    /// credentials.
    pub urls: Vec<String>,
    /// The user as whom this server logs in; `None` for the credentials in the URLs.
    pub user: Option<String>,
    /// The password of the user.
    pub password: Option<String>,
    /// The token with which this server logs in.
    pub token: Option<String>,
    /// The prefix of the cluster's API, such as `$JS.hub.API` for a server with a domain.
    pub api: String,
    /// The certificates; `None` for those of the system.
    pub tls: Option<RemoteTls>,
}

/// The certificates for the connections to another cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteTls {
    /// The certificates that sign those of the cluster's servers; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate and the key that this server shows.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The debug output does not show credentials. The URLs may have some, too.
impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Remote");
        shown
            .field("urls", &self.urls.len())
            .field("api", &self.api);
        shown.finish_non_exhaustive()
    }
}

/// Reads the remotes, each under its name.
pub(super) fn remotes(
    reading: &mut Reading,
    key: &str,
    item: &Item,
) -> Result<Vec<(String, Remote)>, SyntaxError> {
    let mut all = Vec::new();
    for (name, item) in entries(key, item)? {
        match remote(reading, name, item) {
            Ok(remote) => all.push((name.clone(), remote)),
            Err(error) => reading.refuse(error),
        }
    }
    Ok(all)
}

fn remote(reading: &mut Reading, name: &str, item: &Item) -> Result<Remote, SyntaxError> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>');
    if name.is_empty() || name.contains(odd) {
        let message = format!(
            "`{name}` cannot be the name of a remote: it becomes a part of a subject, so it has no dots, blanks or wildcards"
        );
        return Err(error(item, message));
    }
    let mut remote = Remote {
        urls: Vec::new(),
        user: None,
        password: None,
        token: None,
        api: API.into(),
        tls: None,
    };
    let mut refused = None;
    reading.block(
        "jetstream.remotes",
        entries(name, item)?,
        &mut |reading, key, item| {
            match key {
                "urls" => remote.urls = urls(key, item)?,
                "user" => remote.user = Some(credential("jetstream.remotes", key, item)?),
                "password" => remote.password = Some(credential("jetstream.remotes", key, item)?),
                "token" => remote.token = Some(credential("jetstream.remotes", key, item)?),
                "api" => remote.api = text(key, item)?,
                "tls" => remote.tls = Some(tls(reading, entries(key, item)?, item, &mut refused)),
                _ => unreachable!("the table names only settings with code: {key}"),
            }
            Ok(())
        },
    );
    if let Some(error) = refused {
        return Err(error);
    }
    if remote.urls.is_empty() {
        return Err(error(
            item,
            format!("the remote `{name}` needs urls: the addresses of its servers"),
        ));
    }
    if remote.user.is_some() && remote.token.is_some() {
        return Err(error(
            item,
            format!("the remote `{name}`: give a user or a token, not both"),
        ));
    }
    if remote.user.is_some() != remote.password.is_some() {
        return Err(error(
            item,
            format!("the remote `{name}`: a user needs a password, and a password a user"),
        ));
    }
    if !tidegate_nats::subject::is_literal(remote.api.as_bytes()) {
        return Err(error(
            item,
            format!("the remote `{name}`: `api` must be a subject prefix such as {API}"),
        ));
    }
    Ok(remote)
}

fn urls(key: &str, item: &Item) -> Result<Vec<String>, SyntaxError> {
    let expected = "[\"nats://HOST:PORT\"]";
    let texts = match &item.value {
        super::tree::Value::List(_) => list(key, item)?,
        _ => std::slice::from_ref(item),
    };
    let url = |item: &Item| {
        let url = text(key, item)?;
        match url.parse::<async_nats::ServerAddr>() {
            Ok(address)
                if !address.host().is_empty() && ["nats", "tls"].contains(&address.scheme()) =>
            {
                Ok(url)
            }
            _ => Err(wrong(key, item, expected)),
        }
    };
    texts.iter().map(url).collect()
}

fn tls(
    reading: &mut Reading,
    map: &Map,
    item: &Item,
    refused: &mut Option<SyntaxError>,
) -> RemoteTls {
    let (mut tls, mut cert, mut private) = (RemoteTls::default(), None, None);
    reading.block("jetstream.remotes.tls", map, &mut |_, key, item| {
        match key {
            "ca_file" => tls.ca_file = Some(file(key, item)?),
            "cert_file" => cert = Some(file(key, item)?),
            "key_file" => private = Some(file(key, item)?),
            _ => unreachable!("the table names only settings with code: {key}"),
        }
        Ok(())
    });
    match (cert, private) {
        (Some(cert), Some(private)) => tls.identity = Some((cert, private)),
        (None, None) => {}
        _ => *refused = Some(error(item, "cert_file and key_file belong together")),
    }
    tls
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::config::apply::apply;
    use crate::config::tree::{System, read_nats};
    use crate::config::{Remote, Settings};

    fn read(text: &str) -> Result<Vec<(String, Remote)>, String> {
        let mut s = Settings::default();
        let directory = PathBuf::new();
        let text = format!("jetstream {{ store_dir: /d, remotes {{ {text} }} }}");
        let map = read_nats(&text, &System { directory }).map_err(|e| e.to_string())?;
        apply(&map, &mut s).map_err(|e| e.to_string())?;
        Ok(s.streams.unwrap().remotes.into_iter().collect())
    }

    #[test]
    fn remotes_by_name() {
        let all = read(
            "hub { urls: [\"nats://a:1\", \"tls://b\"], user: u, password: p, tls { ca_file: ca.pem } }\n\
             west { url: \"nats://t@c\", api: \"$JS.west.API\" }",
        )
        .unwrap();
        let (name, hub) = &all[0];
        assert_eq!(
            (name.as_str(), hub.urls.len(), hub.api.as_str()),
            ("hub", 2, "$JS.API")
        );
        assert_eq!(hub.tls.as_ref().unwrap().ca_file, Some("ca.pem".into()));
        assert!(
            !format!("{hub:?}").contains('p'.to_string().as_str())
                || !format!("{hub:?}").contains("\"p\"")
        );
        assert_eq!(all[1].1.api, "$JS.west.API");
        for (text, part) in [
            ("hub {}", "needs urls"),
            (
                "\"a.b\" { url: \"nats://a\" }",
                "cannot be the name of a remote",
            ),
            ("hub { url: \"http://a b\" }", "nats://HOST:PORT"),
            ("hub { url: \"nats://a\", user: u }", "needs a password"),
            (
                "hub { url: \"nats://a\", tls { cert_file: c } }",
                "belong together",
            ),
            ("hub { url: \"nats://a\", api: \"a.>\" }", "subject prefix"),
            (
                "hub { url: \"nats://a\", leaf: 1 }",
                "`jetstream.remotes.leaf` does not exist here",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
