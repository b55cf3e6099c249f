//! `tidegate-bench neighbours`: measures the harm that one hostile or clumsy client does to its neighbours,
//! on our server and with `--peers` on nats-server.
//!
//! Each attack meets a fresh server, which may use all cores. The attackers and the neighbours, which are
//! well-behaved clients, are processes on one core. The neighbours run before, during and after the attack at
//! a fixed pace. Beside them run a bare write with `fdatasync` and a bare echo, which show the least possible
//! latencies (the floors) of the machine. The neighbours' process has a priority above that of all others, if
//! the system allows it: the floors are then too low rather than too high.
//!
//! [`attack`], [`figures`], [`pace`] and [`report`] decide and are pure. [`turn`] runs one attack on one
//! server, [`system`] starts the servers, [`clients`] is the process of the neighbours, [`strike`] the
//! process of the attackers.

mod attack;
mod clients;
mod figures;
mod floor;
mod login;
mod pace;
mod report;
mod socket;
mod strike;
mod system;
mod turn;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, value_parser};
use rustix::thread::{CpuSet, sched_getaffinity};
use tidegate_cli::report::Document;
use tidegate_cli::{Usage, interrupt};

use crate::handlers::Host;
use crate::machine;
use crate::options::{factor, seconds};
use crate::stream::Directory;
use crate::systems::{System, nats_server};
use attack::{ATTACKS, Attack};
pub(crate) use clients::serve as serve_clients;
use report::Contestant;
pub(crate) use strike::serve as serve_attackers;
use system::Setting;
use turn::Plan;

/// The arguments with which the user runs `tidegate-bench neighbours`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NeighboursArgs {
    /// Attack the nats-server in bench/peers/go-nats, too, to compare it with ours. It has its default
    /// settings, so it acknowledges a message before it syncs the message.
    #[arg(long)]
    peers: bool,
    /// Attack also a nats-server that syncs before each acknowledgement, as our server does. Needs --peers.
    #[arg(long, requires = "peers")]
    always: bool,
    /// Print one JSON document, for other programs, instead of tables.
    #[arg(long)]
    json: bool,
    /// Run only the attacks with this text in their name, to save time.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the names and descriptions of the attacks instead of running them, to choose some for --only.
    #[arg(long)]
    list: bool,
    /// Multiply the amounts of every attack, such as connections or messages, by this factor, for a harder or
    /// shorter attack. 0.01 proves only that the bench works.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    scale: f64,
    /// Store this many messages in the stream that the attack `stream-deleted` deletes, to measure a longer
    /// deletion. Default: a million, times --scale.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=100_000_000))]
    messages: Option<u64>,
    /// Let an attack take at most this many seconds, so that a stuck attack does not hold up the bench. Then
    /// the bench ends the attack.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    attack_max: f64,
    /// Let the preparation of an attack take at most this many seconds, so that a stuck preparation does not
    /// hold up the bench. Then the bench reports that the attack failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 180.0, value_parser = seconds)]
    prepare_max: f64,
    /// Measure the neighbours, which are the well-behaved clients, for this many seconds before an attack, to
    /// compare their latencies during and after it.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    before: f64,
    /// Measure the neighbours for at least this many seconds from the beginning of an attack, so that even a
    /// short attack gives enough figures.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    window: f64,
    /// Measure the neighbours for this many seconds after an attack, to see if the server recovers. Then the
    /// bench reads the server's memory for the last time.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    after: f64,
    /// Give one of the server's users a password hash of this bcrypt cost, to make the attack
    /// `wrong-passwords` harder or easier. Each step doubles the time that the server needs for a login of
    /// that user.
    #[arg(long, value_name = "COST", default_value_t = 11, value_parser = value_parser!(u32).range(4..=16))]
    bcrypt_cost: u32,
    /// Run the attackers and the neighbours on this processor core, counted from 0, so that they leave the
    /// other cores to the server. Default: the last core.
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Let the attackers connect from the same address as the neighbours (the well-behaved clients), instead
    /// of from 127.0.0.2. This shows the harm if the server cannot tell both by address.
    #[arg(long)]
    same_address: bool,
}

/// The number of times that the bench measures one check of a password hash. The shortest time is the result.
const HASHES: u32 = 5;

/// Runs the attacks. The exit code is 1 if the bench could not carry out an attack on our server.
pub(crate) fn run(args: &NeighboursArgs) -> anyhow::Result<ExitCode> {
    let wanted = |attack: &&Attack| {
        let only = args.only.as_ref();
        only.is_none_or(|only| attack.name.contains(only.as_str()))
    };
    let attacks: Vec<_> = ATTACKS.iter().filter(wanted).collect();
    if attacks.is_empty() {
        let names = ATTACKS.map(|attack| attack.name).join(", ");
        let only = args.only.as_deref().unwrap_or_default();
        return Err(Usage::new(format!("no attack has `{only}` in its name: {names}")).into());
    }
    if args.list {
        for attack in attacks {
            writeln!(std::io::stdout(), "{}: {}", attack.name, attack.text)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let directory = Directory::make()?;
    let nats_server = if args.peers { nats_server() } else { None };
    let contestants = contestants(args, nats_server.as_deref());
    let plan = plan(args, &directory, nats_server)?;
    let mut document = Document::new("neighbours");
    announce(&document, &directory, &plan)?;
    let mut whole = true;
    for attack in attacks {
        let mut rows = Vec::new();
        for contestant in &contestants {
            if interrupt::asked() {
                break;
            }
            say(&format!("{}: {}", attack.name, contestant.system.name()));
            let hash_us = plan.hash.as_secs_f64() * 1e6;
            match plan.turn(attack, contestant.system) {
                Ok(outcome) => {
                    whole &= contestant.system != System::Ours || outcome.deeds.is_some();
                    rows.extend(contestant.rows(attack, &outcome, hash_us));
                }
                Err(e) => {
                    whole &= contestant.system != System::Ours;
                    rows.extend(contestant.failed(attack, &format!("not carried out: {e:#}")));
                }
            }
        }
        if !args.json && !rows.is_empty() {
            writeln!(std::io::stdout(), "{}", report::table(attack, &rows))?;
        }
        document.rows.extend(rows);
    }
    if args.json {
        writeln!(std::io::stdout(), "{}", document.json()?)?;
    }
    Ok(match whole {
        _ if interrupt::asked() => ExitCode::from(interrupt::EXIT_CODE),
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

fn contestants(args: &NeighboursArgs, nats_server: Option<&Path>) -> Vec<Contestant> {
    let systems = [
        Some(System::Ours),
        args.peers.then_some(System::Nats),
        args.always.then_some(System::NatsAlways),
    ];
    let contestant = |system: System| Contestant {
        system,
        version: system.version(nats_server),
    };
    systems.into_iter().flatten().map(contestant).collect()
}

fn plan(
    args: &NeighboursArgs,
    directory: &Directory,
    nats_server: Option<PathBuf>,
) -> anyhow::Result<Plan> {
    let password = "correct horse".to_owned();
    let hash = bcrypt::hash(&password, args.bcrypt_cost)?;
    // The bench takes the shortest check, because another process may have delayed the others.
    let mut once = Duration::MAX;
    for _ in 0..HASHES {
        let start = Instant::now();
        bcrypt::verify(&password, &hash)?;
        once = once.min(start.elapsed());
    }
    let seconds = Duration::from_secs_f64;
    let core = match args.core {
        Some(core) => core,
        None => last_core()?,
    };
    Ok(Plan {
        setting: Setting {
            plain: ("plain".into(), "correct plain horse".into()),
            hashed: ("hashed".into(), password),
            hash,
            nats_server,
        },
        directory: directory.path().to_owned(),
        echo: floor::echo()?,
        core,
        scale: args.scale,
        messages: args.messages,
        same_address: args.same_address,
        before: seconds(args.before),
        window: seconds(args.window),
        after: seconds(args.after),
        prepare_max: seconds(args.prepare_max),
        strike_max: seconds(args.attack_max),
        hash: once,
        rss_max_mb: machine::rss_max_mb(),
    })
}

/// Prints the facts about the machine for the user, because the figures depend on them.
fn announce(document: &Document, directory: &Directory, plan: &Plan) -> anyhow::Result<()> {
    let (machine, commit) = (document.machine.clone(), document.commit.clone());
    let host = Host::measure(machine.clone(), commit, directory.path())?;
    say(&format!(
        "{machine}; {host}; one hash {:.0} ms; attackers and neighbours on core {}",
        plan.hash.as_secs_f64() * 1e3,
        plan.core
    ));
    say(&format!("data in {}", directory.path().display()));
    if directory.is_in_memory() {
        say("that is memory and no disk: syncs cost nothing there; set TIDEGATE_BENCH_DIR");
    }
    Ok(())
}

fn last_core() -> anyhow::Result<usize> {
    let cores = sched_getaffinity(None)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|core| cores.is_set(*core));
    last.context("no core")
}

fn say(text: &str) {
    eprintln!("tidegate-bench: {text}");
}
