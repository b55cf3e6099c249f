//! The content of one stream: the index of its messages, its subjects, the totals, and the times at which
//! messages expire.
//!
//! A command may remove a million messages at once. The index, the counts and the totals change at once, so
//! that every query sees the new state. The rest of the work has no effect on queries, and a node does it in
//! parts ([`Content::reclaim`]): it removes the names of subjects, the times of expiry and the bytes of
//! messages that are gone. So two nodes with the same state may have different amounts of this work left.
//!
//! This module keeps these parts consistent with each other. [`super::single`] decides which messages a
//! stream stores and removes. For a stream in memory, the content also holds the bytes of the messages; for a
//! stream in the log, it holds only their places.

use std::collections::BTreeSet;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::bits::LEN;
use super::block::{Flags, Slot};
use super::command::Place;
use super::filter::{Filter, Reach};
use super::index::{Bulk, Index};
use super::subjects::{Name, Subjects};
use crate::schema::sequence::StreamSeq;

/// The messages of one stream.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) index: Index,
    pub(super) subjects: Subjects,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// The number of the stream's first message; in an empty stream, the number that the next message will
    /// get.
    pub(super) first_seq: StreamSeq,
    /// The number of the last message that the stream ever stored.
    pub(super) last_seq: StreamSeq,
    /// The time at which the stream stored its last message, in microseconds since 1970.
    pub(super) last_time_us: u64,
    /// The messages with their own time to live, by the time at which they expire.
    pub(super) dues: BTreeSet<(u64, StreamSeq)>,
    /// The number below which every message is gone or never expires by age. The search for aged messages
    /// starts there.
    aged_from: StreamSeq,
    /// The commands that stored the messages, if the stream is in memory.
    bodies: Option<HashMap<StreamSeq, Bytes, RandomState>>,
}

/// A removed message.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    pub(super) place: Place,
    pub(super) bytes: u32,
    pub(super) subject: Name,
}

impl Content {
    /// Creates the content of an empty stream; the stream's first message will have the number `first_seq`.
    pub(super) fn new(first_seq: StreamSeq, in_memory: bool) -> Self {
        Self {
            index: Index::new(),
            subjects: Subjects::new(),
            messages: 0,
            bytes: 0,
            first_seq,
            last_seq: first_seq.prev(),
            last_time_us: 0,
            dues: BTreeSet::new(),
            aged_from: first_seq,
            bodies: in_memory.then(HashMap::default),
        }
    }

    /// Restores the content from the parts of a snapshot. Counts the totals from the messages, because a
    /// snapshot does not hold totals.
    pub(super) fn restored(
        mut self,
        index: Index,
        subjects: Subjects,
        last_seq: StreamSeq,
        last_time_us: u64,
    ) -> Self {
        self.index = index;
        self.subjects = subjects;
        (self.last_seq, self.last_time_us) = (last_seq, last_time_us);
        for block in self.index.blocks_from(StreamSeq::ZERO) {
            for (seq, slot) in block
                .live()
                .iter()
                .filter_map(|b| Some((block.seq(b), block.get(b)?)))
            {
                self.messages += 1;
                self.bytes += u64::from(slot.bytes);
                self.subjects.count_in(slot.subject, seq);
                if slot.flags.has(Flags::TTL) {
                    self.dues.insert((slot.due_us, seq));
                }
            }
        }
        self.first_seq = self
            .index
            .next(StreamSeq::ZERO)
            .unwrap_or_else(|| last_seq.next());
        self.aged_from = self.first_seq;
        self
    }

    pub(super) const fn in_memory(&self) -> bool {
        self.bodies.is_some()
    }

    /// Adds the stream's next message, and gives a new subject a number; returns the message's number, the
    /// subject's number, and the subject's bytes.
    #[inline]
    pub(super) fn push(
        &mut self,
        subject: &[u8],
        mut slot: Slot,
        body: Option<Bytes>,
    ) -> (StreamSeq, u32, Name) {
        let seq = self.last_seq.next();
        let (id, name) = self.subjects.add(subject, seq);
        slot.subject = id;
        // The stored time of a message is never before the time of an earlier message, even if the leader's
        // clock went back, so that a search by time works.
        slot.time_us = slot.time_us.max(self.last_time_us);
        self.index.push(seq, &slot);
        if self.messages == 0 {
            self.first_seq = seq;
        }
        if slot.flags.has(Flags::TTL) {
            self.dues.insert((slot.due_us, seq));
        }
        if let (Some(bodies), Some(body)) = (&mut self.bodies, body) {
            bodies.insert(seq, body);
        }
        self.messages += 1;
        self.bytes += u64::from(slot.bytes);
        (self.last_seq, self.last_time_us) = (seq, slot.time_us);
        (seq, id, name)
    }

    pub(super) fn remove(&mut self, seq: StreamSeq) -> Option<Gone> {
        let slot = self.index.get(seq)?;
        self.index.remove(seq);
        let subject = self.forget(seq, &slot);
        self.renew_first();
        Some(Gone {
            place: slot.place,
            bytes: slot.bytes,
            subject,
        })
    }

    /// Removes the messages numbered `from` to `to` for which `want` returns true; `want` gets the number of
    /// the message and the number of its subject.
    pub(super) fn remove_where(
        &mut self,
        from: StreamSeq,
        to: StreamSeq,
        want: impl FnMut(StreamSeq, u32) -> bool,
    ) -> Bulk {
        let bulk = self.index.remove_where(from, to, want);
        for (seq, slot) in bulk.slots() {
            self.forget(seq, &slot);
        }
        self.renew_first();
        bulk
    }

    pub(super) fn remove_all(&mut self) -> Bulk {
        let names = self.subjects.clear();
        self.dues.clear();
        if let Some(bodies) = &mut self.bodies {
            *bodies = HashMap::default();
        }
        (self.messages, self.bytes) = (0, 0);
        self.first_seq = self.last_seq.next();
        self.index.remove_all().with_names(names)
    }

    /// Skips numbers, so that the next message is `first_seq`; the stream must have no messages.
    pub(super) const fn skip_to(&mut self, first_seq: StreamSeq) {
        self.first_seq = first_seq;
        self.last_seq = first_seq.prev();
    }

    /// Subtracts a message that the index no longer holds from the totals, and returns its subject.
    fn forget(&mut self, seq: StreamSeq, slot: &Slot) -> Name {
        if slot.flags.has(Flags::TTL) {
            self.dues.remove(&(slot.due_us, seq));
        }
        if let Some(bodies) = &mut self.bodies {
            bodies.remove(&seq);
        }
        self.messages -= 1;
        self.bytes -= u64::from(slot.bytes);
        self.subjects.take(slot.subject, seq)
    }

    fn renew_first(&mut self) {
        self.first_seq = if self.messages == 0 {
            self.last_seq.next()
        } else {
            self.index
                .next(self.first_seq)
                .unwrap_or_else(|| self.last_seq.next())
        };
    }

    pub(super) fn body(&self, seq: StreamSeq) -> Option<&Bytes> {
        self.bodies.as_ref()?.get(&seq)
    }

    /// Returns the number of the first message of the subject `id`, which must have messages.
    pub(super) fn first_of(&mut self, id: u32) -> Option<StreamSeq> {
        let stat = *self.subjects.stat(id);
        let first = self.index.next_of(id, stat.first, stat.last);
        self.subjects.tighten(id, first, None);
        first
    }

    /// Returns the number of the last message of the subject `id`, which must have messages.
    pub(super) fn last_of(&self, id: u32) -> Option<StreamSeq> {
        let stat = self.subjects.stat(id);
        self.index.prev_of(id, stat.last, stat.first)
    }

    /// Returns the number of the last message of the subject `id`, which must have messages. Notes this
    /// number as the subject's highest, so that the next such search begins there.
    pub(super) fn last_of_mut(&mut self, id: u32) -> Option<StreamSeq> {
        let last = self.last_of(id);
        self.subjects.tighten(id, None, last);
        last
    }

    /// Returns the number of the stream's last message with a subject that the filter passes.
    pub(super) fn last_matching(&self, filter: &Filter) -> Option<StreamSeq> {
        match filter.reach(&self.subjects) {
            Reach::One(id) => self.last_of(id?),
            _ => {
                let wanted = self
                    .subjects
                    .iter()
                    .filter(|(_, name, _)| filter.matches(name));
                let mut bounds: Vec<_> = wanted.map(|(id, _, stat)| (stat.last, id)).collect();
                bounds.sort_unstable_by(|a, b| b.cmp(a));
                let mut best = None;
                for (bound, id) in bounds {
                    if best.is_some_and(|best| best >= bound) {
                        break;
                    }
                    best = best.max(self.last_of(id));
                }
                best
            }
        }
    }

    /// Returns the number of the first message, from number `seq` on, with a subject that the filter passes.
    pub(super) fn next(&self, seq: StreamSeq, filter: &mut Filter) -> Option<StreamSeq> {
        let seq = seq.max(self.first_seq);
        match filter.reach(&self.subjects) {
            Reach::All => self.index.next(seq),
            Reach::One(id) => {
                let id = id?;
                let stat = self.subjects.stat(id);
                self.index.next_of(id, seq.max(stat.first), stat.last)
            }
            Reach::Patterns => {
                let subjects = &self.subjects;
                self.index
                    .next_where(seq, StreamSeq::MAX, |id| filter.wants(subjects, id))
            }
        }
    }

    /// Counts the messages, from number `seq` on, with subjects that the filter passes.
    pub(super) fn count_from(&self, seq: StreamSeq, filter: &mut Filter) -> u64 {
        let subjects = &self.subjects;
        let whole = seq <= self.first_seq;
        match filter.reach(subjects) {
            Reach::All if whole => self.messages,
            Reach::All => self.index.count_from(seq),
            Reach::One(None) => 0,
            Reach::One(Some(id)) => {
                let stat = *subjects.stat(id);
                if seq <= stat.first {
                    return stat.count.into();
                }
                self.count_where(seq, stat.last, |s| s == id)
            }
            Reach::Patterns if whole => {
                let wanted = subjects.iter().filter(|(_, name, _)| filter.matches(name));
                wanted.map(|(_, _, stat)| u64::from(stat.count)).sum()
            }
            Reach::Patterns => self.count_where(seq, StreamSeq::MAX, |s| filter.wants(subjects, s)),
        }
    }

    fn count_where(&self, seq: StreamSeq, to: StreamSeq, mut want: impl FnMut(u32) -> bool) -> u64 {
        let blocks = self.index.blocks_from(seq).take_while(|b| b.first() <= to);
        let here = |block: &super::block::Block| {
            let from = seq.saturating_distance(block.first()).min(LEN as u64) as usize;
            let wanted = block.subjects_from(from).filter(|(_, s)| want(*s));
            wanted.count() as u64
        };
        blocks.map(here).sum()
    }

    /// Returns the last message of each subject that passes the filter, by number.
    pub(super) fn last_per_subject(&self, filter: &Filter) -> Vec<StreamSeq> {
        let wanted = self
            .subjects
            .iter()
            .filter(|(_, name, _)| filter.matches(name));
        let mut seqs: Vec<StreamSeq> = wanted.filter_map(|(id, ..)| self.last_of(id)).collect();
        seqs.sort_unstable();
        seqs
    }

    /// Starts the search for aged messages at the first message again, because imports added messages in
    /// another order than the home group stored them.
    pub(super) const fn age_anew(&mut self) {
        self.aged_from = self.first_seq;
    }

    /// Returns the number of the first message that can expire by age, with the time at which the stream
    /// stored it, in microseconds since 1970.
    pub(super) fn next_aged(&mut self) -> Option<(StreamSeq, u64)> {
        let mut seq = self.aged_from.max(self.first_seq);
        loop {
            seq = self.index.next(seq)?;
            self.aged_from = seq;
            let slot = self.index.get(seq)?;
            if !slot.flags.has(Flags::NEVER) {
                return Some((seq, slot.time_us));
            }
            seq = seq.next();
        }
    }

    pub(super) fn check_invariants(&self) {
        self.index.check_invariants();
        self.subjects.check_invariants();
        let (mut messages, mut bytes, mut dues) = (0, 0, 0);
        for block in self.index.blocks_from(StreamSeq::ZERO) {
            for bit in block.live().iter() {
                let Some(slot) = block.get(bit) else { continue };
                messages += 1;
                bytes += u64::from(slot.bytes);
                let seq = block.seq(bit);
                let stat = self.subjects.stat(slot.subject);
                assert!(
                    (stat.first..=stat.last).contains(&seq),
                    "a subject's bounds leave out {seq}"
                );
                if slot.flags.has(Flags::TTL) {
                    dues += 1;
                    assert!(self.dues.contains(&(slot.due_us, seq)));
                }
            }
        }
        assert_eq!((messages, bytes), (self.messages, self.bytes));
        assert_eq!(dues, self.dues.len());
        let counted: u64 = self
            .subjects
            .iter()
            .map(|(_, _, s)| u64::from(s.count))
            .sum();
        assert_eq!(counted, messages);
        assert_eq!(
            self.first_seq,
            self.index
                .next(StreamSeq::ZERO)
                .unwrap_or_else(|| self.last_seq.next())
        );
        if let Some(bodies) = &self.bodies {
            assert_eq!(bodies.len() as u64, messages);
        }
    }
}
