//! `tidegate-bench topology`: measures the table of Storm's PR 8796. A topology counts the words of a text in
//! memory, repeated endlessly. The bench compares static batch sizes, Storm's dynamic rule with these sizes
//! as upper limits, and Knee. It measures each of them saturated, and at a tenth of the best saturated rate.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use tidegate::controller::Choice;

use super::machine::{self, Meter};
use super::peers::{self, Peers};
use super::rounds::{Contestant, Sample};
use super::session::Session;
use super::text::Text;
use super::{OURS, latency, soak};
use crate::args::TopologyArgs;
use tidegate_cli::interrupt;
use tidegate_cli::report::Row;
use tidegate_cli::topology::{self, Edge, Live, Pace, Plan};

/// The number of tasks that split lines, and also of tasks that count words, as in Storm's
/// FileReadWordCountTopo.
const SPLIT: usize = 2;
/// The capacity of every queue in items, which is Storm's default, so that the figures are comparable.
const CAPACITY: usize = 32_768;
/// The batch sizes of the table, both as static sizes and as upper limits of the dynamic rule.
pub(super) const SIZES: [u64; 4] = [1, 10, 100, 1000];

/// The durations of one measurement of a topology: the warm-up, and the measured time after it.
#[derive(Clone, Copy)]
struct Times {
    warm_up: Duration,
    measured: Duration,
}

/// Runs the cells of the bench `topology`, or with `--soak` the long comparison.
pub(crate) fn run(session: &mut Session, args: &TopologyArgs) -> anyhow::Result<()> {
    let bytes = if session.is_smoke() { 1 << 18 } else { 8 << 20 };
    let text = Text::load(args.text.as_deref(), bytes)?;
    if let Some(seconds) = args.soak {
        return soak::run(session, &text, Duration::from_secs(seconds.get()));
    }
    let times = if session.is_smoke() {
        Times {
            warm_up: Duration::from_millis(20),
            measured: Duration::from_millis(50),
        }
    } else {
        Times {
            warm_up: Duration::from_millis(500),
            measured: Duration::from_millis(1500),
        }
    };
    let case = "saturated";
    if session.wants(case) {
        let mut contestants = ours(&text, None, times);
        contestants.extend(storm(session, &text, times));
        session.cell(case, contestants)?;
    }
    // Storm's cluster uses the processor even while it is idle, so the session ends it.
    session.rest_peers();
    let case = "10 % load";
    if session.wants(case) {
        let pace = match best_lines_per_s(session.rows()) {
            Some(lines_per_s) => lines_per_s,
            // If the saturated case did not run in this session, one run gives the order of magnitude of the
            // rate.
            None => measure(plan(Choice::KNEE, None), &text, times)?
                .extra
                .get("lines_per_s")
                .copied()
                .unwrap_or(1e5),
        };
        let pace = Pace {
            per_s: pace / 10.0,
            exact: true,
        };
        session.cell(case, ours(&text, Some(pace), times))?;
    }
    Ok(())
}

/// Returns the plan of the topology that the bench measures, for one controller.
pub(super) fn plan(controller: Choice, pace: Option<Pace>) -> Plan {
    let sample_every = if pace.is_some() { 1 } else { 64 };
    Plan {
        split: SPLIT,
        controller,
        lines: CAPACITY,
        words: CAPACITY,
        sample_every,
        pace,
    }
}

/// Returns a controller that forms batches of a constant size, without a linger.
pub(super) const fn fixed(limit: u64) -> Choice {
    Choice::Fixed {
        limit,
        linger: Duration::ZERO,
    }
}

fn ours<'a>(text: &'a Text, pace: Option<Pace>, times: Times) -> Vec<Contestant<'a, Peers>> {
    let dynamic = SIZES[1..]
        .iter()
        .map(|&ceiling| Choice::StormAimd { ceiling });
    let choices = std::iter::once(Choice::KNEE)
        .chain(SIZES.map(fixed))
        .chain(dynamic);
    let contestant = |choice: Choice| Contestant {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        controller: Some(choice.to_string()),
        subject: choice == Choice::KNEE,
        run: Box::new(move |_: &mut Peers| {
            measure(plan(choice, pace), text, times).map_err(|e| format!("{e:#}"))
        }),
    };
    choices.map(contestant).collect()
}

/// Returns Storm's LocalCluster as contestants, if its peer is built. The bench waits longer for these
/// answers, because Storm's start and warm-up take time beyond the measurement.
fn storm<'a>(session: &Session, text: &'a Text, times: Times) -> Vec<Contestant<'a, Peers>> {
    // Storm takes about ten seconds to start and to end each run, so a session of ten minutes has time only
    // for these sizes.
    let sizes = if session.args.full {
        &SIZES[..]
    } else {
        &[1, 1000]
    };
    let mut contestants = Vec::new();
    for system in &session.systems {
        for &size in sizes {
            let (peer, name) = (system.peer.clone(), system.name.clone());
            contestants.push(Contestant {
                system: name.clone(),
                version: Some(system.version.clone()),
                controller: Some(fixed(size).to_string()),
                subject: false,
                run: Box::new(move |peers: &mut Peers| {
                    let (seconds, file) = (times.measured.as_secs_f64(), text.path().display());
                    let request = format!(
                        "topology system={name} batch={size} seconds={seconds} file={file}"
                    );
                    // Storm starts within 90 s, by its own limit, warms up for 3 s and ends within 90 s.
                    let takes = Duration::from_secs(180) + times.measured;
                    peers::sample(&peers.ask(&peer, &request, takes)?)
                }),
            });
        }
    }
    contestants
}

fn best_lines_per_s(rows: &[Row]) -> Option<f64> {
    let own = rows
        .iter()
        .filter(|row| row.system == OURS && row.case == "saturated");
    own.filter_map(|row| row.extra("lines_per_s"))
        .reduce(f64::max)
}

/// Starts a topology, measures it for some time after its warm-up, and ends it.
fn measure(plan: Plan, text: &Text, times: Times) -> anyhow::Result<Sample> {
    let live = Live::new(plan.split);
    std::thread::scope(|scope| {
        let topology = scope.spawn(|| topology::run(&plan, &mut text.endless(), &live));
        std::thread::sleep(times.warm_up);
        let meter = Meter::start();
        let mut window = Window::start(&live);
        window.pass(&live, times.measured);
        let mut sample = window.end(&live);
        let spent = meter.spent();
        live.stop();
        let outcome = topology.join().ok().context("the topology panicked")??;
        sample.cpu_s = Some(spent.cpu.as_secs_f64());
        sample.allocs = Some(spent.allocs as f64);
        sample.rss_mb = machine::rss_mb();
        put_batches(&mut sample, &outcome.edges);
        Ok(sample)
    })
}

/// Adds the figures of the batches in which words pass from splitters to counters. The figures of the batches
/// of lines go to the extra keys.
fn put_batches(sample: &mut Sample, [lines, words]: &[Edge; 2]) {
    if words.batches.batches() > 0 {
        sample.batches = Some(words.batches.batches() as f64);
        sample.batch_mean = Some(words.batches.mean());
        sample.batch_max = Some(words.batches.items_max as f64);
        sample
            .extra
            .insert("line_batch_mean".into(), lines.batches.mean());
        sample
            .extra
            .insert("limit_max".into(), words.limits.1 as f64);
    }
}

/// The measured part of the time of a running topology, without its warm-up.
pub(super) struct Window {
    since: Instant,
    words: u64,
    lines: u64,
}

impl Window {
    /// Starts the window, and drops the latencies of earlier words.
    pub(super) fn start(live: &Live) -> Self {
        drop(live.take_latency());
        Self {
            since: Instant::now(),
            words: live.words(),
            lines: live.lines(),
        }
    }

    /// Waits for `time`, and longer while the topology has counted no word, because other programs may use
    /// the machine.
    pub(super) fn pass(&self, live: &Live, time: Duration) {
        let start = Instant::now();
        let over = |elapsed| elapsed >= time && (live.words() > self.words || elapsed > time * 100);
        while !over(start.elapsed()) && !interrupt::asked() {
            let left = time.saturating_sub(start.elapsed());
            std::thread::sleep(left.clamp(Duration::from_millis(1), Duration::from_millis(100)));
        }
    }

    /// Ends the window. Returns the words a second since the window's start, and the latencies.
    pub(super) fn end(&mut self, live: &Live) -> Sample {
        let (words, lines) = (live.words() - self.words, live.lines() - self.lines);
        let seconds = self.since.elapsed().as_secs_f64();
        let mut sample = Sample {
            ops_per_s: words as f64 / seconds,
            ..Sample::default()
        };
        latency::put(&mut sample, &live.take_latency());
        sample
            .extra
            .insert("lines_per_s".into(), lines as f64 / seconds);
        sample
    }
}
