//! A sender's settings, its events for the client, and the client's decision about messages in doubt.

use std::time::Duration;

use crate::Seq;
use crate::frame::Code;
use crate::hello::SessionId;

/// The settings of a client's sender, which the client makes from the program's settings.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// The settings of the session; `None` for the plain protocol.
    pub session: Option<SessionConfig>,
    /// The greatest number of bytes of memory for blocks that the server has not acknowledged. The sender may
    /// hold one block more.
    pub held_max: usize,
    /// The greatest number of bytes that a plain connection may have unacknowledged. In a session the server
    /// names the window.
    pub plain_window: u64,
    /// The greatest number of bytes that the sender hands to the socket in one write.
    pub write_max: u64,
    /// The longest time that a server may take to answer a hello; then the client gives the connection up.
    pub opening: Duration,
    /// The longest time that messages may wait while the server acknowledges none of them, time without a
    /// connection included. Zero for no limit.
    pub stall: Duration,
}

/// The client's fields of a session's hello.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The id of the session that the sender opens.
    pub id: SessionId,
    /// A random number that names one life of a client: see [`Hello::life`](crate::hello::Hello::life).
    pub life: u64,
    /// True if each frame carries a CRC32C, against damage on the way.
    pub checked: bool,
    /// The length in bytes of the longest message that the client will send; 0 for the server's limit.
    pub frame_max: u32,
    /// The client's token, which a server may require; may be empty.
    pub token: Vec<u8>,
}

/// An event that the sender reports to its client, which acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is open, and messages flow. The next message has the number after the last message that
    /// the sender keeps, or the number after `received` if the sender keeps none.
    Opened {
        /// The number of the last message that the server has received: the client's next message follows it.
        received: Seq,
        /// True if the server acknowledges a message only once its handler is done with it.
        when_done: bool,
        /// The longest message that the server allows the client to send, in bytes.
        frame_max: u32,
    },
    /// The server has lost the session's state, so messages are in doubt. No messages flow until the client
    /// calls [`Sender::decide`](super::Sender::decide).
    Doubt(Doubt),
    /// The server said bye: it closes the connection for the reason that the code names.
    Bye(Code),
}

/// Messages in doubt: the client sent them and got no acknowledgement, and the connection or the server's
/// state is gone. The server may or may not have handled them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The number of the first message in doubt.
    pub first: Seq,
    /// The number of the last message in doubt.
    pub last: Seq,
}

/// The client's decision about messages in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// The sender sends the messages in doubt again. The server's handler may then get some of them twice.
    Resend,
    /// The sender gives the messages in doubt up and skips their numbers. The server's handler may never get
    /// some of them.
    Drop,
    /// The sender sends none of the messages in doubt again: it ends the session with the error
    /// [`SenderError::InDoubt`](super::SenderError::InDoubt), which names them.
    Fail,
}
