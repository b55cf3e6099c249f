//! Consumers that are made to begin again.
//!
//! Owns when that is: a consumer that is to begin again delivers nothing until it has, and the log hears of
//! it when every delta that the consumer made before is durable and none is made until then. So the log
//! changes its state by no delta that is of another beginning. One that the log does not know begins again at
//! once. What beginning again does is the consumer's affair ([`crate::consumer::Consumer::handle_reset`]),
//! and that of [`State::reset`].

use std::collections::VecDeque;

use tidegate::Time;

use super::admission::{Change, ChangeId};
use super::consumers::{Key, Seen, Unread};
use super::outcome::Then;
use super::reads::Held;
use super::{JetStream, Voice};
use crate::api::answer::{self, Kind as Answer};
use crate::api::error::ApiError;
use crate::api::view;
use crate::consumer::{Ending, State, reset_to};
use crate::node::core::Node;
use crate::store::Space;
use crate::stream::{Command, Kind, Outcome, StreamView};

/// Those who may wait for one consumer.
const WAITING_MAX: usize = 64;

/// Who asked a consumer to begin again, in the order in which it does.
#[derive(Debug, Default)]
pub(super) struct Resets {
    asked: VecDeque<Asked>,
    /// The log was told of the first, and with which message it begins.
    proposed: Option<u64>,
}

/// A request.
#[derive(Debug)]
struct Asked {
    reply: Box<[u8]>,
    seq: u64,
    /// Other requests wait for it.
    change: ChangeId,
}

impl Resets {
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) const fn is_proposed(&self) -> bool {
        self.proposed.is_some()
    }
}

impl JetStream {
    /// Somebody asks a consumer to begin again, with message `seq`, or, where that is 0, with what is not
    /// settled: it does, once it is served.
    pub(super) fn reset_consumer(
        &mut self,
        key: Key,
        reply: &[u8],
        seq: u64,
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

    /// A consumer begins again as it was first asked to, or the log is told of it, unless that has to wait:
    /// it comes again then.
    ///
    /// `room`: whether the log takes a command now.
    pub(super) fn next_reset(
        &mut self,
        node: &mut Node,
        now: Time,
        key: Key,
        room: bool,
    ) -> Option<()> {
        let wall_us = self.wall.tell(now);
        let live = self.consumers.get_mut(key)?;
        if live.resets.is_proposed() || live.told || !live.consumer.is_settled() {
            return None;
        }
        let logged = live.logged;
        if logged && self.space == Space::Scarce {
            self.stats.refused += 1;
            return self.conclude_reset(node, now, key, Err(ApiError::STORAGE_EXCEEDED));
        }
        if logged && !room {
            return None;
        }
        let live = self.consumers.get_mut(key)?;
        let asked = live.resets.asked.front()?.seq;
        let id = live.stream();
        let of = self.streams.get(id)?;
        let floor = live.consumer.info(wall_us).ack_floor;
        let mut view = StreamView::new(of, &live.config);
        let seq = match reset_to(&live.config, floor, asked, &mut view) {
            Ok(seq) => seq,
            Err(error) => return self.conclude_reset(node, now, key, Err(error)),
        };
        if logged {
            live.resets.proposed = Some(seq);
            let (name, payload) = (live.name().to_owned(), seq.to_le_bytes());
            let command = Command::new(Kind::ResetConsumer, id, name.as_bytes(), &payload);
            self.command(now, false, &command, Some((b"", Then::Reset(key))));
            return Some(());
        }
        let mut state = State::beginning(live.start);
        state.reset(seq);
        live.start = state.start();
        self.restart(node, now, key, &state);
        self.conclude_reset(node, now, key, Ok(seq))
    }

    /// The log has a consumer begin again.
    pub(super) fn begin_again(
        &mut self,
        node: &mut Node,
        now: Time,
        stream: u32,
        name: &str,
    ) -> Option<()> {
        let key = self.consumers.find(stream, name)?;
        let known = self.streams.get(stream)?.consumer(name)?;
        let state = known.state().clone();
        self.restart(node, now, key, &state)
    }

    fn restart(&mut self, node: &mut Node, now: Time, key: Key, state: &State) -> Option<()> {
        let wall_us = self.wall.tell(now);
        let live = self.consumers.get_mut(key)?;
        let mut source = Seen {
            stream: self.streams.get(live.stream())?,
            filter: &mut live.filter,
            messages: &mut Unread,
            held: Held::default(),
        };
        let mut voice = Voice {
            node,
            streams: &self.streams,
            now,
            wall_us,
            said: &mut self.said,
            advisories: &mut self.advisories,
        };
        live.consumer.handle_reset(state, &mut source, &mut voice);
        self.consumers.wake(key);
        Some(())
    }

    /// What became of a reset that the log was told of.
    pub(super) fn reset_done(&mut self, node: &mut Node, now: Time, key: Key, outcome: &Outcome) {
        let live = self.consumers.get_mut(key);
        // If it is not here any more, who waited was told then.
        let Some(seq) = live.and_then(|live| live.resets.proposed.take()) else {
            return;
        };
        let done = match outcome {
            Outcome::Refused { error, .. } => Err(error.clone()),
            _ => Ok(seq),
        };
        self.conclude_reset(node, now, key, done);
    }

    /// A consumer ends here that was to begin again.
    pub(super) fn refuse_resets(
        &mut self,
        node: &mut Node,
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
            self.voice(node, now).answer_with(&asked.reply, &body);
        }
    }

    /// Answers whoever asked first.
    fn conclude_reset(
        &mut self,
        node: &mut Node,
        now: Time,
        key: Key,
        done: Result<u64, ApiError>,
    ) -> Option<()> {
        let live = self.consumers.get_mut(key)?;
        let asked = live.resets.asked.pop_front()?;
        self.admissions.conclude(asked.change);
        let body = match done {
            Ok(seq) => {
                let live = self.consumers.get(key)?;
                let stream = self.streams.get(live.stream())?.name();
                let seen = (live, self.wall.peek(now));
                view::consumer_reset(&self.server(now), stream, &seen, seq)
            }
            Err(error) => {
                self.stats.api_errors += 1;
                answer::refused(Answer::ConsumerReset.as_str(), &error)
            }
        };
        self.voice(node, now).answer_with(&asked.reply, &body);
        self.consumers.wake(key);
        Some(())
    }
}
