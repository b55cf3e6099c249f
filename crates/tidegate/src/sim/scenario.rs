//! The named workloads of the simulator, and the controllers that run on each of them, to compare
//! controllers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{
    A_MS, ACK_NS, B_MS, CAPACITY, COST_NS, Callers, Cost, Requests, Rng, Row, Run, Table,
    acknowledge, bursts, clumps, commit, pipeline, poisson, produce, serve,
};
use crate::controller::{
    Aimd, Bounded, Bounds, Controller, Exponential, Fixed, Greedy, Knee, Objective, RueidisStats,
    Ruled, StormAimd,
};

/// A simulated workload with a name, on which controllers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scenario {
    /// 100,000 messages queued at once, no noise: the workload of gen_batch_server's pull 29.
    Backlog,
    /// The workload of [`Scenario::Backlog`] with 5 % noise, and once more with a million messages.
    BacklogNoise,
    /// Poisson arrivals at 10, 50 and 90 % of the server's capacity.
    Poisson,
    /// Bursts: 150 ms of arrivals at twice the capacity, then 350 ms at a tenth of it, repeatedly.
    Bursts,
    /// Clumps of 2000 messages that arrive at once, one clump every 100 ms.
    Clumps,
    /// Poisson arrivals at 60 % of the capacity; half-way, the cost of a batch rises to four times and the
    /// cost of a message falls to half.
    Step,
    /// A backlog of 600,000 messages from the start; the costs of batches change during the run.
    StepSaturated,
    /// A backlog of 600,000 messages from the start; in a batch, each message past the 2048th costs three
    /// times as much.
    Convex,
    /// Poisson arrivals at 50 % of the capacity; one batch in a hundred takes ten times as long.
    Spikes,
    /// Poisson arrivals at 50 and 90 % of the capacity, for controllers with latency objectives.
    Latency,
    /// Servers without a controller that start a batch once a threshold of 1 to 20 items wait. The results
    /// show at which loads this wait for company beats serving at once.
    Gate,
    /// A log with group commit, for callers in a closed loop and for callers that arrive as a Poisson
    /// process.
    Commit,
    /// A client that pipelines requests on one connection, with controllers that decide when it flushes.
    Client,
    /// A producer that inserts batches of items into a shared queue, with controllers of its buffer.
    Producer,
    /// A receiver that sends cumulative acknowledgements, with controllers that decide when it sends one.
    Ack,
}

impl Scenario {
    /// Every scenario of the simulator.
    pub const ALL: [Self; 15] = [
        Self::Backlog,
        Self::BacklogNoise,
        Self::Poisson,
        Self::Bursts,
        Self::Clumps,
        Self::Step,
        Self::StepSaturated,
        Self::Convex,
        Self::Spikes,
        Self::Latency,
        Self::Gate,
        Self::Commit,
        Self::Client,
        Self::Producer,
        Self::Ack,
    ];

    /// Returns the name of the scenario on command lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backlog => "backlog",
            Self::BacklogNoise => "backlog-noise",
            Self::Poisson => "poisson",
            Self::Bursts => "bursts",
            Self::Clumps => "clumps",
            Self::Step => "step",
            Self::StepSaturated => "step-saturated",
            Self::Convex => "convex",
            Self::Spikes => "spikes",
            Self::Latency => "latency",
            Self::Gate => "gate",
            Self::Commit => "commit",
            Self::Client => "client",
            Self::Producer => "producer",
            Self::Ack => "ack",
        }
    }

    /// Runs the scenario with every controller that belongs to it. Takes seconds of real time at most.
    #[must_use]
    pub fn run(self) -> Vec<Table> {
        match self {
            Self::Backlog => vec![backlog(100_000, 0.0, 7)],
            Self::BacklogNoise => vec![backlog(100_000, 0.05, 7), backlog(1_000_000, 0.05, 8)],
            Self::Poisson => [(0.1, 15_000.0), (0.5, 8000.0), (0.9, 6000.0)]
                .map(poisson_load)
                .into(),
            Self::Bursts => {
                vec![served(
                    "bursts: 150 ms at 2x, 350 ms at 0.1x",
                    &bursts(3),
                    1024,
                    0.05,
                    || noisy(5),
                )]
            }
            Self::Clumps => vec![served(
                "clumps of 2000 every 100 ms",
                &clumps(),
                1024,
                0.05,
                || noisy(5),
            )],
            Self::Step => vec![step()],
            Self::StepSaturated => {
                vec![step_saturated(0.3, B_MS), step_saturated(12.0, B_MS / 2.0)]
            }
            Self::Convex => vec![convex()],
            Self::Spikes => vec![spikes()],
            Self::Latency => vec![latency(0.5), latency(0.9)],
            Self::Gate => vec![gate()],
            Self::Commit => commits(),
            Self::Client => clients(),
            Self::Producer => producers(),
            Self::Ack => acks(),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(name: &str) -> Result<Self, UnknownScenario> {
        Self::ALL
            .into_iter()
            .find(|s| s.as_str() == name)
            .ok_or_else(|| UnknownScenario(name.into()))
    }
}

/// The error of a text that should name a scenario and names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScenario(pub String);

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Scenario::ALL.iter().map(|s| s.as_str()).collect();
        write!(
            f,
            "unknown scenario `{}`: give one of {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownScenario {}

type Named = (String, Box<dyn Controller>);

fn named(name: impl Into<String>, c: impl Controller + 'static) -> Named {
    (name.into(), Box::new(c))
}

/// Returns the default controller within gen_batch_server's bounds, so that both have equal conditions.
fn knee(objective: Objective) -> Knee {
    Knee::new(objective, Bounds::items(32, 8192)).unwrap_or_default()
}

/// Puts bounds of 1 to 8192 items around a controller that lacks such bounds, so that all have equal
/// conditions.
fn bounded<C: Controller>(c: C) -> Bounded<C> {
    Bounded::new(c, Bounds::items(1, 8192)).unwrap_or_else(|_| unreachable!("valid bounds"))
}

/// Returns every controller that makes sense at an actor's mailbox. Leaves out the fixed limits below
/// `fixed_min`.
fn mailbox(fixed_min: u64) -> Vec<Named> {
    let mut all: Vec<Named> = Vec::new();
    for n in [32, 256, 1024, 4096, 8192] {
        if n >= fixed_min {
            all.push(named(format!("fixed {n}"), Fixed::new(n).controller()));
        }
    }
    all.push(named("exponential", Exponential::new().controller()));
    for step in [32, 64, 128] {
        all.push(named(format!("aimd {step}"), Aimd::new(step).controller()));
    }
    all.push(named("knee", knee(Objective::Lean)));
    all.push(named("knee k=32", knee(Objective::Lean).with_k(32.0)));
    all.push(named(
        "knee no drain",
        knee(Objective::Lean).without_drain_chunks(),
    ));
    all.push(named("knee throughput", knee(Objective::Throughput)));
    all.push(named("knee within 5%", knee(Objective::Within(0.05))));
    all.push(named("greedy", bounded(Greedy.controller())));
    all.push(named("storm-aimd 1000", StormAimd::new(1000).controller()));
    all.push(named(
        "rueidis-stats 10ms",
        bounded(RueidisStats::new(Duration::from_millis(10))),
    ));
    all
}

fn noisy(seed: u32) -> Cost {
    Cost::linear(0.05, seed)
}

fn row(controller: String, run: Run, items: usize) -> Row {
    Row {
        controller,
        ops_per_s: run.ops_per_s,
        mean_us: Some(run.mean_ms * 1e3),
        p50_us: Some(run.p50_ms * 1e3),
        p99_us: Some(run.p99_ms * 1e3),
        batches: Some(run.batches),
        batch_mean: Some(items as f64 / run.batches as f64),
        batch_max: Some(run.batch_max),
        extra: vec![
            ("p999_us", run.p999_ms * 1e3),
            ("max_us", run.max_ms * 1e3),
            ("busy", run.busy),
        ],
    }
}

/// Runs every mailbox controller on the same arrivals, each with costs drawn from the same distribution.
fn served(case: &str, at: &[f64], fixed_min: u64, skip: f64, cost: impl Fn() -> Cost) -> Table {
    let rows = mailbox(fixed_min)
        .into_iter()
        .map(|(name, mut c)| row(name, serve(at, c.as_mut(), &mut cost(), skip), at.len()))
        .collect();
    Table {
        case: case.into(),
        rows,
    }
}

fn backlog(n: usize, sigma: f64, seed: u32) -> Table {
    let case = format!("backlog of {n}, noise {}%", sigma * 100.0);
    served(&case, &vec![0.0; n], 32, 0.0, || Cost::linear(sigma, seed))
}

fn poisson_load((load, span): (f64, f64)) -> Table {
    let at = poisson(load * CAPACITY, span, &mut Rng::new(11), 0.0);
    // `fixed_min` leaves out the limits that are too small for the load: with them the queue would grow for
    // ever.
    let stable = |n: &u64| *n as f64 / (A_MS + B_MS * *n as f64) >= load * CAPACITY;
    let fixed_min = [32, 256, 1024, 4096]
        .into_iter()
        .find(stable)
        .unwrap_or(8192);
    served(
        &format!("poisson {:.0}%", load * 100.0),
        &at,
        fixed_min,
        0.1,
        || noisy(5),
    )
}

fn step() -> Table {
    let at = poisson(0.6 * CAPACITY, 8000.0, &mut Rng::new(12), 0.0);
    served(
        "poisson 60%, half-way a 3 -> 12 ms and b halves",
        &at,
        1024,
        0.1,
        || Cost::step(4000.0, 12.0, B_MS / 2.0, 0.05, 5),
    )
}

fn step_saturated(a: f64, b: f64) -> Table {
    let case = format!("backlog of 600000, at 3.6 s a 3 -> {a} ms, b x{}", b / B_MS);
    served(&case, &vec![0.0; 600_000], 1024, 0.0, || {
        Cost::step(3600.0, a, b, 0.05, 5)
    })
}

fn convex() -> Table {
    let at = vec![0.0; 600_000];
    // All controllers draw from one stream of noise, as in the executable model with which tests compare the
    // results.
    let mut cost = Cost::convex(0.05, 5);
    let rows = mailbox(1024)
        .into_iter()
        .map(|(name, mut c)| row(name, serve(&at, c.as_mut(), &mut cost, 0.0), at.len()))
        .collect();
    Table {
        case: "backlog of 600000, messages beyond 2048 cost 3x".into(),
        rows,
    }
}

fn spikes() -> Table {
    let at = poisson(0.5 * CAPACITY, 8000.0, &mut Rng::new(11), 0.0);
    served(
        "poisson 50%, 1% of the batches 10x slow",
        &at,
        1024,
        0.1,
        || Cost::linear(0.1, 5).with_spikes(0.01),
    )
}

fn latency(load: f64) -> Table {
    let at = poisson(load * CAPACITY, 6000.0, &mut Rng::new(11), 0.0);
    let mut all = vec![
        named("exponential", Exponential::new().controller()),
        named("aimd 64", Aimd::new(64).controller()),
        named("knee", knee(Objective::Lean)),
    ];
    for ms in [20, 60, 100] {
        all.push(named(
            format!("knee p99={ms}ms"),
            knee(Objective::LatencyP99(Duration::from_millis(ms))),
        ));
    }
    let rows = all
        .into_iter()
        .map(|(name, mut c)| {
            let run = serve(&at, c.as_mut(), &mut noisy(5), 0.1);
            let mut row = row(name, run, at.len());
            row.extra
                .push(("infeasible_ms", c.snapshot().infeasible_ns as f64 / 1e6));
            row
        })
        .collect();
    Table {
        case: format!("latency objectives at poisson {:.0}%", load * 100.0),
        rows,
    }
}

/// Simulates servers that start a batch once a threshold of 1 to 20 items wait, and then take all waiting
/// items. The unit of time is the cost of a flush, simulated as a millisecond.
fn gate() -> Table {
    let mut rows = Vec::new();
    for load in [0.2, 1.0, 3.0, 10.0, 50.0] {
        let at = poisson(load, 60_000.0 / load.max(1.0), &mut Rng::new(2), 0.0);
        for m in [1usize, 2, 3, 5, 8, 12, 20] {
            let (mut i, mut t, mut sum) = (0, 0.0f64, 0.0);
            while i < at.len() {
                t = t.max(at[i]).max(at[(i + m - 1).min(at.len() - 1)]);
                let j = i + at[i..].partition_point(|&a| a <= t);
                t += 1.0 + (j - i) as f64 / 256.0;
                sum += at[i..j].iter().map(|a| t - a).sum::<f64>();
                i = j;
            }
            rows.push(Row {
                controller: format!("threshold {m}, {load}/a"),
                ops_per_s: at.len() as f64 / t * 1e3,
                mean_us: Some(sum / at.len() as f64 * 1e3),
                ..Row::default()
            });
        }
    }
    Table {
        case: "threshold against serving at once; a = 1 ms, b = a/256".into(),
        rows,
    }
}

/// Returns the default controller for group commit. It has no limit of its own: a batch takes all gathered
/// items.
fn anticipating() -> Knee {
    let bounds = Bounds::items(1, 1 << 20);
    Knee::new(Objective::Lean, bounds)
        .unwrap_or_default()
        .without_drain_chunks()
        .anticipating()
}

fn commits() -> Vec<Table> {
    let mut cases = Vec::new();
    for callers in [1, 2, 8, 64, 512] {
        for think in [0.05, 0.2, 1.0, 10.0] {
            cases.push((
                format!("group commit, {callers} callers, think {think} a"),
                Callers::Closed { callers, think },
            ));
        }
    }
    for rate in [0.2, 1.0, 3.0, 10.0, 50.0] {
        cases.push((
            format!("group commit, open {rate}/a"),
            Callers::Open { rate },
        ));
    }
    let run = |(case, callers)| {
        let all = vec![
            named("greedy", Ruled::new(Greedy)),
            named(
                "fixed, linger a/2",
                Fixed::new(u64::MAX)
                    .with_linger(Duration::from_micros(500))
                    .controller(),
            ),
            named("knee", anticipating().with_known_cost(1e6, 1e6 / 256.0)),
            named("knee, cost learned", anticipating()),
        ];
        let rows = all.into_iter().map(|(name, mut c)| {
            let r = commit(callers, c.as_mut(), 20_000, 0.1, 3);
            Row {
                controller: name,
                ops_per_s: r.throughput * 1e3,
                mean_us: Some(r.mean * 1e3),
                p99_us: Some(r.p99 * 1e3),
                batch_mean: Some(1.0 / r.flushes),
                batch_max: Some(r.batch_max),
                extra: vec![("flushes_per_item", r.flushes)],
                ..Row::default()
            }
        });
        Table {
            case,
            rows: rows.collect(),
        }
    };
    cases.into_iter().map(run).collect()
}

fn clients() -> Vec<Table> {
    let mut cases = Vec::new();
    for rtt in [0.0, 1000.0] {
        for (callers, n) in [(1, 3000), (8, 15_000), (128, 60_000)] {
            let case = format!("client, RTT {} ms, {callers} callers", rtt / 1000.0);
            cases.push((case, Requests::Closed(callers), rtt, n));
        }
    }
    for rate in [0.02, 0.2] {
        cases.push((
            format!("client, RTT 1 ms, open {} k/s", rate * 1e3),
            Requests::Open(rate),
            1000.0,
            40_000,
        ));
    }
    let run = |(case, requests, rtt, n)| {
        let bounds = Bounds::items(1, 1 << 20);
        let knee = |o| Knee::new(o, bounds).unwrap_or_default();
        let all = vec![
            named("greedy", Ruled::new(Greedy)),
            named(
                "rueidis-stats 20us",
                RueidisStats::new(Duration::from_micros(20)),
            ),
            named(
                "rueidis-stats 100us",
                RueidisStats::new(Duration::from_micros(100)),
            ),
            named("knee inflation 3%", knee(Objective::Inflation(0.03))),
            named("knee inflation 10%", knee(Objective::Inflation(0.10))),
            named(
                "knee cost 5%",
                knee(Objective::CostBudget(0.05)).with_known_cost(5e3, 150.0),
            ),
        ];
        let rows = all.into_iter().map(|(name, mut c)| {
            let r = pipeline(requests, rtt, c.as_mut(), n, 1);
            Row {
                controller: name,
                ops_per_s: r.ops_per_s,
                p50_us: Some(r.p50_us),
                p99_us: Some(r.p99_us),
                batch_mean: Some(r.batch_mean),
                extra: vec![
                    ("flushes_per_1k", r.flushes),
                    ("client_cpu_us", r.client_cpu_us),
                    ("server_cpu_us", r.server_cpu_us),
                ],
                ..Row::default()
            }
        });
        Table {
            case,
            rows: rows.collect(),
        }
    };
    cases.into_iter().map(run).collect()
}

fn producers() -> Vec<Table> {
    let run = |rate: f64| {
        let n = if rate < 0.1 { 20_000 } else { 200_000 };
        let knee = Knee::new(Objective::Lean, Bounds::items(1, 1000))
            .unwrap_or_default()
            .without_drain_chunks();
        let all = vec![
            (false, named("fixed 1", Fixed::new(1).controller())),
            (false, named("fixed 100", Fixed::new(100).controller())),
            (
                false,
                named("storm-aimd 100", StormAimd::new(100).controller()),
            ),
            (
                true,
                named("knee", knee.clone().with_known_cost(COST_NS.0, COST_NS.1)),
            ),
            (true, named("knee, cost learned", knee)),
        ];
        let rows = all.into_iter().map(|(idle, (name, mut c))| {
            let r = produce(rate, c.as_mut(), n, idle, 9);
            Row {
                controller: name,
                ops_per_s: r.mops * 1e6,
                p50_us: Some(r.p50_us),
                p99_us: Some(r.p99_us),
                batches: Some(r.batches),
                batch_mean: Some(r.batch_mean),
                ..Row::default()
            }
        });
        Table {
            case: format!("producer, {rate} M/s offered"),
            rows: rows.collect(),
        }
    };
    [0.001, 0.05, 1.0, 4.0, 20.0].map(run).into()
}

fn acks() -> Vec<Table> {
    let run = |rate: f64| {
        let n = if rate < 0.001 {
            3000
        } else if rate < 0.1 {
            60_000
        } else {
            400_000
        };
        let budget =
            Knee::new(Objective::CostBudget(0.01), Bounds::items(1, 1 << 20)).unwrap_or_default();
        let every = Duration::from_millis(100);
        let all = vec![
            named("every message", Fixed::new(1).controller()),
            named(
                "fixed 1000, linger 100ms",
                Fixed::new(1000).with_linger(every).controller(),
            ),
            named(
                "fixed 100, linger 5ms",
                Fixed::new(100)
                    .with_linger(Duration::from_millis(5))
                    .controller(),
            ),
            named("knee cost 1%", budget.clone().with_known_cost(ACK_NS, 1.0)),
            named("knee cost 1%, cost learned", budget),
        ];
        let rows = all.into_iter().map(|(name, mut c)| {
            let r = acknowledge(rate, c.as_mut(), n, 4);
            Row {
                controller: name,
                ops_per_s: r.acks_per_s,
                p50_us: Some(r.p50_us),
                p99_us: Some(r.p99_us),
                batch_mean: Some(r.messages),
                extra: vec![("ack_share", r.share)],
                ..Row::default()
            }
        });
        Table {
            case: format!("acknowledgements, {} messages/s", rate * 1e6),
            rows: rows.collect(),
        }
    };
    [1e-4, 1e-2, 0.3].map(run).into()
}
