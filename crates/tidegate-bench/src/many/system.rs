//! Starts, kills and stops one server of the bench `many`, and starts the server again with the same data.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tidegate_cli::interrupt;

use super::figures::{Look, Rest, has_ended};
use crate::stream::{Server, product};
use crate::systems::System;
use crate::wire::Wire;

/// The longest time of one attempt to reach a starting server, before the bench tries again.
const ATTEMPT: Duration = Duration::from_secs(20);
/// The pause between two attempts to reach a server, and between two checks if a process has ended.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of times that the bench reads a server's memory and processor time in the time of `--idle`,
/// while it waits until the server is at rest.
const LOOKS: u32 = 25;

/// The parts of a server that outlive its process: the directory, the program and the limits.
pub(crate) struct Home {
    pub(crate) system: System,
    /// The directory of the server's data and its log.
    pub(crate) directory: PathBuf,
    pub(crate) nats_server: Option<PathBuf>,
    /// The longest time that each start and each stop of the server may take.
    pub(crate) patience: Duration,
}

/// A running server, with the connection over which the bench sends its requests.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) wire: Wire,
    /// The time from the start of the process until the server had done its first request.
    pub(crate) started: Duration,
}

impl Home {
    /// Starts the server with the data in its directory, and waits until `first` succeeds on a new
    /// connection. Tries `first` again after an error.
    ///
    /// # Errors
    ///
    /// The server does not start, ends, or `first` does not succeed in time.
    pub(crate) fn start(
        &self,
        first: impl Fn(&mut Wire, Instant) -> anyhow::Result<()>,
    ) -> anyhow::Result<Running> {
        let data = self.directory.join("data");
        let program = match self.system {
            System::Ours => product()?,
            _ => self.nats_server.clone().context("no nats-server")?,
        };
        let mut words: Vec<&OsStr> = vec![program.as_ref()];
        match self.system {
            System::Ours => words.extend([OsStr::new("serve"), "--data".as_ref()]),
            _ => words.extend([OsStr::new("-js"), "-sd".as_ref()]),
        }
        words.push(data.as_ref());
        let (log, addresses) = (self.directory.join("log"), addresses()?);
        let start = Instant::now();
        let server = Server::start_program(&words, &log, addresses, None)?;
        let until = start + self.patience;
        loop {
            let attempt = Instant::now() + ATTEMPT;
            let wire = Wire::open(server.addr(), None, ("", ""), ATTEMPT).and_then(|mut wire| {
                first(&mut wire, attempt.min(until))?;
                Ok(wire)
            });
            match wire {
                Ok(wire) => {
                    return Ok(Running {
                        server,
                        wire,
                        started: start.elapsed(),
                    });
                }
                Err(_) if interrupt::asked() => bail!("interrupted"),
                Err(_) if runs(&server) && Instant::now() < until => std::thread::sleep(PAUSE),
                Err(e) => {
                    let (said, seconds) = (last_words(&server), self.patience.as_secs());
                    let text = format!("the server does not come up within {seconds} s: {said}");
                    return Err(e.context(text));
                }
            }
        }
    }
}

/// Returns two free addresses of this machine, on which a server listens for clients and for the monitor.
fn addresses() -> anyhow::Result<(SocketAddr, SocketAddr)> {
    // The function binds both ports at once, so that the system gives two different ports.
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let ports = (bind()?, bind()?);
    Ok((ports.0.local_addr()?, ports.1.local_addr()?))
}

fn runs(server: &Server) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid()));
    stat.is_ok_and(|stat| !has_ended(&stat))
}

fn last_words(server: &Server) -> String {
    let said = server.said();
    said.lines().rev().take(2).collect::<Vec<_>>().join("; ")
}

impl Running {
    /// Waits until the server is at rest, but not longer than `longest`. Returns the server's memory in MiB
    /// at the end, and whether the server came to rest.
    ///
    /// # Errors
    ///
    /// The server is gone, or the user pressed Ctrl-C.
    pub(crate) fn rest(&self, idle: Duration, longest: Duration) -> anyhow::Result<(f64, bool)> {
        let (start, mut rest) = (Instant::now(), Rest::default());
        loop {
            let rss_mb = self.server.rss_mb().context("the server is gone")?;
            rest.look(Look {
                at_s: start.elapsed().as_secs_f64(),
                cpu_s: self.cpu_s()?,
                rss_mb,
            });
            if rest.is_reached() || start.elapsed() > longest {
                return Ok((rss_mb, rest.is_reached()));
            }
            ensure!(!interrupt::asked(), "interrupted");
            std::thread::sleep(idle / LOOKS);
        }
    }

    /// Returns the share of one processor, in per cent, that the idle server takes over the given time.
    ///
    /// # Errors
    ///
    /// The server is gone.
    pub(crate) fn idle_percent(&self, time: Duration) -> anyhow::Result<f64> {
        let (start, before) = (Instant::now(), self.cpu_s()?);
        std::thread::sleep(time);
        let used = (self.cpu_s()? - before).max(0.0);
        Ok(used / start.elapsed().as_secs_f64() * 100.0)
    }

    /// Returns the processor time of the server's threads in seconds, which the system counts in nanoseconds.
    fn cpu_s(&self) -> anyhow::Result<f64> {
        ensure!(
            runs(&self.server),
            "the server ended: {}",
            last_words(&self.server)
        );
        Ok(self.server.cpu_ns()? as f64 / 1e9)
    }

    /// Kills the server with SIGKILL, like a crash, and waits until its process has ended.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Asks the server to stop in order by SIGTERM, and returns the time until its process has ended.
    ///
    /// # Errors
    ///
    /// The server does not stop in time.
    pub(crate) fn stop(self, patience: Duration) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let pid = i32::try_from(self.server.pid())
            .ok()
            .and_then(Pid::from_raw);
        kill_process(pid.context("no process id")?, Signal::TERM)?;
        while runs(&self.server) {
            let seconds = patience.as_secs();
            ensure!(
                start.elapsed() < patience,
                "the server does not stop within {seconds} s"
            );
            ensure!(!interrupt::asked(), "interrupted");
            std::thread::sleep(PAUSE);
        }
        drop(self);
        Ok(start.elapsed())
    }
}
