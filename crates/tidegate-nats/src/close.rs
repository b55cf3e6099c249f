//! The reasons why connections of clients end, and the texts with which the server tells them to clients
//! (`-ERR`), logs and monitoring.

use super::op::text;

/// The reason why a client's connection ended, for the client, the log and monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client closed the connection, so the server has nothing to report.
    ClientClosed,
    /// The client's input does not follow the NATS protocol, so the server cannot find the next operation.
    ParseError,
    /// A control line of the client is longer than the configured limit on control lines.
    ControlLine,
    /// A message of the client has more bytes of headers and payload than the configured limit.
    Payload,
    /// The client's CONNECT carries no credentials, or wrong ones.
    AuthenticationViolation,
    /// The client presented no credentials within the time that the server allows.
    AuthenticationTimeout,
    /// The client's CONNECT asks for an unknown protocol level, or for options that contradict each other.
    Protocol,
    /// The TLS handshake failed, or the client did not attempt it.
    Tls,
    /// The server already has its configured maximum of connections, so it refuses this one.
    MaxConnections,
    /// The server refuses the TLS connection, because it has already accepted as many new TLS connections in
    /// this second as its configuration allows.
    Throttled,
    /// The client did not answer the server's PINGs, so the server counts the client as gone.
    Stale,
    /// The client does not read its messages: more bytes wait for the client than the server allows.
    SlowPending,
    /// The client does not read its messages: its socket accepted no bytes for longer than the write
    /// deadline.
    SlowDeadline,
    /// The server could not read from the client's socket or write to it.
    Io,
    /// The server stops, and closes all connections.
    Shutdown,
    /// The server reloaded its configuration, which no longer admits the client's credentials.
    AuthenticationExpired,
    /// An operator asked the server to close this connection.
    Kicked,
}

impl CloseReason {
    /// Returns the reason in nats-server's words, for logs and monitoring.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientClosed => "Client Closed",
            Self::ParseError => "Protocol Violation",
            Self::ControlLine => "Maximum Control Line Exceeded",
            Self::Payload => "Maximum Message Payload Exceeded",
            Self::AuthenticationViolation => "Authentication Failure",
            Self::AuthenticationTimeout => "Authentication Timeout",
            Self::Protocol => "Bad Client Protocol",
            Self::Tls => "TLS Handshake Failure",
            // nats-server uses one text for two reasons: too many connections, and too many new TLS
            // connections in a second.
            Self::MaxConnections | Self::Throttled => "Maximum Connections Exceeded",
            Self::Stale => "Stale Connection",
            Self::SlowPending => "Slow Consumer (Pending Bytes)",
            Self::SlowDeadline => "Slow Consumer (Write Deadline)",
            Self::Io => "Read or Write Error",
            Self::Shutdown => "Server Shutdown",
            Self::AuthenticationExpired => "Credentials No Longer Valid",
            Self::Kicked => "Kicked",
        }
    }

    /// Returns whether the connection ended because the client did not read fast enough, for the count of
    /// slow consumers.
    #[must_use]
    pub const fn is_slow_consumer(self) -> bool {
        matches!(self, Self::SlowPending | Self::SlowDeadline)
    }

    /// Returns whether the connection ended because the client presented no valid credentials, for the count
    /// of failed logins.
    #[must_use]
    pub const fn is_failed_login(self) -> bool {
        matches!(
            self,
            Self::AuthenticationViolation | Self::AuthenticationTimeout
        )
    }

    /// Returns the text of the `-ERR` that the server sends before it closes the connection; `None` if the
    /// server closes the connection without an `-ERR`.
    pub(super) const fn text(self) -> Option<&'static str> {
        match self {
            Self::ParseError => Some(text::UNKNOWN_OPERATION),
            Self::ControlLine => Some(text::MAX_CONTROL_LINE),
            Self::Payload => Some(text::MAX_PAYLOAD),
            Self::AuthenticationViolation | Self::AuthenticationExpired => {
                Some(text::AUTHORIZATION_VIOLATION)
            }
            Self::AuthenticationTimeout => Some(text::AUTHENTICATION_TIMEOUT),
            Self::Tls => Some(text::TLS_REQUIRED),
            Self::MaxConnections => Some(text::MAX_CONNECTIONS),
            Self::Throttled => Some(text::THROTTLED),
            Self::Stale => Some(text::STALE),
            _ => None,
        }
    }
}
