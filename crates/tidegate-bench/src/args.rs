//! The command line of the benches: the cells, their number of rounds and their duration. This module takes
//! no decisions.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::options::BenchArgs;

/// Measures Tidegate on this machine; with --peers, beside its rivals in the same rounds.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measures the batch actor, on the workload of gen_batch_server's PR 29 and with a handler that does
    /// nothing.
    Mailbox(BenchArgs),
    /// Measures the queue, with 8-byte items through every kind of producer.
    Queue(BenchArgs),
    /// Measures the link, with acknowledged messages of five bytes over loopback TCP, beside bare sockets.
    Link(BenchArgs),
    /// Measures the Redis client that several callers share, in a closed loop and at 100,000 commands a
    /// second, with a Redis server that the bench starts.
    Redis(BenchArgs),
    /// Runs the callers of our Redis client in a process of their own. The bench `redis` starts this command,
    /// and directs it over standard input.
    #[command(hide = true)]
    RedisCallers,
    /// Measures streams on one server of ours, by publishing and consuming with the `nats` program, beside
    /// nats-server with and without a sync before every acknowledgement.
    Stream(BenchArgs),
    /// Measures streams of three replicas on three nodes of this machine, ours beside nats-server's, with the
    /// `nats` program.
    Cluster(BenchArgs),
    /// Measures, on streams of three replicas, the gain of each step of nats-server's PR 7355 and of two
    /// further steps of ours, on this disk and on a disk with syncs that take 5 ms longer.
    Raft(BenchArgs),
    /// Measures real handlers (PostgreSQL, SQLite, HTTP, append and sync, padding, upserts) under closed-loop
    /// and open-loop load: Tidegate's defaults beside the best fixed settings, and with --peers beside other
    /// crates that batch.
    Handlers(crate::handlers::HandlersArgs),
    /// Simulates generated workloads in virtual time: cost curves of nine families, noise, changes, servers
    /// and loads. Compares the default controller with greedy, exponential, aimd and the best fixed settings.
    Arena(crate::arena::ArenaArgs),
    /// Measures the harm that one hostile or clumsy client does: how long its well-behaved neighbours wait,
    /// and how much memory the server takes. Attacks our server, and with --peers nats-server, too.
    Neighbours(crate::neighbours::NeighboursArgs),
    /// Measures very many streams, consumers and subjects on one server: their memory, the idle processor
    /// time, the wait of a lone publisher and the time of a start. Measures our server, and with --peers
    /// nats-server, too.
    Many(crate::many::ManyArgs),
    /// Runs the well-behaved clients of the bench `neighbours` in a process of their own. The bench starts
    /// this command, and directs it over standard input.
    #[command(hide = true)]
    NeighboursClients,
    /// Runs the attacking clients of the bench `neighbours` in a process of their own. The bench starts this
    /// command, and directs it over standard input.
    #[command(hide = true)]
    NeighboursAttackers,
    /// Compares two binaries of `tidegate` as stream servers, in interleaved pairs of runs, and reports
    /// whether NEW is worse than OLD.
    Compare(crate::compare::CompareArgs),
    /// Serves NATS clients as `tidegate serve` does, with further flags for the ways of writing to the log
    /// that the benches `raft` and `stream` compare.
    #[command(hide = true)]
    Serve(Box<tidegate_cli::serve::ServeArgs>),
    /// Measures the word count topology, saturated and at a tenth of that rate, as in Storm's PR 8796.
    Topology(TopologyArgs),
}

/// The further arguments of `tidegate-bench topology`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopologyArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
    /// Count the words of this file instead of a generated text. The bench reads the file into memory, and
    /// repeats the text endlessly.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Run the default controller, Knee, and the best fixed batch size for so many seconds each. The two
    /// systems alternate after each measured window, and the bench compares the windows.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) soak: Option<NonZeroU64>,
}
