//! Applies commands other than publishes to one stream: purges, deletions of messages, and commands about the
//! stream's consumers, as each node finds them in the log.

use std::sync::Arc;

use tidegate_nats::subject;

use super::command::{Command, Kind};
use super::consumers::{ConsumerRequest, StreamConsumer, StreamView, is_holder};
use super::foreseen::Foreseen;
use super::outcome::{Effect, Outcome};
use super::rules::FIRST_SEQ_MAX;
use super::shared::SharedConfig;
use super::single::Stream;
use super::streams::{DeleteRequest, PurgeRequest, parse};
use crate::consumer::rules::{Admission, admit, check_partition, check_queue};
use crate::consumer::{RESET_RANGE, State};
use crate::schema::config::{ConsumerConfig, Retention};
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

impl Stream {
    pub(super) fn apply_purge(
        &mut self,
        request: &PurgeRequest,
        foreseen: Option<Foreseen>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApiError> {
        if self.config.sealed {
            return Err(ApiError::STREAM_SEALED);
        }
        if self.config.deny_purge {
            return Err(ApiError::purge_failed("stream purge not permitted"));
        }
        let bad_filter =
            !request.filter.is_empty() && !subject::is_pattern(request.filter.as_bytes());
        if bad_filter
            || (request.seq > StreamSeq::ZERO && request.keep > 0)
            || request.seq > FIRST_SEQ_MAX
        {
            return Err(ApiError::BAD_REQUEST);
        }
        let (filter, below, keep) = (&request.filter, request.seq, request.keep);
        let purged = self.purge(filter, below, keep, foreseen, effects);
        Ok(Outcome::Purged {
            stream: self.id,
            purged,
        })
    }

    pub(super) fn apply_delete(
        &mut self,
        request: &DeleteRequest,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApiError> {
        if self.config.sealed {
            return Err(ApiError::STREAM_SEALED);
        }
        if self.config.deny_delete {
            return Err(ApiError::message_delete("message delete not permitted"));
        }
        if !self.remove(request.seq, effects) {
            // As in nats-server, the error for a removed message, with a number between the stream's first
            // and last, differs from the error for a number outside of this range. Clients tell the two cases
            // apart by these texts.
            let content = &self.content;
            return Err(match request.seq {
                seq if seq > content.last_seq => ApiError::message_delete("stream store EOF"),
                seq if seq < content.first_seq => ApiError::message_delete("no message found"),
                seq => ApiError::sequence_not_found(seq),
            });
        }
        Ok(Outcome::Removed { stream: self.id })
    }

    pub(super) fn create_consumer(
        &mut self,
        command: &Command<'_>,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApiError> {
        let name = consumer_name(command)?;
        let ConsumerRequest {
            config,
            action,
            start,
        } = parse(command.payload)?;
        if Kind::of_consumer(&config) != command.kind {
            return Err(ApiError::BAD_REQUEST);
        }
        let stream = self.id;
        let existing = self.consumers.get(name);
        let existing = existing.map(|existing| existing.config.full(name));
        let admission = admit(&action, existing.as_ref(), &config)?;
        self.check_queue(name, &config)?;
        match admission {
            Admission::Update => {
                self.update_consumer(name, config, effects);
                return Ok(Outcome::ConsumerUpdated { stream });
            }
            Admission::Same => return Ok(Outcome::ConsumerExists { stream }),
            Admission::Create => {}
        }
        // A negative `max_consumers` means that the stream may have any number of consumers, so this code
        // reads it as the largest `u64`.
        let most = u64::try_from(self.config.max_consumers).unwrap_or(u64::MAX);
        let of_clients = self.consumers.keys().filter(|name| !is_holder(name));
        if most < u64::MAX && !is_holder(name) && of_clients.count() as u64 >= most {
            return Err(ApiError::MAXIMUM_CONSUMERS);
        }
        // After a restart, the messages of a stream in memory are gone, and the stream uses their numbers
        // again. A start that the leader chose earlier may then lie beyond the last message; if so, the
        // stream chooses the start again. Otherwise the consumer would miss the new messages with lower
        // numbers.
        let there = start.filter(|start| start.after() <= self.content.last_seq);
        let state = match there {
            Some(start) => State::beginning(start),
            None => State::new(&config, &mut StreamView::new(self, &config)),
        };
        let consumer = StreamConsumer {
            config: SharedConfig::new(name, config),
            created_us: now,
            state: Arc::new(state),
        };
        self.put_consumer(name, consumer);
        effects.push(Effect::ConsumerCreated {
            stream,
            name: name.to_owned(),
        });
        Ok(Outcome::ConsumerCreated { stream })
    }

    fn update_consumer(&mut self, name: &str, config: ConsumerConfig, effects: &mut Vec<Effect>) {
        let Some((_, consumer)) = self.take_consumer(name) else {
            return;
        };
        let before = consumer.config.nameless().filters();
        let same_filters = before.eq(config.filters());
        let mut updated = StreamConsumer {
            config: SharedConfig::new(name, config),
            ..consumer.clone()
        };
        if !same_filters && self.is_by_interest() {
            Arc::make_mut(&mut updated.state).note_filters_changed(self.content.last_seq);
        }
        self.put_consumer(name, updated);
        if !same_filters {
            self.begin_sweep_after(&consumer, effects);
        }
        effects.push(Effect::ConsumerUpdated {
            stream: self.id,
            name: name.to_owned(),
        });
    }

    /// Checks a configuration of the consumer `name` against the rules of a work queue, if the stream is one,
    /// so that no two consumers of the queue deliver the same message.
    ///
    /// # Errors
    ///
    /// Returns the error with which the server answers the client's request to create or change the consumer.
    pub fn check_queue(&self, name: &str, config: &ConsumerConfig) -> Result<(), ApiError> {
        if self.config.retention != Retention::WorkQueue || is_holder(name) {
            return Ok(());
        }
        let others = self.consumers.iter();
        let others = others.filter(|(other, _)| ***other != *name && !is_holder(other));
        let others = others.map(|(_, other)| other.config.nameless());
        match self.consumers.contains_key(name) {
            true => check_partition(config, others),
            false => check_queue(config, others),
        }
    }

    pub(super) fn delete_consumer(
        &mut self,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApiError> {
        let name = consumer_name(command)?;
        let gone = self.take_consumer(name);
        let (name, consumer) = gone.ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        // The effect that ends the consumer comes before the effects of its removed messages. So the server
        // ends the consumer first, and the consumer does not report these messages as terminated.
        effects.push(Effect::ConsumerDeleted {
            stream: self.id,
            name,
        });
        self.begin_sweep_after(&consumer, effects);
        Ok(Outcome::ConsumerDeleted { stream: self.id })
    }

    pub(super) fn change_consumer(
        &mut self,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApiError> {
        let keeps = self.keeps_for_consumers();
        let consumer = self.consumers.get_mut(consumer_name(command)?);
        let consumer = consumer.ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        if Kind::of_delta(command.payload) != command.kind {
            return Err(ApiError::BAD_REQUEST);
        }
        let state = Arc::make_mut(&mut consumer.state);
        let released = state.release(command.payload);
        if !keeps {
            // The leader took this delta before the stream's retention changed. The stream no longer removes
            // settled messages, so the consumer drops its list of them.
            state.forget_settling();
        }
        self.handle_released(released.map_err(ApiError::stream_general)?, effects);
        Ok(Outcome::Done)
    }

    pub(super) fn reset_consumer(
        &mut self,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApiError> {
        let name = consumer_name(command)?;
        let consumer = self.consumers.get_mut(name);
        let consumer = consumer.ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        let seq = <[u8; 8]>::try_from(command.payload).map(u64::from_le_bytes);
        let seq = seq
            .ok()
            .map(StreamSeq::new)
            .filter(|seq| RESET_RANGE.contains(seq));
        let seq = seq.ok_or(ApiError::BAD_REQUEST)?;
        let first = consumer.state.first_needed();
        Arc::make_mut(&mut consumer.state).reset(seq);
        if first < seq {
            let last = seq.prev().min(self.content.last_seq);
            self.begin_sweep(first..=last, effects);
        }
        effects.push(Effect::ConsumerReset {
            stream: self.id,
            name: name.to_owned(),
        });
        Ok(Outcome::Done)
    }
}

fn consumer_name<'a>(command: &Command<'a>) -> Result<&'a str, ApiError> {
    let name = std::str::from_utf8(command.subject).ok();
    name.filter(|name| !name.is_empty())
        .ok_or(ApiError::BAD_REQUEST)
}
