//! Which member of a queue group gets a message: any of the cluster's, each as likely as the others.
//!
//! Where a message is published the choice is among the members here and the nodes that have some, by their
//! numbers. The node that was chosen gives it to one of its own. If they have all gone meanwhile, or none may
//! have it, it passes the message on by what it knows, which is newer; and if nobody is left and the
//! publisher asked for it, it says so in that node's place.

use tidegate::Time;

use super::Node;
use super::fanout::Fanout;
use super::peers::slot_of;
use crate::cluster::wire::ids;
use crate::nats::parse::Publish;
use crate::nats::sublist::{Matches, Members, SubKey};

/// So many nodes pass a message on at most, each because the members it was sent for had just gone.
pub(super) const PASSED_MAX: u8 = 8;

impl Fanout<'_, '_> {
    /// A copy for one member of each queue group; of what came from a peer, of those it names.
    pub(super) fn deliver_to_groups(&mut self, matches: &Matches, random: &mut u64) -> bool {
        let mut delivered = false;
        let mut served = 0;
        for group in matches.groups() {
            if self.serves(&group) {
                served += 1;
                delivered |= self.deliver_to_one(&group, next(random));
            }
        }
        let named = self.came.map_or(&[][..], |came| came.groups);
        if ids(named).count() > served {
            // The members it was for were the last ones here.
            for id in ids(named) {
                let gone = matches.groups().find(|group| self.has_ended(id, group));
                delivered |= gone.is_some_and(|group| self.deliver_to_one(&group, next(random)));
            }
        }
        delivered
    }

    /// A copy for one member: a random one, or the next that may have it. What came from a peer is for those
    /// here, and is passed on only if none of them takes it.
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

    /// One of these peers is to get it for its members: the one that has the member `at`, or the next that
    /// can be told anything.
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
            let slot = slot_of(self.subs[*sub as usize].conn);
            slot.is_some_and(|slot| self.choose(slot, *sub, true))
        })
    }

    fn members(&self, sub: SubKey) -> u64 {
        self.subs[sub as usize].members.into()
    }

    /// Returns whether the queue group is one that this node is to serve, as far as that is known by its
    /// members here.
    fn serves(&self, group: &Members<'_>) -> bool {
        let Some(came) = self.came else { return true };
        let mut here = group.single.iter().map(|sub| &self.subs[*sub as usize]);
        here.next().is_some_and(|sub| came.serves(sub.interest))
    }

    /// Returns whether the queue group is the one that peers knew by this id, which has ended.
    fn has_ended(&self, id: u64, group: &Members<'_>) -> bool {
        let ended = self.peers.as_ref().and_then(|p| p.wanted.ended(id));
        let some = group.single.first().or_else(|| group.many.first());
        let some = some.map(|sub| &self.subs[*sub as usize]);
        ended.zip(some).is_some_and(|((pattern, queue), sub)| {
            *sub.pattern == *pattern && sub.queue.as_deref() == Some(queue)
        })
    }
}

impl Node {
    /// Returns whether the publisher wants to know if nobody is there.
    pub(super) fn wants_to_know(&self, from: usize, message: &Publish<'_>) -> bool {
        let client = self.entries.get(from).filter(|_| message.reply.is_some());
        client.is_some_and(|entry| entry.session.options.no_responders)
    }

    /// Returns whether a publisher who wants to know if nobody is there may have to be told by another node,
    /// for a queue group.
    pub(super) fn asks(&mut self, to: &[u8], message: &Publish<'_>) -> bool {
        // Of what is asked of streams whoever is handed it tells that.
        if self.peers.is_none() || !self.is_published(to) {
            return false;
        }
        let grouped = |group: Members<'_>| !group.many.is_empty();
        self.sublist.matches(to).groups().any(grouped)
            && !self.all_streams().any(|s| s.collects(message.subject))
    }

    /// Tells a requester at another node that nobody is there, since where it asked somebody seemed to be.
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

/// The next random number (xorshift).
const fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}
