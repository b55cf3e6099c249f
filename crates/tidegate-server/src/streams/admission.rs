//! Admits requests that change streams and consumers: the leader decides about two requests that concern the
//! same stream or consumer one after the other.
//!
//! The leader decides about a request by the streams and consumers as applied, and the group applies the
//! leader's proposals later. If the leader decided about two requests by the same state, it could grant both
//! although either forbids the other. So the leader notes each change that it proposes until the change is
//! applied or lost. If such a change may concern a new request, that request waits, and the leader decides
//! about it by the state after the change:
//!
//! - a request about a stream waits for each proposed change of that stream and of its consumers;
//! - a request about a consumer waits for each proposed change of that consumer and of its stream;
//! - a request that adds a stream, a consumer or a reservation waits if a limit has room for it only in the
//!   case that some proposed change fails.
//!
//! Requests wait in the order in which they came, and a request never overtakes another request that concerns
//! the same stream or consumer. Purges, deletions of messages and published messages do not wait:
//! [`tidegate_stream::stream::Streams`] checks them when it applies them.
//!
//! At most [`WAITING_MAX`] requests of [`WAITING_BYTES_MAX`] bytes together wait; the leader refuses more.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate::Time;
use tidegate_nats::parse::Publish;
use tidegate_stream::api::Request;
use tidegate_stream::api::answer::{self, Kind as Answer};
use tidegate_stream::schema::config::{Storage, StreamConfig};
use tidegate_stream::schema::error::ApiError;

use super::JetStream;
use super::context::Context;
use super::outcome::Then;
use super::proposals::Waiters;
use crate::streams::serving::live::Live;

/// The limit on the number of API requests that wait for proposed changes; the leader refuses more, so that
/// they take bounded memory.
const WAITING_MAX: usize = 8192;
/// The limit on the bytes of the API requests that wait for proposed changes; the leader refuses more, so
/// that they take bounded memory.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// The id under which the leader keeps a proposed change of a stream or consumer. No later change gets the id
/// again.
pub(super) type ChangeId = u64;

/// The change for which an API request asks: the stream or consumer that it concerns, and the limits for
/// which it counts. By these the leader decides if the request must wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    stream: Box<str>,
    of: Of,
    /// True if the request may add a stream or a consumer, so that the leader counts it towards a limit.
    adds: bool,
    /// The kind of storage in which the request reserves space for a stream, which the leader counts towards
    /// the operator's limit; `None` for a deletion, for a change of a consumer, and for a stream without a
    /// byte limit.
    reserves: Option<Storage>,
}

/// The part of a stream that an API request changes, by which the leader finds the requests that concern each
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    /// The client's request changes the stream itself, so it concerns the stream and all its consumers.
    Stream,
    /// The client's request changes the consumer of this name, so it concerns this consumer and its stream.
    Consumer(Box<str>),
    /// The client's request adds a consumer for which the server chooses the name, so it concerns only the
    /// stream.
    Unnamed,
}

impl Change {
    /// Returns the change for which a request asks, so that the leader can check if the request must wait;
    /// `None` for a request that changes no stream and no consumer, or that the streams check only when they
    /// apply it, such as a purge. Such a request never waits.
    pub(super) fn of(request: &Request<'_>) -> Option<Self> {
        let of_consumer = |stream: &str, consumer: &str| Self {
            stream: stream.into(),
            of: Of::Consumer(consumer.into()),
            adds: false,
            reserves: None,
        };
        Some(match request {
            Request::StreamCreate { config, .. } => {
                Self::of_stream(&config.name, Some(config), true)
            }
            Request::StreamRestore { config } => Self::of_stream(&config.name, Some(config), true),
            Request::StreamUpdate { config, .. } => {
                Self::of_stream(&config.name, Some(config), false)
            }
            Request::StreamDelete { stream } => Self::of_stream(stream, None, false),
            Request::ConsumerCreate { stream, config, .. } => {
                let names = [&config.name, &config.durable_name];
                let name = names.into_iter().find(|name| !name.is_empty());
                Self {
                    stream: (*stream).into(),
                    of: name.map_or(Of::Unnamed, |name| Of::Consumer(name.as_str().into())),
                    adds: true,
                    reserves: None,
                }
            }
            Request::ConsumerDelete { stream, consumer }
            | Request::ConsumerPause {
                stream, consumer, ..
            }
            | Request::ConsumerReset {
                stream, consumer, ..
            } => of_consumer(stream, consumer),
            _ => return None,
        })
    }

    fn of_stream(name: &str, config: Option<&StreamConfig>, adds: bool) -> Self {
        let reserves = config.filter(|c| c.max_bytes > 0).map(|c| c.storage);
        Self {
            stream: name.into(),
            of: Of::Stream,
            adds,
            reserves,
        }
    }

    /// Returns the length in bytes of the names of stream and consumer, which count towards
    /// [`WAITING_BYTES_MAX`].
    fn bytes(&self) -> usize {
        let consumer = match &self.of {
            Of::Consumer(name) => name.len(),
            _ => 0,
        };
        self.stream.len() + consumer
    }
}

/// Counts changes by stream and consumer. The leader keeps one count of the changes that it has proposed, and
/// one of the changes for which waiting requests ask, to find those that concern a new request.
#[derive(Debug, Default)]
struct Changes {
    streams: HashMap<Box<str>, OfStream, RandomState>,
    /// The number of changes, proposed or requested, that may add a stream. The leader compares it with the
    /// limit on streams to see whether another request must wait.
    adding: usize,
    /// The number of changes, proposed or requested, that reserve space for a stream: first in the log,
    /// second in memory. The leader compares the bytes with the operator's limits.
    reserving: [usize; 2],
}

/// Counts the proposed or requested changes of one stream and of its consumers, to find those that concern a
/// new request.
#[derive(Debug, Default)]
struct OfStream {
    all: usize,
    /// The number of changes of the stream itself, proposed or requested. Requests about any of its consumers
    /// wait for them.
    whole: usize,
    consumers: HashMap<Box<str>, usize, RandomState>,
    /// The number of changes, proposed or requested, that may add a consumer to the stream. The leader
    /// compares it with the limit on consumers to see whether another request must wait.
    adding: usize,
}

impl Changes {
    fn add(&mut self, change: &Change) {
        let of = self.streams.entry(change.stream.clone()).or_default();
        of.all += 1;
        match &change.of {
            Of::Stream => {
                of.whole += 1;
                self.adding += usize::from(change.adds);
            }
            Of::Consumer(name) => {
                *of.consumers.entry(name.clone()).or_default() += 1;
                of.adding += usize::from(change.adds);
            }
            Of::Unnamed => of.adding += usize::from(change.adds),
        }
        if let Some(storage) = change.reserves {
            self.reserving[place_of(storage)] += 1;
        }
    }

    fn remove(&mut self, change: &Change) {
        let Some(of) = self.streams.get_mut(&change.stream) else {
            return;
        };
        of.all -= 1;
        match &change.of {
            Of::Stream => {
                of.whole -= 1;
                self.adding -= usize::from(change.adds);
            }
            Of::Consumer(name) => {
                if let Some(count) = of.consumers.get_mut(name) {
                    *count -= 1;
                    if *count == 0 {
                        of.consumers.remove(name);
                    }
                }
                of.adding -= usize::from(change.adds);
            }
            Of::Unnamed => of.adding -= usize::from(change.adds),
        }
        if of.all == 0 {
            self.streams.remove(&change.stream);
        }
        if let Some(storage) = change.reserves {
            self.reserving[place_of(storage)] -= 1;
        }
    }

    /// Returns whether this collection has a change of the same stream or consumer as `change`, so that a
    /// request for `change` has to wait.
    fn concern(&self, change: &Change) -> bool {
        self.streams
            .get(&change.stream)
            .is_some_and(|of| match &change.of {
                Of::Stream => true,
                Of::Consumer(name) => of.whole > 0 || of.consumers.contains_key(name),
                Of::Unnamed => of.whole > 0,
            })
    }

    /// Returns the number of changes in this collection that may add a consumer to the stream of this name,
    /// which the leader compares with the limit.
    fn adding_to(&self, stream: &str) -> usize {
        self.streams.get(stream).map_or(0, |of| of.adding)
    }
}

const fn place_of(storage: Storage) -> usize {
    match storage {
        Storage::File => 0,
        Storage::Memory => 1,
    }
}

/// A client's API request that waits until the group has applied the proposed changes that may concern the
/// request.
#[derive(Debug)]
struct Waiting {
    change: Change,
    kind: Answer,
    subject: Box<[u8]>,
    reply: Box<[u8]>,
    headers: Option<Box<[u8]>>,
    payload: Box<[u8]>,
}

impl Waiting {
    fn message(&self) -> Publish<'_> {
        Publish {
            subject: &self.subject,
            reply: Some(&self.reply),
            headers: self.headers.as_deref(),
            payload: &self.payload,
        }
    }

    fn bytes(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, |h| h.len());
        self.subject.len()
            + self.reply.len()
            + headers
            + self.payload.len()
            + self.change.bytes()
            + size_of::<Self>()
    }
}

/// The changes that this leader has proposed and the group has not applied yet, and the API requests that
/// wait for these changes.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    proposed: HashMap<ChangeId, Change, RandomState>,
    in_flight: Changes,
    waiting: VecDeque<Waiting>,
    awaited: Changes,
    waiting_bytes: usize,
    last_id: ChangeId,
    /// True if the group has applied or lost a change since the leader last looked at the waiting requests,
    /// so that the leader looks again.
    concluded: bool,
}

impl Admissions {
    /// Records a change that the leader proposes now, so that later requests wait for it. Returns the
    /// change's id.
    pub(super) fn propose(&mut self, change: Change) -> ChangeId {
        self.last_id += 1;
        self.in_flight.add(&change);
        self.proposed.insert(self.last_id, change);
        self.last_id
    }

    /// Records that the group has applied a proposed change, or never will, so that the waiting requests
    /// continue. The call has no effect for a change that this node proposed in an earlier term as leader.
    pub(super) fn conclude(&mut self, id: ChangeId) {
        if let Some(change) = self.proposed.remove(&id) {
            self.in_flight.remove(&change);
            self.concluded = true;
        }
    }

    /// Ends the changes in an entry that the group has lost, so that no request waits for them. The clients
    /// of these changes get no outcome.
    pub(super) fn forget(&mut self, mut lost: Waiters<Then>) {
        for (_, _, then) in lost.drain() {
            if let Then::Admitted(id, _) = then {
                self.conclude(id);
            }
        }
    }

    /// Returns whether the leader must decide about the waiting requests again: a change has been applied or
    /// lost, so some requests may no longer have to wait.
    pub(super) fn is_due(&self) -> bool {
        self.concluded && !self.waiting.is_empty()
    }

    /// Returns whether no API request waits for a proposed change, so that the node may stop.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether a request for this change has to wait for a proposed change or for another waiting
    /// request, so that the leader keeps it.
    fn concern(&self, change: &Change) -> bool {
        self.in_flight.concern(change) || self.awaited.concern(change)
    }

    fn push(&mut self, waiting: Waiting) {
        self.awaited.add(&waiting.change);
        self.waiting_bytes += waiting.bytes();
        self.waiting.push_back(waiting);
    }

    /// Removes and returns all waiting API requests, so that the caller decides about them again or refuses
    /// them.
    fn take_waiting(&mut self) -> VecDeque<Waiting> {
        self.waiting_bytes = 0;
        self.awaited = Changes::default();
        std::mem::take(&mut self.waiting)
    }

    /// Panics if the counts of changes do not match the proposed changes and the waiting requests. Tests call
    /// this after each step.
    #[cfg(test)]
    fn check_invariants(&self) {
        let of = |changes: &Changes| {
            let streams = changes.streams.values();
            streams.map(|of| of.all).sum::<usize>()
        };
        assert_eq!(of(&self.in_flight), self.proposed.len());
        assert_eq!(of(&self.awaited), self.waiting.len());
        let bytes = self.waiting.iter().map(Waiting::bytes);
        assert_eq!(bytes.sum::<usize>(), self.waiting_bytes);
    }
}

impl JetStream {
    /// Returns whether a request for this change has to wait, because its answer depends on a change that the
    /// leader has proposed and the group has not applied yet.
    pub(super) fn must_wait(&self, change: &Change) -> bool {
        self.admissions.concern(change) || self.is_ending(change) || self.may_exceed(change)
    }

    /// Returns whether the leader itself, without a client's request, has proposed to delete the consumer or
    /// to add it to the log, and the group has not applied that yet. A client's request about this consumer
    /// has to wait for that.
    fn is_ending(&self, change: &Change) -> bool {
        let Of::Consumer(name) = &change.of else {
            return false;
        };
        let stream = self.streams.by_name(&change.stream);
        let key = stream.and_then(|id| self.consumers.find(id, name));
        let live = key.and_then(|key| self.consumers.get(key));
        live.is_some_and(Live::is_proposed)
    }

    /// Returns whether a limit of streams, consumers or reserved bytes has room for this change only if a
    /// proposed change fails, so that the request has to wait for that change.
    fn may_exceed(&self, change: &Change) -> bool {
        let proposed = &self.admissions.in_flight;
        let tight = |has: usize, adding: usize, most: Option<usize>| {
            adding > 0 && most.is_some_and(|most| has < most && has + adding >= most)
        };
        let bounded = |storage| match storage {
            Storage::File => self.settings.max_file_bytes.is_some(),
            Storage::Memory => self.settings.max_memory_bytes.is_some(),
        };
        let reserves = change.reserves.filter(|s| bounded(*s));
        if reserves.is_some_and(|s| proposed.reserving[place_of(s)] > 0) {
            return true;
        }
        if !change.adds {
            return false;
        }
        let there = self.streams.by_name(&change.stream);
        match (&change.of, there) {
            (Of::Stream, None) => tight(
                self.streams.len(),
                proposed.adding,
                self.settings.max_streams,
            ),
            (Of::Stream, Some(_)) | (_, None) => false,
            (_, Some(id)) => tight(
                self.consumers_of(id),
                proposed.adding_to(&change.stream),
                self.consumers_max(id),
            ),
        }
    }

    /// Keeps an API request until the leader can decide about it, or refuses the request if too many requests
    /// wait.
    pub(super) fn wait(
        &mut self,
        change: Change,
        kind: Answer,
        message: &Publish<'_>,
    ) -> Result<(), ApiError> {
        let waiting = Waiting {
            change,
            kind,
            subject: message.subject.into(),
            reply: message.reply.unwrap_or_default().into(),
            headers: message.headers.map(Into::into),
            payload: message.payload.into(),
        };
        let admissions = &self.admissions;
        let full = admissions.waiting.len() >= WAITING_MAX
            || admissions.waiting_bytes + waiting.bytes() > WAITING_BYTES_MAX;
        if full {
            self.stats.refused += 1;
            return Err(ApiError::TOO_MANY_REQUESTS);
        }
        self.admissions.push(waiting);
        Ok(())
    }

    /// Decides about the waiting requests that no longer have to wait for a proposed change. The leader calls
    /// this once a change is applied or lost.
    pub(super) fn serve_waiting(&mut self, cx: &mut Context<'_>, now: Time) {
        self.admissions.concluded = false;
        if self.admissions.is_idle() {
            return;
        }
        for waiting in self.admissions.take_waiting() {
            match self.must_wait(&waiting.change) {
                true => self.admissions.push(waiting),
                false => {
                    self.handle_request(cx, now, &waiting.message());
                }
            }
        }
    }

    /// Refuses the waiting requests and forgets the proposed changes, because this node does not lead the
    /// group any more.
    pub(super) fn close_admissions(&mut self, cx: &mut Context<'_>, now: Time) {
        for waiting in self.admissions.take_waiting() {
            self.stats.api_requests += 1;
            self.stats.api_errors += 1;
            let body = answer::refused(waiting.kind.as_str(), &ApiError::SYSTEM_UNAVAILABLE);
            self.voice(cx, now).answer_with(&waiting.reply, &body);
        }
        self.admissions.proposed.clear();
        self.admissions.in_flight = Changes::default();
    }
}

#[cfg(test)]
mod tests;
