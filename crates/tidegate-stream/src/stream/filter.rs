//! A filter of the subjects of a stream, for consumers, purges and queries: it passes all subjects, or those
//! that one of its patterns matches.
//!
//! The filter remembers, by the number of a subject, whether it passes the subject. So it compares each
//! subject with the patterns once, and not for each message.

use tidegate_nats::subject;

use super::chunked::Chunked;
use super::subjects::Subjects;

/// A filter of the subjects of one stream. A query on another stream needs a new filter, because the filter
/// caches results by the numbers of subjects.
#[derive(Clone, Debug)]
pub struct Filter {
    wants: Wants,
    /// For each number of a subject, the result of the comparison with the patterns, and the birth of the
    /// compared subject, so that the filter compares each subject only once. Another subject that takes over
    /// the number has another birth, which makes the result void. A stream may have millions of subjects, so
    /// the list grows in chunks.
    verdicts: Chunked<(u32, Verdict)>,
}

#[derive(Clone, Debug)]
enum Wants {
    All,
    One(Box<[u8]>),
    Some(Vec<Box<[u8]>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Unknown,
    Wanted,
    Not,
}

/// The subjects of a stream that a filter can pass. By it the search for messages chooses a faster way for
/// all subjects and for a single subject.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach {
    All,
    /// The filter passes only the subject with this number; `None` if the stream has no messages of that
    /// subject.
    One(Option<u32>),
    Patterns,
}

impl Filter {
    /// Creates a filter that passes the messages of all subjects. A consumer without a filter uses it.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            wants: Wants::All,
            verdicts: Chunked::new(),
        }
    }

    /// Creates a filter that passes the subjects that one of these well-formed patterns matches. Without a
    /// pattern, or with the pattern `>`, the filter passes all subjects, as clients expect.
    #[must_use]
    pub fn new<P: AsRef<[u8]>>(patterns: impl IntoIterator<Item = P>) -> Self {
        let patterns: Vec<Box<[u8]>> = patterns.into_iter().map(|p| p.as_ref().into()).collect();
        let wants = match &patterns[..] {
            [] => Wants::All,
            all if all.iter().any(|p| **p == *b">") => Wants::All,
            [one] if !subject::has_wildcard(one) => Wants::One(one.clone()),
            _ => Wants::Some(patterns),
        };
        Self {
            wants,
            verdicts: Chunked::new(),
        }
    }

    /// Returns whether the filter passes messages of the subject `name`, by a comparison with the filter's
    /// patterns.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        match &self.wants {
            Wants::All => true,
            Wants::One(one) => **one == *name,
            Wants::Some(patterns) => patterns.iter().any(|p| subject::contains(p, name)),
        }
    }

    /// Returns whether the filter has patterns with wildcards or several patterns, so that the node compares
    /// subjects with them one by one.
    #[must_use]
    pub const fn is_pattern(&self) -> bool {
        matches!(self.wants, Wants::Some(_))
    }

    pub(super) fn reach(&self, subjects: &Subjects) -> Reach {
        match &self.wants {
            Wants::All => Reach::All,
            Wants::One(one) => Reach::One(subjects.find(one)),
            Wants::Some(_) => Reach::Patterns,
        }
    }

    /// Returns whether the filter passes messages of the subject with this number. The filter compares the
    /// subject with its patterns only once, and then remembers the result.
    pub(super) fn wants(&mut self, subjects: &Subjects, id: u32) -> bool {
        let birth = subjects.stat(id).birth;
        let at = id as usize;
        while self.verdicts.len() <= at {
            self.verdicts.push((0, Verdict::Unknown));
        }
        let (known, verdict) = self.verdicts[at];
        if known == birth && verdict != Verdict::Unknown {
            return verdict == Verdict::Wanted;
        }
        let wanted = subjects.name(id).is_some_and(|name| self.matches(name));
        let verdict = if wanted {
            Verdict::Wanted
        } else {
            Verdict::Not
        };
        self.verdicts[at] = (birth, verdict);
        wanted
    }
}
