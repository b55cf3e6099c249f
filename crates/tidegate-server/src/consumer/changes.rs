//! What changed since the last delta, and who waits to hear that it is durable.
//!
//! Owns when a delta is worth a place in the log: at once when a receiver asked to be told that its
//! acknowledgement was recorded, else when changes have gathered for [`LINGER_US`] or there are [`MANY`] of
//! them. A crash between costs redeliveries and nothing else, so a consumer's state takes a small share of
//! the log however fast it goes. Leaves what is pending to [`super::pending`].
//!
//! Everything is bounded: past [`FULL`] changes nothing is delivered until a delta has been taken, and one
//! delta tells of no more than [`TOLD_MAX`] old messages (the rest is told by the next).

use std::collections::VecDeque;

use super::delta::Delta;
use super::pending::Pending;
use super::redelivery::Live;
use super::seam::Sink;
use super::state::Position;

/// How long changes gather, in microseconds.
const LINGER_US: u64 = 100_000;
/// Changes that do not wait for company.
const MANY: usize = 4096;
/// Changes beyond which nothing is delivered.
const FULL: usize = 1 << 15;
/// Old messages in one delta.
const TOLD_MAX: usize = 1 << 14;
/// The most receivers that wait; one more is not answered, and asks again.
const WAITING_MAX: usize = 1 << 16;

/// What changed.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    /// Whether the log keeps this consumer at all.
    logged: bool,
    /// The highest message the last delta knew as delivered.
    told: u64,
    /// Messages delivered since.
    new: usize,
    /// Older ones that were delivered again or put off.
    touched: Vec<u64>,
    /// Older ones that are not pending any more.
    removed: Vec<u64>,
    /// When the first change was made.
    since: Option<u64>,
    /// Deltas taken, and those of them that are durable.
    taken: u64,
    durable: u64,
    /// Whom to answer once so many deltas are durable.
    waiting: VecDeque<(u64, Box<[u8]>)>,
}

impl Changes {
    pub(super) fn new(logged: bool, told: u64) -> Self {
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

    /// Returns whether a delta has to be taken before more is delivered.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= FULL
    }

    fn note(&mut self, now: u64) {
        if self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// A message was delivered for the first time.
    pub(super) fn note_new(&mut self, now: u64) {
        if self.logged {
            self.note(now);
            self.new += 1;
        }
    }

    /// A message that is pending was delivered again, or put off.
    pub(super) fn note_touched(&mut self, now: u64, seq: u64, live: &mut Live) {
        if self.logged {
            self.note(now);
            if seq <= self.told && !live.touched {
                live.touched = true;
                self.touched.push(seq);
            }
        }
    }

    /// A message is not pending any more.
    pub(super) fn note_removed(&mut self, now: u64, seq: u64) {
        if self.logged {
            self.note(now);
            if seq <= self.told {
                self.removed.push(seq);
            }
        }
    }

    /// Answers a receiver as soon as everything up to here is durable.
    pub(super) fn answer(&mut self, reply: &[u8], sink: &mut impl Sink) {
        let after = self.taken + u64::from(self.since.is_some());
        if !self.logged || after == self.durable {
            sink.answer(reply);
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((after, reply.into()));
        }
    }

    /// When a delta is due.
    pub(super) fn deadline(&self) -> Option<u64> {
        let since = self.since?;
        let awaited = self.waiting.back().is_some_and(|(n, _)| *n > self.taken);
        Some(if awaited || self.len() >= MANY {
            since
        } else {
            since + LINGER_US
        })
    }

    /// Takes the delta, if there is one.
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
        // What lies below the floor is known by it.
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
            // What they wait for may be in the rest.
            let waiting = self.waiting.iter_mut().rev();
            for (after, _) in waiting.take_while(|(after, _)| *after == self.taken) {
                *after += 1;
            }
        }
        let mut bytes = Vec::new();
        delta.encode(&mut bytes);
        Some(bytes)
    }

    /// Returns whether all deltas that were taken are durable.
    pub(super) const fn is_settled(&self) -> bool {
        self.taken == self.durable
    }

    /// The consumer begins again after message `told`, and the log knows: what changed before counts no more,
    /// nor does anybody wait for it to become durable.
    pub(super) fn handle_reset(&mut self, told: u64, sink: &mut impl Sink) {
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

    /// The oldest delta that was not is durable now.
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
