//! The settings of a server: [`Settings`], plain data with nats-server's names and defaults.
//!
//! Owns the meaning of each setting, except for those of a session ([`SessionSettings`]). [`read_nats`] and
//! [`read_toml`] read a file into a tree ([`Map`]). [`apply()`] turns the tree into settings and refuses
//! settings that do not exist here.

mod apply;
mod cluster;
mod cluster_tls;
pub(crate) mod host_port;
mod tree;

use std::path::PathBuf;
use std::time::Duration;

use tidegate::controller::Choice;
use tidegate_nats::settings::SessionSettings;
use tidegate_raft::lab::Lab;

pub use self::apply::{ConfigError, apply, read_file};
pub use self::cluster::{
    CLUSTER_PORT, ClusterSecret, ClusterSettings, ClusterSettingsError, RouteAddress,
};
pub use self::cluster_tls::{ClusterTls, HANDSHAKE_MAX};
pub use self::host_port::{HostPort, HostPortError};
pub use self::tree::{Item, Map, Outside, SyntaxError, System, Value, read_nats, read_toml};

/// The default data directory, in the directory in which the server starts.
pub const DATA_DIRECTORY: &str = "tidegate-data";

/// All settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The address to listen on.
    pub host: String,
    /// The port to listen on; 0 takes a free one.
    pub port: u16,
    /// The server's name, for people; by default its id.
    pub server_name: Option<String>,
    /// The address that the server advertises to clients as its own.
    pub client_advertise: Option<HostPort>,
    /// The settings of each client's session.
    pub sessions: SessionSettings,
    /// The most connections at a time.
    pub max_connections: usize,
    /// The most bytes that may wait for one connection before it counts as a slow consumer.
    pub max_pending: usize,
    /// The TLS settings of the client port.
    pub tls: Option<TlsSettings>,
    /// True if a client may connect without TLS although TLS is configured.
    pub allow_non_tls: bool,
    /// The host of the HTTP monitor, which runs only if `http_port` is set.
    pub http_host: Option<String>,
    /// The port of the HTTP monitor; 0 takes a free one.
    pub http_port: Option<u16>,
    /// The time over which lame duck mode closes the connections.
    pub lame_duck_duration: Duration,
    /// The time that lame duck mode waits before it closes the first connection.
    pub lame_duck_grace_period: Duration,
    /// The file for the process id.
    pub pid_file: Option<PathBuf>,
    /// The file for the log, instead of stderr.
    pub log_file: Option<PathBuf>,
    /// Logs details that help to find an error.
    pub debug: bool,
    /// The controller that decides how much the loop gathers before it writes the sockets.
    pub controller: Choice,
    /// The file for the decisions of every boundary.
    pub record: Option<PathBuf>,
    /// Allows the server to listen beyond this machine without credentials.
    pub insecure: bool,
    /// The settings of durable streams. Without these settings a message reaches only the clients that
    /// subscribe at the time when it is published.
    pub streams: Option<StreamSettings>,
    /// The settings of the cluster. Without them the server is alone.
    pub cluster: Option<ClusterSettings>,
}

/// The data directory of streams, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// The data directory. It belongs to one server at a time.
    pub directory: PathBuf,
    /// The most bytes of all streams on disk together; `None` is as much as the disk has.
    pub max_file_bytes: Option<u64>,
    /// The most bytes of all streams in memory together.
    pub max_memory_bytes: Option<u64>,
    /// The most streams.
    pub max_streams: Option<usize>,
    /// The most consumers of a stream.
    pub max_consumers: Option<usize>,
    /// The domain: the API also answers at `$JS.<domain>.API.>`.
    pub domain: Option<String>,
    /// Lets a sync wait for callers that are about to return, if that pays.
    pub anticipation: bool,
    /// The length of the log's segments: whole pages, more than four of the largest message. For tests.
    pub segment_bytes: u64,
    /// The least that the log grows from one checkpoint to the next. For tests.
    pub checkpoint_bytes: u64,
    /// The time in which the server reads all of the log again, to find damaged records. For tests.
    pub scrub_period: Duration,
    /// Deviations for measurements.
    pub lab: Lab,
}

impl StreamSettings {
    /// Creates the settings of streams in `directory`, with the default limits. The limit on memory suits a
    /// machine that does not run this server alone.
    #[must_use]
    pub const fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            max_file_bytes: None,
            max_memory_bytes: Some(1 << 30),
            max_streams: None,
            max_consumers: None,
            domain: None,
            anticipation: true,
            segment_bytes: 64 << 20,
            checkpoint_bytes: 256 << 20,
            scrub_period: Duration::from_secs(3 * 24 * 3600),
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

/// TLS of the client port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate and its chain, PEM.
    pub cert_file: PathBuf,
    /// The private key of the certificate, PEM.
    pub key_file: PathBuf,
    /// The authorities that sign clients' certificates, PEM.
    pub ca_file: Option<PathBuf>,
    /// True if clients need a certificate.
    pub verify: bool,
    /// The time that the handshake may take.
    pub timeout: Duration,
    /// The order of handshake and INFO.
    pub handshake_first: HandshakeFirst,
    /// The most new TLS connections a second; 0 for any number.
    pub connection_rate_limit: u64,
}

/// The order of the TLS handshake and INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandshakeFirst {
    /// INFO comes first, as older clients expect.
    #[default]
    Never,
    /// The handshake comes first.
    Always,
    /// The server sends INFO first to a client that sends nothing for this long.
    After(Duration),
}

impl Settings {
    /// Checks that every address that other machines can reach is protected.
    ///
    /// # Errors
    /// An address is not protected, and `insecure` is not set.
    pub fn check_exposure(&self) -> Result<(), ExposureError> {
        if self.insecure {
            return Ok(());
        }
        let has_credentials =
            self.sessions.needs_credentials() && self.sessions.check_credentials().is_ok();
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

    /// Returns whether clients may send passwords or tokens over the network without TLS.
    #[must_use]
    pub fn shows_credentials(&self) -> bool {
        let encrypted = self.tls.is_some() && !self.allow_non_tls;
        self.sessions.needs_credentials() && !encrypted && !is_loopback(&self.host)
    }

    /// Checks that the settings of the cluster, if any, form one.
    ///
    /// # Errors
    /// A setting of the cluster is missing or not allowed.
    pub fn check_cluster(&self) -> Result<(), ClusterSettingsError> {
        let server_name = self.server_name.as_deref();
        self.cluster
            .as_ref()
            .map_or(Ok(()), |c| c.check(server_name))
    }

    /// Returns the time that a TLS handshake may take.
    #[must_use]
    pub fn tls_timeout(&self) -> Duration {
        self.tls.as_ref().map_or(Duration::ZERO, |t| t.timeout)
    }
}

/// Other machines can reach an address that nothing protects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExposureError {
    /// Any client could publish and subscribe.
    #[error(
        "`{0}` can be reached from other machines, and any client may connect: configure users or a token, listen on 127.0.0.1, or say --insecure"
    )]
    Clients(String),
    /// Strangers could join the cluster or read its traffic.
    #[error(
        "other machines can reach the nodes of the cluster on `{0}`, and the messages between nodes are neither encrypted nor signed: give them TLS (cluster.tls, or --cluster-tlscert, --cluster-tlskey and --cluster-tlscacert), let them listen on 127.0.0.1, or say --insecure on a network you trust, with a secret (cluster.authorization or TIDEGATE_CLUSTER_SECRET)"
    )]
    Nodes(String),
    /// Any client could read the monitor.
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
        });
        assert!(!settings.shows_credentials());
        settings.allow_non_tls = true;
        assert!(settings.shows_credentials());
    }
}
