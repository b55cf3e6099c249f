//! Handles the requests that clients send to `$JS.API.>`. If a request only reads, the leader answers it
//! without a proposal. If a request changes something, the leader proposes the change, and answers once the
//! node has applied the change.
//!
//! The rules of streams and consumers check each configuration twice: once before the leader proposes a
//! change, so that most refused requests cost the log nothing, and once more when the nodes apply the entry.

use serde::Serialize;
use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_nats::parse::Publish;
use tidegate_raft::store::Space;
use tidegate_stream::api::answer::{self, AccountInfo, AccountLimits, ApiCounts, Kind as Answer};
use tidegate_stream::api::body::{Action, Placement};
use tidegate_stream::api::direct::DirectGet;
use tidegate_stream::api::view::ConsumerView as _;
use tidegate_stream::api::{Refusal, Request, pedantic, strip, view};
use tidegate_stream::consumer::rules::{self, Admission};
use tidegate_stream::consumer::{Ending, State};
use tidegate_stream::schema::config::{ConsumerConfig, Storage, StreamConfig};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::level;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::{
    Command, ConsumerRequest, DeleteRequest, Home, Kind, Outcome, PurgeRequest, SharedConfig,
    Stream, StreamView, Transit,
};

use super::admission::Change;
use super::backups::CONFIRMATIONS;
use super::context::{Context, Leader};
use super::outcome::Then;
use super::restores::CHUNKS;
use super::views::Shown;
use super::{JetStream, Taken};
use crate::streams::directory::roles::StepDown;
use crate::streams::serving::Key;
use crate::streams::serving::asleep::Served;
use crate::streams::serving::consumers::Known;

use super::events::Advised;
use super::reads::Begun;

/// The beginnings of the subjects, behind `$JS.API.`, at which clients ask for stored messages: pulls, and
/// (`READS`) direct reads. The node answers such a request with messages, so it never answers it with an
/// error as JSON.
pub(super) const PULLS: &[u8] = b"CONSUMER.MSG.NEXT.";
pub(super) const READS: &[u8] = b"DIRECT.GET.";
/// The most streams with origins among which an answer looks for the mirrors of a stream, so that the answer
/// takes bounded time.
const MIRRORS_LOOKED_AT_MAX: usize = 1024;

/// The result of handling an API request: an answer now, an answer later, or none. By it the node sends the
/// answer and counts the request.
enum Reply {
    /// The node answers the client at once with this body, because it needs no change or read.
    Now(Vec<u8>),
    /// The node refuses the client's request, and sends this error as the answer.
    Error(ApiError),
    /// The node answers the client later, after a change or a read, or the client expects no answer.
    Later,
    /// The streams do not take the request, so the client gets `no responders`, as if no node listened for
    /// the request.
    Nobody,
}

impl From<Result<Self, ApiError>> for Reply {
    fn from(result: Result<Self, ApiError>) -> Self {
        result.unwrap_or_else(Self::Error)
    }
}

impl JetStream {
    /// Handles a client's message at `$JS.>`: an API request, an acknowledgement, or a message for a stream.
    /// Returns whether the streams take the message, so that the caller need not deliver it elsewhere.
    pub(crate) fn handle_request(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        message: &Publish<'_>,
    ) -> Taken {
        if !self.role.serves {
            return self.not_served(cx, now, message);
        }
        if message.subject.starts_with(b"$JS.ACK.") {
            return self.acknowledged(cx, now, message);
        }
        if message.subject.starts_with(CHUNKS.as_bytes()) {
            return self.handle_chunk(cx, now, message);
        }
        if message.subject.starts_with(CONFIRMATIONS.as_bytes()) {
            self.handle_confirmation(now, message.subject);
            return Taken::Yes;
        }
        if message.subject.starts_with(b"$JS.FC.") {
            self.flow_answered(cx, now, message);
            return Taken::Yes;
        }
        let Some(asked) = strip(message.subject, self.settings.domain.as_deref()) else {
            // The message is no request. It may be an advisory, which a stream can store.
            return self.publish(now, None, message);
        };
        // A client that sends no reply subject expects no answer, so the node ignores its request.
        let Some(reply) = message.reply else {
            return Taken::Yes;
        };
        let (kind, outcome) = match Request::parse(asked, message.header_block(), message.payload) {
            Ok(request) => {
                let kind = kind_of(&request);
                let change = Change::of(&request);
                let outcome = match change {
                    Some(change) if self.must_wait(&change) => {
                        let kept = self.wait(change, kind, message);
                        if kept.is_ok() {
                            // The request waits for a proposed change of its stream or consumer. The node
                            // counts the request later, once the leader decides about it, because only then
                            // is it known whether the leader answers with an error.
                            return Taken::Yes;
                        }
                        kept.map(|()| Reply::Later).into()
                    }
                    Some(change) => self.change(cx, now, reply, (kind, change), request).into(),
                    None => self.answer(cx, now, message, reply, request),
                };
                (kind.as_str(), outcome)
            }
            Err(Refusal::Status(headers)) => {
                self.stats.api_requests += 1;
                self.stats.api_errors += 1;
                self.voice(cx, now).status_to(reply, headers);
                return Taken::Yes;
            }
            Err(Refusal::Error(kind, error)) => (kind, Reply::Error(error)),
        };
        // The node counts the request after it has made the answer, so that a client that asks for the count
        // does not find its own request in the count.
        self.stats.api_requests += 1;
        let body = match outcome {
            Reply::Later => return Taken::Yes,
            Reply::Nobody => return Taken::No,
            Reply::Now(body) => body,
            Reply::Error(error) => {
                self.stats.api_errors += 1;
                answer::refused(kind, &error)
            }
        };
        self.voice(cx, now).answer_with(reply, &body);
        Taken::Yes
    }

    /// Handles a message at `$JS.>` that only the leader can handle, while this node knows no leader. The
    /// node answers an API request with an error. A client that asks for messages would take such an error
    /// for a message. So the node keeps a pull and ends it once the group has a leader, and does not take
    /// direct reads.
    fn not_served(&mut self, cx: &mut Context<'_>, now: Time, message: &Publish<'_>) -> Taken {
        let asked = strip(message.subject, self.settings.domain.as_deref());
        let (Some(asked), Some(reply)) = (asked, message.reply) else {
            return Taken::No;
        };
        if asked.starts_with(READS) {
            return Taken::No;
        }
        if asked.starts_with(PULLS) {
            if self.is_split() && matches!(cx.around.leader_of(ALL), Some(Leader::Peer { .. })) {
                // No known node serves the stream: if the directory's leader served it, that leader would
                // have announced it. So the client gets `no responders`, if its node finds no other receiver.
                return Taken::No;
            }
            return match self.park(reply) {
                true => Taken::Yes,
                false => Taken::No,
            };
        }
        self.stats.api_errors += 1;
        let body = answer::refused(answer::SYSTEM, &ApiError::SYSTEM_UNAVAILABLE);
        self.voice(cx, now).answer_with(reply, &body);
        Taken::Yes
    }

    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        message: &Publish<'_>,
        reply: &[u8],
        request: Request<'_>,
    ) -> Reply {
        let kind = kind_of(&request);
        match request {
            Request::AccountInfo if self.is_split() => {
                let gathered = self.gather_account(cx, now, reply);
                gathered.map(|()| Reply::Later).into()
            }
            Request::AccountInfo => Reply::Now(view::account_info(&self.account())),
            Request::StreamInfo { stream, details } => {
                if let Ok(id) = self.entry(stream).map(Stream::id)
                    && self.needs_page(id, &details)
                {
                    let waits = self.ask_for_page(reply, id, details);
                    return waits.map(|()| Reply::Later).into();
                }
                let mirrors = self.mirrors_of(cx, stream);
                let info = |s: &Stream| {
                    let shown = Shown {
                        mirrors: mirrors.clone(),
                        ..self.shown(now, s)
                    };
                    view::stream_info(&self.server(now), &shown, &details)
                };
                self.entry(stream).and_then(info).map(Reply::Now).into()
            }
            Request::StreamNames(ask) | Request::StreamList(ask) => {
                let listed = self.list_streams(cx, now, reply, kind, &ask);
                let reply = listed.map(|body| body.map_or(Reply::Later, Reply::Now));
                reply.into()
            }
            Request::ConsumerInfo { stream, consumer } => self
                .consumer_info(cx, now, reply, kind, (stream, consumer))
                .into(),
            Request::ConsumerNames { stream, offset } => {
                let names = |s: &Stream| {
                    let (page, names) = self.served_page(s, offset, view::NAMES_MAX);
                    view::consumer_names(page, names.into_iter())
                };
                self.stream(stream).map(names).map(Reply::Now).into()
            }
            Request::ConsumerList { stream, offset } => {
                let wall_us = self.wall.peek(now);
                let list = |s: &Stream| {
                    let (page, names) = self.served_page(s, offset, view::LIST_MAX);
                    let served = names.iter().filter_map(|n| self.served(wall_us, s, n));
                    let served: Vec<_> = served.collect();
                    view::consumer_list(&self.server(now), s.name(), page, served.iter())
                };
                self.stream(stream).map(list).map(Reply::Now).into()
            }
            Request::MessageGet { stream, get } => self.message_get(stream, &get, reply).into(),
            Request::DirectGet { stream, get } => self.direct_get(stream, &get, reply),
            Request::ConsumerNext { stream, consumer } => {
                match self.find_consumer(now, stream, consumer) {
                    Ok(key) => {
                        self.with_consumer(cx, now, key, |live, voice| {
                            let wall_us = voice.wall_us;
                            live.consumer
                                .handle_pull(wall_us, reply, message.payload, voice);
                        });
                        Reply::Later
                    }
                    Err(_) => self.pulled_in_vain(stream, reply),
                }
            }
            decided => self.propose_decided(now, reply, kind, decided).into(),
        }
    }

    /// Handles a request that needs no check by the leader: proposes a purge or a deletion of a message,
    /// which the streams check only when the nodes apply them. A request for another leader needs no
    /// proposal, so the node answers it at once.
    fn propose_decided(
        &mut self,
        now: Time,
        reply: &[u8],
        kind: Answer,
        request: Request<'_>,
    ) -> Result<Reply, ApiError> {
        self.check_room()?;
        let waiter = (reply, Then::Api(kind));
        match request {
            Request::StreamPurge { stream, purge } => {
                let purge = PurgeRequest {
                    filter: purge.filter,
                    seq: purge.seq,
                    keep: purge.keep,
                };
                let id = self.stream(stream)?.id();
                if !self.must_foresee(reply, id, &purge)? {
                    self.propose(now, Kind::Purge, id, b"", &purge, waiter)?;
                }
            }
            Request::MessageDelete { stream, delete } => {
                let delete = DeleteRequest {
                    seq: delete.seq,
                    no_erase: delete.no_erase,
                };
                let id = self.stream(stream)?.id();
                self.propose(now, Kind::DeleteMessage, id, b"", &delete, waiter)?;
            }
            Request::StreamSnapshot { stream, snapshot } => {
                let id = self.stream(stream)?.id();
                self.prepare_backup(now, reply, id, snapshot)?;
            }
            Request::StepDown {
                kind,
                stream,
                consumer,
                to,
            } => return self.step_down(kind, stream, consumer, to),
            _ => return Err(ApiError::BAD_REQUEST),
        }
        Ok(Reply::Later)
    }

    /// Refuses a client's request if the log has no room for another command, so that requests do not fill
    /// the node's memory.
    fn check_room(&mut self) -> Result<(), ApiError> {
        if self.is_full() {
            self.stats.refused += 1;
            return Err(ApiError::TOO_MANY_REQUESTS);
        }
        Ok(())
    }

    /// Decides about a request by the present state of streams and consumers. If the leader grants the
    /// request, it proposes the change, and answers the client once the group has applied it. Until then,
    /// `change` makes other requests about the same stream or consumer wait, so that the leader decides by
    /// the state after it.
    fn change(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        (kind, change): (Answer, Change),
        request: Request<'_>,
    ) -> Result<Reply, ApiError> {
        self.check_room()?;
        match request {
            Request::StreamCreate {
                mut config,
                pedantic,
            } => {
                if pedantic {
                    pedantic::stream(&config)?;
                }
                self.check_replicas(config.num_replicas)?;
                self.check_placement(&config)?;
                self.settings.limits.bound_stream(&mut config)?;
                self.settle_origins(&mut config)?;
                let config = self.streams.check_create(&config)?;
                if let Some(stream) = self.streams.by_name(&config.name) {
                    // The stream exists with exactly this configuration, as `check_create` has found, so the
                    // leader answers without a proposal.
                    let there = Outcome::Exists { stream };
                    self.tell(cx, now, reply, Then::Api(kind), &there);
                    return Ok(Reply::Later);
                }
                let of = (kind, change);
                self.propose_stream(cx, now, reply, of, Kind::creating(&config), &config)?;
            }
            Request::StreamRestore { config } => {
                self.check_replicas(config.num_replicas)?;
                self.check_placement(&config)?;
                let config = self.streams.check_restore(&config)?;
                let of = (kind, change);
                self.propose_stream(cx, now, reply, of, Kind::CreateRestoring, &config)?;
            }
            Request::StreamUpdate {
                mut config,
                pedantic,
            } => {
                if pedantic {
                    pedantic::stream(&config)?;
                }
                self.check_replicas(config.num_replicas)?;
                self.check_placement(&config)?;
                self.settings.limits.bound_stream(&mut config)?;
                self.settle_origins(&mut config)?;
                let config = self.streams.check_update(&config)?;
                let course = self.course(cx, &config)?.encode();
                let of = self.entry(&config.name)?;
                let (id, differs) = (of.id(), *of.config() != config);
                let update = Kind::updating(of.config(), &config);
                // An update to the present configuration changes nothing, so no other request needs to wait
                // for it.
                let then = self.admitted(Some(change).filter(|_| differs), Then::Api(kind));
                self.propose(now, update, id, &course, &config, (reply, then))?;
            }
            Request::StreamDelete { stream } => {
                let of = self.entry(stream)?;
                let then = match of.home() {
                    Home::Elsewhere { group, .. } => Then::DeletedElsewhere(group),
                    _ => Then::Api(kind),
                };
                let id = of.id();
                let then = self.admitted(Some(change), then);
                self.propose(now, Kind::DeleteStream, id, b"", &(), (reply, then))?;
            }
            Request::ConsumerCreate {
                stream,
                config,
                action,
                pedantic,
            } => {
                if pedantic {
                    pedantic::consumer(&config, self.stream(stream)?.config())?;
                }
                return self.create_consumer(cx, now, reply, (stream, change), *config, action);
            }
            Request::ConsumerDelete { stream, consumer } => {
                let id = self.stream(stream)?.id();
                let told = self.served_of(now, stream, consumer)?.is_told();
                if let Some(key) = self.consumers.find(id, consumer).filter(|_| !told) {
                    let mut voice = self.voice(cx, now);
                    voice.advise(&Advised::ConsumerDeleted { stream, consumer });
                    self.let_go(cx, now, key, Ending::Deleted);
                    return Ok(Reply::Now(answer::success(kind)));
                }
                if let Some(key) = self.consumers.find(id, consumer)
                    && let Some(live) = self.consumers.get(key)
                    && live.consumer.lists_settled()
                {
                    // The leader first proposes the last acknowledgements. Behind the deletion the log would
                    // refuse them, and the stream would keep messages that the consumer has settled.
                    self.propose_postponed_of(now, key);
                    self.propose_delta(now, key);
                }
                let name = consumer.as_bytes();
                let then = self.admitted(Some(change), Then::Api(kind));
                self.propose(now, Kind::DeleteConsumer, id, name, &(), (reply, then))?;
            }
            Request::ConsumerPause {
                stream,
                consumer,
                until,
            } => return self.pause(now, reply, change, (stream, consumer), until),
            Request::ConsumerReset {
                stream,
                consumer,
                seq,
            } => {
                let key = self.find_consumer(now, stream, consumer)?;
                self.reset_consumer(key, reply, seq, change)?;
            }
            _ => return Err(ApiError::BAD_REQUEST),
        }
        Ok(Reply::Later)
    }

    /// Chooses the group that is to keep a new stream, and proposes the command that creates the stream.
    fn propose_stream(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        (answer, change): (Answer, Change),
        kind: Kind,
        config: &StreamConfig,
    ) -> Result<(), ApiError> {
        let kept = self.place(cx, config)?.encode();
        let then = self.admitted(Some(change), Then::Api(answer));
        let none = StreamNumber::NONE;
        let proposed = self.propose(now, kind, none, &kept, config, (reply, then));
        if proposed.is_err() {
            self.directory.handle_made();
        }
        proposed
    }

    /// Registers a proposed change, for which other requests may wait. Returns an action that concludes the
    /// change and then carries out `then`, so that the waiting requests continue.
    fn admitted(&mut self, change: Option<Change>, then: Then) -> Then {
        match change {
            Some(change) => Then::Admitted(self.admissions.propose(change), Box::new(then)),
            None => then,
        }
    }

    /// Proposes a command with a JSON payload, or with an empty payload for `()`. Refuses the command if disk
    /// space is scarce and the command frees none, to keep the rest of the disk for commands that free space.
    pub(super) fn propose<P: Serialize + ?Sized>(
        &mut self,
        now: Time,
        kind: Kind,
        stream: StreamNumber,
        subject: &[u8],
        payload: &P,
        waiter: (&[u8], Then),
    ) -> Result<(), ApiError> {
        if self.room.space == Space::Scarce && !kind.makes_space() {
            self.stats.refused += 1;
            if let Then::Admitted(id, _) = waiter.1 {
                self.admissions.conclude(id);
            }
            return Err(ApiError::STORAGE_EXCEEDED);
        }
        let payload = match serde_json::to_vec(payload) {
            Ok(json) if json == b"null" => Vec::new(),
            Ok(json) => json,
            Err(e) => unreachable!("a value that was read as JSON can be written as JSON: {e}"),
        };
        // The node applies commands for the messages of streams in memory without the log. Commands for the
        // streams themselves go through the log, so that a restart keeps the streams.
        let volatile = matches!(kind, Kind::Purge | Kind::DeleteMessage)
            && self.streams.get(stream).is_some_and(Stream::in_memory);
        let command = Command::new(kind, stream, subject, &payload);
        self.command(now, volatile, &command, Some(waiter));
        Ok(())
    }

    pub(super) fn shown<'a>(&self, now: Time, stream: &'a Stream) -> Shown<'a> {
        let origins = stream.config().origins();
        Shown {
            origins: origins
                .map(|source| self.takers.state(now, stream, source))
                .collect(),
            mirrors: Vec::new(),
            stream,
            consumers: self.consumers_of(stream.id()),
        }
    }

    /// Returns the names of the mirrors of the stream `name`, for an answer in a cluster. Only the directory
    /// knows the streams of all groups.
    fn mirrors_of<'a>(&'a self, cx: &'a Context<'_>, name: &str) -> Vec<&'a str> {
        let directory = match self.group {
            ALL => Some(self),
            _ => cx.around.streams_of(ALL),
        };
        let Some(directory) = directory.filter(|directory| directory.nodes() > 1) else {
            return Vec::new();
        };
        let mirrors = |s: &&Stream| {
            let origin = s.config().mirror.as_ref();
            origin.is_some_and(|origin| origin.external.is_none() && origin.name == name)
        };
        let all = directory.streams.with_origins().take(MIRRORS_LOOKED_AT_MAX);
        all.filter(mirrors).map(Stream::name).collect()
    }

    fn entry(&self, name: &str) -> Result<&Stream, ApiError> {
        let id = self.streams.by_name(name);
        id.and_then(|id| self.streams.get(id))
            // A stream that a client still restores from a backup does not exist for clients yet.
            .filter(|stream| !stream.is_restoring())
            .ok_or(ApiError::STREAM_NOT_FOUND)
    }

    /// Returns the stream of this name. Returns an error if the stream does not exist, or is moving from one
    /// group to another, because no group may change a stream that moves.
    fn stream(&self, name: &str) -> Result<&Stream, ApiError> {
        let stream = self.entry(name)?;
        match stream.transit() {
            Transit::None => Ok(stream),
            _ => Err(ApiError::SYSTEM_UNAVAILABLE),
        }
    }

    /// Handles a pull from a consumer that does not exist. If the stream is moving, the node keeps the pull
    /// and ends it after the move; otherwise the client gets no answer, as if no node listened.
    fn pulled_in_vain(&mut self, stream: &str, reply: &[u8]) -> Reply {
        let of = self.entry(stream).ok().map(Stream::entry_number);
        match of.is_some_and(|of| self.is_unsettled(of) && self.park_moving(of, reply)) {
            true => Reply::Later,
            false => Reply::Nobody,
        }
    }

    /// Returns the key of a consumer, and awakens the consumer if it sleeps, so that the caller can serve a
    /// request for it.
    fn find_consumer(&mut self, now: Time, stream: &str, name: &str) -> Result<Key, ApiError> {
        let id = self.stream(stream)?.id();
        self.awaken(now, id, name)
            .ok_or(ApiError::CONSUMER_NOT_FOUND)
    }

    /// Returns the view of a consumer, asleep or awake, as of `now`, from which the node makes an answer.
    fn served_of(&self, now: Time, stream: &str, name: &str) -> Result<Served<'_>, ApiError> {
        let stream = self.stream(stream)?;
        self.served(self.wall.peek(now), stream, name)
            .ok_or(ApiError::CONSUMER_NOT_FOUND)
    }

    pub(super) fn account(&self) -> AccountInfo<'_> {
        let bound = |n: Option<u64>| n.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
        let (file, memory) = (
            self.streams.usage(Storage::File),
            self.streams.usage(Storage::Memory),
        );
        let count = |n: Option<usize>| bound(n.map(|n| n as u64));
        AccountInfo {
            memory: memory.bytes,
            storage: file.bytes,
            reserved_memory: memory.reserved,
            reserved_storage: file.reserved,
            streams: self.streams.len(),
            consumers: self.consumers_len(),
            // The answer leaves out the bytes that the whole server may keep, because these are no limits of
            // an account. `/jsz` of the monitor shows them.
            limits: AccountLimits {
                max_streams: count(self.settings.max_streams),
                max_consumers: count(self.settings.max_consumers),
                ..AccountLimits::default()
            },
            domain: self.settings.domain.as_deref(),
            api: ApiCounts {
                total: self.stats.api_requests,
                errors: self.stats.api_errors,
                ..ApiCounts::default()
            },
        }
    }

    fn message_get(
        &mut self,
        stream: &str,
        get: &DirectGet,
        reply: &[u8],
    ) -> Result<Reply, ApiError> {
        let id = self.stream(stream)?.id();
        match self.begin_json(id, get, reply) {
            Begun::Waits => Ok(Reply::Later),
            Begun::InVain => Err(ApiError::NO_MESSAGE_FOUND),
            Begun::Refused => Err(ApiError::TOO_MANY_REQUESTS),
        }
    }

    fn direct_get(&mut self, stream: &str, get: &DirectGet, reply: &[u8]) -> Reply {
        let Ok(of) = self.stream(stream) else {
            return Reply::Nobody;
        };
        if !of.config().allow_direct {
            return Reply::Nobody;
        }
        let id = of.id();
        // If too many requests wait, the node answers as if no node listened, so that the client can ask
        // again.
        match self.begin_direct(id, get, reply) {
            Begun::Waits => Reply::Later,
            Begun::InVain | Begun::Refused => Reply::Nobody,
        }
    }

    fn consumer_info(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        kind: Answer,
        (stream, consumer): (&str, &str),
    ) -> Result<Reply, ApiError> {
        let id = self.stream(stream)?.id();
        let key = self.consumers.find(id, consumer);
        if let Some(key) = key {
            self.with_consumer(cx, now, key, |live, voice| {
                let wall_us = voice.wall_us;
                live.consumer.handle_interest(wall_us, voice);
            });
        }
        if self.must_prepare(key, reply, kind)? {
            return Ok(Reply::Later);
        }
        let seen = self.served_of(now, stream, consumer)?;
        let body = view::consumer_info(kind, &self.server(now), stream, &seen);
        Ok(Reply::Now(body))
    }

    fn create_consumer(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        (stream, change): (&str, Change),
        mut config: ConsumerConfig,
        action: Action,
    ) -> Result<Reply, ApiError> {
        let kind = Answer::ConsumerCreate;
        let of = self.stream(stream)?;
        let id = of.id();
        self.check_replicas(config.num_replicas)?;
        let limits = self.settings.limits;
        limits.bound_consumer(&mut config, of.config())?;
        rules::set_defaults(&mut config, of.config());
        rules::check(&config, of.config())?;
        if config.name.is_empty() {
            config.name = match config.durable_name.is_empty() {
                true => self.unique_name(),
                false => config.durable_name.clone(),
            };
        }
        let name = config.name.clone();
        let existing = self.consumers.find(id, &name);
        let live = existing.and_then(|key| self.consumers.get(key));
        let served = self.served_of(now, stream, &name).ok();
        let old = served.as_ref().map(Served::config);
        let admission = rules::admit(action_text(action), old.as_ref(), &config)?;
        if old.is_none_or(|old| old.num_replicas != config.num_replicas) {
            rules::check_replicas(&config, self.stream(stream)?.config())?;
        }
        let of = self.stream(stream)?;
        let retention = of.config().retention;
        let logged = served.map_or_else(|| rules::is_logged(&config, retention), |s| s.is_told());
        of.check_queue(&name, &config)?;
        match admission {
            Admission::Same => return self.consumer_info(cx, now, reply, kind, (stream, &name)),
            Admission::Create => self.check_consumers_max(id)?,
            Admission::Update if live.is_some_and(|l| l.is_taken_from(cx, &config)) => {
                return Err(ApiError::CONSUMER_NAME_EXISTS);
            }
            Admission::Update => {}
        }
        if !logged {
            let config = SharedConfig::new(&name, config);
            if let Some(key) = existing {
                self.reconfigure(now, key, &config);
            } else {
                let of = self.stream(stream)?;
                let settings = config.nameless();
                let state = State::new(settings, &mut StreamView::new(of, settings));
                let created_us = self.wall.tell(now);
                let known = Known {
                    name: &name,
                    config: &config,
                    created_us,
                    state: &state,
                    logged: false,
                };
                self.take_up(now, id, &known);
                self.voice(cx, now).advise(&Advised::ConsumerCreated {
                    stream,
                    consumer: &name,
                });
            }
            return self.consumer_info(cx, now, reply, kind, (stream, &name));
        }
        let request = ConsumerRequest {
            config,
            action: action_text(action).to_owned(),
            start: None,
        };
        let then = self.admitted(Some(change), Then::Consumer(name.as_str().into()));
        let (kind, subject) = (Kind::of_consumer(&request.config), name.as_bytes());
        self.propose(now, kind, id, subject, &request, (reply, then))?;
        Ok(Reply::Later)
    }

    /// Makes the answer to the client that created a consumer, once the log has the consumer. Returns `None`
    /// if the client at `reply` gets the answer later, because the consumer is not prepared.
    pub(super) fn consumer_made(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        name: &str,
        outcome: &Outcome,
    ) -> Option<Vec<u8>> {
        let kind = Answer::ConsumerCreate;
        let made = match outcome {
            // This node no longer leads the group, so the new leader serves the consumer. The client gets an
            // error, and asks again.
            _ if !self.role.serves => Err(ApiError::SYSTEM_UNAVAILABLE),
            Outcome::ConsumerCreated { stream }
            | Outcome::ConsumerExists { stream }
            | Outcome::ConsumerUpdated { stream } => {
                let stream = self.streams.get(*stream).map(|s| s.name().to_owned());
                let stream = stream.ok_or(ApiError::STREAM_NOT_FOUND);
                stream.and_then(|stream| self.consumer_info(cx, now, reply, kind, (&stream, name)))
            }
            Outcome::Refused { error, .. } => Err(error.clone()),
            _ => Err(ApiError::BAD_REQUEST),
        };
        match made {
            Ok(Reply::Now(body)) => Some(body),
            Ok(_) => None,
            Err(error) => {
                self.stats.api_errors += 1;
                Some(answer::refused(kind.as_str(), &error))
            }
        }
    }

    /// Handles a client's request for another leader. All streams of the group have one leader, so a request
    /// for any of them makes another node lead all of them.
    fn step_down(
        &mut self,
        kind: Answer,
        stream: &str,
        consumer: &str,
        to: Placement,
    ) -> Result<Reply, ApiError> {
        if self.role.nodes <= 1 && self.group == ALL {
            return Err(ApiError::CLUSTER_REQUIRED);
        }
        if !consumer.is_empty() {
            self.served(0, self.stream(stream)?, consumer)
                .ok_or(ApiError::CONSUMER_NOT_FOUND)?;
        } else if !stream.is_empty() {
            self.stream(stream)?;
        }
        let cluster = &self.role.cluster;
        let known = |name: &String| cluster.replicas.iter().any(|r| r.name == *name);
        if !to.cluster.is_empty() && to.cluster != cluster.name {
            return Err(ApiError::no_peers(format_args!(
                "no suitable peers for placement: this is the cluster `{}`, not `{}`",
                cluster.name, to.cluster
            )));
        }
        match Some(to.preferred).filter(|name| !name.is_empty()) {
            Some(name) if name == cluster.leader => return Ok(Reply::Now(answer::success(kind))),
            // The group has only one node, so no other node can lead. This node continues to lead, and the
            // request succeeds.
            None if self.role.nodes <= 1 => {}
            Some(name) if !known(&name) => {
                return Err(ApiError::no_peers(format_args!(
                    "no suitable peers for placement: there is no node `{name}`"
                )));
            }
            preferred => {
                let tags = to.tags;
                self.role.step_down = Some(StepDown { preferred, tags });
            }
        }
        Ok(Reply::Now(answer::success(kind)))
    }

    /// Returns the limit, checked before the leader adds a consumer, on the number of the stream's consumers:
    /// the lower one of the limits in the stream's configuration and in the operator's settings; `None` if
    /// neither sets a limit.
    pub(super) fn consumers_max(&self, stream: StreamNumber) -> Option<usize> {
        let of_stream = self.streams.get(stream).map(|s| s.config().max_consumers);
        let most = of_stream
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n > 0);
        most.into_iter().chain(self.settings.max_consumers).min()
    }

    fn check_consumers_max(&self, stream: StreamNumber) -> Result<(), ApiError> {
        let most = self.consumers_max(stream);
        match most.is_some_and(|most| self.consumers_of(stream) >= most) {
            true => Err(ApiError::MAXIMUM_CONSUMERS),
            false => Ok(()),
        }
    }

    fn pause(
        &mut self,
        now: Time,
        reply: &[u8],
        change: Change,
        (stream, consumer): (&str, &str),
        until: Option<Timestamp>,
    ) -> Result<Reply, ApiError> {
        let id = self.stream(stream)?.id();
        let served = self.served_of(now, stream, consumer)?;
        let mut config = ConsumerConfig {
            pause_until: until,
            ..served.config()
        };
        let told = served.is_told();
        level::mark_consumer(&mut config);
        if let Some(key) = self.consumers.find(id, consumer).filter(|_| !told) {
            self.reconfigure(now, key, &SharedConfig::new(consumer, config));
            return Ok(Reply::Now(answer::paused(until, self.timestamp(now))));
        }
        let request = ConsumerRequest {
            config,
            action: "update".into(),
            start: None,
        };
        let then = self.admitted(Some(change), Then::Paused(until));
        let (kind, name) = (Kind::of_consumer(&request.config), consumer.as_bytes());
        self.propose(now, kind, id, name, &request, (reply, then))?;
        Ok(Reply::Later)
    }
}

const fn action_text(action: Action) -> &'static str {
    match action {
        Action::CreateOrUpdate => "",
        Action::Create => "create",
        Action::Update => "update",
    }
}

const fn kind_of(request: &Request<'_>) -> Answer {
    match request {
        Request::AccountInfo => Answer::AccountInfo,
        Request::StreamCreate { .. } => Answer::StreamCreate,
        Request::StreamUpdate { .. } => Answer::StreamUpdate,
        Request::StreamInfo { .. } => Answer::StreamInfo,
        Request::StreamNames(_) => Answer::StreamNames,
        Request::StreamList(_) => Answer::StreamList,
        Request::StreamDelete { .. } => Answer::StreamDelete,
        Request::StreamPurge { .. } => Answer::StreamPurge,
        Request::StreamSnapshot { .. } => Answer::StreamSnapshot,
        Request::StreamRestore { .. } => Answer::StreamRestore,
        Request::MessageGet { .. } => Answer::MessageGet,
        Request::MessageDelete { .. } => Answer::MessageDelete,
        Request::ConsumerCreate { .. } => Answer::ConsumerCreate,
        Request::ConsumerInfo { .. } => Answer::ConsumerInfo,
        Request::ConsumerNames { .. } => Answer::ConsumerNames,
        Request::ConsumerList { .. } => Answer::ConsumerList,
        Request::ConsumerDelete { .. } => Answer::ConsumerDelete,
        Request::ConsumerPause { .. } => Answer::ConsumerPause,
        Request::ConsumerReset { .. } => Answer::ConsumerReset,
        Request::StepDown { kind, .. } => *kind,
        Request::ConsumerNext { .. } | Request::DirectGet { .. } => Answer::MessageGet,
    }
}
