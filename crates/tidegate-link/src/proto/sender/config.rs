//! A sender's settings, the events for its client, and the decision the client may have to make.

use std::time::Duration;

use crate::Seq;
use crate::frame::Code;
use crate::hello::SessionId;

/// The settings of a sender.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// The session; `None` for the plain protocol.
    pub session: Option<SessionConfig>,
    /// The most bytes of memory for blocks that are not acknowledged. The sender may hold one block more.
    pub held_max: usize,
    /// The most bytes a plain connection may have unacknowledged. A session's server names its window.
    pub plain_window: u64,
    /// The most bytes one write takes.
    pub write_max: u64,
    /// The longest a server may take for its answer to a hello.
    pub opening: Duration,
    /// The longest that messages may wait without an acknowledgement of any of them,
    /// through cuts. Zero for ever.
    pub stall: Duration,
}

/// The fields of a session's hello.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The session.
    pub id: SessionId,
    /// A random number: see [`Hello::life`](crate::hello::Hello::life).
    pub life: u64,
    /// True if each frame carries a CRC32C.
    pub checked: bool,
    /// The largest message to be sent; 0 for the server's limit.
    pub frame_max: u32,
    /// The token; may be empty.
    pub token: Vec<u8>,
}

/// An event for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is open, and messages flow. The next message has the number after the last message
    /// kept. If the sender keeps none, it has the number after `received`.
    Opened {
        /// The highest number that the server has.
        received: Seq,
        /// True if an acknowledgement means done.
        when_done: bool,
        /// The bytes of the largest message allowed.
        frame_max: u32,
    },
    /// The server has lost the session's state. No messages flow until
    /// [`Sender::decide`](super::Sender::decide).
    Doubt(Doubt),
    /// The server closes the connection.
    Bye(Code),
}

/// Messages that the server may have handled: sent and never acknowledged, and the server's state is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The first message in doubt.
    pub first: Seq,
    /// The last message in doubt.
    pub last: Seq,
}

/// The fate of messages in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// The sender sends the messages again; the server may handle them twice.
    Resend,
    /// The sender gives the messages up; the server may never handle them. The sender skips their numbers.
    Drop,
    /// The session ends with [`SenderError::InDoubt`](super::SenderError::InDoubt).
    Fail,
}
