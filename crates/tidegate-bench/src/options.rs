//! The command-line options that several benches share.

use std::path::PathBuf;

use clap::{Args, ValueEnum, value_parser};

/// The arguments with which the user runs most benches.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// Measure the rivals in bench/peers, too, in the same rounds, to compare them with ours.
    #[arg(long)]
    pub(crate) peers: bool,
    /// Run every cell, however long that takes, for complete results. A cell is one workload of the bench.
    /// Without this flag the bench ends within about ten minutes, and skips the cells for which no time is
    /// left. After an interrupt, a new run with --full continues after the last finished cell.
    #[arg(long)]
    pub(crate) full: bool,
    /// Print one JSON document, for other programs, instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run this many rounds of each cell, to reduce the noise; in a round the bench runs every system once,
    /// one after the other. Default: 5, or 2 with --effort smoke; 3 in some benches with many cells.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Keep the results of finished cells in this file, and skip cells with a result in the file, so that an
    /// interrupted run can continue. Default: no file, or bench/results/BENCH.jsonl, named after the bench,
    /// with --full.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Run only the cells with this text in their name, to save time.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Wait for the answer of a rival's program at most this many seconds longer than the measurement takes,
    /// so that a hung program does not stop the bench. After that time the bench ends the program and reports
    /// the failure.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) peer_timeout: f64,
    /// Choose the length of each measurement: `normal` for usable figures, `smoke` only to prove that the
    /// bench works.
    #[arg(long, value_enum, default_value_t = Effort::Normal)]
    pub(crate) effort: Effort,
}

/// Parses a duration in seconds, from a millisecond to an hour, and names the range to the user otherwise.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.001..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give seconds from 0.001 to 3600".into())
}

/// Parses the factor by which a bench multiplies its amounts.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok();
    let factor = factor.filter(|factor| (0.0001..=100.0).contains(factor));
    factor.ok_or_else(|| "give a factor from 0.0001 to 100".into())
}

/// The length of each measurement, which the user chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    /// Measure a few thousand items in two rounds, for tests.
    Smoke,
    /// Measure for long enough that the figures depend little on chance.
    Normal,
}
