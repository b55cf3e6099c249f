//! Holds one stream: its configuration, its messages and the ids of recent messages, and answers queries on
//! them.
//!
//! This module owns the queries, the storing of a message, and the removal of messages beyond a limit.
//! [`super::publish`] owns the admission of messages, and [`super::streams`] the invariants between streams.

use tidegate_cluster::groups::GroupId;

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::block::{Flags, MESSAGE_BYTES_MAX, Slot};
use super::command::{Command, Place};
use super::consumers::StreamConsumer;
use super::content::Content;
use super::dedup::Dedup;
use super::filter::Filter;
use super::foreseen::Foreseen;
use super::home::Home;
use super::index::Bulk;
use super::intake::Progress;
use super::mapping::{Mapping, Republished};
use super::moving::Transit;
use super::outcome::Effect;
use super::publish::{Accepted, Rollup};
use super::subjects::Name;
use super::wanted::Wanted;
use crate::bits::LEN;
use crate::convert::{or_zero, positive};
use crate::schema::config::{Discard, StreamConfig};
use crate::schema::number::{DirectoryNumber, MoveNumber, StreamNumber};
use crate::schema::sequence::StreamSeq;

/// The number of messages of a subject above which a roll-up removes the subject's messages in one pass, and
/// reports one [`Effect::Purged`] in place of an effect for each message. A smaller number costs less as
/// single effects.
const BULK_MIN: u64 = 256;

/// A stream as one group knows it, which each node of the group holds: configuration, messages and consumers,
/// and the group that keeps the stream.
#[derive(Debug)]
pub struct Stream {
    pub(super) id: StreamNumber,
    pub(super) config: StreamConfig,
    pub(super) limits: Limits,
    /// The mappings of subjects, compiled from the configuration once, so that the leader need not compile
    /// them for each message.
    pub(super) mapping: Option<Box<Mapping>>,
    pub(super) created_us: u64,
    pub(super) kept: Home,
    /// The value that [`super::Streams::changes`] had when the stream's configuration last changed, or when
    /// the group created the stream. Callers notice a change by this number.
    pub(super) changed: u64,
    /// A lower bound of the time at which the stream's next message expires, in microseconds since 1970; see
    /// [`super::schedule`]. The schedule has the stream at this time.
    pub(super) scheduled_us: u64,
    /// The number of the last snapshot that need not copy the stream any more, because it has a copy or is
    /// older than the stream.
    pub(super) copied_for: u64,
    /// In the directory, `moving` is the group to which the stream is moving, and `moves` is the number of
    /// the stream's moves so far. In another group that the stream leaves or enters, `moves` is the number of
    /// that move.
    pub(super) moving: Option<GroupId>,
    pub(super) moves: MoveNumber,
    /// The state of the stream's move in this group. While the stream is frozen or a copy, no command except
    /// an import changes its content, so that copy and stream end equal.
    pub(super) transit: Transit,
    pub(super) content: Content,
    pub(super) dedup: Dedup,
    /// The id of the message that the stream stored last; empty if that message has no id. A publisher can
    /// make its message depend on this id.
    pub(super) last_msg_id: Vec<u8>,
    pub(super) consumers: BTreeMap<Box<str>, StreamConsumer>,
    /// The consumers by filter, if the stream keeps messages for its consumers. By this index the stream
    /// finds the consumers that need a message.
    pub(super) wanted: Wanted,
    /// The range of messages in which the stream has still to look for messages without a consumer, if the
    /// stream keeps messages by interest; see [`super::retention`].
    pub(super) sweep: Option<(StreamSeq, StreamSeq)>,
    /// The point that the stream has reached in each of its origins, by the keys of its sources, so that it
    /// takes in no message twice.
    pub(super) intakes: BTreeMap<String, Progress>,
}

/// The limits of a stream's configuration in the units in which the stream uses them. `u64::MAX` is no limit,
/// except where a field says otherwise. The configuration has other units and marks a missing limit in other
/// ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) per_subject: u64,
    pub(super) message_bytes: u64,
    /// The age limit of messages in microseconds; 0 is no limit. The stream removes older messages.
    pub(super) age_us: u64,
    pub(super) dedup_us: u64,
    /// The lifetime of markers in seconds; 0 means that the stream stores no markers when messages expire.
    pub(super) marker_ttl_secs: u64,
    pub(super) discard_new: bool,
}

impl Limits {
    pub(super) fn of(config: &StreamConfig) -> Self {
        let limit = |n: i64| positive(n).unwrap_or(u64::MAX);
        // Nanoseconds become microseconds rounded up, so that the stream removes no message early.
        let micros = |ns: i64| or_zero(ns).div_ceil(1000);
        Self {
            messages: limit(config.max_msgs),
            bytes: limit(config.max_bytes),
            per_subject: limit(config.max_msgs_per_subject),
            message_bytes: limit(config.max_msg_size.into()).min(MESSAGE_BYTES_MAX.into()),
            age_us: micros(config.max_age),
            dedup_us: micros(config.duplicate_window),
            marker_ttl_secs: or_zero(config.subject_delete_marker_ttl) / 1_000_000_000,
            discard_new: config.discard == Discard::New,
        }
    }
}

/// The counts, sizes, numbers and times of a stream's messages, which the server reports to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// The number of messages in the stream, without the removed ones.
    pub messages: u64,
    /// The sum of the sizes of the messages, in bytes. As in nats-server, the size of a message is the length
    /// of subject, headers and payload, and 30 bytes (34 with headers).
    pub bytes: u64,
    /// The number of the stream's first message; in an empty stream, the number that the next message will
    /// get. Clients begin to read there.
    pub first_seq: StreamSeq,
    /// The number of the last message that the stream ever stored; 0 before the first message. Clients see by
    /// it whether the stream has grown.
    pub last_seq: StreamSeq,
    /// The time at which the stream stored its first message, in microseconds since 1970; 0 in an empty
    /// stream. Clients see by it how far back the stream reaches.
    pub first_time_us: u64,
    /// The time at which the stream stored its last message, in microseconds since 1970, even if it has
    /// removed that message since; 0 before the first message.
    pub last_time_us: u64,
    /// The number of subjects that have messages in the stream.
    pub num_subjects: u64,
    /// The number of removed messages between the stream's first message and its last, that is, the number of
    /// gaps that a consumer skips.
    pub num_deleted: u64,
}

/// The place of a message in the log, and the facts about the message that the stream knows without reading
/// the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The place of the message in the log. For a stream in memory this is the default place, and
    /// [`Stream::body`] returns the message.
    pub place: Place,
    /// The time at which the stream stored the message, in microseconds since 1970, which the server tells to
    /// receivers.
    pub time_us: u64,
    /// The size of the message in bytes, as the stream counts it (see [`StreamState::bytes`]).
    pub bytes: u32,
    /// The message's subject, which the stream keeps in its index.
    pub subject: Name,
}

impl Stream {
    pub(super) fn new(
        id: StreamNumber,
        config: StreamConfig,
        created_us: u64,
        in_memory: bool,
    ) -> Self {
        let limits = Limits::of(&config);
        let mapping = Mapping::of(&config);
        let mut content = Content::new(config.first_seq.max(StreamSeq::FIRST), in_memory);
        content
            .subjects
            .set_chained(is_chained(&limits), std::iter::empty());
        Self {
            id,
            config,
            limits,
            mapping,
            created_us,
            kept: Home::Here,
            changed: 0,
            scheduled_us: super::schedule::NEVER,
            copied_for: 0,
            moving: None,
            moves: MoveNumber::ZERO,
            transit: Transit::None,
            content,
            dedup: Dedup::new(),
            last_msg_id: Vec::new(),
            consumers: BTreeMap::new(),
            wanted: Wanted::default(),
            sweep: None,
            intakes: BTreeMap::new(),
        }
    }

    /// Returns the stream's number in its group. The group never gives this number to another stream, so
    /// commands and effects name a stream by it.
    #[must_use]
    pub const fn id(&self) -> StreamNumber {
        self.id
    }

    /// Returns the stream's directory number. The result is right only in the group of all nodes, which keeps
    /// the directory.
    #[must_use]
    pub const fn entry_number(&self) -> DirectoryNumber {
        DirectoryNumber::of_entry(self.id)
    }

    /// Returns the stream's name, by which clients address it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the stream's configuration, with the defaults that the group filled in.
    #[must_use]
    pub const fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// Returns the time at which the group created the stream, in microseconds since 1970.
    #[must_use]
    pub const fn created_us(&self) -> u64 {
        self.created_us
    }

    /// Returns the subject under which the stream stores a message that a client publishes to `subject`, if
    /// the stream's transform changes it. The caller draws the number `random` for each message, because some
    /// transforms choose a subject at random.
    #[must_use]
    #[inline]
    pub fn stored_subject(&self, subject: &[u8], random: u64) -> Option<Vec<u8>> {
        self.mapping.as_ref()?.stored_subject(subject, random)
    }

    /// Returns whether the stream stores some messages under other subjects than those to which clients
    /// publish them. Then the leader must compute the stored subject before it proposes a message.
    #[must_use]
    #[inline]
    pub fn has_transform(&self) -> bool {
        self.mapping.as_ref().is_some_and(|m| m.has_transform())
    }

    /// Returns the subject to which the leader publishes a message again, after the stream has stored the
    /// message under `subject`. Returns `None` if the leader does not publish it again. The caller draws the
    /// number `random` for each message, because some transforms choose a subject at random.
    #[must_use]
    pub fn republished_subject(&self, subject: &[u8], random: u64) -> Option<Vec<u8>> {
        self.mapping.as_ref()?.republished_subject(subject, random)
    }

    /// Returns whether the leader publishes some of the stream's messages again, so that the stream must note
    /// the facts for that.
    #[inline]
    pub(super) fn republishes(&self) -> bool {
        self.mapping.as_ref().is_some_and(|m| m.republishes())
    }

    /// Returns whether the nodes keep the stream's messages only in memory, so that a restart loses them.
    #[must_use]
    pub const fn in_memory(&self) -> bool {
        self.content.in_memory()
    }

    /// Returns the home group of the stream: the group that keeps the stream's messages and consumers.
    #[must_use]
    pub const fn home(&self) -> Home {
        self.kept
    }

    /// Returns a number that changes when the stream's configuration changes, so that a caller knows whether
    /// its copy is out of date. Two of these numbers are comparable only if the same node returned both since
    /// its start.
    #[must_use]
    pub const fn changed(&self) -> u64 {
        self.changed
    }

    /// Returns the state of the stream's messages, in the numbers that clients see in the answer to
    /// `STREAM.INFO`.
    #[must_use]
    pub fn state(&self) -> StreamState {
        let content = &self.content;
        let first = content.index.get(content.first_seq);
        let span = content.last_seq.next().distance(content.first_seq);
        StreamState {
            messages: content.messages,
            bytes: content.bytes,
            first_seq: content.first_seq,
            last_seq: content.last_seq,
            first_time_us: first.map_or(0, |slot| slot.time_us),
            last_time_us: content.last_time_us,
            num_subjects: content.subjects.len() as u64,
            num_deleted: span - content.messages,
        }
    }

    /// Returns the number of subjects with messages in the stream, by which a caller estimates the cost of a
    /// query over subjects.
    #[must_use]
    pub fn subjects_len(&self) -> u64 {
        self.content.subjects.len() as u64
    }

    /// Returns the place, time, size and subject of the message with this number, so that a caller can read
    /// and deliver the message; `None` if the stream does not hold the message.
    #[must_use]
    pub fn message(&self, seq: StreamSeq) -> Option<Stored> {
        let slot = self.content.index.get(seq)?;
        Some(Stored {
            place: slot.place,
            time_us: slot.time_us,
            bytes: slot.bytes,
            subject: self.content.subjects.name(slot.subject)?.clone(),
        })
    }

    /// Iterates over the message ids that the stream remembers, oldest first, each with the number of its
    /// message and the time in microseconds since 1970. All nodes remember the same ids after the same entry.
    pub fn remembered_ids(&self) -> impl Iterator<Item = (&[u8], StreamSeq, u64)> {
        self.dedup.iter_from(0)
    }

    /// Returns the place in the log at which a node reads the message with this number; `None` if the stream
    /// does not hold the message.
    #[must_use]
    pub fn place(&self, seq: StreamSeq) -> Option<Place> {
        self.content.index.get(seq).map(|slot| slot.place)
    }

    /// Returns whether the stream holds the message with this number, or has removed it.
    #[must_use]
    pub fn contains(&self, seq: StreamSeq) -> bool {
        self.content.index.get(seq).is_some()
    }

    /// Returns, for a stream in memory, the command that stored the message. The caller reads the command
    /// with [`Command::read`] from offset 0.
    #[must_use]
    pub fn body(&self, seq: StreamSeq) -> Option<&Bytes> {
        self.content.body(seq)
    }

    /// Returns the number of the stream's first message, from number `seq` on, with a subject that the filter
    /// passes. A consumer delivers this message next.
    #[must_use]
    pub fn next_at(&self, seq: StreamSeq, filter: &mut Filter) -> Option<StreamSeq> {
        self.content.next(seq, filter)
    }

    /// Counts the messages, from number `seq` on, with subjects that the filter passes, for example the
    /// messages that a consumer has yet to deliver.
    #[must_use]
    pub fn count_from(&self, seq: StreamSeq, filter: &mut Filter) -> u64 {
        self.content.count_from(seq, filter)
    }

    /// Returns the number of the last message with a subject that the filter passes, at which some consumers
    /// start.
    #[must_use]
    pub fn last_matching(&self, filter: &Filter) -> Option<StreamSeq> {
        self.content.last_matching(filter)
    }

    /// Returns the number of the last message with a subject that the pattern matches, for a client that asks
    /// for the last message of a subject.
    #[must_use]
    pub fn last_of(&self, pattern: &[u8]) -> Option<StreamSeq> {
        self.last_matching(&Filter::new([pattern]))
    }

    /// Returns the number of the first message that the stream stored at `time_us` or later, in microseconds
    /// since 1970; the number after the last message if no message is that young. A consumer that starts at a
    /// time begins at this number.
    #[must_use]
    pub fn seq_at_time(&self, time_us: u64) -> StreamSeq {
        let found = self.content.index.at_time(time_us);
        found.unwrap_or_else(|| self.content.last_seq.next())
    }

    /// Iterates over the subjects that have messages and that the filter passes, each with its count of
    /// messages, in no particular order. The answer to `STREAM.INFO` lists them.
    pub fn subjects<'a>(&'a self, filter: &'a Filter) -> impl Iterator<Item = (&'a Name, u64)> {
        let all = self.content.subjects.iter();
        all.filter(|(_, name, _)| filter.matches(name))
            .map(|(_, name, stat)| (name, stat.count.into()))
    }

    /// Returns the numbers of removed messages between the stream's first message and its last, at most
    /// `limit` of them, because the answer to `STREAM.INFO` lists them.
    #[must_use]
    pub fn deleted(&self, limit: usize) -> Vec<StreamSeq> {
        let mut deleted = Vec::new();
        let mut at = self.content.first_seq;
        while at <= self.content.last_seq && deleted.len() < limit {
            let next = self.content.index.next(at);
            let next = next.unwrap_or_else(|| self.content.last_seq.next());
            let room = (limit - deleted.len()) as u64;
            deleted.extend(at.up_to(next.min(at.saturating_after(room))));
            at = next.next();
        }
        deleted
    }

    /// Returns the size of the stream's index and subjects in memory, in bytes; the messages of a stream in
    /// memory do not count. Operators see this number.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.content.index.memory_bytes() + self.content.subjects.memory_bytes()
    }

    /// Iterates over the stream's consumers in the order of their names, which all nodes share.
    pub fn consumers(&self) -> impl Iterator<Item = (&str, &StreamConsumer)> {
        self.consumers.iter().map(|(name, c)| (&**name, c))
    }

    /// Iterates over the names of the stream's consumers in order: the names after `name`, or all. So a
    /// caller can visit the consumers in parts.
    pub fn consumers_after<'a>(
        &'a self,
        name: Option<&str>,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let after = self.consumers.range::<str, _>((from, Bound::Unbounded));
        after.map(|(name, _)| &**name)
    }

    /// Returns the stream's consumer with this name, and the name as the stream keeps it, which lives as long
    /// as the stream.
    #[must_use]
    pub fn consumer_entry(&self, name: &str) -> Option<(&str, &StreamConsumer)> {
        let (name, consumer) = self.consumers.get_key_value(name)?;
        Some((name, consumer))
    }

    /// Returns the number of the stream's consumers that the log keeps. Consumers that only the leader knows
    /// do not count.
    #[must_use]
    pub fn consumers_len(&self) -> usize {
        self.consumers.len()
    }

    /// Returns the stream's consumer with this name, if the log keeps such a consumer.
    #[must_use]
    pub fn consumer(&self, name: &str) -> Option<&StreamConsumer> {
        self.consumers.get(name)
    }

    /// Stores a message under the number that it has in another stream, group or backup. The leader does not
    /// publish the message again.
    pub(super) fn put(
        &mut self,
        seq: StreamSeq,
        subject: &[u8],
        slot: Slot,
        body: Option<Bytes>,
        effects: &mut Vec<Effect>,
    ) {
        self.content.last_seq = seq.prev();
        let (_, _, subject) = self.content.push(subject, slot, body);
        effects.push(Effect::Stored {
            stream: self.id,
            seq,
            place: slot.place,
            bytes: slot.bytes,
            subject,
            republished: None,
        });
    }

    /// Stores a message that [`Stream::check`] accepted, and removes the messages beyond a limit. Returns the
    /// number of the stored message, which the leader tells to the publisher.
    #[inline]
    pub(super) fn store(
        &mut self,
        command: &Command<'_>,
        accepted: &Accepted<'_>,
        place: Place,
        now: u64,
        body: Option<Bytes>,
        effects: &mut Vec<Effect>,
    ) -> StreamSeq {
        if self.is_without_interest(self.content.last_seq.next(), command.subject) {
            return self.pass_over(command, accepted, now, effects);
        }
        let slot = Slot {
            place,
            time_us: now,
            bytes: accepted.bytes,
            subject: 0,
            flags: accepted.flags,
            due_us: accepted.due_us,
        };
        let last = self.republishes().then(|| self.last_under(command.subject));
        let (seq, id, subject) = self.content.push(command.subject, slot, body);
        self.note_id(accepted, seq);
        let republished = last.map(|last| Republished {
            offset: command.offset,
            time_us: self.content.last_time_us,
            last,
        });
        effects.push(Effect::Stored {
            stream: self.id,
            seq,
            place,
            bytes: accepted.bytes,
            subject,
            republished,
        });
        self.make_room(id, effects);
        match accepted.rollup {
            Rollup::None => {}
            Rollup::Subject => self.roll_up_subject(id, seq, effects),
            Rollup::Matching => self.roll_up_matching(command.subject, seq, effects),
            Rollup::All => self.remove_range(StreamSeq::ZERO, seq.prev(), effects),
        }
        seq
    }

    /// Returns the number of the last message of exactly this subject; 0 if there is none. The leader writes
    /// it into the header of a message that it publishes again.
    fn last_under(&mut self, subject: &[u8]) -> StreamSeq {
        let id = self.content.subjects.find(subject);
        let last = id.and_then(|id| self.content.last_of_mut(id));
        last.unwrap_or_default()
    }

    /// Gives a message a number and does not keep it, because no consumer wants it. As in nats-server, a
    /// roll-up still removes the older messages.
    fn pass_over(
        &mut self,
        command: &Command<'_>,
        accepted: &Accepted<'_>,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> StreamSeq {
        let seq = self.content.pass_over(now);
        self.note_id(accepted, seq);
        match accepted.rollup {
            Rollup::None => {}
            Rollup::Subject => {
                if let Some(id) = self.content.subjects.find(command.subject) {
                    let all = |_, subject| subject == id;
                    let bulk = self.content.remove_where(StreamSeq::ZERO, seq, all);
                    self.tell(bulk, effects);
                }
            }
            Rollup::Matching => {
                if let Ok(pattern) = std::str::from_utf8(command.subject) {
                    let bulk = self.purge_some(pattern, seq, 0, None);
                    self.tell(bulk, effects);
                }
            }
            Rollup::All => self.remove_range(StreamSeq::ZERO, seq, effects),
        }
        seq
    }

    /// Notes the id of the message that the stream has just numbered, so that the stream recognises a
    /// duplicate of it.
    fn note_id(&mut self, accepted: &Accepted<'_>, seq: StreamSeq) {
        self.last_msg_id.clear();
        if let Some(id) = accepted.msg_id {
            self.last_msg_id.extend_from_slice(id);
            // A stream without a window for duplicates may store an id twice in one entry, and a mirror
            // stores what its origin has. The stream then remembers the first of these messages, because a
            // snapshot has each id once.
            if self.dedup.find(id).is_none() {
                // The stream remembers the id by the message's time in place of `now`: the clock of the group
                // from which the stream moved here may have been ahead, so the message's time may be later.
                self.dedup.add(id, seq, self.content.last_time_us);
            }
        }
    }

    /// Removes old messages until the stream respects its limits, after it has stored a message of subject
    /// `id`. The new message may exceed the limits of the subject and of the whole stream.
    fn make_room(&mut self, id: u32, effects: &mut Vec<Effect>) {
        while u64::from(self.content.subjects.stat(id).count) > self.limits.per_subject {
            let first = self.content.first_of(id);
            let first = first.expect("a subject has as many messages as it counts");
            self.remove(first, effects);
        }
        while self.content.messages > self.limits.messages || self.content.bytes > self.limits.bytes
        {
            self.remove(self.content.first_seq, effects);
        }
    }

    /// Removes the messages of subject `id` before message `seq`, which rolls them up, unless a limit has
    /// already removed message `seq`.
    fn roll_up_subject(&mut self, id: u32, seq: StreamSeq, effects: &mut Vec<Effect>) {
        if !self.contains(seq) {
            return;
        }
        let stat = *self.content.subjects.stat(id);
        if u64::from(stat.count) > BULK_MIN {
            let bulk = self
                .content
                .remove_where(stat.first, seq.prev(), |_, s| s == id);
            self.tell(bulk, effects);
            return;
        }
        while let Some(first) = self.content.first_of(id)
            && first < seq
        {
            self.remove(first, effects);
        }
    }

    fn roll_up_matching(&mut self, pattern: &[u8], seq: StreamSeq, effects: &mut Vec<Effect>) {
        if self.contains(seq)
            && let Ok(pattern) = std::str::from_utf8(pattern)
        {
            let bulk = self.purge_some(pattern, seq, 0, None);
            self.tell(bulk, effects);
        }
    }

    /// Removes the messages numbered `from` to `to` from the stream, and reports them in one effect.
    pub(super) fn remove_range(
        &mut self,
        from: StreamSeq,
        to: StreamSeq,
        effects: &mut Vec<Effect>,
    ) {
        let bulk = self.content.remove_range(from, to);
        self.tell(bulk, effects);
    }

    pub(super) fn tell(&self, messages: Bulk, effects: &mut Vec<Effect>) {
        if !messages.is_empty() {
            effects.push(Effect::Purged {
                stream: self.id,
                messages,
            });
        }
    }

    /// Removes the message `seq`, and reports the removal in an effect. Returns whether the stream held the
    /// message.
    #[inline]
    pub(super) fn remove(&mut self, seq: StreamSeq, effects: &mut Vec<Effect>) -> bool {
        let Some(gone) = self.content.remove(seq) else {
            return false;
        };
        effects.push(Effect::Removed {
            stream: self.id,
            seq,
            place: gone.place,
            bytes: gone.bytes,
            subject: gone.subject,
        });
        true
    }

    /// Purges the messages with subjects that match `filter` (empty for all) and numbers below `below` (0 for
    /// all), except the `keep` newest ones. `foreseen` holds the results that this node has prepared for this
    /// filter. Returns the number of purged messages, which the server tells to the client.
    pub(super) fn purge(
        &mut self,
        filter: &str,
        below: StreamSeq,
        keep: u64,
        foreseen: Option<Foreseen>,
        effects: &mut Vec<Effect>,
    ) -> u64 {
        // Message numbers begin at 1, so a purge of messages below number 1 selects no message.
        if below == StreamSeq::FIRST {
            return 0;
        }
        let everything = filter.is_empty() || filter == ">";
        let bulk = if everything
            && keep == 0
            && (below == StreamSeq::ZERO || below > self.content.last_seq)
        {
            let bulk = self.content.remove_all();
            // As in nats-server, after a purge up to a number beyond the last message, the next message gets
            // this number.
            if below > self.content.last_seq.next() {
                self.content.skip_to(below);
            }
            bulk
        } else {
            self.purge_some(filter, below, keep, foreseen)
        };
        let purged = bulk.len();
        self.tell(bulk, effects);
        purged
    }

    fn purge_some(
        &mut self,
        filter: &str,
        below: StreamSeq,
        keep: u64,
        foreseen: Option<Foreseen>,
    ) -> Bulk {
        let to = match below {
            StreamSeq::ZERO => self.content.last_seq,
            below => below.prev(),
        };
        let mut filter = match (foreseen, filter) {
            (Some(foreseen), _) if keep == 0 => return self.content.remove_foreseen(foreseen, to),
            // The purge keeps the newest messages, so the prepared blocks do not fit, but the comparisons of
            // the subjects do.
            (Some(foreseen), _) => foreseen.into_filter(),
            (None, "") => Filter::all(),
            (None, filter) => Filter::new([filter]),
        };
        self.content.remove_matching(&mut filter, to, keep)
    }

    /// Applies a configuration that the caller has checked, and removes the messages beyond the new limits,
    /// so that the stream respects them from now on.
    pub(super) fn update(&mut self, config: StreamConfig, effects: &mut Vec<Effect>) {
        let old = std::mem::replace(&mut self.config, config);
        self.limits = Limits::of(&self.config);
        self.mapping = Mapping::of(&self.config);
        self.change_retention(old.retention, effects);
        self.forget_origins(old.mirror.is_some());
        self.renew_chains();
        let mut over: Vec<u64> = Vec::new();
        for (id, excess) in self.content.subjects.above(self.limits.per_subject) {
            over.resize(id as usize, 0);
            over.push(excess);
        }
        if !over.is_empty() {
            let last = self.content.last_seq;
            let bulk = self.content.remove_where(StreamSeq::ZERO, last, |_, id| {
                let excess = over.get_mut(id as usize).filter(|n| **n > 0);
                excess.map(|n| *n -= 1).is_some()
            });
            self.tell(bulk, effects);
        }
        if let Some(to) = self.surplus_end() {
            self.remove_range(StreamSeq::ZERO, to, effects);
        }
    }

    /// Makes the stream keep the lists of the message numbers of each subject, or drop them: the limits of
    /// the stream decide whether it needs the lists. Without the lists the stream saves their memory.
    pub(super) fn renew_chains(&mut self) {
        let chained = is_chained(&self.limits);
        if chained != self.content.subjects.is_chained() {
            let blocks = self.content.index.blocks_from(StreamSeq::ZERO);
            let messages =
                blocks.flat_map(|b| b.live().iter().map(|bit| (b.seq(bit), b.subject(bit))));
            let old = self.content.subjects.set_chained(chained, messages);
            self.content.discard_chains(old);
        }
    }

    /// Returns the number up to which the stream must remove its oldest messages to respect the limits of
    /// messages and bytes; `None` if it must remove none. One removal up to this number costs less than
    /// single ones.
    fn surplus_end(&self) -> Option<StreamSeq> {
        let mut messages = self.content.messages.saturating_sub(self.limits.messages);
        let mut bytes = self.content.bytes.saturating_sub(self.limits.bytes);
        let mut end = None;
        for block in self.content.index.blocks_from(StreamSeq::ZERO) {
            if messages == 0 && bytes == 0 {
                break;
            }
            let live = block.live().count() as u64;
            if bytes == 0 && messages >= live {
                // The limit of messages removes the whole block, so the loop need not look at each of its
                // messages.
                messages -= live;
                end = block
                    .live()
                    .prev(LEN - 1)
                    .map_or(end, |bit| Some(block.seq(bit)));
                continue;
            }
            block.for_each(block.live(), |seq, counted, _, _| {
                if messages > 0 || bytes > 0 {
                    messages = messages.saturating_sub(1);
                    bytes = bytes.saturating_sub(counted.into());
                    end = Some(seq);
                }
            });
        }
        end
    }

    /// Panics if an invariant of the stream does not hold. Only tests call this, after each command.
    pub fn check_invariants(&self) {
        self.content.check_invariants();
        if !self.kept.is_here() && !self.is_filling() {
            assert_eq!(
                (self.content.last_seq.next(), self.consumers.len()),
                (self.content.first_seq, 0)
            );
        }
        self.check_retention();
        assert_eq!(self.limits, Limits::of(&self.config));
        assert_eq!(self.mapping, Mapping::of(&self.config));
        assert_eq!(self.content.subjects.is_chained(), is_chained(&self.limits));
        if !self.limits.discard_new && !self.is_incomplete() {
            assert!(self.content.messages <= self.limits.messages);
            assert!(self.content.bytes <= self.limits.bytes);
        }
        for consumer in self.consumers.values() {
            consumer.state().check_invariants();
        }
    }
}

/// Returns whether the stream often needs the oldest message of a subject, and so keeps a list for each
/// subject. That is so if the limits allow several messages of a subject, but not any number.
const fn is_chained(limits: &Limits) -> bool {
    limits.per_subject > 1 && limits.per_subject < u64::MAX
}

/// Returns the size of a message in bytes, as a stream counts it. nats-server counts in this way too, so that
/// `max_bytes` means as much here.
pub(super) fn counted_bytes(command: &Command<'_>) -> u64 {
    let headers = command.headers.map_or(0, <[u8]>::len);
    let frame = if headers > 0 { 34 } else { 30 };
    (frame + command.subject.len() + headers + command.payload.len()) as u64
}

/// Returns the flags of a message with this time to live, and the time at which the message expires, in
/// microseconds since 1970. The index keeps both with the message.
pub(super) fn lifetime(ttl: super::headers::Ttl, limits: &Limits, now: u64) -> (Flags, u64) {
    use super::headers::Ttl;
    match ttl {
        Ttl::Unset => (Flags::default(), 0),
        Ttl::Never => (Flags::NEVER, 0),
        Ttl::Seconds(secs) => {
            // In a stream with markers, a message lives at least as long as a marker. Otherwise the message
            // could expire before an older marker of its subject, and then leave no marker. In a stream with
            // one message for each subject, this cannot happen.
            let least = if limits.per_subject == 1 {
                0
            } else {
                limits.marker_ttl_secs
            };
            let micros = secs.max(least).saturating_mul(1_000_000);
            (Flags::TTL, now.saturating_add(micros))
        }
    }
}
