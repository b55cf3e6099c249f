//! How a node takes over the state from another one, where no log reaches back to what it has. Pure.
//!
//! The node that lacks something asks ([`Taker`]), one question at a time, and goes on asking until it is
//! answered; whoever is asked answers from what it has ([`Giver`]) and remembers nothing. First comes a
//! checkpoint, in parts; then the messages its streams hold, as far as the asker does not have them already:
//! committed messages never change, so what was fetched stays good whoever answers next. A message the giver
//! no longer has was removed by an entry after the checkpoint, which the asker is going to apply too: until
//! then it lies nowhere. In the same way a message is had again that is damaged where it lies ([`Mender`]).

mod giver;
mod mender;
mod taker;
pub mod wire;

pub use giver::{Giver, Read, Source};
pub use mender::Mender;
pub use taker::{Own, Taken, Taker};
