//! Keeps the times at which a consumer's pending messages are due for redelivery, and the queue of the
//! messages that are due.
//!
//! This module owns two orders over the pending messages: by due time, and by turn in the queue.
//! `acks::queue_again` decides whether the consumer delivers a due message again or gives it up.
//! [`super::pending`] owns the pending messages themselves. A due time in the order counts only while the
//! pending message has the same due time, so an acknowledgement changes nothing in this module. The module
//! drops stale due times when they come first, or when they outnumber the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::pending::{Pending, Unacked};
use crate::schema::sequence::StreamSeq;

/// The part of a pending message that only the leader knows: its turn in the redelivery queue, and whether
/// the next delta lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    /// The message's place in the order of the redelivery queue; 0 if the message is not in the queue. Turns
    /// rise, so that the oldest message comes first.
    pub(super) turn: u64,
    /// True if the next delta includes the message, because the consumer has redelivered or delayed it. The
    /// mark avoids a second entry.
    pub(super) touched: bool,
}

/// A consumer's pending messages in two orders: by the time at which each is due, and by turn in the queue of
/// messages that are due for redelivery. So the consumer finds the next message of each at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Redelivery {
    due: BinaryHeap<Reverse<(u64, StreamSeq)>>,
    queue: BTreeMap<u64, StreamSeq>,
    last_turn: u64,
}

/// The number by which stale due times may exceed the pending messages. A due time is stale once its message
/// is acknowledged or delayed. Beyond this excess, the order drops all stale due times, which bounds the
/// memory.
const STALE_MIN: usize = 1024;

impl Redelivery {
    /// Returns the number of messages in the redelivery queue, which the consumer delivers before new
    /// messages.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the message that the consumer redelivers next; `None` if the redelivery queue is empty and the
    /// consumer turns to new messages.
    pub(super) fn next(&self) -> Option<StreamSeq> {
        self.queue.first_key_value().map(|(_, seq)| *seq)
    }

    /// Notes the time at which a message is due for redelivery, in microseconds since the Unix epoch, when
    /// the consumer has delivered or delayed it. The message in `pending` has the same due time.
    pub(super) fn schedule(&mut self, due_us: u64, seq: StreamSeq, pending: &Pending<Live>) {
        if self.due.len() > 2 * pending.len() + STALE_MIN {
            let living = pending.iter().filter(|u| u.live.turn == 0);
            self.due = living.map(|u| Reverse((u.due_us, u.stream_seq))).collect();
        }
        self.due.push(Reverse((due_us, seq)));
    }

    /// Returns the due time of the message that is due for redelivery first, in microseconds since the Unix
    /// epoch; `None` if no message has a due time. The consumer's next timeout is then, at the latest.
    pub(super) fn deadline(&mut self, pending: &Pending<Live>) -> Option<u64> {
        while let Some(Reverse((due_us, seq))) = self.due.peek() {
            if is_due(pending.get(*seq), *due_us) {
                return Some(*due_us);
            }
            self.due.pop();
        }
        None
    }

    /// Takes the first message that is due by `now` out of the order by due time, and returns it. The
    /// consumer then queues it for redelivery or gives it up.
    pub(super) fn pop_due(&mut self, now: u64, pending: &Pending<Live>) -> Option<StreamSeq> {
        self.deadline(pending).filter(|due| *due <= now)?;
        self.due.pop().map(|Reverse((_, seq))| seq)
    }

    /// Puts a pending message at the end of the redelivery queue, unless the message is in the queue already,
    /// so that messages come in the order in which they were due.
    pub(super) fn enqueue(&mut self, unacked: &mut Unacked<Live>) {
        if unacked.live.turn == 0 {
            self.last_turn += 1;
            unacked.live.turn = self.last_turn;
            self.queue.insert(self.last_turn, unacked.stream_seq);
        }
    }

    /// Takes a pending message out of the redelivery queue, if the message is in the queue, because the
    /// consumer has redelivered it or no longer has to.
    pub(super) fn dequeue(&mut self, unacked: &mut Unacked<Live>) {
        if unacked.live.turn != 0 {
            self.queue.remove(&unacked.live.turn);
            unacked.live.turn = 0;
        }
    }

    /// Panics if an invariant of the order by due time or of the redelivery queue does not hold. Only tests
    /// call this, after each event.
    pub(super) fn check_invariants(&self, pending: &Pending<Live>, timed: bool) {
        assert_eq!(
            self.queue.len(),
            pending.iter().filter(|u| u.live.turn != 0).count()
        );
        for (turn, seq) in &self.queue {
            assert_eq!(pending.get(*seq).map(|u| u.live.turn), Some(*turn));
        }
        for unacked in pending.iter().filter(|u| timed && u.live.turn == 0) {
            let entry = Reverse((unacked.due_us, unacked.stream_seq));
            assert!(
                self.due.iter().any(|d| *d == entry),
                "{} is never due",
                unacked.stream_seq
            );
        }
    }
}

fn is_due(unacked: Option<&Unacked<Live>>, due_us: u64) -> bool {
    unacked.is_some_and(|u| u.due_us == due_us && u.live.turn == 0)
}
