//! Reads and checks the cluster settings of a node: the address on which it listens for the other nodes, the
//! routes to them, and the secret that all nodes share.
//!
//! Settings that mean the same in nats-server have nats-server's names. In nats-server a node presents the
//! credentials of a route to the node at the other end. Here all nodes share one secret, and no node ever
//! sends it: each node proves that it knows the secret.

use std::time::Duration;

use rustls::pki_types::ServerName;
use tidegate_cluster::PEERS_MAX;
use tidegate_cluster::groups::SHARDS_MAX;
use tidegate_cluster::members::is_name;
use tidegate_cluster::proof::SECRET_BYTES_MAX;
use tidegate_nats::settings::Secret;
use tidegate_nats::url::{EscapeError, unescape};

use super::cluster_tls::{ClusterTls, cluster_tls};
use super::is_loopback;
use super::reading::Reading;
use super::tree::{Item, SyntaxError, Value};
use super::values::{boolean, credential, entries, error, list, name, port, text, wrong};

/// The port on which a node listens for the other nodes if the configuration gives only a host.
pub const CLUSTER_PORT: u16 = 6222;
/// The default of [`ClusterSettings::longest_pause`]: short, so that the nodes soon find a node that comes
/// back.
const PAUSE: Duration = Duration::from_secs(2);
/// The value of [`ClusterSettings::longest_pause`] if the configuration turns `connect_backoff` on, which
/// spares the network.
const PAUSE_BACKED_OFF: Duration = Duration::from_secs(30);

/// The settings by which a node joins a cluster and speaks to its other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The name of the cluster. All nodes of the cluster must have it, so that a node joins no other cluster.
    pub name: String,
    /// The address on which this node listens for the other nodes.
    pub host: String,
    /// The port on which this node listens for the other nodes; 0 takes a free port.
    pub port: u16,
    /// The addresses of the other nodes. The node connects to them to form the cluster. The list may include
    /// this node's own address, so that all nodes can have one list.
    pub routes: Vec<RouteAddress>,
    /// The secret by which the nodes of the cluster recognise each other; `None` if they have none.
    pub secret: Option<ClusterSecret>,
    /// The settings of TLS between the nodes. `None` means no TLS, and an attacker on the network can then
    /// read and change the nodes' traffic.
    pub tls: Option<ClusterTls>,
    /// True if the operator forbids the other nodes to advertise this node's address to their clients, for
    /// example because clients cannot reach it.
    pub no_advertise: bool,
    /// The longest pause between two attempts of this node to reach another node. The pauses double up to
    /// this time, and each varies by up to a quarter, so that nodes do not dial in step.
    pub longest_pause: Duration,
    /// The number of groups of all nodes among which the streams are divided. One node leads each group, so
    /// with several groups several nodes share the work of leading. All nodes must have the same number.
    pub shards: u32,
    /// True if the node has lost its disk. With an empty data directory it then asks the other nodes for its
    /// former place in the cluster.
    pub rejoins: bool,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            host: "127.0.0.1".into(),
            port: CLUSTER_PORT,
            routes: Vec::new(),
            secret: None,
            tls: None,
            no_advertise: false,
            longest_pause: PAUSE,
            shards: 1,
            rejoins: false,
        }
    }
}

/// The address at which a node of the cluster listens for the others, and to which they connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteAddress {
    /// The host name or the IP address of the node, to which the other nodes connect.
    pub host: String,
    /// The port on which the node listens for connections of the other nodes.
    pub port: u16,
}

impl std::fmt::Display for RouteAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The secret that all nodes of a cluster know. Its debug output hides the text, so that no log shows the
/// secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(String);

impl ClusterSecret {
    /// Creates the secret with this text, which the operator configured.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text of the secret, so that the node can prove that it knows the secret.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// The reason why the server refuses the cluster settings of a node, as the operator reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterSettingsError {
    /// The operator gave the server no name, so the other nodes could not tell this server from another
    /// server.
    #[error(
        "a node of a cluster needs a name of its own that never changes: give it with --name (server_name)"
    )]
    ServerName,
    /// The operator gave the cluster no name, so the nodes could not tell it from another cluster.
    #[error(
        "a cluster needs a name, the same for all its nodes: give it with --cluster-name (cluster.name)"
    )]
    ClusterName,
    /// The operator gave the server or the cluster this name, which has blanks or is longer than 128 bytes.
    #[error("`{0}` cannot be a name in a cluster: expected at most 128 bytes without blanks")]
    Name(String),
    /// The operator gave no routes, so the node could not find the other nodes.
    #[error(
        "a cluster needs --routes (cluster.routes): the addresses of all its nodes, the same list for each"
    )]
    Routes,
    /// The operator gave this number of routes, but a cluster may not have so many nodes.
    #[error("{0} routes: a cluster has at most {max} nodes", max = PEERS_MAX + 1)]
    TooMany(usize),
    /// This text in the operator's list of routes is not the address of a node, so the node cannot dial it.
    #[error("`{0}` is no route: expected nats-route://HOST:PORT")]
    Route(String),
    /// This host of a route cannot stand in a certificate, so TLS could not check the node.
    #[error("no certificate can be for the name or address `{0}`: give the node another name")]
    RouteName(String),
    /// The credentials in the address of a node have a wrong escape, so the node could not read the secret.
    #[error("{0}")]
    Escape(EscapeError),
    /// This text is not an address on which the node could listen for other nodes.
    #[error("`{0}` is no address to listen on: expected nats://HOST:PORT")]
    Listen(String),
    /// The configuration gives two different secrets, in routes or in the cluster's block, but all nodes
    /// share one secret.
    #[error(
        "a route's credentials differ from the cluster's: all nodes share one secret, give it once"
    )]
    Secrets,
    /// The secret is empty, too long, or a bcrypt hash. The server refuses a hash, because each node proves
    /// that it knows the plain text.
    #[error(
        "the cluster's secret must be given as it is, not as a bcrypt hash, in 1 to {SECRET_BYTES_MAX} bytes: each node proves that it knows it"
    )]
    Secret,
}

impl ClusterSettings {
    /// Sets the address on which the node listens for other nodes, from `--cluster`:
    /// `[nats://][USER:PASSWORD@|TOKEN@]HOST[:PORT]`.
    ///
    /// # Errors
    /// The text does not have this form, or its credentials differ from a secret given before.
    pub fn listen(&mut self, url: &str) -> Result<(), ClusterSettingsError> {
        let wrong = || ClusterSettingsError::Listen(without_secret(url));
        let (secret, host, port) = parse(url, &["nats", "tls"]).ok_or_else(wrong)?;
        let secret = decoded(secret)?;
        self.host = host;
        self.port = port.unwrap_or(CLUSTER_PORT);
        self.share(secret)
    }

    /// Adds a route, the address of another node to which this node connects:
    /// `[nats-route://][USER:PASSWORD@|TOKEN@]HOST[:PORT]`.
    ///
    /// # Errors
    /// The text does not have this form, or its credentials differ from a secret given before.
    pub fn add_route(&mut self, url: &str) -> Result<(), ClusterSettingsError> {
        let wrong = || ClusterSettingsError::Route(without_secret(url));
        let (secret, host, port) = parse(url, &["nats-route", "nats"]).ok_or_else(wrong)?;
        let secret = decoded(secret)?;
        let port = port.unwrap_or(CLUSTER_PORT);
        if port == 0 {
            return Err(wrong());
        }
        let route = RouteAddress { host, port };
        if !self.routes.contains(&route) {
            self.routes.push(route);
        }
        self.share(secret)
    }

    fn share(&mut self, secret: Option<String>) -> Result<(), ClusterSettingsError> {
        let Some(secret) = secret.map(ClusterSecret::new) else {
            return Ok(());
        };
        match &self.secret {
            Some(known) if *known != secret => Err(ClusterSettingsError::Secrets),
            _ => {
                self.secret = Some(secret);
                Ok(())
            }
        }
    }

    /// Returns whether the node listens for other nodes only on the loopback interface, which other machines
    /// cannot reach.
    #[must_use]
    pub fn is_local(&self) -> bool {
        is_loopback(&self.host)
    }

    /// Checks that these settings are complete and allowed for a server with the name `server_name`, before
    /// the server starts.
    ///
    /// # Errors
    /// A setting of the cluster is missing or not allowed.
    pub fn check(&self, server_name: Option<&str>) -> Result<(), ClusterSettingsError> {
        let server_name = server_name.ok_or(ClusterSettingsError::ServerName)?;
        if self.name.is_empty() {
            return Err(ClusterSettingsError::ClusterName);
        }
        for name in [server_name, &self.name] {
            if !is_name(name) {
                return Err(ClusterSettingsError::Name(name.into()));
            }
        }
        match self.routes.len() {
            0 => return Err(ClusterSettingsError::Routes),
            n if n > PEERS_MAX + 1 => return Err(ClusterSettingsError::TooMany(n)),
            _ => {}
        }
        if self.tls.is_some() {
            let wrong = |r: &&RouteAddress| ServerName::try_from(r.host.as_str()).is_err();
            if let Some(route) = self.routes.iter().find(wrong) {
                return Err(ClusterSettingsError::RouteName(route.host.clone()));
            }
        }
        let usable = |s: &ClusterSecret| {
            let plain = matches!(Secret::new(&s.0), Secret::Plain(_));
            plain && (1..=SECRET_BYTES_MAX).contains(&s.0.len())
        };
        match self.secret.as_ref().is_none_or(usable) {
            true => Ok(()),
            false => Err(ClusterSettingsError::Secret),
        }
    }
}

/// Splits an address from the configuration into secret, host and port; `None` if it is malformed. The
/// address must have one of `schemes`, or no scheme.
fn parse<'a>(url: &'a str, schemes: &[&str]) -> Option<(Option<&'a str>, String, Option<u16>)> {
    let rest = match url.split_once("://") {
        Some((scheme, rest)) => schemes.contains(&scheme).then_some(rest)?,
        None => url,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (secret, address) = match rest.rsplit_once('@') {
        Some((secret, address)) => (Some(secret), address),
        None => (None, rest),
    };
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':'))
        }
        None => match address.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let port = match port {
        // nats-server's configuration has -1 for any free port, so the parser turns it into the 0 of the
        // settings.
        Some("-1") => Some(0),
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    let good = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
    good.then(|| (secret, host.to_owned(), port))
}

/// Returns the secret in the credentials of an address, with its escapes decoded, so that the nodes compare
/// the secret itself.
fn decoded(secret: Option<&str>) -> Result<Option<String>, ClusterSettingsError> {
    let secret = secret.map(unescape).transpose();
    secret.map_err(ClusterSettingsError::Escape)
}

/// Returns the address without the secret in it, so that no error message shows the secret.
fn without_secret(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, address)) => format!("...@{address}"),
        None => url.into(),
    }
}

/// Reads the `cluster` block of a configuration file into `cluster`.
pub(super) fn cluster(
    reading: &mut Reading,
    key: &str,
    item: &Item,
    cluster: &mut ClusterSettings,
) -> Result<(), SyntaxError> {
    let (mut user, mut password, mut token) = (None, None, None);
    reading.block("cluster", entries(key, item)?, &mut |reading, key, item| {
        let refuse = |e: ClusterSettingsError| error(item, e.to_string());
        match key {
            "name" => cluster.name = name(key, item)?,
            "host" => cluster.host = text(key, item)?,
            "port" => cluster.port = port(key, item)?,
            "listen" => match &item.value {
                Value::Integer(_) => cluster.port = port(key, item)?,
                _ => cluster.listen(&text(key, item)?).map_err(refuse)?,
            },
            "routes" => {
                for item in list(key, item)? {
                    cluster.add_route(&text(key, item)?).map_err(refuse)?;
                }
            }
            "no_advertise" => cluster.no_advertise = boolean(key, item)?,
            "connect_backoff" => {
                cluster.longest_pause = match boolean(key, item)? {
                    true => PAUSE_BACKED_OFF,
                    false => PAUSE,
                }
            }
            "shards" => {
                cluster.shards = match item.value {
                    Value::Integer(n) if (1..=SHARDS_MAX.into()).contains(&n) => n as u32,
                    _ => return Err(wrong("cluster.shards", item, "a number from 1 to 64")),
                }
            }
            "authorization" => {
                let of = "cluster.authorization";
                reading.block(of, entries(key, item)?, &mut |_, key, item| {
                    match key {
                        "user" => user = Some(credential(of, key, item)?),
                        "password" => password = Some(credential(of, key, item)?),
                        "token" => token = Some(credential(of, key, item)?),
                        _ => unreachable!("the table names only settings with code: {key}"),
                    }
                    Ok(())
                });
            }
            "tls" => cluster.tls = Some(cluster_tls(reading, item)?),
            _ => unreachable!("the table names only settings with code: {key}"),
        }
        Ok(())
    });
    let secret = match (user, password, token) {
        (Some(user), Some(password), None) => Some(format!("{user}:{password}")),
        (None, None, token) => token,
        _ => {
            let expected = "`user` and `password`, or `token`";
            return Err(wrong("cluster.authorization", item, expected));
        }
    };
    cluster
        .share(secret)
        .map_err(|e| error(item, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let mut c = ClusterSettings::default();
        c.listen("nats://0.0.0.0:-1").unwrap();
        assert_eq!((c.host.as_str(), c.port), ("0.0.0.0", 0));
        c.listen("127.0.0.1").unwrap();
        assert_eq!((c.port, c.is_local()), (6222, true));
        c.add_route("nats-route://u:p@[::1]:7").unwrap();
        c.add_route("h:8/").unwrap();
        c.add_route("nats://h:8").unwrap();
        let routes: Vec<String> = c.routes.iter().map(ToString::to_string).collect();
        assert_eq!(routes, ["[::1]:7", "h:8"]);
        assert_eq!(c.secret.as_ref().unwrap().reveal(), "u:p");
        assert_eq!(
            c.add_route("nats-route://u:other@h:9"),
            Err(ClusterSettingsError::Secrets)
        );
        for bad in ["http://h:1", "h:x", "", "nats-route://u:p@:1", "h:0"] {
            let e = c.add_route(bad).unwrap_err().to_string();
            assert!(
                e.contains("nats-route://HOST:PORT") && !e.contains("u:p"),
                "{e}"
            );
        }
        assert!(!format!("{c:?}").contains("u:p"));
    }

    #[test]
    fn escapes_in_routes_stand_for_the_secret_itself() {
        let mut c = ClusterSettings::default();
        c.add_route("nats-route://us%40er:p%25@h:1").unwrap();
        c.listen("nats://us%40er:p%25@127.0.0.1").unwrap();
        assert_eq!(c.secret.as_ref().unwrap().reveal(), "us@er:p%");
        let e = c.add_route("nats-route://u:100%@h:2").unwrap_err();
        assert_eq!(e, ClusterSettingsError::Escape(EscapeError::Malformed));
        assert!(e.to_string().contains("%25"), "{e}");
    }

    #[test]
    fn required_settings_of_a_cluster() {
        let mut c = ClusterSettings::default();
        assert_eq!(c.check(None), Err(ClusterSettingsError::ServerName));
        assert_eq!(c.check(Some("n1")), Err(ClusterSettingsError::ClusterName));
        c.name = "tide".into();
        assert_eq!(c.check(Some("n1")), Err(ClusterSettingsError::Routes));
        c.add_route("h:1").unwrap();
        c.check(Some("n1")).unwrap();
        assert!(c.check(Some("n 1")).is_err());
        c.secret = Some(ClusterSecret::new("$2a$10$abc".into()));
        assert_eq!(c.check(Some("n1")), Err(ClusterSettingsError::Secret));
    }
}
