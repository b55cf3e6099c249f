//! Remembers the last message under each pattern on which publishers have made a message depend, so that the
//! check of a further such message need not look at all subjects of the stream.
//!
//! The results change no state and no outcome: a node may forget them at any time, and then looks at the
//! subjects again. So two nodes may remember different patterns. A message that the stream stores updates the
//! results at once. If the stream removes the last message under a pattern, the next check looks at the
//! subjects again.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::matcher::Matcher;
use crate::schema::sequence::StreamSeq;

/// A stream with at most this number of subjects remembers no results, because a look at all is cheap.
pub(super) const SUBJECTS_MIN: usize = if cfg!(test) { 2 } else { 256 };
/// The number of patterns beyond which the stream remembers no further one, except those that a node has
/// prepared for an entry ([`Expected::begin`]).
const KNOWN_MAX: usize = if cfg!(test) { 3 } else { 64 };
/// The number of stored messages without a check after which the stream forgets all patterns, because each
/// stored message is compared with them.
const IDLE_MAX: u32 = if cfg!(test) { 20 } else { 1024 };

/// The patterns that a stream remembers, with the last message under each of them.
#[derive(Debug, Default)]
pub(super) struct Expected {
    matcher: Matcher,
    numbers: HashMap<Box<[u8]>, u32, RandomState>,
    known: Vec<Known>,
    /// The number of messages that the stream has stored since the last check.
    idle: u32,
}

/// The last message under a pattern.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The number of the last message that matched when the node looked or when the stream stored it. The
    /// stream may have removed this message since. `None` if no message matched.
    last: Option<StreamSeq>,
    /// False until the node has looked at all subjects for the pattern.
    is_whole: bool,
}

impl Expected {
    /// Notes a message that the stream has just stored.
    #[inline]
    pub(super) fn handle_stored(&mut self, subject: &[u8], seq: StreamSeq) {
        if !self.known.is_empty() {
            self.update(subject, seq);
        }
    }

    fn update(&mut self, subject: &[u8], seq: StreamSeq) {
        self.idle += 1;
        if self.idle > IDLE_MAX {
            *self = Self::default();
            return;
        }
        let known = &mut self.known;
        self.matcher.each(subject, |number| {
            known[number as usize].last = Some(seq);
            true
        });
    }

    /// Returns the number of the last message that matched the pattern, which the stream may have removed
    /// since; `None` if the node must look at the subjects.
    pub(super) fn get(&mut self, pattern: &[u8]) -> Option<Option<StreamSeq>> {
        self.idle = 0;
        self.peek(pattern)
    }

    /// Returns the same as [`Expected::get`], for a node that only asks whether it must prepare the pattern.
    pub(super) fn peek(&self, pattern: &[u8]) -> Option<Option<StreamSeq>> {
        let known = self.known[*self.numbers.get(pattern)? as usize];
        known.is_whole.then_some(known.last)
    }

    /// Remembers the last message under a pattern, which a look at all subjects has just found, unless the
    /// stream remembers very many patterns.
    pub(super) fn put(&mut self, pattern: &[u8], last: Option<StreamSeq>) {
        if !self.numbers.contains_key(pattern) {
            if self.known.len() >= KNOWN_MAX {
                return;
            }
            self.begin(pattern);
        }
        if let Some(number) = self.numbers.get(pattern) {
            self.known[*number as usize] = Known {
                last,
                is_whole: true,
            };
        }
    }

    /// Forgets all patterns if `more` further ones would be too many, before a node prepares these. Returns
    /// false if the stream has forgotten patterns.
    pub(super) fn make_room(&mut self, more: usize) -> bool {
        self.idle = 0;
        if self.known.is_empty() || self.known.len() + more <= KNOWN_MAX {
            return true;
        }
        *self = Self::default();
        false
    }

    /// Begins to remember a pattern that a node prepares: from now on, stored messages update its result.
    pub(super) fn begin(&mut self, pattern: &[u8]) {
        let fresh = Known {
            last: None,
            is_whole: false,
        };
        if let Some(number) = self.numbers.get(pattern) {
            self.known[*number as usize] = fresh;
            return;
        }
        let number = self.known.len() as u32;
        self.numbers.insert(pattern.into(), number);
        self.matcher.add(pattern, number);
        self.known.push(fresh);
    }

    /// Completes the result for a pattern that a node has prepared. `last` is the last message that the node
    /// found in a look at all subjects; the stream may have stored later ones since [`Expected::begin`].
    pub(super) fn finish(&mut self, pattern: &[u8], last: Option<StreamSeq>) {
        self.idle = 0;
        if let Some(number) = self.numbers.get(pattern) {
            let known = &mut self.known[*number as usize];
            known.last = known.last.max(last);
            known.is_whole = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sequence::nth;

    #[test]
    fn stored_messages_update_the_results() {
        let mut expected = Expected::default();
        expected.handle_stored(b"a.1", nth(1));
        assert_eq!(expected.get(b"a.*"), None);
        expected.put(b"a.*", Some(nth(1)));
        expected.handle_stored(b"b.1", nth(2));
        assert_eq!(expected.get(b"a.*"), Some(Some(nth(1))));
        expected.handle_stored(b"a.2", nth(3));
        assert_eq!(expected.get(b"a.*"), Some(Some(nth(3))));
        expected.put(b"c.*", None);
        assert_eq!(expected.get(b"c.*"), Some(None));
    }

    #[test]
    fn a_prepared_pattern_counts_the_messages_that_come_meanwhile() {
        let mut expected = Expected::default();
        assert!(expected.make_room(1));
        expected.begin(b"a.*");
        expected.handle_stored(b"a.2", nth(7));
        assert!(expected.peek(b"a.*").is_none() && expected.get(b"a.*").is_none());
        expected.finish(b"a.*", Some(nth(5)));
        assert_eq!(expected.peek(b"a.*"), Some(Some(nth(7))));
        // The node prepares the pattern again, because the stream has removed message 7.
        expected.begin(b"a.*");
        assert_eq!(expected.peek(b"a.*"), None);
        expected.finish(b"a.*", None);
        assert_eq!(expected.get(b"a.*"), Some(None));
    }

    #[test]
    fn the_number_of_patterns_is_bounded() {
        let mut expected = Expected::default();
        for n in 0..2 * KNOWN_MAX {
            expected.put(format!("a.{n}.*").as_bytes(), None);
        }
        assert_eq!(
            (expected.known.len(), expected.matcher.len()),
            (KNOWN_MAX, KNOWN_MAX)
        );
        assert!(!expected.make_room(2 * KNOWN_MAX));
        assert!(
            expected.make_room(2 * KNOWN_MAX),
            "an empty set has room for one entry"
        );
        for n in 0..2 * KNOWN_MAX {
            expected.begin(format!("b.{n}.*").as_bytes());
        }
        assert_eq!(expected.known.len(), 2 * KNOWN_MAX);
        for n in 0..=u64::from(IDLE_MAX) {
            assert!(!expected.known.is_empty());
            expected.handle_stored(b"c", nth(n));
        }
        assert!(expected.known.is_empty(), "unused patterns are forgotten");
    }
}
