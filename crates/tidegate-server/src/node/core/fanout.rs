//! One message's way to its receivers: the hot path of the node.
//!
//! Owns the choice of who gets a copy and in which form. It only marks what is to follow (subscriptions that reached their
//! number, receivers that are too slow): the sublist is borrowed while it runs.

use slab::Slab;
use tidegate::Time;

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

/// A subscription.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) conn: usize,
    pub(super) sid: Box<[u8]>,
    pub(super) pattern: Box<[u8]>,
    pub(super) queue: Option<Box<[u8]>>,
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

    /// A copy for one member of a queue group: a random one, or the next that may have it.
    #[inline]
    pub(super) fn deliver_to_one(&mut self, group: &[SubKey], random: u64) -> bool {
        let start = (random >> 16) as usize % group.len().max(1);
        let (before, after) = group.split_at(start);
        after.iter().chain(before).any(|sub| self.deliver(*sub))
    }
}
