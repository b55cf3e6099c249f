//! Saves the work for consumers that are asleep: consumers that the log keeps and that have nothing to do on
//! the node that serves them until a client asks for messages.
//!
//! A durable pull consumer without filters, unacknowledged messages and timers is asleep from its creation,
//! or from the start of a leader, until a client pulls from it, acknowledges or resets. Until then the node
//! keeps no [`Live`] part, which would take memory and a place in the indexes. So a hundred thousand
//! consumers that no client uses cost only their state in the log, and a new leader takes them up without
//! work. A consumer does not fall asleep again.

use tidegate::Time;
use tidegate_stream::api::answer::{self, Page};
use tidegate_stream::api::view::{ConsumerCounts, ConsumerView};
use tidegate_stream::consumer::{Position, Source as _, State};
use tidegate_stream::schema::config::{ConsumerConfig, ReplayPolicy};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{SharedConfig, Stream, StreamConsumer, Transit, consumer_filter};

use super::Key;
use super::live::{Live, LiveAt, Seen, Unread};
use crate::streams::JetStream;
use crate::streams::reads::Held;

/// Returns whether a consumer that the log keeps has nothing to do before a client uses it, so that the node
/// need not keep a live part. A consumer with filters stays awake and counts its messages as they come: while
/// it slept, each answer that shows the count would search the stream, and a list of consumers holds 256
/// counts.
pub(super) fn may_sleep(config: &SharedConfig, state: &State) -> bool {
    let config = config.nameless();
    let filtered = !config.filter_subject.is_empty() || !config.filter_subjects.is_empty();
    !filtered
        && config.deliver_subject.is_empty()
        && config.inactive_threshold == 0
        && config.pause_until.is_none()
        && config.replay_policy == ReplayPolicy::AtOnce
        && state.is_at_rest()
}

/// The view of a consumer of a stream that this node serves, awake or asleep, for answers to clients.
pub(crate) enum Served<'a> {
    /// The consumer is awake: the node has its live part, from which it answers.
    Live(LiveAt<'a>),
    Asleep(Asleep<'a>),
}

/// A consumer that is asleep, with its stream, from which the node answers requests without waking the
/// consumer.
pub(crate) struct Asleep<'a> {
    stream: &'a Stream,
    name: &'a str,
    known: &'a StreamConsumer,
}

impl<'a> Served<'a> {
    /// Returns the consumer's live part, which counts its deliveries; `None` if the consumer is asleep.
    pub(crate) const fn live(&self) -> Option<&'a Live> {
        match self {
            Self::Live(LiveAt(live, _)) => Some(live),
            Self::Asleep(_) => None,
        }
    }

    /// Returns whether every change of the consumer must go through the log, because the log keeps the
    /// consumer or will keep it.
    pub(crate) fn is_told(&self) -> bool {
        self.live().is_none_or(Live::is_told)
    }
}

impl ConsumerView for Served<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Live(live) => live.name(),
            Self::Asleep(asleep) => asleep.name,
        }
    }

    fn config(&self) -> ConsumerConfig {
        match self {
            Self::Live(live) => live.config(),
            Self::Asleep(asleep) => asleep.known.config().full(asleep.name),
        }
    }

    fn created_us(&self) -> u64 {
        match self {
            Self::Live(live) => live.created_us(),
            Self::Asleep(asleep) => asleep.known.created_us(),
        }
    }

    fn counts(&self) -> ConsumerCounts {
        let asleep = match self {
            Self::Live(live) => return live.counts(),
            Self::Asleep(asleep) => asleep,
        };
        let mut filter = consumer_filter(asleep.known.config().nameless());
        let mut source = Seen {
            stream: asleep.stream,
            filter: &mut filter,
            messages: &Unread,
            held: Held::default(),
            wanted: Vec::new(),
        };
        let at = |p: Position| answer::Sequences {
            consumer_seq: p.consumer_seq,
            stream_seq: p.stream_seq,
            last_active: None,
        };
        let state = asleep.known.state();
        ConsumerCounts {
            delivered: at(state.delivered()),
            ack_floor: at(state.ack_floor()),
            pending: source.count_from(state.delivered().stream_seq.saturating_next()),
            ..ConsumerCounts::default()
        }
    }
}

impl JetStream {
    /// Returns the number of consumers of a stream that this node serves, asleep or awake, for API answers.
    pub(crate) fn consumers_of(&self, stream: StreamNumber) -> usize {
        let of = self
            .streams
            .get(stream)
            .filter(|s| self.serves_consumers_of(s));
        of.map_or(0, Stream::consumers_len) + self.consumers.unlogged_of(stream)
    }

    /// Returns the number of consumers of the group's streams that this node serves, asleep or awake, for API
    /// answers.
    #[must_use]
    pub(crate) fn consumers_len(&self) -> usize {
        let logged = match self.role.serves {
            true => self.streams.consumers_len(),
            false => 0,
        };
        logged + self.consumers.unlogged()
    }

    /// Returns whether this node serves the consumers of a stream: the node leads the group, and the stream
    /// is not moving to another group, so that clients may use them here.
    fn serves_consumers_of(&self, stream: &Stream) -> bool {
        self.role.serves && stream.transit() == Transit::None
    }

    /// Finds a consumer of a stream by name, asleep or awake, for an answer to a client; `None` if this node
    /// serves no consumer of this name.
    pub(crate) fn served<'a>(
        &'a self,
        wall_us: u64,
        stream: &'a Stream,
        name: &str,
    ) -> Option<Served<'a>> {
        if let Some(key) = self.consumers.find(stream.id(), name) {
            let live = self.consumers.get(key)?;
            return Some(Served::Live(LiveAt(live, wall_us)));
        }
        let (name, known) = stream.consumer_entry(name)?;
        self.serves_consumers_of(stream)
            .then_some(Served::Asleep(Asleep {
                stream,
                name,
                known,
            }))
    }

    /// Returns, for an API answer, the names of the consumers of a stream that this node serves, in order: at
    /// most `limit` of them, without the first `offset` ones. Also returns the place of this page in the
    /// whole list.
    pub(crate) fn served_page<'a>(
        &'a self,
        stream: &'a Stream,
        offset: usize,
        limit: usize,
    ) -> (Page, Vec<&'a str>) {
        let page = Page::new(self.consumers_of(stream.id()), offset, limit);
        let names = self.served_after(stream, None).skip(page.offset);
        (page, names.take(limit).collect())
    }

    /// Iterates over the names of the consumers of a stream that this node serves, in order, for lists of
    /// consumers: the names after `name`, or all.
    pub(crate) fn served_after<'a>(
        &'a self,
        stream: &'a Stream,
        name: Option<&str>,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        // If the log has all consumers of the stream, the node saves the look at the other list.
        let has_unlogged = self.consumers.unlogged_of(stream.id()) > 0;
        let unlogged = has_unlogged.then(|| self.consumers.unlogged_after(stream.id(), name));
        let mut unlogged = unlogged.into_iter().flatten().peekable();
        let serves = self.serves_consumers_of(stream);
        let logged = serves.then(|| stream.consumers_after(name));
        let mut logged = logged.into_iter().flatten().peekable();
        std::iter::from_fn(move || match (logged.peek(), unlogged.peek()) {
            (Some(one), Some(other)) if other < one => unlogged.next(),
            (None, _) => unlogged.next(),
            _ => logged.next(),
        })
    }

    /// Returns the key of a consumer of a stream, and makes the consumer's live part if the consumer was
    /// asleep, so that the node can serve it.
    pub(crate) fn awaken(&mut self, now: Time, stream: StreamNumber, name: &str) -> Option<Key> {
        if let Some(key) = self.consumers.find(stream, name) {
            return Some(key);
        }
        let of = self.streams.get(stream)?;
        if !self.serves_consumers_of(of) {
            return None;
        }
        self.take_up_logged(now, stream, name)
    }
}
