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
    /// The batch actor: the workload of gen_batch_server's PR 29, and a handler that does nothing.
    Mailbox(BenchArgs),
    /// The queue: 8-byte items through every kind of producer.
    Queue(BenchArgs),
    /// The link: messages of five bytes over loopback TCP, each acknowledged, beside bare sockets.
    Link(BenchArgs),
    /// The Redis client: callers that share one, beside a Redis started for it; closed loop and 100 k
    /// commands a second.
    Redis(BenchArgs),
    /// The callers of our own client, as a process of its own: told what to do on standard input.
    #[command(hide = true)]
    RedisCallers,
    /// Streams: publishing and consuming by the `nats` program, a server of ours beside nats-server with and
    /// without a sync before every acknowledgement.
    Stream(BenchArgs),
    /// Streams of three replicas on three nodes of this machine, ours beside nats-server's, by the `nats`
    /// program.
    Cluster(BenchArgs),
    /// The gain of each step of nats-server's PR 7355 on such streams, and of two more: on this disk, and on
    /// a disk with syncs 5 ms longer.
    Raft(BenchArgs),
    /// Real handlers (PostgreSQL, SQLite, HTTP, append and sync, padding, upserts) under closed and open
    /// loops: ours with nothing set beside the best fixed settings, and with --peers beside the crates that
    /// batch.
    Handlers(crate::handlers::HandlersArgs),
    /// Generated worlds in virtual time: cost curves of nine families, noise, changes, servers and loads.
    /// Ours with nothing set beside greedy, exponential, aimd and the best fixed settings.
    Arena(crate::arena::ArenaArgs),
    /// One hostile or clumsy client beside well-behaved neighbours: what the neighbours wait, how much memory
    /// the server takes, ours and with --peers nats-server.
    Neighbours(crate::neighbours::NeighboursArgs),
    /// The neighbours, as a process of their own: told what to do on standard input.
    #[command(hide = true)]
    NeighboursClients,
    /// The attackers, as a process of their own.
    #[command(hide = true)]
    NeighboursAttackers,
    /// Two binaries of `tidegate` as stream servers, in interleaved pairs: is NEW worse than OLD?
    Compare(crate::compare::CompareArgs),
    /// A server with further flags: the ways of writing that `raft` and the slowed cells compare.
    #[command(hide = true)]
    Serve(Box<tidegate_cli::serve::ServeArgs>),
    /// The word count topology, saturated and at a tenth of that, as in Storm's PR 8796.
    Topology(TopologyArgs),
}

/// The further arguments of `tidegate-bench topology`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopologyArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
    /// Text to count instead of the generated one; it is read into memory and repeated endlessly.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Run Knee and the best static size for this long each, in turns of one window, and compare their
    /// windows.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) soak: Option<NonZeroU64>,
}
