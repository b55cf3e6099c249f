//! The link's rules, pure: time comes in as `now`, bytes as slices, and what is to be done comes out as data.
//!
//! [`Sender`] is the client's half, [`Receiver`] the server's, [`opening`] how they begin. Nothing here reads a clock, draws a
//! random number or touches a socket; everything is bounded. The drivers in `client` and `server` carry bytes.
//!
//! # The sender's cycle
//!
//! 1. [`Sender::handle_connected`]; 2. [`Sender::handle_read`] with what was read; 3. [`Sender::poll_event`] until none;
//! 4. [`Sender::push`] with blocks of frames; 5. [`Sender::poll_transmit`], then [`Sender::wrote`] with what the socket took, until
//! nothing is left or the socket is full; 6. [`Sender::poll_timeout`] arms one timer, [`Sender::handle_timeout`] answers it;
//! 7. [`Sender::handle_cut`] when the connection broke.
//!
//! # The receiver's cycle
//!
//! 1. [`Receiver::handle_read`] with what the buffer holds, until it takes nothing more; the batch goes to the handler;
//! 2. [`Receiver::done`] when the handler has done it (acknowledgements on receipt need none); 3. [`Receiver::poll_transmit`] and
//! [`Receiver::wrote`] until nothing is left; 4. [`Receiver::poll_timeout`] and [`Receiver::handle_timeout`];
//! 5. [`Receiver::handle_eof`] when the client will send nothing more; [`Receiver::is_finished`]: close the socket.

mod cadence;
mod marks;
pub mod opening;
mod outbox;
mod receiver;
mod sender;

pub use cadence::cadence;
pub use outbox::Block;
pub use receiver::{Batch, Receiver, ReceiverConfig, ReceiverError, ReceiverStats};
pub use sender::{Decide, Doubt, Event, Sender, SenderConfig, SenderError, SessionConfig, writes};
