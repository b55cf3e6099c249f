//! The command line: what can be asked for, with its defaults and limits. Decides nothing itself.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use tidegate::controller::Choice;

use crate::client::{publish, subscribe};
use crate::{serve, sim};

/// Batch anything without choosing a size or a delay.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Count the words of files: reader -> splitters -> counters, over queues.
    Count(CountArgs),
    /// Measure this machine; with --peers, the rivals beside it in the same rounds.
    #[command(subcommand)]
    Bench(Bench),
    /// Run the simulator in virtual time.
    Sim(sim::SimArgs),
    /// Serve NATS clients.
    Serve(Box<serve::ServeArgs>),
    /// Publish a message, or the lines of a file.
    Pub(publish::PubArgs),
    /// Print what is published.
    Sub(subscribe::SubArgs),
}

/// What `tidegate count` takes.
#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    /// Files to count; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Who decides the batches of both edges, none of more than 1024 items: knee, knee:OBJECTIVE, greedy, fixed:LIMIT,
    /// fixed:LIMIT,LINGER, exponential, aimd:STEP, storm-aimd:CEILING or rueidis-stats:MAX_DELAY.
    #[arg(long, value_name = "NAME", default_value_t = Choice::KNEE, value_parser = str::parse::<Choice>)]
    pub(crate) controller: Choice,
    /// Read this many lines a second, however late the counting is. Default: as fast as it goes.
    #[arg(long, value_name = "LINES", value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rate: Option<u64>,
    /// Show this many of the most frequent words.
    #[arg(long, value_name = "K", default_value = "10")]
    pub(crate) top: NonZeroUsize,
    /// Splitters, and as many counters.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u16).range(1..=64))]
    pub(crate) split: u16,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The batch actor: the workload of gen_batch_server's PR 29, and a handler that does nothing.
    Mailbox(BenchArgs),
    /// The queue: 8-byte items through every kind of producer.
    Queue(BenchArgs),
    /// The word count topology, saturated and at a tenth of that, as in Storm's PR 8796.
    Topology(TopologyArgs),
}

/// What every bench takes.
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
    /// Keep finished cells in this file and skip those it has. With --full that is
    /// bench/results/BENCH.jsonl if not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Only the cells whose name contains this.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// How long a peer may take for an answer, beyond what it was asked to take, before it counts as hung.
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

/// What `tidegate bench topology` takes besides.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopologyArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
    /// Text to count instead of the generated one; it is read into memory and repeated endlessly.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Run Knee and the best static size for this long each, in turns of one window, and compare their windows.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) soak: Option<NonZeroU64>,
}
