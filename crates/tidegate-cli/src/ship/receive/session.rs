//! The link's handler of one session's records, and the store of the sessions' positions. The handler passes
//! the records to the writing thread, which also answers the link's requests for positions.

use std::future::Future;

use tidegate_link::{
    Batch, Done, Handler, Opened, Opening, Position, Seq, SessionId, SessionStore,
};

use super::super::records::Format;
use super::sink::{Ended, Records, Sink};

fn key(session: SessionId) -> u128 {
    u128::from_le_bytes(session.0)
}

/// The handler of one session's records, which passes them to the writing thread in order.
pub(super) struct Receiving {
    session: Option<u128>,
    /// True if the session has begun in the file, so that the drop must release it.
    begun: bool,
    format: Format,
    sink: Sink,
    done: Done,
}

impl Receiving {
    /// Creates the session's handler. `begun` is true if the output is a file, in which the session has
    /// begun.
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

/// The store in which the link looks up the sessions' positions. A position covers the records in the file
/// and the records that wait for the writing thread.
pub(super) struct Store(Sink);

impl Store {
    /// Creates the store of the sessions that the thread behind `sink` writes.
    pub(super) const fn new(sink: Sink) -> Self {
        Self(sink)
    }
}

impl SessionStore for Store {
    fn open(&mut self, opening: Opening) -> Result<Position, String> {
        let start = opening.start();
        let session = key(opening.session);
        // The call tells the runtime that it blocks the thread, because the answer takes as long as a write
        // and its sync.
        let begun = tokio::task::block_in_place(|| {
            self.0.begin(session, start.received.get(), start.epoch)
        });
        let begun = begun.inspect_err(|e| {
            crate::face::complain(format_args!("tidegate: session {}: {e}", opening.session))
        })?;
        Ok(Position {
            epoch: begun.epoch,
            received: Seq::new(begun.position),
        })
    }
}
