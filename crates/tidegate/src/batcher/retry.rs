//! Retries: the operations that a handler gives back, and the count of their tries.
//!
//! A batch collects the operations given back. After the batch, the actor puts them in front of all waiting
//! entries, in the order of the batch, past the queue. They need no room there, so that a handler never waits
//! for room that only the handler can make. A panic loses these operations with the batch.
//!
//! Invariants: an operation without a count is in its first try; the places given back ascend.

use std::fmt;

use super::handler::Op;

/// An operation that was given back and waits for its next batch.
pub(super) struct Retried<T, R, M> {
    pub(super) weight: u32,
    /// The number of the next try.
    pub(super) attempt: u32,
    pub(super) op: Op<T, R, M>,
}

impl<T, R, M> Retried<T, R, M> {
    /// Returns whether the caller of the operation gave up.
    pub(super) fn is_void(&self) -> bool {
        matches!(&self.op, Op::Call(_, reply) if !reply.is_wanted())
    }
}

/// An operation given back.
#[derive(Debug)]
pub(super) struct Back<T, R, M> {
    place: usize,
    /// The number of the next try.
    pub(super) attempt: u32,
    pub(super) op: Op<T, R, M>,
}

/// The tries of a batch. A batch without retries, as most are, has no such record.
#[derive(Debug)]
pub(super) struct Tries<T, R, M> {
    /// The number of the current try of each operation, by its place.
    ops: Vec<u32>,
    /// The number of the current try of each item taken, by its place.
    items: Vec<u32>,
    /// The places given back among the items taken, ascending.
    given: Vec<usize>,
    back: Vec<Back<T, R, M>>,
}

impl<T, R, M> Tries<T, R, M> {
    /// Records the try of the operation at `place`, the last one of its batch.
    pub(super) fn note(&mut self, place: usize, attempt: u32) {
        self.ops.resize(place, 1);
        self.ops.push(attempt);
    }

    pub(super) fn of_op(&self, place: usize) -> u32 {
        self.ops.get(place).copied().unwrap_or(1)
    }

    pub(super) fn of_item(&self, place: usize) -> u32 {
        self.items.get(place).copied().unwrap_or(1)
    }

    /// Copies the try of the operation at `at` when that operation becomes the item at `place`.
    pub(super) fn take_item(&mut self, at: usize, place: usize) {
        if at < self.ops.len() {
            self.items.resize(place, 1);
            self.items.push(self.ops[at]);
        }
    }

    /// Keeps only the tries of the operations at the places `left`, which stay in the batch.
    pub(super) fn leave(&mut self, left: &[usize]) {
        self.ops = left.iter().map(|at| self.of_op(*at)).collect();
    }

    /// Gives back the operation `op`, which was at `place` in its try `attempt`.
    pub(super) fn put(&mut self, place: usize, attempt: u32, op: Op<T, R, M>) {
        self.back.push(Back {
            place,
            attempt: attempt.saturating_add(1),
            op,
        });
    }

    /// Records that the handler gives back the item at `place`. Returns false if it already gave the item
    /// back.
    pub(super) fn give(&mut self, place: usize) -> bool {
        match self.given.last() {
            Some(last) if *last >= place => match self.given.binary_search(&place) {
                Ok(_) => return false,
                Err(at) => self.given.insert(at, place),
            },
            _ => self.given.push(place),
        }
        true
    }

    /// Resets the counts after the items taken got their answers: the places of the next items count from 0.
    /// Returns the places given back.
    pub(super) fn answered(&mut self) -> Vec<usize> {
        self.items.clear();
        std::mem::take(&mut self.given)
    }

    /// Takes out the operations given back, in the order of the batch.
    pub(super) fn take_back(&mut self) -> Vec<Back<T, R, M>> {
        let mut back = std::mem::take(&mut self.back);
        back.sort_by_key(|back| back.place);
        back
    }

    /// Counts the operations given back.
    pub(super) const fn back(&self) -> usize {
        self.back.len()
    }

    /// Resets the counts, and keeps the operations given back.
    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.items.clear();
        self.given.clear();
    }

    /// Drops the operations given back.
    pub(super) fn lose(&mut self) {
        self.back.clear();
    }
}

impl<T, R, M> Default for Tries<T, R, M> {
    fn default() -> Self {
        Self {
            ops: Vec::new(),
            items: Vec::new(),
            given: Vec::new(),
            back: Vec::new(),
        }
    }
}

/// The operations of a batch, taken out in order: see [`Batch::drain`](super::Batch::drain). A drop of the
/// drain drops the operations that were not taken.
pub struct Drain<'a, T, R, M> {
    pub(super) ops: std::vec::Drain<'a, Op<T, R, M>>,
    pub(super) tries: &'a mut Option<Box<Tries<T, R, M>>>,
    /// The number of operations taken out.
    pub(super) passed: usize,
}

impl<T, R, M> Drain<'_, T, R, M> {
    /// Returns the number of the current try of the operation that came out last. The first try is 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        let place = self.passed.saturating_sub(1);
        self.tries.as_ref().map_or(1, |tries| tries.of_op(place))
    }

    /// Gives an operation back for another try: the last operation that came out, or another in its place,
    /// such as a part of it. See [`Batch::retry`](super::Batch::retry).
    pub fn retry(&mut self, op: Op<T, R, M>) {
        let attempt = self.attempt();
        let place = self.passed.saturating_sub(1);
        self.tries.get_or_insert_default().put(place, attempt, op);
    }
}

impl<T, R, M> Iterator for Drain<'_, T, R, M> {
    type Item = Op<T, R, M>;

    #[inline]
    fn next(&mut self) -> Option<Op<T, R, M>> {
        let op = self.ops.next()?;
        self.passed += 1;
        Some(op)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ops.size_hint()
    }
}

impl<T, R, M> ExactSizeIterator for Drain<'_, T, R, M> {}

impl<T, R, M> std::iter::FusedIterator for Drain<'_, T, R, M> {}

impl<T, R, M> fmt::Debug for Drain<'_, T, R, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain")
            .field("left", &self.ops.len())
            .finish_non_exhaustive()
    }
}
