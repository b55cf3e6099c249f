//! Applies the commands that create, change, move and delete streams, and that change the group that keeps a
//! stream. Each node of the group applies them at the group's entries.

use tidegate_cluster::groups::ALL;

use super::super::command::{Command, Commands, EntryError, Kind};
use super::super::home::Home;
use super::super::moving::{self, Cursor, Import, Transit};
use super::super::outcome::{Effect, Outcome};
use super::super::placement::{Course, Filling, Moving, Placement, Renewal, Thaw};
use super::super::publish::Refusal;
use super::super::restoring::Part;
use super::super::rules;
use super::super::single::Stream;
use super::{Context, Streams, Totals, check_here, entry_of, parse};
use crate::schema::config::StreamConfig;
use crate::schema::error::ApiError;
use crate::schema::number::StreamNumber;

impl Streams {
    /// Applies an import, with the messages that follow it in the entry, to the copy of a moving stream, so
    /// that the copy gets the next part of the stream.
    pub(super) fn import(
        &mut self,
        context: Context<'_>,
        import: &Command<'_>,
        commands: &mut Commands<'_>,
        out: &mut Vec<Outcome>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EntryError> {
        let id = import.stream;
        let count = moving::messages_len(import.payload);
        let mut messages = Vec::new();
        for command in commands.by_ref().take(count) {
            messages.push(command?);
        }
        let read = Import::read(import.payload);
        let stream = entry_of(&mut self.streams, import, context.past_log);
        // The copy refuses an import of a move that the directory has called off, because that import may
        // lack later changes of the stream.
        let filling = Filling::decode(import.subject);
        let is_of = |stream: &Stream| filling.as_ref().is_ok_and(|f| f.is_for(stream.moves));
        let (Ok(read), Some(stream)) = (read, stream.ok().filter(|s| is_of(s))) else {
            let error = ApiError::BAD_REQUEST;
            let refused = Outcome::Refused { stream: id, error };
            out.extend(std::iter::repeat_n(refused, messages.len() + 1));
            return Ok(());
        };
        let before = Totals::of(stream);
        self.tally.remove(stream);
        let keep = |stream: &Stream, command: &Command<'_>| context.keep(stream, command);
        let taken = stream.take_import(read, &messages, keep, effects);
        let outcome = match taken {
            true => Outcome::Done,
            false => Outcome::Refused {
                stream: id,
                error: ApiError::BAD_REQUEST,
            },
        };
        out.extend(std::iter::repeat_n(outcome, messages.len() + 1));
        let filled = taken && stream.transit == Transit::None;
        if filled {
            if !stream.kept.is_here() {
                // The stream has moved to the group of all nodes, which keeps the directory, so the directory
                // entry becomes the stream itself.
                (stream.kept, stream.moving) = (Home::Here, None);
            }
            self.changes += 1;
            effects.push(Effect::StreamFilled { stream: id });
            self.schedule.renew(stream);
        }
        self.held.count(before, stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.reclaiming.note(stream);
        self.tally.add(stream);
        Ok(())
    }

    pub(super) fn create(
        &mut self,
        command: &Command<'_>,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        let placement = Placement::decode(command.subject)?;
        let kept = placement.home();
        let config: StreamConfig = parse(command.payload)?;
        let restores = command.kind == Kind::CreateRestoring;
        if !restores && Kind::creating(&config) != command.kind {
            return Err(ApiError::BAD_REQUEST.into());
        }
        let config = match restores {
            true => self.may_restore(&config)?,
            false => self.may_create(&config)?,
        };
        if !matches!(kept, Home::Of(_)) {
            self.check_cycle(&config)?;
        }
        if let Some(stream) = self.by_name(&config.name) {
            let there = self.get(stream).map(Stream::home);
            // An existing stream of the same name with another directory number is a different stream. This
            // group will soon drop that stream, and refuses the command while the name is in use.
            return match kept {
                Home::Of(_) if there != Some(kept) => Err(ApiError::STREAM_NAME_EXISTS.into()),
                _ => Ok(Outcome::Exists { stream }),
            };
        }
        let id = self.last_id.next();
        self.last_id = id;
        let in_memory = self.limits.puts_in_memory(&config);
        let is_copy = matches!(placement, Placement::Copy { .. });
        if (is_copy || restores) && in_memory || is_copy && restores {
            return Err(ApiError::BAD_REQUEST.into());
        }
        let mut stream = match restores {
            true => Stream::to_restore(id, config, now),
            false => Stream::new(id, config, now, in_memory),
        };
        stream.kept = kept;
        if let Placement::Copy { r#move, .. } = placement {
            stream.moves = r#move;
            stream.transit = Transit::Filling(Cursor::START);
        }
        if restores {
            stream.transit = Transit::Restoring(0);
        }
        self.insert(stream);
        effects.push(Effect::StreamCreated { stream: id });
        Ok(Outcome::Created { stream: id })
    }

    /// Applies a part of a backup, with the messages that follow it in the entry, to the stream that the
    /// backup fills.
    pub(super) fn restore_part(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        commands: &mut Commands<'_>,
        out: &mut Vec<Outcome>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EntryError> {
        let id = command.stream;
        let (part, messages) = Part::read(command.payload, commands)?;
        let stream = entry_of(&mut self.streams, command, context.past_log);
        let (Ok(part), Ok(stream)) = (part, stream) else {
            let error = ApiError::BAD_REQUEST;
            let refused = Outcome::Refused { stream: id, error };
            out.extend(std::iter::repeat_n(refused, messages.len() + 1));
            return Ok(());
        };
        let before = Totals::of(stream);
        self.tally.remove(stream);
        let keep = |stream: &Stream, command: &Command<'_>| context.keep(stream, command);
        let taken = stream.take_part(part, &messages, context.now, keep, effects);
        let outcome = match taken {
            true => Outcome::Done,
            false => Outcome::Refused {
                stream: id,
                error: ApiError::BAD_REQUEST,
            },
        };
        out.extend(std::iter::repeat_n(outcome, messages.len() + 1));
        if taken && stream.transit == Transit::None {
            self.changes += 1;
            effects.push(Effect::StreamFilled { stream: id });
            self.schedule.renew(stream);
        }
        self.held.count(before, stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.reclaiming.note(stream);
        self.tally.add(stream);
        Ok(())
    }

    /// Checks that the group may restore a stream with this configuration: no stream has its name or takes
    /// its subjects. Returns the configuration to store.
    pub(super) fn may_restore(&mut self, config: &StreamConfig) -> Result<StreamConfig, ApiError> {
        let config = rules::check(config)?;
        if self.by_name(&config.name).is_some() {
            return Err(ApiError::STREAM_NAME_EXISTS_RESTORE);
        }
        if self.limits.puts_in_memory(&config) {
            return Err(ApiError::restore_failed(
                "this server restores no stream with storage in memory",
            ));
        }
        self.check_overlap(&config, None)?;
        Ok(config)
    }

    /// Checks that the group may create a stream with this configuration, and returns the configuration to
    /// store. If a stream of this name exists, it must have the same configuration, so that a client can
    /// repeat its request.
    pub(super) fn may_create(&mut self, config: &StreamConfig) -> Result<StreamConfig, ApiError> {
        let config = rules::check(config)?;
        match self.by_name(&config.name).and_then(|id| self.get(id)) {
            Some(stream) if stream.config == config && !stream.is_restoring() => Ok(config),
            Some(_) => Err(ApiError::STREAM_NAME_EXISTS),
            None => {
                self.check_overlap(&config, None)?;
                Ok(config)
            }
        }
    }

    pub(super) fn may_update(
        &mut self,
        id: StreamNumber,
        config: &StreamConfig,
        calls_off: bool,
    ) -> Result<StreamConfig, ApiError> {
        let old = self.get(id).ok_or(ApiError::STREAM_NOT_FOUND)?;
        if old.moving.is_some() && !calls_off {
            return Err(ApiError::stream_moving(
                "change it once it is there, or call the move off by the number of replicas it had before",
            ));
        }
        let config = rules::check_update(&old.config, config)?;
        self.check_overlap(&config, Some(id))?;
        Ok(config)
    }

    pub(super) fn update(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        let id = command.stream;
        entry_of(&mut self.streams, command, context.past_log)?;
        let course = Course::decode(command.subject)?;
        let (to, calls_off) = match course {
            Course::Same => (None, false),
            Course::To { group } => (Some(group), false),
            Course::Instead { group, .. } => (group, true),
        };
        let config = self.may_update(id, &parse(command.payload)?, calls_off)?;
        let old = self.get(id).ok_or(ApiError::STREAM_NOT_FOUND)?;
        if Kind::updating(&old.config, &config) != command.kind {
            return Err(ApiError::BAD_REQUEST.into());
        }
        if !matches!(old.kept, Home::Of(_)) {
            self.check_cycle(&config)?;
            self.check_takers(&old.config, &config)?;
        }
        match course {
            Course::Instead { r#move, .. } if old.moving().is_none_or(|m| m.number != r#move) => {
                return Err(ApiError::stream_update(
                    "the stream has moved before that could be called off: ask again",
                )
                .into());
            }
            _ => {}
        }
        let to = to.map(|to| old.may_move(to)).transpose()?;
        let stream = self.streams.remove(id);
        let mut stream = stream.expect("the checks found the stream");
        self.patterns.remove(id, &stream.config.subjects);
        self.tally.remove(&stream);
        let before = Totals::of(&stream);
        if calls_off {
            stream.call_off(effects);
        }
        stream.update(config, effects);
        if let Some(to) = to {
            stream.begin_move(to);
        }
        self.held.count(before, &stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.reclaiming.note(&stream);
        self.schedule.renew(&mut stream);
        self.patterns.insert(id, &stream.config.subjects);
        self.tally.add(&stream);
        self.changes += 1;
        stream.changed = self.changes;
        self.streams.insert(stream);
        effects.push(Effect::StreamUpdated { stream: id });
        Ok(Outcome::Updated { stream: id })
    }

    /// Changes the stream that a command names, or its directory entry if another group keeps the stream, and
    /// updates the group's sums, so that the reports to clients stay right. `change` makes all checks before
    /// it changes the stream, and returns whether it changed the stream.
    fn alter(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        change: impl FnOnce(&mut Stream) -> Result<bool, ApiError>,
    ) -> Result<Outcome, Refusal> {
        let stream = entry_of(&mut self.streams, command, context.past_log)?;
        let before = Totals::of(stream);
        self.tally.remove(stream);
        let changed = change(stream);
        self.tally.add(stream);
        self.changes += u64::from(changed?);
        self.held.count(before, stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.reclaiming.note(stream);
        self.schedule.renew(stream);
        Ok(Outcome::Done)
    }

    /// Notes in the directory that the stream's home group has created the stream, so that the directory no
    /// longer asks the group to create it.
    pub(super) fn made(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        self.alter(context, command, |stream| {
            let Home::Elsewhere { made, .. } = &mut stream.kept else {
                return Err(ApiError::BAD_REQUEST);
            };
            let is_new = !std::mem::replace(made, true);
            if stream.is_restoring() {
                stream.transit = Transit::None;
            }
            if is_new {
                effects.push(Effect::StreamMade { stream: stream.id });
            }
            Ok(is_new)
        })
    }

    /// Freezes a stream that moves from this group to another one: it does not change in this group any more,
    /// so that the target can copy the last part.
    pub(super) fn freeze(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        self.alter(context, command, |stream| {
            check_here(stream)?;
            let moving = Moving::decode(command.payload)?;
            // A stream freezes only once for each move: after the directory has called a move off, a late
            // command of that move has no effect.
            let is_due = match stream.kept {
                Home::Here => stream.moving() == Some(moving),
                _ => moving.number > stream.moves,
            };
            if !is_due || stream.in_memory() {
                return Err(ApiError::BAD_REQUEST);
            }
            (stream.moves, stream.transit) = (moving.number, Transit::Frozen);
            effects.push(Effect::StreamFrozen { stream: stream.id });
            Ok(true)
        })
    }

    /// Ends a move of a stream in the directory, because the target group has the whole stream. From then on
    /// the directory sends requests for the stream to the target.
    pub(super) fn moved(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        self.alter(context, command, |stream| {
            let moved = Moving::decode(command.payload)?;
            let left = !stream.kept.is_here() || stream.is_frozen();
            if moved.to == ALL || !left || stream.moving() != Some(moved) {
                return Err(ApiError::BAD_REQUEST);
            }
            let group = moved.to;
            if stream.kept.is_here() {
                stream.empty(effects);
            }
            stream.kept = Home::Elsewhere { group, made: true };
            (stream.moving, stream.transit) = (None, Transit::None);
            effects.push(Effect::StreamMoved { stream: stream.id });
            Ok(true)
        })
    }

    /// Calls off a move of a stream in the directory, and begins a move of this stream to another target,
    /// because a client or the directory's leader has chosen it.
    pub(super) fn renew(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        self.alter(context, command, |stream| {
            let renewal = Renewal::decode(command.payload)?;
            if stream.moving() != Some(renewal.of) {
                return Err(ApiError::BAD_REQUEST);
            }
            let to = stream.may_move(renewal.to)?;
            stream.call_off(effects);
            stream.begin_move(to);
            Ok(true)
        })
    }

    /// Thaws a frozen stream, so that this group may change it again: the directory has called off the
    /// stream's move.
    pub(super) fn thaw(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        self.alter(context, command, |stream| {
            let thaw = Thaw::decode(command.payload)?;
            if thaw.r#move != stream.moves
                || !stream.is_frozen()
                || !matches!(stream.kept, Home::Of(_))
            {
                return Err(ApiError::BAD_REQUEST);
            }
            stream.transit = Transit::None;
            effects.push(Effect::StreamThawed { stream: stream.id });
            Ok(true)
        })
    }

    pub(super) fn delete(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        let id = command.stream;
        entry_of(&mut self.streams, command, context.past_log)?;
        let stream = self.streams.remove(id);
        let mut stream = stream.expect("the check found the stream");
        self.changes += 1;
        self.names.remove(&stream.config.name);
        self.patterns.remove(id, &stream.config.subjects);
        self.tally.remove(&stream);
        self.schedule.remove(&mut stream);
        let before = Totals::of(&stream);
        let messages = stream.content.remove_all();
        self.held.count(before, &stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.reclaiming.handle_deleted(&mut stream);
        effects.push(Effect::StreamDeleted {
            stream: id,
            name: stream.config.name,
            messages,
            consumers: stream.consumers.into_keys().map(String::from).collect(),
        });
        Ok(Outcome::Deleted { stream: id })
    }
}
