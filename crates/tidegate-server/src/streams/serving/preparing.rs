//! Prepares consumers that deliver the last message of each subject: such a consumer first looks for these
//! messages, and a stream may have a million subjects. In one turn of the event loop, all consumers of a
//! group together look at [`SUBJECTS_A_TURN`] subjects. Clients' requests for the state of such a consumer
//! wait.

use tidegate::Time;
use tidegate_stream::api::answer::{self, Kind};
use tidegate_stream::api::view;
use tidegate_stream::schema::error::ApiError;

use super::Key;
use super::live::{LiveAt, Question};
use crate::streams::JetStream;
use crate::streams::context::Context;

/// The number of subjects that the consumers of a group look at in one turn, so that no turn takes long.
pub(super) const SUBJECTS_A_TURN: usize = if cfg!(test) { 3 } else { 2048 };
/// The most requests for the state of one consumer that wait; the node refuses more, so that they take
/// bounded memory.
const QUESTIONS_MAX: usize = 64;

impl JetStream {
    /// Keeps a client's request for the state of a consumer until the consumer is prepared. Returns false if
    /// the consumer is prepared, or if the node has no such consumer, so that the caller can answer at once.
    pub(crate) fn must_prepare(
        &mut self,
        key: Option<Key>,
        reply: &[u8],
        kind: Kind,
    ) -> Result<bool, ApiError> {
        let live = key.and_then(|key| self.consumers.get_mut(key));
        let Some(live) = live.filter(|live| !live.consumer.is_prepared()) else {
            return Ok(false);
        };
        if live.questions.len() >= QUESTIONS_MAX {
            return Err(ApiError::TOO_MANY_REQUESTS);
        }
        let reply = reply.into();
        live.questions.push(Question { reply, kind });
        Ok(true)
    }

    /// Answers the clients that have waited for a consumer, because the consumer is prepared now and knows
    /// how many messages are pending.
    pub(crate) fn handle_prepared(&mut self, cx: &mut Context<'_>, now: Time, key: Key) {
        self.conclude_done_reset(cx, now, key);
        let Some(live) = self.consumers.get_mut(key) else {
            return;
        };
        for Question { reply, kind } in std::mem::take(&mut live.questions) {
            let (Some(live), server) = (self.consumers.get(key), self.server(now)) else {
                return;
            };
            let stream = self.streams.get(live.stream()).map_or("", |s| s.name());
            let seen = LiveAt(live, self.wall.peek(now));
            let body = view::consumer_info(kind, &server, stream, &seen);
            self.voice(cx, now).answer_with(&reply, &body);
        }
    }

    /// Refuses the requests for the state of a consumer that ends on this node before it is prepared, so that
    /// their clients do not wait in vain.
    pub(crate) fn refuse_questions(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        questions: Vec<Question>,
        error: &ApiError,
    ) {
        for Question { reply, kind } in questions {
            self.stats.api_errors += 1;
            let body = answer::refused(kind.as_str(), error);
            self.voice(cx, now).answer_with(&reply, &body);
        }
    }
}
