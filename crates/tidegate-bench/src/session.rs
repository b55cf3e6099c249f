//! Runs one bench as a session, which measures the cells one after the other. At the end of a cell the
//! session prints the rows of the cell, writes them to the file of results and adds them to the JSON
//! document.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::machine;
use super::peers::{Peers, System, is_unsupported};
use super::rounds::{Contestant, play};
use crate::options::{BenchArgs, Effort};
use tidegate_cli::interrupt;
use tidegate_cli::report::{Document, Row, case_table};

/// The time from the start of a run after which the session starts no further cell, unless `--full` is set.
const BUDGET: Duration = Duration::from_secs(8 * 60);
/// The words with which a session says that it leaves out a cell.
pub(crate) const OVER: &str = "the time of one call is over";
/// The time from the start of a run after which the session starts no further measurement, unless `--full` is
/// set. The run then ends within ten minutes.
const END: Duration = Duration::from_secs(9 * 60 + 15);

/// The peers that have no part in a bench, by the bench's name. The session does not start them.
const ELSEWHERE: [(&str, &[&str]); 9] = [
    ("mailbox", &["rust", "java", "storm", "go", "redis-rs"]),
    ("queue", &["erlang", "storm", "go", "redis-rs"]),
    (
        "link",
        &["rust", "java", "erlang", "storm", "go", "redis-rs"],
    ),
    ("topology", &["rust", "java", "erlang", "go", "redis-rs"]),
    ("redis", &["rust", "java", "storm", "erlang"]),
    // In the benches `stream`, `cluster`, `callers` and `raft` the rivals are servers that the bench starts
    // itself, so no peer takes part.
    (
        "stream",
        &["rust", "java", "erlang", "storm", "go", "redis-rs"],
    ),
    (
        "cluster",
        &["rust", "java", "erlang", "storm", "go", "redis-rs"],
    ),
    (
        "callers",
        &["rust", "java", "erlang", "storm", "go", "redis-rs"],
    ),
    (
        "raft",
        &["rust", "java", "erlang", "storm", "go", "redis-rs"],
    ),
];

/// One run of a bench, which measures the cells, keeps their results and prints them.
pub(crate) struct Session {
    pub(crate) args: BenchArgs,
    /// The systems that the peers' processes offer; empty without `--peers`.
    pub(crate) systems: Vec<System>,
    peers: Peers,
    document: Document,
    store: Option<Store>,
    started: Instant,
    rounds: usize,
}

impl Session {
    /// Opens the session of a bench: opens the file of kept results and asks the peers for the systems to
    /// measure.
    pub(crate) fn open(bench: &str, args: &BenchArgs) -> anyhow::Result<Self> {
        let document = Document::new(bench);
        let path = args
            .resume
            .clone()
            .or_else(|| args.full.then(|| kept(bench)));
        let store = path
            .map(|path| Store::open(&path, bench, document.commit.clone()))
            .transpose()?;
        let smoke = args.effort == Effort::Smoke;
        let rounds = args.rounds.unwrap_or(if smoke { 2 } else { 5 });
        let started = Instant::now();
        let timeout = Duration::from_secs_f64(args.peer_timeout);
        let mut session = Self {
            args: args.clone(),
            systems: Vec::new(),
            peers: Peers::none(timeout, end(args, started)),
            document,
            store,
            started,
            rounds: rounds as usize,
        };
        if args.peers {
            session.meet_peers(bench);
        }
        Ok(session)
    }

    /// Returns whether measurements should be as short as possible, because the user wants to prove only that
    /// the bench works.
    pub(crate) fn is_smoke(&self) -> bool {
        self.args.effort == Effort::Smoke
    }

    /// Returns whether the bench must measure this cell: the user selected the cell, time is left, and the
    /// file of results does not have the cell. If the file has the cell, prints the kept result.
    pub(crate) fn wants(&mut self, case: &str) -> bool {
        if interrupt::asked()
            || self
                .args
                .only
                .as_ref()
                .is_some_and(|only| !case.contains(only.as_str()))
        {
            return false;
        }
        if let Some(rows) = self.store.as_ref().and_then(|store| store.rows(case)) {
            self.show(case, rows);
            return false;
        }
        if !self.args.full && self.started.elapsed() > BUDGET {
            self.say(&format!("{case}: not run, {OVER}; --full has every cell"));
            return false;
        }
        true
    }

    /// Measures the contestants of a cell in interleaved rounds, so that all of them feel the same
    /// disturbances, and keeps and prints the rows.
    pub(crate) fn cell(
        &mut self,
        case: &str,
        contestants: Vec<Contestant<'_, Peers>>,
    ) -> anyhow::Result<Vec<Row>> {
        self.cell_with(case, contestants, |_| ())
    }

    /// Measures a cell in interleaved rounds, and lets `compare` add comparisons of its rows.
    pub(crate) fn cell_with(
        &mut self,
        case: &str,
        mut contestants: Vec<Contestant<'_, Peers>>,
        compare: impl FnOnce(&mut [Row]),
    ) -> anyhow::Result<Vec<Row>> {
        let end = end(&self.args, self.started);
        let stop = || interrupt::asked() || end.is_some_and(|end| Instant::now() >= end);
        let rows = play(case, &mut contestants, &mut self.peers, self.rounds, stop);
        // If a system lacks the feature that the cell measures, it gets no row in the cell.
        let mut rows: Vec<_> = rows
            .into_iter()
            .filter(|row| !row.note().is_some_and(is_unsupported))
            .collect();
        compare(&mut rows);
        // The session keeps only cells with all their rounds, because a resumed run could not tell an
        // incomplete cell from a complete one.
        let rounds = self.rounds as u64;
        let whole = rows
            .iter()
            .all(|row| row.rounds.is_none_or(|n| n == rounds));
        if whole {
            self.keep(case, rows.clone())?;
        } else {
            self.show(case, rows.clone());
        }
        Ok(rows)
    }

    /// Keeps the rows of a cell that the bench measured without interleaved rounds.
    pub(crate) fn keep(&mut self, case: &str, rows: Vec<Row>) -> anyhow::Result<()> {
        if let Some(store) = self.store.as_mut().filter(|_| !interrupt::asked()) {
            store.keep(case, &rows)?;
        }
        self.show(case, rows);
        Ok(())
    }

    /// Adds this program with `args` as a process, to which the bench sends requests under this name, as to a
    /// peer.
    pub(crate) fn add_peer(
        &mut self,
        name: &str,
        args: &'static [&'static str],
    ) -> anyhow::Result<()> {
        self.peers.add(name, std::env::current_exe()?, args);
        Ok(())
    }

    /// Ends the peers' processes, so that they do not disturb measurements. The next request to a peer starts
    /// it again.
    pub(crate) fn rest_peers(&mut self) {
        self.peers.rest();
    }

    /// Prints a remark for the user on standard error, because standard output may hold the JSON document.
    pub(crate) fn say(&self, text: &str) {
        eprintln!("tidegate: {text}");
    }

    /// Prints a further table for the user on standard output, except with `--json`.
    pub(crate) fn print(&self, text: &str) -> anyhow::Result<()> {
        if !self.args.json {
            writeln!(std::io::stdout(), "{text}")?;
        }
        Ok(())
    }

    /// Ends the session and its peers. With `--json`, prints the document.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        if self.args.json {
            writeln!(std::io::stdout(), "{}", self.document.json()?)?;
        }
        Ok(())
    }

    /// Returns the rows of all cells of this session so far.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.document.rows
    }

    fn show(&mut self, case: &str, rows: Vec<Row>) {
        if !self.args.json && !rows.is_empty() {
            // If standard output has lost its reader, this write fails; the document at the end of the
            // session reports the loss.
            let _ = self.print(&format!(
                "{case}\n{}",
                case_table(&rows.iter().collect::<Vec<_>>())
            ));
        }
        self.document.rows.extend(rows);
    }

    fn meet_peers(&mut self, bench: &str) {
        self.peers.find();
        if self.peers.is_empty() {
            self.say(
                "no peers: there is no bench/peers/*/start here or above; in the repository, \
                 bench/peers/install.sh builds them",
            );
        }
        let elsewhere = ELSEWHERE
            .iter()
            .find(|(name, _)| *name == bench)
            .map_or(&[][..], |(_, peers)| peers);
        for peer in self
            .peers
            .names()
            .into_iter()
            .filter(|peer| !elsewhere.contains(&peer.as_str()))
        {
            match self.peers.systems(&peer) {
                Ok(systems) => self.systems.extend(systems),
                Err(failure) => {
                    self.say(&format!("{peer}: {failure}"));
                    let mut row = Row {
                        system: peer,
                        case: "hello".into(),
                        ..Row::default()
                    };
                    row.extra.insert("note".into(), json!(failure));
                    self.document.rows.push(row);
                }
            }
        }
    }
}

/// Returns the time after which the session starts no further measurement; `None` with `--full`, which has no
/// limit.
fn end(args: &BenchArgs, started: Instant) -> Option<Instant> {
    if args.full {
        None
    } else {
        started.checked_add(END)
    }
}

/// Returns the path of the file in which a full run keeps its cells: beside the peers if there are any,
/// otherwise below the current directory.
fn kept(bench: &str) -> PathBuf {
    let root = machine::upwards("bench/peers").unwrap_or_default();
    root.join("bench/results").join(format!("{bench}.jsonl"))
}

/// The file of finished cells, one cell a line, from which a run resumes. Cells of another bench or commit
/// stay in the file, and the session ignores them.
struct Store {
    file: File,
    path: PathBuf,
    bench: String,
    commit: Option<String>,
    done: Vec<Kept>,
}

#[derive(Deserialize, Serialize)]
struct Kept {
    bench: String,
    commit: Option<String>,
    case: String,
    rows: Vec<Row>,
}

impl Store {
    fn open(path: &Path, bench: &str, commit: Option<String>) -> anyhow::Result<Self> {
        let context = || format!("the results in {}", path.display());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(context)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .with_context(context)?;
        let mut done = Vec::new();
        for line in BufReader::new(&file).lines() {
            // If an earlier run left this line incomplete, the bench measures the cell again.
            let Ok(kept) = serde_json::from_str::<Kept>(&line.with_context(context)?) else {
                continue;
            };
            if kept.bench == bench && kept.commit == commit {
                done.push(kept);
            }
        }
        Ok(Self {
            file,
            path: path.into(),
            bench: bench.into(),
            commit,
            done,
        })
    }

    fn rows(&self, case: &str) -> Option<Vec<Row>> {
        let kept = self.done.iter().rev().find(|kept| kept.case == case)?;
        Some(kept.rows.clone())
    }

    fn keep(&mut self, case: &str, rows: &[Row]) -> anyhow::Result<()> {
        let (bench, commit) = (self.bench.clone(), self.commit.clone());
        let kept = Kept {
            bench,
            commit,
            case: case.into(),
            rows: rows.to_vec(),
        };
        let line = serde_json::to_string(&kept)?;
        // The line feed comes first, so that this line does not join an incomplete line of an earlier run.
        write!(self.file, "\n{line}\n").with_context(|| self.path.display().to_string())?;
        Ok(())
    }
}
