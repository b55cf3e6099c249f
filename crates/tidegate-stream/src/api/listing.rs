//! Finds, in parts, the page of the list of streams that a client's request asks for: a look at the subjects
//! of a hundred thousand streams takes too long for one turn of the event loop.

use tidegate_nats::subject::overlaps;

use super::answer::Page;
use super::body::{StreamPage, offset};
use crate::schema::number::StreamNumber;
use crate::stream::{Stream, Streams};

/// The streams on the page that a request asks for, while the node looks for them. The list is in the order
/// of the streams' names. A stream that a client creates or deletes meanwhile may be in the list or not,
/// which clients accept.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The pattern that a subject of each listed stream must overlap; empty for all streams. The client sets
    /// it.
    pattern: String,
    offset: usize,
    limit: usize,
    /// The name of the last stream that the node has looked at; the next part begins after it.
    after: Option<String>,
    /// The number of listed streams among those that the node has looked at. In the end the client learns it
    /// as the total.
    total: usize,
    found: Vec<StreamNumber>,
}

impl Listing {
    /// Begins to look for the page that a request asks for, of at most `limit` streams. The caller then calls
    /// [`Listing::collect`] until the page is complete.
    #[must_use]
    pub fn new(ask: &StreamPage, limit: usize) -> Self {
        Self {
            pattern: ask.subject.clone(),
            offset: offset(ask.offset),
            limit,
            after: None,
            total: 0,
            found: Vec::new(),
        }
    }

    /// Looks at up to `len` further streams, so that one turn of the node stays short. For a list of all
    /// streams, it looks only at the streams on the page. Returns whether the page is complete.
    pub fn collect(&mut self, streams: &Streams, len: usize) -> bool {
        if self.pattern.is_empty() && !streams.has_restoring() {
            self.total = streams.len();
            self.found = streams.page(self.offset, self.limit).collect();
            return true;
        }
        let mut seen = 0;
        let mut last = None;
        for stream in streams.iter_after(self.after.as_deref()).take(len) {
            seen += 1;
            last = Some(stream.name());
            let subjects = &stream.config().subjects;
            let is_listed = |s: &String| overlaps(s.as_bytes(), self.pattern.as_bytes());
            let is_wanted = self.pattern.is_empty() || subjects.iter().any(is_listed);
            if is_wanted && !stream.is_restoring() {
                if self.total >= self.offset && self.found.len() < self.limit {
                    self.found.push(stream.id());
                }
                self.total += 1;
            }
        }
        if let Some(last) = last {
            self.after = Some(last.to_owned());
        }
        seen < len
    }

    /// Returns the place of the page in the list, once the page is complete, for the client.
    #[must_use]
    pub fn page(&self) -> Page {
        Page::new(self.total, self.offset, self.limit)
    }

    /// Iterates over the streams on the page. It leaves out a stream that a client has deleted since the node
    /// found it, because the answer cannot describe that stream.
    pub fn streams<'a>(&'a self, streams: &'a Streams) -> impl Iterator<Item = &'a Stream> {
        self.found.iter().filter_map(|id| streams.get(*id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{AccountLimits, Command, Encoder, Kind};

    fn streams(all: &[(&str, &str)]) -> Streams {
        let mut streams = Streams::new(AccountLimits::NONE);
        for (name, subject) in all {
            let config = serde_json::json!({"name": name, "subjects": [subject]}).to_string();
            let kind = Kind::CreateStream;
            let command = Command::new(kind, StreamNumber::NONE, b"", config.as_bytes());
            let (mut entry, mut out) = (Vec::new(), Vec::new());
            let mut encoder = Encoder::begin(&mut entry, 1);
            encoder.command(&command).unwrap();
            let applied = streams.apply(1, &entry.into(), &mut out, &mut Vec::new());
            applied.unwrap();
        }
        streams
    }

    fn listed(streams: &Streams, ask: (i64, &str), limit: usize, len: usize) -> (Page, String) {
        let ask = StreamPage {
            offset: ask.0,
            subject: ask.1.into(),
        };
        let mut listing = Listing::new(&ask, limit);
        let mut looks = 1;
        while !listing.collect(streams, len) {
            looks += 1;
        }
        assert!(looks <= 1 + streams.len() / len);
        let names: Vec<&str> = listing.streams(streams).map(Stream::name).collect();
        (listing.page(), names.join(" "))
    }

    #[test]
    fn a_page_is_the_same_in_parts_of_any_length() {
        let all = [("B", "b.>"), ("A", "a.*"), ("C", "c"), ("D", "d.*.x")];
        let streams = streams(&all);
        let page = |total, offset| Page::new(total, offset, 2);
        for len in 1..6 {
            let list = |offset, pattern| listed(&streams, (offset, pattern), 2, len);
            assert_eq!(list(0, ""), (page(4, 0), "A B".into()));
            assert_eq!(list(3, ""), (page(4, 3), "D".into()));
            assert_eq!(list(9, ""), (page(4, 4), String::new()));
            assert_eq!(list(-5, "*.x"), (page(2, 0), "A B".into()));
            assert_eq!(list(1, ">"), (page(4, 1), "B C".into()));
            assert_eq!(list(0, "*.*.x"), (page(2, 0), "B D".into()));
            assert_eq!(list(0, "zzz"), (page(0, 0), String::new()));
        }
    }

    #[test]
    fn a_stream_deleted_meanwhile_is_left_out() {
        let mut streams = streams(&[("A", "a"), ("B", "b"), ("C", "c")]);
        let ask = StreamPage {
            subject: "*".into(),
            ..StreamPage::default()
        };
        let mut listing = Listing::new(&ask, 10);
        assert!(!listing.collect(&streams, 2));
        let id = streams.by_name("B").unwrap();
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, 1);
        let delete = Command::new(Kind::DeleteStream, id, b"", b"");
        encoder.command(&delete).unwrap();
        let applied = streams.apply(1, &entry.into(), &mut Vec::new(), &mut Vec::new());
        applied.unwrap();
        assert!(listing.collect(&streams, 2));
        let names: Vec<&str> = listing.streams(&streams).map(Stream::name).collect();
        assert_eq!(names, ["A", "C"]);
    }
}
