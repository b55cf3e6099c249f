//! The memory of the queue, and all of its `unsafe` code: the ring, and the buffers that producers fill. No
//! other module may use `unsafe`.
//!
//! This file holds the state that both sides of the ring share. `claim` is the producers' side,
//! `reader` the consumer's; a producer gathers items in a `buffer`, under its `lock`; `slots` is
//! the memory of ring and buffers.
//!
//! # The ring
//!
//! Positions only increase; position `p` lives in slot `p & mask`. A producer *claims* `n` positions by one
//! compare-exchange of `tail`, moves its items in, and publishes the whole claim by one store: the *stamp* of
//! its first slot becomes the position after its last.
//!
//! ```text
//! position      8     9    10    11    12    13
//! stamp        11     .     .    12    14     .      three claims: 8..11, 11..12, 12..14
//! ```
//!
//! The consumer's [`Reader`] stands at a claim's first position, or inside a claim it knows. A stamp above
//! the position of its slot marks a published claim; a stamp at or below it is left over from an earlier lap:
//! a claim is at most `capacity <= slots` long, so a stamp of one lap ago is at most the present position.
//! The ring never resets stamps.
//!
//! # Marks
//!
//! Before it sleeps, a thread leaves a mark in the word that the other side must change to serve it: the
//! consumer marks `tail`, a producer that found no room marks `head`. Both words change only by
//! read-modify-write, so the other side cannot overlook the mark, and looking for it costs nothing: a marked
//! `tail` reads as too large to have room, and leads into the slow path, which finds the mark. The same goes
//! for the mark that says the queue is closed.
//!
//! # Lines fetched ahead
//!
//! The consumer read the slots that a producer writes next a lap ago, so their cache lines are in the
//! consumer's core; and a claim, being a locked instruction, waits until every store before it is done. So a
//! producer that publishes a claim prefetches the lines of the next claims, if there is room: between distant
//! cores that makes small claims two to three times as fast.
//!
//! # Invariants
//!
//! - `head <= tail <= head + capacity`, marks aside. Positions never wrap (62 bits).
//! - A slot in `head..tail` is written only by the claim that covers it, then read once by the reader.
//! - No code of the caller runs between a claim and its publication, so a claim is always published.
//! - There is one [`Reader`] a ring and one [`Writer`] a buffer; a thread that takes items out of a buffer
//!   holds the buffer's lock.

#![allow(unsafe_code)]

mod buffer;
mod claim;
mod lock;
mod reader;
mod slots;

use std::sync::atomic::{AtomicU64 as Ids, AtomicUsize as LineLen};

use super::sync::{Acquire, AtomicU64, Padded, Relaxed, Release, SeqCst};
pub(super) use buffer::{Buffer, Writer};
pub(super) use claim::Claim;
pub(super) use reader::Reader;
use slots::Slots;

const CLOSED: u64 = 1 << 63;
const WAITING: u64 = 1 << 62;
const POSITION: u64 = WAITING - 1;

/// The reasons why a claim was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// No slot is free.
    Full,
    /// The queue is closed.
    Closed,
}

/// The ring. Producers share it by reference; the consumer reads it only through the one [`Reader`].
pub(super) struct Ring<T> {
    tail: Padded<Tail>,
    head: Padded<AtomicU64>,
    /// The number of producers that wait in line for room. It is only a hint: no wake-up rests on it, so it
    /// does not use loom's type.
    line: LineLen,
    capacity: u64,
    id: u64,
    stamps: Box<[AtomicU64]>,
    slots: Slots<T>,
}

struct Tail {
    /// The next position to claim, and the marks `CLOSED` and `WAITING`.
    at: AtomicU64,
    /// A past value of `head`. Claims may trust it because it is at most `head`, so they do not read the
    /// consumer's cache line while there is room. It lies on this cache line because a claim owns the line
    /// anyway. While producers wait in line for room, claims do not advance it.
    head_seen: AtomicU64,
}

// SAFETY: a slot is written only under the claim that covers it and read only by the reader after that
// claim's stamp (Release/Acquire); it is claimed again only after `head` passed it (Release/Acquire). Items
// move between threads: `Send`.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: the ring owns its items, so it may move to another thread if they may.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// Makes a ring with room for exactly `capacity` items, and the ring's one reader. The ring's memory is
    /// rounded up to a power of two.
    pub(super) fn new(capacity: usize) -> (Self, Reader) {
        assert!(capacity > 0 && (capacity as u64) < POSITION / 4);
        static IDS: Ids = Ids::new(0);
        let id = IDS.fetch_add(1, Relaxed);
        let slots = capacity.next_power_of_two();
        let ring = Self {
            tail: Padded(Tail {
                at: AtomicU64::new(0),
                head_seen: AtomicU64::new(0),
            }),
            head: Padded(AtomicU64::new(0)),
            line: LineLen::new(0),
            capacity: capacity as u64,
            id,
            stamps: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            slots: Slots::new(slots),
        };
        (ring, Reader::new(id))
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the position of the next claim: the number of items ever claimed.
    pub(super) fn claimed(&self) -> u64 {
        self.tail.at.load(Acquire) & POSITION
    }

    /// Returns the number of items ever taken out, as the reader published it.
    pub(super) fn taken(&self) -> u64 {
        self.head.load(Acquire) & POSITION
    }

    /// Returns whether a claim would find room if no producer waited in line.
    pub(super) fn has_room(&self) -> bool {
        self.free() > 0
    }

    /// Returns how many slots are free, whether open to claims or not.
    pub(super) fn free(&self) -> u64 {
        let claimed = self.claimed();
        (self.taken() + self.capacity).saturating_sub(claimed)
    }

    /// Opens up to `most` free slots to claims. Returns whether a claim would find room or the end of the
    /// queue.
    ///
    /// The call sets the past value of `head` that claims trust to at most the present `head`: see [`Tail`].
    pub(super) fn open(&self, most: u64) -> bool {
        let tail = self.tail.at.load(Acquire);
        if tail & CLOSED != 0 {
            return true;
        }
        let at = tail & POSITION;
        let head = self.head.load(Acquire) & POSITION;
        // `at` may be older than `head`: fewer slots are open then.
        let free = (head + self.capacity).saturating_sub(at);
        let end = at + free.min(most);
        self.tail
            .head_seen
            .store(end.saturating_sub(self.capacity), Release);
        free > 0
    }

    /// Returns whether producers wait in line for room. While they do, claims find only room that was
    /// [opened](Self::open).
    pub(super) fn has_line(&self) -> bool {
        self.line.load(Relaxed) > 0
    }

    pub(super) fn line_grew(&self) {
        self.line.fetch_add(1, Relaxed);
    }

    pub(super) fn line_shrank(&self, waiters: usize) {
        self.line.fetch_sub(waiters, Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.tail.at.load(Acquire) & CLOSED != 0
    }

    /// Returns whether the consumer's mark is set.
    pub(super) fn consumer_waits(&self) -> bool {
        self.tail.at.load(Acquire) & WAITING != 0
    }

    /// Refuses every later claim. Returns whether the consumer waits.
    pub(super) fn close(&self) -> bool {
        self.tail.at.fetch_or(CLOSED, SeqCst) & WAITING != 0
    }

    /// Leaves the mark of a producer that wants room: the next publication of the reader reports it.
    pub(super) fn mark_room_wanted(&self) {
        self.head.fetch_or(WAITING, SeqCst);
    }

    #[inline(always)]
    fn stamp(&self, at: u64) -> &AtomicU64 {
        // The mask is computed again from the length, so that the compiler sees that the index is in bounds.
        &self.stamps[at as usize & (self.stamps.len() - 1)]
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // No thread pushes or reads any more: every claim is published.
        let tail = self.tail.at.load(Acquire) & POSITION;
        let head = self.head.load(Acquire) & POSITION;
        for at in head..tail {
            // SAFETY: the item is published and was never read, and this thread has the ring to itself.
            drop(unsafe { self.slots.read(at) });
        }
    }
}
