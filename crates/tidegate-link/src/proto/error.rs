//! The faults of the other side, its silence included: one enum for each half of the link.
//!
//! Both enums name what this side expected. They say after which faults a connection may
//! be made again; the drivers decide what to do about them.

use std::fmt;

use super::sender::Doubt;
use crate::Seq;
use crate::frame::Code;
use crate::hello::{HandshakeError, Refused, VERSION};

/// The faults of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiverError {
    /// A message is larger than allowed.
    TooLarge {
        /// The size of the message.
        size: u32,
        /// The largest allowed.
        max: u32,
    },
    /// A checksum does not fit its message.
    Checksum {
        /// The number of the message.
        seq: Seq,
    },
    /// The client sent more than the window allows.
    Window {
        /// The bytes without an acknowledgement.
        unacked: u64,
        /// The window.
        window: u64,
    },
    /// A control frame this version does not know.
    Control(u32),
    /// A skip of messages is not the first frame, or goes back.
    Skip {
        /// The number of the message to which the client skips.
        next: Seq,
        /// The highest number the server has.
        received: Seq,
    },
    /// A frame follows the close frame.
    AfterClose,
    /// The connection ended inside a frame.
    Truncated {
        /// The bytes of the frame that had arrived.
        bytes: usize,
    },
    /// The server heard nothing for too long.
    Idle,
    /// The client does not read the server's replies.
    Stuck,
}

impl ReceiverError {
    /// The code the server sends to the client.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::TooLarge { .. } => Code::TooLarge,
            Self::Checksum { .. } => Code::Checksum,
            Self::Window { .. } => Code::Window,
            Self::Idle | Self::Stuck => Code::Idle,
            _ => Code::Malformed,
        }
    }
}

impl fmt::Display for ReceiverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { size, max } => write!(
                f,
                "a message of {size} bytes: at most {max} are allowed (or the other side does not speak this protocol)"
            ),
            Self::Checksum { seq } => write!(
                f,
                "the checksum of message {seq} is wrong: it was damaged on its way"
            ),
            Self::Window { unacked, window } => write!(
                f,
                "{unacked} bytes without an acknowledgement: the window is {window} bytes"
            ),
            Self::Control(n) => write!(f, "a control frame of the unknown kind {n:#x}"),
            Self::Skip { next, received } => write!(
                f,
                "a skip to message {next} after {received}: it may only go forward, and before the first message of a connection"
            ),
            Self::AfterClose => {
                f.write_str("more bytes after the frame that closes: expected none")
            }
            Self::Truncated { bytes } => write!(
                f,
                "the connection ended {bytes} bytes into a frame: the client is to send it again"
            ),
            Self::Idle => {
                f.write_str("nothing was heard for the idle time: the client is to send pings")
            }
            Self::Stuck => f.write_str("the client takes no acknowledgements: it is to read them"),
        }
    }
}

impl std::error::Error for ReceiverError {}

/// The faults of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SenderError {
    /// The server's answer is no handshake.
    Handshake(HandshakeError),
    /// The server does not let this client in.
    Refused(Refused),
    /// The server speaks another version.
    Version(u16),
    /// The welcome contradicts the client's request; the text says how.
    Welcome(&'static str),
    /// The server lacks messages that were acknowledged, or has some that were never sent.
    Gap {
        /// The highest number the server has.
        received: Seq,
        /// The last message this client does not have: the server acknowledged it, or another life of the
        /// client sent it.
        acked: Seq,
        /// The last message ever sent.
        sent: Seq,
    },
    /// An acknowledgement of messages that were acknowledged before.
    Repeated {
        /// The message that the acknowledgement names.
        latest: Seq,
        /// The message that the previous acknowledgement named.
        previous: Seq,
    },
    /// An acknowledgement that does not follow from the previous one: some messages are missing, or there is
    /// one too many.
    Missing {
        /// The message that the acknowledgement names.
        latest: Seq,
        /// The message that the acknowledgement should name by its count.
        expected: Seq,
    },
    /// An acknowledgement of messages that were never sent.
    Impossible {
        /// The message that the acknowledgement names.
        latest: Seq,
        /// The last message sent.
        sent: Seq,
    },
    /// A reply of a kind this version does not know.
    Reply(u32),
    /// The server closed in the middle of a reply.
    Truncated,
    /// The server did not answer the hello in time.
    Unanswered,
    /// The server was silent for longer than it promised.
    Silent,
    /// Messages waited for too long, and the server acknowledged none of them.
    Stalled {
        /// The last message acknowledged.
        acked: Seq,
        /// The last message that the client has sent or keeps.
        last: Seq,
    },
    /// The connection is gone, and it is unknown whether these messages were handled.
    InDoubt(Doubt),
}

impl SenderError {
    /// Returns whether another connection may help: the client loses nothing by it.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Refused(r) => r.code.is_passing(),
            Self::Handshake(HandshakeError::Checksum)
            | Self::Truncated
            | Self::Unanswered
            | Self::Silent => true,
            _ => false,
        }
    }
}

impl fmt::Display for SenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshake(e) => e.fmt(f),
            Self::Refused(r) => write!(f, "the server refuses the session: {}", r.text),
            Self::Version(n) => write!(
                f,
                "the server speaks version {n} of the session protocol, expected {VERSION}"
            ),
            Self::Welcome(what) => write!(f, "the server's welcome {what}"),
            Self::Gap {
                received,
                acked,
                sent,
            } => write!(
                f,
                "the server has everything up to {received}, but {acked} was acknowledged and {sent} sent: it is not the session it was"
            ),
            Self::Repeated { latest, previous } => write!(
                f,
                "an acknowledgement of {latest} after one of {previous}: expected a later message"
            ),
            Self::Missing { latest, expected } => write!(
                f,
                "an acknowledgement of {latest} with a count of {expected}: some are missing or repeated"
            ),
            Self::Impossible { latest, sent } => write!(
                f,
                "an acknowledgement of {latest}, but only {sent} were sent"
            ),
            Self::Reply(n) => write!(f, "a reply of the unknown kind {n:#x}"),
            Self::Truncated => {
                f.write_str("the server closed in the middle of a reply of 12 bytes")
            }
            Self::Unanswered => f.write_str("the server did not answer the handshake in time"),
            Self::Silent => {
                f.write_str("the server was silent for longer than the idle time it named")
            }
            Self::Stalled { acked, last } => write!(
                f,
                "no progress: everything up to {acked} is acknowledged, nothing after it up to {last}, for longer than allowed"
            ),
            Self::InDoubt(Doubt { first, last }) => write!(
                f,
                "messages {first} to {last} may or may not have been handled: the connection, or the server's state, is gone"
            ),
        }
    }
}

impl std::error::Error for SenderError {}
