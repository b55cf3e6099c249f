//! The overflow lane: a bounded list beside the ring, for producers that must not wait.
//!
//! A producer appends an item to the lane together with the ring position that is next to be claimed. The
//! item is due when the consumer reaches that position: it takes the place it would have had in the ring.
//! So the lane does not starve while the ring stays full, and the items of one producer keep their order in
//! the ring and in the lane.

use std::collections::VecDeque;

use super::ring::Ring;
use super::sync::{AtomicU64, Mutex, Relaxed, lock};

pub(super) struct Lane<T> {
    /// The ring position at which the lane's first item is due; [`NEVER`] if the lane is empty. It changes
    /// only under the lock, and the consumer reads it without the lock.
    due: AtomicU64,
    limit: usize,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    items: VecDeque<(u64, T)>,
    closed: bool,
    /// The number of items that producers appended to the lane since the queue's creation, for the metrics.
    total: u64,
}

/// The reasons why the overflow lane did not take an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoLane {
    Full,
    Closed,
}

const NEVER: u64 = u64::MAX;

impl<T> Lane<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            due: AtomicU64::new(NEVER),
            limit,
            inner: Mutex::new(Inner {
                items: VecDeque::new(),
                closed: false,
                total: 0,
            }),
        }
    }

    /// Returns the ring position at which the lane's first item is due. The consumer must not read the ring
    /// beyond this position before it has taken the items that are due. The consumer calls this after it
    /// read the stamp of a claim, so it sees the items that the producer of the claim put into the lane
    /// before that claim.
    #[inline]
    pub(super) fn due(&self) -> u64 {
        self.due.load(Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due() == NEVER
    }

    /// Appends an item to the lane. Returns the ring position at which the item is due.
    pub(super) fn push(&self, ring: &Ring<T>, item: T) -> Result<u64, (T, NoLane)> {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return Err((item, NoLane::Closed));
        }
        if inner.items.len() >= self.limit {
            return Err((item, NoLane::Full));
        }
        // The producer reads the next ring position under the lane's lock, so that the positions in the
        // lane never decrease.
        let at = ring.claimed();
        if inner.items.is_empty() {
            self.due.store(at, Relaxed);
        }
        inner.items.push_back((at, item));
        inner.total += 1;
        Ok(at)
    }

    /// Moves up to `limit` items that are due at ring position `head` or before to `out`, for the consumer.
    /// Returns their number.
    pub(super) fn take_due(&self, head: u64, limit: usize, out: &mut VecDeque<T>) -> usize {
        let mut inner = lock(&self.inner);
        let mut taken = 0;
        while taken < limit
            && inner.items.front().is_some_and(|first| first.0 <= head)
            && let Some((_, item)) = inner.items.pop_front()
        {
            out.push_back(item);
            taken += 1;
        }
        self.due
            .store(inner.items.front().map_or(NEVER, |first| first.0), Relaxed);
        taken
    }

    /// Counts the items of the lane that are due at ring position `head` or before, so that the consumer
    /// could drain them.
    pub(super) fn due_at(&self, head: u64) -> usize {
        lock(&self.inner)
            .items
            .partition_point(|item| item.0 <= head)
    }

    /// Closes the lane with its queue: the lane refuses every later item.
    pub(super) fn close(&self) {
        lock(&self.inner).closed = true;
    }

    /// Returns, for the metrics, the number of items that wait in the lane, and the number of items that
    /// producers have ever appended to it.
    pub(super) fn lens(&self) -> (usize, u64) {
        let inner = lock(&self.inner);
        (inner.items.len(), inner.total)
    }

    /// Takes all items out of the lane, due or not, because the consumer is gone.
    pub(super) fn take_all(&self) -> VecDeque<(u64, T)> {
        self.due.store(NEVER, Relaxed);
        std::mem::take(&mut lock(&self.inner).items)
    }
}
