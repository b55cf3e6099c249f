//! Takes the messages that clients publish into streams: from the connection into the entry that gathers
//! commands.

use std::borrow::Cow;

use tidegate::Time;
use tidegate_nats::parse::Publish;
use tidegate_raft::store::Space;
use tidegate_stream::ingest;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{Command, Kind, Stream};

use super::JetStream;
use super::context::Context;
use super::outcome::Then;
use crate::party::Party;

/// The answer of the streams when the node offers them a published message, from which the node decides about
/// the message and its publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// No stream takes the message, and the message is no request that this node handles, so the node goes on
    /// to its subscribers and peers.
    No,
    /// A stream or the API took the message, so the node has no more to do with it.
    Yes,
    /// A stream or the API took the message, and so many bytes wait for the log that the node stops reading
    /// from the publisher.
    Full,
}

impl JetStream {
    /// Proposes to store a published message, if this node leads a stream that takes messages of its subject.
    /// The publisher gets its answer after the commit. `from` is the client or the peer that sent the
    /// message, for the measurement of its acknowledgement; `None` leaves the message out.
    pub(crate) fn publish(
        &mut self,
        now: Time,
        from: Option<Party>,
        message: &Publish<'_>,
    ) -> Taken {
        let captured = self
            .role
            .serves
            .then(|| self.streams.capture(message.subject));
        let Some(id) = captured.flatten() else {
            return Taken::No;
        };
        let Some(stream) = self.streams.get(id) else {
            return Taken::No;
        };
        if !self.is_open_here(stream) {
            return Taken::No;
        }
        let config = stream.config();
        let volatile = stream.in_memory();
        let no_ack = config.no_ack;
        if let Err(error) = self.admits(id, volatile, message.size()) {
            self.refuse(id, message.reply.filter(|_| !no_ack), &error);
            return Taken::Yes;
        }
        if let Some(control) = message.reply.and_then(ingest::control) {
            self.ingest_fast(now, id, volatile, control, message);
            return self.taken();
        }
        if let Some(batch) = message.headers.and_then(ingest::batch_id) {
            self.ingest_atomic(now, id, volatile, batch, message);
            return self.taken();
        }
        let reply = message.reply.filter(|_| !no_ack);
        let subject = self.stored_subject(id, message.subject);
        let command = Command {
            headers: message.headers,
            ..Command::new(Kind::Publish, id, &subject, message.payload)
        };
        let waiter = reply.map(|reply| match self.spans.begin(now, message) {
            None => (reply, Then::Publish),
            Some(begun) => (reply, Then::Followed(begun)),
        });
        self.command(now, volatile, &command, waiter);
        if let Some(from) = from.filter(|_| reply.is_some()) {
            self.entries.count_publish(volatile, now, from);
        }
        self.taken()
    }

    /// Returns the name of the stream that takes messages of this subject, if this node serves it.
    pub(crate) fn stream_at(&mut self, subject: &[u8]) -> Option<&str> {
        let id = self.role.serves.then(|| self.streams.capture(subject))??;
        let stream = self.streams.get(id)?;
        self.is_open_here(stream).then(|| stream.name())
    }

    /// Returns the subject under which the stream is to store a message that is published to `subject`.
    ///
    /// The node decides this when it adds the message to an entry, so that all nodes store the message under
    /// the same subject. A change of the stream's transform that is not applied yet does not count.
    pub(super) fn stored_subject<'a>(
        &mut self,
        stream: StreamNumber,
        subject: &'a [u8],
    ) -> Cow<'a, [u8]> {
        let Some(stream) = self.streams.get(stream).filter(|s| s.has_transform()) else {
            return Cow::Borrowed(subject);
        };
        let random = self.republishing.draw(self.speech.seed);
        let mapped = stream.stored_subject(subject, random);
        mapped.map_or(Cow::Borrowed(subject), Cow::Owned)
    }

    /// Answers the publisher of a message for a stream that no known node serves, so that the publisher does
    /// not wait in vain. The node calls this for a message that subscribers received: the publisher of a
    /// message without any receiver gets `no responders`.
    pub(crate) fn answer_unserved(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        message: &Publish<'_>,
    ) {
        let Some(id) = self.streams.capture(message.subject) else {
            return;
        };
        let stream = self.streams.get(id).filter(|s| !s.config().no_ack);
        let unserved = stream.is_some_and(|s| cx.around.server_of(s.name()).is_none());
        if let Some(reply) = message.reply.filter(|_| unserved) {
            let mut body = Vec::new();
            self.pub_ack(id)
                .refused(&mut body, &ApiError::SYSTEM_UNAVAILABLE);
            self.voice(cx, now).answer_with(reply, &body);
        }
    }

    /// Returns whether the stream that takes messages of this subject is frozen: while the stream moves to
    /// another group, no group may store messages in it, and the publisher gets `no responders`.
    pub(crate) fn has_frozen(&self, subject: &[u8]) -> bool {
        self.role.serves && self.streams.taker(subject).is_some_and(Stream::is_frozen)
    }

    /// Checks that the operator's limits and the disks have room for a message of `bytes` bytes, before the
    /// node proposes to store it.
    fn admits(&self, stream: StreamNumber, volatile: bool, bytes: usize) -> Result<(), ApiError> {
        if (self.room.space != Space::Free || self.room.crowded) && !volatile {
            return Err(ApiError::STORAGE_EXCEEDED);
        }
        self.streams.check_quota(stream, bytes, self.room.beside)
    }

    fn taken(&self) -> Taken {
        match self.holds_back() {
            true => Taken::Full,
            false => Taken::Yes,
        }
    }

    /// Adds a command to the open entry, so that the node proposes it, and first closes that entry if the
    /// command does not fit. `waiter` is the reply subject of the client that waits, and the action that
    /// follows the outcome.
    pub(super) fn command(
        &mut self,
        now: Time,
        volatile: bool,
        command: &Command<'_>,
        waiter: Option<(&[u8], Then)>,
    ) {
        if !volatile {
            let closes = self.streams.looks_up(command) && self.entries.note_look_up();
            if closes || self.has_no_room_for(command.encoded_bytes()) {
                self.seal(now);
            }
        }
        self.add(volatile, command, waiter);
    }

    /// Adds a command to the open entry, even if the entry is full, for a caller that has closed a full entry
    /// before and keeps its next commands together.
    pub(super) fn add(
        &mut self,
        volatile: bool,
        command: &Command<'_>,
        waiter: Option<(&[u8], Then)>,
    ) {
        self.entries.add(volatile, command, waiter);
    }

    /// Returns whether the caller should close the open entry before it adds a command of this many bytes,
    /// because the command does not fit.
    pub(super) fn has_no_room_for(&self, bytes: usize) -> bool {
        self.entries.has_no_room_for(bytes)
    }

    /// Closes the open entry, in which commands gather, at the present wall-clock time, so that the node can
    /// propose it.
    pub(super) fn seal(&mut self, now: Time) {
        let time_us = self.wall.tell(now);
        self.entries.seal(time_us);
    }

    /// Returns whether the node should stop reading from publishers: so many bytes wait for the log, or to be
    /// published again. In the second case the log still takes requests, so that a client can end the
    /// republishing.
    pub(crate) fn holds_back(&self) -> bool {
        self.is_full() || self.republishing.is_full()
    }

    /// Returns whether so many bytes wait for the log that it should take no more, which happens if
    /// publishers are faster than the log.
    pub(super) fn is_full(&self) -> bool {
        self.entries.is_full()
    }
}
