//! The sockets between nodes: dials, accepts, reads, writes and drops them, as other modules decide.
//!
//! Decides only the order of work. [`Roster`] decides which nodes are admitted, [`Redial`] when to dial a
//! route, [`Channel`] what a connection may carry, and the node (`crate::sessions`) the effect of a message.
//!
//! Groups use [`Peers::send_raft`] and [`Peers::poll_raft`], and similar methods for fetches. A message for a
//! peer waits in the outbox of the peer's channel; if too many bytes wait there, the message is dropped.
//! Received messages wait up to a bound, beyond which the loop does not read the channels. The loop sends
//! messages at the end of the turn, or in [`Peers::flush`].

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

/// The most bytes of messages between groups that may wait for one peer.
const SEND_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The most events that wait for [`Peers::poll_event`].
const EVENTS_MAX: usize = 1024;

/// A change of the connection to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerEvent {
    /// The peer with this id can receive messages of groups from now on.
    Up(u64),
    /// The peer with this id can receive no messages of groups any more.
    Down(u64),
}

/// The error for a dropped message: too many bytes wait for the peer, or the peer is not connected.
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
    /// The latest term that this node has been in, which it tells a node that lost its disk; `None` if it
    /// cannot tell.
    vouched_term: Option<u64>,
    conns: Slab<Conn>,
    /// The connection that carries frames to each peer, by slot and kind, and (`heard`) the connection for
    /// frames from the peer.
    told: Vec<[Option<ChannelKey>; 2]>,
    heard: Vec<[Option<ChannelKey>; 2]>,
    /// The connections that the loop reads in this turn.
    ready: Vec<ChannelKey>,
    /// The connections that have bytes of their channel to write.
    dirty: Vec<ChannelKey>,
    /// The places, in the queue of handshakes, of connections that have ended.
    withdrawn: Vec<Place>,
    raft: Inbox,
    fetches: Inbox,
    events: VecDeque<PeerEvent>,
    /// The time of the next announcement of the members and the next pings.
    next_ping: Time,
    pings: u64,
    pool: Pool,
    /// The TLS settings between nodes, if the configuration asks for TLS.
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
    /// The kind of the channel: for which this node dialled, or that the other side named.
    kind: Kind,
    /// The route that this node dialled; `None` if the other side dialled.
    route: Option<usize>,
    /// The slot of the peer, once the channel is open.
    slot: Option<PeerSlot>,
    /// True while the TCP connection is not established.
    connecting: bool,
    securing: Securing,
    input: Vec<u8>,
    /// The number of bytes that must have arrived before the next frame is complete.
    need: usize,
    readable: bool,
    writable: bool,
    ended: bool,
    /// True if `ready` contains this connection.
    listed: bool,
    /// True if `dirty` contains this connection.
    dirty: bool,
    /// The place of the connection in the queue of handshakes; while it waits there, the loop does not read
    /// it.
    place: Option<Place>,
}

impl Peers {
    /// Returns the address at which this node listens for peers.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns this node's id, which it also has in its groups.
    #[must_use]
    pub(crate) const fn id(&self) -> u64 {
        self.roster.me().id
    }

    /// Returns the members of the cluster, once they are fixed and in the members' file.
    #[must_use]
    pub(crate) const fn formed(&self) -> Option<&Members> {
        self.roster.formation().formed()
    }

    /// Returns the configured addresses of the nodes.
    #[must_use]
    pub(crate) fn routes(&self) -> &[RouteAddress] {
        &self.routes
    }

    /// Returns the peers that are, or were, connected.
    #[must_use]
    pub(crate) const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Sends a message of a group to the node with this id. The message is the concatenation of the parts.
    ///
    /// # Errors The node dropped the message.
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
    /// # Errors The node dropped the message.
    pub(crate) fn send_fetch(
        &mut self,
        to: u64,
        group: GroupId,
        payload: &[u8],
    ) -> Result<(), NotSent> {
        self.send(to, |out| Frame::Fetch { group, payload }.write(out))
    }

    /// Notes that a peer connected or disconnected. If too many events wait, drops the oldest.
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

    /// Returns whether a connection has work that the loop must do at once.
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
