//! Keeps the content of one stream: the index of its messages, its subjects, the totals, and the times at
//! which messages expire.
//!
//! A command may remove a million messages at once. The index, the counts and the totals change at once, so
//! that every query sees the new state. The rest of the work has no effect on queries, and a node does it in
//! parts ([`Content::reclaim`]): it removes the names of subjects, the times of expiry and the bytes of
//! messages that are gone. So two nodes with the same state may have different amounts of this work left.
//!
//! This module keeps these parts consistent with each other. [`super::single`] decides which messages a
//! stream stores and removes. For a stream in memory, the content also holds the bytes of the messages; for a
//! stream in the log, it holds only their places.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::block::{Block, Flags, Slot};
use super::command::Place;
use super::discarded::Discarded;
use super::expected::{Expected, SUBJECTS_MIN};
use super::filter::{Filter, Reach};
use super::foreseen::Foreseen;
use super::index::{Bulk, Index};
use super::subjects::{Chains, Name, Subjects};
use crate::bits::{Bits, LEN};
use crate::consumer::Run;
use crate::schema::sequence::StreamSeq;

/// The messages of one stream, with the counts and sums that the stream reports to clients.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) index: Index,
    pub(super) subjects: Subjects,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// The number of the stream's first message; in an empty stream, the number that the next message will
    /// get. Each removal updates it.
    pub(super) first_seq: StreamSeq,
    /// The number of the last message that the stream ever stored, even if the stream has removed that
    /// message. The next message gets a higher number.
    pub(super) last_seq: StreamSeq,
    /// The time at which the stream stored its last message, in microseconds since 1970. The stream gives no
    /// later message an earlier time.
    pub(super) last_time_us: u64,
    /// The messages with their own time to live, ordered by the time at which they expire, in microseconds
    /// since 1970. The set may still have messages that the stream has removed, see `stale_dues`.
    dues: BTreeSet<(u64, StreamSeq)>,
    /// The number of removed messages that are still in `dues`. While there are any, the first time in `dues`
    /// may belong to a removed message.
    stale_dues: usize,
    /// The number below which every message is removed or never expires by age. The search for messages
    /// beyond the age limit starts at this number, so that each search does not visit these messages again.
    aged_from: StreamSeq,
    /// For a stream in memory, the publish command of each message, by the message's number; `None` for a
    /// stream in the log. The map may still have messages that the stream has removed.
    bodies: Option<Bodies>,
    /// The messages that commands removed together. They may still be in `dues` and `bodies`, from which
    /// [`Content::reclaim`] takes them in parts.
    unreclaimed: VecDeque<Bulk>,
    /// The collections of earlier contents, which the node frees in parts, because freeing a large one takes
    /// too long for one turn.
    discarded: Discarded,
    /// The last message under each pattern on which publishers have made a message depend lately.
    pub(super) expected: Expected,
}

/// The publish commands of a stream's messages by the messages' numbers. A stream in memory has its messages
/// here, because no log holds them.
pub(super) type Bodies = HashMap<StreamSeq, Bytes, RandomState>;

/// The greatest number of subjects that one call of [`Content::reclaim`] looks at, so that the call does not
/// hold up the node's event loop.
const RECLAIMED_SUBJECTS: usize = if cfg!(test) { 2 } else { 256 };

/// A message that the stream has just removed: the caller reports the message in an effect, so that the node
/// frees the message's space in the log.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    pub(super) place: Place,
    pub(super) bytes: u32,
    pub(super) subject: Name,
}

impl Content {
    /// Creates the content of an empty stream; the stream's first message will have the number `first_seq`,
    /// as the stream's configuration asks.
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
            stale_dues: 0,
            aged_from: first_seq,
            bodies: in_memory.then(HashMap::default),
            unreclaimed: VecDeque::new(),
            discarded: Discarded::default(),
            expected: Expected::default(),
        }
    }

    /// Restores the content from the parts of a snapshot. Counts the totals from the messages, because a
    /// snapshot does not hold totals. So a restored stream has the totals that its messages add up to.
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
    /// subject's number, and the subject's bytes, from which the stream reports the message.
    #[inline]
    pub(super) fn push(
        &mut self,
        subject: &[u8],
        mut slot: Slot,
        body: Option<Bytes>,
    ) -> (StreamSeq, u32, Name) {
        let seq = self.last_seq.next();
        let (id, name) = self.subjects.add(subject, seq);
        self.expected.handle_stored(&name, seq);
        slot.subject = id;
        // The stored time of a message is never before the time of an earlier message, even if the leader's
        // clock went back, so that a search by time can halve the stream at each step.
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

    /// Gives the stream's next number to a message that the stream does not keep, because no consumer wants
    /// the message, and returns the number.
    pub(super) fn pass_over(&mut self, time_us: u64) -> StreamSeq {
        self.last_seq = self.last_seq.next();
        self.last_time_us = self.last_time_us.max(time_us);
        if self.messages == 0 {
            self.first_seq = self.last_seq.next();
        }
        self.last_seq
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
    /// the message and the number of its subject. The caller reports the removed messages.
    pub(super) fn remove_where(
        &mut self,
        from: StreamSeq,
        to: StreamSeq,
        want: impl FnMut(StreamSeq, u32) -> bool,
    ) -> Bulk {
        let bulk = self.index.remove_where(from, to, want);
        self.forget_all(&bulk);
        bulk
    }

    /// Removes the messages in these runs for which `want` returns true; `want` gets a message's number and
    /// subject. The runs must be in rising order, so that one pass over the index is enough.
    pub(super) fn remove_runs(
        &mut self,
        runs: &[Run],
        mut want: impl FnMut(StreamSeq, &[u8]) -> bool,
    ) -> Bulk {
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            return Bulk::default();
        };
        let (subjects, mut rest) = (&self.subjects, runs);
        let bulk = self
            .index
            .remove_masked(*first.start(), *last.end(), |block, range| {
                let (low, end) = (block.seq(range.start), block.seq(range.end));
                rest = after_runs(rest, low);
                if rest.first().is_none_or(|run| *run.start() >= end) {
                    return (Bits::default(), None);
                }
                let mask = block.mask_where(range, |seq, id| {
                    rest = after_runs(rest, seq);
                    rest.first().is_some_and(|run| run.contains(&seq))
                        && subjects.name(id).is_some_and(|name| want(seq, name))
                });
                (mask, None)
            });
        self.forget_all(&bulk);
        bulk
    }

    /// Removes the messages up to number `to` that the filter of `foreseen` passes, with the results that
    /// this node has prepared ahead of the command, so that the removal takes less time.
    pub(super) fn remove_foreseen(&mut self, mut foreseen: Foreseen, to: StreamSeq) -> Bulk {
        let (from, to) = match foreseen.reach(self) {
            Reach::Patterns => (StreamSeq::ZERO, to),
            Reach::One(Some(id)) => {
                let stat = self.subjects.stat(id);
                (stat.first, to.min(stat.last))
            }
            Reach::All | Reach::One(None) => {
                return self.remove_matching(&mut foreseen.into_filter(), to, 0);
            }
        };
        let subjects = &self.subjects;
        let choose = |block: &Block, range| foreseen.choose(block, range, subjects);
        let bulk = self.index.remove_masked(from, to, choose);
        self.forget_all(&bulk);
        bulk
    }

    /// Removes the messages up to number `to` that the filter passes, except the `keep` newest of all
    /// messages that it passes. A client's purge with a filter does this.
    pub(super) fn remove_matching(
        &mut self,
        filter: &mut Filter,
        to: StreamSeq,
        keep: u64,
    ) -> Bulk {
        let subjects = &self.subjects;
        let reach = filter.reach(subjects);
        if let (Reach::All, 0) = (reach, keep) {
            return self.remove_range(StreamSeq::ZERO, to);
        }
        let mut most = match keep {
            0 => u64::MAX,
            keep => {
                let wanted: u64 = match reach {
                    Reach::All => self.messages,
                    Reach::One(id) => id.map_or(0, |id| subjects.stat(id).count.into()),
                    Reach::Patterns => {
                        let counts = subjects.counts();
                        let wanted = counts.filter(|(id, _)| filter.wants(subjects, *id));
                        wanted.map(|(_, count)| count).sum()
                    }
                };
                wanted.saturating_sub(keep)
            }
        };
        let (from, to) = match reach {
            Reach::One(None) => return Bulk::default(),
            Reach::One(Some(id)) => {
                let stat = subjects.stat(id);
                (stat.first, to.min(stat.last))
            }
            Reach::All | Reach::Patterns => (StreamSeq::ZERO, to),
        };
        if most == 0 {
            return Bulk::default();
        }
        let bulk = self.index.remove_where(from, to, |_, id| {
            let wanted = match reach {
                Reach::All => true,
                Reach::One(one) => one == Some(id),
                Reach::Patterns => filter.wants(subjects, id),
            };
            let goes = most > 0 && wanted;
            most -= u64::from(goes);
            goes
        });
        self.forget_all(&bulk);
        bulk
    }

    /// Removes the messages numbered `from` to `to`, of all subjects, as one removal that the caller reports.
    pub(super) fn remove_range(&mut self, from: StreamSeq, to: StreamSeq) -> Bulk {
        let bulk = self.index.remove_range(from, to);
        self.forget_all(&bulk);
        bulk
    }

    pub(super) fn remove_all(&mut self) -> Bulk {
        let (names, chains) = self.subjects.clear();
        self.discarded.add_chains(chains);
        self.discarded.add_dues(std::mem::take(&mut self.dues));
        self.discarded
            .add_bodies(self.bodies.as_mut().map(std::mem::take));
        self.stale_dues = 0;
        self.unreclaimed.clear();
        (self.messages, self.bytes) = (0, 0);
        self.first_seq = self.last_seq.next();
        self.index.remove_all().with_names(names)
    }

    /// Subtracts from the totals the messages that the index has just removed together. The totals are then
    /// right at once, and [`Content::reclaim`] does the rest of the work later.
    fn forget_all(&mut self, bulk: &Bulk) {
        let (mut bytes, mut dues) = (0, 0);
        let subjects = &mut self.subjects;
        bulk.for_each(|seq, size, flags, subject| {
            bytes += u64::from(size);
            dues += usize::from(flags.has(Flags::TTL));
            subjects.take_of_many(subject, seq);
        });
        self.messages -= bulk.len();
        self.bytes -= bytes;
        self.stale_dues += dues;
        if dues > 0 || (self.in_memory() && !bulk.is_empty()) {
            self.unreclaimed.push_back(bulk.clone());
        }
        self.renew_first();
    }

    /// Returns whether [`Content::reclaim`] has work left, so that the node calls that function again.
    pub(super) fn is_reclaiming(&self) -> bool {
        self.subjects.is_reclaiming() || !self.unreclaimed.is_empty() || !self.discarded.is_empty()
    }

    /// Does a part of the work that removals of many messages have left, so that one turn of the event loop
    /// stays short: looks at up to 256 messages and 256 subjects. Queries notice only that the content may
    /// know the next time of expiry again ([`Content::next_own_due`]).
    pub(super) fn reclaim(&mut self) {
        self.subjects.reclaim(RECLAIMED_SUBJECTS);
        self.discarded.free_part();
        let Some(bulk) = self.unreclaimed.front_mut() else {
            return;
        };
        let Some(part) = bulk.take_part() else {
            self.unreclaimed.pop_front();
            return;
        };
        for (seq, slot) in part.slots() {
            if slot.flags.has(Flags::TTL) && self.dues.remove(&(slot.due_us, seq)) {
                self.stale_dues -= 1;
            }
            if let Some(bodies) = &mut self.bodies {
                bodies.remove(&seq);
            }
        }
    }

    /// Takes the lists of the messages of subjects that the stream no longer keeps, to free them in parts.
    pub(super) fn discard_chains(&mut self, chains: Option<Chains>) {
        self.discarded.add_chains(chains);
    }

    /// Takes the collections of earlier contents, which the caller frees in parts, because it drops this
    /// content.
    pub(super) fn take_discarded(&mut self) -> Discarded {
        std::mem::take(&mut self.discarded)
    }

    /// Replaces this content by one without messages. The node frees the collections of the old content in
    /// parts, because freeing them at once takes too long.
    pub(super) fn begin_anew(&mut self, mut fresh: Self) {
        fresh.discarded = self.take_discarded();
        *self = fresh;
    }

    /// Returns the earliest time at which a message expires by its own time to live, in microseconds since
    /// 1970. Returns `None` if no message does. Also returns `None` while `dues` still has removed messages,
    /// because the earliest time may belong to one of them.
    pub(super) fn next_own_due(&self) -> Option<u64> {
        match self.stale_dues {
            0 => self.dues.first().map(|(due, _)| *due),
            _ => None,
        }
    }

    /// Iterates over the messages that expire by their own time to live at `now_us` (microseconds since 1970)
    /// or before, in the order of these times. The stream removes them or replaces them with markers.
    pub(super) fn own_due(&self, now_us: u64) -> impl Iterator<Item = StreamSeq> {
        let due = self.dues.range(..=(now_us, StreamSeq::MAX));
        let held = due.filter(|(_, seq)| self.stale_dues == 0 || self.index.get(*seq).is_some());
        held.map(|(_, seq)| *seq)
    }

    /// Skips message numbers, so that the stream's next message gets the number `first_seq`, as a client's
    /// purge asks. The stream must be empty.
    pub(super) const fn skip_to(&mut self, first_seq: StreamSeq) {
        self.first_seq = first_seq;
        self.last_seq = first_seq.prev();
    }

    /// Skips message numbers, so that the stream's next message gets the number `seq`, as a mirror or a
    /// restored stream needs. `seq` must be higher than the number of the last message.
    pub(super) const fn go_to(&mut self, seq: StreamSeq) {
        match self.messages {
            0 => self.skip_to(seq),
            _ => self.last_seq = seq.prev(),
        }
    }

    /// Subtracts from the totals a message that the index no longer holds, and returns the message's subject
    /// for the caller's report.
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

    /// Returns the number of the first message of the subject `id`, which must have messages. Notes this
    /// number as the subject's lowest, so that the next such search begins there.
    pub(super) fn first_of(&mut self, id: u32) -> Option<StreamSeq> {
        let stat = *self.subjects.stat(id);
        let first = self.index.next_of(id, stat.first, stat.last);
        self.subjects.tighten(id, first, None);
        first
    }

    /// Returns the number of the last message of the subject `id`, which must have messages. The search
    /// begins at the subject's highest known number.
    pub(super) fn last_of(&self, id: u32) -> Option<StreamSeq> {
        let stat = self.subjects.stat(id);
        self.index.prev_of(id, stat.last, stat.first)
    }

    /// Returns, for a stream that may change, the number of the last message of the subject `id`, which must
    /// have messages. Notes this number as the subject's highest, so that the next such search begins there.
    pub(super) fn last_of_mut(&mut self, id: u32) -> Option<StreamSeq> {
        let last = self.last_of(id);
        self.subjects.tighten(id, None, last);
        last
    }

    /// Returns the number of the stream's last message with a subject that the filter passes, for example for
    /// a consumer that starts at this message.
    pub(super) fn last_matching(&self, filter: &Filter) -> Option<StreamSeq> {
        match filter.reach(&self.subjects) {
            Reach::All => self.index.last(),
            Reach::One(id) => self.last_of(id?),
            Reach::Patterns => {
                // The loop begins with the subjects of the highest numbers, because they mostly have the
                // latest messages. It compares the name of a subject only if that subject may have a later
                // message than the best one so far.
                let mut best = None;
                for (id, bound) in self.subjects.bounds_back() {
                    if best.is_some_and(|best| best >= bound) {
                        continue;
                    }
                    if self
                        .subjects
                        .name(id)
                        .is_some_and(|name| filter.matches(name))
                    {
                        best = best.max(self.last_of(id));
                    }
                }
                best
            }
        }
    }

    /// Returns the number of the last message with a subject that the pattern matches, for the check of a
    /// published message that depends on it. Remembers the result for the next check ([`Expected`]).
    pub(super) fn last_expected(&mut self, pattern: &[u8]) -> Option<StreamSeq> {
        let filter = Filter::new([pattern]);
        if !self.is_remembered(&filter) {
            return self.last_matching(&filter);
        }
        let known = self.expected.get(pattern);
        if let Some(last) = known.and_then(|last| self.is_still_last(last)) {
            return last;
        }
        let last = self.last_matching(&filter);
        self.expected.put(pattern, last);
        last
    }

    /// Returns whether the stream knows the last message with a subject that the pattern matches, so that
    /// [`Content::last_expected`] looks at no subjects.
    pub(super) fn knows_expected(&self, pattern: &[u8]) -> bool {
        let known = self.expected.peek(pattern);
        known.is_some_and(|last| self.is_still_last(last).is_some())
    }

    /// Returns the last message that matches a pattern if `last` was the last one before later removals;
    /// `None` if the stream has removed it, and an earlier message may match.
    fn is_still_last(&self, last: Option<StreamSeq>) -> Option<Option<StreamSeq>> {
        match last {
            Some(seq) if self.index.get(seq).is_some() => Some(Some(seq)),
            Some(seq) if seq >= self.first_seq => None,
            // No message matched, or the stream has removed all messages up to the last match.
            Some(_) | None => Some(None),
        }
    }

    /// Returns whether a search for the last message under a filter takes so long that the stream remembers
    /// the result.
    pub(super) fn is_remembered(&self, filter: &Filter) -> bool {
        filter.is_pattern() && self.subjects.len() > SUBJECTS_MIN
    }

    /// Returns the number of the first message, from number `seq` on, with a subject that the filter passes.
    /// A consumer finds its next message to deliver by this search.
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

    /// Counts the messages, from number `seq` on, with subjects that the filter passes, for example the
    /// messages that a consumer has yet to deliver.
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

    /// Counts the messages from number `from` to below number `end` with subjects that the filter passes, so
    /// that a consumer's count of pending messages stays exact.
    pub(super) fn count_between(
        &self,
        from: StreamSeq,
        end: StreamSeq,
        filter: &mut Filter,
    ) -> u64 {
        let subjects = &self.subjects;
        let blocks = self.index.blocks_from(from);
        let counts = blocks.take_while(|block| block.first() < end).map(|block| {
            let bit =
                |seq: StreamSeq| seq.saturating_distance(block.first()).min(LEN as u64) as usize;
            let wanted = block.mask_where(bit(from)..bit(end), |_, id| filter.wants(subjects, id));
            wanted.count() as u64
        });
        counts.sum()
    }

    fn count_where(&self, seq: StreamSeq, to: StreamSeq, mut want: impl FnMut(u32) -> bool) -> u64 {
        let blocks = self.index.blocks_from(seq).take_while(|b| b.first() <= to);
        let here = |block: &Block| {
            let from = seq.saturating_distance(block.first()).min(LEN as u64) as usize;
            let wanted = block.subjects_from(from).filter(|(_, s)| want(*s));
            wanted.count() as u64
        };
        blocks.map(here).sum()
    }

    /// Makes the search for messages beyond the age limit start at the first message again, because a move
    /// has filled this copy of a stream with older messages.
    pub(super) const fn age_anew(&mut self) {
        self.aged_from = self.first_seq;
    }

    /// Returns the number of the first message that can expire by age, so that the stream knows when to
    /// remove it, with the time at which the stream stored it, in microseconds since 1970.
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

    /// Returns the messages that the stream holds with their own time to live, by the time at which they
    /// expire. Only tests call this, because it visits all of them.
    #[cfg(test)]
    pub(super) fn held_dues(&self) -> Vec<(u64, StreamSeq)> {
        let held = |(_, seq): &&(u64, StreamSeq)| self.index.get(*seq).is_some();
        self.dues.iter().filter(held).copied().collect()
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
        assert_eq!(dues + self.stale_dues, self.dues.len());
        let left: u64 = self.unreclaimed.iter().map(Bulk::len).sum();
        assert!(self.stale_dues as u64 <= left);
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
            assert_eq!(bodies.len() as u64, messages + left);
        }
    }
}

/// Returns the runs without those that end before message `seq`, so that a pass over rising numbers looks at
/// each run once.
fn after_runs(mut runs: &[Run], seq: StreamSeq) -> &[Run] {
    while let Some((_, rest)) = runs.split_first().filter(|(run, _)| *run.end() < seq) {
        runs = rest;
    }
    runs
}
