//! Handles the messages of atomic and fast-ingest batches that clients publish: turns the messages into
//! commands, and answers their publishers.
//!
//! The rules of these batches are in [`tidegate_stream::ingest`].

use tidegate::Time;
use tidegate_nats::parse::Publish;
use tidegate_stream::ingest::{
    Abandoned, Answer, AtomicBatch, Control, Held, Incoming, PatternError, Persisted, Staged,
    Ticket, Verdict,
};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::{Command, Kind, Outcome};

use super::context::Context;
use super::outcome::Then;
use super::{JetStream, Voice};

/// The answers that the node has still to send to publishers of batches. The answers wait here because the
/// streams can send messages only while they handle certain events.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) answers: Vec<Answer>,
    /// The bodies of answers that the node has already encoded (errors as JSON, and empty answers), each with
    /// the reply subject at which the publisher waits. The node sends them at the end of the turn.
    plain: Vec<(Box<[u8]>, Vec<u8>)>,
    abandoned: Vec<Abandoned>,
}

impl Pending {
    pub(super) const fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.plain.is_empty() && self.abandoned.is_empty()
    }
}

/// Converts a published message into the form in which [`tidegate_stream::ingest`] takes messages of batches,
/// so that the rules of batches can check the message.
fn incoming<'a>(message: &Publish<'a>) -> Incoming<'a> {
    Incoming {
        subject: message.subject,
        reply: message.reply.unwrap_or_default(),
        headers: message.header_block(),
        payload: message.payload,
    }
}

impl JetStream {
    /// Handles a message that a client publishes as part of a fast-ingest batch: proposes at once to store
    /// the message, or leaves the message with the batch, which releases it later.
    pub(super) fn ingest_fast(
        &mut self,
        now: Time,
        stream: StreamNumber,
        volatile: bool,
        control: Result<Control<'_>, PatternError>,
        message: &Publish<'_>,
    ) {
        let Some(of) = self.streams.get(stream) else {
            return;
        };
        let answers = &mut self.publishing.batches.answers;
        let verdict = self.publishing.fast.handle_message(
            now,
            stream,
            of.config(),
            control,
            &incoming(message),
            answers,
        );
        if let Verdict::Store(ticket) = verdict {
            let subject = self.stored_subject(stream, message.subject);
            let command = Command {
                headers: message.headers,
                ..Command::new(Kind::Publish, stream, &subject, message.payload)
            };
            let waiter = Some((&b""[..], Then::Fast(ticket)));
            self.command(now, volatile, &command, waiter);
        }
    }

    /// Handles a message that a client publishes as part of an atomic batch: keeps the message, and proposes
    /// the whole batch once the client has completed it, so that the stream stores all or none.
    pub(super) fn ingest_atomic(
        &mut self,
        now: Time,
        stream: StreamNumber,
        volatile: bool,
        id: &[u8],
        message: &Publish<'_>,
    ) {
        let Some(of) = self.streams.get(stream) else {
            return;
        };
        let staged =
            self.publishing
                .atomic
                .handle_message(now, stream, of.config(), id, &incoming(message));
        match (staged, message.reply) {
            (Staged::Waiting, Some(reply)) => self
                .publishing
                .batches
                .plain
                .push((reply.into(), Vec::new())),
            (Staged::Waiting, None) => {}
            (Staged::Commit(batch), reply) => self.propose_batch(now, volatile, &batch, reply),
            (Staged::Refused { error, abandoned }, reply) => {
                self.publishing.batches.abandoned.extend(abandoned);
                self.refuse(stream, reply, &error);
            }
        }
    }

    /// Refuses a published message, and queues the error for the publisher, if the publisher waits at `reply`
    /// for an answer.
    pub(super) fn refuse(&mut self, stream: StreamNumber, reply: Option<&[u8]>, error: &ApiError) {
        self.stats.refused += 1;
        if let Some(reply) = reply {
            let mut body = Vec::new();
            self.pub_ack(stream).refused(&mut body, error);
            self.publishing.batches.plain.push((reply.into(), body));
        }
    }

    /// Proposes a whole atomic batch in one entry, so that the nodes store all of its messages or none.
    fn propose_batch(
        &mut self,
        now: Time,
        volatile: bool,
        batch: &AtomicBatch,
        reply: Option<&[u8]>,
    ) {
        let (stream, count) = (batch.stream, batch.len());
        if !volatile && self.has_no_room_for(batch.bytes()) {
            self.seal(now);
        }
        let waiter = reply.map(|reply| (reply, Then::Atomic(batch.id.as_slice().into())));
        let count = count.to_le_bytes();
        self.add(
            volatile,
            &Command::new(Kind::Atomic, stream, b"", &count),
            waiter,
        );
        for (subject, headers, payload) in batch.messages() {
            let subject = self.stored_subject(stream, subject);
            let command = Command {
                headers,
                ..Command::new(Kind::Publish, stream, &subject, payload)
            };
            self.add(volatile, &command, None);
        }
    }

    /// Tells the fast-ingest batches of the group the outcome of the command that stores one of their
    /// messages, so that the batch can answer its publisher.
    pub(super) fn fast_outcome(&mut self, now: Time, ticket: Ticket, outcome: &Outcome) {
        let persisted = match outcome {
            Outcome::Stored { seq, .. } => Persisted::Stored(*seq),
            Outcome::Duplicate { seq, .. } => Persisted::Duplicate(*seq),
            Outcome::Refused { error, .. } => Persisted::Refused(error),
            // This branch handles no outcome in practice: the node always stores a fast-ingest message, finds
            // it a duplicate, or refuses it.
            _ => return,
        };
        let answers = &mut self.publishing.batches.answers;
        self.publishing
            .fast
            .handle_outcome(now, ticket, persisted, answers);
    }

    /// Sends the waiting answers to publishers of batches, and drops batches for which publishers sent no
    /// message for too long, so that abandoned batches keep no memory.
    pub(super) fn serve_batches(&mut self, cx: &mut Context<'_>, now: Time) {
        self.publishing
            .atomic
            .handle_timeouts(now, &mut self.publishing.batches.abandoned);
        self.publishing.fast.handle_timeouts(now);
        while let Some(held) = self.publishing.fast.poll_released() {
            self.release(now, &held);
        }
        let before = self.publishing.batches.answers.len();
        if self
            .publishing
            .fast
            .poll_acks(now, &mut self.publishing.batches.answers)
        {
            self.publishing.acked_fast +=
                (self.publishing.batches.answers.len() - before).max(1) as u64;
        }
        if self.publishing.batches.is_empty() {
            return;
        }
        let batches = std::mem::take(&mut self.publishing.batches);
        for answer in &batches.answers {
            let mut body = std::mem::take(&mut self.body);
            body.clear();
            answer.write(self.pub_ack(answer.stream), &mut body);
            self.voice(cx, now).answer_with(&answer.to, &body);
            self.body = body;
        }
        for (to, body) in &batches.plain {
            self.voice(cx, now).answer_with(to, body);
        }
        for abandoned in &batches.abandoned {
            let Some(stream) = self.streams.get(abandoned.stream) else {
                continue;
            };
            let (name, domain) = (stream.name().to_owned(), self.settings.domain.clone());
            let mut voice: Voice<'_> = self.voice(cx, now);
            let id = voice.speech.next_advisory(voice.wall_us);
            let time = Timestamp::from_micros(voice.wall_us).to_string();
            let body = abandoned.json(&name, domain.as_deref(), &id, &time);
            voice.answer_with(Abandoned::subject(&name).as_bytes(), &body);
        }
    }

    fn release(&mut self, now: Time, held: &Held) {
        let volatile = self.streams.get(held.stream).is_some_and(|s| s.in_memory());
        let subject = self.stored_subject(held.stream, &held.subject);
        let command = Command {
            headers: Some(&held.headers[..]).filter(|h| !h.is_empty()),
            ..Command::new(Kind::Publish, held.stream, &subject, &held.payload)
        };
        let waiter = Some((&b""[..], Then::Fast(held.ticket)));
        self.command(now, volatile, &command, waiter);
    }

    /// Records that the node has written the messages of the last turn to connections: `copies` copies in
    /// `cost_ns` nanoseconds. The controller of flow acknowledgements gets the acknowledgements' share of
    /// this cost, from which it learns how often to send them.
    pub(crate) fn handle_flushed(&mut self, now: Time, copies: u64, cost_ns: u64) {
        let acks = std::mem::take(&mut self.publishing.acked_fast);
        if acks > 0 {
            let copies = copies.max(acks);
            let share = u128::from(cost_ns) * u128::from(acks) / u128::from(copies);
            let share = u64::try_from(share).unwrap_or(cost_ns);
            self.publishing.fast.handle_acks_sent(now, share);
        }
    }
}
