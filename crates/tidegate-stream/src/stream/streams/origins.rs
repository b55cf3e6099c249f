//! Takes in messages of origins for the streams of a group: applies intakes, and checks the origins of a
//! configuration against the other streams.

use super::super::command::{Command, Commands, EntryError};
use super::super::intake::{self, Intake};
use super::super::outcome::{Effect, Outcome};
use super::super::rules;
use super::super::single::Stream;
use super::{Context, Streams, Totals, stream_of};
use crate::schema::config::{Retention, StreamConfig};
use crate::schema::error::ApiError;

impl Streams {
    /// Applies an intake, with the messages that follow it in the entry. All its commands have the same
    /// outcome. The outcome tells the leader whether to go on or to ask the origin again.
    pub(super) fn take_in(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        commands: &mut Commands<'_>,
        out: &mut Vec<Outcome>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EntryError> {
        let count = intake::messages_len(command.payload);
        let mut messages = Vec::new();
        for message in commands.by_ref().take(count) {
            messages.push(message?);
        }
        let outcome = match self.take_in_all(context, command, &messages, effects) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Refused {
                stream: command.stream,
                error,
            },
        };
        out.extend(std::iter::repeat_n(outcome, messages.len() + 1));
        Ok(())
    }

    fn take_in_all(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        messages: &[Command<'_>],
        effects: &mut Vec<Effect>,
    ) -> Result<(), ApiError> {
        let key = std::str::from_utf8(command.subject).map_err(|_| ApiError::BAD_REQUEST)?;
        let intake = Intake::decode(command.payload).map_err(|_| ApiError::BAD_REQUEST)?;
        let stream = stream_of(&mut self.streams, command, context.past_log)?;
        let before = Totals::of(stream);
        let mut due = u64::MAX;
        let placed = messages.iter();
        let placed = placed.map(|command| (*command, context.keep(stream, command)));
        let placed: Vec<_> = placed.collect();
        let stored = |stream: &mut Stream, due_us| due = due.min(stream.due_after_store(due_us));
        let taken = stream.take_in(key, &intake, placed, context.now, stored, effects);
        self.schedule.lower(stream, due);
        self.held.count(before, stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.reclaiming.note(stream);
        taken
    }

    /// Iterates over the streams that take in messages from other streams. The leader asks their origins for
    /// messages.
    pub fn with_origins(&self) -> impl Iterator<Item = &Stream> {
        self.tally.with_origins().filter_map(|id| self.get(id))
    }

    /// Iterates over the streams that keep messages for other streams, which take the messages in. The leader
    /// follows the progress of those streams.
    pub fn holding(&self) -> impl Iterator<Item = &Stream> {
        self.tally.holding().filter_map(|id| self.get(id))
    }

    /// Returns the configuration with the setting that a mirror takes from its origin, if this group knows
    /// the origin. A client does not set it itself.
    pub(super) fn as_mirror(&self, config: &StreamConfig) -> StreamConfig {
        let mut config = config.clone();
        let origin = config.mirror.as_ref().filter(|m| m.external.is_none());
        let origin = origin.and_then(|m| self.config_of(&m.name));
        if let Some(origin) = origin {
            config.mirror_direct = origin.allow_direct;
        }
        config
    }

    /// Checks that a stream can hold the messages of its origins: that it accepts messages as large as
    /// theirs. The check covers the origins that this group knows.
    pub(super) fn check_origins(&self, config: &StreamConfig) -> Result<(), ApiError> {
        for origin in config
            .local_origins()
            .filter_map(|source| self.config_of(&source.name))
        {
            let (least, size) = (origin.max_msg_size, config.max_msg_size);
            if size > 0 && least > 0 && size < least {
                return Err(match config.mirror {
                    Some(_) => ApiError::MIRROR_MESSAGES_TOO_LARGE,
                    None => ApiError::SOURCE_MESSAGES_TOO_LARGE,
                });
            }
        }
        Ok(())
    }

    /// Checks that no message can go in a circle through a stream of this configuration. Only the group of
    /// all nodes, which keeps the directory, knows all streams and so finds every circle.
    pub(super) fn check_cycle(&self, config: &StreamConfig) -> Result<(), ApiError> {
        match rules::has_cycle(config, |name| self.config_of(name)) {
            true => Err(ApiError::invalid_config("detected cycle")),
            false => Ok(()),
        }
    }

    /// Checks that the origins of a stream do not meet again in one stream. Only the leader checks it, before
    /// it proposes a configuration.
    pub(super) fn check_meeting(&self, config: &StreamConfig) -> Result<(), ApiError> {
        match rules::meets_again(config, |name| self.config_of(name)) {
            true => Err(ApiError::invalid_config("detected cycle")),
            false => Ok(()),
        }
    }

    /// Checks that a stream from which other streams take in messages does not begin to keep messages by
    /// interest: it would drop messages that those streams still lack.
    pub(super) fn check_takers(
        &self,
        old: &StreamConfig,
        new: &StreamConfig,
    ) -> Result<(), ApiError> {
        if old.retention == new.retention || new.retention != Retention::Interest {
            return Ok(());
        }
        let takes = |stream: &&Stream| stream.config.local_origins().any(|o| o.name == new.name);
        match self.with_origins().find(takes) {
            Some(stream) => Err(ApiError::invalid_config(format_args!(
                "the retention can not become interest while stream {} has this stream as its origin",
                stream.name()
            ))),
            None => Ok(()),
        }
    }

    fn config_of(&self, name: &str) -> Option<&StreamConfig> {
        Some(self.get(self.by_name(name)?)?.config())
    }
}
