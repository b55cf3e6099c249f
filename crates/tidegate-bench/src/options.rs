//! The options that every bench takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum, value_parser};

/// The arguments of every bench.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// Run the rivals of bench/peers too, in the same rounds.
    #[arg(long)]
    pub(crate) peers: bool,
    /// Every cell, however long it takes; an interrupted run goes on where it stopped.
    #[arg(long)]
    pub(crate) full: bool,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Rounds a cell: each runs every system once, one after the other.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Keep finished cells in this file, and skip the cells in it. Default with --full:
    /// bench/results/BENCH.jsonl, named after the bench.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Only the cells with this in their name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// How long a peer may take for an answer, beyond the time of the measurement, before it counts as hung.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) peer_timeout: f64,
    /// How long each measurement is: `smoke` proves only that the bench works.
    #[arg(long, value_enum, default_value_t = Effort::Normal)]
    pub(crate) effort: Effort,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.001..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give seconds from 0.001 to 3600".into())
}

/// How long each measurement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    /// A few thousand items, two rounds: for tests.
    Smoke,
    /// Long enough for the numbers to mean something.
    Normal,
}
