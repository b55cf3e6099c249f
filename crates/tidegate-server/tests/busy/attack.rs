//! Defines the workloads by which a client could hurt others. Their sizes are small, so that a seed takes a
//! fraction of a second. In a run with heavy works the works of the attack cost more than a machine needs for
//! them (`Attack::heavy`), as if each stood for many of them. So a small attack that the loop does not divide
//! outlasts the patience of a follower.

use std::time::Duration;

use tidegate_server::{Cures, Listing, Work};

use crate::client::{Reads, Role};
use crate::judge::{Bounds, TURN_WORST};
use crate::world::{Broken, World};

/// The room of a connection between two ends of which neither waits for the other.
const ROOMY: usize = 64 << 20;

/// A workload by which a client could hurt others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// A client with overlapping wildcard subscriptions reads fast, and a second client pipelines publishes
    /// to all of these subscriptions.
    Flood,
    /// As in `Flood`, with more subscriptions than the node reaches in one part of a divided delivery.
    Spread,
    /// A client pipelines PINGs and never reads.
    Pings,
    /// Many clients read one subject, and their outboxes are long.
    Readers,
    /// Many clients read one subject slowly or never.
    SlowReaders,
    /// Many clients connect again at once, with TLS and passwords kept as hashes.
    Reconnect,
    /// Many clients connect and go at once.
    Come,
    /// A client with very many subscriptions leaves.
    Leaver,
    /// Clients ask for the subjects of a large stream.
    Pages,
    /// A client purges or deletes a large stream.
    Purge,
    /// A client purges a large stream by a pattern of subjects.
    PurgeSubjects,
    /// A client makes consumers that begin with the last message of each subject of a large stream.
    Consumers,
    /// A client asks for the last messages of patterns in a large stream, and publishes messages that depend
    /// on them.
    LookUps,
    /// Many consumers have pulls for many messages at once.
    Deliveries,
    /// A client makes the leader of a stream with many consumers hand over to another node.
    StepDown,
    /// Readers of the monitor ask for the lists of many streams, of the connections and of the subscriptions.
    Lists,
}

impl Attack {
    pub(crate) const ALL: [Self; 16] = [
        Self::Flood,
        Self::Spread,
        Self::Pings,
        Self::Readers,
        Self::SlowReaders,
        Self::Reconnect,
        Self::Come,
        Self::Leaver,
        Self::Pages,
        Self::Purge,
        Self::PurgeSubjects,
        Self::Consumers,
        Self::Deliveries,
        Self::StepDown,
        Self::Lists,
        Self::LookUps,
    ];

    /// Returns the costs of the attack's works in a run with heavy works, in picoseconds.
    pub(crate) const fn heavy(self) -> &'static [(Work, u64)] {
        const MICRO: u64 = 1_000_000;
        match self {
            Self::Flood => &[(Work::Copy, 10 * MICRO)],
            Self::Spread => &[(Work::Copy, 15 * MICRO)],
            Self::Pings => &[(Work::Operation, 4 * MICRO)],
            Self::Readers => &[(Work::Write, 640 * MICRO), (Work::WriteByte, 25_000)],
            Self::SlowReaders => &[
                (Work::Write, 80 * MICRO),
                (Work::WriteByte, 3_000),
                (Work::CopyByte, 10_000),
            ],
            Self::Reconnect => &[(Work::TlsHello, 20_000 * MICRO)],
            Self::Come => &[(Work::Accept, 240 * MICRO), (Work::Close, 160 * MICRO)],
            Self::Leaver => &[(Work::Unsubscribe, 58 * MICRO)],
            Self::Pages => &[(Work::Subject, 300_000)],
            Self::Purge => &[(Work::Reclaim, 5 * MICRO)],
            Self::PurgeSubjects => &[(Work::Foresee, 20 * MICRO)],
            Self::Consumers => &[(Work::Search, 20 * MICRO)],
            Self::LookUps => &[(Work::LookUp, 5 * MICRO)],
            Self::Deliveries => &[(Work::Deliver, 4 * MICRO)],
            Self::StepDown => &[(Work::TakeUp, 180 * MICRO)],
            Self::Lists => &[(Work::Describe, 1_300 * MICRO)],
        }
    }

    /// Returns the bounds that a run with heavy works must keep.
    pub(crate) const fn heavy_bounds(self) -> Bounds {
        let turns = match self {
            // The group collects a large part of a page in a turn, so the works of this attack are not very
            // heavy.
            Self::Pages => Some((TURN_WORST, TURN_WORST)),
            _ => None,
        };
        let wait = match self {
            // A part of these works takes some 80 ms in such a run, and a publisher waits for a turn of each
            // server on its message's way.
            Self::Purge | Self::PurgeSubjects | Self::Consumers | Self::LookUps | Self::Lists => {
                600
            }
            _ => 250,
        };
        Bounds {
            turns,
            wait: Duration::from_millis(wait),
        }
    }

    /// Returns the cures without the cure of this attack; `None` if its cure is no switch.
    pub(crate) const fn without_cure(self) -> Option<Cures> {
        let mut cures = Cures::ALL;
        match self {
            Self::Flood | Self::Pings => cures.read_slices = false,
            Self::Spread => cures.spreading = false,
            Self::Readers => cures.write_budget = false,
            Self::Reconnect => cures.pool = false,
            Self::Come => cures.bounded_opening = false,
            Self::Leaver => cures.leaving = false,
            Self::Pages => cures.pages = false,
            Self::Purge => cures.reclaiming = false,
            Self::PurgeSubjects => cures.foreseeing = false,
            Self::Consumers | Self::LookUps => cures.searching = false,
            Self::Deliveries => cures.deliveries = false,
            Self::StepDown => cures.taking_up = false,
            Self::Lists => cures.reports = false,
            Self::SlowReaders => return None,
        }
        Some(cures)
    }

    /// Returns whether the attack itself moves the lead of a group to another node, so that a new term is no
    /// harm.
    pub(crate) const fn moves_the_lead(self) -> bool {
        matches!(self, Self::StepDown)
    }

    /// Returns the range of the number of messages in the attack's large stream. Heavy works need as many as
    /// show the harm of the works without a division.
    const fn messages(self, heavy: bool) -> (u64, u64) {
        match (self, heavy) {
            (Self::Purge, false) => (5_000, 8_000),
            (Self::Purge, true) => (36_000, 40_000),
            (Self::Deliveries, _) => (1_000, 1_100),
            _ => (18_000, 22_000),
        }
    }

    /// Connects the clients of the attack, before the run measures the well-behaved clients. `heavy` tells
    /// whether the attack's works cost more than on a machine.
    pub(crate) fn prepare(self, world: &mut World, heavy: bool) -> Result<Prepared, Broken> {
        // The attack mostly hits a leader, because only a leader's silence causes an election.
        let drawn = world.dice.below(world.servers as u64) as usize;
        let server = match world.dice.chance(700) {
            true => world.leader().unwrap_or(drawn),
            false => drawn,
        };
        let mut prepared = Prepared {
            server,
            clients: Vec::new(),
        };
        match self {
            Self::Flood => prepared.subscribe_to_all(world, 8),
            Self::Spread => prepared.subscribe_to_all(world, 14),
            Self::Readers => {
                for _ in 0..world.dice.range(500, 600) {
                    prepared.read_one_subject(world, Reads::All);
                }
            }
            Self::SlowReaders => {
                for _ in 0..world.dice.range(150, 250) {
                    let some = (1024, Duration::from_millis(20));
                    let slowly = Reads::Slowly(some.0, some.1);
                    let reads = world.dice.pick(&[Reads::Nothing, slowly]);
                    let reader = prepared.read_one_subject(world, reads);
                    let end = world.clients[reader].end;
                    world.sim.set_room(end, 16 << 10);
                }
            }
            Self::Leaver => {
                let leaver = world.connect(server, Role::Deaf, Reads::All);
                let subs = world.dice.range(20_000, 25_000);
                let text: String = (0..subs).map(|n| format!("SUB l.{n} {n}\r\n")).collect();
                world.say(leaver, text.as_bytes());
                prepared.clients.push(leaver);
                world.run_until(Duration::from_secs(10), |w| !w.clients[leaver].is_sending())?;
            }
            Self::StepDown => {
                world.create_stream("L", "l.>")?;
                prepared.make_awake_consumers(world)?;
            }
            Self::Lists => {
                let (least, most) = if heavy { (480, 520) } else { (100, 150) };
                prepared.make_streams(world, least, most)?;
            }
            Self::Pages
            | Self::Purge
            | Self::PurgeSubjects
            | Self::Consumers
            | Self::LookUps
            | Self::Deliveries => {
                world.create_stream("L", "l.>")?;
                let writer = world.connect(server, Role::Deaf, Reads::All);
                let (least, most) = self.messages(heavy);
                let messages = world.dice.range(least, most);
                let text: String = (0..messages)
                    .map(|n| format!("PUB l.{n} 1\r\nx\r\n"))
                    .collect();
                world.say(writer, text.as_bytes());
                let stored = |w: &World| {
                    let all = (0..w.servers).map(|n| w.sim.stream(n, "L"));
                    all.flatten().all(|(stored, _)| stored == messages)
                };
                if !world.run_until(Duration::from_secs(20), stored)? {
                    return Err("the large stream is not written".into());
                }
                if self == Self::Deliveries {
                    prepared.make_consumers(world)?;
                }
            }
            Self::Pings | Self::Reconnect | Self::Come => {}
        }
        // The world waits until all clients have logged in and the servers know their subscriptions, before
        // the attack begins.
        let greeted = |w: &World| w.clients.iter().all(|c| c.got > 0 && !c.is_sending());
        world.run_until(Duration::from_secs(10), greeted)?;
        world.run(Duration::from_millis(300))?;
        Ok(prepared)
    }
}

/// Returns a request with this body to the streams' API, of which the client reads no answer.
fn request(subject: &str, body: &str) -> String {
    format!("PUB {subject} _INBOX.p {}\r\n{body}\r\n", body.len())
}

/// The clients of an attack that wait for its beginning.
pub(crate) struct Prepared {
    server: usize,
    clients: Vec<usize>,
}

impl Prepared {
    /// Begins the attack: the prepared clients send their workload.
    pub(crate) fn begin(&mut self, attack: Attack, world: &mut World) {
        let server = self.server;
        match attack {
            Attack::Flood => self.publish_to_all(world, 8, 1_000),
            Attack::Spread => self.publish_to_all(world, 14, 10),
            Attack::Pings => {
                let client = world.connect(server, Role::Deaf, Reads::Nothing);
                let end = world.clients[client].end;
                world.sim.set_room_of_server(end, ROOMY);
                world.say(client, &b"PING\r\n".repeat(200_000));
            }
            Attack::Readers | Attack::SlowReaders => {
                let client = world.connect(server, Role::Deaf, Reads::All);
                let payload = "x".repeat(4096);
                let message = format!("PUB one 4096\r\n{payload}\r\n");
                world.say(client, message.repeat(16).as_bytes());
            }
            Attack::Reconnect => {
                for n in 0..world.dice.range(80, 120) {
                    let tls = Role::Tls(world.tls.client());
                    let from = [10, 0, 1, (n % 8) as u8].into();
                    let client = world.connect_from(from, server, tls, Reads::All);
                    // Some go in the middle of the handshake, or while a thread checks the password.
                    if world.dice.chance(300) {
                        let stays = Duration::from_micros(world.dice.range(0, 600_000));
                        world.clients[client].leaves_at = Some(world.sim.now() + stays);
                    }
                    self.clients.push(client);
                }
            }
            Attack::Come => {
                for _ in 0..world.dice.range(1500, 3000) {
                    let client = world.connect(server, Role::Deaf, Reads::All);
                    let end = world.clients[client].end;
                    world.sim.close(end);
                }
            }
            Attack::Leaver => {
                for client in self.clients.drain(..) {
                    let end = world.clients[client].end;
                    world.sim.close(end);
                }
            }
            Attack::Pages => {
                let client = world.connect(server, Role::Deaf, Reads::All);
                let body = r#"{"subjects_filter":">"}"#;
                let text = format!(
                    "SUB _INBOX.p 1\r\nPUB $JS.API.STREAM.INFO.L _INBOX.p {}\r\n{body}\r\n",
                    body.len()
                );
                world.say(client, text.as_bytes());
            }
            Attack::Purge => {
                let client = world.connect(server, Role::Deaf, Reads::All);
                let verb = world.dice.pick(&["PURGE", "DELETE"]);
                let text = format!("PUB $JS.API.STREAM.{verb}.L _INBOX.p 0\r\n\r\n");
                world.say(client, text.as_bytes());
            }
            Attack::PurgeSubjects => {
                let client = world.connect(server, Role::Deaf, Reads::All);
                let body = world.dice.pick(&[
                    r#"{"filter":"l.*"}"#,
                    r#"{"filter":"*.*","keep":100}"#,
                    r#"{"filter":"l.*","seq":9000}"#,
                ]);
                let text = request("$JS.API.STREAM.PURGE.L", body);
                world.say(client, text.as_bytes());
            }
            Attack::Consumers => {
                let client = world.connect(server, Role::Deaf, Reads::All);
                let made = world.dice.range(1, 4);
                let make = |n: u64| {
                    let body = format!(
                        r#"{{"stream_name":"L","config":{{"durable_name":"c{n}","ack_policy":"explicit","deliver_policy":"last_per_subject","filter_subject":"l.*"}}}}"#
                    );
                    let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.L.c{n}");
                    request(&subject, &body)
                };
                let text: String = (0..made).map(make).collect();
                world.say(client, text.as_bytes());
            }
            Attack::LookUps => {
                let client = world.connect(server, Role::Deaf, Reads::All);
                let mut text = String::new();
                for n in 0..world.dice.range(6, 12) {
                    let body = world.dice.pick(&[
                        r#"{"last_by_subj":"*.none"}"#,
                        r#"{"seq":1,"next_by_subj":"*.none"}"#,
                    ]);
                    text += &request("$JS.API.STREAM.MSG.GET.L", body);
                    let name = "Nats-Expected-Last-Subject-Sequence";
                    let depends = format!("{name}: 0\r\n{name}-Subject: *.none{n}\r\n");
                    let headers = format!("NATS/1.0\r\n{depends}\r\n");
                    let len = headers.len();
                    text += &format!("HPUB l.{n} {len} {}\r\n{headers}x\r\n", len + 1);
                }
                world.say(client, text.as_bytes());
            }
            Attack::Deliveries => {
                let body = r#"{"batch":1000,"no_wait":true}"#;
                for (n, client) in self.clients.iter().enumerate() {
                    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.L.d{n}");
                    let text = format!("PUB {subject} _INBOX.d{n} {}\r\n{body}\r\n", body.len());
                    world.say(*client, text.as_bytes());
                }
            }
            Attack::StepDown => {
                let client = world.connect(server, Role::Deaf, Reads::All);
                let text = request("$JS.API.STREAM.LEADER.STEPDOWN.L", "");
                world.say(client, text.as_bytes());
            }
            Attack::Lists => {
                for what in [Listing::Streams, Listing::Connections] {
                    world.sim.list(server, what);
                }
                world.sim.list(server, Listing::Subscriptions);
            }
        }
    }

    /// Makes many consumers of the large stream, each with a client that will pull from it.
    fn make_consumers(&mut self, world: &mut World) -> Result<(), Broken> {
        let made = world.dice.range(150, 200);
        for n in 0..made {
            let client = world.connect(self.server, Role::Raw(Vec::new()), Reads::All);
            let body = format!(
                r#"{{"stream_name":"L","config":{{"durable_name":"d{n}","ack_policy":"none"}}}}"#
            );
            let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.L.d{n}");
            let inbox = format!("SUB _INBOX.d{n} 1\r\n");
            let len = body.len();
            let text = format!("{inbox}PUB {subject} _INBOX.d{n} {len}\r\n{body}\r\n");
            world.say(client, text.as_bytes());
            self.clients.push(client);
        }
        let clients = self.clients.clone();
        let is_made = |w: &World| clients.iter().all(|c| w.clients[*c].messages_len() > 0);
        match world.run_until(Duration::from_secs(30), is_made)? {
            true => Ok(()),
            false => Err("the consumers are not made".into()),
        }
    }

    /// Makes many consumers of the large stream with filters, which each leader of the stream takes up, by
    /// requests that do not wait for each other.
    fn make_awake_consumers(&mut self, world: &mut World) -> Result<(), Broken> {
        let client = world.connect(self.server, Role::Raw(Vec::new()), Reads::All);
        let made = world.dice.range(800, 1000);
        let make = |n: u64| {
            let body = format!(
                r#"{{"stream_name":"L","config":{{"durable_name":"f{n}","ack_policy":"explicit","filter_subject":"l.{n}"}}}}"#
            );
            request(&format!("$JS.API.CONSUMER.DURABLE.CREATE.L.f{n}"), &body)
        };
        let text: String = (0..made).map(make).collect();
        world.say(client, format!("SUB _INBOX.p 1\r\n{text}").as_bytes());
        let is_made = |w: &World| w.clients[client].messages_len() as u64 == made;
        match world.run_until(Duration::from_secs(30), is_made)? {
            true => Ok(()),
            false => Err(format!("{made} consumers with filters are not made")),
        }
    }

    /// Makes this number of streams, by requests that do not wait for each other, and waits until all servers
    /// have them.
    fn make_streams(&self, world: &mut World, least: u64, most: u64) -> Result<(), Broken> {
        let client = world.connect(self.server, Role::Deaf, Reads::All);
        let (made, replicas) = (world.dice.range(least, most), world.servers);
        let make = |n: u64| {
            let body =
                format!(r#"{{"name":"m{n}","subjects":["m.{n}"],"num_replicas":{replicas}}}"#);
            request(&format!("$JS.API.STREAM.CREATE.m{n}"), &body)
        };
        let text: String = (0..made).map(make).collect();
        world.say(client, text.as_bytes());
        let last = format!("m{}", made - 1);
        let there = |w: &World| (0..w.servers).all(|n| w.sim.stream(n, &last).is_some());
        match world.run_until(Duration::from_secs(30), there)? {
            true => Ok(()),
            false => Err(format!("{made} streams are not made")),
        }
    }

    /// Connects a client that subscribes to all wildcard patterns of a subject with this number of tokens.
    fn subscribe_to_all(&mut self, world: &mut World, tokens: u32) {
        let reader = world.connect(self.server, Role::Deaf, Reads::All);
        // The reader's connection has much room, so that the reader keeps up even while a turn of the server
        // lasts.
        let end = world.clients[reader].end;
        world.sim.set_room(end, ROOMY);
        let pattern = |bits: u32| {
            let token = |at| if bits >> at & 1 == 1 { "*" } else { "a" };
            (0..tokens).map(token).collect::<Vec<_>>().join(".")
        };
        let all = (0..1_u32 << tokens).map(|n| format!("SUB {} {n}\r\n", pattern(n)));
        world.say(reader, all.collect::<String>().as_bytes());
    }

    fn publish_to_all(&mut self, world: &mut World, tokens: u32, messages: usize) {
        let client = world.connect(self.server, Role::Deaf, Reads::All);
        let subject = vec!["a"; tokens as usize].join(".");
        let text = format!("PUB {subject} 2\r\nxx\r\n").repeat(messages);
        world.say(client, text.as_bytes());
    }

    fn read_one_subject(&mut self, world: &mut World, reads: Reads) -> usize {
        let reader = world.connect(self.server, Role::Deaf, reads);
        world.say(reader, b"SUB one 1\r\n");
        self.clients.push(reader);
        reader
    }
}
