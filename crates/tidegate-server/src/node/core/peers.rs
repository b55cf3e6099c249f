//! The other nodes of the cluster as the node sees them: what their clients want to hear, and what waits for
//! each of them.
//!
//! A peer's patterns stand in the sublist beside the clients' own; a message goes to a peer once, with the
//! word of whom it is for, and is passed on from there only if whom it was chosen for has gone
//! (`queue_groups`). What a peer wants is known from the channel it opened ([`Node::handle_interest`]) and
//! forgotten with it; what it is told goes by the channel opened from here, and waits in an outbox of its
//! own.
//!
//! Polling, as for connections: after any `handle_*` write what [`Node::poll_dirty_peer`] names and say
//! [`Node::handle_peer_written`], read again from those [`Node::poll_resumed_peer`] names, and close the
//! channels of those [`Node::poll_cut_off`] names.

use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate::Time;
use tidegate::controller::Load;

use super::fanout::Subscription;
use super::{Node, stall_bytes};
use crate::cluster::PEERS_MAX;
use crate::cluster::interest::{Told, Wanted};
use crate::cluster::wire::{Envelope, Frame, InterestId, Routed};
use crate::nats::outbox::Outbox;
use crate::nats::session::Traffic;
use crate::nats::sublist::SubKey;

/// What a peer may want to hear: beyond it something is wrong there.
const INTERESTS_MAX: usize = 1 << 22;
/// How long a peer is not read at most because one of its messages is for a receiver that is behind: shorter
/// than a publisher, since it speaks for many.
pub(super) const PEER_STALL: Duration = Duration::from_millis(1);
/// How long a publisher pauses at most for a peer that is behind but takes what it is sent: many publish
/// through one channel, and the stream behind it may be as slow as a disk. What would overflow the channel
/// would be lost; what waits with clients is not.
pub(super) const TAKING_STALL: Duration = Duration::from_secs(1);
/// A peer that took nothing for so long is not waited for: as long as one is taken to be there that is not
/// heard of.
const TAKING: Duration = Duration::from_secs(2);
/// By how much more than to another may wait for a peer that takes what it is sent: each publisher has one
/// message on the way before it pauses.
const TAKING_FACTOR: usize = 4;
/// Publishers that go on at once when a peer has taken enough: all of them would be too much again.
const RESUMED_AT_ONCE: usize = 64;
/// The keys of peers, above all of connections.
const KEY_MIN: usize = usize::MAX / 2;

/// The slot of the peer with this key, if it is a peer's.
#[inline]
pub(super) const fn slot_of(key: usize) -> Option<usize> {
    match key.checked_sub(KEY_MIN) {
        Some(slot) if slot < PEERS_MAX => Some(slot),
        _ => None,
    }
}

/// The key of the peer in this slot.
pub(super) const fn key_of(slot: usize) -> usize {
    KEY_MIN + slot
}

/// A peer wants to hear more than anybody can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {INTERESTS_MAX} different subscriptions")]
pub struct TooMuchInterest;

/// All peers.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// By slot.
    slots: Vec<Towards>,
    /// What peers are told that this node wants.
    pub(super) wanted: Wanted,
    envelope: Envelope,
    /// Of the message on its way: who gets it for those who listen there themselves, and for members of queue
    /// groups.
    plain: u32,
    grouped: u32,
    dirty: Vec<usize>,
    cut_off: Vec<usize>,
    resumed: Vec<usize>,
    /// Where clients connect: here, and to the peers.
    pub(super) own_urls: Vec<String>,
    pub(super) urls: Vec<String>,
}

/// What concerns one peer.
#[derive(Debug, Default)]
struct Towards {
    /// There is a channel to it.
    reachable: bool,
    out: Outbox,
    dirty: bool,
    /// Publishers that paused for it, the first first.
    waiters: Vec<usize>,
    /// When it took something last.
    taken_at: Option<Time>,
    /// Its subscriptions by the ids it gave them.
    heard: HashMap<InterestId, SubKey, RandomState>,
    /// Until when it is not read.
    paused: Option<Time>,
    /// Of the message on its way: the queue groups it is to serve.
    groups: Vec<u8>,
    traffic: Traffic,
}

impl Towards {
    fn takes(&self, now: Time) -> bool {
        self.taken_at.is_some_and(|at| now < at + TAKING)
    }
}

/// A peer, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerView {
    /// Messages from and to it.
    pub traffic: Traffic,
    /// Bytes that wait for it.
    pub pending_bytes: usize,
    /// What it wants to hear.
    pub interests: usize,
}

impl Peers {
    /// The peer in this slot is to get the message on its way, for one of its queue groups or for those who
    /// listen themselves. What waits for it then; `None` if it cannot be told anything.
    pub(super) fn choose(
        &mut self,
        now: Time,
        slot: usize,
        group: Option<&[u8]>,
        bytes: usize,
        max: usize,
    ) -> Option<usize> {
        let to = &mut self.slots[slot];
        let pending = to.out.len() + bytes;
        if !to.reachable {
            return None;
        }
        let factor = if to.takes(now) { TAKING_FACTOR } else { 1 };
        if pending > max.saturating_mul(factor) {
            to.reachable = false;
            self.cut_off.push(slot);
            return None;
        }
        match group {
            None => self.plain |= 1 << slot,
            Some(id) => {
                self.grouped |= 1 << slot;
                to.groups.extend_from_slice(id);
            }
        }
        Some(pending)
    }

    /// Sends the message on its way to those who were chosen: how many. Whoever asks is told by the receiver
    /// only if that is the one member of a queue group that was chosen, or was handed it; and if its
    /// publisher `wants` to know, of a stream that is frozen there.
    pub(super) fn send(&mut self, mut message: Routed<'_>, wants: bool) -> u64 {
        let plain = std::mem::take(&mut self.plain);
        let mut left = plain | std::mem::take(&mut self.grouped);
        let copies = u64::from(left.count_ones());
        message.asks &= message.handed || (copies == 1 && plain == 0);
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            left &= left - 1;
            let to = &mut self.slots[slot];
            let groups = std::mem::take(&mut to.groups);
            message.plain = plain & (1 << slot) != 0 && !message.handed;
            let alone = message.handed || groups.len() == size_of::<InterestId>();
            let asks = match message.plain {
                true => wants,
                false => message.asks && alone,
            };
            self.envelope.write(
                &mut to.out,
                &Routed {
                    groups: &groups,
                    asks,
                    ..message
                },
            );
            to.groups = groups;
            to.groups.clear();
            to.traffic.out_msgs += 1;
            to.traffic.out_bytes += message.message.size() as u64;
            self.touch(slot);
        }
        copies
    }

    /// Tells everybody who can be told.
    fn tell(&mut self, frame: &Frame<'_>, max: usize) {
        for slot in 0..self.slots.len() {
            let to = &mut self.slots[slot];
            if to.reachable {
                frame.write(&mut to.out);
                if to.out.len() > max.saturating_mul(TAKING_FACTOR) {
                    to.reachable = false;
                    self.cut_off.push(slot);
                }
                self.touch(slot);
            }
        }
    }

    fn touch(&mut self, slot: usize) {
        let to = &mut self.slots[slot];
        if !to.out.is_empty() && !std::mem::replace(&mut to.dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// Tells everybody of how many members queue groups are by now, where that has changed: the last number
    /// of many.
    fn tell_members(&mut self, max: usize) {
        if !self.wanted.is_changed() {
            return;
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.take_changed(|Told { id, members, .. }| {
            self.tell(&Frame::InterestMembers { id, members }, max);
        });
        self.wanted = wanted;
    }

    /// What waits for the peer, if it can be told anything.
    pub(super) fn pending(&self, slot: usize) -> Option<usize> {
        let to = &self.slots[slot];
        to.reachable.then(|| to.out.len())
    }

    /// Publishers that pause for it.
    pub(super) fn waiters(&mut self, slot: usize) -> &mut Vec<usize> {
        &mut self.slots[slot].waiters
    }

    /// Returns whether the peer takes what it is sent.
    pub(super) fn takes(&self, now: Time, slot: usize) -> bool {
        self.slots[slot].takes(now)
    }

    /// Does not read it until then.
    pub(super) fn pause(&mut self, slot: usize, until: Time) {
        self.slots[slot].paused = Some(until);
    }

    /// Reads it again.
    pub(super) fn resume(&mut self, slot: usize) {
        if self.slots[slot].paused.take().is_some() {
            self.resumed.push(slot);
        }
    }

    /// When the next is to be read again.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.slots.iter().filter_map(|to| to.paused).min()
    }

    /// Reads those again whose pause is over.
    pub(super) fn handle_timeouts(&mut self, now: Time) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].paused.is_some_and(|at| at <= now) {
                self.resume(slot);
            }
        }
    }

    /// A subscription of the peer's is out of the sublist.
    pub(super) fn forget(&mut self, slot: usize, id: &[u8]) {
        if let Some(id) = id.first_chunk() {
            self.slots[slot].heard.remove(&u64::from_le_bytes(*id));
        }
    }

    /// Subscriptions of all peers.
    pub(super) fn interests(&self) -> usize {
        self.slots.iter().map(|to| to.heard.len()).sum()
    }
}

impl Node {
    /// From now on there may be peers. `own_urls` is where clients connect to this node.
    pub fn join_cluster(&mut self, own_urls: Vec<String>) {
        let mut peers = Peers::default();
        peers.slots.resize_with(PEERS_MAX, Towards::default);
        peers.own_urls = own_urls;
        self.peers = Some(Box::new(peers));
        self.tell_urls();
    }

    /// The peer can be told something from now on: it hears at once what is wanted here.
    pub fn handle_peer_up(&mut self, slot: usize) {
        let Some(peers) = &mut self.peers else { return };
        let to = &mut peers.slots[slot];
        to.out.clear(&mut self.pool);
        to.reachable = true;
        for told in peers.wanted.iter() {
            Frame::Interest(told).write(&mut to.out);
        }
        peers.touch(slot);
    }

    /// It cannot be told anything any more: what waits for it is lost.
    pub fn handle_peer_down(&mut self, slot: usize) {
        let Some(peers) = &mut self.peers else { return };
        let to = &mut peers.slots[slot];
        to.reachable = false;
        to.taken_at = None;
        to.out.clear(&mut self.pool);
        for waiter in std::mem::take(&mut to.waiters) {
            self.resume(waiter);
        }
    }

    /// Appends a frame for a peer that is neither a message nor about subscriptions.
    pub fn tell_peer(&mut self, slot: usize, frame: &Frame<'_>) {
        if let Some(peers) = &mut self.peers
            && peers.slots[slot].reachable
        {
            frame.write(&mut peers.slots[slot].out);
            peers.touch(slot);
        }
    }

    /// Somebody listens there, at the peer.
    ///
    /// # Errors
    /// More than can be: its channel is to be closed.
    pub fn handle_interest(&mut self, slot: usize, told: &Told<'_>) -> Result<(), TooMuchInterest> {
        let (id, pattern, queue) = (told.id, told.pattern, told.queue);
        let Some(peers) = &mut self.peers else {
            return Ok(());
        };
        let heard = &mut peers.slots[slot].heard;
        if heard.contains_key(&id) {
            return Ok(());
        }
        if heard.len() >= INTERESTS_MAX {
            return Err(TooMuchInterest);
        }
        let sub = self.subs.insert(Subscription {
            conn: key_of(slot),
            sid: id.to_le_bytes().into(),
            pattern: pattern.into(),
            queue: queue.map(Into::into),
            interest: 0,
            members: told.members.max(1),
            filtered: false,
            delivered: 0,
            max: 0,
        });
        let sub = SubKey::try_from(sub).unwrap_or(SubKey::MAX);
        heard.insert(id, sub);
        self.sublist.insert_many(pattern, queue, sub);
        self.subscribed(pattern);
        Ok(())
    }

    /// So many listen there by now.
    pub fn handle_interest_members(&mut self, slot: usize, id: InterestId, members: u32) {
        let heard = self.peers.as_ref().map(|p| &p.slots[slot].heard);
        if let Some(sub) = heard.and_then(|heard| heard.get(&id)).copied() {
            self.subs[sub as usize].members = members.max(1);
        }
    }

    /// Nobody listens there any more.
    pub fn handle_interest_end(&mut self, slot: usize, id: InterestId) {
        let heard = self.peers.as_ref().map(|p| &p.slots[slot].heard);
        if let Some(sub) = heard.and_then(|heard| heard.get(&id)).copied() {
            self.remove_subscription(sub);
        }
    }

    /// The peer is not heard any more: nothing is known of what it wants.
    pub fn handle_peer_lost(&mut self, slot: usize) {
        let Some(peers) = &mut self.peers else { return };
        peers.slots[slot].paused = None;
        let heard = std::mem::take(&mut peers.slots[slot].heard);
        for sub in heard.into_values() {
            self.remove_subscription(sub);
        }
    }

    /// A message from the peer, for clients and streams here. Whether enough is gathered: write, then hand in
    /// more.
    pub fn handle_routed(
        &mut self,
        now: Time,
        slot: usize,
        message: &Routed<'_>,
        limit: Load,
    ) -> bool {
        let Some(peers) = &mut self.peers else {
            return false;
        };
        let traffic = &mut peers.slots[slot].traffic;
        traffic.in_msgs += 1;
        traffic.in_bytes += message.message.size() as u64;
        if self.is_leaders_own(message.message.subject) {
            self.handle_told(now, &message.message);
            return false;
        }
        if message.handed {
            self.handle_handed(now, slot, message);
            return self.has_gathered(limit);
        }
        let (from, to) = (key_of(slot), message.matched_by());
        let heard = self.route(now, from, to, &message.message, Some(message));
        if heard.is_none() && message.asks && !message.plain {
            self.tell_nobody_is_there(now, &message.message);
        }
        // What a consumer delivers shows its message's subject, but was not published there.
        let published = message.plain && message.to.is_none();
        if published
            && self.is_published(message.message.subject)
            && !self.capture(now, from, &message.message)
            && message.asks
            && self.has_frozen(message.message.subject)
        {
            // It was on its way when the stream was frozen. Nobody else can have it yet: the publisher need
            // not wait to know.
            self.tell_nobody_is_there(now, &message.message);
        }
        self.has_gathered(limit)
    }

    /// Returns whether anything may be read from the peer.
    #[must_use]
    pub fn reads_peer(&self, slot: usize) -> bool {
        let peers = self.peers.as_ref();
        peers.is_none_or(|p| p.slots[slot].paused.is_none())
    }

    /// The next peer that has something to be written; `handle_peer_written` must follow.
    pub fn poll_dirty_peer(&mut self) -> Option<usize> {
        let peers = self.peers.as_mut()?;
        peers.tell_members(self.settings.max_pending);
        let slot = peers.dirty.pop()?;
        peers.slots[slot].dirty = false;
        Some(slot)
    }

    /// What waits for the peer.
    #[must_use]
    pub fn peer_outbox(&self, slot: usize) -> Option<&Outbox> {
        self.peers.as_ref().map(|p| &p.slots[slot].out)
    }

    /// The channel to it took `len` bytes.
    pub fn handle_peer_written(&mut self, now: Time, slot: usize, len: usize) {
        let Some(peers) = &mut self.peers else { return };
        let to = &mut peers.slots[slot];
        if len > 0 {
            to.taken_at = Some(now);
        }
        to.out.take(len, &mut self.pool);
        if to.out.len() <= stall_bytes(&self.settings) / 2 && !to.waiters.is_empty() {
            // More of them when it has taken more; after that nobody would say so.
            let go_on = match to.out.is_empty() {
                true => to.waiters.len(),
                false => to.waiters.len().min(RESUMED_AT_ONCE),
            };
            let go_on: Vec<usize> = to.waiters.drain(..go_on).collect();
            for waiter in go_on {
                self.resume(waiter);
            }
        }
    }

    /// The next peer that may be read again: what was received and not used comes first.
    pub fn poll_resumed_peer(&mut self) -> Option<usize> {
        self.peers.as_mut()?.resumed.pop()
    }

    /// The next peer that has more waiting than may wait: the channel to it is to be closed.
    pub fn poll_cut_off(&mut self) -> Option<usize> {
        self.peers.as_mut()?.cut_off.pop()
    }

    /// This node wants what matches these patterns, as if somebody here listened: messages published
    /// elsewhere come here and reach the streams. Each is counted: what is announced twice is to be withdrawn
    /// twice.
    pub fn announce<'a>(&mut self, patterns: impl IntoIterator<Item = &'a [u8]>) {
        for pattern in patterns {
            self.want(pattern, None);
        }
    }

    /// It wants them no more.
    pub fn withdraw<'a>(&mut self, patterns: impl IntoIterator<Item = &'a [u8]>) {
        for pattern in patterns {
            self.unwant(pattern, None);
        }
    }

    /// Clients of peers connect there: clients here are told.
    pub fn set_peer_urls(&mut self, urls: Vec<String>) {
        if let Some(peers) = &mut self.peers
            && peers.urls != urls
        {
            peers.urls = urls;
            if self.tell_urls() {
                self.inform_all();
            }
        }
    }

    /// Where else clients may connect; whether that is new.
    pub(super) fn tell_urls(&mut self) -> bool {
        let Some(peers) = &self.peers else {
            return false;
        };
        // Whoever is told to go is told where else to go.
        let own = peers.own_urls.iter().filter(|_| !self.info.ldm);
        let mut urls: Vec<String> = own.chain(&peers.urls).cloned().collect();
        urls.dedup();
        let new = self.info.connect_urls != urls;
        self.info.connect_urls = urls;
        new
    }

    /// What there is to say of the peer in this slot.
    #[must_use]
    pub fn peer_view(&self, slot: usize) -> PeerView {
        let to = self.peers.as_ref().map(|p| &p.slots[slot]);
        to.map_or_else(PeerView::default, |to| PeerView {
            traffic: to.traffic,
            pending_bytes: to.out.len(),
            interests: to.heard.len(),
        })
    }

    /// Somebody here listens: the id it goes by among peers, 0 without any.
    pub(super) fn want(&mut self, pattern: &[u8], queue: Option<&[u8]>) -> InterestId {
        let Some(peers) = &mut self.peers else {
            return 0;
        };
        let (id, new) = peers.wanted.add(pattern, queue);
        if new {
            let told = Told {
                id,
                members: 1,
                pattern,
                queue,
            };
            peers.tell(&Frame::Interest(told), self.settings.max_pending);
        }
        id
    }

    /// One of those who listened does no more.
    pub(super) fn unwant(&mut self, pattern: &[u8], queue: Option<&[u8]>) {
        if let Some(peers) = &mut self.peers
            && let Some(id) = peers.wanted.remove(pattern, queue)
        {
            peers.tell(&Frame::InterestEnd { id }, self.settings.max_pending);
        }
    }
}

#[cfg(test)]
mod tests;
