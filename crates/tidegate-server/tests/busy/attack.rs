//! Defines the workloads by which a client could hurt others. Their sizes are small, so that a seed takes a
//! fraction of a second. In a run with heavy works the works of the attack cost more than a machine needs for
//! them (`Attack::heavy`), as if each stood for many of them. So a small attack that the loop does not divide
//! outlasts the patience of a follower.

use std::time::Duration;

use tidegate_server::{Cures, Work};

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
}

impl Attack {
    pub(crate) const ALL: [Self; 10] = [
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
    ];

    /// Returns the costs of the attack's works in a run with heavy works, in picoseconds.
    pub(crate) const fn heavy(self) -> &'static [(Work, u64)] {
        const MICRO: u64 = 1_000_000;
        match self {
            Self::Flood => &[(Work::Copy, 10 * MICRO)],
            Self::Spread => &[(Work::Copy, 15 * MICRO)],
            Self::Pings => &[(Work::Operation, 4 * MICRO)],
            Self::Readers => &[(Work::Write, 640 * MICRO), (Work::WriteByte, 25_000)],
            Self::SlowReaders => &[(Work::Write, 80 * MICRO), (Work::WriteByte, 3_000)],
            Self::Reconnect => &[(Work::TlsHello, 20_000 * MICRO)],
            Self::Come => &[(Work::Accept, 240 * MICRO), (Work::Close, 160 * MICRO)],
            Self::Leaver => &[(Work::Unsubscribe, 58 * MICRO)],
            Self::Pages => &[(Work::Subject, 300_000)],
            Self::Purge => &[(Work::Reclaim, 2 * MICRO)],
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
        Bounds {
            turns,
            wait: Duration::from_millis(250),
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
            Self::SlowReaders | Self::Purge => return None,
        }
        Some(cures)
    }

    /// Connects the clients of the attack, before the run measures the well-behaved clients.
    pub(crate) fn prepare(self, world: &mut World) -> Result<Prepared, Broken> {
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
            Self::Pages | Self::Purge => {
                world.create_stream("L", "l.>")?;
                let writer = world.connect(server, Role::Deaf, Reads::All);
                let messages = match self {
                    Self::Pages => world.dice.range(18_000, 22_000),
                    _ => world.dice.range(5_000, 8_000),
                };
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
