//! Moving a stream from one group to another: what the group that keeps it tells, and what the group that is
//! to keep it makes of that.
//!
//! The directory says that a stream moves, and to which group ([`Stream::moving`]). That group makes a
//! *copy*, which is filled ([`Transit::Filling`]) by commands of its own log, each of which brings what the
//! keeper told behind a [`Cursor`] and is refused anywhere else: so nothing comes twice, whoever leads. The
//! keeper goes on meanwhile. For the last part it is frozen ([`Transit::Frozen`]): from then on nothing
//! changes there, and what it holds then is what the copy holds in the end. If the move is called off it
//! thaws, and is not frozen again under that move's number.
//!
//! A copy has at least the messages its keeper has below its cursor: what was removed there since goes once
//! the keeper is frozen.
//!
//! ```text
//! import     from: stage u8, number u64 | to: stage u8, number u64 | what there is between
//! messages   the first one's number u64 | how many there are, if frozen, else all bits u64
//!            | of each message number u64, time u64, flags u32, due time u64; the messages follow as publishes
//! gone       of each run of numbers without messages the first u64 and the last u64
//! ids        of each id it u32 and bytes, number u64, time u64
//! consumers  of each name u32 and bytes, made at u64, configuration u32 and JSON, state u32 and bytes
//! rest       made at u64 | last number u64 | last time u64 | last id u32 and bytes
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::block::{Flags, MESSAGE_BYTES_MAX, Slot};
use super::command::{Command, ENTRY_HEADER_BYTES, Encoder, Kind, Place};
use super::consumers::StreamConsumer;
use super::kept::Kept;
use super::one::{Stream, counted_bytes};
use super::outcome::Effect;
use super::snapshot::{RestoreError, SEQ_MAX};
use super::wire::{Reader, put_bytes, put_u32, put_u64};
use crate::api::error::ApiError;
use crate::cluster::groups::ALL;
use crate::consumer::State;

/// Runs of numbers told at once, and numbers looked at for them.
const RUNS_MAX: usize = 16 * 1024;
const LOOKED_AT_MAX: u64 = 1 << 20;
const ROW_BYTES: usize = 28;

/// What is brought next to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Messages.
    Messages,
    /// Which messages went since they were brought.
    Gone,
    /// The ids of messages stored lately.
    Ids,
    /// Consumers.
    Consumers,
    /// The rest.
    Rest,
    /// Nothing.
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

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// What is brought next.
    pub stage: Stage,
    /// From which message, or after how many.
    pub at: u64,
}

impl Cursor {
    /// Before anything.
    pub const START: Self = Self::new(Stage::Messages, 0);

    const fn new(stage: Stage, at: u64) -> Self {
        Self { stage, at }
    }

    fn put(self, out: &mut Vec<u8>) {
        out.push(self.stage.number());
        put_u64(out, self.at);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        Ok(Self::new(Stage::of(from.u8()?)?, from.u64()?))
    }
}

/// Whether a stream is on its way between two groups, as this one has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transit {
    /// It is not, or it has not begun to matter.
    #[default]
    None,
    /// It leaves for another group, or has left: nothing changes here unless it thaws.
    Frozen,
    /// It is to come here, and this far it has come.
    Filling(Cursor),
}

impl Transit {
    /// As a snapshot has it: which u8 (0 none, 1 frozen, from 2 the stage), and the cursor's number u64.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let (which, at) = match self {
            Self::None => (0, 0),
            Self::Frozen => (1, 0),
            Self::Filling(cursor) => (2 + cursor.stage.number(), cursor.at),
        };
        out.push(which);
        put_u64(out, at);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        Ok(match (from.u8()?, from.u64()?) {
            (0, _) => Self::None,
            (1, _) => Self::Frozen,
            (which, at) => match Stage::of(which - 2)? {
                Stage::Done => return Err(RestoreError::Inconsistent("how far a copy is")),
                stage => Self::Filling(Cursor::new(stage, at)),
            },
        })
    }
}

/// Where a stream of the directory moves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// The group that is to keep it.
    pub to: u32,
    /// Which of its moves this is.
    pub number: u32,
}

impl Moving {
    /// The subject of [`Kind::UpdateStream`] where move `number` is called off: the stream goes to group `to`
    /// instead, or stays.
    #[must_use]
    pub fn encode_instead(to: Option<u32>, number: u32) -> Vec<u8> {
        [to.unwrap_or(0).to_le_bytes(), number.to_le_bytes()].concat()
    }

    /// The payload of [`Kind::Freeze`] and [`Kind::Moved`].
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        [self.to.to_le_bytes(), self.number.to_le_bytes()].concat()
    }

    /// The payload of [`Kind::Renew`]: to this group from now on.
    #[must_use]
    pub fn encode_renewed(self, to: u32) -> Vec<u8> {
        [&self.encode()[..], &to.to_le_bytes()].concat()
    }

    pub(super) fn decode_renewed(bytes: &[u8]) -> Option<(Self, u32)> {
        let (of, to) = bytes.split_last_chunk()?;
        Some((Self::decode(of)?, u32::from_le_bytes(*to)))
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (to, number) = bytes.split_first_chunk()?;
        Some(Self {
            to: u32::from_le_bytes(*to),
            number: u32::from_le_bytes(number.try_into().ok()?),
        })
    }
}

/// What the command that changes a stream of the directory says of where it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Nothing.
    Same,
    /// It moves to this group.
    To(u32),
    /// Its move of this number is called off, and it moves to this group, if to any.
    Instead(Option<u32>, u32),
}

impl Course {
    pub(super) fn of(subject: &[u8]) -> Result<Self, ApiError> {
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes);
        match (subject.get(..4).map(number), subject.get(4..).map(number)) {
            _ if subject.is_empty() => Ok(Self::Same),
            (Some(Ok(to)), _) if subject.len() == 4 => Ok(Self::To(to)),
            (Some(Ok(to)), Some(Ok(of))) => Ok(Self::Instead(Some(to).filter(|to| *to > 0), of)),
            _ => Err(ApiError::BAD_REQUEST),
        }
    }
}

/// Gathers what a keeper tells behind a cursor. It asks for one message after the other and may wait for
/// each.
#[derive(Debug)]
pub struct Export {
    from: Cursor,
    /// The first message that is not in yet.
    next: u64,
    bytes_max: usize,
    rows: Vec<u8>,
    messages: Vec<u8>,
}

/// What an export needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// This message: [`Export::add`], then go on.
    Message(u64),
    /// There is nothing behind the cursor until the keeper is frozen.
    Freeze,
    /// Nothing: these are an entry's bytes, for stream 0.
    Nothing(Vec<u8>),
}

impl Export {
    /// Behind this cursor, about so many bytes.
    #[must_use]
    pub fn new(from: Cursor, bytes_max: usize) -> Self {
        let mut messages = Vec::new();
        Encoder::begin(&mut messages, 0);
        Self {
            from,
            next: from.at,
            bytes_max,
            rows: Vec::new(),
            messages,
        }
    }

    /// What is needed to go on.
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
        let import = Command::new(Kind::Import, 0, b"", &payload);
        // Both are far shorter than what does not fit.
        let written = Encoder::begin(&mut entry, 0).command(&import);
        debug_assert!(written.is_ok(), "{written:?}");
        entry.extend_from_slice(&self.messages[ENTRY_HEADER_BYTES..]);
        Need::Nothing(entry)
    }

    /// The message that was needed; it may have gone since.
    pub fn add(&mut self, stream: &Stream, seq: u64, message: &Command<'_>) {
        self.next = seq + 1;
        let Some(slot) = stream.content.index.get(seq) else {
            return;
        };
        let command = Command {
            headers: message.headers.filter(|h| !h.is_empty()),
            ..Command::new(Kind::Publish, 0, message.subject, message.payload)
        };
        let written = Encoder::resume(&mut self.messages).command(&command);
        debug_assert!(written.is_ok(), "{written:?}");
        put_u64(&mut self.rows, seq);
        put_u64(&mut self.rows, slot.time_us);
        put_u32(&mut self.rows, slot.flags.bits());
        put_u64(&mut self.rows, slot.due_us);
    }

    /// What there is behind the cursor, and where the copy is then.
    fn rest(&self, stream: &Stream, body: &mut Vec<u8>) -> Option<Cursor> {
        let content = &stream.content;
        let frozen = stream.transit == Transit::Frozen;
        match self.from.stage {
            Stage::Messages => {
                let end = content.index.next(self.next).is_none();
                if self.rows.is_empty() && !frozen {
                    return None;
                }
                put_u64(body, content.first_seq);
                put_u64(body, if frozen { content.messages } else { u64::MAX });
                body.extend_from_slice(&self.rows);
                Some(match end && frozen {
                    true => Cursor::new(Stage::Gone, 0),
                    false => Cursor::new(Stage::Messages, self.next),
                })
            }
            Stage::Gone => {
                let (to, runs) = stream.runs(self.from.at);
                for (first, last) in runs {
                    put_u64(body, first);
                    put_u64(body, last);
                }
                Some(match to > content.last_seq {
                    true => Cursor::new(Stage::Ids, 0),
                    false => Cursor::new(Stage::Gone, to),
                })
            }
            Stage::Ids => {
                let ids = stream.dedup.iter_from(self.from.at);
                for (at, (id, seq, time_us)) in (self.from.at..).zip(ids) {
                    if body.len() >= self.bytes_max {
                        return Some(Cursor::new(Stage::Ids, at));
                    }
                    put_bytes(body, id);
                    put_u64(body, seq);
                    put_u64(body, time_us);
                }
                Some(Cursor::new(Stage::Consumers, 0))
            }
            Stage::Consumers => {
                let skip = usize::try_from(self.from.at).unwrap_or(usize::MAX);
                let consumers = stream.consumers.iter().skip(skip);
                for (at, (name, consumer)) in (self.from.at..).zip(consumers) {
                    if body.len() >= self.bytes_max {
                        return Some(Cursor::new(Stage::Consumers, at));
                    }
                    consumer.put(name, &consumer.state.encode(), body);
                }
                Some(Cursor::new(Stage::Rest, 0))
            }
            Stage::Rest | Stage::Done => {
                put_u64(body, stream.created_us);
                put_u64(body, content.last_seq);
                put_u64(body, content.last_time_us);
                put_bytes(body, &stream.last_msg_id);
                Some(Cursor::new(Stage::Done, 0))
            }
        }
    }
}

/// What an import brings, read.
enum Brought {
    Messages {
        first_seq: u64,
        /// How many there are at the keeper, if it is frozen.
        all: u64,
        slots: Vec<(u64, Slot)>,
    },
    Gone(Vec<(u64, u64)>),
    Ids(Vec<(Vec<u8>, u64, u64)>),
    Consumers(Vec<(String, StreamConsumer)>),
    Rest {
        created_us: u64,
        last_seq: u64,
        last_time_us: u64,
        last_msg_id: Vec<u8>,
    },
}

/// An import, read.
pub(super) struct Import {
    from: Cursor,
    to: Cursor,
    brought: Brought,
}

/// How many publishes follow an import.
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
        let wrong = RestoreError::Inconsistent("what is brought to a copy");
        let brought = match at.stage {
            Stage::Messages => {
                let (first_seq, all) = (from.u64()?, from.u64()?);
                let mut slots = Vec::with_capacity(from.0.len() / ROW_BYTES);
                let mut least = at.at.max(1);
                while !from.0.is_empty() {
                    let (seq, time_us, flags) = (from.u64()?, from.u64()?, from.u32()?);
                    if seq < least || seq >= SEQ_MAX {
                        return Err(wrong);
                    }
                    least = seq + 1;
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
                if to.stage == Stage::Messages && to.at < least {
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
                let mut least = at.at;
                while !from.0.is_empty() {
                    let (first, last) = (from.u64()?, from.u64()?);
                    if first < least || last < first || last >= SEQ_MAX {
                        return Err(wrong);
                    }
                    least = last + 1;
                    runs.push((first, last));
                }
                Brought::Gone(runs)
            }
            Stage::Ids => {
                let mut ids = Vec::new();
                while !from.0.is_empty() {
                    ids.push((from.bytes()?.to_vec(), from.u64()?, from.u64()?));
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
                let (created_us, last_seq, last_time_us) = (from.u64()?, from.u64()?, from.u64()?);
                let last_msg_id = from.bytes()?.to_vec();
                if last_seq >= SEQ_MAX {
                    return Err(wrong);
                }
                Brought::Rest {
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
    /// Whether it is on its way between two groups, as this one has it.
    #[must_use]
    pub const fn transit(&self) -> Transit {
        self.transit
    }

    /// Where it is to move, if this is the directory and it is to.
    #[must_use]
    pub fn moving(&self) -> Option<Moving> {
        self.moving.map(|to| Moving {
            to,
            number: self.moves,
        })
    }

    /// Which of its moves it is or was on its way by. In the directory: how many there have been.
    #[must_use]
    pub const fn moves(&self) -> u32 {
        self.moves
    }

    /// The group it is to move to, unless it cannot: only a stream of the directory moves, and only to where
    /// it is not.
    pub(super) fn may_move(&self, to: u32) -> Result<u32, ApiError> {
        let to = Some(to).filter(|to| *to > 0);
        let at = match self.kept {
            Kept::Here => Some(ALL),
            Kept::Elsewhere { group, .. } => Some(group),
            Kept::Of(_) => None,
        };
        match (to, at) {
            (Some(to), Some(at)) if to != at && !self.in_memory() => Ok(to),
            _ => Err(ApiError::BAD_REQUEST),
        }
    }

    /// Returns whether another group than this is told, or has been, to keep it from now on.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.transit == Transit::Frozen
    }

    /// Returns whether it is a copy that lacks something yet.
    #[must_use]
    pub const fn is_filling(&self) -> bool {
        matches!(self.transit, Transit::Filling(_))
    }

    /// About how many bytes of messages are behind this cursor.
    #[must_use]
    pub fn bytes_behind(&self, cursor: Cursor) -> u64 {
        if cursor.stage != Stage::Messages {
            return 0;
        }
        let content = &self.content;
        let left = (content.last_seq + 1).saturating_sub(cursor.at.max(content.first_seq));
        let each = content.bytes / content.messages.max(1);
        left.saturating_mul(each).min(content.bytes)
    }

    /// Runs of numbers from `at` on that have no messages, a bounded number, and up to where they were looked
    /// for.
    fn runs(&self, at: u64) -> (u64, Vec<(u64, u64)>) {
        let content = &self.content;
        let mut at = at.max(content.first_seq);
        let most = at.saturating_add(LOOKED_AT_MAX);
        let mut runs = Vec::new();
        for block in content.index.blocks_from(at) {
            for seq in block.live().iter().map(|bit| block.seq(bit)) {
                if seq < at {
                    continue;
                }
                if seq > at {
                    runs.push((at, seq - 1));
                }
                at = seq + 1;
            }
            if runs.len() >= RUNS_MAX || at >= most {
                return (at, runs);
            }
        }
        if at <= content.last_seq {
            runs.push((at, content.last_seq));
        }
        (content.last_seq + 1, runs)
    }

    /// Takes what an import brings, with the messages that follow it; whether it was what this copy needs
    /// next. Places and bodies of messages are for `keep` to say.
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
                    let bytes = u32::try_from(counted_bytes(command)).unwrap_or(u32::MAX);
                    let slot = Slot {
                        place,
                        bytes,
                        ..slot
                    };
                    self.content.last_seq = seq - 1;
                    let (_, _, subject) = self.content.push(command.subject, slot, body);
                    effects.push(Effect::Stored {
                        stream: self.id,
                        seq,
                        place,
                        bytes,
                        subject,
                    });
                }
                if self.content.first_seq < first_seq {
                    self.remove_range(0, first_seq - 1, effects);
                }
                if to.stage == Stage::Gone && self.content.messages == all {
                    // A copy has all there are, so it has no others.
                    to = Cursor::new(Stage::Ids, 0);
                }
            }
            Brought::Gone(runs) => {
                let mut runs = runs.into_iter().peekable();
                let end = match to.stage {
                    Stage::Gone => to.at,
                    _ => u64::MAX,
                };
                let bulk = self.content.remove_where(from.at, end, |seq, _| {
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
            Brought::Consumers(consumers) => self.consumers.extend(consumers),
            Brought::Rest {
                created_us,
                last_seq,
                last_time_us,
                last_msg_id,
            } => {
                self.created_us = created_us;
                self.last_msg_id = last_msg_id;
                let content = &mut self.content;
                content.last_seq = last_seq;
                content.last_time_us = last_time_us
                    .max(content.last_time_us)
                    .max(self.dedup.last_us());
                if content.messages == 0 {
                    content.first_seq = last_seq + 1;
                }
                content.age_anew();
            }
        }
        self.transit = match to.stage {
            Stage::Done => Transit::None,
            _ => Transit::Filling(to),
        };
        true
    }

    /// Returns whether what is brought can be what this copy needs.
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
                let unknown = |(id, ..): &(Vec<u8>, u64, u64)| self.dedup.find(id).is_none();
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

    /// It moves to group `to` from now on.
    pub(super) fn begin_move(&mut self, to: u32) {
        self.moves += 1;
        self.moving = Some(to);
        if to == ALL {
            self.transit = Transit::Filling(Cursor::START);
        }
    }

    /// Its move, which the directory has decided not to be done, ends here: what came of it is forgotten, and
    /// what left goes on.
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

    /// Forgets all it held, which another group keeps now.
    pub(super) fn empty(&mut self, effects: &mut Vec<Effect>) {
        let bulk = self.content.remove_all();
        self.tell(bulk, effects);
        let mut fresh = Self::new(self.id, self.config.clone(), self.created_us, false);
        std::mem::swap(&mut self.content, &mut fresh.content);
        self.dedup = fresh.dedup;
        self.last_msg_id.clear();
        self.consumers.clear();
    }
}

impl StreamConsumer {
    /// As a snapshot has it.
    pub(super) fn put(&self, name: &str, state: &[u8], out: &mut Vec<u8>) {
        put_bytes(out, name.as_bytes());
        put_u64(out, self.created_us);
        // A configuration is plain data: nothing in it can fail to be written.
        put_bytes(out, &serde_json::to_vec(&*self.config).unwrap_or_default());
        put_bytes(out, state);
    }

    /// As a snapshot has it; what its state is is for `state` to say.
    pub(super) fn read(
        from: &mut Reader<'_>,
        state: impl FnOnce(&crate::api::config::ConsumerConfig, &[u8]) -> Result<State, RestoreError>,
    ) -> Result<(String, Self), RestoreError> {
        let name = std::str::from_utf8(from.bytes()?).map(str::to_owned);
        let name = name.map_err(|_| RestoreError::Inconsistent("a consumer's name"))?;
        let created_us = from.u64()?;
        let config = serde_json::from_slice(from.bytes()?)?;
        let state = state(&config, from.bytes()?)?;
        let consumer = Self {
            config: Arc::new(config),
            created_us,
            state: Arc::new(state),
        };
        Ok((name, consumer))
    }
}

#[cfg(test)]
mod tests;
