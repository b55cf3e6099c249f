//! The reading end of a spool: follows the writer, and waits for new records to ship.

use std::sync::Arc;

use tidegate_log::{self as log, Lsn, ReadError, Record};

use super::entry::Kind;
use super::shared::Shared;
use super::{BLOCK, SpoolError};

/// Reads the spool's durable records in order for the sending thread, at its own pace behind the writer.
pub(in crate::ship) struct Reader {
    pub(super) shared: Arc<Shared>,
    pub(super) log: log::Reader,
    /// The position in the log of the next entry that the reader reads, where a later read continues.
    pub(super) at: Lsn,
    /// The number of the record that the reader returns next, by which the reader skips the entries of other
    /// records.
    pub(super) next: u64,
    /// The pieces of the next record that the reader has read so far, because the record is in several
    /// batches.
    pub(super) pieces: Vec<u8>,
}

/// The result of a read of the spool, by which the sending thread goes on or ends.
pub(in crate::ship) enum Read {
    /// The next records, in order.
    Records(Vec<Record>),
    /// The writer has ended the spool, and the reader has read all records.
    Ended,
}

impl Reader {
    /// Skips the spool's records up to `position`, because the receiver already has them.
    pub(in crate::ship) fn start_after(&mut self, position: u64) -> Result<(), SpoolError> {
        let inner = self.shared.lock();
        let (spooled, received) = (inner.next - 1, position);
        let oldest = inner.held.front().map_or(0, |held| held.begun);
        let removed = oldest.max(inner.state.first - 1);
        if position > spooled {
            return Err(SpoolError::Behind { received, spooled });
        }
        if position < removed {
            return Err(SpoolError::Ahead { received, removed });
        }
        let newer = inner.held.iter().rev();
        let from = newer.into_iter().find(|held| held.begun <= position);
        self.at = from.map_or(self.at, |held| held.base);
        self.next = position + 1;
        self.pieces.clear();
        Ok(())
    }

    /// Returns the next records, some hundred kilobytes at a time. Waits while the spool has no further
    /// record.
    pub(in crate::ship) fn read(&mut self) -> Result<Read, SpoolError> {
        loop {
            let seen = self.shared.signal.seen();
            let (ended, end) = {
                let inner = self.shared.lock();
                (inner.ended, inner.end)
            };
            let chunk = self.log.scan(self.at, BLOCK);
            let chunk = chunk
                .map_err(|error| SpoolError::read(&self.shared.directory, error, self.next))?;
            if chunk.next == self.at {
                if ended && self.at >= end {
                    return Ok(Read::Ended);
                }
                self.shared.check()?;
                self.shared.signal.wait(seen, None);
                continue;
            }
            self.at = chunk.next;
            let mut records = Vec::with_capacity(chunk.records.len());
            for (at, entry) in chunk.records {
                if entry.index > self.next && Kind::of(entry.kind) != Some(Kind::State) {
                    let error = ReadError::Damaged { at };
                    return Err(SpoolError::read(&self.shared.directory, error, self.next));
                }
                records.extend(self.whole(entry));
            }
            if !records.is_empty() {
                return Ok(Read::Records(records));
            }
        }
    }

    /// Returns the record that ends with `entry`, if `entry` completes the next record.
    fn whole(&mut self, entry: Record) -> Option<Record> {
        let kind = Kind::of(entry.kind).filter(|kind| *kind != Kind::State)?;
        if entry.index != self.next {
            return None;
        }
        if kind == Kind::Record {
            // A crash may have left earlier pieces of this record without their end, so the reader drops the
            // pieces.
            self.pieces.clear();
        }
        if entry.term > 0 {
            self.pieces.extend_from_slice(&entry.payload);
            return None;
        }
        self.next += 1;
        if kind == Kind::Record {
            return Some(entry);
        }
        let mut record = std::mem::take(&mut self.pieces);
        record.extend_from_slice(&entry.payload);
        Some(Record {
            payload: record.into(),
            ..entry
        })
    }
}
