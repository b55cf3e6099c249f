//! Applies commands other than publishes to one stream: purges, deletions of messages, and commands about the
//! stream's consumers.

use std::sync::Arc;

use tidegate_nats::subject;

use super::command::Command;
use super::consumers::{ConsumerRequest, StreamConsumer, StreamView};
use super::outcome::{Effect, Outcome};
use super::rules::FIRST_SEQ_MAX;
use super::single::Stream;
use super::streams::{DeleteRequest, PurgeRequest, parse};
use crate::consumer::rules::{Admission, admit};
use crate::consumer::{RESET_RANGE, State};
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

impl Stream {
    pub(super) fn apply_purge(
        &mut self,
        request: &PurgeRequest,
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
        let purged = self.purge(&request.filter, request.seq, request.keep, effects);
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
            // and last, differs from the error for a number outside of this range.
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
        let stream = self.id;
        let existing = self.consumers.get_mut(name);
        let admission = admit(&action, existing.as_ref().map(|c| c.config()), &config)?;
        match (admission, existing) {
            (Admission::Update, Some(consumer)) => {
                consumer.config = Arc::new(config);
                effects.push(Effect::ConsumerUpdated {
                    stream,
                    name: name.to_owned(),
                });
                return Ok(Outcome::ConsumerUpdated { stream });
            }
            (_, Some(_)) => return Ok(Outcome::ConsumerExists { stream }),
            (_, None) => {}
        }
        // A negative `max_consumers` means that the stream may have any number of consumers.
        let most = u64::try_from(self.config.max_consumers).unwrap_or(u64::MAX);
        if self.consumers.len() as u64 >= most {
            return Err(ApiError::MAXIMUM_CONSUMERS);
        }
        // After a restart, the messages of a stream in memory are gone, and the stream uses their numbers
        // again. A start that the leader chose earlier may then lie beyond the last message; if so, the
        // stream chooses the start again.
        let there = start.filter(|start| start.after() <= self.content.last_seq);
        let state = match there {
            Some(start) => State::beginning(start),
            None => State::new(&config, &mut StreamView::new(self, &config)),
        };
        let consumer = StreamConsumer {
            config: Arc::new(config),
            created_us: now,
            state: Arc::new(state),
        };
        self.consumers.insert(name.to_owned(), consumer);
        effects.push(Effect::ConsumerCreated {
            stream,
            name: name.to_owned(),
        });
        Ok(Outcome::ConsumerCreated { stream })
    }

    pub(super) fn delete_consumer(
        &mut self,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApiError> {
        let name = consumer_name(command)?;
        let gone = self.consumers.remove_entry(name);
        let (name, _) = gone.ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        effects.push(Effect::ConsumerDeleted {
            stream: self.id,
            name,
        });
        Ok(Outcome::ConsumerDeleted { stream: self.id })
    }

    pub(super) fn change_consumer(&mut self, command: &Command<'_>) -> Result<Outcome, ApiError> {
        let consumer = self.consumers.get_mut(consumer_name(command)?);
        let consumer = consumer.ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        let applied = Arc::make_mut(&mut consumer.state).apply(command.payload);
        applied.map_err(ApiError::stream_general)?;
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
        Arc::make_mut(&mut consumer.state).reset(seq.ok_or(ApiError::BAD_REQUEST)?);
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
