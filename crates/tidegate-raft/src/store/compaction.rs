//! Copies the live messages of a mostly dead segment forward: one segment at a time, some messages in each
//! turn.
//!
//! The store asks the streams which of their messages lie in the segment ([`LyingIn`]), reads them, and
//! appends each again as a record of its own. Once these records are durable, the streams learn the new
//! places. A removal in between wins: the new place of a removed message has no effect. `upkeep` chooses the
//! segment.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{AppendError, Lsn, Record, batch_bytes};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{ENTRY_HEADER_BYTES, Place, Resident};

use super::room::Room;
use super::{Fetch, Relocated, Store};
use crate::replica::records;

/// The most bytes read and appended in a turn.
const TURN_BYTES: u64 = 256 << 10;
/// The most messages on their way to the disk.
const UNDURABLE_MAX: usize = 4096;

/// A question to the streams of a group: which of their messages lie in this range?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LyingIn {
    /// The slot of the group.
    pub at: GroupSlot,
    /// The range of record positions.
    pub lsns: Range<u64>,
    /// Restricts the answer to messages from this stream and sequence on.
    pub from: (StreamNumber, StreamSeq),
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Compaction {
    segment: Option<Range<Lsn>>,
    /// The group of the next question, and the point from which it asks; `None` once all messages are known.
    from: Option<(GroupSlot, (StreamNumber, StreamSeq))>,
    /// Messages to copy, each with the slot of its group.
    wanted: VecDeque<(GroupSlot, Resident)>,
    /// Messages that are appended and not yet durable, each with the end of its batch and the slot of its
    /// group.
    undurable: VecDeque<(Lsn, GroupSlot, Relocated)>,
    /// Segments that were begun and not released; the next start tries them again.
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
        // Marks the segment now, so that the store does not begin it a second time.
        self.given_up.insert(segment.start.get());
        self.segment = Some(segment);
        self.from = Some((GroupSlot::FIRST, (StreamNumber::NONE, StreamSeq::ZERO)));
    }

    pub(super) fn poll_lying(&self) -> Option<LyingIn> {
        let segment = self.segment.as_ref().filter(|_| self.wanted.is_empty())?;
        let (at, from) = self.from?;
        Some(LyingIn {
            at,
            lsns: segment.start.get()..segment.end.get(),
            from,
        })
    }

    /// Takes the messages that the questioned group has in the segment; there are `groups` groups.
    pub(super) fn handle_lying(
        &mut self,
        lying: Vec<Resident>,
        next: Option<(StreamNumber, StreamSeq)>,
        groups: usize,
    ) {
        let Some((at, _)) = self.from else { return };
        let following = at
            .next(groups)
            .map(|at| (at, (StreamNumber::NONE, StreamSeq::ZERO)));
        self.from = next.map(|next| (at, next)).or(following);
        self.wanted.extend(lying.into_iter().map(|l| (at, l)));
    }

    /// Notes messages of a group that were appended in a batch with this end.
    pub(super) fn handle_appended(&mut self, at: GroupSlot, end: Lsn, moved: Vec<Relocated>) {
        self.undurable
            .extend(moved.into_iter().map(|moved| (end, at, moved)));
    }

    /// Returns whether all copies of this group's messages are durable.
    pub(super) fn is_durable(&self, at: GroupSlot) -> bool {
        !self.undurable.iter().any(|(_, of, _)| *of == at)
    }

    fn is_done(&self) -> bool {
        self.from.is_none() && self.wanted.is_empty() && self.undurable.is_empty()
    }
}

impl Store {
    /// Makes durable copies due.
    pub(super) fn take_copies(&mut self, durable: Lsn) {
        let undurable = &mut self.compaction.undurable;
        let count = undurable.partition_point(|&(end, ..)| end <= durable);
        for (_, at, relocated) in undurable.drain(..count) {
            self.members[at].relocated.push_back(relocated);
        }
    }

    /// Copies some messages forward. Returns whether it has finished a segment.
    pub(super) fn relocate(&mut self) -> bool {
        if self.compaction.is_idle() || self.holds() {
            return false;
        }
        if self.compaction.is_done() {
            self.compaction.segment = None;
            return true;
        }
        let (mut taken, mut records) = (Vec::<(GroupSlot, Resident)>::new(), Vec::new());
        let mut bytes = batch_bytes(&[]);
        // Entries go first, because callers wait for them. On a full disk, waiting entries wait for the space
        // that copying frees.
        let first = !self.has_entries() || self.log.disk_full();
        while first
            && bytes < TURN_BYTES
            && taken.len() + self.compaction.undurable.len() < UNDURABLE_MAX
        {
            let Some(&(at, message)) = self.compaction.wanted.front() else {
                break;
            };
            match self.copy(at, message.place) {
                Ok(payload) => {
                    let record = Record {
                        group: self.members[at].group.number().get(),
                        kind: records::KIND_RELOCATED,
                        index: message.seq.get(),
                        term: u64::from(message.stream.get()),
                        payload,
                    };
                    bytes += record.stored_bytes();
                    records.push(record);
                    taken.push((at, message));
                }
                Err(Fetch::Pending) => break,
                // The stream has removed the message since it answered.
                Err(Fetch::Gone) => {}
                // The message stays where it is, and so does its segment.
                Err(_) => tracing::error!(
                    "the compaction cannot read message {} of stream {}, so the log keeps the segment of that message",
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

    fn append_copies(&mut self, taken: Vec<(GroupSlot, Resident)>, records: Vec<Record>) {
        // The store has taken the waiting entries because they have room. Copies leave them that room.
        let room = self.look_for_room(&[batch_bytes(&records)], 0);
        let appended = match room {
            Room::Enough => self.append(records, 1),
            Room::Later => Err(AppendError::NotReady),
            Room::No => Err(AppendError::DiskFull),
        };
        match appended {
            Ok(appended) => {
                let moved = taken
                    .iter()
                    .zip(&appended.records)
                    .map(|((at, message), lsn)| {
                        let place = Place {
                            lsn: lsn.get(),
                            offset: ENTRY_HEADER_BYTES as u32,
                        };
                        let relocated = Relocated {
                            stream: message.stream,
                            seq: message.seq,
                            place,
                        };
                        (appended.end, *at, relocated)
                    });
                self.compaction.undurable.extend(moved);
            }
            // The next poll reports the failure.
            Err(AppendError::Failed(_)) => {}
            Err(_) => taken
                .into_iter()
                .rev()
                .for_each(|message| self.compaction.wanted.push_front(message)),
        }
    }
}
