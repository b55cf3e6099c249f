//! Retries: the operations that a handler gives back, and the count of their tries.
//!
//! A batch collects the operations given back. After the batch, the actor puts them in front of all waiting
//! entries, in the order of the batch, past the queue. These operations need no room in the queue, so that
//! a handler never waits for room that only the handler can make. A panic loses these operations with the
//! batch.
//!
//! Invariants: an operation without a recorded number of tries is in its first try; the recorded places of
//! the items given back ascend.

use std::fmt;

use super::handler::Op;

/// An operation that the handler gave back, and that waits in the actor's stash for its next batch.
pub(super) struct Retried<T, R, M> {
    pub(super) weight: u32,
    /// The number of the operation's next try, which the batch of that try reports; the first try is 1.
    pub(super) attempt: u32,
    pub(super) op: Op<T, R, M>,
}

impl<T, R, M> Retried<T, R, M> {
    /// Returns whether the caller of the operation has given up, so that no further try is needed.
    pub(super) fn is_void(&self) -> bool {
        matches!(&self.op, Op::Call(_, reply) if !reply.is_wanted())
    }
}

/// An operation that the handler gave back, while the operation is still in its batch.
#[derive(Debug)]
pub(super) struct Back<T, R, M> {
    place: usize,
    /// The number of the operation's next try, which the batch of that try reports; the first try is 1.
    pub(super) attempt: u32,
    pub(super) op: Op<T, R, M>,
}

/// The record of the tries of a batch's operations, for handlers that limit the tries. Most batches have no
/// retries, and so no such record.
#[derive(Debug)]
pub(super) struct Tries<T, R, M> {
    /// The number of the current try of each operation in the batch, by the place of the operation in the
    /// batch.
    ops: Vec<u32>,
    /// The number of the current try of each item that the handler took out, by the place of the item among
    /// these items.
    items: Vec<u32>,
    /// The places of the items that the handler took out and then gave back, ascending, because these items
    /// get no answer now.
    given: Vec<usize>,
    back: Vec<Back<T, R, M>>,
}

impl<T, R, M> Tries<T, R, M> {
    /// Records that the operation at `place`, the last operation of the batch, is in its try number
    /// `attempt`, for the handler.
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

    /// Copies the number of the try of the operation at `at`, which the handler takes out as the item at
    /// `place`.
    pub(super) fn take_item(&mut self, at: usize, place: usize) {
        if at < self.ops.len() {
            self.items.resize(place, 1);
            self.items.push(self.ops[at]);
        }
    }

    /// Keeps only the tries of the operations at the places `left`. These operations stay in the batch
    /// while the handler takes the others out.
    pub(super) fn leave(&mut self, left: &[usize]) {
        self.ops = left.iter().map(|at| self.of_op(*at)).collect();
    }

    /// Gives the operation `op` back, which was at `place` in the batch and in its try number `attempt`. Its
    /// next try gets the number `attempt` + 1.
    pub(super) fn put(&mut self, place: usize, attempt: u32, op: Op<T, R, M>) {
        self.back.push(Back {
            place,
            attempt: attempt.saturating_add(1),
            op,
        });
    }

    /// Records that the handler gives back the item at `place`. Returns false if the handler has given this
    /// item back before.
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

    /// Resets the record after the handler answered the items that it took out: the places of the next
    /// items count from 0. Returns the places of the items given back.
    pub(super) fn answered(&mut self) -> Vec<usize> {
        self.items.clear();
        std::mem::take(&mut self.given)
    }

    /// Takes the operations given back out of the record, in the order of the batch, so that the actor can
    /// try them again.
    pub(super) fn take_back(&mut self) -> Vec<Back<T, R, M>> {
        let mut back = std::mem::take(&mut self.back);
        back.sort_by_key(|back| back.place);
        back
    }

    /// Returns the number of operations that the handler gave back. A batch that gives all back counts as
    /// failed.
    pub(super) const fn back(&self) -> usize {
        self.back.len()
    }

    /// Resets the numbers of tries, and keeps the operations given back.
    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.items.clear();
        self.given.clear();
    }

    /// Drops the operations that the handler gave back, because a panic lost the batch.
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

/// An iterator that takes the operations out of a batch, in order: see
/// [`Batch::drain`](super::Batch::drain). A drop of the iterator drops the operations that the handler has
/// not taken out.
pub struct Drain<'a, T, R, M> {
    pub(super) ops: std::vec::Drain<'a, Op<T, R, M>>,
    pub(super) tries: &'a mut Option<Box<Tries<T, R, M>>>,
    /// The number of operations that the handler has taken out by this iterator, which is the place of the
    /// next operation.
    pub(super) passed: usize,
}

impl<T, R, M> Drain<'_, T, R, M> {
    /// Returns the number of the current try of the operation that the iterator returned last. The first
    /// try is 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        let place = self.passed.saturating_sub(1);
        self.tries.as_ref().map_or(1, |tries| tries.of_op(place))
    }

    /// Gives an operation back for another try: the operation that the iterator returned last, or another
    /// operation in its place, such as a part of it. See [`Batch::retry`](super::Batch::retry).
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
