//! `tidegate-bench handlers`: runs real handlers under closed and open loops of callers, with this library's
//! defaults beside the best fixed settings of a grid and other crates that batch.
//!
//! [`cell`], [`setting`], [`arrivals`], [`outcome`], [`verdict`] and [`document`] decide and are pure.
//! [`load`] calls every contestant, [`play`] runs a cell, [`results`] keeps its result, [`work`] has the
//! handlers. [`ours`] contains every use of the library, [`recv_many`] and `rivals` contain the other
//! contestants.

mod arrivals;
mod cell;
mod contestant;
mod document;
mod host;
mod load;
mod ours;
mod outcome;
mod play;
mod recv_many;
mod results;
#[cfg(feature = "peers")]
mod rivals;
mod setting;
mod verdict;
mod work;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, value_parser};
use tidegate_cli::report::Document;
use tidegate_cli::{Usage, interrupt};

use cell::{Cell, Kind, Load};
pub(crate) use host::{Host, sync_us};
use outcome::Played;
use play::{Ground, Times};
use results::{Effort, Results};
use setting::System;
use work::Work;

/// The arguments with which the user runs `tidegate-bench handlers`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HandlersArgs {
    /// Measure four rivals, too, in the same rounds, to compare them with ours: recv_many with a semaphore,
    /// batch-aint-one, ultra-batch and amate. Needs a build with `--features peers`.
    #[arg(long)]
    peers: bool,
    /// Keep the results of finished cells in this file of JSON lines, so that an interrupted run can
    /// continue. The bench skips cells with a result in the file that has the same commit, machine,
    /// --seconds, --rounds, --quick and --peers. Default: no file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Run only these cells, to save time. A cell is a handler under a load. Name handlers, loads or both,
    /// such as `http`, `callers-16`, `http/poisson-60` or `*/poisson-9*`, separated by commas.
    #[arg(long, value_name = "PATTERN")]
    cells: Option<String>,
    /// Measure each system for this many seconds in a round, after a warm-up of half that time; a longer time
    /// has less noise. The search for the best fixed settings takes a quarter of this time for each setting.
    /// Default: 2, or 0.1 with --quick.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Run this many rounds of each cell, to reduce the noise; in a round the bench runs every system once,
    /// one after the other. Default: 7, or 1 with --quick.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Prove only that the bench works: try few fixed settings, and use the smaller defaults of --seconds and
    /// --rounds.
    #[arg(long)]
    quick: bool,
    /// Print the names of the cells instead of running them, to choose some for --cells.
    #[arg(long)]
    list: bool,
    /// Print one JSON document, for other programs, instead of tables.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| (0.02..=600.0).contains(s));
    seconds.ok_or_else(|| "give seconds from 0.02 to 600".into())
}

/// Returns the usage error for a part of the bench that needs the feature `peers`.
fn not_built(part: &str) -> Usage {
    Usage::new(format!(
        "{part} is not in this build: cargo build --release -p tidegate-bench --features peers"
    ))
}

/// Runs the selected cells and prints the verdict. The exit code is 1 if this library's contestant failed.
pub(crate) fn run(args: &HandlersArgs) -> anyhow::Result<ExitCode> {
    let mut cells = cell::select(args.cells.as_deref()).map_err(Usage::new)?;
    if args.list {
        for cell in cells {
            writeln!(std::io::stdout(), "{}", cell.name())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.peers && !cfg!(feature = "peers") {
        return Err(not_built("--peers").into());
    }
    if let Some(cell) = cells.iter().find(|cell| !cell.kind.is_built()) {
        if args.cells.is_some() {
            return Err(not_built(cell.kind.name()).into());
        }
        say("left out, because this build lacks them: postgres, sqlite (--features peers)");
        cells.retain(|cell| cell.kind.is_built());
    }
    for cell in &cells {
        Work::check(cell.kind)?;
    }
    let start = Instant::now();
    let mut bench = Bench::open(args)?;
    bench.announce(&cells)?;
    let mut played = Vec::new();
    for cell in cells {
        if interrupt::asked() {
            break;
        }
        played.extend(bench.cell(cell)?);
    }
    // The bench ends the last handler before it measures the host again, because a running handler would
    // disturb the host's figures.
    bench.work = None;
    let host = bench.host()?;
    let wall = start.elapsed();
    let end = format!("host at the end: {host}; wall time {}", span(wall));
    if args.json {
        say(&end);
        let mut document = Document::new("handlers");
        document.rows = played.iter().flat_map(document::rows).collect();
        writeln!(std::io::stdout(), "{}", document.json()?)?;
    } else {
        writeln!(std::io::stdout(), "{}\n{end}", verdict::verdict(&played))?;
    }
    let is_ours = |row: &outcome::Row| row.system == System::Ours.name() && row.note.is_some();
    Ok(if interrupt::asked() {
        ExitCode::from(interrupt::EXIT_CODE)
    } else if played.iter().any(|played| played.rows.iter().any(is_ours)) {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// One run of the bench `handlers`, with its settings and its open files.
struct Bench {
    /// The handler of the previous cell. The next cell uses this handler again if it needs the same kind.
    work: Option<(Kind, Work)>,
    ground: Ground,
    results: Results,
    directory: Directory,
    machine: String,
    commit: Option<String>,
    /// True if standard output is for the JSON document alone.
    json: bool,
}

impl Bench {
    fn open(args: &HandlersArgs) -> anyhow::Result<Self> {
        let document = Document::new("handlers");
        let (default_seconds, default_rounds) = if args.quick { (0.1, 1) } else { (2.0, 7) };
        let seconds = args.seconds.unwrap_or(default_seconds);
        let rounds = args.rounds.unwrap_or(default_rounds);
        let effort = Effort {
            commit: document.commit.clone(),
            machine: document.machine.clone(),
            seconds,
            rounds,
            quick: args.quick,
            peers: args.peers,
        };
        let ground = Ground::new(Times {
            window: Duration::from_secs_f64(seconds),
            rounds,
            quick: args.quick,
            peers: args.peers,
        })?;
        Ok(Self {
            work: None,
            ground,
            results: Results::open(args.out.as_deref(), effort)?,
            directory: Directory::make()?,
            machine: document.machine,
            commit: document.commit,
            json: args.json,
        })
    }

    fn host(&self) -> anyhow::Result<Host> {
        Host::measure(self.machine.clone(), self.commit.clone(), &self.directory.0)
    }

    /// Prints the facts about the host and the number of cells still to run, so that the user can judge the
    /// run.
    fn announce(&mut self, cells: &[Cell]) -> anyhow::Result<()> {
        let host = self.host()?;
        self.results.keep_host(&host)?;
        let about = format!("{}; {host}", self.machine);
        match self.json {
            true => say(&about),
            false => writeln!(std::io::stdout(), "{about}")?,
        }
        let left = cells
            .iter()
            .filter(|cell| self.results.cell(&cell.name()).is_none());
        let (count, guess) = left.fold((0, Duration::ZERO), |(count, guess), cell| {
            (count + 1, guess + self.ground.times.guess(*cell))
        });
        let kept = cells.len() - count;
        say(&format!(
            "{count} cells to run, {kept} kept, about {}",
            span(guess)
        ));
        say(&format!("files in {}", self.directory.0.display()));
        if self.directory.is_in_memory() {
            say("that is memory and no disk: syncs cost nothing there; set TIDEGATE_BENCH_DIR");
        }
        Ok(())
    }

    /// Plays a cell, or takes the cell's result from the file of results to save time; `None` after an
    /// interrupt.
    fn cell(&mut self, cell: Cell) -> anyhow::Result<Option<Played>> {
        let name = cell.name();
        if let Some(kept) = self.results.cell(&name) {
            let kept = kept.clone();
            self.show(&kept)?;
            return Ok(Some(kept));
        }
        let per_s = match cell.load {
            Load::Callers(_) => None,
            Load::Poisson(percent) => match self.capacity(cell)? {
                Some(capacity) => Some(capacity * f64::from(percent) / 100.0),
                None => return Ok(None),
            },
        };
        self.start_work(cell.kind)?;
        let Some((_, work)) = &self.work else {
            return Ok(None);
        };
        let Some(played) = self.ground.play(cell, work, per_s) else {
            return Ok(None);
        };
        self.results.keep_cell(&played)?;
        self.show(&played)?;
        Ok(Some(played))
    }

    /// Prints the table of a cell, or with `--json` a remark that the cell is done.
    fn show(&self, played: &Played) -> anyhow::Result<()> {
        if self.json {
            say(&format!("{}: done", played.cell));
        } else {
            let table = verdict::cell_table(played);
            writeln!(std::io::stdout(), "\n{}", table.trim_end())?;
        }
        Ok(())
    }

    /// Returns the capacity of the cell's handler in items a second, which sets the rate of an open loop;
    /// `None` after an interrupt.
    fn capacity(&mut self, cell: Cell) -> anyhow::Result<Option<f64>> {
        let name = cell.kind.name();
        if let Some(per_s) = self.results.capacity(name) {
            return Ok(Some(per_s));
        }
        self.start_work(cell.kind)?;
        let Some((_, work)) = &self.work else {
            return Ok(None);
        };
        say(&format!("{name}: measuring its capacity"));
        let capacity = self.ground.capacity(cell, work)?;
        if let Some(per_s) = capacity {
            say(&format!("{name}: {per_s:.0} items/s"));
            self.results.keep_capacity(name, per_s)?;
        }
        Ok(capacity)
    }

    fn start_work(&mut self, kind: Kind) -> anyhow::Result<()> {
        if self
            .work
            .as_ref()
            .is_some_and(|(running, _)| *running == kind)
        {
            return Ok(());
        }
        // The bench ends the previous handler first, because two running handlers would disturb each other.
        self.work = None;
        let work = Work::start(kind, &self.ground.runtime, &self.directory.0)?;
        self.work = Some((kind, work));
        Ok(())
    }
}

fn say(text: &str) {
    eprintln!("tidegate-bench: {text}");
}

/// Formats a duration in hours, minutes and seconds for the user.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// The directory of the handlers' files, which the bench removes at its end.
struct Directory(PathBuf);

impl Directory {
    /// Creates the directory below `TIDEGATE_BENCH_DIR`, or, without this variable, in the system's temporary
    /// directory, which PostgreSQL's user can read.
    fn make() -> anyhow::Result<Self> {
        let parent = std::env::var_os("TIDEGATE_BENCH_DIR");
        let parent = parent.map_or_else(std::env::temp_dir, PathBuf::from);
        let path = parent.join(format!("bench-handlers-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path.canonicalize()?))
    }

    fn is_in_memory(&self) -> bool {
        const TMPFS: u64 = 0x0102_1994;
        let path: &Path = &self.0;
        rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A leftover directory costs space and does no harm, so the bench ignores a failed removal.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
