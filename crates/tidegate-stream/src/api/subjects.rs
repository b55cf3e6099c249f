//! Makes, in parts, the answer to an info request about a stream with many subjects or many removed messages.
//!
//! To list and sort a million subjects takes a fifth of a second. So the node collects the subjects part by
//! part between other work ([`SubjectList::collect`]), and another thread chooses, sorts and encodes the page
//! that the client asked for ([`SubjectPage::encode`]). The list holds each subject that the stream had
//! during the whole collection; a subject that appears or disappears meanwhile may be in the list or not. The
//! other thread also encodes the numbers of removed messages, which may be a million; they are as of the end
//! of the collection.

use std::ops::Range;

use serde_json::json;

use super::answer::Page;
use super::body::{InfoDetails, offset};
use super::view::{SUBJECTS_MAX, Server, StreamView, stream_info_with};
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;
use crate::stream::{Filter, Name, Removed, Stream};

/// The subject that stands in the encoded answer in the place of all subjects. No subject and no other object
/// key of the answer has this text, so a search finds the place.
const PLACE: &str = "\u{1}";
/// The number that stands in the encoded answer in the place of all removed messages, with the text around
/// it. No message has this number, and no text in the answer contains quotes without a backslash, so a search
/// finds the place.
const REMOVED_PLACE: StreamSeq = StreamSeq::MAX;
const REMOVED_TEXT: &str = "\"deleted\":[18446744073709551615]";

/// The subjects of a stream that an info request asks for, while the node collects them in parts between
/// other work.
#[derive(Debug)]
pub struct SubjectList {
    filter: Filter,
    /// The place in the stream from which the node collects the next part; `None` once the node has collected
    /// all subjects.
    next: Option<usize>,
    /// The subjects that the node has collected so far, each with its count of messages, in one vector for
    /// each part: one vector for all would copy all subjects whenever it grows.
    parts: Vec<Vec<(Name, u64)>>,
    len: usize,
}

impl SubjectList {
    /// Creates an empty list of the subjects that match the request's pattern; the list is complete at once
    /// if the request has no pattern.
    #[must_use]
    pub fn new(details: &InfoDetails) -> Self {
        let wants_subjects = !details.subjects_filter.is_empty();
        Self {
            filter: Filter::new([details.subjects_filter.as_bytes()]),
            next: wants_subjects.then_some(0),
            parts: Vec::new(),
            len: 0,
        }
    }

    /// Looks at up to `len` further subjects of the stream. Returns whether the list is complete. The limit
    /// keeps the turn of the event loop short.
    pub fn collect(&mut self, stream: &Stream, len: usize) -> bool {
        if let Some(from) = self.next {
            let (part, next) = stream.subjects_part(&self.filter, from, len);
            self.len += part.len();
            self.parts.push(part);
            self.next = next;
        }
        self.next.is_none()
    }

    /// Encodes the answer around the subjects, once the list is complete. `removed` holds the removed
    /// messages if the request asks for them. Another thread then puts the lists into the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the request asks for more numbers of removed messages than one answer may have,
    /// with which the server answers the client.
    pub fn finish(
        self,
        server: &Server<'_>,
        stream: &impl StreamView,
        details: &InfoDetails,
        removed: Option<Removed>,
    ) -> Result<SubjectPage, ApiError> {
        let page = Page::new(self.len, offset(details.offset), SUBJECTS_MAX);
        let place = match page.offset < self.len {
            true => vec![(PLACE.to_owned(), 0)],
            false => Vec::new(),
        };
        let deleted = removed.as_ref().map(|_| vec![REMOVED_PLACE]);
        let body = stream_info_with(server, stream, details, (page, place), deleted)?;
        let find = |text: &str| {
            let at = body.windows(text.len()).position(|t| t == text.as_bytes());
            at.map(|at| at..at + text.len())
        };
        let subjects = find(&format!("{}:0", json!(PLACE)));
        // The brackets stay in the answer, and only the number between them makes way for the list.
        let deleted = find(REMOVED_TEXT);
        let deleted = deleted.map(|at| at.start + "\"deleted\":[".len()..at.end - 1);
        let list = |(at, list)| Some((at?, list));
        let range = page.offset..self.len.min(page.offset.saturating_add(SUBJECTS_MAX));
        let subjects = list((subjects, List::Subjects(self.parts, range)));
        let deleted = removed.and_then(|removed| list((deleted, List::Removed(removed))));
        Ok(SubjectPage {
            body,
            lists: subjects.into_iter().chain(deleted).collect(),
        })
    }
}

/// An answer to an info request in which marks stand for long lists, and these lists. Another thread encodes
/// it, because sorting takes long.
#[derive(Debug)]
pub struct SubjectPage {
    body: Vec<u8>,
    /// The lists, each with the place of its mark in `body`, in the order of the places, so that one pass
    /// over the answer fills them in.
    lists: Vec<(Range<usize>, List)>,
}

/// A long list of an answer to an info request, which takes too long to encode on the event loop.
#[derive(Debug)]
enum List {
    /// The collected subjects in parts, and the range of the page in the sorted list. The other thread sorts
    /// only that page.
    Subjects(Vec<Vec<(Name, u64)>>, Range<usize>),
    Removed(Removed),
}

impl SubjectPage {
    /// Encodes the whole answer for the client. The call takes time linear in the lengths of the lists,
    /// because it sorts only the page of subjects.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let (mut out, mut done) = (Vec::with_capacity(self.body.len()), 0);
        for (place, list) in self.lists {
            out.extend_from_slice(&self.body[done..place.start]);
            done = place.end;
            match list {
                List::Subjects(parts, range) => encode_subjects(parts, range, &mut out),
                List::Removed(removed) => encode_removed(&removed, &mut out),
            }
        }
        out.extend_from_slice(&self.body[done..]);
        out
    }
}

fn encode_subjects(parts: Vec<Vec<(Name, u64)>>, range: Range<usize>, out: &mut Vec<u8>) {
    let mut all: Vec<(Name, u64)> = parts.into_iter().flatten().collect();
    if range.start > 0 && range.start < all.len() {
        all.select_nth_unstable(range.start);
    }
    let page = all.get_mut(range.start..).unwrap_or_default();
    if range.len() < page.len() {
        page.select_nth_unstable(range.len());
    }
    let len = range.len().min(page.len());
    let page = &mut page[..len];
    page.sort_unstable();
    for (at, (subject, count)) in page.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let subject = json!(String::from_utf8_lossy(subject));
        out.extend_from_slice(format!("{comma}{subject}:{count}").as_bytes());
    }
}

fn encode_removed(removed: &Removed, out: &mut Vec<u8>) {
    let mut comma = "";
    for (first, last) in removed.runs() {
        for seq in first.up_to(last.next()) {
            out.extend_from_slice(format!("{comma}{seq}").as_bytes());
            comma = ",";
        }
    }
}
