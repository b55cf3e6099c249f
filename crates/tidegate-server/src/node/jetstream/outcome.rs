//! What whoever waits is told once a command was applied.

use tidegate::Time;

use super::admission::ChangeId;
use super::{JetStream, consumers};
use crate::api::answer::{self, Kind};
use crate::api::error::ApiError;
use crate::api::puback::PubAck;
use crate::api::timestamp::Timestamp;
use crate::api::view;
use crate::ingest::Ticket;
use crate::node::core::Node;
use crate::stream::Outcome;

/// What is answered to whom a command's outcome is told.
#[derive(Debug)]
pub(super) enum Then {
    /// A publisher.
    Publish,
    /// Who asked for it through the API.
    Api(Kind),
    /// A change that other requests may wait for, and the answer to the request that asked for it.
    Admitted(ChangeId, Box<Self>),
    /// Who made a consumer of this name.
    Consumer(Box<str>),
    /// Who paused or resumed a consumer, until then.
    Paused(Option<Timestamp>),
    /// The publisher of an atomic batch with this id.
    Atomic(Box<[u8]>),
    /// Who had a consumer begin again.
    Reset(consumers::Key),
    /// A consumer whose delta it was, or whose end: nobody else is told.
    Delta(consumers::Key),
    /// Nobody: a consumer that was this node's alone is known to the log.
    Lasting(consumers::Key),
    /// A fast-ingest batch: its publisher is told when it is time to.
    Fast(Ticket),
    /// Nobody: what went of age is removed.
    Expired,
    /// Who asked for a stream to be deleted that this other group keeps.
    DeletedElsewhere(u32),
    /// Nobody: a stream is as the directory has it, where it has this number.
    Kept(u32),
    /// Nobody: a part of a stream that moves here has come, which has this number in the directory.
    Filled(u32),
    /// Nobody.
    Noted,
}

impl JetStream {
    /// Tells whoever waits at `reply` what became of a command.
    pub(super) fn tell(
        &mut self,
        node: &mut Node,
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
                    return self.forward(node, now, reply, kind, stream);
                }
                None => body = self.changed(now, kind, outcome),
            },
            Then::DeletedElsewhere(group) => {
                let kind = Kind::StreamDelete;
                if let Outcome::Deleted { stream } = *outcome {
                    self.body = body;
                    return self.forward(node, now, reply, kind, (stream, group));
                }
                body = self.changed(now, kind, outcome);
            }
            Then::Kept(of) => {
                self.body = body;
                return self.keeping.handle_done(of);
            }
            Then::Filled(of) => {
                self.body = body;
                return self.handle_import(now, of, outcome);
            }
            // Unwrapped above.
            Then::Admitted(..) | Then::Noted => {
                self.body = body;
                return;
            }
            Then::Consumer(name) => body = self.consumer_made(node, now, &name, outcome),
            Then::Paused(until) => body = self.paused(now, until, outcome),
            Then::Reset(key) => {
                self.body = body;
                return self.reset_done(node, now, key, outcome);
            }
            Then::Delta(key) => {
                self.body = body;
                return self.delta_durable(node, now, key);
            }
            Then::Lasting(key) => {
                self.body = body;
                return self.handle_lasting(now, key, outcome);
            }
            Then::Fast(ticket) => {
                self.body = body;
                return self.fast_outcome(now, ticket, outcome);
            }
            Then::Expired => {
                self.body = body;
                self.expiring = false;
                return;
            }
        }
        self.voice(node, now).answer_with(reply, &body);
        self.body = body;
    }

    fn published(&mut self, outcome: &Outcome, body: &mut Vec<u8>) {
        match outcome {
            Outcome::Stored { stream, seq } => self.pub_ack(*stream).stored(body, *seq),
            Outcome::Duplicate { stream, seq } => self.pub_ack(*stream).duplicate(body, *seq),
            Outcome::Refused { stream, error } => self.pub_ack(*stream).refused(body, error),
            // What a published message cannot come to.
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

    /// The answers to publishers of this stream.
    pub(super) fn pub_ack(&mut self, stream: u32) -> &PubAck {
        let Some(of) = self.streams.get(stream) else {
            // It went while the message was on its way; its number is never used again.
            return &self.nameless;
        };
        let domain = self.settings.domain.as_deref();
        self.pub_acks
            .entry(stream)
            .or_insert_with(|| PubAck::new(of.name(), domain))
    }

    /// The answer to a change of a stream.
    fn changed(&mut self, now: Time, kind: Kind, outcome: &Outcome) -> Vec<u8> {
        let missing = || answer::refused(kind.as_str(), &ApiError::STREAM_NOT_FOUND);
        match outcome {
            Outcome::Created { stream }
            | Outcome::Exists { stream }
            | Outcome::Updated { stream } => match self.streams.get(*stream) {
                Some(stream) => view::stream_changed(kind, &self.server(now), &self.shown(stream)),
                // Deleted by a later command of the same entry.
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
