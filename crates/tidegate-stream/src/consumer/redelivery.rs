//! The due times of a consumer's pending messages, and the queue of the messages that are due for redelivery.
//!
//! Owns two orders over the pending messages: by due time, and by turn in the queue. `acks::queue_again`
//! decides whether the consumer delivers a due message again or gives it up. [`super::pending`] owns the
//! entries. A due time counts only while the entry has the same due time, so an acknowledgement changes
//! nothing in this module. The module drops stale due times when they come first, or when they outnumber the
//! others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::pending::{Pending, Unacked};
use crate::schema::sequence::StreamSeq;

/// The part of an unacknowledged message that only the leader knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    /// The message's turn in the redelivery queue; 0 if the message is not queued.
    pub(super) turn: u64,
    /// True if the next delta includes the message.
    pub(super) touched: bool,
}

/// The two orders over a consumer's pending messages: by due time, and by turn in the redelivery queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Redelivery {
    due: BinaryHeap<Reverse<(u64, StreamSeq)>>,
    queue: BTreeMap<u64, StreamSeq>,
    last_turn: u64,
}

/// The number of stale due times that the module always tolerates. With more of them, it may remove all stale
/// due times at once.
const STALE_MIN: usize = 1024;

impl Redelivery {
    /// Returns the number of messages in the redelivery queue.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the next message of the redelivery queue.
    pub(super) fn next(&self) -> Option<StreamSeq> {
        self.queue.first_key_value().map(|(_, seq)| *seq)
    }

    /// Notes the due time of a message. The message's entry in `pending` holds the same time.
    pub(super) fn schedule(&mut self, due_us: u64, seq: StreamSeq, pending: &Pending<Live>) {
        if self.due.len() > 2 * pending.len() + STALE_MIN {
            let living = pending.iter().filter(|u| u.live.turn == 0);
            self.due = living.map(|u| Reverse((u.due_us, u.stream_seq))).collect();
        }
        self.due.push(Reverse((due_us, seq)));
    }

    /// Returns the due time of the message that is due first.
    pub(super) fn deadline(&mut self, pending: &Pending<Live>) -> Option<u64> {
        while let Some(Reverse((due_us, seq))) = self.due.peek() {
            if is_due(pending.get(*seq), *due_us) {
                return Some(*due_us);
            }
            self.due.pop();
        }
        None
    }

    /// Takes the next message that is due by `now` out of the order by due time.
    pub(super) fn pop_due(&mut self, now: u64, pending: &Pending<Live>) -> Option<StreamSeq> {
        self.deadline(pending).filter(|due| *due <= now)?;
        self.due.pop().map(|Reverse((_, seq))| seq)
    }

    /// Puts a message at the end of the redelivery queue, unless the message is in the queue already.
    pub(super) fn enqueue(&mut self, unacked: &mut Unacked<Live>) {
        if unacked.live.turn == 0 {
            self.last_turn += 1;
            unacked.live.turn = self.last_turn;
            self.queue.insert(self.last_turn, unacked.stream_seq);
        }
    }

    /// Takes a message out of the redelivery queue, if the message is in the queue.
    pub(super) fn dequeue(&mut self, unacked: &mut Unacked<Live>) {
        if unacked.live.turn != 0 {
            self.queue.remove(&unacked.live.turn);
            unacked.live.turn = 0;
        }
    }

    /// Panics if an invariant does not hold: for tests.
    pub(super) fn check_invariants(&self, pending: &Pending<Live>) {
        assert_eq!(
            self.queue.len(),
            pending.iter().filter(|u| u.live.turn != 0).count()
        );
        for (turn, seq) in &self.queue {
            assert_eq!(pending.get(*seq).map(|u| u.live.turn), Some(*turn));
        }
        for unacked in pending.iter().filter(|u| u.live.turn == 0) {
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
