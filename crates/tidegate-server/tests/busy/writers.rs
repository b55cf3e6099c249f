//! Simulates a writer that publishes thousands of messages into a stream before it reads an answer, while the
//! stream is purged, changed, moved or deleted, or its leader goes. Accounts for every message: each is
//! acknowledged once, refused with an error of the API, or refused with the status that no node takes it.
//! Only a change of leader, the end of the writer's connection, and the deletion of the stream on another
//! node may leave messages without an answer (docs/guarantees.md).
//!
//! `WRITER_SEEDS=1..=1000` sets the seeds, and `SEED=7` runs one of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_server::Costs;

use crate::client::{Answers, Reads, Role};
use crate::dice::Dice;
use crate::run::{COSTS, variable};
use crate::world::{Broken, World};

/// The seeds that the test runs by default.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=48;
/// The length of a segment of the servers' logs: room for the longest entry, as in the product.
const SEGMENT_BYTES: u64 = 2 << 20;
/// The time within which every message must have its answer, or none comes any more.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// An event that meets the messages on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// A client purges the whole stream, or one subject of it.
    Purge,
    PurgeSubject,
    /// A client changes the limits of the stream.
    Update,
    /// The stream has room for half of the messages and refuses the others.
    Full,
    /// A client changes the number of replicas, so that the stream moves to another group.
    Move,
    /// A client deletes the stream.
    Delete,
    /// A client makes the leader hand over.
    StepDown,
    /// A server crashes, mostly the leader, and starts again.
    Crash,
}

impl Meanwhile {
    const ALL: [Self; 9] = [
        Self::Nothing,
        Self::Purge,
        Self::PurgeSubject,
        Self::Update,
        Self::Full,
        Self::Move,
        Self::Delete,
        Self::StepDown,
        Self::Crash,
    ];

    /// Returns whether messages on their way to the old leader may stay without an answer.
    const fn may_lose_answers(self) -> bool {
        matches!(self, Self::StepDown | Self::Crash)
    }
}

/// The plan of a run, drawn from its seed.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    servers: usize,
    meanwhile: Meanwhile,
    messages: usize,
    payload_bytes: usize,
    /// The time from the first message to the event.
    after: Duration,
}

/// The counts of a run that accounted for every message.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acked: usize,
    refused: u64,
    unserved: u64,
    missing: usize,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x7772_6974);
        Self {
            seed,
            servers: dice.pick(&[1, 3]),
            meanwhile: dice.pick(&Meanwhile::ALL),
            messages: dice.range(4_097, 20_000) as usize,
            payload_bytes: dice.pick(&[1, 16, 200]),
            after: Duration::from_micros(dice.range(0, 60_000)),
        }
    }

    fn run(&self) -> Result<Counts, Broken> {
        let costs = Costs::parse(COSTS).unwrap();
        let mut world = World::with_segments(self.seed, self.servers, costs, false, SEGMENT_BYTES)?;
        self.make_stream(&mut world)?;
        let server = world.dice.below(self.servers as u64) as usize;
        let answers = Answers::to(self.messages);
        let writer = world.connect(server, Role::Writer(answers), Reads::All);
        world.say(writer, b"SUB _INBOX.p.* 1\r\n");
        world.run(Duration::from_millis(300))?;
        let terms = world.terms();
        let payload = "x".repeat(self.payload_bytes);
        let message = |n: usize| {
            let (subject, len) = (n % 7, payload.len());
            format!("PUB p.{subject} _INBOX.p.{n} {len}\r\n{payload}\r\n")
        };
        let all: String = (0..self.messages).map(message).collect();
        world.say(writer, all.as_bytes());
        world.run(self.after)?;
        self.disturb(&mut world)?;
        let is_over = |w: &World| {
            let client = &w.clients[writer];
            client.ended || client.answers().is_some_and(|a| a.missing() == 0)
        };
        world.run_until(ANSWERS_WITHIN, is_over)?;
        // A second answer to a message would come now.
        world.run(Duration::from_secs(1))?;
        let moved = world.terms() != terms || self.meanwhile.may_lose_answers();
        self.judge(&mut world, writer, moved)
    }

    fn make_stream(&self, world: &mut World) -> Result<(), Broken> {
        let limits = match self.meanwhile {
            Meanwhile::Full => format!(r#","max_msgs":{},"discard":"new""#, self.messages / 2),
            _ => String::new(),
        };
        let replicas = self.servers;
        let config =
            format!(r#"{{"name":"P","subjects":["p.*"],"num_replicas":{replicas}{limits}}}"#);
        demand(world, "$JS.API.STREAM.CREATE.P", &config)
    }

    fn disturb(&self, world: &mut World) -> Result<(), Broken> {
        let replicas = self.servers;
        match self.meanwhile {
            Meanwhile::Nothing | Meanwhile::Full => Ok(()),
            Meanwhile::Purge => demand(world, "$JS.API.STREAM.PURGE.P", ""),
            Meanwhile::PurgeSubject => {
                demand(world, "$JS.API.STREAM.PURGE.P", r#"{"filter":"p.3"}"#)
            }
            Meanwhile::Update => {
                for most in [5_000, 100] {
                    let config = format!(
                        r#"{{"name":"P","subjects":["p.*"],"num_replicas":{replicas},"max_msgs":{most}}}"#
                    );
                    demand(world, "$JS.API.STREAM.UPDATE.P", &config)?;
                }
                Ok(())
            }
            Meanwhile::Move => {
                let config = r#"{"name":"P","subjects":["p.*"],"num_replicas":1}"#;
                demand(world, "$JS.API.STREAM.UPDATE.P", config)
            }
            Meanwhile::Delete => demand(world, "$JS.API.STREAM.DELETE.P", ""),
            Meanwhile::StepDown => {
                let client = world.connect(0, Role::Deaf, Reads::All);
                world.say(
                    client,
                    b"PUB $JS.API.STREAM.LEADER.STEPDOWN.P _INBOX.none 0\r\n\r\n",
                );
                Ok(())
            }
            Meanwhile::Crash => {
                let drawn = world.dice.below(self.servers as u64) as usize;
                let server = match world.dice.chance(600) {
                    true => world.leader().unwrap_or(drawn),
                    false => drawn,
                };
                let power_lost = world.dice.chance(500);
                let away = Duration::from_millis(world.dice.range(10, 1500));
                world.crash(server, power_lost);
                world.run(away)?;
                world.restart(server)
            }
        }
    }

    /// Accounts for all messages. `moved` says that a lead may have moved.
    fn judge(&self, world: &mut World, writer: usize, moved: bool) -> Result<Counts, Broken> {
        let client = &world.clients[writer];
        let answers = client.answers().ok_or("the writer is no writer")?;
        // The answers of one entry may be more than the small bound of a simulated outbox, and refusals are
        // long. The client then learns of the loss by the end of its connection.
        let closed = client.ended && self.meanwhile == Meanwhile::Full;
        let moved = moved || closed;
        if client.ended && !client.excused && !closed {
            return Err("the server has closed the writer's connection".into());
        }
        if let Some(odd) = &answers.odd {
            return Err(format!("an answer that is none: {odd}"));
        }
        if let Some(n) = answers.counts.iter().position(|n| *n > 1) {
            let times = answers.counts[n];
            return Err(format!("message {n} has {times} answers"));
        }
        let counts = Counts {
            acked: answers.acked.len(),
            refused: answers.refused,
            unserved: answers.unserved,
            missing: answers.missing(),
        };
        let refuses = matches!(
            self.meanwhile,
            Meanwhile::Full | Meanwhile::Delete | Meanwhile::Move
        );
        if counts.refused > 0 && !refuses && !moved {
            return Err(format!("refusals without a reason: {counts:?}"));
        }
        let takes = !moved && !matches!(self.meanwhile, Meanwhile::Delete | Meanwhile::Move);
        if counts.unserved > 0 && takes {
            return Err(format!("no node took some messages: {counts:?}"));
        }
        let first = answers.counts.iter().position(|n| *n == 0);
        // A message on its way from another node to the leader of a deleted stream has no answer.
        let on_the_way = self.meanwhile == Meanwhile::Delete && self.servers > 1;
        if counts.missing > 0 && !moved && !on_the_way {
            return Err(format!(
                "no answer to message {first:?} and others: {counts:?}"
            ));
        }
        let mut acked = answers.acked.clone();
        acked.sort_unstable();
        acked.dedup();
        if acked.len() < counts.acked {
            return Err("two messages have one sequence".into());
        }
        let last = acked.last().copied().unwrap_or(0);
        if self.meanwhile == Meanwhile::Delete {
            return Ok(counts);
        }
        let states = |w: &World| {
            let all = (0..self.servers).filter_map(|n| w.sim.stream(n, "P"));
            all.collect::<Vec<_>>()
        };
        let (exact, kept) = match self.meanwhile {
            Meanwhile::Nothing | Meanwhile::Full => (!moved, counts.acked as u64),
            Meanwhile::Move | Meanwhile::StepDown | Meanwhile::Crash => {
                (false, counts.acked as u64)
            }
            _ => (false, 0),
        };
        let holds = |w: &World| {
            let states = states(w);
            let whole = |(messages, seq): &(u64, u64)| {
                *seq >= last && *messages >= kept && (!exact || *messages == kept)
            };
            !states.is_empty() && states.iter().all(whole)
        };
        match world.run_until(Duration::from_secs(5), holds)? {
            true => Ok(counts),
            false => Err(format!(
                "the servers have {:?} of {counts:?}, the last sequence is {last}",
                states(world)
            )),
        }
    }
}

/// Sends a request, and fails if its answer is an error.
fn demand(world: &mut World, subject: &str, body: &str) -> Result<(), Broken> {
    let answer = world.request(subject, body)?;
    match answer.contains("\"error\"") {
        true => Err(format!("{subject}: {answer}")),
        false => Ok(()),
    }
}

#[test]
fn every_message_of_a_writer_with_thousands_in_flight_has_its_answer() {
    let range = |text: &String| {
        let (from, to) = text.split_once("..=").unwrap_or(("1", text));
        from.parse().unwrap()..=to.parse().unwrap()
    };
    let one = variable("SEED").and_then(|seed| seed.parse().ok());
    let seeds = variable("WRITER_SEEDS").as_ref().map_or(SEEDS, range);
    let seeds = one.map_or(seeds, |seed| seed..=seed);
    let next = AtomicU64::new(*seeds.start());
    let failed = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let plan = Plan::of(seed);
                    match plan.run() {
                        Ok(counts) => println!("{plan:?}: {counts:?}"),
                        Err(harm) => failed.lock().unwrap().push(format!("{plan:?}: {harm}")),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
}
