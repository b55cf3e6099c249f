//! The event loop, on one thread: waits for sockets, hands bytes to the node, writes the outboxes, arms one
//! timer.
//!
//! Owns the sockets and decides only the order of work: take the events, act once, then write. The
//! loop reads ready connections for a bounded time a turn and in equal shares (`ReadQueue`), so that none
//! starves another; `Flow` decides when to write in between.

use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Waker};
use rustls::ServerConfig;
use tidegate::controller::Reason;
use tidegate::{Clock, Time};
use tidegate_nats::session::CloseReason;
use tidegate_raft::store::Store;

mod applying;
mod damage;
mod descriptors;
pub(crate) mod errors;
mod flow;
pub(crate) mod handle;
mod handshakes;
mod handshaking;
mod identity;
mod log_limit;
pub(crate) mod members;
mod opening;
pub(crate) mod peers;
mod pool;
mod read_queue;
mod recording;
mod replication;
pub(crate) mod report;
mod socket;
mod taking_over;
pub(crate) mod tls;
mod tls_rate;
mod tokens;
pub(crate) mod turns;

use self::applying::Waiting;
use self::damage::Damage;
use self::descriptors::bound_clients;
use self::errors::{RunError, StartError};
use self::flow::Flow;
use self::handle::{Command, Handle};
use self::handshakes::{Handshakes, Place};
use self::identity::{seed, server_id, server_info};
use self::log_limit::LogLimit;
use self::opening::Opening;
use self::peers::Peers;
use self::pool::Pool;
use self::read_queue::{ReadQueue, Share};
use self::recording::Recording;
use self::replication::Replication;
use self::report::{Cluster, Report, Streams};
use self::socket::Socket;
use self::tls::PeerTls;
use self::tls_rate::TlsRate;
use self::tokens::{ChannelKey, LISTENER, Owner, WAKER};
use self::turns::Turns;
use crate::config::Settings;
use crate::party::ClientKey;
use crate::sessions::Node;

/// Bytes read at a time: about as many as a client library writes at a time, and a small part of a
/// core's cache.
const READ_BYTES: usize = 64 * 1024;
/// The longest that one turn writes outboxes, and the number of writes between two looks at the clock.
const WRITE_BUDGET: Duration = Duration::from_micros(500);
const WRITES_A_LOOK: usize = 4;
/// The most sockets that the loop closes in one turn.
const CLOSES_A_TURN: usize = 64;
/// The most events taken at a time.
const EVENTS_LEN: usize = 1024;
/// The longest that a drain reads the messages that clients have sent already.
const DRAIN_READS: Duration = Duration::from_secs(1);
/// The longest that a server without clients goes on writing to peers.
const PARTING: Duration = Duration::from_secs(2);
/// The most log lines about failed logins in ten seconds.
const FAILED_LOGINS_LOGGED: u32 = 5;

/// A listening server; [`Server::run`] serves.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    clock: Clock,
    /// `None` once the server accepts no more clients.
    listener: Option<TcpListener>,
    address: SocketAddr,
    node: Node,
    conns: Vec<Option<Conn>>,
    /// Connections to read.
    ready: ReadQueue,
    flow: Flow,
    /// The record of decisions.
    recording: Option<Recording>,
    tls: Option<Arc<ServerConfig>>,
    handle: Handle,
    pool: Pool,
    /// The next free thread of the pool checks a password, if one waits.
    password_next: bool,
    scratch: Vec<u8>,
    accept_again: Option<Time>,
    /// The limit of the log line that says that the process ran out of descriptors.
    not_accepted: LogLimit,
    /// The limit of the log line that says that the server has its maximum of connections.
    not_admitted: LogLimit,
    /// Log lines: a client presented no right credentials.
    failed_logins: LogLimit,
    /// Connections that get their INFO at that time unless they have begun with TLS, in order.
    hellos: VecDeque<(Time, ClientKey)>,
    tls_rate: TlsRate,
    /// Waiting TLS handshakes.
    handshakes: Handshakes,
    /// The store of the streams.
    store: Option<Store>,
    /// The streams, until the members of the cluster are fixed.
    waiting: Option<Waiting>,
    /// The groups that this node shares with others.
    replication: Option<Replication>,
    /// Damaged records that no other node has.
    lost: BTreeSet<u64>,
    /// Damage that the scrub found.
    damage: Damage,
    /// The time of the next look at a full disk.
    look_for_space: Option<Time>,
    /// The other nodes of the cluster.
    peers: Option<Box<Peers>>,
    /// The end of the time for writing to peers after everything else is over.
    parting: Option<Time>,
    /// The end of a drain's reading; the server then closes everything.
    draining: Option<Time>,
    stopping: bool,
    turns: Turns,
    /// The round of writes that the next turn goes on with.
    round: Option<Round>,
}

/// A round of writes that is not over.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The copies of messages that it began with.
    items: u64,
    /// The time that its writes have taken so far.
    spent_ns: u64,
}

#[derive(Debug)]
struct Conn {
    socket: Socket,
    address: SocketAddr,
    /// Bytes received and not used yet, behind the first `used` ones.
    input: Vec<u8>,
    /// The number of bytes of `input` that the node has used; 0 unless a slice was cut.
    used: usize,
    /// The socket may have more to read.
    readable: bool,
    /// The socket takes more.
    writable: bool,
    /// The other side has closed its end.
    ended: bool,
    /// `ready` contains this connection.
    listed: bool,
    share: Share,
    /// The last slice ended before the last whole operation of `input`: the loop reads no more before it.
    cut: bool,
    opening: Opening,
    /// The place of its waiting handshake; the loop does not read the connection meanwhile.
    place: Option<Place>,
}

impl Conn {
    /// Keeps bytes that were received and not used. A connection without such bytes keeps no more
    /// memory than an ordinary read takes.
    fn keep(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        if self.input.is_empty() && self.input.capacity() > READ_BYTES {
            self.input = Vec::new();
        }
    }
}

impl Server {
    /// Listens at the address in the settings.
    ///
    /// # Errors
    /// Settings that the server cannot put in force, such as an address in use or an unreadable certificate.
    pub fn bind(mut settings: Settings) -> Result<Self, StartError> {
        settings.check_exposure()?;
        if settings.shows_credentials() {
            warn_of_shown_credentials();
        }
        bound_clients(&mut settings);
        let listen = |source| StartError::Listen {
            host: settings.host.clone(),
            port: settings.port,
            source,
        };
        let std_listener =
            std::net::TcpListener::bind((settings.host.as_str(), settings.port)).map_err(listen)?;
        std_listener.set_nonblocking(true).map_err(listen)?;
        let address = std_listener.local_addr().map_err(listen)?;
        let mut listener = TcpListener::from_std(std_listener);
        let poll = Poll::new().map_err(StartError::Loop)?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(StartError::Loop)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(StartError::Loop)?;
        let handle = Handle::new(waker);
        let tls = settings.tls.as_ref().map(tls::server_config).transpose()?;
        let mut flow = Flow::new(settings.controller)?;
        let recording = settings.record.as_deref().map(Recording::start);
        let recording = recording.transpose()?;
        if let Some(recording) = &recording {
            flow.log_to(recording.log());
        }
        let id = server_id();
        let info = server_info(&settings, address, &id);
        let clock = Clock::start();
        let kept = settings.streams.clone();
        let mut node = Node::new(settings.clone(), info.clone(), seed());
        let waiting = kept.map(Waiting::claim).transpose()?;
        let peers = Peers::start(&settings, clock.now(), address, poll.registry(), &handle)?;
        if peers.is_some() {
            node.join_cluster(info.connect_urls);
        }
        let mut server = Self {
            poll,
            clock,
            listener: Some(listener),
            address,
            node,
            conns: Vec::new(),
            ready: ReadQueue::default(),
            flow,
            recording,
            tls,
            pool: Pool::start(&handle).map_err(StartError::Loop)?,
            password_next: false,
            handle,
            scratch: vec![0; READ_BYTES],
            accept_again: None,
            not_accepted: LogLimit::default(),
            not_admitted: LogLimit::default(),
            failed_logins: LogLimit::of_lines(FAILED_LOGINS_LOGGED),
            hellos: VecDeque::new(),
            tls_rate: TlsRate::default(),
            handshakes: Handshakes::default(),
            store: None,
            waiting,
            replication: None,
            lost: BTreeSet::new(),
            damage: Damage::default(),
            look_for_space: None,
            peers: peers.map(Box::new),
            parting: None,
            draining: None,
            stopping: false,
            turns: Turns::new(),
            round: None,
        };
        server.open_streams(server.clock.now())?;
        Ok(server)
    }

    /// The address at which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address at which it listens for the other nodes of its cluster, if it is in one.
    #[must_use]
    pub fn cluster_address(&self) -> Option<SocketAddr> {
        self.peers.as_ref().map(|p| p.address())
    }

    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until a command stops it and all connections are closed.
    ///
    /// # Errors
    /// See [`RunError`]: the server cannot go on.
    pub fn run(mut self) -> Result<(), RunError> {
        let mut events = Events::with_capacity(EVENTS_LEN);
        // The first turn dials routes at once.
        let mut wait = Some(Duration::ZERO);
        while let ControlFlow::Continue(next) = self.turn(&mut events, wait)? {
            wait = next;
        }
        let closed = self.close_streams();
        let recording = self.recording.take();
        drop(self);
        if let Some(recording) = recording {
            recording.finish();
        }
        closed
    }

    /// Runs one turn, which waits up to `wait` for events. Returns how long the next turn may wait,
    /// unless this was the last.
    fn turn(
        &mut self,
        events: &mut Events,
        wait: Option<Duration>,
    ) -> Result<ControlFlow<(), Option<Duration>>, RunError> {
        match self.poll.poll(events, wait) {
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(RunError::Loop(e)),
            _ => {}
        }
        let now = self.clock.now();
        self.turns.begin(now);
        for event in &*events {
            self.take_event(now, event);
        }
        self.accept_later(now);
        self.read_ready(now);
        self.read_peers(now);
        let now = self.clock.now();
        self.node.handle_timeouts(now);
        self.turn_peers(now);
        // After the timeouts: a handshake past its time costs nothing more.
        self.turn_pool();
        let now = self.clock.now();
        self.open_streams(now)?;
        self.turn_streams(now)?;
        self.go_on(now);
        let hold = match self.round {
            None => self.flow.wait(now, self.node.gathered()),
            // The round of the last turn goes on.
            Some(_) => None,
        };
        if hold.is_none() {
            self.flush(now, Reason::Drained);
        }
        if let Some(peers) = &mut self.peers {
            peers.flush(now, &mut self.node);
        }
        self.drop_closed();
        if self.is_over(now) {
            return Ok(ControlFlow::Break(()));
        }
        let now = self.clock.now();
        let wait = self.wait(now, hold);
        self.turns.end(now, wait.map(|wait| now + wait));
        Ok(ControlFlow::Continue(wait))
    }

    /// The time to wait for events.
    fn wait(&self, now: Time, hold: Option<Time>) -> Option<Duration> {
        let busy = self.peers.as_ref().is_some_and(|p| p.is_busy());
        let upkeep = self.store.as_ref().is_some_and(Store::has_upkeep);
        let writing = self.node.is_dirty() && hold.is_none();
        let unfinished = writing || upkeep || self.node.has_closed();
        if !self.ready.is_empty() || busy || unfinished {
            return Some(Duration::ZERO);
        }
        let hello = self.hellos.front().map(|(at, _)| *at);
        let times = [
            self.node.deadline(),
            self.node.streams_deadline(),
            hold,
            self.accept_again,
            self.draining,
            self.look_for_space,
            self.peers.as_ref().and_then(|p| p.deadline()),
            self.parting,
            self.replication.as_ref().map(Replication::deadline),
            self.store.as_ref().map(Store::scrub_deadline),
            Some(self.damage.deadline()),
            hello,
        ];
        let at = times.into_iter().flatten().min()?;
        (at != Time::NEVER).then(|| at - now)
    }

    fn take_event(&mut self, now: Time, event: &Event) {
        match Owner::of(event.token()) {
            Owner::Listener => self.accept(now),
            Owner::Waker => self.take_commands(now),
            Owner::PeerListener => {
                if let Some(peers) = &mut self.peers {
                    peers.accept(now);
                }
            }
            Owner::Channel(key) => {
                if let Some(peers) = &mut self.peers {
                    peers.take_event(now, key, event, &mut self.node);
                }
            }
            Owner::Client(key) => {
                let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut) else {
                    return;
                };
                conn.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                conn.ended |= event.is_read_closed() || event.is_error();
                let waits = conn.place.is_some() || conn.socket.is_away();
                if conn.ended && (waits || self.node.is_verifying(key)) {
                    // The client wants no handshake and no answer to its password any more.
                    return self.node.handle_closed(now, key, CloseReason::ClientClosed);
                }
                if event.is_writable() && !std::mem::replace(&mut conn.writable, true) {
                    self.write(now, key);
                }
                self.list(key);
            }
        }
    }

    /// Lists a connection for reading.
    fn list(&mut self, key: ClientKey) {
        if let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut)
            && conn.readable
            && conn.place.is_none()
            && !std::mem::replace(&mut conn.listed, true)
        {
            self.ready.push(key, conn.share);
        }
    }

    fn take_commands(&mut self, now: Time) {
        for command in self.handle.take() {
            match command {
                Command::Report(query, to) => {
                    let store = self.store.as_ref();
                    let streams =
                        store.and_then(|store| Streams::take(&self.node, store, &query, now));
                    let report = Report::take(
                        &self.node,
                        &query,
                        now.as_nanos(),
                        self.turns.stats(),
                        self.flow.snapshot(),
                        streams,
                        self.peers.as_ref().map(|p| Cluster::take(&self.node, p)),
                    );
                    // The result does not matter: the thread that asked may have ended.
                    let _ = to.try_send(report);
                }
                Command::Drain if !self.stopping => {
                    tracing::info!(
                        "Initiating shutdown: the server finishes the received operations and ends"
                    );
                    self.stop_accepting();
                    self.hand_over(now);
                    self.node.part_streams(now);
                    self.draining = Some(now + DRAIN_READS);
                    for at in 0..self.conns.len() {
                        self.list(ClientKey::new(at));
                    }
                }
                Command::LameDuck if !self.stopping => {
                    tracing::info!(
                        "Entering lame duck mode: the server accepts no new clients, closes the connections one after the other, and ends"
                    );
                    self.stop_accepting();
                    self.hand_over(now);
                    self.node.lame_duck(now);
                }
                Command::Drain => self.draining = Some(now),
                Command::LameDuck => {}
                Command::Reload(settings) => self.reload(now, *settings),
            }
        }
    }

    fn stop_accepting(&mut self) {
        self.stopping = true;
        self.accept_again = None;
        if let Some(mut listener) = self.listener.take() {
            // The result does not matter, since the server drops the listener in any case.
            let _ = self.poll.registry().deregister(&mut listener);
        }
    }

    fn reload(&mut self, now: Time, mut settings: Settings) {
        let old = self.node.settings();
        if (&settings.host, settings.port) != (&old.host, old.port) {
            tracing::error!(
                "the reload keeps the old host and port: the server changes its host and port only at a start"
            );
            settings.host.clone_from(&old.host);
            settings.port = old.port;
        }
        if !keep_cluster(&mut settings, old) {
            tracing::error!(
                "the reload keeps the old settings of the cluster, except for its certificates: the server changes the other settings only at a start"
            );
        }
        if self.peers.is_some() && settings.server_name != old.server_name {
            tracing::error!(
                "the reload keeps the old name of this server: a node of a cluster cannot change its name"
            );
            settings.server_name.clone_from(&old.server_name);
        }
        if settings.controller != old.controller {
            tracing::error!(
                "the reload keeps the old controller: the server changes the controller only at a start"
            );
            settings.controller = old.controller;
        }
        bound_clients(&mut settings);
        let nothing = |e: StartError| {
            tracing::error!("the reload failed: {e}: the server keeps its old configuration");
        };
        let (of_clients, of_nodes) = match certificates(&settings) {
            Ok(both) => both,
            Err(e) => return nothing(e),
        };
        if settings.shows_credentials() && !self.node.settings().shows_credentials() {
            warn_of_shown_credentials();
        }
        self.tls = of_clients;
        if let Some(peers) = &mut self.peers {
            peers.set_tls(of_nodes);
        }
        let id = self.node.info().server_id.clone();
        let info = server_info(&settings, self.address, &id);
        self.node.reload(now, settings, info);
        tracing::info!("Reloaded server configuration: the new settings apply from now on");
    }

    /// Reads listed connections as long as the turn allows. A connection with more to read stays listed.
    fn read_ready(&mut self, now: Time) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.ready.begin_turn();
        let mut now = now;
        while let Some(key) = self.ready.next() {
            if let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut) {
                conn.listed = false;
                self.read(now, key, &mut scratch);
            }
            let end = self.clock.now();
            let share = self
                .ready
                .handle_read(end - std::mem::replace(&mut now, end));
            if let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut) {
                conn.share = share;
                self.list_again(key);
            }
        }
        self.scratch = scratch;
    }

    fn list_again(&mut self, key: ClientKey) {
        if self.node.contains(key) && self.node.reads(key) {
            self.list(key);
        }
    }

    fn read(&mut self, now: Time, key: ClientKey, scratch: &mut [u8]) {
        if self.node.contains(key) && self.node.reads(key) && self.open(now, key, scratch) {
            self.read_open(now, key, scratch);
        }
    }

    /// Reads a connection once, during its handshake or after it.
    fn read_open(&mut self, now: Time, key: ClientKey, scratch: &mut [u8]) {
        let need = self.node.need(key);
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return;
        };
        if conn.cut {
            return self.go_on_after_cut(now, key);
        }
        // The rest of the last read goes to the front; a large message has a buffer of its own.
        let gathers = need > scratch.len();
        let kept = if gathers { 0 } else { conn.input.len() };
        scratch[..kept].copy_from_slice(&conn.input[..kept]);
        let room = scratch.len() - kept;
        let outcome = if room > 0 {
            conn.socket.read(&mut scratch[kept..])
        } else {
            Ok(0)
        };
        let handshaking = conn.socket.is_handshaking();
        let got = match outcome {
            Ok(0) if room > 0 => {
                return self.node.handle_closed(now, key, CloseReason::ClientClosed);
            }
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                conn.readable = false;
                0
            }
            Err(e) => {
                let reason = if handshaking {
                    CloseReason::Tls
                } else {
                    CloseReason::Io
                };
                tracing::debug!(
                    "the server cannot read from a client, and closes the connection: {e}"
                );
                return self.node.handle_closed(now, key, reason);
            }
        };
        if room > 0 && conn.socket.is_drained() && !conn.ended {
            conn.readable = false;
        }
        self.secured(now, key);
        if gathers {
            self.gather(now, key, &scratch[..got]);
        } else {
            let used = self.consume(now, key, &scratch[..kept + got]);
            if let Some(conn) = self.conns[key.index()].as_mut() {
                conn.input.clear();
                conn.keep(&scratch[used..kept + got]);
            }
        }
    }

    /// Uses bytes that a slice left, before the socket is read again.
    fn go_on_after_cut(&mut self, now: Time, key: ClientKey) {
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return;
        };
        conn.cut = false;
        let mut input = std::mem::take(&mut conn.input);
        let start = conn.used;
        let used = start + self.consume(now, key, &input[start..]);
        if let Some(conn) = self.conns[key.index()].as_mut() {
            conn.used = used;
            if !conn.cut {
                input.drain(..std::mem::take(&mut conn.used));
            }
            conn.input = input;
            conn.keep(b"");
        }
    }

    /// Adds to a message larger than a read.
    fn gather(&mut self, now: Time, key: ClientKey, bytes: &[u8]) {
        let need = self.node.need(key);
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return;
        };
        let mut input = std::mem::take(&mut conn.input);
        if input.capacity() < need {
            // Doubles up to the need: a client has to send as many bytes as it makes the server reserve.
            input.reserve(
                (2 * input.len())
                    .max(READ_BYTES)
                    .min(need + READ_BYTES - input.len()),
            );
        }
        input.extend_from_slice(bytes);
        if input.len() < need {
            conn.input = input;
            self.node.handle_activity(now, key);
        } else {
            let used = self.consume(now, key, &input);
            // The rest is the beginning of the next message: the memory is reused.
            input.drain(..used);
            if let Some(conn) = self.conns[key.index()].as_mut() {
                conn.input = input;
                conn.keep(b"");
            }
        }
    }

    /// Hands in bytes, until the connection's slice is over, and writes whenever enough is gathered. Returns
    /// the number of bytes used.
    fn consume(&mut self, now: Time, key: ClientKey, bytes: &[u8]) -> usize {
        let end = now + self.ready.slice();
        let mut used = 0;
        loop {
            let received = self
                .node
                .handle_received(now, key, &bytes[used..], self.flow.limit());
            used += received.used;
            if !received.full {
                // A client that the node does not read now may have closed its socket: the rest of its input
                // comes before the end of the socket.
                if used < bytes.len() && self.node.contains(key) && !self.node.reads(key) {
                    self.cut(key);
                }
                break;
            }
            let now = self.clock.now();
            if self.node.has_gathered(self.flow.limit()) {
                self.flush(now, self.flow.reason());
            }
            if now >= end {
                self.cut(key);
                break;
            }
        }
        used
    }

    /// Keeps the rest of a connection's input for its next slice.
    fn cut(&mut self, key: ClientKey) {
        if let Some(conn) = self.conns[key.index()].as_mut() {
            conn.cut = true;
            conn.readable = true;
        }
    }

    /// Reads each listed channel of a peer once, and writes whenever enough is gathered.
    fn read_peers(&mut self, now: Time) {
        let Some(peers) = &mut self.peers else { return };
        let ready = peers.take_ready();
        if ready.is_empty() {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        for key in ready {
            if !self.postpone_peer(now, key) {
                self.read_peer(now, key, &mut scratch);
            }
        }
        self.scratch = scratch;
    }

    /// Reads a channel of a peer once, and writes whenever enough is gathered.
    fn read_peer(&mut self, now: Time, key: ChannelKey, scratch: &mut [u8]) {
        while let Some(peers) = &mut self.peers
            && peers.read(now, key, &mut self.node, scratch, self.flow.limit())
        {
            self.flush(self.clock.now(), self.flow.reason());
        }
    }

    /// Does one turn's work for peers.
    fn turn_peers(&mut self, now: Time) {
        if let Some(peers) = &mut self.peers {
            peers.handle_timeouts(now, &mut self.node);
        }
    }

    /// Does the node's work besides writing.
    fn go_on(&mut self, now: Time) {
        self.greet_late(now);
        while let Some(peers) = &mut self.peers
            && let Some(slot) = self.node.poll_resumed_peer()
        {
            peers.resume(slot);
        }
        while let Some(key) = self.node.poll_resumed() {
            if let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut) {
                // Bytes received earlier and not used come first: the connection has work even with
                // an empty socket.
                conn.readable = true;
                self.list(key);
            }
        }
    }

    /// Writes outboxes, for [`WRITE_BUDGET`] at most: the next turn goes on with a round of writes that takes
    /// longer.
    fn flush(&mut self, now: Time, reason: Reason) {
        if self.round.is_none() {
            let batch = self.node.take_gathered();
            if batch.items > 0 {
                self.flow.started(now, batch, reason);
                self.round = Some(Round {
                    items: batch.items,
                    spent_ns: 0,
                });
            }
        }
        let begun = self.clock.now();
        let (mut end, mut written) = (begun, 0);
        while end - begun < WRITE_BUDGET
            && let Some(key) = self.node.poll_dirty()
        {
            self.write(now, key);
            written += 1;
            if written % WRITES_A_LOOK == 0 {
                end = self.clock.now();
            }
        }
        if let Some(peers) = &mut self.peers {
            while let Some(slot) = self.node.poll_dirty_peer() {
                peers.write_route(now, slot, &mut self.node);
            }
            while let Some(slot) = self.node.poll_cut_off() {
                peers.cut_off(now, slot, &mut self.node);
            }
        }
        if let Some(mut round) = self.round.take() {
            let end = self.clock.now();
            round.spent_ns += end.since(begun);
            if self.node.is_dirty() {
                self.round = Some(round);
                return;
            }
            self.flow.done(end, round.spent_ns);
            self.node.handle_flushed(end, round.items, round.spent_ns);
        }
    }

    /// Writes the outbox of one connection once, as far as its socket takes it. A long rest waits until other
    /// connections have written.
    fn write(&mut self, now: Time, key: ClientKey) {
        let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut) else {
            return;
        };
        if !self.node.contains(key) {
            return;
        }
        if !conn.writable {
            return self.node.handle_written(now, key, 0);
        }
        match conn.socket.write(self.node.outbox(key)) {
            Ok(written) => {
                conn.writable = !written.blocked;
                self.node.handle_written(now, key, written.len);
                if !written.blocked {
                    self.node.handle_more_to_write(key);
                }
            }
            Err(e) => {
                tracing::debug!(
                    "the server cannot write to a client, and closes the connection: {e}"
                );
                self.node.handle_closed(now, key, CloseReason::Io);
            }
        }
    }

    fn drop_closed(&mut self) {
        for _ in 0..CLOSES_A_TURN {
            let Some((key, reason)) = self.node.poll_closed() else {
                return;
            };
            if let Some(mut conn) = self.conns.get_mut(key.index()).and_then(Option::take) {
                if let Some(place) = conn.place.take() {
                    self.handshakes.withdraw(&place);
                }
                let _ = self.poll.registry().deregister(&mut conn.socket.stream);
                conn.socket.close();
                if reason.is_slow_consumer() {
                    tracing::warn!(
                        "{}: the server closes the connection of this client: {}",
                        conn.address,
                        reason.as_str()
                    );
                } else if reason.is_failed_login() {
                    if let Some(more) = self.failed_logins.due(self.clock.now()) {
                        let why = reason.as_str();
                        tracing::warn!("{}: a login failed: {why}{more}", conn.address);
                    }
                } else {
                    tracing::debug!(
                        "{}: the connection of this client has ended: {}",
                        conn.address,
                        reason.as_str()
                    );
                }
            }
        }
    }

    /// Returns whether the server has finished.
    fn is_over(&mut self, now: Time) -> bool {
        if let Some(until) = self.draining
            && ((self.has_read_all() && self.node.streams_idle() && self.has_handed_over(now))
                || until <= now)
        {
            self.draining = None;
            self.node.stop_streams(now);
            self.node.close_all(now);
            self.flush(now, Reason::Closing);
            self.drop_closed();
        }
        let closed = self.node.is_empty() && !self.node.has_closed();
        self.stopping && self.draining.is_none() && closed && self.has_parted(now)
    }

    /// Returns whether no connection waits to be read.
    fn has_read_all(&self) -> bool {
        let opening = !self.handshakes.is_empty() || !self.pool.is_idle();
        self.ready.is_empty() && !opening && !self.node.is_spreading()
    }

    /// Returns whether other nodes lead this node's groups, as far as others can, or know that this
    /// node is about to leave.
    fn has_handed_over(&self, now: Time) -> bool {
        let mut all = self.node.all_streams();
        self.replication.is_none() || all.all(|s| s.has_handed_over(now))
    }

    /// Returns whether the clients' last messages are on their way to the peers, or the time for
    /// that is over.
    fn has_parted(&mut self, now: Time) -> bool {
        let written = |peers: &Peers| peers.is_written(&self.node);
        if self.peers.as_deref().is_none_or(written) {
            return true;
        }
        *self.parting.get_or_insert(now + PARTING) <= now
    }
}

/// Warns that the network can read the credentials of clients.
fn warn_of_shown_credentials() {
    tracing::warn!(
        "clients send their passwords and tokens without TLS, and the network can read them: configure tls"
    );
}

/// Reads the certificates of both ports again.
fn certificates(
    settings: &Settings,
) -> Result<(Option<Arc<ServerConfig>>, Option<PeerTls>), StartError> {
    let of_clients = settings.tls.as_ref().map(tls::server_config).transpose()?;
    let cluster = settings.cluster.as_ref().and_then(|c| c.tls.as_ref());
    let of_nodes = cluster.map(tls::peer_tls).transpose();
    Ok((of_clients, of_nodes.map_err(StartError::ClusterTls)?))
}

/// Restores the settings of the cluster that cannot change in a running server. Returns whether none had
/// changed.
fn keep_cluster(settings: &mut Settings, old: &Settings) -> bool {
    let tls = settings.cluster.as_mut().and_then(|c| c.tls.take());
    let mut kept = old.cluster.clone();
    let had = kept.as_mut().and_then(|c| c.tls.take());
    let same = settings.cluster == kept && tls.is_some() == had.is_some();
    settings.cluster = kept;
    if let Some(cluster) = &mut settings.cluster {
        cluster.tls = if same { tls } else { had };
    }
    same
}
