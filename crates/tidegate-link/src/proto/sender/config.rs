//! What a sender is told once, what it tells its client, and what the client may have to decide.

use std::time::Duration;

use crate::Seq;
use crate::frame::Code;
use crate::hello::SessionId;

/// What a sender is told once.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// The session; `None` for the plain protocol.
    pub session: Option<SessionConfig>,
    /// The most memory of blocks that are not acknowledged. One block more may be held.
    pub held_max: usize,
    /// The most bytes a plain connection may have unacknowledged. A session's server names its window.
    pub plain_window: u64,
    /// The most bytes one write takes.
    pub write_max: u64,
    /// The longest a server may take for its answer to a hello.
    pub opening: Duration,
    /// The longest messages may wait without any acknowledgement of one of them, through cuts. Zero for ever.
    pub stall: Duration,
}

/// What a session's sender says in its hello.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The session.
    pub id: SessionId,
    /// Random: see [`Hello::life`](crate::hello::Hello::life).
    pub life: u64,
    /// Each frame carries a CRC32C.
    pub checked: bool,
    /// The largest message to be sent; 0 for whatever the server allows.
    pub frame_max: u32,
    /// What to show; may be empty.
    pub token: Vec<u8>,
}

/// Something the client is to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is open, and messages flow. Numbering goes on after the last message kept, or after
    /// `received` where nothing is.
    Opened {
        /// What the server has.
        received: Seq,
        /// An acknowledgement means done.
        when_done: bool,
        /// The largest message.
        frame_max: u32,
    },
    /// The server has lost what it knew. Nothing flows until [`Sender::decide`](super::Sender::decide).
    Doubt(Doubt),
    /// The server closes the connection.
    Bye(Code),
}

/// Messages of which nobody knows whether they were handled: sent, never acknowledged, and the server's state
/// is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The first.
    pub first: Seq,
    /// The last.
    pub last: Seq,
}

/// What becomes of messages in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// They are sent again, and may be handled twice.
    Resend,
    /// They are given up, and may never be handled. Their numbers are skipped.
    Drop,
    /// The session ends with [`SenderError::InDoubt`](super::SenderError::InDoubt).
    Fail,
}
