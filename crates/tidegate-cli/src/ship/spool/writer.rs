//! The writing end of a spool, and the acks by which the spool releases records.

use std::ops::Range;
use std::sync::Arc;

use tidegate_log::Record;

use super::shared::Shared;
use super::{SpoolError, entry};

/// Appends records to a spool, on the one thread that reads standard input.
pub(in crate::ship) struct Writer {
    pub(super) shared: Arc<Shared>,
    /// The number that the next record gets in the spool.
    pub(super) next: u64,
    /// The greatest number of bytes of one batch, without the spool's state at its front.
    pub(super) batch_bytes: u64,
}

impl Writer {
    /// Appends the records at `places` in `block` to the spool's log. Waits for an ack while the spool has no
    /// room.
    pub(in crate::ship) fn append(
        &mut self,
        block: Vec<u8>,
        places: &[Range<usize>],
    ) -> Result<(), SpoolError> {
        let block = Record {
            payload: block.into(),
            ..Record::default()
        };
        let piece_bytes = self.batch_bytes as usize - overhead();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for place in places {
            let pieces = place.len().div_ceil(piece_bytes).max(1);
            for at in 0..pieces {
                let start = place.start + at * piece_bytes;
                let payload = Record {
                    payload: block
                        .payload
                        .slice(start..place.end.min(start + piece_bytes)),
                    ..Record::default()
                };
                let piece = entry::piece(self.next, at == 0, (pieces - at - 1) as u64, payload);
                if bytes + piece.stored_bytes() > self.batch_bytes {
                    self.shared.append(&batch)?;
                    batch.clear();
                    bytes = 0;
                }
                bytes += piece.stored_bytes();
                batch.push(piece);
            }
            self.next += 1;
        }
        match batch.is_empty() {
            true => Ok(()),
            false => self.shared.append(&batch).map(drop),
        }
    }
}

/// Returns the number of bytes that an entry takes in the log beside its payload, to fill batches to their
/// limit.
fn overhead() -> usize {
    // The log adds at most seven bytes of padding to an entry, so eight further bytes are enough.
    Record::default().stored_bytes() as usize + 8
}

/// Ends the spool when the writer is dropped, even by a panic, so that the reader ends after the last record.
impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.signal.raise();
    }
}

/// Passes the receiver's acks to the spool, so that it can release acked records.
pub(in crate::ship) struct Acks(pub(super) Arc<Shared>);

impl Acks {
    /// Records that the receiver acked all records up to `position`, and releases the segments that hold only
    /// acked records.
    pub(in crate::ship) fn acked(&self, position: u64) {
        let mut inner = self.0.lock();
        inner.acked = position.max(inner.acked);
        inner.release(&self.0.log);
        drop(inner);
        self.0.signal.raise();
    }

    /// Moves the remaining records to another session, which begins with record `base` + 1, because the
    /// receiver forgot the old session. Returns once the move is durable.
    pub(in crate::ship) fn restart(&self, session: u128, base: u64) -> Result<(), SpoolError> {
        {
            let mut inner = self.0.lock();
            inner.state.session = session;
            inner.state.base = base;
        }
        let end = self.0.append(&[])?;
        self.0.wait_durable(end)
    }

    /// Closes the spool once all records are durable. If the receiver has acked all of them, marks the spool
    /// as empty, so that the next start ships none again.
    pub(in crate::ship) fn finish(&self) -> Result<(), SpoolError> {
        let is_emptied = {
            let mut inner = self.0.lock();
            let is_emptied = inner.acked + 1 >= inner.next && inner.state.first < inner.next;
            if is_emptied {
                inner.state.first = inner.next;
            }
            is_emptied
        };
        if is_emptied {
            self.0.append(&[])?;
        }
        let appender = self.0.lock().appender.take();
        match appender {
            Some(appender) => appender.close().map_err(|failure| self.0.failed(failure)),
            None => Ok(()),
        }
    }
}
