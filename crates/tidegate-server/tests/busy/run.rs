//! Runs a seed: the cluster, an attack, and the verdict. Also runs many seeds on all cores.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_server::{Costs, Cures};

use crate::attack::Attack;
use crate::dice::Dice;
use crate::judge::{Bounds, Harm, TURN_P999, TURN_WORST, describe};
use crate::world::{Broken, World};

/// The table of costs that the runs use, as `tidegate-bench costs` printed it.
pub(crate) const COSTS: &str = include_str!("costs.txt");
/// The number of seeds that a line stands for in the file of finished seeds.
const STRETCH: u64 = 1000;
/// The time for which a run goes on after an attack begins.
const LASTS: Duration = Duration::from_millis(1500);

/// The silence of a leader after which a follower stands for election: ten ticks.
const PATIENCE: Duration = Duration::from_millis(600);

/// The longest time for which publishers may wait when a server crashes: the patience of the follower that
/// stands for election last, its election, and the time after which a publisher asks again.
const UNLED_MAX: Duration = Duration::from_secs(4);
/// The time for which a run goes on after a server that has crashed starts again.
const RECOVERS: Duration = Duration::from_secs(4);
/// The time before the end of a run with a crash within which each server must have answered its clients.
const SERVES_WITHIN: Duration = Duration::from_secs(1);

/// The plan of a run: its attack, the number of servers, and the cures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) attack: Attack,
    pub(crate) servers: usize,
    /// True if the attack's works cost more in the run than on a machine.
    pub(crate) heavy: bool,
    /// True if a server crashes during the attack, and starts again.
    pub(crate) crashes: bool,
    pub(crate) cures: Cures,
    pub(crate) trace: bool,
}

impl Plan {
    /// Draws the plan of a seed, with all cures.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x7475_726e);
        let (attack, servers) = (dice.pick(&Attack::ALL), dice.pick(&[1, 3]));
        let heavy = dice.chance(500);
        Self {
            seed,
            attack,
            servers,
            heavy,
            // With heavy works an election after a crash says little, because it takes long by itself.
            crashes: dice.chance(500) && !heavy,
            cures: Cures::ALL,
            trace: false,
        }
    }

    fn bounds(&self) -> Bounds {
        match self.heavy {
            // The others notice a crash after the patience of a follower, elect a leader, and publishers ask
            // again.
            _ if self.crashes || self.attack.moves_the_lead() => Bounds {
                turns: None,
                wait: UNLED_MAX,
            },
            false => Bounds {
                turns: Some((TURN_P999, TURN_WORST)),
                wait: Duration::from_millis(25),
            },
            true => self.attack.heavy_bounds(),
        }
    }
}

/// The figures of a run that kept its bounds, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) turns: usize,
    pub(crate) p999: Duration,
    pub(crate) worst: Duration,
    pub(crate) wait: Duration,
    pub(crate) acked: usize,
    pub(crate) outboxes: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} turns, p99.9 {:?}, worst {:?}; longest wait {:?}; {} acknowledged; {} bytes in outboxes",
            self.turns, self.p999, self.worst, self.wait, self.acked, self.outboxes
        )
    }
}

/// A run that found harm, with its plan, so that a person can repeat it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) plan: Plan,
    pub(crate) harm: Harm,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            seed,
            attack,
            servers,
            crashes,
            ..
        } = self.plan;
        let crash = if crashes { ", a crash" } else { "" };
        write!(
            f,
            "seed {seed} ({attack:?}, {servers} servers{crash}): {}",
            self.harm
        )
    }
}

/// Reads the table of costs, and makes the attack's works heavy if the plan asks for that.
fn costs(plan: &Plan) -> Costs {
    let costs = Costs::parse(COSTS).unwrap();
    let heavy = plan.attack.heavy().iter().filter(|_| plan.heavy);
    heavy.fold(costs, |costs, (work, ps)| costs.with(*work, *ps))
}

/// Runs a plan, and returns its figures or the harm; a panic counts as harm.
pub(crate) fn run(plan: Plan) -> Result<Figures, Harm> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run_plan(plan)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(Harm::Broken(format!(
            "it panics: {}",
            text.unwrap_or_default()
        )))
    })
}

fn run_plan(plan: Plan) -> Result<Figures, Harm> {
    let mut world =
        World::new(plan.seed, plan.servers, costs(&plan), plan.trace).map_err(Harm::Broken)?;
    world.create_stream("W", "w.*").map_err(Harm::Broken)?;
    let prepared = plan.attack.prepare(&mut world, plan.heavy);
    let mut prepared = prepared.map_err(Harm::Broken)?;
    world.connect_neighbours();
    world
        .run(Duration::from_millis(300))
        .map_err(Harm::Broken)?;
    let terms = world.terms();
    world.turns = Default::default();
    for asking in world.clients.iter_mut().filter_map(|c| c.asking_mut()) {
        asking.waits.clear();
    }
    world.sim.set_cures(plan.cures);
    prepared.begin(plan.attack, &mut world);
    match plan.crashes {
        false => world.run(LASTS).map_err(Harm::Broken)?,
        true => crash_and_return(&mut world).map_err(Harm::Broken)?,
    }
    let figures = judge(&plan, &world, &terms);
    world.sim.set_cures(Cures::ALL);
    let figures = figures?;
    look_for_losses(&mut world)?;
    Ok(figures)
}

/// Lets a server crash at some moment of the attack, mostly the leader, and start again. Clients come to it
/// again, and the run goes on until all servers should serve.
fn crash_and_return(world: &mut World) -> Result<(), Broken> {
    let ms = |n: u64| Duration::from_millis(n);
    let (after, away) = (world.dice.range(20, 600), world.dice.range(10, 1500));
    world.run(ms(after))?;
    let drawn = world.dice.below(world.servers as u64) as usize;
    let server = match world.dice.chance(600) {
        true => world.leader().unwrap_or(drawn),
        false => drawn,
    };
    let power_lost = world.dice.chance(500);
    world.crash(server, power_lost);
    world.run(ms(away))?;
    world.restart(server)?;
    world.connect_neighbours_of(server);
    world.run(RECOVERS)
}

/// Returns the harm that a crash did beyond its time: each server must have answered its clients lately.
fn look_for_silence(world: &World) -> Result<(), Harm> {
    let now = world.sim.now();
    let well_behaved = world.clients.iter().filter(|client| !client.excused);
    for (client, asking) in well_behaved.filter_map(|c| Some((c, c.asking()?))) {
        let silent = now - asking.answered_at;
        if silent > SERVES_WITHIN {
            return Err(Harm::Starved(format!(
                "a client of server {} has had no answer for {silent:?} after a crash",
                client.server
            )));
        }
    }
    Ok(())
}

/// Compares a finished run with its bounds.
fn judge(plan: &Plan, world: &World, terms: &[u64]) -> Result<Figures, Harm> {
    let bounds = plan.bounds();
    let now = world.sim.now();
    if plan.crashes {
        look_for_silence(world)?;
    } else if world.terms() != terms && !plan.attack.moves_the_lead() {
        let after = world.terms();
        return Err(Harm::Election(format!(
            "the terms were {terms:?} and are {after:?}"
        )));
    }
    let mut figures = Figures {
        turns: world.turns.len(),
        p999: world.turns.quantile(0.999),
        worst: world.turns.quantile(1.0),
        outboxes: world.outbox_bytes,
        ..Figures::default()
    };
    for (client, asking) in world.clients.iter().filter_map(|c| Some((c, c.asking()?))) {
        figures.acked += asking.acked.len();
        if client.excused {
            continue;
        }
        let wait = asking.longest(now);
        figures.wait = figures.wait.max(wait);
        let server = client.server;
        if client.ended {
            return Err(Harm::Starved(format!(
                "server {server} has closed a neighbour's connection"
            )));
        }
        // While a group has no leader, the server refuses messages.
        let led = !plan.crashes && !plan.attack.moves_the_lead();
        if let Some(refused) = asking.refused.as_ref().filter(|_| led) {
            return Err(Harm::Starved(format!(
                "server {server} has refused a message: {refused}"
            )));
        }
        if wait > bounds.wait {
            let most = bounds.wait;
            return Err(Harm::Starved(format!(
                "a client of server {server} waited {wait:?}, at most {most:?} are allowed"
            )));
        }
    }
    if let Some((p999, worst)) = bounds.turns
        && (figures.p999 > p999 || figures.worst > worst)
    {
        let worst = world.turns.worst().map(describe).unwrap_or_default();
        return Err(Harm::Turn(format!("{figures}; {worst}")));
    }
    for server in 0..plan.servers {
        let (longest, late) = world.sim.turn_stats(server);
        if late > 0 {
            let times = format!("server {server} was late {late} times");
            return Err(Harm::Turn(format!(
                "{times}, its longest turn took {longest:?}"
            )));
        }
    }
    if figures.worst > PATIENCE / 2 {
        return Err(Harm::Turn(format!(
            "{figures}: a follower could lose its patience"
        )));
    }
    if let Some(turn) = world.turns.greedy() {
        let turn = describe(turn);
        return Err(Harm::Turn(format!("more than its share of a work: {turn}")));
    }
    if let Some((bytes, open)) = world.over_outboxes {
        return Err(Harm::Memory(format!(
            "{bytes} in outboxes of {open} clients: {figures}"
        )));
    }
    Ok(figures)
}

/// Compares the stream with the acknowledgements: each acknowledged message must have its own sequence, and
/// all servers must have all of them.
fn look_for_losses(world: &mut World) -> Result<(), Harm> {
    let mut acked: Vec<u64> = Vec::new();
    for client in &mut world.clients {
        client.wakes_at = None;
        acked.extend(client.asking().iter().flat_map(|a| &a.acked));
    }
    acked.sort_unstable();
    let last = acked.last().copied().unwrap_or_default();
    let count = acked.len();
    acked.dedup();
    if acked.len() < count {
        return Err(Harm::Lost(
            "two messages have the same sequence number".into(),
        ));
    }
    let servers = world.servers;
    let caught_up = |w: &World| {
        let mut all = (0..servers).map(|n| w.sim.stream(n, "W"));
        all.all(|state| state.is_some_and(|(messages, seq)| messages == seq && seq >= last))
    };
    match world.run_until(Duration::from_secs(5), caught_up) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let all: Vec<_> = (0..servers).map(|n| world.sim.stream(n, "W")).collect();
            Err(Harm::Lost(format!(
                "{last} was acknowledged, and the servers have {all:?}"
            )))
        }
        Err(broken) => Err(Harm::Broken(broken)),
    }
}

/// Runs the plans of these seeds up to the first harm. If several seeds find harm at the same moment, the
/// lowest one counts.
pub(crate) fn first_harm(
    seeds: RangeInclusive<u64>,
    plan: impl Fn(u64) -> Plan + Sync,
    see: impl Fn(&Plan, &Figures) + Sync,
) -> Option<Found> {
    let next = AtomicU64::new(*seeds.start());
    let stop = AtomicBool::new(false);
    let found = Mutex::new(None::<Found>);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let plan = plan(seed);
                    match run(plan) {
                        Ok(figures) => see(&plan, &figures),
                        Err(harm) => {
                            stop.store(true, Ordering::Relaxed);
                            let mut found = found.lock().unwrap();
                            if found.as_ref().is_none_or(|f| seed < f.plan.seed) {
                                *found = Some(Found { plan, harm });
                            }
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// Runs these seeds, or the seeds in the environment, with all cures. Panics at the first harm.
pub(crate) fn report(seeds: RangeInclusive<u64>) {
    println!("{COSTS}");
    if let Some(seed) = variable("SEED").and_then(|s| s.parse().ok()) {
        let plan = Plan {
            trace: true,
            ..Plan::of(seed)
        };
        println!("{plan:?}");
        match run(plan) {
            Ok(figures) => println!("seed {seed}: {figures}"),
            Err(harm) => panic!("{}", Found { plan, harm }),
        }
        return;
    }
    let seeds = variable("SEEDS").map_or(seeds, |text| {
        let (from, to) = text.split_once("..=").unwrap_or(("1", &text));
        from.parse().unwrap()..=to.parse().unwrap()
    });
    let start = Instant::now();
    let done_file = variable("SEEDS_DONE");
    let done = done_file
        .as_ref()
        .map(|file| fs::read_to_string(file).unwrap_or_default());
    let done = done.iter().flat_map(|text| text.lines());
    let done = done.filter_map(|line| line.split_once("..=")?.1.parse::<u64>().ok());
    let mut from = done.max().unwrap_or(0).max(seeds.start() - 1) + 1;
    while from <= *seeds.end() {
        let to = (from + STRETCH - 1).min(*seeds.end());
        stretch(from..=to);
        if let Some(file) = &done_file {
            let mut file = OpenOptions::new()
                .append(true)
                .create(true)
                .open(file)
                .unwrap();
            writeln!(file, "{from}..={to}").unwrap();
        }
        from = to + 1;
    }
    println!(
        "seeds {seeds:?} hold, in {:.1} s",
        start.elapsed().as_secs_f64()
    );
}

fn stretch(seeds: RangeInclusive<u64>) {
    let worst = Mutex::new(Figures::default());
    let harm = first_harm(seeds.clone(), Plan::of, |plan, figures| {
        let mut worst = worst.lock().unwrap();
        worst.turns += figures.turns;
        worst.acked += figures.acked;
        worst.outboxes = worst.outboxes.max(figures.outboxes);
        if !plan.heavy {
            worst.p999 = worst.p999.max(figures.p999);
            worst.worst = worst.worst.max(figures.worst);
            worst.wait = worst.wait.max(figures.wait);
        }
    });
    println!("seeds {seeds:?}: {}", worst.lock().unwrap());
    if let Some(found) = harm {
        panic!("{found}");
    }
}

/// Returns an environment variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}
