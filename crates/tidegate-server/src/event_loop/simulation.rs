//! Simulates servers in virtual time: runs the turns of real event loops on a simulated machine
//! (`crate::simulated`), in the order of their times.
//!
//! The loop is the product's own, with its node, its streams, its store and its peers; the simulation
//! replaces only the loop's surroundings: sockets, disks, the pool's threads, clocks and random numbers. A
//! turn takes as long as the works in it cost (`crate::cost`). While a server's turn lasts, events for that
//! server wait, as they do while a real loop is busy. So a simulation finds starved clients, late timers, and
//! elections that a busy loop causes.
//!
//! Two things are simpler than in a real server: the log's thread begins to write at the end of the turn that
//! queued a batch, and the other threads of the store do their work between two turns. A server that crashes
//! starts again on its disks in no virtual time.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use mio::Token;
use tidegate::Time;
use tidegate_log::Doing;

use super::errors::{RunError, StartError};
use super::handshakes::Waiting;
use super::pool::{Job, Outcome, done};
use super::report::gather::{Gather, Part};
use super::report::query::{List, Query};
use super::tokens::{Ready, WAKER};
use super::turns::TurnStats;
use super::{EVENTS_LEN, Server};
use crate::config::Settings;
use crate::cost::{Work, spend};
use crate::cures::{Cures, cures};
use crate::simulated::costs::Costs;
use crate::simulated::net::{self, connect_client};
use crate::simulated::{self, Machine, Notice, Owner};
use crate::streams::JetStream;

/// The time after which the loop learns of work that another thread of its store has done, as a wake-up takes
/// time on a real machine.
const WOKEN_AFTER: Duration = Duration::from_micros(50);

/// Servers that run in virtual time on one simulated machine; the module describes them.
#[derive(Debug)]
pub struct Simulation {
    servers: Vec<Simulated>,
    now: Time,
    sync: (Duration, Duration),
}

/// One server of a simulation, with the times at which the simulation must run it.
#[derive(Debug)]
struct Simulated {
    /// The server; `None` from its crash until its next start.
    server: Option<Server>,
    /// The address at which clients connect.
    address: SocketAddr,
    /// The readers of the monitor that wait for a list.
    readers: Vec<Reader>,
    /// The number of streams, connections and subscriptions in the lists that readers have got.
    listed: usize,
    /// The virtual time at which the server's last turn ends. Events before it wait.
    busy_until: Time,
    /// The time at which the server takes a turn even without an event, because of its own timers.
    due: Option<Time>,
    /// The events that the server's next turn takes, one for each token, and (`event_at`) the time of the
    /// first.
    events: Vec<Ready>,
    event_at: Option<Time>,
    /// The time at which the server's log thread goes on: at the end of a sync, or of a wait of its
    /// controller.
    log_at: Option<Time>,
    syncing: bool,
}

/// A reader of the monitor, which asks the server for a list a part after the other.
#[derive(Debug)]
struct Reader {
    /// The state of the list, and (`answer`) the channel for the next part.
    gather: Gather,
    answer: Receiver<Part>,
}

/// A list that a reader of the monitor may ask a simulated server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listing {
    /// The reader wants the client connections with their subscriptions, as at `/connz`.
    Connections,
    /// The reader wants all subscriptions, as at `/subsz`.
    Subscriptions,
    /// The reader wants the streams with their consumers, as at `/jsz`.
    Streams,
}

/// The memory and the space that a server takes, as counts that a test compares: a loop that makes and
/// deletes streams must leave them as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Footprint {
    /// The number of streams of all groups, with their entries in the directory.
    pub streams: usize,
    /// The number of entries in the lists and indexes that the server keeps of streams and their consumers.
    pub items: usize,
    /// The length of the state of all groups, as a checkpoint would store it, in bytes.
    pub state_bytes: usize,
    /// The length of the newest checkpoints, in bytes.
    pub checkpoint_bytes: u64,
    /// The number of files of the log.
    pub segments: usize,
    /// The space that the server's files take on its disks, in bytes.
    pub disk_bytes: u64,
}

/// A client's end of a connection, by which the simulation's user sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEnd(usize);

/// An event that the simulation reports to its user, for checks and for the acts of clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Happened {
    /// A server took a turn, which the user may check.
    Turn(Box<TurnTaken>),
    /// The socket of the client with this index has changed: the socket may have bytes or room, or has ended.
    /// The test's client should then act.
    Client(usize),
}

/// A turn that a server took, as the simulation reports it to its user.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TurnTaken {
    /// The index of the server that took the turn, in the order of their starts.
    pub server: usize,
    /// The time at which the turn began.
    pub begun: Time,
    /// The virtual CPU time that the turn took, which a test compares with its bound.
    pub took: Duration,
    /// The number of times that the turn did each work, in the order of [`Work::ALL`], from which a test sees
    /// why a turn was long.
    pub done: [u64; Work::ALL.len()],
}

/// A Raft group as one server sees it, by which a test checks the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// The number of the group.
    pub number: u32,
    /// The term in which the server is.
    pub term: u64,
    /// True if the server leads the group and serves its clients, by which a test finds the leader.
    pub leads: bool,
    /// The index of the last entry that the server has applied, by which a test compares servers.
    pub applied: u64,
}

impl Simulation {
    /// Creates a simulation without servers. All random numbers of the simulation come from `seed`, so that
    /// each run with a seed is equal. Bytes take `latency` from one end of a connection to the other, and a
    /// sync of a log takes a time between the two in `sync`.
    #[must_use]
    pub fn new(
        seed: u64,
        costs: Costs,
        cures: Cures,
        latency: Duration,
        sync: (Duration, Duration),
    ) -> Self {
        Machine::install(seed, costs, cures);
        net::set_latency(latency);
        Self {
            servers: Vec::new(),
            now: Time::ZERO,
            sync,
        }
    }

    /// Starts a server at the present virtual time, on empty disks, and returns its index, by which the test
    /// names it.
    ///
    /// # Errors
    /// The server cannot start with these settings.
    pub fn start(&mut self, settings: Settings) -> Result<usize, StartError> {
        let at = self.servers.len();
        simulated::add_disks();
        simulated::begin(self.now, at);
        let server = Server::bind(settings)?;
        self.servers.push(Simulated {
            address: server.address(),
            server: Some(server),
            readers: Vec::new(),
            listed: 0,
            busy_until: self.now,
            due: Some(self.now),
            events: Vec::new(),
            event_at: None,
            log_at: None,
            syncing: false,
        });
        Ok(at)
    }

    /// Ends a server at once, as the kill of its process does, and closes its connections. With `power_lost`
    /// its disks also lose bytes that were not durable, by chance. [`Simulation::restart`] starts it again.
    pub fn crash(&mut self, server: usize, power_lost: bool) {
        simulated::begin(self.now, server);
        let this = &mut self.servers[server];
        this.server = None;
        this.readers.clear();
        this.events.clear();
        (this.event_at, this.due, this.log_at) = (None, None, None);
        this.syncing = false;
        simulated::crash(server, power_lost);
    }

    /// Starts a server that has crashed again, on its disks.
    ///
    /// # Errors
    /// The server cannot start with these settings, or on these disks.
    pub fn restart(&mut self, server: usize, settings: Settings) -> Result<(), StartError> {
        simulated::begin(self.now, server);
        let started = Server::bind(settings)?;
        let this = &mut self.servers[server];
        this.address = started.address();
        this.server = Some(started);
        (this.busy_until, this.due) = (self.now, Some(self.now));
        Ok(())
    }

    /// Returns whether a server runs, so that a test asks it for nothing while it is away.
    #[must_use]
    pub fn runs(&self, server: usize) -> bool {
        self.servers[server].server.is_some()
    }

    /// Lets a reader of the monitor ask a server for a list, all of it, one part after the other.
    pub fn list(&mut self, server: usize, what: Listing) {
        let list = match what {
            Listing::Connections => List::Connections,
            Listing::Subscriptions => List::Subscriptions,
            Listing::Streams => List::Streams,
        };
        let query = Query {
            subscriptions: true,
            accounts: true,
            streams: true,
            consumers: true,
            ..Query::new(list)
        };
        simulated::begin(self.now, server);
        self.servers[server].ask(self.now, Gather::new(&query));
    }

    /// Returns the number of streams, connections and subscriptions in the lists that readers of the monitor
    /// have got from a server, so that a test sees that it got them.
    #[must_use]
    pub fn listed(&self, server: usize) -> usize {
        self.servers[server].listed
    }

    /// Turns cures of the loop off or on again, so that a test can see the effect of each cure.
    pub fn set_cures(&mut self, cures: Cures) {
        simulated::set_cures(cures);
    }

    /// Returns the virtual time, up to which the simulation has run.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Runs the simulation to the next event that the user may want to see, at most to the time `until`.
    /// Returns `None` once it has reached `until`.
    ///
    /// # Errors
    /// A server has ended.
    pub fn step(&mut self, until: Time) -> Result<Option<Happened>, RunError> {
        loop {
            let turns = (0..self.servers.len()).filter_map(|at| Some((self.turn_at(at)?, at)));
            let turn = turns.min();
            let logs = self.servers.iter().enumerate();
            let log = logs.filter_map(|(at, s)| Some((s.log_at?, at))).min();
            let next = [turn, log].into_iter().flatten().map(|(time, _)| time);
            let next = next.min().unwrap_or(Time::NEVER).min(until);
            if let Some(notice) = simulated::poll_notice(next) {
                self.now = self.now.max(notice.at);
                match notice.owner {
                    Owner::Server(at) => self.servers[at].take(&notice),
                    Owner::Client(client) => {
                        simulated::begin(self.now, 0);
                        return Ok(Some(Happened::Client(client)));
                    }
                }
                continue;
            }
            self.now = self.now.max(next);
            match (log, turn) {
                (Some((time, at)), _) if time <= next => self.go_on_with_log(at),
                (_, Some((time, at))) if time <= next => {
                    return self
                        .turn(at)
                        .map(|turn| Some(Happened::Turn(Box::new(turn))));
                }
                _ => {
                    simulated::begin(self.now, 0);
                    return Ok(None);
                }
            }
        }
    }

    /// Returns the time at which a server takes its next turn, by which the simulation chooses the next
    /// server; `None` if the server waits for an event.
    fn turn_at(&self, at: usize) -> Option<Time> {
        let server = &self.servers[at];
        let first = [server.due, server.event_at].into_iter().flatten().min()?;
        Some(first.max(server.busy_until))
    }

    fn turn(&mut self, at: usize) -> Result<TurnTaken, RunError> {
        let begun = self.now;
        let this = &mut self.servers[at];
        simulated::begin(begun, at);
        simulated::take_done();
        let len = this.events.len().min(EVENTS_LEN);
        let events: Vec<Ready> = this.events.drain(..len).collect();
        this.event_at = (!this.events.is_empty()).then_some(begun);
        spend(Work::Turn, 1);
        spend(Work::Event, events.len() as u64);
        let Some(server) = &mut this.server else {
            unreachable!("a server that has crashed has no event and no timer");
        };
        let next = server.turn_with(events.into_iter())?;
        let end = simulated::now().unwrap_or(begun);
        let done = simulated::take_done();
        this.busy_until = end;
        this.due = match next {
            ControlFlow::Continue(wait) => wait.map(|wait| end + wait),
            ControlFlow::Break(()) => None,
        };
        if let Some(store) = &mut server.store {
            let mut worked = false;
            while store.work() {
                worked = true;
            }
            // The keeper wakes the loop after each errand, because the loop may wait for room in the log.
            let kept = simulated::with_steps(at, tidegate_log::Steps::keep);
            if worked || kept == Some(true) {
                simulated::wake(end + WOKEN_AFTER, WAKER.0);
            }
        }
        this.go_on_listing(end);
        if !this.syncing {
            let doing = simulated::with_steps(at, |steps| steps.step(end));
            self.schedule_log(at, end, doing);
        }
        Ok(TurnTaken {
            server: at,
            begun,
            took: end - begun,
            done,
        })
    }

    /// Runs the log thread of a server further: ends its sync, or its wait, and learns when the thread goes
    /// on.
    fn go_on_with_log(&mut self, at: usize) {
        let now = self.now;
        let syncing = std::mem::take(&mut self.servers[at].syncing);
        simulated::begin(now, at);
        let doing = simulated::with_steps(at, |steps| match syncing {
            true => steps.sync(now),
            false => steps.step(now),
        });
        if syncing {
            simulated::wake(now + WOKEN_AFTER, WAKER.0);
        }
        self.schedule_log(at, now, doing);
    }

    fn schedule_log(&mut self, at: usize, now: Time, doing: Option<Doing>) {
        let (least, most) = self.sync;
        let this = &mut self.servers[at];
        this.log_at = match doing {
            Some(Doing::Syncing) => {
                this.syncing = true;
                let spread = (most - least).as_nanos() as u64 + 1;
                let drawn = simulated::random().unwrap_or_default() % spread;
                Some(now + least + Duration::from_nanos(drawn))
            }
            Some(Doing::Waiting(Some(until))) => Some(until.max(now.after(1))),
            _ => None,
        };
    }

    /// Connects a client, which has this index in [`Happened::Client`], from the address `from` to a server.
    /// Returns the client's end; `None` if the server listens no longer.
    pub fn connect(&mut self, client: usize, from: IpAddr, server: usize) -> Option<ClientEnd> {
        simulated::begin(self.now, server);
        let from = SocketAddr::new(from, 1 + (client % 60_000) as u16);
        let end = connect_client(client, from, self.servers[server].address);
        end.map(ClientEnd)
    }

    /// Sends bytes of a client to its server. Returns the number of bytes for which the connection had room.
    pub fn send(&mut self, end: ClientEnd, bytes: &[u8]) -> usize {
        net::send(end.0, bytes)
    }

    /// Takes at most `most` bytes that have arrived at a client, as a client reads its socket; `None` once
    /// the server has closed the connection and no byte is left.
    pub fn receive(&mut self, end: ClientEnd, most: usize) -> Option<Vec<u8>> {
        net::receive(end.0, most)
    }

    /// Sets the most bytes that may wait at a client or be on their way to it, so that a test can play a slow
    /// reader.
    pub fn set_room(&mut self, end: ClientEnd, room: usize) {
        net::set_room(end.0, room);
    }

    /// Sets the most bytes that may wait at the server's end of a client's connection or be on their way to
    /// it, so that a test can play a slow network.
    pub fn set_room_of_server(&mut self, end: ClientEnd, room: usize) {
        net::set_room_of_peer(end.0, room);
    }

    /// Closes a client's connection, as a client that goes does.
    pub fn close(&mut self, end: ClientEnd) {
        net::close(end.0);
    }

    /// Returns the Raft groups of a server, for a test's checks; none before the server's cluster is formed.
    #[must_use]
    pub fn groups(&self, server: usize) -> Vec<Group> {
        let server = self.servers[server].server.as_ref();
        let Some(store) = server.and_then(|server| server.store.as_ref()) else {
            return Vec::new();
        };
        let group = |at| Group {
            number: store.group_number(at).get(),
            term: store.group(at).term().get(),
            leads: store.leads_settled(at),
            applied: store.applied(at).index.get(),
        };
        store.slots().map(group).collect()
    }

    /// Returns the number of messages and the last sequence of a stream on a server, for a test's checks;
    /// `None` if the server does not have the stream.
    #[must_use]
    pub fn stream(&self, server: usize, name: &str) -> Option<(u64, u64)> {
        let server = self.servers[server].server.as_ref()?;
        let mut groups = server.node.all_streams();
        groups.find_map(|streams| {
            let mut all = streams.applied().iter();
            let stream = all.find(|s| s.config().name == name && s.home().is_here())?;
            let state = stream.state();
            Some((state.messages, state.last_seq.get()))
        })
    }

    /// Returns the number of bytes that wait in the outboxes of a server's clients, by which a test checks
    /// the bounds.
    #[must_use]
    pub fn outbox_bytes(&self, server: usize) -> usize {
        let Some(server) = &self.servers[server].server else {
            return 0;
        };
        let keys = (0..server.conns.len()).map(crate::party::ClientKey::new);
        let held = keys.filter(|key| server.node.contains(*key));
        held.map(|key| server.node.outbox(key).len()).sum()
    }

    /// Returns the longest CPU time of a turn since the server's start, as the monitor shows it, and the
    /// number of times that the server's loop was late.
    #[must_use]
    pub fn turn_stats(&self, server: usize) -> (Duration, u64) {
        let server = self.servers[server].server.as_ref();
        let stats = server.map(|server| server.turns.stats());
        let TurnStats { cpu_ns, late, .. } = stats.unwrap_or_default();
        (Duration::from_nanos(cpu_ns[3]), late)
    }

    /// Returns the memory and the space that a server takes; `None` while it is away, or has no streams yet.
    #[must_use]
    pub fn footprint(&self, server: usize) -> Option<Footprint> {
        let at = server;
        let server = self.servers[at].server.as_ref()?;
        let store = server.store.as_ref()?;
        let all = || server.node.all_streams();
        let state = |of: &JetStream| of.applied().snapshot().chunks().flatten().count();
        Some(Footprint {
            streams: all().map(|of| of.applied().len()).sum(),
            items: all().map(JetStream::items).sum(),
            state_bytes: all().map(state).sum(),
            checkpoint_bytes: store.checkpoint_bytes(),
            segments: store.log().segments().len(),
            disk_bytes: simulated::space(at),
        })
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // The sockets of the servers are ends in the machine's network, so the simulation drops the servers
        // before the machine.
        self.servers.clear();
        Machine::remove();
    }
}

impl Simulated {
    /// Asks the server for the next part of a list for a reader, and counts the list if it is complete.
    fn ask(&mut self, now: Time, gather: Gather) {
        let Some(ask) = gather.next_ask() else {
            let listed = gather.finish();
            self.listed += listed.streams.len();
            self.listed += listed.connections.entries.len() + listed.subscriptions.entries.len();
            return;
        };
        let Some(server) = &self.server else {
            return;
        };
        let (to, answer) = sync_channel(1);
        // A server that has too many commands refuses the reader, who gives up.
        if server.handle.list(ask, to).is_ok() {
            self.readers.push(Reader { gather, answer });
            simulated::wake(now + WOKEN_AFTER, WAKER.0);
        }
    }

    /// Takes the parts of lists that the server has made in its last turn, and asks for the next parts.
    fn go_on_listing(&mut self, now: Time) {
        for mut reader in std::mem::take(&mut self.readers) {
            let Ok(part) = reader.answer.try_recv() else {
                self.readers.push(reader);
                continue;
            };
            reader.gather.take(part);
            self.ask(now, reader.gather);
        }
    }

    /// Adds a notice of the machine to the events of the server's next turn, because a server handles events
    /// only in turns.
    fn take(&mut self, notice: &Notice) {
        if self.server.is_none() {
            return;
        }
        let at = self.event_at.unwrap_or(notice.at);
        self.event_at = Some(at.min(notice.at));
        let token = Token(notice.token);
        let event = match self.events.iter_mut().find(|e| e.token == token) {
            Some(event) => event,
            None => {
                self.events.push(Ready {
                    token,
                    readable: false,
                    writable: false,
                    ended: false,
                });
                let last = self.events.len() - 1;
                &mut self.events[last]
            }
        };
        event.readable |= notice.readable;
        event.writable |= notice.writable;
        event.ended |= notice.ended;
    }
}

/// Plays the threads of the pool on a simulated machine: their jobs take virtual time, while the loop goes
/// on.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// The outcomes of the jobs that run, each with the virtual time at which the job ends and the loop may
    /// take it.
    running: Vec<(Time, Outcome)>,
}

impl Threads {
    /// Runs a job on a free thread; without the cure, on the loop itself, which then loses that time.
    pub(super) fn run(&mut self, job: Job) {
        let work = match &job {
            Job::Password(_) => Work::Password,
            Job::Handshake(step) => match step.of {
                Waiting::Begun(_) => Work::TlsFinish,
                Waiting::New(_) | Waiting::Peer(_) => Work::TlsHello,
            },
            Job::Page(..) => Work::Page,
        };
        let begun = now();
        let end = match cures().pool {
            true => begun + simulated::spend_elsewhere(work, 1),
            false => {
                spend(work, 1);
                now()
            }
        };
        // In a simulation a hash ends with its password, because the check of a real hash would cost the
        // simulation's own time.
        let outcome = done(job, &|password, hash| hash.ends_with(password));
        self.running.push((end, outcome));
        simulated::wake(end, WAKER.0);
    }

    /// Takes the outcome of a job that has ended by now, for the loop.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        let now = now();
        let at = self.running.iter().position(|(end, _)| *end <= now)?;
        Some(self.running.remove(at).1)
    }
}

/// Returns the virtual time, at which jobs begin and end; zero outside of a simulation, where no such threads
/// exist.
fn now() -> Time {
    simulated::now().unwrap_or_default()
}
