//! The traits that a server's user implements: a handler for each session, and a store that keeps the
//! positions of sessions over a restart.

use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;

use super::{Batch, Done};
use crate::{Seq, SessionId};

/// Receives the messages of one session, in batches, in order, each message once.
///
/// A handler belongs to its session, not to a connection: the server makes the handler when the session is
/// first opened and keeps it while the server knows the session. While [`handle`](Self::handle) waits, the
/// server reads nothing more from that connection and the client runs out of window; other connections are
/// not affected.
///
/// A closure that takes a [`Batch`] and returns a `Result` at once is a handler, too.
pub trait Handler: Send + 'static {
    /// The reason why the handler failed. The server uses only its text.
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
    /// The id of the session; `None` for a connection that speaks the plain protocol.
    pub session: Option<SessionId>,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The number of the last message that the session has received: the next message has the next number.
    pub received: Seq,
    /// Reports to the server which messages the handler is done with, for
    /// [`Acks::WhenDone`](crate::Acks::WhenDone).
    pub done: Done,
}

/// The server's question to a session store, when a client opens a session that the server does not know, or
/// no longer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opening {
    /// The id of the session that a client opens.
    pub session: SessionId,
    /// The highest message number that the session's client knows to be acknowledged: 0 for a new session.
    pub acked: Seq,
    /// A fresh random epoch, which becomes the session's if the store does not know the session.
    pub fresh_epoch: u64,
}

/// The position at which a session continues after a restart of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The epoch that names the state to which this position belongs. A lost state must never come back under
    /// an old epoch.
    pub epoch: u64,
    /// The highest message number that the server has received, with none missing: the client goes on after
    /// it.
    pub received: Seq,
}

/// Keeps the positions of sessions over a restart of the server. The default keeps none:
/// every restart is a new epoch, and clients learn which of their messages are in doubt.
///
/// A durable store answers with the position that its handlers have stored, together with their data.
pub trait SessionStore: Send + 'static {
    /// Returns the session's position. For an unknown session, it returns [`Opening::start`], which a durable
    /// store keeps.
    ///
    /// # Errors
    /// An error makes the server refuse the session; the server does not send the text to the client.
    fn open(&mut self, opening: Opening) -> Result<Position, String>;
}

impl Opening {
    /// Returns the position of an unknown session: a fresh epoch, and the highest message number that the
    /// client knows to be acknowledged.
    #[must_use]
    pub const fn start(&self) -> Position {
        Position {
            epoch: self.fresh_epoch,
            received: self.acked,
        }
    }
}

/// The default session store, which keeps nothing beyond the server's own memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forgetful;

impl SessionStore for Forgetful {
    fn open(&mut self, opening: Opening) -> Result<Position, String> {
        Ok(opening.start())
    }
}
