//! One message's way to its receivers: the hot path of the node.
//!
//! Owns the choice of who gets a copy and in which form. It only marks what is to follow (subscriptions that
//! reached their number, receivers that are too slow): the sublist is borrowed while it runs.

use slab::Slab;
use tidegate::Time;

use super::peers::{Peers, key_of, slot_of};
use super::queue_groups::PASSED_MAX;
use crate::cluster::wire::{InterestId, Routed};
use crate::nats::op::Delivery;
use crate::nats::outbox::Pool;
use crate::nats::parse::Publish;
use crate::nats::session::{CloseReason, Session};
use crate::nats::sublist::SubKey;

/// A connection as the node sees it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) session: Session,
    /// Listed as having something to write.
    pub(super) dirty: bool,
    /// Publishers that paused for it.
    pub(super) waiters: Vec<usize>,
    /// Why it is closing, if it is.
    pub(super) reason: CloseReason,
}

impl Entry {
    pub(super) const fn new(session: Session) -> Self {
        Self {
            session,
            dirty: false,
            waiters: Vec::new(),
            reason: CloseReason::ClientClosed,
        }
    }
}

/// A subscription, of a client or of a peer.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) conn: usize,
    pub(super) sid: Box<[u8]>,
    pub(super) pattern: Box<[u8]>,
    pub(super) queue: Option<Box<[u8]>>,
    /// A client's: the id peers know it by, with all others of its pattern and queue group. A peer's own id
    /// is its `sid`.
    pub(super) interest: InterestId,
    /// A peer's: how many listen there.
    pub(super) members: u32,
    /// Part of what it matches is denied.
    pub(super) filtered: bool,
    pub(super) delivered: u64,
    /// Messages in total after which it ends; 0: never.
    pub(super) max: u64,
}

/// One message on its way.
pub(super) struct Fanout<'a, 'm> {
    pub(super) now: Time,
    pub(super) from: usize,
    pub(super) echo: bool,
    /// The subject subscriptions are matched by: that of the message, but for what a consumer delivers.
    pub(super) to: &'a [u8],
    pub(super) message: &'a Publish<'m>,
    pub(super) max_pending: usize,
    pub(super) stall_bytes: usize,
    pub(super) whole: &'a Delivery,
    /// Without headers: prepared when the first receiver needs it.
    pub(super) bare: &'a mut Delivery,
    pub(super) bare_ready: bool,
    pub(super) entries: &'a mut Slab<Entry>,
    pub(super) subs: &'a mut Slab<Subscription>,
    pub(super) peers: Option<&'a mut Peers>,
    /// As a peer sent it, if one did.
    pub(super) came: Option<&'a Routed<'m>>,
    /// The publisher wants to know if nobody is there, and no stream is.
    pub(super) asks: bool,
    /// The publisher wants to know if nobody is there.
    pub(super) wants: bool,
    pub(super) pool: &'a mut Pool,
    pub(super) dirty: &'a mut Vec<usize>,
    pub(super) ended: &'a mut Vec<SubKey>,
    pub(super) slow: &'a mut Vec<usize>,
    /// Copies made.
    pub(super) copies: u64,
    /// What waits for the fullest receiver, with this message.
    pub(super) pending_bytes: usize,
    /// A receiver that has much to read still.
    pub(super) behind: Option<usize>,
}

impl Fanout<'_, '_> {
    /// A copy for this subscription, if it may have one.
    #[inline]
    pub(super) fn deliver(&mut self, key: SubKey) -> bool {
        let sub = &mut self.subs[key as usize];
        if let Some(slot) = slot_of(sub.conn) {
            return self.choose(slot, key, false);
        }
        if sub.conn == self.from && !self.echo {
            return false;
        }
        let entry = &mut self.entries[sub.conn];
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
                self.slow.push(sub.conn);
                return false;
            }
            self.behind = Some(sub.conn);
        }
        self.pending_bytes = self.pending_bytes.max(pending);
        if session.out.wants_chunk() {
            session.out.give_chunk(self.pool.get());
        }
        if self.message.headers.is_none() || session.options.headers {
            self.whole.write(
                &mut session.out,
                &sub.sid,
                self.message.header_block(),
                self.message.payload,
            );
        } else {
            if !std::mem::replace(&mut self.bare_ready, true) {
                self.bare.prepare(self.message, false);
            }
            self.bare
                .write(&mut session.out, &sub.sid, b"", self.message.payload);
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
            self.dirty.push(sub.conn);
        }
        true
    }

    /// The peer is to get the message for its subscription `key`. What came from a peer goes to another one
    /// only for a queue group.
    pub(super) fn choose(&mut self, slot: usize, key: SubKey, grouped: bool) -> bool {
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
            self.behind = Some(key_of(slot));
        }
        self.pending_bytes = self.pending_bytes.max(pending);
        true
    }

    /// Sends the message to the peers that were chosen: how many.
    pub(super) fn send_to_peers(&mut self) -> u64 {
        let (asks, wants) = (self.asks && self.copies == 0, self.wants);
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
