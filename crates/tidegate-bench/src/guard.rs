//! Runs a server under a shell script that ends the server with the bench, even if a signal kills the bench.
//! Finds the processes of such a server, for their processor time and for a trace.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::machine;
use tidegate_cli::interrupt;

/// The longest time that a server may take to end, before the bench kills the shell script, too.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two attempts to reach a server that starts.
const PAUSE: Duration = Duration::from_millis(5);
/// The lines of a server's log that an error quotes.
const QUOTED: usize = 3;
/// The script prints the id of the server's process. At its end it kills the rest of its process group,
/// because a server may have started processes of its own.
const SCRIPT: &str = r#"log=$1; shift; "$@" >"$log" 2>&1 </dev/null & server=$!; echo $server
read -r _; kill -9 $server; wait $server; kill -9 0"#;

/// A running server, which ends with this value.
#[derive(Debug)]
pub(crate) struct Guard {
    script: Child,
    pid: u32,
    log: PathBuf,
}

impl Guard {
    /// Starts the server of this command, with its output in the file `log`.
    ///
    /// # Errors
    ///
    /// The shell does not start, or prints no process id.
    pub(crate) fn start(command: &Command, log: &Path) -> anyhow::Result<Self> {
        let mut script = Command::new("sh");
        script.args(["-c", SCRIPT, "sh"]).arg(log);
        script.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            script.current_dir(directory);
        }
        let mut script = script
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = script.stdout.take();
        let mut guard = Self {
            script,
            pid: 0,
            log: log.to_owned(),
        };
        let mut line = String::new();
        BufReader::new(output.context("no pipe")?).read_line(&mut line)?;
        guard.pid = line.trim().parse().context("the server does not start")?;
        Ok(guard)
    }

    /// Calls `attempt` until it succeeds, because a server that starts refuses its first clients.
    ///
    /// # Errors
    ///
    /// The server ends, or does not come up within `patience`; the error quotes its log.
    pub(crate) fn wait_ready<T>(
        &self,
        patience: Duration,
        mut attempt: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let until = Instant::now() + patience;
        loop {
            let error = match attempt() {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            ensure!(self.is_running(), "the server ended: {}", self.said());
            let is_over = Instant::now() > until || interrupt::asked();
            ensure!(
                !is_over,
                "the server does not come up: {error:#}: {}",
                self.said()
            );
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the last lines of the server's log, for an error message.
    pub(crate) fn said(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut last: Vec<_> = lines.rev().take(QUOTED).collect();
        last.reverse();
        match last.is_empty() {
            true => "its log is empty".into(),
            false => last.join("; "),
        }
    }

    /// Returns the ids of the server's processes.
    pub(crate) fn processes(&self) -> anyhow::Result<Vec<u32>> {
        processes_below(self.script.id())
    }

    /// Returns the processor time of the server's processes so far, in seconds.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        cpu_s_below(self.script.id())
    }

    fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| !is_ended(&stat))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The script ends the server as soon as its input closes.
        drop(self.script.stdin.take());
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if !matches!(self.script.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let group = i32::try_from(self.script.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.script.wait();
    }
}

/// Returns `N` different free ports of loopback. Another process may take a port before the server binds it;
/// then the server does not come up.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let mut addrs = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    // All ports stay bound until the last one is known, so that they differ.
    let mut bound = Vec::with_capacity(N);
    for addr in &mut addrs {
        let listener = TcpListener::bind(*addr)?;
        *addr = listener.local_addr()?;
        bound.push(listener);
    }
    Ok(addrs)
}

/// Returns the ids of the descendants of a process.
pub(crate) fn processes_below(ancestor: u32) -> anyhow::Result<Vec<u32>> {
    let stats = stats()?;
    Ok(descendants(ancestor, &stats).map(|(pid, _)| pid).collect())
}

/// Returns the processor time of the descendants of a process so far, in seconds.
pub(crate) fn cpu_s_below(ancestor: u32) -> anyhow::Result<f64> {
    Ok(descendants_cpu_s(ancestor, &stats()?))
}

/// Returns the ids of all processes with their files `stat`.
fn stats() -> std::io::Result<Vec<(u32, String)>> {
    let mut stats = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let stat = std::fs::read_to_string(entry.path().join("stat"));
        // A process may end between the two calls.
        if let (Some(pid), Ok(stat)) = (pid, stat) {
            stats.push((pid, stat));
        }
    }
    Ok(stats)
}

/// Returns the descendants of a process with their files `stat`, parents first.
fn descendants(ancestor: u32, stats: &[(u32, String)]) -> impl Iterator<Item = (u32, &str)> {
    let mut family = vec![(ancestor, "")];
    let mut at = 0;
    while let Some(&(of, _)) = family.get(at) {
        at += 1;
        let children = stats.iter().filter(|(_, stat)| parent(stat) == Some(of));
        family.extend(children.map(|(pid, stat)| (*pid, stat.as_str())));
    }
    family.into_iter().skip(1)
}

fn descendants_cpu_s(ancestor: u32, stats: &[(u32, String)]) -> f64 {
    let family = descendants(ancestor, stats);
    family
        .filter_map(|(_, stat)| machine::cpu_ticks_s(stat, false))
        .sum()
}

/// Returns the fields of a file `stat` behind the process's name, which may contain blanks and parentheses.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace()
}

fn parent(stat: &str) -> Option<u32> {
    fields(stat).nth(1)?.parse().ok()
}

/// Returns whether the process has ended and only waits for its parent.
fn is_ended(stat: &str) -> bool {
    fields(stat).next() == Some("Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_is_that_of_all_descendants() {
        let stat = |parent: u32, ticks: u32| {
            format!("1 (a b) S {parent} 0 0 0 0 0 0 0 0 0 {ticks} 0 0 0 0 0 1 0 5")
        };
        let stats = [(2, stat(1, 100)), (3, stat(2, 50)), (4, stat(9, 700))];
        let per_s = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(descendants_cpu_s(1, &stats), 150.0 / per_s);
        let pids: Vec<_> = descendants(1, &stats).map(|(pid, _)| pid).collect();
        assert_eq!(pids, [2, 3]);
        assert!(is_ended("7 (a) b) Z 1 7") && !is_ended("7 (Z) S 1 7"));
    }

    #[test]
    fn a_server_that_ends_is_reported_with_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no $REASON; exit 3"]);
        command.env("REASON", "port");
        let guard = Guard::start(&command, &directory.path().join("log")).unwrap();
        let up = guard.wait_ready(Duration::from_secs(60), || -> anyhow::Result<()> {
            anyhow::bail!("refused")
        });
        assert_eq!(up.unwrap_err().to_string(), "the server ended: no port");
    }

    #[test]
    fn a_server_ends_with_its_guard_and_so_do_the_processes_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & : >\"$1\"; wait", "sh"]);
        command.arg(&ready);
        let guard = Guard::start(&command, &directory.path().join("log")).unwrap();
        let found = guard.wait_ready(Duration::from_secs(60), || {
            ensure!(ready.exists(), "not ready");
            guard.processes()
        });
        let found = found.unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(guard.cpu_s().unwrap() >= 0.0);
        drop(guard);
        let until = Instant::now() + Duration::from_secs(60);
        let runs = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| !is_ended(&stat))
        };
        while found.iter().any(runs) {
            assert!(Instant::now() < until, "a process is still there");
            std::thread::yield_now();
        }
    }
}
