//! The faults of the other side of a link, such as a wrong frame or silence: one enum for each half of the
//! link.
//!
//! The error texts name what this side expected. [`SenderError::is_passing`] says after which faults the
//! client may connect again; the drivers decide what to do about them.

use std::fmt;

use super::sender::Doubt;
use crate::Seq;
use crate::frame::Code;
use crate::hello::{HandshakeError, Refused, VERSION};

/// The faults of a client, as the server's receiver finds them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiverError {
    /// The client sent a message larger than the server allows.
    TooLarge {
        /// The length in bytes of the message that the client sent.
        size: u32,
        /// The length in bytes of the longest message that the server allows.
        max: u32,
    },
    /// The checksum of a client's message is wrong.
    Checksum {
        /// The number of the message with the wrong checksum.
        seq: Seq,
    },
    /// The client sent more unacknowledged bytes than the window allows.
    Window {
        /// The number of bytes of frames that the client has sent and the server has not acknowledged.
        unacked: u64,
        /// The greatest number of bytes that the client may have unacknowledged.
        window: u64,
    },
    /// The client sent a control frame of a kind that this version does not know; holds the kind.
    Control(u32),
    /// The client skips messages in another place than the first frame of its connection, or skips back to a
    /// message that the server already has.
    Skip {
        /// The number of the next message after the client's skip.
        next: Seq,
        /// The number of the last message that the server has received.
        received: Seq,
    },
    /// The client sent more bytes after its close frame, which should be its last.
    AfterClose,
    /// The connection ended while the server had received only a part of a client's frame.
    Truncated {
        /// The number of bytes of the unfinished frame that the server has received.
        bytes: usize,
    },
    /// The server heard nothing from the client for the idle time of the connection.
    Idle,
    /// The client did not read the server's replies for the idle time of the connection.
    Stuck,
}

impl ReceiverError {
    /// Returns the code of the bye that tells the client about this fault.
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
                "the checksum of message {seq} is wrong: the message was damaged on its way"
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
                f.write_str("the client sent more bytes after its close frame: expected none")
            }
            Self::Truncated { bytes } => write!(
                f,
                "the connection ended {bytes} bytes into a frame: the client must send this frame again"
            ),
            Self::Idle => f.write_str(
                "the client sent nothing for the idle time: an idle client must send pings",
            ),
            Self::Stuck => {
                f.write_str("the client does not read its acknowledgements: it must read them")
            }
        }
    }
}

impl std::error::Error for ReceiverError {}

/// The faults of a server, as the client's sender finds them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SenderError {
    /// The server's answer is no valid handshake.
    Handshake(HandshakeError),
    /// The server refuses the client's session.
    Refused(Refused),
    /// The server speaks another version of the session protocol; holds that version.
    Version(u16),
    /// The server's welcome contradicts the client's request; the text says how.
    Welcome(&'static str),
    /// The server lacks messages that it had acknowledged, or has messages that the client never sent.
    Gap {
        /// The number of the last message that the server has received.
        received: Seq,
        /// The number of the last message that this client cannot send again: the server acknowledged it, or
        /// another life of the client sent it.
        acked: Seq,
        /// The number of the last message that the client ever sent.
        sent: Seq,
    },
    /// The server acknowledged messages that it had acknowledged before.
    Repeated {
        /// The number of the message that the new acknowledgement names.
        latest: Seq,
        /// The number of the message that the acknowledgement before it named.
        previous: Seq,
    },
    /// The count in the server's acknowledgement does not match the number of messages since its previous
    /// acknowledgement.
    Missing {
        /// The number of the message that the acknowledgement names.
        latest: Seq,
        /// The number of the message that the acknowledgement should name, by the previous acknowledgement
        /// and this one's count.
        expected: Seq,
    },
    /// The server acknowledged messages that the client never sent.
    Impossible {
        /// The number of the message that the acknowledgement names.
        latest: Seq,
        /// The number of the last message that the client has sent on this connection.
        sent: Seq,
    },
    /// The server sent a reply of a kind that this version does not know; holds the kind.
    Reply(u32),
    /// The server closed the connection in the middle of a reply.
    Truncated,
    /// The server did not answer the hello within the time that the client allows.
    Unanswered,
    /// The server was silent for longer than the idle time that it had named.
    Silent,
    /// Messages of the client waited for longer than the program allows, and the server acknowledged none of
    /// them.
    Stalled {
        /// The number of the last message that the server has acknowledged.
        acked: Seq,
        /// The number of the last message that the client has sent or keeps to send.
        last: Seq,
    },
    /// The connection, or the server's state of the session, is gone, and the client does not know whether
    /// the server's handler had the messages that this value names.
    InDoubt(Doubt),
}

impl SenderError {
    /// Returns whether the client may connect again after this fault. A new connection loses no message.
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
                "an acknowledgement of message {latest}, but the client has sent messages only up to {sent}"
            ),
            Self::Reply(n) => write!(f, "a reply of the unknown kind {n:#x}"),
            Self::Truncated => {
                f.write_str("the server closed the connection in the middle of a reply of 12 bytes")
            }
            Self::Unanswered => f.write_str("the server did not answer the handshake in time"),
            Self::Silent => {
                f.write_str("the server was silent for longer than the idle time it named")
            }
            Self::Stalled { acked, last } => write!(
                f,
                "the server acknowledged nothing for too long: messages up to {acked} are acknowledged, those up to {last} wait"
            ),
            Self::InDoubt(Doubt { first, last }) => write!(
                f,
                "messages {first} to {last} may or may not have been handled: the connection, or the server's state, is gone"
            ),
        }
    }
}

impl std::error::Error for SenderError {}
