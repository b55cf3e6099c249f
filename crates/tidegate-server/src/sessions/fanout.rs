//! Delivers one message to its receivers: the hot path of the node.
//!
//! Owns the choice of the receivers and of the form of each copy. It only marks the work that the
//! node does afterwards (subscriptions that reached their maximum, receivers that are too slow):
//! the sublist is borrowed while it runs.

use tidegate::Time;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::wire::{InterestId, PASSED_MAX, Routed};
use tidegate_nats::collections::ChunkedSlab;
use tidegate_nats::op::Delivery;
use tidegate_nats::outbox::Pool;
use tidegate_nats::parse::Publish;
use tidegate_nats::session::{CloseReason, Session};
use tidegate_nats::sublist::{Matches, SubKey};

use super::dirty::Dirty;
use super::routes::Peers;
use crate::party::{ClientKey, Party, PerClient};

/// A connection as the node sees it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) session: Session,
    /// True if the node's list of connections with bytes to write contains this connection.
    pub(super) dirty: bool,
    /// The publishers that paused because this connection is behind.
    pub(super) waiters: Vec<Party>,
    /// The reason why the connection ends, while it closes.
    pub(super) reason: CloseReason,
    /// A message that it published is on its way to many receivers.
    pub(super) spreading: bool,
    /// The number of its subscriptions when it began to close.
    pub(super) subscriptions: usize,
    /// The node still removes its subscriptions.
    pub(super) leaving: bool,
    /// The connection has ended.
    pub(super) gone: bool,
    /// The driver has dropped the connection's socket.
    pub(super) dropped: bool,
}

impl Entry {
    pub(super) const fn new(session: Session) -> Self {
        Self {
            session,
            dirty: false,
            waiters: Vec::new(),
            reason: CloseReason::ClientClosed,
            spreading: false,
            subscriptions: 0,
            leaving: false,
            gone: false,
            dropped: false,
        }
    }

    /// Returns whether the node takes input from the client now.
    pub(super) fn reads(&self) -> bool {
        !self.spreading && self.session.reads()
    }
}

/// A subscription, of a client or of a peer.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) owner: Party,
    pub(super) sid: Box<[u8]>,
    pub(super) pattern: Box<[u8]>,
    pub(super) queue: Option<Box<[u8]>>,
    /// For a client, the id by which peers know all subscriptions with this pattern and queue group. A peer's
    /// subscription has the peer's id as `sid`.
    pub(super) interest: InterestId,
    /// The number of subscriptions that the node made before it. A later subscription may get the same key.
    pub(super) number: u64,
    /// For a peer, the number of members that listen there.
    pub(super) members: u32,
    /// Permissions deny part of the subjects that the pattern matches.
    pub(super) filtered: bool,
    pub(super) delivered: u64,
    /// The number of messages after which the subscription ends; 0: never.
    pub(super) max: u64,
}

/// The publisher of a message and its wishes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    /// `None` for a message of the node itself.
    pub(super) from: Option<Party>,
    /// The publisher gets its own messages, too.
    pub(super) echo: bool,
    /// The publisher wants to know if there are no responders, and no stream takes the message.
    pub(super) asks: bool,
    /// The publisher wants to know if there are no responders.
    pub(super) wants: bool,
}

/// The receivers that a message has reached so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// The subscriptions outside of queue groups that had their turn.
    plain: usize,
    /// The queue groups that had their turn, and those of them that got the message.
    groups: usize,
    served: usize,
    /// A client or a peer got the message.
    pub(super) any: bool,
}

/// One message during its delivery.
pub(super) struct Fanout<'a, 'm> {
    pub(super) now: Time,
    pub(super) sender: Sender,
    /// Only subscriptions with a smaller number get a copy.
    pub(super) before: u64,
    /// The subject that subscriptions are matched with: the message's own, except in deliveries of consumers.
    pub(super) to: &'a [u8],
    pub(super) message: &'a Publish<'m>,
    pub(super) max_pending: usize,
    pub(super) stall_bytes: usize,
    pub(super) whole: &'a mut Delivery,
    /// The message without headers, prepared once the first receiver needs this form.
    pub(super) bare: &'a mut Delivery,
    pub(super) bare_ready: bool,
    /// Several receivers outside of queue groups get a copy.
    pub(super) several: bool,
    pub(super) entries: &'a mut PerClient<Entry>,
    pub(super) subs: &'a mut ChunkedSlab<Subscription>,
    pub(super) peers: Option<&'a mut Peers>,
    /// The frame of the peer that sent the message, if a peer did.
    pub(super) came: Option<&'a Routed<'m>>,
    pub(super) pool: &'a mut Pool,
    pub(super) random: &'a mut u64,
    pub(super) dirty: &'a mut Dirty,
    pub(super) ended: &'a mut Vec<SubKey>,
    pub(super) slow: &'a mut Vec<ClientKey>,
    /// Copies made.
    pub(super) copies: u64,
    /// The backlog of the fullest receiver, with this message, in bytes.
    pub(super) pending_bytes: usize,
    /// A receiver with a large backlog.
    pub(super) behind: Option<Party>,
}

impl Fanout<'_, '_> {
    /// Delivers the message to at most `limit` further subscriptions or queue groups of `matches`. Returns
    /// whether it has reached all.
    #[inline]
    pub(super) fn deliver_part(
        &mut self,
        matches: &Matches,
        reached: &mut Reached,
        mut limit: usize,
    ) -> bool {
        self.several = matches.plain.len() > 1;
        if self.came.is_none_or(|came| came.plain) {
            let left = &matches.plain[reached.plain..];
            let part = &left[..left.len().min(limit)];
            for sub in part {
                reached.any |= self.deliver(*sub);
            }
            reached.plain += part.len();
            limit -= part.len();
            if part.len() < left.len() {
                return false;
            }
        }
        while reached.groups < matches.groups_len() {
            if limit == 0 {
                return false;
            }
            limit -= 1;
            let group = matches.group(reached.groups);
            reached.any |= self.deliver_to_group(&group, &mut reached.served);
            reached.groups += 1;
        }
        reached.any |= self.deliver_to_ended(matches, reached.served);
        true
    }

    /// Delivers a copy to this subscription, if it may have one.
    #[inline]
    pub(super) fn deliver(&mut self, key: SubKey) -> bool {
        let before = self.before;
        let sub = self.subs.get_mut(key as usize);
        let Some(sub) = sub.filter(|sub| sub.number < before) else {
            return false;
        };
        let client = match sub.owner {
            Party::Peer(slot) => {
                let number = sub.number;
                let peers = self.peers.as_ref();
                let void = peers.is_none_or(|peers| peers.is_void(slot, number));
                return !void && self.choose(slot, key, false);
            }
            Party::Client(client) => client,
        };
        if !self.sender.echo && self.sender.from == Some(sub.owner) {
            return false;
        }
        let entry = &mut self.entries[client];
        if entry.leaving {
            return false;
        }
        let session = &mut entry.session;
        if sub.filtered
            && let Some(permissions) = session.permissions()
            && !permissions.may_receive(self.to, sub.queue.as_deref())
        {
            return false;
        }
        let pending = session.out.len() + self.message.size();
        if pending > self.stall_bytes {
            if pending > self.max_pending {
                self.slow.push(client);
                return false;
            }
            self.behind = Some(sub.owner);
        }
        self.pending_bytes = self.pending_bytes.max(pending);
        if session.out.wants_chunk() {
            session.out.give_chunk(self.pool.get());
        }
        if self.message.headers.is_none() || session.options.headers {
            let headers = self.message.header_block();
            self.whole.write_copy(
                &mut session.out,
                &sub.sid,
                headers,
                self.message.payload,
                self.several,
            );
        } else {
            if !std::mem::replace(&mut self.bare_ready, true) {
                self.bare.prepare(self.message, false);
            }
            self.bare.write_copy(
                &mut session.out,
                &sub.sid,
                b"",
                self.message.payload,
                self.several,
            );
        }
        session.may_answer(self.now, self.message.reply);
        session.traffic.out_msgs += 1;
        session.traffic.out_bytes += self.message.size() as u64;
        self.copies += 1;
        sub.delivered += 1;
        if sub.delivered == sub.max {
            self.ended.push(key);
        }
        if !std::mem::replace(&mut entry.dirty, true) {
            self.dirty.push(client, pending);
        }
        true
    }

    /// Returns the subscription, if it was there when the message was published and still is.
    pub(super) fn sub(&self, key: SubKey) -> Option<&Subscription> {
        let sub = self.subs.get(key as usize);
        let sub = sub.filter(|sub| sub.number < self.before)?;
        let void = match (sub.owner, &self.peers) {
            (Party::Peer(slot), Some(peers)) => peers.is_void(slot, sub.number),
            _ => false,
        };
        (!void).then_some(sub)
    }

    /// Chooses the peer in this slot for its subscription `key`. A message from one peer goes to
    /// another only for a queue group.
    pub(super) fn choose(&mut self, slot: PeerSlot, key: SubKey, grouped: bool) -> bool {
        let may = self
            .came
            .is_none_or(|came| grouped && came.passed < PASSED_MAX);
        let Some(peers) = self.peers.as_mut().filter(|_| may) else {
            return false;
        };
        let id = grouped.then(|| &*self.subs[key as usize].sid);
        let chosen = peers.choose(self.now, slot, id, self.message.size(), self.max_pending);
        let Some(pending) = chosen else { return false };
        if pending > self.stall_bytes {
            self.behind = Some(Party::Peer(slot));
        }
        self.pending_bytes = self.pending_bytes.max(pending);
        true
    }

    /// Sends the message to the chosen peers and returns their number.
    pub(super) fn send_to_peers(&mut self) -> u64 {
        let (asks, wants) = (self.sender.asks && self.copies == 0, self.sender.wants);
        let Some(peers) = &mut self.peers else {
            return 0;
        };
        let routed = Routed {
            plain: false,
            groups: &[],
            asks,
            handed: false,
            passed: self.came.map_or(0, |came| came.passed.saturating_add(1)),
            to: (self.to != self.message.subject).then_some(self.to),
            message: *self.message,
        };
        peers.send(routed, wants)
    }
}
