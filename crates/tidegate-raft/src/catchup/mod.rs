//! The protocol by which a member fetches the state of another member, because no member's log reaches back
//! to its own position. The code is pure: the caller sends and reads.
//!
//! The member that needs the state ([`Taker`]) asks one question at a time, and repeats the question until
//! the asked member answers. The asked member answers from its own data ([`Giver`]) and keeps nothing between
//! questions. The taker first fetches a checkpoint, in parts, and then the messages in the checkpoint's
//! streams, except messages that its own log has already. Committed messages never change, so fetched
//! messages stay valid if another member answers the next question. If the giver lacks a message of the
//! checkpoint, an entry after the checkpoint removed it. The taker will apply that entry, too; until then the
//! message has no place in the taker's log. In the same way a member replaces a message that is damaged in
//! its own log ([`Mender`]).

mod giver;
mod mender;
mod taker;
pub mod wire;

pub use giver::{Giver, Read, Source};
pub use mender::Mender;
pub use taker::{Own, Taken, Taker};
