//! Keeps the set of the messages that a consumer delivers first: the last message of each subject at the time
//! when the consumer started. The consumer delivers these messages before all later messages.
//!
//! The stream may have a million subjects. So the consumer looks for these messages in parts
//! ([`Skip::go_on`]), and delivers nothing before the search is complete. A set of bits for each 256 message
//! numbers keeps the found messages in order without a sort.
//!
//! If the stream has got messages since the consumer started, the set leaves out a subject with a newer
//! message, because the consumer delivers the newer message later, after all messages of the set.

use std::collections::BTreeMap;

use super::seam::Source;
use crate::bits::{Bits, LEN};
use crate::schema::sequence::StreamSeq;

/// The number of subjects that take as long to look at as one block of found messages. The set measures the
/// parts of its work in subjects.
const SUBJECTS_A_BLOCK: usize = 64;

/// The set of the messages that a consumer delivers first, and the state of the search for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Skip {
    /// The numbers of the messages: for each block of 256 numbers with a message, the bits of its messages,
    /// so that the lowest number is quick to find.
    blocks: BTreeMap<u64, Bits>,
    left: u64,
    work: Work,
}

/// The work that a consumer has still to do before it knows its first messages. Until then the consumer
/// delivers nothing.
#[derive(Clone, Copy, Debug, Default)]
enum Work {
    #[default]
    None,
    /// The search for the messages above number `after` and up to number `up_to`. The consumer has looked at
    /// the subjects before the place `from`. With `exact`, a subject with a message above `up_to` counts with
    /// its last message up to there: the consumer has just started, so such subjects are few.
    Search {
        from: usize,
        after: StreamSeq,
        up_to: StreamSeq,
        exact: bool,
    },
    /// A look at the found messages from block `from` on, because the stream has removed many messages, or
    /// (`by_filter`) because the consumer has other filters. The look drops the messages that no longer
    /// belong to the set.
    Review { from: u64, by_filter: bool },
}

impl Skip {
    /// Begins to look for the last message of each subject, among the messages above number `after` and up to
    /// number `up_to`. With `exact`, the stream has no message above `up_to` yet. The caller then continues
    /// the search in parts.
    pub(super) fn search(after: StreamSeq, up_to: StreamSeq, exact: bool) -> Self {
        Self {
            work: Work::Search {
                from: 0,
                after,
                up_to,
                exact,
            },
            ..Self::default()
        }
    }

    /// Returns whether the consumer knows all messages of the set, so that it can begin to deliver.
    pub(super) const fn is_complete(&self) -> bool {
        matches!(self.work, Work::None)
    }

    /// Continues the search or the review in parts, so that the event loop does not stop: looks at up to
    /// `limit` subjects, or at found messages for about as long.
    pub(super) fn go_on(&mut self, limit: usize, source: &mut impl Source) {
        match self.work {
            Work::None => {}
            Work::Search {
                from,
                after,
                up_to,
                exact,
            } => {
                let newest = exact.then_some(up_to);
                let Some((seqs, next)) = source.lasts(from, limit, newest) else {
                    // Each message is the last of its subject, so a limit of the stream has changed since the
                    // search began. The set keeps the messages that it has found so far.
                    self.work = Work::None;
                    return;
                };
                for seq in seqs.into_iter().filter(|seq| *seq > after && *seq <= up_to) {
                    self.insert(seq);
                }
                self.work = next.map_or(Work::None, |from| Work::Search {
                    from,
                    after,
                    up_to,
                    exact,
                });
            }
            Work::Review { from, by_filter } => {
                let blocks = (limit / SUBJECTS_A_BLOCK).max(1);
                let next = self.review(from, blocks, |seq| match by_filter {
                    true => source.is_last(seq),
                    false => source.contains(seq),
                });
                self.work = match next {
                    Some(from) => Work::Review { from, by_filter },
                    None => Work::None,
                };
            }
        }
    }

    /// Removes the messages that `keep` rejects from up to `blocks` blocks, from block `from` on. Returns the
    /// block with which the next call continues; `None` after the last.
    fn review(
        &mut self,
        from: u64,
        blocks: usize,
        mut keep: impl FnMut(StreamSeq) -> bool,
    ) -> Option<u64> {
        let mut range = self.blocks.range_mut(from..);
        let mut emptied = Vec::new();
        for (block, bits) in range.by_ref().take(blocks) {
            for bit in bits.iter() {
                if !keep(seq_of(*block, bit)) {
                    bits.clear(bit);
                    self.left -= 1;
                }
            }
            if bits.count() == 0 {
                emptied.push(*block);
            }
        }
        let next = range.next().map(|(block, _)| *block);
        for block in emptied {
            self.blocks.remove(&block);
        }
        next
    }

    /// Begins to drop the messages that the stream no longer holds, because the stream has removed many
    /// messages.
    pub(super) fn handle_purged(&mut self) {
        self.begin_review(false);
    }

    /// Begins to drop messages because the consumer has other filters: the set keeps only the last messages
    /// of subjects that the new filters pass.
    pub(super) fn handle_filtered(&mut self) {
        self.begin_review(true);
    }

    fn begin_review(&mut self, by_filter: bool) {
        self.work = match self.work {
            Work::Search {
                after,
                up_to,
                exact,
                ..
            } => {
                *self = Self::search(after, up_to, exact);
                return;
            }
            Work::None if self.left == 0 => return,
            Work::None => Work::Review { from: 0, by_filter },
            Work::Review { by_filter: was, .. } => Work::Review {
                from: 0,
                by_filter: by_filter || was,
            },
        };
    }

    /// Returns the number of messages that the consumer has still to deliver from the set. They count as
    /// pending messages.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Returns the number of the next message that the consumer has to deliver from the set; `None` if the
    /// set is empty, and the consumer goes on with later messages.
    pub(super) fn peek(&self) -> Option<StreamSeq> {
        let (block, bits) = self.blocks.first_key_value()?;
        bits.next(0).map(|bit| seq_of(*block, bit))
    }

    /// Removes from the set the message that [`Skip::peek`] has returned, because the consumer has delivered
    /// or skipped it.
    pub(super) fn advance(&mut self) {
        if let Some(seq) = self.peek() {
            self.remove(seq);
        }
    }

    /// Removes a message from the set, because the stream no longer holds the message. Returns whether the
    /// set had the message, so that the caller does not count it a second time.
    pub(super) fn remove(&mut self, seq: StreamSeq) -> bool {
        let (block, bit) = place_of(seq);
        let Some(bits) = self.blocks.get_mut(&block).filter(|bits| bits.has(bit)) else {
            return false;
        };
        bits.clear(bit);
        if bits.count() == 0 {
            self.blocks.remove(&block);
        }
        self.left -= 1;
        true
    }

    fn insert(&mut self, seq: StreamSeq) {
        let (block, bit) = place_of(seq);
        let bits = self.blocks.entry(block).or_default();
        self.left += u64::from(!bits.has(bit));
        bits.set(bit);
    }
}

/// Returns the block of a message number, and its bit there, so that one set of bits keeps 256 numbers.
const fn place_of(seq: StreamSeq) -> (u64, usize) {
    (seq.get() / LEN as u64, (seq.get() % LEN as u64) as usize)
}

const fn seq_of(block: u64, bit: usize) -> StreamSeq {
    StreamSeq::new(block * LEN as u64 + bit as u64)
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_messages;
    use super::*;

    fn n(number: u64) -> StreamSeq {
        StreamSeq::new(number)
    }

    fn all(skip: &mut Skip) -> Vec<u64> {
        let mut seqs = Vec::new();
        while let Some(seq) = skip.peek() {
            seqs.push(seq.get());
            skip.advance();
        }
        assert_eq!(skip.left(), 0);
        seqs
    }

    #[test]
    fn removed_ones_are_passed_over() {
        let mut skip = Skip::default();
        [5, 2, 600, 9]
            .into_iter()
            .for_each(|seq| skip.insert(n(seq)));
        assert!(skip.remove(n(2)) && !skip.remove(n(2)) && !skip.remove(n(3)));
        assert_eq!((skip.peek(), skip.left()), (Some(n(5)), 3));
        skip.advance();
        assert!(!skip.remove(n(5)) && skip.remove(n(600)));
        assert_eq!(all(&mut skip), [9]);
        assert!(!skip.remove(n(6)));
    }

    #[test]
    fn a_search_in_parts_finds_the_last_message_of_each_subject() {
        // The stream has the messages 1 to 8 with these subjects.
        let mut stream = with_messages(&["a", "b", "a", "c", "d", "b", "c", "a"]);
        for limit in 1..6 {
            for exact in [false, true] {
                let mut skip = Skip::search(n(1), n(7), exact);
                let mut parts = 0;
                while !skip.is_complete() {
                    skip.go_on(limit, &mut stream);
                    parts += 1;
                }
                assert!(parts >= 4 / limit);
                // The last message of subject `a` is above the range. Only an exact search takes an earlier
                // message of the subject in its place.
                let expected: &[u64] = if exact { &[3, 5, 6, 7] } else { &[5, 6, 7] };
                assert_eq!(all(&mut skip), expected);
            }
        }
    }

    #[test]
    fn a_purge_in_the_middle_begins_the_search_again() {
        let mut stream = with_messages(&["a", "b", "c", "d"]);
        let mut skip = Skip::search(n(0), n(4), true);
        skip.go_on(2, &mut stream);
        stream.messages.remove(&n(1));
        skip.handle_purged();
        while !skip.is_complete() {
            skip.go_on(1, &mut stream);
        }
        assert_eq!(skip.left(), 3);
        // Once the search is complete, the consumer handles a purge by a look at the set alone, which takes
        // one part here.
        stream.messages.remove(&n(3));
        skip.handle_purged();
        assert!(!skip.is_complete());
        skip.go_on(1, &mut stream);
        assert!(skip.is_complete());
        assert_eq!(all(&mut skip), [2, 4]);
        skip.handle_purged();
        assert!(skip.is_complete(), "an empty set needs no review");
    }

    #[test]
    fn other_filters_leave_only_messages_that_pass_them() {
        let mut stream = with_messages(&["a", "b", "c", "a"]);
        let mut skip = Skip::default();
        [1, 2, 3].into_iter().for_each(|seq| skip.insert(n(seq)));
        stream.filters = vec!["a".into(), "c".into()];
        skip.handle_filtered();
        skip.handle_purged();
        skip.go_on(1, &mut stream);
        assert_eq!(all(&mut skip), [3], "message 1 is no longer the last of a");
    }
}
