//! Describes streams and consumers for a report, a part at a time, so that the loop is not kept long: a
//! description takes some microseconds, and a page may have a thousand streams with any number of consumers.

use std::iter::Peekable;

use tidegate::Time;
use tidegate_stream::stream::Stream;

use super::query::Query;
use crate::cures::{cures, part as bound_of_part};
use crate::sessions::Node;
use crate::streams::JetStream;
use crate::streams::views::is_kept;

/// The most streams and consumers that the loop describes in one part, so that no turn takes long.
const DESCRIBED: usize = 64;
/// The most streams that the loop skips in one part to reach the first stream of the page, so that no turn
/// takes long.
const SKIPPED: usize = 4096;

/// A part of the list of streams, as one report has it; the reader joins the parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// The described streams in the order of their names, for the monitor.
    pub(crate) streams: Vec<Described>,
    /// The place at which the loop begins the next part; `None` if this part is the last.
    pub(crate) next: Option<Place>,
}

/// Adds the next part to a list of streams, so that the reader gets one list.
pub(super) fn append(all: &mut Vec<Described>, more: Vec<Described>) {
    for stream in more {
        match all.last_mut().filter(|last| last.name == stream.name) {
            Some(last) => last.consumers.extend(stream.consumers),
            // A stream without a description was deleted and created again between two parts, so the list
            // leaves it out.
            None if stream.info.is_empty() => {}
            None => all.push(stream),
        }
    }
}

/// The description of a stream, or in a list of consumers of a consumer, as the monitor shows it.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// The name of the stream, also in a list of consumers.
    pub(crate) name: String,
    /// The answer to an info request about the stream or the consumer, as JSON; empty if an earlier part has
    /// it, to save the work.
    pub(crate) info: Vec<u8>,
    /// The answers to info requests about consumers of the stream, as JSON, in the order of their names, for
    /// the monitor.
    pub(crate) consumers: Vec<Vec<u8>>,
}

/// A place in the list of streams and their consumers, at which the loop continues the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name of the last stream before the place, after which the loop continues; `None` at the beginning
    /// of the list.
    after: Option<String>,
    /// The name of the last described consumer of that stream, after which the loop continues; `None` if the
    /// stream has no further consumers to describe.
    consumer: Option<String>,
    /// The number of streams that the loop must still skip from here to reach the page that the reader wants.
    skip: usize,
}

impl Place {
    /// Returns the place at which the list of this query begins.
    pub(super) const fn first(query: &Query) -> Self {
        Self {
            after: None,
            consumer: None,
            skip: query.offset,
        }
    }
}

/// Describes a part of the streams that `query` asks for, at most `limit`, from the place `place` on.
pub(super) fn describe(node: &Node, query: &Query, place: &Place, limit: usize, now: Time) -> Part {
    let place = place.clone();
    let mut room = bound_of_part(cures().reports, DESCRIBED);
    let mut part = Part::default();
    let mut after = place.after;
    if let (Some(name), Some(consumer)) = (&after, &place.consumer) {
        let of = node.all_streams().find_map(|of| Some((of, of.kept(name)?)));
        if let Some((of, stream)) = of {
            let (consumers, rest) = of.describe_consumers(now, stream, Some(consumer), room);
            room -= consumers.len();
            part.streams.push(Described {
                name: name.clone(),
                info: Vec::new(),
                consumers,
            });
            if rest.is_some() {
                part.next = Some(Place {
                    after,
                    consumer: rest,
                    skip: 0,
                });
                return part;
            }
        }
    }
    let mut listed = 0;
    let mut all = ByName::new(node, after.as_deref());
    let is_wanted = |name: &str| query.search.as_ref().is_none_or(|text| name.contains(text));
    // Streams that the search does not find count like skipped ones: the loop only looks at their names.
    let (mut skip, mut looked) = (place.skip, 0);
    while listed < limit && room > 0 && looked < SKIPPED {
        let Some((of, stream)) = all.next() else {
            return part;
        };
        let wanted = is_kept(stream) && is_wanted(stream.name());
        if skip > 0 || !wanted {
            looked += 1;
            skip -= usize::from(skip > 0 && wanted);
            after = Some(stream.name().to_owned());
            continue;
        }
        (listed, room) = (listed + 1, room - 1);
        let name = stream.name().to_owned();
        after = Some(name.clone());
        let (consumers, rest) = match query.consumers {
            true => of.describe_consumers(now, stream, None, room),
            false => (Vec::new(), None),
        };
        room -= consumers.len();
        let info = of.describe(now, stream);
        part.streams.push(Described {
            name,
            info,
            consumers,
        });
        if rest.is_some() {
            part.next = Some(Place {
                after,
                consumer: rest,
                skip: 0,
            });
            return part;
        }
    }
    if listed < limit {
        part.next = Some(Place {
            after,
            consumer: None,
            skip,
        });
    }
    part
}

/// An iterator over the streams that the node knows, which merges the groups' streams into the order of their
/// names. A stream that its group keeps comes before an entry of the directory with the same name, so that a
/// list that goes on after this name has passed the kept one.
pub(super) struct ByName<'a>(Vec<Peekable<OfGroup<'a>>>);

type OfGroup<'a> = Box<dyn Iterator<Item = (&'a JetStream, &'a Stream)> + 'a>;

impl<'a> ByName<'a> {
    /// Creates an iterator for a part of the list: over the streams with names after `name`, or over all
    /// streams.
    pub(super) fn new(node: &'a Node, name: Option<&str>) -> Self {
        let of = |of: &'a JetStream| {
            let known: OfGroup<'a> = Box::new(of.known_after(name).map(move |stream| (of, stream)));
            known.peekable()
        };
        Self(node.all_streams().map(of).collect())
    }
}

impl<'a> Iterator for ByName<'a> {
    type Item = (&'a JetStream, &'a Stream);

    fn next(&mut self) -> Option<Self::Item> {
        let groups = self.0.iter_mut();
        let with_name = groups.filter_map(|g| {
            let stream = g.peek()?.1;
            Some(((stream.name(), !is_kept(stream)), g))
        });
        let (_, first) = with_name.min_by_key(|(place, _)| *place)?;
        first.next()
    }
}
