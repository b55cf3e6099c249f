//! The memory of the queue, and all of its `unsafe`: the ring, and the buffers producers fill. It is one long file because
//! nowhere else is any allowed.
//!
//! # The ring
//!
//! Positions count up for ever; position `p` lives in slot `p & mask`. A producer *claims* `n` positions by one
//! compare-exchange of `tail`, moves its items in, and publishes the whole claim by one store: the *stamp* of its first
//! slot becomes the position after its last.
//!
//! ```text
//! position      8     9    10    11    12    13
//! stamp        11     .     .    12    14     .      three claims: 8..11, 11..12, 12..14
//! ```
//!
//! The consumer's [`Reader`] stands at a claim's first position, or inside a claim it knows. A stamp above the position
//! it is read at is a published claim; one at most that is left over from an earlier lap: a claim is at most
//! `capacity <= slots` long, so a stamp of one lap ago is at most the present position. Stamps are never reset.
//!
//! # Marks
//!
//! Whoever is going to sleep leaves a mark in the word that the other side must change to be of any use to it: the
//! consumer in `tail`, a producer that found no room in `head`. Both words change only by read-modify-write, so the mark
//! cannot be overlooked, and looking for it costs nothing: a marked `tail` is merely too large to have room, and leads
//! into the slow path that finds out why. The same goes for the mark that says the queue is closed.
//!
//! # Lines fetched ahead
//!
//! What a producer writes next the consumer read a lap ago, so its lines are in the other core's cache; and a claim, being a
//! locked instruction, waits until every store before it is done. So whoever publishes a claim asks for the lines of claims to
//! come, where there is room: with distant cores that makes small claims two to three times as fast.
//!
//! # Invariants
//!
//! - `head <= tail <= head + capacity`, marks aside. Positions never wrap (62 bits).
//! - A slot in `head..tail` is written by the claim that covers it and by nobody else, then read once by the reader.
//! - Nothing of the caller's runs between a claim and its publication, so a claim is always published.
//! - There is one [`Reader`] a ring and one [`Writer`] a buffer; whoever takes items out of a buffer holds its lock.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::AtomicU64 as Ids;

use super::sync::{AcqRel, Acquire, Arc, AtomicU64, Padded, Relaxed, Release, SeqCst};
use crate::controller::Counts;

const CLOSED: u64 = 1 << 63;
const WAITING: u64 = 1 << 62;
const POSITION: u64 = WAITING - 1;

/// How far ahead of its claims, in items, a producer fetches lines.
const AHEAD: u64 = 32;
/// How much of the next claim it fetches at most, in items: more would not fit between two claims.
const AHEAD_MOST: u64 = 128;

/// Why a claim was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// No slot is free.
    Full,
    /// The queue takes nothing any more.
    Closed,
}

/// The ring. Producers share it by reference; what the consumer may do it does through the one [`Reader`].
pub(super) struct Ring<T> {
    tail: Padded<Tail>,
    head: Padded<AtomicU64>,
    capacity: u64,
    id: u64,
    stamps: Box<[AtomicU64]>,
    slots: Slots<T>,
}

struct Tail {
    /// The next position to claim, and the marks `CLOSED` and `WAITING`.
    at: AtomicU64,
    /// A past value of `head`: never ahead of it, so believing it is safe, and the consumer's line stays unread while
    /// there is room. It lives on this line because whoever claims owns the line anyway.
    head_seen: AtomicU64,
}

// SAFETY: a slot is written only under the claim that covers it and read only by the reader after that claim's stamp
// (Release/Acquire); it is claimed again only after `head` passed it (Release/Acquire). Items move between threads: `Send`.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: it owns its items.
unsafe impl<T: Send> Send for Ring<T> {}

/// A claim, and what it took in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    at: u64,
    /// Items moved: at least one.
    pub(super) items: u64,
    /// The consumer had marked itself as waiting: wake it.
    pub(super) wake: bool,
    /// Positions below it are known to be free.
    room_end: u64,
}

impl<T> Ring<T> {
    /// A ring with room for exactly `capacity` items, and its one reader. Its memory is rounded up to a power of two.
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
            capacity: capacity as u64,
            id,
            stamps: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            slots: Slots::new(slots),
        };
        let reader = Reader {
            ring: id,
            head: 0,
            freed: 0,
            known: 0,
        };
        (ring, reader)
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The position the next claim will get: how many items were ever claimed.
    pub(super) fn claimed(&self) -> u64 {
        self.tail.at.load(Acquire) & POSITION
    }

    /// How many items were ever taken out, as published.
    pub(super) fn taken(&self) -> u64 {
        self.head.load(Acquire) & POSITION
    }

    /// Whether a claim would find room.
    pub(super) fn has_room(&self) -> bool {
        self.claimed() < self.taken() + self.capacity
    }

    pub(super) fn is_closed(&self) -> bool {
        self.tail.at.load(Acquire) & CLOSED != 0
    }

    /// Whether the consumer's mark is set.
    pub(super) fn consumer_waits(&self) -> bool {
        self.tail.at.load(Acquire) & WAITING != 0
    }

    /// Refuses every later claim. Says whether the consumer waits.
    pub(super) fn close(&self) -> bool {
        self.tail.at.fetch_or(CLOSED, SeqCst) & WAITING != 0
    }

    /// Leaves the mark of a producer that wants room: the next publication of the reader reports it.
    pub(super) fn mark_room_wanted(&self) {
        self.head.fetch_or(WAITING, SeqCst);
    }

    /// Takes `item` in.
    #[inline(always)]
    pub(super) fn push(&self, item: T) -> Result<bool, (T, Refused)> {
        match self.claim(1) {
            Ok(claim) => {
                // SAFETY: the claim makes this slot ours until it is published.
                unsafe { self.slots.write(claim.at, item) };
                self.publish(&claim);
                Ok(claim.wake)
            }
            Err(refused) => Err((item, refused)),
        }
    }

    /// Moves in as many items from the front of `items` as there is room for; the rest stays, in order.
    #[inline]
    pub(super) fn push_front_of(&self, items: &mut Vec<T>) -> Result<Claim, Refused> {
        let len = items.len();
        debug_assert!(len > 0);
        // Of items without a size there may be more than there are positions.
        let claim = self.claim((len as u64).min(self.capacity))?;
        let moved = claim.items as usize;
        // SAFETY: the claim makes these slots ours. The items are moved: the length is set before anything could see
        // them twice, and what stays is moved to the front.
        unsafe {
            items.set_len(0);
            let from = items.as_mut_ptr();
            self.slots.fill(claim.at, from, moved);
            if moved < len {
                ptr::copy(from.add(moved), from, len - moved);
                items.set_len(len - moved);
            }
        }
        self.publish(&claim);
        Ok(claim)
    }

    /// Copies as many items from the front of `items` as there is room for.
    #[inline]
    pub(super) fn push_copies(&self, items: &[T]) -> Result<Claim, Refused>
    where
        T: Copy,
    {
        debug_assert!(!items.is_empty());
        let claim = self.claim(items.len() as u64)?;
        // SAFETY: the claim makes these slots ours, and is at most as long as `items`; copies need no care.
        unsafe {
            self.slots
                .fill(claim.at, items.as_ptr(), claim.items as usize);
        }
        self.publish(&claim);
        Ok(claim)
    }

    /// Claims up to `want` positions, at least one.
    #[inline(always)]
    fn claim(&self, want: u64) -> Result<Claim, Refused> {
        let mut tail = self.tail.at.load(Relaxed);
        loop {
            // Acquire: whoever stored it saw the consumer leave these slots, and now so do we.
            let mut room_end = self.tail.head_seen.load(Acquire) + self.capacity;
            let (mut at, mut items) = (tail, want);
            if tail + want > room_end {
                (at, items, room_end) = self.look_again(tail, want)?;
            }
            // AcqRel: taking the consumer's mark away comes after its leaving a waker.
            match self
                .tail
                .at
                .compare_exchange_weak(tail, at + items, AcqRel, Relaxed)
            {
                Ok(_) => {
                    let wake = tail & WAITING != 0;
                    return Ok(Claim {
                        at,
                        items,
                        wake,
                        room_end,
                    });
                }
                Err(now) => tail = now,
            }
        }
    }

    /// There seems to be no room, or `tail` is marked: what is true?
    #[cold]
    fn look_again(&self, tail: u64, want: u64) -> Result<(u64, u64, u64), Refused> {
        if tail & CLOSED != 0 {
            return Err(Refused::Closed);
        }
        let at = tail & POSITION;
        // Acquire: the reader's reads of the slots before `head` come before our writes to them.
        let head = self.head.load(Acquire) & POSITION;
        self.tail.head_seen.store(head, Release);
        // `tail` may be older than `head`; the exchange will then fail.
        let room = (head + self.capacity).saturating_sub(at);
        match room.min(want) {
            0 => Err(Refused::Full),
            items => Ok((at, items, head + self.capacity)),
        }
    }

    #[inline(always)]
    fn publish(&self, claim: &Claim) {
        let end = claim.at + claim.items;
        self.stamp(claim.at).store(end, Release);
        // Only lines the consumer is done with: those it still has to read it would have to fetch back.
        let ahead = end + AHEAD;
        if ahead + claim.items <= claim.room_end {
            fetch_to_write(self.stamp(ahead));
            fetch_to_write(self.slots.place(ahead));
            if claim.items > AHEAD {
                self.fetch_for(end, claim.items);
            }
        }
    }

    /// Asks for the lines of the next claim, if it is like the last.
    #[inline]
    fn fetch_for(&self, at: u64, items: u64) {
        let line = (64 / size_of::<T>().max(1)).max(1);
        fetch_to_write(self.stamp(at));
        for at in (at..at + items.min(AHEAD_MOST)).step_by(line) {
            fetch_to_write(self.slots.place(at));
        }
    }

    #[inline(always)]
    fn stamp(&self, at: u64) -> &AtomicU64 {
        // The mask is recomputed from the length, so that the compiler sees the index is in bounds.
        &self.stamps[at as usize & (self.stamps.len() - 1)]
    }
}

/// Asks for the line of `place`, to be written soon.
#[inline(always)]
fn fetch_to_write<P>(place: *const P) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: the instruction only gives a hint, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    let _ = place;
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Nobody pushes and nobody reads: everything claimed is published.
        let tail = self.tail.at.load(Acquire) & POSITION;
        let head = self.head.load(Acquire) & POSITION;
        for at in head..tail {
            // SAFETY: published, never read, and we have the ring to ourselves.
            drop(unsafe { self.slots.read(at) });
        }
    }
}

/// The reading end of one ring: a position, not a reference, so that it can live wherever the consumer's rights do.
pub(super) struct Reader {
    /// The ring it belongs to.
    ring: u64,
    /// The next position to read.
    head: u64,
    /// What was published of `head`.
    freed: u64,
    /// The end of the claims known to be published: at least `head`.
    known: u64,
}

impl Reader {
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// Whether an item can be read.
    #[inline]
    pub(super) fn ready<T>(&mut self, ring: &Ring<T>) -> bool {
        self.check(ring);
        if self.head == self.known {
            let end = ring.stamp(self.known).load(Acquire);
            self.known = self.known.max(end);
        }
        self.head < self.known
    }

    /// Hands up to `limit` items to `each`, and none at or after the position `stop` names after the last look at the
    /// ring. Should `each` panic, the items it had not seen remain.
    #[inline]
    pub(super) fn each<T>(
        &mut self,
        ring: &Ring<T>,
        limit: u64,
        stop: impl Fn() -> u64,
        mut each: impl FnMut(T),
    ) -> u64 {
        self.check(ring);
        let first = self.head;
        let last = first.saturating_add(limit);
        let mut at = At {
            head: first,
            known: self.known,
            reader: self,
        };
        while at.head < last {
            if at.head == at.known {
                let end = ring.stamp(at.head).load(Acquire);
                if end <= at.head {
                    break;
                }
                at.known = end;
            }
            let end = at.known.min(last).min(stop());
            if end <= at.head {
                break;
            }
            while at.head < end {
                let (run, _) = ring.slots.run(at.head, (end - at.head) as usize);
                for slot in run {
                    // SAFETY: below `known`, so published (Acquire) and not read yet; counted as read before it is handed out.
                    let item = unsafe { taken_from(slot) };
                    at.head += 1;
                    each(item);
                }
            }
        }
        drop(at);
        self.head - first
    }

    /// Moves up to `limit` items, in order, to the end of `out`, stopping as [`Reader::each`] does.
    #[inline]
    pub(super) fn append<T>(
        &mut self,
        ring: &Ring<T>,
        limit: u64,
        stop: impl Fn() -> u64,
        out: &mut Vec<T>,
    ) -> u64 {
        let first = self.head;
        let last = first.saturating_add(limit);
        while self.head < last && self.ready(ring) {
            let end = self.known.min(last).min(stop());
            if end <= self.head {
                break;
            }
            let n = (end - self.head) as usize;
            out.reserve(n);
            // SAFETY: below `known`, so published (Acquire) and not read yet; there is room for `n` behind `out`'s items,
            // and its length grows only when they are there.
            unsafe {
                ring.slots
                    .take(self.head, out.as_mut_ptr().add(out.len()), n);
                out.set_len(out.len() + n);
            }
            self.head = end;
        }
        self.head - first
    }

    /// Gives the slots read since the last call back to the producers. `Some(slots)` if a producer wants room.
    #[inline]
    pub(super) fn publish<T>(&mut self, ring: &Ring<T>) -> Option<u64> {
        self.check(ring);
        let freed = self.head - self.freed;
        if freed == 0 {
            return None;
        }
        self.freed = self.head;
        // Release: our reads come before a producer's next writes. Acquire: its mark comes after its leaving a waker.
        let before = ring.head.swap(self.head, AcqRel);
        (before & WAITING != 0).then_some(freed)
    }

    /// Leaves the consumer's mark, if nothing at all is claimed: the next claim reports it. False if something is claimed
    /// (and will be published in a moment), or the ring is closed.
    pub(super) fn mark_waiting<T>(&self, ring: &Ring<T>) -> bool {
        self.check(ring);
        ring.tail
            .at
            .compare_exchange(self.head, self.head | WAITING, SeqCst, Relaxed)
            .is_ok()
            || ring.tail.at.load(Relaxed) == self.head | WAITING
    }

    /// Takes the mark back.
    pub(super) fn unmark<T>(&self, ring: &Ring<T>) {
        self.check(ring);
        ring.tail.at.fetch_and(!WAITING, SeqCst);
    }

    #[inline(always)]
    fn check<T>(&self, ring: &Ring<T>) {
        assert!(self.ring == ring.id, "the reader of another ring");
    }
}

/// Keeps the reader's position right should the caller's code unwind.
struct At<'a> {
    head: u64,
    known: u64,
    reader: &'a mut Reader,
}

impl Drop for At<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.reader.head = self.head;
        self.reader.known = self.known;
    }
}

/// A producer's own buffer, written by its one [`Writer`] and emptied, under its lock, by the producer (flush) or the
/// consumer (sweep).
pub(super) struct Buffer<T> {
    /// The position after the last item written.
    tail: Padded<AtomicU64>,
    taken: Padded<Lock<Taken>>,
    slots: Slots<T>,
}

/// What left a buffer, and where it went.
#[derive(Default)]
pub(super) struct Taken {
    /// Everything before it was taken.
    head: u64,
    /// The ring position after the last flushed item: the consumer may sweep what is here only once it read up to there,
    /// or this producer's items would overtake each other.
    pub(super) ring_end: u64,
    /// Items the consumer swept since the producer last looked.
    pub(super) swept: u64,
    /// The producer is gone; whoever empties the buffer forgets it.
    pub(super) orphan: bool,
    /// Batches that left, by reason.
    pub(super) counts: Counts,
}

// SAFETY: slots at or after `tail` belong to the writer; slots in `head..tail` to the holder of the lock. `tail` is
// published with Release and read with Acquire; the writer learns of a new `head` through the lock. Items move: `Send`.
unsafe impl<T: Send> Sync for Buffer<T> {}
// SAFETY: it owns its items.
unsafe impl<T: Send> Send for Buffer<T> {}

impl<T> Buffer<T> {
    /// A buffer for `len` items (its memory is rounded up to a power of two), and its one writer.
    pub(super) fn new(len: usize) -> (Arc<Self>, Writer<T>) {
        let buffer = Arc::new(Self {
            tail: Padded(AtomicU64::new(0)),
            taken: Padded(Lock::new(Taken::default())),
            slots: Slots::new(len.max(1).next_power_of_two()),
        });
        let writer = Writer {
            buffer: Arc::clone(&buffer),
            full_at: 0,
        };
        (buffer, writer)
    }

    /// The right to take items out.
    #[inline]
    pub(super) fn lock(&self) -> Taking<'_, T> {
        Taking {
            taken: self.taken.lock(),
            buffer: self,
        }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        drop(self.lock().take_all());
    }
}

/// A locked [`Buffer`].
pub(super) struct Taking<'a, T> {
    taken: Locked<'a, Taken>,
    buffer: &'a Buffer<T>,
}

impl<T> std::ops::Deref for Taking<'_, T> {
    type Target = Taken;
    fn deref(&self) -> &Taken {
        &self.taken
    }
}

impl<T> std::ops::DerefMut for Taking<'_, T> {
    fn deref_mut(&mut self) -> &mut Taken {
        &mut self.taken
    }
}

impl<T> Taking<'_, T> {
    /// Items waiting.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.buffer.tail.load(Acquire) - self.taken.head
    }

    /// Moves as many items as there is room for into `ring`, by one claim; the rest stays, in order.
    #[inline]
    pub(super) fn flush_into(&mut self, ring: &Ring<T>) -> Result<Claim, Refused> {
        let len = self.len();
        debug_assert!(len > 0);
        let claim = ring.claim(len)?;
        let mut moved = 0;
        while moved < claim.items {
            let (from, run) = self
                .buffer
                .slots
                .run(self.taken.head + moved, (claim.items - moved) as usize);
            // SAFETY: below `tail`, so written (Acquire), and ours under the lock; the claim makes the ring's slots ours. They
            // are moved: `head` passes them before the lock is released.
            unsafe { ring.slots.fill_from(claim.at + moved, from, run) };
            moved += run as u64;
        }
        self.taken.head += claim.items;
        self.taken.ring_end = claim.at + claim.items;
        ring.publish(&claim);
        Ok(claim)
    }

    /// Moves everything to the end of `out`.
    pub(super) fn sweep_into(&mut self, out: &mut VecDeque<T>) -> u64 {
        let len = self.len();
        out.reserve(len as usize);
        for _ in 0..len {
            // SAFETY: below `tail`, so written (Acquire), ours under the lock, and passed by `head` at once.
            let item = unsafe { self.buffer.slots.read(self.taken.head) };
            self.taken.head += 1;
            out.push_back(item);
        }
        len
    }

    /// Hands items to `lane`, in order, until it gives one back, which stays. `lane` answers the ring position at which an
    /// item it took is due.
    pub(super) fn spill(&mut self, mut lane: impl FnMut(T) -> Result<u64, T>) {
        while self.len() > 0 {
            let at = self.taken.head;
            // SAFETY: below `tail`, so written (Acquire), ours under the lock, and passed by `head` at once.
            let item = unsafe { self.buffer.slots.read(at) };
            self.taken.head += 1;
            match lane(item) {
                Ok(due) => self.taken.ring_end = due,
                Err(item) => {
                    // SAFETY: the slot just emptied, still ours under the lock.
                    unsafe { self.buffer.slots.write(at, item) };
                    self.taken.head = at;
                    return;
                }
            }
        }
    }

    /// Everything, as a vector.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let mut all = VecDeque::new();
        self.sweep_into(&mut all);
        all.into()
    }
}

/// The writing end of one [`Buffer`].
pub(super) struct Writer<T> {
    buffer: Arc<Buffer<T>>,
    /// Where the buffer counts as full: at most its length after a past `head`, and not before `tail`.
    full_at: u64,
}

/// Items written at the end of a buffer, published when it goes, should the caller's iterator unwind.
struct Unpublished<'a, T> {
    at: u64,
    writer: &'a mut Writer<T>,
}

impl<T> Drop for Unpublished<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.writer.buffer.tail.store(self.at, Release);
    }
}

impl<T> Writer<T> {
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.tail() >= self.full_at
    }

    /// The position after the last item written, which nobody else changes.
    #[inline(always)]
    fn tail(&self) -> u64 {
        self.buffer.tail.load(Relaxed)
    }

    pub(super) fn buffer(&self) -> &Arc<Buffer<T>> {
        &self.buffer
    }

    /// Appends an item, unless it would be the last the buffer takes, or one more: then gives it back.
    #[inline(always)]
    pub(super) fn push_early(&mut self, item: T) -> Result<(), T> {
        let tail = self.tail();
        if self.full_at - tail < 2 {
            return Err(item);
        }
        self.put(tail, item);
        Ok(())
    }

    /// Appends an item.
    ///
    /// # Panics
    /// If the buffer [is full](Self::is_full).
    #[inline]
    pub(super) fn push(&mut self, item: T) {
        let tail = self.tail();
        assert!(tail < self.full_at);
        self.put(tail, item);
    }

    #[inline(always)]
    fn put(&mut self, tail: u64, item: T) {
        // SAFETY: the callers saw `tail < full_at`, which is at most the number of slots after `head`, so this slot holds no
        // item; slots from `tail` on are ours, and there is no other writer.
        unsafe { self.buffer.slots.write(tail, item) };
        self.buffer.tail.store(tail + 1, Release);
    }

    /// Appends what `items` yields until the buffer is full, and says how many; they are published together.
    #[inline]
    pub(super) fn extend(&mut self, items: &mut impl Iterator<Item = T>) -> u64 {
        let first = self.tail();
        let mut all = Unpublished {
            at: first,
            writer: self,
        };
        while all.at < all.writer.full_at
            && let Some(item) = items.next()
        {
            // SAFETY: as in `put`.
            unsafe { all.writer.buffer.slots.write(all.at, item) };
            all.at += 1;
        }
        all.at - first
    }

    /// Takes the last `n` items back, in order, except those somebody took first.
    pub(super) fn take_back(&mut self, n: u64) -> Vec<T> {
        let taking = self.buffer.lock();
        let n = taking.len().min(n);
        let tail = self.tail() - n;
        self.buffer.tail.store(tail, Relaxed);
        // SAFETY: they were written by us, and under the lock nobody takes them; before them `tail` ends now.
        (tail..tail + n)
            .map(|at| unsafe { self.buffer.slots.read(at) })
            .collect()
    }

    /// From now on the buffer counts as full with `limit` items.
    pub(super) fn set_limit(&mut self, limit: u64) {
        self.taking(limit, |_| ());
    }

    /// `head` is what [`Taken::head`] was lately.
    fn set_limit_from(&mut self, head: u64, limit: u64) {
        let limit = limit.clamp(1, self.buffer.slots.len() as u64);
        // A lower limit than what is there already: full, then.
        self.full_at = (head + limit).max(self.tail());
    }

    /// Locks, lets `f` take items, and sets the limit `f` answers from where the buffer then starts.
    #[inline]
    pub(super) fn taking<R>(&mut self, limit: u64, f: impl FnOnce(&mut Taking<'_, T>) -> R) -> R {
        let mut taking = self.buffer.lock();
        let out = f(&mut taking);
        let head = taking.taken.head;
        drop(taking);
        self.set_limit_from(head, limit);
        out
    }
}

#[cfg(loom)]
use loomed::{Lock, Locked};
#[cfg(not(loom))]
use spinning::{Lock, Locked};

/// A lock for a few dozen instructions, taken once a batch: half the price of a mutex, whose release, too, is a
/// read-modify-write. The two who may want it hardly ever meet; who does meet the other yields.
#[cfg(not(loom))]
mod spinning {
    use std::cell::UnsafeCell;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

    pub(super) struct Lock<T> {
        held: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: only whoever changed `held` to true (Acquire) reaches the value, until it stores false (Release).
    unsafe impl<T: Send> Sync for Lock<T> {}

    pub(super) struct Locked<'a, T>(&'a Lock<T>);

    impl<T> Lock<T> {
        pub(super) const fn new(value: T) -> Self {
            Self {
                held: AtomicBool::new(false),
                value: UnsafeCell::new(value),
            }
        }

        #[inline(always)]
        pub(super) fn lock(&self) -> Locked<'_, T> {
            if self.held.swap(true, Acquire) {
                self.wait();
            }
            Locked(self)
        }

        #[cold]
        fn wait(&self) {
            loop {
                for _ in 0..16 {
                    std::hint::spin_loop();
                    if !self.held.load(Relaxed) && !self.held.swap(true, Acquire) {
                        return;
                    }
                }
                std::thread::yield_now();
            }
        }
    }

    impl<T> Deref for Locked<'_, T> {
        type Target = T;
        #[inline(always)]
        fn deref(&self) -> &T {
            // SAFETY: we hold it.
            unsafe { &*self.0.value.get() }
        }
    }

    impl<T> DerefMut for Locked<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: we hold it, and the guard is borrowed mutably.
            unsafe { &mut *self.0.value.get() }
        }
    }

    impl<T> Drop for Locked<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            self.0.held.store(false, Release);
        }
    }
}

/// loom's own, whose waiting it understands.
#[cfg(loom)]
mod loomed {
    pub(super) type Locked<'a, T> = loom::sync::MutexGuard<'a, T>;

    pub(super) struct Lock<T>(loom::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> Locked<'_, T> {
            super::super::sync::lock(&self.0)
        }
    }
}

#[cfg(not(loom))]
type Cell<T> = std::cell::UnsafeCell<T>;
#[cfg(loom)]
type Cell<T> = loom::cell::UnsafeCell<T>;

/// A power of two of slots, addressed by position. It knows nothing of who owns which: every access is the caller's claim.
struct Slots<T>(Box<[Cell<MaybeUninit<T>>]>);

impl<T> Slots<T> {
    fn new(len: usize) -> Self {
        assert!(len.is_power_of_two());
        Self((0..len).map(|_| Cell::new(MaybeUninit::uninit())).collect())
    }

    #[inline(always)]
    const fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn index(&self, at: u64) -> usize {
        at as usize & (self.0.len() - 1)
    }

    /// # Safety
    /// The slot is the caller's and holds an item, which moves out.
    #[inline(always)]
    unsafe fn read(&self, at: u64) -> T {
        // SAFETY: the caller's.
        unsafe { taken_from(&self.0[self.index(at)]) }
    }

    /// Where a position's slot is.
    #[inline(always)]
    fn place(&self, at: u64) -> *const Cell<MaybeUninit<T>> {
        self.0.as_ptr().wrapping_add(self.index(at))
    }

    /// The slots from `at` on that lie side by side, at most `n`.
    #[inline(always)]
    fn run(&self, at: u64, n: usize) -> (&[Cell<MaybeUninit<T>>], usize) {
        let i = self.index(at);
        let run = n.min(self.0.len() - i);
        (&self.0[i..i + run], run)
    }
}

/// # Safety
/// The slot is the caller's and holds an item, which moves out.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn taken_from<T>(slot: &Cell<MaybeUninit<T>>) -> T {
    // SAFETY: the caller's.
    unsafe { (*slot.get()).assume_init_read() }
}

#[cfg(loom)]
unsafe fn taken_from<T>(slot: &Cell<MaybeUninit<T>>) -> T {
    // SAFETY: the caller's.
    slot.with_mut(|slot| unsafe { (*slot).assume_init_read() })
}

/// The items in `slots`, or the places for them.
#[cfg(not(loom))]
#[inline(always)]
const fn items<T>(slots: &[Cell<MaybeUninit<T>>]) -> *mut T {
    Cell::raw_get(slots.as_ptr()).cast()
}

#[cfg(not(loom))]
impl<T> Slots<T> {
    /// # Safety
    /// The slot is the caller's and holds no item.
    #[inline(always)]
    unsafe fn write(&self, at: u64, item: T) {
        // SAFETY: the caller's; the index is below a length that is never 0.
        unsafe { (*self.0.get_unchecked(self.index(at)).get()).write(item) };
    }

    /// # Safety
    /// `n <= len` slots from `at` are the caller's and hold no items; the `n` at `from` move in and are elsewhere.
    #[inline]
    unsafe fn fill(&self, at: u64, from: *const T, n: usize) {
        let (slots, run) = self.run(at, n);
        // SAFETY: the caller's; a cell of a `MaybeUninit<T>` is laid out like a `T`, and `run` of them are in bounds.
        unsafe {
            ptr::copy_nonoverlapping(from, items(slots), run);
            if run < n {
                ptr::copy_nonoverlapping(from.add(run), items(&self.0), n - run);
            }
        }
    }

    /// # Safety
    /// As for `fill`; the `n` slots `from` are the caller's too and hold items, which move.
    #[inline]
    unsafe fn fill_from(&self, at: u64, from: &[Cell<MaybeUninit<T>>], n: usize) {
        // SAFETY: the caller's.
        unsafe { self.fill(at, items(from), n) }
    }

    /// # Safety
    /// `n <= len` slots from `at` are the caller's and hold items, which move to the `n` places at `to`.
    #[inline]
    unsafe fn take(&self, at: u64, to: *mut T, n: usize) {
        let (slots, run) = self.run(at, n);
        // SAFETY: as in `fill`.
        unsafe {
            ptr::copy_nonoverlapping(items(slots), to, run);
            if run < n {
                ptr::copy_nonoverlapping(items(&self.0), to.add(run), n - run);
            }
        }
    }
}

/// The same, slot by slot, so that loom sees every access.
#[cfg(loom)]
impl<T> Slots<T> {
    unsafe fn write(&self, at: u64, item: T) {
        // SAFETY: the caller's.
        self.0[self.index(at)].with_mut(|slot| unsafe { (*slot).write(item) });
    }

    unsafe fn fill(&self, at: u64, from: *const T, n: usize) {
        for i in 0..n {
            // SAFETY: the caller's.
            unsafe { self.write(at + i as u64, ptr::read(from.add(i))) };
        }
    }

    unsafe fn fill_from(&self, at: u64, from: &[Cell<MaybeUninit<T>>], n: usize) {
        for (i, cell) in from[..n].iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { self.write(at + i as u64, taken_from(cell)) };
        }
    }

    unsafe fn take(&self, at: u64, to: *mut T, n: usize) {
        for i in 0..n {
            // SAFETY: the caller's.
            unsafe { ptr::write(to.add(i), self.read(at + i as u64)) };
        }
    }
}
