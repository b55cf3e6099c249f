//! Serves mirrors and sources on the side of the origin: the leader of the origin's group gives messages to
//! the leaders of the streams that take them in.
//!
//! The leader answers a request once it has messages behind the request's progress, and after [`HELD`] at the
//! latest. An origin that keeps messages for its consumers first counts the stream as a consumer
//! ([`super::holding`]). If the stream names a consumer, the leader gives the messages of that consumer
//! ([`super::tapping`]).

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::consumer::without_payload;
use tidegate_stream::schema::config::{Retention, StreamSource};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{
    Filter, Origin, Place, Progress, Row, SharedConfig, Stream, Transit,
};

use super::parcel::Parcel;
use super::tapping::Tap;
use crate::streams::context::Context;
use crate::streams::directory::leader_message::LeaderMessage;
use crate::streams::directory::leader_message::taking::{Answer, Request};
use crate::streams::reads::{Fetched, Held, fetch};
use crate::streams::{JetStream, Messages};

/// The longest time for which the origin's leader holds a request while it has no new messages. After it the
/// leader answers without messages, so that the asking leader knows that the origin is alive.
pub(crate) const HELD: Duration = Duration::from_secs(1);
/// The time after which the leader forgets a request, because an asking leader that is alive has asked again
/// by then.
const FORGOTTEN: Duration = Duration::from_secs(4);
/// The size of an answer, in bytes of messages, above which the leader adds no further message to it, so that
/// an intake stays small.
pub(crate) const ANSWER_BYTES: usize = 256 * 1024;
/// The most messages that the leader puts into one answer, so that an intake stays small.
pub(crate) const ANSWER_MESSAGES: usize = 2048;
/// The highest number with which a stream begins in its origin, because a progress cannot be higher. No
/// stream has messages with numbers near it.
const START_MAX: StreamSeq = StreamSeq::new((1 << 63) - 1);
/// The number of answers that the leader sends in one turn of the loop. It answers further requests in the
/// next turn, so that no turn takes long.
const ANSWERS_A_TURN: usize = 16;
/// The limit on the number of requests that wait at a group's leader. The leader ignores further requests, so
/// that they take bounded memory, and the asking leaders ask again.
pub(super) const REQUESTS_MAX: usize = 1024;
/// The most messages of which the leader finds in one look that they are not the last of their subject, so
/// that no turn takes long. It then answers with the progress so far.
const PASSED_MAX: usize = 4096;

/// Keeps the requests of other streams for messages of this group's streams, by the stream that asks and the
/// key of its source.
#[derive(Debug, Default)]
pub(crate) struct Giving {
    requests: BTreeMap<(DirectoryNumber, String), Waiting>,
    /// True if a request has arrived at which the leader has not looked yet, so that the event loop starts a
    /// turn.
    arrived: bool,
    /// The number of turns in which the leader had requests to look at. By it the leader begins each turn
    /// with another request.
    turns: usize,
    pub(super) holding: super::holding::Holding,
    pub(super) taps: super::tapping::Taps,
}

/// A request for messages that the leader has not answered, and the leader's progress with it.
#[derive(Debug)]
struct Waiting {
    request: Request,
    since: Time,
    until: Time,
    /// The identity of the origin, and the sequence of the message at which the leader looks next; `None`
    /// before the first look.
    at: Option<(Origin, StreamSeq)>,
    filter: Filter,
    parcel: Parcel,
    /// The configuration of the consumer that the request names, at the last look. If a client changes it,
    /// the leader gathers the messages again, because the filter may have changed.
    tapped: Option<SharedConfig>,
}

impl Giving {
    /// Returns the time at which the leader next has to answer a request, for the event loop's timer.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if self.arrived {
            return Some(Time::ZERO);
        }
        let held = self.requests.values().filter(|w| w.parcel.is_empty());
        held.map(|w| w.since + HELD).min()
    }

    /// Forgets all requests for messages, because this node does not lead the group any more.
    pub(crate) fn close(&mut self) {
        *self = Self::default();
    }

    /// Keeps a request for messages until the leader answers it. A repeated request only postpones the time
    /// at which the leader forgets the request.
    pub(crate) fn handle_request(&mut self, now: Time, request: Request) {
        let key = (request.target, request.source.key());
        let until = now + FORGOTTEN;
        let has_room = self.requests.len() < REQUESTS_MAX;
        match self.requests.get_mut(&key) {
            Some(waiting) if waiting.request == request => waiting.until = until,
            None if !has_room => {}
            _ => {
                let waiting = Waiting {
                    since: now,
                    until,
                    at: None,
                    filter: filter_of(&request.source),
                    parcel: Parcel::default(),
                    tapped: None,
                    request,
                };
                self.requests.insert(key, waiting);
                self.arrived = true;
            }
        }
    }
}

/// Creates the filter by which the leader finds the messages that a source takes in.
pub(super) fn filter_of(source: &StreamSource) -> Filter {
    match source.filters().next() {
        None => Filter::all(),
        Some(_) => Filter::new(source.filters()),
    }
}

/// The result of the leader's look at a request: an answer to send, or none yet, so that the request keeps
/// waiting.
enum Found {
    Answer(Answer),
    NotYet,
}

impl Waiting {
    /// Gathers the messages that follow the request's progress, as far as they are in memory. Adds the places
    /// of other messages to `wanted`, so that the store reads them.
    fn look(
        &mut self,
        now: Time,
        origin: &Stream,
        tap: Option<&Tap>,
        messages: &dyn Messages,
        wanted: &mut Vec<Place>,
    ) -> Found {
        if let Some(tap) = tap
            && self.tapped.as_ref() != Some(tap.config())
        {
            self.tapped = Some(tap.config().clone());
            (self.filter, self.at) = (tap.filter(), None);
            self.parcel = Parcel::default();
        }
        let identity = Origin {
            number: self.request.origin,
            created_us: origin.created_us(),
        };
        let state = origin.state();
        let (_, mut next) = *self.at.get_or_insert_with(|| {
            let same = self.request.from.filter(|from| from.origin == identity);
            let next = match same {
                Some(from) => from.seq.next(),
                None => start(&self.request.source, origin),
            };
            (identity, tap.map_or(next, |tap| tap.first(next)))
        });
        let most = tap.map_or(ANSWER_MESSAGES, Tap::answer_max);
        let mut passed = 0;
        while self.parcel.len() < most && self.parcel.bytes() < ANSWER_BYTES {
            if next > state.last_seq {
                break;
            }
            let Some(seq) = origin.next_at(next, &mut self.filter) else {
                next = state.last_seq.next();
                break;
            };
            if tap.is_some_and(|tap| tap.passes_over(seq, origin, &self.filter)) {
                next = seq.next();
                passed += 1;
                if passed == PASSED_MAX {
                    break;
                }
                continue;
            }
            // The leader gives a large message an answer of its own, so that its intake is hardly larger than
            // its publish.
            let bytes = origin
                .message(seq)
                .map_or(0, |stored| stored.bytes as usize);
            if !self.parcel.is_empty() && self.parcel.bytes() + bytes > ANSWER_BYTES {
                break;
            }
            let mut held = Held::default();
            match fetch(origin, seq, messages, wanted, &mut held) {
                Fetched::Pending => {
                    self.at = Some((identity, seq));
                    return Found::NotYet;
                }
                Fetched::Gone => {
                    return Found::Answer(Answer::refused(ApiError::stream_general(format_args!(
                        "message {seq} of the origin is damaged"
                    ))));
                }
                Fetched::Ready(message) => {
                    let row = Row {
                        seq,
                        time_us: message.time_us,
                    };
                    let (subject, mut headers) = (message.subject, message.headers);
                    let (mut payload, mut block) = (message.payload, Vec::new());
                    if tap.is_some_and(Tap::is_headers_only) {
                        without_payload(&mut block, headers, payload.len());
                        headers = &block;
                        payload = b"";
                    }
                    self.parcel.add(row, subject, headers, payload);
                }
            }
            next = seq.next();
        }
        self.at = Some((identity, next));
        let first = self.request.logged.is_none() || passed == PASSED_MAX;
        if self.parcel.is_empty() && !first && now < self.since + HELD {
            return Found::NotYet;
        }
        let mut reached = next.prev();
        if tap.is_some() {
            // A consumer may begin behind the last message, and a client may set it back again. So the stream
            // is never further than the origin.
            let from = self.request.from.filter(|from| from.origin == identity);
            let least = from.map_or(StreamSeq::ZERO, |from| from.seq);
            reached = reached.min(state.last_seq).max(least);
        }
        let to = Progress {
            origin: identity,
            seq: reached,
        };
        let parcel = std::mem::take(&mut self.parcel);
        Found::Answer(parcel.into_answer(self.request.from, to, state.last_seq))
    }
}

/// Returns the sequence of the first message that a stream takes in from its origin, as the source's
/// configuration states it. Later intakes follow their progress.
fn start(source: &StreamSource, origin: &Stream) -> StreamSeq {
    let first = match source.opt_start_time {
        _ if source.opt_start_seq > StreamSeq::ZERO => source.opt_start_seq.min(START_MAX),
        Some(time) => origin.seq_at_time(time.as_micros_up()),
        None => StreamSeq::FIRST,
    };
    first.max(origin.state().first_seq)
}

impl Answer {
    pub(crate) const fn refused(error: ApiError) -> Self {
        Self {
            state: Err(error),
            entry: Vec::new(),
        }
    }
}

impl JetStream {
    /// Answers the requests for messages of this group's streams, as far as the messages are in memory, and
    /// makes the store read the others.
    pub(in crate::streams) fn serve_giving(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        messages: &dyn Messages,
    ) {
        self.release_holders(cx, now);
        self.giving.arrived = false;
        if self.giving.requests.is_empty() {
            return;
        }
        let mut wanted = Vec::new();
        let mut answers = Vec::new();
        let mut due = self.due_requests(now);
        if !due.is_empty() {
            // The leader begins each turn with another request, so that all requests have their turn.
            self.giving.turns = self.giving.turns.wrapping_add(1);
            let first = self.giving.turns % due.len();
            due.rotate_left(first);
        }
        for key in due {
            if answers.len() >= ANSWERS_A_TURN {
                self.giving.arrived = true;
                break;
            }
            let Some(mut waiting) = self.giving.requests.remove(&key) else {
                continue;
            };
            if waiting.until <= now {
                continue;
            }
            match self.look(cx, now, &mut waiting, messages, &mut wanted) {
                Found::Answer(answer) => answers.push((waiting.request.group, key, answer)),
                Found::NotYet => drop(self.giving.requests.insert(key, waiting)),
            }
        }
        cx.outputs.read(wanted);
        for (group, (target, key), answer) in answers {
            if group == self.group {
                self.note_answer(target, key, answer);
            } else {
                let given = LeaderMessage::Given {
                    target,
                    key,
                    answer,
                };
                cx.tell_group(group, None, given);
            }
        }
    }

    /// Returns the requests that the leader may be able to answer now. Other requests wait for the next
    /// message of their origin, so a look at them is of no use.
    fn due_requests(&self, now: Time) -> Vec<(DirectoryNumber, String)> {
        let waits = |waiting: &Waiting| {
            let own = match self.group {
                ALL => Some(waiting.request.origin.entry()),
                _ => self.keeping.own_of(waiting.request.origin),
            };
            let last = own
                .and_then(|own| self.streams.get(own))
                .map(|s| s.state().last_seq);
            let nothing = waiting
                .at
                .zip(last)
                .is_some_and(|((_, next), last)| next > last);
            let early = now < waiting.since + HELD && now < waiting.until;
            nothing && early && waiting.parcel.is_empty()
        };
        let due = self.giving.requests.iter().filter(|(_, w)| !waits(w));
        due.map(|(key, _)| key.clone()).collect()
    }

    fn look(
        &mut self,
        cx: &Context<'_>,
        now: Time,
        waiting: &mut Waiting,
        messages: &dyn Messages,
        wanted: &mut Vec<Place>,
    ) -> Found {
        let request = &waiting.request;
        let own = match self.group {
            ALL => Some(request.origin.entry()),
            _ => self.keeping.own_of(request.origin),
        };
        let origin = own.and_then(|own| self.streams.get(own));
        let Some(origin) = origin.filter(|s| self.is_open_here(s) && s.transit() == Transit::None)
        else {
            return Found::NotYet;
        };
        let created_us = origin.created_us();
        let other =
            |of: Progress| of.origin.number != request.origin || of.origin.created_us != created_us;
        if request.is_mirror && request.logged.is_some_and(other) {
            return Found::Answer(Answer::refused(ApiError::mirror_failed(format_args!(
                "stream {} was deleted and created again: create the mirror again, too",
                origin.name()
            ))));
        }
        let own = origin.id();
        let keeps = origin.config().retention != Retention::Limits;
        let tap = match &waiting.request.source.consumer {
            Some(consumer) => match self.tap(cx, now, own, (&waiting.request, consumer)) {
                Ok(Some(tap)) => Some(tap),
                Ok(None) => return Found::NotYet,
                Err(error) => return Found::Answer(Answer::refused(error)),
            },
            None if keeps && !self.hold(cx, now, own, &waiting.request) => return Found::NotYet,
            None => None,
        };
        let Some(origin) = self.streams.get(own) else {
            return Found::NotYet;
        };
        waiting.look(now, origin, tap.as_ref(), messages, wanted)
    }
}
