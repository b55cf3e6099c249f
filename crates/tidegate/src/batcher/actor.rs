//! The part of a batching actor that all its drivers (threads and tasks that run an actor) share:
//! everything except waiting and calling the handler.
//!
//! The actor owns the consumer, the batch that it gathers, and the [`Core`]. The actor moves entries from
//! the queue directly into the batch. It may take too many entries out of the queue, because the limit on
//! bytes or the handler ends the batch early. The actor keeps these entries in the *stash* and takes them
//! first into the next batch. Entries leave in the order of the queue or, where the actor keeps order per
//! key, in the order of each key.
//!
//! A driver of a handler with exclusive state runs one batch at a time and ends it with `finish`. A driver
//! of several batches takes each of them out with `hand_over` and ends it with `land`, in any order.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use super::ages::Ages;
use super::batch::Batch;
use super::core::{BUSY, Core, DriverStep};
use super::gathered::Gathered;
use super::handler::{Append, Flow, Init, Op, StopReason};
use super::inspect::Seen;
use super::keys::{KeyOf, Keys};
use super::mend::{Panicked, catch};
use super::owned::{End, Landed, Ticket};
use super::reply::{ReplyError, after_panic};
use super::retry::{Back, Retried};
use super::shared::{Entry, Shared};
use crate::blocking::ActorId;
use crate::boundary::Cut;
use crate::controller::{BatchId, Load};
use crate::queue::Consumer;
use crate::{Clock, Time};

pub(super) struct Actor<T: Send, R: Send, M: Send> {
    shared: Arc<Shared<T, R, M>>,
    pub(super) consumer: Consumer<Entry<T, R, M>>,
    stash: VecDeque<Entry<T, R, M>>,
    pub(super) batch: Batch<T, R, M>,
    gathered: Gathered,
    core: Core,
    /// The record of the batch that the actor gathered last, with which the actor reports the batch's end.
    /// `None` once the driver has finished that batch or taken it out with `hand_over`.
    taken: Option<Taken>,
    /// The state that keeps the items of each key in order. `None` if items have no key.
    keys: Option<Keys<T, R, M>>,
    /// Empty batches, which the actor keeps to reuse their buffers for later batches.
    spares: Vec<Batch<T, R, M>>,
    ages: Ages,
    /// The number of calls, since the actor started, that the actor has reported to the controller. The next
    /// report covers the later calls.
    announced: u64,
    /// The number of callers that the latest finished batch answered, and that may call again.
    answered: u64,
    /// Counts the callers answered by batches that `hand_over` took out, before these batches end. The
    /// actor has reported the first `known_answers` of these callers to the controller.
    answers: Arc<AtomicU64>,
    known_answers: u64,
    /// True if the driver has ended the wait for more items (the hold) before the next batch, so that the
    /// next poll starts the batch.
    hold_ended: bool,
    /// True if the handler panicked in `handle_continue` and has finished no batch since then: a second
    /// such panic ends the actor.
    restarted: bool,
    ended: bool,
}

/// The record of a gathered batch until its end: its id, its start time, and its number of calls.
struct Taken {
    id: BatchId,
    since: Time,
    calls: u64,
}

impl<T: Send, R: Send, M: Send> Actor<T, R, M> {
    pub(super) fn new(
        shared: Arc<Shared<T, R, M>>,
        consumer: Consumer<Entry<T, R, M>>,
        core: Core,
    ) -> Self {
        Self {
            shared,
            consumer,
            stash: VecDeque::new(),
            batch: Batch::new(),
            gathered: Gathered::default(),
            core,
            taken: None,
            keys: None,
            spares: Vec::new(),
            ages: Ages::default(),
            announced: 0,
            answered: 0,
            answers: Arc::default(),
            known_answers: 0,
            hold_ended: false,
            restarted: false,
            ended: false,
        }
    }

    /// Makes the actor keep the items of each key (as `of` returns it) in order, for actors that run several
    /// batches. At most `held_max` items wait for keys that a running batch holds.
    pub(super) fn keep_order(&mut self, of: KeyOf<T>, held_max: usize) {
        self.keys = Some(Keys::new(of, held_max));
    }

    /// Returns the id of this actor. A blocking call compares the id with the id of the actor that runs its
    /// handler on the thread, so that a handler does not wait for its own actor.
    pub(super) fn id(&self) -> ActorId {
        self.shared.queue.id()
    }

    pub(super) fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Runs the waiting inspections (closures passed to `Handle::inspect`) on the handler, between two
    /// batches.
    pub(super) fn receive_visits(&self, handler: &dyn Any) {
        if !self.shared.inbox.is_empty() {
            let seen = Seen {
                snapshot: self.core.snapshot(),
                size_costs: self.core.size_costs(),
            };
            self.shared.inbox.serve(handler, &seen);
        }
    }

    /// Returns ready if an inspection waits for the handler. Otherwise makes the next inspection wake the
    /// task of `cx`.
    pub(super) fn poll_visits(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.inbox.poll(cx)
    }

    /// Returns the next step of the driver at time `now`, such as a batch to take or a wait for more items.
    pub(super) fn poll(&mut self, now: Time) -> DriverStep {
        if self.shared.life.is_stop() {
            self.core.stop();
        } else if self.shared.queue.is_closed() {
            self.core
                .drain(self.consumer.is_finished() && self.stash.is_empty() && self.held() == 0);
        }
        self.announce(now);
        // The actor checks for the close first and counts the entries afterwards. `close` sets its mark
        // behind every claimed entry, so the count misses no entry that the closed queue accepted.
        let claimed = self.waiting();
        self.ages.mark(self.shared.stamp.take(), claimed);
        let items = (self.stash.len() + self.available()) as u64;
        let oldest = self.ages.oldest(now, items);
        let backlog = Load::new(items, self.shared.backlog_bytes());
        let hold_ended = std::mem::take(&mut self.hold_ended);
        match self.core.poll(now, backlog, oldest) {
            DriverStep::Hold { .. } if self.is_pressed() => self.core.take_now(),
            DriverStep::Hold { .. } if hold_ended => self.core.take_held(),
            DriverStep::Rest if self.waits_for_a_batch() => BUSY,
            step => step,
        }
    }

    /// Counts the entries that the queue would hand out now. A batch can take only published entries. Without
    /// this distinction the actor would count the entry of a sender that is stopped between its claim and its
    /// publication. It would then stop waiting for more items and start a batch without that entry.
    fn available(&mut self) -> usize {
        match &self.keys {
            Some(keys) if keys.room() == 0 => 0,
            _ => self.consumer.available(),
        }
    }

    /// Returns whether no entry waits in the queue or in the stash. An entry waits as soon as its sender
    /// has claimed a place in the queue.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Counts the entries that wait in the queue and in the stash. An entry waits as soon as its sender has
    /// claimed a place in the queue.
    pub(super) fn waiting(&self) -> u64 {
        (self.stash.len() + self.consumer.backlog()) as u64
    }

    /// Returns how many callers the last batch answered, if the controller anticipates that callers return;
    /// otherwise 0.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(super) fn expected(&self) -> u64 {
        match self.shared.arrivals {
            Some(_) => self.answered,
            None => 0,
        }
    }

    /// Makes the next poll start a batch instead of a further hold, because the driver has stopped waiting
    /// for more items.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(super) const fn end_hold(&mut self) {
        self.hold_ended = true;
    }

    /// Counts the entries that wait because a batch in flight holds items of their keys.
    fn held(&self) -> usize {
        self.keys.as_ref().map_or(0, Keys::held)
    }

    /// Returns whether the actor can proceed only when a batch in flight ends: the queue is closed and
    /// empty, or so many entries wait for busy keys that the actor may take no more out of the queue.
    fn waits_for_a_batch(&self) -> bool {
        let full = self.keys.as_ref().is_some_and(|keys| keys.room() == 0);
        self.core.running() > 0 && (full || self.consumer.is_finished())
    }

    /// Returns whether a sender has found no room for the bytes of an item since the actor last took a batch.
    /// Then the actor does not wait for more items, because they find no room.
    fn is_pressed(&self) -> bool {
        let weights = self.shared.weights.as_ref();
        weights.is_some_and(|weights| weights.gate.is_pressed())
    }

    /// Gathers a batch within `limit` from the stash and the queue, and passes each operation to `append`.
    /// Returns false if no operation is left to handle, because all callers gave up.
    pub(super) fn gather(
        &mut self,
        now: Time,
        limit: Load,
        mut append: impl FnMut(&mut Batch<T, R, M>, Op<T, R, M>) -> Append,
    ) -> bool {
        if let Some(weights) = &self.shared.weights {
            weights.gate.relieve();
        }
        let Self {
            stash, batch, keys, ..
        } = self;
        let gathered = &mut self.gathered;
        gathered.limit = limit;
        let age_ns = now.since(self.ages.passed);
        while gathered.cut.is_none()
            && let Some(entry) = stash.pop_front()
        {
            if let Some(back) = gathered.offer_by_key(entry, keys, batch, &mut append) {
                stash.push_front(back);
            }
        }
        while gathered.cut.is_none() {
            let room = limit.items - gathered.load.items;
            let room = self.consumer.capacity().min(room as usize);
            let room = keys.as_ref().map_or(room, |keys| room.min(keys.room()));
            let popped = self.consumer.drain(room, |entry| {
                if let Some(back) = gathered.offer_by_key(entry, keys, batch, &mut append) {
                    stash.push_back(back);
                }
            });
            self.ages.popped += popped.items as u64;
            if popped.items < room || room == 0 {
                break;
            }
        }
        let calls = self.gathered.calls;
        let (batch, cut) = self.settle();
        let left = Load::new(self.waiting(), self.shared.backlog_bytes());
        let cut = match cut {
            None => Cut::Drained,
            Some(Cut::Items) if left.items == 0 => Cut::Drained,
            Some(cut) => cut,
        };
        let Some((id, reason)) = self.core.handle_batch(now, batch, left, cut) else {
            self.release_gathered();
            return false;
        };
        self.taken = Some(Taken {
            id,
            since: now,
            calls,
        });
        self.shared.counters.started(batch, reason, age_ns);
        self.count_flight();
        self.batch
            .describe(batch, reason, std::time::Duration::from_nanos(age_ns));
        true
    }

    /// Frees the keys of a gathered batch that does not start, so that another batch may take items of
    /// these keys.
    fn release_gathered(&mut self) {
        if let Some(keys) = &mut self.keys {
            let gathered = keys.seal();
            keys.release(gathered, &mut self.stash);
        }
    }

    /// Takes the gathered batch out of the actor, so that a task or a dispatcher can own and finish the
    /// batch. Returns the batch, and the ticket by which the actor recognizes the batch when it returns;
    /// `None` if the actor holds no gathered batch.
    pub(super) fn hand_over(&mut self) -> Option<(Batch<T, R, M>, Ticket)> {
        let Taken { id, since, calls } = self.taken.take()?;
        let keys = self.keys.as_mut().map_or_else(Vec::new, Keys::seal);
        let fresh = self.spares.pop().unwrap_or_else(Batch::new);
        let mut batch = std::mem::replace(&mut self.batch, fresh);
        if self.shared.arrivals.is_some() {
            batch.tell_answers(&self.answers);
        }
        let ticket = Ticket {
            id,
            since,
            calls,
            keys,
        };
        Some((batch, ticket))
    }

    /// Ends a batch that `hand_over` took out and that has returned: reports the end to the controller,
    /// frees the keys of the batch, and puts back the operations that the handler gave back.
    pub(super) fn land(&mut self, landed: Landed<T, R, M>) {
        let Landed {
            ticket,
            at,
            ok,
            end,
            mut batch,
        } = landed;
        self.announce(at);
        let took = at.since(ticket.since);
        let back = batch.take_back();
        let answered = answered(ticket.calls, &back).saturating_sub(batch.take_told());
        self.core
            .handle_done_with(at, ticket.id, took, ok, answered);
        self.shared.counters.done(took, ok);
        self.count_flight();
        if let Some(keys) = &mut self.keys {
            keys.release(ticket.keys, &mut self.stash);
            self.ages.stashed = self.stash.len() as u64;
        }
        self.put_back(back);
        if self.spares.len() < SPARES {
            self.spares.push(batch);
        }
        match end {
            End::Done(Flow::Stop(cause)) => self.stop(StopReason::Handler(cause)),
            End::Panicked => self.shared.counters.panicked(),
            End::Done(_) | End::Dropped => {}
        }
    }

    /// Updates the statistics of the batches in flight, after a batch started or ended.
    fn count_flight(&self) {
        let (running, in_flight) = (self.core.running(), self.core.in_flight());
        self.shared.counters.flight(running, in_flight);
    }

    /// Puts the operations that a batch gave back for another try into the stash, in front of all waiting
    /// entries, so that they come first.
    fn put_back(&mut self, back: Vec<Back<T, R, M>>) {
        if back.is_empty() {
            return;
        }
        self.shared.counters.retried(back.len() as u64);
        let mut bytes = 0;
        for Back { attempt, op, .. } in back.into_iter().rev() {
            let weight = match (&self.shared.weights, &op) {
                // The actor weighs the item of the returned operation again, by the user's function. If that
                // function panics, the item counts with weight 0, so that the operation still gets its next
                // try.
                (Some(weights), Op::Cast(item) | Op::Call(item, _)) => {
                    catch(|| weights.weigh_again(item)).unwrap_or(0)
                }
                _ => 0,
            };
            bytes += u64::from(weight);
            let retried = Retried {
                weight,
                attempt,
                op,
            };
            self.stash.push_front(Entry::Retry(Box::new(retried)));
        }
        if let Some(weights) = &self.shared.weights {
            weights.gate.charge(bytes);
        }
        self.settle();
    }

    /// Drops the batch being gathered after a panic of the user's code: its entries are lost, and no batch
    /// starts.
    pub(super) fn lose_gathered(&mut self) {
        self.settle();
        self.lose_batch();
        self.release_gathered();
        self.shared.counters.panicked();
    }

    /// Ends the gathering of a batch: releases the bytes of the entries taken out of the queue, so that
    /// senders find room, and updates the counters. Returns the load of the batch and the reason of its
    /// cut.
    fn settle(&mut self) -> (Load, Option<Cut>) {
        let gathered = std::mem::take(&mut self.gathered);
        if let Some(weights) = &self.shared.weights {
            weights.gate.release(gathered.load.bytes + gathered.void);
        }
        self.shared.counters.cancelled(gathered.cancelled);
        let stashed = self.stash.len() as u64;
        self.ages.stashed = stashed;
        let stashed = stashed + self.held() as u64;
        self.shared.life.stashed.store(stashed, Relaxed);
        (gathered.load, gathered.cut)
    }

    /// Reports to the controller, at time `now`, the calls that arrived since the last report.
    fn announce(&mut self, now: Time) {
        if let Some(arrivals) = &self.shared.arrivals {
            let next = arrivals.next();
            let core = &mut self.core;
            // A caller may call again before the actor learns that the batch which answered this caller has
            // ended. So the actor reports the answers before the new calls.
            let answers = self.answers.load(Relaxed);
            if answers != self.known_answers {
                core.handle_answered(now, answers - self.known_answers);
                self.known_answers = answers;
            }
            if next == self.announced {
                return;
            }
            arrivals.take(next, &mut self.announced, |at, calls| {
                // A call may arrive after the driver read the clock. The actor reports it with the time
                // `now`, because the events that follow carry that time.
                core.handle_arrived(at.min(now), calls)
            });
        }
    }

    /// Ends the batch after the handler returned or panicked, at time `now`. Drops the operations left in
    /// the batch, applies the returned flow, and returns a panic to the driver.
    pub(super) fn finish(
        &mut self,
        now: Time,
        returned: Result<Flow, Panicked>,
    ) -> Result<(), Panicked> {
        self.announce(now);
        // The operations left in the batch hold the user's values, so their drop may panic, and the actor
        // catches that panic.
        let (flow, failed) = match returned {
            Ok(flow) => match catch(|| self.batch.clear()) {
                Ok(failed) => (flow, failed),
                Err(panicked) => return self.finish_lost(now, panicked),
            },
            Err(panicked) => return self.finish_lost(now, panicked),
        };
        let back = self.batch.take_back();
        if self.finish_batch(now, !failed, &back) {
            self.restarted = false;
        }
        self.put_back(back);
        match flow {
            Flow::Continue => {}
            Flow::HandleContinue => self.core.ask_continue(),
            Flow::Stop(cause) => self.stop(StopReason::Handler(cause)),
        }
        Ok(())
    }

    /// Ends a batch, as failed, after a panic in the handler or in the drop of an operation. The handler
    /// may have panicked while the actor still gathered the batch.
    #[cold]
    fn finish_lost(&mut self, now: Time, panicked: Panicked) -> Result<(), Panicked> {
        self.settle();
        self.lose_batch();
        self.shared.counters.panicked();
        self.finish_batch(now, false, &[]);
        Err(panicked)
    }

    /// Reports to the controller that the handler's batch has ended. The callers of the operations in
    /// `back` count as not answered, because the batch gave these operations back. Returns false if the
    /// handler had no batch.
    fn finish_batch(&mut self, now: Time, ok: bool, back: &[Back<T, R, M>]) -> bool {
        let Some(Taken { id, calls, .. }) = self.taken.take() else {
            return false;
        };
        self.answered = answered(calls, back);
        let took = self.core.handle_done(now, id, ok, self.answered);
        self.shared.counters.done(took, ok);
        self.count_flight();
        true
    }

    /// Drops the operations of a batch after a panic. A drop may panic, too, so the actor repeats the drop
    /// until the batch is empty.
    fn lose_batch(&mut self) {
        while catch(|| after_panic(|| self.batch.lose())).is_err() {}
    }

    /// Counts a panic of the handler outside of a batch, for the statistics of the actor.
    pub(super) fn count_panic(&self) {
        self.shared.counters.panicked();
    }

    /// Applies the result of the handler's `init`: the actor calls `handle_continue` next, or stops, or
    /// does neither.
    pub(super) fn initialized(&mut self, init: Init) {
        match init {
            Init::Ready => {}
            Init::Continue => self.core.ask_continue(),
            Init::Stop(cause) => self.stop(StopReason::Handler(cause)),
        }
    }

    pub(super) fn stop(&mut self, reason: StopReason) {
        self.shared.stop(reason);
    }

    /// Returns whether the actor may continue after the handler panicked in `step`. A handler that panics
    /// in each `handle_continue` would do so for ever, so the actor allows one such panic between two
    /// batches.
    pub(super) fn may_restart(&mut self, step: DriverStep) -> bool {
        step != DriverStep::Continue || !std::mem::replace(&mut self.restarted, true)
    }

    /// Prepares the driver's wait in `step` and returns the time at which the wait ends. Before a wait for
    /// more items (a hold), the actor takes the entries out of the queue, so that only a further entry ends
    /// the wait. An actor that rests with large buffers wakes up after a second to free them; then it has
    /// no further reason to wake up.
    pub(super) fn prepare_wait(&mut self, step: DriverStep, now: Time) -> Time {
        match step {
            DriverStep::Hold { items, until } => {
                self.set_aside(items);
                // The entries that arrived since the last poll may be enough to end the hold. `set_aside`
                // drops wake entries, so the actor checks the two causes of a wake entry here: a sender
                // without room, and an inspection.
                let enough = self.stash.len() as u64 > items;
                if enough || self.is_pressed() || !self.shared.inbox.is_empty() {
                    now
                } else {
                    until
                }
            }
            DriverStep::Rest if self.held_memory() > KEEP => now.after(IDLE_NS),
            DriverStep::Busy { until } => until,
            _ => Time::NEVER,
        }
    }

    /// Returns the capacity of the actor's largest buffer, in operations, to decide whether to free memory.
    fn held_memory(&self) -> usize {
        let spares = self.spares.iter().map(Batch::capacity);
        let most = spares.max().unwrap_or(0);
        self.batch.capacity().max(self.stash.capacity()).max(most)
    }

    /// Moves published entries into the stash until the stash holds `items` + 1 entries, which is enough to
    /// end a hold. Drops wake entries, which carry no item.
    fn set_aside(&mut self, items: u64) {
        let room = (items + 1).saturating_sub(self.stash.len() as u64);
        let stash = &mut self.stash;
        let popped = self.consumer.drain(room as usize, |entry| {
            if !matches!(entry, Entry::Wake) {
                stash.push_back(entry);
            }
        });
        self.ages.popped += popped.items as u64;
        self.settle();
    }

    /// Completes a wait in `step` that [`prepare_wait`](Self::prepare_wait) began and that ended at `now`.
    /// After a rest of a second, frees the memory of large buffers.
    pub(super) fn waited(&mut self, step: DriverStep, now: Time, until: Time) {
        if let DriverStep::Hold { items, .. } = step {
            // An inspection wakes the actor by an entry in the queue. That entry is no item, so the actor
            // removes it before the next poll counts the items.
            self.set_aside(items);
        }
        if step == DriverStep::Rest && now >= until && self.consumer.backlog() == 0 {
            self.batch.shrink(KEEP);
            self.stash.shrink_to(KEEP);
            self.spares.clear();
            if let Some(keys) = &mut self.keys {
                keys.shrink();
            }
        }
    }

    /// Returns the reason why the actor ends. An actor without a recorded reason ends because its handler
    /// panicked.
    pub(super) fn reason(&self) -> StopReason {
        self.shared.life.reason().unwrap_or(StopReason::Panicked)
    }

    /// Ends the actor: closes the queue, keeps the accepted but unhandled items for `Handle::stop`, and
    /// answers the callers of these items with an error.
    pub(super) fn end(&mut self, reason: StopReason) {
        self.ended = true;
        self.shared.close();
        self.shared.inbox.close();
        let unseen = match reason {
            StopReason::Abandoned => ReplyError::Abandoned,
            _ => ReplyError::Stopped,
        };
        let mut leftover = Vec::new();
        let mut bytes = 0;
        let mut keep = |entry| match entry {
            Entry::Cast(weight, item) => {
                bytes += u64::from(weight);
                leftover.push(item);
            }
            Entry::Call(weight, item, reply) => {
                bytes += u64::from(weight);
                reply.refuse(unseen.clone());
                leftover.push(item);
            }
            // The drop of the message runs user code. The actor must report its end even if that code
            // panics, so it catches the panic.
            Entry::Info(message) => {
                let _ = catch(|| drop(message));
            }
            Entry::Retry(retried) => {
                bytes += u64::from(retried.weight);
                match retried.op {
                    Op::Cast(item) => leftover.push(item),
                    Op::Call(item, reply) => {
                        reply.refuse(unseen.clone());
                        leftover.push(item);
                    }
                    Op::Info(message) => {
                        let _ = catch(|| drop(message));
                    }
                }
            }
            Entry::Wake => {}
        };
        if let Some(keys) = &mut self.keys {
            keys.end().for_each(&mut keep);
        }
        self.stash.drain(..).for_each(&mut keep);
        // The queue is closed, so no further entry arrives. `drain_closed` waits, for a millisecond at most,
        // for the entries that are still in senders' buffers.
        self.consumer.drain_closed(&mut keep);
        self.shared.life.stashed.store(0, Relaxed);
        if let Some(weights) = &self.shared.weights {
            weights.gate.release(bytes);
        }
        self.shared.life.end(reason, leftover);
    }
}

impl<T: Send, R: Send, M: Send> Drop for Actor<T, R, M> {
    /// Reports the end of the actor to callers and handles if a runtime shuts down and drops the actor's
    /// task.
    fn drop(&mut self) {
        if !self.ended {
            let _ = catch(|| self.batch.lose());
            let reason = self.shared.life.reason();
            self.end(match reason {
                Some(reason @ (StopReason::Asked(_) | StopReason::Handler(_))) => reason,
                _ if std::thread::panicking() => StopReason::Panicked,
                _ => StopReason::Abandoned,
            });
        }
    }
}

/// Counts the callers that a batch with `calls` calls answered. The callers of the calls in `back` have no
/// answer, because the handler gave these calls back for another try.
fn answered<T, R, M>(calls: u64, back: &[Back<T, R, M>]) -> u64 {
    let waiting = back.iter().filter(|back| matches!(back.op, Op::Call(..)));
    calls.saturating_sub(waiting.count() as u64)
}

/// The capacity, in operations, that an actor keeps in each of its buffers after a second without an item.
/// The actor frees the memory of larger buffers.
const KEEP: usize = 256;

/// The greatest number of empty batches that an actor keeps for reuse. The bound limits the memory.
const SPARES: usize = 64;

/// The nanoseconds (one second) without an item after which an actor frees the memory of its large buffers.
const IDLE_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
