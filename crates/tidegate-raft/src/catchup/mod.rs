//! Takes over the state of another node when no log reaches back to this node's position. Pure.
//!
//! The node that needs the state ([`Taker`]) asks one question at a time, and repeats it until another node
//! answers. The asked node answers from its own data ([`Giver`]) and keeps nothing between questions. The
//! taker first fetches a checkpoint, in parts, and then the messages in its streams, except messages that it
//! has already. Committed messages never change, so fetched messages stay valid when another node answers
//! next. A message that the giver no longer has was removed by an entry after the checkpoint. The taker will
//! apply that entry, too; until then the message has no place in its log. In the same way a node replaces a
//! message that is damaged in its log ([`Mender`]).

mod giver;
mod mender;
mod taker;
pub mod wire;

pub use giver::{Giver, Read, Source};
pub use mender::Mender;
pub use taker::{Own, Taken, Taker};
