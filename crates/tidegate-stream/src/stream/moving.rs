//! Moves a stream from one group to another: exports parts of the stream in the group that keeps it (the home
//! group), and imports them in the group that will keep it (the target).
//!
//! The directory, the list of all streams, records that a stream moves, and to which group
//! ([`Stream::moving`]). The target creates a *copy*, which commands in the target's log fill
//! ([`Transit::Filling`]). Each import brings the data after a [`Cursor`], and the copy refuses an import at
//! any other cursor, so that it takes no data twice even if the target's leader changes. Meanwhile the home
//! group serves the stream. For the last part the home group freezes the stream ([`Transit::Frozen`]): from
//! then on the stream does not change, and the copy ends with the same content. If the directory calls the
//! move off, the home group thaws the stream, and does not freeze it again for that move's number.
//!
//! A copy has at least the messages that the home group has below the copy's cursor; once the stream is
//! frozen, the copy removes the messages that the home group has removed meanwhile.
//!
//! ```text
//! import     cursor from: stage u8, number u64 | cursor to: stage u8, number u64 | the data between
//! messages   number of the first message u64 | count of all messages if frozen, else u64::MAX, u64
//!            | of each message number u64, time u64, flags u32, due time u64
//!            the messages follow as publishes
//! gone       of each run of numbers without messages the first u64 and the last u64
//! ids        of each id it u32 and bytes, number u64, time u64
//! consumers  of each name u32 and bytes, made at u64, configuration u32 and JSON, state u32 and bytes
//! rest       made at u64 | last number u64 | last time u64 | last id u32 and bytes
//!            of a stream with origins: how far it has got in each
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_cluster::groups::{ALL, GroupId};

use super::block::{Flags, MESSAGE_BYTES_MAX, Slot};
use super::command::{Command, ENTRY_HEADER_BYTES, Encoder, Kind, Place};
use super::consumers::StreamConsumer;
use super::home::Home;
use super::intake::Progress;
use super::outcome::Effect;
use super::placement::Moving;
use super::shared::SharedConfig;
use super::single::{Stream, counted_bytes};
use super::wire::{Reader, put_bytes, put_u32, put_u64};
use super::wire::{RestoreError, SEQ_MAX};
use crate::consumer::State;
use crate::convert::saturating_usize;
use crate::schema::error::ApiError;
use crate::schema::number::{MoveNumber, StreamNumber};
use crate::schema::sequence::StreamSeq;

/// The limit on the runs of numbers without messages that one export holds, so that it stays small.
/// `LOOKED_AT_MAX` limits the message numbers among which one export looks for such runs, so that it does not
/// take long.
const RUNS_MAX: usize = 16 * 1024;
const LOOKED_AT_MAX: u64 = 1 << 20;
const ROW_BYTES: usize = 28;
/// The number that stands in a snapshot for a stream that a backup is filling, in place of the stage of a
/// copy.
const RESTORING: u8 = 8;

/// The kind of data that the copy of a moving stream needs next. The copy asks the home group for one kind
/// after the other, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The copy needs the stream's messages, which the home group may still change.
    Messages,
    /// The copy needs the numbers of the messages that the home group has removed since the copy got them, so
    /// that the copy removes them too.
    Gone,
    /// The copy needs the ids of recent messages, by which the stream recognises duplicates, also after the
    /// move.
    Ids,
    /// The copy needs the stream's consumers with their states, so that they continue in the target group.
    Consumers,
    /// The copy needs the stream's time of creation, and the number, time and id of its last message, so that
    /// it continues as the stream would.
    Rest,
    /// The copy is complete and needs no more data, so the target group serves the stream.
    Done,
}

impl Stage {
    const ALL: [Self; 6] = [
        Self::Messages,
        Self::Gone,
        Self::Ids,
        Self::Consumers,
        Self::Rest,
        Self::Done,
    ];

    const fn number(self) -> u8 {
        self as u8
    }

    fn of(number: u8) -> Result<Self, RestoreError> {
        let stage = Self::ALL.get(usize::from(number)).copied();
        stage.ok_or(RestoreError::Inconsistent("how far a copy is"))
    }
}

/// The progress of the copy of a moving stream, by which the home group knows the data to export next: the
/// place in the stream that the copy has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The kind of data that the copy needs next from the home group.
    pub stage: Stage,
    /// The place in the stage: in the stages `Messages` and `Gone`, the number of the message with which the
    /// next data begins; in the stages `Ids` and `Consumers`, the number of ids or consumers that the copy
    /// already has. The next export begins there.
    pub at: u64,
}

impl Cursor {
    /// The cursor of a copy of a moving stream that has no data yet, with which each move begins.
    pub const START: Self = Self::new(Stage::Messages, 0);

    const fn new(stage: Stage, at: u64) -> Self {
        Self { stage, at }
    }

    const fn at_message(stage: Stage, seq: StreamSeq) -> Self {
        Self::new(stage, seq.get())
    }

    /// Returns the number of the message with which the next data begins, in the stages `Messages` and
    /// `Gone`, in which the cursor counts messages.
    const fn message(self) -> StreamSeq {
        StreamSeq::new(self.at)
    }

    /// Returns the cursor of a copy that has got `items` more ids or consumers. The number in the cursor
    /// comes from another node, so it may be any `u64`, and the sum stops at the highest number.
    const fn after(self, items: usize) -> Self {
        Self::new(self.stage, self.at.saturating_add(items as u64))
    }

    fn put(self, out: &mut Vec<u8>) {
        out.push(self.stage.number());
        put_u64(out, self.at);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        Ok(Self::new(Stage::of(from.u8()?)?, from.u64()?))
    }
}

/// The state of a stream's move, in one of the groups that the move concerns. It decides which commands the
/// group accepts for the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transit {
    /// The stream is not moving, or its move has not reached this group yet. The stream takes all commands.
    #[default]
    None,
    /// The stream moves from this group to another, or has moved. The stream does not change in this group
    /// unless it thaws, so that the copy gets all of it.
    Frozen,
    /// The stream moves to this group, and the copy in this group has reached this cursor. The copy takes
    /// only imports that begin there.
    Filling(Cursor),
    /// The stream is being restored from a backup, and has taken this many of the backup's parts; see
    /// `stream::restoring`. The next part must have this number.
    Restoring(u64),
}

impl Transit {
    /// Writes the state of the move to a snapshot, so that a restored node continues it: the variant as a
    /// `u8` (0 none, 1 frozen, from 2 on the stage of a copy, 8 restored from a backup), and the number in
    /// the copy's cursor, or of the backup's next part, as a `u64`.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let (which, at) = match self {
            Self::None => (0, 0),
            Self::Frozen => (1, 0),
            Self::Filling(cursor) => (2 + cursor.stage.number(), cursor.at),
            Self::Restoring(parts) => (RESTORING, parts),
        };
        out.push(which);
        put_u64(out, at);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        Ok(match (from.u8()?, from.u64()?) {
            (0, _) => Self::None,
            (1, _) => Self::Frozen,
            (RESTORING, parts) => Self::Restoring(parts),
            (which, at) => match Stage::of(which - 2)? {
                Stage::Done => return Err(RestoreError::Inconsistent("how far a copy is")),
                stage => Self::Filling(Cursor::new(stage, at)),
            },
        })
    }
}

/// Collects the data of a moving stream that the home group exports after a cursor, for the copy in the
/// target group. The export asks for one message at a time, so that the caller can wait while the disk reads
/// the message.
#[derive(Debug)]
pub struct Export {
    from: Cursor,
    /// The lowest number that the next message in this export can have, so that each message is exported
    /// once.
    next: StreamSeq,
    bytes_max: usize,
    rows: Vec<u8>,
    messages: Vec<u8>,
}

/// The next step of an export, which the caller of [`Export::poll`] has to carry out, because the export
/// itself cannot read the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The caller must read this message from the log and pass it to [`Export::add`], then call
    /// [`Export::poll`] again.
    Message(StreamSeq),
    /// The caller must freeze the stream first: the home group has no more data to export while the stream
    /// can change, and the copy must get the last state.
    Freeze,
    /// The export needs no more messages and is complete. The field holds the encoded entry that imports the
    /// data. The entry names stream number 0, which the target replaces by the number of its copy.
    Nothing(Vec<u8>),
}

impl Export {
    /// Begins an export of the data after the cursor `from`, of about `bytes_max` bytes, so that one entry of
    /// the target's log holds it.
    #[must_use]
    pub fn new(from: Cursor, bytes_max: usize) -> Self {
        let mut messages = Vec::new();
        Encoder::begin(&mut messages, 0);
        Self {
            from,
            next: from.message(),
            bytes_max,
            rows: Vec::new(),
            messages,
        }
    }

    /// Returns the next step of this export, which the caller has to carry out before it calls this again.
    #[must_use]
    pub fn poll(&mut self, stream: &Stream) -> Need {
        if self.from.stage == Stage::Messages {
            let next = stream.content.index.next(self.next);
            let bytes = next.and_then(|seq| stream.content.index.get(seq));
            let bytes = bytes.map_or(0, |slot| slot.bytes as usize);
            let held = self.messages.len() + self.rows.len();
            if let Some(seq) =
                next.filter(|_| self.rows.is_empty() || held + bytes < self.bytes_max)
            {
                return Need::Message(seq);
            }
        } else if stream.transit != Transit::Frozen {
            return Need::Freeze;
        }
        let mut payload = Vec::new();
        self.from.put(&mut payload);
        let mut body = Vec::new();
        let Some(to) = self.rest(stream, &mut body) else {
            return Need::Freeze;
        };
        to.put(&mut payload);
        payload.extend_from_slice(&body);
        let mut entry = Vec::new();
        let import = Command::new(Kind::Import, StreamNumber::NONE, b"", &payload);
        // The encoder always accepts the import, because its subject and payload are far below the limits of
        // an entry.
        let written = Encoder::begin(&mut entry, 0).command(&import);
        debug_assert!(written.is_ok(), "{written:?}");
        entry.extend_from_slice(&self.messages[ENTRY_HEADER_BYTES..]);
        Need::Nothing(entry)
    }

    /// Adds the message that [`Need::Message`] asked for, unless the stream has removed the message since;
    /// then the copy does not need it.
    pub fn add(&mut self, stream: &Stream, seq: StreamSeq, message: &Command<'_>) {
        self.next = seq.next();
        let Some(slot) = stream.content.index.get(seq) else {
            return;
        };
        let command = Command {
            headers: message.headers.filter(|h| !h.is_empty()),
            ..Command::new(
                Kind::Publish,
                StreamNumber::NONE,
                message.subject,
                message.payload,
            )
        };
        let written = Encoder::resume(&mut self.messages).command(&command);
        debug_assert!(written.is_ok(), "{written:?}");
        put_u64(&mut self.rows, seq.get());
        put_u64(&mut self.rows, slot.time_us);
        put_u32(&mut self.rows, slot.flags.bits());
        put_u64(&mut self.rows, slot.due_us);
    }

    /// Writes the data of the export that follows the cursor, and returns the cursor that the copy reaches
    /// with this data; `None` if the home group must freeze the stream first.
    fn rest(&self, stream: &Stream, body: &mut Vec<u8>) -> Option<Cursor> {
        let content = &stream.content;
        let frozen = stream.transit == Transit::Frozen;
        match self.from.stage {
            Stage::Messages => {
                let end = content.index.next(self.next).is_none();
                if self.rows.is_empty() && !frozen {
                    return None;
                }
                put_u64(body, content.first_seq.get());
                put_u64(body, if frozen { content.messages } else { u64::MAX });
                body.extend_from_slice(&self.rows);
                Some(match end && frozen {
                    true => Cursor::new(Stage::Gone, 0),
                    false => Cursor::at_message(Stage::Messages, self.next),
                })
            }
            Stage::Gone => {
                let (to, runs) = stream.runs(self.from.message());
                for (first, last) in runs {
                    put_u64(body, first.get());
                    put_u64(body, last.get());
                }
                Some(match to > content.last_seq {
                    true => Cursor::new(Stage::Ids, 0),
                    false => Cursor::at_message(Stage::Gone, to),
                })
            }
            Stage::Ids => {
                let ids = stream.dedup.iter_from(self.from.at);
                for (n, (id, seq, time_us)) in ids.enumerate() {
                    if body.len() >= self.bytes_max {
                        return Some(self.from.after(n));
                    }
                    put_bytes(body, id);
                    put_u64(body, seq.get());
                    put_u64(body, time_us);
                }
                Some(Cursor::new(Stage::Consumers, 0))
            }
            Stage::Consumers => {
                // The number in the cursor comes from another node and need not fit into a `usize`.
                let skip = saturating_usize(self.from.at);
                let consumers = stream.consumers.iter().skip(skip);
                for (n, (name, consumer)) in consumers.enumerate() {
                    if body.len() >= self.bytes_max {
                        return Some(self.from.after(n));
                    }
                    consumer.put(name, &consumer.state.encode(), body);
                }
                Some(Cursor::new(Stage::Rest, 0))
            }
            Stage::Rest | Stage::Done => {
                put_u64(body, stream.created_us);
                put_u64(body, content.last_seq.get());
                put_u64(body, content.last_time_us);
                put_bytes(body, &stream.last_msg_id);
                if !stream.intakes.is_empty() {
                    Stream::put_intakes(&stream.intakes, body);
                }
                Some(Cursor::new(Stage::Done, 0))
            }
        }
    }
}

/// The data of a moving stream that an import adds to the stream's copy, one variant for each stage of the
/// copy.
enum Brought {
    Messages {
        first_seq: StreamSeq,
        /// The number of messages that the home group has, if the stream is frozen, so that the copy can tell
        /// whether it has surplus messages; `u64::MAX` if the stream is not frozen.
        all: u64,
        slots: Vec<(StreamSeq, Slot)>,
    },
    Gone(Vec<(StreamSeq, StreamSeq)>),
    Ids(Vec<(Vec<u8>, StreamSeq, u64)>),
    Consumers(Vec<(String, StreamConsumer)>),
    Rest {
        created_us: u64,
        last_seq: StreamSeq,
        last_time_us: u64,
        last_msg_id: Vec<u8>,
        intakes: BTreeMap<String, Progress>,
    },
}

/// A parsed import: the data that brings a copy from one cursor to another. The copy takes it only at the
/// first cursor.
pub(super) struct Import {
    from: Cursor,
    to: Cursor,
    brought: Brought,
}

/// Returns the number of publishes that follow an import with this payload in the entry, so that the node
/// takes them together with the import.
pub(super) fn messages_len(payload: &[u8]) -> usize {
    match payload.first() {
        Some(0) => payload.len().saturating_sub(18 + 16) / ROW_BYTES,
        _ => 0,
    }
}

impl Import {
    pub(super) fn read(payload: &[u8]) -> Result<Self, RestoreError> {
        let from = &mut Reader(payload);
        let (at, to) = (Cursor::read(from)?, Cursor::read(from)?);
        let wrong = RestoreError::Inconsistent("the state brought to a copy");
        let brought = match at.stage {
            Stage::Messages => {
                let (first_seq, all) = (StreamSeq::new(from.u64()?), from.u64()?);
                let mut slots = Vec::with_capacity(from.0.len() / ROW_BYTES);
                let mut least = at.message().max(StreamSeq::FIRST);
                while !from.0.is_empty() {
                    let seq = StreamSeq::new(from.u64()?);
                    let (time_us, flags) = (from.u64()?, from.u32()?);
                    if seq < least || seq >= SEQ_MAX {
                        return Err(wrong);
                    }
                    least = seq.next();
                    let slot = Slot {
                        place: Place::default(),
                        time_us,
                        bytes: 0,
                        subject: 0,
                        flags: Flags::from_bits(flags),
                        due_us: from.u64()?,
                    };
                    slots.push((seq, slot));
                }
                if to.stage == Stage::Messages && to.message() < least {
                    return Err(wrong);
                }
                Brought::Messages {
                    first_seq,
                    all,
                    slots,
                }
            }
            Stage::Gone => {
                let mut runs = Vec::with_capacity(from.0.len() / 16);
                let mut least = at.message();
                while !from.0.is_empty() {
                    let first = StreamSeq::new(from.u64()?);
                    let last = StreamSeq::new(from.u64()?);
                    if first < least || last < first || last >= SEQ_MAX {
                        return Err(wrong);
                    }
                    least = last.next();
                    runs.push((first, last));
                }
                Brought::Gone(runs)
            }
            Stage::Ids => {
                let mut ids = Vec::new();
                while !from.0.is_empty() {
                    let id = from.bytes()?.to_vec();
                    ids.push((id, StreamSeq::new(from.u64()?), from.u64()?));
                }
                Brought::Ids(ids)
            }
            Stage::Consumers => {
                let mut consumers = Vec::new();
                while !from.0.is_empty() {
                    consumers.push(StreamConsumer::read(from, |_, bytes| {
                        State::decode(bytes)
                            .map_err(|_| RestoreError::Inconsistent("a consumer's state"))
                    })?);
                }
                Brought::Consumers(consumers)
            }
            Stage::Rest => {
                let created_us = from.u64()?;
                let (last_seq, last_time_us) = (StreamSeq::new(from.u64()?), from.u64()?);
                let last_msg_id = from.bytes()?.to_vec();
                if last_seq >= SEQ_MAX {
                    return Err(wrong);
                }
                let intakes = match from.0 {
                    [] => BTreeMap::new(),
                    _ => Stream::read_intakes(from)?,
                };
                Brought::Rest {
                    intakes,
                    created_us,
                    last_seq,
                    last_time_us,
                    last_msg_id,
                }
            }
            Stage::Done => return Err(wrong),
        };
        match from.0.is_empty() {
            true => Ok(Self {
                from: at,
                to,
                brought,
            }),
            false => Err(RestoreError::Long),
        }
    }
}

impl Stream {
    /// Returns the state of the stream's move in this group, which says whether the group serves, exports or
    /// fills the stream.
    #[must_use]
    pub const fn transit(&self) -> Transit {
        self.transit
    }

    /// Returns the stream's move, if the stream is moving and this group keeps the directory. Only the
    /// directory knows the target of a move.
    #[must_use]
    pub fn moving(&self) -> Option<Moving> {
        self.moving.map(|to| Moving {
            to,
            number: self.moves,
        })
    }

    /// Returns the number of the stream's current or last move. In the directory this is also the number of
    /// all moves of the stream so far, so that a late command of an earlier move is recognised.
    #[must_use]
    pub const fn moves(&self) -> MoveNumber {
        self.moves
    }

    /// Checks that the stream can move to group `to`, and returns that group. Only a stream that the
    /// directory lists can move, and only to a group that does not already keep it. The directory then begins
    /// the move.
    pub(super) fn may_move(&self, to: GroupId) -> Result<GroupId, ApiError> {
        let to = Some(to).filter(|to| to.get() > 0);
        let at = match self.kept {
            Home::Here => Some(ALL),
            Home::Elsewhere { group, .. } => Some(group),
            Home::Of(_) => None,
        };
        match (to, at) {
            (Some(to), Some(at)) if to != at && !self.in_memory() => Ok(to),
            _ => Err(ApiError::BAD_REQUEST),
        }
    }

    /// Returns whether the stream is frozen in this group, because it moves to another group or has moved
    /// there. The group then refuses all changes of the stream.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.transit == Transit::Frozen
    }

    /// Returns whether the stream in this group is the copy of a moving stream, and not complete yet, so that
    /// this group cannot serve it.
    #[must_use]
    pub const fn is_filling(&self) -> bool {
        matches!(self.transit, Transit::Filling(_))
    }

    /// Estimates how many bytes of messages the stream has after this cursor, from the average size of its
    /// messages, so that the home group freezes the stream only when little is left.
    #[must_use]
    pub fn bytes_behind(&self, cursor: Cursor) -> u64 {
        if cursor.stage != Stage::Messages {
            return 0;
        }
        let content = &self.content;
        let from = cursor.message().max(content.first_seq);
        let left = content.last_seq.next().saturating_distance(from);
        let each = content.bytes / content.messages.max(1);
        left.saturating_mul(each).min(content.bytes)
    }

    /// Returns the runs of numbers without messages from number `at` on, as far as one export searches, and
    /// the number at which the search stopped. From these runs the copy learns which messages to remove.
    fn runs(&self, at: StreamSeq) -> (StreamSeq, Vec<(StreamSeq, StreamSeq)>) {
        let content = &self.content;
        let mut at = at.max(content.first_seq);
        let most = at.saturating_after(LOOKED_AT_MAX);
        let mut runs = Vec::new();
        for block in content.index.blocks_from(at) {
            for seq in block.live().iter().map(|bit| block.seq(bit)) {
                if seq < at {
                    continue;
                }
                if seq > at {
                    runs.push((at, seq.prev()));
                }
                at = seq.next();
            }
            if runs.len() >= RUNS_MAX || at >= most {
                return (at, runs);
            }
        }
        if at <= content.last_seq {
            runs.push((at, content.last_seq));
        }
        (content.last_seq.next(), runs)
    }

    /// Applies an import with the messages that follow it, if the import begins at this copy's cursor.
    /// Returns whether the copy took the import. `keep` returns the place of a message in the target's log
    /// and, for a stream in memory, the message's bytes.
    pub(super) fn take_import(
        &mut self,
        import: Import,
        messages: &[Command<'_>],
        keep: impl Fn(&Self, &Command<'_>) -> (Place, Option<bytes::Bytes>),
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Import {
            from,
            mut to,
            brought,
        } = import;
        if self.transit != Transit::Filling(from) || !self.can_take(&brought, messages) {
            return false;
        }
        match brought {
            Brought::Messages {
                first_seq,
                all,
                slots,
            } => {
                for ((seq, slot), command) in slots.into_iter().zip(messages) {
                    let (place, body) = keep(self, command);
                    let bytes = u32::try_from(counted_bytes(command));
                    let bytes = bytes.expect("a copy takes no larger message");
                    let slot = Slot {
                        place,
                        bytes,
                        ..slot
                    };
                    self.put(seq, command.subject, slot, body, effects);
                }
                if self.content.first_seq < first_seq {
                    self.remove_range(StreamSeq::ZERO, first_seq.prev(), effects);
                }
                if to.stage == Stage::Gone && self.content.messages == all {
                    // The copy has every message that the home group has. If it also has the same number of
                    // messages, it has no surplus message, so it skips the stage that removes surplus
                    // messages.
                    to = Cursor::new(Stage::Ids, 0);
                }
            }
            Brought::Gone(runs) => {
                let mut runs = runs.into_iter().peekable();
                let end = match to.stage {
                    Stage::Gone => to.message(),
                    _ => StreamSeq::MAX,
                };
                let bulk = self.content.remove_where(from.message(), end, |seq, _| {
                    while runs.next_if(|(_, last)| *last < seq).is_some() {}
                    runs.peek().is_some_and(|(first, _)| *first <= seq)
                });
                self.tell(bulk, effects);
            }
            Brought::Ids(ids) => {
                for (id, seq, time_us) in ids {
                    if self.dedup.find(&id).is_none() {
                        self.dedup.add(&id, seq, time_us);
                    }
                }
            }
            Brought::Consumers(consumers) => {
                for (name, consumer) in consumers {
                    self.put_consumer(&name, consumer);
                }
            }
            Brought::Rest {
                created_us,
                last_seq,
                last_time_us,
                last_msg_id,
                intakes,
            } => {
                self.intakes = intakes;
                self.created_us = created_us;
                self.last_msg_id = last_msg_id;
                let content = &mut self.content;
                content.last_seq = last_seq;
                content.last_time_us = last_time_us
                    .max(content.last_time_us)
                    .max(self.dedup.last_us());
                if content.messages == 0 {
                    content.first_seq = last_seq.next();
                }
                content.age_anew();
            }
        }
        self.transit = match to.stage {
            Stage::Done => Transit::None,
            _ => Transit::Filling(to),
        };
        if self.transit == Transit::None {
            // The home group may not have finished its search for messages without a consumer, so the copy
            // searches all of its messages.
            self.begin_sweep(StreamSeq::FIRST..=self.content.last_seq, effects);
        }
        true
    }

    /// Returns whether this copy can apply the data of an import: messages and ids must continue those that
    /// the copy has. Otherwise the content of the copy would be out of order.
    fn can_take(&self, brought: &Brought, messages: &[Command<'_>]) -> bool {
        match brought {
            Brought::Messages { slots, .. } => {
                let fits = |c: &Command<'_>| {
                    c.kind == Kind::Publish && counted_bytes(c) <= MESSAGE_BYTES_MAX.into()
                };
                let first = slots.first().map_or(SEQ_MAX, |(seq, _)| *seq);
                slots.len() == messages.len()
                    && messages.iter().all(fits)
                    && (self.content.messages == 0 || first > self.content.last_seq)
            }
            Brought::Ids(ids) => {
                let unknown = |(id, ..): &(Vec<u8>, StreamSeq, u64)| self.dedup.find(id).is_none();
                ids.iter().all(unknown)
                    && ids.is_sorted_by_key(|(.., time)| *time)
                    && ids
                        .first()
                        .is_none_or(|(.., time)| *time >= self.dedup.last_us())
            }
            Brought::Rest { last_seq, .. } => {
                self.content.messages == 0 || *last_seq >= self.content.last_seq
            }
            Brought::Gone(_) | Brought::Consumers(_) => true,
        }
    }

    /// Begins a move of the stream to group `to`; only the group that keeps the directory calls this, because
    /// it decides about moves.
    pub(super) fn begin_move(&mut self, to: GroupId) {
        self.moves = self.moves.next();
        self.moving = Some(to);
        if to == ALL {
            self.transit = Transit::Filling(Cursor::START);
        }
    }

    /// Ends a move that the directory has called off: an incomplete copy drops its content, and a frozen
    /// stream thaws. So the stream stays in the group that kept it.
    pub(super) fn call_off(&mut self, effects: &mut Vec<Effect>) {
        if self.is_filling() {
            self.empty(effects);
        }
        let stream = self.id;
        if !self.kept.is_here() {
            effects.push(Effect::StreamStays { stream });
        } else if self.is_frozen() {
            effects.push(Effect::StreamThawed { stream });
        }
        (self.moving, self.transit) = (None, Transit::None);
    }

    /// Drops the messages, ids and consumers of a stream, because another group keeps the stream now, or the
    /// move to this group has ended.
    pub(super) fn empty(&mut self, effects: &mut Vec<Effect>) {
        let bulk = self.content.remove_all();
        self.tell(bulk, effects);
        let fresh = Self::new(self.id, self.config.clone(), self.created_us, false);
        self.content.begin_anew(fresh.content);
        self.dedup = fresh.dedup;
        self.last_msg_id.clear();
        self.consumers.clear();
        (self.wanted, self.sweep) = (fresh.wanted, None);
    }
}

impl StreamConsumer {
    /// Writes the consumer to a snapshot or an export, so that a restored node or the target of a move has it
    /// too. The caller has encoded the state.
    pub(super) fn put(&self, name: &str, state: &[u8], out: &mut Vec<u8>) {
        put_bytes(out, name.as_bytes());
        put_u64(out, self.created_us);
        let config = serde_json::to_vec(&self.config.full(name));
        put_bytes(out, &config.expect("a configuration is plain data"));
        put_bytes(out, state);
    }

    /// Reads the consumer from a snapshot or an export; `state` parses the bytes of the consumer's state,
    /// because snapshots and exports encode it in different ways.
    pub(super) fn read(
        from: &mut Reader<'_>,
        state: impl FnOnce(&crate::schema::config::ConsumerConfig, &[u8]) -> Result<State, RestoreError>,
    ) -> Result<(String, Self), RestoreError> {
        let name = std::str::from_utf8(from.bytes()?).map(str::to_owned);
        let name = name.map_err(|_| RestoreError::Inconsistent("a consumer's name"))?;
        let created_us = from.u64()?;
        let config = serde_json::from_slice(from.bytes()?)?;
        let state = state(&config, from.bytes()?)?;
        let consumer = Self {
            config: SharedConfig::new(&name, config),
            created_us,
            state: Arc::new(state),
        };
        Ok((name, consumer))
    }
}

#[cfg(test)]
mod tests;
