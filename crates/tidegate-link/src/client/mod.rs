//! The client of a link, as a program uses it: it sends messages, waits for acknowledgements, and closes.
//!
//! A send copies the message into the [front](front), the block that all senders share under one lock, and
//! wakes the I/O task if the task sleeps. One number comes back: the highest acknowledged message number,
//! which the I/O task publishes in a watch.

mod config;
mod connect;
mod driver;
mod front;
mod open;
mod producer;
mod shared;
mod wire;

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::watch;

pub use config::{ClientBuilder, Reconnect};
pub use producer::Producer;

use crate::error::{ConnectError, LinkError, SendError};
use crate::stats::ClientStats;
use crate::{Seq, SessionId};
use front::Refused;
use shared::Shared;

/// A connection that numbers messages, keeps each until it is acknowledged, and sends the unacknowledged ones
/// again after a cut.
///
/// A client is cheap to clone; clones send into the same session. [`close`](Self::close) drains the client.
/// If the last clone is dropped without a close, the client stops at once: messages not acknowledged by then
/// may be lost.
#[derive(Clone, Debug)]
pub struct Client {
    own: Arc<Owner>,
}

/// Ends the I/O task when the last clone of the client is dropped, because the program can no longer use the
/// client.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Client {
    /// Returns a builder of a client, for settings other than the defaults.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) async fn connect(
        config: ClientBuilder,
        address: String,
    ) -> Result<Self, ConnectError> {
        let shared = open::start(config, address).await?;
        Ok(Self {
            own: Arc::new(Owner { shared }),
        })
    }

    fn shared(&self) -> &Shared {
        &self.own.shared
    }

    /// Copies `payload` into the client's block and returns the number of the message. Waits only while the
    /// client has no room for the message.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], or the reason why the client has ended. A message that the client took before
    /// its end is in doubt: see [`acked`](Self::acked).
    pub async fn send(&self, payload: &[u8]) -> Result<Seq, SendError> {
        match self.shared().push(payload) {
            Err(Refused::Full) => self.send_waiting(payload).await,
            outcome => outcome.map_err(|refused| self.explain(refused, payload.len())),
        }
    }

    #[cold]
    async fn send_waiting(&self, payload: &[u8]) -> Result<Seq, SendError> {
        loop {
            let mut room = pin!(self.shared().room.notified());
            room.as_mut().enable();
            match self.shared().push(payload) {
                Err(Refused::Full) => room.await,
                outcome => return outcome.map_err(|refused| self.explain(refused, payload.len())),
            }
        }
    }

    /// Sends `payload` like [`send`](Self::send), but never waits for room.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and [`SendError::Full`].
    pub fn try_send(&self, payload: &[u8]) -> Result<Seq, SendError> {
        let pushed = self.shared().push(payload);
        pushed.map_err(|refused| self.explain(refused, payload.len()))
    }

    /// Copies all `payloads` into the client's blocks, in order. Returns the number of the last of them, or
    /// of the client's last message if `payloads` is empty. Costs much less per message than
    /// [`send`](Self::send). Messages of other senders may come between.
    ///
    /// If the caller drops the future before it is done, the client still sends the messages taken so far.
    ///
    /// # Errors
    /// Those of [`send`](Self::send). The client still sends the messages before the failed one.
    pub async fn send_many<I>(&self, payloads: I) -> Result<Seq, SendError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut rest = payloads.into_iter();
        // A payload that the iterator has returned and that did not fit into the block; the next turn of the
        // loop encodes it first.
        let mut held: Option<I::Item> = None;
        loop {
            let mut room = pin!(self.shared().room.notified());
            room.as_mut().enable();
            match self.shared().push_many(&mut rest, &mut held) {
                Ok(last) => return Ok(last),
                Err(Refused::Full) => room.await,
                Err(refused) => {
                    let len = held.as_ref().map_or(0, |payload| payload.as_ref().len());
                    return Err(self.explain(refused, len));
                }
            }
        }
    }

    /// Waits until the operating system has accepted all bytes of the messages taken so far. A flush promises
    /// no delivery: see [`wait_acked`](Self::wait_acked).
    ///
    /// # Errors
    /// The reason why the client has ended.
    pub async fn flush(&self) -> Result<(), LinkError> {
        let last = self.shared().last();
        self.wait(self.shared().written.clone(), last).await
    }

    /// Returns a producer, which sends through the engine's queue: for programs that send from their own
    /// threads, and for the highest message rates. See [`Producer`].
    #[must_use]
    pub fn producer(&self) -> Producer {
        Producer::new(&self.own.shared)
    }

    /// Returns the highest acknowledged message number: the server has acknowledged that message and all
    /// before it.
    #[must_use]
    pub fn acked(&self) -> Seq {
        *self.shared().acked.borrow()
    }

    /// Returns a watch of the highest acknowledged message number, for a task that follows the progress. The
    /// watch ends when the client does.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Seq> {
        self.shared().acked.clone()
    }

    /// Waits until the server has acknowledged message `seq` and all before it.
    ///
    /// # Errors
    /// The reason why the client ended before that acknowledgement.
    pub async fn wait_acked(&self, seq: Seq) -> Result<(), LinkError> {
        self.wait(self.shared().acked.clone(), seq).await
    }

    /// Sends `payload` and waits for its acknowledgement. A program that sends only by this call has one
    /// message under way at a time.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub async fn send_acked(&self, payload: &[u8]) -> Result<Seq, SendError> {
        let seq = self.send(payload).await?;
        self.wait_acked(seq).await?;
        Ok(seq)
    }

    /// Closes the client for all clones: it takes no more messages, sends those it has, waits until the
    /// server has acknowledged all of them, and ends. Returns the highest acknowledged message number.
    ///
    /// # Errors
    /// The reason why the client ended before the last acknowledgement. The messages after
    /// [`acked`](Self::acked) are in doubt.
    pub async fn close(self) -> Result<Seq, LinkError> {
        self.shared().close();
        let mut acked = self.shared().acked.clone();
        // The I/O task owns the watch's sender, so this loop ends when the task ends.
        while acked.changed().await.is_ok() {}
        match self.shared().ended() {
            LinkError::Closed => Ok(*acked.borrow()),
            why => Err(why),
        }
    }

    /// Returns the number of the last message that the server had when this client opened the session. The
    /// first message of this client has the next number, so a program that ships a file starts there.
    #[must_use]
    pub fn resumed_at(&self) -> Seq {
        self.shared().resumed_at
    }

    /// Returns the id of the client's session; `None` for a plain connection.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.shared().session
    }

    /// Returns whether the server acknowledges a message only once its handler is done with it, rather than
    /// on receipt.
    #[must_use]
    pub fn acks_when_done(&self) -> bool {
        self.shared().when_done
    }

    /// Returns the client's counters, as they are now.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.shared().counters.snapshot()
    }

    async fn wait(&self, mut watched: watch::Receiver<Seq>, seq: Seq) -> Result<(), LinkError> {
        match watched.wait_for(|position| *position >= seq).await {
            Ok(_) => Ok(()),
            Err(_) => Err(self.shared().ended()),
        }
    }

    #[cold]
    fn explain(&self, refused: Refused, len: usize) -> SendError {
        match refused {
            Refused::Full => SendError::Full,
            Refused::TooLarge { max } => SendError::TooLarge { len, max },
            Refused::Closed => SendError::Ended(self.shared().ended()),
        }
    }
}
