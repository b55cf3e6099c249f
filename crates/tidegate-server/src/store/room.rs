//! Which entries the log has room for. The last part of its allocated segments is kept back for elections and
//! entries that make space, whether or not the disk is known to be full.
//!
//! That a disk is full is known only after the log has tried to allocate the segment behind the present one.
//! So an entry is taken only if the allocated segments have room for it, for all entries that wait to be
//! written, and for the reserve. An entry taken without room would hold back the votes behind it.

use bytes::Bytes;
use tidegate_log::{Record, batch_bytes};

use super::Store;
use crate::replica::records::{self, HardState, KIND_ENTRY};
use crate::replica::{Message, MessageType};
use crate::stream::Entry;

/// One part in so many of a segment is kept back for what makes space.
const RESERVED_SHARE: u64 = 4;
/// Of that one part in so many is kept back from what other nodes lead, too.
const LED_ELSEWHERE_SHARE: u64 = 2;
/// More than what an entry takes of the log beside its payload, in a batch of its own.
const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// Whether the log has room for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It has.
    Enough,
    /// The next segment is being allocated.
    Later,
    /// It has none until there is space on the disk.
    No,
}

/// How much of a leader's message the member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// All of it.
    All,
    /// So many of its entries: the log has no room for more.
    First(usize),
    /// None of its entries until the log has allocated the next segment.
    Later,
    /// None of its entries until there is space on the disk. They take so many bytes of the log.
    No(u64),
}

impl Store {
    /// Returns the bytes that are kept back of the allocated segments.
    pub(super) const fn reserve_bytes(&self) -> u64 {
        self.options.segment_bytes / RESERVED_SHARE
    }

    /// Returns the part of the reserve that is kept back from entries that another node leads, too. Committed
    /// entries must be taken some day, and entries that make space may stand behind them. But without any
    /// reserve this node could neither empty streams that it keeps alone, nor copy forward.
    pub(super) const fn reserve_bytes_led_elsewhere(&self) -> u64 {
        self.reserve_bytes() / LED_ELSEWHERE_SHARE
    }

    /// Looks for room for batches of these bytes behind all waiting batches, with `kept` bytes left behind
    /// them. If there is none yet, the log is asked for it.
    pub(super) fn look_for_room(&self, batches: &[u64], kept: u64) -> Room {
        let bytes: u64 = batches.iter().sum();
        let left = self.appender.room_left();
        // Most often no batch waits and a whole segment is ahead. The unused end of the present one is
        // shorter than the largest batch.
        if 2 * bytes + kept <= left && !self.has_entries() {
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
        if self.log.disk_full() {
            return Room::No;
        }
        self.appender.ask_for_room();
        Room::Later
    }

    /// Looks for room for an entry that this node leads, and that takes so many bytes of the log.
    pub(super) fn room_to_propose(&self, entry: &Bytes, bytes: u64) -> Room {
        match self.look_for_room(&[bytes], self.reserve_bytes()) {
            Room::Enough => Room::Enough,
            _ if Entry::decode(entry).is_ok_and(|e| e.makes_space()) => {
                self.look_for_room(&[bytes], 0)
            }
            room => room,
        }
    }

    /// Decides how much is taken of a message of the leader of the group at this place.
    pub(super) fn admit(&self, at: usize, message: &Message) -> Admission {
        let group = &self.members[at].group;
        let kept = self.reserve_bytes_led_elsewhere();
        let left = self.appender.room_left();
        match message.get_msg_type() {
            // An earlier message waits for room.
            MessageType::MsgHeartbeat => match group.refused_bytes(message.term) {
                Some(bytes) if self.log.disk_full() && left < bytes + kept => Admission::No(bytes),
                _ => Admission::All,
            },
            // Raft takes no entries behind a gap.
            MessageType::MsgAppend
                if message.term >= group.term() && message.index <= group.last_index() =>
            {
                let entries = message.entries.iter();
                let most = entries.map(|e| e.data.len() as u64 + ENTRY_OVERHEAD_BYTES);
                match 2 * most.sum::<u64>() + kept <= left && !self.has_entries() {
                    true => Admission::All,
                    false => self.admit_entries(at, message, kept),
                }
            }
            _ => Admission::All,
        }
    }

    /// Counts exactly for how many entries there is room.
    fn admit_entries(&self, at: usize, message: &Message, kept: u64) -> Admission {
        let entries = message.entries.iter();
        let records = entries.map(|e| records::entry(0, e.index, e.term, e.data.clone()));
        let records: Vec<Record> = records.collect();
        // A term, a vote and a commit index come along.
        let (before, behind) = (
            records::hard_state(0, HardState::default()),
            records::committed(0, 0),
        );
        let look = |count: usize| {
            let taken = &records[..count];
            let kept = if makes_space(taken) { 0 } else { kept };
            let taken = taken.iter().chain([&behind]);
            let all: Vec<Record> = [&before].into_iter().chain(taken).cloned().collect();
            let batches = self.members[at].group.batches_of(&all);
            let bytes = batches.iter().sum();
            (self.look_for_room(&batches, kept), bytes)
        };
        let (room, bytes) = match records.len() {
            0 => return Admission::All,
            count => look(count),
        };
        if room == Room::Enough {
            return Admission::All;
        }
        // More entries never have more room.
        let (mut fit, mut over) = (0, records.len());
        while fit + 1 < over {
            let count = fit.midpoint(over);
            match look(count).0 {
                Room::Enough => fit = count,
                Room::Later | Room::No => over = count,
            }
        }
        match (fit, room) {
            (0, Room::No) => Admission::No(bytes),
            (0, _) => Admission::Later,
            (fit, _) => Admission::First(fit),
        }
    }
}

/// Returns whether a full disk takes these records from its reserve also where another node leads: votes,
/// terms, the empty entry that begins a term, and entries that make space. Without them no leader could be
/// elected that empties the group.
fn makes_space(records: &[Record]) -> bool {
    let frees = |data: &Bytes| Entry::decode(data).is_ok_and(|e| e.makes_space());
    let small = |r: &Record| r.kind != KIND_ENTRY || r.payload.is_empty() || frees(&r.payload);
    records.iter().all(small)
}
