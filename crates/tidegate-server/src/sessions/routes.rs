//! The other nodes of the cluster as the node sees them: the subscriptions of their clients, and
//! the bytes that wait for each of them.
//!
//! The patterns of a peer stand in the sublist beside those of the clients. The node sends a
//! message to a peer once, with the names of its receivers there. The peer passes it on only if the
//! queue group that it was chosen for has no members there any more (`queue_groups`). A peer
//! announces its subscriptions by the channel that it opened ([`Node::handle_interest`]); the node
//! forgets them together with that channel. The node's own frames go by the channel that it opened
//! itself, and wait in an outbox for each peer.
//!
//! Polling, as for connections: after any `handle_*` the driver writes the outboxes of the peers that
//! [`Node::poll_dirty_peer`] names and calls [`Node::handle_peer_written`], reads again from those that
//! [`Node::poll_resumed_peer`] names, and closes the channels of those that [`Node::poll_cut_off`] names.

use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate::Time;
use tidegate::controller::Load;
use tidegate_cluster::PEERS_MAX;
use tidegate_cluster::interest::{InterestUpdate, Wanted};
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::wire::{Envelope, Frame, InterestId, Routed};
use tidegate_nats::outbox::Outbox;
use tidegate_nats::session::Traffic;
use tidegate_nats::sublist::SubKey;

use super::fanout::Subscription;
use super::{Node, stall_bytes};
use crate::party::Party;

/// The most subscriptions of one peer: a peer with more is faulty.
const INTERESTS_MAX: usize = 1 << 22;
/// The longest pause in reading from a peer while one of its messages is for a receiver that is
/// behind. Shorter than a client's, since a peer carries the messages of many publishers.
pub(super) const PEER_STALL: Duration = Duration::from_millis(1);
/// The longest pause of a publisher for a peer that is behind but still takes bytes. Many clients
/// publish through one channel, and the stream behind it may be as slow as a disk. Messages that
/// overflow the channel are lost; messages that wait with clients are not.
pub(super) const TAKING_STALL: Duration = Duration::from_secs(1);
/// The time since its last taken bytes for which a peer counts as taking: the time for which the
/// cluster counts a silent node as present.
const TAKING: Duration = Duration::from_secs(2);
/// How many times more may wait for a peer that keeps taking bytes than for another one: each
/// publisher has one message on the way before it pauses.
const TAKING_FACTOR: usize = 4;
/// The most publishers that resume at once after a peer took enough: all of them would overfill it again.
const RESUMED_AT_ONCE: usize = 64;

/// The error for a peer that announced more subscriptions than the node accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {INTERESTS_MAX} different subscriptions")]
pub(crate) struct TooMuchInterest;

/// All peers.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// The state towards each peer, by slot.
    slots: Vec<Towards>,
    /// The subscriptions of this node's clients, as announced to the peers.
    pub(super) wanted: Wanted,
    envelope: Envelope,
    /// The slots, as bits, that get the current message: for plain subscribers, and for members of
    /// queue groups.
    plain: u32,
    grouped: u32,
    dirty: Vec<PeerSlot>,
    cut_off: Vec<PeerSlot>,
    resumed: Vec<PeerSlot>,
    /// The URLs at which clients connect: to this node, and to the peers.
    pub(super) own_urls: Vec<String>,
    pub(super) urls: Vec<String>,
}

/// The peers chosen for a message that is on its way: as bits, for plain subscribers and for members of queue
/// groups; and the queue groups of each.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    plain: u32,
    grouped: u32,
    groups: Vec<(PeerSlot, Vec<u8>)>,
}

/// The state towards one peer.
#[derive(Debug, Default)]
struct Towards {
    /// True if a channel to the peer is open.
    reachable: bool,
    out: Outbox,
    dirty: bool,
    /// The publishers that paused because the peer is behind, the earliest first.
    waiters: Vec<Party>,
    /// The last time at which the channel to the peer took bytes from `out`; `None` after it closed.
    taken_at: Option<Time>,
    /// The peer's subscriptions, by the ids that it gave them.
    heard: HashMap<InterestId, SubKey, RandomState>,
    /// The end of the pause in reading from the peer; `None` without a pause.
    paused: Option<Time>,
    /// A message from it is on its way to many receivers.
    spreading: bool,
    /// The number of subscriptions that the node had made when the peer's channel last closed: those of the
    /// peer among them are void.
    void_to: u64,
    /// The queue groups that it serves for the current message.
    groups: Vec<u8>,
    traffic: Traffic,
}

impl Towards {
    fn takes(&self, now: Time) -> bool {
        self.taken_at.is_some_and(|at| now < at + TAKING)
    }
}

/// A snapshot of one peer, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerView {
    /// The messages from and to the peer.
    pub traffic: Traffic,
    /// The number of bytes that wait for the peer.
    pub pending_bytes: usize,
    /// The number of the peer's subscriptions.
    pub interests: usize,
}

impl Peers {
    /// Chooses the peer in this slot as a receiver of the current message: for one of its queue groups,
    /// or for its plain subscribers. Returns the peer's backlog in bytes; `None` without a channel to it.
    pub(super) fn choose(
        &mut self,
        now: Time,
        slot: PeerSlot,
        group: Option<&[u8]>,
        bytes: usize,
        max: usize,
    ) -> Option<usize> {
        let to = &mut self.slots[slot.index()];
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
            None => self.plain |= slot.bit(),
            Some(id) => {
                self.grouped |= slot.bit();
                to.groups.extend_from_slice(id);
            }
        }
        Some(pending)
    }

    /// Takes the choice of peers for the current message, which goes on later.
    pub(super) fn take_chosen(&mut self) -> Chosen {
        let grouped = std::mem::take(&mut self.grouped);
        let all = PeerSlot::all(self.slots.len()).zip(&mut self.slots);
        let chosen = all.filter(|(slot, _)| grouped & slot.bit() != 0);
        Chosen {
            plain: std::mem::take(&mut self.plain),
            grouped,
            groups: chosen
                .map(|(slot, to)| (slot, std::mem::take(&mut to.groups)))
                .collect(),
        }
    }

    /// Goes on with a message from an earlier choice of peers, without the peers that are unreachable since.
    pub(super) fn choose_again(&mut self, chosen: Chosen) {
        let all = PeerSlot::all(self.slots.len()).zip(&self.slots);
        let reachable = all.filter(|(_, to)| to.reachable);
        let reachable = reachable.fold(0, |bits, (slot, _)| bits | slot.bit());
        (self.plain, self.grouped) = (chosen.plain & reachable, chosen.grouped & reachable);
        for (slot, groups) in chosen.groups {
            if self.grouped & slot.bit() != 0 {
                self.slots[slot.index()].groups = groups;
            }
        }
    }

    /// Notes whether a message from the peer is on its way to many receivers.
    pub(super) fn set_spreading(&mut self, slot: PeerSlot, on: bool) {
        self.slots[slot.index()].spreading = on;
        if !on {
            self.resumed.push(slot);
        }
    }

    /// Sends the current message to the chosen peers and returns their number. A requester learns from a
    /// receiver that there are no responders only if that receiver is the one chosen for a queue group,
    /// or was handed the message; and, if its publisher `wants` to know, that a stream is frozen there.
    pub(super) fn send(&mut self, mut message: Routed<'_>, wants: bool) -> u64 {
        let plain = std::mem::take(&mut self.plain);
        let mut left = plain | std::mem::take(&mut self.grouped);
        let copies = u64::from(left.count_ones());
        message.asks &= message.handed || (copies == 1 && plain == 0);
        while left != 0 {
            let slot = PeerSlot::new(left.trailing_zeros() as usize);
            left &= left - 1;
            let to = &mut self.slots[slot.index()];
            let groups = std::mem::take(&mut to.groups);
            message.plain = plain & slot.bit() != 0 && !message.handed;
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

    /// Sends a frame to every peer that has a channel.
    fn tell(&mut self, frame: &Frame<'_>, max: usize) {
        for slot in PeerSlot::all(self.slots.len()) {
            let to = &mut self.slots[slot.index()];
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

    fn touch(&mut self, slot: PeerSlot) {
        let to = &mut self.slots[slot.index()];
        if !to.out.is_empty() && !std::mem::replace(&mut to.dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// Sends the peers the new numbers of members of queue groups, only the latest of many changes.
    fn tell_members(&mut self, max: usize) {
        if !self.wanted.is_changed() {
            return;
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.take_changed(|InterestUpdate { id, members, .. }| {
            self.tell(&Frame::InterestMembers { id, members }, max);
        });
        self.wanted = wanted;
    }

    /// Returns the peer's backlog in bytes, if a channel to it is open.
    pub(super) fn pending(&self, slot: PeerSlot) -> Option<usize> {
        let to = &self.slots[slot.index()];
        to.reachable.then(|| to.out.len())
    }

    /// Returns whether the channel of the peer has closed since its subscription with this number: the
    /// subscription waits for its removal.
    #[inline]
    pub(super) fn is_void(&self, slot: PeerSlot, number: u64) -> bool {
        number <= self.slots[slot.index()].void_to
    }

    /// Returns the slot of the peer that made this subscription, unless the subscription is void.
    pub(super) fn valid(&self, sub: &Subscription) -> Option<PeerSlot> {
        let slot = sub.owner.peer()?;
        (!self.is_void(slot, sub.number)).then_some(slot)
    }

    /// Publishers that pause for it.
    pub(super) fn waiters(&mut self, slot: PeerSlot) -> &mut Vec<Party> {
        &mut self.slots[slot.index()].waiters
    }

    /// Returns whether the peer keeps taking bytes.
    pub(super) fn takes(&self, now: Time, slot: PeerSlot) -> bool {
        self.slots[slot.index()].takes(now)
    }

    /// Stops reading from the peer until that time.
    pub(super) fn pause(&mut self, slot: PeerSlot, until: Time) {
        self.slots[slot.index()].paused = Some(until);
    }

    /// Resumes reading from the peer.
    pub(super) fn resume(&mut self, slot: PeerSlot) {
        if self.slots[slot.index()].paused.take().is_some() {
            self.resumed.push(slot);
        }
    }

    /// Returns the end of the earliest pause in reading from a peer.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.slots.iter().filter_map(|to| to.paused).min()
    }

    /// Resumes reading from the peers with a pause that is over.
    pub(super) fn handle_timeouts(&mut self, now: Time) {
        for slot in PeerSlot::all(self.slots.len()) {
            if self.slots[slot.index()].paused.is_some_and(|at| at <= now) {
                self.resume(slot);
            }
        }
    }

    /// A subscription of the peer left the sublist.
    pub(super) fn forget(&mut self, slot: PeerSlot, id: &[u8], key: SubKey) {
        let heard = &mut self.slots[slot.index()].heard;
        let id = id.first_chunk().map(|id| u64::from_le_bytes(*id));
        // The peer may have announced the same subscription again since its channel closed.
        if let Some(id) = id.filter(|id| heard.get(id) == Some(&key)) {
            heard.remove(&id);
        }
    }

    /// The number of subscriptions of all peers.
    pub(super) fn interests(&self) -> usize {
        self.slots.iter().map(|to| to.heard.len()).sum()
    }
}

impl Node {
    /// Makes the node a part of a cluster. `own_urls` are the URLs at which clients connect to this node.
    pub fn join_cluster(&mut self, own_urls: Vec<String>) {
        let mut peers = Peers::default();
        peers.slots.resize_with(PEERS_MAX, Towards::default);
        peers.own_urls = own_urls;
        self.peers = Some(Box::new(peers));
        self.tell_urls();
    }

    /// Handles the opening of a channel to the peer: announces all subscriptions of this node at once.
    pub fn handle_peer_up(&mut self, slot: PeerSlot) {
        let Some(peers) = &mut self.peers else { return };
        let to = &mut peers.slots[slot.index()];
        to.out.clear(&mut self.pool);
        to.reachable = true;
        for told in peers.wanted.iter() {
            Frame::Interest(told).write(&mut to.out);
        }
        peers.touch(slot);
    }

    /// Handles the end of the channel to the peer: drops the bytes that wait for it.
    pub fn handle_peer_down(&mut self, slot: PeerSlot) {
        let Some(peers) = &mut self.peers else { return };
        let to = &mut peers.slots[slot.index()];
        to.reachable = false;
        to.taken_at = None;
        to.out.clear(&mut self.pool);
        for waiter in std::mem::take(&mut to.waiters) {
            self.resume(waiter);
        }
    }

    /// Appends a frame for a peer that neither carries a message nor announces a subscription.
    pub fn tell_peer(&mut self, slot: PeerSlot, frame: &Frame<'_>) {
        if let Some(peers) = &mut self.peers
            && peers.slots[slot.index()].reachable
        {
            frame.write(&mut peers.slots[slot.index()].out);
            peers.touch(slot);
        }
    }

    /// Adds a subscription that the peer announces.
    ///
    /// # Errors
    /// The peer has more subscriptions than allowed: the driver closes its channel.
    pub(crate) fn handle_interest(
        &mut self,
        slot: PeerSlot,
        told: &InterestUpdate<'_>,
    ) -> Result<(), TooMuchInterest> {
        let (id, pattern, queue) = (told.id, told.pattern, told.queue);
        let Some(peers) = &mut self.peers else {
            return Ok(());
        };
        let heard = &mut peers.slots[slot.index()].heard;
        if heard.contains_key(&id) {
            return Ok(());
        }
        if heard.len() >= INTERESTS_MAX {
            return Err(TooMuchInterest);
        }
        self.next_sub += 1;
        let sub = self.subs.insert(Subscription {
            owner: Party::Peer(slot),
            number: self.next_sub,
            sid: id.to_le_bytes().into(),
            pattern: pattern.into(),
            queue: queue.map(Into::into),
            interest: 0,
            members: told.members.max(1),
            filtered: false,
            delivered: 0,
            max: 0,
        });
        let sub = SubKey::try_from(sub).expect("subscriptions take more than a byte each");
        heard.insert(id, sub);
        self.sublist.insert_many(pattern, queue, sub);
        self.subscribed(pattern);
        Ok(())
    }

    /// Updates the number of members of a queue group at the peer.
    pub fn handle_interest_members(&mut self, slot: PeerSlot, id: InterestId, members: u32) {
        let heard = self.peers.as_ref().map(|p| &p.slots[slot.index()].heard);
        if let Some(sub) = heard.and_then(|heard| heard.get(&id)).copied() {
            self.subs[sub as usize].members = members.max(1);
        }
    }

    /// Removes a subscription of the peer.
    pub fn handle_interest_end(&mut self, slot: PeerSlot, id: InterestId) {
        let heard = self.peers.as_ref().map(|p| &p.slots[slot.index()].heard);
        if let Some(sub) = heard.and_then(|heard| heard.get(&id)).copied() {
            self.remove_subscription(sub);
        }
    }

    /// Handles the end of the peer's channel: forgets the peer's subscriptions.
    pub fn handle_peer_lost(&mut self, slot: PeerSlot) {
        let Some(peers) = &mut self.peers else { return };
        let peer = &mut peers.slots[slot.index()];
        peer.paused = None;
        if std::mem::take(&mut peer.spreading) {
            self.spreading.forget(Party::Peer(slot));
        }
        let peer = &mut peers.slots[slot.index()];
        peer.void_to = self.next_sub;
        let heard = std::mem::take(&mut peer.heard);
        self.leave_peer(heard.into_values());
    }

    /// Delivers a message from the peer to this node's clients and streams. Returns whether enough is
    /// gathered: then the driver writes, before it hands in more.
    pub fn handle_routed(
        &mut self,
        now: Time,
        slot: PeerSlot,
        message: &Routed<'_>,
        limit: Load,
    ) -> bool {
        let Some(peers) = &mut self.peers else {
            return false;
        };
        let traffic = &mut peers.slots[slot.index()].traffic;
        traffic.in_msgs += 1;
        traffic.in_bytes += message.message.size() as u64;
        if self.is_leaders_own(message.message.subject) {
            self.handle_leader_message(now, &message.message);
            return false;
        }
        if message.handed {
            self.handle_handed(now, slot, message);
            return self.has_gathered(limit);
        }
        let (from, to) = (Party::Peer(slot), message.matched_by());
        let heard = self.route(now, Some(from), to, &message.message, Some(message));
        if heard.is_none() && message.asks && !message.plain {
            self.tell_nobody_is_there(now, &message.message);
        }
        // A delivery of a consumer carries the subject of its message, but no client published the delivery
        // there.
        let published = message.plain && message.to.is_none();
        if published
            && self.is_published(message.message.subject)
            && !self.capture(now, from, &message.message)
            && message.asks
            && self.has_frozen(message.message.subject)
        {
            // The stream froze while the message was on its way, and no other node has the message. So this
            // node can tell the publisher now.
            self.tell_nobody_is_there(now, &message.message);
        }
        self.has_gathered(limit)
    }

    /// Returns whether the driver may read from the peer.
    #[must_use]
    pub fn reads_peer(&self, slot: PeerSlot) -> bool {
        let peers = self.peers.as_ref();
        peers.is_none_or(|p| {
            let peer = &p.slots[slot.index()];
            peer.paused.is_none() && !peer.spreading
        })
    }

    /// Returns the next peer with bytes to write; `handle_peer_written` must follow.
    pub fn poll_dirty_peer(&mut self) -> Option<PeerSlot> {
        let peers = self.peers.as_mut()?;
        peers.tell_members(self.settings.max_pending);
        let slot = peers.dirty.pop()?;
        peers.slots[slot.index()].dirty = false;
        Some(slot)
    }

    /// The bytes that wait for the peer.
    #[must_use]
    pub fn peer_outbox(&self, slot: PeerSlot) -> Option<&Outbox> {
        self.peers.as_ref().map(|p| &p.slots[slot.index()].out)
    }

    /// Records that the channel to the peer took `len` bytes.
    pub fn handle_peer_written(&mut self, now: Time, slot: PeerSlot, len: usize) {
        let Some(peers) = &mut self.peers else { return };
        let to = &mut peers.slots[slot.index()];
        if len > 0 {
            to.taken_at = Some(now);
        }
        to.out.take(len, &mut self.pool);
        if to.out.len() <= stall_bytes(&self.settings) / 2 && !to.waiters.is_empty() {
            // The other publishers resume after the peer has taken more. If the outbox is empty, all resume,
            // because no later write would resume them.
            let go_on = match to.out.is_empty() {
                true => to.waiters.len(),
                false => to.waiters.len().min(RESUMED_AT_ONCE),
            };
            let go_on: Vec<Party> = to.waiters.drain(..go_on).collect();
            for waiter in go_on {
                self.resume(waiter);
            }
        }
    }

    /// Returns the next peer that may be read from again. Bytes received earlier and not used come first.
    pub fn poll_resumed_peer(&mut self) -> Option<PeerSlot> {
        self.peers.as_mut()?.resumed.pop()
    }

    /// Returns the next peer with a backlog over the bound: the driver closes the channel to it.
    pub fn poll_cut_off(&mut self) -> Option<PeerSlot> {
        self.peers.as_mut()?.cut_off.pop()
    }

    /// Announces these patterns as subscriptions of this node: peers then send this node the messages with
    /// matching subjects, and the streams take these messages. The node counts each announcement: a pattern
    /// announced twice must be withdrawn twice.
    pub fn announce<'a>(&mut self, patterns: impl IntoIterator<Item = &'a [u8]>) {
        for pattern in patterns {
            self.want(pattern, None);
        }
    }

    /// Withdraws patterns that [`Node::announce`] announced.
    pub fn withdraw<'a>(&mut self, patterns: impl IntoIterator<Item = &'a [u8]>) {
        for pattern in patterns {
            self.unwant(pattern, None);
        }
    }

    /// Sets the URLs at which clients reach the peers, and informs this node's clients.
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

    /// Updates the URLs that INFO offers. Returns whether they changed.
    pub(super) fn tell_urls(&mut self) -> bool {
        let Some(peers) = &self.peers else {
            return false;
        };
        // INFO in lame duck mode names only the other nodes.
        let own = peers.own_urls.iter().filter(|_| !self.info.ldm);
        let mut urls: Vec<String> = own.chain(&peers.urls).cloned().collect();
        urls.dedup();
        let new = self.info.connect_urls != urls;
        self.info.connect_urls = urls;
        new
    }

    /// A snapshot of the peer in this slot.
    #[must_use]
    pub(crate) fn peer_view(&self, slot: PeerSlot) -> PeerView {
        let to = self.peers.as_ref().map(|p| &p.slots[slot.index()]);
        to.map_or_else(PeerView::default, |to| PeerView {
            traffic: to.traffic,
            pending_bytes: to.out.len(),
            interests: to.heard.len(),
        })
    }

    /// Counts a subscription on this node, and announces the first one to a pattern. Returns the pattern's id
    /// among peers; 0 without peers.
    pub(super) fn want(&mut self, pattern: &[u8], queue: Option<&[u8]>) -> InterestId {
        let Some(peers) = &mut self.peers else {
            return 0;
        };
        let (id, new) = peers.wanted.add(pattern, queue);
        if new {
            let told = InterestUpdate {
                id,
                members: 1,
                pattern,
                queue,
            };
            peers.tell(&Frame::Interest(told), self.settings.max_pending);
        }
        id
    }

    /// Subtracts a subscription to this pattern, and ends the announcement after the last one.
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
