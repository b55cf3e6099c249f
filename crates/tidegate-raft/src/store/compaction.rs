//! Compaction: copies the live messages of a log segment that holds mostly removed messages to the end of the
//! log, so that the store can release the segment. The store compacts one segment at a time, and copies some
//! messages in each turn.
//!
//! The store asks the streams which of their messages lie in the segment ([`LyingIn`]), reads these messages,
//! and appends each of them as a new record. Once these records are durable, the streams learn the new
//! places. If a stream has removed a message meanwhile, the message's new place has no effect. `upkeep`
//! chooses the segment.

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

/// The number of bytes of messages that the compaction reads and appends in one turn of the event loop, so
/// that it does not delay clients.
const TURN_BYTES: u64 = 256 << 10;
/// The greatest number of undurable copies of messages: the compaction has appended them to the log, and
/// keeps them in memory until a sync covers them.
const UNDURABLE_MAX: usize = 4096;

/// A question of the store to the streams of a group: which of their messages lie in this range of the log?
/// The compaction must copy these messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LyingIn {
    /// The slot of the group to which the question goes.
    pub at: GroupSlot,
    /// The range of log positions to which the question refers: the segment under compaction.
    pub lsns: Range<u64>,
    /// The stream and the number of the first message for which the question asks. The question covers all
    /// messages from this message on.
    pub from: (StreamNumber, StreamSeq),
}

/// The progress of the compaction of one segment: the messages still to copy, and the copies not yet
/// durable; see the [module](self).
#[derive(Default)]
pub(super) struct Compaction {
    segment: Option<Range<Lsn>>,
    /// The slot of the group that the compaction asks next, and the stream and message at which the question
    /// begins; `None` once the compaction knows all messages in the segment.
    from: Option<(GroupSlot, (StreamNumber, StreamSeq))>,
    /// The messages in the segment that the compaction still has to copy, each with the slot of its group.
    wanted: VecDeque<(GroupSlot, Resident)>,
    /// The copies that the compaction has appended and that are not yet durable, each with the end of its
    /// batch and the slot of its group.
    undurable: VecDeque<(Lsn, GroupSlot, Relocated)>,
    /// The segments that the store has begun to compact and not released, by the position at which each
    /// begins. The store does not compact them again before the next start of the node, because a further
    /// attempt would hardly succeed.
    given_up: BTreeSet<u64>,
    /// The segments that the store has begun to compact, and for the rest of which the log had no room. The
    /// store compacts them again when it next looks for space.
    put_off: BTreeSet<u64>,
}

impl Compaction {
    pub(super) const fn is_idle(&self) -> bool {
        self.segment.is_none()
    }

    pub(super) fn gave_up(&self, base: u64) -> bool {
        self.given_up.contains(&base) || self.put_off.contains(&base)
    }

    /// Lets the store compact the segments again for which the log had no room.
    pub(super) fn try_again(&mut self) {
        self.put_off.clear();
    }

    /// Ends the compaction of the present segment before its end, because the log has no room for more
    /// copies, so that the store can compact another segment with fewer live bytes.
    fn put_off(&mut self) {
        if let Some(segment) = self.segment.take() {
            let base = segment.start.get();
            self.given_up.remove(&base);
            self.put_off.insert(base);
        }
        self.from = None;
        self.wanted.clear();
    }

    pub(super) fn forget(&mut self, base: u64) {
        self.given_up.remove(&base);
        self.put_off.remove(&base);
    }

    pub(super) fn begin(&mut self, segment: Range<Lsn>) {
        // The store marks the segment as tried already now, so that it never compacts the segment a second
        // time.
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

    /// Takes the answer of the group that the compaction asks: messages of the group in the segment
    /// (`lying`), and the start of the next question to the group (`next`), which is `None` if the group has
    /// no further message there. The node has `groups` groups.
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

    /// Notes copies of a group's messages that the store has appended in a batch with its end at log
    /// position `end`, so that their streams learn the new places once the batch is durable.
    pub(super) fn handle_appended(&mut self, at: GroupSlot, end: Lsn, moved: Vec<Relocated>) {
        self.undurable
            .extend(moved.into_iter().map(|moved| (end, at, moved)));
    }

    /// Returns whether all copies of this group's messages are durable, so that no place is about to change.
    pub(super) fn is_durable(&self, at: GroupSlot) -> bool {
        !self.undurable.iter().any(|(_, of, _)| *of == at)
    }

    fn is_done(&self) -> bool {
        self.from.is_none() && self.wanted.is_empty() && self.undurable.is_empty()
    }
}

impl Store {
    /// Hands copies of messages that have become durable to their groups as relocated messages, so that the
    /// streams learn the new places.
    pub(super) fn take_copies(&mut self, durable: Lsn) {
        let undurable = &mut self.compaction.undurable;
        let count = undurable.partition_point(|&(end, ..)| end <= durable);
        for (_, at, relocated) in undurable.drain(..count) {
            self.members[at].relocated.push_back(relocated);
        }
    }

    /// Copies some messages of the segment under compaction to the end of the log, in one turn of the event
    /// loop. Returns whether the compaction of the segment is complete.
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
        // The store writes waiting entries before copies of messages, because callers wait for the entries.
        // On a full disk the store makes the copies first, because they free the space for which the entries
        // wait.
        let first = !self.has_entries() || self.log.disk_full();
        let turn_bytes = TURN_BYTES.min(self.batch_bytes_max());
        while first
            && bytes < turn_bytes
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
                    let more = record.stored_bytes();
                    // A short log has room for a large message only in a batch of its own.
                    if !records.is_empty() && bytes + more > self.appender.batch_bytes_reserved() {
                        break;
                    }
                    bytes += more;
                    records.push(record);
                    taken.push((at, message));
                }
                Err(Fetch::Pending) => break,
                // The stream has removed the message since it named the message for this segment, so the
                // store needs no copy.
                Err(Fetch::Gone) => {}
                // The store cannot read the message, so it makes no copy. The log keeps the segment because
                // of that message.
                Err(_) => tracing::error!(
                    "the server cannot read message {} of the stream with number {} to copy it out of an old file of the log, so the log keeps that file",
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
        // The store accepted the waiting entries because the log has room for them. The copies must leave
        // this room free.
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
            // The log has failed. The next poll of the store reports the failure.
            Err(AppendError::Failed(_)) => {}
            // The disk has no space, so a later attempt would fail in the same way and hold up all other
            // segments.
            Err(AppendError::DiskFull) => {
                self.compaction.put_off();
                self.review = true;
            }
            Err(_) => taken
                .into_iter()
                .rev()
                .for_each(|message| self.compaction.wanted.push_front(message)),
        }
    }
}
