//! `bare-ring`: a minimal queue for comparison with Tidegate's own. It is a bounded ring for many producers
//! and one consumer, without further features: no closing, no metrics, no parking, `Copy` items only.
//! Tidegate's queue costs more than this ring, and the difference is the cost of its features.
//!
//! A producer claims `n` slots with one compare-exchange of `tail`, writes them, and publishes the claim with
//! one store: the *stamp* of the claim's first slot becomes the position after its last one.
//!
//! ```text
//! position      8     9    10    11    12    13
//! stamp        11     .     .    12    14     .      three claims: 8..11, 11..12, 12..14
//! ```
//!
//! The consumer is at `head`, which is always the first position of a claim, and reads only that slot's
//! stamp. A stamp above `head` is the end of a published claim; otherwise the stamp is from an earlier lap.
//! (A claim is at most `capacity` long, so a stamp written one lap ago at `head - capacity` is at most
//! `head`.) The consumer need not reset stamps, producers may publish claims in any order, and a claim of any
//! length costs one stamp. The items are dense, apart from the stamps.
//!
//! Invariants: `head <= tail <= head + capacity`; positions never wrap (64 bits).

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Aligns a value to two cache lines, because the processor fetches lines in pairs.
#[repr(align(128))]
struct Padded<T>(T);

struct Shared<T> {
    /// The next position that a producer can claim; only producers write it.
    tail: Padded<AtomicU64>,
    /// The position up to which the consumer has read everything; only the consumer writes it.
    head: Padded<AtomicU64>,
    mask: u64,
    stamps: Box<[AtomicU64]>,
    items: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: only the producer with the claim on a slot writes it, and the consumer reads it only after that
// claim's stamp (Release/Acquire); a producer claims it again only after `head` has passed it
// (Release/Acquire). So no accesses race.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The producing end of a ring, of which each producer has a clone.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// An earlier value of `head`, never ahead of the present value. A producer may rely on it, and does not
    /// read the consumer's cache line while there is room.
    head_seen: u64,
}

/// The consuming end of a ring, of which there is only one.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: u64,
}

/// Creates a ring with room for `capacity` items, rounded up to a power of two.
pub fn ring<T: Copy + Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(2).next_power_of_two();
    let shared = Arc::new(Shared {
        tail: Padded(AtomicU64::new(0)),
        head: Padded(AtomicU64::new(0)),
        mask: capacity as u64 - 1,
        stamps: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
        items: (0..capacity)
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
    });
    (
        Producer {
            shared: Arc::clone(&shared),
            head_seen: 0,
        },
        Consumer { shared, head: 0 },
    )
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            head_seen: self.head_seen,
        }
    }
}

impl<T: Copy> Producer<T> {
    /// Pushes one item, or returns false if the ring is full.
    #[inline]
    pub fn try_push(&mut self, item: T) -> bool {
        let Some(start) = self.claim(1) else {
            return false;
        };
        let slot = &self.shared.items[(start & self.shared.mask) as usize];
        // SAFETY: the claim makes this slot the producer's until the producer publishes it.
        unsafe { (*slot.get()).write(item) };
        self.publish(start, 1);
        true
    }

    /// Pushes all of `items` by one claim. Returns false if the ring has no room for all of them.
    #[inline]
    pub fn try_push_all(&mut self, items: &[T]) -> bool {
        let n = items.len() as u64;
        if n == 0 {
            return true;
        }
        let Some(start) = self.claim(n) else {
            return false;
        };
        let at = (start & self.shared.mask) as usize;
        let (before, after) = items.split_at(items.len().min(self.shared.items.len() - at));
        copy_in(&self.shared.items[at..at + before.len()], before);
        copy_in(&self.shared.items[..after.len()], after);
        self.publish(start, n);
        true
    }

    /// Claims `n` positions and returns the first of them, or `None` if the ring has no room for all of them.
    #[inline]
    fn claim(&mut self, n: u64) -> Option<u64> {
        let capacity = self.shared.mask + 1;
        let mut tail = self.shared.tail.0.load(Ordering::Relaxed);
        loop {
            if tail + n > self.head_seen + capacity {
                // Acquire: the consumer's reads of the slots before `head` come before the producer's writes
                // to them.
                self.head_seen = self.shared.head.0.load(Ordering::Acquire);
                if tail + n > self.head_seen + capacity {
                    return None;
                }
            }
            // Relaxed: a claim passes no data to the consumer; the stamps and `head` do that.
            match self.shared.tail.0.compare_exchange_weak(
                tail,
                tail + n,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(tail),
                Err(now) => tail = now,
            }
        }
    }

    #[inline]
    fn publish(&self, start: u64, n: u64) {
        self.shared.stamps[(start & self.shared.mask) as usize].store(start + n, Ordering::Release);
    }
}

/// Copies the items of `from` into slots that the caller has claimed; both have equal lengths.
#[inline]
fn copy_in<T: Copy>(slots: &[UnsafeCell<MaybeUninit<T>>], from: &[T]) {
    assert_eq!(slots.len(), from.len());
    // SAFETY: the caller has claimed these slots, so no other thread touches them; `UnsafeCell` and
    // `MaybeUninit` are transparent, so the slots are an array of `T`; the lengths are equal; `from` cannot
    // overlap slots that no other thread may see.
    unsafe {
        std::ptr::copy_nonoverlapping(
            from.as_ptr(),
            UnsafeCell::raw_get(slots.as_ptr()).cast::<T>(),
            from.len(),
        )
    }
}

impl<T: Copy> Consumer<T> {
    /// Passes the published items to `each` in slices, in order, up to the last published item or until the
    /// drain reaches `limit` items. The drain does not split a claim, so it may pass the limit. At the end
    /// the drain frees the slots of all these items at once. Returns the number of items.
    #[inline]
    pub fn drain(&mut self, limit: u64, mut each: impl FnMut(&[T])) -> u64 {
        let first = self.head;
        let mask = self.shared.mask;
        while self.head - first < limit {
            let end = self.shared.stamps[(self.head & mask) as usize].load(Ordering::Acquire);
            if end <= self.head {
                break;
            }
            let at = (self.head & mask) as usize;
            let len = (end - self.head) as usize;
            let before = len.min(self.shared.items.len() - at);
            each(published(&self.shared.items[at..at + before]));
            if before < len {
                each(published(&self.shared.items[..len - before]));
            }
            self.head = end;
        }
        if self.head != first {
            // Release: the consumer's reads of these slots come before a producer's next writes to them.
            self.shared.head.0.store(self.head, Ordering::Release);
        }
        self.head - first
    }
}

/// Returns the slots of a published claim as items, which the consumer may read.
#[inline]
fn published<T>(slots: &[UnsafeCell<MaybeUninit<T>>]) -> &[T] {
    // SAFETY: the claim's stamp was read with Acquire, so every slot is initialised and its writer done; no
    // producer claims it again before `head` passes it, which happens after the slice's last use. Both
    // wrappers are transparent.
    unsafe {
        std::slice::from_raw_parts(UnsafeCell::raw_get(slots.as_ptr()).cast::<T>(), slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_refuses_and_a_drained_one_accepts() {
        let (mut producer, mut consumer) = ring::<u64>(4);
        assert!(producer.try_push_all(&[1, 2, 3]));
        assert!(!producer.try_push_all(&[4, 5]));
        assert!(producer.try_push(4));
        assert!(!producer.try_push(5));
        let mut seen = Vec::new();
        assert_eq!(
            consumer.drain(1, |items| seen.extend_from_slice(items)),
            3,
            "a claim is not split"
        );
        assert!(producer.try_push_all(&[5, 6, 7]), "wraps");
        assert_eq!(
            consumer.drain(u64::MAX, |items| seen.extend_from_slice(items)),
            4
        );
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(consumer.drain(u64::MAX, |_| unreachable!()), 0);
    }

    #[test]
    fn every_producer_stays_in_order() {
        const ITEMS: u64 = 20_000;
        let (producer, mut consumer) = ring::<u64>(64);
        let threads: Vec<_> = (0..3u64)
            .map(|who| {
                let mut producer = producer.clone();
                std::thread::spawn(move || {
                    let mut next = 0;
                    while next < ITEMS {
                        let n = (next % 7 + 1).min(ITEMS - next);
                        let items: Vec<u64> = (next..next + n).map(|i| i * 3 + who).collect();
                        while !producer.try_push_all(&items) {
                            std::thread::yield_now();
                        }
                        next += n;
                    }
                })
            })
            .collect();
        let mut next = [0; 3];
        let mut left = 3 * ITEMS;
        while left > 0 {
            let got = consumer.drain(16, |items| {
                for item in items {
                    let who = (item % 3) as usize;
                    assert_eq!(item / 3, next[who]);
                    next[who] += 1;
                }
            });
            left -= got;
            if got == 0 {
                std::thread::yield_now();
            }
        }
        for thread in threads {
            thread.join().expect("producer");
        }
    }
}
