//! The sockets between nodes: dialled, accepted, read, written, and dropped when the pure parts say so.
//!
//! Decides nothing but the order of work. Who is welcome is [`Roster`]'s to say, when a route is dialled [`Redial`]'s, what a
//! connection is good for [`Channel`]'s, and what a message leads to the node's.
//!
//! For groups there are [`Peers::send_raft`] and [`Peers::poll_raft`], and the same for what is fetched: messages for a peer wait
//! in its channel's outbox up to a bound and are dropped beyond it; those that came wait up to a bound beyond which the channel is
//! not read. What is sent leaves at the end of the turn, or with [`Peers::flush`].

mod dial;
mod ending;
mod frames;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use bytes::Bytes;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use ring::rand::{SecureRandom, SystemRandom};
use slab::Slab;
use tidegate::Time;
use tidegate_log::Disk;

use self::dial::Resolving;
use self::ending::Why;
use super::members::{self, IdentityError};
use super::{Handle, StartError};
use crate::cluster::channel::{Channel, PING_EVERY};
use crate::cluster::members::{Members, MembersFile};
use crate::cluster::proof::{Secret, Side};
use crate::cluster::redial::Redial;
use crate::cluster::roster::{Me, Roster};
use crate::cluster::wire::{self, Frame};
use crate::cluster::{Kind, PEERS_MAX};
use crate::config::Settings;
use crate::config::cluster::RouteAddress;
use crate::nats::outbox::{Outbox, Pool};
use crate::node::core::Node;
use crate::node::socket::Socket;

/// The listener for peers.
pub(super) const PEER_LISTENER: Token = Token(usize::MAX - 2);
/// The first token of peers' connections.
pub(super) const PEER_TOKENS: usize = usize::MAX / 2;

/// Bytes of a group's messages that may wait for one peer.
const SEND_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of groups' messages that came and were not taken, beyond which no more is read.
const RECEIVED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Comings and goings that were not asked for.
const EVENTS_MAX: usize = 1024;
/// Connections of peers at most, those included that have not proved anything yet.
const CONNS_MAX: usize = 4 * (PEERS_MAX + 1) + 32;

/// What a group's message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The id of the node that sent it.
    pub from: u64,
    /// The group.
    pub group: u32,
    /// The message.
    pub payload: Bytes,
}

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
    conns: Slab<Conn>,
    /// The connection that tells each peer something, and the one that hears it, by slot and kind.
    told: Vec<[Option<usize>; 2]>,
    heard: Vec<[Option<usize>; 2]>,
    /// To be read in this turn.
    ready: Vec<usize>,
    /// With something of their own to write.
    dirty: Vec<usize>,
    raft: Inbox,
    fetches: Inbox,
    events: VecDeque<PeerEvent>,
    /// Members are told, and pings sent.
    next_ping: Time,
    pings: u64,
    pool: Pool,
    write_deadline: std::time::Duration,
    random: SystemRandom,
}

/// Messages that came and were not taken.
#[derive(Debug, Default)]
struct Inbox {
    waiting: VecDeque<Received>,
    bytes: usize,
    /// Some channel was not read because of that.
    held_back: bool,
}

impl Inbox {
    fn push(&mut self, received: Received) {
        self.bytes += received.payload.len();
        self.waiting.push_back(received);
    }

    fn pop(&mut self) -> Option<Received> {
        let received = self.waiting.pop_front()?;
        self.bytes -= received.payload.len();
        Some(received)
    }

    const fn is_full(&self) -> bool {
        self.bytes > RECEIVED_BYTES_MAX
    }
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
}

impl Peers {
    /// Listens for peers and dials the routes, as the settings say; `None` if they say nothing of a cluster. The data directory, if
    /// there is one, is this process's already.
    ///
    /// # Errors
    /// An address that cannot be had, or a data directory that is another node's.
    pub(super) fn start(
        settings: &Settings,
        now: Time,
        clients: SocketAddr,
        registry: &Registry,
        handle: &Handle,
    ) -> Result<Option<Self>, StartError> {
        let data = settings.streams.as_ref().map(|s| s.directory.as_path());
        let identity_error = |source| StartError::Identity {
            directory: data.map(Into::into).unwrap_or_default(),
            source,
        };
        let disk = data.map(members::storage).transpose();
        let disk = disk.map_err(identity_error)?;
        let Some(cluster) = &settings.cluster else {
            if let Some(disk) = &disk {
                members::check_alone(disk).map_err(identity_error)?;
            }
            return Ok(None);
        };
        settings.check_cluster()?;
        let random = SystemRandom::new();
        let name = settings.server_name.clone().unwrap_or_default();
        let fresh = id(&random).map_err(StartError::Loop)?;
        let identify = |disk: Disk| {
            let file = members::identify(&disk, &cluster.name, &name, fresh)?;
            Ok::<_, IdentityError>((disk, file))
        };
        let identity = disk.map(identify).transpose().map_err(identity_error)?;
        let listen = |source| StartError::Listen {
            host: cluster.host.clone(),
            port: cluster.port,
            source,
        };
        let std_listener =
            std::net::TcpListener::bind((cluster.host.as_str(), cluster.port)).map_err(listen)?;
        std_listener.set_nonblocking(true).map_err(listen)?;
        let address = std_listener.local_addr().map_err(listen)?;
        let mut listener = TcpListener::from_std(std_listener);
        registry
            .register(&mut listener, PEER_LISTENER, Interest::READABLE)
            .map_err(StartError::Loop)?;
        if !cluster.is_local() && cluster.secret.is_none() {
            tracing::warn!("whoever reaches {address} can be a node: give the cluster a secret");
        }
        let me = Me {
            cluster: cluster.name.clone(),
            name,
            id: identity.as_ref().map_or(fresh, |(_, file)| file.me.id),
            life: id(&random).map_err(StartError::Loop)?,
            streams: settings.streams.is_some(),
            client_url: match cluster.no_advertise {
                true => String::new(),
                false => client_url(settings, clients).unwrap_or_else(|| {
                    // Whatever address it is seen at.
                    format!(":{}", clients.port())
                }),
            },
            secret: Secret::new(cluster.secret.as_ref().map_or("", |s| s.reveal())),
        };
        let kinds: &[Kind] = match me.streams {
            true => &Kind::ALL,
            false => &[Kind::Route],
        };
        let formed = identity.as_ref().and_then(|(_, f)| f.members.clone());
        let routes = cluster.routes.clone();
        Ok(Some(Self {
            registry: registry.try_clone().map_err(StartError::Loop)?,
            listener,
            address,
            redial: Redial::new(now, routes.len(), kinds, cluster.longest_pause, me.life),
            roster: Roster::new(me, routes.len(), formed),
            routes,
            resolving: Resolving::new(handle.clone()),
            identity,
            conns: Slab::new(),
            told: vec![[None; 2]; PEERS_MAX],
            heard: vec![[None; 2]; PEERS_MAX],
            ready: Vec::new(),
            dirty: Vec::new(),
            raft: Inbox::default(),
            fetches: Inbox::default(),
            events: VecDeque::new(),
            next_ping: now + PING_EVERY,
            pings: 0,
            pool: Pool::default(),
            write_deadline: settings.write_deadline,
            random,
        }))
    }

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

    /// The next message of a group.
    pub fn poll_raft(&mut self) -> Option<Received> {
        let received = self.raft.pop();
        self.let_in();
        received
    }

    /// The next message that concerns fetching.
    pub fn poll_fetch(&mut self) -> Option<Received> {
        let received = self.fetches.pop();
        self.let_in();
        received
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

    /// Channels that were not read because too much had come are read again.
    fn let_in(&mut self) {
        let full = self.raft.is_full() || self.fetches.is_full();
        if !full && (self.raft.held_back || self.fetches.held_back) {
            (self.raft.held_back, self.fetches.held_back) = (false, false);
            let raft = Kind::Raft.index();
            let keys: Vec<usize> = self.heard.iter().filter_map(|conns| conns[raft]).collect();
            for key in keys {
                self.conns[key].readable = true;
                self.list(key);
            }
        }
    }

    /// Whether some are to be read at once.
    pub(super) fn is_busy(&self) -> bool {
        !self.ready.is_empty() || !self.dirty.is_empty()
    }

    /// When [`Peers::handle_timeouts`] is to be called.
    pub(super) fn deadline(&self) -> Option<Time> {
        let pings = (!self.conns.is_empty()).then_some(self.next_ping);
        let channels = self.conns.iter().map(|(_, c)| c.channel.deadline());
        let all = [pings, self.redial.deadline()];
        all.into_iter().flatten().chain(channels).min()
    }

    /// Dials what is due, pings, and ends what is dead.
    pub(super) fn handle_timeouts(&mut self, now: Time, node: &mut Node) {
        for (_, conn) in &mut self.conns {
            // What is there to read and has to wait is not silence.
            if conn.readable && conn.side == Side::Dialled {
                conn.channel.handle_activity(now);
            }
        }
        let overdue = |(key, conn): (usize, &Conn)| Some((key, conn.channel.overdue(now)?));
        let dead: Vec<_> = self.conns.iter().filter_map(overdue).collect();
        for (key, why) in dead {
            self.end(now, key, node, &Why::Channel(why));
        }
        if self.next_ping <= now {
            self.next_ping = now + PING_EVERY;
            self.ping(now, node);
        }
        while let Some((route, kind, outcome)) = self.resolving.poll() {
            self.dial_resolved(now, route, kind, outcome);
        }
        while let Some((route, kind)) = self.redial.poll(now) {
            self.dial(now, route, kind);
        }
    }

    fn ping(&mut self, now: Time, node: &mut Node) {
        for slot in 0..self.told.len() {
            if self.told[slot][Kind::Route.index()].is_some() {
                node.tell_peer(slot, &Frame::Ping);
            }
            if let Some(key) = self.told[slot][Kind::Raft.index()] {
                Frame::Ping.write(&mut self.conns[key].channel.out);
                self.touch(key);
            }
            for key in self.heard[slot].into_iter().flatten() {
                self.conns[key].channel.pong();
                self.touch(key);
            }
        }
        self.pings += 1;
        // Not before nodes that were started together had the time to meet.
        if self.identity.is_some()
            && self.pings > 3
            && let Some(why) = self.roster.formation().waiting_for()
        {
            let line = format!("the cluster is not formed, streams are not served: {why}");
            if self.roster.is_news(now, &line) {
                tracing::warn!("{line}");
            }
        }
    }

    /// Accepts whoever is there.
    pub(super) fn accept(&mut self, now: Time) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if self.conns.len() >= CONNS_MAX => drop(stream),
                Ok((stream, address)) => self.admit(now, stream, address),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(e) => {
                    // Whoever waits dials again, which is the next occasion.
                    return tracing::error!("cannot accept connections of nodes: {e}");
                }
            }
        }
    }

    fn admit(&mut self, now: Time, stream: TcpStream, address: SocketAddr) {
        let Ok(nonce) = nonce(&self.random) else {
            return tracing::error!("the system has no random bytes: a node is not let in");
        };
        let channel = Channel::answer(now, nonce, self.write_deadline);
        let conn = Conn::new(stream, address, channel, Side::Dialled);
        self.register(conn);
    }

    /// Takes a connection into the loop; its key.
    fn register(&mut self, mut conn: Conn) -> Option<usize> {
        // An old socket option: without it small frames may wait for more.
        let _ = conn.socket.stream.set_nodelay(true);
        let entry = self.conns.vacant_entry();
        let key = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(PEER_TOKENS + key);
        if let Err(e) = self
            .registry
            .register(&mut conn.socket.stream, token, interest)
        {
            tracing::error!("{}: a node cannot be served: {e}", conn.address);
            return None;
        }
        entry.insert(conn);
        Some(key)
    }

    /// Something happened to a connection.
    pub(super) fn take_event(
        &mut self,
        now: Time,
        key: usize,
        event: &mio::event::Event,
        node: &mut Node,
    ) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if conn.connecting {
            let stream = &conn.socket.stream;
            let outcome = match stream.take_error() {
                Ok(None) => stream.peer_addr().map(drop),
                Ok(Some(e)) | Err(e) => Err(e),
            };
            match outcome {
                Ok(()) => conn.connecting = false,
                Err(e) if e.kind() == ErrorKind::NotConnected => return,
                Err(e) => return self.end(now, key, node, &Why::Io(e)),
            }
        }
        conn.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        conn.ended |= event.is_read_closed() || event.is_error();
        if event.is_writable() && !std::mem::replace(&mut conn.writable, true) {
            self.write(now, key, node);
        }
        self.list(key);
    }

    /// Lists a connection for reading.
    fn list(&mut self, key: usize) {
        if let Some(conn) = self.conns.get_mut(key)
            && conn.readable
            && !conn.connecting
            && !std::mem::replace(&mut conn.listed, true)
        {
            self.ready.push(key);
        }
    }

    /// Reads again from peers whose messages had to wait.
    pub(super) fn resume(&mut self, slot: usize) {
        if let Some(key) = self.heard[slot][Kind::Route.index()] {
            self.conns[key].readable = true;
            self.list(key);
        }
    }

    fn touch(&mut self, key: usize) {
        let conn = &mut self.conns[key];
        if !conn.channel.out.is_empty() && !std::mem::replace(&mut conn.dirty, true) {
            self.dirty.push(key);
        }
    }

    /// Writes what waits on channels themselves: greetings, pongs, messages of groups.
    pub fn flush(&mut self, now: Time, node: &mut Node) {
        while let Some(key) = self.dirty.pop() {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.dirty = false;
                self.write(now, key, node);
            }
        }
    }

    /// Writes what the node has for a peer.
    pub(super) fn write_route(&mut self, now: Time, slot: usize, node: &mut Node) {
        if let Some(key) = self.told[slot][Kind::Route.index()] {
            self.write(now, key, node);
        }
    }

    /// Whether the node's messages for this peer are all on their way.
    pub(super) fn is_written(&self, node: &Node) -> bool {
        let waits = |slot: usize| node.peer_outbox(slot).is_some_and(|out| !out.is_empty());
        let told = self.told.iter().enumerate();
        !told
            .filter(|(_, conns)| conns[Kind::Route.index()].is_some())
            .any(|(slot, _)| waits(slot))
    }

    /// A peer that has too much waiting is cut off.
    pub(super) fn cut_off(&mut self, now: Time, slot: usize, node: &mut Node) {
        if let Some(key) = self.told[slot][Kind::Route.index()] {
            self.end(now, key, node, &Why::Behind);
        }
    }

    fn write(&mut self, now: Time, key: usize, node: &mut Node) {
        let mut progress = false;
        loop {
            let Some(conn) = self.conns.get_mut(key) else {
                return;
            };
            let route = conn.slot.filter(|_| conn.is_told(Kind::Route));
            // What belongs to the connection comes before anything of the node's.
            let own = !conn.channel.out.is_empty();
            let out = match route.filter(|_| !own) {
                Some(slot) => node.peer_outbox(slot),
                None => Some(&conn.channel.out),
            };
            let Some(out) = out.filter(|out| !out.is_empty()) else {
                return conn.channel.handle_written(now, progress, false);
            };
            if conn.connecting || !conn.writable {
                return conn.channel.handle_written(now, progress, true);
            }
            match conn.socket.write(out) {
                Ok(written) => {
                    conn.writable = !written.blocked;
                    progress |= written.len > 0;
                    match route.filter(|_| !own) {
                        Some(slot) => node.handle_peer_written(slot, written.len),
                        None => conn.channel.out.take(written.len, &mut self.pool),
                    }
                }
                Err(e) => return self.end(now, key, node, &Why::Io(e)),
            }
        }
    }
}

impl Conn {
    fn new(stream: TcpStream, address: SocketAddr, channel: Channel, side: Side) -> Self {
        Self {
            socket: Socket { stream, tls: None },
            address,
            channel,
            side,
            kind: Kind::Route,
            route: None,
            slot: None,
            connecting: false,
            input: Vec::new(),
            need: 0,
            readable: false,
            writable: true,
            ended: false,
            listed: false,
            dirty: false,
        }
    }

    /// Whether it tells a peer something, of this kind.
    fn is_told(&self, kind: Kind) -> bool {
        self.side == Side::Dialer && self.kind == kind && self.slot.is_some()
    }
}

/// Where clients connect, as far as that can be said.
pub(in crate::node) fn client_url(settings: &Settings, clients: SocketAddr) -> Option<String> {
    let specific = (!clients.ip().is_unspecified()).then(|| clients.to_string());
    settings.client_advertise.clone().or(specific)
}

/// Random, and not 0.
fn id(random: &SystemRandom) -> io::Result<u64> {
    loop {
        let bytes = nonce(random)?;
        let first = bytes.first_chunk().copied().unwrap_or_default();
        match u64::from_le_bytes(first) {
            0 => {}
            id => return Ok(id),
        }
    }
}

fn nonce(random: &SystemRandom) -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let filled = random.fill(&mut bytes);
    filled.map_err(|_| io::Error::other("no random bytes"))?;
    Ok(bytes)
}
