//! Answers clients, and notes outcomes, once the node has applied their commands.

use tidegate::Time;
use tidegate_cluster::groups::GroupId;
use tidegate_stream::api::answer::{self, Kind};
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

/// The action that follows the outcome of a command.
#[derive(Debug)]
pub(super) enum Then {
    /// The node answers a publisher.
    Publish,
    /// The node answers the client that asked for the change through the API.
    Api(Kind),
    /// The node concludes a change for which other requests may wait, and answers the request that asked for
    /// the change.
    Admitted(ChangeId, Box<Self>),
    /// The node answers the client that created a consumer of this name.
    Consumer(Box<str>),
    /// The node answers the client that paused a consumer until this time, or resumed it.
    Paused(Option<Timestamp>),
    /// The node answers the publisher of the atomic batch with this id.
    Atomic(Box<[u8]>),
    /// The node answers the client that reset this consumer.
    Reset(Key),
    /// The node notes that a consumer's delta or deletion is durable. No client waits for this.
    Delta(Key),
    /// The node notes that the log now keeps a consumer that only this node knew before. No client waits for
    /// this.
    Logged(Key),
    /// The node notes the outcome for a fast-ingest batch, and answers the batch's publisher at intervals.
    Fast(Ticket),
    /// The node notes that expired messages are removed. No client waits for this.
    Expired,
    /// The node forwards the deletion of a stream to this other group, which keeps the stream.
    DeletedElsewhere(GroupId),
    /// The node notes that the group's stream matches the directory's stream with this number. No client
    /// waits for this.
    Listed(DirectoryNumber),
    /// The node notes that a part of the stream with this directory number, which moves to this group, is
    /// imported. No client waits for this.
    Filled(DirectoryNumber),
    /// The node does nothing.
    Noted,
}

impl JetStream {
    /// Tells the client that waits at `reply` the outcome of a command.
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
                if matches!(*then, Then::Api(Kind::StreamCreate)) {
                    self.directory.handle_made();
                }
                *then
            }
            then => then,
        };
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        match then {
            Then::Publish => self.published(outcome, &mut body),
            Then::Atomic(id) => self.batch_stored(outcome, &id, &mut body),
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
            // The code above has unwrapped an admitted change, and no client waits for a noted command.
            Then::Admitted(..) | Then::Noted => {
                self.body = body;
                return;
            }
            Then::Consumer(name) => body = self.consumer_made(cx, now, &name, outcome),
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
            // The command of a published message has no other outcome.
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

    /// Returns the writer of acknowledgements to publishers of this stream.
    pub(super) fn pub_ack(&mut self, stream: StreamNumber) -> &PubAck {
        let Some(of) = self.streams.get(stream) else {
            // A client deleted the stream while the message was on its way. No other stream gets the stream's
            // number.
            return &self.publishing.nameless;
        };
        let domain = self.settings.domain.as_deref();
        self.publishing
            .pub_acks
            .entry(stream)
            .or_insert_with(|| PubAck::new(of.name(), domain))
    }

    /// Returns the answer to a change of a stream.
    fn changed(&mut self, now: Time, kind: Kind, outcome: &Outcome) -> Vec<u8> {
        let missing = || answer::refused(kind.as_str(), &ApiError::STREAM_NOT_FOUND);
        match outcome {
            Outcome::Created { stream }
            | Outcome::Exists { stream }
            | Outcome::Updated { stream } => match self.streams.get(*stream) {
                Some(stream) => view::stream_changed(kind, &self.server(now), &self.shown(stream)),
                // A later command of the same entry has deleted the stream.
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
