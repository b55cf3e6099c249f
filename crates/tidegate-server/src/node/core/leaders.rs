//! What leaders of groups say to each other, and how it is known who leads and who serves.
//!
//! Messages at `$TG.>` go from node to node only: no client's reaches a leader, none is given to a client,
//! and no client that listens there is taken for a leader.

use tidegate::Time;

use super::{Node, peers};
use crate::cluster::wire::Routed;
use crate::nats::parse::Publish;
use crate::node::jetstream::JetStream;
use crate::node::jetstream::told::{
    PREFIX, STREAM, Told, group_at, subject_of_full, subject_of_group,
};

impl Node {
    /// Returns whether this subject is the leaders' own.
    pub(super) fn is_leaders_own(&self, subject: &[u8]) -> bool {
        subject.starts_with(PREFIX) && self.peers.is_some()
    }

    /// Whether somebody is known to lead the group, here or elsewhere.
    pub(in crate::node) fn is_led(&mut self, group: u32) -> bool {
        self.serving(group).is_some() || self.is_led_by_peer(group)
    }

    /// Whether another node is known to lead the group.
    pub(in crate::node) fn is_led_by_peer(&mut self, group: u32) -> bool {
        self.leader_of(group).is_some()
    }

    /// A peer that is known to lead the group.
    pub(super) fn leader_of(&mut self, group: u32) -> Option<usize> {
        let subject = subject_of_group(group);
        self.peers_at(subject.as_bytes()).last().copied()
    }

    /// A peer that is known to serve the stream of this name.
    pub(in crate::node) fn server_of(&mut self, name: &str) -> Option<usize> {
        self.name.clear();
        self.name.extend_from_slice(STREAM.as_bytes());
        self.name.extend_from_slice(name.as_bytes());
        let plain = &self.sublist.matches(&self.name).plain;
        let subs = plain.iter().map(|key| &self.subs[*key as usize]);
        let mut exact = subs.filter(|sub| *sub.pattern == *self.name);
        exact.find_map(|sub| peers::slot_of(sub.conn))
    }

    /// Whether there is one.
    pub(in crate::node) fn is_served(&mut self, name: &str) -> bool {
        self.server_of(name).is_some()
    }

    /// This node, whose id this is, has no room for messages, or has some again: the others are told, if that
    /// is news.
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

    /// Whether this node has no room for messages.
    pub(in crate::node) const fn has_no_room(&self) -> bool {
        self.full.is_some()
    }

    /// Whether a node, perhaps this one, is known to have no room for messages.
    pub(in crate::node) fn is_full(&mut self, id: u64) -> bool {
        self.full == Some(id) || !self.peers_at(subject_of_full(id).as_bytes()).is_empty()
    }

    /// Says something to whoever leads the group; whether somebody is known to.
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
            // Whoever waits there is answered once, even while one that leads no more is not known for that
            // yet.
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

    /// Another node's leader said something.
    pub(super) fn handle_told(&mut self, now: Time, message: &Publish<'_>) {
        let at = group_at(message.subject).and_then(|group| self.slot_of_group(group));
        let (Some(at), Some(told)) = (at, Told::decode(message.payload)) else {
            return;
        };
        self.with_streams(at, |streams, node| {
            streams.handle_told(node, now, message.reply, told);
        });
    }

    /// The slot in which the stream with this number in the directory is open.
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

    /// The peers that listen at just this subject.
    fn peers_at(&mut self, subject: &[u8]) -> Vec<usize> {
        let found = self.sublist.matches(subject);
        let subs = found.plain.iter().map(|key| &self.subs[*key as usize]);
        let exact = subs.filter(|sub| *sub.pattern == *subject);
        exact.filter_map(|sub| peers::slot_of(sub.conn)).collect()
    }
}
