//! The index of a stream's messages by number. Each block covers 256 numbers; a binary search over a short
//! table of the blocks' heads finds a block. Queries, consumers and removals find messages by this index.
//!
//! The index owns the places of messages and the set of numbers that exist. [`super::subjects`] owns the
//! numbers of subjects, and [`super::content`] the totals. The numbers of messages only rise. Snapshots share
//! closed blocks, and a change copies a shared block first; the last block, which every new message changes,
//! is not shared with snapshots, which copy it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::block::{Block, Flags, Slot};
use super::command::Place;
use super::subjects::Page;
use crate::bits::{Bits, LEN};
use crate::schema::sequence::StreamSeq;

/// The text of the panic for a caller that names a message which the index does not hold. Such a caller has a
/// defect.
const HELD: &str = "the caller has found the message";

/// The index of all messages of a stream, by number, which gives the place of each message in the log.
#[derive(Clone, Debug)]
pub(super) struct Index {
    heads: VecDeque<Head>,
    /// The closed blocks, which take no further message, so that a snapshot can share them. Each still has at
    /// least one message.
    blocks: VecDeque<Arc<Block>>,
    /// The open block, which takes new messages and comes after all closed blocks, because its messages have
    /// the highest numbers.
    tail: Block,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    first: StreamSeq,
    live: u32,
}

impl Index {
    pub(super) const fn new() -> Self {
        Self {
            heads: VecDeque::new(),
            blocks: VecDeque::new(),
            tail: Block::new(StreamSeq::ZERO),
        }
    }

    /// Adds a message, which must have a higher number than any message before it, because the blocks lie in
    /// the order of numbers.
    pub(super) fn push(&mut self, seq: StreamSeq, slot: &Slot) {
        if !self.tail.fits(seq, slot.place, slot.time_us) {
            self.close_tail(seq);
        }
        self.tail.push(seq, slot);
    }

    /// Closes the open block, and opens a block that begins with message `first`. Drops the closed block if
    /// it has no messages left, because each closed block must have a message.
    fn close_tail(&mut self, first: StreamSeq) {
        let next = self.tail.successor(first);
        let mut closed = std::mem::replace(&mut self.tail, next);
        let live = closed.live().count() as u32;
        if live > 0 {
            closed.pack();
            self.heads.push_back(Head {
                first: closed.first(),
                live,
            });
            self.blocks.push_back(Arc::new(closed));
        }
    }

    /// Returns the place, among all blocks, of the block that would hold message `seq`. The open block comes
    /// after the closed ones. A binary search over the heads finds a closed block.
    fn block_of(&self, seq: StreamSeq) -> usize {
        if seq >= self.tail.first() {
            return self.blocks.len();
        }
        self.heads
            .partition_point(|head| head.first <= seq)
            .saturating_sub(1)
    }

    fn block(&self, at: usize) -> &Block {
        self.blocks.get(at).map_or(&self.tail, |block| block)
    }

    pub(super) fn get(&self, seq: StreamSeq) -> Option<Slot> {
        let block = self.block(self.block_of(seq));
        block.get(block.bit(seq)?)
    }

    /// Removes a message from the index, which must hold the message. A closed block without messages leaves
    /// the index.
    pub(super) fn remove(&mut self, seq: StreamSeq) {
        let at = self.block_of(seq);
        let Some(block) = self.blocks.get_mut(at) else {
            let bit = self.tail.bit(seq).expect(HELD);
            self.tail.remove(bit);
            return;
        };
        self.heads[at].live -= 1;
        if self.heads[at].live == 0 {
            self.heads.remove(at);
            self.blocks.remove(at);
            return;
        }
        let bit = block.bit(seq).expect(HELD);
        let block = Arc::make_mut(block);
        block.remove(bit);
        // The index does not pack its first block: limits and the age of messages empty this block, so the
        // index soon drops it as a whole.
        if at > 0 && block.is_sparse() {
            block.pack();
        }
    }

    /// Changes the place in the log of a message, because the compaction has moved the message. A read then
    /// finds the message at the new place. The index must hold the message.
    pub(super) fn relocate(&mut self, seq: StreamSeq, place: Place) {
        let at = self.block_of(seq);
        let block = match self.blocks.get_mut(at) {
            Some(block) => Arc::make_mut(block),
            None => &mut self.tail,
        };
        let bit = block.bit(seq).expect(HELD);
        block.relocate(bit, place);
    }

    /// Returns the number of the first message, from number `seq` on, that the index holds, so that a
    /// consumer or a query can skip removed messages.
    pub(super) fn next(&self, seq: StreamSeq) -> Option<StreamSeq> {
        self.find_next(seq, StreamSeq::MAX, |block, from| block.live().next(from))
    }

    /// Returns the number of the first message of `subject` from number `seq` to number `to`. The search
    /// skips blocks without the subject.
    pub(super) fn next_of(&self, subject: u32, seq: StreamSeq, to: StreamSeq) -> Option<StreamSeq> {
        self.find_next(seq, to, |block, from| {
            // A shortcut: callers often start the search at the number of the subject's first message, and
            // then the search ends at once.
            if block.live().has(from) && block.subject(from) == subject {
                return Some(from);
            }
            if !block.may_have(subject) {
                return None;
            }
            next_bit(block, from, |s| s == subject)
        })
    }

    /// Returns the number of the first message from `seq` to `to` with a subject for which `want` returns
    /// true, for a filter with several subjects.
    pub(super) fn next_where(
        &self,
        seq: StreamSeq,
        to: StreamSeq,
        mut want: impl FnMut(u32) -> bool,
    ) -> Option<StreamSeq> {
        self.find_next(seq, to, |block, from| next_bit(block, from, &mut want))
    }

    fn find_next(
        &self,
        seq: StreamSeq,
        to: StreamSeq,
        mut find: impl FnMut(&Block, usize) -> Option<usize>,
    ) -> Option<StreamSeq> {
        for at in self.block_of(seq)..=self.blocks.len() {
            let block = self.block(at);
            if block.first() > to {
                return None;
            }
            let from = seq.saturating_distance(block.first());
            if from < LEN as u64
                && let Some(bit) = find(block, from as usize)
            {
                return Some(block.seq(bit)).filter(|seq| *seq <= to);
            }
        }
        None
    }

    /// Goes on with a search for the first message, from number `seq` to number `to`, that `find` finds in
    /// its block from a bit on. The search looks at a block while `left` is above 0, and each block lowers
    /// `left` by 1; `find` may lower it further. So a search in a large stream spreads over several turns.
    ///
    /// # Errors
    /// The number from which the caller has to go on, because `left` is 0.
    pub(super) fn next_part(
        &self,
        seq: StreamSeq,
        to: StreamSeq,
        left: &mut usize,
        mut find: impl FnMut(&Block, usize, &mut usize) -> Option<usize>,
    ) -> Result<Option<StreamSeq>, StreamSeq> {
        for at in self.block_of(seq)..=self.blocks.len() {
            let block = self.block(at);
            if block.first() > to {
                break;
            }
            if *left == 0 {
                return Err(block.first().max(seq));
            }
            *left -= 1;
            let from = seq.saturating_distance(block.first());
            if from < LEN as u64
                && let Some(bit) = find(block, from as usize, left)
            {
                return Ok(Some(block.seq(bit)).filter(|seq| *seq <= to));
            }
        }
        Ok(None)
    }

    /// Returns the number of the last message that the index holds, for a client that wants the last message
    /// of any subject.
    pub(super) fn last(&self) -> Option<StreamSeq> {
        // Each closed block has a message, so the loop looks at two blocks at most.
        let mut blocks = (0..=self.blocks.len()).rev().map(|at| self.block(at));
        blocks.find_map(|block| block.live().prev(LEN - 1).map(|bit| block.seq(bit)))
    }

    /// Returns the number of the last message of `subject` at number `seq` or below, down to number
    /// `down_to`. The search skips blocks without the subject.
    pub(super) fn prev_of(
        &self,
        subject: u32,
        seq: StreamSeq,
        down_to: StreamSeq,
    ) -> Option<StreamSeq> {
        self.prev_of_within(subject, seq, down_to, &mut 0)
    }

    /// Returns the same as [`Index::prev_of`], and adds the number of blocks that the search looked at to
    /// `looked`, by which the caller bounds its work.
    pub(super) fn prev_of_within(
        &self,
        subject: u32,
        seq: StreamSeq,
        down_to: StreamSeq,
        looked: &mut usize,
    ) -> Option<StreamSeq> {
        for at in (0..=self.block_of(seq)).rev() {
            *looked += 1;
            let block = self.block(at);
            let Some(span) = seq.checked_distance(block.first()) else {
                continue;
            };
            let to = (span as usize).min(LEN - 1);
            if block.live().has(to) && block.subject(to) == subject {
                return Some(block.seq(to)).filter(|seq| *seq >= down_to);
            }
            if block.may_have(subject) {
                let mut bit = block.live().prev(to);
                while let Some(b) = bit {
                    if block.subject(b) == subject {
                        return Some(block.seq(b)).filter(|seq| *seq >= down_to);
                    }
                    bit = b.checked_sub(1).and_then(|b| block.live().prev(b));
                }
            }
            if block.first() <= down_to {
                return None;
            }
        }
        None
    }

    /// Removes the messages numbered `from` to `to` for which `want` returns true, and returns them for the
    /// report of the command; `want` gets the number of the message and the number of its subject.
    pub(super) fn remove_where(
        &mut self,
        from: StreamSeq,
        to: StreamSeq,
        mut want: impl FnMut(StreamSeq, u32) -> bool,
    ) -> Bulk {
        self.remove_masked(from, to, |block, range| {
            (block.mask_where(range, &mut want), None)
        })
    }

    /// Removes the messages numbered `from` to `to`, and returns them for the report of the command.
    pub(super) fn remove_range(&mut self, from: StreamSeq, to: StreamSeq) -> Bulk {
        self.remove_masked(from, to, |block, range| {
            (block.live().within(range.start, range.end), None)
        })
    }

    /// Removes messages from the blocks that may hold messages numbered `from` to `to`, and returns these
    /// messages. For each block, `mask` chooses the messages in a range of bits, and may return a prepared
    /// copy of the block without them, which saves time.
    pub(super) fn remove_masked(
        &mut self,
        from: StreamSeq,
        to: StreamSeq,
        mut mask: impl FnMut(&Block, Range<usize>) -> (Bits, Option<Arc<Block>>),
    ) -> Bulk {
        let mut bulk = Bulk::default();
        let mut mask = |block: &Block| {
            let bit =
                |seq: StreamSeq| seq.saturating_distance(block.first()).min(LEN as u64) as usize;
            mask(block, bit(from)..bit(to.saturating_next()))
        };
        let (low, high) = (self.block_of(from), self.block_of(to));
        let mut emptied = false;
        for at in low..(high + 1).min(self.blocks.len()) {
            let (mask, rest) = mask(&self.blocks[at]);
            let gone = mask.count() as u32;
            if gone == 0 {
                continue;
            }
            self.heads[at].live -= gone;
            let old = if self.heads[at].live == 0 {
                emptied = true;
                Arc::clone(&self.blocks[at])
            } else {
                let rest = rest.unwrap_or_else(|| Arc::new(self.blocks[at].without(&mask)));
                std::mem::replace(&mut self.blocks[at], rest)
            };
            bulk.blocks.push((old, mask));
        }
        if emptied {
            let heads = &self.heads;
            let mut live = heads.iter().map(|head| head.live > 0);
            self.blocks.retain(|_| live.next() == Some(true));
            self.heads.retain(|head| head.live > 0);
        }
        if to >= self.tail.first() {
            let (mask, _) = mask(&self.tail);
            if mask != Bits::default() {
                bulk.blocks.push((Arc::new(self.tail.clone()), mask));
                mask.iter().for_each(|bit| self.tail.remove(bit));
            }
        }
        bulk
    }

    /// Removes all messages from the index, and returns them without a copy of any closed block.
    pub(super) fn remove_all(&mut self) -> Bulk {
        let mut old = std::mem::replace(self, Self::new());
        if old.tail.live().count() > 0 {
            old.blocks.push_back(Arc::new(old.tail));
        }
        let all = |block: Arc<Block>| {
            let mask = *block.live();
            (block, mask)
        };
        Bulk {
            blocks: old.blocks.into_iter().map(all).collect(),
            names: Vec::new(),
        }
    }

    /// Returns the number of closed blocks in the index, by which a snapshot estimates the work that the
    /// stream costs.
    pub(super) fn blocks_len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the closed blocks and the open block for a snapshot, which shares the closed blocks with the
    /// index, so that it copies only the open block.
    pub(super) fn shared(&self) -> (VecDeque<Arc<Block>>, Block) {
        (self.blocks.clone(), self.tail.clone())
    }

    /// Restores an index from the closed blocks and the open block of a snapshot, when a node starts or gets
    /// a snapshot of the leader.
    pub(super) fn restored(blocks: VecDeque<Arc<Block>>, tail: Block) -> Self {
        let head = |block: &Arc<Block>| Head {
            first: block.first(),
            live: block.live().count() as u32,
        };
        Self {
            heads: blocks.iter().map(head).collect(),
            blocks,
            tail,
        }
    }

    /// Counts the messages that the index holds from number `seq` on. The heads of the blocks have the
    /// counts, so that the index reads only one block.
    pub(super) fn count_from(&self, seq: StreamSeq) -> u64 {
        let at = self.block_of(seq);
        let block = self.block(at);
        let from = seq.saturating_distance(block.first()).min(LEN as u64) as usize;
        let here = block.live().count() - block.live().rank(from);
        let behind: u64 = self
            .heads
            .iter()
            .skip(at + 1)
            .map(|h| u64::from(h.live))
            .sum();
        let tail = if at < self.blocks.len() {
            self.tail.live().count()
        } else {
            0
        };
        (here + tail) as u64 + behind
    }

    /// Returns the number of the first message that the stream stored at `time_us` or later, in microseconds
    /// since 1970. A consumer that starts at a time begins at this message.
    pub(super) fn at_time(&self, time_us: u64) -> Option<StreamSeq> {
        // The times of messages never fall with rising numbers. So the wanted message is in the last block
        // that begins before `time_us`, or is the first message of the next block. The binary search uses
        // this order.
        let behind = self.blocks.partition_point(|b| b.time_base() < time_us);
        for at in behind.saturating_sub(1)..=self.blocks.len() {
            let block = self.block(at);
            let found = block.live().iter().find(|b| block.time_us(*b) >= time_us);
            if let Some(bit) = found {
                return Some(block.seq(bit));
            }
        }
        None
    }

    /// Returns the first closed block that begins at number `seq` or above. A node that prepares a purge
    /// visits the blocks so, in parts.
    pub(super) fn closed_from(&self, seq: StreamSeq) -> Option<&Arc<Block>> {
        let at = self.heads.partition_point(|head| head.first < seq);
        self.blocks.get(at)
    }

    /// Iterates over the blocks that may hold messages at number `seq` or above, in order. A binary search
    /// finds the first one.
    pub(super) fn blocks_from(&self, seq: StreamSeq) -> impl Iterator<Item = &Block> {
        (self.block_of(seq)..=self.blocks.len()).map(|at| self.block(at))
    }

    /// Returns the size of the stream's index in memory, in bytes, for the stream's report of the memory that
    /// it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|b| b.memory_bytes() + 16).sum();
        blocks
            + self.tail.memory_bytes()
            + self.heads.capacity() * size_of::<Head>()
            + self.blocks.capacity() * size_of::<usize>()
    }

    pub(super) fn check_invariants(&self) {
        assert_eq!(self.heads.len(), self.blocks.len());
        let mut behind = StreamSeq::ZERO;
        for (head, block) in self.heads.iter().zip(&self.blocks) {
            block.check_invariants();
            assert_eq!(head.first, block.first());
            assert_eq!(head.live as usize, block.live().count());
            assert!(head.live > 0, "a closed block without messages");
            assert!(head.first >= behind, "blocks overlap");
            behind = block
                .live()
                .iter()
                .last()
                .map_or(StreamSeq::ZERO, |b| block.seq(b).next());
        }
        assert!(self.tail.first() >= behind || self.tail.is_unused());
        self.tail.check_invariants();
    }
}

/// The messages that one command removed from a stream together, with their places in the log and their
/// sizes, so that the node frees their space in the log.
#[derive(Clone, Debug, Default)]
pub struct Bulk {
    blocks: Vec<(Arc<Block>, Bits)>,
    /// The names of the messages' subjects, if the command removed all messages of the stream. Freeing a
    /// million names at once takes too long, so the caller frees the names in parts.
    names: Vec<Arc<Page>>,
}

impl Bulk {
    /// Iterates over the removed messages by number, each with its place in the log and its size in bytes, so
    /// that the node frees the message's space in the log.
    pub fn iter(&self) -> impl Iterator<Item = (StreamSeq, Place, u32)> {
        let slots = self.slots();
        slots.map(|(seq, slot)| (seq, slot.place, slot.bytes))
    }

    /// Adds the names of the subjects to the removed messages, so that the caller frees them together with
    /// the messages.
    pub(super) fn with_names(mut self, names: Vec<Arc<Page>>) -> Self {
        self.names = names;
        self
    }

    /// Takes the next part of the removed messages: at most 256 messages or, after all messages, the names of
    /// at most 256 subjects. So the caller can spread the work on millions of messages over many turns.
    pub fn take_part(&mut self) -> Option<Self> {
        let mut part = Self::default();
        match (self.blocks.pop(), self.names.pop()) {
            (None, None) => return None,
            (None, Some(page)) => part.names.push(page),
            (Some(block), page) => {
                part.blocks.push(block);
                self.names.extend(page);
            }
        }
        Some(part)
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = (StreamSeq, Slot)> {
        self.blocks.iter().flat_map(|(block, mask)| {
            let slot = |bit| Some((block.seq(bit), block.get(bit)?));
            mask.iter().filter_map(slot)
        })
    }

    /// Calls `each` with the number, the size in bytes, the flags, and the number of the subject of each
    /// removed message, in rising order. The content subtracts each of them from its totals.
    pub(super) fn for_each(&self, mut each: impl FnMut(StreamSeq, u32, Flags, u32)) {
        for (block, mask) in &self.blocks {
            block.for_each(mask, &mut each);
        }
    }

    /// Returns whether the command removed all messages of the stream together, without a look at each of
    /// them.
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns the highest number of a removed message, so that consumers beyond it need not look at their
    /// messages again; `None` if the list is empty. The caller asks before it takes parts.
    #[must_use]
    pub fn last(&self) -> Option<StreamSeq> {
        let (block, mask) = self.blocks.last()?;
        Some(block.seq(mask.prev(LEN - 1)?))
    }

    /// Returns the number of removed messages in this collection, which a purge reports to the client.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks
            .iter()
            .map(|(_, mask)| mask.count() as u64)
            .sum()
    }

    /// Returns whether this list of removed messages is empty. The stream then reports no removal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

fn next_bit(block: &Block, from: usize, mut want: impl FnMut(u32) -> bool) -> Option<usize> {
    let mut all = block.subjects_from(from);
    all.find(|(_, subject)| want(*subject)).map(|(bit, _)| bit)
}
