//! Reads the figures of single streams and consumers for `/metrics`, a slice at a time, so that 100,000 of
//! them do not keep the loop from its clients. The monitor asks for the next slice in another report, and
//! puts the slices together.
//!
//! The operator bounds the streams and the consumers. The first streams by name are shown, with the first of
//! their consumers by name: the rule needs no look at the others, and the shown ones stay the same.

use super::details::ByName;
use crate::sessions::Node;
use crate::streams::figures::{ConsumerFigures, StreamFigures};
use crate::streams::views::is_kept;

/// The most streams and consumers that the loop reads in one slice, so that no turn takes long.
const READ: usize = if cfg!(test) { 16 } else { 256 };
/// The most names that the loop looks at in one slice: it passes over streams that other nodes keep.
const LOOKED_AT: usize = 4096;

/// A slice of the streams, as the monitor asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The most streams, and (`consumers`) the most consumers of these streams, that are still wanted.
    streams: usize,
    consumers: usize,
    /// The name of the last stream of the slices before; `None` at the beginning.
    stream: Option<String>,
    /// The name of the last consumer of that stream that the slices before have; `None` if they have all that
    /// is wanted of it.
    consumer: Option<String>,
}

impl Slice {
    /// Creates the first slice, for at most this many streams and this many of their consumers in all slices
    /// together.
    pub(crate) fn first(streams: usize, consumers: usize) -> Self {
        Self {
            streams,
            consumers,
            ..Self::default()
        }
    }
}

/// The figures of one slice; the monitor joins the slices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) streams: Vec<StreamFigures>,
    pub(crate) consumers: Vec<ConsumerFigures>,
    /// The next slice; `None` if this one is the last.
    pub(super) next: Option<Slice>,
}

impl Series {
    /// Adds the figures of the next slice.
    pub(crate) fn append(&mut self, more: Self) {
        self.streams.extend(more.streams);
        self.consumers.extend(more.consumers);
        self.next = more.next;
    }
}

/// Reads the figures of one slice.
pub(super) fn read(node: &Node, slice: &Slice) -> Series {
    let mut series = Series::default();
    let mut left = slice.clone();
    let mut room = READ;
    if let (Some(name), Some(consumer)) = (&slice.stream, left.consumer.take()) {
        // A stream that was deleted since has no further consumers.
        let kept = node.all_streams().find_map(|of| Some((of, of.kept(name)?)));
        let rest = kept.and_then(|(of, stream)| {
            let (after, all) = (Some(&*consumer), &mut series.consumers);
            of.consumer_figures(stream, after, left.consumers, &mut room, all)
        });
        left.consumers -= series.consumers.len();
        if rest.is_some() && left.consumers > 0 {
            left.consumer = rest;
            series.next = Some(left);
            return series;
        }
    }
    let mut all = ByName::new(node, slice.stream.as_deref());
    let mut last = slice.stream.as_deref();
    let mut looked_at = 0;
    while left.streams > 0 {
        if room == 0 || looked_at == LOOKED_AT {
            left.stream = last.map(str::to_owned);
            series.next = Some(left);
            return series;
        }
        let Some((of, stream)) = all.next() else {
            return series;
        };
        let name = stream.name();
        looked_at += 1;
        last = Some(name);
        if !is_kept(stream) {
            continue;
        }
        left.streams -= 1;
        room -= 1;
        series.streams.push(of.stream_figures(stream));
        if left.consumers == 0 {
            continue;
        }
        let before = series.consumers.len();
        let all = &mut series.consumers;
        let rest = of.consumer_figures(stream, None, left.consumers, &mut room, all);
        left.consumers -= series.consumers.len() - before;
        if rest.is_some() && left.consumers > 0 {
            left.stream = Some(name.to_owned());
            left.consumer = rest;
            series.next = Some(left);
            return series;
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate::Time;
    use tidegate_cluster::slots::GroupSlot;
    use tidegate_log::Lsn;
    use tidegate_nats::connect::Info;
    use tidegate_raft::replica::{Committed, EntryId};
    use tidegate_stream::stream::{AccountLimits, Streams};

    use crate::config::{Settings, StreamSettings};
    use crate::sessions::joined;
    use crate::streams::JetStream;
    use crate::streams::serving::live::Unread;

    const AT: GroupSlot = GroupSlot::DIRECTORY;
    const NOW: Time = Time::from_nanos(1_000_000);

    /// Makes a node that leads this many streams; the first one has this many consumers.
    fn node(streams: usize, consumers: usize) -> Node {
        let mut node = Node::new(Settings::default(), Info::default(), 1);
        let kept = StreamSettings::new("not used".into());
        let none = Streams::new(AccountLimits::NONE);
        node.attach_streams(JetStream::new(NOW, kept, none, 1));
        node.handle_leading(AT, NOW);
        let client = joined::client(&mut node, NOW);
        let made = (0..streams).map(|n| {
            let name = format!("S{n:06}");
            let config = json!({"name": name, "subjects": [name]});
            (format!("STREAM.CREATE.{name}"), config)
        });
        let followed = (0..consumers).map(|n| {
            let config = json!({"durable_name": format!("c{n:06}"), "ack_policy": "explicit"});
            let body = json!({"stream_name": "S000000", "config": config});
            (format!("CONSUMER.CREATE.S000000.c{n:06}"), body)
        });
        let mut index = 0;
        for (what, body) in made.chain(followed) {
            let body = body.to_string();
            let text = format!("PUB $JS.API.{what} r {}\r\n{body}\r\n", body.len());
            joined::say(&mut node, NOW, client, &text);
            while let Some((data, _)) = node.poll_proposal(AT, NOW) {
                index += 1;
                let there = EntryId::new(index, 1);
                node.handle_proposed(AT, NOW, there, 1);
                let committed = Committed {
                    index: there.index,
                    term: there.term,
                    lsn: Lsn::new(index * 4096),
                    data,
                };
                node.handle_committed(AT, NOW, &committed).unwrap();
                node.serve_streams(AT, NOW, &Unread).unwrap();
            }
        }
        node
    }

    /// Reads all slices, and returns the joined figures with the number of slices.
    fn all(node: &Node, streams: usize, consumers: usize) -> (Series, usize) {
        let mut series = read(node, &Slice::first(streams, consumers));
        let mut slices = 1;
        while let Some(slice) = series.next.take() {
            let more = read(node, &slice);
            assert!(
                more.streams.len() + more.consumers.len() <= READ,
                "a long turn"
            );
            series.append(more);
            slices += 1;
        }
        (series, slices)
    }

    #[test]
    fn a_slice_is_short_however_many_streams_there_are() {
        let node = node(3 * READ, 2 * READ);
        let (series, slices) = all(&node, usize::MAX, usize::MAX);
        let names = (0..3 * READ).map(|n| format!("S{n:06}"));
        let read = series.streams.iter().map(|s| s.name.clone());
        assert!(read.eq(names));
        let names = (0..2 * READ).map(|n| format!("c{n:06}"));
        let read = series.consumers.iter().map(|c| c.name.clone());
        assert!(read.eq(names));
        assert_eq!((series.streams[0].consumers, slices), (2 * READ, 6));
        // The bounds end the reading early.
        let (series, slices) = all(&node, 10, 0);
        assert_eq!(
            (series.streams.len(), series.consumers.len(), slices),
            (10, 0, 1)
        );
        let (series, _) = all(&node, 3, READ);
        assert_eq!((series.streams.len(), series.consumers.len()), (3, READ));
    }
}
