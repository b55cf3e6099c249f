//! Looks messages up by patterns of subjects in parts, because a stream may have millions of subjects and of
//! messages, and a turn of the node must stay short.
//!
//! The caller keeps a look-up between its turns, and goes on with it while the stream changes. The result is
//! exact for the state of the stream at the last part. For that, a look-up notes the message numbers that it
//! has found, looks at the messages that the stream has stored since it began, and checks at its end that the
//! stream still holds the found messages.
//!
//! Each function lowers `left`, the number of steps that the caller still allows, and stops when `left` is 0.
//! A step is a comparison of a subject with a pattern, or a look at a block of messages.

use std::collections::BTreeMap;

use tidegate_nats::subject;

use super::block::Block;
use super::content::Content;
use super::filter::{Filter, Reach};
use super::index::Index;
use super::matcher::Matcher;
use super::single::Stream;
use super::subjects::Stat;
use crate::bits::LEN;
use crate::schema::sequence::StreamSeq;

/// The number of messages that a look-up at its end looks at in one part at least, even if the caller allows
/// fewer steps: more than a stream stores in a turn, so that the look-up comes to its end.
const NEWER_MIN: usize = if cfg!(test) { 1 } else { 4096 };
/// The number of times that a look-up begins again because the stream has removed the message that it found.
const AGAIN_MAX: u32 = 4;
/// The number of bytes of a pattern that take as long to read as a comparison of a subject.
const PATTERN_BYTES_A_STEP: usize = 16;
/// The number of counts of blocks that take as long to add as a comparison of a subject.
const COUNTS_A_STEP: usize = 16;
/// A count of the messages of patterns adds the counts of all subjects at once up to this number of subjects.
const COUNTED_AT_ONCE: usize = if cfg!(test) { 2 } else { 2048 };

/// A look-up of the last message with a subject that a pattern matches.
#[derive(Clone, Debug)]
pub struct LastOf {
    filter: Filter,
    /// The place below which the look-up has still to look at subjects; `None` before it has begun.
    below: Option<usize>,
    /// The number up to which the look-up knows the messages of the stream.
    seen: StreamSeq,
    best: Option<StreamSeq>,
    again: u32,
}

impl LastOf {
    /// Creates the look-up for a well-formed pattern.
    #[must_use]
    pub fn new(pattern: &[u8]) -> Self {
        Self {
            filter: Filter::new([pattern]),
            below: None,
            seen: StreamSeq::ZERO,
            best: None,
            again: 0,
        }
    }

    /// Goes on with the look-up. Returns the number of the message (`None` if no message matches), or `None`
    /// if the caller has to go on in a later turn. If the stream removes each found message during the
    /// look-up, the result may be a removed message in the end.
    pub fn go_on(&mut self, stream: &Stream, left: &mut usize) -> Option<Option<StreamSeq>> {
        let content = &stream.content;
        match self.filter.reach(&content.subjects) {
            Reach::All => return Some(content.index.last()),
            Reach::One(None) => return Some(None),
            Reach::One(Some(id)) => {
                let stat = content.subjects.stat(id);
                return Some(last_up_to(&content.index, id, stat, StreamSeq::MAX, left));
            }
            Reach::Patterns => {}
        }
        loop {
            if self.below.is_none() || content.last_seq < self.seen {
                self.below = Some(content.subjects.places_len());
                self.seen = content.last_seq;
                self.best = None;
            }
            if !self.look(content, left) {
                return None;
            }
            let (filter, best) = (&self.filter, &mut self.best);
            let newer = |seq, id| {
                let name = content.subjects.name(id);
                if name.is_some_and(|name| filter.matches(name)) {
                    *best = Some(seq);
                }
                1
            };
            if !look_at_newer(content, &mut self.seen, content.last_seq, left, newer) {
                return None;
            }
            let is_there = self.best.is_none_or(|seq| content.index.get(seq).is_some());
            if is_there || self.again == AGAIN_MAX {
                return Some(self.best);
            }
            self.again += 1;
            self.below = None;
        }
    }

    /// Looks at further subjects, the newest ones first, because they mostly have the latest messages.
    /// Returns false if some are left.
    fn look(&mut self, content: &Content, left: &mut usize) -> bool {
        let subjects = &content.subjects;
        let mut below = self.below.unwrap_or(0).min(subjects.places_len());
        while below > 0 && *left > 0 {
            below -= 1;
            *left -= 1;
            // The cast loses nothing, because the numbers of subjects are `u32`.
            let id = below as u32;
            let stat = subjects.stat(id);
            if stat.count > 0
                && self.best.is_none_or(|best| best < stat.last)
                && subjects
                    .name(id)
                    .is_some_and(|name| self.filter.matches(name))
            {
                let last = last_up_to(&content.index, id, stat, StreamSeq::MAX, left);
                self.best = self.best.max(last);
            }
        }
        self.below = Some(below);
        below == 0
    }
}

/// A look-up of the last message of each subject that one of several patterns matches.
#[derive(Clone, Debug)]
pub struct LastPerSubject {
    patterns: Vec<Box<[u8]>>,
    /// The number of patterns that are in `matcher`.
    added: usize,
    matcher: Matcher,
    /// True if a pattern has a wildcard, so that the look-up looks at all subjects. Otherwise it finds each
    /// subject by its name.
    has_wildcard: bool,
    /// The number of the last message that counts; `None` for the last message at the end of the look-up.
    up_to: Option<StreamSeq>,
    max: usize,
    /// The place, among the subjects or the patterns, at which the look-up goes on.
    from: usize,
    /// The number up to which the look-up knows the messages of the stream; `None` before it has begun.
    seen: Option<StreamSeq>,
    /// The found subjects by their numbers, each with its last message.
    found: BTreeMap<u32, StreamSeq>,
}

/// The result of a look-up of the last message of each subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// The look-up has found all messages.
    Found {
        /// The numbers of the messages, in rising order.
        seqs: Vec<StreamSeq>,
        /// The number of the last message that counted.
        up_to: StreamSeq,
    },
    /// More subjects match than the caller wants.
    TooMany,
}

impl LastPerSubject {
    /// Creates the look-up for well-formed patterns. Messages above number `up_to` do not count; with `None`,
    /// all messages count that the stream has at the end of the look-up. `max` is the most subjects that the
    /// caller wants.
    #[must_use]
    pub fn new<P: AsRef<[u8]>>(
        patterns: impl IntoIterator<Item = P>,
        up_to: Option<StreamSeq>,
        max: usize,
    ) -> Self {
        Self {
            patterns: patterns.into_iter().map(|p| p.as_ref().into()).collect(),
            added: 0,
            matcher: Matcher::default(),
            has_wildcard: false,
            up_to,
            max,
            from: 0,
            seen: None,
            found: BTreeMap::new(),
        }
    }

    /// Goes on with the look-up. Returns the result, or `None` if the caller has to go on in a later turn.
    pub fn go_on(&mut self, stream: &Stream, left: &mut usize) -> Option<Lasts> {
        let content = &stream.content;
        let limit = self.up_to.unwrap_or(content.last_seq);
        if self.seen.is_none_or(|seen| content.last_seq < seen) {
            self.seen = Some(content.last_seq);
            self.from = 0;
            self.found.clear();
        }
        if !self.prepare(left) {
            return None;
        }
        let is_done = match self.has_wildcard {
            true => self.look(content, limit, left),
            false => self.find(content, limit, left),
        };
        if self.found.len() > self.max {
            return Some(Lasts::TooMany);
        }
        if !is_done {
            return None;
        }
        let mut seen = self.seen.unwrap_or(content.last_seq);
        let (matcher, found) = (&mut self.matcher, &mut self.found);
        let newer = |seq, id| match content.subjects.name(id) {
            Some(name) => matcher.each(name, |_| {
                found.insert(id, seq);
                false
            }),
            None => 1,
        };
        let is_done = look_at_newer(content, &mut seen, limit.min(content.last_seq), left, newer);
        self.seen = Some(seen);
        if !is_done {
            return None;
        }
        self.check(content, limit, left);
        if self.found.len() > self.max {
            return Some(Lasts::TooMany);
        }
        let mut seqs: Vec<StreamSeq> = self.found.values().copied().collect();
        seqs.sort_unstable();
        Some(Lasts::Found { seqs, up_to: limit })
    }

    /// Puts the patterns into the set. Returns false if some are left.
    fn prepare(&mut self, left: &mut usize) -> bool {
        while let Some(pattern) = self.patterns.get(self.added) {
            if *left == 0 {
                return false;
            }
            *left = left.saturating_sub(1 + pattern.len() / PATTERN_BYTES_A_STEP);
            self.has_wildcard |= subject::has_wildcard(pattern);
            self.matcher.add(pattern, self.added as u32);
            self.added += 1;
        }
        true
    }

    /// Looks at further subjects of the stream. Returns false if some are left.
    fn look(&mut self, content: &Content, limit: StreamSeq, left: &mut usize) -> bool {
        let subjects = &content.subjects;
        while self.from < subjects.places_len() {
            if *left == 0 {
                return false;
            }
            let id = self.from as u32;
            self.from += 1;
            *left -= 1;
            let stat = subjects.stat(id);
            let Some(name) = subjects.name(id).filter(|_| stat.count > 0) else {
                continue;
            };
            let mut is_wanted = false;
            let steps = self.matcher.each(name, |_| {
                is_wanted = true;
                false
            });
            *left = left.saturating_sub(steps.saturating_sub(1));
            if is_wanted && !self.add(content, id, limit, left) {
                return false;
            }
        }
        true
    }

    /// Finds further subjects by their names, because no pattern has a wildcard. Returns false if some are
    /// left.
    fn find(&mut self, content: &Content, limit: StreamSeq, left: &mut usize) -> bool {
        while let Some(name) = self.patterns.get(self.from) {
            if *left == 0 {
                return false;
            }
            self.from += 1;
            *left -= 1;
            if let Some(id) = content.subjects.find(name)
                && !self.add(content, id, limit, left)
            {
                return false;
            }
        }
        true
    }

    /// Adds a subject with its last message, if it has one up to number `limit`. Returns false if the look-up
    /// has found more subjects than the caller wants.
    fn add(&mut self, content: &Content, id: u32, limit: StreamSeq, left: &mut usize) -> bool {
        let stat = content.subjects.stat(id);
        if let Some(last) = last_up_to(&content.index, id, stat, limit, left) {
            self.found.insert(id, last);
        }
        if self.found.len() > self.max {
            // Some of the subjects may have lost their messages since.
            self.check(content, limit, left);
        }
        self.found.len() <= self.max
    }

    /// Looks for an earlier message of each found subject of which the stream has removed the message, and
    /// drops the subjects without one.
    fn check(&mut self, content: &Content, limit: StreamSeq, left: &mut usize) {
        *left = left.saturating_sub(self.found.len());
        let (subjects, index, matcher) = (&content.subjects, &content.index, &mut self.matcher);
        self.found.retain(|id, seq| {
            if index.get(*seq).is_some_and(|slot| slot.subject == *id) {
                return true;
            }
            if *id as usize >= subjects.places_len() {
                return false;
            }
            let stat = subjects.stat(*id);
            let Some(name) = subjects.name(*id).filter(|_| stat.count > 0) else {
                return false;
            };
            // Another subject may have got the number of the found one.
            let mut is_wanted = false;
            matcher.each(name, |_| {
                is_wanted = true;
                false
            });
            let last = is_wanted
                .then(|| last_up_to(index, *id, stat, limit, left))
                .flatten();
            last.inspect(|last| *seq = *last).is_some()
        });
    }
}

impl Stream {
    /// Goes on with a search for the first message, from number `seq` on, with a subject that the filter
    /// passes. Returns the number of the message; `None` if there is none.
    ///
    /// # Errors
    /// The number from which the caller has to go on in a later turn.
    pub fn next_part(
        &self,
        seq: StreamSeq,
        filter: &Filter,
        left: &mut usize,
    ) -> Result<Option<StreamSeq>, StreamSeq> {
        let content = &self.content;
        let (index, subjects) = (&content.index, &content.subjects);
        let seq = seq.max(content.first_seq);
        match filter.reach(subjects) {
            Reach::All => Ok(index.next(seq)),
            Reach::One(None) => Ok(None),
            Reach::One(Some(id)) => {
                let stat = subjects.stat(id);
                index.next_part(seq.max(stat.first), stat.last, left, |block, from, _| {
                    let mut all = block
                        .subjects_from(from)
                        .filter(|(_, subject)| *subject == id);
                    block
                        .may_have(id)
                        .then(|| all.next())
                        .flatten()
                        .map(|(bit, _)| bit)
                })
            }
            Reach::Patterns => index.next_part(seq, StreamSeq::MAX, left, |block, from, left| {
                let mut all = block.subjects_from(from);
                let found = all.find(|(_, id)| {
                    *left = left.saturating_sub(1);
                    subjects.name(*id).is_some_and(|name| filter.matches(name))
                });
                found.map(|(bit, _)| bit)
            }),
        }
    }

    /// Goes on with a count of the messages, from number `seq` on, with subjects that the filter passes.
    /// Returns the count of this part, and the number from which the caller has to go on in a later turn;
    /// `None` once no message is left.
    #[must_use]
    pub fn count_within(
        &self,
        seq: StreamSeq,
        filter: &Filter,
        left: &mut usize,
    ) -> (u64, Option<StreamSeq>) {
        let content = &self.content;
        let subjects = &content.subjects;
        let is_whole = seq <= content.first_seq;
        let reach = filter.reach(subjects);
        let to = match reach {
            Reach::All if is_whole => return (content.messages, None),
            Reach::All => {
                *left = left.saturating_sub(1 + content.index.blocks_len() / COUNTS_A_STEP);
                return (content.index.count_from(seq), None);
            }
            Reach::One(None) => return (0, None),
            Reach::One(Some(id)) => {
                let stat = subjects.stat(id);
                if seq <= stat.first {
                    return (stat.count.into(), None);
                }
                stat.last
            }
            Reach::Patterns if is_whole && subjects.len() <= COUNTED_AT_ONCE => {
                *left = left.saturating_sub(subjects.len());
                let wanted = subjects.iter().filter(|(_, name, _)| filter.matches(name));
                return (wanted.map(|(_, _, stat)| u64::from(stat.count)).sum(), None);
            }
            Reach::Patterns => content.last_seq,
        };
        let mut count = 0;
        for block in content
            .index
            .blocks_from(seq)
            .take_while(|b| b.first() <= to)
        {
            if *left == 0 {
                return (count, Some(block.first().max(seq)));
            }
            *left -= 1;
            let wanted = block
                .subjects_from(bit_of(block, seq))
                .filter(|(_, id)| match reach {
                    Reach::One(one) => one == Some(*id),
                    Reach::All | Reach::Patterns => {
                        *left = left.saturating_sub(1);
                        subjects.name(*id).is_some_and(|name| filter.matches(name))
                    }
                });
            count += wanted.count() as u64;
        }
        (count, None)
    }
}

/// Returns the number of the last message of a subject up to number `limit`.
fn last_up_to(
    index: &Index,
    id: u32,
    stat: &Stat,
    limit: StreamSeq,
    left: &mut usize,
) -> Option<StreamSeq> {
    if stat.first > limit {
        return None;
    }
    let mut looked = 0;
    let last = index.prev_of_within(id, stat.last.min(limit), stat.first, &mut looked);
    // The first block is part of the comparison of the subject.
    *left = left.saturating_sub(looked.saturating_sub(1));
    last
}

/// Calls `each` with the number and the subject of each message above number `seen` and up to number `to`, in
/// rising order, and moves `seen` forward; `each` returns the steps that it took. Returns false if some
/// messages are left for a later turn.
fn look_at_newer(
    content: &Content,
    seen: &mut StreamSeq,
    to: StreamSeq,
    left: &mut usize,
    mut each: impl FnMut(StreamSeq, u32) -> usize,
) -> bool {
    let from = seen.saturating_next();
    let (mut looked, mut steps) = (0, 0);
    for block in content.index.blocks_from(from) {
        if block.first() > to {
            break;
        }
        if looked >= NEWER_MIN && steps >= *left {
            *left = 0;
            return false;
        }
        let messages = block.subjects_from(bit_of(block, from));
        for (bit, id) in messages.take_while(|(bit, _)| block.seq(*bit) <= to) {
            steps += each(block.seq(bit), id);
            looked += 1;
        }
        let end = block.first().saturating_after(LEN as u64 - 1);
        *seen = (*seen).max(end.min(to));
    }
    *seen = (*seen).max(to);
    *left = left.saturating_sub(steps);
    true
}

/// Returns the bit of message `seq` in a block, or the nearest one: the first bit for an earlier message, and
/// the end of the block for a later one.
fn bit_of(block: &Block, seq: StreamSeq) -> usize {
    seq.saturating_distance(block.first()).min(LEN as u64) as usize
}

#[cfg(test)]
mod tests;
