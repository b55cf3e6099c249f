//! Keeps the peers of this node: knows the channels that connect each peer, decides which peers to admit,
//! and keeps the node from logging a line about a peer again and again.
//!
//! Each peer has a slot, the number under which the rest of the node knows the peer. The peer keeps its slot
//! for as long as the process lives. [`Formation`] knows the members. A cluster without streams has no
//! members: the node then admits every peer that knows the secret and has a name of its own.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::time::Duration;

use tidegate::Time;

use super::formation::Formation;
use super::greeting::{Introduction, Judge};
use super::members::{Member, Members};
use super::proof::{Secret, Side};
use super::refusal::Refusal;
use super::rejoin::Rejoined;
use super::{Kind, PEERS_MAX, VERSION};

/// The time for which the node does not repeat a log line about its peers, because a failing peer dials
/// often.
const NEWS: Duration = Duration::from_secs(60);
const LINES_MAX: usize = 64;

/// The facts that this node states about itself to its peers in greetings.
#[derive(Clone, Debug)]
pub struct Me {
    /// The name of this node's cluster. This node refuses peers of other clusters.
    pub cluster: String,
    /// This node's name, by which peers and operators know it.
    pub name: String,
    /// This node's id, a random number by which peers know it after a restart.
    pub id: u64,
    /// A random number that this node's process draws at its start, see [`Introduction::life`].
    pub life: u64,
    /// True if this node serves streams; all nodes of a cluster do, or none.
    pub streams: bool,
    /// The number of Raft groups that consist of all nodes of the cluster, as this node's configuration sets
    /// it.
    pub shards: u8,
    /// The address to which this node's clients connect, see [`Introduction::client_url`].
    pub client_url: String,
    /// The tags that the operator gives this node, for the placement of streams; see [`Introduction::tags`].
    pub tags: Vec<String>,
    /// The secret that all nodes of the cluster know, with which they prove that they belong to it.
    pub secret: Secret,
}

/// The number under which this node keeps a peer. Other nodes number their peers in another way, so a node
/// never sends this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerSlot(u32);

impl PeerSlot {
    /// Returns the slot with the number `index`, for the place of a peer in a list.
    #[inline]
    #[must_use]
    pub const fn new(index: usize) -> Self {
        assert!(index < PEERS_MAX, "a cluster has at most PEERS_MAX peers");
        Self(index as u32)
    }

    /// Returns the number of the slot, as an index into a list of peers.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the bit that stands for this slot in a set of peers, which a node keeps in 32 bits.
    #[inline]
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self.0
    }

    /// Returns the slots of the first `len` peers, in order, for a loop over them.
    pub fn all(len: usize) -> impl Iterator<Item = Self> {
        (0..len).map(Self::new)
    }
}

/// A peer that is connected to this node, or was connected earlier, as its introduction describes it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The peer's name, by which this node recognizes the peer after a restart.
    pub name: String,
    /// The peer's id, by which Raft groups and this node's slots know the peer.
    pub id: u64,
    life: u64,
    /// The address of the peer's last channel with this node, for logs and for clients.
    pub address: SocketAddr,
    /// The address to which the peer's clients connect, which this node tells its own clients.
    pub client_url: String,
    /// The tags that the operator gives the peer, for the placement of streams.
    pub tags: Vec<String>,
    /// True if the peer lost its disk, and asks the members for its former place. This node then reports its
    /// latest term to the peer.
    pub rejoins: bool,
    /// For each kind of channel, true while a channel that the peer dialled is open: this node receives
    /// frames on it.
    heard: [bool; 2],
    /// For each kind of channel, true while a channel that this node dialled is open: this node sends frames
    /// on it.
    told: [bool; 2],
}

impl Peer {
    /// Returns whether any channel to or from the peer is open, so that no other peer may take its place.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.heard.iter().chain(&self.told).any(|up| *up)
    }

    /// Returns whether this node can send frames of this kind to the peer, because a channel that this node
    /// dialled is open.
    #[must_use]
    pub const fn is_told(&self, kind: Kind) -> bool {
        self.told[kind.index()]
    }

    /// Returns whether this node can receive frames of this kind from the peer, because a channel that the
    /// peer dialled is open.
    #[must_use]
    pub const fn is_heard(&self, kind: Kind) -> bool {
        self.heard[kind.index()]
    }

    const fn channel(&mut self, side: Side, kind: Kind) -> &mut bool {
        match side {
            Side::Dialer => &mut self.told[kind.index()],
            Side::Dialled => &mut self.heard[kind.index()],
        }
    }
}

/// Keeps the peers of this node and decides which peers to admit; see the [module](self).
#[derive(Debug)]
pub struct Roster {
    me: Me,
    formation: Formation,
    peers: Vec<Peer>,
    /// The lines about peers that the node has logged within the last minute, with their times, so that it
    /// does not repeat them.
    lines: VecDeque<(Time, String)>,
}

impl Roster {
    /// Creates a roster without peers for a node with `routes` routes. `formed` are the members that the node
    /// has fixed before; `None` if it has fixed none.
    #[must_use]
    pub fn new(me: Me, routes: usize, formed: Option<Members>) -> Self {
        let member = Member {
            name: me.name.clone(),
            id: me.id,
        };
        Self {
            me,
            formation: Formation::new(member, routes, formed),
            peers: Vec::new(),
            lines: VecDeque::new(),
        }
    }

    /// Returns the facts that this node states about itself in greetings.
    #[must_use]
    pub const fn me(&self) -> &Me {
        &self.me
    }

    /// Records that this node has its former place and id again, which it had before it lost its disk. The
    /// caller must reopen the node's channels, because the peers know them under the temporary id.
    pub fn handle_rejoined(&mut self, rejoined: Rejoined) {
        self.me.id = rejoined.id;
        self.formation.handle_rejoined(rejoined);
    }

    /// Returns the peers in the order of their slots, connected ones and earlier ones.
    #[must_use]
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Returns the slot of the peer with this id, for a caller that has only the id; `None` if no peer has
    /// the id.
    #[must_use]
    pub fn slot_of(&self, id: u64) -> Option<PeerSlot> {
        let slot = self.peers.iter().position(|p| p.id == id);
        slot.map(PeerSlot::new)
    }

    /// Returns the state machine with which this node fixes the members of the cluster, to look at it.
    #[must_use]
    pub const fn formation(&self) -> &Formation {
        &self.formation
    }

    /// Returns the state machine with which this node fixes the members, mutable, so that the caller can
    /// report events.
    pub const fn formation_mut(&mut self) -> &mut Formation {
        &mut self.formation
    }

    /// Records that a channel to or from a peer is open, after [`Judge::admits`] has accepted it. Returns
    /// the slot of the peer, by which the node knows the peer from now on.
    pub fn handle_open(
        &mut self,
        side: Side,
        theirs: &Introduction,
        address: SocketAddr,
    ) -> PeerSlot {
        let found = self.peers.iter().position(|p| p.name == theirs.name);
        let free = || self.peers.iter().position(|p| !p.is_connected());
        let slot = match found {
            Some(slot) => slot,
            // Without fixed members, peers with new names may come at any time, so a new peer gets the slot
            // of a disconnected peer.
            None if self.peers.len() >= PEERS_MAX => {
                free().expect("a channel is admitted only while the slot of a peer is free")
            }
            None => self.peers.len(),
        };
        let fresh = Peer {
            name: theirs.name.clone(),
            id: theirs.id,
            life: theirs.life,
            address,
            client_url: String::new(),
            tags: Vec::new(),
            rejoins: theirs.rejoins,
            heard: [false; 2],
            told: [false; 2],
        };
        if slot == self.peers.len() {
            self.peers.push(fresh.clone());
        }
        let peer = &mut self.peers[slot];
        if peer.life != theirs.life || peer.id != theirs.id {
            *peer = fresh;
        }
        peer.address = address;
        peer.tags.clone_from(&theirs.tags);
        peer.client_url = match theirs.client_url.strip_prefix(':') {
            Some(port) if address.is_ipv6() => format!("[{}]:{port}", address.ip()),
            Some(port) => format!("{}:{port}", address.ip()),
            None => theirs.client_url.clone(),
        };
        *peer.channel(side, theirs.kind()) = true;
        PeerSlot::new(slot)
    }

    /// Records that a channel to or from a peer is over. Once the peer can report nothing any more, forgets
    /// the members that it reported.
    pub fn handle_over(&mut self, slot: PeerSlot, side: Side, kind: Kind) {
        let peer = &mut self.peers[slot.index()];
        *peer.channel(side, kind) = false;
        let (id, silent) = (peer.id, !peer.is_heard(Kind::Route));
        if silent {
            self.formation.handle_gone(id);
        }
    }

    /// Returns the tags of this node and of each peer that has been connected, with the nodes' ids, for the
    /// placement of streams.
    pub fn tags(&self) -> impl Iterator<Item = (u64, &[String])> {
        let me = (self.me.id, &*self.me.tags);
        std::iter::once(me).chain(self.peers.iter().map(|peer| (peer.id, &*peer.tags)))
    }

    /// Returns the addresses to which the clients of connected peers connect, in ascending order, so that
    /// this node's clients can reconnect there.
    #[must_use]
    pub fn client_urls(&self) -> Vec<String> {
        let connected = self.peers.iter().filter(|p| p.is_connected());
        let urls = connected.map(|p| p.client_url.clone());
        let mut urls: Vec<String> = urls.filter(|u| !u.is_empty()).collect();
        urls.sort_unstable();
        urls.dedup();
        urls
    }

    /// Returns whether the node should log a line about a peer: not if it has logged this line within the
    /// last minute.
    pub fn is_news(&mut self, now: Time, line: &str) -> bool {
        while let Some((said, _)) = self.lines.front()
            && (*said + NEWS <= now || self.lines.len() >= LINES_MAX)
        {
            self.lines.pop_front();
        }
        let news = !self.lines.iter().any(|(_, said)| said == line);
        if news {
            self.lines.push_back((now, line.to_owned()));
        }
        news
    }

    /// Checks that the peer can be the member that it claims to be, by its name, its id and the members that
    /// it knows.
    fn check_member(&self, theirs: &Introduction) -> Result<(), Refusal> {
        let Some(members) = self.formation.formed() else {
            return Ok(());
        };
        match members.id_of(&theirs.name) {
            None => {
                return Err(Refusal::NotAMember {
                    name: theirs.name.clone(),
                    members: members.names(),
                });
            }
            // The peer lost its disk, so the node admits it as a guest under a new id. While the member of
            // that name is connected, a later check refuses the guest, because two servers must not have one
            // name.
            Some(known) if known != theirs.id && theirs.rejoins => {}
            Some(known) if known != theirs.id => {
                return Err(Refusal::OtherDirectory {
                    name: theirs.name.clone(),
                    known,
                    came: theirs.id,
                });
            }
            Some(_) => {}
        }
        if theirs.digest != 0 && theirs.digest != members.digest(&self.me.cluster) {
            let (me, cluster) = (self.me.name.clone(), self.me.cluster.clone());
            return Err(Refusal::MembersDiffer(theirs.name.clone(), me, cluster));
        }
        Ok(())
    }
}

impl Judge for Roster {
    fn introduction(&self, kind: Kind) -> Introduction {
        let members = self.formation.formed();
        Introduction {
            version: VERSION,
            raft: kind == Kind::Raft,
            streams: self.me.streams,
            shards: self.me.shards,
            rejoins: self.formation.rejoins(),
            id: self.me.id,
            life: self.me.life,
            digest: members.map_or(0, |m| m.digest(&self.me.cluster)),
            cluster: self.me.cluster.clone(),
            name: self.me.name.clone(),
            client_url: self.me.client_url.clone(),
            tags: self.me.tags.clone(),
        }
    }

    fn secret(&self) -> &Secret {
        &self.me.secret
    }

    fn suits(&self, theirs: &Introduction) -> Result<(), Refusal> {
        if theirs.cluster != self.me.cluster {
            return Err(Refusal::Cluster {
                theirs: theirs.cluster.clone(),
                ours: self.me.cluster.clone(),
            });
        }
        match (theirs.id == self.me.id, theirs.name == self.me.name) {
            (true, _) if theirs.life == self.me.life => Err(Refusal::Myself),
            (true, _) => Err(Refusal::Copy(theirs.name.clone())),
            (false, true) => Err(Refusal::SameName(theirs.name.clone())),
            (false, false) => Ok(()),
        }
    }

    fn admits(&self, side: Side, theirs: &Introduction) -> Result<(), Refusal> {
        if theirs.shards != self.me.shards {
            return Err(Refusal::Shards {
                name: theirs.name.clone(),
                theirs: theirs.shards,
                ours: self.me.shards,
            });
        }
        if theirs.streams != self.me.streams {
            let (with, without) = match theirs.streams {
                true => (theirs.name.clone(), self.me.name.clone()),
                false => (self.me.name.clone(), theirs.name.clone()),
            };
            return Err(Refusal::Streams { with, without });
        }
        self.check_member(theirs)?;
        let Some(peer) = self.peers.iter().find(|p| p.name == theirs.name) else {
            let connected = self.peers.iter().filter(|p| p.is_connected());
            return match connected.count() < PEERS_MAX {
                true => Ok(()),
                false => Err(Refusal::TooMany),
            };
        };
        if peer.id != theirs.id && peer.is_connected() {
            let name = theirs.name.clone();
            return Err(Refusal::NameTaken(name, peer.address.ip().to_string()));
        }
        // The node keeps the process that connected first: of two processes on copies of a data directory,
        // only the first has the promises that it has made since then. If the first process has ended, its
        // channel closes in a moment, and the node then admits the next process.
        if peer.life != theirs.life && peer.is_connected() {
            let name = theirs.name.clone();
            return Err(Refusal::Running(name, peer.address.ip().to_string()));
        }
        // If the peer dials a second channel, its first channel is dead, so the node admits the second one.
        // If this node dials a second channel, two routes lead to the peer, so the node refuses the second
        // channel.
        if side == Side::Dialer && peer.is_told(theirs.kind()) {
            return Err(Refusal::Twice(theirs.name.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: PeerSlot = PeerSlot::new(0);

    fn roster(streams: bool, formed: Option<Members>) -> Roster {
        let me = Me {
            cluster: "tide".into(),
            name: "n1".into(),
            id: 1,
            life: 100,
            streams,
            shards: 1,
            client_url: ":4222".into(),
            tags: vec!["here".into()],
            secret: Secret::new("s"),
        };
        Roster::new(me, 2, formed)
    }

    fn other(name: &str, id: u64, life: u64) -> Introduction {
        Introduction {
            version: VERSION,
            shards: 1,
            id,
            life,
            cluster: "tide".into(),
            name: name.into(),
            client_url: ":4223".into(),
            tags: vec!["there".into()],
            ..Introduction::default()
        }
    }

    fn members() -> Members {
        let all = [("n1", 1), ("n2", 2), ("n3", 3)];
        let all = all.map(|(name, id)| Member {
            name: name.into(),
            id,
        });
        Members::new(all.to_vec()).unwrap()
    }

    fn at() -> SocketAddr {
        ([127, 0, 0, 1], 9).into()
    }

    #[test]
    fn suitable_peers_are_let_in() {
        let roster = roster(false, None);
        let why = |theirs: &Introduction| roster.suits(theirs).unwrap_err().to_string();
        roster.suits(&other("n2", 2, 1)).unwrap();
        let mut elsewhere = other("n2", 2, 1);
        elsewhere.cluster = "ebb".into();
        assert!(why(&elsewhere).contains("cluster `ebb`"));
        assert_eq!(roster.suits(&other("n1", 1, 100)), Err(Refusal::Myself));
        assert!(why(&other("n1", 1, 5)).contains("copies of one data directory"));
        assert!(why(&other("n1", 9, 5)).contains("two servers are named `n1`"));
    }

    #[test]
    fn without_members_a_name_belongs_to_its_connected_node() {
        let mut roster = roster(false, None);
        let first = other("n2", 2, 5);
        roster.admits(Side::Dialled, &first).unwrap();
        assert_eq!(roster.handle_open(Side::Dialled, &first, at()), FIRST);
        let second = other("n2", 22, 6);
        let taken = roster.admits(Side::Dialled, &second).unwrap_err();
        assert!(
            taken
                .to_string()
                .contains("already connected from 127.0.0.1")
        );
        assert_eq!(roster.client_urls(), ["127.0.0.1:4223"]);
        let tags: Vec<&str> = roster
            .tags()
            .flat_map(|(_, tags)| tags)
            .map(String::as_str)
            .collect();
        assert_eq!(tags, ["here", "there"]);
        roster.handle_over(FIRST, Side::Dialled, Kind::Route);
        assert!(roster.client_urls().is_empty());
        roster.admits(Side::Dialled, &second).unwrap();
        assert_eq!(roster.handle_open(Side::Dialled, &second, at()), FIRST);
        assert_eq!((roster.slot_of(2), roster.slot_of(22)), (None, Some(FIRST)));
        let mut streams = other("n4", 4, 1);
        streams.streams = true;
        let refused = roster.admits(Side::Dialled, &streams).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("`n4` serves streams and `n1`")
        );
    }

    #[test]
    fn members_keep_their_identities() {
        let mut roster = roster(true, Some(members()));
        let with = |name, id, digest| Introduction {
            streams: true,
            digest,
            ..other(name, id, 7)
        };
        let digest = members().digest("tide");
        let why = |theirs| {
            roster
                .admits(Side::Dialled, &theirs)
                .unwrap_err()
                .to_string()
        };
        roster.admits(Side::Dialled, &with("n2", 2, 0)).unwrap();
        roster
            .admits(Side::Dialled, &with("n2", 2, digest))
            .unwrap();
        assert!(why(with("n2", 99, 0)).contains("another data directory"));
        let guest = Introduction {
            rejoins: true,
            ..with("n2", 99, 0)
        };
        roster.admits(Side::Dialled, &guest).unwrap();
        assert!(why(with("n9", 2, 0)).contains("not a member"));
        assert!(why(with("n3", 3, 5)).contains("different members"));
        // A restarted node keeps its id and draws a new random number for its process.
        let (old, new) = (
            with("n2", 2, 0),
            Introduction {
                life: 8,
                ..with("n2", 2, 0)
            },
        );
        roster.handle_open(Side::Dialled, &old, at());
        let taken = roster.admits(Side::Dialled, &guest).unwrap_err();
        assert!(taken.to_string().contains("already connected"), "{taken}");
        // While the earlier process is connected, the node must refuse the new one, because it may run on a
        // copy of the data directory.
        for side in [Side::Dialled, Side::Dialer] {
            let running = roster.admits(side, &new).unwrap_err().to_string();
            assert!(
                running.contains("copies of one data directory"),
                "{running}"
            );
        }
        roster.admits(Side::Dialled, &old).unwrap();
        roster.handle_over(FIRST, Side::Dialled, Kind::Route);
        for side in [Side::Dialled, Side::Dialer] {
            roster.admits(side, &new).unwrap();
            assert_eq!(roster.handle_open(side, &new, at()), FIRST);
        }
        let running = roster.admits(Side::Dialled, &old).unwrap_err().to_string();
        assert!(running.contains("still connected"), "{running}");
        let twice = roster.admits(Side::Dialer, &new);
        assert_eq!(twice, Err(Refusal::Twice("n2".into())));
    }

    #[test]
    fn a_line_is_said_once_a_minute() {
        let mut roster = roster(false, None);
        let at = |s: u64| Time::from_nanos(s * 1_000_000_000);
        assert!(roster.is_news(at(1), "a") && !roster.is_news(at(2), "a"));
        assert!(roster.is_news(at(3), "b") && roster.is_news(at(62), "a"));
    }
}
