//! The errors of the client, one enum per operation: reading an address
//! ([`ConfigError`]), connecting ([`ConnectError`]), a command ([`CommandError`]).

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::reply::{ReplyError, ServerError};
use crate::resp::ProtocolError;

/// An invalid setting.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not a URL.
    Url(String),
    /// A scheme other than `redis`, `rediss`, `redis+unix` and `unix`.
    Scheme(String),
    /// A URL without a host or, for a Unix socket, without a path.
    NoHost,
    /// The database is not a number.
    Database(String),
    /// An unknown query parameter.
    Parameter(String),
    /// An invalid value of a query parameter.
    Value {
        /// The parameter.
        name: &'static str,
        /// The values allowed.
        wanted: &'static str,
        /// The value given.
        got: String,
    },
    /// A bound of zero.
    ZeroBound(&'static str),
    /// A share that is not above 0 and below 1.
    Fraction(f64),
    /// Certificates or keys that cannot be read.
    Certificate(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "expected a URL such as redis://host:6379/0: {why}"),
            Self::Scheme(s) => write!(
                f,
                "expected the scheme redis, rediss, redis+unix or unix, not {s:?}"
            ),
            Self::NoHost => f.write_str("expected a host, or a path for a Unix socket: write redis://host:6379 or redis+unix:///path"),
            Self::Database(s) => write!(f, "expected the number of a database behind the host, not {s:?}"),
            Self::Parameter(s) => write!(f, "unknown parameter {s:?}: there are db, name, protocol, timeout_ms, connect_timeout_ms and keepalive_s"),
            Self::Value { name, wanted, got } => write!(f, "expected {wanted} for {name}, not {got:?}"),
            Self::ZeroBound(name) => write!(f, "{name} is 0: at least 1 is needed"),
            Self::Fraction(x) => write!(f, "expected a fraction above 0 and below 1, not {x}"),
            Self::Certificate(why) => write!(f, "expected certificates and keys in PEM: {why}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The reasons why a connection could not be made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// Invalid settings.
    Config(ConfigError),
    /// The network or the socket failed.
    Io {
        /// The address of the server.
        to: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// TLS failed: certificates, names, or a server without TLS.
    Tls(String),
    /// The connection took too long.
    TimedOut(String),
    /// The server refused the handshake: a wrong password, an unknown database.
    Refused(ServerError),
    /// The peer is not a Redis server.
    Protocol(ProtocolError),
    /// The server closed the connection during the handshake.
    Closed,
    /// There is no tokio runtime with I/O enabled.
    Runtime,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) => e.fmt(f),
            Self::Io { to, source } => write!(f, "cannot connect to {to}: {source}"),
            Self::Tls(why) => write!(f, "cannot agree on TLS: {why}"),
            Self::TimedOut(to) => write!(f, "no answer from {to} within the connect timeout"),
            Self::Refused(e) => write!(f, "cannot log in: {e}"),
            Self::Protocol(e) => e.fmt(f),
            Self::Closed => f.write_str("the server closed the connection before it was ready: it may be full, or expect TLS"),
            Self::Runtime => f.write_str("expected to run in a tokio runtime with I/O and time enabled"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(e) => Some(e),
            Self::Io { source, .. } => Some(&**source),
            Self::Refused(e) => Some(e),
            Self::Protocol(e) => Some(e),
            _ => None,
        }
    }
}

impl From<ConfigError> for ConnectError {
    fn from(e: ConfigError) -> Self {
        Self::Config(e)
    }
}

/// The possible fates of a command that has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The command never left this client.
    No,
    /// The client wrote at least a part of the command: the server may have executed it.
    Maybe,
}

/// The reasons why a command has no result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CommandError {
    /// The server refused the command.
    Server(ServerError),
    /// The reply has another shape than the program asked for.
    Reply(ReplyError),
    /// The connection broke.
    Lost {
        /// The possible fate of the command.
        executed: Executed,
        /// The reason why the connection broke.
        cause: Arc<str>,
    },
    /// No reply came in time; the client discards a later one.
    TimedOut(Executed),
    /// Too many commands or bytes wait, and the client is set not to wait for room.
    Full {
        /// Commands queued and in flight.
        commands: u64,
        /// The bytes of those commands.
        bytes: u64,
    },
    /// The command does not belong on a shared connection.
    NotShared(&'static str),
    /// The client was closed.
    Closed,
    /// The pool could not make a connection.
    Connect(Arc<ConnectError>),
    /// The command needs RESP3, and the server speaks only RESP2.
    NeedsResp3,
}

impl CommandError {
    /// Returns the refusal of the server, if this error is one.
    #[must_use]
    pub const fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(e) => Some(e),
            _ => None,
        }
    }

    /// Returns whether the server may have executed the command although there is no reply.
    #[must_use]
    pub const fn maybe_executed(&self) -> bool {
        matches!(
            self,
            Self::Lost {
                executed: Executed::Maybe,
                ..
            } | Self::TimedOut(Executed::Maybe)
        )
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = |e: &Executed| match e {
            Executed::No => "the command was not executed",
            Executed::Maybe => "the command may have been executed",
        };
        match self {
            Self::Server(e) => e.fmt(f),
            Self::Reply(e) => e.fmt(f),
            Self::Lost { executed, cause } => {
                write!(
                    f,
                    "the connection was lost ({cause}): {}",
                    outcome(executed)
                )
            }
            Self::TimedOut(e) => write!(f, "no reply in time: {}", outcome(e)),
            Self::Full { commands, bytes } => write!(
                f,
                "{commands} commands of {bytes} bytes wait: try again later, or raise the bounds"
            ),
            Self::NotShared(what) => f.write_str(what),
            Self::Closed => f.write_str("the client is closed: connect again"),
            Self::Connect(e) => e.fmt(f),
            Self::NeedsResp3 => {
                f.write_str("pub/sub needs RESP3: use a server of version 6 or later")
            }
        }
    }
}

impl std::error::Error for CommandError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Server(e) => Some(e),
            Self::Reply(e) => Some(e),
            Self::Connect(e) => Some(&**e),
            _ => None,
        }
    }
}

impl From<ReplyError> for CommandError {
    fn from(e: ReplyError) -> Self {
        match e {
            ReplyError::Server(e) => Self::Server(e),
            other => Self::Reply(other),
        }
    }
}
