//! All streams of one group, and the effects that the commands of the group's log have on them.
//!
//! This module owns the names and subjects of streams, the group's time, and the order of checks and effects
//! of every command; the module `lifecycle` applies the commands that create, move and delete streams. The
//! entries alone determine the state: the same entries give the same streams on every node and after every
//! restart. So the leader checks the limits that a node's operator sets ([`AccountLimits`]) before it
//! proposes a command, and no node checks them when it applies the command.

mod foreseeing;
mod lifecycle;
mod limits;
mod origins;
mod patterns;
mod preparing;
mod reclaiming;
mod tally;

use tidegate_cluster::groups::GroupId;

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use foreseeing::Foreseeing;
use limits::Totals;
pub use limits::{AccountLimits, Held, Usage};
use patterns::Patterns;
use preparing::Preparing;
use reclaiming::Reclaiming;
use tally::Tally;

use super::by_number::ByNumber;
use super::command::{
    Buffer, Command, Commands, EncodeError, Encoder, Entry, EntryError, Kind, Place,
};
use super::moving::Transit;
use super::outcome::{Effect, Outcome};
use super::publish::{Refusal, Stage};
use super::rules;
use super::schedule::Schedule;
use super::single::Stream;
use crate::schema::config::{Storage, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::number::{DirectoryNumber, StreamNumber};
use crate::schema::sequence::StreamSeq;

/// The number of commands at which one round of [`Streams::propose_expiry`] ends. The next round continues
/// with the remaining streams. So one entry does not get too long.
const PROPOSED_MAX: usize = 4096;

/// The limit on the number of streams that one call of [`Streams::next_expiry`] examines, so that no call
/// takes long.
const LOOKED_AT_MAX: usize = 256;

/// The payload of a [`Kind::Purge`] command: the messages of a stream that the client wants to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PurgeRequest {
    /// The pattern of the subjects of the messages that the stream purges; empty for all subjects.
    pub filter: String,
    /// The number below which the stream purges messages; 0 for messages of all numbers.
    pub seq: StreamSeq,
    /// The number of the newest messages matching `filter` that the stream keeps; 0 to keep none.
    pub keep: u64,
}

/// The payload of a [`Kind::DeleteMessage`] command: the message of a stream that the client wants to remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeleteRequest {
    /// The number of the message that the stream deletes.
    pub seq: StreamSeq,
    /// True if the server need not overwrite the bytes of the deleted message. This server never overwrites
    /// them.
    pub no_erase: bool,
}

/// The state machine of one Raft group: all streams of the group. Each node of the group applies the group's
/// entries to its own copy.
#[derive(Debug)]
pub struct Streams {
    limits: AccountLimits,
    pub(super) streams: ByNumber,
    pub(super) names: BTreeMap<String, StreamNumber>,
    /// The number of the stream that the group created last. The group gives no number to two streams,
    /// because a message in flight names its stream by the number.
    pub(super) last_id: StreamNumber,
    /// The time of the latest entry of the log, in microseconds since 1970. Entries that bypass the log have
    /// a time of their own, `memory_now_us`, because no other node applies these entries and `now_us` must be
    /// equal on all nodes.
    pub(super) now_us: u64,
    memory_now_us: u64,
    held: Held,
    tally: Tally,
    patterns: Patterns,
    schedule: Schedule,
    reclaiming: Reclaiming,
    foreseeing: Foreseeing,
    /// The entry that this node prepares; `None` if it prepares none.
    preparing: Option<Preparing>,
    /// The greatest number of subjects that a stream has had since this node loaded the streams. While it is
    /// small, the node need not read an entry to find out if it must prepare the entry.
    subjects_most: usize,
    /// The number of times that the group has created, changed, moved or deleted a stream, counted since this
    /// node loaded the streams. A caller that keeps data about the streams notices a change by it.
    changes: u64,
}

/// The facts that all commands of an entry share, with which the streams apply each command: the bytes, the
/// log position and the time of the entry.
#[derive(Clone, Copy)]
struct Context<'a> {
    lsn: u64,
    entry: &'a Bytes,
    now: u64,
    /// True if the entry bypassed the log, as entries for streams in memory do on a single server. The
    /// streams refuse such an entry for a stream in the log.
    past_log: bool,
}

impl Streams {
    /// Creates the state of a group that has no streams yet. `limits` are the limits that this node's
    /// operator sets.
    #[must_use]
    pub fn new(limits: AccountLimits) -> Self {
        Self {
            limits,
            streams: ByNumber::default(),
            names: BTreeMap::new(),
            last_id: StreamNumber::NONE,
            now_us: 0,
            memory_now_us: 0,
            held: Held::default(),
            tally: Tally::default(),
            patterns: Patterns::default(),
            schedule: Schedule::default(),
            reclaiming: Reclaiming::default(),
            foreseeing: Foreseeing::default(),
            preparing: None,
            subjects_most: 0,
            changes: 0,
        }
    }

    /// Returns the number of the stream that the group created last. The next stream gets a higher number.
    #[must_use]
    pub const fn last_id(&self) -> StreamNumber {
        self.last_id
    }

    /// Makes the change numbers of these streams higher than those of `before`, the streams that these
    /// replace, so that no change number stands for two different states.
    pub fn follow(&mut self, before: &Self) {
        self.changes += before.changes + 1;
        for stream in self.streams.values_mut_unsaved() {
            stream.changed += before.changes + 1;
        }
    }

    /// Returns a number that changes whenever the group creates, changes, moves or deletes a stream. A caller
    /// notices by it that its data about the streams are out of date.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of the stream that takes messages of this subject; `None` if no stream does. The
    /// leader calls this for each published message.
    #[inline]
    pub fn capture(&mut self, subject: &[u8]) -> Option<StreamNumber> {
        self.patterns.capture(subject)
    }

    /// Returns the stream that takes messages of this subject. Unlike [`Streams::capture`], this call does
    /// not fill the cache of subjects, and so needs no exclusive access.
    #[must_use]
    pub fn taker(&self, subject: &[u8]) -> Option<&Stream> {
        self.get(self.patterns.taker(subject)?)
    }

    /// Returns the number of the stream with this name, by which a client addresses it.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<StreamNumber> {
        self.names.get(name).copied()
    }

    /// Returns the stream with this number, or its directory entry if another group keeps the stream.
    #[must_use]
    pub fn get(&self, id: StreamNumber) -> Option<&Stream> {
        self.streams.get(id)
    }

    /// Returns the stream with this directory number. The result is right only in the group of all nodes,
    /// which keeps the directory.
    #[must_use]
    pub fn entry(&self, of: DirectoryNumber) -> Option<&Stream> {
        self.get(of.entry())
    }

    /// Returns the directory number of the stream with this name. The result is right only in the group of
    /// all nodes, which keeps the directory.
    #[must_use]
    pub fn entry_by_name(&self, name: &str) -> Option<DirectoryNumber> {
        self.by_name(name).map(DirectoryNumber::of_entry)
    }

    /// Iterates over all streams in the order of their names, in which clients list them.
    pub fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.names.values().filter_map(|id| self.get(*id))
    }

    /// Iterates over the streams with names after `name`, or over all, in the order of their names, so that a
    /// caller can visit the streams in parts.
    pub fn iter_after<'a>(
        &'a self,
        name: Option<&str>,
    ) -> impl Iterator<Item = &'a Stream> + use<'a> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let after = self.names.range::<str, _>((from, Bound::Unbounded));
        after.filter_map(|(_, id)| self.get(*id))
    }

    /// Iterates over the numbers of at most `limit` streams in the order of the streams' names, without the
    /// first `offset` ones. A client lists streams page by page.
    pub fn page(&self, offset: usize, limit: usize) -> impl Iterator<Item = StreamNumber> {
        self.names.values().skip(offset).take(limit).copied()
    }

    /// Returns the number of streams in the group, with directory entries and copies of moving streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether the group has no stream at all, not even a directory entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the bytes that the streams of this kind of storage hold, and the bytes that their limits
    /// reserve, for the report of the account's usage.
    #[must_use]
    pub fn usage(&self, storage: Storage) -> Usage {
        Usage {
            bytes: match storage {
                Storage::File => self.held.file_bytes,
                Storage::Memory => self.held.memory_bytes,
            },
            reserved: self.tally.reserved(storage),
        }
    }

    /// Returns how many streams of the directory the group `group` keeps, or will keep after a move, so that
    /// new streams go to the group with few.
    #[must_use]
    pub fn placed_in(&self, group: GroupId) -> usize {
        self.tally.placed_in(group)
    }

    /// Iterates over the groups that keep a stream of the directory, or will keep one after a move. The
    /// directory asks these groups for the usage of the account.
    pub fn placed(&self) -> impl Iterator<Item = GroupId> {
        self.tally.placed()
    }

    /// Returns the number of streams that this group keeps, without copies of streams that are moving here.
    /// Monitoring reports it.
    #[must_use]
    pub const fn kept_len(&self) -> usize {
        self.tally.kept()
    }

    /// Returns the number of the consumers in the log of all streams that are not moving to or from this
    /// group. Monitoring reports it.
    #[must_use]
    pub const fn consumers_len(&self) -> usize {
        self.tally.consumers()
    }

    /// Returns whether a backup is filling any stream. The leader then looks for a restoration that has lost
    /// its client.
    #[must_use]
    pub const fn has_restoring(&self) -> bool {
        self.tally.has_restoring()
    }

    /// Returns the number of streams of this directory that are moving to another group, for the monitor.
    #[must_use]
    pub const fn moving_len(&self) -> usize {
        self.tally.moving()
    }

    /// Returns whether any stream of this directory is moving to another group, so that callers skip the
    /// search for moves if none does.
    #[must_use]
    pub const fn has_moving(&self) -> bool {
        self.tally.has_moving()
    }

    /// Checks the configuration of a new stream, before the leader proposes to create the stream. Returns the
    /// configuration that the stream will have, for the leader to propose.
    ///
    /// # Errors
    ///
    /// Returns the error with which the server answers the client's request to create the stream.
    pub fn check_create(&mut self, config: &StreamConfig) -> Result<StreamConfig, ApiError> {
        let config = self.may_create(&self.as_mirror(config))?;
        self.check_origins(&config)?;
        self.check_cycle(&config)?;
        self.check_meeting(&config)?;
        if self.names.contains_key(&config.name) {
            return Ok(config);
        }
        self.check_limits(&config)?;
        Ok(config)
    }

    /// Checks the configuration of a stream that a client wants to restore from a backup, before the leader
    /// proposes to create the stream. Returns the configuration that the stream will have, for the leader to
    /// propose.
    ///
    /// # Errors
    ///
    /// Returns the error with which the server answers the client's request to restore the stream.
    pub fn check_restore(&mut self, config: &StreamConfig) -> Result<StreamConfig, ApiError> {
        let config = self.may_restore(config)?;
        self.check_limits(&config)?;
        Ok(config)
    }

    /// Checks that the operator's limits have room for a new stream. Only the leader checks them, because
    /// nodes may have different limits.
    fn check_limits(&self, config: &StreamConfig) -> Result<(), ApiError> {
        if self.len() as u64 >= self.limits.streams {
            return Err(ApiError::MAXIMUM_STREAMS);
        }
        self.check_reservation(config, 0)
    }

    /// Checks a change of a stream's configuration, before the leader proposes the change. Returns the
    /// configuration that the stream will have, for the leader to propose.
    ///
    /// # Errors
    ///
    /// Returns the error with which the server answers the client's request to change the stream.
    pub fn check_update(&mut self, config: &StreamConfig) -> Result<StreamConfig, ApiError> {
        let id = self.by_name(&config.name);
        let id = id.ok_or(ApiError::STREAM_NOT_FOUND)?;
        let old = self.get(id).ok_or(ApiError::STREAM_NOT_FOUND)?;
        // A client that changes the number of replicas thereby calls off the move that is under way.
        let calls_off = config.num_replicas != old.config().num_replicas;
        let config = self.may_update(id, &self.as_mirror(config), calls_off)?;
        self.check_origins(&config)?;
        self.check_cycle(&config)?;
        self.check_meeting(&config)?;
        let old = self.get(id).ok_or(ApiError::STREAM_NOT_FOUND)?;
        rules::check_consumers(old, &config)?;
        self.check_takers(old.config(), &config)?;
        let reserved = rules::reserved(old.config(), config.storage);
        self.check_reservation(&config, reserved)?;
        Ok(config)
    }

    /// Returns the number of bytes of messages that the group's streams hold, in the log and in memory, for
    /// the limits of the node's operator.
    #[must_use]
    pub const fn held(&self) -> Held {
        self.held
    }

    /// Checks that the operator's limits have room for a message of `bytes` bytes, before the leader proposes
    /// the message; `beside` is the number of bytes that other groups on this node hold.
    ///
    /// # Errors
    ///
    /// Returns the error with which the server answers the publisher: the account's storage or memory is
    /// full.
    #[inline]
    pub fn check_quota(
        &self,
        stream: StreamNumber,
        bytes: usize,
        beside: Held,
    ) -> Result<(), ApiError> {
        if self.limits == AccountLimits::NONE {
            return Ok(());
        }
        let stream = self.get(stream).ok_or(ApiError::STREAM_NOT_FOUND)?;
        let (bytes, held) = (bytes as u64, self.held.and(beside));
        if stream.in_memory() {
            if held.memory_bytes.saturating_add(bytes) > self.limits.memory_bytes {
                return Err(ApiError::MEMORY_EXCEEDED);
            }
        } else if held.file_bytes.saturating_add(bytes) > self.limits.file_bytes {
            return Err(ApiError::STORAGE_EXCEEDED);
        }
        Ok(())
    }

    /// Applies a committed entry, with its log record at position `lsn`. Appends one outcome for each command
    /// to `out`, from which the leader answers the clients.
    ///
    /// # Errors
    ///
    /// Returns an error if the entry holds bytes that only a newer version of this program writes, or none.
    /// The streams are then in an undefined state, and the node must stop.
    pub fn apply(
        &mut self,
        lsn: u64,
        entry: &Bytes,
        out: &mut Vec<Outcome>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EntryError> {
        let decoded = Entry::decode(entry)?;
        self.now_us = self.now_us.max(decoded.time_us());
        let context = Context {
            lsn,
            entry,
            now: self.now_us,
            past_log: false,
        };
        self.apply_all(context, decoded.commands(), out, effects)
    }

    /// Applies commands that bypass the log to streams in memory; refuses commands to other streams, because
    /// those must be in the log.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Streams::apply`], after which the node must stop.
    pub fn apply_memory(
        &mut self,
        entry: &Bytes,
        out: &mut Vec<Outcome>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EntryError> {
        let decoded = Entry::decode(entry)?;
        self.memory_now_us = self.memory_now_us.max(decoded.time_us());
        let context = Context {
            lsn: 0,
            entry,
            now: self.memory_now_us,
            past_log: true,
        };
        self.apply_all(context, decoded.commands(), out, effects)
    }

    fn apply_all(
        &mut self,
        context: Context<'_>,
        mut commands: Commands<'_>,
        out: &mut Vec<Outcome>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EntryError> {
        while let Some(command) = commands.next() {
            let command = command?;
            let id = command.stream;
            if command.kind == Kind::Import {
                self.import(context, &command, &mut commands, out, effects)?;
                continue;
            }
            if command.kind == Kind::Restore {
                self.restore_part(context, &command, &mut commands, out, effects)?;
                continue;
            }
            if command.kind == Kind::Atomic {
                self.apply_batch(context, &command, &mut commands, out, effects)?;
                continue;
            }
            if command.kind == Kind::TakeIn {
                self.take_in(context, &command, &mut commands, out, effects)?;
                continue;
            }
            let done = match command.kind {
                Kind::Publish => self.publish(context, &command, effects),
                Kind::CreateStream
                | Kind::CreateRetaining
                | Kind::CreateRestoring
                | Kind::CreateWithOrigins
                | Kind::CreateByConsumers
                    if !context.past_log =>
                {
                    self.create(&command, context.now, effects)
                }
                _ => self.change(context, &command, effects),
            };
            out.push(done.unwrap_or_else(|refusal| match refusal {
                Refusal::Duplicate(seq) => Outcome::Duplicate { stream: id, seq },
                Refusal::Error(error) => Outcome::Refused { stream: id, error },
            }));
        }
        Ok(())
    }

    #[inline]
    fn publish(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        let stream = stream_of(&mut self.streams, command, context.past_log)?;
        let accepted = stream.check(command, context.now, None)?;
        let before = Totals::of(stream);
        let (place, body) = context.keep(stream, command);
        let seq = stream.store(command, &accepted, place, context.now, body, effects);
        let due = stream.due_after_store(accepted.due_us);
        self.schedule.lower(stream, due);
        self.held.count(before, stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.reclaiming.note(stream);
        Ok(Outcome::Stored {
            stream: command.stream,
            seq,
        })
    }

    /// Applies the publishes of an atomic batch: all of them, or none if the stream refuses one, because the
    /// publisher relies on that.
    fn apply_batch(
        &mut self,
        context: Context<'_>,
        atomic: &Command<'_>,
        commands: &mut Commands<'_>,
        out: &mut Vec<Outcome>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), EntryError> {
        let id = atomic.stream;
        let count = atomic
            .payload
            .first_chunk()
            .map_or(0, |n| u32::from_le_bytes(*n));
        let mut batch = Vec::new();
        for command in commands.by_ref().take(count as usize) {
            batch.push(command?);
        }
        let refused = match self.check_batch(context, atomic, count, &batch) {
            Ok(accepted) => {
                out.push(Outcome::Done);
                let at = out.len() - 1;
                let mut last = StreamSeq::ZERO;
                for (command, accepted) in batch.iter().zip(&accepted) {
                    let stream = self.streams.get_mut(id);
                    let stream = stream.expect("the check found the stream of the batch");
                    let before = Totals::of(stream);
                    let (place, body) = context.keep(stream, command);
                    last = stream.store(command, accepted, place, context.now, body, effects);
                    let due = stream.due_after_store(accepted.due_us);
                    self.schedule.lower(stream, due);
                    self.held.count(before, stream);
                    self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
                    self.reclaiming.note(stream);
                    out.push(Outcome::Stored {
                        stream: id,
                        seq: last,
                    });
                }
                out[at] = Outcome::Batch {
                    stream: id,
                    seq: last,
                    count,
                };
                return Ok(());
            }
            Err(error) => Outcome::Refused { stream: id, error },
        };
        out.extend(std::iter::repeat_n(refused, batch.len() + 1));
        Ok(())
    }

    /// Checks all messages of an atomic batch against the stream as it was before the batch. Returns the
    /// error of the first message that the stream refuses, with which the leader answers the publisher.
    fn check_batch<'a>(
        &mut self,
        context: Context<'_>,
        atomic: &Command<'_>,
        count: u32,
        batch: &[Command<'a>],
    ) -> Result<Vec<super::publish::Accepted<'a>>, ApiError> {
        let whole = batch.len() == count as usize
            && count > 0
            && batch
                .iter()
                .all(|c| c.kind == Kind::Publish && c.stream == atomic.stream);
        if !whole {
            return Err(ApiError::ATOMIC_INCOMPLETE);
        }
        let stream = stream_of(&mut self.streams, atomic, context.past_log)?;
        if !stream.config.allow_atomic {
            return Err(ApiError::ATOMIC_DISABLED);
        }
        let mut stage = Stage::default();
        let mut accepted = Vec::with_capacity(batch.len());
        for command in batch {
            match stream.check(command, context.now, Some(&mut stage)) {
                Ok(one) => accepted.push(one),
                Err(Refusal::Duplicate(_)) => return Err(ApiError::ATOMIC_DUPLICATE),
                Err(Refusal::Error(error)) => return Err(error),
            }
        }
        Ok(accepted)
    }

    /// Checks that no stream other than `except` has a pattern that overlaps a pattern of this configuration,
    /// because only one stream may take a message.
    fn check_overlap(
        &mut self,
        config: &StreamConfig,
        except: Option<StreamNumber>,
    ) -> Result<(), ApiError> {
        match self.patterns.overlapping(&config.subjects, except) {
            Some(_) => Err(ApiError::SUBJECT_OVERLAP),
            None => Ok(()),
        }
    }

    fn check_reservation(&self, config: &StreamConfig, had: u64) -> Result<(), ApiError> {
        let (limit, error) = match config.storage {
            Storage::File => (self.limits.file_bytes, ApiError::STORAGE_EXCEEDED),
            Storage::Memory => (self.limits.memory_bytes, ApiError::MEMORY_EXCEEDED),
        };
        let wants = rules::reserved(config, config.storage);
        let others = self.usage(config.storage).reserved - had;
        if wants > 0 && others.saturating_add(wants) > limit {
            return Err(error);
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, mut stream: Stream) {
        self.changes += 1;
        stream.changed = self.changes;
        self.names.insert(stream.config.name.clone(), stream.id);
        self.patterns.insert(stream.id, &stream.config.subjects);
        self.held.count(Totals::default(), &stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.tally.add(&stream);
        self.schedule.renew(&mut stream);
        self.streams.insert(Box::new(stream));
    }

    /// Applies a command about an existing stream, except the commands that store messages, and keeps the
    /// totals, the schedule and other data about the streams right.
    fn change(
        &mut self,
        context: Context<'_>,
        command: &Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        match command.kind {
            Kind::UpdateStream
            | Kind::UpdateRetaining
            | Kind::UpdateWithOrigins
            | Kind::UpdateByConsumers => {
                return self.update(context, command, effects);
            }
            Kind::DeleteStream => return self.delete(context, command, effects),
            Kind::Made => return self.made(context, command, effects),
            Kind::Freeze => return self.freeze(context, command, effects),
            Kind::Moved => return self.moved(context, command, effects),
            Kind::Renew => return self.renew(context, command, effects),
            Kind::Thaw => return self.thaw(context, command, effects),
            _ => {}
        }
        let stream = stream_of(&mut self.streams, command, context.past_log)?;
        let (before, consumers) = (Totals::of(stream), stream.consumers.len());
        let outcome = match command.kind {
            Kind::Purge => {
                let request: PurgeRequest = parse(command.payload)?;
                let foreseen = self.foreseeing.take(stream.id, &request.filter);
                stream.apply_purge(&request, foreseen, effects)?
            }
            Kind::DeleteMessage => stream.apply_delete(&parse(command.payload)?, effects)?,
            Kind::Expire => {
                stream.expire(context.now, effects);
                self.foreseeing.handle_hint(stream.id, command.payload);
                Outcome::Done
            }
            Kind::Marker => {
                let (place, body) = context.keep(stream, command);
                let due = stream.apply_marker(command, place, context.now, body, effects);
                self.schedule.lower(stream, due);
                Outcome::Done
            }
            Kind::CreateConsumer | Kind::CreateFlowConsumer => {
                stream.create_consumer(command, context.now, effects)?
            }
            Kind::DeleteConsumer => stream.delete_consumer(command, effects)?,
            Kind::ConsumerDelta | Kind::SettlingDelta => {
                stream.change_consumer(command, effects)?
            }
            Kind::ResetConsumer => stream.reset_consumer(command, effects)?,
            // `apply_all` or the match above has already applied each command of this arm, with one
            // exception: the group refuses a command to create a stream that bypasses the log.
            Kind::Publish
            | Kind::Atomic
            | Kind::CreateStream
            | Kind::CreateRetaining
            | Kind::CreateRestoring
            | Kind::Restore
            | Kind::CreateWithOrigins
            | Kind::UpdateWithOrigins
            | Kind::CreateByConsumers
            | Kind::UpdateByConsumers
            | Kind::TakeIn
            | Kind::UpdateStream
            | Kind::UpdateRetaining
            | Kind::DeleteStream
            | Kind::Made
            | Kind::Import
            | Kind::Freeze
            | Kind::Moved
            | Kind::Renew
            | Kind::Thaw => {
                return Err(ApiError::BAD_REQUEST.into());
            }
        };
        if stream.sweep.is_some() {
            self.schedule.lower(stream, 0);
        }
        self.held.count(before, stream);
        self.subjects_most = self.subjects_most.max(stream.content.subjects.len());
        self.tally.count_consumers(consumers, stream);
        self.reclaiming.note(stream);
        Ok(outcome)
    }

    /// Changes the place of a message in the log; returns whether the message was at `from`. The log does not
    /// record this change, because each node compacts its own log and so keeps a message at a place of its
    /// own.
    pub fn relocate(
        &mut self,
        stream: StreamNumber,
        seq: StreamSeq,
        from: Place,
        to: Place,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(stream) else {
            return false;
        };
        let there = stream.place(seq) == Some(from);
        if there {
            stream.content.index.relocate(seq, to);
        }
        there
    }

    /// Returns a lower bound of the time at which a message of any stream next expires, in microseconds since
    /// 1970; `None` if no message ever expires. At that time, the leader proposes the commands that
    /// [`Streams::propose_expiry`] writes, and calls this method again after the group has applied them.
    pub fn next_expiry(&mut self, now_us: u64) -> Option<u64> {
        for _ in 0..LOOKED_AT_MAX {
            let (bound, id) = self.schedule.first()?;
            if bound > now_us {
                return Some(bound);
            }
            let stream = self.streams.get_mut(id);
            let stream = stream.expect("each stream in the schedule exists");
            self.schedule.renew(stream);
            if stream.scheduled_us <= now_us {
                return Some(stream.scheduled_us);
            }
        }
        Some(now_us.saturating_add(1))
    }

    /// Writes a bounded number of commands that remove expired messages from streams of this kind of storage;
    /// returns the number of commands. The leader then proposes the entry.
    ///
    /// # Errors
    ///
    /// Returns an error if the entry is full; the commands written before stay in the entry, and the leader
    /// proposes them first.
    pub fn propose_expiry<B: Buffer>(
        &mut self,
        now_us: u64,
        storage: Storage,
        entry: &mut Encoder<'_, B>,
    ) -> Result<usize, EncodeError> {
        let mut written = 0;
        let mut due = self.schedule.due(now_us, PROPOSED_MAX);
        due.sort_by(|a, b| self.name_of(*a).cmp(&self.name_of(*b)));
        for id in due {
            let stream = self.streams.get_mut(id);
            let stream = stream.expect("each stream in the schedule exists");
            let due = stream.next_due().is_some_and(|due| due <= now_us);
            if due && stream.in_memory() == (storage == Storage::Memory) {
                written += stream.propose_expiry(now_us, entry)?;
            }
            if written >= PROPOSED_MAX {
                break;
            }
        }
        Ok(written)
    }

    fn name_of(&self, id: StreamNumber) -> Option<&str> {
        self.get(id).map(Stream::name)
    }

    /// Panics if an invariant of the group's streams does not hold. Only tests call this, after each entry.
    pub fn check_invariants(&self) {
        assert_eq!(self.names.len(), self.streams.len());
        let mut held = Held::default();
        let mut tally = Tally::default();
        for (name, id) in &self.names {
            let stream = self.get(*id).expect("each name has its stream");
            stream.check_invariants();
            assert!(self.schedule.has(stream), "the schedule lacks {name}");
            assert_eq!((stream.name(), stream.id()), (name.as_str(), *id));
            assert!(*id <= self.last_id);
            tally.add(stream);
            held.count(Totals::default(), stream);
        }
        assert_eq!(held, self.held);
        assert_eq!(tally, self.tally);
        let all = self.streams.values();
        let patterns = all.map(|stream| (stream.id, &stream.config.subjects[..]));
        self.patterns.check_invariants(patterns);
    }
}

impl Context<'_> {
    /// Returns the place in the log at which a stream keeps a published message; for a stream in memory, also
    /// the bytes that the stream keeps.
    #[inline]
    fn keep(&self, stream: &Stream, command: &Command<'_>) -> (Place, Option<Bytes>) {
        if stream.in_memory() {
            let start = command.offset as usize;
            let bytes = &self.entry[start..start + command.encoded_bytes()];
            // The stream gets a copy of the message's bytes, because a slice would keep the memory of the
            // whole entry alive for one message.
            return (Place::default(), Some(Bytes::copy_from_slice(bytes)));
        }
        let place = Place {
            lsn: self.lsn,
            offset: command.offset,
        };
        (place, None)
    }
}

/// Returns the stream that a command names, for a change of the stream's content. Refuses a directory entry,
/// because another group keeps that stream.
#[inline]
fn stream_of<'s>(
    streams: &'s mut ByNumber,
    command: &Command<'_>,
    past_log: bool,
) -> Result<&'s mut Stream, ApiError> {
    let stream = entry_of(streams, command, past_log)?;
    check_here(stream)?;
    Ok(stream)
}

/// Checks that this group may change the content of a stream: that the group keeps the stream and no move or
/// restoration is under way.
#[inline]
fn check_here(stream: &Stream) -> Result<(), ApiError> {
    match (stream.kept.is_here(), stream.transit) {
        (true, Transit::None) => Ok(()),
        // The stream is moving, or a backup is filling it. A client that repeats its request later reaches
        // the group that keeps the stream then.
        (true, _) => Err(ApiError::SYSTEM_UNAVAILABLE),
        (false, _) => Err(ApiError::STREAM_INVALID),
    }
}

/// Returns the stream that a command names, or its directory entry if another group keeps the stream. The
/// commands about moves change both.
#[inline]
fn entry_of<'s>(
    streams: &'s mut ByNumber,
    command: &Command<'_>,
    past_log: bool,
) -> Result<&'s mut Stream, ApiError> {
    match streams.get_mut(command.stream) {
        Some(stream) if !past_log || stream.in_memory() => Ok(stream),
        Some(_) => Err(ApiError::STREAM_INVALID),
        None => Err(ApiError::STREAM_NOT_FOUND),
    }
}

pub(super) fn parse<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(payload).map_err(ApiError::invalid_json)
}

#[cfg(test)]
mod tests;
