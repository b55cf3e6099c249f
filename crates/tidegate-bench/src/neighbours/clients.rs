//! The process of the neighbours, the well-behaved clients of the bench `neighbours`. The process runs on one
//! core and does no other work, so that no lock or allocation of an attacker delays a measurement. The bench
//! controls the process by lines on its standard input: `start JOB`, `phase` at the start of each phase, and
//! `end`. The process answers `end` with all figures.

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::figures::{ByPhase, Report, Starts};
use super::floor;
use super::login::Logins;
use super::pace::Pace;
use super::socket::{Neighbour, Talk};

/// The interval at which the operations of a neighbour are due, on the schedule of an open loop.
pub(super) const EVERY: Duration = Duration::from_millis(5);
/// The least interval at which the logins of a user are due; the bench takes a longer one if a hash takes
/// long.
pub(super) const LOGIN_EVERY: Duration = Duration::from_millis(250);
/// The time from the start of the process until the first operations are due, so that all connections are
/// open by then.
const FIRST: Duration = Duration::from_millis(200);
/// The nice value of the neighbours' process, if the system allows it: the kernel then runs the neighbours
/// before the attackers.
const PRIORITY: i32 = -10;

/// The names of the neighbours, and of the floors: the bare write and the bare echo that show the least
/// possible latencies of the machine.
pub(super) const PUBLISHER: &str = "publisher";
pub(super) const SUBSCRIBER: &str = "subscriber";
pub(super) const PING: &str = "ping";
pub(super) const PLAIN_LOGIN: &str = "login";
pub(super) const HASH_LOGIN: &str = "login with a hash";
pub(super) const BARE_SYNC: &str = "bare write + fdatasync";
pub(super) const BARE_ECHO: &str = "bare echo";

/// The work that the bench gives to the neighbours' process, as JSON in `start`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) addr: SocketAddr,
    pub(super) echo: SocketAddr,
    /// The directory for the file to which the bare write with `fdatasync` writes.
    pub(super) directory: PathBuf,
    /// The subject of the neighbours' stream, to which the publisher publishes.
    pub(super) subject: String,
    pub(super) core: usize,
    /// The name and password of a user with a plain password.
    pub(super) plain: (String, String),
    /// The name and password of a user with a password hash.
    pub(super) hashed: (String, String),
    pub(super) hash_login_every: Duration,
    /// The longest time that an operation of a neighbour may take, before the neighbour counts it as failed.
    pub(super) patience: Duration,
}

/// Binds this thread, and the threads that it starts later, to one core, so that they do not disturb the
/// server.
pub(super) fn pin(core: usize) -> anyhow::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("core {core}"))
}

/// Answers the bench's requests as the process of the neighbours, until the bench closes its end of the pipe.
pub(crate) fn serve() -> anyhow::Result<()> {
    let mut running = None;
    for line in std::io::stdin().lock().lines() {
        let answer =
            answer(&mut running, &line?).unwrap_or_else(|e| json!({"error": format!("{e:#}")}));
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}

fn answer(running: &mut Option<Running>, request: &str) -> anyhow::Result<Value> {
    let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
    match (verb, running.as_mut()) {
        ("start", None) => {
            *running = Some(Running::start(&serde_json::from_str(rest)?)?);
            Ok(json!({}))
        }
        ("phase", Some(running)) => {
            running.advance();
            Ok(json!({}))
        }
        ("end", Some(_)) => {
            let running = running.take().context("not started")?;
            Ok(json!({"neighbours": running.end()?}))
        }
        _ => bail!("unknown request {verb}"),
    }
}

/// The threads of all neighbours, while they run.
struct Running {
    clock: Instant,
    starts: Arc<Starts>,
    threads: Vec<(&'static str, JoinHandle<anyhow::Result<ByPhase>>)>,
}

impl Running {
    fn start(job: &Job) -> anyhow::Result<Self> {
        pin(job.core)?;
        // Only root may raise the priority; without it the process goes on. At the normal priority the
        // attackers delay the bare write and the bare echo as they delay the neighbours.
        let _ = setpriority_process(None, PRIORITY);
        let mut running = Self {
            clock: Instant::now(),
            starts: Arc::new(Starts::new()),
            threads: Vec::new(),
        };
        let talks = [
            (PUBLISHER, Talk::Publish(job.subject.clone()), job.addr),
            (SUBSCRIBER, Talk::Echo, job.addr),
            (PING, Talk::Ping, job.addr),
            (BARE_ECHO, Talk::Bare, job.echo),
        ];
        for (name, talk, addr) in talks {
            let pace = Pace::new(running.first(), nanos(EVERY), Arc::clone(&running.starts));
            let (login, clock, patience) = (job.plain.clone(), running.clock, job.patience);
            running.spawn(name, move || {
                let neighbour = Neighbour {
                    talk,
                    addr,
                    login: (&login.0, &login.1),
                    pace,
                    clock,
                    patience,
                };
                Ok(neighbour.run())
            });
        }
        let (directory, first) = (job.directory.clone(), running.first());
        let (clock, starts) = (running.clock, Arc::clone(&running.starts));
        running.spawn(BARE_SYNC, move || {
            floor::syncs(&directory, (first, nanos(EVERY)), clock, &starts)
        });
        let users = [
            (PLAIN_LOGIN, &job.plain, LOGIN_EVERY),
            (HASH_LOGIN, &job.hashed, job.hash_login_every),
        ];
        for (name, (user, password), every) in users {
            let logins = Logins {
                addr: job.addr,
                user: user.clone(),
                password: password.clone(),
                first_ns: running.first(),
                every_ns: nanos(every),
                clock: running.clock,
                starts: Arc::clone(&running.starts),
                patience: job.patience,
            };
            running.spawn(name, move || Ok(logins.run()));
        }
        Ok(running)
    }

    /// Returns the time of the next neighbour's first operation, so that the operations of two neighbours are
    /// never due at the same time.
    fn first(&self) -> u64 {
        let share = nanos(EVERY) / 8;
        nanos(FIRST) + share * self.threads.len() as u64
    }

    fn spawn(
        &mut self,
        name: &'static str,
        run: impl FnOnce() -> anyhow::Result<ByPhase> + Send + 'static,
    ) {
        self.threads.push((name, std::thread::spawn(run)));
    }

    fn advance(&self) {
        self.starts.advance(nanos(self.clock.elapsed()));
    }

    fn end(self) -> anyhow::Result<Report> {
        self.advance();
        let joined = self.threads.into_iter().map(|(name, thread)| {
            let figures = thread.join().map_err(|_| anyhow!("{name} panicked"))?;
            Ok((name.to_owned(), figures.with_context(|| name.to_owned())?))
        });
        joined.collect()
    }
}

const fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}
