//! A consumer delivers the messages of a stream to receivers. It tracks the messages that it has delivered,
//! the messages that its receivers have not acknowledged, and the time at which it redelivers each of those.
//!
//! The consumer is pure code without clock, socket or file: times, requests and messages go in, deliveries
//! and deltas come out. So tests can run it in virtual time.
//!
//! [`State`] is the part of a consumer that the log keeps and that every node of the group holds. The log
//! changes this state by deltas; one delta holds all changes since the delta before it. [`Consumer`] runs
//! only on the node that serves the consumer, and is a little ahead of the state in the log.

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
pub mod restored;
pub mod rules;
mod seam;
mod sequence;
mod settings;
mod skip;
mod start;
mod state;
mod status;
mod tapped;
mod verb;

#[cfg(test)]
mod tests;

pub use advisory::{Advisory, Event};
pub use changes::Record;
pub use deliver::{Progress, without_payload};
pub(crate) use delta::Run;
pub use delta::{DeltaError, UNACKED_MAX, lists_settled, settled_up_to, settles};
pub use live::{Consumer, Ending, Identity, Info};
pub use pending::{Pending, Unacked};
pub use reply::{AckNumbers, AckSubject};
pub use request::PullRequest;
pub use reset::reset_to;
pub use seam::{Delivery, Fetch, Lasts, Message, Ready, Sink, Source, View};
pub use sequence::ConsumerSeq;
pub(crate) use state::Released;
pub use state::{Position, RESET_RANGE, Start, State};
