//! The outbox of a sender: the blocks of frames that the sender keeps until they are acknowledged, and how
//! far it has sent them.
//!
//! Blocks hold whole frames, and the outbox works on blocks: sending takes slices of them, and an
//! acknowledgement releases the blocks it covers. The outbox finds a message inside its block by a walk from
//! frame to frame, and only when needed: when the window is nearly full, after a cut, and for an
//! acknowledgement of a block that is not sent whole. Each walk begins at the end of the walk before.
//!
//! Invariants: the numbers of messages and the positions in bytes are contiguous over the blocks; the bytes
//! released <= the next byte to send <= the bytes ever sent <= the end of the last block.

use std::collections::VecDeque;

use crate::Seq;
use crate::frame::Layout;

/// A block of whole frames of consecutive messages, in order, as the client hands it to its sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The bytes of the block's frames, as they go over the connection.
    pub bytes: Vec<u8>,
    /// The number of the block's first message; the others follow without gaps.
    pub first: Seq,
    /// The number of frames in the block, one for each message. A block without frames is not allowed.
    pub count: u64,
}

#[derive(Debug)]
struct Retained {
    block: Block,
    /// The position of the block's first byte: the number of bytes of frames before the block since the
    /// session began.
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

/// The end of the outbox's last walk from frame to frame, from which the next walk starts: the frames up to
/// message `seq` end at position `pos`. The caller of the walk had asked for the position `asked`.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    seq: Seq,
    pos: u64,
    asked: u64,
}

/// The greatest number of released blocks that the outbox keeps, so that senders fill their memory again. The
/// outbox keeps no block larger than 512 KiB for that: such a block grew for a large message.
const SPARES_MAX: usize = 4;
const SPARE_BYTES_MAX: usize = 512 << 10;

#[derive(Debug)]
pub(super) struct Outbox {
    layout: Layout,
    blocks: VecDeque<Retained>,
    /// The number that the next message pushed into the outbox gets; a block must begin with it.
    next: Seq,
    /// Positions among all bytes of frames, counted from the first frame of the client. The outbox has
    /// released the bytes before `front`. The next byte to send is at `cursor`. No byte at or beyond `peak`
    /// was ever sent. The kept bytes end at `end`.
    front: u64,
    cursor: u64,
    peak: u64,
    end: u64,
    /// The number of bytes of memory that the kept blocks take, by their capacity, to compare with the bound.
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

    /// Sets the number of the next message, once the server's welcome has named it. The outbox must be empty.
    pub(super) fn begin(&mut self, next: Seq) {
        assert!(self.end == 0, "numbering begins once");
        self.next = next;
        let seq = self.last();
        self.acked_walk.seq = seq;
        self.sent_walk.seq = seq;
    }

    /// Keeps `block` until it is acknowledged. If the block is nearly empty and fits into the last block's
    /// memory, the outbox copies it there, because the memory of many such blocks would add up.
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

    /// Returns the memory of a released block, so that senders fill it again.
    pub(super) fn take_spare(&mut self) -> Option<Vec<u8>> {
        self.spares.pop()
    }

    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of the last message that the client pushed into the outbox.
    pub(super) fn last(&self) -> Seq {
        Seq::new(self.next.get().wrapping_sub(1))
    }

    /// Returns the number of the message before the first message that the outbox holds. The outbox cannot
    /// send it again: it is released, or was never pushed.
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

    /// Records that the socket has taken the next `n` bytes of the blocks.
    pub(super) fn sent(&mut self, n: u64) {
        self.cursor += n;
        assert!(self.cursor <= self.end, "more was sent than there is");
        self.peak = self.peak.max(self.cursor);
    }

    /// Releases the blocks in which every message is acknowledged, so that their memory is free: the blocks
    /// that end at message `acked` or before.
    pub(super) fn release(&mut self, acked: Seq) {
        while self.blocks.front().is_some_and(|b| b.last() <= acked)
            && let Some(b) = self.blocks.pop_front()
        {
            self.front = b.end();
            self.held -= b.block.bytes.capacity();
            self.give_back(b.block.bytes);
        }
        // The sender never sends released bytes again, so the cursor moves past them.
        self.cursor = self.cursor.max(self.front);
        self.peak = self.peak.max(self.front);
    }

    /// Moves the next byte to send to the end of message `seq`, so that the sender goes on with the message
    /// after it.
    pub(super) fn rewind(&mut self, seq: Seq) {
        self.cursor = self.end_of(seq);
        // The client may have given up a message that was sent only in part; its end then lies beyond `peak`.
        self.peak = self.peak.max(self.cursor);
    }

    /// Returns the number of the last message sent on this connection, whole or in part, up to which
    /// acknowledgements can come.
    pub(super) fn sent_now(&mut self) -> Seq {
        self.begun_before(self.cursor)
    }

    /// Returns the number of the last message ever sent, whole or in part: the server may have it.
    pub(super) fn sent_ever(&mut self) -> Seq {
        self.begun_before(self.peak)
    }

    /// Returns whether the socket has taken message `seq`, whole or in part, on this connection or earlier,
    /// so that the server may have it.
    pub(super) fn has_left(&mut self, seq: Seq) -> bool {
        match self.block_of(seq) {
            _ if seq >= self.next => false,
            Some(i) if self.blocks[i].end() > self.cursor => seq <= self.sent_now(),
            _ => true,
        }
    }

    /// Returns how many of the next `want` bytes the sender may send before `window` bytes are
    /// unacknowledged. The window begins at the end of message `acked`.
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

    /// Returns the number of bytes of the frames after message `acked`, sent or not, to compare with the
    /// window.
    pub(super) fn unacked(&mut self, acked: Seq) -> u64 {
        self.end - self.end_of(acked)
    }

    fn block_of(&self, seq: Seq) -> Option<usize> {
        self.blocks
            .partition_point(|b| b.block.first <= seq)
            .checked_sub(1)
    }

    /// Returns the position in bytes at which message `seq` ends. A released message counts as ending at
    /// `front`.
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

    /// Returns the number of the last message that begins before position `pos`, that is, the last message of
    /// which a sender at `pos` has sent at least a part.
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
