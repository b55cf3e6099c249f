//! Keeps this node's view of one of its Raft groups: whether this node leads, the commit index that a leader
//! has announced, and the state that this node fetches.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupOf};
use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::replica::{EntryId, Index, Message, MessageType, Term};
use tidegate_raft::store::Store;
use tidegate_stream::api::answer::{ClusterInfo, ReplicaInfo};
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::AccountLimits;

use super::super::clock::wall_clock_us;
use super::super::taking_over::TakingOver;
use super::{GONE, Known, TOLD};
use crate::sessions::Node;

/// A member that lacks at most this number of entries does not count as behind: this node describes the
/// member as current, and a leader may hand the leadership over to it.
const CURRENT_ENTRIES: u64 = 256;
/// The interval at which a leader without disk space tries to hand its leadership over. A handover ends
/// within this time, with success or failure, so no two attempts overlap.
const RELIEVE: Duration = Duration::from_secs(2);

/// This node's view of one of its Raft groups, by which the loop does its part in the group.
#[derive(Debug)]
pub(super) struct InGroup {
    /// The slot of the group, by which the store and the node find the group's state.
    at: GroupSlot,
    pub(super) of: GroupOf,
    /// The term in which this node leads, and the time at which it began to lead; `None` if another node
    /// leads.
    leads: Option<(Term, Timestamp)>,
    /// The highest commit index that a leader has announced, which this node must reach to be current.
    told_committed: Index,
    /// The time from which on this node takes `told_committed` for the group's commit index. An append of the
    /// leader names that index at once. A heartbeat names no index beyond the entries that this node has, so
    /// after a heartbeat this node waits until the leader has had time to send the missing entries.
    told_at: Time,
    pub(super) taking_over: TakingOver,
    /// The handover of leadership that this node carries out at the end of the turn, after the deltas of
    /// consumers are proposed, if it leads then: `Some(Some(id))` to the member with this id, `Some(None)` to
    /// the most advanced member, `None` if no handover is due.
    hands_over: Option<Option<u64>>,
    /// If this node leads without disk space, it may try to hand its leadership over again from this time on,
    /// because an earlier attempt must end first.
    relieve_at: Time,
    /// The ids of the other members that have announced that they have no disk space.
    full: Vec<u64>,
}

impl InGroup {
    pub(super) fn new(at: GroupSlot, of: GroupOf, limits: AccountLimits, me: u64) -> Self {
        let mut others = of.members.clone();
        others.retain(|id| *id != me);
        Self {
            at,
            of,
            leads: None,
            told_committed: Index::ZERO,
            told_at: Time::NEVER,
            taking_over: TakingOver::new(at, limits, others),
            hands_over: None,
            relieve_at: Time::ZERO,
            full: Vec::new(),
        }
    }

    /// Records the commit index that a message of another member names, and the time from which on this node
    /// counts on it.
    pub(super) fn hear(&mut self, now: Time, message: &Message) {
        self.told_committed = self.told_committed.max(Index::new(message.commit));
        match message.get_msg_type() {
            MessageType::MsgAppend | MessageType::MsgSnapshot => self.told_at = now,
            MessageType::MsgHeartbeat => self.told_at = self.told_at.min(now + TOLD),
            _ => {}
        }
    }

    /// Begins a handover of leadership if a client has asked for it or this node has no disk space. Then
    /// tells the group's streams whether this node leads. Returns whether that has changed since the last
    /// call, so that the caller shows it to clients at once.
    pub(super) fn look(
        &mut self,
        now: Time,
        node: &mut Node,
        store: &Store,
        known: &Known,
    ) -> bool {
        let Some(streams) = node.streams_mut(self.at) else {
            return false;
        };
        if let Some(asked) = streams.take_step_down() {
            let named = asked.preferred.and_then(|name| known.members.id_of(&name));
            let tagged = || {
                let mut others = self.of.members.iter().filter(|id| **id != known.me);
                let fits = |id: &&u64| known.tags.has_all(**id, &asked.tags);
                others
                    .find(|id| fits(id) && known.is_there(now, **id))
                    .copied()
            };
            let to = match asked.tags.is_empty() {
                true => named.filter(|id| self.of.members.contains(id)),
                false => named.or_else(tagged),
            };
            self.begin_hand_over(now, node, to);
        }
        self.relieve(now, node, store, known);
        if let Some(streams) = node.streams_mut(self.at) {
            streams.set_elected(store.group(self.at).leads());
        }
        let leads = store.leads_settled(self.at);
        let served = node.streams(self.at).is_some_and(|s| s.serves());
        if leads == served {
            return false;
        }
        let term = store.group(self.at).term();
        self.leads = leads.then(|| (term, Timestamp::from_micros(wall_clock_us())));
        let of = self.title(known);
        if leads {
            tracing::info!(
                "this node leads the streams {of}, in term {term}, because their nodes have elected it: it serves their clients from now on"
            );
            node.handle_leading(self.at, now);
        } else {
            tracing::info!(
                "this node no longer leads the streams {of}, because it handed over or lost their leadership: publishers wait until the nodes have elected a leader"
            );
            node.handle_following(self.at, now);
        }
        true
    }

    /// Tells the group's streams whether so many members lack disk space that the group could not commit a
    /// message. A leader that has space itself would otherwise not notice that its followers have none.
    pub(super) fn look_for_room(&self, now: Time, node: &mut Node, known: &Known) {
        let members = self.of.members.iter().map(|id| {
            let there = *id == known.me || known.is_there(now, *id);
            (node.is_full(*id), there)
        });
        let crowded = is_crowded(members.collect());
        if let Some(streams) = node.streams_mut(self.at) {
            streams.set_crowded(crowded);
        }
    }

    /// Hands the leadership over if this leader has no disk space, because it refuses messages that another
    /// leader could accept. The next leader must have space, and nearly all entries.
    fn relieve(&mut self, now: Time, node: &mut Node, store: &Store, known: &Known) {
        let full = node.has_no_room() && store.group(self.at).leads();
        if !full || now < self.relieve_at {
            return;
        }
        self.relieve_at = now + RELIEVE;
        let progress = store.progress(self.at).into_iter();
        let able = progress.filter(|p| {
            p.lag <= CURRENT_ENTRIES && known.is_there(now, p.id) && !node.is_full(p.id)
        });
        if let Some(next) = able.max_by_key(|p| p.matched) {
            tracing::warn!(
                "this node has no disk space: it hands the leadership of the streams {} over to {}",
                self.title(known),
                known.name(next.id)
            );
            self.begin_hand_over(now, node, Some(next.id));
        }
    }

    /// Returns the names of the group's members, for log lines.
    fn title(&self, known: &Known) -> String {
        match self.of.members.len() == known.members.len() {
            true if self.of.number == ALL => "of all nodes".to_owned(),
            true => format!("of all nodes, group {}", self.of.number),
            false => {
                let names = self.of.members.iter().map(|id| known.name(*id));
                format!("of {}", names.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Tells the group's streams once this node has applied all entries that the group's leader has
    /// committed, so that the node may act by them. Does nothing once the streams know it.
    pub(super) fn look_whether_current(&self, now: Time, node: &mut Node, store: &Store) {
        let streams = node.streams_mut(self.at);
        if let Some(streams) = streams.filter(|s| !s.is_current())
            && self.is_current(now, store)
        {
            streams.set_current();
        }
    }

    /// Returns whether this node has applied all entries that, as the leader announced, are committed. The
    /// node's last applied entry must be of the current term, because a new leader does not know the commit
    /// index before it has committed an entry of its own.
    fn is_current(&self, now: Time, store: &Store) -> bool {
        let EntryId { index, term } = store.applied(self.at);
        let group = store.group(self.at);
        let told = store.leader(self.at).is_some() && now >= self.told_at;
        let applied = index >= self.told_committed && term == group.term() && group.is_whole();
        store.leads_settled(self.at) || (told && applied)
    }

    /// Updates the description of the group that clients and the monitor see, and the list of members without
    /// space.
    pub(super) fn show(&mut self, now: Time, node: &mut Node, store: &Store, known: &Known) {
        self.look_who_is_full(node, store, known);
        let behind = self.behind(now, store, known);
        let cluster = self.cluster(now, store, known);
        if let Some(streams) = node.streams_mut(self.at) {
            streams.set_cluster(self.of.members.len(), cluster, behind);
            streams.set_tags(Arc::clone(&known.tags));
        }
    }

    /// Begins to hand the leadership to the member `to`, or without `to` to the most advanced member. Makes
    /// the streams propose the consumers' states first, so that the next leader has them.
    pub(super) fn begin_hand_over(&mut self, now: Time, node: &mut Node, to: Option<u64>) {
        if self.of.members.len() < 2 {
            return;
        }
        if let Some(streams) = node.streams_mut(self.at) {
            streams.flush_consumers(now);
        }
        self.hands_over = Some(to);
    }

    /// Carries out the handover that [`begin_hand_over`](Self::begin_hand_over) requested, if this node still
    /// leads, by telling Raft the next leader.
    pub(super) fn hand_over(
        &mut self,
        now: Time,
        node: &mut Node,
        store: &mut Store,
        known: &Known,
    ) {
        let Some(to) = self.hands_over.take() else {
            return;
        };
        if !store.group(self.at).leads() {
            return;
        }
        let progress = store.progress(self.at);
        let active = progress.iter().filter(|p| known.is_there(now, p.id));
        // The node prefers members with disk space, because a leader without space would only hand its
        // leadership over again.
        let best = active.max_by_key(|p| (!node.is_full(p.id), p.matched));
        let next = to.or_else(|| best.map(|p| p.id));
        let Some(next) = next else {
            return tracing::warn!(
                "this node should hand over the leadership of the streams {}, but keeps it, because no other node is connected",
                self.title(known)
            );
        };
        match store.transfer_leadership(self.at, next) {
            Ok(()) => tracing::info!(
                "this node hands the leadership of the streams {} over to {}, because a request, a full disk or its own shutdown calls for another leader",
                self.title(known),
                known.name(next)
            ),
            Err(error) => tracing::warn!(
                "this node should hand over the leadership of the streams {}, but keeps it, because the handover failed: {error}",
                self.title(known)
            ),
        }
    }

    /// Returns the reason why this node is behind the other members, for the monitor; `None` if this node is
    /// not behind.
    fn behind(&self, now: Time, store: &Store, known: &Known) -> Option<String> {
        if store.poll_catch_up(self.at).is_some() {
            let text = "fetching the state from another node";
            return Some(match self.taking_over.fetched() {
                None => text.to_owned(),
                Some(messages) => format!("{text}: fetched {messages} messages so far"),
            });
        }
        if !store.group(self.at).is_whole() {
            return Some("its disk was lost, and it does not have everything again".to_owned());
        }
        let Some(leader) = store.leader(self.at) else {
            return Some(
                "no leader: fewer than half of the nodes are there, or they are electing one"
                    .to_owned(),
            );
        };
        if leader == known.me {
            let serves = store.leads_settled(self.at);
            return (!serves).then(|| "about to lead".to_owned());
        }
        if now < self.told_at {
            return Some(format!(
                "{} leads, and has not said yet how many entries it has",
                known.name(leader)
            ));
        }
        let lag = self
            .told_committed
            .since(store.group(self.at).committed_index());
        (lag > CURRENT_ENTRIES).then(|| format!("{lag} entries behind {}", known.name(leader)))
    }

    /// Updates the list of the other members without disk space, and logs those that have joined the list,
    /// for the operator. This node learns of a full disk from the member's announcement to its peers, because
    /// a follower does not answer the messages that wait for space.
    fn look_who_is_full(&mut self, node: &mut Node, store: &Store, known: &Known) {
        let others = self.of.members.iter().copied();
        let full: Vec<u64> = others
            .filter(|id| *id != known.me && node.is_full(*id))
            .collect();
        let before = std::mem::replace(&mut self.full, full);
        // Only the leader of the group of all nodes logs full disks, so that the cluster logs each of them
        // once.
        if self.of.number != ALL || !store.group(self.at).leads() {
            return;
        }
        for id in self.full.iter().filter(|id| !before.contains(id)) {
            tracing::warn!(
                "node {} has no disk space: it stores new entries only once its disk has space, so free space there",
                known.name(*id)
            );
        }
    }

    fn cluster(&self, now: Time, store: &Store, known: &Known) -> ClusterInfo {
        let leader = store.leader(self.at);
        let progress = store.progress(self.at);
        let replica = |id: u64| {
            let progress = progress.iter().find(|p| p.id == id);
            let there = known.is_there(now, id) || self.full.contains(&id);
            ReplicaInfo {
                name: known.name(id).to_owned(),
                current: there && progress.is_some_and(|p| p.lag <= CURRENT_ENTRIES),
                offline: !there,
                // This node reports a silence of at least 1 ns, since 0 would mean that it has never heard
                // from the member.
                active: known.silent_for(now, id).map_or(0, |silent| silent.max(1)),
                lag: progress.map_or(0, |p| p.lag),
                peer: format!("{id:016x}"),
            }
        };
        // Only the leader knows the progress of the other members, so other nodes describe none.
        let leads = leader == Some(known.me);
        let others = self
            .of
            .members
            .iter()
            .filter(|id| leads && **id != known.me);
        // The description names nats-server's default names of the account of replication traffic, because
        // clients expect them. A group of one node has no replication traffic, and leaves the names out.
        let told = self.of.members.len() > 1;
        ClusterInfo {
            name: known.cluster.clone(),
            raft_group: match self.of.number {
                ALL => "S-all".to_owned(),
                number => format!("S-{number}"),
            },
            leader: leader
                .map(|id| known.name(id).to_owned())
                .unwrap_or_default(),
            leader_since: self.leads.map(|(_, since)| since),
            system_account: told,
            traffic_account: if told { "$SYS" } else { "" },
            replicas: others.map(|id| replica(*id)).collect(),
        }
    }
}

/// Returns whether at most half of a group's members can take messages, so that the group must refuse
/// messages. `members` holds for each member whether it lacks disk space, and whether it is connected. While
/// a member lacks space, a disconnected member does not count as able: it may come back without space, and
/// then no majority could take the messages that the leader has accepted in the meantime.
fn is_crowded(members: Vec<(bool, bool)>) -> bool {
    let full = members.iter().any(|(full, _)| *full);
    let able = members.iter().filter(|(full, there)| !full && *there);
    full && members.len() > 1 && 2 * able.count() <= members.len()
}

impl Known {
    /// Returns whether this node has heard from the node `id` within the last two seconds, and so takes it
    /// for present.
    fn is_there(&self, now: Time, id: u64) -> bool {
        self.heard.get(&id).is_some_and(|at| now < *at + GONE)
    }

    /// Returns the time since this node last heard from the node `id`, in nanoseconds; `None` if this node
    /// has never heard from it, for the cluster's description.
    fn silent_for(&self, now: Time, id: u64) -> Option<u64> {
        self.heard.get(&id).map(|at| now.since(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::is_crowded;

    #[test]
    fn a_member_that_is_away_has_no_room_while_another_is_full() {
        let (able, full, away) = ((false, true), (true, true), (false, false));
        assert!(!is_crowded(vec![able, able, full]));
        assert!(is_crowded(vec![able, full, full]));
        // The full nodes restart one by one, so one of them is away.
        assert!(is_crowded(vec![able, full, away]));
        // If no member is full, Raft alone decides whether the group can commit.
        assert!(!is_crowded(vec![able, able, away]));
        assert!(!is_crowded(vec![able, away, away]));
        assert!(!is_crowded(vec![able, able, able, full, away]));
        assert!(!is_crowded(vec![full]), "a node alone sees it itself");
    }
}
