//! The errors of the client, one enum per operation: an invalid setting or URL ([`ConfigError`]), a failed
//! connection ([`ConnectError`]), a failed command ([`CommandError`]).

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::reply::{ReplyError, ServerError};
use crate::resp::ProtocolError;

/// The reasons why a setting or the URL of a client is invalid.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not a URL; holds the reason.
    Url(String),
    /// The URL has a scheme other than `redis`, `rediss`, `redis+unix` and `unix`.
    Scheme(String),
    /// The URL has no host or, for a Unix socket, no path.
    NoHost,
    /// The URL names the database by a text that is no number, in its path or in the parameter `db`; holds
    /// the text.
    Database(String),
    /// The URL has a query parameter that the client does not know; holds its name.
    Parameter(String),
    /// A query parameter of the URL has an invalid value.
    Value {
        /// The name of the query parameter with the invalid value.
        name: &'static str,
        /// The values that the query parameter allows, in words for people.
        wanted: &'static str,
        /// The value that the URL gives.
        got: String,
    },
    /// The bound of the configuration with this name is 0, with which the client could send nothing.
    ZeroBound(&'static str),
    /// The fraction of `Concession::ThroughputFraction` is not between 0 and 1; holds the fraction.
    Fraction(f64),
    /// The client cannot read the certificates or keys for TLS.
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

/// The reasons why the client could not connect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting of the client is invalid.
    Config(ConfigError),
    /// The operating system reported an error of the socket or the network.
    Io {
        /// The address of the server.
        to: String,
        /// The error that the operating system reported.
        source: Arc<io::Error>,
    },
    /// The client and the server could not agree on TLS: a certificate or a name is wrong, or the server does
    /// not speak TLS.
    Tls(String),
    /// The connection to the server at this address was not ready within the connect timeout.
    TimedOut(String),
    /// The server refused the login, for example because of a wrong password or an unknown database.
    Refused(ServerError),
    /// The peer answered the handshake with bytes that no Redis server sends.
    Protocol(ProtocolError),
    /// The server closed the connection during the handshake.
    Closed,
    /// The program connected outside of a tokio runtime with I/O enabled, or the thread of a `BlockingClient`
    /// could not start.
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

/// The possible fates of a command for which the client got no reply: a program may repeat the command safely
/// only after `No`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The server has not executed the command, which never left this client.
    No,
    /// The server may have executed the command: the client wrote at least a part of it, or does not know
    /// whether it did.
    Maybe,
}

/// The reasons why a command of the client failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CommandError {
    /// The server refused the command.
    Server(ServerError),
    /// The server's reply does not convert to the type that the program asked for.
    Reply(ReplyError),
    /// The connection broke before the client got the reply to the command.
    Lost {
        /// Says whether the server may have executed the command before the connection broke.
        executed: Executed,
        /// The reason why the connection broke, in words for people.
        cause: Arc<str>,
    },
    /// The client got no reply to the command within the timeout, or no connection of the pool was free in
    /// time. The client discards a late reply.
    TimedOut(Executed),
    /// The connection holds as many commands or bytes as its bounds allow, and the configuration says that a
    /// command then fails instead of waiting for room.
    Full {
        /// The number of commands that were queued and in flight when the client refused the command.
        commands: u64,
        /// The number of bytes of the commands that were queued and in flight then.
        bytes: u64,
    },
    /// The command does not belong on a shared connection, for the reason in this text.
    NotShared(&'static str),
    /// The program has closed the client, so the command was refused or got no reply.
    Closed,
    /// No connection of the pool was idle, and the client could not connect to the server.
    Connect(Arc<ConnectError>),
    /// The program subscribed, which needs RESP3, and the server speaks only RESP2.
    NeedsResp3,
}

impl CommandError {
    /// Returns the server's error, if the server refused the command.
    #[must_use]
    pub const fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(e) => Some(e),
            _ => None,
        }
    }

    /// Returns whether the server may have executed the command although there is no reply, so that a
    /// repetition may execute it twice.
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
                "{commands} commands of {bytes} bytes wait already: try again later, or raise the bounds"
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
