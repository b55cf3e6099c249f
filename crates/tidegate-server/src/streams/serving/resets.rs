//! Resets consumers: on a client's request, a consumer starts again at another message.
//!
//! This module decides when the node resets a consumer. A consumer with a waiting reset delivers nothing
//! until the node has reset it. The leader proposes the reset once every earlier delta of the consumer is
//! durable, and the consumer makes no delta until the group has applied the reset. So no node applies a delta
//! from before the reset after it. If the log does not keep the consumer, the node resets it without a
//! proposal. [`tidegate_stream::consumer::Consumer::handle_reset`] and [`State::reset`] define the effects of
//! a reset.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate_raft::store::Space;
use tidegate_stream::api::answer::{self, Kind as Answer};
use tidegate_stream::api::view;
use tidegate_stream::consumer::{Ending, State, reset_to};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Kind, Outcome, StreamView};

use super::Key;
use super::live::{LiveAt, Seen, Unread};
use crate::streams::admission::{Change, ChangeId};
use crate::streams::context::Context;
use crate::streams::outcome::Then;
use crate::streams::reads::Held;
use crate::streams::{JetStream, Voice};

/// The limit on the number of requests for a reset that wait at one consumer; the node refuses more, so that
/// they take bounded memory.
const WAITING_MAX: usize = 64;

/// The clients' requests to reset a consumer, in the order in which the node carries them out.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    asked: VecDeque<Asked>,
    /// The message from which the first reset lets the consumer start, once the leader has proposed this
    /// reset; `None` before that.
    proposed: Option<StreamSeq>,
    /// True once the leader has proposed the consumer's changes so far, for the first reset. The leader
    /// proposes the reset only after these changes are durable.
    flushed: bool,
    /// The message from which the first reset has let the consumer start, while the client still waits for
    /// the answer because the consumer is not prepared; `None` otherwise.
    done: Option<StreamSeq>,
}

/// A client's request to reset a consumer, which waits until the node carries it out.
#[derive(Debug)]
struct Asked {
    reply: Box<[u8]>,
    seq: StreamSeq,
    /// The id of the change that this request proposes. Other API requests about the consumer wait until the
    /// node concludes the change, so that their answers show the reset.
    change: ChangeId,
}

impl Resets {
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    pub(crate) const fn is_proposed(&self) -> bool {
        self.proposed.is_some()
    }
}

impl JetStream {
    /// Queues a client's request to reset a consumer to message `seq`, or, if `seq` is 0, to the first
    /// message after the ack floor. The reset takes place when the node serves the consumer.
    pub(crate) fn reset_consumer(
        &mut self,
        key: Key,
        reply: &[u8],
        seq: StreamSeq,
        change: Change,
    ) -> Result<(), ApiError> {
        let live = self.consumers.get_mut(key);
        let live = live.ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        if live.resets.asked.len() >= WAITING_MAX {
            return Err(ApiError::TOO_MANY_REQUESTS);
        }
        let reply = reply.into();
        let change = self.admissions.propose(change);
        live.resets.asked.push_back(Asked { reply, seq, change });
        self.consumers.wake(key);
        Ok(())
    }

    /// Carries out the first waiting reset of a consumer that the log does not keep, or proposes the reset if
    /// the log keeps the consumer. If the reset has to wait, a later turn tries it again.
    ///
    /// `room` says whether the log has room for a command now.
    pub(crate) fn next_reset(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        key: Key,
        room: bool,
    ) -> Option<()> {
        let wall_us = self.wall.tell(now);
        let live = self.consumers.get_mut(key)?;
        let waits = live.resets.is_proposed() || live.resets.done.is_some();
        if waits || live.told || !live.consumer.is_settled() {
            return None;
        }
        if live.consumer.lists_settled() && room && !live.resets.flushed {
            // The leader first proposes the consumer's earlier acknowledgements, because no delta can record
            // them after the reset. A stream that keeps messages for its consumers would otherwise keep
            // acknowledged messages.
            live.resets.flushed = true;
            self.propose_delta(now, key);
            let live = self.consumers.get(key)?;
            if !live.consumer.is_settled() {
                return None;
            }
        }
        let live = self.consumers.get_mut(key)?;
        let logged = live.logged;
        if logged && self.room.space == Space::Scarce {
            self.stats.refused += 1;
            return self.conclude_reset(cx, now, key, Err(ApiError::STORAGE_EXCEEDED));
        }
        if logged && !room {
            return None;
        }
        let live = self.consumers.get_mut(key)?;
        let asked = live.resets.asked.front()?.seq;
        let id = live.stream();
        let of = self.streams.get(id)?;
        let floor = live.consumer.info(wall_us).ack_floor;
        let config = live.config.nameless();
        let mut view = StreamView::new(of, config);
        let seq = match reset_to(config, floor, asked, &mut view) {
            Ok(seq) => seq,
            Err(error) => return self.conclude_reset(cx, now, key, Err(error)),
        };
        if logged {
            live.resets.proposed = Some(seq);
            let (name, payload) = (live.name().to_owned(), seq.get().to_le_bytes());
            let command = Command::new(Kind::ResetConsumer, id, name.as_bytes(), &payload);
            self.command(now, false, &command, Some((b"", Then::Reset(key))));
            return Some(());
        }
        let mut state = State::beginning(live.start);
        state.reset(seq);
        live.start = state.start();
        self.restart(cx, now, key, &state);
        self.conclude_reset(cx, now, key, Ok(seq))
    }

    /// Restarts a consumer on this node from its state in the log, because the group has applied a reset of
    /// the consumer.
    pub(crate) fn begin_again(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        stream: StreamNumber,
        name: &str,
    ) -> Option<()> {
        let key = self.consumers.find(stream, name)?;
        let known = self.streams.get(stream)?.consumer(name)?;
        let state = known.state().clone();
        self.restart(cx, now, key, &state)
    }

    fn restart(&mut self, cx: &mut Context<'_>, now: Time, key: Key, state: &State) -> Option<()> {
        let wall_us = self.wall.tell(now);
        let live = self.consumers.get_mut(key)?;
        let mut source = Seen {
            stream: self.streams.get(live.stream())?,
            filter: &mut live.filter,
            messages: &Unread,
            held: Held::default(),
            wanted: Vec::new(),
        };
        let mut voice = Voice {
            cx: cx.again(),
            streams: &self.streams,
            wall_us,
            speech: &mut self.speech,
        };
        live.consumer.handle_reset(state, &mut source, &mut voice);
        self.consumers.wake(key);
        Some(())
    }

    /// Records the outcome of a reset that the leader proposed, and answers the client that asked for it with
    /// the new start or an error.
    pub(crate) fn reset_done(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        key: Key,
        outcome: &Outcome,
    ) {
        let live = self.consumers.get_mut(key);
        // If the consumer has ended on this node, the node has already answered the clients that waited, so
        // there is nothing to do.
        let Some(seq) = live.and_then(|live| live.resets.proposed.take()) else {
            return;
        };
        let done = match outcome {
            Outcome::Refused { error, .. } => Err(error.clone()),
            _ => Ok(seq),
        };
        self.conclude_reset(cx, now, key, done);
    }

    /// Answers the client that asked for a finished reset, once the consumer is prepared.
    pub(super) fn conclude_done_reset(&mut self, cx: &mut Context<'_>, now: Time, key: Key) {
        let live = self.consumers.get_mut(key);
        if let Some(seq) = live.and_then(|live| live.resets.done.take()) {
            self.conclude_reset(cx, now, key, Ok(seq));
        }
    }

    /// Refuses the waiting resets of a consumer that ends on this node for the reason `why`, so that their
    /// clients do not wait in vain.
    pub(crate) fn refuse_resets(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        resets: Resets,
        why: Ending,
    ) {
        let error = match why {
            Ending::Deleted => ApiError::invalid_reset("consumer closed"),
            _ => ApiError::SYSTEM_UNAVAILABLE,
        };
        let body = answer::refused(Answer::ConsumerReset.as_str(), &error);
        for asked in resets.asked {
            self.stats.api_errors += 1;
            self.admissions.conclude(asked.change);
            self.voice(cx, now).answer_with(&asked.reply, &body);
        }
    }

    /// Answers the client of the first waiting reset of a consumer, and concludes the reset's change, so that
    /// the leader decides about the API requests that wait for it.
    fn conclude_reset(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        key: Key,
        done: Result<StreamSeq, ApiError>,
    ) -> Option<()> {
        let live = self.consumers.get_mut(key)?;
        if let (Ok(seq), false) = (&done, live.consumer.is_prepared()) {
            // The node answers later, because the answer shows the number of pending messages, which the
            // consumer does not know yet.
            live.resets.done = Some(*seq);
            return Some(());
        }
        let asked = live.resets.asked.pop_front()?;
        live.resets.flushed = false;
        self.admissions.conclude(asked.change);
        let body = match done {
            Ok(seq) => {
                let live = self.consumers.get(key)?;
                let stream = self.streams.get(live.stream())?.name();
                let seen = LiveAt(live, self.wall.peek(now));
                view::consumer_reset(&self.server(now), stream, &seen, seq)
            }
            Err(error) => {
                self.stats.api_errors += 1;
                answer::refused(Answer::ConsumerReset.as_str(), &error)
            }
        };
        self.voice(cx, now).answer_with(&asked.reply, &body);
        self.consumers.wake(key);
        Some(())
    }
}
