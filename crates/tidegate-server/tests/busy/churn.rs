//! Makes streams and deletes them in a loop, and compares what the servers keep after each round: the entries
//! in their lists, the length of their state, the files of the log and their space must not grow with the
//! number of rounds.
//!
//! A round makes a stream with messages, a consumer of it and a pull that waits there, and deletes the stream
//! while requests about it are on their way. `CHURN_ROUNDS` sets the number of rounds (`make soak-churn`).

use std::time::Duration;

use tidegate_server::{Costs, Footprint};

use crate::client::{Reads, Role, Told};
use crate::run::{COSTS, variable};
use crate::world::{Broken, World};

/// The number of rounds in `make test`, which write the log some times as full as a checkpoint needs.
const ROUNDS: u64 = 200;
/// The number of the first rounds after which nothing may grow: the servers make lists and files at first.
const WARM_UP: u64 = 10;
/// The messages of a round and their length in bytes.
const MESSAGES: u64 = 8;
const MESSAGE_BYTES: usize = 2048;
/// The bytes by which the space on the disks may exceed its maximum in the first half: a file of the log, and
/// a checkpoint that the server writes beside the last one.
const SLACK_BYTES: u64 = 512 << 10;

/// The footprints of one server after the rounds so far.
#[derive(Default)]
struct Seen {
    first: Option<Footprint>,
    /// The greatest space on the disks, number of files and length of checkpoints in the first half of the
    /// rounds, and in the second half.
    most: [Most; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Most {
    disk_bytes: u64,
    segments: usize,
    checkpoint_bytes: u64,
}

impl Seen {
    fn see(&mut self, half: usize, now: Footprint) -> Result<(), String> {
        let first = self.first.get_or_insert(now);
        let kept = |f: &Footprint| (f.streams, f.items, f.state_bytes);
        if kept(first) != kept(&now) {
            return Err(format!("after the first rounds: {first:?}, now: {now:?}"));
        }
        let most = &mut self.most[half];
        most.disk_bytes = most.disk_bytes.max(now.disk_bytes);
        most.segments = most.segments.max(now.segments);
        most.checkpoint_bytes = most.checkpoint_bytes.max(now.checkpoint_bytes);
        Ok(())
    }

    /// Returns whether the second half of the rounds took no more space than the first half.
    fn is_flat(&self) -> bool {
        let [first, second] = self.most;
        second.disk_bytes <= first.disk_bytes + SLACK_BYTES
            && second.segments <= first.segments + 1
            && second.checkpoint_bytes <= 2 * first.checkpoint_bytes
    }
}

/// The client that makes and deletes the streams.
struct Maker {
    client: usize,
    replicas: usize,
}

impl Maker {
    /// Runs a round: makes a stream, uses it, and deletes it.
    fn round(&self, world: &mut World, round: u64) -> Result<(), Broken> {
        // Some names come again and again, and others once.
        let name = match round % 3 {
            0 => format!("once{round}"),
            _ => "again".to_owned(),
        };
        let replicas = self.replicas;
        let config = format!(
            r#"{{"name":"{name}","subjects":["{name}.>"],"num_replicas":{replicas},"max_msgs_per_subject":3}}"#
        );
        self.ask(world, &format!("$JS.API.STREAM.CREATE.{name}"), &config)?;
        let payload = "x".repeat(MESSAGE_BYTES);
        for n in 0..MESSAGES {
            self.ask(world, &format!("{name}.{round}.{n}"), &payload)?;
        }
        let consumer = format!(
            r#"{{"stream_name":"{name}","config":{{"durable_name":"c","ack_policy":"explicit","deliver_policy":"last_per_subject","filter_subject":"{name}.>"}}}}"#
        );
        let create = format!("$JS.API.CONSUMER.DURABLE.CREATE.{name}.c");
        self.ask(world, &create, &consumer)?;
        // The client reads no answers to these requests: a pull that waits for a message, requests that look
        // at all subjects, and a purge by subject.
        let pull = r#"{"batch":100,"expires":30000000000}"#;
        for (what, body) in [
            (format!("CONSUMER.MSG.NEXT.{name}.c"), pull),
            (format!("STREAM.INFO.{name}"), r#"{"subjects_filter":">"}"#),
            (format!("CONSUMER.INFO.{name}.c"), ""),
            (format!("STREAM.PURGE.{name}"), r#"{"filter":"*.*.1"}"#),
        ] {
            let len = body.len();
            let text = format!("PUB $JS.API.{what} _INBOX.none {len}\r\n{body}\r\n");
            world.say(self.client, text.as_bytes());
        }
        self.ask(world, &format!("$JS.API.STREAM.DELETE.{name}"), "")?;
        // The followers apply the last entries, and the servers end what the stream has left.
        world.run(Duration::from_millis(400))
    }

    /// Sends a message, and waits for an answer without an error.
    fn ask(&self, world: &mut World, subject: &str, body: &str) -> Result<(), Broken> {
        let text = format!("PUB {subject} _INBOX.m {}\r\n{body}\r\n", body.len());
        world.say(self.client, text.as_bytes());
        let end = world.sim.now() + Duration::from_secs(10);
        while world.sim.now() < end {
            world.run(Duration::from_micros(500))?;
            for told in world.clients[self.client].take_told() {
                match told {
                    Told::Message(text) if text.contains("\"error\"") => {
                        return Err(format!("{subject}: {text}"));
                    }
                    Told::Message(_) => return Ok(()),
                    _ => {}
                }
            }
        }
        Err(format!("no answer to {subject}"))
    }
}

fn churn(servers: usize, replicas: usize, rounds: u64) -> Result<(), String> {
    let costs = Costs::parse(COSTS).unwrap();
    let mut world = World::new(7, servers, costs, false)?;
    let client = world.connect(0, Role::Raw(Vec::new()), Reads::All);
    world.say(client, b"SUB _INBOX.m 1\r\n");
    let maker = Maker { client, replicas };
    let mut seen: Vec<Seen> = (0..servers).map(|_| Seen::default()).collect();
    for round in 0..rounds + WARM_UP {
        maker.round(&mut world, round)?;
        if round < WARM_UP {
            continue;
        }
        let half = usize::from(round - WARM_UP >= rounds / 2);
        for (server, seen) in seen.iter_mut().enumerate() {
            let now = world.sim.footprint(server).ok_or("a server has ended")?;
            let seen = seen.see(half, now);
            seen.map_err(|e| format!("server {server}, round {round}: {e}"))?;
        }
    }
    for (server, seen) in seen.iter().enumerate() {
        println!(
            "{servers} servers, {rounds} rounds, server {server}: {:?}",
            seen.most
        );
        if !seen.is_flat() {
            return Err(format!("server {server} grows: {:?}", seen.most));
        }
    }
    Ok(())
}

fn rounds() -> u64 {
    let set = variable("CHURN_ROUNDS").and_then(|n| n.parse().ok());
    set.unwrap_or(ROUNDS)
}

#[test]
fn streams_made_and_deleted_on_one_server_leave_nothing() {
    churn(1, 1, rounds()).unwrap();
}

#[test]
fn streams_made_and_deleted_in_a_cluster_leave_nothing() {
    churn(3, 3, rounds()).unwrap();
}

#[test]
fn streams_of_one_replica_made_and_deleted_in_a_cluster_leave_nothing() {
    churn(3, 1, rounds()).unwrap();
}
