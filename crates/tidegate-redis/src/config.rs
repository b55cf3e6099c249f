//! The configuration of a client ([`Config`]): the server, the login and the limits, which a program takes
//! from a URL or sets one by one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ConfigError;
use crate::policy::Policy;
use crate::tls::Tls;

/// The address of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// The host and the port of a TCP socket.
    Tcp {
        /// The host's name or IP address.
        host: String,
        /// The TCP port of the server.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The client's choice for a command that would exceed the bounds on queued commands or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// A command that would exceed the bounds on queued commands or bytes waits until the connection has
    /// room.
    #[default]
    Wait,
    /// A command that would exceed the bounds on queued commands or bytes fails with
    /// [`CommandError::Full`](crate::CommandError::Full).
    Fail,
}

/// The versions of RESP, Redis's protocol, that a client may speak: newer servers speak RESP3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The client speaks RESP3, or RESP2 if the server does not know RESP3.
    #[default]
    Best,
    /// The client speaks RESP2: it sends no `HELLO`, and offers no pub/sub.
    Resp2,
}

/// The settings of a client: the server, the flush policy and the limits.
///
/// ```
/// use std::time::Duration;
/// use tidegate_redis::{Config, Policy};
///
/// let config = Config::from_url("redis://user:secret@localhost:6379/1?name=app")?
///     .policy(Policy::Auto)
///     .timeout(Duration::from_secs(2))
///     .commands_max(10_000);
/// # Ok::<(), tidegate_redis::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Config {
    pub(crate) login: Login,
    pub(crate) policy: Policy,
    pub(crate) spin: Option<bool>,
    /// True if the callers are threads, as with a `BlockingClient`: a thread that waits for a reply blocks,
    /// and meanwhile drives the connection.
    pub(crate) callers_block: bool,
    pub(crate) limits: Limits,
}

/// The settings with which every connection of a client connects and logs in, the connections of the pool
/// included.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) address: Address,
    pub(crate) tls: Option<Tls>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) db: u32,
    pub(crate) protocol: Protocol,
    pub(crate) connect_timeout: Duration,
    pub(crate) reply_bytes_max: usize,
}

impl fmt::Debug for Login {
    /// Leaves the password out of the `Debug` output, which programs write to logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("address", &self.address)
            .field("tls", &self.tls)
            .field("user", &self.user)
            .field("name", &self.name)
            .field("db", &self.db)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) commands_max: u64,
    pub(crate) bytes_max: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) timeout: Duration,
    pub(crate) keepalive: Duration,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) retry_reads: bool,
    pub(crate) pool_max: usize,
    pub(crate) large_pipeline: usize,
}

impl Config {
    /// Returns the default settings for the server at `address`.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self {
            login: Login {
                address,
                tls: None,
                user: None,
                password: None,
                name: None,
                db: 0,
                protocol: Protocol::Best,
                connect_timeout: Duration::from_secs(5),
                reply_bytes_max: 512 << 20,
            },
            policy: Policy::Auto,
            spin: None,
            callers_block: false,
            limits: Limits {
                commands_max: 65_536,
                bytes_max: 64 << 20,
                when_full: WhenFull::Wait,
                timeout: Duration::from_secs(10),
                keepalive: Duration::from_secs(30),
                backoff: (Duration::from_millis(10), Duration::from_secs(2)),
                retry_reads: false,
                pool_max: 64,
                large_pipeline: 2_000,
            },
        }
    }

    /// Parses `redis://`, `rediss://` (TLS) or `redis+unix://`; docs/redis.md lists all parameters.
    ///
    /// # Errors
    /// An invalid URL; the error names the expected syntax.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        crate::url::parse(url)
    }

    /// Sets the policy that decides when the client writes queued commands.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets whether the connection's task may look for replies without sleeping while callers wait, which
    /// spends CPU to save latency. On by default where the policy allows it; [`Policy::MinCpu`],
    /// [`Policy::Fixed`], [`Policy::RueidisStats`] and [`Policy::Off`] never do.
    #[must_use]
    pub fn spin(mut self, yes: bool) -> Self {
        self.spin = Some(yes);
        self
    }

    /// Makes the client connect with TLS, so that the connection is encrypted.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.login.tls = Some(tls);
        self
    }

    /// Sets the user to log in as. If not set, the client sends the password without a user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.login.user = Some(user.into());
        self
    }

    /// Sets the password that every connection logs in with.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.login.password = Some(password.into());
        self
    }

    /// Sets the name that the server's `CLIENT LIST` shows for every connection of the client, for operators.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.login.name = Some(name.into());
        self
    }

    /// Sets the number of the database that every connection selects.
    #[must_use]
    pub const fn db(mut self, db: u32) -> Self {
        self.login.db = db;
        self
    }

    /// Sets the version of RESP that every connection speaks.
    #[must_use]
    pub const fn protocol(mut self, protocol: Protocol) -> Self {
        self.login.protocol = protocol;
        self
    }

    /// Sets the longest time that a connection may take to connect and log in, 5 s by default.
    #[must_use]
    pub const fn connect_timeout(mut self, after: Duration) -> Self {
        self.login.connect_timeout = after;
        self
    }

    /// Sets the size of the largest accepted reply, in bytes, so that a server cannot fill the memory. 512
    /// MiB by default, the largest value in Redis.
    #[must_use]
    pub const fn reply_bytes_max(mut self, bytes: usize) -> Self {
        self.login.reply_bytes_max = bytes;
        self
    }

    /// Sets the longest time that a command waits for its reply before it fails. 10 s by default. Blocking
    /// commands on connections of the pool are exempt.
    #[must_use]
    pub const fn timeout(mut self, after: Duration) -> Self {
        self.limits.timeout = after;
        self
    }

    /// Sets the largest number of commands queued and in flight on the shared connection; further commands
    /// wait or fail, as [`when_full`](Self::when_full) says. 65,536 by default.
    #[must_use]
    pub const fn commands_max(mut self, commands: u64) -> Self {
        self.limits.commands_max = commands;
        self
    }

    /// Sets the largest number of bytes of commands queued and in flight on the shared connection. 64 MiB by
    /// default. A single command may be larger; the client then sends it alone.
    #[must_use]
    pub const fn bytes_max(mut self, bytes: u64) -> Self {
        self.limits.bytes_max = bytes;
        self
    }

    /// Sets whether a command waits or fails if it would exceed the bounds on queued commands or bytes.
    #[must_use]
    pub const fn when_full(mut self, what: WhenFull) -> Self {
        self.limits.when_full = what;
        self
    }

    /// Sets how long the server may be silent before the client tests the connection with a `PING`, 30 s by
    /// default. If the server then stays silent for the client's timeout as well, the client reconnects.
    #[must_use]
    pub const fn keepalive(mut self, after: Duration) -> Self {
        self.limits.keepalive = after;
        self
    }

    /// Sets the pauses between attempts to reconnect. The first pause lasts at most `first`, 10 ms by
    /// default. The limit doubles with each further pause, up to `last`, 2 s by default. The client draws
    /// each pause between half of its limit and the limit.
    #[must_use]
    pub const fn backoff(mut self, first: Duration, last: Duration) -> Self {
        self.limits.backoff = (first, last);
        self
    }

    /// Sets whether the client sends read-only commands again after the connection broke. Off by default.
    #[must_use]
    pub const fn retry_reads(mut self, yes: bool) -> Self {
        self.limits.retry_reads = yes;
        self
    }

    /// Sets the largest number of connections that the client's pool has open at once, besides the shared
    /// connection: for blocking commands, transactions and bulk commands. 64 by default.
    #[must_use]
    pub const fn pool_max(mut self, connections: usize) -> Self {
        self.limits.pool_max = connections;
        self
    }

    /// Sets the number of commands from which on a pipeline takes a connection of the pool, so that it does
    /// not delay the callers of the shared connection. 2,000 by default.
    #[must_use]
    pub const fn large_pipeline(mut self, commands: usize) -> Self {
        self.limits.large_pipeline = commands;
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let l = &self.limits;
        let zero = [
            ("commands_max", l.commands_max == 0),
            ("bytes_max", l.bytes_max == 0),
            ("reply_bytes_max", self.login.reply_bytes_max == 0),
            ("pool_max", l.pool_max == 0),
            ("timeout", l.timeout.is_zero()),
            ("connect_timeout", self.login.connect_timeout.is_zero()),
            ("keepalive", l.keepalive.is_zero()),
        ];
        match zero.into_iter().find(|(_, is)| *is) {
            Some((name, _)) => Err(ConfigError::ZeroBound(name)),
            None => Ok(()),
        }
    }
}

/// The settings of a client that its clones and its connections share, and that never change.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) login: Arc<Login>,
    pub(crate) limits: Arc<Limits>,
}
