//! The link's rules, pure: inputs are the time as `now` and bytes as slices; outputs are the driver's next
//! actions as data.
//!
//! [`Sender`] is the client's half, [`Receiver`] the server's, and [`opening`] is the start of a connection.
//! The rules read no clock, draw no random number and touch no socket; everything is bounded. The drivers in
//! `client` and `server` carry bytes.
//!
//! # The sender's cycle
//!
//! 1. [`Sender::handle_connected`].
//! 2. [`Sender::handle_read`] with the bytes read, then [`Sender::poll_event`] until no event is left.
//! 3. [`Sender::push`] with blocks of frames, once [`Event::Opened`] has said where numbering begins.
//! 4. [`Sender::poll_transmit`] and [`Sender::wrote`] until nothing is left or the socket is full.
//! 5. [`Sender::poll_timeout`] arms one timer; [`Sender::handle_timeout`] answers it, then step 4.
//! 6. [`Sender::handle_cut`] when the connection broke; a session that has not ended goes back to step 1.
//!
//! # The receiver's cycle
//!
//! 1. [`Receiver::handle_read`] with the buffer's content. The batch goes to the handler; then step 3. The
//!    driver repeats this until the receiver takes nothing more.
//! 2. [`Receiver::done`] when the handler is done with messages. Acknowledgements on receipt do not need this
//!    call.
//! 3. [`Receiver::poll_transmit`] and [`Receiver::wrote`] until nothing is left or the socket is full.
//! 4. [`Receiver::poll_timeout`] arms one timer; [`Receiver::handle_timeout`] answers it, then step 3.
//! 5. [`Receiver::handle_eof`] when the client will send nothing more. Once [`Receiver::is_finished`] is
//!    true, the driver closes the socket.
//!
//! Between connections a server keeps [`Receiver::received`], [`Receiver::ready`] and [`Receiver::acked`] of
//! a session.

mod cadence;
mod error;
mod marks;
pub mod opening;
mod outbox;
mod receiver;
mod sender;

pub use cadence::cadence;
pub use error::{ReceiverError, SenderError};
pub use outbox::Block;
pub use receiver::{Batch, Receiver, ReceiverConfig, ReceiverStats};
pub use sender::{Decide, Doubt, Event, Sender, SenderConfig, SessionConfig, writes};
