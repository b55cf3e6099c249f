//! Starts, kills and stops one server or one cluster of the bench `many`, and starts it again with the same
//! data.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tidegate_cli::interrupt;

use super::figures::{Look, Rest, has_ended};
use crate::stream::{Membership, Server, product};
use crate::systems::System;
use crate::wire::Wire;

/// The longest time of one attempt to reach a starting server, before the bench tries again.
const ATTEMPT: Duration = Duration::from_secs(20);
/// The same for a cluster, which may lose a request while its nodes choose leaders.
const ATTEMPT_OF_CLUSTER: Duration = Duration::from_secs(2);
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
    /// The addresses of the nodes of a cluster, which stay the same over all starts; empty for one server.
    pub(crate) members: Vec<Member>,
}

/// The addresses of one node of a cluster: for clients, for the monitor and for the other nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    client: SocketAddr,
    monitor: SocketAddr,
    route: SocketAddr,
}

/// Returns free addresses for the nodes of a cluster; none for one server.
pub(crate) fn members(nodes: usize) -> anyhow::Result<Vec<Member>> {
    if nodes <= 1 {
        return Ok(Vec::new());
    }
    let addresses = addresses(3 * nodes)?;
    let member = |of: &[SocketAddr]| Member {
        client: of[0],
        monitor: of[1],
        route: of[2],
    };
    Ok(addresses.chunks(3).map(member).collect())
}

/// A running server, or the running nodes of a cluster, with the connection over which the bench sends its
/// requests.
pub(crate) struct Running {
    /// The server, or the node to which the bench is connected.
    pub(crate) server: Server,
    /// The other nodes of a cluster.
    pub(crate) others: Vec<Server>,
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
        let start = Instant::now();
        let mut others = self.launch()?;
        let server = others.remove(0);
        let until = start + self.patience;
        let longest = match others.is_empty() {
            true => ATTEMPT,
            false => ATTEMPT_OF_CLUSTER,
        };
        loop {
            let attempt = Instant::now() + longest;
            let wire = Wire::open(server.addr(), None, ("", ""), longest).and_then(|mut wire| {
                first(&mut wire, attempt.min(until))?;
                Ok(wire)
            });
            let all_run = runs(&server) && others.iter().all(runs);
            match wire {
                Ok(wire) => {
                    return Ok(Running {
                        server,
                        others,
                        wire,
                        started: start.elapsed(),
                    });
                }
                Err(_) if interrupt::asked() => bail!("interrupted"),
                Err(_) if all_run && Instant::now() < until => std::thread::sleep(PAUSE),
                Err(e) => {
                    let (said, seconds) = (last_words(&server), self.patience.as_secs());
                    let text = format!("the server does not come up within {seconds} s: {said}");
                    return Err(e.context(text));
                }
            }
        }
    }
}

impl Home {
    /// Starts the process of the server, or of each node of the cluster.
    fn launch(&self) -> anyhow::Result<Vec<Server>> {
        if self.members.is_empty() {
            let addresses = addresses(2)?;
            let addresses = (addresses[0], addresses[1]);
            return Ok(vec![self.launch_one(&self.directory, addresses, None)?]);
        }
        let routes: Vec<SocketAddr> = self.members.iter().map(|member| member.route).collect();
        let launch = |(n, member): (usize, &Member)| {
            let name = format!("n{}", n + 1);
            let directory = self.directory.join(&name);
            let membership = Membership {
                name,
                listen: member.route,
                routes: &routes,
            };
            self.launch_one(
                &directory,
                (member.client, member.monitor),
                Some(membership),
            )
        };
        self.members.iter().enumerate().map(launch).collect()
    }

    fn launch_one(
        &self,
        directory: &Path,
        addresses: (SocketAddr, SocketAddr),
        membership: Option<Membership<'_>>,
    ) -> anyhow::Result<Server> {
        let (data, log) = (directory.join("data"), directory.join("log"));
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
        Server::start_program(&words, &log, addresses, membership)
    }
}

/// Returns this number of free addresses of this machine.
fn addresses(count: usize) -> anyhow::Result<Vec<SocketAddr>> {
    // The function binds all ports at once, so that the system gives different ports.
    let ports = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let ports: Vec<TcpListener> = ports.collect::<Result<_, _>>()?;
    let addresses = ports.iter().map(TcpListener::local_addr);
    Ok(addresses.collect::<Result<_, _>>()?)
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
            let rss_mb = self.rss_mb().context("the server is gone")?;
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

    /// Iterates over the server, or over all nodes of the cluster.
    fn servers(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.server).chain(&self.others)
    }

    /// Returns the resident memory of the server, or of all nodes together, in MiB.
    pub(crate) fn rss_mb(&self) -> Option<f64> {
        self.servers().map(Server::rss_mb).sum()
    }

    /// Returns the processor time of the server so far, or of all nodes together, in seconds. The system
    /// counts in ticks of 10 ms.
    pub(crate) fn ticked_s(&self) -> anyhow::Result<f64> {
        self.servers().map(Server::cpu_s).sum()
    }

    /// Returns the processor time of the server's threads in seconds, which the system counts in nanoseconds;
    /// of all nodes together for a cluster.
    fn cpu_s(&self) -> anyhow::Result<f64> {
        let mut all_ns = 0;
        for server in self.servers() {
            ensure!(runs(server), "the server ended: {}", last_words(server));
            all_ns += server.cpu_ns()?;
        }
        Ok(all_ns as f64 / 1e9)
    }

    /// Kills the server, or all nodes, with SIGKILL, like a crash, and waits until the processes have ended.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Asks the server, or all nodes, to stop in order by SIGTERM, and returns the time until the processes
    /// have ended.
    ///
    /// # Errors
    ///
    /// The server does not stop in time.
    pub(crate) fn stop(self, patience: Duration) -> anyhow::Result<Duration> {
        let start = Instant::now();
        for server in self.servers() {
            let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw);
            kill_process(pid.context("no process id")?, Signal::TERM)?;
        }
        while self.servers().any(runs) {
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
