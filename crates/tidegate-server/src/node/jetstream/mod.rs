//! Streams on the node: what clients publish into them and ask of them, and what they are told.
//!
//! Pure, like the node it speaks through. Owns the order of things: a command gathers in an entry
//! (`proposals`), the entry goes to the group, comes back committed and is applied ([`crate::stream`]), and
//! only then whoever waits is answered (`outcome`). Requests that change nothing are answered at once or,
//! where a message must be read, at the end of the turn (`reads`). Consumers are served then, too
//! (`consumers`).
//!
//! Polling order, once a turn: [`Node::poll_proposal`] until it answers `None` (each followed by
//! [`Node::handle_proposed`] or [`Node::handle_refused`]), [`Node::handle_committed`] for what the group
//! hands out, [`Node::serve_streams`].

mod acks;
mod admission;
mod batches;
mod consumers;
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
use super::core::Node;
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
use crate::store::{Fetch, Space};
use crate::stream::{Effect, Entry, EntryError, Held, Outcome, Place, Streams};

/// Bytes of entries that may wait for the log before publishers are not read any more.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of an atomic batch: half of what a segment of the log holds.
const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How long after a refusal what nobody asked for is proposed again: the reason, a full disk, does not pass
/// at once, and the store looks for space, and wakes its owner, whenever it refuses.
const AGAIN: Duration = Duration::from_millis(500);

/// Where applied messages are read from.
pub trait Messages {
    /// The bytes of the message at this place, with whatever follows it.
    fn read(&mut self, place: Place) -> Fetch;
}

/// Counts of what streams did on this node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Requests of the API.
    pub api_requests: u64,
    /// Of those, refused.
    pub api_errors: u64,
    /// Entries proposed.
    pub entries: u64,
    /// Commands in them.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Publishers that were not read for a while because too much waited for the log.
    pub held_back: u64,
    /// Requests refused because too much waited for the log.
    pub refused: u64,
}

impl StreamStats {
    /// Both together.
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
    /// Goes into the log.
    durable: Proposals<Then>,
    /// Concerns streams in memory: applied at the turn's end, never written.
    volatile: Proposals<Then>,
    /// Closed and not yet taken by the group.
    sealed: VecDeque<Sealed<Then>>,
    sealed_bytes: usize,
    gauge: Gauge,
    in_flight: InFlight<Then>,
    consumers: Consumers,
    /// Proposed changes, and the requests that wait for them.
    admissions: Admissions,
    /// Consumers as this node served them until its lead ended, until whoever pulled from them or listens to
    /// them is told.
    orphans: Vec<Live>,
    /// Who pulled while nobody led.
    parked: Vec<Box<[u8]>>,
    /// When those are told, if somebody leads.
    settles: Option<Time>,
    /// When the last of those were.
    orphans_told: Option<Time>,
    /// Since when other nodes are not to send anything here any more, because this one is going to end.
    parting: Option<Time>,
    reads: Reads,
    atomic: Atomic,
    fast: Fast,
    batches: batches::Pending,
    /// Acknowledgements of fast-ingest batches that were said and are not written yet.
    acked_fast: u64,
    pub_acks: HashMap<u32, PubAck, RandomState>,
    /// For publishers to a stream that is gone.
    nameless: PubAck,
    /// Whether the disk has space for more messages.
    space: Space,
    /// Fewer than a majority of the group's nodes have some.
    crowded: bool,
    /// Connections that are not read until there is room.
    held_back: Vec<usize>,
    /// An expiry was proposed and has not come back.
    expiring: bool,
    /// When messages may go of age next, in microseconds since the Unix epoch.
    next_expiry: Option<u64>,
    /// When what nobody asked for and the log refused is proposed again.
    again: Option<Time>,
    /// What consumers did and the log refused.
    postponed: Vec<Postponed>,
    /// This node decides: requests are answered, consumers are served.
    serves: bool,
    /// How many nodes keep the streams, and which.
    nodes: usize,
    cluster: ClusterInfo,
    /// Why this node is not up to date.
    behind: Option<String>,
    /// What other nodes are to send here is not what it was.
    interest_changed: bool,
    /// The same of these streams only, where it is not of any.
    interest_changed_of: BTreeSet<u32>,
    /// What other groups' streams hold here.
    beside: Held,
    /// Of the group of all nodes: who keeps which streams.
    directory: Directory,
    /// Of another group: what it keeps, and what it is to keep.
    keeping: Keeping,
    /// Streams on their way from one group to another.
    moves: Moves,
    /// Of the group of all nodes: those of them that nobody is there for.
    unled: Unled,
    /// Somebody asked for another leader.
    step_down: Option<StepDown>,
    /// Names consumers that nobody named, and advisories.
    seed: u64,
    named: u64,
    advisories: u64,
    stats: StreamStats,
    /// Said to subjects that streams take.
    said: Vec<Said>,
    /// Scratch of one entry.
    outcomes: Vec<Outcome>,
    effects: Vec<Effect>,
    /// Scratch of one answer.
    body: Vec<u8>,
}

impl JetStream {
    /// Streams of the group of all nodes as the log has them at `now`. `seed` makes names unique.
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
            behind: None,
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

    /// The same, of another group.
    #[must_use]
    pub const fn of_group(mut self, group: u32) -> Self {
        self.group = group;
        self
    }

    /// The number of the group that keeps them.
    #[must_use]
    pub const fn group(&self) -> u32 {
        self.group
    }

    /// The streams as applied.
    #[must_use]
    pub const fn applied(&self) -> &Streams {
        &self.streams
    }

    /// The same, to say where messages lie.
    pub const fn applied_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Counts.
    #[must_use]
    pub const fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Consumers served.
    #[must_use]
    pub fn consumers_len(&self) -> usize {
        self.consumers.len()
    }

    /// What the last entry changed.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// What the controllers of entries and of fast-ingest acknowledgements know.
    #[must_use]
    pub fn controllers(&self) -> [Snapshot; 2] {
        [self.gauge.snapshot(), self.fast.snapshot()]
    }

    /// Bytes that wait for the log.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.sealed_bytes + self.durable.bytes()
    }

    pub(super) fn handle_subscribed(&mut self, pattern: &[u8]) {
        self.consumers.handle_subscribed(pattern);
    }

    /// Whether fewer than a majority of the group's nodes have space: what is taken now could not be
    /// acknowledged, and what makes space would have to wait behind it.
    pub(in crate::node) fn set_crowded(&mut self, crowded: bool) {
        if std::mem::replace(&mut self.crowded, crowded) != crowded && crowded {
            tracing::error!("a majority of the nodes has no space: publishing is refused");
        }
    }

    /// Whether the disk has space for more messages.
    pub(super) fn set_space(&mut self, space: Space) {
        // One of the groups says it, it is the disk of all.
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

    /// The streams of all groups hold so much here.
    pub(super) const fn set_held(&mut self, all: Held) {
        self.beside = all.without(self.streams.held());
    }

    pub(super) fn set_wall_clock(&mut self, now: Time, us: u64) {
        self.wall.set(now, us);
    }

    /// The next entry to propose and for how many callers.
    pub(super) fn poll_proposal(&mut self, now: Time) -> Option<(Bytes, u64)> {
        // What is left of full ones goes with what comes until the group has taken those.
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

    /// Connections that may be read again.
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

    pub(super) fn handle_refused(&mut self, node: &mut Node, now: Time, error: &ApiError) {
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
                // What a consumer did is no request that could be refused.
                self.postponed.push(Postponed::new(of, *key));
                continue;
            }
            let outcome = Outcome::Refused {
                stream: of.map_or(0, |c| c.stream),
                error: error.clone(),
            };
            self.tell(node, now, reply, then, &outcome);
        }
        self.durable.recycle(sealed.waiters);
        self.serve_waiting(node, now);
    }

    /// Applies an entry of the log.
    ///
    /// # Errors
    /// It holds what this version does not know: the node must not go on.
    pub(super) fn handle_committed(
        &mut self,
        node: &mut Node,
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
        self.conclude(node, now, waiters);
        Ok(())
    }

    /// Applies what gathered for streams in memory.
    fn apply_volatile(&mut self, node: &mut Node, now: Time) -> Result<(), EntryError> {
        let time_us = self.wall.tell(now);
        while let Some(sealed) = self.volatile.seal(time_us) {
            self.outcomes.clear();
            self.effects.clear();
            self.streams
                .apply_memory(&sealed.entry, &mut self.outcomes, &mut self.effects)?;
            self.conclude(node, now, Some(sealed.waiters));
        }
        Ok(())
    }

    /// Tells consumers and whoever waits what became of an entry.
    fn conclude(&mut self, node: &mut Node, now: Time, waiters: Option<Waiters<Then>>) {
        let effects = std::mem::take(&mut self.effects);
        if self.serves {
            self.advise_changes(node, now, &effects);
        }
        self.note_interest(&effects);
        self.tell_consumers(node, now, &effects);
        self.effects = effects;
        if let Some(waiters) = waiters {
            self.tell_all(node, now, waiters);
        }
        self.serve_waiting(node, now);
    }

    /// Tells each waiter of an entry what its command came to.
    fn tell_all(&mut self, node: &mut Node, now: Time, mut waiters: Waiters<Then>) {
        let outcomes = std::mem::take(&mut self.outcomes);
        for (command, reply, then) in waiters.drain() {
            match outcomes.get(command) {
                Some(outcome) => self.tell(node, now, reply, then, outcome),
                None => debug_assert!(false, "each command has an outcome"),
            }
        }
        self.outcomes = outcomes;
        self.durable.recycle(waiters);
    }

    /// What is to be done besides entries of the log.
    pub(super) fn serve(
        &mut self,
        node: &mut Node,
        now: Time,
        messages: &mut dyn Messages,
    ) -> Result<(), EntryError> {
        self.tell_orphans(node, now);
        self.serve_doubts(node, now);
        self.tell_moved(node, now);
        if !self.serves {
            // It answers what was asked while it did, no more; what was said to streams went to their leader.
            self.serve_reads(node, now, messages);
            self.said.clear();
            return Ok(());
        }
        if self.again.is_none_or(|at| at <= now) {
            self.again = None;
            self.propose_postponed(now);
        }
        self.propose_expiry(now);
        self.apply_volatile(node, now)?;
        self.serve_batches(node, now);
        self.serve_askers(node, now);
        self.serve_untold(node, now);
        self.serve_gathers(node, now);
        self.serve_exports(node, now, messages);
        self.serve_reads(node, now, messages);
        self.serve_consumers(node, now, messages);
        if self.admissions.is_due() {
            // A consumer that no log knows began again.
            self.serve_waiting(node, now);
        }
        self.take_said(now);
        self.apply_volatile(node, now)
    }

    /// What was said to subjects that streams take goes into them.
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

    /// What consumers did goes with the next entry if it was refused with the last.
    fn propose_postponed(&mut self, now: Time) {
        if self.space == Space::Scarce {
            return;
        }
        for postponed in std::mem::take(&mut self.postponed) {
            let waiter = Some((&b""[..], Then::Delta(postponed.key)));
            self.command(now, false, &postponed.command(), waiter);
        }
    }

    /// Messages that went of age are removed by entries, like everything else: asked for once, until that has
    /// been applied.
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

    /// When to be served next.
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

    /// Nothing is on its way into a stream.
    pub(super) fn is_idle(&self) -> bool {
        self.durable.is_empty()
            && self.volatile.is_empty()
            && self.sealed.is_empty()
            && self.in_flight.len() == 0
            && self.admissions.is_idle()
    }

    /// The node ends: consumers' pulls are told, and what they did since the last delta is kept.
    pub(super) fn handle_stopping(&mut self, node: &mut Node, now: Time) {
        self.end_consumers(node, now, Ending::Shutdown);
    }

    /// Who answers requests, and when.
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

    /// A voice for whatever is said now.
    fn voice<'a>(&'a mut self, node: &'a mut Node, now: Time) -> Voice<'a> {
        Voice {
            wall_us: self.wall.tell(now),
            node,
            streams: &self.streams,
            now,
            said: &mut self.said,
            advisories: &mut self.advisories,
        }
    }

    /// A name that nobody has.
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
