//! The due times of pending messages, and the queue of the messages that are due.
//!
//! Owns two orders over the pending messages: by due time, and by turn in the queue. Leaves the entries to
//! [`super::pending`]: a due time counts only while the entry has the same one, so that an acknowledgement
//! changes nothing here. Stale due times are dropped when they surface, or when they outnumber the rest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::pending::{Pending, Unacked};
use crate::schema::sequence::StreamSeq;

/// The part of an unacknowledged message that only the leader knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    /// Its turn in the queue; 0 if it is not queued.
    pub(super) turn: u64,
    /// True if the next delta includes it.
    pub(super) touched: bool,
}

/// The two orders over the pending messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Redelivery {
    due: BinaryHeap<Reverse<(u64, StreamSeq)>>,
    queue: BTreeMap<u64, StreamSeq>,
    last_turn: u64,
}

/// The number of stale due times up to which they are not removed.
const STALE_MIN: usize = 1024;

impl Redelivery {
    /// The number of messages in the queue.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The next message to redeliver.
    pub(super) fn next(&self) -> Option<StreamSeq> {
        self.queue.first_key_value().map(|(_, seq)| *seq)
    }

    /// Notes the due time of a message, which its entry holds, too.
    pub(super) fn schedule(&mut self, due_us: u64, seq: StreamSeq, pending: &Pending<Live>) {
        if self.due.len() > 2 * pending.len() + STALE_MIN {
            let living = pending.iter().filter(|u| u.live.turn == 0);
            self.due = living.map(|u| Reverse((u.due_us, u.stream_seq))).collect();
        }
        self.due.push(Reverse((due_us, seq)));
    }

    /// The due time of the first message.
    pub(super) fn deadline(&mut self, pending: &Pending<Live>) -> Option<u64> {
        while let Some(Reverse((due_us, seq))) = self.due.peek() {
            if is_due(pending.get(*seq), *due_us) {
                return Some(*due_us);
            }
            self.due.pop();
        }
        None
    }

    /// Takes out the next message that is due by `now`.
    pub(super) fn pop_due(&mut self, now: u64, pending: &Pending<Live>) -> Option<StreamSeq> {
        self.deadline(pending).filter(|due| *due <= now)?;
        self.due.pop().map(|Reverse((_, seq))| seq)
    }

    /// Puts a message at the end of the queue, if it is not in it.
    pub(super) fn enqueue(&mut self, unacked: &mut Unacked<Live>) {
        if unacked.live.turn == 0 {
            self.last_turn += 1;
            unacked.live.turn = self.last_turn;
            self.queue.insert(self.last_turn, unacked.stream_seq);
        }
    }

    /// Takes a message out of the queue, if it is in it.
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
