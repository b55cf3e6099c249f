//! Decides which entries the log has room for. The store always reserves the last part of the log's
//! allocated segments for elections and for entries that free space, so that a full disk does not block
//! them.
//!
//! The store learns that a disk is full only when the log tries to allocate the segment behind the present
//! one. So the store takes an entry only if the allocated segments have room for the entry, for all waiting
//! entries, and for the reserve. An accepted entry without room would block the votes behind it.

use bytes::Bytes;
use tidegate_cluster::groups::ALL;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{Record, batch_bytes};
use tidegate_stream::stream::Entry;

use super::Store;
use crate::replica::records::{self, HardState, KIND_ENTRY};
use crate::replica::{EntryId, Index, Message, MessageType, Term};

/// The divisor that gives the reserve: the store divides the part of a segment by it for which the log has
/// reserved disk space, in time the whole segment, and keeps that much free for elections and for entries
/// that free space.
const RESERVED_SHARE: u64 = 4;
/// The divisor that gives this node's own part of the reserve: the store divides the length of the reserve
/// by it. Entries that another node proposed as leader may not use this part, even if they free space.
const LED_ELSEWHERE_SHARE: u64 = 2;
/// The divisor that gives the greatest length of a batch: the store divides the part of a segment by it for
/// which the log has reserved disk space, so that a short log has room for every batch.
const BATCH_SHARE: u64 = 4;
/// An upper bound on the bytes of log that an entry takes in a batch of its own besides the entry's bytes,
/// for a quick estimate of the room.
const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// The answer to the question whether the log has room for an entry, by which the store accepts or refuses
/// the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The log has room for the entry, and keeps the reserve free.
    Enough,
    /// The log has no room yet: it must first allocate the next segment, and is doing so.
    Later,
    /// The log has no room, because the disk has no space for the next segment, or for enough of a segment.
    No,
}

/// The part of a leader's message that this member accepts, by the room in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The member accepts the whole message of the leader.
    All,
    /// The member accepts only this many of the message's first entries, because the log has no room for
    /// more.
    First(usize),
    /// The member accepts no entry of the message until its log has allocated the next segment.
    Later,
    /// The member accepts no entry of the message until its disk has space. The first entry would take this
    /// many bytes of the log.
    No(u64),
}

impl Store {
    /// Returns the number of bytes of the allocated segments that the store reserves for elections and for
    /// entries that free space.
    pub(super) fn reserve_bytes(&self) -> u64 {
        self.appender.reserved_bytes() / RESERVED_SHARE
    }

    /// Returns the number of bytes of the reserve that entries of other leaders may not use. Such entries may
    /// use the other part, because entries that free space may follow them. But without any reserve of its
    /// own, this node could neither empty streams that only it holds, nor copy messages forward.
    pub(super) fn reserve_bytes_led_elsewhere(&self) -> u64 {
        self.reserve_bytes() / LED_ELSEWHERE_SHARE
    }

    /// Returns the greatest number of bytes of a batch, so that it fits well into the reserved part of a
    /// segment. Only a single record may take more.
    pub(super) fn batch_bytes_max(&self) -> u64 {
        self.appender.reserved_bytes() / BATCH_SHARE
    }

    /// Returns whether the log has room for batches of these lengths behind all waiting batches, so that
    /// `kept` bytes stay free. If the log has no room yet, makes it allocate the next segment.
    pub(super) fn look_for_room(&self, batches: &[u64], kept: u64) -> Room {
        let bytes: u64 = batches.iter().sum();
        let (left, most) = (
            self.appender.room_left(),
            self.appender.batch_bytes_reserved(),
        );
        // In the common case no batch waits, and the log has allocated a whole segment ahead. The factor 2
        // covers the unused end of the present segment, which is shorter than the largest batch.
        if 2 * bytes + kept <= left && bytes <= most && !self.has_entries() {
            return Room::Enough;
        }
        let waiting = self.members.iter().flat_map(|m| m.group.outgoing());
        let waiting = waiting.map(|batch| batch_bytes(&batch.records));
        let behind = waiting.chain(batches.iter().copied());
        if self
            .appender
            .room_behind(behind)
            .is_some_and(|left| left >= kept)
        {
            return Room::Enough;
        }
        let too_large = batches.iter().any(|&bytes| bytes > most);
        if self.log.disk_full() || (too_large && self.log.is_short()) {
            return Room::No;
        }
        self.appender.ask_for_room();
        Room::Later
    }

    /// Returns whether the log has room for an entry that this node proposes, and that takes `bytes` bytes of
    /// the log. An entry that frees space may use the reserve, and an entry that may free some a part of the
    /// reserve; all others must leave it free.
    pub(super) fn room_to_propose(&self, entry: &Bytes, bytes: u64) -> Room {
        let room = self.look_for_room(&[bytes], self.reserve_bytes());
        if room == Room::Enough {
            return room;
        }
        match Entry::decode(entry) {
            Ok(entry) if entry.makes_space() => self.look_for_room(&[bytes], 0),
            Ok(entry) if entry.may_make_space() => {
                self.look_for_room(&[bytes], self.reserve_bytes_led_elsewhere())
            }
            _ => room,
        }
    }

    /// Decides which part of a leader's message the group in this slot accepts, by the room in the log.
    pub(super) fn admit(&self, at: GroupSlot, message: &Message) -> Admission {
        let group = &self.members[at].group;
        let kept = self.reserve_bytes_led_elsewhere();
        let (left, at_most) = (
            self.appender.room_left(),
            self.appender.batch_bytes_reserved(),
        );
        match message.get_msg_type() {
            // The log still has no room for entries of an earlier message of this leader, which the member
            // refused. So the member does not answer the heartbeat either.
            MessageType::MsgHeartbeat => match group.refused_bytes(Term::new(message.term)) {
                Some(bytes) if self.log.disk_full() && left < bytes + kept => Admission::No(bytes),
                Some(bytes) if self.log.is_short() && bytes > at_most => Admission::No(bytes),
                _ => Admission::All,
            },
            // The room in the log matters only for a message that Raft accepts: a message of the current term
            // or a later one, without a gap before its entries.
            MessageType::MsgAppend
                if Term::new(message.term) >= group.term()
                    && Index::new(message.index) <= group.last_index() =>
            {
                let entries = message.entries.iter();
                let most = entries.map(|e| e.data.len() as u64 + ENTRY_OVERHEAD_BYTES);
                let most: u64 = most.sum();
                let fits = 2 * most + kept <= left && most <= at_most;
                match fits && !self.has_entries() {
                    true => Admission::All,
                    false => self.admit_entries(at, message, kept),
                }
            }
            _ => Admission::All,
        }
    }

    /// Counts exactly for how many entries of a leader's message the log has room, if the quick estimate
    /// does not suffice.
    fn admit_entries(&self, at: GroupSlot, message: &Message, kept: u64) -> Admission {
        let entries = message.entries.iter();
        let records = entries.map(|e| {
            let id = EntryId::new(e.index, e.term);
            records::entry(ALL, id, e.data.clone())
        });
        let records: Vec<Record> = records.collect();
        // The batch of the entries may also hold a record of the term and vote before them, and a record of
        // the commit index behind them.
        let (before, behind) = (
            records::hard_state(ALL, HardState::default()),
            records::committed(ALL, Index::ZERO),
        );
        let look = |count: usize| {
            let taken = &records[..count];
            let kept = if makes_space(taken) { 0 } else { kept };
            let taken = taken.iter().chain([&behind]);
            let all: Vec<Record> = [&before].into_iter().chain(taken).cloned().collect();
            let batches = self.members[at].group.batches_of(&all);
            let bytes: u64 = batches.iter().sum();
            (self.look_for_room(&batches, kept), bytes)
        };
        if records.is_empty() || look(records.len()).0 == Room::Enough {
            return Admission::All;
        }
        // More entries of the message never need less room, so a binary search finds the number of entries
        // that fit.
        let (mut fit, mut over) = (0, records.len());
        while fit + 1 < over {
            let count = fit.midpoint(over);
            match look(count).0 {
                Room::Enough => fit = count,
                Room::Later | Room::No => over = count,
            }
        }
        if fit > 0 {
            return Admission::First(fit);
        }
        // The member can take the first entry as soon as the log has room for that one.
        match look(1) {
            (Room::Enough, _) => Admission::First(1),
            (Room::Later, _) => Admission::Later,
            (Room::No, bytes) => Admission::No(bytes),
        }
    }
}

/// Returns whether these records may use the reserve of a full disk even if another node leads: votes, terms,
/// the empty entry that begins a term, and entries that free space. Without such records the group could
/// elect no leader that frees space.
fn makes_space(records: &[Record]) -> bool {
    let frees = |data: &Bytes| Entry::decode(data).is_ok_and(|e| e.makes_space());
    let small = |r: &Record| r.kind != KIND_ENTRY || r.payload.is_empty() || frees(&r.payload);
    records.iter().all(small)
}
