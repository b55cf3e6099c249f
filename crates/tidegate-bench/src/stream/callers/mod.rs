//! `tidegate-bench callers`: measures few callers that wait for each acknowledgement, on one server or on a
//! cluster of three nodes.
//!
//! One load generator drives every system: [`load`] has one thread for each caller, and each thread has one
//! blocking socket. With `--peers` the bench measures nats-server with and without a sync before each
//! acknowledgement, Redis with `appendfsync always` and PostgreSQL with one INSERT a transaction in the same
//! rounds. With `--league` SQLite, etcd, Kafka and RabbitMQ join them. Two floors stand beside them: a bare
//! write and `fdatasync`, and a bare round trip over the same kind of sockets.
//!
//! With `--trace` the bench measures nothing: [`proof`] traces the system calls of each server, and checks
//! that it syncs each message before it answers.

mod amqp;
mod etcd;
mod floor;
mod http2;
mod kafka;
mod kafka_wire;
mod load;
mod nats;
#[cfg(feature = "peers")]
mod postgres;
mod proof;
mod rabbitmq;
mod redis;
#[cfg(feature = "peers")]
mod sqlite;
mod system;
mod trace;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, value_parser};
use tidegate_cli::Usage;

use super::field::Directory;
use super::server::{Kind, Programs};
use crate::OURS;
use crate::machine;
use crate::options::BenchArgs;
use crate::peers::Peers;
use crate::rounds::{Contestant, Failure, Sample};
use crate::session::Session;
use load::{Caller, Load};
use system::System;

/// The arguments with which the user runs `tidegate-bench callers`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CallersArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
    /// Measure a cluster of this many nodes on this machine, with a replica of the stream on each node. With
    /// more than one node the bench measures only ours and nats-server.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u8).range(1..=5))]
    nodes: u8,
    /// Measure these numbers of callers.
    #[arg(long, value_name = "N,N...", value_delimiter = ',', default_value = "1,10,100",
          value_parser = value_parser!(u16).range(1..=1000))]
    callers: Vec<u16>,
    /// Measure messages, rows and values with this many bytes of payload.
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = value_parser!(u32).range(1..=1 << 20))]
    bytes: u32,
    /// Let each measurement take this many milliseconds, after a fifth of that time for warming up.
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = value_parser!(u32).range(10..=600_000))]
    window_ms: u32,
    /// Run the servers on the last processor and the callers on all others, instead of both on all, to
    /// measure the way with a hand-over between processors.
    #[arg(long)]
    apart: bool,
    /// Add this much to each sync of our server, to imitate a slower disk; the floor of the disk stays as it
    /// is. For example 5ms. The peers take no part, because the bench cannot slow their syncs.
    #[arg(long, value_name = "TIME")]
    slow_sync: Option<String>,
    /// Measure further durable stores in the same rounds, to compare ours with all of them: SQLite, etcd,
    /// Kafka with a flush for each append, and a quorum queue of RabbitMQ. All of them have one node.
    #[arg(long, requires = "peers", conflicts_with_all = ["nodes", "slow_sync"])]
    league: bool,
    /// Measure only those rivals that have one of these texts in their names, to save time; ours always takes
    /// part. For example etcd,kafka.
    #[arg(
        long,
        value_name = "TEXT,TEXT...",
        value_delimiter = ',',
        requires = "peers"
    )]
    rivals: Vec<String>,
    /// Measure nothing, and trace the system calls of each server while one caller sends 60 messages, to
    /// prove that the server syncs each message before it answers. The bench needs strace and leave to
    /// trace. The exit code is 1 if a server breaks its promise.
    #[arg(long, conflicts_with_all = ["nodes", "callers", "window_ms", "apart", "slow_sync"])]
    trace: bool,
}

/// A system that runs and takes callers.
trait Running {
    /// Connects a caller. The bench calls this from the thread of the caller.
    fn caller(&self, number: usize) -> anyhow::Result<Box<dyn Caller>>;

    /// Returns the ids of the system's processes for a trace; none for a system without a process of its own.
    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        Ok(Vec::new())
    }

    /// Returns the processor time of the system's processes so far, in seconds; `None` for a system without a
    /// process of its own.
    fn cpu_s(&self) -> anyhow::Result<Option<f64>>;

    /// Returns the time for which callers call before a measurement, besides the usual time. Only a system
    /// that compiles itself while it runs needs some.
    fn warm_up(&self) -> Duration {
        Duration::ZERO
    }
}

/// Everything that a measurement needs besides its system.
#[derive(Debug)]
struct Plan {
    directory: PathBuf,
    /// The programs of nats-server, or the reason for which they are missing.
    programs: Result<Programs, Failure>,
    nodes: usize,
    bytes: usize,
    window: Duration,
    /// Measure briefly, to prove only that the bench works.
    is_smoke: bool,
    apart: bool,
    slow_sync: Option<String>,
}

/// Measures each number of callers on each system, in interleaved rounds, or traces each system. Returns
/// false if a traced server breaks its promise.
pub(crate) fn run(session: &mut Session, args: &CallersArgs) -> anyhow::Result<bool> {
    check(&args.rivals)?;
    let directory = Directory::make()?;
    session.say(&format!("data in {}", directory.path().display()));
    if directory.is_in_memory() {
        session.say("that is memory and no disk: syncs cost nothing there");
    }
    let window = if session.is_smoke() {
        20
    } else {
        args.window_ms
    };
    let plan = Plan {
        // Some servers change their working directory.
        directory: directory.path().canonicalize()?,
        programs: Programs::find().map_err(|e| format!("{e:#}")),
        nodes: usize::from(args.nodes),
        bytes: args.bytes as usize,
        window: Duration::from_millis(window.into()),
        is_smoke: session.is_smoke(),
        apart: args.apart,
        slow_sync: args.slow_sync.clone(),
    };
    if args.trace {
        return proof::run(session, &plan, &systems(args, 1));
    }
    for &callers in &args.callers {
        let name = name(args, callers);
        if session.wants(&name) {
            let contestants = systems(args, callers).into_iter();
            let contestants = contestants.map(|system| plan.contestant(system, callers.into()));
            session.cell(&name, contestants.collect())?;
        }
    }
    Ok(true)
}

/// Refuses a text that no rival has in its name.
fn check(rivals: &[String]) -> anyhow::Result<()> {
    let all = System::RIVALS.into_iter().chain(System::LEAGUE);
    let names: Vec<_> = all.map(System::name).collect();
    for text in rivals {
        if text.is_empty() || !names.iter().any(|name| name.contains(text.as_str())) {
            let names = names.join("; ");
            return Err(Usage::new(format!("no rival has `{text}` in its name: {names}")).into());
        }
    }
    Ok(())
}

/// Returns the path of a file or folder below bench/peers, which the script of the peers installs.
///
/// # Errors
///
/// The peer is not installed; the error names the command that installs it.
fn peer(file: &str, name: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new("bench/peers").join(file);
    let root = path.to_str().and_then(machine::upwards);
    let root =
        root.with_context(|| format!("{name} is not installed: bench/peers/install.sh {name}"))?;
    Ok(root.join(path))
}

fn name(args: &CallersArgs, callers: u16) -> String {
    let many = if callers == 1 { "caller" } else { "callers" };
    let size = match args.bytes {
        b if b % 1024 == 0 => format!("{} KiB", b / 1024),
        b => format!("{b} B"),
    };
    let nodes = args.nodes;
    let slow = args.slow_sync.as_ref();
    let slow = slow.map_or_else(String::new, |time| format!(", disk + {time}"));
    let apart = if args.apart { ", apart" } else { "" };
    // Kept cells have the rivals of their run, so the league has cells of its own.
    let league = if args.league { ", league" } else { "" };
    format!("R{nodes}, {callers} {many}, {size}{slow}{apart}{league}")
}

/// Returns the systems of a cell, ours first. A bare write has only one caller, because the next one would
/// measure the queue of the disk.
fn systems(args: &CallersArgs, callers: u16) -> Vec<System> {
    let ours = match args.slow_sync {
        Some(_) => Kind::OursSlow,
        None => Kind::Ours,
    };
    let mut rivals = Vec::new();
    if args.bench.peers && args.slow_sync.is_none() {
        rivals.extend(System::RIVALS);
        if args.league {
            rivals.extend(System::LEAGUE);
        }
    }
    let is_server = |system: System| matches!(system, System::Server(_));
    let is_named = |system: System| {
        let mut texts = args.rivals.iter();
        args.rivals.is_empty() || texts.any(|text| system.name().contains(text.as_str()))
    };
    rivals.retain(|&system| {
        let fits = args.nodes == 1 || is_server(system);
        // A lone caller gains nothing from a shared producer.
        let differs = callers > 1 || system != System::KafkaShared;
        fits && differs && system.is_built() && is_named(system)
    });
    let mut all = vec![System::Server(ours)];
    all.append(&mut rivals);
    all.push(System::Echo);
    if callers == 1 {
        all.push(System::Disk);
    }
    all
}

impl Plan {
    fn contestant(&self, system: System, callers: usize) -> Contestant<'_, Peers> {
        Contestant {
            system: system.name().into(),
            version: system.version(self.programs.as_ref().ok()),
            controller: None,
            subject: system.name() == OURS,
            run: Box::new(move |_| {
                let measured = self.measure(system, callers);
                measured.map_err(|e| -> Failure { format!("{e:#}") })
            }),
        }
    }

    /// Creates the directory of a system without the files of an earlier one.
    fn empty(&self) -> anyhow::Result<PathBuf> {
        let directory = self.directory.join("callers");
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::create_dir_all(&directory)?;
        // The sync writes the data that another system left in the cache, so that this system does not have
        // to wait for it.
        rustix::fs::sync();
        Ok(directory)
    }

    /// Starts the system, measures the callers on it, and ends it.
    fn measure(&self, system: System, callers: usize) -> anyhow::Result<Sample> {
        let directory = self.empty()?;
        if self.apart {
            load::place(load::Side::Servers)?;
        }
        let running = self.start(system, &directory)?;
        if self.apart {
            load::place(load::Side::Callers)?;
        }
        let more = match self.is_smoke {
            true => Duration::ZERO,
            false => running.warm_up(),
        };
        let load = Load {
            callers,
            warm_up: self.window / 5 + more,
            window: self.window,
        };
        load.run(&*running)
    }

    fn start(&self, system: System, directory: &Path) -> anyhow::Result<Box<dyn Running + Sync>> {
        Ok(match system {
            System::Server(kind) => Box::new(nats::Nats::start(self, kind, directory)?),
            System::Redis => Box::new(redis::Redis::start(directory, self.bytes)?),
            #[cfg(feature = "peers")]
            System::Postgres => Box::new(postgres::Postgres::start(directory, self.bytes)?),
            #[cfg(feature = "peers")]
            System::Sqlite => Box::new(sqlite::Sqlite::open(directory, self.bytes)?),
            #[cfg(not(feature = "peers"))]
            System::Postgres | System::Sqlite => {
                anyhow::bail!("this build lacks {}: --features peers", system.name())
            }
            System::Etcd => Box::new(etcd::Etcd::start(directory, self.bytes)?),
            System::Kafka => self.kafka(directory, kafka::Producers::Each)?,
            System::KafkaShared => self.kafka(directory, kafka::Producers::Shared)?,
            System::RabbitMq => Box::new(rabbitmq::RabbitMq::start(directory, self.bytes)?),
            System::Disk => Box::new(floor::Disk::open(directory, self.bytes)?),
            System::Echo => Box::new(floor::Echo::start(self.bytes)?),
        })
    }

    fn kafka(
        &self,
        directory: &Path,
        producers: kafka::Producers,
    ) -> anyhow::Result<Box<dyn Running + Sync>> {
        let kafka = kafka::Kafka::start(directory, self.bytes, producers)?;
        Ok(Box::new(kafka))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CallersArgs,
    }

    fn args(words: &[&str]) -> CallersArgs {
        Line::parse_from([&["callers"], words].concat()).args
    }

    #[test]
    fn a_cell_names_its_load() {
        assert_eq!(name(&args(&[]), 1), "R1, 1 caller, 1 KiB");
        let words = [
            "--nodes",
            "3",
            "--bytes",
            "100",
            "--slow-sync",
            "5ms",
            "--apart",
        ];
        let expected = "R3, 10 callers, 100 B, disk + 5ms, apart";
        assert_eq!(name(&args(&words), 10), expected);
    }

    #[test]
    fn peers_take_part_where_the_comparison_is_fair() {
        let names = |words: &[&str], callers| {
            let all = systems(&args(words), callers).into_iter();
            all.map(System::name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], 10), [OURS, "bare round trip"]);
        let slow = names(&["--peers", "--slow-sync", "5ms"], 1);
        assert_eq!(slow, [OURS, "bare round trip", "bare write + fdatasync"]);
        let cluster = names(&["--peers", "--nodes", "3"], 10);
        assert_eq!(
            cluster,
            [
                OURS,
                "nats-server default",
                "nats-server always",
                "bare round trip"
            ]
        );
        assert!(names(&["--peers"], 1).contains(&"redis always"));
    }

    #[test]
    fn the_league_adds_rivals() {
        let names = |words: &[&str], callers| {
            let all = systems(&args(words), callers).into_iter();
            all.map(System::name).collect::<Vec<_>>()
        };
        let league = ["--peers", "--league"];
        let added = ["etcd", "kafka", "kafka, shared producer", "rabbitmq quorum"];
        let all = names(&league, 10);
        assert!(added.iter().all(|name| all.contains(name)), "{all:?}");
        assert_eq!(all.contains(&"sqlite"), cfg!(feature = "peers"));
        assert!(!names(&league, 1).contains(&"kafka, shared producer"));
        assert!(
            !names(&["--peers"], 10)
                .iter()
                .any(|name| added.contains(name))
        );
        let some = names(&[&league[..], &["--rivals", "etcd,always"]].concat(), 10);
        let expected = ["tidegate", "nats-server always", "redis always", "etcd"];
        assert_eq!(some[..4], expected);
        assert_eq!(some[4..], ["bare round trip"]);
        assert_eq!(name(&args(&league), 1), "R1, 1 caller, 1 KiB, league");
    }

    #[test]
    fn unknown_rivals_and_parts_without_a_meaning_are_refused() {
        let texts = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        check(&texts(&["etcd", "nats", "shared"])).unwrap();
        let refused = check(&texts(&["nosuch"])).unwrap_err().to_string();
        assert!(refused.starts_with("no rival has `nosuch` in its name: nats-server default; "));
        assert!(check(&texts(&[""])).is_err());
        for words in [
            &["--league"][..],
            &["--rivals", "etcd"],
            &["--peers", "--league", "--nodes", "3"],
            &["--trace", "--callers", "2"],
        ] {
            assert!(Line::try_parse_from([&["callers"], words].concat()).is_err());
        }
    }
}
