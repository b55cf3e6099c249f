//! `tidegate-bench arena`: plays generated worlds in virtual time, the default controller beside greedy,
//! exponential, aimd and the best fixed settings.
//!
//! A cell is one generated world with its load. [`contest`] plays a cell, [`cache`] keeps the figures that do
//! not depend on our controller, [`matrix`] and [`report`] print each contestant's share of the best
//! setting's figures, [`goals`] judges the shares, [`backlog`] judges the promise of a stable backlog, and
//! [`detail`] shows one cell. No figure depends on this machine: the same seed prints the same text.

mod backlog;
mod cache;
mod contest;
mod detail;
mod goals;
mod matrix;
mod report;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, value_parser};
use tidegate::sim::arena::{Breach, Cell, Effort, Entry, Family, SEEDS, fixed_cells};
use tidegate_cli::interrupt;

use cache::Cache;
use contest::Played;

/// The arguments with which the user runs `tidegate-bench arena`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ArenaArgs {
    /// Simulate this many cells; more cells cover more cases. A cell is a workload that the bench generates
    /// from a seed, and that satisfies the premises of the default controller. With 1 the bench prints the
    /// cell in detail.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u32).range(1..=1_000_000))]
    cells: u32,
    /// Generate the first cell from this seed, and each further cell from the next seed, to play other cells
    /// or to repeat a run. The bench skips a seed if its cell does not satisfy the premises of the default
    /// controller, for example if no setting keeps up with the arrivals.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u32,
    /// Simulate only cells with cost curves of this family, to examine one kind of handler: linear,
    /// sublinear, duplicates, superlinear, stepped, padded, humps, constant or cheaper.
    #[arg(long, value_name = "F")]
    family: Option<Family>,
    /// Simulate this many cells in parallel, to shorten the run. Default: the number of this machine's cores.
    #[arg(long, value_name = "J", value_parser = value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Simulate each cell this many times, with other random numbers each time. More repetitions narrow the
    /// interval of the results.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = value_parser!(u32).range(1..=SEEDS.len() as i64))]
    rounds: u32,
    /// Simulate at most this many items in the measured part of a run, to bound the duration of the run.
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = value_parser!(u64).range(1000..))]
    items: u64,
    /// Keep the results of all controllers except the default controller in this file of JSON lines. The next
    /// run takes these results from the file, and simulates only the default controller again.
    #[arg(long, value_name = "FILE", default_value = "target/arena.jsonl")]
    cache: PathBuf,
    /// Judge only whether the default controller's backlog stays stable, in cells with open-loop callers,
    /// which do not wait for answers. Exit with 1 if the backlog grows without end in one of these cells.
    #[arg(long, conflicts_with = "write_table")]
    stability: bool,
    /// Print one JSON document, for other programs, instead of tables.
    #[arg(long)]
    json: bool,
    /// For each cell of a fixed set, write the limit and the linger with the best result to this file, and
    /// print no results. The tests of the default controller read this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "family"])]
    write_table: Option<PathBuf>,
}

impl ArenaArgs {
    const fn effort(&self) -> Effort {
        Effort {
            items_max: self.items,
        }
    }

    fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(cores, |jobs| jobs as usize)
    }
}

/// Plays the cells of the arena and prints the verdict on the default controller.
pub(crate) fn run(args: &ArenaArgs) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let code = match &args.write_table {
        Some(file) => write_table(args, file)?,
        None if args.stability => backlog::run(args)?,
        None => regrets(args)?,
    };
    eprintln!(
        "tidegate-bench: wall time {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(match interrupt::asked() {
        true => ExitCode::from(interrupt::EXIT_CODE),
        false => code,
    })
}

fn regrets(args: &ArenaArgs) -> anyhow::Result<ExitCode> {
    let cache = Cache::open(&args.cache)?;
    let chosen = Chosen::of(args, |_| true);
    let played = in_parallel(args.jobs(), &chosen.cells, |cell| {
        contest::play(cell, args.effort(), args.rounds as usize, &cache)
    });
    let played: Vec<Played> = played.into_iter().collect::<anyhow::Result<_>>()?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", report::json(args.seed, &chosen, &played)?)?;
    } else if let ([cell], [played]) = (&chosen.cells[..], &played[..]) {
        write!(out, "{}", detail::detail(cell, played, args.effort()))?;
    } else {
        write!(out, "{}", report::text(&chosen, &played))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_table(args: &ArenaArgs, file: &PathBuf) -> anyhow::Result<ExitCode> {
    let cells: Vec<Cell> = fixed_cells().collect();
    let lines = in_parallel(args.jobs(), &cells, |cell| Entry::of(cell).to_string());
    if lines.len() < cells.len() {
        return Ok(ExitCode::FAILURE);
    }
    let text = format!("{TABLE_HEAD}{}\n", lines.join("\n"));
    std::fs::write(file, text).with_context(|| file.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

const TABLE_HEAD: &str = "\
# The fixed cells of the arena, written by `tidegate-bench arena --write-table`: the seed; the best settings by
# throughput, mean and 99th percentile as limit/linger in ms/number in flight; the throughput of the first in
# items/ms and its 99th percentile in ms, the mean of the second, the 99th percentile of the third.
";

/// The cells that a run of the arena plays, and the seeds that the run leaves out.
struct Chosen {
    cells: Vec<Cell>,
    /// The seeds of workloads that do not satisfy the premises of the default controller, each with the
    /// reason.
    breaches: Vec<(u32, Breach)>,
}

impl Chosen {
    /// Returns the first cells of the chosen family that `is_wanted` accepts, in the order of their seeds
    /// from the first seed on.
    fn of(args: &ArenaArgs, is_wanted: impl Fn(&Cell) -> bool) -> Self {
        let mut chosen = Self {
            cells: Vec::new(),
            breaches: Vec::new(),
        };
        for seed in args.seed..=u32::MAX {
            if chosen.cells.len() >= args.cells as usize || interrupt::asked() {
                break;
            }
            let world = tidegate::sim::arena::World::random(seed);
            if args.family.is_some_and(|family| world.family() != family) {
                continue;
            }
            match Cell::of(seed) {
                Ok(cell) if is_wanted(&cell) => chosen.cells.push(cell),
                Ok(_) => {}
                Err(breach) => chosen.breaches.push((seed, breach)),
            }
        }
        chosen
    }

    /// Describes the skipped seeds in one line for the report; the line is empty if the run skipped no seed.
    fn left_out(&self) -> String {
        match self.breaches.first() {
            None => String::new(),
            Some((seed, breach)) => format!(
                "{} seeds left out, because their worlds do not satisfy the premises (such as {seed}: {breach})\n",
                self.breaches.len()
            ),
        }
    }
}

/// Calls `of` for each cell on `jobs` threads, and returns the results in the order of the cells. After
/// Ctrl-C the function starts no further cells, so the last results are missing.
fn in_parallel<T: Send>(jobs: usize, cells: &[Cell], of: impl Fn(&Cell) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        while !interrupt::asked() {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(i) else { break };
            mine.push((i, of(cell)));
            if i > 0 && i.is_multiple_of(100) {
                eprintln!("tidegate-bench: {i} of {} cells", cells.len());
            }
        }
        mine
    };
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let results = threads.into_iter().flat_map(|thread| match thread.join() {
            Ok(results) => results,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.collect()
    });
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}
