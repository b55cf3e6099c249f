//! A batch as its handler sees it: the operations in order, the reason why the batch ended where it did,
//! and the replies to the callers.
//!
//! A handler answers operation by operation ([`Batch::drain`]); or all items at once, with as many
//! results in the same order ([`Batch::take_items`], then [`Batch::answer`]); or all callers with one
//! shared error ([`Batch::fail`]). It may give items back for another try ([`Batch::retry`]). The buffers
//! belong to the actor, which reuses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::handler::{Flow, Handled, Op};
use super::reply::{Cause, Reply, ReplyError};
use super::retry::{Back, Drain, Tries};
use crate::controller::{Load, Reason};

/// A batch: the operations that one call of a handler receives. A batch has at least one operation.
///
/// ```
/// use tidegate::batcher::{Batch, Builder, Flow, Handled, Handler};
///
/// /// Adds each item to a total, and answers with the total after it.
/// struct Totals(u64);
///
/// impl Handler for Totals {
///     type Item = u64;
///     type Reply = u64;
///     type Info = std::convert::Infallible;
///
///     fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Handled {
///         let mut items = Vec::new();
///         batch.take_items(&mut items);
///         batch.answer(items.iter().map(|item| {
///             self.0 += item;
///             self.0
///         }));
///         Ok(Flow::Continue)
///     }
/// }
///
/// let totals = Builder::new().spawn(Totals(0))?;
/// assert_eq!(totals.blocking_call(2)?, 2);
/// assert_eq!(totals.blocking_call(3)?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Batch<T, R = (), M = std::convert::Infallible> {
    ops: Vec<Op<T, R, M>>,
    /// The number of items that `take_items` moved out; the handler must give as many results to `answer`.
    taken: usize,
    /// The callers of the items that `take_items` moved out, each with the place of its item in that list.
    callers: Vec<(usize, Reply<R>)>,
    /// An empty vector for the items that the next closure gets. The batch keeps it to reuse its memory.
    pub(super) spare: Vec<T>,
    failed: bool,
    load: Load,
    reason: Reason,
    age: Duration,
    /// A counter of the callers that the batches in flight of one actor answer before they end, so that the
    /// actor learns of these answers. The batches share it. `None` if the actor runs one batch at a time, or
    /// if its controller needs no arrival times. `told` is the part of the count that this batch added and
    /// the actor has not taken yet.
    answers: Option<Arc<AtomicU64>>,
    told: u64,
    /// The number of tries of each operation, for handlers that limit the tries. `None` while every operation
    /// is in its first try and the handler has given none back.
    tries: Option<Box<Tries<T, R, M>>>,
}

impl<T, R, M> Batch<T, R, M> {
    /// Returns the number of operations that the actor gathered into this batch. A fold may have taken them
    /// out already.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.load.items as usize
    }

    /// Returns whether the batch has no operations. A handler never gets such a batch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.load.items == 0
    }

    /// Returns the bytes of the batch by the weight function of the [`Builder`](super::Builder); 0 without
    /// such a function.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.load.bytes
    }

    /// Returns the reason why the actor ended the batch at this length, such as the limit or an empty queue.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns how long the oldest item of the batch waited before the batch started. The error is at most
    /// the duration of one batch.
    #[must_use]
    pub const fn age(&self) -> Duration {
        self.age
    }

    /// Returns the operations that the handler has not taken out of the batch yet.
    #[must_use]
    pub fn ops(&self) -> &[Op<T, R, M>] {
        &self.ops
    }

    /// Adds an operation to the batch, for use in [`Handler::append`](super::Handler::append).
    #[inline]
    pub fn push(&mut self, op: Op<T, R, M>) {
        // With spare capacity, the push cannot panic, so the compiler builds the cast in its place in the
        // vector instead of moving it.
        match op {
            Op::Cast(item) if self.ops.len() != self.ops.capacity() => {
                self.ops.push(Op::Cast(item));
            }
            op => self.push_apart(op),
        }
    }

    #[inline(never)]
    fn push_apart(&mut self, op: Op<T, R, M>) {
        self.ops.push(op);
    }

    /// Takes every operation out of the batch, in order. The handler can give each of them back for another
    /// try:
    ///
    /// ```
    /// use tidegate::batcher::{Batch, Op};
    ///
    /// fn handle(batch: &mut Batch<u64, u64>, mut compute: impl FnMut(u64) -> Option<u64>) {
    ///     let mut ops = batch.drain();
    ///     while let Some(op) = ops.next() {
    ///         let Op::Call(n, reply) = op else { continue };
    ///         match compute(n) {
    ///             Some(result) => reply.send(result),
    ///             None if ops.attempt() < 5 => ops.retry(Op::Call(n, reply)),
    ///             None => drop(reply), // its caller gets `NoReply`
    ///         }
    ///     }
    /// }
    /// ```
    pub fn drain(&mut self) -> Drain<'_, T, R, M> {
        Drain {
            ops: self.ops.drain(..),
            tries: &mut self.tries,
            passed: 0,
        }
    }

    /// Moves the items of casts and calls, in order, to the end of `items`, and keeps the callers of these
    /// items for [`Batch::answer`]. Messages ([`Op::Info`]) stay in the batch.
    pub fn take_items(&mut self, items: &mut Vec<T>) {
        items.reserve(self.ops.len());
        let mut infos = Vec::new();
        let mut left = Vec::new();
        for (at, op) in self.ops.drain(..).enumerate() {
            match op {
                Op::Cast(item) => items.push(item),
                Op::Call(item, reply) => {
                    self.callers.push((self.taken, reply));
                    items.push(item);
                }
                Op::Info(info) => {
                    infos.push(Op::Info(info));
                    left.push(at);
                    continue;
                }
            }
            if let Some(tries) = &mut self.tries {
                tries.take_item(at, self.taken);
            }
            self.taken += 1;
        }
        if !infos.is_empty() {
            self.ops = infos;
        }
        if let Some(tries) = &mut self.tries {
            tries.leave(&left);
        }
    }

    /// Returns the number of the current try of the item at `place` among the items taken, or of the
    /// operation at `place` if no item is taken. The first try is 1. The actor cannot count tries if the
    /// handler's [`Handler::append`](super::Handler::append) pushes more or fewer than one operation for
    /// each operation that it gets. The number then stays 1, and the handler counts tries itself.
    #[must_use]
    pub fn attempt(&self, place: usize) -> u32 {
        match &self.tries {
            None => 1,
            Some(tries) if self.taken > 0 => tries.of_item(place),
            Some(tries) => tries.of_op(place),
        }
    }

    /// Gives the item at `place` among the items taken back for another try. [`Batch::answer`] then takes
    /// results for the other items only.
    ///
    /// After the batch, the actor puts the items given back first into the next batch, in the order in
    /// which this batch had them, and before later items of their keys. Their callers keep waiting. The
    /// actor skips an item if its caller meanwhile gave up or ran out of time. The items need no room in
    /// the queue; their bytes count as waiting bytes.
    ///
    /// The handler limits the tries with [`Batch::attempt`]. Where a try needs a pause before it, the
    /// handler itself waits, because the next batch starts at once. An actor that drains handles the items
    /// given back, too. An actor that stops returns them to the caller of
    /// [`Handle::stop`](super::Handle::stop) with the other waiting items. A panic of the handler loses them
    /// with the batch. A failure of the batch leaves them for the next try. A batch that gives every item
    /// back counts as failed, and the controller ignores its cost.
    ///
    /// ```
    /// use tidegate::batcher::{Batch, Builder, Flow, Handled, Handler};
    /// # fn insert(rows: &[u64]) -> Vec<Option<u64>> { rows.iter().map(|row| Some(*row)).collect() }
    ///
    /// struct Rows;
    ///
    /// impl Handler for Rows {
    ///     type Item = u64;
    ///     type Reply = Option<u64>;
    ///     type Info = std::convert::Infallible;
    ///
    ///     fn handle_batch(&mut self, batch: &mut Batch<u64, Option<u64>>) -> Handled {
    ///         let mut rows = Vec::new();
    ///         batch.take_items(&mut rows);
    ///         let mut answers = Vec::new();
    ///         for (place, inserted) in insert(&rows).into_iter().enumerate() {
    ///             match inserted {
    ///                 None if batch.attempt(place) < 3 => batch.retry(place, rows[place]),
    ///                 inserted => answers.push(inserted),
    ///             }
    ///         }
    ///         batch.answer(answers);
    ///         Ok(Flow::Continue)
    ///     }
    /// }
    ///
    /// let rows = Builder::new().spawn(Rows)?;
    /// assert_eq!(rows.blocking_call(7)?, Some(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// No item was taken at `place`, or the handler gave it back or answered it before.
    pub fn retry(&mut self, place: usize, item: T) {
        assert!(
            place < self.taken,
            "no item at place {place}: {} items are taken and not answered",
            self.taken
        );
        let tries = self.tries.get_or_insert_default();
        assert!(
            tries.give(place),
            "the item at place {place} was given back before"
        );
        let caller = self.callers.binary_search_by_key(&place, |(at, _)| *at);
        let op = match caller {
            Ok(at) => Op::Call(
                item,
                std::mem::replace(&mut self.callers[at].1, Reply::answered()),
            ),
            Err(_) => Op::Cast(item),
        };
        let attempt = tries.of_item(place);
        tries.put(place, attempt, op);
    }

    /// Answers the callers of the items taken and not [given back](Self::retry), with one result an item,
    /// in order. The batch drops the results of casts. If the number of results differs from the number of
    /// items, no result can be matched to an item: each caller gets [`ReplyError::ResultCount`], and the
    /// batch counts as failed.
    pub fn answer<I>(&mut self, results: I)
    where
        I: IntoIterator<Item = R>,
        I::IntoIter: ExactSizeIterator,
    {
        self.answer_each(results.into_iter().map(Ok::<_, Cause>));
    }

    /// Answers the callers like [`Batch::answer`], with a `Result` for each item. The caller of a failed item
    /// gets [`ReplyError::Failed`].
    pub fn answer_each<I>(&mut self, results: I)
    where
        I: IntoIterator<Item = Result<R, Cause>>,
        I::IntoIter: ExactSizeIterator,
    {
        let mut results = results.into_iter();
        let given = self.answered();
        let (items, count) = (std::mem::take(&mut self.taken) - given.len(), results.len());
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
        self.tell(&given);
        let mut next = 0;
        let mut given = given.into_iter().peekable();
        let mut back = 0;
        for (place, reply) in self.callers.drain(..) {
            while given.next_if(|at| *at < place).is_some() {
                back += 1;
            }
            if given.peek() == Some(&place) {
                continue;
            }
            let place = place - back;
            match results.nth(place - next) {
                Some(Ok(value)) => reply.send(value),
                Some(Err(cause)) => reply.fail(cause),
                None => break,
            }
            next = place + 1;
        }
    }

    /// Marks the items taken as answered. Returns the places of those items that the handler gave back,
    /// because their callers get no answer now.
    fn answered(&mut self) -> Vec<usize> {
        let tries = self.tries.as_mut();
        tries.map_or_else(Vec::new, |tries| tries.answered())
    }

    /// Counts the callers that are about to get their answers, for the actor: the callers of the items
    /// taken, without those of the items `given` back.
    fn tell(&mut self, given: &[usize]) {
        if let Some(answers) = &self.answers {
            let stays = |(place, _): &&(usize, _)| given.binary_search(place).is_err();
            let calls = self.callers.iter().filter(stays).count() as u64;
            // Relaxed: each answer orders this count before the next call of the answered caller.
            answers.fetch_add(calls, Ordering::Relaxed);
            self.told += calls;
        }
    }

    /// Makes the batch count the callers that it answers in `answers`, just before it answers them. So the
    /// actor learns of these answers before the batch ends.
    pub(super) fn tell_answers(&mut self, answers: &Arc<AtomicU64>) {
        if self.answers.is_none() {
            self.answers = Some(Arc::clone(answers));
        }
    }

    /// Returns how many callers the batch has counted in `answers` since the last call of `take_told`, so
    /// that the actor does not count them twice.
    pub(super) const fn take_told(&mut self) -> u64 {
        std::mem::replace(&mut self.told, 0)
    }

    /// Answers the callers of the items taken and not given back, each with a clone of `value`.
    pub fn answer_all(&mut self, value: R)
    where
        R: Clone,
    {
        let given = self.answered();
        self.tell(&given);
        self.taken = 0;
        for (_, reply) in self.callers.drain(..) {
            reply.send(value.clone());
        }
    }

    /// Fails the whole batch: every caller without an answer gets [`ReplyError::Failed`] with `cause`, and
    /// the batch drops its other operations. The controller ignores the cost of a failed batch.
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

    /// Converts the result of the handler into a flow. If the result is an error, the batch fails, and the
    /// actor continues.
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
            answers: None,
            told: 0,
            tries: None,
        }
    }

    /// Sets the load, the reason and the age of the gathered batch before the handler gets the batch, so that
    /// the handler can read them.
    pub(super) fn describe(&mut self, load: Load, reason: Reason, age: Duration) {
        self.load = load;
        self.reason = reason;
        self.age = age;
    }

    /// Records the try of the operation that the actor just passed to the handler's `append`, when the
    /// batch had `before` operations. A handler with an `append` of its own may add no operation to the
    /// batch; then this function records no try.
    #[cold]
    pub(super) fn note_attempt(&mut self, before: usize, attempt: u32) {
        if self.ops.len() == before + 1 {
            self.tries.get_or_insert_default().note(before, attempt);
        }
    }

    /// Takes out the operations that the handler gave back, in the order of the batch, so that the actor can
    /// put them into the next batch.
    pub(super) fn take_back(&mut self) -> Vec<Back<T, R, M>> {
        let tries = self.tries.as_mut();
        tries.map_or_else(Vec::new, |tries| tries.take_back())
    }

    /// Drops the operations left in the batch, except those that the handler gave back. Returns whether the
    /// batch failed: the handler failed it, or gave every item back.
    pub(super) fn clear(&mut self) -> bool {
        self.taken = 0;
        let len = std::mem::take(&mut self.load).items;
        let mut failed = std::mem::take(&mut self.failed);
        if let Some(tries) = &mut self.tries {
            tries.clear();
            failed |= len > 0 && tries.back() as u64 >= len;
        }
        // The drop of an item may panic, so the batch drops its items only after all other state is reset.
        self.callers.clear();
        self.ops.clear();
        failed
    }

    /// Drops all operations of the batch, including those that the handler gave back, because the handler
    /// panicked.
    pub(super) fn lose(&mut self) {
        self.clear();
        if let Some(tries) = &mut self.tries {
            tries.lose();
        }
    }

    /// Frees the memory of the batch's vectors on an idle actor, except room for `keep` operations in each.
    pub(super) fn shrink(&mut self, keep: usize) {
        self.ops.shrink_to(keep);
        self.callers.shrink_to(keep);
        self.spare.shrink_to(keep);
    }

    pub(super) fn capacity(&self) -> usize {
        let spare = match size_of::<T>() {
            // A vector of zero-sized items reports an unlimited capacity but has no memory to free, so it
            // counts as 0.
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
    #[test]
    fn results_skip_the_items_given_back() {
        let (mut batch, one, mut two) = batch();
        batch.take_items(&mut Vec::new());
        batch.retry(3, 130);
        batch.retry(0, 10);
        batch.answer([22, 24]);
        assert_eq!(one.blocking_wait().unwrap(), 22);
        assert!(two.try_take().is_none(), "its caller waits on");
        let back = batch.take_back();
        let ops: Vec<_> = back.iter().map(|back| (back.attempt, &back.op)).collect();
        assert!(matches!(
            ops[..],
            [(2, Op::Cast(10)), (2, Op::Call(130, _))]
        ));
        assert!(!batch.clear(), "two items were done");
        drop(back);
        assert!(matches!(two.blocking_wait(), Err(ReplyError::NoReply)));
    }

    #[test]
    fn a_result_for_an_item_given_back_is_one_too_many() {
        let (mut batch, one, _two) = batch();
        batch.take_items(&mut Vec::new());
        batch.retry(3, 13);
        batch.answer([0, 1, 2, 3]);
        let answer = one.blocking_wait();
        assert!(matches!(
            answer,
            Err(ReplyError::ResultCount {
                items: 3,
                results: 4
            })
        ));
        assert_eq!(batch.take_back().len(), 1);
    }

    #[test]
    fn tries_stay_with_their_items_past_infos() {
        let mut batch = B::new();
        for (op, attempt) in [
            (Op::Cast(1), 3),
            (Op::Info("between"), 2),
            (Op::Cast(2), 1),
            (Op::Cast(3), 5),
        ] {
            let before = batch.ops().len();
            batch.push(op);
            if attempt > 1 {
                batch.note_attempt(before, attempt);
            }
        }
        assert_eq!([0, 1, 2, 3, 4].map(|at| batch.attempt(at)), [3, 2, 1, 5, 1]);
        batch.take_items(&mut Vec::new());
        assert_eq!([0, 1, 2, 3].map(|at| batch.attempt(at)), [3, 1, 5, 1]);
        let mut ops = batch.drain();
        let info = ops.next().unwrap();
        assert_eq!(ops.attempt(), 2);
        ops.retry(info);
        drop(ops);
        batch.retry(2, 3);
        let back = batch.take_back();
        let tries: Vec<_> = back.iter().map(|back| back.attempt).collect();
        assert_eq!(tries, [3, 6]);
        batch.clear();
        assert_eq!(batch.attempt(0), 1);
    }

    #[test]
    #[should_panic(expected = "was given back before")]
    fn an_item_is_given_back_once() {
        let (mut batch, _one, _two) = batch();
        batch.take_items(&mut Vec::new());
        batch.retry(2, 12);
        batch.retry(1, 11);
        batch.retry(2, 12);
    }

    #[test]
    #[should_panic(expected = "no item at place 4: 4 items are taken")]
    fn an_item_that_was_not_taken_cannot_be_given_back() {
        let (mut batch, _one, _two) = batch();
        batch.take_items(&mut Vec::new());
        batch.retry(4, 14);
    }

    #[test]
    fn a_batch_that_gives_all_back_failed_and_a_panic_loses_them() {
        let mut batch = B::new();
        batch.push(Op::Cast(1));
        batch.describe(Load::items(1), Reason::Drained, Duration::ZERO);
        batch.take_items(&mut Vec::new());
        batch.retry(0, 1);
        assert!(batch.clear());
        assert_eq!(batch.take_back().len(), 1);
        batch.push(Op::Cast(1));
        let mut ops = batch.drain();
        let op = ops.next().unwrap();
        ops.retry(op);
        drop(ops);
        batch.lose();
        assert!(batch.take_back().is_empty());
    }
}
