//! The changes of a consumer since its last delta, and the receivers that wait until a delta is durable. A
//! delta is the command in the log that holds the changes of a consumer since the delta before it.
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
//! as settled. So a consumer of such a stream lists each of them ([`Settled`]), and no delta states an ack
//! floor above a settled message that it has no room to list.

use std::collections::VecDeque;

use super::delta::Delta;
use super::pending::Pending;
use super::redelivery::Live;
use super::seam::Sink;
use super::state::Position;
use crate::schema::sequence::StreamSeq;

/// The time for which a consumer gathers changes before a delta is due, in microseconds.
const LINGER_US: u64 = 100_000;
/// The number of gathered changes at which the consumer's delta is due at once.
const MANY: usize = 4096;
/// The number of changes since the last delta at which the consumer stops delivering. It delivers again after
/// the caller has taken a delta.
const FULL: usize = 1 << 15;
/// The limit on the redelivered messages in one delta that an earlier delta already held, and likewise on the
/// removed messages. The next delta holds the rest.
const TOLD_MAX: usize = 1 << 14;
/// The most receivers that may wait for answers to their acknowledgements. Further receivers get no answer,
/// and repeat their acknowledgements.
const WAITING_MAX: usize = 1 << 16;

/// The changes of a consumer since the last delta.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    /// True if the log keeps this consumer.
    logged: bool,
    /// The highest delivered message in the last delta.
    told: StreamSeq,
    /// The number of messages that the consumer has delivered for the first time since the last delta.
    new: usize,
    /// The numbers of messages that the consumer has redelivered or delayed since the last delta, if an
    /// earlier delta held them.
    touched: Vec<StreamSeq>,
    /// The numbers of messages that an earlier delta held and that have been acknowledged or given up since
    /// the last delta.
    removed: Vec<StreamSeq>,
    /// The time of the first change since the last delta; `None` without a change.
    since: Option<u64>,
    /// The number of the consumer's deltas that the caller has taken so far, and (`durable`) the number of
    /// those that are durable in the log.
    taken: u64,
    durable: u64,
    /// The reply subjects of the receivers that wait for an answer to an acknowledgement, each with the
    /// number of deltas that must be durable before the answer.
    waiting: VecDeque<(u64, Box<[u8]>)>,
}

impl Changes {
    pub(super) fn new(logged: bool, told: StreamSeq) -> Self {
        Self {
            logged,
            told,
            new: 0,
            touched: Vec::new(),
            removed: Vec::new(),
            since: None,
            taken: 0,
            durable: 0,
            waiting: VecDeque::new(),
        }
    }

    fn len(&self) -> usize {
        self.new + self.touched.len() + self.removed.len()
    }

    /// Returns whether the caller has to take a delta before the consumer delivers more messages.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= FULL
    }

    fn note(&mut self, now: u64) {
        if self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// Notes the first delivery of a message as a change for the next delta.
    pub(super) fn note_new(&mut self, now: u64) {
        if self.logged {
            self.note(now);
            self.new += 1;
        }
    }

    /// Notes the redelivery or the delay of a pending message as a change for the next delta.
    pub(super) fn note_touched(&mut self, now: u64, seq: StreamSeq, live: &mut Live) {
        if self.logged {
            self.note(now);
            if seq <= self.told && !live.touched {
                live.touched = true;
                self.touched.push(seq);
            }
        }
    }

    /// Notes that a message is no longer pending.
    pub(super) fn note_removed(&mut self, now: u64, seq: StreamSeq) {
        if self.logged {
            self.note(now);
            if seq <= self.told {
                self.removed.push(seq);
            }
        }
    }

    /// Answers the acknowledgement of a receiver, as soon as all changes of the consumer so far are durable.
    pub(super) fn answer(&mut self, reply: &[u8], sink: &mut impl Sink) {
        let after = self.taken + u64::from(self.since.is_some());
        if !self.logged || after == self.durable {
            sink.answer(reply);
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((after, reply.into()));
        }
    }

    /// Returns the time at which the next delta is due, in microseconds since the Unix epoch; `None` without
    /// a change.
    pub(super) fn deadline(&self) -> Option<u64> {
        let since = self.since?;
        let awaited = self.waiting.back().is_some_and(|(n, _)| *n > self.taken);
        Some(if awaited || self.len() >= MANY {
            since
        } else {
            since + LINGER_US
        })
    }

    /// Returns the consumer's changes since its last delta as a new delta; `None` without a change.
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

    /// Returns whether all deltas of the consumer that the caller has taken are durable in the log.
    pub(super) const fn is_settled(&self) -> bool {
        self.taken == self.durable
    }

    /// Starts again after message `told`, as the log recorded the reset of the consumer. Drops all earlier
    /// changes, and answers every receiver that waits for one of these changes.
    pub(super) fn handle_reset(&mut self, told: StreamSeq, sink: &mut impl Sink) {
        debug_assert!(
            self.is_settled(),
            "a delta of before would be applied after"
        );
        (self.told, self.new, self.since) = (told, 0, None);
        self.touched.clear();
        self.removed.clear();
        for (_, reply) in self.waiting.drain(..) {
            sink.answer(&reply);
        }
    }

    /// Marks the oldest delta in flight as durable, and answers the receivers that wait for this delta.
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
