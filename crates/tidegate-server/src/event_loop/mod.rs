//! Runs the event loop, on one thread: the loop waits for sockets, hands received bytes to the node, writes
//! the outboxes, and sleeps until the earliest deadline.
//!
//! The loop owns the sockets and decides only the order of work: take the events, act once, then write. In
//! each turn it reads ready connections for a bounded time and in equal shares (`ReadQueue`), so that no
//! connection starves another. `Flow` decides when the loop writes in between.

use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Poll, Waker};
use rustls::ServerConfig;
use tidegate::Time;
use tidegate::controller::Reason;
use tidegate_nats::session::CloseReason;
use tidegate_raft::store::Store;

mod applying;
mod client_certificates;
mod clock;
mod committing;
mod damage;
mod descriptors;
pub(crate) mod errors;
mod flow;
pub(crate) mod handle;
mod handshakes;
mod handshaking;
mod identity;
mod listening;
mod log_limit;
pub(crate) mod members;
mod net;
mod opening;
pub(crate) mod peers;
mod place;
mod pool;
mod read_queue;
mod recording;
mod relay;
mod reloading;
pub(crate) mod remotes;
mod replication;
pub(crate) mod report;
#[cfg(feature = "sim")]
pub(crate) mod simulation;
mod socket;
pub(crate) mod spans;
mod system;
mod taking_over;
pub(crate) mod tls;
mod tls_rate;
mod tokens;
pub(crate) mod turns;
mod writing;

use self::applying::Waiting;
use self::clock::LoopClock;
use self::committing::Committing;
use self::damage::Damage;
use self::descriptors::{Bound, bound_clients};
use self::errors::{RunError, StartError};
use self::flow::Flow;
use self::handle::{Command, Handle};
use self::handshakes::{Handshakes, Place};
use self::identity::{seed, server_id, server_info};
pub use self::listening::Listening;
use self::log_limit::LogLimit;
use self::net::Listener;
use self::opening::Opening;
use self::peers::Peers;
use self::pool::Pool;
use self::read_queue::{ReadQueue, Share};
use self::recording::Recording;
use self::remotes::RemoteOrigins;
use self::replication::Replication;
use self::report::boundaries::observe;
use self::report::{Cluster, Report, Streams, browse, gather};
use self::socket::Socket;
use self::system::SystemLink;
use self::tls::PeerTls;
use self::tls_rate::TlsRate;
use self::tokens::{ChannelKey, LISTENER, Owner, Ready, WAKER};
use self::turns::Turns;
use crate::config::Settings;
use crate::cost::{Work, spend};
use crate::party::ClientKey;
use crate::sessions::Node;

/// The greatest number of bytes that the loop reads from a connection at once: about as many as a client
/// library writes at once, and a small part of a core's cache, so that a read costs few calls and stays
/// short.
const READ_BYTES: usize = 64 * 1024;
/// The greatest number of sockets that the loop closes in one turn, so that many connections that end at once
/// do not keep the loop long.
const CLOSES_A_TURN: usize = 64;
/// The greatest number of events that the loop takes from the poller in one turn, so that no turn takes long.
const EVENTS_LEN: usize = 1024;
/// The longest time for which a draining server still reads the messages that clients have already sent,
/// before it closes their connections, so that these messages are not lost.
const DRAIN_READS: Duration = Duration::from_secs(1);
/// The longest time for which a stopping server without clients still writes to its peers, so that its
/// clients' last messages arrive.
const PARTING: Duration = Duration::from_secs(2);
/// The greatest number of log lines about failed logins in ten seconds, so that a client cannot fill the log.
const FAILED_LOGINS_LOGGED: u32 = 5;

/// A server that listens for clients, with its sockets and its node; [`Server::run`] serves the clients.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    clock: LoopClock,
    /// The socket on which clients connect; `None` once the server accepts no more clients.
    listener: Option<Listener>,
    address: SocketAddr,
    node: Node,
    conns: Vec<Option<Conn>>,
    /// The client connections with something to read, in the order in which the loop reads them.
    ready: ReadQueue,
    flow: Flow,
    /// The thread that records the controllers' decisions for an analysis; `None` if the operator wants no
    /// recording.
    recording: Option<Recording>,
    tls: Option<Arc<ServerConfig>>,
    handle: Handle,
    pool: Pool,
    system: SystemLink,
    remote_origins: RemoteOrigins,
    /// True if the loop gives the pool's next free thread a password and not a handshake, while jobs of both
    /// kinds wait, so that they take turns.
    password_next: bool,
    scratch: Vec<u8>,
    accept_again: Option<Time>,
    /// The rate limit of the log line with which the server says that it cannot accept connections.
    not_accepted: LogLimit,
    /// The rate limit of the log line with which the server says that it has its maximum of connections.
    not_admitted: LogLimit,
    /// The rate limit of the log line with which the server says that a client's login failed.
    failed_logins: LogLimit,
    /// The clients to which the server sends INFO at the given time, unless they have begun TLS before; in
    /// the order of these times.
    hellos: VecDeque<(Time, ClientKey)>,
    tls_rate: TlsRate,
    /// The TLS handshakes that wait for a free thread of the pool.
    handshakes: Handshakes,
    /// The store of the streams, with their log and checkpoints; `None` without streams, and until the loop
    /// has opened it.
    store: Option<Store>,
    /// The streams' settings and the lock of their directory, which the loop keeps, until the members of the
    /// cluster are fixed and the loop can open the streams.
    waiting: Option<Waiting>,
    /// The Raft groups that this node shares with other nodes; `None` for a server without a cluster, which
    /// commits alone.
    replication: Option<Replication>,
    /// The log positions of damaged records that no other node can send, so that streams do not wait for
    /// them.
    lost: BTreeSet<u64>,
    /// The damaged ranges of the log that the scrub has found, in which the loop looks for lost messages.
    damage: Damage,
    /// The time at which the loop next checks whether a full disk has space again; `None` while the disk has
    /// space.
    look_for_space: Option<Time>,
    /// The connections with the other nodes of the cluster; `None` for a server without a cluster, which has
    /// no peers.
    peers: Option<Box<Peers>>,
    /// The time at which a stopping server ends although bytes still wait for its peers; `None` as long as
    /// the server has client connections.
    parting: Option<Time>,
    /// The time at which a draining server ceases to read and closes all connections, if it has not done so
    /// earlier; `None` if the server does not drain, or has closed them.
    draining: Option<Time>,
    stopping: bool,
    turns: Turns,
    /// The time for which the loop has written outboxes in this turn, which [`WRITE_BUDGET`] bounds.
    writing: Duration,
    /// The round of writes that did not end in the last turn and that this turn continues.
    round: Option<Round>,
    /// The state by which the loop decides which thread syncs the log, and when the loop's thread must commit
    /// next.
    committing: Committing,
    /// The way to the thread that exports spans of publishes; `None` if the program exports none.
    spans: Option<spans::SpanSender>,
    /// The remarks on the settings that [`Listening::open_data`] tells the operator of: other machines can
    /// read the credentials of clients, and a lower maximum of clients.
    shows_credentials: bool,
    bound: Option<Bound>,
}

/// A round of socket writes that the loop has begun and not ended, because it took longer than a turn may
/// write.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The number of copies of messages that waited in the outboxes when the round began, from which the
    /// streams compute their share of the round's cost.
    items: u64,
    /// The time that the round's writes have taken so far, in nanoseconds, which the controller learns at the
    /// end.
    spent_ns: u64,
}

#[derive(Debug)]
struct Conn {
    socket: Socket,
    address: SocketAddr,
    /// The bytes that the loop has received from the client. The node has used the first `used` of them, and
    /// gets the rest in a later turn.
    input: Vec<u8>,
    /// The number of bytes of `input` that the node has used; 0 unless the loop ended the connection's time
    /// in a turn within `input`.
    used: usize,
    /// True if the client's socket may have bytes to read, as the poller reported and no read has shown
    /// otherwise.
    readable: bool,
    /// True if the client's socket takes more bytes, so that the loop may write the outbox.
    writable: bool,
    /// True if the client has closed its end of the connection, so that it sends no more bytes.
    ended: bool,
    /// True if the loop's list of connections to read contains this connection, so that the loop does not
    /// list it twice.
    listed: bool,
    share: Share,
    /// True if the loop ended the connection's time in its last turn before the node had used all whole
    /// operations in `input`. The loop then reads no more bytes before the node has used these, so that
    /// operations keep their order.
    cut: bool,
    opening: Opening,
    /// The place of the connection in the queue of TLS handshakes; `None` if no handshake of the connection
    /// waits there. The loop does not read a connection with a place, because its handshake waits for a
    /// thread.
    place: Option<Place>,
}

impl Conn {
    /// Keeps received bytes that the node has not used, for the next turn. If no bytes remain, frees a buffer
    /// that is larger than an ordinary read needs.
    fn keep(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        if self.input.is_empty() && self.input.capacity() > READ_BYTES {
            self.input = Vec::new();
        }
    }
}

impl Server {
    /// Checks the certificates and the controller in the settings, as a start does. Opens no port and writes
    /// no file, so that an operator can check a configuration beside a running server.
    ///
    /// # Errors
    /// A file of certificates or keys that a server cannot use, or bounds that no controller can satisfy.
    pub fn check(settings: &Settings) -> Result<(), StartError> {
        certificates(settings)?;
        Flow::new(settings.controller)?;
        Ok(())
    }

    /// Creates a server that listens at the address in the settings, for [`Server::run`].
    ///
    /// # Errors
    /// The server cannot apply the settings: for example, the address is in use, or a certificate is
    /// unreadable.
    pub fn bind(settings: Settings) -> Result<Self, StartError> {
        Self::listen(settings)?.open_data()
    }

    /// Creates a server that listens at the address in the settings and has not opened its data, which may
    /// take long. A program can name the address meanwhile, and then calls [`Listening::open_data`].
    ///
    /// # Errors
    /// The server cannot apply the settings: for example, the address is in use, or a certificate is
    /// unreadable.
    pub fn listen(settings: Settings) -> Result<Listening, StartError> {
        Self::with_sockets(settings).map(Listening)
    }

    /// Creates a server with its sockets and threads, and without its data.
    fn with_sockets(mut settings: Settings) -> Result<Self, StartError> {
        settings.check_exposure()?;
        let shows_credentials = settings.shows_credentials();
        let bound = bound_clients(&mut settings);
        let listen = |source| StartError::Listen {
            host: settings.host.clone(),
            port: settings.port,
            source,
        };
        let (mut listener, address) = net::listen(&settings.host, settings.port).map_err(listen)?;
        let poll = Poll::new().map_err(StartError::Loop)?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(StartError::Loop)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(StartError::Loop)?;
        let handle = Handle::new(waker);
        let tls = settings.tls.as_ref().map(tls::server_config).transpose()?;
        let mut flow = Flow::new(settings.controller)?;
        let recording = settings.record.as_ref().map(|_| Recording::new());
        if let Some(recording) = &recording {
            flow.log_to(recording.log());
        }
        let id = server_id();
        if settings.cluster.is_some() {
            settings.server_name.get_or_insert_with(|| id.clone());
        }
        let info = server_info(&settings, address, &id);
        let clock = LoopClock::start();
        let kept = settings.streams.clone();
        let mut node = Node::new(settings.clone(), info.clone(), seed());
        let remotes = kept.as_ref().map(|kept| kept.remotes.clone());
        let remotes = remotes.unwrap_or_default();
        let waiting = kept.map(Waiting::claim).transpose()?;
        let peers = Peers::start(&settings, clock.now(), address, poll.registry(), &handle)?;
        if peers.is_some() {
            node.join_cluster(info.connect_urls);
        }
        Ok(Self {
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
            remote_origins: RemoteOrigins::new(&handle, remotes),
            handle,
            scratch: vec![0; READ_BYTES],
            accept_again: None,
            not_accepted: LogLimit::default(),
            not_admitted: LogLimit::default(),
            failed_logins: LogLimit::of_lines(FAILED_LOGINS_LOGGED),
            hellos: VecDeque::new(),
            tls_rate: TlsRate::default(),
            handshakes: Handshakes::default(),
            system: SystemLink::default(),
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
            writing: Duration::ZERO,
            round: None,
            committing: Committing::default(),
            spans: None,
            shows_credentials,
            bound,
        })
    }

    /// Returns the address at which the server listens for clients, which has the real port if the settings
    /// ask for any free one.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address at which the server listens for the other nodes of its cluster; `None` without a
    /// cluster.
    #[must_use]
    pub fn cluster_address(&self) -> Option<SocketAddr> {
        self.peers.as_ref().map(|p| p.address())
    }

    /// Returns a handle with which other threads send commands to the server, such as a drain.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves clients until a command of another thread stops the server and the loop has closed all
    /// connections.
    ///
    /// # Errors
    /// The server cannot continue; [`RunError`] says why.
    pub fn run(self) -> Result<(), RunError> {
        relay::run(self)
    }

    /// Ends the server after its last turn: closes the streams and all sockets, and finishes the recording,
    /// so that nothing accepted is lost.
    fn end(mut self) -> Result<(), RunError> {
        let closed = self.close_streams();
        let recording = self.recording.take();
        drop(self);
        if let Some(recording) = recording {
            recording.finish();
        }
        closed
    }

    /// Runs one turn, which waits for events for at most `wait`. Returns the longest time for which the next
    /// turn may wait, or breaks if this turn was the last.
    fn turn(
        &mut self,
        events: &mut Events,
        wait: Option<Duration>,
    ) -> Result<ControlFlow<(), Option<Duration>>, RunError> {
        if !self.finds_event(events, wait)? {
            match self.poll.poll(events, wait) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(RunError::Loop(e)),
                _ => {}
            }
        }
        self.turn_with(events.iter().map(Ready::from))
    }

    /// Looks for events for a moment without sleeping, if a sync on this thread has just ended and looking
    /// pays. Returns whether there are events.
    fn finds_event(
        &mut self,
        events: &mut Events,
        wait: Option<Duration>,
    ) -> Result<bool, RunError> {
        let Some(until) = self.awake_until(wait) else {
            return Ok(false);
        };
        loop {
            match self.poll.poll(events, Some(Duration::ZERO)) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(RunError::Loop(e)),
                _ => {}
            }
            let found = !events.is_empty();
            if found || self.clock.now() >= until {
                self.handle_awake(found);
                return Ok(found);
            }
        }
    }

    /// Runs one turn with these events of the poller, so that a simulation can give events of its own. The
    /// result is that of [`turn`](Self::turn).
    fn turn_with(
        &mut self,
        events: impl Iterator<Item = Ready>,
    ) -> Result<ControlFlow<(), Option<Duration>>, RunError> {
        let now = self.clock.now();
        self.turns.begin(now);
        self.writing = Duration::ZERO;
        for event in events {
            self.turns.handle_event();
            self.take_event(now, event);
        }
        self.accept_later(now);
        self.read_ready(now);
        self.read_peers(now);
        let now = self.clock.now();
        self.node.handle_timeouts(now);
        self.turn_peers(now);
        // The loop gives the pool its jobs after the timeouts, so that no thread works on a handshake that is
        // past its time.
        self.turn_pool();
        let now = self.clock.now();
        self.open_streams(now)?;
        self.turn_remotes(now);
        self.turn_streams(now)?;
        self.send_page();
        self.send_jobs(now);
        self.go_on(now);
        let hold = match self.round {
            None => self.flow.wait(now, self.node.gathered()),
            // The loop has not ended the last turn's round of writes, so it continues the round in this turn
            // without a wait.
            Some(_) => None,
        };
        if hold.is_none() {
            self.flush(now, Reason::Drained);
            self.hand_spans_over();
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

    /// Returns the longest time for which the next turn may wait for events; `None` lets it wait without a
    /// limit, because no timer is set.
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
            self.stats_deadline(),
            self.committing.deadline(),
            hello,
        ];
        let at = times.into_iter().flatten().min()?;
        (at != Time::NEVER).then(|| at - now)
    }

    fn take_event(&mut self, now: Time, event: Ready) {
        match Owner::of(event.token) {
            // The loop only notes that connections wait, and accepts them once in the turn, so that further
            // events cost nothing.
            Owner::Listener => self.accept_again = Some(now),
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
                conn.readable |= event.readable;
                conn.ended |= event.ended;
                let waits = conn.place.is_some() || conn.socket.is_away();
                if conn.ended && (waits || self.node.is_verifying(key)) {
                    // The client has gone and needs neither the handshake nor the check of its password, so
                    // the loop closes the connection.
                    return self.node.handle_closed(now, key, CloseReason::ClientClosed);
                }
                if event.writable && !std::mem::replace(&mut conn.writable, true) {
                    // The loop writes the outbox later with the other outboxes, because a thousand sockets
                    // may take bytes again in one turn. But it writes bytes that TLS holds back now, because
                    // the node does not know of them.
                    match conn.socket.holds_back() {
                        true => self.write(now, key),
                        false => self.node.handle_more_to_write(key),
                    }
                }
                self.list(key);
            }
        }
    }

    /// Lists a connection, so that the loop reads it in this turn, if the connection's socket may have bytes,
    /// and its handshake neither waits in the queue nor is with a thread of the pool.
    fn list(&mut self, key: ClientKey) {
        if let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut)
            && conn.readable
            && conn.place.is_none()
            && !conn.socket.is_away()
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
                    let take = |store| Streams::take(&self.node, now, store, &query);
                    let streams = store.and_then(take);
                    let report = Report::take(
                        &self.node,
                        now.as_nanos(),
                        self.turns.stats(),
                        self.flow.snapshot(),
                        streams,
                        self.peers.as_ref().map(|p| Cluster::take(&self.node, p)),
                    );
                    // The loop fails to send the report only if the thread that asked for it has ended, which
                    // does no harm.
                    let _ = to.try_send(report);
                }
                Command::List(ask, to) => {
                    let part = gather::answer(&self.node, now, &ask);
                    #[cfg(feature = "sim")]
                    part.count_works();
                    let _ = to.try_send(part);
                }
                Command::Browse(browse, to) => {
                    let _ = to.try_send(browse::look(&self.node, self.store.as_ref(), &browse));
                }
                Command::Observe(to) => {
                    let observed = observe(&self.node, &self.flow, self.store.as_ref());
                    let _ = to.try_send((now, observed));
                }
                Command::Drain if !self.stopping => {
                    tracing::info!(
                        "Initiating shutdown: a signal or the embedding program tells the server to end, so it finishes the received operations first"
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
                        "Entering lame duck mode: an operator tells the server to end slowly, so it accepts no new clients, closes the connections one after the other, and ends"
                    );
                    self.stop_accepting();
                    self.hand_over(now);
                    self.node.lame_duck(now);
                }
                Command::Drain => self.draining = Some(now),
                Command::LameDuck => {}
                Command::Reload(settings) => self.reload(now, *settings),
                Command::ServeSystem(to) => self.system.connect(to),
                Command::Say(account, subject, body) => {
                    self.node.say_system(now, account, &subject, &body);
                }
                // The loop fails to send the answer only if the thread that asked has ended, which does no
                // harm.
                Command::Kick(cid, to) => drop(to.try_send(self.node.kick(now, cid))),
                Command::SendAway(cid, to) => drop(to.try_send(self.node.send_away(cid))),
            }
        }
    }

    fn stop_accepting(&mut self) {
        self.stopping = true;
        self.accept_again = None;
        if let Some(mut listener) = self.listener.take() {
            // A failed deregistration does no harm, since the server drops the listener in any case.
            let _ = self.poll.registry().deregister(&mut listener);
        }
    }

    /// Reads the listed connections as long as the turn's time for reading lasts. A connection with more to
    /// read stays listed for the next turn.
    fn read_ready(&mut self, now: Time) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.ready.begin_turn();
        let mut now = now;
        while let Some(key) = self.ready.next() {
            spend(Work::Event, 1);
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

    /// Reads a connection once, and hands the bytes to the TLS handshake or, as the client's operations, to
    /// the node.
    fn read_open(&mut self, now: Time, key: ClientKey, scratch: &mut [u8]) {
        let need = self.node.need(key);
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return;
        };
        if conn.cut {
            return self.go_on_after_cut(now, key);
        }
        // The loop puts the unused rest of the last read first into the buffer. It gathers a message larger
        // than the buffer in the connection's own buffer instead, which grows with it.
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
                    "the server closes the connection of a client, because it cannot read from the connection: {e}"
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

    /// Hands the node the bytes that were left when the loop ended the connection's time in its last turn,
    /// before the loop reads the socket again, so that operations keep their order.
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

    /// Adds bytes to a message that is larger than one read, and hands the message to the node once it is
    /// complete, because the node takes whole messages only.
    fn gather(&mut self, now: Time, key: ClientKey, bytes: &[u8]) {
        let need = self.node.need(key);
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return;
        };
        let mut input = std::mem::take(&mut conn.input);
        if input.capacity() < need {
            // The buffer at most doubles, up to the message's length, so that a client must send as many
            // bytes as it makes the server reserve.
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
            // The bytes behind the complete message in the connection's buffer belong to the client's next
            // message, which reuses the buffer's memory.
            input.drain(..used);
            if let Some(conn) = self.conns[key.index()].as_mut() {
                conn.input = input;
                conn.keep(b"");
            }
        }
    }

    /// Hands received bytes to the node until the connection's time in this turn (its slice) is over, so that
    /// others get their turn, and writes outboxes whenever enough has gathered in them. Returns the number of
    /// bytes that the node used.
    fn consume(&mut self, now: Time, key: ClientKey, bytes: &[u8]) -> usize {
        let end = now + self.ready.slice();
        let mut used = 0;
        loop {
            let received = self
                .node
                .handle_received(now, key, &bytes[used..], self.flow.limit());
            used += received.used;
            if !received.full {
                // The node has paused the client, so it has not used all of the input. The loop hands in the
                // rest of the input before it looks at the end of the socket, since the client may have
                // closed the socket meanwhile.
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

    /// Ends the connection's time in this turn, so that the rest of its input waits for a later turn.
    fn cut(&mut self, key: ClientKey) {
        if let Some(conn) = self.conns[key.index()].as_mut() {
            conn.cut = true;
            conn.readable = true;
        }
    }

    /// Reads each listed channel of a peer once, and writes outboxes whenever enough has gathered in them, so
    /// that they stay small.
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

    /// Reads one channel of a peer once, and writes outboxes whenever enough has gathered in them, so that
    /// they stay small.
    fn read_peer(&mut self, now: Time, key: ChannelKey, scratch: &mut [u8]) {
        while let Some(peers) = &mut self.peers
            && peers.read(now, key, &mut self.node, scratch, self.flow.limit())
        {
            self.flush(self.clock.now(), self.flow.reason());
        }
    }

    /// Handles the deadlines of the channels with peers, such as pings and dials, once a turn, so that dead
    /// peers are noticed.
    fn turn_peers(&mut self, now: Time) {
        if let Some(peers) = &mut self.peers {
            peers.handle_timeouts(now, &mut self.node);
        }
    }

    /// Sends the INFO that is due to silent clients, and lists the connections from which the node reads
    /// again after a pause.
    fn go_on(&mut self, now: Time) {
        self.greet_late(now);
        while let Some(peers) = &mut self.peers
            && let Some(slot) = self.node.poll_resumed_peer()
        {
            peers.resume(slot);
        }
        while let Some(key) = self.node.poll_resumed() {
            if let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut) {
                // The loop lists the connection even if its socket is empty, because the loop may hold bytes
                // that it received earlier and the node has not used.
                conn.readable = true;
                self.list(key);
            }
        }
    }

    /// Once a drain is over, stops the streams and closes all connections, as the operator asked. Returns
    /// whether the server has finished, so that the loop ends.
    fn is_over(&mut self, now: Time) -> bool {
        if let Some(until) = self.draining
            && ((self.has_read_all() && self.node.streams_idle() && self.has_handed_over(now))
                || until <= now)
        {
            self.draining = None;
            self.node.stop_streams(now);
            self.say_that_it_stops(now);
            self.node.close_all(now);
            self.flush(now, Reason::Closing);
            self.drop_closed();
        }
        let closed = self.node.is_empty() && !self.node.has_closed();
        self.stopping && self.draining.is_none() && closed && self.has_parted(now)
    }

    /// Returns whether a draining server has handled all received input, so that it may close its
    /// connections: no connection waits to be read, no TLS handshake waits or runs, and every message has
    /// reached all of its receivers' outboxes.
    fn has_read_all(&self) -> bool {
        let opening = !self.handshakes.is_empty() || !self.pool.is_idle();
        self.ready.is_empty() && !opening && !self.node.is_spreading()
    }

    /// Returns whether this node, which stops, has handed over the leadership of all its groups. A group that
    /// no other node can lead counts as handed over once the other nodes have had time to learn that this
    /// node leaves.
    fn has_handed_over(&self, now: Time) -> bool {
        let mut all = self.node.all_streams();
        self.replication.is_none() || all.all(|s| s.has_handed_over(now))
    }

    /// Returns whether a stopping server may end without loss: the loop has written the clients' last
    /// messages to the peers, or the time for that is over.
    fn has_parted(&mut self, now: Time) -> bool {
        let written = |peers: &Peers| peers.is_written(&self.node);
        if self.peers.as_deref().is_none_or(written) {
            return true;
        }
        *self.parting.get_or_insert(now + PARTING) <= now
    }
}

/// Logs a warning for the operator that other machines on the network can read the credentials of clients.
fn warn_of_shown_credentials() {
    tracing::warn!(
        "clients send their passwords and tokens without TLS, and other machines on the network can read them: configure tls"
    );
}

/// Reads the certificates of the client port and of the port for nodes from their files, and checks them, so
/// that a wrong file stops the start.
fn certificates(
    settings: &Settings,
) -> Result<(Option<Arc<ServerConfig>>, Option<PeerTls>), StartError> {
    let of_clients = settings.tls.as_ref().map(tls::server_config).transpose()?;
    let cluster = settings.cluster.as_ref().and_then(|c| c.tls.as_ref());
    let of_nodes = cluster.map(tls::peer_tls).transpose();
    Ok((of_clients, of_nodes.map_err(StartError::ClusterTls)?))
}
