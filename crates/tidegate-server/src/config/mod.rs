//! Holds the settings of a server: [`Settings`], plain data with nats-server's names and defaults.
//!
//! This module defines the meaning of each setting, except for those of a client session
//! ([`SessionSettings`]). [`read_nats`] and [`read_toml`] read the text of a configuration file into a tree
//! ([`Map`]). [`apply()`] turns the tree into settings, and refuses settings that the server does not have.

mod apply;
mod cluster;
mod cluster_tls;
pub(crate) mod host_port;
pub mod known;
mod message_token;
mod reading;
mod remotes;
mod streams;
mod tls;
mod tree;
mod users;
mod values;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::controller::Choice;
use tidegate_nats::settings::{Account, SessionSettings};
use tidegate_raft::lab::Lab;
use tidegate_stream::api::Limits;

pub use self::apply::{ConfigError, apply, read, read_file};
pub use self::cluster::{
    CLUSTER_PORT, ClusterSecret, ClusterSettings, ClusterSettingsError, RouteAddress,
};
pub use self::cluster_tls::{ClusterTls, HANDSHAKE_MAX};
pub use self::host_port::{HostPort, HostPortError};
pub use self::message_token::MessageToken;
pub use self::reading::{Named, Report};
pub use self::remotes::{Remote, RemoteTls};
pub use self::tree::{Item, Map, Outside, SyntaxError, System, Value, read_nats, read_toml};

/// The default data directory of streams, relative to the directory in which the server starts.
pub const DATA_DIRECTORY: &str = "tidegate-data";

/// The name that the server gives a cluster if the operator gives none and the server serves no streams,
/// because the settings of a cluster need a name.
const CLUSTER_NAME: &str = "nats";

/// The default name of the system account, which clients of nats-server expect.
pub const SYSTEM_ACCOUNT: &str = "$SYS";

/// All settings of a server, from the configuration file and the command line. The server starts with them,
/// and a reload changes some.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The host name or address on which the server listens for clients.
    pub host: String,
    /// The port on which the server listens for clients; 0 takes a free port.
    pub port: u16,
    /// The server's name, for people to read and for the nodes of a cluster to recognise. The default is the
    /// server's id.
    pub server_name: Option<String>,
    /// The address that the server advertises to clients as its own; `None` advertises the address on which
    /// it listens.
    pub client_advertise: Option<HostPort>,
    /// The limits that the server sets all client sessions, and the credentials that it accepts.
    pub sessions: SessionSettings,
    /// The most client connections that the server has at the same moment; it refuses further ones, so that
    /// it keeps memory and descriptors.
    pub max_connections: usize,
    /// The most bytes that may wait for one client before the server closes the connection as a slow
    /// consumer, so that its outbox does not fill the memory.
    pub max_pending: usize,
    /// The TLS settings of the client port; with `None` the server offers clients no TLS.
    pub tls: Option<TlsSettings>,
    /// True if the server accepts a client without TLS although the client port has TLS, so that clients can
    /// move to TLS one by one.
    pub allow_non_tls: bool,
    /// The host on which the HTTP monitor listens. The monitor runs only if `http_port` is set.
    pub http_host: Option<String>,
    /// The port on which the HTTP monitor listens; 0 takes a free port.
    pub http_port: Option<u16>,
    /// The prefix of the monitor's paths, with a slash before it and none after it; empty without one. A
    /// proxy can tell several monitors apart by it.
    pub http_base_path: String,
    /// True and false turn the dashboard on and off at the monitor's port. `None` turns it on where only this
    /// machine reaches the port.
    pub dashboard: Option<bool>,
    /// The names under which browsers reach the dashboard, besides addresses and `localhost`. The monitor
    /// refuses other names, because an attacker may make them lead to this server.
    pub dashboard_hosts: Vec<String>,
    /// The token with which a reader of the monitor may read messages. `None` allows no reader.
    pub message_token: Option<MessageToken>,
    /// The most streams with series of their own in the monitor's `/metrics`, so that a server with many
    /// streams does not flood a collector.
    pub metrics_streams: usize,
    /// The most consumers of these streams with series of their own there.
    pub metrics_consumers: usize,
    /// The tags that the operator gives the server, in lower case. Streams and clients choose servers by
    /// them.
    pub tags: Vec<String>,
    /// The names and values by which the operator describes the server; the monitor shows them.
    pub metadata: BTreeMap<String, String>,
    /// The name of the system account, which the server shows to clients and operators.
    pub system_account: String,
    /// The time in which a server in lame duck mode closes all connections. It includes the grace period.
    pub lame_duck_duration: Duration,
    /// The time that a server in lame duck mode waits before it closes the first connection, so that clients
    /// can move.
    pub lame_duck_grace_period: Duration,
    /// The file into which the server writes its process id, so that scripts can signal the server.
    pub pid_file: Option<PathBuf>,
    /// The file into which the server writes its log, in place of stderr, so that the operator can read it
    /// later.
    pub log_file: Option<PathBuf>,
    /// True if the server logs details that help to find an error.
    pub debug: bool,
    /// The controller that decides how many messages the event loop gathers before it writes the sockets,
    /// which weighs latency against cost.
    pub controller: Choice,
    /// The file into which the server writes the decisions of all controllers, for an analysis.
    pub record: Option<PathBuf>,
    /// True if the operator allows the server to listen beyond this machine without credentials or TLS, for a
    /// network that the operator trusts.
    pub insecure: bool,
    /// The settings of durable streams; `None` without streams. Then a message reaches only the clients that
    /// subscribe at the time when it is published.
    pub streams: Option<StreamSettings>,
    /// The settings of the cluster; `None` for a server that is not part of a cluster.
    pub cluster: Option<ClusterSettings>,
}

/// The settings of durable streams: the directory in which the server keeps them, the limits that it
/// enforces, and times of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// The data directory of the streams. A lock lets only one server use it at the same moment.
    pub directory: PathBuf,
    /// The most bytes that the server keeps for all streams on disk together; the server refuses messages
    /// beyond. `None` allows as much as the disk has.
    pub max_file_bytes: Option<u64>,
    /// The most bytes that the server keeps for all streams in memory together; the server refuses messages
    /// beyond. `None` is no limit.
    pub max_memory_bytes: Option<u64>,
    /// The most streams that clients may create on the server; `None` is no limit.
    pub max_streams: Option<usize>,
    /// The most consumers that clients may create for one stream; `None` is no limit.
    pub max_consumers: Option<usize>,
    /// The limits on what requests for streams and consumers may ask for.
    pub limits: Limits,
    /// The other clusters from which streams may take in messages, by name.
    pub remotes: BTreeMap<String, Remote>,
    /// The JetStream domain of the server: clients can reach its API also at `$JS.<domain>.API.>`, so that
    /// they can tell servers apart.
    pub domain: Option<String>,
    /// The prefix of tags by which the server spreads a stream: it never chooses two nodes with an equal tag
    /// of this prefix.
    pub unique_tag: Option<String>,
    /// True if the log may delay a sync until publishers that have just got an answer have sent their next
    /// messages. One sync then covers more messages, and the log delays only where that pays.
    pub anticipation: bool,
    /// The length of one segment of the log in bytes: whole pages, and more than four times the largest
    /// message, so that the log can release old segments early. Only tests change it.
    pub segment_bytes: u64,
    /// The number of bytes by which the log must grow before the store writes the next checkpoint. Only tests
    /// change it.
    pub checkpoint_bytes: u64,
    /// The time in which the server once reads the whole log again, to find damaged records. Only tests
    /// change it.
    pub scrub_period: Duration,
    /// The rule by which the server follows publishes from the socket to the acknowledgement, for traces;
    /// `None` follows none. The program sets it if it exports spans.
    pub spans: Option<SpanSampling>,
    /// The settings with which a measurement makes the server write streams in another way than the product
    /// does.
    pub lab: Lab,
}

/// The rule by which a server chooses the publishes that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanSampling {
    /// The server follows one of this many publishes that name no trace; `None` follows none of them. It
    /// follows each publish of a trace that its client records.
    pub one_in: Option<NonZeroU64>,
}

impl StreamSettings {
    /// Creates the settings of streams in `directory`, with the default limits. The default limit on memory,
    /// 1 GiB, suits a machine that does not run this server alone.
    #[must_use]
    pub const fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            max_file_bytes: None,
            max_memory_bytes: Some(1 << 30),
            max_streams: None,
            max_consumers: None,
            limits: Limits {
                max_ack_pending: 0,
                max_batch: 0,
                duplicate_window: 0,
            },
            remotes: BTreeMap::new(),
            domain: None,
            unique_tag: None,
            anticipation: true,
            segment_bytes: 64 << 20,
            checkpoint_bytes: 256 << 20,
            scrub_period: Duration::from_secs(3 * 24 * 3600),
            spans: None,
            lab: Lab::NONE,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 4222,
            server_name: None,
            client_advertise: None,
            sessions: SessionSettings::default(),
            max_connections: 64 * 1024,
            max_pending: 64 * 1024 * 1024,
            tls: None,
            allow_non_tls: false,
            http_host: None,
            http_port: None,
            http_base_path: String::new(),
            dashboard: None,
            dashboard_hosts: Vec::new(),
            message_token: None,
            metrics_streams: crate::SERIES_DEFAULT,
            metrics_consumers: crate::SERIES_DEFAULT,
            tags: Vec::new(),
            metadata: BTreeMap::new(),
            system_account: SYSTEM_ACCOUNT.into(),
            lame_duck_duration: Duration::from_secs(120),
            lame_duck_grace_period: Duration::from_secs(10),
            pid_file: None,
            log_file: None,
            debug: false,
            controller: Choice::KNEE,
            record: None,
            insecure: false,
            streams: None,
            cluster: None,
        }
    }
}

/// The TLS settings of the client port, with which the server accepts clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The PEM file of the server's certificate and its chain, which the server shows to clients.
    pub cert_file: PathBuf,
    /// The PEM file of the private key that belongs to the server's certificate, with which the server proves
    /// its identity.
    pub key_file: PathBuf,
    /// The PEM file of the authorities that sign clients' certificates, by which the server checks them.
    pub ca_file: Option<PathBuf>,
    /// True if the server requires each client to show a certificate that an authority in `ca_file` signed.
    pub verify: bool,
    /// The longest time that a client's TLS handshake may take. After it the server closes the connection, so
    /// that a silent client holds no place.
    pub timeout: Duration,
    /// The order in which the server sends INFO and takes the TLS handshake on a new connection.
    pub handshake_first: HandshakeFirst,
    /// The most TLS handshakes that the server begins in a second, so that clients that reconnect do not keep
    /// it busy; 0 is no limit.
    pub connection_rate_limit: u64,
    /// True if the server accepts TLS 1.3 only, and refuses TLS 1.2, because the operator demands that.
    pub only_tls13: bool,
    /// True if the operator wants the server to take a client's user from its certificate, without a
    /// password. The server refuses this setting together with users.
    pub maps_users: bool,
    /// The cipher suites of TLS 1.2 that the server accepts; the operator may leave weak ones out, and an
    /// empty list accepts all that the server has.
    pub cipher_suites: Vec<rustls::CipherSuite>,
    /// The curves that the server accepts for the exchange of keys; empty accepts all that it has.
    pub curves: Vec<rustls::NamedGroup>,
}

/// The order in which the server sends INFO and takes the TLS handshake on a new client connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandshakeFirst {
    /// The server sends INFO first, and then takes the TLS handshake, as older clients expect.
    #[default]
    Never,
    /// The server takes the TLS handshake first, and then sends INFO, so that no byte goes unencrypted.
    Always,
    /// The server gives the client this time to begin the TLS handshake first. If the client stays silent,
    /// the server then sends INFO and takes the handshake after it.
    After(Duration),
}

impl Settings {
    /// Returns the name of an account, as clients and operators see it, because inside the server accounts
    /// have no names.
    #[must_use]
    pub fn account_name(&self, account: Account) -> &str {
        match account {
            Account::Global => "$G",
            Account::System => &self.system_account,
        }
    }

    /// Checks that each address that other machines can reach is protected, before the server starts.
    ///
    /// # Errors
    /// Other machines can reach an address without protection, and `insecure` is not set.
    pub fn check_exposure(&self) -> Result<(), ExposureError> {
        if self.insecure {
            return Ok(());
        }
        let has_credentials = !self.sessions.is_open() && self.sessions.check_credentials().is_ok();
        let guarded = has_credentials && self.sessions.no_auth_user.is_none()
            || self.tls.as_ref().is_some_and(|t| t.verify) && !self.allow_non_tls;
        if !guarded && !is_loopback(&self.host) {
            return Err(ExposureError::Clients(self.host.clone()));
        }
        if let Some(cluster) = &self.cluster
            && !cluster.is_local()
            && cluster.tls.is_none()
        {
            return Err(ExposureError::Nodes(cluster.host.clone()));
        }
        match &self.http_host {
            Some(host) if self.http_port.is_some() && !is_loopback(host) => {
                Err(ExposureError::Monitor(host.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether clients may send passwords or tokens over the network without TLS, so that the server
    /// can warn the operator.
    #[must_use]
    pub fn shows_credentials(&self) -> bool {
        let encrypted = self.tls.is_some() && !self.allow_non_tls;
        self.sessions.needs_credentials() && !encrypted && !is_loopback(&self.host)
    }

    /// Adapts the settings of a cluster that nats-server would serve without streams, because the
    /// configuration asks for none (`asks_for_streams` is false). Without routes, the server serves alone.
    /// Without a name of the server or the cluster, it serves no streams, as nats-server requires these names
    /// for streams. Returns a sentence that tells the operator the consequence.
    pub fn complete_cluster(&mut self, asks_for_streams: bool) -> Option<&'static str> {
        let cluster = self.cluster.as_mut().filter(|_| !asks_for_streams)?;
        if cluster.routes.is_empty() {
            self.cluster = None;
            return Some(
                "the cluster has no routes: the server serves alone, and no node can join it",
            );
        }
        if self.server_name.is_some() && !cluster.name.is_empty() {
            return None;
        }
        if cluster.name.is_empty() {
            cluster.name = CLUSTER_NAME.into();
        }
        self.streams = None;
        Some(
            "the server serves no streams: streams of a cluster need server_name and cluster.name, and the configuration does not have both",
        )
    }

    /// Checks the settings of the cluster before the server starts, if the server is part of one.
    ///
    /// # Errors
    /// A setting of the cluster is missing or not allowed.
    pub fn check_cluster(&self) -> Result<(), ClusterSettingsError> {
        // Without streams, a node needs no fixed name, because no other node keeps data by its name.
        let unnamed = self.streams.is_none().then_some(CLUSTER_NAME);
        let server_name = self.server_name.as_deref().or(unnamed);
        self.cluster
            .as_ref()
            .map_or(Ok(()), |c| c.check(server_name))
    }

    /// Returns the longest time that a client's TLS handshake may take; zero without TLS, after which the
    /// event loop closes the connection.
    #[must_use]
    pub fn tls_timeout(&self) -> Duration {
        self.tls.as_ref().map_or(Duration::ZERO, |t| t.timeout)
    }
}

/// The error for an address that other machines can reach without protection, with which the server refuses
/// to start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExposureError {
    /// Any machine could connect to the client port at this host, and publish and subscribe without
    /// credentials or a verified certificate.
    #[error(
        "`{0}` can be reached from other machines, and any client may connect: configure users, a token or TLS that verifies clients, listen on 127.0.0.1, or say --insecure"
    )]
    Clients(String),
    /// Any machine could join the cluster at this host, or read and change its traffic, because the operator
    /// configured no TLS between nodes.
    #[error(
        "other machines can reach the nodes of the cluster on `{0}`, and the messages between nodes are neither encrypted nor signed: give them TLS (cluster.tls, or --cluster-tlscert, --cluster-tlskey and --cluster-tlscacert), let them listen on 127.0.0.1, or say --insecure on a network you trust, with a secret (cluster.authorization or TIDEGATE_CLUSTER_SECRET)"
    )]
    Nodes(String),
    /// Any machine could read the monitor at this host, because the monitor asks for no credentials.
    #[error(
        "any other machine can read the monitor on `{0}`: let it listen on 127.0.0.1, or say --insecure"
    )]
    Monitor(String),
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use tidegate_nats::settings::Secret;

    use super::*;

    #[test]
    fn credentials_beyond_this_machine_need_tls() {
        let mut settings = Settings {
            host: "0.0.0.0".into(),
            ..Settings::default()
        };
        assert!(!settings.shows_credentials());
        settings.sessions.token = Some(Secret::new("t"));
        assert!(settings.shows_credentials());
        settings.host = "127.0.0.1".into();
        assert!(!settings.shows_credentials());
        settings.host = "10.0.0.1".into();
        settings.tls = Some(TlsSettings {
            cert_file: "c".into(),
            key_file: "k".into(),
            ca_file: None,
            verify: false,
            timeout: Duration::ZERO,
            handshake_first: HandshakeFirst::Never,
            connection_rate_limit: 0,
            only_tls13: false,
            maps_users: false,
            cipher_suites: Vec::new(),
            curves: Vec::new(),
        });
        assert!(!settings.shows_credentials());
        settings.allow_non_tls = true;
        assert!(settings.shows_credentials());
    }
}
