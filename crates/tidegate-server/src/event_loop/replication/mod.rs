//! Does the event loop's part in Raft groups: hands received messages to the store, sends the groups'
//! messages to other nodes, ticks the groups, and tells the streams whether this node leads.
//!
//! This module decides only the moments of this work. Raft decides which node leads
//! ([`tidegate_raft::replica`]), the streams act on that ([`crate::streams`]), and [`tidegate_raft::catchup`]
//! decides which data a node fetches that is too far behind.

mod in_group;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate::Time;
use tidegate_cluster::groups::{GroupId, GroupOf, groups};
use tidegate_cluster::members::Members;
use tidegate_cluster::slots::{GroupSlot, PerGroup};
use tidegate_raft::replica::{Message, StepError, Term, wire};
use tidegate_raft::store::Store;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::AccountLimits;

use self::in_group::InGroup;
use super::peers::{PeerEvent, Peers};
use crate::cost::{Work, spend};
use crate::event_loop::errors::RunError;
use crate::sessions::Node;
use crate::streams::directory::tags::NodeTags;

/// The interval of the groups' ticks, by which Raft measures time. A member stands for election after ten
/// ticks without a leader.
const TICK: Duration = Duration::from_millis(60);
/// The interval at which the loop updates the description of the cluster that clients see.
const LOOK: Duration = Duration::from_millis(250);
/// The time after a leader's heartbeat within which this node expects the entries that it lacks. Only after
/// this time does this node take the commit index that the leader's messages name for the group's commit
/// index.
const TOLD: Duration = Duration::from_millis(500);
/// The silence after which this node takes another node for absent. In this time a leader gets several
/// answers to its heartbeats.
const GONE: Duration = Duration::from_secs(2);

/// The Raft groups of this node, and the other nodes as this node knows them, by which the loop does its part
/// in the groups.
#[derive(Debug)]
pub(super) struct Replication {
    known: Known,
    /// All groups of the cluster, also groups without this node, for the directory.
    all: Vec<GroupOf>,
    /// The groups of which this node is a member, by their slots in the store and the node, which are equal.
    groups: PerGroup<InGroup>,
    /// The Raft term in which this node began again after it lost its disk and with it the votes of earlier
    /// terms; `None` if it has not lost its disk. The node neither votes nor leads until it has committed an
    /// entry of this term or a later one.
    rejoined: Option<Term>,
    tick_at: Time,
    look_at: Time,
}

/// The nodes of the cluster, and the times at which this node last heard from them, by which it sees which
/// nodes are there.
#[derive(Debug)]
struct Known {
    members: Members,
    cluster: String,
    me: u64,
    /// The time at which this node last got a message from each other node, by the node's id.
    heard: HashMap<u64, Time>,
    tags: Arc<NodeTags>,
    /// The prefix of tags that the operator sets: the nodes of one stream must have different tags with this
    /// prefix. Empty if the operator sets none.
    unique_tag: String,
}

impl Known {
    fn name(&self, id: u64) -> &str {
        self.members.name_of(id).unwrap_or("a stranger")
    }

    fn look_at_tags(&mut self, peers: &Peers) {
        let all = peers.roster().tags().map(|(id, tags)| (id, tags.to_vec()));
        let tags = NodeTags::new(all, &self.unique_tag);
        if tags != *self.tags {
            self.tags = Arc::new(tags);
        }
    }
}

impl Replication {
    /// Creates this node's part in the groups of the cluster; `None` until the cluster's members are fixed,
    /// because the groups follow from them. `shards` is the number of groups of all nodes.
    pub(super) fn new(
        peers: &Peers,
        shards: u32,
        limits: AccountLimits,
        unique_tag: &str,
        now: Time,
    ) -> Option<Self> {
        let members = peers.formed()?.clone();
        let me = peers.id();
        let all = groups(members.ids(), shards);
        let of_mine = all.iter().filter(|g| g.members.contains(&me));
        let of_mine: PerGroup<&GroupOf> = of_mine.collect();
        let groups = of_mine.with_slots();
        let groups = groups.map(|(at, of)| InGroup::new(at, (*of).clone(), limits, me));
        Some(Self {
            known: Known {
                members,
                cluster: peers.roster().me().cluster.clone(),
                me,
                heard: HashMap::new(),
                tags: Arc::default(),
                unique_tag: unique_tag.to_owned(),
            },
            groups: groups.collect(),
            all,
            rejoined: peers.rejoined().map(Term::new),
            tick_at: now,
            look_at: now,
        })
    }

    /// Returns the id that this node has in its Raft groups, by which members name each other.
    pub(super) const fn id(&self) -> u64 {
        self.known.me
    }

    /// Returns the Raft term in which this node began again after it lost its disk; `None` if it has not lost
    /// its disk. The node neither votes nor leads until it has committed an entry of this term or a later
    /// one.
    pub(super) const fn rejoined(&self) -> Option<Term> {
        self.rejoined
    }

    /// Returns the groups of which this node is a member, so that the store opens them.
    pub(super) fn groups(&self) -> Vec<GroupOf> {
        self.groups.iter().map(|g| g.of.clone()).collect()
    }

    /// Returns all groups of the cluster, also groups without this node, for the directory.
    pub(super) fn all_groups(&self) -> Vec<GroupOf> {
        self.all.clone()
    }

    pub(super) fn deadline(&self) -> Time {
        let waits = self.groups.iter().map(|g| g.taking_over.deadline());
        let times = waits.chain([self.tick_at, self.look_at]);
        times.min().unwrap_or(Time::NEVER)
    }

    /// Does the groups' input of a turn: hands the messages of other nodes to the groups in the store, and
    /// ticks the groups when that is due.
    ///
    /// # Errors
    /// This node has lost log entries that other nodes count on.
    pub(super) fn receive(
        &mut self,
        now: Time,
        store: &mut Store,
        peers: &mut Peers,
    ) -> Result<(), RunError> {
        while let Some(event) = peers.poll_event() {
            if let PeerEvent::Down(id) = event {
                self.known.heard.remove(&id);
                store.report_unreachable(id);
            }
        }
        while let Some(received) = peers.poll_raft() {
            self.known.heard.insert(received.from, now);
            self.take(now, store, received.from, &received.payload)?;
        }
        while let Some(received) = peers.poll_fetch() {
            let of = |g: &&mut InGroup| g.of.number == received.group;
            match self.groups.iter_mut().find(of) {
                Some(group) => {
                    let taking_over = &mut group.taking_over;
                    taking_over.receive(now, store, received.from, &received.payload);
                }
                None => self.refuse(received.from, received.group),
            }
        }
        if self.tick_at <= now {
            // The loop ticks the groups only once, however late it is, because a delayed loop has not read
            // the other nodes' messages in the meantime, so their silence proves nothing.
            self.tick_at = now + TICK;
            spend(Work::Tick, self.groups.len() as u64);
            store.tick();
        }
        Ok(())
    }

    fn refuse(&self, from: u64, group: GroupId) {
        tracing::warn!(
            "this node ignores a message from {} for the Raft group {group}, because the two nodes are not both members of that group: give all nodes the same `shards`",
            self.known.name(from)
        );
    }

    fn take(
        &mut self,
        now: Time,
        store: &mut Store,
        from: u64,
        bytes: &Bytes,
    ) -> Result<(), RunError> {
        spend(Work::RaftMessage, 1);
        let (number, message) = match wire::decode(bytes) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::warn!(
                    "this node cannot decode a Raft message from {}, and ignores the message: {error}",
                    self.known.name(from)
                );
                return Ok(());
            }
        };
        if message.from != from {
            tracing::warn!(
                "this node ignores a message from {}, because the message names another node as its sender",
                self.known.name(from)
            );
            return Ok(());
        }
        let of = |g: &&mut InGroup| g.of.number == number;
        match self.groups.iter_mut().find(of) {
            Some(group) if group.of.members.contains(&from) => group.hear(now, &message),
            _ => {
                self.refuse(from, number);
                return Ok(());
            }
        }
        match store.step(number, message) {
            Ok(()) => Ok(()),
            Err(forgotten @ StepError::Forgotten { .. }) => Err(RunError::Forgotten(forgotten)),
            Err(error) => {
                tracing::debug!(
                    "this node ignores a Raft message from {}, because it cannot process the message: {error}",
                    self.known.name(from)
                );
                Ok(())
            }
        }
    }

    /// Asks other nodes for the messages in a damaged record of the log, which belong to the group in slot
    /// `at`. Returns whether another node may still send at least one of these messages.
    pub(super) fn mend(&mut self, now: Time, at: GroupSlot, node: &Node, lsn: u64) -> bool {
        let (Some(group), Some(streams)) = (self.groups.get_mut(at), node.streams(at)) else {
            return false;
        };
        group.taking_over.mend(now, streams.applied(), lsn)
    }

    /// Asks other nodes for one damaged message of the group in slot `at`. Returns false if no other node can
    /// send it, because all other members lack it or there are none.
    pub(super) fn mend_one(
        &mut self,
        now: Time,
        at: GroupSlot,
        stream: StreamNumber,
        seq: StreamSeq,
    ) -> bool {
        let group = self.groups.get_mut(at);
        group.is_some_and(|g| g.taking_over.mend_one(now, stream, seq))
    }

    /// Does one turn's work of the transfers of state for all groups: to this node if it lacks state, and to
    /// other nodes that ask.
    pub(super) fn take_over(
        &mut self,
        now: Time,
        node: &mut Node,
        store: &mut Store,
        peers: &mut Peers,
    ) {
        for group in &mut self.groups {
            group.taking_over.turn(now, node, store, peers);
        }
    }

    /// Carries out the handovers of leadership that are due, and then sends the groups' Raft messages, which
    /// the turn has caused, to the other nodes.
    pub(super) fn send(
        &mut self,
        now: Time,
        node: &mut Node,
        store: &mut Store,
        peers: &mut Peers,
    ) {
        for group in &mut self.groups {
            group.hand_over(now, node, store, &self.known);
        }
        peers.set_vouched_term(self.vouched_term(store).map(Term::get));
        for at in self.groups.slots() {
            let number = self.groups[at].of.number;
            while let Some((to, message)) = store.poll_message(at) {
                self.send_one(number, to, &message, peers);
            }
        }
    }

    /// Returns the highest term in which this node has been, in any of its groups with other nodes. A node
    /// that lost its disk asks for this term. Returns `None` while this node does not know the term, because
    /// it has itself lost its disk.
    fn vouched_term(&self, store: &Store) -> Option<Term> {
        let terms = self.among_others().map(|at| store.group(at).vouched_term());
        terms.collect::<Option<Vec<Term>>>()?.into_iter().max()
    }

    /// Returns whether this node durably has each entry that it may ever have acknowledged, in all groups
    /// that it shares with other nodes. Only a node that lost its disk may lack such entries, and it does not
    /// vote until then.
    fn is_whole(&self, store: &Store) -> bool {
        self.among_others().all(|at| store.group(at).is_whole())
    }

    fn among_others(&self) -> impl Iterator<Item = GroupSlot> {
        let groups = self.groups.with_slots();
        groups.filter_map(|(at, g)| (g.of.members.len() > 1).then_some(at))
    }

    fn send_one(&self, group: GroupId, to: u64, message: &Message, peers: &mut Peers) {
        spend(Work::RaftMessage, 1);
        match wire::encode(group, message) {
            Ok(parts) => {
                // A failed send does no harm: Raft takes the dropped message for a message that the network
                // lost, and sends it again.
                let _ = peers.send_raft(to, group, &parts);
            }
            Err(error) => tracing::error!(
                "this node cannot encode a Raft message to {}, and does not send the message: {error}",
                self.known.name(to)
            ),
        }
    }

    /// Tells the streams of each group whether this node leads, so that they serve or stop serving clients,
    /// and updates the description of the cluster that clients see.
    pub(super) fn look(
        &mut self,
        now: Time,
        node: &mut Node,
        store: &mut Store,
        peers: &mut Peers,
    ) {
        node.announce_full(self.known.me, !store.has_room_for_leaders());
        for group in &mut self.groups {
            if group.look(now, node, store, &self.known) {
                self.look_at = now;
            }
        }
        if let Some(directory) = self.groups.get(GroupSlot::DIRECTORY) {
            directory.look_whether_current(now, node, store);
        }
        if node.take_heard_of_full() {
            for group in &self.groups {
                group.look_for_room(now, node, &self.known);
            }
        }
        if self.look_at <= now {
            self.look_at = now + LOOK;
            if peers.rejoined().is_some() && self.is_whole(store) {
                peers.handle_whole();
            }
            self.known.look_at_tags(peers);
            for group in &mut self.groups {
                group.look_for_room(now, node, &self.known);
                group.show(now, node, store, &self.known);
            }
        }
        node.announce_streams();
    }

    /// Begins to hand the leadership of all groups to the most advanced other members, because this node
    /// stops. Makes the streams propose the consumers' states first.
    pub(super) fn begin_hand_over(&mut self, now: Time, node: &mut Node) {
        for group in &mut self.groups {
            group.begin_hand_over(now, node, None);
        }
    }
}
