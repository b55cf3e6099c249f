//! Gathers the changes of a consumer since its last delta, and the receivers that wait until a delta is
//! durable. A delta is the command in the log that holds the changes of a consumer since the delta before it.
//!
//! This module owns the choice of when the consumer writes a delta: at once if a receiver waits for an answer
//! to its acknowledgement, otherwise once changes have gathered for [`LINGER_US`] or there are [`MANY`] of
//! them. A crash before the delta is durable causes redeliveries and no other loss, so the deltas may be few,
//! and they take a small share of the log at any delivery rate. [`super::pending`] owns the pending messages.
//!
//! All memory is bounded: past [`FULL`] changes the consumer delivers nothing until the caller takes a delta.
//! A message may appear in several deltas; one delta holds at most [`TOLD_MAX`] messages that an earlier
//! delta held already, and the next delta holds the rest.
//!
//! A stream that keeps a message only until consumers have settled it removes the messages that deltas list
//! as settled. So a consumer of such a stream lists each of them ([`Record::Settled`]), and no delta states
//! an ack floor above a settled message that it has no room to list.

use std::collections::VecDeque;

use super::delta::{Delta, Settling, runs_of};
use super::pending::Pending;
use super::redelivery::Live;
use super::seam::Sink;
use super::state::Position;
use crate::schema::sequence::StreamSeq;

/// The time for which a consumer gathers changes before a delta is due, in microseconds. Longer gathering
/// makes fewer deltas.
const LINGER_US: u64 = 100_000;
/// The number of gathered changes at which the consumer's delta is due at once, so that a delta does not get
/// too large.
const MANY: usize = 4096;
/// The number of changes since the last delta at which the consumer stops delivering. The consumer delivers
/// again after the caller has taken a delta. The limit bounds the memory of changes.
const FULL: usize = 1 << 15;
/// The limit on the redelivered messages in one delta that an earlier delta already held, and likewise on the
/// removed messages. The next delta holds the rest, so that no delta gets too large.
const TOLD_MAX: usize = 1 << 14;
/// The limit on the receivers that wait for answers to their acknowledgements, which bounds the memory.
/// Further receivers get no answer, and repeat their acknowledgements.
const WAITING_MAX: usize = 1 << 16;

/// The record that the log keeps of a consumer through its deltas, so that the next leader can continue it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// No record: the log does not keep the consumer's state, so the consumer writes no deltas.
    None,
    /// The consumer's state: its position and its pending messages.
    State,
    /// The consumer's state, and each message that the consumer has settled, because the stream keeps a
    /// message only until consumers have settled it.
    Settled,
}

/// The reason for which a message no longer awaits an acknowledgement, which decides whether the stream may
/// remove the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A receiver has acknowledged or terminated the message, the consumer expects no acknowledgement, or the
    /// stream no longer holds the message.
    Settled,
    /// The consumer delivers the message no more, although no receiver has acknowledged it. The stream must
    /// keep it.
    GivenUp,
}

/// The changes of a consumer since its last delta, and the receivers that wait until deltas are durable
/// before they get an answer.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    /// The content of the consumer's deltas, as the stream's retention needs it.
    record: Record,
    /// The highest message number that the consumer's last delta states as delivered. The next delta lists
    /// the pending messages above it.
    told: StreamSeq,
    /// The number of messages that the consumer has delivered for the first time since the last delta, which
    /// counts toward the size of the next one.
    new: usize,
    /// The numbers of messages that the consumer has redelivered or delayed since the last delta, if an
    /// earlier delta held them. The next delta corrects what that delta says.
    touched: Vec<StreamSeq>,
    /// The numbers of messages that an earlier delta held as pending, and that receivers have acknowledged or
    /// the consumer has given up since. The next delta removes them.
    removed: Vec<StreamSeq>,
    /// The numbers of all messages that the consumer has settled since the last delta, and (`given_up`) of
    /// those that it has given up. [`Record::Settled`] uses these lists in place of `removed`, because the
    /// stream removes the settled messages.
    settled: Vec<StreamSeq>,
    given_up: Vec<StreamSeq>,
    /// The ack floor in the consumer's last delta. The next delta repeats it if it has no room for all
    /// settled messages.
    floor: Position,
    /// The time of the first change since the last delta, in microseconds since the Unix epoch; `None`
    /// without a change. A delta is due some time after it.
    since: Option<u64>,
    /// `taken` is the number of the consumer's deltas that the caller has taken so far, and `durable` is the
    /// number of those that are durable in the log. The answer to an acknowledgement waits for `durable`.
    taken: u64,
    durable: u64,
    /// The reply subjects of the receivers that wait for an answer to an acknowledgement, each with the
    /// number of deltas that must be durable before the answer.
    waiting: VecDeque<(u64, Box<[u8]>)>,
}

impl Changes {
    pub(super) fn new(record: Record, delivered: Position, ack_floor: Position) -> Self {
        Self {
            record,
            told: delivered.stream_seq,
            new: 0,
            touched: Vec::new(),
            removed: Vec::new(),
            settled: Vec::new(),
            given_up: Vec::new(),
            floor: ack_floor,
            since: None,
            taken: 0,
            durable: 0,
            waiting: VecDeque::new(),
        }
    }

    fn len(&self) -> usize {
        let ended = self.removed.len() + self.settled.len() + self.given_up.len();
        self.new + self.touched.len() + ended
    }

    fn is_logged(&self) -> bool {
        self.record != Record::None
    }

    /// Returns whether the deltas of this consumer list the messages that the consumer has settled, because
    /// the stream removes them.
    pub(super) fn lists_settled(&self) -> bool {
        self.record == Record::Settled
    }

    /// Returns whether the next delta lists messages that the consumer has settled, so that the stream
    /// removes messages when it applies the delta.
    pub(super) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    /// Makes the deltas of a consumer that the log keeps list the settled messages from now on, or not,
    /// because the stream's retention has changed.
    pub(super) fn set_lists_settled(&mut self, lists: bool) {
        match (self.record, lists) {
            (Record::State, true) => {
                let ended = self.removed.drain(..);
                self.settled.extend(ended);
                self.record = Record::Settled;
            }
            (Record::Settled, false) => {
                let ended = self.settled.drain(..).chain(self.given_up.drain(..));
                self.removed.extend(ended.filter(|seq| *seq <= self.told));
                self.record = Record::State;
            }
            _ => {}
        }
    }

    /// Returns whether the consumer has so many changes that the caller must take a delta before the consumer
    /// delivers more messages. The limit bounds the memory.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= FULL
    }

    fn note(&mut self, now: u64) {
        if self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// Notes the first delivery of a message as a change for the next delta, so that the next leader does not
    /// deliver it a first time again.
    pub(super) fn note_new(&mut self, now: u64) {
        if self.is_logged() {
            self.note(now);
            self.new += 1;
        }
    }

    /// Notes the redelivery or the delay of a pending message as a change for the next delta, so that the
    /// next leader knows the new times.
    pub(super) fn note_touched(&mut self, now: u64, seq: StreamSeq, live: &mut Live) {
        if self.is_logged() {
            self.note(now);
            if seq <= self.told && !live.touched {
                live.touched = true;
                self.touched.push(seq);
            }
        }
    }

    /// Notes, as a change for the next delta, that a message no longer awaits an acknowledgement, so that the
    /// next leader does not redeliver it.
    pub(super) fn note_end(&mut self, now: u64, seq: StreamSeq, end: End) {
        if self.is_logged() {
            self.note(now);
        }
        match (self.record, end) {
            (Record::Settled, End::Settled) => self.settled.push(seq),
            (Record::Settled, End::GivenUp) => self.given_up.push(seq),
            (Record::State, _) if seq <= self.told => self.removed.push(seq),
            _ => {}
        }
    }

    /// Answers the acknowledgement of a receiver, as soon as all changes of the consumer so far are durable,
    /// because the receiver takes the answer as a promise.
    pub(super) fn answer(&mut self, reply: &[u8], sink: &mut impl Sink) {
        let after = self.taken + u64::from(self.since.is_some());
        if !self.is_logged() || after == self.durable {
            sink.answer(reply);
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((after, reply.into()));
        }
    }

    /// Returns the time at which the next delta is due, in microseconds since the Unix epoch; `None` without
    /// a change. The caller takes the delta then.
    pub(super) fn deadline(&self) -> Option<u64> {
        let since = self.since?;
        let awaited = self.waiting.back().is_some_and(|(n, _)| *n > self.taken);
        Some(if awaited || self.len() >= MANY {
            since
        } else {
            since + LINGER_US
        })
    }

    /// Returns the consumer's changes since its last delta as a new delta, which the caller proposes to the
    /// group; `None` without a change.
    pub(super) fn take(
        &mut self,
        now: u64,
        delivered: Position,
        ack_floor: Position,
        pending: &mut Pending<Live>,
    ) -> Option<Vec<u8>> {
        self.since?;
        let mut delta = Delta {
            delivered,
            ack_floor,
            ..Delta::default()
        };
        for seq in self.touched.drain(..self.touched.len().min(TOLD_MAX)) {
            if let Some(unacked) = pending.get_mut(seq) {
                unacked.live.touched = false;
                delta.unacked.push(unacked.with(()));
            }
        }
        delta.unacked.sort_unstable_by_key(|u| u.stream_seq);
        let new = pending.iter_after(self.told).map(|u| u.with(()));
        delta.unacked.extend(new);
        // The delta does not list a removed message up to the ack floor, because the floor already says that
        // such a message is acknowledged.
        let floor = ack_floor.stream_seq;
        self.removed.retain(|seq| *seq > floor);
        delta.removed = self
            .removed
            .drain(..self.removed.len().min(TOLD_MAX))
            .collect();
        delta.removed.sort_unstable();
        if self.lists_settled() {
            self.settled.sort_unstable();
            // A receiver may acknowledge a message that the consumer has given up. Such a message counts as
            // settled.
            let settled = &self.settled;
            self.given_up
                .retain(|seq| settled.binary_search(seq).is_err());
            let settled = take_ended(&mut self.settled, self.told);
            let given_up = take_ended(&mut self.given_up, self.told);
            if !self.settled.is_empty() || !self.given_up.is_empty() {
                // The delta keeps the old floor, because some settled messages have no room in it. A message
                // below the new floor would no longer count as pending, and if the leader died before the
                // next delta, no delta would list it.
                delta.ack_floor = self.floor;
            }
            delta.settling = Some(Settling { settled, given_up });
        }
        self.floor = delta.ack_floor;
        self.told = delivered.stream_seq;
        self.new = 0;
        self.taken += 1;
        self.since = (self.len() > 0).then_some(now);
        if self.since.is_some() {
            // This delta had no room for all changes. A receiver that has just begun to wait may need a
            // change that goes into the next delta, so it waits for the next delta.
            let waiting = self.waiting.iter_mut().rev();
            for (after, _) in waiting.take_while(|(after, _)| *after == self.taken) {
                *after += 1;
            }
        }
        let mut bytes = Vec::new();
        delta.encode(&mut bytes);
        Some(bytes)
    }

    /// Returns whether all deltas of the consumer that the caller has taken are durable in the log, so that a
    /// reset of the consumer comes after them.
    pub(super) const fn is_settled(&self) -> bool {
        self.taken == self.durable
    }

    /// Forgets all changes, except the messages settled before the new position, and begins to note changes
    /// of messages after `to`, because the log has recorded a reset of the consumer to this position. Answers
    /// every receiver that waits for an earlier change, because the reset makes that change void.
    pub(super) fn handle_reset(&mut self, to: Position, sink: &mut impl Sink) {
        debug_assert!(
            self.is_settled(),
            "a delta of before would be applied after"
        );
        (self.told, self.new) = (to.stream_seq, 0);
        self.floor = to;
        self.touched.clear();
        self.removed.clear();
        self.given_up.clear();
        // The consumer does not deliver these messages again, so the stream may remove them, and the next
        // delta must list them.
        self.settled.retain(|seq| *seq <= to.stream_seq);
        self.since = self.since.filter(|_| !self.settled.is_empty());
        for (_, reply) in self.waiting.drain(..) {
            sink.answer(&reply);
        }
    }

    /// Marks the oldest delta in flight as durable, and answers the receivers that wait for this delta,
    /// because a crash can no longer undo their acknowledgements.
    pub(super) fn handle_durable(&mut self, sink: &mut impl Sink) {
        debug_assert!(self.durable < self.taken, "a delta that was not taken");
        self.durable += 1;
        let ready = self
            .waiting
            .partition_point(|(after, _)| *after <= self.durable);
        for (_, reply) in self.waiting.drain(..ready) {
            sink.answer(&reply);
        }
    }
}

/// Takes messages out of the list of those that a consumer has settled or given up, as runs: all after
/// `told`, which no delta held, and at most [`TOLD_MAX`] of the others, so that the delta stays small.
fn take_ended(ended: &mut Vec<StreamSeq>, told: StreamSeq) -> Vec<super::delta::Run> {
    ended.sort_unstable();
    ended.dedup();
    let held = ended.partition_point(|seq| *seq <= told);
    let later = ended.split_off(held);
    let rest = ended.split_off(held.min(TOLD_MAX));
    let taken = std::mem::replace(ended, rest);
    runs_of(taken.into_iter().chain(later))
}
