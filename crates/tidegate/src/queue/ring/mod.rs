//! The memory of the queue, and all of its `unsafe` code: the ring, and the buffers that producers fill. No
//! other module may use `unsafe`.
//!
//! This file holds the state that both sides of the ring share. The module `claim` is the producers' side
//! of the ring, and `reader` the consumer's side. A producer gathers items in a `buffer`, under the `lock`
//! of that buffer. The module `slots` is the memory of ring and buffers.
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
//! The consumer's [`Reader`] stands at the first position of a claim, or inside a claim that it has already
//! found published. A stamp above the position of its slot marks a published claim; a stamp at or below it
//! is left over from an earlier lap: a claim is at most `capacity <= slots` long, so a stamp of one lap ago
//! is at most the present position. The ring never resets stamps.
//!
//! # Marks
//!
//! Before it sleeps, a thread leaves a mark in the word that the other side must change to serve it: the
//! consumer marks `tail`, a producer that found no room marks `head`. Both words change only by
//! read-modify-write, so the other side cannot overlook the mark. A claim needs no extra check for marks: a
//! marked `tail` reads as too large to have room, and leads into the slow path, which finds the mark. The
//! mark of a closed queue also lies in `tail` and works in the same way.
//!
//! # Lines fetched ahead
//!
//! The slots that a producer writes next were read by the consumer one lap ago, so their cache lines are in
//! the consumer's core. A claim is a locked instruction, and waits until every earlier store is done. So a
//! producer that publishes a claim prefetches the lines of the next claims, if there is room. Between
//! distant cores, the prefetch makes small claims two to three times as fast.
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

/// The reasons why the ring refused a producer's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The ring has no free slot.
    Full,
    /// The queue is closed.
    Closed,
}

/// The ring of a queue. Producers share it by reference; the consumer reads it only through the one
/// [`Reader`].
pub(super) struct Ring<T> {
    tail: Padded<Tail>,
    head: Padded<AtomicU64>,
    /// The number of producers that wait in line for room. The number is only a hint, and no wake-up
    /// depends on it, so it has std's type even in a build for loom.
    line: LineLen,
    capacity: u64,
    id: u64,
    stamps: Box<[AtomicU64]>,
    slots: Slots<T>,
}

struct Tail {
    /// The next position to claim, with the marks `CLOSED` and `WAITING` in its upper bits.
    at: AtomicU64,
    /// A past value of `head`. A claim may trust it, because it is at most `head`; so a claim does not read
    /// the consumer's cache line while there is room. `head_seen` lies on this cache line, because a claim
    /// owns the line anyway. While producers wait in line for room, claims do not advance `head_seen`.
    head_seen: AtomicU64,
}

// SAFETY: only the claim that covers a slot writes it, and only the reader reads it, after the stamp of
// that claim (Release/Acquire). The slot is claimed again only after `head` passed it (Release/Acquire).
// Items move between threads, so `T` is `Send`.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: the ring owns its items, so it may move to another thread if the items may.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// Makes a ring with room for exactly `capacity` items, and the one reader of the ring. The memory of
    /// the ring has room for the next power of two.
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

    /// Returns the position of the next claim, which is the number of items ever claimed in the ring.
    pub(super) fn claimed(&self) -> u64 {
        self.tail.at.load(Acquire) & POSITION
    }

    /// Returns the number of items that the reader has taken out of the ring and published as taken.
    pub(super) fn taken(&self) -> u64 {
        self.head.load(Acquire) & POSITION
    }

    /// Returns whether the ring has a free slot for an item, even if the slot belongs to producers that wait
    /// in line.
    pub(super) fn has_room(&self) -> bool {
        self.free() > 0
    }

    /// Returns the number of free slots of the ring, including those that belong to producers that wait in
    /// line.
    pub(super) fn free(&self) -> u64 {
        let claimed = self.claimed();
        (self.taken() + self.capacity).saturating_sub(claimed)
    }

    /// Opens up to `most` free slots to claims, while producers wait in line. Returns whether a claim would
    /// find room or a closed queue.
    ///
    /// The call sets `head_seen`, the past value of `head` that claims trust, to at most the present
    /// `head`: see [`Tail`].
    pub(super) fn open(&self, most: u64) -> bool {
        let tail = self.tail.at.load(Acquire);
        if tail & CLOSED != 0 {
            return true;
        }
        let at = tail & POSITION;
        let head = self.head.load(Acquire) & POSITION;
        // `at`, read first, may be older than `head`. Then `end` is too small, and fewer slots are open than
        // the ring has free.
        let free = (head + self.capacity).saturating_sub(at);
        let end = at + free.min(most);
        self.tail
            .head_seen
            .store(end.saturating_sub(self.capacity), Release);
        free > 0
    }

    /// Returns whether producers wait in line for room. Meanwhile claims find only the slots that
    /// [`open`](Self::open) opened.
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

    /// Returns whether the consumer's mark is set, because the consumer sleeps or is about to sleep.
    pub(super) fn consumer_waits(&self) -> bool {
        self.tail.at.load(Acquire) & WAITING != 0
    }

    /// Closes the ring: it refuses every later claim. Returns whether the consumer's mark is set.
    pub(super) fn close(&self) -> bool {
        self.tail.at.fetch_or(CLOSED, SeqCst) & WAITING != 0
    }

    /// Leaves the mark of a producer that waits for room. The reader finds the mark when it next frees slots,
    /// and the consumer then calls producers.
    pub(super) fn mark_room_wanted(&self) {
        self.head.fetch_or(WAITING, SeqCst);
    }

    #[inline(always)]
    fn stamp(&self, at: u64) -> &AtomicU64 {
        // The mask is computed from the length each time, so that the compiler sees that the index is in
        // bounds.
        &self.stamps[at as usize & (self.stamps.len() - 1)]
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // No other thread pushes or reads while the ring drops, so every claim is published. The ring drops
        // the items that the consumer has not read.
        let tail = self.tail.at.load(Acquire) & POSITION;
        let head = self.head.load(Acquire) & POSITION;
        for at in head..tail {
            // SAFETY: the item is published and was never read, and this thread has the ring to itself.
            drop(unsafe { self.slots.read(at) });
        }
    }
}
