//! Messages between the leaders of groups, and the lookup of leaders and of servers of streams.
//!
//! Messages at `$TG.>` go only from node to node: no client's message reaches a leader, no client
//! receives one, and the node does not take a client subscribed there for a leader.

use tidegate::Time;

use super::{Node, peers};
use crate::cluster::wire::Routed;
use crate::nats::parse::Publish;
use crate::node::jetstream::JetStream;
use crate::node::jetstream::told::{
    PREFIX, STREAM, Told, group_at, subject_of_full, subject_of_group,
};

impl Node {
    /// Returns whether only leaders may use this subject.
    pub(super) fn is_leaders_own(&self, subject: &[u8]) -> bool {
        subject.starts_with(PREFIX) && self.peers.is_some()
    }

    /// Returns whether the node knows a leader of the group, here or elsewhere.
    pub(in crate::node) fn is_led(&mut self, group: u32) -> bool {
        self.serving(group).is_some() || self.is_led_by_peer(group)
    }

    /// Returns whether the node knows a peer that leads the group.
    pub(in crate::node) fn is_led_by_peer(&mut self, group: u32) -> bool {
        self.leader_of(group).is_some()
    }

    /// The slot of a peer known to lead the group.
    pub(super) fn leader_of(&mut self, group: u32) -> Option<usize> {
        let subject = subject_of_group(group);
        self.peers_at(subject.as_bytes()).last().copied()
    }

    /// The slot of a peer known to serve the stream of this name.
    pub(in crate::node) fn server_of(&mut self, name: &str) -> Option<usize> {
        self.name.clear();
        self.name.extend_from_slice(STREAM.as_bytes());
        self.name.extend_from_slice(name.as_bytes());
        let plain = &self.sublist.matches(&self.name).plain;
        let subs = plain.iter().map(|key| &self.subs[*key as usize]);
        let mut exact = subs.filter(|sub| *sub.pattern == *self.name);
        exact.find_map(|sub| peers::slot_of(sub.conn))
    }

    /// Returns whether a peer is known to serve the stream.
    pub(in crate::node) fn is_served(&mut self, name: &str) -> bool {
        self.server_of(name).is_some()
    }

    /// Announces that this node, with this id, has no room for messages, or withdraws that; only on a change.
    pub(in crate::node) fn announce_full(&mut self, id: u64, full: bool) {
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

    /// Returns whether this node has no room for messages.
    pub(in crate::node) const fn has_no_room(&self) -> bool {
        self.full.is_some()
    }

    /// Returns whether a node, perhaps this one, is known to have no room for messages.
    pub(in crate::node) fn is_full(&mut self, id: u64) -> bool {
        self.full == Some(id) || !self.peers_at(subject_of_full(id).as_bytes()).is_empty()
    }

    /// Sends a message to the leader of the group. Returns whether a leader is known.
    pub(in crate::node) fn tell_group(
        &mut self,
        now: Time,
        group: u32,
        reply: Option<&[u8]>,
        told: Told,
    ) -> bool {
        if let Some(at) = self.serving(group) {
            self.with_streams(at, |streams, node| {
                streams.handle_told(node, now, reply, told);
            });
            return true;
        }
        let subject = subject_of_group(group);
        let mut to = self.peers_at(subject.as_bytes());
        if reply.is_some() {
            // Only one node answers a request, even while this node still takes a former leader for one.
            to.drain(..to.len().saturating_sub(1));
        }
        let (Some(peers), Some(payload)) = (&mut self.peers, told.encode()) else {
            return false;
        };
        let message = Publish {
            subject: subject.as_bytes(),
            reply,
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
        peers.send(routed, false) > 0
    }

    /// Handles a message from the leader at another node.
    pub(super) fn handle_told(&mut self, now: Time, message: &Publish<'_>) {
        let at = group_at(message.subject).and_then(|group| self.slot_of_group(group));
        let (Some(at), Some(told)) = (at, Told::decode(message.payload)) else {
            return;
        };
        self.with_streams(at, |streams, node| {
            streams.handle_told(node, now, message.reply, told);
        });
    }

    /// The slot that has the stream with this number in the directory open.
    pub(in crate::node) fn slot_open(&self, stream: u32) -> Option<usize> {
        (1..self.streams_len()).find(|at| self.streams(*at).is_some_and(|s| s.is_open(stream)))
    }

    /// The slot of the group, if this node leads it.
    fn serving(&self, group: u32) -> Option<usize> {
        let at = self.slot_of_group(group)?;
        self.streams(at)
            .is_some_and(JetStream::serves)
            .then_some(at)
    }

    /// The slots of the peers that subscribe to exactly this subject.
    fn peers_at(&mut self, subject: &[u8]) -> Vec<usize> {
        let found = self.sublist.matches(subject);
        let subs = found.plain.iter().map(|key| &self.subs[*key as usize]);
        let exact = subs.filter(|sub| *sub.pattern == *subject);
        exact.filter_map(|sub| peers::slot_of(sub.conn)).collect()
    }
}
