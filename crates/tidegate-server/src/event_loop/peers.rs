//! Handles the connections between nodes: dials, accepts, reads, writes and drops them, as other modules
//! decide.
//!
//! This module decides only the order of the work. [`Roster`] decides which nodes this node admits,
//! [`Redial`] when this node dials a route, [`Channel`] which frames a connection may carry, and the node
//! (`crate::sessions`) the effect of a message.
//!
//! Raft groups send and receive with [`Peers::send_raft`] and [`Peers::poll_raft`], and with similar methods
//! for fetches. A message for a peer waits in the outbox of the peer's channel; if too many bytes wait there,
//! the loop drops the message. Received messages wait up to a bound, beyond which the loop does not read the
//! channels. The loop sends messages at the end of the turn, or in [`Peers::flush`].

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
use crate::event_loop::net::{Listener, Stream};
use crate::event_loop::socket::Socket;
use crate::event_loop::tls::PeerTls;
use crate::event_loop::tokens::ChannelKey;

/// The greatest number of bytes of Raft messages and fetches that may wait for one peer; to bound its memory,
/// the loop drops further messages.
const SEND_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The greatest number of events that may wait for [`Peers::poll_event`]; to bound its memory, the loop drops
/// the oldest ones beyond.
const EVENTS_MAX: usize = 1024;

/// A change of a peer's connection for Raft messages, which the loop tells the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerEvent {
    /// From now on the peer with this id can receive Raft messages, so that the store sends it messages.
    Up(u64),
    /// The peer with this id can no longer receive Raft messages, so that the store sends it none.
    Down(u64),
}

/// The error for a message to a peer that the node dropped, because too many bytes wait for the peer, or
/// because the peer is not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer is not connected, or too many bytes wait for it: send the message again later")]
pub(crate) struct NotSent;

/// The connections of this node with the other nodes of its cluster, and the state by which the loop dials
/// and accepts them.
#[derive(Debug)]
pub(crate) struct Peers {
    registry: Registry,
    listener: Listener,
    address: SocketAddr,
    routes: Vec<RouteAddress>,
    resolving: Resolving,
    roster: Roster,
    redial: Redial,
    /// The members' file, with the directory that holds it; `None` without streams, because only nodes with
    /// streams are members.
    identity: Option<(Disk, MembersFile)>,
    /// The latest term in which this node has been, in any of its groups. This node reports the term to a
    /// node that lost its disk. It is `None` until this node has opened its groups, and while it has not
    /// recovered from the loss of its own disk.
    vouched_term: Option<u64>,
    conns: Slab<Conn>,
    /// For each peer, by slot and kind: the connection on which this node sends frames, and (`heard`) the
    /// connection on which it receives frames.
    told: Vec<[Option<ChannelKey>; 2]>,
    heard: Vec<[Option<ChannelKey>; 2]>,
    /// The connections that the loop reads in this turn, because their sockets may have bytes.
    ready: Vec<ChannelKey>,
    /// The connections with bytes in the outbox of the channel itself: greetings, pings and pongs, Raft
    /// messages and fetches. The loop writes them in [`Peers::flush`]. The node's outbox for a peer, with
    /// subscriptions and messages, does not count.
    dirty: Vec<ChannelKey>,
    /// The places in the queue of TLS handshakes that connections had when they ended. The loop removes these
    /// handshakes from the queue, so that no thread works on them.
    withdrawn: Vec<Place>,
    raft: Inbox,
    fetches: Inbox,
    events: VecDeque<PeerEvent>,
    /// The time at which this node next announces the members and sends pings to its peers.
    next_ping: Time,
    pings: u64,
    pool: Pool,
    /// The certificates and settings of TLS between nodes; `None` if the operator configured no TLS between
    /// nodes.
    tls: Option<PeerTls>,
    write_deadline: std::time::Duration,
    random: SystemRandom,
    /// The rate limit of log lines about connections that end before a peer has identified itself, which any
    /// program can cause.
    strangers: LogLimit,
}

#[derive(Debug)]
struct Conn {
    socket: Socket,
    address: SocketAddr,
    channel: Channel,
    side: Side,
    /// The kind of the channel: the kind for which this node dialled, or that the dialling node named. It
    /// decides which frames this node may send on it.
    kind: Kind,
    /// The index of the route that this node dialled, and dials again after the end; `None` if the other node
    /// dialled.
    route: Option<usize>,
    /// The slot of the peer; `None` until the channel is open, because this node then does not know the peer.
    slot: Option<PeerSlot>,
    /// True while the operating system has not established the TCP connection, so that the loop must not read
    /// or write.
    connecting: bool,
    securing: Securing,
    input: Vec<u8>,
    /// The number of bytes that must have arrived before the next frame is complete and the loop can handle
    /// it.
    need: usize,
    readable: bool,
    writable: bool,
    ended: bool,
    /// True if the list of connections to read contains this connection, so that the loop does not list it
    /// twice.
    listed: bool,
    /// True if the list of connections to write contains this connection, so that the loop does not list it
    /// twice.
    dirty: bool,
    /// The place of the connection's TLS handshake in the queue; `None` if no handshake waits. The loop does
    /// not read a connection with a place, because its handshake waits for a thread.
    place: Option<Place>,
}

impl Peers {
    /// Returns the address at which this node listens for other nodes.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns this node's id, which it also has in its Raft groups.
    #[must_use]
    pub(crate) const fn id(&self) -> u64 {
        self.roster.me().id
    }

    /// Returns the members of the cluster, from which the groups follow; `None` until this node has fixed
    /// them in the members' file.
    #[must_use]
    pub(crate) const fn formed(&self) -> Option<&Members> {
        self.roster.formation().formed()
    }

    /// Returns the addresses of the cluster's nodes that the operator configured, for the monitor.
    #[must_use]
    pub(crate) fn routes(&self) -> &[RouteAddress] {
        &self.routes
    }

    /// Returns the list of the peers that are or were connected to this node, with the facts that each peer
    /// stated.
    #[must_use]
    pub(crate) const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Sends a Raft message of `group` to the node with the id `to`. The parts of `payload` follow one
    /// another in the message. The error does no harm, because Raft sends a lost message again.
    ///
    /// # Errors
    /// The node dropped the message.
    pub(crate) fn send_raft(
        &mut self,
        to: u64,
        group: GroupId,
        payload: &[Bytes],
    ) -> Result<(), NotSent> {
        self.send(to, |out| wire::put_raft(out, group, payload))
    }

    /// Sends a request or an answer of a fetch in `group` to the node with the id `to`, so that a node gets
    /// the state that it lacks.
    ///
    /// # Errors
    /// The node dropped the request or answer.
    pub(crate) fn send_fetch(
        &mut self,
        to: u64,
        group: GroupId,
        payload: &[u8],
    ) -> Result<(), NotSent> {
        self.send(to, |out| Frame::Fetch { group, payload }.write(out))
    }

    /// Records that a peer connected or disconnected. If too many events wait, drops the oldest event, so
    /// that they take bounded memory.
    fn note(&mut self, event: PeerEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Takes the next event of a peer, for the store; `None` if no event waits.
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

    /// Returns whether a connection has bytes to read or to write, so that the loop must not wait.
    pub(super) fn is_busy(&self) -> bool {
        !self.ready.is_empty() || !self.dirty.is_empty()
    }
}

impl Conn {
    fn new(stream: Stream, address: SocketAddr, channel: Channel, side: Side) -> Self {
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

    /// Returns whether this node sends its frames of this kind to a peer on this connection, because it
    /// opened the channel.
    fn is_told(&self, kind: Kind) -> bool {
        self.side == Side::Dialer && self.kind == kind && self.slot.is_some()
    }
}
