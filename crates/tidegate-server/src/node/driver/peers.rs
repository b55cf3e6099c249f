//! The sockets between nodes: dialled, accepted, read, written, and dropped when the pure parts say so.
//!
//! Decides nothing but the order of work. Who is welcome is [`Roster`]'s to say, when a route is dialled
//! [`Redial`]'s, what a connection is good for [`Channel`]'s, and what a message leads to the node's.
//!
//! For groups there are [`Peers::send_raft`] and [`Peers::poll_raft`], and the same for what is fetched:
//! messages for a peer wait in its channel's outbox up to a bound and are dropped beyond it; those that came
//! wait up to a bound beyond which the channel is not read. What is sent leaves at the end of the turn, or
//! with [`Peers::flush`].

mod dial;
mod ending;
mod frames;
mod inbox;
mod listen;
mod reading;
mod rejoining;
mod secured;
mod sockets;
mod upkeep;

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use mio::net::{TcpListener, TcpStream};
use mio::{Registry, Token};
use ring::rand::SystemRandom;
use slab::Slab;
use tidegate::Time;
use tidegate_log::Disk;

use self::dial::Resolving;
use self::inbox::Inbox;
pub use self::inbox::Received;
pub(in crate::node) use self::listen::client_url;
use self::secured::Securing;
use super::Handle;
use crate::cluster::Kind;
use crate::cluster::channel::Channel;
use crate::cluster::members::{Members, MembersFile};
use crate::cluster::proof::Side;
use crate::cluster::redial::Redial;
use crate::cluster::roster::Roster;
use crate::cluster::wire::{self, Frame};
use crate::config::cluster::RouteAddress;
use crate::nats::outbox::{Outbox, Pool};
use crate::node::handshakes::Place;
use crate::node::socket::Socket;
use crate::node::tls::PeerTls;

/// The listener for peers.
pub(super) const PEER_LISTENER: Token = Token(usize::MAX - 2);
/// The first token of peers' connections.
pub(super) const PEER_TOKENS: usize = usize::MAX / 2;

/// Bytes of a group's messages that may wait for one peer.
const SEND_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Comings and goings that were not asked for.
const EVENTS_MAX: usize = 1024;

/// A peer came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// It can be sent messages of groups.
    Up(u64),
    /// It cannot.
    Down(u64),
}

/// Too much waits for the peer, or it is not connected: the message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too much waits for the node, or it is not connected: send it again later")]
pub struct NotSent;

/// All connections to and from other nodes.
#[derive(Debug)]
pub struct Peers {
    registry: Registry,
    listener: TcpListener,
    address: SocketAddr,
    routes: Vec<RouteAddress>,
    resolving: Resolving,
    roster: Roster,
    redial: Redial,
    /// Where the members are written down; `None` without streams.
    identity: Option<(Disk, MembersFile)>,
    /// What this node can vouch for to one that lost its disk.
    vouched_term: Option<u64>,
    conns: Slab<Conn>,
    /// The connection that tells each peer something, and the one that hears it, by slot and kind.
    told: Vec<[Option<usize>; 2]>,
    heard: Vec<[Option<usize>; 2]>,
    /// To be read in this turn.
    ready: Vec<usize>,
    /// With something of their own to write.
    dirty: Vec<usize>,
    /// Places of handshakes on connections that are over.
    withdrawn: Vec<Place>,
    raft: Inbox,
    fetches: Inbox,
    events: VecDeque<PeerEvent>,
    /// Members are told, and pings sent.
    next_ping: Time,
    pings: u64,
    pool: Pool,
    /// TLS with other nodes, if it is to be spoken.
    tls: Option<PeerTls>,
    write_deadline: std::time::Duration,
    random: SystemRandom,
}

#[derive(Debug)]
struct Conn {
    socket: Socket,
    address: SocketAddr,
    channel: Channel,
    side: Side,
    /// What it was dialled for; what the other side said.
    kind: Kind,
    /// By which route, if it was dialled.
    route: Option<usize>,
    /// Whose, once it is open.
    slot: Option<usize>,
    /// The connection itself is not made yet.
    connecting: bool,
    securing: Securing,
    input: Vec<u8>,
    /// Bytes there must be before another frame is complete.
    need: usize,
    readable: bool,
    writable: bool,
    ended: bool,
    /// In `ready`.
    listed: bool,
    /// In `dirty`.
    dirty: bool,
    /// Where its handshake waits for its turn: it is not read meanwhile.
    place: Option<Place>,
}

impl Peers {
    /// Where it listens for peers.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// This node's id: the one its groups know it by.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.roster.me().id
    }

    /// The members of the cluster, once they are fixed and written down: the voters of its groups.
    #[must_use]
    pub const fn formed(&self) -> Option<&Members> {
        self.roster.formation().formed()
    }

    /// Where the nodes are, as configured.
    #[must_use]
    pub fn routes(&self) -> &[RouteAddress] {
        &self.routes
    }

    /// Who is, or was, connected.
    #[must_use]
    pub const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Sends a message of a group, in parts, to the node with this id.
    ///
    /// # Errors
    /// It was dropped.
    pub fn send_raft(&mut self, to: u64, group: u32, payload: &[Bytes]) -> Result<(), NotSent> {
        self.send(to, |out| wire::put_raft(out, group, payload))
    }

    /// Sends what concerns fetching to the node with this id.
    ///
    /// # Errors
    /// It was dropped.
    pub fn send_fetch(&mut self, to: u64, group: u32, payload: &[u8]) -> Result<(), NotSent> {
        self.send(to, |out| Frame::Fetch { group, payload }.write(out))
    }

    /// A peer came or went. Whoever does not ask for so long is told of the latest only.
    fn note(&mut self, event: PeerEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The next peer that came or went.
    pub fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    fn send(&mut self, to: u64, write: impl FnOnce(&mut Outbox)) -> Result<(), NotSent> {
        let slot = self.roster.slot_of(to).ok_or(NotSent)?;
        let key = self.told[slot][Kind::Raft.index()].ok_or(NotSent)?;
        let out = &mut self.conns[key].channel.out;
        if out.len() > SEND_BYTES_MAX {
            return Err(NotSent);
        }
        write(out);
        self.touch(key);
        Ok(())
    }

    /// Returns whether some are to be read at once.
    pub(super) fn is_busy(&self) -> bool {
        !self.ready.is_empty() || !self.dirty.is_empty()
    }
}

impl Conn {
    fn new(stream: TcpStream, address: SocketAddr, channel: Channel, side: Side) -> Self {
        Self {
            socket: Socket::new(stream),
            address,
            channel,
            side,
            kind: Kind::Route,
            route: None,
            slot: None,
            connecting: false,
            securing: Securing::Done,
            input: Vec::new(),
            need: 0,
            readable: false,
            writable: true,
            ended: false,
            listed: false,
            dirty: false,
            place: None,
        }
    }

    /// Returns whether it tells a peer something, of this kind.
    fn is_told(&self, kind: Kind) -> bool {
        self.side == Side::Dialer && self.kind == kind && self.slot.is_some()
    }
}
