//! Keeps the live part of a consumer on the node that serves it: the consumer's deliveries and configuration,
//! and the view that the consumer has of its stream.

use tidegate::Time;
use tidegate_raft::store::{self, Peeked};
use tidegate_stream::api::answer;
use tidegate_stream::api::view::{ConsumerCounts, ConsumerView};
use tidegate_stream::consumer::{Consumer, Fetch, Lasts, Position, Source, Start};
use tidegate_stream::schema::config::ConsumerConfig;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::{Filter, Place, SharedConfig, Stream};

use super::resets::Resets;
use crate::streams::Messages;
use crate::streams::context::Context;
use crate::streams::reads::{Fetched, Held, fetch};

/// A consumer counts the messages that it has to deliver at once if the stream has at most this number of
/// subjects. For more, one turn would take too long.
const COUNTED_AT_ONCE: u64 = if cfg!(test) { 6 } else { 4096 };

/// A consumer that this node serves, with the state that only the serving node has and that a new leader
/// builds again.
pub(crate) struct Live {
    pub(crate) consumer: Consumer,
    pub(super) stream: StreamNumber,
    pub(super) name: Box<str>,
    /// The consumer's configuration. If the log keeps the consumer, the group's state shares the
    /// configuration's memory, to save space.
    pub(crate) config: SharedConfig,
    pub(super) created_us: u64,
    pub(crate) filter: Filter,
    /// The message with which the consumer started. If the leader adds the consumer to the log, it writes
    /// this start there, so that the next leader starts the consumer at the same message.
    pub(crate) start: Start,
    /// True if the log keeps the consumer, so that it survives a change of leaders.
    pub(crate) logged: bool,
    /// True while the leader has proposed to add the consumer to the log and the group has not applied that
    /// yet. The leader does not propose it twice.
    pub(crate) told: bool,
    /// The time at which the leader proposes to add the consumer to the log, in microseconds since the Unix
    /// epoch; `None` if the log keeps the consumer, if the leader never proposes that, or once it has
    /// proposed it.
    pub(crate) lasts_us: Option<u64>,
    /// The clients' requests to reset the consumer that wait until the node carries them out.
    pub(crate) resets: Resets,
    /// The requests for the consumer's state that wait until the consumer is prepared, because the answer
    /// needs the number of pending messages.
    pub(crate) questions: Vec<Question>,
    /// The reply subjects of this consumer's pulls to which no client listens at present. The node removes
    /// them from its index with the consumer.
    pub(super) away: Vec<Box<[u8]>>,
    /// True if the consumer is on the list of consumers that have work, so that the node does not add it
    /// twice.
    pub(super) listed: bool,
    /// The time at which a timer makes the node serve the consumer again; [`Time::NEVER`] if no time is set.
    pub(super) armed: Time,
    /// True once the node has found that no client uses the consumer and has begun to end the consumer, so
    /// that it waits only for the last delta.
    pub(crate) ending: bool,
    /// True once the leader has proposed to delete the consumer because no client used it. The consumer then
    /// ends even if a client uses it meanwhile.
    pub(crate) deleted: bool,
}

/// A client's request for a consumer's state. The node answers it once the consumer is prepared, because the
/// consumer then knows how many messages are pending.
#[derive(Debug)]
pub(crate) struct Question {
    /// The reply subject of the client that gets the answer, once the consumer is prepared.
    pub(crate) reply: Box<[u8]>,
    /// The kind of the answer for which the client waits: the answer to an info request, or to the creation
    /// of a consumer.
    pub(crate) kind: answer::Kind,
}

impl Live {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn stream(&self) -> StreamNumber {
        self.stream
    }

    /// Returns whether a change to this configuration would take the messages away from a client that listens
    /// to the consumer's present deliver subject. The leader refuses such a change.
    pub(crate) fn is_taken_from(&self, cx: &mut Context<'_>, config: &ConsumerConfig) -> bool {
        let own = self.config.nameless();
        let (to, group) = (&own.deliver_subject, &own.deliver_group);
        let group = Some(group.as_bytes()).filter(|g| !g.is_empty());
        !to.is_empty()
            && *to != config.deliver_subject
            && cx.pending_at(to.as_bytes(), group).is_some()
    }
}

/// A consumer and the time of an answer, in microseconds since the Unix epoch. The node shows the consumer's
/// counts as of that time.
pub(crate) struct LiveAt<'a>(pub(crate) &'a Live, pub(crate) u64);

impl ConsumerView for LiveAt<'_> {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn config(&self) -> ConsumerConfig {
        self.0.config.full(&self.0.name)
    }

    fn created_us(&self) -> u64 {
        self.0.created_us
    }

    fn counts(&self) -> ConsumerCounts {
        let info = self.0.consumer.info(self.1);
        let at = |p: Position, us: Option<u64>| answer::Sequences {
            consumer_seq: p.consumer_seq,
            stream_seq: p.stream_seq,
            last_active: us.map(Timestamp::from_micros),
        };
        ConsumerCounts {
            delivered: at(info.delivered, info.last_delivery_us),
            ack_floor: at(info.ack_floor, info.last_ack_us),
            ack_pending: info.num_ack_pending,
            redelivered: info.num_redelivered,
            waiting: info.num_waiting,
            pending: info.num_pending,
            push_bound: info.push_bound,
        }
    }
}

/// The part of a stream from which one consumer takes its deliveries: the messages that pass its filter, as
/// far as they are in memory.
pub(crate) struct Seen<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) filter: &'a mut Filter,
    pub(crate) messages: &'a dyn Messages,
    pub(crate) held: Held,
    /// The places in the log of messages that the consumer needs and that are not in memory, so that the
    /// store must read them.
    pub(crate) wanted: Vec<Place>,
}

impl Source for Seen<'_> {
    fn first_seq(&self) -> StreamSeq {
        self.stream.first_seq()
    }

    fn last_seq(&self) -> StreamSeq {
        self.stream.last_seq()
    }

    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq> {
        self.stream.next_at(seq, self.filter)
    }

    fn count_from(&mut self, seq: StreamSeq) -> u64 {
        self.stream.count_from(seq, self.filter)
    }

    fn counts_in_parts(&self) -> bool {
        self.filter.is_pattern() && self.stream.subjects_len() > COUNTED_AT_ONCE
    }

    fn count_part(&mut self, from: StreamSeq, len: u64) -> (u64, Option<StreamSeq>) {
        self.stream.count_part(from, len, self.filter)
    }

    fn lasts(&mut self, from: usize, len: usize, up_to: Option<StreamSeq>) -> Option<Lasts> {
        // If the stream keeps one message for each subject, each message is the last of its subject, so the
        // consumer needs no search.
        (self.stream.config().max_msgs_per_subject != 1)
            .then(|| self.stream.lasts_part(self.filter, from, len, up_to))
    }

    fn is_last(&mut self, seq: StreamSeq) -> bool {
        self.stream.is_last(seq, self.filter)
    }

    fn contains(&self, seq: StreamSeq) -> bool {
        self.stream.contains(seq)
    }

    fn message(&mut self, seq: StreamSeq) -> Fetch<'_> {
        match fetch(
            self.stream,
            seq,
            self.messages,
            &mut self.wanted,
            &mut self.held,
        ) {
            Fetched::Ready(message) => Fetch::Ready(message),
            Fetched::Pending => Fetch::Pending,
            Fetched::Gone => Fetch::Gone,
        }
    }
}

/// Stands in for the stored messages where the caller needs only their sequences: every message counts as not
/// yet read.
pub(crate) struct Unread;

impl Messages for Unread {
    fn peek(&self, _: Place) -> Peeked {
        Peeked {
            fetch: store::Fetch::Pending,
            ask: false,
        }
    }
}
