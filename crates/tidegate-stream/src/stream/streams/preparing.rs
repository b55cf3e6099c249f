//! The preparation of an entry with publishes that depend on the last messages under patterns of subjects.
//!
//! The check of such a publish looks at all subjects of its stream, and an entry may hold thousands of these
//! publishes. So before a node applies an entry, it looks at the subjects in parts, once for all patterns of
//! the entry, while the entry waits ([`Streams::prepare`]). The streams remember the results
//! ([`Expected`](super::super::expected::Expected)). An entry has the same outcomes without the preparation.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use memchr::memmem;

use super::super::command::{Command, Entry, Kind};
use super::super::content::Content;
use super::super::expected::SUBJECTS_MIN;
use super::super::filter::Filter;
use super::super::headers::Asked;
use super::super::matcher::Matcher;
use super::Streams;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// The end of the name of the header with a pattern. Few messages have the header, so a search for this text
/// saves the others the reading of their headers.
const HEADER_END: &[u8] = b"Subject-Sequence-Subject";

/// The entry that a node prepares, and the progress.
#[derive(Debug)]
pub(super) struct Preparing {
    /// The bytes of the entry, by the place of which in memory the node recognises the entry.
    entry: Bytes,
    walks: Vec<Walk>,
}

/// A look at all subjects of one stream for the patterns of an entry.
#[derive(Debug)]
struct Walk {
    stream: StreamNumber,
    patterns: Vec<Box<[u8]>>,
    /// The patterns that the node has added so far, by their places in `patterns`.
    matcher: Matcher,
    /// The last message so far under each pattern.
    lasts: Vec<Option<StreamSeq>>,
    /// The place of the subject at which the walk goes on.
    from: usize,
}

impl Streams {
    /// Prepares the entry that the node applies next, so that the entry does not take long. Returns whether
    /// the node may apply the entry now. Otherwise the node calls this again in a later turn, and applies no
    /// other entry before. `left` is the number of steps that the caller allows; each comparison of a subject
    /// lowers it.
    pub fn prepare(&mut self, entry: &Bytes, left: &mut usize) -> bool {
        let is_same = |known: &Preparing| {
            let same = known.entry.as_ptr() == entry.as_ptr();
            same && known.entry.len() == entry.len()
        };
        let known = self.preparing.take().filter(is_same);
        let mut preparing = match known {
            Some(known) => known,
            None => match self.begin(entry) {
                walks if walks.is_empty() => return true,
                walks => Preparing {
                    entry: entry.clone(),
                    walks,
                },
            },
        };
        while let Some(walk) = preparing.walks.last_mut() {
            let is_done = match self.streams.get(walk.stream) {
                Some(stream) => walk.go_on(&stream.content, left),
                None => true,
            };
            if !is_done {
                self.preparing = Some(preparing);
                return false;
            }
            if let Some(stream) = self.streams.get_mut(walk.stream) {
                for (pattern, last) in walk.patterns.iter().zip(&walk.lasts) {
                    stream.content.expected.finish(pattern, *last);
                }
            }
            preparing.walks.pop();
        }
        true
    }

    /// Returns whether a node looks at the subjects of a stream before it applies this command: a publish
    /// that depends on the last message under a pattern. The leader puts such a publish and a command that
    /// removes messages into separate entries, because the removal of that message would void the
    /// preparation.
    #[must_use]
    pub fn looks_up(&self, command: &Command<'_>) -> bool {
        if self.subjects_most <= SUBJECTS_MIN {
            return false;
        }
        let looks_up = |pattern: &[u8]| {
            let stream = self.streams.get(command.stream);
            stream.is_some_and(|s| s.content.is_remembered(&Filter::new([pattern])))
        };
        pattern_of(command).is_some_and(looks_up)
    }

    /// Finds the patterns in an entry that a node has to prepare, and begins to remember them.
    fn begin(&mut self, entry: &Bytes) -> Vec<Walk> {
        if self.subjects_most <= SUBJECTS_MIN {
            return Vec::new();
        }
        let mut wanted: BTreeMap<StreamNumber, BTreeSet<&[u8]>> = BTreeMap::new();
        // A node that cannot read the entry stops at its application.
        let commands = Entry::decode(entry).into_iter().flat_map(|e| e.commands());
        for command in commands.flatten() {
            if let Some(pattern) = pattern_of(&command)
                && let Some(stream) = self.streams.get(command.stream)
                && stream.content.is_remembered(&Filter::new([pattern]))
                && !stream.content.knows_expected(pattern)
            {
                wanted.entry(command.stream).or_default().insert(pattern);
            }
        }
        let mut walks = Vec::new();
        for (id, patterns) in wanted {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            let expected = &mut stream.content.expected;
            if !expected.make_room(patterns.len()) {
                // The stream has forgotten patterns of this entry that it remembered.
                return self.begin(entry);
            }
            patterns.iter().for_each(|pattern| expected.begin(pattern));
            walks.push(Walk {
                stream: id,
                lasts: vec![None; patterns.len()],
                patterns: patterns.into_iter().map(Into::into).collect(),
                matcher: Matcher::default(),
                from: 0,
            });
        }
        walks
    }
}

impl Walk {
    /// Looks at further subjects. Returns false if some are left.
    fn go_on(&mut self, content: &Content, left: &mut usize) -> bool {
        while let Some(pattern) = self.patterns.get(self.matcher.len()) {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            self.matcher.add(pattern, self.matcher.len() as u32);
        }
        let (subjects, lasts) = (&content.subjects, &mut self.lasts);
        while self.from < subjects.places_len() {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            // The cast loses nothing, because the numbers of subjects are `u32`.
            let id = self.from as u32;
            self.from += 1;
            let stat = subjects.stat(id);
            let Some(name) = subjects.name(id).filter(|_| stat.count > 0) else {
                continue;
            };
            let (mut last, mut looked) = (None, 0);
            let steps = self.matcher.each(name, |number| {
                if last.is_none() {
                    let index = &content.index;
                    last = index.prev_of_within(id, stat.last, stat.first, &mut looked);
                }
                let best = &mut lasts[number as usize];
                *best = (*best).max(last);
                true
            });
            // The first step, and the first block, are part of the comparison of the subject.
            let more = steps.saturating_sub(1) + looked.saturating_sub(1);
            *left = left.saturating_sub(more);
        }
        true
    }
}

/// Returns the pattern of subjects that gives a publish the message on which it depends, if any.
fn pattern_of<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    let headers = command.headers?;
    if command.kind != Kind::Publish || memmem::find(headers, HEADER_END).is_none() {
        return None;
    }
    Asked::read(headers).expected_subject
}

#[cfg(test)]
mod tests;
