//! Keeps the pending messages of a consumer, which the consumer has delivered and receivers have not
//! acknowledged, in the order of the stream, so that the consumer finds each of them quickly.
//!
//! This module owns the collection: a ring of rows sorted by message number. A removed row stays as a
//! tombstone until it reaches the front or until tombstones outnumber the other rows. New messages come at
//! the end, so no row moves. While numbers are dense, a subtraction finds a row. [`super::State`] and
//! [`super::Consumer`] own the meaning of a pending message.
//!
//! Invariants: numbers rise strictly; the first row is no tombstone; `len` counts the rows that are not
//! tombstones. Tests check them after each change.

use std::collections::VecDeque;

use super::sequence::ConsumerSeq;
use crate::schema::sequence::StreamSeq;

/// A pending message of a consumer: a message that the consumer has delivered and that no receiver has
/// acknowledged. `L` is the type of the part that only the leader knows and needs for redelivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unacked<L = ()> {
    /// The number of the pending message in the stream, by which the consumer reads it again.
    pub stream_seq: StreamSeq,
    /// The number of the message's first delivery, among all deliveries of the consumer. The consumer
    /// computes its ack floor from it.
    pub consumer_seq: ConsumerSeq,
    /// The time at which the message is due for redelivery, in microseconds since the Unix epoch, unless a
    /// receiver acknowledges it earlier.
    pub due_us: u64,
    /// The number of deliveries of the message, at least 1; 0 marks a tombstone. The delivery limit applies
    /// to this number.
    pub deliveries: u32,
    /// The part of the pending message that only the leader knows, and that the log does not keep, because a
    /// new leader can compute it again.
    pub live: L,
}

impl<L> Unacked<L> {
    /// Returns a copy of the pending message with `live` as the part that only the leader knows, for a
    /// conversion between the leader's and the log's form.
    pub(super) fn with<M>(&self, live: M) -> Unacked<M> {
        Unacked {
            stream_seq: self.stream_seq,
            consumer_seq: self.consumer_seq,
            due_us: self.due_us,
            deliveries: self.deliveries,
            live,
        }
    }
}

/// The pending messages of a consumer: delivered, and not acknowledged by receivers. The consumer redelivers
/// them when they are due.
#[derive(Clone, Debug, Default)]
pub struct Pending<L = ()> {
    ring: VecDeque<Unacked<L>>,
    len: usize,
}

impl<L: Copy> Pending<L> {
    /// Returns the number of pending messages, for the limit of unacknowledged messages.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no message is pending, because receivers have acknowledged all deliveries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pending message with the lowest number in the stream, which determines the ack floor.
    #[must_use]
    pub fn first(&self) -> Option<&Unacked<L>> {
        self.ring.front()
    }

    /// Iterates over all pending messages, in the order of the stream, without the tombstones.
    pub fn iter(&self) -> impl Iterator<Item = &Unacked<L>> {
        self.ring.iter().filter(|u| u.deliveries > 0)
    }

    /// Iterates over the pending messages numbered higher than `seq`, in the order of the stream. A delta
    /// lists those after the last delta.
    pub fn iter_after(&self, seq: StreamSeq) -> impl Iterator<Item = &Unacked<L>> {
        let from = self.ring.partition_point(|u| u.stream_seq <= seq);
        self.ring.range(from..).filter(|u| u.deliveries > 0)
    }

    /// Returns the pending message that has this number in the stream; `None` if the message is not pending.
    #[must_use]
    pub fn get(&self, seq: StreamSeq) -> Option<&Unacked<L>> {
        self.find(seq).map(|at| &self.ring[at])
    }

    /// Returns the pending message with this number for a change; the caller must not change the number,
    /// because the ring is sorted by it.
    pub(super) fn get_mut(&mut self, seq: StreamSeq) -> Option<&mut Unacked<L>> {
        self.find(seq).map(|at| &mut self.ring[at])
    }

    /// Adds a pending message to the collection, or replaces the pending message with the same number. A new
    /// message goes to the end of the ring.
    pub(super) fn insert(&mut self, unacked: Unacked<L>) {
        debug_assert!(unacked.deliveries > 0, "a tombstone was added");
        match self.ring.back() {
            Some(last) if last.stream_seq >= unacked.stream_seq => {
                let at = self
                    .ring
                    .partition_point(|u| u.stream_seq < unacked.stream_seq);
                if self.ring[at].stream_seq == unacked.stream_seq {
                    self.len += usize::from(self.ring[at].deliveries == 0);
                    self.ring[at] = unacked;
                } else {
                    self.ring.insert(at, unacked);
                    self.len += 1;
                }
            }
            _ => {
                self.ring.push_back(unacked);
                self.len += 1;
            }
        }
    }

    /// Removes the pending message that has this number in the stream, and returns the message. Its row
    /// becomes a tombstone, so that no other row moves.
    pub(super) fn remove(&mut self, seq: StreamSeq) -> Option<Unacked<L>> {
        let at = self.find(seq)?;
        let removed = self.ring[at];
        self.ring[at].deliveries = 0;
        self.len -= 1;
        self.trim();
        if self.ring.len() > 2 * self.len + TOMBSTONES_MIN {
            self.ring.retain(|u| u.deliveries > 0);
        }
        Some(removed)
    }

    /// Removes the pending messages with numbers from `first` to `last`, because a delta lists them as one
    /// run.
    pub(super) fn remove_run(&mut self, first: StreamSeq, last: StreamSeq) {
        let within = self.iter_after(first.saturating_prev());
        let within = within.map(|u| u.stream_seq).take_while(|seq| *seq <= last);
        for seq in within.collect::<Vec<_>>() {
            self.remove(seq);
        }
    }

    /// Removes the first pending message if its number is at most `seq`, and returns the message. An
    /// acknowledgement of all messages up to `seq` calls this repeatedly.
    pub(super) fn pop_up_to(&mut self, seq: StreamSeq) -> Option<Unacked<L>> {
        let first = *self.ring.front().filter(|u| u.stream_seq <= seq)?;
        self.ring.pop_front();
        self.len -= 1;
        self.trim();
        Some(first)
    }

    fn find(&self, seq: StreamSeq) -> Option<usize> {
        let first = self.ring.front()?.stream_seq;
        let guess = usize::try_from(seq.checked_distance(first)?).ok()?;
        let at = match self.ring.get(guess) {
            Some(u) if u.stream_seq == seq => guess,
            _ => self
                .ring
                .binary_search_by_key(&seq, |u| u.stream_seq)
                .ok()?,
        };
        (self.ring[at].deliveries > 0).then_some(at)
    }

    fn trim(&mut self) {
        while self.ring.front().is_some_and(|u| u.deliveries == 0) {
            self.ring.pop_front();
        }
    }

    /// Panics if an invariant of the pending messages does not hold. Only tests call this, after each change.
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.iter().count(), self.len, "len counts the living");
        assert!(self.ring.front().is_none_or(|u| u.deliveries > 0));
        let rising = |(a, b): (&Unacked<L>, &Unacked<L>)| a.stream_seq < b.stream_seq;
        assert!(self.ring.iter().zip(self.ring.iter().skip(1)).all(rising));
        assert!(self.ring.len() <= 2 * self.len + TOMBSTONES_MIN);
    }
}

/// Two collections are equal if they hold the same pending messages; tombstones do not count, because they
/// depend on the history.
impl<L: Copy + PartialEq> PartialEq for Pending<L> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<L: Copy + Eq> Eq for Pending<L> {}

/// The number of tombstones that the ring of pending messages always tolerates, so that removals rarely have
/// to compact the ring.
const TOMBSTONES_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn unacked(stream_seq: u64, consumer_seq: u64) -> Unacked {
        Unacked {
            stream_seq: StreamSeq::new(stream_seq),
            consumer_seq: ConsumerSeq::new(consumer_seq),
            due_us: 0,
            deliveries: 1,
            live: (),
        }
    }

    proptest! {
        #[test]
        fn like_a_map(steps in proptest::collection::vec((0_u8..10, 0_u64..400), 0..600)) {
            let (mut pending, mut model) = (Pending::default(), BTreeMap::new());
            let mut next = 1;
            for (kind, x) in steps {
                match kind {
                    0..=4 => {
                        next += 1 + x % 2;
                        pending.insert(unacked(next, x));
                        model.insert(next, x);
                    }
                    5 => {
                        pending.insert(unacked(x, 7));
                        model.insert(x, 7);
                        next = next.max(x);
                    }
                    6..=8 => prop_assert_eq!(pending.remove(StreamSeq::new(x)).map(|u| u.consumer_seq.get()), model.remove(&x)),
                    _ => {
                        let first = model.first_key_value().map(|(s, _)| *s).filter(|s| *s <= x);
                        prop_assert_eq!(pending.pop_up_to(StreamSeq::new(x)).map(|u| u.stream_seq.get()), first);
                        first.map(|s| model.remove(&s));
                    }
                }
                pending.check_invariants();
                prop_assert_eq!(pending.get(StreamSeq::new(x)).map(|u| u.consumer_seq.get()), model.get(&x).copied());
            }
            let all: Vec<_> = pending.iter().map(|u| (u.stream_seq.get(), u.consumer_seq.get())).collect();
            prop_assert_eq!(all, model.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!(
                pending.iter_after(StreamSeq::new(100)).map(|u| u.stream_seq.get()).collect::<Vec<_>>(),
                model.range(101..).map(|(s, _)| *s).collect::<Vec<_>>()
            );
        }
    }
}
