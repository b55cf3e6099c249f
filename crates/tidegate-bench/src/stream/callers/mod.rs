//! `tidegate-bench callers`: measures few callers that wait for each acknowledgement, on one server or on a
//! cluster of three nodes.
//!
//! One load generator drives every system: [`load`] has one thread for each caller, and each thread has one
//! blocking socket. With `--peers` the bench measures nats-server with and without a sync before each
//! acknowledgement, Redis with `appendfsync always` and PostgreSQL with one INSERT a transaction in the same
//! rounds. Two floors stand beside them: a bare write and `fdatasync`, and a bare round trip over the same
//! kind of sockets.

mod floor;
mod load;
mod nats;
#[cfg(feature = "peers")]
mod postgres;
mod redis;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, value_parser};

use super::field::Directory;
use super::server::{Kind, Programs};
use crate::OURS;
use crate::options::BenchArgs;
use crate::peers::Peers;
use crate::rounds::{Contestant, Failure, Sample};
use crate::session::Session;
use load::{Caller, Load};

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
}

/// A system that the bench measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Server(Kind),
    Redis,
    Postgres,
    /// A file that one caller writes and syncs; no socket.
    Disk,
    /// A server that answers each message without keeping it.
    Echo,
}

impl System {
    const fn name(self) -> &'static str {
        match self {
            Self::Server(Kind::Nats) => "nats-server default",
            Self::Server(Kind::NatsAlways) => "nats-server always",
            Self::Server(_) => OURS,
            Self::Redis => "redis always",
            Self::Postgres => "postgres",
            Self::Disk => "bare write + fdatasync",
            Self::Echo => "bare round trip",
        }
    }
}

/// A system that runs and takes callers.
trait Running {
    /// Connects a caller. The bench calls this from the thread of the caller.
    fn caller(&self, number: usize) -> anyhow::Result<Box<dyn Caller>>;

    /// Returns the processor time of the system's processes so far, in seconds; `None` for a system without a
    /// process of its own.
    fn cpu_s(&self) -> anyhow::Result<Option<f64>>;
}

/// Everything that a measurement needs besides its system.
#[derive(Debug)]
struct Plan {
    directory: PathBuf,
    programs: Programs,
    nodes: usize,
    bytes: usize,
    window: Duration,
    apart: bool,
    slow_sync: Option<String>,
}

/// Measures each number of callers on each system, in interleaved rounds.
pub(crate) fn run(session: &mut Session, args: &CallersArgs) -> anyhow::Result<()> {
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
    let programs = Programs::find();
    let programs = match programs {
        Err(e) if args.bench.peers => return Err(e),
        programs => programs.unwrap_or_default(),
    };
    let plan = Plan {
        directory: directory.path().to_owned(),
        programs,
        nodes: usize::from(args.nodes),
        bytes: args.bytes as usize,
        window: Duration::from_millis(window.into()),
        apart: args.apart,
        slow_sync: args.slow_sync.clone(),
    };
    for &callers in &args.callers {
        let name = name(args, callers);
        if session.wants(&name) {
            let contestants = systems(args, callers).into_iter();
            let contestants = contestants.map(|system| plan.contestant(system, callers.into()));
            session.cell(&name, contestants.collect())?;
        }
    }
    Ok(())
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
    format!("R{nodes}, {callers} {many}, {size}{slow}{apart}")
}

/// Returns the systems of a cell, ours first. A bare write has only one caller, because the next one would
/// measure the queue of the disk.
fn systems(args: &CallersArgs, callers: u16) -> Vec<System> {
    let ours = match args.slow_sync {
        Some(_) => Kind::OursSlow,
        None => Kind::Ours,
    };
    let mut all = vec![System::Server(ours)];
    if args.bench.peers && args.slow_sync.is_none() {
        all.extend([Kind::Nats, Kind::NatsAlways].map(System::Server));
        if args.nodes == 1 {
            all.push(System::Redis);
            if cfg!(feature = "peers") {
                all.push(System::Postgres);
            }
        }
    }
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
            version: self.version(system),
            controller: None,
            subject: system.name() == OURS,
            run: Box::new(move |_| {
                let measured = self.measure(system, callers);
                measured.map_err(|e| -> Failure { format!("{e:#}") })
            }),
        }
    }

    fn version(&self, system: System) -> Option<String> {
        match system {
            System::Server(Kind::Nats | Kind::NatsAlways) => self.programs.version(),
            System::Server(_) => Some(env!("CARGO_PKG_VERSION").into()),
            System::Redis => redis::version(),
            _ => None,
        }
    }

    /// Starts the system, measures the callers on it, and ends it.
    fn measure(&self, system: System, callers: usize) -> anyhow::Result<Sample> {
        let directory = self.directory.join("callers");
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::create_dir_all(&directory)?;
        // The sync writes the data that another system left in the cache, so that this system does not have
        // to wait for it.
        rustix::fs::sync();
        if self.apart {
            load::place(load::Side::Servers)?;
        }
        let running = self.start(system, &directory)?;
        if self.apart {
            load::place(load::Side::Callers)?;
        }
        let load = Load {
            callers,
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
            #[cfg(not(feature = "peers"))]
            System::Postgres => anyhow::bail!("this build lacks PostgreSQL: --features peers"),
            System::Disk => Box::new(floor::Disk::open(directory, self.bytes)?),
            System::Echo => Box::new(floor::Echo::start(self.bytes)?),
        })
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
}
