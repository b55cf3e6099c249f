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
use crate::node::RunError;
use crate::node::core::Node;
use crate::replica::{Message, MessageType, StepError, wire};
use crate::store::Store;
use crate::stream::AccountLimits;

/// A tick of the group: an election begins after ten of them without a leader.
const TICK: Duration = Duration::from_millis(60);
/// How often what is shown of the cluster is renewed.
const LOOK: Duration = Duration::from_millis(250);
/// After a heartbeat what a leader has to send would have come.
const TOLD: Duration = Duration::from_millis(500);
/// Whoever was not heard of for so long is not there: a leader has answers to its heartbeats several times as often.
const GONE: Duration = Duration::from_secs(2);
/// A follower that lacks more entries than this is not current.
const CURRENT_ENTRIES: u64 = 256;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Replication {
    members: Members,
    cluster: String,
    me: u64,
    /// The term from which on this node, whose disk was lost, takes part again.
    rejoined: Option<u64>,
    tick_at: Time,
    look_at: Time,
    /// The term this node leads in, and since when.
    leads: Option<(u64, Timestamp)>,
    /// The last entry a leader said is committed.
    told_committed: u64,
    /// When that counts: a heartbeat tells whoever lacks entries no more than what it has, and is answered by what it lacks.
    told_at: Time,
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
            rejoined: peers.rejoined(),
            tick_at: now,
            look_at: now,
            leads: None,
            told_committed: 0,
            told_at: Time::NEVER,
            taking_over: TakingOver::new(limits, others),
            hands_over: None,
            heard: HashMap::new(),
        })
    }

    /// This node's id.
    pub(super) const fn id(&self) -> u64 {
        self.me
    }

    /// The term from which on this node takes part again, if its disk was lost.
    pub(super) const fn rejoined(&self) -> Option<u64> {
        self.rejoined
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
    ///
    /// # Errors
    /// This node has lost what others count on.
    pub(super) fn receive(
        &mut self,
        now: Time,
        store: &mut Store,
        peers: &mut Peers,
    ) -> Result<(), RunError> {
        while let Some(event) = peers.poll_event() {
            if let PeerEvent::Down(id) = event {
                self.heard.remove(&id);
                store.report_unreachable(id);
            }
        }
        while let Some(received) = peers.poll_raft() {
            self.heard.insert(received.from, now);
            self.take(now, store, received.from, &received.payload)?;
        }
        if self.tick_at <= now {
            // One tick, however late: a loop that was held up has not heard of the others meanwhile, which says nothing of them.
            self.tick_at = now + TICK;
            store.tick();
        }
        Ok(())
    }

    fn take(
        &mut self,
        now: Time,
        store: &mut Store,
        from: u64,
        bytes: &Bytes,
    ) -> Result<(), RunError> {
        let (group, message) = match wire::decode(bytes) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::warn!("from {}: {error}", self.name(from));
                return Ok(());
            }
        };
        if message.from != from {
            tracing::warn!("{} speaks for somebody else", self.name(from));
            return Ok(());
        }
        self.told_committed = self.told_committed.max(message.commit);
        match message.get_msg_type() {
            MessageType::MsgAppend | MessageType::MsgSnapshot => self.told_at = now,
            MessageType::MsgHeartbeat => self.told_at = self.told_at.min(now + TOLD),
            _ => {}
        }
        match store.step(group, message) {
            Ok(()) => Ok(()),
            Err(forgotten @ StepError::Forgotten { .. }) => Err(RunError::Forgotten(forgotten)),
            Err(error) => {
                tracing::debug!("from {}: {error}", self.name(from));
                Ok(())
            }
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

    /// A message is damaged where it lies: it is asked of the others. Whether it may come.
    pub(super) fn mend_one(&mut self, now: Time, stream: u32, seq: u64) -> bool {
        self.taking_over.mend_one(now, stream, seq)
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
    pub(super) fn send(&mut self, now: Time, store: &mut Store, peers: &mut Peers) {
        if let Some(to) = self.hands_over.take()
            && store.group().leads()
        {
            self.hand_over(now, to, store);
        }
        peers.set_vouched_term(store.group().vouched_term());
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
    pub(super) fn look(
        &mut self,
        now: Time,
        node: &mut Node,
        store: &mut Store,
        peers: &mut Peers,
    ) {
        let leads = store.leads_settled();
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
            if peers.rejoined().is_some() && store.group().is_whole() {
                peers.handle_whole();
            }
            let behind = self.behind(now, store);
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

    fn hand_over(&self, now: Time, to: Option<u64>, store: &mut Store) {
        let progress = store.progress();
        let active = progress.iter().filter(|p| self.is_there(now, p.id));
        let next = to.or_else(|| active.max_by_key(|p| p.matched).map(|p| p.id));
        let Some(next) = next else {
            return tracing::warn!("nobody is there to lead instead");
        };
        match store.transfer_leadership(next) {
            Ok(()) => tracing::info!("hands leadership over to {}", self.name(next)),
            Err(error) => tracing::warn!("leadership stays: {error}"),
        }
    }

    /// Whether a node was heard of lately.
    fn is_there(&self, now: Time, id: u64) -> bool {
        self.heard.get(&id).is_some_and(|at| now < *at + GONE)
    }

    /// Why this node lacks what others have.
    fn behind(&self, now: Time, store: &Store) -> Option<String> {
        if store.poll_catch_up().is_some() {
            let text = "fetching the state from another node";
            return Some(match self.taking_over.fetched() {
                None => text.to_owned(),
                Some(messages) => format!("{text}: fetched {messages} messages so far"),
            });
        }
        if !store.group().is_whole() {
            return Some("its disk was lost, and it does not have everything again".to_owned());
        }
        let Some(leader) = store.leader() else {
            return Some(
                "no leader: fewer than half of the nodes are there, or they are electing one"
                    .to_owned(),
            );
        };
        if leader == self.me {
            let serves = store.leads_settled();
            return (!serves).then(|| "about to lead".to_owned());
        }
        if now < self.told_at {
            return Some(format!(
                "{} has not said yet what it has",
                self.name(leader)
            ));
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
                current: self.is_there(now, id) && known.is_some_and(|p| p.lag <= CURRENT_ENTRIES),
                offline: !self.is_there(now, id),
                // None at all would mean never.
                active: self.heard.get(&id).map_or(0, |at| now.since(*at).max(1)),
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
