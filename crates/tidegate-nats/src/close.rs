//! The reasons why connections end, and their texts for clients and people.

use super::op::text;

/// The reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client closed the connection.
    ClientClosed,
    /// The input does not follow the protocol.
    ParseError,
    /// A control line is too long.
    ControlLine,
    /// A message is too large.
    Payload,
    /// The credentials are missing or wrong.
    AuthenticationViolation,
    /// The client presented no credentials in time.
    AuthenticationTimeout,
    /// The client asked for an unknown version of the protocol, or for options that contradict each other.
    Protocol,
    /// The TLS handshake failed, or the client did not attempt it.
    Tls,
    /// The server has too many connections.
    MaxConnections,
    /// The server takes no more TLS connections in this second.
    Throttled,
    /// The client does not answer PING.
    Stale,
    /// The client does not read its messages: too many bytes wait for it.
    SlowPending,
    /// The client does not read its messages: its socket accepted no bytes for too long.
    SlowDeadline,
    /// Reading or writing failed.
    Io,
    /// The server stops.
    Shutdown,
    /// The configuration changed, and no longer knows the client's credentials.
    AuthenticationExpired,
}

impl CloseReason {
    /// Returns the reason in nats-server's words, for people.
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
            // nats-server has one name for both.
            Self::MaxConnections | Self::Throttled => "Maximum Connections Exceeded",
            Self::Stale => "Stale Connection",
            Self::SlowPending => "Slow Consumer (Pending Bytes)",
            Self::SlowDeadline => "Slow Consumer (Write Deadline)",
            Self::Io => "Read or Write Error",
            Self::Shutdown => "Server Shutdown",
            Self::AuthenticationExpired => "Credentials No Longer Valid",
        }
    }

    /// Returns whether the client did not read fast enough.
    #[must_use]
    pub const fn is_slow_consumer(self) -> bool {
        matches!(self, Self::SlowPending | Self::SlowDeadline)
    }

    /// Returns whether the client presented no right credentials.
    #[must_use]
    pub const fn is_failed_login(self) -> bool {
        matches!(
            self,
            Self::AuthenticationViolation | Self::AuthenticationTimeout
        )
    }

    /// Returns the text of the `-ERR` that the server sends before it closes the connection.
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
