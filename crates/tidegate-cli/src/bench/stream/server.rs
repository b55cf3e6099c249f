//! The servers of the bench, ours and nats-server: each on free ports with a directory of its own, asked what it cost, and ended
//! with the bench, however that ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::interrupt;

/// How long one may take to come up, and to answer us.
const PATIENCE: Duration = Duration::from_secs(30);
/// Runs the server, says its process id, and ends it when our end of the pipe is gone, even if we were killed.
const GUARD: &str = r#"log=$1; shift; "$@" >"$log" 2>&1 & server=$!; echo $server; read -r _; kill -9 $server; wait $server"#;

/// Who is to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Ours,
    /// Every sync takes 5 ms longer.
    OursSlow,
    /// The same, and nobody waits for callers that are about to return.
    OursSlowGreedy,
    /// Acknowledges before it syncs, which it does every two minutes.
    Nats,
    /// Syncs each message before it acknowledges it.
    NatsAlways,
}

/// A server that runs.
pub(super) struct Server {
    guard: Child,
    pid: u32,
    addr: SocketAddr,
    http: SocketAddr,
}

impl Server {
    /// Starts one with its files in `directory`, which is emptied, and waits until it is ready.
    ///
    /// # Errors
    /// It does not come up: with the last words of its log.
    pub(super) fn start(kind: Kind, directory: &Path, nats_server: &Path) -> anyhow::Result<Self> {
        let context = || directory.display().to_string();
        if directory.exists() {
            std::fs::remove_dir_all(directory).with_context(context)?;
        }
        std::fs::create_dir_all(directory).with_context(context)?;
        let (addr, http) = (free_port()?, free_port()?);
        let log = directory.join("log");
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]).arg(&log);
        arguments(&mut command, kind, directory, nats_server)?;
        command
            .args(["-a", "127.0.0.1", "-p", &addr.port().to_string()])
            .args(["-m", &http.port().to_string()]);
        let mut guard = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut pid = String::new();
        let output = guard.stdout.take().context("no pipe")?;
        BufReader::new(output).read_line(&mut pid)?;
        let mut server = Self {
            guard,
            pid: pid.trim().parse().context("the server does not start")?,
            addr,
            http,
        };
        server.wait_ready(&log)?;
        Ok(server)
    }

    fn wait_ready(&mut self, log: &Path) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            if said.contains("Server is ready") {
                return Ok(());
            }
            let gone = !Path::new(&format!("/proc/{}/stat", self.pid)).exists();
            let words = said.lines().rev().take(3).collect::<Vec<_>>().join("; ");
            ensure!(!gone, "the server ended: {words}");
            ensure!(
                Instant::now() < until && !interrupt::asked(),
                "the server does not come up: {words}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Processor time of all its threads so far, in seconds; the system counts in ticks of 10 ms.
    pub(super) fn cpu_s(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        ticks(&stat).context("/proc/PID/stat cannot be read")
    }

    /// Resident memory, MiB.
    pub(super) fn rss_mb(&self) -> Option<f64> {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", self.pid)).ok()?;
        let pages: f64 = pages.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as f64 / 1_048_576.0)
    }

    /// Subscriptions it has, its own included.
    pub(super) fn subscriptions(&self) -> anyhow::Result<u64> {
        let mut http = TcpStream::connect(self.http)?;
        http.set_read_timeout(Some(PATIENCE))?;
        http.write_all(b"GET /subsz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        http.take(1 << 20).read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
        let value: Value = serde_json::from_str(body)?;
        value["num_subscriptions"]
            .as_u64()
            .context("/subsz has no num_subscriptions")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends the server and takes its end in; killed itself, it would leave that to whoever inherits the server.
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

fn arguments(
    command: &mut Command,
    kind: Kind,
    directory: &Path,
    nats_server: &Path,
) -> anyhow::Result<()> {
    let data = directory.join("data");
    match kind {
        Kind::Ours | Kind::OursSlow | Kind::OursSlowGreedy => {
            command.arg(std::env::current_exe()?).arg("serve");
            command.arg("--data").arg(data);
            if kind != Kind::Ours {
                command.args(["--slow-sync", "5ms"]);
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

fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// User and system time of a `stat` file, as seconds.
fn ticks(stat: &str) -> Option<f64> {
    // The name may have blanks and parentheses in it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    let (user, system) = (next()?, next()?);
    Some((user + system) / rustix::param::clock_ticks_per_second() as f64)
}

/// The programs of bench/peers/go-nats.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) nats: PathBuf,
    pub(super) nats_server: PathBuf,
}

impl Programs {
    /// # Errors
    /// They are not built.
    pub(super) fn find() -> anyhow::Result<Self> {
        let root = super::super::machine::upwards("bench/peers/go-nats").unwrap_or_default();
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

    /// As nats-server says itself.
    pub(super) fn version(&self) -> Option<String> {
        let output = Command::new(&self.nats_server)
            .arg("--version")
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().rsplit_once('v')?.1.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read() {
        let per_s = rustix::param::clock_ticks_per_second() as f64;
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 3 0 9 1 1";
        assert_eq!(ticks(stat), Some(200.0 / per_s));
        assert_eq!(ticks("7 (a) S 1"), None);
    }
}
