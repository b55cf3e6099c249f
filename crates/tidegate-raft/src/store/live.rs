//! Counts the live bytes of each log segment: the bytes of messages that streams still hold. By these counts
//! the store decides which segments to compact and to release.
//!
//! A message counts with the bytes that a copy of it would take in the log. So the store copies the messages
//! of a segment forward only if that frees space, however small the messages are.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tidegate_stream::stream::{Bulk, Place};

/// The bytes that a copy of a message takes in the log besides the message itself: the headers of a record,
/// an entry and a command, and padding.
const RELOCATED_OVERHEAD: u64 = 32 + 16 + 16 + 8;

/// Counts the live bytes that one group has in each segment of the log: the bytes of messages that the
/// group's streams still hold.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The live bytes of each segment that the log has begun and not released, by the position at which the
    /// segment begins.
    segments: BTreeMap<u64, u64>,
    /// The segment of the message counted last: its range and its live bytes. The next message mostly lies in
    /// the same segment, so the count needs no search.
    last: (Range<u64>, u64),
    /// The messages that streams removed together, for instance in a purge, and that the store has still to
    /// subtract from the counts.
    reclaiming: VecDeque<Bulk>,
    /// The live bytes that streams have removed since the store last reviewed the segments for release and
    /// compaction.
    removed_bytes: u64,
    /// True if a segment has lost its last live byte since the store last reviewed the segments, so that the
    /// store may release it.
    emptied: bool,
    /// The messages that the store has subtracted in parts since the last [`take_reclaimed`], which a
    /// simulation counts.
    ///
    /// [`take_reclaimed`]: Self::take_reclaimed
    #[cfg(feature = "sim")]
    reclaimed: u64,
}

impl Live {
    /// Creates the counts of live bytes from the counts in a checkpoint, at a start of the node.
    pub(super) fn restored(segments: &[(u64, u64)]) -> Self {
        Self {
            segments: segments.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Returns the live bytes of each segment that has any, for the header of a checkpoint.
    pub(super) fn counts(&mut self) -> Vec<(u64, u64)> {
        self.reclaim(usize::MAX);
        let mut live: BTreeMap<u64, u64> = self.segments.clone();
        if !self.last.0.is_empty() {
            live.insert(self.last.0.start, self.last.1);
        }
        live.into_iter().filter(|&(_, live)| live > 0).collect()
    }

    /// Adds a new segment, which begins at this log position and has no live bytes yet.
    pub(super) fn begin(&mut self, base: u64) {
        self.leave();
        self.segments.entry(base).or_default();
    }

    /// Adds all segments that the counts `known` have, without live bytes. These include the newest segment,
    /// which the log does not list before it has a durable record.
    pub(super) fn begin_as(&mut self, known: &Self) {
        known.segments.keys().for_each(|base| self.begin(*base));
    }

    /// Drops the count of the segment that began at this log position, because the log has released the
    /// segment.
    pub(super) fn forget(&mut self, base: u64) {
        // The store subtracts all removed messages before it drops the segment. Later, it would subtract the
        // segment's messages from the segment before.
        self.reclaim(usize::MAX);
        self.leave();
        self.segments.remove(&base);
    }

    /// Adds a message of `bytes` bytes at this place to the live bytes of its segment, because its stream
    /// has stored the message.
    pub fn stored(&mut self, place: Place, bytes: u32) {
        self.enter(place.lsn);
        self.last.1 += u64::from(bytes) + RELOCATED_OVERHEAD;
    }

    /// Subtracts a message of `bytes` bytes at this place from the live bytes of its segment, because its
    /// stream has removed the message, or the store has moved it.
    pub fn removed(&mut self, place: Place, bytes: u32) {
        self.enter(place.lsn);
        let weight = u64::from(bytes) + RELOCATED_OVERHEAD;
        self.last.1 = self.last.1.saturating_sub(weight);
        self.emptied |= self.last.1 == 0;
        self.removed_bytes += weight;
    }

    /// Takes messages that a stream removed together, to subtract them from the live bytes. The store
    /// subtracts them in parts, because one command may purge a stream of millions of messages.
    pub fn removed_together(&mut self, messages: Bulk) {
        self.reclaiming.push_back(messages);
        self.reclaim(1);
    }

    /// Subtracts at most `parts` parts, of 256 messages each, of the messages that streams removed together,
    /// so that one turn of the event loop stays short.
    pub(super) fn reclaim(&mut self, parts: usize) {
        for _ in 0..parts {
            let Some(messages) = self.reclaiming.front_mut() else {
                return;
            };
            let Some(part) = messages.take_part() else {
                self.reclaiming.pop_front();
                continue;
            };
            // A message of a stream that is only in memory has no place in the log, and was never counted.
            let nowhere = Place::default();
            #[cfg(feature = "sim")]
            {
                self.reclaimed += part.len();
            }
            for (_, place, bytes) in part.iter().filter(|(_, place, _)| *place != nowhere) {
                self.removed(place, bytes);
            }
        }
    }

    /// Returns the number of messages that the store has subtracted in parts since the last call, for a
    /// simulation's costs.
    #[cfg(feature = "sim")]
    pub(super) const fn take_reclaimed(&mut self) -> u64 {
        std::mem::replace(&mut self.reclaimed, 0)
    }

    /// Returns whether the counts still include messages that streams have removed together, and so are too
    /// high.
    pub(super) fn is_reclaiming(&self) -> bool {
        !self.reclaiming.is_empty()
    }

    /// Returns the group's live bytes in the segment that begins at this log position; 0 means that the
    /// group needs no message there.
    pub(super) fn of(&self, base: u64) -> u64 {
        match self.last.0.start == base && !self.last.0.is_empty() {
            true => self.last.1,
            false => self.segments.get(&base).copied().unwrap_or(0),
        }
    }

    /// Returns whether the store must review the segments: since the last review, streams have removed
    /// `bytes` bytes of messages, or a segment has lost its last live byte.
    pub(super) fn poll_review(&mut self, bytes: u64) -> bool {
        let due = self.emptied || self.removed_bytes >= bytes;
        if due {
            (self.emptied, self.removed_bytes) = (false, 0);
        }
        due
    }

    fn enter(&mut self, lsn: u64) {
        if self.last.0.contains(&lsn) {
            return;
        }
        self.leave();
        let before = self.segments.range(..=lsn).next_back();
        // If no known segment begins at the message or before it, the counts get a new segment that begins at
        // the message.
        let (base, live) = before.map_or((lsn, 0), |(&base, &live)| (base, live));
        let mut after = self.segments.range(lsn.saturating_add(1)..);
        let end = after.next().map_or(u64::MAX, |(&next, _)| next);
        self.segments.entry(base).or_default();
        self.last = (base..end, live);
    }

    fn leave(&mut self) {
        if !self.last.0.is_empty() {
            self.segments.insert(self.last.0.start, self.last.1);
        }
        self.last = (0..0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lsn: u64) -> Place {
        Place { lsn, offset: 16 }
    }

    #[test]
    fn each_segment_has_what_lies_in_it() {
        let mut live = Live::restored(&[(0, 500)]);
        live.begin(1000);
        live.stored(at(1100), 28);
        live.stored(at(10), 28);
        live.stored(at(1999), 28);
        assert_eq!((live.of(0), live.of(1000)), (600, 200));
        live.begin(2000);
        live.stored(at(2000), 28);
        assert_eq!((live.of(1000), live.of(2000)), (200, 100));
        assert!(!live.poll_review(1000));
        live.removed(at(1100), 28);
        assert!(live.poll_review(100) && !live.poll_review(100));
        live.removed(at(1999), 28);
        assert!(live.poll_review(1000), "a segment is empty");
        assert_eq!(live.counts(), [(0, 600), (2000, 100)]);
        live.forget(1000);
        assert_eq!(live.of(1000), 0);
    }

    #[test]
    fn one_that_takes_the_place_of_another_knows_the_same_segments() {
        let (mut old, mut new) = (Live::default(), Live::default());
        [0, 1000].into_iter().for_each(|base| old.begin(base));
        new.begin(0);
        new.stored(at(10), 28);
        new.begin_as(&old);
        new.stored(at(1000), 28);
        assert_eq!((new.of(0), new.of(1000)), (100, 100));
    }

    #[test]
    fn a_checkpoint_has_the_first_segment_also_when_another_has_just_begun() {
        let mut live = Live::default();
        live.begin(0);
        live.stored(at(10), 28);
        live.begin(1000);
        assert_eq!(live.counts(), [(0, 100)]);
    }
}
