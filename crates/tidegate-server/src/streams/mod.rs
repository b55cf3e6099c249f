//! Keeps streams on the node: takes the messages that clients publish into streams, and answers the requests
//! of clients about streams and consumers.
//!
//! It is pure, like the node ([`crate::sessions`]) that carries out its outputs. It owns the order of steps:
//! a command gathers in an entry (`proposals`), the group commits the entry, the node applies the entry
//! ([`tidegate_stream::stream`]), and only then the node answers the client that waits (`outcome`). The node
//! answers a request that changes nothing at once. If the store has to read a message for the answer, the
//! node answers at the end of the turn (`reads`). At the end of the turn the node also serves consumers
//! (`consumers`).
//!
//! Polling order, once a turn: `Node::poll_proposal` until it answers `None` (each followed by
//! `Node::handle_proposed` or `Node::handle_refused`), `Node::handle_committed` for each entry that the group
//! hands out, `Node::serve_streams`.

mod admission;
pub(crate) mod answered;
pub(crate) mod backups;
mod batches;
pub(crate) mod context;
pub(crate) mod directory;
mod entries;
mod events;
pub(crate) mod figures;
mod looking;
pub(crate) mod origins;
mod outcome;
mod proposals;
mod publish;
mod publishing;
mod purges;
mod reads;
mod republishing;
mod requests;
pub(crate) mod restores;
pub(crate) mod serving;
pub(crate) mod spans;
mod speak;
mod stream_lists;
pub(crate) mod subject_pages;
pub(crate) mod subjects;
pub(crate) mod views;
mod wall_time;

use std::time::Duration;

use bytes::Bytes;
use tidegate::Time;
use tidegate::boundary::DecisionLog;
use tidegate::controller::{SizeCosts, Snapshot};
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_nats::parse::Publish;
use tidegate_raft::replica::{Committed, EntryId};
use tidegate_raft::store::{Peeked, Space};
use tidegate_stream::api::view::Server;
use tidegate_stream::consumer::Ending;
use tidegate_stream::schema::config::Storage;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::{Effect, Entry, EntryError, Held, Outcome, Place, Streams};

use self::admission::Admissions;
use self::answered::{Answered, Publishes};
use self::backups::Backups;
use self::context::Context;
use self::directory::Directory;
use self::directory::keeping::Keeping;
pub(crate) use self::directory::leader_message::taking;
use self::directory::leaderless::Leaderless;
use self::directory::moving::Moves;
pub(crate) use self::directory::roles::InterestChanged;
use self::directory::roles::{Lost, Role};
use self::entries::Entries;
use self::origins::Takers;
use self::origins::giving::Giving;
use self::outcome::Then;
use self::proposals::{Postponed, Proposals, Waiters};
pub(crate) use self::publish::Taken;
use self::publishing::Publishing;
use self::purges::Purges;
use self::reads::Reads;
use self::republishing::Republishing;
use self::restores::Restores;
use self::serving::Key;
use self::serving::consumers::Consumers;
use self::spans::{OfEntry, PublishSpan, Spans};
use self::speak::{Speech, Voice};
use self::stream_lists::StreamLists;
use self::subject_pages::SubjectPages;
use self::wall_time::WallTime;
use crate::config::StreamSettings;
use crate::cost::{Work, spend};
use crate::cures::{cures, part};
use crate::party::Party;

/// If the store refuses the leader's own commands (deltas of consumers, removals of expired messages), the
/// leader proposes them again after this time. The store refuses them when its disk is full, which does not
/// change at once. The store looks for space after each refusal, and then wakes the event loop.
const AGAIN: Duration = Duration::from_millis(500);

/// The number of parts that the node does in one turn of the work that large removals have left, see
/// [`Streams::reclaim`]. The bound keeps turns short, so that clients do not wait. A part takes some 50
/// microseconds.
const RECLAIMED_A_TURN: usize = 4;

/// The number of steps, such as comparisons of a subject with a pattern, that a node takes in one turn to
/// prepare the next entry. The bound keeps turns short.
const PREPARED_A_TURN: usize = if cfg!(test) { 16 } else { 4096 };

/// Gives access to the stored messages of applied entries, as far as they are in this node's memory, for
/// streams that send them.
pub(crate) trait Messages {
    /// Returns the message at this place in the log, if the message is in memory, so that the node can send
    /// it without a read. Further bytes may follow the message's bytes.
    fn peek(&self, place: Place) -> Peeked;
}

/// Counts this node's work for streams since the node's start, for the monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamStats {
    /// The number of requests at `$JS.API.>` that clients have sent to this node since its start, for the
    /// monitor.
    pub api_requests: u64,
    /// The number of requests at `$JS.API.>` that this node has answered with an error since its start, for
    /// the monitor.
    pub api_errors: u64,
    /// The number of entries that this node closed and offered to the group since its start, for the monitor.
    pub entries: u64,
    /// The number of commands that this node added to entries since its start, for the monitor.
    pub commands: u64,
    /// The number of bytes of the entries that this node closed and offered to the group since its start, for
    /// the monitor.
    pub bytes: u64,
    /// The number of times that the node stopped reading from a publisher because too many bytes waited for
    /// the log.
    pub held_back: u64,
    /// The number of messages, API requests and entries that the node refused before the group committed
    /// them, most often for lack of room, for the monitor.
    pub refused: u64,
}

impl StreamStats {
    /// Returns the sum of these counts and the counts of another group's streams, field by field, so that the
    /// monitor shows one number for all groups.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            api_requests: self.api_requests + other.api_requests,
            api_errors: self.api_errors + other.api_errors,
            entries: self.entries + other.entries,
            commands: self.commands + other.commands,
            bytes: self.bytes + other.bytes,
            held_back: self.held_back + other.held_back,
            refused: self.refused + other.refused,
        }
    }
}

/// The streams of one group, on this node. Each field owns a part of the state; `JetStream` decides the order
/// in which the parts handle an event.
pub(crate) struct JetStream {
    /// The number of the group that keeps the streams, by which messages of other groups reach them.
    group: GroupId,
    streams: Streams,
    settings: StreamSettings,
    wall: WallTime,
    entries: Entries,
    consumers: Consumers,
    /// The changes of streams that the leader has proposed, and the API requests that wait for these changes,
    /// so that the leader decides about one change at a time.
    admissions: Admissions,
    lost: Lost,
    reads: Reads,
    subject_pages: SubjectPages,
    stream_lists: StreamLists,
    purges: Purges,
    /// The streams that clients restore from backups through this node, and (`backups`) the backups that this
    /// node sends to clients. A turn does a part of each.
    restores: Restores,
    backups: Backups,
    publishing: Publishing,
    /// The publishes that the streams have answered, for the measurement of acknowledgements.
    answered: Answered,
    republishing: Republishing,
    room: Room,
    role: Role,
    /// The directory of the streams, from which the node knows which group keeps which stream. Only the group
    /// of all nodes uses it.
    directory: Directory,
    /// The state with which a group other than the group of all nodes brings its streams in line with the
    /// directory.
    keeping: Keeping,
    /// The streams that move from this group to another group, or from another group to this group, and the
    /// progress of each move, which only the leader needs.
    moves: Moves,
    /// The streams that the directory's leader moves away from a group that has no leader. The leader gives
    /// such a move another target after a time. Only the group of all nodes uses this state.
    leaderless: Leaderless,
    /// The origins (mirrors and sources) from which the streams that this node leads take in messages.
    takers: Takers,
    /// The requests of other streams for the messages of this group's streams, which this node answers as the
    /// leader.
    giving: Giving,
    speech: Speech,
    /// The publishes that the node follows from the socket to the acknowledgement.
    spans: Spans,
    stats: StreamStats,
    /// The buffer for the JSON body of an answer to a client. Each answer reuses it.
    body: Vec<u8>,
}

/// The reasons why the streams of a group may have no room for more messages, by which the node refuses
/// messages.
#[derive(Debug, Default)]
struct Room {
    /// The state of the space on this node's disk (free, low or scarce), as the store last reported it. The
    /// node refuses messages unless the space is free, to keep room for commands that free space.
    space: Space,
    /// True if so many nodes of the group lack disk space that the rest is no majority, so that the group
    /// could not commit a message.
    crowded: bool,
    /// The publishers, clients and other nodes, from which the node does not read until the log has room
    /// again.
    held_back: Vec<Party>,
    /// The number of bytes that the streams of the other groups hold on this node, because the operator's
    /// limits count the streams of all groups.
    beside: Held,
}

impl JetStream {
    /// Adopts the settings of the streams that a running server changes: the limits on requests, and the
    /// other clusters.
    pub(crate) fn handle_reload(&mut self, settings: &StreamSettings) {
        self.settings.limits = settings.limits;
        self.settings.remotes.clone_from(&settings.remotes);
    }

    /// Creates the streams of the group of all nodes from the state in the log, at `now`. The names that the
    /// server gives to consumers contain `seed`, so that two nodes choose different names.
    #[must_use]
    pub(crate) fn new(now: Time, settings: StreamSettings, streams: Streams, seed: u64) -> Self {
        let mut wall = WallTime::default();
        wall.not_before(now, streams.now_us());
        Self {
            group: ALL,
            streams,
            wall,
            entries: Entries::new(settings.lab.entry_limit()),
            consumers: Consumers::default(),
            admissions: Admissions::default(),
            lost: Lost::default(),
            reads: Reads::default(),
            subject_pages: SubjectPages::default(),
            stream_lists: StreamLists::default(),
            purges: Purges::default(),
            restores: Restores::default(),
            backups: Backups::default(),
            publishing: Publishing::new(settings.domain.as_deref()),
            answered: Answered::default(),
            republishing: Republishing::default(),
            spans: Spans::new(settings.spans),
            settings,
            room: Room::default(),
            role: Role::default(),
            directory: Directory::default(),
            keeping: Keeping::default(),
            moves: Moves::default(),
            leaderless: Leaderless::default(),
            takers: Takers::default(),
            giving: Giving::default(),
            speech: Speech::new(seed),
            stats: StreamStats::default(),
            body: Vec::new(),
        }
    }

    /// Makes the controllers of this group write their decisions into `log`, under the names `entries` and
    /// `acks`, followed by the group's number unless it is the group of all nodes. An operator can then read
    /// the decisions.
    pub(crate) fn log_to(&mut self, log: &DecisionLog) {
        let name = |boundary: &str| match self.group {
            ALL => boundary.to_owned(),
            group => format!("{boundary}-{group}"),
        };
        let (entries, acks) = (name("entries"), name("acks"));
        self.entries.log_to(log, &entries);
        self.publishing.log_to(log.clone(), acks);
    }

    /// Makes these streams the streams of the group with this number, in place of the group of all nodes, for
    /// which [`JetStream::new`] creates them.
    #[must_use]
    pub(crate) const fn of_group(mut self, group: GroupId) -> Self {
        self.group = group;
        self
    }

    /// Returns the number of the group that keeps the streams, by which other code addresses them.
    #[must_use]
    pub(crate) const fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the group's streams in the state after the last applied entry, which every node of the group
    /// reaches.
    #[must_use]
    pub(crate) const fn applied(&self) -> &Streams {
        &self.streams
    }

    /// Returns the streams in the state after the last applied entry, mutable, so that the store can note new
    /// places of messages in the log.
    pub(crate) const fn applied_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Returns the counts of the work for this group's streams since the node's start.
    #[must_use]
    pub(crate) const fn stats(&self) -> StreamStats {
        let counts = self.entries.counts();
        StreamStats {
            entries: counts.entries,
            commands: counts.commands,
            bytes: counts.bytes,
            ..self.stats
        }
    }

    /// Returns the changes that the last applied entry made to the group's streams and consumers, so that the
    /// node can react to them.
    #[must_use]
    pub(crate) fn effects(&self) -> &[Effect] {
        &self.entries.effects
    }

    /// Returns the state of two controllers: the controller of the size of entries, and the controller of
    /// flow acknowledgements, which the monitor shows.
    #[must_use]
    pub(crate) fn controllers(&self) -> [Snapshot; 2] {
        [self.entries.snapshot(), self.publishing.fast.snapshot()]
    }

    /// Returns the state of the controller of the size of entries, with its costs by size, for the samples of
    /// the boundaries.
    pub(crate) fn entry_sizes(&self) -> (Snapshot, SizeCosts) {
        (self.entries.snapshot(), self.entries.size_costs())
    }

    /// Returns the state of the controller of flow acknowledgements, with its costs by size, for the samples
    /// of the boundaries.
    pub(crate) fn flow_acks(&self) -> (Snapshot, SizeCosts) {
        let fast = &self.publishing.fast;
        (fast.snapshot(), fast.size_costs())
    }

    /// Takes the publishes that the streams have answered since the last call, for the measurement of
    /// acknowledgements.
    pub(crate) fn take_answered(&mut self) -> impl Iterator<Item = Publishes> {
        self.answered.drain()
    }

    /// Returns the number of bytes of the group's commands that wait for the log.
    #[must_use]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.entries.waiting_bytes()
    }

    /// Takes the spans of followed publishes that have their outcomes, and the number of dropped ones.
    pub(crate) fn take_spans(&mut self) -> (Vec<PublishSpan>, u64) {
        self.spans.take()
    }

    pub(super) fn handle_subscribed(&mut self, pattern: &[u8]) {
        self.consumers.handle_subscribed(pattern);
        self.backups.handle_subscribed(pattern);
    }

    /// Notes whether so many of the group's nodes lack disk space that the group could not commit a message.
    /// While this is so, the group takes no message, because commands that free space would have to wait
    /// behind it.
    pub(crate) fn set_crowded(&mut self, crowded: bool) {
        if std::mem::replace(&mut self.room.crowded, crowded) != crowded && crowded {
            tracing::error!(
                "some streams have no majority of nodes that are connected and have disk space: the server refuses new messages for each such stream until the stream has a majority again"
            );
        }
    }

    /// Records whether this node's disk has space for more messages, by which the streams accept or refuse
    /// messages. Logs a change for the operator.
    pub(super) fn set_space(&mut self, space: Space) {
        // All groups share the disk, so it is enough that one group, the group of all nodes, logs the change.
        if std::mem::replace(&mut self.room.space, space) != space && self.group == ALL {
            match space {
                Space::Low => tracing::error!(
                    "the disk, or max_file_store, has no space for more messages: the server refuses new messages, and accepts operations that free space"
                ),
                Space::Scarce => tracing::error!(
                    "the disk is full: the server refuses new messages and changes of streams, and still deletes streams, purges them and moves them away"
                ),
                Space::Free => {
                    tracing::info!(
                        "there is space for messages again, so the server accepts them again"
                    )
                }
            }
        }
    }

    /// Tells this group the number of bytes that the streams of all groups hold on this node, because the
    /// operator's limits count all groups.
    pub(super) const fn set_held(&mut self, all: Held) {
        self.room.beside = all.without(self.streams.held());
    }

    pub(super) fn set_wall_clock(&mut self, now: Time, us: u64) {
        self.wall.set(now, us);
    }

    /// Returns the next entry that the caller must propose to the group, and the number of clients that wait
    /// for its commands; `None` if no entry waits.
    pub(super) fn poll_proposal(&mut self, now: Time) -> Option<(Bytes, u64)> {
        // While closed entries wait for the group, the node leaves the open entry open, so that it takes more
        // commands.
        if self.entries.none_sealed() || !self.settings.lab.carries_over() {
            self.seal(now);
        }
        self.entries.first()
    }

    pub(super) fn handle_proposed(&mut self, now: Time, at: EntryId, cost_ns: u64) {
        self.entries.handle_proposed(now, at, cost_ns);
    }

    /// Takes the list of publishers from which the node may read again, because the log has room again.
    pub(super) fn take_resumed(&mut self) -> Vec<Party> {
        match self.holds_back() {
            true => Vec::new(),
            false => std::mem::take(&mut self.room.held_back),
        }
    }

    pub(super) fn handle_held_back(&mut self, publisher: Party) {
        self.stats.held_back += 1;
        if !self.room.held_back.contains(&publisher) {
            self.room.held_back.push(publisher);
        }
    }

    pub(super) fn handle_refused(&mut self, cx: &mut Context<'_>, now: Time, error: &ApiError) {
        let Some(mut sealed) = self.entries.take_refused() else {
            return;
        };
        self.stats.refused += 1;
        let commands = Entry::decode(&sealed.entry).map(|e| e.commands());
        let mut commands = commands.into_iter().flatten().flatten().zip(0..);
        for (command, reply, then) in sealed.waiters.drain() {
            let of = commands.find(|(_, at)| *at == command).map(|(c, _)| c);
            if matches!(then, Then::Delta(_) | Then::Expired) {
                self.entries.again = Some(now + AGAIN);
            }
            if let (Then::Delta(key), Some(of)) = (&then, &of) {
                // No client asked for a consumer's delta, so no client gets the refusal: the node keeps the
                // delta and proposes it again.
                self.entries.postponed.push(Postponed::new(of, *key));
                continue;
            }
            let outcome = Outcome::Refused {
                stream: of.map_or(StreamNumber::NONE, |c| c.stream),
                error: error.clone(),
            };
            self.tell(cx, now, reply, then, &outcome);
        }
        self.entries.durable.recycle(sealed.waiters);
        self.serve_waiting(cx, now);
    }

    /// Prepares a committed entry that the node applies next, a part in each turn. Returns whether the node
    /// may apply the entry now.
    pub(super) fn prepare(&mut self, entry: &Bytes) -> bool {
        self.entries.prepare(&mut self.streams, entry)
    }

    /// Applies a committed entry of the log, and tells the clients that wait the outcomes of their commands.
    ///
    /// # Errors
    ///
    /// Fails if the entry holds a command that this version does not know: the node must then stop, because
    /// its state would differ from the other nodes' state.
    pub(super) fn handle_committed(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        committed: &Committed,
    ) -> Result<(), EntryError> {
        self.entries.outcomes.clear();
        self.entries.effects.clear();
        self.directory.applied = committed.index.get();
        let lsn = committed.lsn.get();
        self.streams.apply(
            lsn,
            &committed.data,
            &mut self.entries.outcomes,
            &mut self.entries.effects,
        )?;
        let lost = |waiters| self.admissions.forget(waiters);
        let waiters = self.entries.committed(committed.id(), lost);
        self.conclude(cx, now, &committed.data, waiters);
        Ok(())
    }

    /// Applies the commands of this turn for streams in memory, which this node never writes to the log. The
    /// node applies them at the end of the turn, in place of a commit.
    fn apply_volatile(&mut self, cx: &mut Context<'_>, now: Time) -> Result<(), EntryError> {
        let time_us = self.wall.tell(now);
        while let Some(sealed) = self.entries.next_volatile(&mut self.streams, time_us) {
            self.entries.outcomes.clear();
            self.entries.effects.clear();
            self.streams.apply_memory(
                &sealed.entry,
                &mut self.entries.outcomes,
                &mut self.entries.effects,
            )?;
            self.conclude(cx, now, &sealed.entry, Some(sealed.waiters));
        }
        Ok(())
    }

    /// Carries out the results of an applied entry: tells the consumers the entry's changes, publishes its
    /// messages again where a stream's configuration asks for it, and tells the waiting clients the outcomes
    /// of their commands.
    fn conclude(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        entry: &Bytes,
        waiters: Option<Waiters<Then>>,
    ) {
        let effects = std::mem::take(&mut self.entries.effects);
        if self.role.serves {
            self.advise_changes(cx, now, &effects);
        }
        self.note_interest(&effects);
        self.tell_consumers(cx, now, &effects);
        self.republish(cx, now, entry, &effects, waiters.is_some());
        self.entries.effects = effects;
        if let Some(waiters) = waiters {
            self.tell_all(cx, now, waiters);
        }
        self.serve_waiting(cx, now);
    }

    /// Tells each client that waits for a command of an applied entry the outcome of this command.
    fn tell_all(&mut self, cx: &mut Context<'_>, now: Time, mut waiters: Waiters<Then>) {
        let outcomes = std::mem::take(&mut self.entries.outcomes);
        let entry = waiters.entry;
        for (command, reply, then) in waiters.drain() {
            match outcomes.get(command) {
                Some(outcome) => {
                    let then = self.followed(now, then, entry, outcome);
                    self.tell(cx, now, reply, then, outcome);
                }
                None => debug_assert!(false, "each command has an outcome"),
            }
        }
        self.entries.outcomes = outcomes;
        self.answered.add(waiters.publishes());
        self.entries.durable.recycle(waiters);
    }

    /// Ends the span of a publish that the node follows, and returns the action that is left to do.
    fn followed(&mut self, now: Time, then: Then, entry: OfEntry, outcome: &Outcome) -> Then {
        let Then::Followed(begun) = then else {
            return then;
        };
        if let Outcome::Stored { stream, .. }
        | Outcome::Duplicate { stream, .. }
        | Outcome::Refused { stream, .. } = outcome
        {
            let name = self.streams.get(*stream).map_or("", |s| s.name());
            self.spans.end(now, *begun, entry, name, outcome);
        }
        Then::Publish
    }

    /// Begins the streams' work of a turn, such as reads, restorations and expiries, after the node has
    /// applied the turn's committed entries. The caller then serves each consumer that
    /// [`JetStream::next_consumer`] names, and calls [`JetStream::end_turn`].
    pub(super) fn serve(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        messages: &dyn Messages,
    ) -> Result<(), EntryError> {
        let prepared = part(cures().searching, PREPARED_A_TURN);
        self.entries.begin_turn(prepared);
        let freed = self
            .streams
            .reclaim(part(cures().reclaiming, RECLAIMED_A_TURN));
        spend(Work::Free, freed as u64);
        self.serve_purges(cx, now);
        self.tell_orphans(cx, now);
        self.serve_doubts(cx, now);
        self.tell_moved(cx, now);
        self.republishing.begin_turn();
        self.serve_republishing(cx, now);
        if !self.role.serves {
            // A follower only finishes the reads for which clients asked while it led. It drops the messages
            // that its streams sent to subjects of streams, because the leader publishes these messages.
            self.serve_reads(cx, now, messages);
            self.speech.said.clear();
            return Ok(());
        }
        self.go_on_taking_up(now);
        if self.entries.again.is_none_or(|at| at <= now) {
            self.entries.again = None;
            self.propose_postponed(now);
        }
        self.propose_expiry(now);
        self.apply_volatile(cx, now)?;
        self.serve_batches(cx, now);
        self.serve_askers(cx, now);
        self.serve_untold(cx, now);
        self.serve_gathers(cx, now);
        self.serve_subject_pages(cx, now);
        self.serve_stream_lists(cx, now);
        self.serve_exports(cx, now, messages);
        self.serve_restores(cx, now);
        self.serve_backups(cx, now, messages);
        self.serve_giving(cx, now, messages);
        self.serve_takers(cx, now);
        self.serve_reads(cx, now, messages);
        self.begin_consumers(cx, now);
        Ok(())
    }

    /// Ends the streams' work of a turn, once the node has served each consumer that
    /// [`JetStream::next_consumer`] named: publishes the messages that streams sent during the turn into
    /// streams.
    pub(super) fn end_turn(&mut self, cx: &mut Context<'_>, now: Time) -> Result<(), EntryError> {
        if !self.role.serves {
            return Ok(());
        }
        if self.admissions.is_due() {
            // The reset of a consumer that the log does not keep changes the consumer at once, and API
            // requests may wait for that change.
            self.serve_waiting(cx, now);
        }
        self.take_said(now);
        self.apply_volatile(cx, now)
    }

    /// Publishes the messages that streams have sent to subjects of streams (answers, deliveries, advisories)
    /// into the streams that take these subjects, so that these streams store them.
    fn take_said(&mut self, now: Time) {
        for said in std::mem::take(&mut self.speech.said) {
            let message = Publish {
                subject: &said.to,
                reply: None,
                headers: said.headers.as_deref(),
                payload: &said.payload,
            };
            self.publish(now, None, &message);
        }
    }

    /// Proposes again the deltas of consumers that the log refused earlier. If disk space is scarce, the
    /// leader proposes only deltas that free some space. The deltas of one consumer keep their order.
    fn propose_postponed(&mut self, now: Time) {
        let scarce = self.room.space == Space::Scarce;
        let mut due = match scarce {
            true => Vec::new(),
            false => std::mem::take(&mut self.entries.shelved),
        };
        for postponed in std::mem::take(&mut self.entries.postponed) {
            let shelved = &mut self.entries.shelved;
            let waits = || shelved.iter().any(|p| p.key == postponed.key);
            let command = postponed.command();
            let frees = command.kind.makes_space() || command.settles();
            if scarce && (!frees || waits()) {
                shelved.push(postponed);
            } else {
                due.push(postponed);
            }
        }
        self.propose_again(now, due);
    }

    /// Proposes again the deltas of this consumer that the log refused earlier, before a command for which
    /// they must not come too late.
    fn propose_postponed_of(&mut self, now: Time, key: Key) {
        let entries = &mut self.entries;
        let shelved = entries.shelved.extract_if(.., |p| p.key == key);
        let mut due: Vec<_> = shelved.collect();
        due.extend(entries.postponed.extract_if(.., |p| p.key == key));
        self.propose_again(now, due);
    }

    fn propose_again(&mut self, now: Time, postponed: Vec<Postponed>) {
        for postponed in postponed {
            let waiter = Some((&b""[..], Then::Delta(postponed.key)));
            self.command(now, false, &postponed.command(), waiter);
        }
    }

    /// Proposes to remove messages that have expired. An expiry needs an entry, like every change, so that
    /// all nodes remove the same messages. The leader proposes no second expiry before the first is applied.
    fn propose_expiry(&mut self, now: Time) {
        let now_us = self.wall.tell(now);
        if self.entries.expiring || self.entries.again.is_some() {
            self.entries.next_expiry = None;
            return;
        }
        self.entries.next_expiry = self.streams.next_expiry(now_us);
        if self.entries.next_expiry.is_none_or(|due| due > now_us) {
            return;
        }
        let streams = &mut self.streams;
        let mut write = |proposals: &mut Proposals<Then>, storage| {
            proposals.add_written(Then::Expired, |entry| {
                streams.propose_expiry(now_us, storage, entry)
            })
        };
        write(&mut self.entries.volatile, Storage::Memory);
        self.entries.expiring = write(&mut self.entries.durable, Storage::File);
        if self.entries.expiring {
            self.entries.note_removals();
        }
    }

    /// Returns the time at which the node must next serve this group's streams, for the event loop's timer;
    /// `None` if no time is set. `current` tells whether the node's copy of the directory is current. Without
    /// a current copy the group cannot compare its streams with the directory, so it sets no time for that.
    pub(super) fn deadline(&self, current: bool) -> Option<Time> {
        let compares = current && self.role.serves && self.group != ALL;
        if self.streams.is_reclaiming()
            || self.consumers.is_busy()
            || !self.entries.volatile.is_empty()
            || self.entries.is_preparing()
            || !self.speech.said.is_empty()
            || !self.publishing.batches.is_empty()
            || self.republishing.is_due()
            || self.subject_pages.is_due()
            || self.stream_lists.is_due()
            || self.role.taking_up.is_some()
            || self.purges.is_due()
            || self.reads.is_due()
            || self.streams.is_foreseeing()
            || (compares && self.keeping.is_to_compare())
        {
            return Some(Time::ZERO);
        }
        let expiry = self.entries.next_expiry.map(|us| self.wall.when(us));
        let all = [
            self.consumers.deadline(),
            expiry,
            self.entries.again,
            self.publishing.atomic.deadline(),
            self.publishing.fast.deadline(),
            self.keeping.deadline(current),
            self.moves.deadline(),
            self.restores.deadline(self.is_full()),
            self.backups.deadline(),
            self.leaderless.deadline(),
            self.takers.deadline(),
            self.giving.deadline(),
            self.directory.deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// Returns whether the streams have no work left, so that the node may stop: no command waits to be
    /// applied, no API request waits for a change or for an answer that takes several turns, and no message
    /// waits to be published again.
    pub(super) fn is_idle(&self) -> bool {
        let in_parts =
            self.purges.is_due() || self.stream_lists.is_due() || !self.subject_pages.is_empty();
        let waits = in_parts || !self.republishing.is_empty();
        self.entries.is_idle() && self.admissions.is_idle() && !waits
    }

    /// Returns the number of entries that this node keeps of the group's streams and consumers besides their
    /// state, for a simulation that looks for entries which deletions leave.
    #[cfg(feature = "sim")]
    pub(crate) fn items(&self) -> usize {
        self.consumers.items() + self.publishing.pub_acks.len() + self.keeping.items()
    }

    /// Ends the pulls of all consumers because the node stops, and proposes a last delta of each consumer, so
    /// that the log has the consumers' last state.
    pub(super) fn handle_stopping(&mut self, cx: &mut Context<'_>, now: Time) {
        self.end_consumers(cx, now, Ending::Shutdown);
    }

    /// Returns the facts about this server that the node writes into an API answer: version, domain, cluster
    /// and the time `now`, because clients check them.
    fn server(&self, now: Time) -> Server<'_> {
        Server {
            version: crate::PROTOCOL_VERSION,
            domain: self.settings.domain.as_deref(),
            cluster: &self.role.cluster,
            now: self.timestamp(now),
        }
    }

    fn timestamp(&self, now: Time) -> Timestamp {
        Timestamp::from_micros(self.wall.peek(now))
    }

    /// Makes the voice through which the streams send messages to clients at `now`.
    fn voice<'a>(&'a mut self, cx: &'a mut Context<'_>, now: Time) -> Voice<'a> {
        Voice {
            wall_us: self.wall.tell(now),
            cx: cx.again(),
            streams: &self.streams,
            speech: &mut self.speech,
        }
    }

    /// Makes a name for a consumer without a name of its own. No other consumer on any node has the name.
    fn unique_name(&mut self) -> String {
        self.speech.unique_name()
    }
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;

impl std::fmt::Debug for JetStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JetStream")
            .field("streams", &self.streams.len())
            .field("consumers", &self.consumers_len())
            .finish_non_exhaustive()
    }
}
