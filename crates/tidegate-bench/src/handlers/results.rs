//! Keeps the results of finished cells in a file of JSON lines, so that an interrupted run resumes from them.
//! Results of another commit, machine or effort stay in the file, and the bench ignores them.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::outcome::Played;

/// The circumstances in which the bench measured a result: commit, machine, durations and flags. A later run
/// uses the kept result only if its own circumstances are the same.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct Effort {
    pub(super) commit: Option<String>,
    pub(super) machine: String,
    pub(super) seconds: f64,
    pub(super) rounds: u32,
    pub(super) quick: bool,
    pub(super) peers: bool,
}

/// One line of the file of results, as JSON, from which a later run continues.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The figures of the host, which the bench writes to the file at the start of each run.
    Host(Host),
    /// The capacity of a handler: its best throughput over the grid of settings, in items a second.
    Capacity {
        effort: Effort,
        handler: String,
        per_s: f64,
    },
    /// The result of a finished cell, which a later run need not measure again.
    Cell { effort: Effort, played: Played },
}

/// The kept results of finished cells, and the file of JSON lines that holds them for a later run.
pub(super) struct Results {
    /// The open file of results and its path; `None` if the user did not give `--out`.
    file: Option<(File, PathBuf)>,
    effort: Effort,
    capacities: Vec<(String, f64)>,
    cells: Vec<Played>,
}

impl Results {
    /// Opens the file of results, and reads the results that an earlier run measured in the same
    /// circumstances, `effort`.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub(super) fn open(path: Option<&Path>, effort: Effort) -> anyhow::Result<Self> {
        let mut results = Self {
            file: None,
            effort,
            capacities: Vec::new(),
            cells: Vec::new(),
        };
        let Some(path) = path else { return Ok(results) };
        let context = || format!("the results in {}", path.display());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(context)?;
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let file = file.with_context(context)?;
        for line in BufReader::new(&file).lines() {
            results.take_in(&line.with_context(context)?);
        }
        results.file = Some((file, path.into()));
        Ok(results)
    }

    /// Reads a line of the file of results. If an earlier run left a line incomplete, the bench measures its
    /// cell again.
    fn take_in(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Capacity {
                effort,
                handler,
                per_s,
            }) if effort == self.effort => self.capacities.push((handler, per_s)),
            Ok(Line::Cell { effort, played }) if effort == self.effort => self.cells.push(played),
            _ => {}
        }
    }

    /// Returns the capacity of a handler in items a second, if the file has a result for the handler.
    pub(super) fn capacity(&self, handler: &str) -> Option<f64> {
        let mut kept = self.capacities.iter().rev();
        Some(kept.find(|(name, _)| name == handler)?.1)
    }

    /// Returns the kept result of the cell of this name, so that the bench need not run the cell again.
    pub(super) fn cell(&self, name: &str) -> Option<&Played> {
        self.cells.iter().rev().find(|played| played.cell == name)
    }

    /// Writes the figures of the host to the file at the start of a run, so that a reader can judge the
    /// results.
    pub(super) fn keep_host(&mut self, host: &Host) -> anyhow::Result<()> {
        self.write(&Line::Host(host.clone()))
    }

    pub(super) fn keep_capacity(&mut self, handler: &str, per_s: f64) -> anyhow::Result<()> {
        self.capacities.push((handler.into(), per_s));
        self.write(&Line::Capacity {
            effort: self.effort.clone(),
            handler: handler.into(),
            per_s,
        })
    }

    pub(super) fn keep_cell(&mut self, played: &Played) -> anyhow::Result<()> {
        self.cells.push(played.clone());
        self.write(&Line::Cell {
            effort: self.effort.clone(),
            played: played.clone(),
        })
    }

    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let Some((file, path)) = &mut self.file else {
            return Ok(());
        };
        let line = serde_json::to_string(line)?;
        // The line feed comes first, so that this line does not join an incomplete line of an earlier run.
        write!(file, "\n{line}\n").with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effort(seconds: f64) -> Effort {
        Effort {
            seconds,
            rounds: 7,
            ..Effort::default()
        }
    }

    fn played(cell: &str, wall_s: f64) -> Played {
        Played {
            cell: cell.into(),
            wall_s,
            ..Played::default()
        }
    }

    #[test]
    fn a_second_start_finds_the_finished_cells() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deeper/results.jsonl");
        let mut first = Results::open(Some(&path), effort(2.0)).unwrap();
        assert!(first.cell("http/callers-4").is_none());
        first.keep_host(&Host::default()).unwrap();
        first.keep_capacity("http", 1000.0).unwrap();
        first.keep_cell(&played("http/callers-4", 1.5)).unwrap();
        let second = Results::open(Some(&path), effort(2.0)).unwrap();
        assert_eq!(
            second.cell("http/callers-4"),
            Some(&played("http/callers-4", 1.5))
        );
        assert_eq!(second.capacity("http"), Some(1000.0));
        assert!(second.cell("http/callers-16").is_none());
        assert!(second.capacity("sqlite").is_none());
    }

    #[test]
    fn results_of_another_effort_are_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let mut first = Results::open(Some(&path), effort(2.0)).unwrap();
        first.keep_cell(&played("http/callers-4", 1.0)).unwrap();
        let other = Results::open(Some(&path), effort(3.0)).unwrap();
        assert!(other.cell("http/callers-4").is_none());
    }

    #[test]
    fn a_line_that_was_cut_short_is_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let mut first = Results::open(Some(&path), effort(2.0)).unwrap();
        first.keep_cell(&played("http/callers-4", 1.0)).unwrap();
        first.keep_cell(&played("http/callers-16", 1.0)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        let mut second = Results::open(Some(&path), effort(2.0)).unwrap();
        assert!(second.cell("http/callers-4").is_some());
        assert!(second.cell("http/callers-16").is_none());
        second.keep_cell(&played("http/callers-16", 2.0)).unwrap();
        let third = Results::open(Some(&path), effort(2.0)).unwrap();
        assert_eq!(
            third.cell("http/callers-16"),
            Some(&played("http/callers-16", 2.0))
        );
    }

    #[test]
    fn nothing_is_kept_without_a_file() {
        let mut results = Results::open(None, effort(2.0)).unwrap();
        results.keep_cell(&played("http/callers-4", 1.0)).unwrap();
        assert!(results.cell("http/callers-4").is_some());
    }
}
