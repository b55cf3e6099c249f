//! Copying forward what is still needed of a segment that is mostly not: one segment at a time, some of it in each turn.
//!
//! The streams are asked which messages lie in it ([`LyingIn`]); these are read, appended again as records of their own, and once
//! those are durable the streams are told their new places. What removes a message meanwhile wins: a new place of a message that
//! is gone is nothing. Which segment it is, is decided in `upkeep`.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use tidegate_log::{AppendError, Lsn, Record, batch_bytes};

use super::{Fetch, GROUP, Relocated, Store};
use crate::replica::records;
use crate::stream::{ENTRY_HEADER_BYTES, Lying, Place};

/// The most bytes read and appended in a turn.
const TURN_BYTES: u64 = 256 << 10;
/// The most messages on their way to the disk.
const UNDURABLE_MAX: usize = 4096;

/// A question to the streams: which of their messages lie there?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LyingIn {
    /// Positions of records.
    pub lsns: Range<u64>,
    /// Only those from this stream and sequence on.
    pub from: (u32, u64),
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Compaction {
    segment: Option<Range<Lsn>>,
    /// Where the next question begins; `None` once all is known.
    from: Option<(u32, u64)>,
    wanted: VecDeque<Lying>,
    /// Appended and not yet durable: where their batch ends.
    undurable: VecDeque<(Lsn, Relocated)>,
    /// Segments that could not be emptied; the next start tries again.
    given_up: BTreeSet<u64>,
}

impl Compaction {
    pub(super) const fn is_idle(&self) -> bool {
        self.segment.is_none()
    }

    pub(super) fn gave_up(&self, base: u64) -> bool {
        self.given_up.contains(&base)
    }

    pub(super) fn forget(&mut self, base: u64) {
        self.given_up.remove(&base);
    }

    pub(super) fn begin(&mut self, segment: Range<Lsn>) {
        // Whatever comes of it, it is not begun twice.
        self.given_up.insert(segment.start.get());
        self.segment = Some(segment);
        self.from = Some((0, 0));
    }

    pub(super) fn poll_lying(&self) -> Option<LyingIn> {
        let segment = self.segment.as_ref().filter(|_| self.wanted.is_empty())?;
        Some(LyingIn {
            lsns: segment.start.get()..segment.end.get(),
            from: self.from?,
        })
    }

    pub(super) fn handle_lying(&mut self, lying: Vec<Lying>, next: Option<(u32, u64)>) {
        self.from = next;
        self.wanted.extend(lying);
    }

    pub(super) fn handle_durable(&mut self, durable: Lsn, out: &mut VecDeque<Relocated>) {
        let count = self.undurable.partition_point(|&(end, _)| end <= durable);
        out.extend(
            self.undurable
                .drain(..count)
                .map(|(_, relocated)| relocated),
        );
    }

    /// Messages were appended in a batch that ends there.
    pub(super) fn handle_appended(&mut self, end: Lsn, moved: Vec<Relocated>) {
        self.undurable
            .extend(moved.into_iter().map(|moved| (end, moved)));
    }

    /// Whether nothing is on its way to the disk.
    pub(super) fn is_durable(&self) -> bool {
        self.undurable.is_empty()
    }

    fn is_done(&self) -> bool {
        self.from.is_none() && self.wanted.is_empty() && self.undurable.is_empty()
    }
}

impl Store {
    /// Copies some messages forward; says whether a segment is through.
    pub(super) fn relocate(&mut self) -> bool {
        if self.compaction.is_idle() || self.catching_up.holds() {
            return false;
        }
        if self.compaction.is_done() {
            self.compaction.segment = None;
            return true;
        }
        let (mut taken, mut records) = (Vec::new(), Vec::new());
        let mut bytes = batch_bytes(&[]);
        // Entries come first: they are what somebody waits for.
        while self.group.poll_append().is_none()
            && bytes < TURN_BYTES
            && taken.len() + self.compaction.undurable.len() < UNDURABLE_MAX
        {
            let Some(&message) = self.compaction.wanted.front() else {
                break;
            };
            match self.copy(message.place) {
                Ok(payload) => {
                    let record = Record {
                        group: GROUP,
                        kind: records::KIND_RELOCATED,
                        index: message.seq,
                        term: u64::from(message.stream),
                        payload,
                    };
                    bytes += record.stored_bytes();
                    records.push(record);
                    taken.push(message);
                }
                Err(Fetch::Pending) => break,
                // It was removed since the streams were asked.
                Err(Fetch::Gone) => {}
                // It stays where it is, and its segment with it.
                Err(_) => tracing::error!(
                    "message {} of stream {} cannot be read to be copied",
                    message.seq,
                    message.stream
                ),
            }
            self.compaction.wanted.pop_front();
        }
        if !records.is_empty() {
            self.append_copies(taken, records);
        }
        false
    }

    fn append_copies(&mut self, taken: Vec<Lying>, records: Vec<Record>) {
        match self.append(records, 1) {
            Ok(appended) => {
                let moved = taken.iter().zip(&appended.records).map(|(message, lsn)| {
                    let place = Place {
                        lsn: lsn.get(),
                        offset: ENTRY_HEADER_BYTES as u32,
                    };
                    let relocated = Relocated {
                        stream: message.stream,
                        seq: message.seq,
                        place,
                    };
                    (appended.end, relocated)
                });
                self.compaction.undurable.extend(moved);
            }
            // The next poll says that it failed.
            Err(AppendError::Failed(_)) => {}
            Err(_) => taken
                .into_iter()
                .rev()
                .for_each(|message| self.compaction.wanted.push_front(message)),
        }
    }
}
