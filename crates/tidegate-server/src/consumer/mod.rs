//! Consumers: who has been given which message of a stream, who still owes an acknowledgement, what is due again.
//!
//! Pure code: times, requests and messages in, deliveries and deltas out. No clock, no socket, no file.
//!
//! [`State`] is what the log keeps of a consumer and every node holds. The log changes it by deltas, of which one takes all that
//! happened since the last.

mod advisory;
mod delta;
mod pending;
mod seam;
mod state;

pub use advisory::{Advisory, Event};
pub use delta::{DeltaError, UNACKED_MAX};
pub use pending::{Pending, Unacked};
pub use seam::{Delivery, Fetch, Message, Ready, Sink, Source, View};
pub use state::{Position, State};
