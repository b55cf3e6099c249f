//! Answers info requests about streams with many subjects or many removed messages, which take too long for
//! one turn of the event loop.
//!
//! The requests wait in a line. For the first request the group's leader collects the subjects, [`PART_LEN`]
//! a turn. Then the leader gives the page to a thread of its pool, which sorts and encodes the answer. The
//! next request begins once the answer is back, so one collected list exists at a time in each group.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate_stream::api::answer::{self, Kind};
use tidegate_stream::api::body::InfoDetails;
use tidegate_stream::api::{SubjectList, SubjectPage};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;

use super::JetStream;
use super::context::Context;
use crate::cost::{Work, spend};
use crate::cures::{cures, part};

/// The leader answers an info request at once if the stream has at most this number of subjects, and of
/// removed messages. For more, the answer would make a turn too long.
const AT_ONCE: u64 = if cfg!(test) { 64 } else { 4096 };
/// The number of subjects at which the leader looks in one turn for a page, so that no turn takes long.
const PART_LEN: usize = if cfg!(test) { 10 } else { 8192 };
/// The most info requests that wait for a page; the leader refuses further requests, so that they take
/// bounded memory.
const WAITING_MAX: usize = 64;

/// Keeps the clients' info requests that wait for pages of subjects, see the [module](self).
#[derive(Debug, Default)]
pub(super) struct SubjectPages {
    waiting: VecDeque<Asked>,
    /// The subjects collected so far for the first of the waiting requests; `None` while the leader collects
    /// no subjects.
    list: Option<SubjectList>,
    /// True while a thread of the pool encodes an answer. Until the thread is done, the leader collects no
    /// subjects for the next request.
    encoding: bool,
}

/// A client's info request that waits for a page of subjects.
#[derive(Debug)]
struct Asked {
    reply: Box<[u8]>,
    stream: StreamNumber,
    details: InfoDetails,
}

impl SubjectPages {
    /// Returns whether no request waits for a page, so that a draining node may stop.
    pub(super) fn is_empty(&self) -> bool {
        !self.encoding && self.waiting.is_empty()
    }

    /// Returns whether the leader has subjects to collect, so that the event loop starts another turn.
    pub(super) fn is_due(&self) -> bool {
        !self.encoding && !self.waiting.is_empty()
    }
}

impl JetStream {
    /// Returns whether an info request about this stream must wait for a page of subjects or for a list of
    /// removed messages, because the leader would need too long to answer it at once.
    pub(super) fn needs_page(&self, stream: StreamNumber, details: &InfoDetails) -> bool {
        let state = self.streams.get(stream).map(|s| s.state());
        state.is_some_and(|state| {
            (!details.subjects_filter.is_empty() && state.num_subjects > AT_ONCE)
                || (details.deleted_details && state.num_deleted > AT_ONCE)
        })
    }

    /// Queues a client's info request until the leader has the page of subjects for it, because the leader
    /// cannot answer it in one turn.
    pub(super) fn ask_for_page(
        &mut self,
        reply: &[u8],
        stream: StreamNumber,
        details: InfoDetails,
    ) -> Result<(), ApiError> {
        if self.subject_pages.waiting.len() >= WAITING_MAX {
            let why = format_args!(
                "{WAITING_MAX} requests for subjects of large streams wait already: ask again later"
            );
            return Err(ApiError::stream_general(why));
        }
        self.subject_pages.waiting.push_back(Asked {
            reply: reply.into(),
            stream,
            details,
        });
        Ok(())
    }

    /// Collects a part of the subjects for the first waiting request. Gives the complete list to a thread of
    /// the pool, which encodes the answer.
    pub(super) fn serve_subject_pages(&mut self, cx: &mut Context<'_>, now: Time) {
        if !self.subject_pages.is_due() {
            return;
        }
        let Some(asked) = self.subject_pages.waiting.pop_front() else {
            return;
        };
        let list = self.subject_pages.list.take();
        let mut list = list.unwrap_or_else(|| SubjectList::new(&asked.details));
        let Some(stream) = self.streams.get(asked.stream) else {
            // A client has deleted the stream since the request came, so the leader refuses the request.
            return self.refuse_page(cx, now, &asked.reply, &ApiError::STREAM_NOT_FOUND);
        };
        let part_len = part(cures().pages, PART_LEN);
        let all = list.collect(stream, part_len);
        let subjects = stream.state().num_subjects;
        spend(Work::Subject, subjects.min(part_len as u64));
        if !all {
            self.subject_pages.list = Some(list);
            self.subject_pages.waiting.push_front(asked);
            return;
        }
        let removed = asked.details.deleted_details.then(|| stream.removed());
        let shown = self.shown(now, stream);
        let page = list.finish(&self.server(now), &shown, &asked.details, removed);
        match page {
            Ok(page) => {
                self.subject_pages.encoding = true;
                cx.outputs.encode(asked.reply, page);
            }
            Err(error) => self.refuse_page(cx, now, &asked.reply, &error),
        }
    }

    /// Sends a client the encoded page of subjects; with `None`, refuses the client's request, because the
    /// encoding failed.
    pub(crate) fn handle_page(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        body: Option<&[u8]>,
    ) {
        self.subject_pages.encoding = false;
        match body {
            Some(body) => self.voice(cx, now).answer_with(reply, body),
            None => self.refuse_page(cx, now, reply, &ApiError::SYSTEM_UNAVAILABLE),
        }
    }

    /// Refuses the waiting info requests, because this node serves the streams no longer.
    pub(super) fn close_subject_pages(&mut self, cx: &mut Context<'_>, now: Time) {
        self.subject_pages.list = None;
        for asked in std::mem::take(&mut self.subject_pages.waiting) {
            self.refuse_page(cx, now, &asked.reply, &ApiError::SYSTEM_UNAVAILABLE);
        }
    }

    fn refuse_page(&mut self, cx: &mut Context<'_>, now: Time, reply: &[u8], error: &ApiError) {
        self.stats.api_errors += 1;
        let body = answer::refused(Kind::StreamInfo.as_str(), error);
        self.voice(cx, now).answer_with(reply, &body);
    }
}

/// A page of subjects that a thread of the pool encodes, with the reply subject of the client that asked.
#[derive(Debug)]
pub(crate) struct PageJob {
    /// The reply subject of the client that gets the encoded page.
    pub(crate) reply: Box<[u8]>,
    /// The page of subjects that the thread sorts and encodes.
    pub(crate) page: SubjectPage,
}
