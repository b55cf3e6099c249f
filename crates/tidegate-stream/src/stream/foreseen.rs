//! A purge by subject that the leader will soon propose, prepared in parts on each node.
//!
//! A purge has its whole effect at its entry. To compare a million subjects with a pattern there, and to copy
//! the blocks of their messages, takes some 50 ms. So each node does this beforehand, between other work
//! ([`Foreseen::go_on`]), and the entry uses the results as far as they still hold. They change no query and
//! no state: without them, or with only a part of them, the purge has the same effect and takes longer.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::block::Block;
use super::content::Content;
use super::filter::{Filter, Reach};
use super::subjects::Subjects;
use crate::bits::{Bits, LEN};
use crate::schema::sequence::StreamSeq;

/// The number of subjects that take as long to compare as a block takes to copy. A node measures the parts of
/// its preparation in subjects.
const SUBJECTS_A_BLOCK: usize = 64;

/// The results that a node prepares for a purge by subject, so that the purge itself takes less time.
#[derive(Debug)]
pub(super) struct Foreseen {
    pattern: String,
    /// The purge's filter, which remembers the results of its comparisons, so that the purge need not repeat
    /// them.
    filter: Filter,
    /// The place of the subject that this node compares with the pattern next; `None` once no subject is
    /// left.
    subject: Option<usize>,
    /// The closed blocks that this node has looked at, in order, each with the messages that the purge
    /// removes from it.
    blocks: VecDeque<Removal>,
    /// The message number from which on this node has still to look at blocks; `None` once no block is left.
    block: Option<StreamSeq>,
}

/// The messages, perhaps none, that a purge removes from a block.
#[derive(Debug)]
struct Removal {
    /// The block at the time at which this node looked at it. If the block has changed since, the index has
    /// another block in its place, and the purge looks at that one.
    block: Arc<Block>,
    gone: Bits,
    /// A copy of the block without these messages, which the purge puts into the index; `None` if the purge
    /// removes all messages of the block, or none.
    rest: Option<Arc<Block>>,
}

impl Foreseen {
    pub(super) fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            filter: Filter::new([pattern]),
            subject: Some(0),
            blocks: VecDeque::new(),
            block: Some(StreamSeq::ZERO),
        }
    }

    /// Returns whether these results are for a purge by this pattern, so that the purge can use them.
    pub(super) fn is_for(&self, pattern: &str) -> bool {
        self.pattern == pattern
    }

    /// Returns whether this node has finished the preparation. The results may lack subjects and messages
    /// that came since; the purge looks at those itself.
    pub(super) const fn is_complete(&self) -> bool {
        self.block.is_none()
    }

    /// Looks at up to `limit` further subjects of the stream, or at blocks of messages for about as long, so
    /// that one turn of the node stays short. Returns the number of subjects that take as long as this part.
    pub(super) fn go_on(&mut self, content: &Content, limit: usize) -> usize {
        let subjects = &content.subjects;
        let one = match self.filter.reach(subjects) {
            Reach::Patterns => None,
            Reach::One(Some(id)) => Some(id),
            // A purge of all subjects compares no patterns and copies no blocks, and a purge of a subject
            // without messages removes nothing, so this node prepares nothing for either.
            Reach::All | Reach::One(None) => {
                self.block = None;
                return 0;
            }
        };
        if let (None, Some(from)) = (one, self.subject) {
            let (part, next) = subjects.part(from, limit);
            for (id, ..) in part {
                self.filter.wants(subjects, id);
            }
            self.subject = next;
            return next
                .unwrap_or_else(|| subjects.places_len())
                .saturating_sub(from);
        }
        let range = one.map(|id| subjects.stat(id));
        let range = range.map_or((StreamSeq::ZERO, StreamSeq::MAX), |s| (s.first, s.last));
        let mut looked = 0;
        for _ in 0..(limit / SUBJECTS_A_BLOCK).max(1) {
            let Some(from) = self.block else {
                break;
            };
            let from = from.max(range.0);
            let next = content.index.closed_from(from);
            self.block = next.filter(|block| block.first() <= range.1).map(|block| {
                self.blocks
                    .push_back(removal(&mut self.filter, block, subjects, one));
                block.first().next()
            });
            looked += SUBJECTS_A_BLOCK;
        }
        looked
    }

    /// Returns whether the purge's filter can pass all subjects, one subject, or those of patterns. Only a
    /// filter that passes a part of the subjects has prepared results.
    pub(super) fn reach(&self, content: &Content) -> Reach {
        self.filter.reach(&content.subjects)
    }

    /// Returns the purge's filter, with the results of its comparisons, so that the purge does not repeat
    /// them.
    pub(super) fn into_filter(self) -> Filter {
        self.filter
    }

    /// Returns the messages to remove in a range of a block's bits, and a copy of the block without them if
    /// this node has made one. The caller must ask for the blocks in order, because the results lie in that
    /// order.
    pub(super) fn choose(
        &mut self,
        block: &Block,
        range: Range<usize>,
        subjects: &Subjects,
    ) -> (Bits, Option<Arc<Block>>) {
        while let Some(known) = self.blocks.front()
            && known.block.first() <= block.first()
        {
            let same = std::ptr::eq(&raw const *known.block, block);
            let known = self.blocks.pop_front();
            if let Some(known) = known.filter(|_| same && range == (0..LEN)) {
                return (known.gone, known.rest);
            }
        }
        let mask = block.mask_where(range, |_, id| self.filter.wants(subjects, id));
        (mask, None)
    }
}

/// Chooses the messages of a block that a purge removes, and copies the block without them. If the purge is
/// of the subject `one` alone, a comparison of numbers is enough, and the filter need not learn of the other
/// subjects.
fn removal(
    filter: &mut Filter,
    block: &Arc<Block>,
    subjects: &Subjects,
    one: Option<u32>,
) -> Removal {
    let gone = match one {
        Some(one) if !block.may_have(one) => Bits::default(),
        Some(one) => block.mask_where(0..LEN, |_, id| id == one),
        None => block.mask_where(0..LEN, |_, id| filter.wants(subjects, id)),
    };
    let is_part = gone != Bits::default() && gone != *block.live();
    Removal {
        block: Arc::clone(block),
        gone,
        rest: is_part.then(|| Arc::new(block.without(&gone))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::{Flags, Slot};
    use super::super::command::Place;
    use super::*;

    /// Fills a content with `len` messages; each message with an even number has the subject `a.even`, and
    /// each other message has a subject of its own.
    fn filled(len: u64) -> Content {
        let mut content = Content::new(StreamSeq::FIRST, false);
        for n in 1..=len {
            let subject = match n % 2 {
                0 => "a.even".to_owned(),
                _ => format!("b.{n}"),
            };
            let slot = Slot {
                place: Place {
                    lsn: n * 8,
                    offset: 0,
                },
                time_us: n,
                bytes: 1,
                subject: 0,
                flags: Flags::default(),
                due_us: 0,
            };
            content.push(subject.as_bytes(), slot, None);
        }
        content
    }

    #[test]
    fn blocks_that_have_not_changed_need_no_second_look() {
        let mut content = filled(1000);
        let mut foreseen = Foreseen::new("a.*");
        let mut parts = 0;
        while !foreseen.is_complete() {
            foreseen.go_on(&content, 100);
            parts += 1;
        }
        assert!(parts > 5 && foreseen.is_for("a.*"));
        // The second block changes after the preparation, so the purge must not use the prepared results of
        // that block. The last block is not closed, so the preparation has no results for it.
        content.remove(StreamSeq::new(300));
        let copies: Vec<Arc<Block>> = foreseen
            .blocks
            .iter()
            .flat_map(|r| r.rest.clone())
            .collect();
        assert_eq!(copies.len(), 3);
        let blocks = content.index.blocks_from(StreamSeq::ZERO);
        let chosen = blocks.map(|block| foreseen.choose(block, 0..LEN, &content.subjects));
        let known: Vec<bool> = chosen.map(|(_, rest)| rest.is_some()).collect();
        assert_eq!(known, [true, false, true, false]);
    }

    #[test]
    fn a_purge_that_compares_nothing_needs_no_preparation() {
        let content = filled(10);
        for pattern in [">", "none"] {
            let mut foreseen = Foreseen::new(pattern);
            assert_eq!(foreseen.go_on(&content, 1), 0);
            assert!(foreseen.is_complete());
        }
    }

    /// Counts the work of each part: no part looks at more subjects than its limit, or at one block at least.
    #[test]
    fn no_part_does_more_than_its_share() {
        let content = filled(2000);
        for (pattern, limit) in [("b.*", 100), ("b.*", 1), ("a.even", 128), ("a.even", 1)] {
            let mut foreseen = Foreseen::new(pattern);
            let mut parts = 0;
            while !foreseen.is_complete() {
                let looked = foreseen.go_on(&content, limit);
                assert!(looked <= limit.max(SUBJECTS_A_BLOCK), "{pattern}: {looked}");
                parts += 1;
            }
            assert!(parts >= 3, "{pattern}: {parts}");
        }
    }

    #[test]
    fn a_prepared_purge_does_as_one_without() {
        for (pattern, parts) in [("b.*", 0), ("b.*", 1), ("b.*", 4), ("b.*", 100)]
            .into_iter()
            .chain([0, 1, 2, 100].map(|parts| ("a.even", parts)))
        {
            let (mut one, mut other) = (filled(1000), filled(1000));
            let mut foreseen = Foreseen::new(pattern);
            for _ in 0..parts {
                foreseen.go_on(&one, 128);
            }
            for content in [&mut one, &mut other] {
                content.remove(StreamSeq::new(601));
                content.remove(StreamSeq::new(4));
            }
            let to = StreamSeq::new(900);
            let removed = one.remove_foreseen(foreseen, to);
            let expected = other.remove_matching(&mut Filter::new([pattern]), to, 0);
            assert!(
                removed.iter().eq(expected.iter()),
                "{pattern}: {parts} parts"
            );
            one.check_invariants();
            assert_eq!(
                (one.messages, one.first_seq),
                (other.messages, other.first_seq)
            );
        }
    }

    /// A subject loses its messages after the preparation, and another subject gets its number. The purge of
    /// the first subject leaves the messages of the second.
    #[test]
    fn a_number_that_another_subject_takes_over_keeps_its_messages() {
        let mut content = filled(1000);
        let mut foreseen = Foreseen::new("b.1");
        while !foreseen.is_complete() {
            foreseen.go_on(&content, 128);
        }
        content.remove(StreamSeq::new(1));
        let before = content.messages;
        let slot = content.index.get(StreamSeq::new(2)).expect("a message");
        content.push(b"c", slot, None);
        let removed = content.remove_foreseen(foreseen, StreamSeq::new(2000));
        assert_eq!((removed.len(), content.messages), (0, before + 1));
        content.check_invariants();
    }
}
