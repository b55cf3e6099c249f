//! A batch as its handler sees it: operations in order, why it was cut, and the slots of its callers.
//!
//! A handler answers in whichever way suits it: operation by operation ([`Batch::drain`]); all items at once
//! with as many results in the same order ([`Batch::take_items`], then [`Batch::answer`]); or all with one
//! shared error ([`Batch::fail`]). The buffers belong to the actor and are used again.

use std::time::Duration;

use super::handler::{Flow, Handled, Op};
use super::reply::{Cause, Reply, ReplyError};
use crate::controller::{Load, Reason};

/// What one call of a handler receives: never empty.
#[derive(Debug)]
pub struct Batch<T, R = (), M = std::convert::Infallible> {
    ops: Vec<Op<T, R, M>>,
    /// Items moved out by `take_items`; `answer` must give as many results.
    taken: usize,
    /// The callers among them, each with its place among the items.
    callers: Vec<(usize, Reply<R>)>,
    /// An empty vector for a closure's items, kept for its memory.
    pub(super) spare: Vec<T>,
    failed: bool,
    load: Load,
    reason: Reason,
    age: Duration,
}

impl<T, R, M> Batch<T, R, M> {
    /// How many operations it was gathered from. A fold may have taken them already.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.load.items as usize
    }

    /// Never true in a handler.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.load.items == 0
    }

    /// Its bytes, by the builder's weight function; 0 without one.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.load.bytes
    }

    /// Why it was cut where it was.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// How long its oldest item waited, to within one batch.
    #[must_use]
    pub const fn age(&self) -> Duration {
        self.age
    }

    /// The operations not taken out yet.
    #[must_use]
    pub fn ops(&self) -> &[Op<T, R, M>] {
        &self.ops
    }

    /// The operations not taken out yet, to change in place.
    pub fn ops_mut(&mut self) -> &mut [Op<T, R, M>] {
        &mut self.ops
    }

    /// Adds an operation: for [`Handler::append`](super::Handler::append).
    #[inline]
    pub fn push(&mut self, op: Op<T, R, M>) {
        self.ops.push(op);
    }

    /// Takes every operation out, in order.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Op<T, R, M>> {
        self.ops.drain(..)
    }

    /// Takes the items of casts and calls out, in order, onto the end of `items`, and keeps their callers for
    /// [`Batch::answer`]. Infos stay.
    pub fn take_items(&mut self, items: &mut Vec<T>) {
        items.reserve(self.ops.len());
        let mut infos = Vec::new();
        for op in self.ops.drain(..) {
            match op {
                Op::Cast(item) => items.push(item),
                Op::Call(item, reply) => {
                    self.callers.push((self.taken, reply));
                    items.push(item);
                }
                Op::Info(info) => {
                    infos.push(Op::Info(info));
                    continue;
                }
            }
            self.taken += 1;
        }
        if !infos.is_empty() {
            self.ops = infos;
        }
    }

    /// Answers the callers of the items taken: one result an item, in order, those of casts going nowhere.
    /// With any other number of results nobody can tell whose is whose, so that every one of these callers
    /// gets [`ReplyError::ResultCount`] and the batch counts as failed.
    pub fn answer<I>(&mut self, results: I)
    where
        I: IntoIterator<Item = R>,
        I::IntoIter: ExactSizeIterator,
    {
        self.answer_each(results.into_iter().map(Ok::<_, Cause>));
    }

    /// Like [`Batch::answer`], where each item may have failed for itself: its caller gets
    /// [`ReplyError::Failed`].
    pub fn answer_each<I>(&mut self, results: I)
    where
        I: IntoIterator<Item = Result<R, Cause>>,
        I::IntoIter: ExactSizeIterator,
    {
        let mut results = results.into_iter();
        let (items, count) = (self.taken, results.len());
        self.taken = 0;
        if items != count {
            self.failed = true;
            for (_, reply) in self.callers.drain(..) {
                reply.refuse(ReplyError::ResultCount {
                    items,
                    results: count,
                });
            }
            return;
        }
        let mut next = 0;
        for (place, reply) in self.callers.drain(..) {
            match results.nth(place - next) {
                Some(Ok(value)) => reply.send(value),
                Some(Err(cause)) => reply.fail(cause),
                None => break,
            }
            next = place + 1;
        }
    }

    /// Answers the callers of the items taken, all with the same value.
    pub fn answer_all(&mut self, value: R)
    where
        R: Clone,
    {
        self.taken = 0;
        for (_, reply) in self.callers.drain(..) {
            reply.send(value.clone());
        }
    }

    /// The whole batch failed: every caller without an answer gets [`ReplyError::Failed`] with this one
    /// cause, the rest is dropped. What a failed batch cost teaches the controller nothing.
    pub fn fail(&mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) {
        self.fail_with(Cause::from(cause.into()));
    }

    fn fail_with(&mut self, cause: Cause) {
        self.failed = true;
        for (_, reply) in self.callers.drain(..) {
            reply.fail(Cause::clone(&cause));
        }
        for op in self.ops.drain(..) {
            if let Op::Call(_, reply) = op {
                reply.fail(Cause::clone(&cause));
            }
        }
    }

    /// What the handler returned, with its error turned into the failure of the batch.
    pub(super) fn conclude(&mut self, handled: Handled) -> Flow {
        handled.unwrap_or_else(|failure| {
            self.fail_with(failure.into_cause());
            Flow::Continue
        })
    }

    pub(super) const fn new() -> Self {
        Self {
            ops: Vec::new(),
            taken: 0,
            callers: Vec::new(),
            spare: Vec::new(),
            failed: false,
            load: Load { items: 0, bytes: 0 },
            reason: Reason::Drained,
            age: Duration::ZERO,
        }
    }

    /// Says what was gathered, before the handler sees it.
    pub(super) fn describe(&mut self, load: Load, reason: Reason, age: Duration) {
        self.load = load;
        self.reason = reason;
        self.age = age;
    }

    /// Drops what is left and tells whether the handler called it a failure.
    pub(super) fn clear(&mut self) -> bool {
        self.taken = 0;
        self.load = Load::default();
        let failed = std::mem::take(&mut self.failed);
        // Items last: they may panic.
        self.callers.clear();
        self.ops.clear();
        failed
    }

    /// Gives memory back, keeping room for `keep` operations.
    pub(super) fn shrink(&mut self, keep: usize) {
        self.ops.shrink_to(keep);
        self.callers.shrink_to(keep);
        self.spare.shrink_to(keep);
    }

    pub(super) fn capacity(&self) -> usize {
        let spare = match size_of::<T>() {
            // Its capacity is boundless, and no memory.
            0 => 0,
            _ => self.spare.capacity(),
        };
        self.ops.capacity().max(spare)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply::{Request, pair};
    use super::*;

    type B = Batch<u32, u32, &'static str>;

    fn batch() -> (B, Request<u32>, Request<u32>) {
        let mut batch = B::new();
        let (first, one) = pair();
        let (second, two) = pair();
        batch.push(Op::Cast(10));
        batch.push(Op::Call(11, first));
        batch.push(Op::Info("between"));
        batch.push(Op::Cast(12));
        batch.push(Op::Call(13, second));
        (batch, one, two)
    }

    #[test]
    fn results_find_their_callers_past_casts_and_infos() {
        let (mut batch, one, two) = batch();
        let mut items = Vec::new();
        batch.take_items(&mut items);
        assert_eq!(items, [10, 11, 12, 13]);
        assert!(matches!(batch.ops(), [Op::Info("between")]));
        batch.answer(items.iter().map(|n| n * 2));
        assert_eq!(
            (one.blocking_wait().unwrap(), two.blocking_wait().unwrap()),
            (22, 26)
        );
        assert!(!batch.clear());
    }

    #[test]
    fn an_item_may_fail_for_itself() {
        let (mut batch, one, two) = batch();
        batch.take_items(&mut Vec::new());
        let refused = || {
            Err(Cause::from(
                Box::<dyn std::error::Error + Send + Sync>::from("no"),
            ))
        };
        batch.answer_each([Ok(0), refused(), refused(), Ok(3)]);
        assert!(matches!(one.blocking_wait(), Err(ReplyError::Failed(_))));
        assert_eq!(two.blocking_wait().unwrap(), 3);
    }

    #[test]
    fn one_cause_is_shared_by_all_callers() {
        let (mut batch, one, two) = batch();
        batch.fail("disk full");
        let (Err(ReplyError::Failed(a)), Err(ReplyError::Failed(b))) =
            (one.blocking_wait(), two.blocking_wait())
        else {
            panic!("both failed");
        };
        assert!(Cause::ptr_eq(&a, &b));
        assert_eq!(a.to_string(), "disk full");
        assert!(batch.clear());
    }
}
