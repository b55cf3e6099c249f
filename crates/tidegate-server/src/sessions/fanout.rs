//! Delivers one message to its receivers: the hot path of the node.
//!
//! A [`Fanout`] chooses the receivers and the form of each copy, with or without headers. It only lists the
//! work that the node must do afterwards (subscriptions that reached their maximum, receivers that are too
//! slow), because the sublist is borrowed during the delivery.

use tidegate::Time;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::wire::{InterestId, PASSED_MAX, Routed};
use tidegate_nats::collections::ChunkedSlab;
use tidegate_nats::op::Delivery;
use tidegate_nats::outbox::Pool;
use tidegate_nats::parse::Publish;
use tidegate_nats::session::{CloseReason, Session};
use tidegate_nats::sublist::{Matches, SubKey};
use tidegate_nats::system::outer;

use super::dirty::Dirty;
use super::routes::Peers;
use super::traces::Notes;
use crate::party::{ClientKey, Party, PerClient};

/// The number of copied bytes of a message that count as much as one receiver, because they take about as
/// long.
pub(super) const BYTES_A_RECEIVER: usize = 4096;

/// The node's state of one client connection, which outlives the session until the driver has dropped the
/// socket.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) session: Session,
    /// True if the connection is in the node's list of connections with bytes to write, so that the node
    /// lists it only once.
    pub(super) dirty: bool,
    /// The time at which the driver last wrote to the connection, by which the node measures
    /// acknowledgements.
    pub(super) written: Time,
    /// The publishers that the node has paused because this connection has a large backlog.
    pub(super) waiters: Vec<Party>,
    /// The reason why the connection closes, which the driver logs and the monitor shows; meaningless while
    /// the connection is open.
    pub(super) reason: CloseReason,
    /// True while a message from this client has reached only a part of its many receivers. The node then
    /// reads nothing from the client, so that the client's messages keep their order.
    pub(super) spreading: bool,
    /// The number of the client's subscriptions when the connection began to close, for the monitor.
    pub(super) subscriptions: usize,
    /// True while the node still removes subscriptions of the closed connection. The connection keeps its key
    /// until then, so that no other connection gets its subscriptions.
    pub(super) leaving: bool,
    /// True once the connection has ended. Its key stays in use until the driver has dropped the socket, so
    /// that the driver cannot confuse two connections.
    pub(super) gone: bool,
    /// True once the driver has dropped the connection's socket, so that the node may reuse the key.
    pub(super) dropped: bool,
}

impl Entry {
    pub(super) const fn new(session: Session) -> Self {
        Self {
            session,
            dirty: false,
            written: Time::ZERO,
            waiters: Vec::new(),
            reason: CloseReason::ClientClosed,
            spreading: false,
            subscriptions: 0,
            leaving: false,
            gone: false,
            dropped: false,
        }
    }

    /// Returns whether the node handles input from the client now, so that the driver may read from its
    /// socket.
    pub(super) fn reads(&self) -> bool {
        !self.spreading && self.session.reads()
    }
}

/// A subscription of a client or of a peer, through which the node delivers messages.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) owner: Party,
    pub(super) sid: Box<[u8]>,
    pub(super) pattern: Box<[u8]>,
    pub(super) queue: Option<Box<[u8]>>,
    /// For a client's subscription, the id by which peers know its pattern and queue group together. A peer's
    /// subscription has the peer's own id as `sid`.
    pub(super) interest: InterestId,
    /// The number of the subscription, counted over the life of the node. Unlike the key, no later
    /// subscription gets the number again, so that the node can tell a new subscription from an old one.
    pub(super) number: u64,
    /// For a peer's subscription to a queue group, the number of members that the group has at the peer;
    /// otherwise 1.
    pub(super) members: u32,
    /// True if the client's permissions deny a part of the subjects that the pattern matches, so that the
    /// node checks each message.
    pub(super) filtered: bool,
    pub(super) delivered: u64,
    /// The number of messages after which the subscription ends; 0 if it has no such maximum.
    pub(super) max: u64,
}

/// The publisher of a message, and the answers that the publisher wants from the node, by which the delivery
/// leaves it out or tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    /// The client or the peer from which the message comes; `None` for a message of the node itself.
    pub(super) from: Option<Party>,
    /// True if the publisher wants to receive its own messages, too, as NATS's option `echo` says.
    pub(super) echo: bool,
    /// True if the publisher wants the status `no responders` and another node may have to send the status,
    /// because a member of a queue group at a peer may get the message, and no stream takes the message.
    pub(super) asks: bool,
    /// True if the publisher wants the status `no responders` if no receiver gets its message, as NATS's
    /// option `no_responders` says.
    pub(super) wants: bool,
}

/// The progress of a message's delivery, from which the node continues after an interruption: the numbers of
/// matching subscriptions and queue groups that have had their turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// The number of matching subscriptions outside of queue groups that have had their turn, from which a
    /// divided delivery goes on.
    plain: usize,
    /// The number of matching queue groups that have had their turn, and (`served`) the number of groups
    /// among them to which the message goes: all of them for a client's message, the groups that the frame
    /// names for a peer's message.
    groups: usize,
    served: usize,
    /// True once a client or a peer got the message, so that the publisher needs no `no responders`.
    pub(super) any: bool,
}

/// The delivery of one message to its receivers: the message and its sender, the node's state that the
/// delivery uses, and the results so far.
pub(super) struct Fanout<'a, 'm> {
    pub(super) now: Time,
    pub(super) sender: Sender,
    /// The node gives a copy only to subscriptions with a number below this one, so that a subscription made
    /// after the message gets none.
    pub(super) before: u64,
    /// The subject against which the node matches subscriptions. For a consumer's delivery it is the subject
    /// of the delivery, and the message carries the stored message's subject; otherwise it is the message's
    /// own subject.
    pub(super) to: &'a [u8],
    pub(super) message: &'a Publish<'m>,
    pub(super) max_pending: usize,
    pub(super) stall_bytes: usize,
    pub(super) whole: &'a mut Delivery,
    /// The message without headers. The node prepares this form when the first receiver without support for
    /// headers needs it, and then uses it again.
    pub(super) bare: &'a mut Delivery,
    pub(super) bare_ready: bool,
    /// True if the message matches more than one subscription outside of queue groups, so that outboxes may
    /// share its payload.
    pub(super) several: bool,
    pub(super) entries: &'a mut PerClient<Entry>,
    pub(super) subs: &'a mut ChunkedSlab<Subscription>,
    pub(super) peers: Option<&'a mut Peers>,
    /// The frame in which a peer sent the message; `None` for a message from this node.
    pub(super) came: Option<&'a Routed<'m>>,
    /// True if the ids of queue groups in that frame are in rising order.
    pub(super) is_sorted: bool,
    pub(super) pool: &'a mut Pool,
    pub(super) random: &'a mut u64,
    pub(super) dirty: &'a mut Dirty,
    pub(super) ended: &'a mut Vec<SubKey>,
    pub(super) slow: &'a mut Vec<ClientKey>,
    /// The notes about the receivers, if the message asks for a trace.
    pub(super) tracing: Option<&'a mut Notes>,
    /// The number of copies of the message that this delivery has put into clients' outboxes so far, for the
    /// node's counts.
    pub(super) copies: u64,
    /// The number of bytes of headers and payload that this delivery has copied into clients' outboxes, which
    /// bounds a part of it. Outboxes share the payload of a large message, and do not copy it.
    pub(super) copied: usize,
    /// The backlog of the fullest receiver of the message in bytes, with this message. By it streams decide
    /// if they send more.
    pub(super) pending_bytes: usize,
    /// A receiver with a backlog above `stall_bytes`, for which the publisher must pause; `None` if there is
    /// no such receiver.
    pub(super) behind: Option<Party>,
}

impl Fanout<'_, '_> {
    /// Delivers the message to at most `limit` further subscriptions or queue groups of `matches`, or to
    /// fewer if copies of the message take long: [`BYTES_A_RECEIVER`] count as much as a receiver. Returns
    /// whether all of them have had their turn, so that the delivery is complete. If very many queue groups
    /// match, the caller gathers the members of some for each part.
    #[inline]
    pub(super) fn deliver_part(
        &mut self,
        matches: &Matches,
        reached: &mut Reached,
        mut limit: usize,
    ) -> bool {
        self.several = matches.plain.len() > 1;
        if self.came.is_none_or(|came| came.plain) {
            let (left, copied) = (&matches.plain[reached.plain..], self.copied);
            let mut spent = 0;
            for (n, sub) in (1..).zip(left) {
                if spent >= limit {
                    return false;
                }
                reached.any |= self.deliver(*sub);
                reached.plain += 1;
                spent = n + (self.copied - copied) / BYTES_A_RECEIVER;
            }
            limit = limit.saturating_sub(spent);
        }
        while reached.groups < matches.groups_len() {
            if limit == 0 {
                return false;
            }
            let copied = self.copied;
            let group = matches.group(reached.groups);
            reached.any |= self.deliver_to_group(&group, &mut reached.served);
            reached.groups += 1;
            limit = limit.saturating_sub(1 + (self.copied - copied) / BYTES_A_RECEIVER);
        }
        if !matches.is_gathered() {
            return false;
        }
        reached.any |= self.deliver_to_ended(matches, reached.served);
        true
    }

    /// Delivers a copy to the client or the peer of this subscription. Returns false if the subscription may
    /// not get the message, so that a queue group can choose another member.
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
            && !permissions.may_receive(outer(self.to), sub.queue.as_deref())
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
        if let Some(notes) = &mut self.tracing {
            notes.note(sub.owner, key);
            if notes.only {
                return true;
            }
        }
        if session.out.wants_chunk() {
            session.out.give_chunk(self.pool.get());
        }
        if self.message.headers.is_none() || session.options.headers {
            let headers = self.message.header_block();
            self.copied += self.whole.write_copy(
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
            self.copied += self.bare.write_copy(
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

    /// Returns the subscription with this key if it may get the message: the node must have made it before
    /// the message, and it must still be valid.
    pub(super) fn sub(&self, key: SubKey) -> Option<&Subscription> {
        let sub = self.subs.get(key as usize);
        let sub = sub.filter(|sub| sub.number < self.before)?;
        let void = match (sub.owner, &self.peers) {
            (Party::Peer(slot), Some(peers)) => peers.is_void(slot, sub.number),
            _ => false,
        };
        (!void).then_some(sub)
    }

    /// Chooses the peer in this slot as a receiver, for its subscription `key`. Passes a message that came
    /// from another peer on only for a queue group, and at most [`PASSED_MAX`] times, so that no message
    /// circles. Returns whether the node chose the peer.
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
        if let Some(notes) = &mut self.tracing {
            notes.note(Party::Peer(slot), key);
        }
        if pending > self.stall_bytes {
            self.behind = Some(Party::Peer(slot));
        }
        self.pending_bytes = self.pending_bytes.max(pending);
        true
    }

    /// Sends the message once to each peer that the delivery chose, and returns the number of these peers,
    /// for the count of copies.
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
