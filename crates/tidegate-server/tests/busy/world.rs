//! Builds the world of a simulated run: the servers, their well-behaved clients, and the clients of an
//! attack.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use tidegate::Time;
use tidegate_nats::settings::{Account, Secret, SessionSettings, User};
use tidegate_server::config::{ClusterSettings, RouteAddress, StreamSettings};
use tidegate_server::{Costs, Cures, Happened, Settings, Simulation};

use crate::client::{Asking, Client, Reads, Role, Told};
use crate::dice::Dice;
use crate::judge::{Turns, describe};
use crate::tls::Tls;

/// The time that bytes take between two machines of the simulation.
const LATENCY: Duration = Duration::from_micros(50);
/// The shortest and the longest time that a sync of a log takes.
const SYNC: (Duration, Duration) = (Duration::from_micros(100), Duration::from_micros(800));
/// The most bytes that may wait for a client before a simulated server closes its connection.
const MAX_PENDING: usize = 1 << 20;

/// The length of a segment of a simulated log, unless a test sets another one: short, so that a run fills
/// many.
const SEGMENT_BYTES: u64 = 256 << 10;

/// The servers of a simulated run and their clients.
pub(crate) struct World {
    pub(crate) sim: Simulation,
    pub(crate) clients: Vec<Client>,
    timers: BinaryHeap<Reverse<(Time, usize)>>,
    pub(crate) dice: Dice,
    pub(crate) servers: usize,
    pub(crate) turns: Turns,
    pub(crate) tls: Tls,
    /// The largest sum so far of the bytes in the outboxes of one server's clients.
    pub(crate) outbox_bytes: usize,
    /// The bytes in outboxes, and the number of open clients, when the bytes first exceeded their bound.
    pub(crate) over_outboxes: Option<(usize, usize)>,
    segment_bytes: u64,
    trace: bool,
    directories: Vec<tempfile::TempDir>,
}

/// An error that ends a run: a server has ended, or the world cannot be built.
pub(crate) type Broken = String;

impl World {
    /// Starts `servers` servers, as a cluster if they are several, and waits until they serve.
    pub(crate) fn new(
        seed: u64,
        servers: usize,
        costs: Costs,
        trace: bool,
    ) -> Result<Self, Broken> {
        Self::with_segments(seed, servers, costs, trace, SEGMENT_BYTES)
    }

    /// Starts servers as [`new`](Self::new) does, with segments of this length in their logs.
    pub(crate) fn with_segments(
        seed: u64,
        servers: usize,
        costs: Costs,
        trace: bool,
        segment_bytes: u64,
    ) -> Result<Self, Broken> {
        let mut dice = Dice::new(seed);
        let sim = Simulation::new(dice.next(), costs, Cures::ALL, LATENCY, SYNC);
        let mut world = Self {
            sim,
            clients: Vec::new(),
            timers: BinaryHeap::new(),
            dice,
            servers,
            turns: Turns::default(),
            tls: Tls::new(),
            outbox_bytes: 0,
            over_outboxes: None,
            segment_bytes,
            trace,
            directories: Vec::new(),
        };
        for n in 0..servers {
            let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
            let settings = settings(n, servers, directory.path(), &world.tls, segment_bytes);
            world.directories.push(directory);
            world.sim.start(settings).map_err(|e| e.to_string())?;
        }
        let started = |world: &Self| {
            let serves = |group: &tidegate_server::Group| group.leads;
            (0..servers).any(|n| world.sim.groups(n).first().is_some_and(serves))
        };
        world.run_until(Duration::from_secs(20), started)?;
        // The leader announces its streams to the other servers, and the world waits for that.
        world.run(Duration::from_millis(300))?;
        Ok(world)
    }

    /// Connects a client of this role to a server.
    pub(crate) fn connect(&mut self, server: usize, role: Role, reads: Reads) -> usize {
        self.connect_from([10, 0, 0, 1].into(), server, role, reads)
    }

    /// Connects a client from this address to a server.
    pub(crate) fn connect_from(
        &mut self,
        from: IpAddr,
        server: usize,
        role: Role,
        reads: Reads,
    ) -> usize {
        let at = self.clients.len();
        let end = self.sim.connect(at, from, server);
        let end = end.expect("the servers of the simulation listen");
        self.clients.push(Client::new(end, server, role, reads));
        at
    }

    /// Lets a server crash: its clients lose their connections, and with `power_lost` its disks lose bytes
    /// that were not durable.
    pub(crate) fn crash(&mut self, server: usize, power_lost: bool) {
        if self.trace {
            println!(
                "server {server} crashes at {:?}, the power lost: {power_lost}",
                self.sim.now()
            );
        }
        self.sim.crash(server, power_lost);
        for client in self.clients.iter_mut().filter(|c| c.server == server) {
            client.excused = true;
        }
    }

    /// Starts a server that has crashed again.
    pub(crate) fn restart(&mut self, server: usize) -> Result<(), Broken> {
        let directory = self.directories[server].path();
        let settings = settings(
            server,
            self.servers,
            directory,
            &self.tls,
            self.segment_bytes,
        );
        let started = self.sim.restart(server, settings);
        started.map_err(|e| format!("server {server} does not start again: {e}"))
    }

    /// Lets a client send these bytes.
    pub(crate) fn say(&mut self, client: usize, text: &[u8]) {
        self.clients[client].say(&mut self.sim, text);
    }

    /// Connects a publisher that waits for acknowledgements, and a pinger, to each server, as the attack's
    /// neighbours.
    pub(crate) fn connect_neighbours(&mut self) {
        (0..self.servers).for_each(|server| self.connect_neighbours_of(server));
    }

    /// Connects a publisher and a pinger to one server.
    pub(crate) fn connect_neighbours_of(&mut self, server: usize) {
        let publisher = Role::Publisher(Asking::default());
        let publisher = self.connect(server, publisher, Reads::All);
        let inbox = format!("SUB _INBOX.w{server}.> 1\r\n");
        self.say(publisher, inbox.as_bytes());
        self.connect(server, Role::Pinger(Asking::default()), Reads::All);
    }

    /// Sends a request to the streams' API, and waits for the server's answer.
    pub(crate) fn request(&mut self, subject: &str, body: &str) -> Result<String, Broken> {
        let client = self.connect(0, Role::Raw(Vec::new()), Reads::All);
        let len = body.len();
        let text = format!("SUB _INBOX.a 1\r\nPUB {subject} _INBOX.a {len}\r\n{body}\r\n");
        self.say(client, text.as_bytes());
        let end = self.sim.now() + Duration::from_secs(10);
        while self.sim.now() < end {
            self.run(Duration::from_millis(5))?;
            for told in self.clients[client].take_told() {
                if let Told::Message(answer) = told {
                    self.sim.close(self.clients[client].end);
                    return Ok(answer);
                }
            }
        }
        Err(format!("no answer to {subject}"))
    }

    /// Creates a stream with a replica on all servers.
    pub(crate) fn create_stream(&mut self, name: &str, subjects: &str) -> Result<(), Broken> {
        let replicas = self.servers;
        let body =
            format!(r#"{{"name":"{name}","subjects":["{subjects}"],"num_replicas":{replicas}}}"#);
        let answer = self.request(&format!("$JS.API.STREAM.CREATE.{name}"), &body)?;
        match answer.contains("\"error\"") {
            true => Err(answer),
            false => Ok(()),
        }
    }

    /// Returns the terms of all groups on all servers, by which the verdict sees an election.
    pub(crate) fn terms(&self) -> Vec<u64> {
        let all = (0..self.servers).flat_map(|n| self.sim.groups(n));
        all.map(|group| group.term).collect()
    }

    /// Returns the server that leads the group of all nodes.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |n: &usize| self.sim.groups(*n).first().is_some_and(|group| group.leads);
        (0..self.servers).find(leads)
    }

    /// Runs the simulation for this virtual time.
    pub(crate) fn run(&mut self, time: Duration) -> Result<(), Broken> {
        self.run_until(time, |_| false).map(drop)
    }

    /// Runs the simulation until `over`, for `time` at most. Returns whether it is over.
    pub(crate) fn run_until(
        &mut self,
        time: Duration,
        over: impl Fn(&Self) -> bool,
    ) -> Result<bool, Broken> {
        let end = self.sim.now() + time;
        loop {
            if over(self) {
                return Ok(true);
            }
            let timer = self.timers.peek().map_or(Time::NEVER, |t| t.0.0);
            let happened = self.sim.step(timer.min(end));
            match happened.map_err(|e| format!("a server has ended: {e}"))? {
                Some(Happened::Turn(turn)) => {
                    if self.trace && turn.took > Duration::from_millis(1) {
                        println!("{}", describe(&turn));
                    }
                    let groups = self.sim.groups(turn.server).len();
                    self.turns.record(&turn, groups);
                    // The world looks at the outboxes only after some turns, because that takes the
                    // simulation's own time.
                    if self.turns.len().is_multiple_of(16) {
                        let bytes = self.sim.outbox_bytes(turn.server);
                        let open = self.clients.iter().filter(|c| !c.ended).count();
                        self.outbox_bytes = self.outbox_bytes.max(bytes);
                        if bytes > MAX_PENDING * open {
                            self.over_outboxes.get_or_insert((bytes, open));
                        }
                    }
                }
                Some(Happened::Client(client)) => self.act(client),
                Some(_) => {}
                None if self.sim.now() >= end => return Ok(false),
                None => {
                    if let Some(Reverse((_, client))) = self.timers.pop() {
                        self.act(client);
                    }
                }
            }
        }
    }

    fn act(&mut self, client: usize) {
        let before = self.clients[client].wakes_at;
        self.clients[client].act(&mut self.sim);
        let after = self.clients[client].wakes_at;
        if let Some(at) = after.filter(|_| after != before) {
            self.timers.push(Reverse((at, client)));
        }
    }
}

/// Makes the settings of the simulated server with this number.
fn settings(n: usize, servers: usize, directory: &Path, tls: &Tls, segment_bytes: u64) -> Settings {
    let user = |name: &str, secret: &str| {
        let user = User {
            name: name.into(),
            secret: Secret::new(secret),
            permissions: None,
            account: Account::Global,
        };
        std::sync::Arc::new(user)
    };
    let port = |n: usize| 6000 + n as u16;
    let route = |n| RouteAddress {
        host: "127.0.0.1".into(),
        port: port(n),
    };
    let cluster = ClusterSettings {
        name: "c".into(),
        port: port(n),
        routes: (0..servers).map(route).collect(),
        ..ClusterSettings::default()
    };
    Settings {
        port: 4000 + n as u16,
        server_name: Some(format!("n{n}")),
        max_pending: MAX_PENDING,
        sessions: SessionSettings {
            max_payload: 16 << 10,
            users: vec![user("plain", "p"), user("hashed", "$2a$11$right")],
            ..SessionSettings::default()
        },
        tls: Some(tls.settings()),
        allow_non_tls: true,
        streams: Some(StreamSettings {
            segment_bytes,
            checkpoint_bytes: 1 << 20,
            scrub_period: Duration::ZERO,
            ..StreamSettings::new(directory.to_owned())
        }),
        cluster: (servers > 1).then_some(cluster),
        ..Settings::default()
    }
}
