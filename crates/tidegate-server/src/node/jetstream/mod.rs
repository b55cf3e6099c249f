//! Streams on the node: takes the messages that clients publish into streams, and answers their requests.
//!
//! Pure, like the node it speaks through. Owns the order of steps: a command gathers in an entry
//! (`proposals`), the group commits the entry, the node applies it ([`crate::stream`]), and only then the
//! node answers the client that waits (`outcome`). The node answers a request that changes nothing at once.
//! If it has to read a message for the answer, it answers at the end of the turn (`reads`). It serves
//! consumers then, too (`consumers`).
//!
//! Polling order, once a turn: [`Node::poll_proposal`] until it answers `None` (each followed by
//! [`Node::handle_proposed`] or [`Node::handle_refused`]), [`Node::handle_committed`] for each entry that the
//! group hands out, [`Node::serve_streams`].

mod acks;
mod admission;
mod batches;
mod consumers;
pub(in crate::node) mod context;
mod directory;
mod events;
mod gathering;
mod interest;
mod keeping;
mod lasting;
mod moving;
mod outcome;
mod proposals;
mod publish;
mod reads;
mod requests;
mod resets;
pub(in crate::node) mod roles;
mod speak;
pub(in crate::node) mod subjects;
pub(in crate::node) mod told;
mod unled;
mod views;
mod wall;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate::Time;
use tidegate::controller::Snapshot;

use self::admission::Admissions;
use self::consumers::{Consumers, Live};
use self::context::Context;
use self::directory::Directory;
use self::keeping::Keeping;
use self::moving::Moves;
use self::outcome::Then;
use self::proposals::{Gauge, InFlight, Postponed, Proposals, Sealed, Waiters};
pub(in crate::node) use self::publish::Taken;
use self::reads::Reads;
pub(in crate::node) use self::roles::InterestChanged;
use self::roles::StepDown;
use self::speak::{Said, Voice};
use self::unled::Unled;
use self::wall::Wall;
use crate::api::answer::ClusterInfo;
use crate::api::config::Storage;
use crate::api::error::ApiError;
use crate::api::puback::PubAck;
use crate::api::timestamp::Timestamp;
use crate::api::view::Server;
use crate::cluster::groups::ALL;
use crate::config::StreamSettings;
use crate::consumer::Ending;
use crate::ingest::{Atomic, Fast, FastLimits};
use crate::nats::parse::Publish;
use crate::replica::{Committed, Proposed};
use crate::store::{Peeked, Space};
use crate::stream::{Effect, Entry, EntryError, Held, Outcome, Place, Streams};

/// Bytes of entries that may wait for the log before the node stops reading from publishers.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The bytes of an atomic batch, at most: half of what a segment of the log holds.
const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How long after a refusal the leader proposes its own commands again (deltas of
/// consumers, expiry of messages). The reason, a full disk, does not pass at once, and the
/// store looks for space, and wakes its owner, whenever it refuses.
const AGAIN: Duration = Duration::from_millis(500);
/// The health of a node before the first [`JetStream::set_cluster`].
const STARTING: &str = "it has just started, and has not heard from the others yet";

/// The messages of applied entries that are in memory.
pub trait Messages {
    /// Returns the message at this place, if it is in memory. The bytes may have others behind them.
    fn peek(&self, place: Place) -> Peeked;
}

/// Counts of the work of streams on this node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Requests of the API.
    pub api_requests: u64,
    /// Requests of the API that were refused.
    pub api_errors: u64,
    /// Entries proposed.
    pub entries: u64,
    /// Commands in those entries.
    pub commands: u64,
    /// Bytes of those entries.
    pub bytes: u64,
    /// Times that the node stopped reading from a publisher because too much waited for the log.
    pub held_back: u64,
    /// Requests refused because too much waited for the log.
    pub refused: u64,
}

impl StreamStats {
    /// Returns the sums of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
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

/// The streams that one group keeps, on this node.
pub struct JetStream {
    /// The group's number.
    group: u32,
    streams: Streams,
    settings: StreamSettings,
    wall: Wall,
    /// Commands that go into the log.
    durable: Proposals<Then>,
    /// Commands that concern streams in memory: applied at the turn's end, never written.
    volatile: Proposals<Then>,
    /// Closed entries that the group has not taken yet.
    sealed: VecDeque<Sealed<Then>>,
    sealed_bytes: usize,
    gauge: Gauge,
    in_flight: InFlight<Then>,
    consumers: Consumers,
    /// Proposed changes, and the requests that wait for them.
    admissions: Admissions,
    /// Consumers that this node served until its lead ended. They stay here until their clients, which pull
    /// from them or listen to them, get the status that ends them.
    orphans: Vec<Live>,
    /// Reply subjects of pulls that arrived while the group had no leader.
    parked: Vec<Box<[u8]>>,
    /// The time at which the clients of `orphans` and `parked` are answered, if the group has a leader.
    settles: Option<Time>,
    /// The time at which they were answered last.
    orphans_told: Option<Time>,
    /// The time since which other nodes are to send nothing more here, because this node is about to end.
    parting: Option<Time>,
    reads: Reads,
    atomic: Atomic,
    fast: Fast,
    batches: batches::Pending,
    /// Acknowledgements of fast-ingest batches that are queued for their publishers and not written yet.
    acked_fast: u64,
    pub_acks: HashMap<u32, PubAck, RandomState>,
    /// For publishers to a stream that is deleted.
    nameless: PubAck,
    /// The space that the disk has for more messages.
    space: Space,
    /// Fewer than a majority of the group's nodes have space.
    crowded: bool,
    /// Connections that the node does not read until there is room.
    held_back: Vec<usize>,
    /// An expiry is proposed and not applied yet.
    expiring: bool,
    /// The next time at which messages may expire, in microseconds since the Unix epoch.
    next_expiry: Option<u64>,
    /// The time at which the leader proposes its own commands again, after the log has refused some.
    again: Option<Time>,
    /// Commands about consumers, such as deltas, that the log refused.
    postponed: Vec<Postponed>,
    /// This node leads: it answers requests and serves consumers.
    serves: bool,
    /// The number of nodes that keep the streams.
    nodes: usize,
    cluster: ClusterInfo,
    /// The reason why this node is behind the others, if it is. A health check may ask before this node has
    /// heard from the others: it is not healthy yet.
    behind: Option<String>,
    /// The subjects that other nodes are to send here have changed.
    interest_changed: bool,
    /// The streams with changed subjects, unless `interest_changed` says that any may have.
    interest_changed_of: BTreeSet<u32>,
    /// The bytes that streams of other groups hold on this node.
    beside: Held,
    /// For the group of all nodes: which group keeps which stream.
    directory: Directory,
    /// For any other group: the streams it keeps, and those that it is to keep.
    keeping: Keeping,
    /// Streams on their way from one group to another.
    moves: Moves,
    /// For the group of all nodes: streams that move to a group without a leader.
    unled: Unled,
    /// A client asked for another leader.
    step_down: Option<StepDown>,
    /// `seed` and `named` make names for consumers without one, `advisories` numbers the advisories.
    seed: u64,
    named: u64,
    advisories: u64,
    stats: StreamStats,
    /// Messages that this node said to subjects that streams take.
    said: Vec<Said>,
    /// Scratch of one entry.
    outcomes: Vec<Outcome>,
    effects: Vec<Effect>,
    /// Scratch of one answer.
    body: Vec<u8>,
}

impl JetStream {
    /// Returns the streams of the group of all nodes as the log has them at `now`. `seed` makes names unique.
    #[must_use]
    pub fn new(now: Time, settings: StreamSettings, streams: Streams, seed: u64) -> Self {
        let mut wall = Wall::default();
        wall.not_before(now, streams.now_us());
        Self {
            group: ALL,
            streams,
            wall,
            durable: Proposals::default(),
            volatile: Proposals::default(),
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            gauge: Gauge::new(settings.lab.entry_limit()),
            in_flight: InFlight::default(),
            consumers: Consumers::default(),
            admissions: Admissions::default(),
            orphans: Vec::new(),
            parked: Vec::new(),
            settles: None,
            orphans_told: None,
            parting: None,
            reads: Reads::default(),
            atomic: roles::new_atomic(),
            fast: Fast::new(FastLimits::default()),
            batches: batches::Pending::default(),
            acked_fast: 0,
            pub_acks: HashMap::default(),
            nameless: PubAck::new("", settings.domain.as_deref()),
            settings,
            space: Space::Free,
            crowded: false,
            held_back: Vec::new(),
            expiring: false,
            next_expiry: None,
            again: None,
            postponed: Vec::new(),
            serves: false,
            nodes: 1,
            cluster: ClusterInfo::default(),
            behind: Some(STARTING.to_owned()),
            interest_changed: false,
            interest_changed_of: BTreeSet::new(),
            beside: Held::default(),
            directory: Directory::default(),
            keeping: Keeping::default(),
            moves: Moves::default(),
            unled: Unled::default(),
            step_down: None,
            seed,
            named: 0,
            advisories: 0,
            stats: StreamStats::default(),
            said: Vec::new(),
            outcomes: Vec::new(),
            effects: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Makes these the streams of another group.
    #[must_use]
    pub const fn of_group(mut self, group: u32) -> Self {
        self.group = group;
        self
    }

    /// Returns the number of the group that keeps the streams.
    #[must_use]
    pub const fn group(&self) -> u32 {
        self.group
    }

    /// Returns the streams as applied.
    #[must_use]
    pub const fn applied(&self) -> &Streams {
        &self.streams
    }

    /// Returns the streams as applied, so that the caller can note where messages lie.
    pub const fn applied_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Returns the counts since the node's start.
    #[must_use]
    pub const fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Returns the number of consumers that this node serves.
    #[must_use]
    pub fn consumers_len(&self) -> usize {
        self.consumers.len()
    }

    /// Returns the changes that the last entry made.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Returns the state of the controllers of entries and of fast-ingest acknowledgements.
    #[must_use]
    pub fn controllers(&self) -> [Snapshot; 2] {
        [self.gauge.snapshot(), self.fast.snapshot()]
    }

    /// Returns the number of bytes that wait for the log.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.sealed_bytes + self.durable.bytes()
    }

    pub(super) fn handle_subscribed(&mut self, pattern: &[u8]) {
        self.consumers.handle_subscribed(pattern);
    }

    /// Notes whether fewer than a majority of the group's nodes have space. A message taken then could not be
    /// acknowledged, and the commands that make space would have to wait behind it.
    pub(in crate::node) fn set_crowded(&mut self, crowded: bool) {
        if std::mem::replace(&mut self.crowded, crowded) != crowded && crowded {
            tracing::error!("a majority of the nodes has no space: publishing is refused");
        }
    }

    /// Notes whether the disk has space for more messages.
    pub(super) fn set_space(&mut self, space: Space) {
        // All groups share the disk, so one of them logs the change.
        if std::mem::replace(&mut self.space, space) != space && self.group == ALL {
            match space {
                Space::Low => tracing::error!("no space for more messages: publishing is refused"),
                Space::Scarce => {
                    tracing::error!(
                        "no space: all but deleting, purging and moving streams away is refused"
                    )
                }
                Space::Free => tracing::info!("there is space again: publishing goes on"),
            }
        }
    }

    /// Notes the bytes that the streams of all groups hold on this node.
    pub(super) const fn set_held(&mut self, all: Held) {
        self.beside = all.without(self.streams.held());
    }

    pub(super) fn set_wall_clock(&mut self, now: Time, us: u64) {
        self.wall.set(now, us);
    }

    /// Returns the next entry to propose, and the number of callers that wait for it.
    pub(super) fn poll_proposal(&mut self, now: Time) -> Option<(Bytes, u64)> {
        // While full entries wait for the group, the entry that gathers stays open for more commands.
        if self.sealed.is_empty() || !self.settings.lab.carries_over() {
            self.seal(now);
        }
        let sealed = self.sealed.front()?;
        Some((sealed.entry.clone(), sealed.waiters.len().max(1) as u64))
    }

    pub(super) fn handle_proposed(&mut self, now: Time, at: Proposed, cost_ns: u64) {
        if let Some(sealed) = self.sealed.pop_front() {
            self.sealed_bytes -= sealed.entry.len();
            self.gauge
                .proposed(now, sealed.commands, sealed.entry.len(), cost_ns);
            self.in_flight.push(at, sealed.waiters);
        }
    }

    /// Takes the connections that the node may read again.
    pub(super) fn take_resumed(&mut self) -> Vec<usize> {
        match self.is_full() {
            true => Vec::new(),
            false => std::mem::take(&mut self.held_back),
        }
    }

    pub(super) fn handle_held_back(&mut self, connection: usize) {
        self.stats.held_back += 1;
        if !self.held_back.contains(&connection) {
            self.held_back.push(connection);
        }
    }

    pub(super) fn handle_refused(&mut self, cx: &mut Context<'_>, now: Time, error: &ApiError) {
        let Some(mut sealed) = self.sealed.pop_front() else {
            return;
        };
        self.sealed_bytes -= sealed.entry.len();
        self.stats.refused += 1;
        let commands = Entry::decode(&sealed.entry).map(|e| e.commands());
        let mut commands = commands.into_iter().flatten().flatten().zip(0..);
        for (command, reply, then) in sealed.waiters.drain() {
            let of = commands.find(|(_, at)| *at == command).map(|(c, _)| c);
            if matches!(then, Then::Delta(_) | Then::Expired) {
                self.again = Some(now + AGAIN);
            }
            if let (Then::Delta(key), Some(of)) = (&then, &of) {
                // A consumer's delta is no request, so nothing can be refused: it is kept and proposed again.
                self.postponed.push(Postponed::new(of, *key));
                continue;
            }
            let outcome = Outcome::Refused {
                stream: of.map_or(0, |c| c.stream),
                error: error.clone(),
            };
            self.tell(cx, now, reply, then, &outcome);
        }
        self.durable.recycle(sealed.waiters);
        self.serve_waiting(cx, now);
    }

    /// Applies an entry of the log.
    ///
    /// # Errors
    /// The entry holds a command that this version does not know: the node must not go on.
    pub(super) fn handle_committed(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        committed: &Committed,
    ) -> Result<(), EntryError> {
        self.outcomes.clear();
        self.effects.clear();
        self.directory.applied = committed.index;
        let lsn = committed.lsn.get();
        self.streams
            .apply(lsn, &committed.data, &mut self.outcomes, &mut self.effects)?;
        let lost = |waiters| self.admissions.forget(waiters);
        let waiters = self.in_flight.take(committed.index, committed.term, lost);
        self.conclude(cx, now, waiters);
        Ok(())
    }

    /// Applies the commands that have gathered for streams in memory.
    fn apply_volatile(&mut self, cx: &mut Context<'_>, now: Time) -> Result<(), EntryError> {
        let time_us = self.wall.tell(now);
        while let Some(sealed) = self.volatile.seal(time_us) {
            self.outcomes.clear();
            self.effects.clear();
            self.streams
                .apply_memory(&sealed.entry, &mut self.outcomes, &mut self.effects)?;
            self.conclude(cx, now, Some(sealed.waiters));
        }
        Ok(())
    }

    /// Tells consumers, and the clients that wait, the outcome of an entry.
    fn conclude(&mut self, cx: &mut Context<'_>, now: Time, waiters: Option<Waiters<Then>>) {
        let effects = std::mem::take(&mut self.effects);
        if self.serves {
            self.advise_changes(cx, now, &effects);
        }
        self.note_interest(&effects);
        self.tell_consumers(cx, now, &effects);
        self.effects = effects;
        if let Some(waiters) = waiters {
            self.tell_all(cx, now, waiters);
        }
        self.serve_waiting(cx, now);
    }

    /// Tells each waiter of an entry the outcome of its command.
    fn tell_all(&mut self, cx: &mut Context<'_>, now: Time, mut waiters: Waiters<Then>) {
        let outcomes = std::mem::take(&mut self.outcomes);
        for (command, reply, then) in waiters.drain() {
            match outcomes.get(command) {
                Some(outcome) => self.tell(cx, now, reply, then, outcome),
                None => debug_assert!(false, "each command has an outcome"),
            }
        }
        self.outcomes = outcomes;
        self.durable.recycle(waiters);
    }

    /// Begins the work of a turn besides the entries of the log. The caller then serves each consumer that
    /// [`JetStream::next_consumer`] names, and ends the turn.
    pub(super) fn serve(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        messages: &dyn Messages,
    ) -> Result<(), EntryError> {
        self.tell_orphans(cx, now);
        self.serve_doubts(cx, now);
        self.tell_moved(cx, now);
        if !self.serves {
            // A follower only finishes the reads that clients asked for while it led. Messages said to
            // streams have gone to the leader.
            self.serve_reads(cx, now, messages);
            self.said.clear();
            return Ok(());
        }
        if self.again.is_none_or(|at| at <= now) {
            self.again = None;
            self.propose_postponed(now);
        }
        self.propose_expiry(now);
        self.apply_volatile(cx, now)?;
        self.serve_batches(cx, now);
        self.serve_askers(cx, now);
        self.serve_untold(cx, now);
        self.serve_gathers(cx, now);
        self.serve_exports(cx, now, messages);
        self.serve_reads(cx, now, messages);
        self.begin_consumers(cx, now);
        Ok(())
    }

    /// Ends the work of a turn, once [`JetStream::next_consumer`] has none left.
    pub(super) fn end_turn(&mut self, cx: &mut Context<'_>, now: Time) -> Result<(), EntryError> {
        if !self.serves {
            return Ok(());
        }
        if self.admissions.is_due() {
            // A reset of a consumer that the log does not know may have concluded a change.
            self.serve_waiting(cx, now);
        }
        self.take_said(now);
        self.apply_volatile(cx, now)
    }

    /// Publishes the messages that were said to subjects of streams into those streams.
    fn take_said(&mut self, now: Time) {
        for said in std::mem::take(&mut self.said) {
            let message = Publish {
                subject: &said.to,
                reply: None,
                headers: said.headers.as_deref(),
                payload: &said.payload,
            };
            self.publish(now, &message);
        }
    }

    /// Proposes again the commands of consumers that the log refused.
    fn propose_postponed(&mut self, now: Time) {
        if self.space == Space::Scarce {
            return;
        }
        for postponed in std::mem::take(&mut self.postponed) {
            let waiter = Some((&b""[..], Then::Delta(postponed.key)));
            self.command(now, false, &postponed.command(), waiter);
        }
    }

    /// Proposes to remove messages that have expired. Like every change, that takes an entry. The leader
    /// proposes no second expiry before the first is applied.
    fn propose_expiry(&mut self, now: Time) {
        let now_us = self.wall.tell(now);
        if self.expiring || self.again.is_some() {
            self.next_expiry = None;
            return;
        }
        self.next_expiry = self.streams.next_expiry(now_us);
        if self.next_expiry.is_none_or(|due| due > now_us) {
            return;
        }
        let streams = &mut self.streams;
        let mut write = |proposals: &mut Proposals<Then>, storage| {
            proposals.add_written(Then::Expired, |entry| {
                streams.propose_expiry(now_us, storage, entry)
            })
        };
        write(&mut self.volatile, Storage::Memory);
        self.expiring = write(&mut self.durable, Storage::File);
    }

    /// Returns the time at which the streams are to be served next.
    pub(super) fn deadline(&self) -> Option<Time> {
        if self.consumers.is_busy()
            || !self.volatile.is_empty()
            || !self.said.is_empty()
            || !self.batches.is_empty()
            || (self.serves && self.group != ALL && self.keeping.is_to_compare())
        {
            return Some(Time::ZERO);
        }
        let expiry = self.next_expiry.map(|us| self.wall.when(us));
        let all = [
            self.consumers.deadline(),
            expiry,
            self.again,
            self.atomic.deadline(),
            self.fast.deadline(),
            self.keeping.deadline(),
            self.moves.deadline(),
            self.unled.deadline(),
            self.directory.deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// Returns whether no command is on its way into a stream and no request waits.
    pub(super) fn is_idle(&self) -> bool {
        self.durable.is_empty()
            && self.volatile.is_empty()
            && self.sealed.is_empty()
            && self.in_flight.len() == 0
            && self.admissions.is_idle()
    }

    /// Ends the pulls of consumers because the node stops, and proposes a last delta of each consumer.
    pub(super) fn handle_stopping(&mut self, cx: &mut Context<'_>, now: Time) {
        self.end_consumers(cx, now, Ending::Shutdown);
    }

    /// Returns this server's part of an answer, as of `now`.
    fn server(&self, now: Time) -> Server<'_> {
        Server {
            version: super::PROTOCOL_VERSION,
            domain: self.settings.domain.as_deref(),
            cluster: &self.cluster,
            now: self.timestamp(now),
        }
    }

    fn timestamp(&self, now: Time) -> Timestamp {
        Timestamp::from_micros(self.wall.peek(now))
    }

    /// Returns a voice for the messages said now.
    fn voice<'a>(&'a mut self, cx: &'a mut Context<'_>, now: Time) -> Voice<'a> {
        Voice {
            wall_us: self.wall.tell(now),
            cx: cx.again(),
            streams: &self.streams,
            said: &mut self.said,
            advisories: &mut self.advisories,
        }
    }

    /// Returns a name that no other consumer has.
    fn unique_name(&mut self) -> String {
        self.named += 1;
        speak::unique(self.seed, self.named, 8)
    }
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;

impl std::fmt::Debug for JetStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JetStream")
            .field("streams", &self.streams.len())
            .field("consumers", &self.consumers.len())
            .finish_non_exhaustive()
    }
}
