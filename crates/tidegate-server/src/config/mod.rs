//! What a server can be told: [`Settings`], plain data with nats-server's names and defaults.
//!
//! Owns the meaning of each setting and the checking of credentials. [`tree`] reads nats-server's
//! configuration syntax and ours, [`apply`] turns what was read into settings and refuses what does not exist
//! here.

pub mod apply;
pub mod cluster;
pub mod cluster_tls;
pub mod tree;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;
use tidegate::controller::Choice;

use self::cluster::{ClusterSettings, ClusterSettingsError};
use crate::lab::Lab;
use crate::nats::permissions::Permissions;

/// Where streams are kept if nothing is said: in the directory the server was started in.
pub const DATA_DIRECTORY: &str = "tidegate-data";

/// Everything a server can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Address to listen on.
    pub host: String,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// For people; by default the server's id.
    pub server_name: Option<String>,
    /// `host:port` told to clients as the address to connect to.
    pub client_advertise: Option<String>,
    /// Connections at a time.
    pub max_connections: usize,
    /// Subscriptions a connection; 0 is any number.
    pub max_subscriptions: usize,
    /// Bytes of headers and payload of one message.
    pub max_payload: usize,
    /// Bytes of a control line.
    pub max_control_line: usize,
    /// Bytes that may wait for one connection before it counts as a slow consumer.
    pub max_pending: usize,
    /// Silence after which a client is asked whether it is there.
    pub ping_interval: Duration,
    /// Unanswered PINGs after which it is not.
    pub ping_max: u32,
    /// How long a connection may take nothing of what waits for it.
    pub write_deadline: Duration,
    /// How long a client may take to present its credentials.
    pub auth_timeout: Duration,
    /// A token that admits.
    pub token: Option<Secret>,
    /// Users that are admitted.
    pub users: Vec<Arc<User>>,
    /// The user of a client without credentials.
    pub no_auth_user: Option<String>,
    /// TLS.
    pub tls: Option<TlsSettings>,
    /// Whether a client may go without the TLS there is.
    pub allow_non_tls: bool,
    /// Where the HTTP monitor listens; without a port there is none.
    pub http_host: Option<String>,
    /// Where the HTTP monitor listens; 0 takes a free one.
    pub http_port: Option<u16>,
    /// Over how long lame duck mode closes its connections.
    pub lame_duck_duration: Duration,
    /// How long lame duck mode waits before it closes any.
    pub lame_duck_grace_period: Duration,
    /// Where the process id is written.
    pub pid_file: Option<PathBuf>,
    /// Where the log goes instead of stderr.
    pub log_file: Option<PathBuf>,
    /// Log what is of use when looking for an error.
    pub debug: bool,
    /// Who decides how much is gathered before the sockets are written.
    pub controller: Choice,
    /// Listen beyond this machine without credentials.
    pub insecure: bool,
    /// Durable streams; without them only what is published now reaches who listens now.
    pub streams: Option<StreamSettings>,
    /// Its part in a cluster; without it the server is alone.
    pub cluster: Option<ClusterSettings>,
}

/// Where streams are kept, and how much of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// The data directory. It belongs to one server at a time.
    pub directory: PathBuf,
    /// Bytes all streams on disk may take together; `None` is as much as the disk has.
    pub max_file_bytes: Option<u64>,
    /// Bytes all streams in memory may take together.
    pub max_memory_bytes: Option<u64>,
    /// Streams there may be.
    pub max_streams: Option<usize>,
    /// Consumers a stream may have.
    pub max_consumers: Option<usize>,
    /// The domain: the API also answers at `$JS.<domain>.API.>`.
    pub domain: Option<String>,
    /// Whether a sync waits for callers that are about to return, where that pays.
    pub anticipation: bool,
    /// The length of the log's segments: whole pages, more than four of the largest message. For tests.
    pub segment_bytes: u64,
    /// The least the log grows from one checkpoint to the next. For tests.
    pub checkpoint_bytes: u64,
    /// In what time all of the log is read again, to find what went bad. For tests.
    pub scrub_period: Duration,
    /// Ways of writing that only measurements take.
    pub lab: Lab,
}

impl StreamSettings {
    /// Streams in `directory`, with the bounds that apply if nothing is said: the memory streams of a machine
    /// that is used for more than that.
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
            max_connections: 64 * 1024,
            max_subscriptions: 0,
            max_payload: 1024 * 1024,
            max_control_line: 4096,
            max_pending: 64 * 1024 * 1024,
            ping_interval: Duration::from_secs(120),
            ping_max: 2,
            write_deadline: Duration::from_secs(10),
            auth_timeout: Duration::from_secs(2),
            token: None,
            users: Vec::new(),
            no_auth_user: None,
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
            insecure: false,
            streams: None,
            cluster: None,
        }
    }
}

/// A password or token as the configuration has it.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// As it is.
    Plain(String),
    /// A bcrypt hash.
    Bcrypt(Arc<str>),
}

impl Secret {
    /// What the configuration's text means: nats-server takes what begins as a bcrypt hash as one.
    #[must_use]
    pub fn new(text: &str) -> Self {
        if ["$2a$", "$2b$", "$2x$", "$2y$"]
            .iter()
            .any(|p| text.starts_with(p))
        {
            Self::Bcrypt(text.into())
        } else {
            Self::Plain(text.into())
        }
    }
}

impl Secret {
    /// Returns whether it is empty: it keeps no client out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(text) if text.is_empty())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// Someone who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name; empty for whoever has the token.
    pub name: String,
    /// The password.
    pub secret: Secret,
    /// What the user may do; `None`: everything.
    pub permissions: Option<Permissions>,
}

/// TLS of the client port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate and those above it, PEM.
    pub cert_file: PathBuf,
    /// Its private key, PEM.
    pub key_file: PathBuf,
    /// Who signs clients' certificates, PEM.
    pub ca_file: Option<PathBuf>,
    /// Whether clients need a certificate.
    pub verify: bool,
    /// How long the handshake may take.
    pub timeout: Duration,
    /// Whether the handshake comes before INFO.
    pub handshake_first: HandshakeFirst,
}

/// Whether the TLS handshake comes before INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandshakeFirst {
    /// INFO comes first, as clients of old expect.
    #[default]
    Never,
    /// Always.
    Always,
    /// A client that says nothing for this long gets INFO first.
    After(Duration),
}

/// What the credentials of a CONNECT are worth.
#[derive(Debug)]
pub enum Credentials {
    /// None are configured.
    NotNeeded,
    /// They are this user's.
    Good(Arc<User>),
    /// They are nobody's.
    Wrong,
    /// They are this user's if the password fits the hash, which takes long to find out.
    Hashed {
        /// Whose.
        user: Arc<User>,
        /// As given.
        password: String,
        /// As configured.
        hash: Arc<str>,
    },
}

impl Settings {
    /// Whether each credential is one.
    ///
    /// # Errors
    /// A name, a password or a token is empty.
    pub fn check_credentials(&self) -> Result<(), CredentialsError> {
        if self.token.as_ref().is_some_and(Secret::is_empty) {
            return Err(CredentialsError::Token);
        }
        if self.users.iter().any(|u| u.name.is_empty()) {
            return Err(CredentialsError::Name);
        }
        match self.users.iter().find(|u| u.secret.is_empty()) {
            Some(user) => Err(CredentialsError::Password(user.name.clone())),
            None => Ok(()),
        }
    }

    /// Whether what is listened on beyond this machine is guarded.
    ///
    /// # Errors
    /// It is not, and `insecure` was not said.
    pub fn check_exposure(&self) -> Result<(), ExposureError> {
        if self.insecure {
            return Ok(());
        }
        let has_credentials = self.needs_credentials() && self.check_credentials().is_ok();
        let guarded = has_credentials && self.no_auth_user.is_none()
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

    /// Whether what is said of a cluster makes one.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_cluster(&self) -> Result<(), ClusterSettingsError> {
        let server_name = self.server_name.as_deref();
        self.cluster
            .as_ref()
            .map_or(Ok(()), |c| c.check(server_name))
    }

    /// Returns whether a client must present credentials.
    #[must_use]
    pub fn needs_credentials(&self) -> bool {
        self.token.is_some() || !self.users.is_empty()
    }

    /// What the credentials a client gave are worth.
    #[must_use]
    pub fn check(
        &self,
        name: Option<&str>,
        password: Option<String>,
        token: Option<String>,
    ) -> Credentials {
        if !self.needs_credentials() {
            return Credentials::NotNeeded;
        }
        let find = |name: &str| self.users.iter().find(|u| u.name == name);
        if let (Some(secret), Some(given)) = (&self.token, token) {
            let user = User {
                name: String::new(),
                secret: secret.clone(),
                permissions: None,
            };
            return compare(&Arc::new(user), given);
        }
        match (name, &self.no_auth_user) {
            (Some(name), _) => match (find(name), password) {
                (Some(user), Some(given)) => compare(user, given),
                _ => Credentials::Wrong,
            },
            (None, Some(name)) => find(name)
                .cloned()
                .map_or(Credentials::Wrong, Credentials::Good),
            (None, None) => Credentials::Wrong,
        }
    }

    /// How long a TLS handshake may take.
    #[must_use]
    pub fn tls_timeout(&self) -> Duration {
        self.tls.as_ref().map_or(Duration::ZERO, |t| t.timeout)
    }

    /// When a connection silent since `since` is to be asked whether it is there: a little late, so that the
    /// timers of many connections fall together.
    #[must_use]
    pub fn ping_due(&self, since: Time) -> Time {
        let grid = tidegate::nanos(self.ping_interval / 64).max(1);
        let at = (since + self.ping_interval).as_nanos();
        Time::from_nanos(at.checked_next_multiple_of(grid).unwrap_or(u64::MAX))
    }
}

/// A credential that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The token is empty.
    #[error(
        "the token is empty, so it is no credential: give one (--auth, TIDEGATE_AUTH, authorization.token), or leave it out"
    )]
    Token,
    /// The name of a user is empty.
    #[error(
        "the name of a user is empty, so it is no credential: give one (--user, authorization.user), or leave the user out"
    )]
    Name,
    /// The password of this user is empty.
    #[error(
        "the password of the user `{0}` is empty, so it is no credential: give one (--pass, TIDEGATE_PASS, authorization.password), or leave the user out"
    )]
    Password(String),
}

/// An address the world can reach, with nothing to guard it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExposureError {
    /// Anybody could publish and subscribe.
    #[error(
        "`{0}` can be reached from elsewhere and anybody may connect: configure users or a token, listen on 127.0.0.1, or say --insecure"
    )]
    Clients(String),
    /// Others could join the cluster or read along.
    #[error(
        "the nodes of the cluster could be reached on `{0}` from elsewhere, and what they say to each other is neither encrypted nor signed: give them TLS (cluster.tls, or --cluster_tlscert, --cluster_tlskey and --cluster_tlscacert), let them listen on 127.0.0.1, or say --insecure on a network you trust, with a secret (cluster.authorization or TIDEGATE_CLUSTER_SECRET)"
    )]
    Nodes(String),
    /// Anybody could read the monitor.
    #[error(
        "the monitor on `{0}` can be read from elsewhere by anybody: let it listen on 127.0.0.1, or say --insecure"
    )]
    Monitor(String),
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

fn compare(user: &Arc<User>, given: String) -> Credentials {
    match &user.secret {
        Secret::Plain(secret) if same(secret.as_bytes(), given.as_bytes()) => {
            Credentials::Good(Arc::clone(user))
        }
        Secret::Plain(_) => Credentials::Wrong,
        Secret::Bcrypt(hash) => Credentials::Hashed {
            user: Arc::clone(user),
            password: given,
            hash: Arc::clone(hash),
        },
    }
}

/// Returns whether two secrets are the same, in a time that tells only their length.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (a, b)| d | (a ^ b)) == 0
}
