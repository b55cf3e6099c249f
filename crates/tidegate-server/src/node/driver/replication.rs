//! The group's part in the loop: what other nodes say goes to the store, what the group says goes to them, time ticks, and the
//! streams learn whether this node leads.
//!
//! Decides nothing but when: Raft decides who leads ([`crate::replica`]), the streams what that means
//! ([`crate::node::jetstream`]), and [`crate::catchup`] what is fetched by who is too far behind.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tidegate::Time;

use super::peers::{PeerEvent, Peers};
use super::streams::wall_clock_us;
use super::taking_over::TakingOver;
use crate::api::answer::{ClusterInfo, ReplicaInfo};
use crate::api::timestamp::Timestamp;
use crate::cluster::members::Members;
use crate::node::core::Node;
use crate::replica::{Message, wire};
use crate::store::Store;
use crate::stream::AccountLimits;

/// A tick of the group: an election begins after ten of them without a leader.
const TICK: Duration = Duration::from_millis(60);
/// How often what is shown of the cluster is renewed.
const LOOK: Duration = Duration::from_millis(250);
/// A follower that lacks more entries than this is not current.
const CURRENT_ENTRIES: u64 = 256;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Replication {
    members: Members,
    cluster: String,
    me: u64,
    tick_at: Time,
    look_at: Time,
    /// The term this node leads in, and since when.
    leads: Option<(u64, Timestamp)>,
    /// The last entry a leader said is committed.
    told_committed: u64,
    taking_over: TakingOver,
    /// At the end of the turn leadership goes to this node, or to any.
    hands_over: Option<Option<u64>>,
    /// When each of the others was heard of last.
    heard: HashMap<u64, Time>,
}

impl Replication {
    /// Among the members, if they are fixed.
    pub(super) fn new(peers: &Peers, limits: AccountLimits, now: Time) -> Option<Self> {
        let mut others = peers.formed()?.ids();
        others.retain(|id| *id != peers.id());
        Some(Self {
            members: peers.formed()?.clone(),
            cluster: peers.roster().me().cluster.clone(),
            me: peers.id(),
            tick_at: now,
            look_at: now,
            leads: None,
            told_committed: 0,
            taking_over: TakingOver::new(limits, others),
            hands_over: None,
            heard: HashMap::new(),
        })
    }

    /// This node's id.
    pub(super) const fn id(&self) -> u64 {
        self.me
    }

    /// Everybody's.
    pub(super) fn voters(&self) -> Vec<u64> {
        self.members.ids()
    }

    pub(super) fn deadline(&self) -> Time {
        let waits = self.taking_over.deadline();
        self.tick_at.min(self.look_at).min(waits)
    }

    /// What other nodes said goes to the group.
    pub(super) fn receive(&mut self, now: Time, store: &mut Store, peers: &mut Peers) {
        while let Some(event) = peers.poll_event() {
            if let PeerEvent::Down(id) = event {
                store.report_unreachable(id);
            }
        }
        while let Some(received) = peers.poll_raft() {
            self.heard.insert(received.from, now);
            self.take(store, received.from, &received.payload);
        }
        if self.tick_at <= now {
            // One tick, however late: a loop that was held up has not heard of the others meanwhile, which says nothing of them.
            self.tick_at = now + TICK;
            store.tick();
        }
    }

    fn take(&mut self, store: &mut Store, from: u64, bytes: &Bytes) {
        let (group, message) = match wire::decode(bytes) {
            Ok(decoded) => decoded,
            Err(error) => return tracing::warn!("from {}: {error}", self.name(from)),
        };
        if message.from != from {
            return tracing::warn!("{} speaks for somebody else", self.name(from));
        }
        self.told_committed = self.told_committed.max(message.commit);
        if let Err(error) = store.step(group, message) {
            tracing::debug!("from {}: {error}", self.name(from));
        }
    }

    fn name(&self, id: u64) -> &str {
        self.members.name_of(id).unwrap_or("a stranger")
    }

    /// A record is damaged: the messages in it are asked of the others. Whether they may come.
    pub(super) fn mend(&mut self, now: Time, node: &Node, lsn: u64) -> bool {
        let streams = node.streams();
        streams.is_some_and(|s| self.taking_over.mend(now, s.applied(), lsn))
    }

    /// States are taken over, and given.
    pub(super) fn take_over(
        &mut self,
        now: Time,
        node: &mut Node,
        store: &mut Store,
        peers: &mut Peers,
    ) {
        self.taking_over.turn(now, node, store, peers);
    }

    /// What the group has to say goes to the others.
    pub(super) fn send(&mut self, store: &mut Store, peers: &mut Peers) {
        if let Some(to) = self.hands_over.take()
            && store.group().leads()
        {
            self.hand_over(to, store);
        }
        while let Some((to, message)) = store.poll_message() {
            self.send_one(store.group_number(), to, &message, peers);
        }
    }

    fn send_one(&self, group: u32, to: u64, message: &Message, peers: &mut Peers) {
        match wire::encode(group, message) {
            Ok(parts) => {
                // What is not sent is as good as lost on the way: Raft sends it again.
                let _ = peers.send_raft(to, group, &parts);
            }
            Err(error) => tracing::error!("to {}: {error}", self.name(to)),
        }
    }

    /// Lets the streams know whether this node leads, and what is to be known of the others.
    pub(super) fn look(&mut self, now: Time, node: &mut Node, store: &mut Store) {
        let leads = store.group().leads_settled();
        let Some(streams) = node.streams_mut() else {
            return;
        };
        if let Some(asked) = streams.take_step_down() {
            let to = asked.preferred.and_then(|name| self.members.id_of(&name));
            self.begin_hand_over(now, node, to);
        }
        let Some(streams) = node.streams() else {
            return;
        };
        if leads != streams.serves() {
            self.look_at = now;
            if leads {
                let since = Timestamp::from_micros(wall_clock_us());
                self.leads = Some((store.group().term(), since));
                tracing::info!("leads the streams, in term {}", store.group().term());
                node.handle_leading(now);
            } else {
                self.leads = None;
                tracing::info!("does not lead the streams any more");
                node.handle_following(now);
            }
        }
        if self.look_at <= now {
            self.look_at = now + LOOK;
            let behind = self.behind(store);
            let cluster = self.cluster(now, store);
            if let Some(streams) = node.streams_mut() {
                streams.set_cluster(self.members.len(), cluster, behind);
            }
        }
        node.announce_streams();
    }

    /// Another node is to lead, the most advanced one if it matters to nobody which. First everything known here is proposed.
    pub(super) fn begin_hand_over(&mut self, now: Time, node: &mut Node, to: Option<u64>) {
        if let Some(streams) = node.streams_mut() {
            streams.flush_consumers(now);
        }
        self.hands_over = Some(to);
    }

    fn hand_over(&self, to: Option<u64>, store: &mut Store) {
        let progress = store.progress();
        let active = progress.iter().filter(|p| p.active);
        let next = to.or_else(|| active.max_by_key(|p| p.matched).map(|p| p.id));
        let Some(next) = next else {
            return tracing::warn!("nobody is there to lead instead");
        };
        match store.transfer_leadership(next) {
            Ok(()) => tracing::info!("hands leadership over to {}", self.name(next)),
            Err(error) => tracing::warn!("leadership stays: {error}"),
        }
    }

    /// Why this node lacks what others have.
    fn behind(&self, store: &Store) -> Option<String> {
        if store.poll_catch_up().is_some() {
            return Some("fetching the state from another node".to_owned());
        }
        let Some(leader) = store.leader() else {
            return Some(
                "no leader: fewer than half of the nodes are there, or they are electing one"
                    .to_owned(),
            );
        };
        if leader == self.me {
            let serves = store.group().leads_settled();
            return (!serves).then(|| "about to lead".to_owned());
        }
        let lag = self
            .told_committed
            .saturating_sub(store.group().committed_index());
        (lag > CURRENT_ENTRIES).then(|| format!("{lag} entries behind {}", self.name(leader)))
    }

    fn cluster(&self, now: Time, store: &Store) -> ClusterInfo {
        let leader = store.leader();
        let progress = store.progress();
        let replica = |(id, name): (u64, &str)| {
            let known = progress.iter().find(|p| p.id == id);
            ReplicaInfo {
                name: name.to_owned(),
                current: known.is_some_and(|p| p.active && p.lag <= CURRENT_ENTRIES),
                offline: known.is_some_and(|p| !p.active),
                active: self.heard.get(&id).map_or(0, |at| now.since(*at)),
                lag: known.map_or(0, |p| p.lag),
                peer: format!("{id:016x}"),
            }
        };
        // Only who leads knows how far the others are.
        let leads = leader == Some(self.me);
        let others = self.members.iter().filter(|m| leads && m.id != self.me);
        ClusterInfo {
            name: self.cluster.clone(),
            raft_group: "S-all".to_owned(),
            leader: leader
                .map(|id| self.name(id).to_owned())
                .unwrap_or_default(),
            leader_since: self.leads.map(|(_, since)| since),
            replicas: others.map(|m| replica((m.id, &m.name))).collect(),
        }
    }
}
