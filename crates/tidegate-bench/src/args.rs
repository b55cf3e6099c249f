//! The command line of `tidegate-bench`: clap parses a subcommand for each bench, with its arguments. Other
//! modules run the benches.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::options::BenchArgs;

/// Measure Tidegate on this machine; with --peers, beside its rivals in the same rounds.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measure the batch actor beside gen_batch_server: with casts of 4 KiB to a busy handler, as in that
    /// project's PR 29, with a handler that does nothing, and with callers that wait for each answer.
    Mailbox(BenchArgs),
    /// Measure the queue, with 8-byte items through every kind of producer.
    Queue(BenchArgs),
    /// Measure the link, with acknowledged messages of five bytes over loopback TCP, beside bare sockets.
    Link(BenchArgs),
    /// Measure the Redis client that several callers share, in a closed loop and at 100,000 commands a
    /// second, with a Redis server that the bench starts.
    Redis(BenchArgs),
    /// Run the callers of our Redis client in a process of their own. The bench `redis` starts this command,
    /// and controls it by lines on standard input.
    #[command(hide = true)]
    RedisCallers,
    /// Measure streams on one server of ours, by publishing and consuming with the `nats` program, beside
    /// nats-server with and without a sync before every acknowledgement.
    Stream(BenchArgs),
    /// Measure streams of three replicas on three nodes of this machine, ours beside nats-server's, with the
    /// `nats` program.
    Cluster(BenchArgs),
    /// Measure few callers that wait for each acknowledgement, on one server or a cluster of ours; with
    /// --peers beside nats-server, Redis and PostgreSQL, which the same load drives, and with --league also
    /// beside SQLite, etcd, Kafka and RabbitMQ. Prove by a trace that each of them syncs before it answers.
    Callers(crate::stream::CallersArgs),
    /// Measure how much faster streams of three replicas get with each step from nats-server's way of writing
    /// them to ours: the steps of nats-server's PR 7355, then two of ours. Measure on this disk, and on a
    /// disk with syncs that take 5 ms longer.
    Raft(BenchArgs),
    /// Measure real handlers (PostgreSQL, SQLite, HTTP, append and sync, padding, upserts) under closed-loop
    /// and open-loop load: Tidegate's defaults beside the best fixed settings, and with --peers beside other
    /// crates that batch.
    Handlers(crate::handlers::HandlersArgs),
    /// Simulate generated workloads in virtual time: cost curves of nine families, noise, changes, servers
    /// and loads. Compare the default controller with greedy, exponential, aimd and the best fixed settings.
    Arena(crate::arena::ArenaArgs),
    /// Measure the harm that one hostile or clumsy client does: how long its well-behaved neighbours wait,
    /// and how much memory the server takes. Attack our server, and with --peers nats-server, too.
    Neighbours(crate::neighbours::NeighboursArgs),
    /// Measure very many streams, consumers and subjects on one server: their memory, the idle processor
    /// time, the wait of a lone publisher and the time of a start. Measure our server, and with --peers
    /// nats-server, too.
    Many(crate::many::ManyArgs),
    /// Measure work queues with one worker and with sixteen, a mirror and a stream with ten sources that
    /// catch up, and republished messages. Measure our server, and with --peers nats-server, too.
    Features(crate::features::FeaturesArgs),
    /// Measure what each work of the server's event loop takes, and print the table that the simulation of
    /// the loop reads.
    Costs(crate::costs::CostsArgs),
    /// Simulate how controllers respond when the cost of a batch changes, in virtual time.
    Response(crate::response::ResponseArgs),
    /// Run every bench with its rivals, and write one page and one Markdown file about all results, with the
    /// losses first. A later run measures only the missing results.
    Report(crate::report::ReportArgs),
    /// Run the well-behaved clients of the bench `neighbours` in a process of their own. The bench starts
    /// this command, and controls it by lines on standard input.
    #[command(hide = true)]
    NeighboursClients,
    /// Run the attacking clients of the bench `neighbours` in a process of their own. The bench starts this
    /// command, and controls it by lines on standard input.
    #[command(hide = true)]
    NeighboursAttackers,
    /// Compare two binaries of `tidegate` as stream servers, in interleaved pairs of runs, and report
    /// whether NEW is worse than OLD.
    Compare(crate::compare::CompareArgs),
    /// Serve NATS clients as `tidegate serve` does, with further flags for the ways of writing to the log
    /// that the benches `raft` and `stream` compare.
    #[command(hide = true)]
    Serve(Box<tidegate_cli::serve::ServeArgs>),
    /// Measure the word count topology, saturated and at a tenth of that rate, as in Storm's PR 8796.
    Topology(TopologyArgs),
}

/// The arguments with which the user runs `tidegate-bench topology`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopologyArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
    /// Count the words of this file instead of a generated text, to measure a real text. The bench reads the
    /// file into memory, and repeats the text endlessly.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Compare only the default controller, Knee, with the best fixed batch size, and skip the cells of the
    /// bench. Measure each of the two for this many seconds, in windows that alternate between the two.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) soak: Option<NonZeroU64>,
}
