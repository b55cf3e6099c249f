//! The pipeline of one connection: it holds the queued commands, the commands in flight and the
//! callers that wait for replies, and asks the controller when to flush.
//!
//! The pipeline is pure: the driver passes the time in, the pipeline asks its [`Boundary`] and returns
//! the next step. The driver owns sockets and clocks. The pipeline stores wakers as data, and returns
//! them to be woken.
//!
//! ```text
//! submit -> out, queued -> take (a flush) -> flight -> deliver (replies, in order) -> slot -> take_outcome
//! ```
//!
//! Invariants: the pipeline assigns replies to the commands in flight in the order of submission. If a caller
//! drops its future, its slot stays occupied until the reply arrives, so no reply reaches another caller.
//! Commands and bytes never exceed the bounds.

mod line;
mod slots;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use tidegate::Time;
use tidegate::boundary::{Boundary, BoundaryError, Cut, Step};
use tidegate::controller::{BatchId, Load, Reason, Snapshot};

use crate::error::Executed;
use crate::pulse::Pulse;
use crate::reply::Value;
use crate::stats::Depths;
use crate::wire::{Mark, Wire};
use line::Line;
use slots::{NO_SLOT, Slots};

pub(crate) use line::Ticket;
pub(crate) use slots::{Failure, Outcome, SlotId};

/// The bounds of a pipeline, which limit its memory: the greatest numbers of commands and of bytes that it
/// holds, queued and in flight together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) commands_max: u64,
    pub(crate) bytes_max: u64,
}

/// The error of a submission that finds no room: the commands and bytes that the pipeline holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
}

/// The kind of replies that the server sends to the commands of a submission, by which the pipeline assigns
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One reply for each command of the submission.
    Replies,
    /// One confirming push for each channel or pattern, or one error in place of all these pushes: for
    /// subscriptions under RESP3.
    Pushes,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: SlotId,
    /// The number of replies to this submission that have yet to arrive. At 0 the submission is complete.
    left: u32,
    commands: u32,
    bytes: u32,
    answer: Answer,
    since: Time,
}

/// A batch of commands that the driver has written in one go, and that still lacks replies. It serves the
/// measurement of round trips.
#[derive(Clone, Copy, Debug)]
struct Flush {
    commands: u64,
    left: u64,
    at: Time,
    answered: bool,
}

/// The driver's next step with the commands that the pipeline has queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Do nothing, because no command is queued, or because the previous flush is still being written.
    Nothing,
    /// Write this many queued submissions; the reason says why the flush has this size.
    Write(u64, Reason),
    /// Hold the queued commands back until this time, so that others can join them. The driver asks again
    /// whenever a command arrives.
    Wait(Time, Reason),
}

pub(crate) struct Pipeline {
    boundary: Boundary,
    /// The id of the flush that the driver is writing; the controller learns its cost by this id. `None`
    /// while the driver writes none.
    writing: Option<BatchId>,
    room: Room,
    out: Wire,
    queued: VecDeque<Entry>,
    queued_load: Load,
    /// The commands and bytes that have joined the queue since the pipeline last reported to the controller.
    arrived: Load,
    oldest: Time,
    urgent: bool,
    flight: VecDeque<Entry>,
    flight_load: Load,
    flushes: VecDeque<Flush>,
    slots: Slots,
    /// The line of callers that wait until the pipeline has room.
    line: Line,
    now: Time,
    /// The waker of the driver's task; `None` while the task is awake.
    driver: Option<Waker>,
    closed: Option<Failure>,
    pub(crate) pulse: Pulse,
    pub(crate) depths: Depths,
}

impl Pipeline {
    pub(crate) fn new(boundary: Boundary, room: Room) -> Self {
        Self {
            boundary,
            writing: None,
            room,
            out: Wire::default(),
            queued: VecDeque::new(),
            queued_load: Load::default(),
            arrived: Load::default(),
            oldest: Time::ZERO,
            urgent: false,
            flight: VecDeque::new(),
            flight_load: Load::default(),
            flushes: VecDeque::new(),
            slots: Slots::default(),
            line: Line::default(),
            now: Time::ZERO,
            driver: None,
            closed: None,
            pulse: Pulse::default(),
            depths: Depths::default(),
        }
    }

    // ---- getters of the pipeline's state

    /// Returns the state of the controller and the counts of its decisions, for the client's statistics.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }

    /// Returns the number of commands that the pipeline holds, queued and in flight together, to compare with
    /// the bound.
    pub(crate) const fn commands(&self) -> u64 {
        self.queued_load.items + self.flight_load.items
    }

    pub(crate) const fn queued(&self) -> u64 {
        self.queued_load.items
    }

    pub(crate) const fn in_flight(&self) -> u64 {
        self.flight_load.items
    }

    const fn bytes(&self) -> u64 {
        self.queued_load.bytes + self.flight_load.bytes
    }

    /// Returns whether the pipeline holds no command, neither queued nor in flight.
    pub(crate) const fn is_idle(&self) -> bool {
        self.queued_load.items == 0 && self.flight_load.items == 0
    }

    /// Returns whether the driver sleeps. If it does, [`last_seen`](Self::last_seen) may be long past.
    pub(crate) const fn is_asleep(&self) -> bool {
        self.driver.is_some()
    }

    pub(crate) const fn last_seen(&self) -> Time {
        self.now
    }

    pub(crate) const fn closed(&self) -> Option<&Failure> {
        self.closed.as_ref()
    }

    // ---- calls that callers make

    /// Queues `commands` commands that `encode` writes, and opens one slot for their replies. Returns
    /// no slot if no caller wants the replies. The caller wakes the driver with the returned waker.
    pub(crate) fn submit(
        &mut self,
        now: Time,
        what: Submission,
        encode: impl FnOnce(&mut Wire),
    ) -> Result<(Option<SlotId>, Option<Waker>), Full> {
        let now = self.tick(now);
        let commands = u64::from(what.commands);
        let full = Full {
            commands: self.commands(),
            bytes: self.bytes(),
        };
        // If the pipeline holds no command, it accepts even a submission larger than its bounds: the
        // submission would otherwise wait for ever.
        let alone = self.is_idle() || what.own;
        if full.commands + commands > self.room.commands_max && !alone {
            return Err(full);
        }
        let writing = Writing::begin(&mut self.out);
        encode(writing.out);
        let written = writing.len();
        if full.bytes + written as u64 > self.room.bytes_max && !alone {
            return Err(full);
        }
        writing.keep();
        if self.queued.is_empty() {
            self.oldest = now;
        }
        let slot = what.wanted.then(|| self.slots.open());
        let load = Load::new(commands, written as u64);
        self.queued.push_back(Entry {
            slot: slot.unwrap_or(NO_SLOT),
            left: what.commands,
            commands: what.commands,
            bytes: u32::try_from(written).unwrap_or(u32::MAX),
            answer: what.answer,
            since: now,
        });
        self.queued_load = plus(self.queued_load, load);
        self.urgent |= what.urgent;
        self.pulse.arrived(now, commands);
        self.arrived = plus(self.arrived, load);
        Ok((slot, self.driver.take()))
    }

    /// Takes the outcome of `slot`. If there is no outcome yet, the pipeline wakes `waker` as soon as there
    /// is one.
    pub(crate) fn take_outcome(&mut self, slot: SlotId, waker: &Waker) -> Option<Outcome> {
        self.slots.take(slot, waker)
    }

    /// Gives up the slot of a caller that dropped its future. The commands keep their place in the order of
    /// replies, because the server still answers them.
    pub(crate) fn abandon(&mut self, slot: SlotId) {
        self.slots.abandon(slot);
    }

    /// Puts a submission of this many commands into the line of callers that wait for room. The pipeline
    /// wakes `waker` once there is room, or once the pipeline is closed; the caller then submits again.
    pub(crate) fn wait_for_room(
        &mut self,
        ticket: &mut Option<Ticket>,
        commands: u32,
        waker: &Waker,
    ) {
        self.line.stand(ticket, commands, waker);
    }

    /// Takes a submission out of the line of callers that wait for room, because its caller gave up.
    pub(crate) fn leave_line(&mut self, ticket: Ticket) {
        self.line.leave(ticket);
    }

    /// Refuses new submissions and lets the accepted ones finish, because the client closes. The caller wakes
    /// the driver with the returned waker.
    pub(crate) fn drain(&mut self) -> Option<Waker> {
        self.closed.get_or_insert(Failure::Closed);
        self.driver.take()
    }

    // ---- events of the connection

    /// Assigns the replies of one read to the commands in flight, oldest first, and collects the wakers of
    /// their callers. Returns false on a reply that no command asked for.
    pub(crate) fn deliver(
        &mut self,
        now: Time,
        values: impl Iterator<Item = Value>,
        wakers: &mut Vec<Waker>,
        pushes: &mut Vec<Value>,
    ) -> bool {
        let now = self.tick(now);
        let mut answered = 0;
        let mut callers = 0;
        let mut asked = true;
        for value in values {
            let confirms = self
                .flight
                .front()
                .is_some_and(|e| e.answer == Answer::Pushes);
            if matches!(value, Value::Push(_)) && !(confirms && is_confirmation(&value)) {
                pushes.push(value);
                continue;
            }
            let Some(entry) = self.flight.front_mut() else {
                asked = false;
                break;
            };
            // If a submission expects confirming pushes, a reply of another kind is the server's refusal, and
            // replaces all of the pushes.
            let whole = confirms && !matches!(value, Value::Push(_));
            entry.left = if whole { 0 } else { entry.left - 1 };
            let entry = *entry;
            if entry.left == 0 {
                self.flight.pop_front();
                self.flight_load.items -= u64::from(entry.commands);
                self.flight_load.bytes -= u64::from(entry.bytes);
                answered += u64::from(entry.commands);
            }
            callers += self.slots.answer(
                entry.slot,
                value,
                entry.commands == 1,
                entry.left == 0,
                wakers,
            );
        }
        self.answered(now, answered, callers);
        self.make_room(wakers);
        asked
    }

    /// Ends the flush that [`Pipeline::take`] started last. `cost_ns` is the time, in nanoseconds, that the
    /// driver spent on writing the flush.
    pub(crate) fn written(&mut self, now: Time, cost_ns: u64, ok: bool) {
        let now = self.tick(now);
        self.pulse.wrote(cost_ns);
        self.finish_writing(now, cost_ns, ok);
    }

    fn finish_writing(&mut self, now: Time, cost_ns: u64, ok: bool) {
        if let Some(id) = self.writing.take() {
            let done = self.boundary.done_with(now, id, cost_ns, ok);
            done.unwrap_or_else(impossible);
        }
    }

    /// Ends the flushes of a broken connection. The commands in flight fail, and their errors say that the
    /// server may have executed them. The queued commands stay queued, unless the client is closing: then
    /// they fail as not executed.
    pub(crate) fn lost(&mut self, cause: &Arc<str>, wakers: &mut Vec<Waker>) {
        let failure = |executed| Failure::Lost {
            executed,
            cause: Arc::clone(cause),
        };
        for entry in std::mem::take(&mut self.flight) {
            self.slots
                .fail(entry.slot, failure(Executed::Maybe), wakers);
        }
        self.flight_load = Load::default();
        self.finish_writing(self.now, 0, false);
        self.forget_flushes();
        if self.closed.is_some() {
            self.refuse(&failure(Executed::No), wakers);
        }
        self.make_room(wakers);
    }

    /// Removes the queued commands, and fails them with `failure`, because no connection will carry them.
    pub(crate) fn refuse(&mut self, failure: &Failure, wakers: &mut Vec<Waker>) {
        for entry in std::mem::take(&mut self.queued) {
            self.slots.fail(entry.slot, failure.clone(), wakers);
        }
        self.out.clear(usize::MAX);
        self.queued_load = Load::default();
        self.urgent = false;
        self.make_room(wakers);
    }

    /// Closes the pipeline: it accepts nothing more, fails all commands and wakes all callers. The caller of
    /// this function wakes the driver with the returned waker.
    pub(crate) fn close(&mut self, failure: &Failure, wakers: &mut Vec<Waker>) -> Option<Waker> {
        self.closed.get_or_insert_with(|| failure.clone());
        for entry in std::mem::take(&mut self.flight) {
            self.slots.fail(entry.slot, failure.clone(), wakers);
        }
        self.flight_load = Load::default();
        self.finish_writing(self.now, 0, false);
        self.forget_flushes();
        self.refuse(failure, wakers);
        self.driver.take()
    }

    /// Fails the commands that have waited longer than `timeout_ns` for a reply. Those in flight keep their
    /// places in the order of replies. Those in the queue leave it, so that the server never executes a
    /// command after the caller has learned that it was not executed. Returns the time at which the next
    /// command times out.
    pub(crate) fn expire(
        &mut self,
        now: Time,
        timeout_ns: u64,
        wakers: &mut Vec<Waker>,
    ) -> Option<Time> {
        let now = self.tick(now);
        let is_overdue = |entry: &&Entry| entry.since.after(timeout_ns) <= now;
        let flying = self.flight.iter().take_while(is_overdue).count();
        let waiting = self.queued.iter().take_while(is_overdue).count();
        for entry in self.flight.iter_mut().take(flying) {
            // The entry gives up its slot, so that the pipeline discards a late reply: by then the slot may
            // serve another caller.
            let slot = std::mem::replace(&mut entry.slot, NO_SLOT);
            let failure = Failure::TimedOut(Executed::Maybe);
            self.slots.fail(slot, failure, wakers);
        }
        let next = [self.flight.get(flying), self.queued.get(waiting)];
        let next = next.into_iter().flatten();
        let next = next.map(|entry| entry.since.after(timeout_ns)).min();
        if self.queued.iter().take(waiting).any(|e| e.slot != NO_SLOT) {
            self.remove_overdue(waiting, wakers);
        }
        next
    }

    /// Removes those of the first `overdue` queued entries for which a caller waits. The others stay, because
    /// no caller learns the fate of a command if the client discards its reply.
    fn remove_overdue(&mut self, overdue: usize, wakers: &mut Vec<Waker>) {
        let behind = self.queued.split_off(overdue);
        let entries = std::mem::take(&mut self.queued);
        let bytes = entries.iter().map(|entry| entry.bytes as usize).sum();
        let mut front = Wire::default();
        self.out.move_front(bytes, &mut front);
        let (front, mut at) = (front.to_vec(), 0);
        let mut out = Wire::default();
        for entry in entries {
            let end = at + entry.bytes as usize;
            if entry.slot == NO_SLOT {
                out.block().extend_from_slice(&front[at..end]);
                self.queued.push_back(entry);
            } else {
                let failure = Failure::TimedOut(Executed::No);
                self.slots.fail(entry.slot, failure, wakers);
                self.queued_load.items -= u64::from(entry.commands);
                self.queued_load.bytes -= u64::from(entry.bytes);
            }
            at = end;
        }
        out.append(&self.out);
        self.out = out;
        self.queued.extend(behind);
        self.urgent = self.urgent && !self.queued.is_empty();
        if let Some(first) = self.queued.front() {
            self.oldest = first.since;
        }
        self.make_room(wakers);
    }

    /// Returns the time at which the oldest command is overdue, queued or in flight, so that the driver looks
    /// again then.
    pub(crate) fn due(&self, timeout_ns: u64) -> Option<Time> {
        let oldest = self.flight.front().or_else(|| self.queued.front());
        oldest.map(|entry| entry.since.after(timeout_ns))
    }

    /// Returns the time at which the driver took the oldest flush that still lacks replies, to detect a
    /// silent server.
    pub(crate) fn waiting_since(&self) -> Option<Time> {
        self.flushes.front().map(|f| f.at)
    }

    // ---- the driver's next step

    /// Returns the next step for the queued commands. Repeated calls are harmless.
    pub(crate) fn poll_flush(&mut self, now: Time) -> Next {
        let now = self.tick(now);
        if self.queued.is_empty() {
            return Next::Nothing;
        }
        let arrived = std::mem::take(&mut self.arrived);
        let told = self.boundary.arrived(now, arrived);
        let step = told.and_then(|()| self.boundary.poll(now, self.queued_load, self.oldest));
        match step.unwrap_or_else(impossible) {
            Step::Take(limit) => self.cut(limit),
            Step::Hold { .. } if self.urgent => self.cut(self.boundary.limit()),
            Step::Hold { until, .. } => Next::Wait(until, self.boundary.reason()),
            // The driver has nothing to do now: it asks again as soon as it has written the flush in
            // progress.
            Step::Busy { .. } | Step::Rest => Next::Nothing,
        }
    }

    /// Returns the next step of the driver: to write as many queued entries as the limit allows, at least
    /// one.
    fn cut(&self, limit: Load) -> Next {
        let forced = |cut| match self.urgent {
            true => Cut::Forced(Reason::Asked),
            false => cut,
        };
        let Load { items, bytes } = self.queued_load;
        let all = self.queued.len() as u64;
        if items <= limit.items && bytes <= limit.bytes {
            return Next::Write(all, self.boundary.reason_for(forced(Cut::Drained)));
        }
        let (mut n, mut sum) = (0, Load::default());
        for entry in &self.queued {
            sum = plus(
                sum,
                Load::new(u64::from(entry.commands), u64::from(entry.bytes)),
            );
            if n > 0 && (sum.items > limit.items || sum.bytes > limit.bytes) {
                break;
            }
            n += 1;
        }
        Next::Write(n, self.boundary.reason_for(forced(Cut::Items)))
    }

    /// Moves `entries` entries from the queue into flight, and their bytes to `into`, which is empty. The
    /// driver ends this flush with [`Pipeline::written`] or [`Pipeline::lost`] before it takes the next one.
    pub(crate) fn take(&mut self, now: Time, entries: u64, reason: Reason, into: &mut Wire) {
        let now = self.tick(now);
        assert!(into.is_empty(), "the flush before is not written yet");
        let batch = if entries == self.queued.len() as u64 {
            std::mem::swap(&mut self.out, into);
            self.flight.append(&mut self.queued);
            std::mem::take(&mut self.queued_load)
        } else {
            let mut batch = Load::default();
            for entry in self.queued.drain(..entries as usize) {
                batch = plus(
                    batch,
                    Load::new(u64::from(entry.commands), u64::from(entry.bytes)),
                );
                self.flight.push_back(entry);
            }
            self.out.move_front(batch.bytes as usize, into);
            self.queued_load.items -= batch.items;
            self.queued_load.bytes -= batch.bytes;
            batch
        };
        self.oldest = now;
        self.urgent = self.urgent && !self.queued.is_empty();
        self.flight_load = plus(self.flight_load, batch);
        self.flushes.push_back(Flush {
            commands: batch.items,
            left: batch.items,
            at: now,
            answered: false,
        });
        self.depths.record(batch.items);
        let left = self.queued_load;
        let started = self.boundary.started(now, batch, left, Cut::Forced(reason));
        self.writing = Some(started.unwrap_or_else(impossible));
    }

    /// Stores the waker of the driver's task, which is about to sleep. The next submission wakes the driver.
    pub(crate) fn park(&mut self, waker: &Waker) {
        self.driver = Some(waker.clone());
    }

    /// Removes the waker of the driver's task, because the task is awake and needs no wake-up.
    pub(crate) fn unpark(&mut self) {
        self.driver = None;
    }

    // ---- helpers

    /// Counts `answered` commands as answered, in the flushes that carried them, oldest first, and reports
    /// this to the controller.
    fn answered(&mut self, now: Time, mut answered: u64, callers: u64) {
        while answered > 0
            && let Some(flush) = self.flushes.front_mut()
        {
            let items = answered.min(flush.left);
            let took_ns = now.since(flush.at);
            if !flush.answered {
                self.pulse.round_trip(took_ns);
            }
            flush.answered = true;
            flush.left -= items;
            answered -= items;
            let batch = flush.commands;
            if flush.left == 0 {
                self.flushes.pop_front();
            }
            let told = self.boundary.replied(now, items, batch, took_ns);
            told.unwrap_or_else(impossible);
        }
        if callers > 0 {
            self.pulse.delivered(now, callers);
            let told = self.boundary.expect(now, callers);
            told.unwrap_or_else(impossible);
        }
    }

    /// Reports the commands of a broken connection to the controller as answered, after the average round
    /// trip. Otherwise the controller would wait for their replies.
    fn forget_flushes(&mut self) {
        let took_ns = self.pulse.rtt_ns as u64;
        for flush in std::mem::take(&mut self.flushes) {
            let (items, batch) = (flush.left, flush.commands);
            let told = self.boundary.replied(self.now, items, batch, took_ns);
            told.unwrap_or_else(impossible);
        }
    }

    /// Wakes callers that wait for room, once a quarter of the pipeline's room is free: the oldest callers
    /// first, as many as the free room holds.
    ///
    /// A woken caller may have given up, and an idle pipeline has no later event at which it could wake
    /// further callers. So an idle pipeline wakes all callers, and so does a closed pipeline.
    fn make_room(&mut self, wakers: &mut Vec<Waker>) {
        let Room {
            commands_max,
            bytes_max,
        } = self.room;
        let low = |n: u64, max: u64| n <= max - max.div_ceil(4);
        if self.is_idle() || self.closed.is_some() {
            self.line.call_all(wakers);
        } else if low(self.commands(), commands_max) && low(self.bytes(), bytes_max) {
            self.line.call(commands_max - self.commands(), wakers);
        }
    }

    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }
}

/// Panics, because the boundary refuses only calls that contradict each other, and the pipeline makes no such
/// calls.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the pipeline keeps to the order of calls: {error}")
}

/// One submission of a caller: one or several commands, of which the caller gets the replies together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submission {
    pub(crate) commands: u32,
    /// True if a caller waits for the replies to the submission; otherwise the client discards them.
    pub(crate) wanted: bool,
    pub(crate) urgent: bool,
    /// True for a submission that the client makes for itself, such as a `PING`. Such submissions are few and
    /// small, and exempt from the bounds.
    pub(crate) own: bool,
    pub(crate) answer: Answer,
}

/// A submission while the client encodes it. The drop of this value removes the encoded bytes, unless the
/// pipeline has called `keep`: after a refusal, or after a panic in an argument.
struct Writing<'a> {
    out: &'a mut Wire,
    from: Mark,
    had: usize,
    kept: bool,
}

impl<'a> Writing<'a> {
    const fn begin(out: &'a mut Wire) -> Self {
        let (from, had) = (out.mark(), out.len());
        Self {
            out,
            from,
            had,
            kept: false,
        }
    }

    const fn len(&self) -> usize {
        self.out.len() - self.had
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.out.go_back(self.from);
        }
    }
}

/// Returns whether a push confirms that a subscription begins or ends, so that it answers a command.
fn is_confirmation(value: &Value) -> bool {
    let Value::Push(items) = value else {
        return false;
    };
    let kind = items.first().and_then(Value::as_bytes);
    kind.is_some_and(|k| k.ends_with(b"subscribe"))
}

const fn plus(a: Load, b: Load) -> Load {
    Load::new(a.items + b.items, a.bytes + b.bytes)
}

#[cfg(test)]
mod tests;
