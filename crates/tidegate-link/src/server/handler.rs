//! The traits a server's user implements: a handler for each session, and a store that keeps the positions of
//! sessions over a restart.

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
    /// The reason why the handler cannot go on. The server uses only its text.
    type Error: Display + Send;

    /// Handles a batch: at least one message, borrowed from the read buffer.
    ///
    /// After an error, or a panic, the connection ends and the server forgets the
    /// session, so that the client learns which messages are in doubt.
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

/// The facts about a session that opens, for the function that makes its handler.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Which session; `None` for a connection that speaks the plain protocol.
    pub session: Option<SessionId>,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The highest number the session has received: the next message has the next number.
    pub received: Seq,
    /// For [`Acks::WhenDone`](crate::Acks::WhenDone): reports which messages are done.
    pub done: Done,
}

/// The question a store gets when a session opens that the server does not know (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opening {
    /// Which session.
    pub session: SessionId,
    /// The highest number the session's client knows acknowledged: 0 for a new session.
    pub acked: Seq,
    /// A fresh random epoch, for a session that is unknown.
    pub fresh_epoch: u64,
}

/// Where a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Names the state this position belongs to. A lost state must never come back under an old epoch.
    pub epoch: u64,
    /// The highest number received, with none missing.
    pub received: Seq,
}

/// Keeps the positions of sessions over a restart of the server. The default keeps none:
/// every restart is a new epoch, and clients learn which of their messages are in doubt.
///
/// A durable store answers with the position its handlers have stored, together with their data.
pub trait SessionStore: Send + 'static {
    /// Returns the session's position. For an unknown session, it returns
    /// [`Opening::start`], which a durable store keeps.
    ///
    /// # Errors
    /// The server refuses the session; the text is for its statistics and not sent to the client.
    fn open(&mut self, opening: Opening) -> Result<Position, String>;
}

impl Opening {
    /// The position of an unknown session: a fresh epoch, from the last number its client knows acknowledged.
    #[must_use]
    pub const fn start(&self) -> Position {
        Position {
            epoch: self.fresh_epoch,
            received: self.acked,
        }
    }
}

/// A store that keeps nothing beyond the server's own memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forgetful;

impl SessionStore for Forgetful {
    fn open(&mut self, opening: Opening) -> Result<Position, String> {
        Ok(opening.start())
    }
}
