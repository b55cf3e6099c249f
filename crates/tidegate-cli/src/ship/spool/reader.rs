//! The spool's reading end: follows the writer, and waits for it.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use super::{Shared, SpoolError, codec, name, read_block};
use crate::ship::disk::Bytes;

/// Reads durable records in order: see the module `spool`.
pub(in crate::ship) struct Reader<F> {
    /// The directory of the segments.
    pub(super) directory: PathBuf,
    pub(super) shared: Arc<Shared<F>>,
    /// The first record of the current segment, and the offset in it.
    pub(super) at: Option<(u64, u64)>,
    /// The number of the next record.
    pub(super) next: u64,
    pub(super) buffer: Vec<u8>,
}

/// The result of a read.
pub(in crate::ship) enum Read<'a> {
    /// The next records.
    Records(Payloads<'a>),
    /// The spool has ended and holds no more records.
    Ended,
}

/// The payloads of some records.
pub(in crate::ship) struct Payloads<'a> {
    pub(super) next: u64,
    pub(super) rest: &'a [u8],
}

impl<'a> Iterator for Payloads<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (payload, rest) = codec::decode(self.next, self.rest)?;
        self.next += 1;
        self.rest = rest;
        Some(payload)
    }
}

impl<F: Bytes> Reader<F> {
    /// Skips the records up to `position`, which the receiver has.
    pub(in crate::ship) fn start_after(&mut self, position: u64) -> Result<(), SpoolError> {
        let state = self.shared.lock();
        let spooled = state.segments.back().map_or(0, |newest| newest.next - 1);
        let removed = state.segments.front().map_or(0, |oldest| oldest.first - 1);
        drop(state);
        if position > spooled {
            let received = position;
            return Err(SpoolError::Behind { received, spooled });
        }
        if position < removed {
            let received = position;
            return Err(SpoolError::Ahead { received, removed });
        }
        self.at = None;
        self.next = position + 1;
        Ok(())
    }

    /// Returns the next records, some hundred kilobytes at a time; waits until there are some.
    pub(in crate::ship) fn read(&mut self) -> Result<Read<'_>, SpoolError> {
        let mut wanted = self.next;
        loop {
            let Some((file, segment, offset, end)) = self.wait() else {
                return Ok(Read::Ended);
            };
            if self.at.is_none_or(|at| at.0 != segment) {
                self.next = segment;
                wanted = wanted.max(segment);
            }
            let path = self.directory.join(name(segment));
            let on = |error| SpoolError::Io {
                path: path.clone(),
                error,
            };
            let block = read_block(&*file, offset, end, &mut self.buffer).map_err(on)?;
            let (bytes, mut skipped, mut first) = (block.len(), 0, self.next);
            let mut rest = block;
            while let Some((_, left)) = codec::decode(self.next, rest) {
                self.next += 1;
                rest = left;
                if self.next <= wanted {
                    first = self.next;
                    skipped = bytes - rest.len();
                }
            }
            let taken = bytes - rest.len();
            if taken == 0 {
                return Err(SpoolError::Damaged {
                    path,
                    what: format!("record {} at byte {offset} is damaged", self.next),
                    lost: format!("records from {} on", self.next),
                    held: format!("records from {} on", self.next),
                    directory: self.directory.clone(),
                });
            }
            self.at = Some((segment, offset + taken as u64));
            if self.next > wanted {
                return Ok(Read::Records(Payloads {
                    next: first,
                    rest: &self.buffer[skipped..taken],
                }));
            }
        }
    }

    /// Waits for durable bytes; returns the file, its first record, and the offsets from which and up to
    /// which to read.
    fn wait(&self) -> Option<(Arc<F>, u64, u64, u64)> {
        let mut state = self.shared.lock();
        loop {
            for segment in &state.segments {
                let offset = match self.at {
                    Some((at, offset)) if at == segment.first => offset,
                    _ => 0,
                };
                if segment.next > self.next && offset < segment.bytes {
                    let file = Arc::clone(&segment.file);
                    return Some((file, segment.first, offset, segment.bytes));
                }
            }
            if state.ended {
                return None;
            }
            let woken = self.shared.grown.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
