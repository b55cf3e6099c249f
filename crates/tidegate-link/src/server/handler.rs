//! What a server's user writes: a handler for each session, and, for one that survives restarts, a store of
//! positions.

use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;

use super::{Batch, Done};
use crate::{Seq, SessionId};

/// Receives the messages of one session, in batches, in order, each message once.
///
/// A handler belongs to its session, not to a connection: it is made when the session is first opened and
/// kept while the server knows the session. While [`handle`](Self::handle) waits, nothing more is read from
/// that connection and the client runs out of window; others are not affected.
///
/// A closure that takes a [`Batch`] and returns a `Result` at once is a handler, too.
pub trait Handler: Send + 'static {
    /// Why it cannot go on. Its text is all that is used of it.
    type Error: Display + Send;

    /// Takes a batch: at least one message, borrowed from the read buffer.
    ///
    /// After an error, or a panic, the connection ends and the server forgets the session, so that its client
    /// learns which messages are in doubt.
    fn handle(&mut self, batch: Batch<'_>) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

impl<F, E> Handler for F
where
    F: FnMut(Batch<'_>) -> Result<(), E> + Send + 'static,
    E: Display + Send,
{
    type Error = E;

    fn handle(&mut self, batch: Batch<'_>) -> impl Future<Output = Result<(), E>> + Send {
        std::future::ready(self(batch))
    }
}

/// A session that opens, as a handler's maker sees it.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Which session; `None` for a connection that speaks the plain protocol.
    pub session: Option<SessionId>,
    /// Who connected.
    pub peer: SocketAddr,
    /// The highest number the session has behind it: the next message has the one after.
    pub received: Seq,
    /// For [`Acks::WhenDone`](crate::Acks::WhenDone): reports what is done.
    pub done: Done,
}

/// What a store is asked when a session opens that the server does not know (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opening {
    /// Which session.
    pub session: SessionId,
    /// The highest number its client knows acknowledged: 0 for a new one.
    pub acked: Seq,
    /// A fresh random epoch, for a session that is unknown.
    pub fresh_epoch: u64,
}

/// Where a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Names the state this position belongs to. A state that was lost must never come back under an old
    /// epoch.
    pub epoch: u64,
    /// The highest number received, with none missing.
    pub received: Seq,
}

/// Where sessions go on after a restart of the server. The default knows nothing: every restart is a new
/// epoch, and clients are told which of their messages are in doubt.
///
/// A durable one answers what its handlers have stored, position and data together.
pub trait SessionStore: Send + 'static {
    /// Where the session goes on. For one it does not know, [`Opening::start`], which a durable store keeps.
    ///
    /// # Errors
    /// The session is refused; the text is for the server's statistics and not sent to the client.
    fn open(&mut self, opening: Opening) -> Result<Position, String>;
}

impl Opening {
    /// The position of a session nobody knows: a fresh epoch, from what its client knows acknowledged.
    #[must_use]
    pub const fn start(&self) -> Position {
        Position {
            epoch: self.fresh_epoch,
            received: self.acked,
        }
    }
}

/// Keeps nothing beyond the server's own memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forgetful;

impl SessionStore for Forgetful {
    fn open(&mut self, opening: Opening) -> Result<Position, String> {
        Ok(opening.start())
    }
}
