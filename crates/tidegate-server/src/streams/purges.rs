//! Prepares purges by subject in parts before the leader proposes them, because streams with many subjects
//! would make a turn of the event loop too long.
//!
//! The requests wait in a line. For the first one, each node of the group compares the subjects with the
//! pattern and copies blocks of the index, a part in each turn ([`Streams::foresee`]). Then the leader
//! proposes the purge, which has its whole effect at its entry.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate_stream::api::answer::{self, Kind as Answer};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{Kind, PurgeRequest, Streams};

use super::JetStream;
use super::context::Context;
use super::outcome::Then;
use crate::cost::{Work, spend};
use crate::cures::{cures, part};

/// The leader proposes a purge by subject without preparation if it compares at most this number of subjects,
/// or looks at a few times as many messages, because the nodes then apply the purge quickly.
const AT_ONCE: u64 = if cfg!(test) { 8 } else { 4096 };
/// The number of subjects that a node looks at in one turn to prepare a purge. The bound keeps a turn of the
/// event loop short.
const PART_LEN: usize = if cfg!(test) { 3 } else { 2048 };
/// The most purges that wait; the leader refuses further ones, so that they take bounded memory.
const WAITING_MAX: usize = 64;

/// Keeps the clients' purges that wait until the nodes have prepared them, see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Purges {
    waiting: VecDeque<Asked>,
    /// True while the node prepares the first of the waiting purges, so that it does not begin twice.
    begun: bool,
}

/// A client's request for a purge, which waits until the nodes have prepared it.
#[derive(Debug)]
struct Asked {
    reply: Box<[u8]>,
    stream: StreamNumber,
    request: PurgeRequest,
    /// True if the nodes must prepare the purge; false if it only waits behind an earlier one of its stream.
    is_large: bool,
}

impl Purges {
    /// Returns whether a purge waits, so that the event loop starts another turn.
    pub(super) fn is_due(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl JetStream {
    /// Queues a client's purge until the nodes have prepared it, if the stream has many subjects, or if an
    /// earlier purge of the stream waits. Returns false if the leader can propose the purge at once, because
    /// it is cheap.
    pub(super) fn must_foresee(
        &mut self,
        reply: &[u8],
        stream: StreamNumber,
        request: &PurgeRequest,
    ) -> Result<bool, ApiError> {
        let waiting = &mut self.purges.waiting;
        let is_large = self.streams.must_foresee(stream, &request.filter, AT_ONCE);
        if !is_large && !waiting.iter().any(|asked| asked.stream == stream) {
            return Ok(false);
        }
        if waiting.len() >= WAITING_MAX {
            return Err(ApiError::TOO_MANY_REQUESTS);
        }
        waiting.push_back(Asked {
            reply: reply.into(),
            stream,
            request: request.clone(),
            is_large,
        });
        Ok(true)
    }

    /// Does a turn's part of the preparation of a purge on this node, leader or follower, so that the purge
    /// itself is quick. The leader proposes the purge after the last part.
    pub(super) fn serve_purges(&mut self, cx: &mut Context<'_>, now: Time) {
        let part_len = part(cures().foreseeing, PART_LEN);
        let looked = self.streams.go_on_foreseeing(part_len);
        spend(Work::Foresee, looked as u64);
        let Some(first) = self.purges.waiting.front() else {
            return;
        };
        let (stream, filter) = (first.stream, &*first.request.filter);
        let is_there = self.streams.get(stream).is_some();
        if first.is_large && is_there && !self.streams.is_foreseen(stream, filter) {
            // The node begins again if it has dropped the results, because it learned of another leader or of
            // another purge.
            if !self.purges.begun || !self.streams.is_foreseeing() {
                self.purges.begun = true;
                self.streams.foresee(stream, filter);
                if self.role.nodes > 1 {
                    let hint = first.request.filter.clone();
                    self.command(now, false, &Streams::hint(stream, &hint), None);
                }
            }
            return;
        }
        self.purges.begun = false;
        let Some(Asked {
            reply,
            stream,
            request,
            ..
        }) = self.purges.waiting.pop_front()
        else {
            return;
        };
        let waiter = (&*reply, Then::Api(Answer::StreamPurge));
        let proposed = match self.streams.get(stream) {
            Some(_) => self.propose(now, Kind::Purge, stream, b"", &request, waiter),
            None => Err(ApiError::STREAM_NOT_FOUND),
        };
        if let Err(error) = proposed {
            // No entry takes the results of the refused purge.
            self.streams.forget_foreseen();
            self.refuse_purge(cx, now, &reply, &error);
        }
    }

    /// Refuses the waiting purges, because this node serves the streams no longer.
    pub(super) fn close_purges(&mut self, cx: &mut Context<'_>, now: Time) {
        self.purges.begun = false;
        self.streams.forget_foreseen();
        for asked in std::mem::take(&mut self.purges.waiting) {
            self.refuse_purge(cx, now, &asked.reply, &ApiError::SYSTEM_UNAVAILABLE);
        }
    }

    fn refuse_purge(&mut self, cx: &mut Context<'_>, now: Time, reply: &[u8], error: &ApiError) {
        self.stats.api_errors += 1;
        let body = answer::refused(Answer::StreamPurge.as_str(), error);
        self.voice(cx, now).answer_with(reply, &body);
    }
}
