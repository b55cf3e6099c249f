//! Checks the default controller's promise that the backlog stays stable if callers do not wait for answers
//! (an open loop). The check plays many cells, which are simulated workloads. Each cell in which the
//! controller breaks the promise gets a diagnosis.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use tidegate::sim::arena::{Cell, Kind, SEEDS, Setting, Stability, World, grid};

use super::contest::{Contestant, described};
use super::{ArenaArgs, Chosen, in_parallel};

/// The number of seeds with which the bench may play a cell. The default controller breaks its promise of a
/// stable backlog in the cell only if it breaks the promise with most of these seeds, because a single seed
/// may be chance.
const SEEDS_JUDGED: usize = 3;

/// A cell of the bench (one simulated world with its callers), and the verdict on the backlog that the
/// default controller leaves in it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Judged {
    seed: u32,
    family: &'static str,
    kind: String,
    several: bool,
    world: String,
    /// The backlog in each mode of the simulated world, that is, between two of its changes. The figures are
    /// those of the first seed on which the controller breaks the promise of a stable backlog; if it keeps
    /// the promise, those of the first seed of all.
    modes: Vec<Mode>,
    /// The number of seeds on which the controller breaks the promise of a stable backlog. If the controller
    /// keeps the promise on the first seed, the bench plays no further seed.
    broken: usize,
    /// True if the cell has no verdict: the backlog drifts even under the best fixed setting, so chance may
    /// be the reason.
    unresolved: bool,
    /// The likely reason why the controller breaks the promise of a stable backlog in this cell; `None` if it
    /// keeps the promise.
    diagnosis: Option<String>,
}

/// The backlog in one mode of the simulated world, that is, between two of its changes. The bench compares
/// the default controller with the best fixed setting (`best_`). The slope is the growth of the backlog as a
/// share of the arrivals; the peak is in items.
#[derive(Clone, Debug, Serialize)]
struct Mode {
    slope: f64,
    best_slope: f64,
    peak: u64,
    best_peak: u64,
    peak_max: f64,
    batch: f64,
    in_flight: f64,
    kept: bool,
}

impl Judged {
    const fn is_broken(&self) -> bool {
        self.broken > SEEDS_JUDGED / 2
    }
}

/// Returns whether the promise of a stable backlog applies to the cell. The promise applies to cells with
/// callers that do not wait for answers, because only their backlog can grow without end.
pub(super) fn has_promise(cell: &Cell) -> bool {
    matches!(cell.kind(), Kind::Open(_) | Kind::Bursts)
}

/// Judges the default controller's backlog in all chosen cells. The exit code is 1 if the backlog is not
/// stable in one of the cells.
pub(super) fn run(args: &ArenaArgs) -> anyhow::Result<ExitCode> {
    let chosen = Chosen::of(args, has_promise);
    let judged = in_parallel(args.jobs(), &chosen.cells, judge);
    let judged: Vec<Judged> = judged.into_iter().collect::<anyhow::Result<_>>()?;
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&judged)?)?,
        false => write!(out, "{}{}", text(&judged), chosen.left_out())?,
    }
    Ok(match judged.iter().any(Judged::is_broken) {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

/// Plays the cell under the default controller on the first seed. If the backlog is not stable there, plays
/// further seeds, so that chance does not decide.
pub(super) fn judge(cell: &Cell) -> anyhow::Result<Judged> {
    let mut broken = 0;
    let mut unresolved = false;
    let mut shown: Option<Vec<Stability>> = None;
    for &seed in &SEEDS[..SEEDS_JUDGED] {
        let mut controller = Contestant::Ours.controller(&cell.world)?;
        let modes = cell.stability(seed, &mut controller);
        let first = modes.iter().find(|mode| !mode.is_kept());
        let is_broken = first.is_some_and(|mode| !mode.is_unresolved());
        unresolved |= first.is_some_and(Stability::is_unresolved);
        if shown.is_none() || (is_broken && broken == 0) {
            shown = Some(modes.clone());
        }
        if first.is_none() && broken == 0 {
            break;
        }
        broken += usize::from(is_broken);
    }
    let modes = shown.unwrap_or_default();
    let first = modes.iter().position(|mode| !mode.is_kept());
    Ok(Judged {
        seed: cell.seed,
        family: cell.world.family().as_str(),
        kind: cell.kind().to_string(),
        several: cell.world.in_flight_max > 1,
        world: described(&cell.world),
        broken,
        unresolved: unresolved && broken == 0,
        diagnosis: first
            .filter(|_| broken > 0)
            .map(|i| diagnosis(cell, i, &modes[i])),
        modes: modes.iter().map(mode).collect(),
    })
}

fn mode(mode: &Stability) -> Mode {
    Mode {
        slope: mode.ours.slope,
        best_slope: mode.best.slope,
        peak: mode.ours.peak,
        best_peak: mode.best.peak,
        peak_max: mode.peak_max,
        batch: mode.ours.batch,
        in_flight: mode.ours.in_flight,
        kept: mode.is_kept(),
    }
}

/// Returns the likely reason why the default controller's backlog is not stable in mode `i` of the cell's
/// load, for the developer of the controller.
fn diagnosis(cell: &Cell, i: usize, found: &Stability) -> String {
    let world = cell.world.mode(i);
    let rate = cell.rate();
    let ours = &found.ours;
    let is_enough = |setting: &Setting| setting.linger == 0.0 && setting.saturated(&world) >= rate;
    let enough: Vec<Setting> = grid(&world).into_iter().filter(is_enough).collect();
    let one: Vec<u64> = enough
        .iter()
        .filter(|s| s.in_flight == 1)
        .map(|s| s.limit)
        .collect();
    let mut text = match i {
        0 => String::from("from cold: "),
        i => format!("after change {i}: "),
    };
    if !ours.ended {
        let _ = write!(text, "the backlog passes the simulator's bound; ");
    }
    let fewest = enough.iter().map(|s| s.in_flight).min().unwrap_or(1);
    if fewest > 1 && ours.in_flight < f64::from(fewest) - 0.5 {
        let _ = write!(
            text,
            "runs {:.1} at once, needs {fewest} at least",
            ours.in_flight
        );
    } else if found.ours.slope <= tidegate::sim::arena::SLOPE_MAX && ours.ended {
        let _ = write!(
            text,
            "keeps up in the end, but the peak is {} of {:.0} allowed: learns too late",
            ours.peak, found.peak_max
        );
    } else {
        let share = capacity_of(&world, ours.batch, ours.in_flight) / rate;
        let _ = write!(
            text,
            "batches of {:.0} do about {share:.2} of the arrivals",
            ours.batch
        );
        if !one.is_empty() {
            let _ = write!(text, ", {} keep up one at a time", ranges(&world, &one));
        }
    }
    text
}

/// Returns the approximate capacity of the simulated server in items a millisecond, if the server handles
/// batches of `batch` items, `in_flight` of them at once. The diagnosis compares the arrivals with this
/// capacity.
fn capacity_of(world: &World, batch: f64, in_flight: f64) -> f64 {
    let setting = Setting {
        limit: batch.round().max(1.0) as u64,
        linger: 0.0,
        in_flight: in_flight.round().max(1.0) as u32,
    };
    setting.saturated(world)
}

/// Formats batch limits for the diagnosis, as ranges of neighbours in the grid of fixed settings.
fn ranges(world: &World, sizes: &[u64]) -> String {
    let mut all: Vec<u64> = grid(world).iter().map(|s| s.limit).collect();
    all.dedup();
    all.sort_unstable();
    all.dedup();
    let mut text: Vec<String> = Vec::new();
    let mut from: Option<(u64, u64)> = None;
    for size in all {
        match (sizes.contains(&size), from) {
            (true, None) => from = Some((size, size)),
            (true, Some((low, _))) => from = Some((low, size)),
            (false, Some((low, high))) => {
                text.push(range(low, high));
                from = None;
            }
            (false, None) => {}
        }
    }
    text.extend(from.map(|(low, high)| range(low, high)));
    text.join(", ")
}

fn range(low: u64, high: u64) -> String {
    match low == high {
        true => low.to_string(),
        false => format!("{low} to {high}"),
    }
}

/// Formats a cell's backlog by mode, and the diagnosis, for the report.
pub(super) fn lines(judged: &Judged) -> String {
    let mut text = String::from("backlog by mode:");
    for mode in &judged.modes {
        let _ = write!(
            text,
            "\n  slope {:+.4} of the arrivals (best setting {:+.4}), peak {} of {:.0} allowed (best setting {}), batches of {:.1}, {:.1} at \
             once: {}",
            mode.slope,
            mode.best_slope,
            mode.peak,
            mode.peak_max,
            mode.best_peak,
            mode.batch,
            mode.in_flight,
            if mode.kept { "kept" } else { "broken" },
        );
    }
    if let Some(diagnosis) = &judged.diagnosis {
        let _ = write!(
            text,
            "\n  {diagnosis} ({} of {SEEDS_JUDGED} seeds)",
            judged.broken
        );
    }
    text
}

fn text(judged: &[Judged]) -> String {
    let mut text = String::new();
    for several in [false, true] {
        let cells: Vec<_> = judged.iter().filter(|j| j.several == several).collect();
        if cells.is_empty() {
            continue;
        }
        let heading = match several {
            false => "one batch at a time",
            true => "several batches at once",
        };
        let broken: Vec<_> = cells.iter().filter(|j| j.is_broken()).collect();
        let chance = cells
            .iter()
            .filter(|j| j.broken > 0 && !j.is_broken())
            .count();
        let unresolved = cells.iter().filter(|j| j.unresolved).count();
        let _ = writeln!(
            text,
            "{heading}: {} of {} cells break the promise; {chance} more on one seed of {SEEDS_JUDGED}; {unresolved} not resolved",
            broken.len(),
            cells.len(),
        );
        for j in cells.iter().filter(|j| j.broken > 0) {
            let _ = writeln!(
                text,
                "  seed {}: {}, {}, {}: {}{}",
                j.seed,
                j.family,
                j.kind,
                j.world,
                j.diagnosis.as_deref().unwrap_or_default(),
                if j.is_broken() { "" } else { " (one seed)" },
            );
        }
    }
    text
}
