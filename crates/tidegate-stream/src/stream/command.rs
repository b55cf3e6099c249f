//! The layout of an entry of the log: the commands that change streams, as bytes.
//!
//! This module owns the layout of an entry and of a command, and the address of a message ([`Place`]).
//! [`super::Streams`] owns the effect of a command. The log checks that an entry is whole: its records carry
//! a checksum. Still, for any bytes, decoding ends in a command or an error and never in a panic.
//!
//! The encoder writes all numbers in little-endian form, so that each node reads the entry alike.
//!
//! ```text
//! entry    version u8 = 1 | 7 zero bytes | time_us u64 | commands, one after the other
//! command  kind u8 | flags u8 | subject_len u16 | stream u32 | headers_len u32 | payload_len u32
//!          | subject | headers | payload
//! ```
//!
//! An entry is a batch of commands, and the entry's time is the time of each command. The compaction of the
//! log writes each message that it moves as an entry with one [`Kind::Publish`], so that a [`Place`] has the
//! same meaning for moved messages.

use crate::consumer::{lists_settled, settles};
use crate::schema::config::{AckPolicy, ConsumerConfig, StreamConfig};
use crate::schema::number::StreamNumber;
use thiserror::Error;

/// The length of the header of a log entry, before the entry's first command, in bytes. The first command
/// begins at this offset.
pub const ENTRY_HEADER_BYTES: usize = 16;
/// The length of the fixed part of a command, before the command's subject, in bytes. The lengths in it tell
/// the decoder where the next command begins.
pub const COMMAND_HEADER_BYTES: usize = 16;
/// The version of the layout of entries that this program writes and reads. The program refuses an entry of
/// another version, because it would misread the bytes.
pub const VERSION: u8 = 1;

/// The bit in the flags of a command that tells the decoder that the command has headers, even if the header
/// block is empty.
const HAS_HEADERS: u8 = 1;

/// The address of a message, by which a node reads the message from the log: the log record that holds the
/// message's entry, and the command in that entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The log position of the record that holds the message's entry, in bytes. The node reads that record.
    pub lsn: u64,
    /// The offset of the message's command in the entry, in bytes. The decoder begins there.
    pub offset: u32,
}

/// The kind of a command, which says how the command changes the streams. Its number is a part of the log's
/// format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Stores a published message in a stream, as the stream's next message.
    Publish = 1,
    /// Creates a stream, as a client, a move or the directory asks. The payload is the stream's configuration
    /// as JSON, the command's stream number is 0, and the subject is a [`super::Placement`].
    CreateStream = 2,
    /// Changes a stream's configuration, as a client asks. The payload is the new configuration as JSON, and
    /// the subject is a [`super::Course`].
    UpdateStream = 3,
    /// Deletes a stream with all its messages and consumers, as a client or a move asks.
    DeleteStream = 4,
    /// Purges a stream: removes the messages that a client selects with the payload, JSON `{filter, seq,
    /// keep}`.
    Purge = 5,
    /// Removes one message of a stream, as a client asks; the payload is JSON `{seq, no_erase}`.
    DeleteMessage = 6,
    /// Removes the messages of a stream that have expired at the entry's time, and continues the search for
    /// messages without a consumer in a stream that keeps messages by interest.
    Expire = 7,
    /// Makes the next publishes of the entry atomic: the stream stores all or none of them, because they are
    /// one batch of a publisher. The payload is their count, a `u32`.
    Atomic = 8,
    /// Creates or changes a consumer, as a client asks. The subject is the consumer's name, and the payload
    /// is a [`super::ConsumerRequest`] as JSON.
    CreateConsumer = 9,
    /// Deletes the consumer that the subject names, so that the stream no longer keeps messages or a position
    /// for it.
    DeleteConsumer = 10,
    /// Changes the state of the consumer that the subject names. The payload is a delta: the changes of the
    /// consumer since its last delta. So a new leader continues the consumer's deliveries.
    ConsumerDelta = 11,
    /// Replaces the last message of the command's subject with a marker, if that message has expired. A
    /// marker is a message by which consumers learn that the subject's messages are gone.
    Marker = 12,
    /// Notes in the directory, the list of the streams of all groups, that the stream's home group has
    /// created the stream. The directory then no longer asks the group to create the stream.
    Made = 13,
    /// Adds a part of a moving stream, which the home group exported, to the copy of the stream in the target
    /// group, which thereby gets the whole stream. The payload describes the part, and the part's messages
    /// follow as publishes. The subject is a [`super::Filling`].
    Import = 14,
    /// Freezes a stream that moves to another group: from then on the stream does not change in this group,
    /// unless it thaws. The payload is a [`super::Moving`]. So the target group can copy its last part.
    Freeze = 15,
    /// Ends a move of a stream in the directory, because the target group has the whole stream. The payload
    /// is a [`super::Moving`].
    Moved = 16,
    /// Calls off a move of a stream in the directory, and begins another move of this stream, for example
    /// because the target group has failed. The payload is a [`super::Renewal`].
    Renew = 17,
    /// Thaws a frozen stream, so that it takes messages again: the directory has called off the stream's
    /// move, and the stream stays in this group. The payload is a [`super::Thaw`].
    Thaw = 18,
    /// Resets the consumer that the subject names, as a client asks. The payload is the number of the message
    /// with which the consumer starts again, a `u64`.
    ResetConsumer = 19,
    /// Creates a stream that keeps messages for its consumers or maps subjects
    /// ([`StreamConfig::is_extended`]), as [`Kind::CreateStream`] creates others. Older programs, which do
    /// not know such streams, stop at this kind.
    CreateRetaining = 20,
    /// Changes the configuration of a stream if the old or the new configuration is a work queue, keeps
    /// messages by interest, or maps subjects. [`Kind::UpdateStream`] changes all other streams. Older nodes,
    /// which do not know such streams, stop at this kind.
    UpdateRetaining = 21,
    /// Changes the state of the consumer that the subject names, as [`Kind::ConsumerDelta`] does. The delta
    /// lists the messages that the consumer has settled. The stream removes those that no other consumer
    /// needs.
    SettlingDelta = 22,
    /// Creates a stream that takes in messages from other streams, as [`Kind::CreateStream`] creates others.
    /// Older programs, which do not know such streams, stop at this kind.
    CreateWithOrigins = 23,
    /// Changes the configuration of a stream that takes in messages from other streams, or that does so only
    /// before or only after the change, as [`Kind::UpdateStream`] changes others.
    UpdateWithOrigins = 24,
    /// Stores messages that a stream takes in from an origin, and notes the stream's progress in the origin,
    /// so that it takes in no message twice. The command's subject is the key of the source, its payload is
    /// an [`super::Intake`], and the messages follow as publish commands.
    TakeIn = 25,
    /// Creates a stream that a backup fills, as [`Kind::CreateStream`] creates others. The stream serves no
    /// client before it has the last part of the backup, because its content is incomplete.
    CreateRestoring = 26,
    /// Adds a part of a backup to the stream that the backup fills. The payload is a [`super::RestorePart`],
    /// and the part's messages follow as publishes.
    Restore = 27,
    /// Creates or changes a consumer with the ack policy `flow_control`, as [`Kind::CreateConsumer`] does
    /// with others. Older programs, which do not know such consumers, stop at this kind.
    CreateFlowConsumer = 28,
    /// Creates a stream that takes in the messages of an origin by a consumer of the client's
    /// ([`StreamConfig::names_consumers`]), as [`Kind::CreateWithOrigins`] creates others. Older programs,
    /// which do not know such streams, stop at this kind.
    CreateByConsumers = 29,
    /// Changes the configuration of a stream that takes in messages by a consumer of the client's, or that
    /// does so only before or only after the change, as [`Kind::UpdateWithOrigins`] changes others.
    UpdateByConsumers = 30,
}

impl Kind {
    /// Returns the kind of the command that creates a stream of this configuration. A program that does not
    /// know streams of this kind must stop at the command, so these commands have kinds of their own.
    #[must_use]
    pub fn creating(config: &StreamConfig) -> Self {
        match (config.has_origins(), config.is_extended()) {
            (true, _) if config.names_consumers() => Self::CreateByConsumers,
            (true, _) => Self::CreateWithOrigins,
            (false, false) => Self::CreateStream,
            (false, true) => Self::CreateRetaining,
        }
    }

    /// Returns the kind of the command that changes a stream's configuration, `from` one configuration `to`
    /// another. A program that does not know such streams stops at the command.
    #[must_use]
    pub fn updating(from: &StreamConfig, to: &StreamConfig) -> Self {
        let have_origins = from.has_origins() || to.has_origins();
        match (have_origins, from.is_extended() || to.is_extended()) {
            (true, _) if from.names_consumers() || to.names_consumers() => Self::UpdateByConsumers,
            (true, _) => Self::UpdateWithOrigins,
            (false, false) => Self::UpdateStream,
            (false, true) => Self::UpdateRetaining,
        }
    }

    /// Returns the kind of the command that creates or changes a consumer, so that the consumer has this
    /// configuration. A program that does not know such consumers stops at the command.
    #[must_use]
    pub const fn of_consumer(config: &ConsumerConfig) -> Self {
        match config.ack_policy {
            AckPolicy::FlowControl => Self::CreateFlowConsumer,
            AckPolicy::None | AckPolicy::All | AckPolicy::Explicit => Self::CreateConsumer,
        }
    }

    /// Returns the kind of the command that holds this delta of a consumer: a delta that lists settled
    /// messages has its own kind, because the stream removes these messages.
    #[must_use]
    pub fn of_delta(delta: &[u8]) -> Self {
        match lists_settled(delta) {
            false => Self::ConsumerDelta,
            true => Self::SettlingDelta,
        }
    }

    /// Returns whether each command of this kind frees space in the log, so that a group may still write it
    /// when only the log's reserve is left. The commands of a move count, because a stream that leaves frees
    /// space in the end. A marker counts, because it replaces an expired message.
    #[must_use]
    pub const fn makes_space(self) -> bool {
        matches!(
            self,
            Self::DeleteStream
                | Self::Purge
                | Self::DeleteMessage
                | Self::Expire
                | Self::DeleteConsumer
                | Self::Marker
                | Self::Freeze
                | Self::Moved
                | Self::Renew
                | Self::Thaw
        )
    }

    /// Returns the kind of command that has this number; `None` for the number of a kind that a newer program
    /// has added.
    #[must_use]
    pub const fn from_u8(kind: u8) -> Option<Self> {
        Some(match kind {
            1 => Self::Publish,
            2 => Self::CreateStream,
            3 => Self::UpdateStream,
            4 => Self::DeleteStream,
            5 => Self::Purge,
            6 => Self::DeleteMessage,
            7 => Self::Expire,
            8 => Self::Atomic,
            9 => Self::CreateConsumer,
            10 => Self::DeleteConsumer,
            11 => Self::ConsumerDelta,
            12 => Self::Marker,
            13 => Self::Made,
            14 => Self::Import,
            15 => Self::Freeze,
            16 => Self::Moved,
            17 => Self::Renew,
            18 => Self::Thaw,
            19 => Self::ResetConsumer,
            20 => Self::CreateRetaining,
            21 => Self::UpdateRetaining,
            22 => Self::SettlingDelta,
            23 => Self::CreateWithOrigins,
            24 => Self::UpdateWithOrigins,
            25 => Self::TakeIn,
            26 => Self::CreateRestoring,
            27 => Self::Restore,
            28 => Self::CreateFlowConsumer,
            29 => Self::CreateByConsumers,
            30 => Self::UpdateByConsumers,
            _ => return None,
        })
    }
}

/// A command of an entry, borrowed from the entry's bytes, so that decoding copies no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// The kind of the command, which says what the streams change and how they read the other fields.
    pub kind: Kind,
    /// The number of the stream that the command changes; 0 if the command creates a stream, which has no
    /// number yet.
    pub stream: StreamNumber,
    /// The subject of a published message, the name of a consumer, or other data as the command's [`Kind`]
    /// says.
    pub subject: &'a [u8],
    /// The header block of the message that the command publishes; `None` if the publisher sent no headers.
    pub headers: Option<&'a [u8]>,
    /// The payload of a published message, or other data as the command's [`Kind`] says.
    pub payload: &'a [u8],
    /// The offset of the command in its entry, in bytes. The [`Place`] of a published message contains this
    /// offset.
    pub offset: u32,
}

impl<'a> Command<'a> {
    /// Returns whether the command is a delta that lists messages which a consumer has settled: acknowledged
    /// or given up. After such a command the stream removes the messages that no other consumer needs.
    #[must_use]
    pub fn settles(&self) -> bool {
        self.kind == Kind::SettlingDelta && settles(self.payload)
    }

    /// Reads the command that begins at byte `offset` of `entry`, so that a node finds a message by its
    /// [`Place`].
    ///
    /// # Errors
    ///
    /// Returns an error if no whole command of a known kind begins at that byte, because the log or the place
    /// is damaged.
    pub fn read(entry: &'a [u8], offset: u32) -> Result<Self, EntryError> {
        let at = EntryError::at(offset);
        let bytes = entry.get(offset as usize..).ok_or_else(|| at.cut())?;
        let (header, rest) = bytes
            .split_first_chunk::<COMMAND_HEADER_BYTES>()
            .ok_or_else(|| at.cut())?;
        let u32_at =
            |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
        let (kind, flags) = (header[0], header[1]);
        let kind = Kind::from_u8(kind).ok_or(EntryError::Kind { kind, offset })?;
        let subject_len = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let (headers_len, payload_len) = (u32_at(8) as usize, u32_at(12) as usize);
        if flags & !HAS_HEADERS != 0 || (flags == 0 && headers_len != 0) {
            return Err(EntryError::Flags { flags, offset });
        }
        let (subject, rest) = rest.split_at_checked(subject_len).ok_or_else(|| at.cut())?;
        let (headers, rest) = rest.split_at_checked(headers_len).ok_or_else(|| at.cut())?;
        let payload = rest.get(..payload_len).ok_or_else(|| at.cut())?;
        Ok(Self {
            kind,
            stream: StreamNumber::new(u32_at(4)),
            subject,
            headers: (flags & HAS_HEADERS != 0).then_some(headers),
            payload,
            offset,
        })
    }

    /// Creates a command without headers, for an [`Encoder`] to write. [`Encoder::command`] determines the
    /// command's offset.
    #[must_use]
    pub const fn new(
        kind: Kind,
        stream: StreamNumber,
        subject: &'a [u8],
        payload: &'a [u8],
    ) -> Self {
        Self {
            kind,
            stream,
            subject,
            headers: None,
            payload,
            offset: 0,
        }
    }

    /// Returns the length of the encoded command, in bytes, so that the caller can check whether an entry has
    /// room for the command.
    #[must_use]
    pub const fn encoded_bytes(&self) -> usize {
        let headers = match self.headers {
            Some(headers) => headers.len(),
            None => 0,
        };
        COMMAND_HEADER_BYTES + self.subject.len() + headers + self.payload.len()
    }
}

/// An entry of the log, borrowed from its bytes: a batch of commands that each node of the group applies, and
/// the time of the batch.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    time_us: u64,
    bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads the header of an entry; [`Entry::commands`] then reads the commands one by one.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes do not begin with a header of this version, because this program would
    /// misread the entry.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, EntryError> {
        let header = bytes
            .first_chunk::<ENTRY_HEADER_BYTES>()
            .ok_or(EntryError::Cut { offset: 0 })?;
        let [version, zeros @ .., _, _, _, _, _, _, _, _] = header;
        if *version != VERSION || *zeros != [0; 7] {
            return Err(EntryError::Version { version: *version });
        }
        let [_, _, _, _, _, _, _, _, time @ ..] = *header;
        Ok(Self {
            time_us: u64::from_le_bytes(time),
            bytes,
        })
    }

    /// Returns the time of the entry in microseconds since 1970, which the leader set when it proposed the
    /// entry. All nodes take this time as the present.
    #[must_use]
    pub const fn time_us(&self) -> u64 {
        self.time_us
    }

    /// Returns whether every command of the entry frees space in the log, so that a group may still write the
    /// entry when only the log's reserve is left.
    #[must_use]
    pub fn makes_space(&self) -> bool {
        self.commands()
            .all(|c| c.is_ok_and(|c| c.kind.makes_space()))
    }

    /// Returns whether every command of the entry frees space in the log, or makes its stream remove messages
    /// ([`Command::settles`]). Such an entry may use a part of the log's reserve. Deltas come without end, so
    /// they must leave the other part for the commands that surely free space.
    #[must_use]
    pub fn may_make_space(&self) -> bool {
        let may = |c: Command<'_>| c.kind.makes_space() || c.settles();
        self.commands().all(|c| c.is_ok_and(may))
    }

    /// Iterates over the commands of the entry, in order. After an error the iterator ends, because it cannot
    /// know where the next command begins.
    #[must_use]
    pub const fn commands(&self) -> Commands<'a> {
        Commands {
            bytes: self.bytes,
            at: ENTRY_HEADER_BYTES,
        }
    }
}

/// An iterator over the commands of a log entry, in order. The state machine applies them one by one.
#[derive(Clone, Debug)]
pub struct Commands<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Command<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let read = u32::try_from(self.at)
            .map_err(|_| EntryError::Cut { offset: u32::MAX })
            .and_then(|offset| Command::read(self.bytes, offset));
        self.at = match &read {
            Ok(command) => self.at + command.encoded_bytes(),
            Err(_) => self.bytes.len(),
        };
        Some(read)
    }
}

/// Writes an entry into the caller's buffer, command by command, for the leader, which then proposes the
/// entry to the group.
///
/// ```
/// use tidegate_stream::schema::number::StreamNumber;
/// use tidegate_stream::stream::{Command, Encoder, Entry, Kind};
///
/// let mut buffer = Vec::new();
/// let mut encoder = Encoder::begin(&mut buffer, 1_700_000_000_000_000);
/// let stream = StreamNumber::new(7);
/// let offset = encoder.publish(stream, b"orders.new", None, b"hello").unwrap();
/// let entry = Entry::decode(&buffer).unwrap();
/// let commands: Vec<_> = entry.commands().collect::<Result<_, _>>().unwrap();
/// assert_eq!((commands[0].kind, commands[0].stream), (Kind::Publish, stream));
/// assert_eq!(Command::read(&buffer, offset).unwrap().payload, b"hello");
/// ```
#[derive(Debug)]
pub struct Encoder<'b, B> {
    buffer: &'b mut B,
}

/// A growable buffer into which an [`Encoder`] writes an entry, so that callers can use the buffer type that
/// their log takes.
pub trait Buffer {
    /// Appends `bytes` to the buffer, which grows as needed.
    fn put(&mut self, bytes: &[u8]);
    /// Returns the part of the entry that the encoder has written so far, so that the encoder can overwrite
    /// the entry's time.
    fn written(&mut self) -> &mut [u8];
}

impl Buffer for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn written(&mut self) -> &mut [u8] {
        self
    }
}

impl Buffer for bytes::BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn written(&mut self) -> &mut [u8] {
        self
    }
}

impl<'b, B: Buffer> Encoder<'b, B> {
    /// Begins an entry in `buffer`, which must be empty; `time_us` is the entry's time in microseconds since
    /// 1970. The caller then adds the commands.
    pub fn begin(buffer: &'b mut B, time_us: u64) -> Self {
        assert!(
            buffer.written().is_empty(),
            "an entry begins its buffer: offsets count from there"
        );
        buffer.put(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
        buffer.put(&time_us.to_le_bytes());
        Self { buffer }
    }

    /// Continues to write the entry that [`Encoder::begin`] began in `buffer`, for a leader that collects
    /// commands over several calls.
    pub fn resume(buffer: &'b mut B) -> Self {
        assert!(
            buffer.written().len() >= ENTRY_HEADER_BYTES,
            "only an entry that was begun goes on"
        );
        Self { buffer }
    }

    /// Sets the time of the entry, in microseconds since 1970. The leader calls this when it proposes the
    /// entry, because the entry may have waited since [`Encoder::begin`] set its time.
    pub fn set_time(&mut self, time_us: u64) {
        self.buffer.written()[8..ENTRY_HEADER_BYTES].copy_from_slice(&time_us.to_le_bytes());
    }

    /// Writes the command that stores a message; returns the offset for the message's [`Place`], by which a
    /// node later reads the message.
    ///
    /// # Errors
    ///
    /// Returns an error, and writes nothing, if the subject is longer than 65,535 bytes or the entry would be
    /// longer than 4 GiB, because the fields for lengths hold no more.
    pub fn publish(
        &mut self,
        stream: StreamNumber,
        subject: &[u8],
        headers: Option<&[u8]>,
        payload: &[u8],
    ) -> Result<u32, EncodeError> {
        self.command(&Command {
            headers,
            ..Command::new(Kind::Publish, stream, subject, payload)
        })
    }

    /// Writes the command that makes the next `count` publishes atomic: the stream stores all or none of
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error, and writes nothing, if the entry would be longer than 4 GiB, because an offset in an
    /// entry has 32 bits.
    pub fn atomic(&mut self, stream: StreamNumber, count: u32) -> Result<u32, EncodeError> {
        self.command(&Command::new(
            Kind::Atomic,
            stream,
            b"",
            &count.to_le_bytes(),
        ))
    }

    /// Writes a command, and returns its offset in the entry. The encoder ignores the offset in `command`,
    /// because the end of the entry determines it.
    ///
    /// # Errors
    ///
    /// Returns an error, and writes nothing, if the subject is longer than 65,535 bytes or the entry would be
    /// longer than 4 GiB, because the fields for lengths hold no more.
    pub fn command(&mut self, command: &Command<'_>) -> Result<u32, EncodeError> {
        let subject_len = u16::try_from(command.subject.len())
            .map_err(|_| EncodeError::Subject(command.subject.len()))?;
        let start = self.buffer.written().len();
        if u32::try_from(start + command.encoded_bytes()).is_err() {
            return Err(EncodeError::Full);
        }
        let fits = |len: usize| u32::try_from(len).expect("the end of the command fits");
        let len = |bytes: &[u8]| fits(bytes.len()).to_le_bytes();
        let headers = command.headers.unwrap_or_default();
        let mut header = [0; COMMAND_HEADER_BYTES];
        header[0] = command.kind as u8;
        header[1] = u8::from(command.headers.is_some()) * HAS_HEADERS;
        header[2..4].copy_from_slice(&subject_len.to_le_bytes());
        header[4..8].copy_from_slice(&command.stream.get().to_le_bytes());
        header[8..12].copy_from_slice(&len(headers));
        header[12..16].copy_from_slice(&len(command.payload));
        self.buffer.put(&header);
        self.buffer.put(command.subject);
        self.buffer.put(headers);
        self.buffer.put(command.payload);
        Ok(fits(start))
    }

    /// Returns the length of the entry that the encoder has written so far, in bytes, so that the leader can
    /// propose the entry before it gets too long.
    pub fn encoded_bytes(&mut self) -> usize {
        self.buffer.written().len()
    }
}

/// The reason why the encoder cannot write a command into an entry. The caller then proposes the entry and
/// writes the command into the next entry, or refuses the command.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The command's subject is longer than 65,535 bytes, and the length field of a command cannot express
    /// more.
    #[error("a subject takes at most 65535 bytes, not {0}")]
    Subject(usize),
    /// With this command, the entry would be longer than 4 GiB. The offset of a command in its entry has only
    /// 32 bits.
    #[error("an entry takes at most 4 GiB: propose what there is, then write this into the next")]
    Full,
}

/// The reason why a node cannot decode bytes as an entry of the log. The node must stop then, because it
/// cannot apply the entry.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryError {
    /// The bytes end within the entry's header or within a command. The writer was interrupted, or a length
    /// in the entry is wrong.
    #[error("the entry ends within what begins at byte {offset}")]
    Cut {
        /// The offset of the incomplete header or command in the entry, in bytes, so that an operator can
        /// find the damage.
        offset: u32,
    },
    /// The entry has another version of the layout than this program reads, mostly because a newer program
    /// wrote the entry.
    #[error("expected an entry of version {VERSION}, not {version}: a newer program wrote it")]
    Version {
        /// The version of the layout that the entry states, for the text of the error.
        version: u8,
    },
    /// A command has a kind that this program does not know, mostly because a newer program wrote the entry.
    #[error("no command has the kind {kind} (byte {offset}): a newer program wrote it")]
    Kind {
        /// The unknown number that the command states as its kind, for the text of the error.
        kind: u8,
        /// The offset of the faulty command in the entry, in bytes, so that an operator can find the command.
        offset: u32,
    },
    /// A command has a flag that this program does not know, or has headers although its flags say that it
    /// has none.
    #[error("the flags {flags:#x} of the command at byte {offset} contradict it")]
    Flags {
        /// The flags of the faulty command, for the text of the error.
        flags: u8,
        /// The offset of the faulty command in the entry, in bytes, so that an operator can find the command.
        offset: u32,
    },
}

impl EntryError {
    const fn at(offset: u32) -> At {
        At(offset)
    }
}

/// The offset of a command in its entry, in bytes. The decoder states it in errors about the command.
struct At(u32);

impl At {
    const fn cut(&self) -> EntryError {
        EntryError::Cut { offset: self.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_comes_back() {
        let mut buffer = bytes::BytesMut::new();
        let mut encoder = Encoder::begin(&mut buffer, 5);
        encoder.set_time(42);
        let a = encoder
            .publish(StreamNumber::FIRST, b"a.b", Some(b""), b"payload")
            .unwrap();
        encoder.atomic(StreamNumber::new(3), 2).unwrap();
        let mut encoder = Encoder::resume(&mut buffer);
        let b = encoder
            .publish(StreamNumber::new(2), b"c", Some(b"NATS/1.0\r\n\r\n"), b"")
            .unwrap();
        let entry = Entry::decode(&buffer).unwrap();
        assert_eq!(entry.time_us(), 42);
        let got: Vec<_> = entry.commands().collect::<Result<_, _>>().unwrap();
        assert_eq!(got.len(), 3);
        assert_eq!(
            (got[0].offset, got[0].headers, got[0].payload),
            (a, Some(&b""[..]), &b"payload"[..])
        );
        assert_eq!(
            (got[1].kind, got[1].stream, got[1].payload),
            (Kind::Atomic, StreamNumber::new(3), &[2, 0, 0, 0][..])
        );
        assert_eq!(Command::read(&buffer, b).unwrap(), got[2]);
    }

    #[test]
    fn malformed_entries_are_refused() {
        assert_eq!(
            Entry::decode(b"").unwrap_err(),
            EntryError::Cut { offset: 0 }
        );
        let mut buffer = Vec::new();
        let mut encoder = Encoder::begin(&mut buffer, 1);
        encoder
            .publish(StreamNumber::FIRST, b"a", None, b"xyz")
            .unwrap();
        let cut = &buffer[..buffer.len() - 1];
        let mut commands = Entry::decode(cut).unwrap().commands();
        assert_eq!(commands.next(), Some(Err(EntryError::Cut { offset: 16 })));
        assert_eq!(commands.next(), None);
        let mut other = buffer.clone();
        other[0] = 2;
        assert_eq!(
            Entry::decode(&other).unwrap_err(),
            EntryError::Version { version: 2 }
        );
        let mut other = buffer.clone();
        other[16] = 99;
        let first = Entry::decode(&other).unwrap().commands().next();
        assert!(matches!(
            first,
            Some(Err(EntryError::Kind { kind: 99, .. }))
        ));
        let mut other = buffer;
        other[17] = 2;
        let first = Entry::decode(&other).unwrap().commands().next();
        assert!(matches!(first, Some(Err(EntryError::Flags { .. }))));
    }

    #[test]
    fn a_long_subject_is_refused() {
        let mut buffer = Vec::new();
        let mut encoder = Encoder::begin(&mut buffer, 1);
        let subject = vec![b'a'; 70_000];
        assert_eq!(
            encoder.publish(StreamNumber::FIRST, &subject, None, b""),
            Err(EncodeError::Subject(70_000))
        );
        assert_eq!(encoder.encoded_bytes(), ENTRY_HEADER_BYTES);
    }

    proptest! {
        #[test]
        fn any_bytes_end(mut bytes in prop::collection::vec(any::<u8>(), 0..200), header in any::<bool>()) {
            if header && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
            }
            if let Ok(entry) = Entry::decode(&bytes) {
                prop_assert!(entry.commands().count() <= bytes.len());
            }
        }
    }
}
