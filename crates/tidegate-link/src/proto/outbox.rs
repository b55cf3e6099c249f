//! The blocks of frames a sender keeps until they are acknowledged, and how far they are sent.
//!
//! Blocks hold whole frames, and the outbox works on blocks: sending takes slices of them, and an
//! acknowledgement releases those it covers. The outbox finds a message inside its block by a walk from frame
//! to frame, and only when needed: when the window is nearly full, after a cut, and for an acknowledgement of
//! a block that is not out yet. Each walk begins at the end of the walk before.
//!
//! Invariants: numbers and positions are contiguous over the blocks; front <= cursor <= peak <= end.

use std::collections::VecDeque;

use crate::Seq;
use crate::frame::Layout;

/// Whole frames, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The frames.
    pub bytes: Vec<u8>,
    /// The number of the first frame.
    pub first: Seq,
    /// The number of frames: at least one.
    pub count: u64,
}

#[derive(Debug)]
struct Retained {
    block: Block,
    /// The position of the block's first byte.
    pos: u64,
}

impl Retained {
    fn last(&self) -> Seq {
        self.block.first.plus(self.block.count - 1)
    }

    fn end(&self) -> u64 {
        self.pos + self.block.bytes.len() as u64
    }
}

/// The end of the last walk: the frames up to `seq` end at `pos`. `asked` is the position that the walk was
/// for.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    seq: Seq,
    pos: u64,
    asked: u64,
}

/// The most spare blocks kept for filling; blocks that grew for a large message are not kept.
const SPARES_MAX: usize = 4;
const SPARE_BYTES_MAX: usize = 512 << 10;

#[derive(Debug)]
pub(super) struct Outbox {
    layout: Layout,
    blocks: VecDeque<Retained>,
    /// The number the next message has.
    next: Seq,
    /// Positions count bytes of frames since the beginning. The outbox has released everything before
    /// `front`. `cursor` is the next byte to send, `peak` is beyond the last byte ever sent, `end` beyond the
    /// last byte kept.
    front: u64,
    cursor: u64,
    peak: u64,
    end: u64,
    /// The bytes of memory that the blocks hold.
    held: usize,
    acked_walk: Walk,
    sent_walk: Walk,
    spares: Vec<Vec<u8>>,
}

impl Outbox {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            blocks: VecDeque::new(),
            next: Seq::FIRST,
            front: 0,
            cursor: 0,
            peak: 0,
            end: 0,
            held: 0,
            acked_walk: Walk::default(),
            sent_walk: Walk::default(),
            spares: Vec::new(),
        }
    }

    /// Sets the number of the next message. The outbox must be empty.
    pub(super) fn begin(&mut self, next: Seq) {
        assert!(self.end == 0, "numbering begins once");
        self.next = next;
        let seq = self.last();
        self.acked_walk.seq = seq;
        self.sent_walk.seq = seq;
    }

    /// Keeps `block`, and copies it into the last block's memory if it fits there: the
    /// memory of many nearly empty blocks would add up.
    pub(super) fn push(&mut self, block: Block) {
        assert!(
            block.first == self.next && block.count > 0,
            "blocks are contiguous"
        );
        self.next = block.first.plus(block.count);
        self.end += block.bytes.len() as u64;
        if let Some(last) = self.blocks.back_mut().map(|r| &mut r.block)
            && block.bytes.len() <= block.bytes.capacity() / 4
            && block.bytes.len() <= last.bytes.capacity() - last.bytes.len()
        {
            last.bytes.extend_from_slice(&block.bytes);
            last.count += block.count;
            self.give_back(block.bytes);
            return;
        }
        self.held += block.bytes.capacity();
        let pos = self.end - block.bytes.len() as u64;
        self.blocks.push_back(Retained { block, pos });
    }

    fn give_back(&mut self, mut bytes: Vec<u8>) {
        if self.spares.len() < SPARES_MAX && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            self.spares.push(bytes);
        }
    }

    /// Returns an empty block that was used before.
    pub(super) fn take_spare(&mut self) -> Option<Vec<u8>> {
        self.spares.pop()
    }

    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of the last message that was pushed.
    pub(super) fn last(&self) -> Seq {
        Seq::new(self.next.get().wrapping_sub(1))
    }

    /// Returns the number of the last message before those that the outbox holds: released, or never pushed.
    pub(super) fn gone(&self) -> Seq {
        let first = self.blocks.front().map_or(self.next, |b| b.block.first);
        Seq::new(first.get().wrapping_sub(1))
    }

    pub(super) const fn unsent(&self) -> u64 {
        self.end - self.cursor
    }

    /// Fills `into` with up to `limit` unsent bytes, as slices of the blocks; returns the number of slices.
    pub(super) fn slices<'a>(&'a self, mut limit: u64, into: &mut [&'a [u8]]) -> usize {
        let from = self.blocks.partition_point(|b| b.end() <= self.cursor);
        let mut n = 0;
        for (slot, b) in into.iter_mut().zip(self.blocks.range(from..)) {
            if limit == 0 {
                break;
            }
            let start = self.cursor.saturating_sub(b.pos) as usize;
            let bytes = &b.block.bytes[start..];
            let take = limit.min(bytes.len() as u64);
            *slot = &bytes[..take as usize];
            limit -= take;
            n += 1;
        }
        n
    }

    /// Records that the socket took `n` bytes.
    pub(super) fn sent(&mut self, n: u64) {
        self.cursor += n;
        assert!(self.cursor <= self.end, "more was sent than there is");
        self.peak = self.peak.max(self.cursor);
    }

    /// Releases the blocks with acknowledged messages only, those up to `acked`.
    pub(super) fn release(&mut self, acked: Seq) {
        while self.blocks.front().is_some_and(|b| b.last() <= acked)
            && let Some(b) = self.blocks.pop_front()
        {
            self.front = b.end();
            self.held -= b.block.bytes.capacity();
            self.give_back(b.block.bytes);
        }
        // Acknowledged bytes need not be sent again.
        self.cursor = self.cursor.max(self.front);
        self.peak = self.peak.max(self.front);
    }

    /// Continues sending after `seq`.
    pub(super) fn rewind(&mut self, seq: Seq) {
        self.cursor = self.end_of(seq);
        // The sender may have sent only a part of a message that it gave up.
        self.peak = self.peak.max(self.cursor);
    }

    /// Returns the last message sent on this connection, whole or in part.
    pub(super) fn sent_now(&mut self) -> Seq {
        self.begun_before(self.cursor)
    }

    /// Returns the last message ever sent, whole or in part.
    pub(super) fn sent_ever(&mut self) -> Seq {
        self.begun_before(self.peak)
    }

    /// Returns whether the socket took `seq`, whole or in part, on this connection.
    pub(super) fn has_left(&mut self, seq: Seq) -> bool {
        match self.block_of(seq) {
            _ if seq >= self.next => false,
            Some(i) if self.blocks[i].end() > self.cursor => seq <= self.sent_now(),
            _ => true,
        }
    }

    /// Returns how many bytes, counted from the cursor, may be sent before `window` is
    /// used up; the window begins at the end of `acked`.
    pub(super) fn allowance(&mut self, acked: Seq, window: u64, want: u64) -> u64 {
        let rough = self
            .front
            .saturating_add(window)
            .saturating_sub(self.cursor);
        if rough >= want {
            return want;
        }
        let exact = self.end_of(acked).saturating_add(window);
        exact.saturating_sub(self.cursor).min(want)
    }

    /// Returns the bytes of messages that are not acknowledged.
    pub(super) fn unacked(&mut self, acked: Seq) -> u64 {
        self.end - self.end_of(acked)
    }

    fn block_of(&self, seq: Seq) -> Option<usize> {
        self.blocks
            .partition_point(|b| b.block.first <= seq)
            .checked_sub(1)
    }

    /// Returns the position at which message `seq` ends. Released messages end at the front.
    fn end_of(&mut self, seq: Seq) -> u64 {
        let Some(b) = self.block_of(seq).map(|i| &self.blocks[i]) else {
            return self.front;
        };
        if seq >= b.last() {
            return b.end();
        }
        let w = self.acked_walk;
        let (from, pos) = if w.seq <= seq && w.pos >= b.pos && w.pos <= b.end() {
            (w.seq, w.pos)
        } else {
            (Seq::new(b.block.first.get() - 1), b.pos)
        };
        let rest = &b.block.bytes[(pos - b.pos) as usize..];
        let pos = pos + self.layout.span(rest, seq.since(from)) as u64;
        self.acked_walk = Walk {
            seq,
            pos,
            asked: pos,
        };
        pos
    }

    /// Returns the last message that begins before `pos`.
    fn begun_before(&mut self, pos: u64) -> Seq {
        let i = self.blocks.partition_point(|b| b.pos < pos);
        let Some(b) = i.checked_sub(1).map(|i| &self.blocks[i]) else {
            return self.gone();
        };
        if pos >= b.end() {
            return b.last();
        }
        let w = self.sent_walk;
        if w.asked >= b.pos && w.asked <= pos && pos <= w.pos && w.asked > b.pos {
            return w.seq;
        }
        let (from, at) = if w.pos <= pos && w.pos >= b.pos {
            (w.seq, w.pos)
        } else {
            (Seq::new(b.block.first.get() - 1), b.pos)
        };
        let rest = &b.block.bytes[(at - b.pos) as usize..];
        let (count, bytes) = self.layout.begun(rest, (pos - at) as usize);
        self.sent_walk = Walk {
            seq: from.plus(count),
            pos: at + bytes as u64,
            asked: pos,
        };
        self.sent_walk.seq
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.front <= self.cursor && self.cursor <= self.peak && self.peak <= self.end);
        let mut pos = self.front;
        let mut seq = self.blocks.front().map_or(self.next, |b| b.block.first);
        for b in &self.blocks {
            assert_eq!((b.pos, b.block.first), (pos, seq));
            let scan = self.layout.scan(&b.block.bytes, crate::frame::SIZE_MAX);
            assert_eq!(
                (scan.count, scan.bytes),
                (b.block.count, b.block.bytes.len())
            );
            pos = b.end();
            seq = seq.plus(b.block.count);
        }
        assert_eq!((pos, seq), (self.end, self.next));
        assert_eq!(
            self.held,
            self.blocks
                .iter()
                .map(|b| b.block.bytes.capacity())
                .sum::<usize>()
        );
    }
}
