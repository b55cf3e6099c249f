//! Consumers: who has been given which message of a stream, who still owes an acknowledgement, what is due
//! again.
//!
//! Pure code: times, requests and messages in, deliveries and deltas out. No clock, no socket, no file.
//!
//! [`State`] is what the log keeps of a consumer and every node holds. The log changes it by deltas, of which
//! one takes all that happened since the last. [`Consumer`] is the consumer on the node that serves it:
//! always a little ahead of its state.

mod acks;
mod advisory;
mod changes;
mod deliver;
mod delta;
pub(crate) mod duration;
mod live;
mod pending;
mod pulls;
mod push;
mod redelivery;
mod reply;
mod request;
mod reset;
pub mod rules;
mod seam;
mod settings;
mod skip;
mod start;
mod state;
mod status;
mod verb;

#[cfg(test)]
mod tests;

pub use advisory::{Advisory, Event};
pub use deliver::Progress;
pub use delta::{DeltaError, UNACKED_MAX};
pub use live::{Consumer, Ending, Identity, Info};
pub use pending::{Pending, Unacked};
pub use reply::{AckNumbers, AckSubject};
pub use request::PullRequest;
pub use reset::reset_to;
pub use seam::{Delivery, Fetch, Message, Ready, Sink, Source, View};
pub use state::{Position, RESET_RANGE, Start, State};
