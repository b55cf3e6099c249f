//! Answers the requests of clients for lists of streams. A look at the subjects of a hundred thousand streams
//! takes too long for one turn of the event loop, so the group's leader looks at [`PART_LEN`] streams a turn.
//!
//! The requests that need several turns wait in a line.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate_stream::api::Listing;
use tidegate_stream::api::answer::{self, Kind};
use tidegate_stream::api::body::StreamPage;
use tidegate_stream::api::view;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::stream::Stream;

use super::JetStream;
use super::context::Context;

/// The number of streams at which the leader looks in one turn for a list, so that no turn takes long.
const PART_LEN: usize = if cfg!(test) { 3 } else { 2048 };
/// The most requests for lists that wait; the leader refuses further requests, so that they take bounded
/// memory.
const WAITING_MAX: usize = 64;

/// Keeps the clients' requests for lists of streams that the leader has not answered yet, see the
/// [module](self).
#[derive(Debug, Default)]
pub(super) struct StreamLists {
    waiting: VecDeque<Asked>,
}

/// A client's request for a list of streams that waits until the leader has looked at all streams.
#[derive(Debug)]
struct Asked {
    reply: Box<[u8]>,
    kind: Kind,
    listing: Listing,
}

impl StreamLists {
    /// Returns whether the leader still has streams to look at for a list, so that the event loop starts
    /// another turn.
    pub(super) fn is_due(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl JetStream {
    /// Answers a request for the names of streams or for their descriptions. Returns the answer, or `None` if
    /// the list needs several turns and the client gets the answer later.
    pub(super) fn list_streams(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        kind: Kind,
        ask: &StreamPage,
    ) -> Result<Option<Vec<u8>>, ApiError> {
        let limit = match kind {
            Kind::StreamNames => view::NAMES_MAX,
            _ => view::LIST_MAX,
        };
        let mut listing = Listing::new(ask, limit);
        if !self.stream_lists.is_due() && listing.collect(&self.streams, PART_LEN) {
            return self.listed(cx, now, reply, kind, &listing);
        }
        if self.stream_lists.waiting.len() >= WAITING_MAX {
            let why = format_args!(
                "{WAITING_MAX} requests for lists of streams wait already: ask again later"
            );
            return Err(ApiError::stream_general(why));
        }
        let reply = reply.into();
        self.stream_lists.waiting.push_back(Asked {
            reply,
            kind,
            listing,
        });
        Ok(None)
    }

    /// Looks at a part of the streams for the first waiting request, and answers the request after the last
    /// part.
    pub(super) fn serve_stream_lists(&mut self, cx: &mut Context<'_>, now: Time) {
        let Some(mut asked) = self.stream_lists.waiting.pop_front() else {
            return;
        };
        if !asked.listing.collect(&self.streams, PART_LEN) {
            self.stream_lists.waiting.push_front(asked);
            return;
        }
        match self.listed(cx, now, &asked.reply, asked.kind, &asked.listing) {
            Ok(Some(body)) => self.voice(cx, now).answer_with(&asked.reply, &body),
            Ok(None) => {}
            Err(error) => self.refuse_list(cx, now, &asked, &error),
        }
    }

    /// Refuses the waiting requests for lists of streams, because this node serves the streams no longer.
    pub(super) fn close_stream_lists(&mut self, cx: &mut Context<'_>, now: Time) {
        for asked in std::mem::take(&mut self.stream_lists.waiting) {
            self.refuse_list(cx, now, &asked, &ApiError::SYSTEM_UNAVAILABLE);
        }
    }

    fn listed(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        kind: Kind,
        listing: &Listing,
    ) -> Result<Option<Vec<u8>>, ApiError> {
        if kind != Kind::StreamNames && self.is_split() {
            return self.gather_list(cx, now, reply, listing).map(|()| None);
        }
        let streams = listing.streams(&self.streams);
        if kind == Kind::StreamNames {
            let names = streams.map(Stream::name);
            return Ok(Some(view::stream_names(listing.page(), names)));
        }
        let shown: Vec<_> = streams.map(|s| self.shown(now, s)).collect();
        let (server, page) = (self.server(now), listing.page());
        Ok(Some(view::stream_list(&server, page, shown.iter())))
    }

    fn refuse_list(&mut self, cx: &mut Context<'_>, now: Time, asked: &Asked, error: &ApiError) {
        self.stats.api_errors += 1;
        let body = answer::refused(asked.kind.as_str(), error);
        self.voice(cx, now).answer_with(&asked.reply, &body);
    }
}
