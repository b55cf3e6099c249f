//! Answers clients, and records the outcomes of commands, once the node has applied the commands: a client
//! must hear of a change only when the change is durable.

use tidegate::Time;
use tidegate_cluster::groups::GroupId;
use tidegate_stream::api::answer::{self, Kind};
use tidegate_stream::api::body::Snapshot;
use tidegate_stream::api::puback::PubAck;
use tidegate_stream::api::view;
use tidegate_stream::ingest::Ticket;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::Outcome;

use super::JetStream;
use super::admission::ChangeId;
use super::context::Context;
use super::serving::Key;
use super::spans::Begun;

/// The action that the node carries out once it has applied a command and knows its outcome. The node keeps
/// the action beside the command until then, so that it knows whom to answer.
#[derive(Debug)]
pub(super) enum Then {
    /// The node answers the publisher of the message with the command's outcome, a PubAck or an error.
    Publish,
    /// The same for a publish that the node follows, with the beginning of its span.
    Followed(Box<Begun>),
    /// The node answers the client that asked for the command's change through the API.
    Api(Kind),
    /// The node concludes a change for which other API requests may wait, and answers the client that asked
    /// for the change.
    Admitted(ChangeId, Box<Self>),
    /// The node answers the client that asked to create the consumer of this name, with the consumer's state.
    Consumer(Box<str>),
    /// The node answers the client that paused a consumer until this time, with the time that is left; `None`
    /// if the client resumed the consumer.
    Paused(Option<Timestamp>),
    /// The node answers the publisher of the atomic batch with this id, because the group has stored or
    /// refused the batch.
    Atomic(Box<[u8]>),
    /// The node answers the client that asked to reset this consumer, once the consumer is prepared.
    Reset(Key),
    /// The node records that the log has a consumer's delta or deletion, so that the consumer continues. No
    /// client waits for this outcome.
    Delta(Key),
    /// The node records that the log now keeps a consumer that only this node knew before, so that its
    /// changes go through the log from now on. No client waits for this outcome.
    Logged(Key),
    /// The node records the outcome for a fast-ingest batch, and answers the batch's publisher at intervals.
    Fast(Ticket),
    /// The node records that the group has removed expired messages, so that the leader may propose the next
    /// removal. No client waits for this outcome.
    Expired,
    /// The node forwards the deletion of a stream to this other group, which keeps the stream.
    DeletedElsewhere(GroupId),
    /// The node records that the group has applied or refused the leader's proposal to match a stream with
    /// the directory, so that the leader may propose the next change. The field is the stream's directory
    /// number. No client waits for this outcome.
    Listed(DirectoryNumber),
    /// The node records that the group has imported a part of the stream with this directory number, which
    /// moves to this group, and the leader goes on with the next part. No client waits for this outcome.
    Filled(DirectoryNumber),
    /// The node records that the stream with this number in the group has taken or refused a part of a
    /// backup, and the leader goes on with the next part. No client waits for this outcome.
    Restored(StreamNumber),
    /// The node begins the backup for which a client asked, because the log now has the state of all
    /// consumers.
    BackUp(StreamNumber, Box<Snapshot>),
    /// The node records that the group has applied or refused an intake for this stream, from the source with
    /// this key, and the leader asks for more messages. No client waits for this outcome.
    TakenIn(StreamNumber, Box<str>),
    /// The node ignores the command's outcome, because no client waits for it, and the group's state shows
    /// it.
    Noted,
}

impl JetStream {
    /// Carries out the action that follows a command's outcome, such as an answer to the client. A client
    /// that waits for the outcome waits at `reply`.
    pub(super) fn tell(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        then: Then,
        outcome: &Outcome,
    ) {
        let then = match then {
            Then::Admitted(id, then) => {
                self.admissions.conclude(id);
                if matches!(*then, Then::Api(Kind::StreamCreate | Kind::StreamRestore)) {
                    self.directory.handle_made();
                }
                *then
            }
            then => then,
        };
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        match then {
            Then::Publish | Then::Followed(_) => self.published(outcome, &mut body),
            Then::Atomic(id) => self.batch_stored(outcome, &id, &mut body),
            Then::Api(Kind::StreamRestore)
                if matches!(outcome, Outcome::Created { .. })
                    && self.changed_elsewhere(outcome).is_none() =>
            {
                self.body = body;
                if let Outcome::Created { stream } = *outcome {
                    self.begin_restore(cx, now, reply, stream);
                }
                return;
            }
            Then::Restored(own) => {
                self.body = body;
                return self.handle_part(now, own, outcome);
            }
            Then::BackUp(own, snapshot) => {
                self.body = body;
                return self.begin_backup(cx, now, reply, own, &snapshot, outcome);
            }
            Then::Api(kind) => match self.changed_elsewhere(outcome) {
                Some(stream) => {
                    self.body = body;
                    return self.forward(cx, now, reply, kind, stream);
                }
                None => body = self.changed(now, kind, outcome),
            },
            Then::DeletedElsewhere(group) => {
                let kind = Kind::StreamDelete;
                if let Outcome::Deleted { stream } = *outcome {
                    self.body = body;
                    let of = DirectoryNumber::of_entry(stream);
                    return self.forward(cx, now, reply, kind, (of, group));
                }
                body = self.changed(now, kind, outcome);
            }
            Then::Listed(of) => {
                self.body = body;
                return self.keeping.handle_done(of);
            }
            Then::Filled(of) => {
                self.body = body;
                return self.handle_import(now, of, outcome);
            }
            Then::TakenIn(stream, key) => {
                self.body = body;
                return self.handle_taken_in(now, (stream, key.into_string()), outcome);
            }
            // The match above has unwrapped `Admitted`, and `Noted` marks a command for which no client
            // waits, so there is no answer to send.
            Then::Admitted(..) | Then::Noted => {
                self.body = body;
                return;
            }
            Then::Consumer(name) => match self.consumer_made(cx, now, reply, &name, outcome) {
                Some(made) => body = made,
                None => {
                    self.body = body;
                    return;
                }
            },
            Then::Paused(until) => body = self.paused(now, until, outcome),
            Then::Reset(key) => {
                self.body = body;
                return self.reset_done(cx, now, key, outcome);
            }
            Then::Delta(key) => {
                self.body = body;
                return self.delta_durable(cx, now, key);
            }
            Then::Logged(key) => {
                self.body = body;
                return self.handle_lasting(now, key, outcome);
            }
            Then::Fast(ticket) => {
                self.body = body;
                return self.fast_outcome(now, ticket, outcome);
            }
            Then::Expired => {
                self.body = body;
                self.entries.expiring = false;
                return;
            }
        }
        self.voice(cx, now).answer_with(reply, &body);
        self.body = body;
    }

    fn published(&mut self, outcome: &Outcome, body: &mut Vec<u8>) {
        match outcome {
            Outcome::Stored { stream, seq } => self.pub_ack(*stream).stored(body, *seq),
            Outcome::Duplicate { stream, seq } => self.pub_ack(*stream).duplicate(body, *seq),
            Outcome::Refused { stream, error } => self.pub_ack(*stream).refused(body, error),
            // This branch handles no outcome in practice: the node always stores a published message, finds
            // it a duplicate, or refuses it.
            _ => {}
        }
    }

    fn batch_stored(&mut self, outcome: &Outcome, id: &[u8], body: &mut Vec<u8>) {
        match outcome {
            Outcome::Batch { stream, seq, count } => {
                let ack = self.pub_ack(*stream);
                ack.batch(body, *seq, id, (*count).into());
            }
            Outcome::Refused { stream, error } => self.pub_ack(*stream).refused(body, error),
            _ => {}
        }
    }

    /// Returns the writer with which the node writes the PubAcks of this stream, the answers to publishers.
    pub(super) fn pub_ack(&mut self, stream: StreamNumber) -> &PubAck {
        let Some(of) = self.streams.get(stream) else {
            // A client deleted the stream while a publisher's message was on its way. The node's answer names
            // no stream, because the node has forgotten the name with the stream.
            return &self.publishing.nameless;
        };
        let domain = self.settings.domain.as_deref();
        self.publishing
            .pub_acks
            .entry(stream)
            .or_insert_with(|| PubAck::new(of.name(), domain))
    }

    /// Makes the answer to the client that changed a stream, from the outcome of the change.
    fn changed(&mut self, now: Time, kind: Kind, outcome: &Outcome) -> Vec<u8> {
        let missing = || answer::refused(kind.as_str(), &ApiError::STREAM_NOT_FOUND);
        match outcome {
            Outcome::Created { stream }
            | Outcome::Exists { stream }
            | Outcome::Updated { stream } => match self.streams.get(*stream) {
                Some(stream) => {
                    view::stream_changed(kind, &self.server(now), &self.shown(now, stream))
                }
                // A later command of the entry has deleted the stream, so the client learns that the stream
                // does not exist.
                None => missing(),
            },
            Outcome::Purged { purged, .. } => answer::purged(*purged),
            Outcome::Refused { error, .. } => {
                self.stats.api_errors += 1;
                answer::refused(kind.as_str(), error)
            }
            _ => answer::success(kind),
        }
    }

    fn paused(&mut self, now: Time, until: Option<Timestamp>, outcome: &Outcome) -> Vec<u8> {
        match outcome {
            Outcome::Refused { error, .. } => {
                self.stats.api_errors += 1;
                answer::refused(Kind::ConsumerPause.as_str(), error)
            }
            _ => answer::paused(until, self.timestamp(now)),
        }
    }
}
