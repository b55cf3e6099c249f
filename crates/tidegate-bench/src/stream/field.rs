//! The field of a bench of streams: the systems that the bench compares, and their measurements. The field
//! starts each system when a cell first needs it, in a directory of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::super::machine;
use super::super::rounds::{Failure, Sample};
use super::super::session::Session;
use super::cell::{Cell, Work};
use super::load::{self, Load};
use super::program::Run;
use super::server::{Kind, Programs};
use super::servers::Servers;

/// The name of the consumer through which `nats bench` reads by default, which the bench deletes before each
/// run.
const CONSUMER: &str = "nats-bench";
/// The name of the stream to which the `nats` program publishes.
const STREAM: &str = "bench";
/// The intended duration of a measurement. The first run of a system finds the number of messages for that
/// duration, and does not count.
const WINDOW: Duration = Duration::from_millis(1500);

/// The directory of the servers' files, which the bench removes at its end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Creates the directory below `TIDEGATE_BENCH_DIR`, or in the build directory, which is on a disk, while
    /// the system's temporary directory may be in memory.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let parent = match std::env::var_os("TIDEGATE_BENCH_DIR") {
            Some(directory) => PathBuf::from(directory),
            None => machine::upwards("target")
                .map_or_else(std::env::temp_dir, |root| root.join("target")),
        };
        let path = parent.join(format!("bench-stream-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        const TMPFS: u64 = 0x0102_1994;
        rustix::fs::statfs(&self.0).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A leftover directory costs space and does no harm, so the bench ignores a failed removal.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The systems that a bench of streams compares. The field `servers` comes before the directory, so that Rust
/// drops the servers first.
pub(super) struct Field {
    /// The number of nodes of each system.
    nodes: usize,
    servers: BTreeMap<Kind, Servers>,
    /// The contents of the stream that clients read in the reading cells, by system: the bytes of each
    /// message and the number of messages.
    filled: BTreeMap<Kind, (usize, u64)>,
    programs: Programs,
    directory: Directory,
    window: Duration,
}

impl Field {
    /// Creates the field without starting a system. Each system gets `nodes` nodes at its start.
    pub(super) fn new(nodes: usize, programs: Programs, session: &Session) -> anyhow::Result<Self> {
        let directory = Directory::make()?;
        session.say(&format!("data in {}", directory.0.display()));
        if directory.is_in_memory() {
            session.say(
                "that is memory and no disk: syncs cost nothing there; set TIDEGATE_BENCH_DIR",
            );
        }
        let window = if session.is_smoke() {
            Duration::from_millis(20)
        } else {
            WINDOW
        };
        Ok(Self {
            nodes,
            servers: BTreeMap::new(),
            filled: BTreeMap::new(),
            programs,
            directory,
            window,
        })
    }

    /// Returns the directory in which the bench may create further files, and the duration of a measurement.
    pub(super) fn ground(&self) -> (&Path, Duration) {
        (&self.directory.0, self.window)
    }

    fn servers(&mut self, kind: Kind) -> Result<&Servers, Failure> {
        if matches!(kind, Kind::Step { .. }) {
            self.keep_only(&[kind]);
        }
        if !self.servers.contains_key(&kind) {
            let directory = self.directory.0.join(format!("{kind:?}"));
            let servers = Servers::start(kind, self.nodes, &directory, &self.programs.nats_server);
            self.servers.insert(kind, servers.map_err(text)?);
        }
        self.servers.get(&kind).ok_or_else(|| "no server".into())
    }

    /// Ends all systems except `kinds` and deletes their data, so that few systems run side by side.
    pub(super) fn keep_only(&mut self, kinds: &[Kind]) {
        for (kind, servers) in std::mem::take(&mut self.servers) {
            if kinds.contains(&kind) {
                self.servers.insert(kind, servers);
                continue;
            }
            drop(servers);
            // A leftover directory does no harm, because the system's next start empties it.
            let _ = std::fs::remove_dir_all(self.directory.0.join(format!("{kind:?}")));
        }
    }

    /// Returns the number of messages with which a measurement takes the intended time. The bench finds the
    /// number in two steps, because the first few messages are slower than the rest.
    pub(super) fn calibrated(&mut self, kind: Kind, cell: &Cell) -> Result<u64, Failure> {
        let seconds = self.window.as_secs_f64() * cell.windows();
        let (min, max) = (cell.messages_min(), cell.messages_max());
        let mut messages = min;
        for part in [0.2, 1.0] {
            let rate = self.measure(kind, cell, messages)?.ops_per_s;
            messages = ((rate * seconds * part) as u64).clamp(min, max);
        }
        Ok(messages)
    }

    /// Runs a load of this many messages once, and measures the processor time of the servers and of the load
    /// generator with it.
    pub(super) fn measure(
        &mut self,
        kind: Kind,
        cell: &Cell,
        messages: u64,
    ) -> Result<Sample, Failure> {
        if matches!(cell.work, Work::Consume | Work::Fetch) {
            self.fill(kind, cell, messages)?;
        }
        let program = self.programs.nats.clone();
        let servers = self.servers(kind)?;
        let at = match cell.at_leader {
            true => servers.leader(stream_of(cell)).map_err(text)?,
            false => None,
        };
        let at = at.map_or_else(|| servers.addrs(), |leader| vec![leader]);
        // The sync writes the data that another system left in the cache, so that the measured system does
        // not have to wait for it.
        rustix::fs::sync();
        let written = servers.written().map_err(text)?;
        let before = (servers.cpu_s().map_err(text)?, client_cpu_s());
        let mut sample = load(&program, servers, &at, cell, messages)?;
        let after = (servers.cpu_s().map_err(text)?, client_cpu_s());
        sample.rss_mb = servers.rss_mb();
        let each = |seconds: f64| seconds * 1e6 / messages as f64;
        let cpu: Vec<f64> = after
            .0
            .iter()
            .zip(&before.0)
            .map(|(a, b)| each(a - b))
            .collect();
        let mut put = |key: &str, value: f64| sample.extra.insert(key.into(), value);
        put("server_cpu_us", cpu.iter().sum());
        put("mb_per_s", sample.ops_per_s * cell.bytes as f64 / 1e6);
        if let (Some(before), Some(after)) = (before.1, after.1) {
            put("client_cpu_us", each(after - before));
        }
        if cpu.len() > 1 {
            let leader = match cell.work {
                // Each of the many streams may have another leader, so the costs of the nodes have no column
                // for a leader.
                Work::Streams { .. } => None,
                _ => servers.leader(stream_of(cell)).map_err(text)?,
            };
            for (key, value) in roles(&servers.addrs(), leader, &cpu) {
                put(&key, value);
            }
            let leads = |addr: &SocketAddr| Some(*addr) == leader;
            if let Some(at) = servers.addrs().iter().position(leads)
                && matches!(kind, Kind::Step { .. } | Kind::Distant { .. })
            {
                let after = servers.written().map_err(text)?;
                let seconds = messages as f64 / sample.ops_per_s;
                for (key, value) in after[at].since(&written[at], seconds) {
                    sample.extra.insert(key.into(), value);
                }
                sample.extra.insert("messages".into(), messages as f64);
            }
        }
        Ok(sample)
    }

    /// Publishes the messages for the clients of a reading cell, unless the stream already has them.
    fn fill(&mut self, kind: Kind, cell: &Cell, messages: u64) -> Result<(), Failure> {
        let there = self.filled.get(&kind);
        if there.is_some_and(|(bytes, n)| *bytes == cell.bytes && *n >= messages) {
            return Ok(());
        }
        let program = self.programs.nats.clone();
        let servers = self.servers(kind)?;
        let cell_of_ten = Cell {
            clients: 10,
            ..cell.clone()
        };
        let args = publish("async", &cell_of_ten, messages, "readers");
        Run::start(&program, &servers.addrs(), &args)?.report()?;
        self.filled.insert(kind, (cell.bytes, messages));
        Ok(())
    }
}

/// Returns the name of the stream to which the load of a cell publishes, or of the first of several streams.
const fn stream_of(cell: &Cell) -> &'static str {
    match cell.work {
        Work::Streams { .. } | Work::Lone | Work::Distant { .. } => load::FIRST_STREAM,
        _ => STREAM,
    }
}

fn text(error: anyhow::Error) -> Failure {
    format!("{error:#}")
}

/// Returns the processor time, in seconds, of the load generator: of this process and of its children that
/// have ended. The servers are not among these children.
fn client_cpu_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    machine::cpu_ticks_s(&stat, true)
}

/// Names the processor times of the nodes for the row: first the leader's, then the followers', the greater
/// first. If there is no leader, all nodes have the name `node`.
fn roles(addrs: &[SocketAddr], leader: Option<SocketAddr>, cpu: &[f64]) -> Vec<(String, f64)> {
    let (mut all, mut others) = (Vec::new(), Vec::new());
    for (addr, cpu) in addrs.iter().zip(cpu) {
        if Some(*addr) == leader {
            all.push(("leader_cpu_us".to_owned(), *cpu));
        } else {
            others.push(*cpu);
        }
    }
    others.sort_by(|a, b| b.total_cmp(a));
    let name = if all.is_empty() { "node" } else { "follower" };
    let named = |(i, cpu)| (format!("{name}_{}_cpu_us", i + 1), cpu);
    all.extend(others.into_iter().enumerate().map(named));
    all
}

fn load(
    program: &Path,
    servers: &Servers,
    at: &[SocketAddr],
    cell: &Cell,
    messages: u64,
) -> Result<Sample, Failure> {
    let nats = |args: &[String]| Run::start(program, at, args)?.report();
    let raw = |streams, window| {
        let load = Load {
            clients: cell.clients,
            bytes: cell.bytes,
            streams,
            replicas: cell.replicas,
            window,
            messages,
        };
        load.run(at).map_err(text)
    };
    match cell.work {
        Work::Async | Work::Steps { .. } => nats(&publish("async", cell, messages, STREAM)),
        Work::Sync | Work::Slowed => nats(&publish("sync", cell, messages, STREAM)),
        Work::Streams { streams, sync } => raw(streams, if sync { 1 } else { 500 }),
        Work::Lone => raw(1, 1),
        Work::Distant { window, .. } => raw(1, window),
        Work::Consume | Work::Fetch => {
            // An earlier run of the `nats` program left its consumer, which has read the whole stream
            // already, so the bench deletes the consumer.
            load::delete_consumer(at, "readers", CONSUMER).map_err(text)?;
            let how = if cell.work == Work::Fetch {
                "fetch"
            } else {
                "consume"
            };
            nats(&read(how, messages))
        }
        Work::Core { subscribers } => core(program, servers, cell.bytes, messages, subscribers),
    }
}

/// Measures the messages a second that all subscribers together receive, without a stream.
fn core(
    program: &Path,
    servers: &Servers,
    bytes: usize,
    messages: u64,
    subscribers: usize,
) -> Result<Sample, Failure> {
    let common = [
        format!("--msgs={messages}"),
        format!("--size={bytes}"),
        "--no-progress".into(),
    ];
    let args = |what: &str, more: &[String]| {
        let words = ["bench", what, "bench.core"].map(String::from);
        [&words[..], &common, more].concat()
    };
    let subscriptions = || servers.subscriptions().map_err(text);
    let wanted = subscriptions()? + subscribers as u64;
    let sub = Run::start(
        program,
        &servers.addrs(),
        &args("sub", &[format!("--clients={subscribers}")]),
    )?;
    // The subscribers report that they are ready before the server has their subscriptions, so the bench asks
    // the server for their number.
    for _ in 0..2000 {
        if subscriptions()? >= wanted {
            Run::start(program, &servers.addrs(), &args("pub", &[]))?.report()?;
            return sub.report();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("the subscribers do not come up".into())
}

fn publish(how: &str, cell: &Cell, messages: u64, stream: &str) -> Vec<String> {
    let words = ["bench", "js", "pub", how, stream].map(String::from);
    let more = [
        format!("--stream={stream}"),
        format!("--clients={}", cell.clients),
        format!("--msgs={messages}"),
        format!("--size={}", cell.bytes),
        format!("--replicas={}", cell.replicas),
        // nats-server reserves the maximum size of a stream on each node, so the size falls with the number
        // of replicas.
        format!("--maxbytes={}MB", 8000 / cell.replicas),
    ];
    let fixed = ["--create", "--purge", "--storage=file", "--no-progress"];
    [&words[..], &more, &fixed.map(String::from)].concat()
}

fn read(how: &str, messages: u64) -> Vec<String> {
    let words = [
        "bench",
        "js",
        how,
        "--stream=readers",
        "--batch=500",
        "--no-progress",
    ];
    let mut args = words.map(String::from).to_vec();
    args.push(format!("--msgs={messages}"));
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_the_names_of_roles() {
        let addrs = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let named = |leader| {
            let all = roles(&addrs, leader, &[5.0, 9.0, 7.0]);
            all.into_iter()
                .map(|(key, value)| format!("{key} {value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            named(Some(addrs[0])),
            [
                "leader_cpu_us 5",
                "follower_1_cpu_us 9",
                "follower_2_cpu_us 7"
            ]
        );
        assert_eq!(
            named(None),
            ["node_1_cpu_us 9", "node_2_cpu_us 7", "node_3_cpu_us 5"]
        );
    }
}
