//! A snapshot of all streams of a group at one moment, from which a node continues after a restart, and which
//! the leader sends to a follower. A thread can write the snapshot while the streams change.
//!
//! A snapshot copies no data of messages: it shares the blocks of indexes, the pages of subjects and ids, and
//! the states of consumers with the streams. A later change of a stream copies the shared part first. Any
//! thread can encode the snapshot in [`Chunks`]; a reader needs all chunks. The snapshot leaves out data that
//! a reader can compute from other data. The same streams give the same bytes, regardless of their history.
//!
//! A snapshot leaves out the messages of streams that lie only in memory: after a restore those streams are
//! empty, with their consumers at the beginning.
//!
//! ```text
//! snapshot  version u8 = 3 | 4 | 5 | 6 | 7 zero bytes | time_us u64 | last stream's number u32 | streams u32
//!           | streams, by number
//! stream    number u32 | its home group u8, u32 | moves u32, to u32 | transit u8, u64
//!           | from version 4 on: the sweep, first u64, last u64
//!           | from version 5 on: origins u32, of each: key, origin u32, u64, number u64
//!           | created_us u64 | configuration (JSON)
//!           | last id | last seq u64 | last time_us u64
//!           | subjects: numbers given u32, free ones, names | blocks u32, blocks, the last | ids | consumers
//! ```
//!
//! The home group ([`Home`]) is a kind and a number. Kind 0: this group keeps the stream, and no other
//! group's directory lists it; the number is 0. Kind 1: the group with this number will keep the stream, and
//! has not created it yet. Kind 2: the group with this number keeps the stream and has created it. Kind 3:
//! this group keeps the stream, and the directory of the group of all nodes lists it under this number.
//! Version 1 lacks the home group: this group keeps all streams.
//!
//! In the directory, `moves` is the number of the stream's moves so far, and `to` is the target group of the
//! move under way, or 0 without a move. In another group, `moves` is the number of the move by which the
//! stream leaves or enters that group. `transit` ([`Transit`]) is a kind and a number. Kind 0: the stream is
//! not moving, or its move has not reached this group yet. Kind 1: the stream is frozen, because it leaves
//! this group. Kinds 2 to 6: this group fills its copy of the stream; the kind minus 2 is the stage of the
//! copy, and the number is the place in that stage. Kind 8: the stream is restored from a backup, and the
//! number is that of the backup's next part. Version 2 lacks `moves`, `to` and `transit`: no
//! stream moves.
//!
//! A snapshot has version 4 if one of its streams keeps messages for its consumers. It adds the sweep: the
//! range in which the stream has still to look for messages without a consumer; 0 and 0 without a sweep. It
//! has version 6 if a consumer takes acknowledgements by flow control, or a stream takes in messages by a
//! consumer of the client's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidegate_cluster::groups::GroupId;
use tidegate_nats::subject::is_pattern;

use super::block::Block;
use super::consumers::{StreamConsumer, StreamView};
use super::content::Content;
use super::dedup::Ids;
use super::home::Home;
use super::index::Index;
use super::intake::Progress;
use super::moving::Transit;
use super::rules;
use super::single::Stream;
use super::streams::{AccountLimits, Streams};
use super::subjects::{FreeSet, Names, Subjects};
use super::wire::{
    Reader, RestoreError, SEQ_MAX, VERSION, VERSION_RETAINING, VERSION_WITH_FLOW_ACKS,
    VERSION_WITH_ORIGINS, VERSION_WITHOUT_KEPT, VERSION_WITHOUT_MOVING, put_bytes, put_len,
    put_u32, put_u64,
};
use crate::consumer::State;
use crate::schema::config::{AckPolicy, StreamConfig};
use crate::schema::number::{MoveNumber, StreamNumber};
use crate::schema::sequence::StreamSeq;

/// The approximate size of one chunk of an encoded snapshot, in bytes. The limit keeps the memory of the
/// writing thread small.
const CHUNK_BYTES: usize = 256 * 1024;

/// A snapshot of all streams of a group, as they were at one moment, which a thread encodes while the streams
/// change.
#[derive(Clone, Debug)]
pub struct Snapshot {
    now_us: u64,
    last_id: StreamNumber,
    streams: Vec<Part>,
    /// True if a stream keeps messages for its consumers, so that the snapshot needs version 4 of the layout.
    retains: bool,
    /// True if a stream takes in messages from other streams, or did so, so that the snapshot needs version 5
    /// of the layout.
    has_origins: bool,
    /// True if a consumer takes acknowledgements by flow control, or if a stream takes in messages by a
    /// consumer of the client's, so that the snapshot needs version 6 of the layout.
    has_flow_acks: bool,
}

/// One stream in a snapshot, as it was at the moment of the snapshot. Later changes of the stream leave this
/// copy as it is.
#[derive(Clone, Debug)]
pub(super) struct Part {
    id: StreamNumber,
    kept: Home,
    moving: Option<GroupId>,
    moves: MoveNumber,
    transit: Transit,
    sweep: Option<(StreamSeq, StreamSeq)>,
    intakes: BTreeMap<String, Progress>,
    created_us: u64,
    config: StreamConfig,
    last_msg_id: Vec<u8>,
    last_seq: StreamSeq,
    last_time_us: u64,
    names: Names,
    blocks: VecDeque<Arc<Block>>,
    tail: Block,
    ids: Ids,
    consumers: Vec<(Box<str>, StreamConsumer)>,
    in_memory: bool,
}

impl Part {
    /// Copies a stream for a snapshot. The copy takes time for each consumer and for each block of 256
    /// messages, but not for each message, because copy and stream share the blocks.
    pub(super) fn of(stream: &Stream) -> Self {
        let consumers = stream.consumers.iter();
        let mut part = Self {
            id: stream.id,
            kept: stream.kept,
            moving: stream.moving,
            moves: stream.moves,
            transit: stream.transit,
            sweep: stream.sweep.filter(|_| !stream.in_memory()),
            intakes: BTreeMap::new(),
            created_us: stream.created_us,
            config: stream.config.clone(),
            last_msg_id: Vec::new(),
            last_seq: stream.config.first_seq.max(StreamSeq::FIRST).prev(),
            last_time_us: 0,
            names: Names::default(),
            blocks: VecDeque::new(),
            tail: Block::new(StreamSeq::ZERO),
            ids: Ids::default(),
            consumers: consumers.map(|(n, c)| (n.clone(), c.clone())).collect(),
            in_memory: stream.in_memory(),
        };
        if !stream.in_memory() {
            part.intakes.clone_from(&stream.intakes);
            part.last_msg_id.clone_from(&stream.last_msg_id);
            part.last_seq = stream.content.last_seq;
            part.last_time_us = stream.content.last_time_us;
            part.names = stream.content.subjects.shared();
            (part.blocks, part.tail) = stream.content.index.shared();
            part.ids = stream.dedup.shared();
        }
        part
    }

    fn encode_head(&self, version: u8, out: &mut Vec<u8>) {
        put_u32(out, self.id.get());
        self.kept.put(out);
        put_u32(out, self.moves.get());
        put_u32(out, self.moving.map_or(0, GroupId::get));
        self.transit.put(out);
        if version >= VERSION_RETAINING {
            let (first, last) = self.sweep.unwrap_or_default();
            put_u64(out, first.get());
            put_u64(out, last.get());
        }
        if version >= VERSION_WITH_ORIGINS {
            Stream::put_intakes(&self.intakes, out);
        }
        put_u64(out, self.created_us);
        let config = serde_json::to_vec(&self.config);
        put_bytes(out, &config.expect("a configuration is plain data"));
        put_bytes(out, &self.last_msg_id);
        put_u64(out, self.last_seq.get());
        put_u64(out, self.last_time_us);
        self.names.encode_head(out);
    }

    fn encode_consumers(&self, out: &mut Vec<u8>) {
        put_len(out, self.consumers.len());
        for (name, consumer) in &self.consumers {
            let state = match self.in_memory {
                false => consumer.state.encode(),
                true => Vec::new(),
            };
            consumer.put(name, &state, out);
        }
    }

    fn decode(
        from: &mut Reader<'_>,
        limits: &AccountLimits,
        version: u8,
    ) -> Result<Stream, RestoreError> {
        let id = StreamNumber::new(from.u32()?);
        let kept = match version {
            VERSION_WITHOUT_KEPT => Home::Here,
            _ => Home::read(from)?,
        };
        let (moves, moving, transit) = match version {
            VERSION_WITHOUT_KEPT | VERSION_WITHOUT_MOVING => (MoveNumber::ZERO, 0, Transit::None),
            _ => (
                MoveNumber::new(from.u32()?),
                from.u32()?,
                Transit::read(from)?,
            ),
        };
        let sweep = match version {
            VERSION_RETAINING.. => (StreamSeq::new(from.u64()?), StreamSeq::new(from.u64()?)),
            _ => Default::default(),
        };
        let intakes = match version {
            VERSION_WITH_ORIGINS.. => Stream::read_intakes(from)?,
            _ => BTreeMap::new(),
        };
        let created_us = from.u64()?;
        let config: StreamConfig = serde_json::from_slice(from.bytes()?)?;
        if config.is_extended() && version < VERSION_RETAINING {
            return Err(RestoreError::Inconsistent("a stream's settings"));
        }
        if config.has_origins() && version < VERSION_WITH_ORIGINS {
            return Err(RestoreError::Inconsistent("a stream's origins"));
        }
        if config.names_consumers() && version < VERSION_WITH_FLOW_ACKS {
            return Err(RestoreError::Inconsistent(
                "a stream's origin by a consumer",
            ));
        }
        let sound = config.first_seq <= rules::FIRST_SEQ_MAX
            && config.subjects.iter().all(|p| is_pattern(p.as_bytes()));
        if !sound {
            return Err(RestoreError::Inconsistent("a stream's configuration"));
        }
        let in_memory = limits.puts_in_memory(&config);
        let mut stream = Stream::new(id, config, created_us, in_memory);
        stream.kept = kept;
        stream.moves = moves;
        stream.intakes = intakes;
        stream.moving = Some(moving).filter(|to| *to > 0).map(GroupId::new);
        stream.transit = transit;
        stream.sweep = Some(sweep).filter(|(_, last)| *last > StreamSeq::ZERO);
        if stream.sweep.is_some() && !stream.is_by_interest() {
            return Err(RestoreError::Inconsistent("a stream's sweep"));
        }
        if in_memory && transit != Transit::None {
            return Err(RestoreError::Inconsistent("a stream in memory that moves"));
        }
        stream.last_msg_id = from.bytes()?.to_vec();
        let (last_seq, last_time_us) = (StreamSeq::new(from.u64()?), from.u64()?);
        if last_seq >= SEQ_MAX {
            return Err(RestoreError::Inconsistent("a stream's last number"));
        }
        let names = Names::decode(from)?;
        let index = decode_index(from, last_seq, &names)?;
        stream.content = Content::new(last_seq.next(), stream.in_memory()).restored(
            index,
            Subjects::restored(names),
            last_seq,
            last_time_us,
        );
        if !stream.content.subjects.all_used() {
            return Err(RestoreError::Inconsistent("the subjects of a stream"));
        }
        stream.renew_chains();
        stream.dedup = Ids::decode(from)?;
        for _ in 0..from.len(16)? {
            let (name, consumer) = StreamConsumer::read(from, |config, state| match state {
                [] => Ok(State::new(config, &mut StreamView::new(&stream, config))),
                bytes => State::decode(bytes)
                    .map_err(|_| RestoreError::Inconsistent("a consumer's state")),
            })?;
            if is_acked_by_flow(&consumer) && version < VERSION_WITH_FLOW_ACKS {
                return Err(RestoreError::Inconsistent("a consumer's ack policy"));
            }
            stream.put_consumer(&name, consumer);
        }
        let content = &stream.content;
        let holds = content.first_seq != content.last_seq.next() || !stream.consumers.is_empty();
        if !kept.is_here() && !stream.is_filling() && holds {
            return Err(RestoreError::Inconsistent("what another group keeps"));
        }
        Ok(stream)
    }
}

fn is_acked_by_flow(consumer: &StreamConsumer) -> bool {
    consumer.config.nameless().ack_policy == AckPolicy::FlowControl
}

fn decode_index(
    from: &mut Reader<'_>,
    last_seq: StreamSeq,
    names: &Names,
) -> Result<Index, RestoreError> {
    let mut blocks = VecDeque::new();
    let mut behind = StreamSeq::ZERO;
    let mut next = |from: &mut Reader<'_>, closed: bool| {
        let block = Block::decode(from, last_seq, |id| names.has(id))?;
        let empty = block.live().count() == 0;
        if block.first() < behind || (closed && empty) {
            return Err(RestoreError::Inconsistent("the order of blocks"));
        }
        behind = block.end();
        Ok(block)
    };
    // An encoded block of the index takes at least 88 bytes: three numbers and two sets of bits. The reader
    // refuses a count for which too few bytes are left.
    for _ in 0..from.len(88)? {
        blocks.push_back(Arc::new(next(from, true)?));
    }
    let tail = next(from, false)?;
    Ok(Index::restored(blocks, tail))
}

impl Streams {
    /// Takes a snapshot of all streams at once. The cost is a copy of each configuration and consumer, and a
    /// reference for each 256 messages. Afterwards, the first change of a shared block copies that block. A
    /// caller that cannot wait takes the snapshot in parts.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.empty_snapshot();
        self.streams
            .values()
            .for_each(|stream| snapshot.push(Part::of(stream)));
        snapshot
    }

    /// Begins a snapshot of all streams as they are now, which [`Streams::go_on_snapshot`] then takes in
    /// parts. Drops an older snapshot that is not finished, because a group takes one snapshot at a time.
    pub fn begin_snapshot(&mut self) {
        let snapshot = self.empty_snapshot();
        self.streams.begin(snapshot);
    }

    /// Continues the snapshot until the streams that it copies have cost `limit`: 1 for each stream, for each
    /// consumer and for each 16,384 messages. Returns the snapshot once it is finished. The limit keeps each
    /// turn of the event loop short.
    #[must_use]
    pub fn go_on_snapshot(&mut self, limit: usize) -> Option<Snapshot> {
        self.streams.go_on(limit)
    }

    fn empty_snapshot(&self) -> Snapshot {
        Snapshot {
            now_us: self.now_us,
            last_id: self.last_id,
            streams: Vec::with_capacity(self.streams.len()),
            retains: false,
            has_origins: false,
            has_flow_acks: false,
        }
    }

    /// Restores the streams of a group from a snapshot; `bytes` is the concatenation of the snapshot's
    /// chunks. A node does so when it starts, or when it gets a snapshot from the leader.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are no snapshot or contradict themselves, because the node must not
    /// continue from a damaged state.
    pub fn restore(bytes: &[u8], limits: AccountLimits) -> Result<Self, RestoreError> {
        let mut from = Reader(bytes);
        let [version, zeros @ ..] = from.u64()?.to_le_bytes();
        if !(VERSION_WITHOUT_KEPT..=VERSION_WITH_FLOW_ACKS).contains(&version) || zeros != [0; 7] {
            return Err(RestoreError::Version(version));
        }
        let mut streams = Self::new(limits);
        (streams.now_us, streams.last_id) = (from.u64()?, StreamNumber::new(from.u32()?));
        for _ in 0..from.len(64)? {
            let stream = Part::decode(&mut from, &limits, version)?;
            let fits = stream.id <= streams.last_id
                && streams.get(stream.id).is_none()
                && streams.by_name(stream.name()).is_none();
            if !fits {
                return Err(RestoreError::Inconsistent("the numbers of streams"));
            }
            streams.insert(stream);
        }
        if !from.0.is_empty() {
            return Err(RestoreError::Long);
        }
        Ok(streams)
    }
}

impl Snapshot {
    /// Returns the number of the last stream that the group had created when the snapshot began. The snapshot
    /// leaves out later streams.
    pub(super) const fn last_id(&self) -> StreamNumber {
        self.last_id
    }

    /// Returns the lowest version with a layout for these streams, so that older programs can read the
    /// snapshot if they know such streams.
    fn version(&self) -> u8 {
        match (self.has_origins, self.retains) {
            _ if self.has_flow_acks => VERSION_WITH_FLOW_ACKS,
            (true, _) => VERSION_WITH_ORIGINS,
            (false, true) => VERSION_RETAINING,
            (false, false) => VERSION,
        }
    }

    /// Adds the copy of a stream to the snapshot, and notes which version of the layout the stream needs.
    pub(super) fn push(&mut self, stream: Part) {
        self.has_origins |= stream.config.has_origins() || !stream.intakes.is_empty();
        self.retains |= stream.config.is_extended();
        self.has_flow_acks |= stream.config.names_consumers()
            || stream.consumers.iter().any(|(_, c)| is_acked_by_flow(c));
        self.streams.push(stream);
    }

    /// Returns an iterator over the encoded bytes of the snapshot, in parts of about 256 KiB. The first part
    /// also sorts the streams, which takes the caller's thread longer.
    #[must_use]
    pub const fn chunks(self) -> Chunks {
        Chunks {
            snapshot: self,
            stream: 0,
            step: Section::Start,
            free: FreeSet::NONE,
        }
    }
}

/// An iterator over the encoded bytes of a snapshot, in parts of about 256 KiB, so that a thread never holds
/// the whole encoding.
#[derive(Clone, Debug)]
pub struct Chunks {
    snapshot: Snapshot,
    stream: usize,
    step: Section,
    /// The numbers that no subject of the present stream has. The encoder leaves out their names.
    free: FreeSet,
}

/// The section of the snapshot that the iterator [`Chunks`] encodes next. Each section is small, so that a
/// chunk does not get too large.
#[derive(Clone, Copy, Debug)]
enum Section {
    Start,
    Head,
    Names(usize),
    Blocks(usize),
    Ids(usize),
    Consumers,
}

impl Iterator for Chunks {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < CHUNK_BYTES && self.step(&mut out) {}
        (!out.is_empty()).then_some(out)
    }
}

impl Chunks {
    /// Encodes the next section of the snapshot into `out`. Returns whether a section was left to encode. A
    /// chunk consists of several sections.
    fn step(&mut self, out: &mut Vec<u8>) -> bool {
        if let Section::Start = self.step {
            self.snapshot.streams.sort_unstable_by_key(|part| part.id);
            put_u64(out, self.snapshot.version().into());
            put_u64(out, self.snapshot.now_us);
            put_u32(out, self.snapshot.last_id.get());
            put_len(out, self.snapshot.streams.len());
            self.step = Section::Head;
            return true;
        }
        let Some(part) = self.snapshot.streams.get(self.stream) else {
            return false;
        };
        self.step = match self.step {
            Section::Start | Section::Head => {
                part.encode_head(self.snapshot.version(), out);
                self.free = part.names.free_set();
                Section::Names(0)
            }
            Section::Names(page) if page < part.names.pages_len() => {
                part.names.encode_page(page, &self.free, out);
                Section::Names(page + 1)
            }
            Section::Names(_) => {
                put_len(out, part.blocks.len());
                Section::Blocks(0)
            }
            Section::Blocks(at) => match part.blocks.get(at) {
                Some(block) => {
                    block.encode(out);
                    Section::Blocks(at + 1)
                }
                None => {
                    part.tail.encode(out);
                    part.ids.encode_head(out);
                    Section::Ids(0)
                }
            },
            Section::Ids(page) if page < part.ids.pages_len() => {
                part.ids.encode_page(page, out);
                Section::Ids(page + 1)
            }
            Section::Ids(_) => Section::Consumers,
            Section::Consumers => {
                part.encode_consumers(out);
                self.stream += 1;
                Section::Head
            }
        };
        true
    }
}
