//! Carries messages between the leaders of groups, and looks up which peer leads a group or serves a stream.
//!
//! A leader announces the subject `$TG.GROUP.<number>` to its peers, so a node takes the peer that subscribes
//! to this subject for the leader of the group. Messages at `$TG.>` go only from node to node: no client's
//! message with such a subject reaches a leader, and no client receives a message with one. The node does not
//! take a client that subscribes to such a subject for a leader.

use tidegate::Time;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::slots::GroupSlot;
use tidegate_cluster::wire::Routed;
use tidegate_nats::parse::Publish;
use tidegate_nats::sublist::Matches;

use super::Node;
use super::slots::Inner;
use crate::streams::JetStream;
use crate::streams::directory::leader_message::{
    FULL, LeaderMessage, PREFIX, STREAM, group_at, subject_of_full, subject_of_group,
};

impl Node {
    /// Returns whether only leaders may send and receive messages of this subject, so that the node keeps
    /// clients away from it.
    pub(super) fn is_leaders_own(&self, subject: &[u8]) -> bool {
        subject.starts_with(PREFIX) && self.peers.is_some()
    }

    /// Finds the slot of the peer that leads the group, as far as this node knows, so that the node can send
    /// it messages.
    pub(super) fn peer_that_leads(&mut self, group: GroupId) -> Option<PeerSlot> {
        let subject = subject_of_group(group);
        self.peers_at(subject.as_bytes()).last().copied()
    }

    /// Finds the slot of the peer that serves the stream of this name, as far as this node knows, so that the
    /// node can hand it requests.
    pub(super) fn peer_that_serves(&mut self, name: &str) -> Option<PeerSlot> {
        self.name.clear();
        self.name.extend_from_slice(STREAM.as_bytes());
        self.name.extend_from_slice(name.as_bytes());
        let plain = &self.sublist.matches(&self.name).plain;
        let subs = plain.iter().map(|key| &self.subs[*key as usize]);
        let mut exact = subs.filter(|sub| *sub.pattern == *self.name);
        let peers = self.peers.as_deref()?;
        exact.find_map(|sub| peers.valid(sub))
    }

    /// Announces to the peers that this node, which has the id `id`, has no disk space for messages, or
    /// withdraws that announcement, so that directory leaders place no stream here. Does nothing if `full`
    /// has not changed.
    pub(crate) fn announce_full(&mut self, id: u64, full: bool) {
        let full = full.then_some(id);
        if std::mem::replace(&mut self.full, full) == full {
            return;
        }
        let subject = subject_of_full(id);
        match full {
            Some(_) => self.announce([subject.as_bytes()]),
            None => self.withdraw([subject.as_bytes()]),
        }
    }

    /// Returns whether this node has no disk space for messages, which it has announced to its peers.
    pub(crate) const fn has_no_room(&self) -> bool {
        self.full.is_some()
    }

    /// Notes an announcement of a peer if it says that a node has no disk space, so that the leaders on this
    /// node learn of it at once.
    pub(super) fn note_if_full(&mut self, subject: &[u8]) {
        self.heard_of_full |= subject.starts_with(FULL.as_bytes());
    }

    /// Returns whether a peer has announced since the last call that a node has no disk space for messages.
    pub(crate) const fn take_heard_of_full(&mut self) -> bool {
        std::mem::replace(&mut self.heard_of_full, false)
    }

    /// Returns whether the node with this id has announced that it has no disk space for messages. The id may
    /// be this node's own.
    pub(crate) fn is_full(&self, id: u64) -> bool {
        self.full == Some(id) || self.peer_at(subject_of_full(id).as_bytes()).is_some()
    }

    /// Sends a message of the streams in slot `from` to the leader of `group`. If this node leads `group` in
    /// another slot, the streams there get the message as an event, because a node has no channel to itself.
    pub(super) fn tell_leader(
        &mut self,
        now: Time,
        from: GroupSlot,
        group: GroupId,
        reply: Option<Box<[u8]>>,
        told: LeaderMessage,
    ) {
        if self.serving(group).is_some_and(|at| at != from) {
            return self
                .inner
                .push_back(Inner::LeaderMessage { group, reply, told });
        }
        let subject = subject_of_group(group);
        let mut to = self.peers_at(subject.as_bytes());
        if reply.is_some() {
            // The leader must answer this message. So the message goes to one peer only, even while this node
            // still takes a former leader for the leader, too.
            to.drain(..to.len().saturating_sub(1));
        }
        let (Some(peers), Some(payload)) = (&mut self.peers, told.encode()) else {
            return;
        };
        let message = Publish {
            subject: subject.as_bytes(),
            reply: reply.as_deref(),
            headers: None,
            payload: &payload,
        };
        let (size, max) = (message.size(), self.settings.max_pending);
        for slot in to {
            peers.choose(now, slot, None, size, max);
        }
        let routed = Routed {
            plain: false,
            groups: &[],
            asks: false,
            handed: false,
            passed: 0,
            to: None,
            message,
        };
        peers.send(routed, false);
    }

    /// Handles a message that the leader of a group sent from another node, by giving the message to the
    /// streams of the addressed group, which answer it.
    pub(super) fn handle_leader_message(&mut self, now: Time, message: &Publish<'_>) {
        let at = group_at(message.subject).and_then(|group| self.slot_of_group(group));
        let (Some(at), Some(told)) = (at, LeaderMessage::decode(message.payload)) else {
            return;
        };
        self.with_streams(now, at, |streams, cx| {
            streams.handle_leader_message(cx, now, message.reply, told);
        });
    }

    /// Returns the slot of this group if this node leads the group, so that messages for the leader stay
    /// here.
    fn serving(&self, group: GroupId) -> Option<GroupSlot> {
        let at = self.slot_of_group(group)?;
        self.streams(at)
            .is_some_and(JetStream::serves)
            .then_some(at)
    }

    /// Returns the slot of a peer that subscribes to exactly this subject. If several peers do, prefers a
    /// peer to which this node has an open channel, so that it can send messages there.
    pub(super) fn peer_at(&self, subject: &[u8]) -> Option<PeerSlot> {
        let mut scratch = Matches::default();
        let plain = &self.sublist.find(subject, &mut scratch).plain;
        let subs = plain.iter().map(|key| &self.subs[*key as usize]);
        let exact = subs.filter(|sub| *sub.pattern == *subject);
        let slots = exact.filter_map(|sub| self.peers.as_deref()?.valid(sub));
        slots.max_by_key(|slot| self.has_channel_to(*slot))
    }

    /// Returns whether this node has an open channel to the peer in this slot, on which it can send messages.
    pub(super) fn has_channel_to(&self, slot: PeerSlot) -> bool {
        let peers = self.peers.as_ref();
        peers.is_some_and(|peers| peers.pending(slot).is_some())
    }

    /// Finds the slots of the peers that subscribe to exactly this subject, which a peer subscribes to as an
    /// announcement.
    fn peers_at(&mut self, subject: &[u8]) -> Vec<PeerSlot> {
        let found = self.sublist.matches(subject);
        let subs = found.plain.iter().map(|key| &self.subs[*key as usize]);
        let exact = subs.filter(|sub| *sub.pattern == *subject);
        let peers = self.peers.as_deref();
        let slots = exact.filter_map(|sub| peers?.valid(sub));
        slots.collect()
    }
}
