//! Why connections end, and what the client and people are told.

use super::op::text;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client went away.
    ClientClosed,
    /// Input that is not the protocol.
    ParseError,
    /// A line beyond the limit.
    ControlLine,
    /// A message beyond the limit.
    Payload,
    /// Missing or wrong credentials.
    AuthenticationViolation,
    /// No credentials in time.
    AuthenticationTimeout,
    /// An unknown version of the protocol, or options that contradict each other.
    Protocol,
    /// The TLS handshake failed, or was not tried.
    Tls,
    /// Too many connections.
    MaxConnections,
    /// It does not answer PING.
    Stale,
    /// It does not read what it subscribed to: too much waits.
    SlowPending,
    /// It does not read what it subscribed to: nothing could be written for too long.
    SlowDeadline,
    /// Reading or writing failed.
    Io,
    /// The server stops.
    Shutdown,
    /// The configuration changed and no longer knows its credentials.
    AuthenticationExpired,
}

impl CloseReason {
    /// The reason in nats-server's words, for people.
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
            Self::MaxConnections => "Maximum Connections Exceeded",
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

    /// What the client is told before the connection closes.
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
            Self::Stale => Some(text::STALE),
            _ => None,
        }
    }
}
