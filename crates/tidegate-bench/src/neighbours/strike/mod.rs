//! The process of the attackers, on the same core as the neighbours. The bench controls the process by two
//! lines on its standard input: `prepare JOB`, then `strike`. The connections of the attack end with the
//! process.

mod hellos;
mod logins;
mod monitor;
mod streams;
mod subscribers;
mod subscriptions;
mod wildcards;

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::attack::{Attack, Deed, LASTS, scaled};
use super::clients::pin;
use crate::wire::Wire;

/// The work that the bench gives to the attackers' process, as JSON in `prepare`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) attack: String,
    /// The number of messages, clients, subscriptions or streams of the attack, already multiplied by the
    /// scale.
    pub(super) amount: u64,
    /// The factor by which the attackers multiply the attack's other amounts.
    pub(super) scale: f64,
    pub(super) addr: SocketAddr,
    pub(super) http: SocketAddr,
    /// The address from which the attackers connect; `None` for the neighbours' address.
    pub(super) source: Option<IpAddr>,
    pub(super) core: usize,
    /// The name and password of a user with a plain password.
    pub(super) plain: (String, String),
    /// The name of a user with a password hash.
    pub(super) hashed: String,
    /// The longest time that the preparation may take; `strike_max` is the longest time of the attack itself.
    pub(super) prepare_max: Duration,
    pub(super) strike_max: Duration,
    /// The shortest duration of an attack that repeats its requests.
    pub(super) window: Duration,
}

impl Job {
    /// Opens an attacker's connection to the server, and logs in.
    fn wire(&self) -> anyhow::Result<Wire> {
        let login = (self.plain.0.as_str(), self.plain.1.as_str());
        Wire::open(self.addr, self.source, login, self.strike_max)
    }

    /// Returns the duration of an attack that would otherwise continue without end.
    fn lasts(&self) -> Duration {
        LASTS
            .mul_f64(self.scale)
            .max(self.window)
            .min(self.strike_max)
    }
}

/// The results of an attack, as the attackers report them to the bench.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Deeds {
    /// The amounts and times that the attackers measured, by their names.
    pub(super) figures: BTreeMap<String, f64>,
    /// The reason why a part of the attack did not succeed; `None` if all of it succeeded.
    pub(super) note: Option<String>,
}

impl Deeds {
    fn put(mut self, name: &str, value: f64) -> Self {
        self.figures.insert(name.to_owned(), value);
        self
    }

    fn note(mut self, note: String) -> Self {
        self.note = Some(note);
        self
    }
}

/// A prepared attack. A call runs the attack, which ends at the given time at the latest.
type Strike = Box<dyn FnOnce(Instant) -> anyhow::Result<Deeds>>;

/// Answers the bench's requests as the process of the attackers, until the bench closes its end of the pipe.
pub(crate) fn serve() -> anyhow::Result<()> {
    let mut prepared = None;
    for line in std::io::stdin().lock().lines() {
        let answer =
            answer(&mut prepared, &line?).unwrap_or_else(|e| json!({"error": format!("{e:#}")}));
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}

fn answer(prepared: &mut Option<(Strike, Duration)>, request: &str) -> anyhow::Result<Value> {
    let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
    match verb {
        "prepare" => {
            let job: Job = serde_json::from_str(rest)?;
            pin(job.core)?;
            allow_files();
            let strike_max = job.strike_max;
            *prepared = Some((prepare(job)?, strike_max));
            Ok(json!({"pid": std::process::id()}))
        }
        "strike" => {
            let (strike, limit) = prepared.take().context("not prepared")?;
            let start = Instant::now();
            let deeds = strike(start + limit)?.put("seconds", start.elapsed().as_secs_f64());
            Ok(serde_json::to_value(deeds)?)
        }
        _ => bail!("unknown request {verb}"),
    }
}

fn prepare(job: Job) -> anyhow::Result<Strike> {
    let until = Instant::now() + job.prepare_max;
    let attack = Attack::named(&job.attack).context("no such attack")?;
    match attack.deed {
        Deed::Nothing => Ok(Box::new(|_| Ok(Deeds::default()))),
        Deed::Wildcards { after } => {
            let after = scaled(after, job.scale);
            wildcards::prepare(&job, after, until)
        }
        Deed::Hellos => Ok(hellos::prepare(job)),
        Deed::SubscriptionsComeAndGo => subscriptions::come_and_go(&job),
        Deed::SubscriptionsLeave => subscriptions::leave(&job, until),
        Deed::SlowSubscribers => subscribers::prepare(&job, until),
        Deed::WrongPasswords => Ok(logins::prepare(job)),
        Deed::Connz => monitor::connections(job, until),
        Deed::Subsz => monitor::subscriptions(job, until),
        Deed::Jsz => monitor::streams(job, until),
        deed => streams::prepare(&job, deed, until),
    }
}

/// Raises the limit of open files of this process as far as the system allows, for attacks with many
/// connections.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If the system refuses, an attack with many connections reports how many connections it opened, so this
    // function ignores the failure.
    let _ = setrlimit(Resource::Nofile, all);
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
