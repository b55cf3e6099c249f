//! A block of a stream's index: the places in the log of up to 256 successive messages, with the time, size
//! and subject of each message, in 20 bytes a message. The stream finds its messages in the log by blocks.
//!
//! A block keeps log positions and times as differences from its first message. A message with a difference
//! that does not fit ends the block early ([`Block::fits`]). If the compaction of the log later moves a
//! message too far away, a separate list holds the message's position. A removed message leaves a hole. The
//! index packs a closed block that is mostly holes, so that a message that outlives its neighbours does not
//! keep the memory of their rows.

use std::ops::Range;

use super::command::Place;
use super::wire::RestoreError;
use super::wire::{Reader, put_len, put_u32, put_u64};
use crate::bits::{self, Bits};
use crate::schema::sequence::StreamSeq;

/// The unit of log positions in a row of the block, in bytes. Records of the log begin at multiples of this
/// number, so a difference of 32 bits spans 32 GiB.
const LSN_UNIT: u64 = 8;
/// The value that a row holds in place of a log position that is too far from the block's first position for
/// 32 bits. The list `far` holds that position, so that a lookup of the message still finds its place in the
/// log.
const FAR: u32 = u32::MAX;
/// The least number of rows of a block that the index packs. The index leaves a smaller block as it is,
/// because there the rows of removed messages take too little memory.
const PACK_ROWS_MIN: usize = 16;

/// The flags of a message, by which the stream knows how the message expires. A row keeps the flags in the
/// upper three bits of the message's size, so that they need no memory of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u32);

impl Flags {
    /// The flag of a message with its own time to live. The block's list `dues` holds the time at which the
    /// stream removes the message.
    pub(super) const TTL: Self = Self(1 << 31);
    /// The flag of a message that the stream never removes because of its age, even if its stream has an age
    /// limit.
    pub(super) const NEVER: Self = Self(1 << 30);
    /// The flag of a marker: a message by which the stream tells its consumers that the older messages of its
    /// subject are gone.
    pub(super) const MARKER: Self = Self(1 << 29);
    const ALL: u32 = 7 << 29;

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL)
    }
}

/// The largest size of a message that the stream stores, in bytes (512 MiB): a row has 32 bits for the size,
/// and the message's flags take the upper three of them.
pub(super) const MESSAGE_BYTES_MAX: u32 = !Flags::ALL;

/// The data that a block of the index holds about one message, so that the stream finds the message in the
/// log and knows when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) time_us: u64,
    pub(super) bytes: u32,
    pub(super) subject: u32,
    pub(super) flags: Flags,
    /// The time at which the stream removes a message with [`Flags::TTL`]because it expires, in microseconds
    /// since 1970; 0 for other messages.
    pub(super) due_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    lsn: u32,
    offset: u32,
    time: u32,
    bytes: u32,
}

/// The index's data about up to 256 successive messages: their places in the log, times, sizes and subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The number of the message for which bit 0 in the block's sets of bits stands. The bits of the next
    /// messages follow.
    first: StreamSeq,
    lsn_base: u64,
    time_base: u64,
    /// The sets of messages in the block, one bit a message: `rows_of` has the messages with a row, and
    /// `live` has the messages among them that the stream still holds.
    rows_of: Bits,
    live: Bits,
    /// The number of the subject of each row. The subjects lie apart from the rows, so that a search for a
    /// subject reads little memory.
    subjects: Vec<u32>,
    rows: Vec<Row>,
    far: Vec<(u8, u64)>,
    dues: Vec<(u8, u64)>,
}

impl Block {
    pub(super) const fn new(first: StreamSeq) -> Self {
        Self {
            first,
            lsn_base: 0,
            time_base: 0,
            rows_of: Bits([0; 4]),
            live: Bits([0; 4]),
            subjects: Vec::new(),
            rows: Vec::new(),
            far: Vec::new(),
            dues: Vec::new(),
        }
    }

    /// Creates the block that follows this one in the index and begins with message `first`. If this block is
    /// full, the new block reserves memory for 256 messages at once.
    pub(super) fn successor(&self, first: StreamSeq) -> Self {
        let rows = if self.rows.len() == bits::LEN {
            bits::LEN
        } else {
            0
        };
        Self {
            rows: Vec::with_capacity(rows),
            subjects: Vec::with_capacity(rows),
            ..Self::new(first)
        }
    }

    pub(super) const fn first(&self) -> StreamSeq {
        self.first
    }

    pub(super) const fn time_base(&self) -> u64 {
        self.time_base
    }

    /// Returns a lower bound of the log positions of the block's messages, in bytes. A search for the
    /// messages in a part of the log skips the block by this bound.
    pub(super) const fn lsn_base(&self) -> u64 {
        self.lsn_base
    }

    pub(super) const fn live(&self) -> &Bits {
        &self.live
    }

    pub(super) fn is_unused(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the bit of the message with this number; `None` if the number is not among the block's 256
    /// numbers, so the caller must look at another block.
    pub(super) fn bit(&self, seq: StreamSeq) -> Option<usize> {
        let bit = usize::try_from(seq.checked_distance(self.first)?).ok()?;
        (bit < bits::LEN).then_some(bit)
    }

    /// Returns the message number that follows the block's last row, so that the index knows the number that
    /// the block takes next.
    pub(super) fn end(&self) -> StreamSeq {
        let last = self.rows_of.prev(bits::LEN - 1);
        last.map_or(self.first, |bit| self.seq(bit).next())
    }

    /// Returns the number of the message at bit `bit` of the block's sets, so that a caller that searches
    /// bits can name the message.
    pub(super) const fn seq(&self, bit: usize) -> StreamSeq {
        self.first.after(bit as u64)
    }

    /// Returns whether the block can take this message as its next one: its number, log position and time
    /// must not be too far from those of the block's first message, because a row keeps only 32 bits of each
    /// difference.
    pub(super) fn fits(&self, seq: StreamSeq, place: Place, time_us: u64) -> bool {
        if self.rows.is_empty() {
            return seq == self.first;
        }
        let near = |value: u64, base: u64, unit: u64| {
            value >= base
                && (value - base).is_multiple_of(unit)
                && (value - base) / unit < u64::from(FAR)
        };
        self.bit(seq).is_some()
            && near(place.lsn, self.lsn_base, LSN_UNIT)
            && near(time_us, self.time_base, 1)
    }

    /// Adds the next message to the block; [`Block::fits`] must have returned true for the message. The
    /// caller begins a new block otherwise.
    pub(super) fn push(&mut self, seq: StreamSeq, slot: &Slot) {
        if self.rows.is_empty() {
            self.lsn_base = slot.place.lsn;
            self.time_base = slot.time_us;
        }
        let bit = self
            .bit(seq)
            .expect("a block takes a message only where it fits");
        self.rows_of.set(bit);
        self.live.set(bit);
        self.subjects.push(slot.subject);
        self.rows.push(Row {
            lsn: ((slot.place.lsn - self.lsn_base) / LSN_UNIT) as u32,
            offset: slot.place.offset,
            time: (slot.time_us - self.time_base) as u32,
            bytes: slot.bytes | slot.flags.bits(),
        });
        if slot.flags.has(Flags::TTL) {
            self.dues.push((bit as u8, slot.due_us));
        }
    }

    /// Returns the data of the message at `bit`; `None` if the stream has removed the message or the block
    /// never held it.
    pub(super) fn get(&self, bit: usize) -> Option<Slot> {
        if !self.live.has(bit) {
            return None;
        }
        let at = self.rows_of.rank(bit);
        let row = self.rows[at];
        let flags = Flags::from_bits(row.bytes);
        let of = |list: &[(u8, u64)]| {
            let found = list.iter().find(|(b, _)| usize::from(*b) == bit);
            found.map_or(0, |(_, value)| *value)
        };
        Some(Slot {
            place: Place {
                lsn: if row.lsn == FAR {
                    of(&self.far)
                } else {
                    self.lsn_base + u64::from(row.lsn) * LSN_UNIT
                },
                offset: row.offset,
            },
            time_us: self.time_base + u64::from(row.time),
            bytes: row.bytes & MESSAGE_BYTES_MAX,
            subject: self.subjects[at],
            flags,
            due_us: if flags.has(Flags::TTL) {
                of(&self.dues)
            } else {
                0
            },
        })
    }

    /// Returns the number of the subject of the message at `bit`, which the block must hold, so that a search
    /// can compare subjects by number.
    pub(super) fn subject(&self, bit: usize) -> u32 {
        self.subjects[self.rows_of.rank(bit)]
    }

    /// Iterates over the messages at bit `from` and above, each with the number of its subject. One pass over
    /// the rows costs less than a search for each bit.
    pub(super) fn subjects_from(&self, from: usize) -> impl Iterator<Item = (usize, u32)> {
        let subjects = &self.subjects[self.rows_of.rank(from)..];
        let rows = self.rows_of.iter_from(from).zip(subjects);
        let live = rows.filter(|(bit, _)| self.live.has(*bit));
        live.map(|(bit, subject)| (bit, *subject))
    }

    /// Returns the time at which the stream stored the message at `bit`, in microseconds since 1970. The
    /// block must hold the message. A search by time compares these times.
    pub(super) fn time_us(&self, bit: usize) -> u64 {
        self.time_base + u64::from(self.rows[self.rows_of.rank(bit)].time)
    }

    /// Returns whether a row of the block has this subject. The stream may already have removed that row's
    /// message, so a search takes true only as a hint to look at the messages themselves.
    pub(super) fn may_have(&self, subject: u32) -> bool {
        // The loop over each chunk of 64 subjects has no early exit, so that the CPU compares many subjects
        // at once.
        let any = |part: &[u32]| part.iter().fold(false, |any, s| any | (*s == subject));
        self.subjects.chunks(64).any(any)
    }

    /// Removes the message at `bit`, which the block must hold, from the messages that searches find. The
    /// message's row stays until the index packs the block, because moving the other rows at each removal
    /// takes too long.
    pub(super) fn remove(&mut self, bit: usize) {
        self.live.clear(bit);
    }

    /// Changes the place in the log of the message at `bit`, which the block must hold, after the compaction
    /// of the log has moved the message.
    pub(super) fn relocate(&mut self, bit: usize, place: Place) {
        let at = self.rows_of.rank(bit);
        self.far.retain(|(b, _)| usize::from(*b) != bit);
        let units = place.lsn.checked_sub(self.lsn_base).map(|d| d / LSN_UNIT);
        let near = units
            .and_then(|u| u32::try_from(u).ok())
            .filter(|u| *u != FAR && place.lsn.is_multiple_of(LSN_UNIT));
        self.rows[at].offset = place.offset;
        self.rows[at].lsn = near.unwrap_or_else(|| {
            self.far.push((bit as u8, place.lsn));
            FAR
        });
    }

    /// Returns whether most rows of the block belong to removed messages, so that packing frees enough
    /// memory.
    pub(super) fn is_sparse(&self) -> bool {
        is_sparse(self.rows.len(), &self.live)
    }

    /// Frees the memory of the rows of removed messages, and the spare capacity of the block's lists. The
    /// index calls this for a closed block, to which it adds no more messages.
    pub(super) fn pack(&mut self) {
        if self.live != self.rows_of {
            *self = self.packed(self.live);
        }
        self.rows.shrink_to_fit();
        self.subjects.shrink_to_fit();
    }

    /// Returns a copy of the block without the messages in `gone`, which the block must hold, because the
    /// report of the removed messages, and perhaps a snapshot, still use the original. The copy has no rows
    /// of removed messages if they would be most of its rows.
    pub(super) fn without(&self, gone: &Bits) -> Self {
        let live = self.live.without(gone);
        if is_sparse(self.rows.len(), &live) {
            return self.packed(live);
        }
        let mut rest = self.clone();
        rest.live = live;
        rest
    }

    /// Returns a copy of the block that has only the rows of the messages in `live`, so that removed messages
    /// take no memory.
    fn packed(&self, live: Bits) -> Self {
        let len = live.count();
        let (mut rows, mut subjects) = (Vec::with_capacity(len), Vec::with_capacity(len));
        for ((bit, row), subject) in self.rows_of.iter().zip(&self.rows).zip(&self.subjects) {
            if live.has(bit) {
                rows.push(*row);
                subjects.push(*subject);
            }
        }
        let kept = |list: &[(u8, u64)]| {
            let kept = list.iter().filter(|(bit, _)| live.has(usize::from(*bit)));
            kept.copied().collect()
        };
        Self {
            first: self.first,
            lsn_base: self.lsn_base,
            time_base: self.time_base,
            rows_of: live,
            live,
            subjects,
            rows,
            far: kept(&self.far),
            dues: kept(&self.dues),
        }
    }

    /// Returns the bits of the messages in a range of the block's bits for which `want` returns true; `want`
    /// gets the number of the message and the number of its subject.
    pub(super) fn mask_where(
        &self,
        range: Range<usize>,
        mut want: impl FnMut(StreamSeq, u32) -> bool,
    ) -> Bits {
        let mut mask = Bits::default();
        for (bit, subject) in self.subjects_from(range.start) {
            if bit >= range.end {
                break;
            }
            if want(self.seq(bit), subject) {
                mask.set(bit);
            }
        }
        mask
    }

    /// Calls `each` with the number, the size in bytes, the flags, and the number of the subject of each
    /// message in `of`, in rising order. The block must have rows of these messages. One pass over the rows
    /// costs less than a search for each message.
    pub(super) fn for_each(&self, of: &Bits, mut each: impl FnMut(StreamSeq, u32, Flags, u32)) {
        for ((bit, row), subject) in self.rows_of.iter().zip(&self.rows).zip(&self.subjects) {
            if of.has(bit) {
                let flags = Flags::from_bits(row.bytes);
                each(
                    self.seq(bit),
                    row.bytes & MESSAGE_BYTES_MAX,
                    flags,
                    *subject,
                );
            }
        }
    }

    /// Returns the size of the block of the index in memory, in bytes, for the stream's report of the memory
    /// that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.rows.capacity() * size_of::<Row>()
            + self.subjects.capacity() * size_of::<u32>()
            + (self.far.capacity() + self.dues.capacity()) * size_of::<(u8, u64)>()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.first.get(), self.lsn_base, self.time_base] {
            put_u64(out, n);
        }
        for word in self.rows_of.0.iter().chain(&self.live.0) {
            put_u64(out, *word);
        }
        for (row, subject) in self.rows.iter().zip(&self.subjects) {
            for n in [row.lsn, row.offset, row.time, row.bytes, *subject] {
                put_u32(out, n);
            }
        }
        for list in [&self.far, &self.dues] {
            put_len(out, list.len());
            for (bit, value) in list {
                out.push(*bit);
                put_u64(out, *value);
            }
        }
    }

    /// Decodes a block of a snapshot, so that a node restores a stream without reading its messages. Returns
    /// an error for bytes that contradict each other, or if a message has a number above `last`, or a subject
    /// that `known` rejects.
    pub(super) fn decode(
        from: &mut Reader<'_>,
        last: StreamSeq,
        mut known: impl FnMut(u32) -> bool,
    ) -> Result<Self, RestoreError> {
        let mut block = Self::new(StreamSeq::new(from.u64()?));
        (block.lsn_base, block.time_base) = (from.u64()?, from.u64()?);
        for bits in [&mut block.rows_of, &mut block.live] {
            for word in &mut bits.0 {
                *word = from.u64()?;
            }
        }
        let rows = block.rows_of.count();
        (block.rows, block.subjects) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for _ in 0..rows {
            block.rows.push(Row {
                lsn: from.u32()?,
                offset: from.u32()?,
                time: from.u32()?,
                bytes: from.u32()?,
            });
            block.subjects.push(from.u32()?);
        }
        for list in [&mut block.far, &mut block.dues] {
            for _ in 0..from.len(9)? {
                list.push((from.u8()?, from.u64()?));
            }
        }
        let fits = |base: u64, span: u64| base.checked_add(span).is_some();
        let live = (0..4).all(|w| block.live.0[w] & !block.rows_of.0[w] == 0)
            && fits(block.first.get(), bits::LEN as u64)
            && block
                .live
                .iter()
                .all(|bit| block.seq(bit) <= last && known(block.subject(bit)));
        let bases = fits(block.lsn_base, u64::from(FAR) * LSN_UNIT)
            && fits(block.time_base, u32::MAX.into());
        if live && bases {
            Ok(block)
        } else {
            Err(RestoreError::Inconsistent("a block of messages"))
        }
    }

    pub(super) fn check_invariants(&self) {
        assert_eq!(self.rows_of.count(), self.rows.len());
        assert_eq!(self.rows.len(), self.subjects.len());
        let stray = (0..4).any(|w| self.live.0[w] & !self.rows_of.0[w] != 0);
        assert!(!stray, "a message without a row");
    }
}

/// Returns whether most of a block's rows, which are this many, do not belong to the messages in `live`, so
/// that packing frees enough memory.
fn is_sparse(rows: usize, live: &Bits) -> bool {
    rows >= PACK_ROWS_MIN && live.count() * 2 <= rows
}
