//! Makes the views of streams and consumers from which the server writes the answers of the API and the pages
//! of the monitor.

use tidegate::Time;
use tidegate_stream::api::answer::Kind;
use tidegate_stream::api::body::InfoDetails;
use tidegate_stream::api::view;
use tidegate_stream::api::view::{
    ConsumerCounts, ConsumerView, OriginState, StreamCounts, StreamView,
};
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::Stream;

use super::JetStream;
use crate::config::StreamSettings;

/// The view of a stream for an API answer, with the number of its consumers on this node. This number differs
/// from the number in the log, because the log does not keep all consumers.
pub(super) struct Shown<'a> {
    pub(super) stream: &'a Stream,
    pub(super) consumers: usize,
    /// The states of the stream's origins, which the answer shows.
    pub(super) origins: Vec<OriginState>,
    /// The names of the stream's mirrors, in a cluster.
    pub(super) mirrors: Vec<&'a str>,
}

impl StreamView for Shown<'_> {
    fn config(&self) -> &StreamConfig {
        self.stream.config()
    }

    fn created_us(&self) -> u64 {
        self.stream.created_us()
    }

    fn counts(&self) -> StreamCounts {
        StreamCounts {
            consumers: self.consumers,
            ..StreamView::counts(self.stream)
        }
    }

    fn deleted(&self, limit: usize) -> Vec<StreamSeq> {
        self.stream.deleted(limit)
    }

    fn subjects(&self, pattern: &[u8], each: &mut dyn FnMut(&[u8], u64)) {
        StreamView::subjects(self.stream, pattern, each);
    }

    fn origins(&self) -> Vec<OriginState> {
        self.origins.clone()
    }

    fn mirrors(&self) -> Vec<&str> {
        self.mirrors.clone()
    }
}

impl JetStream {
    /// Returns the operator's settings for streams, such as limits and the domain, which the monitor shows.
    #[must_use]
    pub(crate) const fn settings(&self) -> &StreamSettings {
        &self.settings
    }

    /// Finds the stream of this name for the monitor, if this group keeps the stream and has all of it.
    pub(crate) fn kept(&self, name: &str) -> Option<&Stream> {
        let id = self.streams.by_name(name)?;
        self.streams.get(id).filter(|s| is_kept(s))
    }

    /// Iterates, for the monitor's pages, over the streams that this group knows in the order of their names:
    /// the streams after the name `after`, or all. The group keeps those for which [`is_kept`] is true.
    pub(crate) fn known_after<'a>(
        &'a self,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Stream> + use<'a> {
        self.streams.iter_after(after)
    }

    /// Describes a stream as JSON for the monitor, in the form of an API answer.
    pub(crate) fn describe(&self, now: Time, stream: &Stream) -> Vec<u8> {
        let (server, shown) = (self.server(now), self.shown(now, stream));
        let info = view::stream_info(&server, &shown, &InfoDetails::default());
        info.expect("only requests for removed messages are refused")
    }

    /// Returns whether the stream has a consumer of this name, as far as this node knows: consumers that the
    /// log does not keep are known to the leader alone.
    pub(crate) fn has_consumer(&self, stream: &Stream, name: &str) -> bool {
        stream.consumer(name).is_some() || self.consumers.find(stream.id(), name).is_some()
    }

    /// Returns the counts of a consumer for the monitor; `None` if this node serves no consumer of this name.
    pub(crate) fn consumer_counts(
        &self,
        now: Time,
        stream: &Stream,
        name: &str,
    ) -> Option<ConsumerCounts> {
        let served = self.served(self.wall.peek(now), stream, name)?;
        Some(ConsumerView::counts(&served))
    }

    /// Describes one consumer of a stream as JSON for the monitor, in the form of an API answer; `None` if
    /// this node serves no consumer of this name.
    pub(crate) fn describe_consumer(
        &self,
        now: Time,
        stream: &Stream,
        name: &str,
    ) -> Option<Vec<u8>> {
        let served = self.served(self.wall.peek(now), stream, name)?;
        let server = self.server(now);
        Some(view::consumer_info(
            Kind::ConsumerInfo,
            &server,
            stream.name(),
            &served,
        ))
    }

    /// Describes at most `limit` consumers of a stream as JSON for the monitor, in the form of API answers
    /// and in the order of the consumers' names: the consumers after the name `after`, or all. Also returns
    /// the name of the last one, if the stream has further consumers, so that the monitor can ask for the
    /// next page.
    pub(crate) fn describe_consumers(
        &self,
        now: Time,
        stream: &Stream,
        after: Option<&str>,
        limit: usize,
    ) -> (Vec<Vec<u8>>, Option<String>) {
        let (server, wall_us) = (self.server(now), self.wall.peek(now));
        let mut names = self.served_after(stream, after);
        let (mut described, mut last) = (Vec::new(), after);
        for name in names.by_ref().take(limit) {
            last = Some(name);
            let served = self.served(wall_us, stream, name);
            described.extend(served.map(|served| {
                view::consumer_info(Kind::ConsumerInfo, &server, stream.name(), &served)
            }));
        }
        let has_more = names.next().is_some();
        // Without room for one consumer, the next page must begin before the first consumer, so the page ends
        // at the empty name.
        let last = has_more.then(|| last.unwrap_or_default().to_owned());
        (described, last)
    }
}

/// Returns whether a group keeps the stream, and has all of it. The group does not show other streams,
/// because for these it has only an entry of the directory, or a part of their messages.
pub(crate) fn is_kept(stream: &Stream) -> bool {
    stream.home().is_here() && !stream.is_filling() && !stream.is_restoring()
}
