//! Runs one turn of the bench `neighbours`, which is one attack on one server: starts the server, the
//! attackers and the neighbours, goes through the phases, and reads the server's memory and processor time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidegate_cli::interrupt;

use super::attack::{Attack, Deed, scaled};
use super::clients::{self, LOGIN_EVERY};
use super::figures::Report;
use super::strike::{self, Deeds};
use super::system::{Certificate, Nodes, STREAM, Setting};
use crate::peers::Peers;
use crate::systems::System;

/// The longest time that a neighbour's operation may take, before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time for which the neighbours run before the measurement begins, so that all connections are ready.
const WARM_UP: Duration = Duration::from_secs(1);
/// The time from the start of the attack's phase to the attack, so that the attack affects no operation that
/// was due in the phase before.
const LEAD: Duration = Duration::from_millis(100);
/// The pause between two readings of the server's memory, to find its peak.
const LOOK: Duration = Duration::from_millis(20);
/// The address from which the attackers connect, so that the server can tell them from the neighbours, unless
/// `--same-address` is set.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The settings of all turns of a run. A turn is one attack on one server.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) setting: Setting,
    pub(super) directory: PathBuf,
    pub(super) echo: SocketAddr,
    pub(super) core: usize,
    pub(super) scale: f64,
    /// The number of messages in the stream that the attack `stream-deleted` deletes.
    pub(super) messages: Option<u64>,
    pub(super) same_address: bool,
    pub(super) before: Duration,
    /// The least duration of the attack's phase, so that even after a short attack the phase has enough
    /// operations.
    pub(super) window: Duration,
    pub(super) after: Duration,
    pub(super) prepare_max: Duration,
    pub(super) strike_max: Duration,
    /// The time that this machine takes for one check of the user's password hash.
    pub(super) hash: Duration,
    /// The resident memory of the server, in MiB, above which the bench stops the attack.
    pub(super) rss_max_mb: f64,
}

/// The figures of one attack on one server, for the report.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) report: Report,
    /// The factor by which this turn multiplied the attack's amounts.
    pub(super) scale: f64,
    /// The results that the attackers reported; `None` if the attack failed, with the reason among the notes.
    pub(super) deeds: Option<Deeds>,
    pub(super) notes: Vec<String>,
    pub(super) rss_before_mb: Option<f64>,
    pub(super) rss_peak_mb: Option<f64>,
    pub(super) rss_after_mb: Option<f64>,
    /// The server's processor time during the attack's phase, in seconds: the price of the attack for the
    /// server.
    pub(super) cpu_s: Option<f64>,
    /// The duration of the attack's phase, in seconds, to compare with `cpu_s`.
    pub(super) phase_s: f64,
    /// The number of changes of leaders since the start of the attack, by which the report shows whether the
    /// attack disturbed the cluster; `None` without a cluster.
    pub(super) elections: Option<u64>,
}

impl Plan {
    /// Runs the attack on a fresh server, and measures the neighbours meanwhile.
    ///
    /// # Errors
    ///
    /// The server or the neighbours do not start, or the attackers cannot prepare the attack.
    pub(super) fn turn(&self, attack: &Attack, system: System) -> anyhow::Result<Outcome> {
        let certificate = attack
            .rsa_bits
            .map(|bits| Certificate::rsa(&self.directory, bits));
        let certificate = certificate.transpose()?;
        let home = self.directory.join("server");
        let nodes = Nodes::start(
            system,
            attack.nodes,
            &home,
            &self.setting,
            certificate.as_ref(),
        )?;
        let outcome = self.attacked(attack, &nodes);
        let ended = nodes.ended();
        drop(nodes);
        // The bench removes the data, because the next server starts with an empty directory.
        let _ = std::fs::remove_dir_all(&home);
        match (outcome, ended) {
            (Ok(mut outcome), ended) => {
                outcome.notes.extend(ended);
                Ok(outcome)
            }
            (Err(e), Some(ended)) => Err(e.context(ended)),
            (Err(e), None) => Err(e),
        }
    }

    fn attacked(&self, attack: &Attack, nodes: &Nodes) -> anyhow::Result<Outcome> {
        let (addr, http) = nodes.leader(&self.setting)?;
        let mut attackers = Helper::new("attackers", &["neighbours-attackers"])?;
        let job = self.strike_job(attack, addr, http);
        let prepared = attackers
            .ask("prepare", Some(&job), self.prepare_max)
            .context("the attack was not prepared")?;
        let mut neighbours = Helper::new("neighbours", &["neighbours-clients"])?;
        neighbours.ask("start", Some(&self.clients_job(addr)), PATIENCE)?;
        pause(WARM_UP)?;
        neighbours.ask("phase", None::<&()>, Duration::ZERO)?;
        pause(self.before)?;

        let mut outcome = Outcome {
            scale: self.scale,
            rss_before_mb: rss_mb(nodes),
            ..Outcome::default()
        };
        let (leads, cpu) = (nodes.leads(), nodes.cpu_s());
        neighbours.ask("phase", None::<&()>, Duration::ZERO)?;
        let phase = Instant::now();
        pause(LEAD)?;
        let watch = Watch {
            rss_max_mb: self.rss_max_mb,
            attackers: prepared.get("pid").and_then(Value::as_i64),
            ..Watch::default()
        };
        let struck = std::thread::scope(|scope| {
            scope.spawn(|| watch.look(nodes));
            let struck = attackers.ask("strike", None::<&()>, self.strike_max);
            let rest = pause(self.window.saturating_sub(phase.elapsed()));
            watch.done.store(true, Ordering::Relaxed);
            rest.map(|()| struck)
        })?;
        // This drop ends the attackers' process, and their connections with it.
        drop(attackers);
        match struck.and_then(|deeds| Ok(serde_json::from_value::<Deeds>(Value::Object(deeds))?)) {
            Ok(deeds) => {
                outcome.notes.extend(deeds.note.clone());
                outcome.deeds = Some(deeds);
            }
            Err(_) if watch.stopped.load(Ordering::Relaxed) => {
                let max = self.rss_max_mb;
                let note = format!("stopped: the server has more than {max:.0} MiB of memory");
                outcome.notes.push(note);
            }
            Err(e) => outcome.notes.push(format!("the attack failed: {e:#}")),
        }
        let later = nodes.cpu_s();
        outcome.cpu_s = later.zip(cpu).map(|(later, cpu)| later - cpu);
        outcome.phase_s = phase.elapsed().as_secs_f64();
        neighbours.ask("phase", None::<&()>, Duration::ZERO)?;
        pause(self.after)?;
        outcome.rss_after_mb = rss_mb(nodes);
        let peak = watch.peak_kb.load(Ordering::Relaxed) as f64 / 1024.0;
        outcome.rss_peak_mb = Some(peak).filter(|peak| *peak > 0.0);
        let answer = neighbours.ask("end", None::<&()>, PATIENCE * 2)?;
        outcome.report = serde_json::from_value(answer["neighbours"].clone())?;
        if nodes.nodes.len() > 1 {
            outcome.elections = Some(nodes.leads().saturating_sub(leads) as u64);
        }
        Ok(outcome)
    }

    fn strike_job(&self, attack: &Attack, addr: SocketAddr, http: SocketAddr) -> strike::Job {
        let deleted = self.messages.filter(|_| attack.deed == Deed::StreamDeleted);
        let amount = deleted.unwrap_or_else(|| scaled(attack.amount, self.scale));
        strike::Job {
            attack: attack.name.into(),
            amount,
            scale: self.scale,
            addr,
            http,
            source: (!self.same_address).then_some(ELSEWHERE),
            core: self.core,
            plain: self.setting.plain.clone(),
            hashed: self.setting.hashed.0.clone(),
            prepare_max: self.prepare_max,
            strike_max: self.strike_max,
            window: self.window,
        }
    }

    fn clients_job(&self, addr: SocketAddr) -> clients::Job {
        clients::Job {
            addr,
            echo: self.echo,
            directory: self.directory.clone(),
            subject: format!("{STREAM}.x"),
            core: self.core,
            plain: self.setting.plain.clone(),
            hashed: self.setting.hashed.clone(),
            // The user with the hash logs in at most once in the time of four checks of a hash: more frequent
            // logins would overload the server even if there were no attack.
            hash_login_every: LOGIN_EVERY.max(self.hash * 4),
            patience: PATIENCE,
        }
    }
}

/// A process of this program that answers requests of the bench. The drop of this value ends the process.
struct Helper {
    name: &'static str,
    process: Peers,
}

impl Helper {
    /// The time that the process may take to answer a request, beyond the time that the request itself needs.
    const SLACK: Duration = Duration::from_secs(10);

    fn new(name: &'static str, args: &'static [&'static str]) -> anyhow::Result<Self> {
        let mut process = Peers::none(Self::SLACK, None);
        process.add(name, std::env::current_exe()?, args);
        Ok(Self { name, process })
    }

    fn ask(
        &mut self,
        verb: &str,
        job: Option<&impl serde::Serialize>,
        takes: Duration,
    ) -> anyhow::Result<serde_json::Map<String, Value>> {
        let request = match job {
            Some(job) => format!("{verb} {}", serde_json::to_string(job)?),
            None => verb.to_owned(),
        };
        let answer = self.process.ask(self.name, &request, takes);
        answer.map_err(|failure| anyhow!("{}: {failure}", self.name))
    }
}

/// The result of watching the server's memory during an attack.
#[derive(Debug, Default)]
struct Watch {
    peak_kb: AtomicU64,
    done: AtomicBool,
    rss_max_mb: f64,
    attackers: Option<i64>,
    /// True if the bench ended the attack because the server took too much memory.
    stopped: AtomicBool,
}

impl Watch {
    fn look(&self, nodes: &Nodes) {
        while !self.done.load(Ordering::Relaxed) {
            if let Some(rss) = rss_mb(nodes) {
                self.peak_kb
                    .fetch_max((rss * 1024.0) as u64, Ordering::Relaxed);
                if rss > self.rss_max_mb && !self.stopped.swap(true, Ordering::Relaxed) {
                    let pid = self.attackers.and_then(|pid| i32::try_from(pid).ok());
                    if let Some(pid) = pid.and_then(Pid::from_raw) {
                        // If the attackers' process has ended already, the kill fails, and nothing is left to
                        // do.
                        let _ = kill_process(pid, Signal::KILL);
                    }
                }
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn rss_mb(nodes: &Nodes) -> Option<f64> {
    nodes.nodes.iter().map(|node| node.rss_mb()).sum()
}

/// Sleeps for this time, and returns an error at Ctrl-C.
fn pause(time: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if interrupt::asked() {
            bail!("interrupted");
        }
        let left = until.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    Ok(())
}

impl Outcome {
    /// Returns all notes of the turn in one line for the table.
    pub(super) fn note(&self) -> Option<String> {
        (!self.notes.is_empty()).then(|| self.notes.join("; "))
    }
}
