//! The receiver's side of one session, and where sessions go on: what the link asks, answered by the writing
//! thread.

use std::future::Future;

use tidegate_link::{
    Batch, Done, Handler, Opened, Opening, Position, Seq, SessionId, SessionStore,
};

use super::super::records::Format;
use super::sink::{Ended, Records, Sink};

fn key(session: SessionId) -> u128 {
    u128::from_le_bytes(session.0)
}

/// One session's records on their way to be written.
pub(super) struct Receiving {
    session: Option<u128>,
    /// It has begun in the file, and is to be released.
    begun: bool,
    format: Format,
    sink: Sink,
    done: Done,
}

impl Receiving {
    /// `begun` if sessions are kept in the file.
    pub(super) fn new(opened: Opened, begun: bool, format: Format, sink: Sink) -> Self {
        Self {
            session: opened.session.map(key),
            begun,
            format,
            sink,
            done: opened.done,
        }
    }
}

impl Handler for Receiving {
    type Error = Ended;

    fn handle(&mut self, batch: Batch<'_>) -> impl Future<Output = Result<(), Ended>> + Send {
        let first = batch.first();
        let last = first.plus(batch.len() - 1);
        let mut bytes = Vec::with_capacity(batch.bytes());
        batch.for_each(|payload| self.format.put(payload, &mut bytes));
        self.sink.write(Records {
            session: self.session,
            first,
            last,
            bytes,
            done: self.done.clone(),
        })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let (Some(session), true) = (self.session, self.begun) {
            self.sink.release(session);
        }
    }
}

/// Where sessions go on: as far as their records are in the file, and those that wait to be written.
pub(super) struct Store(Sink);

impl Store {
    /// What `sink` wrote.
    pub(super) const fn new(sink: Sink) -> Self {
        Self(sink)
    }
}

impl SessionStore for Store {
    fn open(&mut self, opening: Opening) -> Result<Position, String> {
        let start = opening.start();
        let session = key(opening.session);
        // It takes as long as a write and its sync.
        let begun = tokio::task::block_in_place(|| {
            self.0.begin(session, start.received.get(), start.epoch)
        });
        let begun =
            begun.inspect_err(|e| eprintln!("tidegate: session {}: {e}", opening.session))?;
        Ok(Position {
            epoch: begun.epoch,
            received: Seq::new(begun.position),
        })
    }
}
