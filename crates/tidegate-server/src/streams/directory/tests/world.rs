//! Builds nodes with several groups each for tests, without sockets and without Raft: all members commit a
//! proposed entry at once, except nodes from which the test holds entries back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId, GroupOf, groups};
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::slots::GroupSlot;
use tidegate_cluster::wire::Routed;
use tidegate_log::Lsn;
use tidegate_nats::connect::Info;
use tidegate_raft::replica::{Committed, EntryId, Index, Term};
use tidegate_raft::store::{Fetch, Peeked, Space};
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::stream::{AccountLimits, Entry, Home, Place, Streams};

use super::super::super::JetStream;
use super::super::super::Messages;
use super::config;
use crate::config::{Settings, StreamSettings};
use crate::party::ClientKey;
use crate::sessions::{Node, joined};

/// Serves the messages of one group to a node from the entries that the test keeps.
struct Entries<'a>(GroupId, &'a BTreeMap<(GroupId, u64), bytes::Bytes>);

impl Messages for Entries<'_> {
    fn peek(&self, place: Place) -> Peeked {
        let entry = self.1.get(&(self.0, place.lsn));
        let fetch = entry.map_or(Fetch::Gone, |entry| {
            Fetch::Ready(entry.slice(place.offset as usize..))
        });
        Peeked { fetch, ask: false }
    }
}

/// Decides by chance whether a message arrives: the test loses `lost` in a hundred of the messages between
/// leaders.
fn arrives(chance: &mut u64, lost: u64) -> impl FnMut(&Routed<'_>) -> bool {
    move |message| {
        *chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let is_lost = (*chance >> 33) % 100 < lost;
        !is_lost || !message.message.subject.starts_with(b"$TG.")
    }
}

pub(crate) struct World {
    /// All entries that the nodes have proposed, by group and place, from which the nodes read messages.
    entries: BTreeMap<(GroupId, u64), bytes::Bytes>,
    /// The number of messages between leaders that the test loses, in a hundred, by chance.
    pub(crate) lost: u64,
    chance: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) groups: Vec<GroupOf>,
    pub(crate) now: Time,
    /// The index of the last entry of each group, after which the next entry follows.
    last: BTreeMap<GroupId, u64>,
    pub(crate) leaders: BTreeMap<GroupId, usize>,
    /// For each node from which the test holds entries back, the entries of the directory that it has not
    /// received.
    pub(crate) held: BTreeMap<usize, Vec<Committed>>,
    /// The entries that have still to reach a node: the node, the group and the entry.
    pending: Vec<(usize, GroupId, Committed)>,
    clients: Vec<(usize, ClientKey)>,
    /// The pairs of nodes between which the test holds messages back: messages from the first to the second
    /// wait until `hurry`.
    pub(crate) slow: BTreeSet<(usize, usize)>,
    /// The node with a disk that has no space left but the reserve for commands that free space.
    scarce: Option<usize>,
}

impl World {
    /// Creates this number of nodes. The first node leads all groups that it is in; the other nodes lead the
    /// groups that it is not in.
    pub(crate) fn of(count: usize) -> Self {
        Self::sharded(count, 1)
    }

    pub(crate) fn sharded(count: usize, shards: u32) -> Self {
        let groups = groups((1..=count as u64).collect(), shards);
        let mut world = Self {
            entries: BTreeMap::new(),
            lost: 0,
            chance: 1,
            nodes: Vec::new(),
            groups: groups.clone(),
            now: Time::from_nanos(1_000_000),
            last: BTreeMap::new(),
            leaders: BTreeMap::new(),
            held: BTreeMap::new(),
            pending: Vec::new(),
            clients: Vec::new(),
            slow: BTreeSet::new(),
            scarce: None,
        };
        for id in 1..=count as u64 {
            let mut node = Node::new(Settings::default(), Info::default(), id);
            node.join_cluster(Vec::new());
            for group in groups.iter().filter(|g| g.members.contains(&id)) {
                let limits = AccountLimits {
                    replicated: true,
                    ..AccountLimits::NONE
                };
                let kept = StreamSettings::new("not used".into());
                let mut streams = JetStream::new(world.now, kept, Streams::new(limits), id)
                    .of_group(group.number);
                streams.set_cluster(group.members.len(), ClusterInfo::default(), None);
                if group.number == ALL {
                    streams.set_groups(groups.clone());
                    streams.set_current();
                }
                node.attach_streams(streams);
            }
            world.nodes.push(node);
        }
        joined::join(&mut world.nodes);
        for group in &groups {
            world.lead(group.number, group.members[0] as usize - 1);
        }
        world.turn();
        // The test connects one client to each node.
        for node in 0..count {
            let key = joined::client(&mut world.nodes[node], world.now);
            world.clients.push((node, key));
            world.say(node, format!("SUB r.{node}.* 1\r\n"));
        }
        world.settle();
        (0..count).for_each(|node| drop(world.heard(node)));
        world
    }

    /// Replaces the client at this node by a new client, as if the first had lost its connection.
    fn connect(&mut self, node: usize) {
        self.clients[node].1 = joined::client(&mut self.nodes[node], self.now);
        self.say(node, format!("SUB r.{node}.* 1\r\n"));
    }

    /// Starts this node again without streams of its own: it waits until the other nodes admit it.
    pub(crate) fn begin_as_guest(&mut self, node: usize, domain: &str) {
        let mut streams = StreamSettings::new("not used".into());
        streams.domain = Some(domain.into());
        let settings = Settings {
            streams: Some(streams),
            ..Settings::default()
        };
        self.hold(node);
        self.nodes[node] = Node::new(settings, Info::default(), 9);
        self.nodes[node].join_cluster(Vec::new());
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.nodes[other].handle_peer_lost(PeerSlot::new(node));
            self.nodes[other].handle_peer_down(PeerSlot::new(node));
            self.nodes[other].handle_peer_up(PeerSlot::new(node));
            self.nodes[node].handle_peer_up(PeerSlot::new(other));
        }
        self.connect(node);
        self.settle();
    }

    pub(crate) fn slot(&self, node: usize, group: GroupId) -> GroupSlot {
        let mut slots = self.nodes[node].slots().filter(|at| {
            self.nodes[node]
                .streams(*at)
                .is_some_and(|s| s.group() == group)
        });
        slots.next().expect("a member")
    }

    pub(crate) fn lead(&mut self, group: GroupId, node: usize) {
        let at = self.slot(node, group);
        self.leaders.insert(group, node);
        self.nodes[node].handle_leading(at, self.now);
        self.nodes[node].announce_streams();
    }

    pub(crate) fn follow(&mut self, group: GroupId) {
        let node = self.leaders.remove(&group).expect("a leader");
        let at = self.slot(node, group);
        self.nodes[node].handle_following(at, self.now);
        self.nodes[node].announce_streams();
        self.pump();
    }

    pub(crate) fn commit(&mut self, group: GroupId, data: bytes::Bytes) -> EntryId {
        let index = self.last.entry(group).or_default();
        *index += 1;
        let entry = Committed {
            index: Index::new(*index),
            term: Term::new(1),
            lsn: Lsn::new(*index * 4096),
            data,
        };
        self.entries
            .insert((group, entry.lsn.get()), entry.data.clone());
        let id = entry.id();
        let members = self.groups.iter().find(|g| g.number == group);
        for id in members.expect("a group").members.clone() {
            let node = id as usize - 1;
            match self.held.get_mut(&node).filter(|_| group == ALL) {
                Some(held) => held.push(entry.clone()),
                None => self.pending.push((node, group, entry.clone())),
            }
        }
        id
    }

    /// Runs one turn of each group on each node: commits and applies the entries, and serves the streams.
    pub(crate) fn turn(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        let now = self.now;
        for node in 0..self.nodes.len() {
            for at in self.nodes[node].slots() {
                let group = self.nodes[node].streams(at).unwrap().group();
                while let Some((entry, _)) = self.nodes[node].poll_proposal(at, now) {
                    if self.scarce == Some(node) && !Entry::decode(&entry).unwrap().makes_space() {
                        let error = ApiError::STORAGE_EXCEEDED;
                        self.nodes[node].handle_refused(at, now, &error);
                    } else if self.leaders.get(&group) == Some(&node) {
                        let there = self.commit(group, entry);
                        self.nodes[node].handle_proposed(at, now, there, 1);
                    } else {
                        let error = ApiError::SYSTEM_UNAVAILABLE;
                        self.nodes[node].handle_refused(at, now, &error);
                    }
                }
            }
        }
        let mut waits = BTreeSet::new();
        for (node, group, entry) in std::mem::take(&mut self.pending) {
            let at = self.slot(node, group);
            let is_ready =
                !waits.contains(&(node, group)) && self.nodes[node].prepare(at, &entry.data);
            if is_ready {
                self.apply(node, group, &entry);
            } else {
                waits.insert((node, group));
                self.pending.push((node, group, entry));
            }
        }
        for node in &mut self.nodes {
            for at in node.slots() {
                let group = node.streams(at).unwrap().group();
                let entries = Entries(group, &self.entries);
                node.serve_streams(at, now, &entries).unwrap();
            }
            // A thread of the pool would encode the page of the turn before, so the test encodes it here.
            while let Some((at, job)) = node.poll_page() {
                let body = job.page.encode();
                node.handle_page(now, at, &job.reply, Some(&body));
            }
            node.announce_streams();
        }
        self.pump();
    }

    pub(crate) fn apply(&mut self, node: usize, group: GroupId, entry: &Committed) {
        let (at, now) = (self.slot(node, group), self.now);
        self.nodes[node].handle_committed(at, now, entry).unwrap();
    }

    /// Holds the directory's entries back from this node, so that its copy falls behind.
    pub(crate) fn hold(&mut self, node: usize) {
        self.held.insert(node, Vec::new());
    }

    pub(crate) fn release(&mut self, node: usize) {
        for entry in self.held.remove(&node).unwrap() {
            self.apply(node, ALL, &entry);
        }
        self.settle();
    }

    /// Leaves so little space on this node's disk that the node writes only commands that free space. `None`
    /// gives all nodes space again.
    pub(crate) fn crowd(&mut self, node: Option<usize>) {
        self.scarce = node;
        for (at, of) in self.nodes.iter_mut().enumerate() {
            of.set_space(match node == Some(at) {
                true => Space::Scarce,
                false => Space::Free,
            });
        }
    }

    /// Lets a second pass, in which the nodes run their turns and timers.
    pub(crate) fn settle(&mut self) {
        for _ in 0..20 {
            self.now = self.now + Duration::from_millis(50);
            self.turn();
        }
    }

    /// Delivers the messages that wait for peers, until none waits.
    pub(crate) fn pump(&mut self) {
        let slow = |from, to| self.slow.contains(&(from, to));
        let arrives = arrives(&mut self.chance, self.lost);
        joined::pump(&mut self.nodes, self.now, slow, arrives);
    }

    /// Delivers the messages that the test holds back between these two nodes, and holds none back there any
    /// more.
    pub(crate) fn hurry(&mut self, from: usize, to: usize) {
        self.slow.remove(&(from, to));
        let arrives = arrives(&mut self.chance, self.lost);
        joined::hand_over(&mut self.nodes, self.now, (from, to), arrives);
        self.pump();
    }

    /// Lets the client at this node send these bytes to the node.
    pub(crate) fn say(&mut self, node: usize, text: impl AsRef<[u8]>) {
        let key = self.clients[node].1;
        joined::say(&mut self.nodes[node], self.now, key, text);
        self.pump();
    }

    /// Takes the text that the client at this node received since the last call.
    pub(crate) fn heard(&mut self, node: usize) -> String {
        let key = self.clients[node].1;
        joined::heard(&mut self.nodes[node], self.now, key)
    }

    pub(crate) fn publish(&mut self, node: usize, subject: &str, reply: &str, payload: &str) {
        // Each client has a subject of its own for answers, so that no client hears another's answers.
        let reply = reply.replacen("r.", &format!("r.{node}."), 1);
        let text = format!("PUB {subject} {reply} {}\r\n{payload}\r\n", payload.len());
        self.say(node, &text);
    }

    /// Returns the answers to a request from the client at this node. Most requests have one.
    pub(crate) fn answers(&mut self, node: usize, what: &str, body: &Value) -> Vec<Value> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.publish(node, &format!("$JS.API.{what}"), "r.a", &body);
        self.settle();
        let heard = self.heard(node);
        let bodies = heard.lines().filter(|line| line.starts_with('{'));
        bodies.map(|b| serde_json::from_str(b).unwrap()).collect()
    }

    /// Returns the only answer to a request from the client at this node.
    pub(crate) fn ask(&mut self, node: usize, what: &str, body: &Value) -> Value {
        let mut answers = self.answers(node, what, body);
        assert_eq!(answers.len(), 1, "{what}: {answers:?}");
        answers.remove(0)
    }

    pub(crate) fn create(&mut self, node: usize, name: &str, replicas: usize) -> Value {
        let config = config(name, replicas);
        self.ask(node, &format!("STREAM.CREATE.{name}"), &config)
    }

    /// Returns the group that keeps a stream, and whether the group has created it, as this node's directory
    /// shows it.
    pub(crate) fn kept(&self, node: usize, name: &str) -> Option<Home> {
        let directory = self.nodes[node].directory().unwrap().applied();
        let id = directory.by_name(name)?;
        directory.get(id).map(|s| s.home())
    }

    pub(crate) fn group_of(&self, name: &str) -> GroupId {
        match self.kept(0, name) {
            Some(Home::Elsewhere { group, .. }) => group,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Returns the only node of the group that keeps a stream with one replica.
    pub(crate) fn owner_of(&self, name: &str) -> usize {
        let group = self.group_of(name);
        let of = self.groups.iter().find(|g| g.number == group).unwrap();
        assert_eq!(of.members.len(), 1);
        of.members[0] as usize - 1
    }

    pub(crate) fn entry(&self, group: GroupId, lsn: u64) -> &bytes::Bytes {
        &self.entries[&(group, lsn)]
    }

    /// Returns the number of messages of a stream at a node that keeps it.
    pub(crate) fn messages(&self, node: usize, name: &str) -> Option<u64> {
        let slots = self.nodes[node].all_streams();
        let found = slots.filter_map(|s| {
            let streams = s.applied();
            streams.by_name(name).and_then(|id| streams.get(id))
        });
        let mut here = found.filter(|s| s.home().is_here());
        here.next().map(|s| s.state().messages)
    }
}
