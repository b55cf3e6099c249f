//! Keeps the other nodes of the cluster as this node sees them: the subscriptions of their clients, and the
//! bytes that wait until the driver sends them to each of them.
//!
//! The sublist holds the patterns of a peer beside the patterns of the clients. The node sends a message to a
//! peer once, with the ids of the queue groups for which it chose the peer. The peer passes the message on
//! only if such a queue group has no members there any more (`queue_groups`). A peer announces its
//! subscriptions by the channel that the peer opened ([`Node::handle_interest`]); the node drops these
//! subscriptions when that channel closes. The node sends its own frames by the channel that it opened
//! itself. These frames wait in a separate outbox for each peer.
//!
//! As for connections, after any `handle_*` the driver writes the outboxes of the peers that
//! [`Node::poll_dirty_peer`] names and calls [`Node::handle_peer_written`], reads again from the peers that
//! [`Node::poll_resumed_peer`] names, and closes the channels to the peers that [`Node::poll_cut_off`] names.

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
use tidegate_nats::system::is_inner;

use super::fanout::Subscription;
use super::traces::Traced;
use super::{Node, stall_bytes};
use crate::cost::{Work, spend};
use crate::party::Party;

/// The greatest number of subscriptions that one peer may announce. A peer with more is faulty, and the node
/// closes its channel to keep its memory.
const INTERESTS_MAX: usize = 1 << 22;
/// The longest time for which the node stops reading from a peer after one of its messages met a receiver
/// with a large backlog. The pause is shorter than that of a client, since a peer carries the messages of
/// many publishers.
pub(super) const PEER_STALL: Duration = Duration::from_millis(1);
/// The longest time for which the node pauses a publisher for a peer that has a large backlog but still takes
/// bytes. The pause is long, because many clients publish through one channel, and a stream at its end may be
/// as slow as a disk. The node loses messages beyond the channel's bound, but not messages that still wait in
/// the clients.
pub(super) const TAKING_STALL: Duration = Duration::from_secs(1);
/// The node counts a peer as taking bytes for this time after the peer last took some. The time is that for
/// which the cluster counts a silent node as present.
const TAKING: Duration = Duration::from_secs(2);
/// The node bounds the outbox of a peer that keeps taking bytes by this factor times `max_pending`. Such a
/// peer needs a higher bound, because each of its many publishers may add one more message before it pauses.
const TAKING_FACTOR: usize = 4;
/// The greatest number of publishers that the node resumes at once after a peer has taken part of its
/// backlog. If all resumed at once, they would fill the peer's outbox again.
const RESUMED_AT_ONCE: usize = 64;

/// The error for a peer that announced more than [`INTERESTS_MAX`] subscriptions, after which the driver
/// closes its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other node has more than {INTERESTS_MAX} different subscriptions")]
pub(crate) struct TooMuchInterest;

/// The node's state towards all other nodes of its cluster, by which it exchanges subscriptions and messages
/// with them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// The node's state towards each peer, which it finds by the peer's slot.
    slots: Vec<Towards>,
    /// The subscriptions of this node's clients, as the node announced them to the peers, with the ids by
    /// which frames name them.
    pub(super) wanted: Wanted,
    envelope: Envelope,
    /// The peers that the node has chosen for the current message, one bit for each slot: because of
    /// subscribers outside of queue groups, and (`grouped`) because of members of queue groups. A peer may be
    /// in both.
    plain: u32,
    grouped: u32,
    dirty: Vec<PeerSlot>,
    cut_off: Vec<PeerSlot>,
    resumed: Vec<PeerSlot>,
    /// The URLs at which clients connect to this node, and (`urls`) to the peers; INFO names both.
    pub(super) own_urls: Vec<String>,
    pub(super) urls: Vec<String>,
}

/// The choice of peers for a message that has reached only a part of its receivers: the peers for subscribers
/// outside of queue groups (`plain`) and for members of queue groups (`grouped`), one bit for each slot, and
/// the ids of the queue groups for which the node chose each peer.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    plain: u32,
    grouped: u32,
    groups: Vec<(PeerSlot, Vec<u8>)>,
}

/// The node's state towards one peer: the bytes for it, and the subscriptions that it announced. The driver
/// carries both.
#[derive(Debug, Default)]
struct Towards {
    /// True if this node has an open channel to the peer, on which it can send frames.
    reachable: bool,
    out: Outbox,
    dirty: bool,
    /// The publishers that the node has paused because the peer has a large backlog, the earliest first.
    waiters: Vec<Party>,
    /// The last time at which the channel to the peer took bytes from `out`, by which the node knows if the
    /// peer still takes bytes; `None` once the channel has closed.
    taken_at: Option<Time>,
    /// The key of each subscription of the peer, by the id that the peer gave it and by which the peer
    /// withdraws it.
    heard: HashMap<InterestId, SubKey, RandomState>,
    /// The time at which the node reads from the peer again; `None` if the node has not paused reading.
    paused: Option<Time>,
    /// True while a message from the peer has reached only a part of its many receivers. The node then reads
    /// nothing from the peer, so that the peer's messages keep their order.
    spreading: bool,
    /// The number of subscriptions that the node had made when the peer's channel last closed. The peer's
    /// subscriptions up to this number are void, and the node delivers nothing to them.
    void_to: u64,
    /// The ids of the queue groups for which the node chose the peer as a receiver of the current message;
    /// the frame names them, so that the peer delivers to these groups only.
    groups: Vec<u8>,
    traffic: Traffic,
}

impl Towards {
    fn takes(&self, now: Time) -> bool {
        self.taken_at.is_some_and(|at| now < at + TAKING)
    }
}

/// The state of one peer, as the monitor shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerView {
    /// The messages and bytes that this node received from the peer and sent to it, for the monitor.
    pub traffic: Traffic,
    /// The number of bytes that wait until the driver sends them to the peer, for the monitor.
    pub pending_bytes: usize,
    /// The number of subscriptions that the peer has announced, for the monitor.
    pub interests: usize,
}

impl Peers {
    /// Chooses the peer in this slot as a receiver of the current message of `bytes` bytes: for the queue
    /// group with the id `group`, or for subscribers outside of queue groups if `group` is `None`. Cuts the
    /// peer off if its backlog exceeds `max`, or four times `max` if the peer keeps taking bytes. Returns the
    /// peer's backlog in bytes; `None` without an open channel to the peer.
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

    /// Takes out the choice of peers for the current message, because the node delivers this message in parts
    /// and may deliver other messages before it continues.
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

    /// Restores the choice of peers for a message, so that the node can continue its delivery. Leaves out the
    /// peers to which the node has no open channel any more.
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

    /// Records whether a message from the peer has reached only a part of its receivers. After the last
    /// receiver the node reads from the peer again, so that messages keep their order.
    pub(super) fn set_spreading(&mut self, slot: PeerSlot, on: bool) {
        self.slots[slot.index()].spreading = on;
        if !on {
            self.resumed.push(slot);
        }
    }

    /// Sends the current message to the chosen peers and returns their number.
    ///
    /// A peer chosen for queue groups may send `no responders` to the requester only if that peer is the only
    /// receiver and was chosen for a single group, or if the node handed the message to that peer alone. A
    /// peer chosen for other subscribers may send `no responders` only if the publisher `wants` to know and a
    /// frozen stream has the subject.
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

    /// Queues a frame, such as an announcement, for each peer to which the node has an open channel. Cuts off
    /// a peer with a backlog above four times `max`.
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

    /// Announces to the peers the number of members that each queue group now has on this node, by which the
    /// peers weigh their choice. Sends only the latest of several changes to a group.
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

    /// Returns the backlog of the peer in bytes, by which the node pauses publishers; `None` without an open
    /// channel to the peer.
    pub(super) fn pending(&self, slot: PeerSlot) -> Option<usize> {
        let to = &self.slots[slot.index()];
        to.reachable.then(|| to.out.len())
    }

    /// Returns whether the peer's channel has closed since the node made the subscription with this number.
    /// The subscription is then void, and the node delivers nothing to it until it removes it.
    #[inline]
    pub(super) fn is_void(&self, slot: PeerSlot, number: u64) -> bool {
        number <= self.slots[slot.index()].void_to
    }

    /// Returns the slot of the peer that made this subscription, unless the subscription is void, so that the
    /// node sends nothing to a peer that lost it.
    pub(super) fn valid(&self, sub: &Subscription) -> Option<PeerSlot> {
        let slot = sub.owner.peer()?;
        (!self.is_void(slot, sub.number)).then_some(slot)
    }

    /// Returns the publishers that the node has paused because this peer has a large backlog.
    pub(super) fn waiters(&mut self, slot: PeerSlot) -> &mut Vec<Party> {
        &mut self.slots[slot.index()].waiters
    }

    /// Returns whether the peer took bytes within the last two seconds, so that publishers may wait for it
    /// longer.
    pub(super) fn takes(&self, now: Time, slot: PeerSlot) -> bool {
        self.slots[slot.index()].takes(now)
    }

    /// Makes the driver stop reading from the peer until the time `until`, because a receiver has a large
    /// backlog.
    pub(super) fn pause(&mut self, slot: PeerSlot, until: Time) {
        self.slots[slot.index()].paused = Some(until);
    }

    /// Ends the pause in reading from the peer, if one runs, so that the driver reads again.
    pub(super) fn resume(&mut self, slot: PeerSlot) {
        if self.slots[slot.index()].paused.take().is_some() {
            self.resumed.push(slot);
        }
    }

    /// Returns the time at which the earliest pause in reading from a peer ends, for the driver's timer.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.slots.iter().filter_map(|to| to.paused).min()
    }

    /// Makes the driver read again from the peers with a pause that is over, because a pause is only a
    /// moment's relief for receivers.
    pub(super) fn handle_timeouts(&mut self, now: Time) {
        for slot in PeerSlot::all(self.slots.len()) {
            if self.slots[slot.index()].paused.is_some_and(|at| at <= now) {
                self.resume(slot);
            }
        }
    }

    /// Forgets the peer's subscription `key` with this id, because the node removed it from the sublist.
    pub(super) fn forget(&mut self, slot: PeerSlot, id: &[u8], key: SubKey) {
        let heard = &mut self.slots[slot.index()].heard;
        let id = id.first_chunk().map(|id| u64::from_le_bytes(*id));
        // The peer may have announced the same id again since its channel closed; the id then belongs to a
        // later subscription, which stays.
        if let Some(id) = id.filter(|id| heard.get(id) == Some(&key)) {
            heard.remove(&id);
        }
    }

    /// Returns the number of subscriptions that all peers together have announced, for the check of
    /// invariants.
    pub(super) fn interests(&self) -> usize {
        self.slots.iter().map(|to| to.heard.len()).sum()
    }
}

impl Node {
    /// Makes the node a part of a cluster. `own_urls` are the URLs at which clients connect to this node,
    /// which INFO names.
    pub fn join_cluster(&mut self, own_urls: Vec<String>) {
        let mut peers = Peers::default();
        peers.slots.resize_with(PEERS_MAX, Towards::default);
        peers.own_urls = own_urls;
        self.peers = Some(Box::new(peers));
        self.tell_urls();
        self.announce_system();
    }

    /// Handles the opening of a channel to the peer: announces all subscriptions of this node to the peer at
    /// once, so that the peer sends it messages.
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

    /// Handles the end of the channel to the peer: drops the bytes that wait for the peer, and resumes the
    /// publishers that pause for it.
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

    /// Queues a frame of the driver for the peer, if a channel to it is open. The frame must neither carry a
    /// message nor announce a subscription.
    pub fn tell_peer(&mut self, slot: PeerSlot, frame: &Frame<'_>) {
        if let Some(peers) = &mut self.peers
            && peers.slots[slot.index()].reachable
        {
            frame.write(&mut peers.slots[slot.index()].out);
            peers.touch(slot);
        }
    }

    /// Adds a subscription that the peer announces, so that the node sends the peer matching messages.
    ///
    /// # Errors
    /// The peer has announced more subscriptions than the node allows. The driver then closes the peer's
    /// channel.
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
        spend(Work::Subscribe, 1);
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
        self.system.subscriptions += usize::from(is_inner(pattern));
        self.sublist.insert_many(pattern, queue, sub);
        self.note_if_full(pattern);
        self.subscribed(pattern);
        Ok(())
    }

    /// Updates the number of members that a queue group has at the peer, because the peer announced a change.
    /// The node weighs its choice among members by it.
    pub fn handle_interest_members(&mut self, slot: PeerSlot, id: InterestId, members: u32) {
        let heard = self.peers.as_ref().map(|p| &p.slots[slot.index()].heard);
        if let Some(sub) = heard.and_then(|heard| heard.get(&id)).copied() {
            self.subs[sub as usize].members = members.max(1);
        }
    }

    /// Removes a subscription of the peer, because the peer has withdrawn it.
    pub fn handle_interest_end(&mut self, slot: PeerSlot, id: InterestId) {
        let heard = self.peers.as_ref().map(|p| &p.slots[slot.index()].heard);
        if let Some(sub) = heard.and_then(|heard| heard.get(&id)).copied() {
            self.remove_subscription(sub);
        }
    }

    /// Handles the end of the channel that the peer opened: makes the peer's subscriptions void, so that they
    /// get no message, and removes them.
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

    /// Delivers a message from the peer to this node's clients and streams. Returns whether the copies that
    /// the outboxes have gathered reach `limit`; the driver must then write before it hands in more messages.
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
        if message.to.is_none() && is_inner(message.message.subject) {
            // The node drops a message to a subject in the system account's inner form, because no client may
            // publish there.
            return false;
        }
        if self.is_leaders_own(message.message.subject) {
            self.handle_leader_message(now, &message.message);
            return false;
        }
        if message.handed {
            self.handle_handed(now, slot, message);
            return self.has_gathered(limit);
        }
        let (from, to) = (Party::Peer(slot), message.matched_by());
        let heard = match message.to.is_none() {
            true => self.publish_traced(now, from, &message.message, Some(message)),
            // No client published this message: a consumer delivers it.
            false => Traced::No,
        };
        let heard = match heard {
            Traced::Done => return self.has_gathered(limit),
            Traced::Delivered(delivered) => delivered,
            Traced::No => self
                .route(now, Some(from), to, &message.message, Some(message))
                .is_some(),
        };
        if !heard && message.asks && !message.plain {
            self.tell_nobody_is_there(now, &message.message);
        }
        if is_inner(to) {
            self.ask_system(None, &message.message);
            return self.has_gathered(limit);
        }
        // A consumer's delivery carries the subject of its stored message, but no client published the
        // delivery to that subject, so no stream may take it.
        let published = message.plain && message.to.is_none();
        if published
            && self.is_published(message.message.subject)
            && !self.capture(now, from, &message.message)
            && message.asks
            && self.has_frozen(message.message.subject)
        {
            // The stream froze while the message was on its way, and no other node has the message. So this
            // node tells the publisher that there are no responders.
            self.tell_nobody_is_there(now, &message.message);
        }
        self.has_gathered(limit)
    }

    /// Returns whether the driver may read from the peer: neither a pause nor an unfinished delivery stops
    /// it, so that messages keep their order.
    #[must_use]
    pub fn reads_peer(&self, slot: PeerSlot) -> bool {
        let peers = self.peers.as_ref();
        peers.is_none_or(|p| {
            let peer = &p.slots[slot.index()];
            peer.paused.is_none() && !peer.spreading
        })
    }

    /// Returns the next peer with bytes to write. The driver must write them and then call
    /// [`Node::handle_peer_written`].
    pub fn poll_dirty_peer(&mut self) -> Option<PeerSlot> {
        let peers = self.peers.as_mut()?;
        peers.tell_members(self.settings.max_pending);
        let slot = peers.dirty.pop()?;
        peers.slots[slot.index()].dirty = false;
        Some(slot)
    }

    /// Returns the bytes that the driver has still to send to the peer; `None` for a node without a cluster,
    /// which has no peers.
    #[must_use]
    pub fn peer_outbox(&self, slot: PeerSlot) -> Option<&Outbox> {
        self.peers.as_ref().map(|p| &p.slots[slot.index()].out)
    }

    /// Records that the channel to the peer took `len` bytes, and resumes publishers if the backlog has
    /// fallen.
    pub fn handle_peer_written(&mut self, now: Time, slot: PeerSlot, len: usize) {
        let Some(peers) = &mut self.peers else { return };
        let to = &mut peers.slots[slot.index()];
        if len > 0 {
            to.taken_at = Some(now);
        }
        to.out.take(len, &mut self.pool);
        if to.out.len() <= stall_bytes(&self.settings) / 2 && !to.waiters.is_empty() {
            // The node resumes a part of the publishers now, and the others once the peer has taken more. If
            // the outbox is empty, the node resumes all, because no later write would resume the others.
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

    /// Returns the next peer from which the driver may read again after a pause. The driver first hands in
    /// the bytes that it received before the pause and that the node has not used.
    pub fn poll_resumed_peer(&mut self) -> Option<PeerSlot> {
        self.peers.as_mut()?.resumed.pop()
    }

    /// Takes the next peer that the node cuts off because its backlog is above the bound. The driver must
    /// close the channel to that peer.
    pub fn poll_cut_off(&mut self) -> Option<PeerSlot> {
        self.peers.as_mut()?.cut_off.pop()
    }

    /// Announces these patterns to the peers as subscriptions of this node. Peers then send this node the
    /// messages with matching subjects, which its streams take. The node counts the announcements: the caller
    /// must withdraw a pattern twice that it announced twice.
    pub fn announce<'a>(&mut self, patterns: impl IntoIterator<Item = &'a [u8]>) {
        for pattern in patterns {
            self.want(pattern, None);
        }
    }

    /// Withdraws announcements that [`Node::announce`] made of these patterns, because no stream of this node
    /// has them any more.
    pub fn withdraw<'a>(&mut self, patterns: impl IntoIterator<Item = &'a [u8]>) {
        for pattern in patterns {
            self.unwant(pattern, None);
        }
    }

    /// Sets the URLs at which clients can connect to the peers. If the URLs have changed, sends INFO to this
    /// node's clients, so that they know where they can reconnect.
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

    /// Updates the URLs in this node's INFO. Returns whether the URLs changed, so that the caller sends INFO
    /// to clients.
    pub(super) fn tell_urls(&mut self) -> bool {
        let Some(peers) = &self.peers else {
            return false;
        };
        // In lame duck mode INFO names only the other nodes, so that clients move to them.
        let own = peers.own_urls.iter().filter(|_| !self.info.ldm);
        let mut urls: Vec<String> = own.chain(&peers.urls).cloned().collect();
        urls.dedup();
        let new = self.info.connect_urls != urls;
        self.info.connect_urls = urls;
        new
    }

    /// Returns the state of the peer in this slot, for monitoring.
    #[must_use]
    pub(crate) fn peer_view(&self, slot: PeerSlot) -> PeerView {
        let to = self.peers.as_ref().map(|p| &p.slots[slot.index()]);
        to.map_or_else(PeerView::default, |to| PeerView {
            traffic: to.traffic,
            pending_bytes: to.out.len(),
            interests: to.heard.len(),
        })
    }

    /// Counts a subscription of a client on this node. Announces the first subscription with this pattern and
    /// queue group to the peers, so that they send matching messages. Returns the id by which peers know the
    /// pattern and queue group; 0 without a cluster.
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

    /// Removes a subscription of a client from the count. Withdraws the announcement after the last
    /// subscription with this pattern and queue group, so that peers send no messages in vain.
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
