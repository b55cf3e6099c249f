//! Runs a server that a bench measures, ours or nats-server: starts it on the given ports with a directory
//! for it, and reads its costs. The server ends with the bench, even if a signal kills the bench.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tidegate_raft::lab::{FixedEntries, RaftStep};

use super::super::machine;
use tidegate_cli::interrupt;

/// The longest time that a server may take to start, and to answer, before the bench reports a failure.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The shell script that runs the server and prints its process id. It ends the server when the bench's end
/// of the pipe closes, even if a signal killed the bench.
const GUARD: &str = r#"log=$1; shift; "$@" >"$log" 2>&1 & server=$!; echo $server; read -r _; kill -9 $server; wait $server"#;

/// The time that a server with slow syncs adds to each sync.
pub(super) const SLOW_SYNC: &str = "5ms";

/// The kinds of servers that the bench starts and compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Ours,
    /// Our server, with syncs that take 5 ms longer, to imitate a slow disk.
    OursSlow,
    /// Our server, with syncs that take 5 ms longer. It does not delay a sync for clients that are about to
    /// publish again, as our server usually does.
    OursSlowGreedy,
    /// A variant of our server that has taken the step `step` on the way from nats-server's way of writing
    /// replicated streams to ours. `slow` adds 5 ms to its syncs.
    Step {
        step: RaftStep,
        slow: bool,
    },
    /// Our server, with this round trip between the nodes, which the bench adds. `fixed` sets the number of
    /// commands in an entry and the number of entries in flight; without it the controller decides them.
    Distant {
        round_trip: Duration,
        fixed: Option<FixedEntries>,
    },
    /// nats-server with its default: it acknowledges a message before it syncs, which it does every two
    /// minutes.
    Nats,
    /// nats-server that syncs each message before it acknowledges the message.
    NatsAlways,
}

impl Kind {
    /// Returns the round trip that the bench adds between two nodes, in addition to this machine's own.
    pub(super) const fn round_trip(self) -> Duration {
        match self {
            Self::Distant { round_trip, .. } => round_trip,
            _ => Duration::ZERO,
        }
    }
}

/// The place of a node in its cluster: its name and the addresses by which the nodes find each other.
#[derive(Clone, Debug)]
pub(crate) struct Membership<'a> {
    pub(crate) name: String,
    /// The address at which the node listens to the other nodes.
    pub(crate) listen: SocketAddr,
    /// The addresses at which the nodes of the cluster listen to each other.
    pub(crate) routes: &'a [SocketAddr],
}

impl Membership<'_> {
    /// Returns the flags with which a server joins a cluster; nats-server and ours have the same flags.
    fn arguments(&self) -> Vec<String> {
        let routes = self.routes.iter().map(|at| format!("nats-route://{at}"));
        let routes: Vec<_> = routes.collect();
        let listen = format!("nats://{}", self.listen);
        let (name, routes) = (self.name.as_str(), routes.join(","));
        let flags = [
            ("--server_name", name),
            ("--cluster_name", "bench"),
            ("--cluster", &listen),
            ("--routes", &routes),
        ];
        let words = flags.iter().flat_map(|(flag, value)| [*flag, *value]);
        words.map(String::from).collect()
    }
}

/// A running server of the bench.
pub(crate) struct Server {
    guard: Child,
    pid: u32,
    addr: SocketAddr,
    http: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts a server with its files in `directory`, which this function empties, and with the given
    /// addresses for clients and for HTTP. `slow_sync` is the time that a server with slow syncs adds to
    /// each.
    ///
    /// # Errors
    ///
    /// The server does not start.
    pub(super) fn start(
        kind: Kind,
        directory: &Path,
        nats_server: &Path,
        (addr, http): (SocketAddr, SocketAddr),
        membership: Option<Membership<'_>>,
        slow_sync: &str,
    ) -> anyhow::Result<Self> {
        let mut command = guarded(directory)?;
        arguments(&mut command, kind, directory, nats_server, slow_sync)?;
        command.args(membership.map(|m| m.arguments()).unwrap_or_default());
        Self::run(command, directory, (addr, http))
    }

    /// Starts this binary of the product with its files in `directory`, which this function empties.
    ///
    /// # Errors
    ///
    /// The server does not start.
    pub(super) fn start_product(
        program: &Path,
        directory: &Path,
        addresses: (SocketAddr, SocketAddr),
    ) -> anyhow::Result<Self> {
        let data = directory.join("data");
        let words = [
            program.as_os_str(),
            "serve".as_ref(),
            "--data".as_ref(),
            data.as_ref(),
        ];
        Self::start_program(&words, directory, addresses, None)
    }

    /// Starts the program that these words name, with its log in `directory`, which this function empties.
    ///
    /// # Errors
    ///
    /// The program does not start.
    pub(crate) fn start_program(
        words: &[&OsStr],
        directory: &Path,
        addresses: (SocketAddr, SocketAddr),
        membership: Option<Membership<'_>>,
    ) -> anyhow::Result<Self> {
        let mut command = guarded(directory)?;
        command.args(words);
        command.args(membership.map(|m| m.arguments()).unwrap_or_default());
        Self::run(command, directory, addresses)
    }

    fn run(
        mut command: Command,
        directory: &Path,
        (addr, http): (SocketAddr, SocketAddr),
    ) -> anyhow::Result<Self> {
        let log = directory.join("log");
        let mut guard = command
            .args(["-a", "127.0.0.1", "-p", &addr.port().to_string()])
            .args(["-m", &http.port().to_string()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut pid = String::new();
        let output = guard.stdout.take().context("no pipe")?;
        BufReader::new(output).read_line(&mut pid)?;
        Ok(Self {
            guard,
            pid: pid.trim().parse().context("the server does not start")?,
            addr,
            http,
            log,
        })
    }

    /// Waits until the server writes into its log that it is ready for clients.
    ///
    /// # Errors
    ///
    /// The server does not come up; the error has the last lines of its log.
    pub(crate) fn wait_ready(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.said();
            if said.contains("Server is ready") {
                return Ok(());
            }
            let words = said.lines().rev().take(3).collect::<Vec<_>>().join("; ");
            ensure!(self.is_running(), "the server ended: {words}");
            ensure!(
                Instant::now() < until && !interrupt::asked(),
                "the server does not come up: {words}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the text that the server has written into its log so far.
    pub(crate) fn said(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns whether the server's process still runs.
    pub(crate) fn is_running(&self) -> bool {
        Path::new(&format!("/proc/{}/stat", self.pid)).exists()
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the processor time of all the server's threads so far, in seconds. The system counts in ticks
    /// of 10 ms.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        machine::cpu_ticks_s(&stat, false).context("/proc/PID/stat cannot be read")
    }

    /// Returns the id of the server's process.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the processor time of the server's current threads, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<u64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid))?;
        let of = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let first = stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
            first.context("/proc/PID/task/TID/schedstat cannot be read")
        };
        tasks.map(of).sum()
    }

    /// Returns the resident memory of the server in MiB.
    pub(crate) fn rss_mb(&self) -> Option<f64> {
        machine::rss_mb_of(&self.pid.to_string())
    }

    /// Returns the number of subscriptions of the server, including those that it makes for itself.
    pub(super) fn subscriptions(&self) -> anyhow::Result<u64> {
        self.monitor("/subsz")?["num_subscriptions"]
            .as_u64()
            .context("/subsz has no num_subscriptions")
    }

    /// Returns the counters of the server's log so far; zeros for a server without such counters.
    pub(super) fn written(&self) -> anyhow::Result<Written> {
        let log = &self.monitor("/jsz")?["log"];
        let count = |key: &str| log[key].as_u64().unwrap_or(0);
        Ok(Written {
            entries: count("entries"),
            commands: count("commands"),
            bytes: count("entry_bytes"),
            syncs: count("syncs"),
            second_syncs: count("second_syncs"),
        })
    }

    /// Returns the answer of the server's HTTP monitor to a request for `path`, as JSON.
    fn monitor(&self, path: &str) -> anyhow::Result<Value> {
        let mut http = TcpStream::connect(self.http)?;
        http.set_read_timeout(Some(PATIENCE))?;
        write!(http, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        http.take(1 << 20).read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
        Ok(serde_json::from_str(body)?)
    }
}

/// The counters of a node's log: the leader counts the entries that it writes, and every node counts its
/// syncs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Written {
    entries: u64,
    commands: u64,
    bytes: u64,
    syncs: u64,
    second_syncs: u64,
}

impl Written {
    /// Returns the differences to the earlier counters `before`, as columns of a row; `seconds` is the time
    /// between both.
    pub(super) fn since(&self, before: &Self, seconds: f64) -> [(&'static str, f64); 5] {
        let more = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before)) as f64;
        let (entries, syncs) = (more(|w| w.entries), more(|w| w.syncs));
        [
            (
                "commands_per_entry",
                more(|w| w.commands) / entries.max(1.0),
            ),
            ("entries_per_sync", entries / syncs.max(1.0)),
            ("kib_per_sync", more(|w| w.bytes) / syncs.max(1.0) / 1024.0),
            ("syncs_per_s", syncs / seconds),
            ("second_syncs_per_s", more(|w| w.second_syncs) / seconds),
        ]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The shell script ends the server and collects its status. If the bench killed the script first, the
        // process that inherits the server would have to do that.
        drop(self.guard.stdin.take());
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if !matches!(self.guard.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(group) = i32::try_from(self.guard.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.guard.wait();
    }
}

/// Returns a command that runs its further arguments as a server, with the log in `directory`, which this
/// function empties.
fn guarded(directory: &Path) -> anyhow::Result<Command> {
    let context = || directory.display().to_string();
    if directory.exists() {
        std::fs::remove_dir_all(directory).with_context(context)?;
    }
    std::fs::create_dir_all(directory).with_context(context)?;
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "sh"]).arg(directory.join("log"));
    Ok(command)
}

fn arguments(
    command: &mut Command,
    kind: Kind,
    directory: &Path,
    nats_server: &Path,
    slow_sync: &str,
) -> anyhow::Result<()> {
    let data = directory.join("data");
    match kind {
        Kind::Ours
        | Kind::OursSlow
        | Kind::OursSlowGreedy
        | Kind::Step { .. }
        | Kind::Distant { .. } => {
            let program = match kind {
                Kind::Ours => product()?,
                // The product has no flags for the other kinds of our server, so the bench runs them by its
                // own command `tidegate-bench serve`.
                _ => std::env::current_exe()?,
            };
            command.arg(program).arg("serve");
            command.arg("--data").arg(data);
            if let Kind::Step { step, .. } = kind {
                command.args(["--raft-step", step.name()]);
            }
            if let Kind::Distant {
                fixed: Some(fixed), ..
            } = kind
            {
                command.args(["--fixed-entries", &fixed.to_string()]);
            }
            let slow = match kind {
                Kind::OursSlow | Kind::OursSlowGreedy => true,
                Kind::Step { slow, .. } => slow,
                _ => false,
            };
            if slow {
                command.args(["--slow-sync", slow_sync]);
            }
            if kind == Kind::OursSlowGreedy {
                command.arg("--no-anticipation");
            }
        }
        Kind::Nats => {
            command.arg(nats_server).arg("-js").arg("-sd").arg(data);
        }
        Kind::NatsAlways => {
            let file = directory.join("always.conf");
            let data = data.display();
            let text = format!("jetstream {{ store_dir: \"{data}\", sync_interval: always }}\n");
            std::fs::write(&file, text)?;
            command.arg(nats_server).arg("-c").arg(file);
        }
    }
    Ok(())
}

/// Returns the path of the program `tidegate`: the file that `TIDEGATE` names, or the file beside this
/// program.
///
/// # Errors
///
/// The program is not built.
pub(crate) fn product() -> anyhow::Result<PathBuf> {
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("tidegate"));
    let path = std::env::var_os("TIDEGATE").map_or_else(beside, |path| Ok(path.into()))?;
    let text = "expected the server at this path: cargo build --release -p tidegate-cli, or name it in TIDEGATE";
    ensure!(path.is_file(), "{}: {text}", path.display());
    Ok(path)
}

/// The paths of the rival's programs in bench/peers/go-nats.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    pub(super) nats: PathBuf,
    pub(super) nats_server: PathBuf,
}

impl Programs {
    /// Finds the programs `nats` and `nats-server`.
    ///
    /// # Errors
    ///
    /// The programs are not built.
    pub(super) fn find() -> anyhow::Result<Self> {
        let root = machine::upwards("bench/peers/go-nats").unwrap_or_default();
        let bin = root.join("bench/peers/go-nats/bin");
        let programs = Self {
            nats: bin.join("nats"),
            nats_server: bin.join("nats-server"),
        };
        if !programs.nats.exists() || !programs.nats_server.exists() {
            bail!(
                "the `nats` program drives this bench and is not built: bench/peers/install.sh go-nats"
            );
        }
        Ok(programs)
    }

    /// Returns the version that nats-server reports.
    pub(super) fn version(&self) -> Option<String> {
        let output = Command::new(&self.nats_server)
            .arg("--version")
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().rsplit_once('v')?.1.to_owned())
    }
}
