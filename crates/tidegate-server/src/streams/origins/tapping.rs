//! Lets another stream take in messages by a consumer of the origin. A client has created the consumer, with
//! the ack policy `flow_control`, and the stream's source or mirror names it.
//!
//! nats-server subscribes to the consumer's deliver subject. The leader of this server reads the messages of
//! the origin, as it does without a consumer: the consumer's configuration chooses the messages, and its
//! position in the log says where they begin. A request states the progress in the log of the asking group,
//! so a quorum of that group has the messages up to there. The consumer counts them as delivered and
//! acknowledged, and its next delta says so in the log. So an origin that keeps messages for its consumers
//! never removes a message that the other stream lacks, and a crash or a change of leaders repeats none.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::Time;
use tidegate_stream::consumer::Start;
use tidegate_stream::schema::config::{AckPolicy, ConsumerConfig, OriginConsumer};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Filter, Stream, consumer_filter};

use super::giving::{ANSWER_MESSAGES, FORGOTTEN, REQUESTS_MAX};
use crate::streams::JetStream;
use crate::streams::directory::leader_message::taking::Request;
use crate::streams::reads::Held;
use crate::streams::serving::live::{Seen, Unread};

/// The streams that take in messages by consumers of this group's streams. Two streams cannot share a
/// consumer: the faster one would let the origin remove messages that the slower one lacks.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// For each consumer, the stream that last asked for its messages, and the time at which the leader
    /// forgets that stream.
    all: BTreeMap<(StreamNumber, String), (DirectoryNumber, Time)>,
}

impl Taps {
    /// Returns whether the stream `target` may take in messages by this consumer, and if so remembers that it
    /// does.
    fn claim(
        &mut self,
        now: Time,
        origin: StreamNumber,
        name: &str,
        target: DirectoryNumber,
    ) -> bool {
        if self.all.len() >= REQUESTS_MAX {
            self.all.retain(|_, (_, until)| *until > now);
        }
        let key = (origin, name.to_owned());
        let other = self.all.get(&key);
        let free = other.is_none_or(|(holder, until)| *holder == target || *until <= now);
        if free {
            self.all.insert(key, (target, now + FORGOTTEN));
        }
        free
    }
}

/// The messages of a consumer that another stream takes in.
#[derive(Debug)]
pub(super) struct Tap {
    config: Arc<ConsumerConfig>,
    /// The number up to which the log has every message of the consumer as acknowledged.
    floor: StreamSeq,
    start: Start,
    is_paused: bool,
}

impl Tap {
    /// Returns the filter of the messages that the consumer delivers.
    pub(super) fn filter(&self) -> Filter {
        consumer_filter(&self.config)
    }

    /// Returns the number from which the stream takes in messages, if its own progress lets it begin at
    /// `next`. A client may have reset the consumer to a later message.
    pub(super) fn first(&self, next: StreamSeq) -> StreamSeq {
        next.max(self.floor.next())
    }

    /// Returns the most messages that one answer may have: none while the consumer is paused.
    pub(super) fn answer_max(&self) -> usize {
        let pending = usize::try_from(self.config.max_ack_pending);
        match self.is_paused {
            true => 0,
            false => pending.unwrap_or(ANSWER_MESSAGES).clamp(1, ANSWER_MESSAGES),
        }
    }

    /// Returns whether the consumer leaves out this message, because it begins with the last message of each
    /// subject.
    pub(super) fn passes_over(&self, seq: StreamSeq, origin: &Stream, filter: &Filter) -> bool {
        match self.start {
            Start::LastPerSubject(resume) => seq <= resume && !origin.is_last(seq, filter),
            Start::At(_) => false,
        }
    }

    /// Returns whether the consumer delivers messages without their payloads.
    pub(super) fn is_headers_only(&self) -> bool {
        self.config.headers_only
    }
}

impl JetStream {
    /// Returns the messages that the stream which asks may take in by the consumer that its source names,
    /// after it has let the consumer count the messages which that stream has for good.
    ///
    /// # Errors
    ///
    /// Returns an error if the origin has no such consumer, if the consumer has another ack policy or deliver
    /// subject, or if another stream takes in messages by it. The stream that asks shows the error.
    pub(super) fn tap(
        &mut self,
        now: Time,
        own: StreamNumber,
        request: &Request,
        consumer: &OriginConsumer,
    ) -> Result<Tap, ApiError> {
        let name = &consumer.name;
        let failed = |why: String| match request.is_mirror {
            true => ApiError::mirror_failed(why),
            false => ApiError::source_failed(why),
        };
        let wall_us = self.wall.tell(now);
        let origin = self.streams.get(own).ok_or(ApiError::STREAM_NOT_FOUND)?;
        let known = origin.consumer(name);
        let known = known.ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        let config = known.shared_config();
        if config.ack_policy != AckPolicy::FlowControl {
            return Err(match request.is_mirror {
                true => ApiError::MIRROR_CONSUMER_NEEDS_FLOW_ACKS,
                false => ApiError::SOURCE_CONSUMER_NEEDS_FLOW_ACKS,
            });
        }
        if config.deliver_subject != consumer.deliver_subject {
            return Err(failed(format!(
                "consumer {name} delivers to '{}', and the configuration of this stream names '{}'",
                config.deliver_subject, consumer.deliver_subject
            )));
        }
        let tap = Tap {
            floor: known.state().ack_floor().stream_seq,
            start: known.state().start(),
            is_paused: config
                .pause_until
                .is_some_and(|at| at.as_micros_up() > wall_us),
            config,
        };
        let created_us = origin.created_us();
        if !self.giving.taps.claim(now, own, name, request.target) {
            return Err(failed(format!(
                "another stream takes in messages by consumer {name}: create a consumer for each of them"
            )));
        }
        let logged = request.logged.filter(|logged| {
            logged.origin.number == request.origin && logged.origin.created_us == created_us
        });
        let has = logged.map_or(StreamSeq::ZERO, |logged| logged.seq);
        if let Some(key) = self.consumers.find(own, name)
            && let Some(live) = self.consumers.get_mut(key)
            && live.resets.is_empty()
            && let Some(stream) = self.streams.get(own)
        {
            let mut source = Seen {
                stream,
                filter: &mut live.filter,
                messages: &Unread,
                held: Held::default(),
                wanted: Vec::new(),
            };
            if live.consumer.handle_tapped(wall_us, has, &mut source) {
                self.consumers.wake(key);
            }
        }
        Ok(tap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_serves_one_stream() {
        let mut taps = Taps::default();
        let (origin, at) = (StreamNumber::FIRST, Time::from_nanos);
        let [one, other] = [1, 2].map(DirectoryNumber::new);
        assert!(taps.claim(at(0), origin, "C", one));
        assert!(!taps.claim(at(1), origin, "C", other));
        assert!(taps.claim(at(1), origin, "D", other));
        assert!(taps.claim(at(2), origin, "C", one));
        let later = at(2) + FORGOTTEN;
        assert!(taps.claim(later, origin, "C", other));
        assert!(!taps.claim(later, origin, "C", one));
    }

    #[test]
    fn the_consumer_chooses_the_messages() {
        let tap = |max_ack_pending, is_paused| Tap {
            config: Arc::new(ConsumerConfig {
                max_ack_pending,
                ..ConsumerConfig::default()
            }),
            floor: StreamSeq::new(7),
            start: Start::At(StreamSeq::new(3)),
            is_paused,
        };
        assert_eq!(tap(5, false).answer_max(), 5);
        assert_eq!(tap(1 << 40, false).answer_max(), ANSWER_MESSAGES);
        assert_eq!(tap(5, true).answer_max(), 0);
        assert_eq!(tap(5, false).first(StreamSeq::new(3)), StreamSeq::new(8));
        assert_eq!(tap(5, false).first(StreamSeq::new(9)), StreamSeq::new(9));
    }
}
