//! Chooses the member of a queue group that gets a message: any member in the cluster, each with equal
//! probability. Members that subscribe with different patterns and one group name belong to one group, as in
//! nats-server.
//!
//! The publisher's node chooses among its own members and the peers that have members, weighted by the peers'
//! numbers of members. A chosen peer delivers the message to one of its own members. If these members have
//! all gone in the meantime, or none of them may have the message, the peer passes the message on, by its
//! own, newer knowledge. If no member is left and the publisher asked for it, the peer sends the status `no
//! responders` in place of the publisher's node.

use tidegate::Time;
use tidegate_cluster::wire::{InterestId, ids};
use tidegate_nats::parse::Publish;
use tidegate_nats::sublist::{Matches, Members, SubKey};

use super::Node;
use super::fanout::Fanout;
use crate::party::Party;

impl Fanout<'_, '_> {
    /// Delivers a copy to one member of a queue group. A message from a peer goes only to groups that the
    /// peer's frame names. Counts each group to which the message goes in `served`. Returns whether a member
    /// got the message.
    pub(super) fn deliver_to_group(&mut self, group: &Members<'_>, served: &mut usize) -> bool {
        if !self.serves(group) {
            return false;
        }
        *served += 1;
        let random = next(self.random);
        self.deliver_to_one(group, random)
    }

    /// Delivers a peer's message to those queue groups that its frame names and that no longer have members
    /// here under the named pattern, so that the groups do not lose the message. `served` is the number of
    /// groups that the delivery has found by their members. Returns whether a member got the message.
    pub(super) fn deliver_to_ended(&mut self, matches: &Matches, served: usize) -> bool {
        let named = self.came.map_or(&[][..], |came| came.groups);
        if ids(named).count() <= served {
            return false;
        }
        // The peer's frame names more queue groups than the delivery has found, so at least one named pattern
        // has lost its last member here since the peer sent the frame.
        let wanted = self.peers.as_ref().map(|peers| &peers.wanted);
        let ended = wanted.into_iter().flat_map(|wanted| wanted.all_ended());
        let gone = ended.filter(|(id, _)| self.is_named(*id));
        let gone = gone.filter_map(|(_, queue)| {
            let mut groups = matches.groups();
            groups.position(|group| self.queue_of(&group) == Some(queue))
        });
        let gone: Vec<usize> = gone.collect();
        let mut delivered = false;
        for at in gone {
            let random = next(self.random);
            delivered |= self.deliver_to_one(&matches.group(at), random);
        }
        delivered
    }

    /// Delivers a copy to one member of the queue group, because the members share the messages: a random
    /// member, or the next member that may have the message. The node gives a peer's message to a member on
    /// this node, and passes it on to another peer only if no member here takes it.
    fn deliver_to_one(&mut self, group: &Members<'_>, random: u64) -> bool {
        let random = random >> 16;
        let single = group.single.len() as u64;
        let many: u64 = group.many.iter().map(|sub| self.members(*sub)).sum();
        let at = match self.came {
            None => random % (single + many).max(1),
            Some(_) => random % single.max(1),
        };
        let here = |fanout: &mut Self| {
            let (before, after) = group.single.split_at(at.min(single) as usize);
            let mut all = after.iter().chain(before);
            all.any(|sub| fanout.deliver(*sub))
        };
        if at < single {
            return here(self) || self.choose_one(group.many, random % many.max(1));
        }
        self.choose_one(group.many, at - single) || here(self)
    }

    /// Sends the message to one of the peers that have members of a queue group, because the choice fell on a
    /// member there: to the peer that has the member with the number `at`, or to the next peer with an open
    /// channel if that peer has none.
    fn choose_one(&mut self, many: &[SubKey], mut at: u64) -> bool {
        let mut first = 0;
        for (i, sub) in many.iter().enumerate() {
            let members = self.members(*sub);
            if at < members {
                first = i;
                break;
            }
            at -= members;
        }
        let (before, after) = many.split_at(first);
        let mut all = after.iter().chain(before);
        all.any(|sub| {
            let slot = self.sub(*sub).and_then(|sub| sub.owner.peer());
            slot.is_some_and(|slot| self.choose(slot, *sub, true))
        })
    }

    fn members(&self, sub: SubKey) -> u64 {
        self.sub(sub).map_or(0, |sub| sub.members.into())
    }

    /// Returns whether this node must deliver the message to this queue group, judging by the group's members
    /// here. A peer's frame may name the group by any of its patterns.
    fn serves(&self, group: &Members<'_>) -> bool {
        if self.came.is_none() {
            return true;
        }
        let mut here = group.firsts.iter().filter_map(|sub| self.sub(*sub));
        here.any(|sub| self.is_named(sub.interest))
    }

    /// Returns whether a peer's frame names the queue group with this id.
    fn is_named(&self, id: InterestId) -> bool {
        let Some(came) = self.came else { return false };
        if !self.is_sorted {
            return came.serves(id);
        }
        let (all, _) = came.groups.as_chunks::<8>();
        all.binary_search_by_key(&id, |id| InterestId::from_le_bytes(*id))
            .is_ok()
    }

    /// Returns the name of a queue group, which all its members have.
    fn queue_of(&self, group: &Members<'_>) -> Option<&[u8]> {
        let some = group.single.first().or_else(|| group.many.first());
        self.sub(*some?)?.queue.as_deref()
    }
}

impl Node {
    /// Returns whether the publisher asked for the status `no responders` in its CONNECT and waits at a reply
    /// subject, so that the node must send it if no receiver gets the message.
    pub(super) fn wants_to_know(&self, from: Option<Party>, message: &Publish<'_>) -> bool {
        let client = from
            .and_then(Party::client)
            .filter(|_| message.reply.is_some());
        let client = client.and_then(|key| self.entries.get(key));
        client.is_some_and(|entry| entry.session.options.no_responders)
    }

    /// Returns whether this node must ask another node to send `no responders` to the publisher if need be,
    /// because a member of a queue group there may get the message.
    pub(super) fn asks(&mut self, to: &[u8], message: &Publish<'_>) -> bool {
        // If the message is a request to a stream, the node to which this node hands the request sends `no
        // responders`, so this node does not ask for the status.
        if self.peers.is_none() || !self.is_published(to) {
            return false;
        }
        self.sublist.matches_many(to) && !self.all_streams().any(|s| s.collects(message.subject))
    }

    /// Sends `no responders` to a requester at another node, because that node expected a responder on this
    /// node.
    pub(super) fn tell_nobody_is_there(&mut self, now: Time, message: &Publish<'_>) {
        let Some(reply) = message.reply else { return };
        let headers = [
            &b"NATS/1.0 503\r\nNats-Subject: "[..],
            message.subject,
            b"\r\n\r\n",
        ];
        let headers = headers.concat();
        let status = Publish {
            subject: reply,
            reply: None,
            headers: Some(&headers),
            payload: b"",
        };
        self.say(now, reply, &status);
    }
}

/// Draws the next pseudo-random number (xorshift), with which the node chooses a member.
const fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}
