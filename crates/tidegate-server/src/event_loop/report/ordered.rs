//! Looks through streams or consumers for a list in the order of a figure, a part at a time, so that no turn
//! of the loop takes long. The reader brings the short entries into order, and then asks for the descriptions
//! of its page.

use tidegate::Time;
use tidegate_stream::stream::Stream;

use super::details::{ByName, Described};
use super::query::{By, List, Query};
use crate::sessions::Node;
use crate::streams::JetStream;
use crate::streams::views::is_kept;

/// The most streams and consumers that the loop looks at in one part by their names or counts, and
/// (`COUNTED`) by figures that it must compute for each consumer.
const LOOKED: usize = 1024;
const COUNTED: usize = 64;
/// The most streams or consumers that the loop describes in one part.
pub(super) const DESCRIBED: usize = 64;

/// A stream or a consumer in a list. The order of the entries is the order of the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// The figure that gives the place; 0 in a list by names.
    figure: u64,
    stream: Box<str>,
    /// The name of the consumer; empty for a stream.
    consumer: Box<str>,
}

/// A place in the list of all streams and consumers by their names, at which the loop continues the look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct After {
    /// The name of the last stream that the loop has seen wholly; `None` at the beginning.
    stream: Option<String>,
    /// The stream of which the loop has seen a part, and the last consumer that it saw there.
    within: Option<(String, String)>,
}

/// A part of the look at streams or consumers.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) found: Vec<Entry>,
    /// The place at which the loop continues; `None` if it has seen all.
    pub(crate) next: Option<After>,
}

/// Looks at a part of the streams or of the consumers, from the place `after` on.
pub(super) fn look(node: &Node, query: &Query, now: Time, after: &After) -> Looked {
    match query.list {
        List::Consumers => consumers(node, query, now, after),
        _ => streams(node, query, after),
    }
}

fn streams(node: &Node, query: &Query, after: &After) -> Looked {
    let mut looked = Looked::default();
    let mut all = ByName::new(node, after.stream.as_deref());
    let mut last = None;
    for (of, stream) in all.by_ref().take(LOOKED) {
        last = Some(stream.name());
        if is_kept(stream) && is_found(query, stream.name()) {
            looked.found.push(Entry {
                figure: figure_of_stream(of, stream, query.by()),
                stream: stream.name().into(),
                consumer: Box::default(),
            });
        }
    }
    let last = last.filter(|_| all.next().is_some());
    looked.next = last.map(|name| After {
        stream: Some(name.to_owned()),
        within: None,
    });
    looked
}

fn consumers(node: &Node, query: &Query, now: Time, after: &After) -> Looked {
    let mut looked = Looked::default();
    // A stream without consumers costs a look as well, so that a list of many such streams has parts, too.
    let mut room = match query.by() {
        By::Pending | By::AckPending | By::Redelivered => COUNTED,
        _ => LOOKED,
    };
    let mut seen = after.stream.clone();
    let within = after.within.as_ref();
    let first = within.and_then(|(name, _)| find(node, name));
    let rest = match &query.stream {
        Some(name) if seen.is_none() && within.is_none() => One(find(node, name)),
        Some(_) => One(None),
        None => All(ByName::new(
            node,
            within.map(|(name, _)| name).or(seen.as_ref()).map(|n| &**n),
        )),
    };
    for (of, stream) in first.into_iter().chain(rest) {
        let name = stream.name();
        if !is_kept(stream) {
            // The entry of a stream that another group keeps costs a look, too.
            room -= 1;
            if room == 0 {
                looked.next = Some(After {
                    stream: Some(name.to_owned()),
                    within: None,
                });
                return looked;
            }
            continue;
        }
        let begun = within.filter(|(stream, _)| stream == name);
        let mut names = of.served_after(stream, begun.map(|(_, consumer)| &**consumer));
        let is_stream_found = query.stream.is_some() || is_found(query, name);
        let mut last = None;
        for consumer in names.by_ref().take(room) {
            room -= 1;
            last = Some(consumer);
            if is_stream_found || is_found(query, consumer) {
                looked.found.push(Entry {
                    figure: figure_of_consumer(of, now, stream, consumer, query.by()),
                    stream: name.into(),
                    consumer: consumer.into(),
                });
            }
        }
        if names.next().is_some() {
            let last = last.or_else(|| begun.map(|(_, consumer)| &**consumer));
            let within = (name.to_owned(), last.unwrap_or_default().to_owned());
            looked.next = Some(After {
                stream: seen,
                within: Some(within),
            });
            return looked;
        }
        seen = Some(name.to_owned());
        room = room.saturating_sub(1);
        if room == 0 {
            // There may be no further stream, and the next part is then empty.
            looked.next = Some(After {
                stream: seen,
                within: None,
            });
            return looked;
        }
    }
    looked
}

/// The streams of which the loop looks at the consumers: one, or all.
enum Wanted<'a> {
    One(Option<(&'a JetStream, &'a Stream)>),
    All(ByName<'a>),
}
use Wanted::{All, One};

impl<'a> Iterator for Wanted<'a> {
    type Item = (&'a JetStream, &'a Stream);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            One(one) => one.take(),
            All(all) => all.next(),
        }
    }
}

/// Describes the streams or the consumers of a part of a page, in their order. A stream or a consumer that is
/// gone has no description.
pub(super) fn describe(node: &Node, now: Time, entries: &[Entry]) -> Vec<Described> {
    let described = entries.iter().take(DESCRIBED).filter_map(|entry| {
        let (of, stream) = find(node, &entry.stream)?;
        let info = match entry.consumer.is_empty() {
            true => of.describe(now, stream),
            false => of.describe_consumer(now, stream, &entry.consumer)?,
        };
        Some(Described {
            name: stream.name().to_owned(),
            info,
            consumers: Vec::new(),
        })
    });
    described.collect()
}

fn find<'a>(node: &'a Node, name: &str) -> Option<(&'a JetStream, &'a Stream)> {
    let mut all = node.all_streams();
    all.find_map(|of| Some((of, of.kept(name)?)))
}

fn is_found(query: &Query, name: &str) -> bool {
    query.search.as_ref().is_none_or(|text| name.contains(text))
}

fn figure_of_stream(of: &JetStream, stream: &Stream, by: By) -> u64 {
    let down = |n: u64| u64::MAX - n;
    match by {
        By::Messages => down(stream.state().messages),
        By::Bytes => down(stream.state().bytes),
        By::Last => down(stream.state().last_time_us),
        By::Consumers => down(of.consumers_of(stream.id()) as u64),
        By::Name | By::Pending | By::AckPending | By::Redelivered => 0,
    }
}

fn figure_of_consumer(of: &JetStream, now: Time, stream: &Stream, name: &str, by: By) -> u64 {
    let counts = || of.consumer_counts(now, stream, name);
    let figure = match by {
        By::Pending => counts().map(|c| c.pending),
        By::AckPending => counts().map(|c| c.ack_pending),
        By::Redelivered => counts().map(|c| c.redelivered),
        By::Name | By::Messages | By::Bytes | By::Consumers | By::Last => return 0,
    };
    u64::MAX - figure.unwrap_or(0)
}
