//! The roles of a node: only the leader of the group serves the streams.
//!
//! A follower applies the same entries and answers no client. It hands the requests of clients to the leader.
//! The leader announces to the other nodes that it leads, and which streams it serves
//! ([`JetStream::reasons`], [`JetStream::interest_for`]). A new leader serves once it has applied every entry
//! that was committed before. A node that no longer leads drops the state that only a leader has.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{Effect, Outcome, Streams};

use super::leader_message::{subject_of_group, subject_of_stream};
use super::leaderless::Leaderless;
use crate::streams::context::{Context, Leader};
use crate::streams::serving::consumers::Live;
use crate::streams::{Ending, JetStream};

use crate::streams::outcome::Then;

/// The time that other nodes may take to learn that a node serves, after this node has learned it.
const SETTLING: Duration = Duration::from_millis(50);
/// The most pulls that wait until the group has a leader.
const PARKED_MAX: usize = 4096;
/// The most streams for which the group notes changed subjects one by one. With more, it notes that any
/// stream may have changed.
const CHANGED_MAX: usize = 4096;
/// The status that ends a pull because the client has to send it to another node.
const LED_ELSEWHERE: &[u8] = b"NATS/1.0 409 Leadership Change\r\n\r\n";
/// The time for which a stopping node waits so that clients that lost a consumer can ask for another one
/// through this node: a few round trips.
const ASKING: Duration = Duration::from_millis(100);

/// This node's part in the group.
#[derive(Debug)]
pub(crate) struct Role {
    /// True if this node leads: it answers requests and serves consumers.
    pub(crate) serves: bool,
    /// The number of nodes that keep the streams.
    pub(crate) nodes: usize,
    pub(crate) cluster: ClusterInfo,
    /// The reason why this node is behind the other nodes; `None` if it is not. Before this node has heard
    /// from the others it counts as behind, for a health check that asks so early.
    pub(crate) behind: Option<String>,
    /// The request of a client for another leader, until the event loop takes it.
    pub(crate) step_down: Option<StepDown>,
    /// The time since which other nodes should send no more messages to this node, because the node stops.
    pub(crate) parting: Option<Time>,
    /// True if the subjects of messages that other nodes should send to this node have changed, of any
    /// stream.
    pub(crate) interest_changed: bool,
    /// The streams with changed subjects, unless `interest_changed` says that any stream may have changed.
    pub(crate) interest_changed_of: BTreeSet<StreamNumber>,
}

/// The health of a node before the first [`JetStream::set_cluster`].
const STARTING: &str = "it has just started, and has not heard from the others yet";

impl Default for Role {
    fn default() -> Self {
        Self {
            serves: false,
            nodes: 1,
            cluster: ClusterInfo::default(),
            behind: Some(STARTING.to_owned()),
            step_down: None,
            parting: None,
            interest_changed: false,
            interest_changed_of: BTreeSet::new(),
        }
    }
}

/// The clients of consumers that this node served while it led, and clients that sent pulls while the group
/// had no leader.
#[derive(Default)]
pub(crate) struct Lost {
    /// The consumers that this node served while it led. The node keeps them until it has sent their clients,
    /// which pull or listen, the status that ends the consumer.
    orphans: Vec<Live>,
    /// The reply subjects of pulls that arrived while the group had no leader.
    parked: Vec<Box<[u8]>>,
    /// The time at which the node answers these clients, if the group has a leader then.
    settles: Option<Time>,
    /// The time at which the node last answered such clients.
    orphans_told: Option<Time>,
}

impl JetStream {
    /// Returns whether this node leads the group and serves its streams.
    #[must_use]
    pub(crate) const fn serves(&self) -> bool {
        self.role.serves
    }

    /// Sets the nodes that keep the streams, the number of these nodes, and the reason why this node is
    /// behind, if it is.
    pub(crate) fn set_cluster(
        &mut self,
        nodes: usize,
        cluster: ClusterInfo,
        behind: Option<String>,
    ) {
        self.role.nodes = nodes;
        self.role.cluster = cluster;
        self.role.behind = behind;
    }

    /// Returns the number of nodes that keep the streams.
    #[must_use]
    pub(crate) const fn nodes(&self) -> usize {
        self.role.nodes
    }

    /// Returns the reason why this node is behind the other nodes; `None` if it is not.
    #[must_use]
    pub(crate) fn behind(&self) -> Option<&str> {
        self.role.behind.as_deref()
    }

    /// Returns the nodes that keep the streams.
    #[must_use]
    pub(crate) const fn cluster(&self) -> &ClusterInfo {
        &self.role.cluster
    }

    /// Returns the subjects of messages that other nodes should send to this node: none unless this node
    /// serves.
    #[cfg(test)]
    pub(crate) fn interest(&self) -> Vec<Box<[u8]>> {
        let reasons = self.reasons();
        let of = reasons
            .into_iter()
            .map(|(stream, _)| self.interest_for(stream));
        of.flatten().collect()
    }

    /// Returns the reasons why other nodes should send messages to this node: the numbers of streams, and 0
    /// for the group itself. The second number of each reason changes whenever the reason's subjects change.
    /// Returns no reasons unless this node serves.
    pub(crate) fn reasons(&self) -> Vec<(StreamNumber, u64)> {
        if !self.role.serves || self.role.parting.is_some() {
            return Vec::new();
        }
        let mut all = vec![(StreamNumber::NONE, 0)];
        let heard = self.streams.iter().filter(|s| self.is_open_here(s));
        all.extend(heard.map(|s| (s.id(), s.changed())));
        all
    }

    /// Returns the second number of the reason that [`JetStream::reasons`] has for this stream, if it has
    /// one.
    pub(crate) fn reason_of(&self, stream: StreamNumber) -> Option<u64> {
        let speaks = self.role.serves && self.role.parting.is_none();
        let stream = self.streams.get(stream).filter(|_| speaks)?;
        self.is_open_here(stream).then(|| stream.changed())
    }

    /// Returns the subjects of messages that other nodes should send to this node for one of the reasons in
    /// [`JetStream::reasons`].
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

    /// Returns whether another node leads the group, as far as this node knows.
    fn is_led_elsewhere(&self, cx: &mut Context<'_>) -> bool {
        matches!(cx.around.leader_of(self.group), Some(Leader::Peer { .. }))
    }

    /// Takes the list of streams with subjects that may have changed since the last call.
    pub(crate) fn take_interest_changed(&mut self) -> InterestChanged {
        let streams = std::mem::take(&mut self.role.interest_changed_of);
        match std::mem::take(&mut self.role.interest_changed) {
            true => InterestChanged::All,
            false => InterestChanged::Of(streams),
        }
    }

    /// Returns, once, a client's request for another leader.
    pub(crate) const fn take_step_down(&mut self) -> Option<StepDown> {
        self.role.step_down.take()
    }

    /// Proposes the deltas of all consumers, so that the next leader has them.
    pub(crate) fn flush_consumers(&mut self, now: Time) {
        if self.is_full() || !self.entries.postponed.is_empty() {
            return;
        }
        for key in self.consumers.keys() {
            self.propose_delta(now, key);
        }
    }

    /// Replaces the streams by the state of another node as of the entry `index`. This node must not serve at
    /// that time.
    pub(crate) fn replace(&mut self, now: Time, index: u64, streams: Streams) {
        debug_assert!(!self.role.serves, "who leads has everything");
        self.directory.applied = index;
        let before = std::mem::replace(&mut self.streams, streams);
        self.streams.follow(&before);
        self.publishing.pub_acks.clear();
        self.wall.not_before(now, self.streams.now_us());
    }

    /// Prepares the stop of this node. No other node has the streams that only this node keeps, so other
    /// nodes should send no more messages for them.
    pub(crate) fn handle_parting(&mut self, now: Time) {
        if self.group != ALL && self.role.nodes <= 1 {
            self.role.parting.get_or_insert(now);
            self.role.interest_changed = true;
        }
    }

    /// Makes this node serve, because it leads and has applied all committed entries: it decides about
    /// requests and serves consumers.
    pub(crate) fn handle_leading(&mut self, now: Time) {
        if std::mem::replace(&mut self.role.serves, true) {
            return;
        }
        self.role.interest_changed = true;
        self.wall.not_before(now, self.streams.now_us());
        let known: Vec<StreamNumber> = self.streams.iter().map(|s| s.id()).collect();
        for stream in known {
            self.take_up_all(now, stream);
        }
    }

    /// Makes this node stop serving, because another node leads or the group has no leader. The node refuses
    /// the requests that it has not proposed. A proposal may still be committed; then this node answers the
    /// client.
    pub(crate) fn handle_following(&mut self, cx: &mut Context<'_>, now: Time) {
        if !std::mem::replace(&mut self.role.serves, false) {
            return;
        }
        self.role.interest_changed = true;
        self.close_admissions(cx, now);
        self.close_keeping(cx, now);
        self.close_directory(cx, now);
        self.moves.close();
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
            self.lost
                .orphans
                .extend(self.consumers.remove(key).map(|live| *live));
        }
        self.consumers.rest();
        self.publishing.close_batches();
        self.entries.rest();
    }

    /// Answers the clients of consumers that this node served while it led, once the group has a leader to
    /// which they can turn: ends their pulls, and reports consumers that the log does not keep as lost. After
    /// an earlier answer a client would ask in vain, and then ask again only when it misses heartbeats.
    pub(crate) fn tell_orphans(&mut self, cx: &mut Context<'_>, now: Time) {
        let nobody = self.lost.orphans.is_empty() && self.lost.parked.is_empty();
        if nobody || !(self.role.serves || self.is_led_elsewhere(cx)) {
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

    /// Keeps a pull that arrives while the group has no leader. The node ends the pull once there is a
    /// leader. Returns whether there was room.
    pub(crate) fn park(&mut self, reply: &[u8]) -> bool {
        let room = self.lost.parked.len() < PARKED_MAX;
        if room {
            self.lost.parked.push(reply.into());
        }
        room
    }

    /// Returns whether this node has handed leadership over: another node leads, and clients have had time to
    /// create new consumers on that node.
    #[must_use]
    pub(crate) fn has_handed_over(&self, now: Time) -> bool {
        let asked = self.lost.orphans_told.is_none_or(|at| at + ASKING <= now);
        let gone = !self.role.serves
            && self.lost.orphans.is_empty()
            && self.lost.parked.is_empty()
            && asked;
        // No other node can lead streams that only this node keeps. In this case the other nodes know that
        // this node stops, and all messages that they sent before have arrived.
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

    /// Notes the streams for which an entry has changed the subjects of messages that other nodes should send
    /// to this node.
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
            // The node has not taken the list of changed streams for long. With so many of them, a comparison
            // of all streams costs no more.
            self.role.interest_changed = true;
            self.role.interest_changed_of.clear();
        }
    }

    /// Checks that the group has enough nodes for this number of copies.
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

/// The streams for which the subjects that this node announces may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InterestChanged {
    /// Any stream may have changed, or the group itself.
    All,
    /// The streams with these numbers may have changed.
    Of(BTreeSet<StreamNumber>),
}

/// The request of a client for another leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepDown {
    /// The name of the node that is to lead; `None` for any node.
    pub(crate) preferred: Option<String>,
}

#[cfg(test)]
mod tests;
