//! The check of a promise, that the backlog stays stable, over many cells. Each cell in which the controller
//! breaks the promise gets a diagnosis.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use tidegate::sim::arena::{Cell, Kind, SEEDS, Setting, Stability, World, grid};

use super::contest::{Contestant, described};
use super::{ArenaArgs, Chosen, in_parallel};

/// The number of seeds that judge a cell. The cell breaks the promise if most of them break it; a single seed
/// may be chance.
const SEEDS_JUDGED: usize = 3;

/// A cell with the verdict on its backlog.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Judged {
    seed: u32,
    family: &'static str,
    kind: String,
    several: bool,
    world: String,
    /// The backlog by mode of the load, on the first seed that breaks the promise, or on the first seed if
    /// none does.
    modes: Vec<Mode>,
    /// The number of seeds that break the promise. A cell that keeps the promise on the first seed plays no
    /// further seed.
    broken: usize,
    /// True if chance hides the answer: even under the best fixed setting the backlog drifts.
    unresolved: bool,
    /// The reason why the cell breaks the promise, if it does.
    diagnosis: Option<String>,
}

/// The backlog in one mode of the load.
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

/// Returns whether the promise applies to the cell: it applies to open loops.
pub(super) fn has_promise(cell: &Cell) -> bool {
    matches!(cell.kind(), Kind::Open(_) | Kind::Bursts)
}

/// Judges the cells; the exit code is 1 if a cell breaks the promise.
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

/// Plays the cell under the default controller, on further seeds if the first one breaks the promise.
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

/// Returns the likely reason why the cell breaks the promise in mode `i`.
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

/// Returns the approximate capacity of the world's server with batches of this size.
fn capacity_of(world: &World, batch: f64, in_flight: f64) -> f64 {
    let setting = Setting {
        limit: batch.round().max(1.0) as u64,
        linger: 0.0,
        in_flight: in_flight.round().max(1.0) as u32,
    };
    setting.saturated(world)
}

/// Formats sizes of the grid as ranges.
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

/// Formats the backlog by mode, and the diagnosis.
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
