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

use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::consumer::Start;
use tidegate_stream::schema::config::{AckPolicy, OriginConsumer};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Filter, SharedConfig, Stream, Streams, consumer_filter};

use super::giving::{ANSWER_MESSAGES, REQUESTS_MAX};
use crate::streams::JetStream;
use crate::streams::context::Context;
use crate::streams::directory::leader_message::taking::Request;
use crate::streams::reads::Held;
use crate::streams::serving::live::{Seen, Unread};

/// The streams that take in messages by consumers of this group's streams. Two streams cannot share a
/// consumer: the faster one would let the origin remove messages that the slower one lacks.
///
/// The directory decides which stream a consumer serves, and no time limit does. So a stream keeps its
/// consumer while its own nodes are away, and after a change of the origin's leader.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// For each consumer, the stream that it serves.
    all: BTreeMap<(StreamNumber, String), DirectoryNumber>,
    /// The change counter of the directory when the leader last looked for streams that name consumers, and
    /// (`named`) these streams in the order of their numbers, by the names of the origin and the consumer.
    looked: Option<u64>,
    named: BTreeMap<(String, String), Vec<DirectoryNumber>>,
}

impl Taps {
    /// Finds the streams that name consumers, if the directory has changed.
    fn look(&mut self, directory: &Streams) {
        if self.looked == Some(directory.changes()) {
            return;
        }
        self.looked = Some(directory.changes());
        self.named.clear();
        for stream in directory.with_origins() {
            for origin in stream.config().local_origins() {
                if let Some(consumer) = &origin.consumer {
                    let key = (origin.name.clone(), consumer.name.clone());
                    let named = self.named.entry(key).or_default();
                    named.push(stream.entry_number());
                    named.sort_unstable();
                }
            }
        }
    }

    /// Returns whether the stream `target` may take in messages by this consumer; `None` if the directory
    /// knows no stream that names the consumer, because this node is behind. The consumer serves the stream
    /// that was first, as long as the stream names it. A new leader does not know that stream, and takes the
    /// one with the lowest number.
    fn claim(
        &mut self,
        (origin, name): (StreamNumber, &str),
        consumer: &str,
        target: DirectoryNumber,
    ) -> Option<bool> {
        let named = self.named.get(&(name.to_owned(), consumer.to_owned()))?;
        if self.all.len() >= REQUESTS_MAX {
            self.all.clear();
        }
        let key = (origin, consumer.to_owned());
        let before = self.all.get(&key).filter(|holder| named.contains(holder));
        let holder = *before.or_else(|| named.first())?;
        self.all.insert(key, holder);
        Some(holder == target)
    }
}

/// The messages of a consumer that another stream takes in.
#[derive(Debug)]
pub(super) struct Tap {
    config: SharedConfig,
    /// The number up to which the log has every message of the consumer as acknowledged.
    floor: StreamSeq,
    start: Start,
    is_paused: bool,
}

impl Tap {
    /// Returns the consumer's configuration, by which a later look notices a change.
    pub(super) const fn config(&self) -> &SharedConfig {
        &self.config
    }

    /// Returns the filter of the messages that the consumer delivers.
    pub(super) fn filter(&self) -> Filter {
        consumer_filter(self.config.nameless())
    }

    /// Returns the number from which the stream takes in messages, if its own progress lets it begin at
    /// `next`. A client may have reset the consumer to a later message.
    pub(super) fn first(&self, next: StreamSeq) -> StreamSeq {
        next.max(self.floor.next())
    }

    /// Returns the most messages that one answer may have: none while the consumer is paused.
    pub(super) fn answer_max(&self) -> usize {
        let pending = usize::try_from(self.config.nameless().max_ack_pending);
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
        self.config.nameless().headers_only
    }
}

impl JetStream {
    /// Returns the messages that the stream which asks may take in by the consumer that its source names,
    /// after it has let the consumer count the messages which that stream has for good. Returns `None` if
    /// this node does not know yet that the stream names the consumer.
    ///
    /// # Errors
    ///
    /// Returns an error if the origin has no such consumer, if the consumer has another ack policy or deliver
    /// subject, or if another stream takes in messages by it. The stream that asks shows the error.
    pub(super) fn tap(
        &mut self,
        cx: &Context<'_>,
        now: Time,
        own: StreamNumber,
        (request, consumer): (&Request, &OriginConsumer),
    ) -> Result<Option<Tap>, ApiError> {
        let name = &consumer.name;
        let failed = |why: String| match request.is_mirror {
            true => ApiError::mirror_failed(why),
            false => ApiError::source_failed(why),
        };
        let wall_us = self.wall.tell(now);
        let origin = self.streams.get(own).ok_or(ApiError::STREAM_NOT_FOUND)?;
        let known = origin.consumer(name);
        let known = known.ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        let shared = known.config().clone();
        let config = shared.nameless();
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
            config: shared,
        };
        let created_us = origin.created_us();
        match (self.group, cx.around.streams_of(ALL)) {
            (ALL, _) => self.giving.taps.look(&self.streams),
            (_, Some(all)) => self.giving.taps.look(all.applied()),
            (_, None) => return Ok(None),
        }
        let known_as = (own, origin.name());
        match self.giving.taps.claim(known_as, name, request.target) {
            None => return Ok(None),
            Some(true) => {}
            Some(false) => {
                return Err(failed(format!(
                    "another stream takes in messages by consumer {name}: create a consumer for each of them"
                )));
            }
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
        Ok(Some(tap))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_stream::schema::config::ConsumerConfig;

    use super::*;

    #[test]
    fn a_consumer_serves_one_stream() {
        let mut taps = Taps::default();
        let origin = (StreamNumber::FIRST, "O");
        let [one, two, three] = [1, 2, 3].map(DirectoryNumber::new);
        let name = |taps: &mut Taps, streams: &[DirectoryNumber]| {
            taps.named
                .insert(("O".into(), "C".into()), streams.to_vec());
        };
        assert_eq!(taps.claim(origin, "C", two), None);
        name(&mut taps, &[two, three]);
        assert_eq!(taps.claim(origin, "C", three), Some(false));
        assert_eq!(taps.claim(origin, "C", two), Some(true));
        // An update makes an older stream name the consumer, too.
        name(&mut taps, &[one, two, three]);
        assert_eq!(taps.claim(origin, "C", one), Some(false));
        assert_eq!(taps.claim(origin, "C", two), Some(true));
        name(&mut taps, &[one, three]);
        assert_eq!(taps.claim(origin, "C", three), Some(false));
        assert_eq!(taps.claim(origin, "C", one), Some(true));
        name(&mut taps, &[three]);
        assert_eq!(taps.claim(origin, "C", three), Some(true));
    }

    #[test]
    fn the_consumer_chooses_the_messages() {
        let tap = |max_ack_pending, is_paused| Tap {
            config: SharedConfig::new(
                "C",
                ConsumerConfig {
                    max_ack_pending,
                    ..ConsumerConfig::default()
                },
            ),
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
