//! The sockets between nodes: dials, accepts, reads, writes, and drops them as the pure parts decide.
//!
//! Decides only the order of work. [`Roster`] decides which nodes are admitted, [`Redial`] when to
//! dial a route, [`Channel`] what a connection may carry, and the node what a message leads to.
//!
//! Groups use [`Peers::send_raft`] and [`Peers::poll_raft`], and similar methods for fetches. A
//! message for a peer waits in the outbox of its channel; beyond a bound the channel drops it.
//! Received messages wait up to a bound, beyond which the loop does not read the channel. Messages
//! leave at the end of the turn, or with [`Peers::flush`].

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
use mio::Registry;
use mio::net::{TcpListener, TcpStream};
use ring::rand::SystemRandom;
use slab::Slab;
use tidegate::Time;
use tidegate_cluster::Kind;
use tidegate_cluster::channel::Channel;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::members::{Members, MembersFile};
use tidegate_cluster::proof::Side;
use tidegate_cluster::redial::Redial;
use tidegate_cluster::roster::{PeerSlot, Roster};
use tidegate_cluster::wire::{self, Frame};
use tidegate_log::Disk;
use tidegate_nats::outbox::{Outbox, Pool};

use self::dial::Resolving;
use self::inbox::Inbox;
pub(crate) use self::listen::client_url;
use self::secured::Securing;
use super::Handle;
use crate::config::RouteAddress;
use crate::event_loop::handshakes::Place;
use crate::event_loop::log_limit::LogLimit;
use crate::event_loop::socket::Socket;
use crate::event_loop::tls::PeerTls;
use crate::event_loop::tokens::ChannelKey;

/// Bytes of a group's messages that may wait for one peer.
const SEND_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The most events that wait for [`Peers::poll_event`].
const EVENTS_MAX: usize = 1024;

/// A peer connected or disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerEvent {
    /// The peer can receive messages of groups.
    Up(u64),
    /// The peer can receive no messages of groups.
    Down(u64),
}

/// The peer's backlog is too large, or it is not connected: the message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too much waits for the node, or it is not connected: send it again later")]
pub(crate) struct NotSent;

/// All connections to and from other nodes.
#[derive(Debug)]
pub(crate) struct Peers {
    registry: Registry,
    listener: TcpListener,
    address: SocketAddr,
    routes: Vec<RouteAddress>,
    resolving: Resolving,
    roster: Roster,
    redial: Redial,
    /// The file with the members; `None` without streams.
    identity: Option<(Disk, MembersFile)>,
    /// The term that this node can vouch for to a node that lost its disk.
    vouched_term: Option<u64>,
    conns: Slab<Conn>,
    /// By slot and kind: the connection that carries frames to each peer, and the connection
    /// for frames from it.
    told: Vec<[Option<ChannelKey>; 2]>,
    heard: Vec<[Option<ChannelKey>; 2]>,
    /// Connections to read in this turn.
    ready: Vec<ChannelKey>,
    /// Connections with bytes of their own to write.
    dirty: Vec<ChannelKey>,
    /// Places of handshakes on connections that have ended.
    withdrawn: Vec<Place>,
    raft: Inbox,
    fetches: Inbox,
    events: VecDeque<PeerEvent>,
    /// The time of the next announcement of the members and the next pings.
    next_ping: Time,
    pings: u64,
    pool: Pool,
    /// TLS with other nodes, if the settings ask for it.
    tls: Option<PeerTls>,
    write_deadline: std::time::Duration,
    random: SystemRandom,
    /// Log lines: connections that end before they are a peer's.
    strangers: LogLimit,
}

#[derive(Debug)]
struct Conn {
    socket: Socket,
    address: SocketAddr,
    channel: Channel,
    side: Side,
    /// The kind that it was dialled for, or that the other side named.
    kind: Kind,
    /// The route that was dialled, if this side dialled.
    route: Option<usize>,
    /// The slot of the peer, once the channel is open.
    slot: Option<PeerSlot>,
    /// The TCP connection is not made yet.
    connecting: bool,
    securing: Securing,
    input: Vec<u8>,
    /// The bytes that must be there before the next frame is complete.
    need: usize,
    readable: bool,
    writable: bool,
    ended: bool,
    /// `ready` contains this connection.
    listed: bool,
    /// `dirty` contains this connection.
    dirty: bool,
    /// The place of its waiting handshake; the loop does not read the connection meanwhile.
    place: Option<Place>,
}

impl Peers {
    /// The address at which it listens for peers.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// This node's id, also in its groups.
    #[must_use]
    pub(crate) const fn id(&self) -> u64 {
        self.roster.me().id
    }

    /// The members of the cluster, once they are fixed and written down: the voters of its groups.
    #[must_use]
    pub(crate) const fn formed(&self) -> Option<&Members> {
        self.roster.formation().formed()
    }

    /// The configured addresses of the nodes.
    #[must_use]
    pub(crate) fn routes(&self) -> &[RouteAddress] {
        &self.routes
    }

    /// The peers that are, or were, connected.
    #[must_use]
    pub(crate) const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Sends a message of a group, in parts, to the node with this id.
    ///
    /// # Errors
    /// The message was dropped.
    pub(crate) fn send_raft(
        &mut self,
        to: u64,
        group: GroupId,
        payload: &[Bytes],
    ) -> Result<(), NotSent> {
        self.send(to, |out| wire::put_raft(out, group, payload))
    }

    /// Sends a request or an answer of a fetch to the node with this id.
    ///
    /// # Errors
    /// The message was dropped.
    pub(crate) fn send_fetch(
        &mut self,
        to: u64,
        group: GroupId,
        payload: &[u8],
    ) -> Result<(), NotSent> {
        self.send(to, |out| Frame::Fetch { group, payload }.write(out))
    }

    /// Notes that a peer connected or disconnected. If too many events wait, the oldest goes.
    fn note(&mut self, event: PeerEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the next event of a peer.
    pub(crate) fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    fn send(&mut self, to: u64, write: impl FnOnce(&mut Outbox)) -> Result<(), NotSent> {
        let slot = self.roster.slot_of(to).ok_or(NotSent)?;
        let key = self.told[slot.index()][Kind::Raft.index()].ok_or(NotSent)?;
        let out = &mut self.conns[key.index()].channel.out;
        if out.len() > SEND_BYTES_MAX {
            return Err(NotSent);
        }
        write(out);
        self.touch(key);
        Ok(())
    }

    /// Returns whether a connection has work at once.
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

    /// Returns whether this connection carries frames of this kind to a peer.
    fn is_told(&self, kind: Kind) -> bool {
        self.side == Side::Dialer && self.kind == kind && self.slot.is_some()
    }
}
