//! Handles the roles of a node in a group: only the group's leader serves the streams.
//!
//! A follower applies the entries that the leader applies. It hands the requests of clients to the leader,
//! and answers only clients that it served as the leader or that wait for one. The leader announces to the
//! other nodes that it leads, and which streams it serves ([`JetStream::reasons`],
//! [`JetStream::interest_for`]). A new leader serves once it has applied every entry that was committed
//! before. A node that no longer leads drops the state that only a leader has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{Effect, Outcome, Streams};

use super::leader_message::{subject_of_group, subject_of_stream};
use super::leaderless::Leaderless;
use super::tags::NodeTags;
use crate::streams::context::{Context, Leader};
use crate::streams::serving::live::Live;
use crate::streams::serving::taking_up::Place;
use crate::streams::{Ending, JetStream};

use crate::streams::outcome::Then;

/// The time that other nodes may need to learn that a node serves the group, counted from the time at which
/// this node has learned it. The node answers waiting clients only after it.
const SETTLING: Duration = Duration::from_millis(50);
/// The limit on the number of pulls that a node keeps until the group has a leader, so that they take bounded
/// memory.
const PARKED_MAX: usize = 4096;
/// The limit on the number of streams for which the node records changed subjects one by one. Above it, to
/// save memory, the node records that the subjects of any stream may have changed.
const CHANGED_MAX: usize = 4096;
/// The status that ends a pull which this node does not serve, so that the client sends its pull again, to
/// the node that leads now.
const LED_ELSEWHERE: &[u8] = b"NATS/1.0 409 Leadership Change\r\n\r\n";
/// The time for which a stopping node waits so that clients that lost a consumer can create another consumer
/// through this node: a few round trips.
const ASKING: Duration = Duration::from_millis(100);

/// This node's role in the group, as leader or follower, and the state that the node needs in this role.
#[derive(Debug)]
pub(crate) struct Role {
    /// True if this node leads the group: it then answers requests and serves consumers, and a follower does
    /// not.
    pub(crate) serves: bool,
    /// True if this node has won the last election of the group. The node serves once it has applied every
    /// entry that was committed before, because it must know them.
    pub(crate) elected: bool,
    /// The place behind the consumers that this node has taken up since it leads; `None` if it has taken up
    /// all of them, or does not lead.
    pub(crate) taking_up: Option<Place>,
    /// The number of nodes that keep the group's streams, which is the highest number of replicas that a
    /// client may ask for.
    pub(crate) nodes: usize,
    pub(crate) cluster: ClusterInfo,
    /// The tags of the nodes of the cluster, by which the leader chooses the nodes of a stream.
    pub(crate) tags: Arc<NodeTags>,
    /// The reason why this node is behind the other nodes; `None` if it has caught up. A node that has just
    /// started counts as behind until another node tells it how far the group is, so that a health check does
    /// not find the node healthy too early.
    pub(crate) behind: Option<String>,
    /// A client's request that another node lead the group, until the event loop takes the request.
    pub(crate) step_down: Option<StepDown>,
    /// The time at which this node, which is about to stop, began to ask the other nodes to send it no more
    /// messages; `None` while it is not stopping.
    pub(crate) parting: Option<Time>,
    /// True if the subjects of any stream, which this node announces to the other nodes, may have changed.
    pub(crate) interest_changed: bool,
    /// The streams with changed subjects, which the node must announce again, unless `interest_changed` says
    /// that any stream may have changed.
    pub(crate) interest_changed_of: BTreeSet<StreamNumber>,
}

/// The reason that a health check shows until the first call of [`JetStream::set_cluster`], because a
/// starting node counts as behind.
const STARTING: &str = "it has just started, and has not heard from the others yet";

impl Default for Role {
    fn default() -> Self {
        Self {
            serves: false,
            elected: false,
            taking_up: None,
            nodes: 1,
            cluster: ClusterInfo::default(),
            tags: Arc::default(),
            behind: Some(STARTING.to_owned()),
            step_down: None,
            parting: None,
            interest_changed: false,
            interest_changed_of: BTreeSet::new(),
        }
    }
}

/// The clients that lost a consumer because this node no longer leads, and the clients that sent pulls while
/// the group had no leader. The node answers them once the group has a leader.
#[derive(Default)]
pub(crate) struct Lost {
    /// The consumers that this node served while it led. The node keeps them until it has sent their clients
    /// the status that ends the consumer, so that they turn to the new leader.
    orphans: Vec<Live>,
    /// The reply subjects of pulls that arrived while the group had no leader. The node ends them once the
    /// group has a leader, so that clients send them again.
    parked: Vec<Box<[u8]>>,
    /// The time at which the node answers the waiting clients, if the group still has a leader then; `None`
    /// while the group has none or no client waits.
    settles: Option<Time>,
    /// The time at which the node last answered clients that had lost a consumer; `None` if it never did. A
    /// stopping node gives these clients time to act.
    orphans_told: Option<Time>,
}

impl JetStream {
    /// Returns whether this node serves the group's streams, so that it may answer clients: the node leads,
    /// and has applied all committed entries.
    #[must_use]
    pub(crate) const fn serves(&self) -> bool {
        self.role.serves
    }

    /// Sets the facts that API answers and health checks show: the nodes that keep the group's streams, their
    /// number, and the reason why this node is behind, if it is.
    pub(crate) fn set_cluster(
        &mut self,
        nodes: usize,
        cluster: ClusterInfo,
        behind: Option<String>,
    ) {
        if self.role.cluster.leader != cluster.leader && !self.role.serves {
            // The last leader has refused the purge that this node prepared for it.
            self.streams.forget_foreseen();
        }
        self.role.nodes = nodes;
        self.role.cluster = cluster;
        self.role.behind = behind;
    }

    /// Sets the tags of the nodes of the cluster, by which the leader chooses the nodes of a stream.
    pub(crate) fn set_tags(&mut self, tags: Arc<NodeTags>) {
        self.role.tags = tags;
    }

    /// Returns the number of nodes that keep the group's streams, which bounds a stream's replicas.
    #[must_use]
    pub(crate) const fn nodes(&self) -> usize {
        self.role.nodes
    }

    /// Returns the reason why this node is behind the other nodes, for a health check; `None` if it has
    /// caught up.
    #[must_use]
    pub(crate) fn behind(&self) -> Option<&str> {
        self.role.behind.as_deref()
    }

    /// Returns the nodes that keep the group's streams, with their leader, for API answers and the monitor.
    #[must_use]
    pub(crate) const fn cluster(&self) -> &ClusterInfo {
        &self.role.cluster
    }

    /// Returns the subjects that this node announces to the other nodes so that they send messages of these
    /// subjects to this node. Returns none unless this node serves.
    #[cfg(test)]
    pub(crate) fn interest(&self) -> Vec<Box<[u8]>> {
        let reasons = self.reasons();
        let of = reasons
            .into_iter()
            .map(|(stream, _)| self.interest_for(stream));
        of.flatten().collect()
    }

    /// Returns the reasons why other nodes should send messages to this node, by which the node sees which
    /// announcements have changed; none unless this node serves. A reason has two numbers: the number of a
    /// stream (0 for the group itself), and a number that changes whenever the subjects of that stream or
    /// group change.
    pub(crate) fn reasons(&self) -> Vec<(StreamNumber, u64)> {
        if !self.role.serves || self.role.parting.is_some() {
            return Vec::new();
        }
        let mut all = vec![(StreamNumber::NONE, 0)];
        let heard = self.streams.iter().filter(|s| self.is_open_here(s));
        all.extend(heard.map(|s| (s.id(), s.changed())));
        all
    }

    /// Returns, to see whether an announcement is old, the second number, as in [`JetStream::reasons`], of
    /// the reason that this stream gives; `None` if other nodes have no reason to send messages of this
    /// stream to this node.
    pub(crate) fn reason_of(&self, stream: StreamNumber) -> Option<u64> {
        let speaks = self.role.serves && self.role.parting.is_none();
        let stream = self.streams.get(stream).filter(|_| speaks)?;
        self.is_open_here(stream).then(|| stream.changed())
    }

    /// Lists the subjects that this node announces to the other nodes for one of the reasons in
    /// [`JetStream::reasons`], so that they send matching messages.
    pub(crate) fn interest_for(&self, stream: StreamNumber) -> Vec<Box<[u8]>> {
        let mut all = Vec::new();
        match self.streams.get(stream) {
            None => all.push(subject_of_group(self.group)),
            Some(of) => {
                all.extend(of.config().subjects.iter().cloned());
                all.push(subject_of_stream(of.name()));
            }
        }
        all.into_iter().map(|s| s.into_bytes().into()).collect()
    }

    /// Returns whether this node knows that another node leads the group, so that clients can turn to that
    /// node.
    fn is_led_elsewhere(&self, cx: &mut Context<'_>) -> bool {
        matches!(cx.around.leader_of(self.group), Some(Leader::Peer { .. }))
    }

    /// Takes the streams with subjects that may have changed since the last call, so that the node announces
    /// their subjects to the other nodes again.
    pub(crate) fn take_interest_changed(&mut self) -> InterestChanged {
        let streams = std::mem::take(&mut self.role.interest_changed_of);
        match std::mem::take(&mut self.role.interest_changed) {
            true => InterestChanged::All,
            false => InterestChanged::Of(streams),
        }
    }

    /// Takes a client's request that another node lead the group, if a client has sent such a request, so
    /// that the event loop transfers the leadership.
    pub(crate) const fn take_step_down(&mut self) -> Option<StepDown> {
        self.role.step_down.take()
    }

    /// Proposes the deltas of all consumers, so that the next leader knows the consumers' progress.
    pub(crate) fn flush_consumers(&mut self, now: Time) {
        if self.is_full() || self.entries.has_postponed() {
            return;
        }
        for key in self.consumers.keys() {
            self.propose_delta(now, key);
        }
    }

    /// Replaces the group's streams by the state that another node had after the entry `index`, because this
    /// node lacks the entries up to there. This node must not serve at that time.
    pub(crate) fn replace(&mut self, now: Time, index: u64, streams: Streams) {
        debug_assert!(
            !self.role.serves,
            "a leader replaces its streams by the state of another node"
        );
        self.directory.applied = index;
        let before = std::mem::replace(&mut self.streams, streams);
        self.streams.follow(&before);
        self.publishing.pub_acks.clear();
        self.wall.not_before(now, self.streams.now_us());
    }

    /// Prepares the stop of this node by withdrawing its announcements. No other node has the streams that
    /// only this node keeps, so other nodes should send no more messages for these streams.
    pub(crate) fn handle_parting(&mut self, now: Time) {
        if self.group != ALL && self.role.nodes <= 1 {
            self.role.parting.get_or_insert(now);
            self.role.interest_changed = true;
        }
    }

    /// Makes this node serve the group's streams, because the node leads and has applied all committed
    /// entries: it decides about requests and serves consumers.
    pub(crate) fn handle_leading(&mut self, now: Time) {
        if std::mem::replace(&mut self.role.serves, true) {
            return;
        }
        self.role.interest_changed = true;
        self.wall.not_before(now, self.streams.now_us());
        self.begin_taking_up(now);
    }

    /// Makes this node stop serving the group's streams, because another node leads or the group has no
    /// leader. The node refuses the requests that it has not proposed. The group may still commit earlier
    /// proposals; then this node answers their clients.
    pub(crate) fn handle_following(&mut self, cx: &mut Context<'_>, now: Time) {
        if !std::mem::replace(&mut self.role.serves, false) {
            return;
        }
        self.role.interest_changed = true;
        self.role.taking_up = None;
        self.close_admissions(cx, now);
        self.close_keeping(cx, now);
        self.close_directory(cx, now);
        self.close_subject_pages(cx, now);
        self.close_stream_lists(cx, now);
        self.close_purges(cx, now);
        self.close_restores(cx, now);
        self.close_backups(cx, now);
        self.moves.close();
        self.takers.close();
        self.giving.close();
        self.leaderless = Leaderless::default();
        self.seal(now);
        while let Some(mut sealed) = self.entries.take_refused() {
            self.refuse_all(
                cx,
                now,
                sealed.waiters.drain(),
                &ApiError::SYSTEM_UNAVAILABLE,
            );
            self.entries.durable.recycle(sealed.waiters);
        }
        for key in self.consumers.keys() {
            if let Some(mut live) = self.consumers.remove(key) {
                let questions = std::mem::take(&mut live.questions);
                self.refuse_questions(cx, now, questions, &ApiError::SYSTEM_UNAVAILABLE);
                self.lost.orphans.push(*live);
            }
        }
        self.consumers.rest();
        self.publishing.close_batches();
        self.entries.rest();
    }

    /// Answers the clients of consumers that this node served while it led, once the group has a leader to
    /// which the clients can turn. Ends the clients' pulls, and reports consumers that the log does not keep
    /// as lost. If the node answered before the group has a leader, a client would send its next request to
    /// no leader, and would repeat it only when it misses heartbeats.
    pub(crate) fn tell_orphans(&mut self, cx: &mut Context<'_>, now: Time) {
        let none = self.lost.orphans.is_empty() && self.lost.parked.is_empty();
        if none || !(self.role.serves || self.is_led_elsewhere(cx)) {
            self.lost.settles = None;
            return;
        }
        if *self.lost.settles.get_or_insert(now + SETTLING) > now {
            return;
        }
        for mut orphan in std::mem::take(&mut self.lost.orphans) {
            let ending = match orphan.logged {
                true => Ending::LeadershipChange,
                false => Ending::Lost,
            };
            let mut voice = self.voice(cx, now);
            orphan.consumer.handle_end(ending, &mut voice);
        }
        for reply in std::mem::take(&mut self.lost.parked) {
            self.voice(cx, now).status_to(&reply, LED_ELSEWHERE);
        }
        self.lost.orphans_told = Some(now);
    }

    /// Keeps a pull that arrives while the group has no leader. The node ends the pull once the group has a
    /// leader. Returns whether the node had room for the pull.
    pub(crate) fn park(&mut self, reply: &[u8]) -> bool {
        let room = self.lost.parked.len() < PARKED_MAX;
        if room {
            self.lost.parked.push(reply.into());
        }
        room
    }

    /// Returns whether this node has handed leadership over: another node leads, and clients have had time to
    /// create new consumers on that node. A node that stops waits for that, so that its clients lose nothing.
    #[must_use]
    pub(crate) fn has_handed_over(&self, now: Time) -> bool {
        let asked = self.lost.orphans_told.is_none_or(|at| at + ASKING <= now);
        let gone = !self.role.serves
            && self.lost.orphans.is_empty()
            && self.lost.parked.is_empty()
            && asked;
        // No other node can lead streams that only this node keeps. The stopping node therefore only waits
        // until the other nodes know that it stops, and all messages that they sent before have arrived.
        gone || self.role.parting.is_some_and(|at| at + ASKING <= now)
    }

    fn refuse_all<'a>(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        waiters: impl Iterator<Item = (usize, &'a [u8], Then)>,
        error: &ApiError,
    ) {
        for (_, reply, then) in waiters {
            let outcome = Outcome::Refused {
                stream: StreamNumber::NONE,
                error: error.clone(),
            };
            self.tell(cx, now, reply, then, &outcome);
        }
    }

    /// Records the streams for which an entry has changed the subjects that this node announces to the other
    /// nodes, so that the node announces them again.
    pub(crate) fn note_interest(&mut self, effects: &[Effect]) {
        if !self.role.serves {
            return;
        }
        let changed = effects.iter().filter_map(|effect| match effect {
            Effect::StreamCreated { stream }
            | Effect::StreamUpdated { stream }
            | Effect::StreamDeleted { stream, .. }
            | Effect::StreamFrozen { stream }
            | Effect::StreamThawed { stream }
            | Effect::StreamStays { stream }
            | Effect::StreamFilled { stream }
            | Effect::StreamMoved { stream } => Some(*stream),
            _ => None,
        });
        self.role.interest_changed_of.extend(changed);
        if self.role.interest_changed_of.len() > CHANGED_MAX {
            // The event loop has not asked for the changed streams for long. The node stops recording single
            // streams, because with so many it costs no more to compare the subjects of all.
            self.role.interest_changed = true;
            self.role.interest_changed_of.clear();
        }
    }

    /// Checks that a client's configuration restricts its stream to this cluster or to no cluster, and
    /// returns an error otherwise. A server without a cluster accepts any name, as nats-server does.
    pub(crate) fn check_placement(&self, config: &StreamConfig) -> Result<(), ApiError> {
        let (wanted, own) = (&config.placement.cluster, &self.role.cluster.name);
        if wanted.is_empty() || own.is_empty() || wanted == own {
            return Ok(());
        }
        Err(ApiError::no_peers(format_args!(
            "no suitable peers for placement: this is the cluster `{own}`, not `{wanted}`"
        )))
    }

    /// Checks that the group has enough nodes for this number of replicas of a stream or consumer, and
    /// returns an error otherwise.
    pub(crate) fn check_replicas(&self, replicas: i64) -> Result<(), ApiError> {
        match usize::try_from(replicas) {
            Ok(wanted) if wanted <= self.role.nodes.max(1) => Ok(()),
            _ if self.role.nodes <= 1 => Err(ApiError::REPLICAS_NOT_SUPPORTED),
            _ => Err(ApiError::no_peers(format_args!(
                "no suitable peers for placement, insufficient replicas: {replicas} asked for, {} nodes",
                self.role.nodes
            ))),
        }
    }
}

/// The streams with subjects that may have changed, so that this node must announce them to the other nodes
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InterestChanged {
    /// The subjects of any stream may have changed, or the subjects of the group itself, so the node compares
    /// all.
    All,
    /// The subjects of the streams with these numbers in the group may have changed, so the node compares
    /// only these.
    Of(BTreeSet<StreamNumber>),
}

/// A client's request that another node lead the group, which the event loop carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepDown {
    /// The name of the node that the client wants to lead; with `None` the event loop chooses a node.
    pub(crate) preferred: Option<String>,
    /// The tags that the client wants the next leader to have. The event loop chooses a node with them.
    pub(crate) tags: Vec<String>,
}

#[cfg(test)]
mod tests;
