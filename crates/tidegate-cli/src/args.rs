//! The command line: the commands with their arguments, defaults and limits. This module takes no decisions.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, value_parser};
use tidegate::controller::Choice;

use crate::client::{consume, publish, stream, subscribe};
use crate::face::Face;
use crate::ship::{self, Format};
use crate::{cluster, log, serve, sim};

/// The version and the commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("TIDEGATE_COMMIT"));
/// The end of the help of `tidegate`.
const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration, 130 interrupted";

/// Batch anything without choosing a size or a delay.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = VERSION, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) face: Face,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Count the words of files: reader -> splitters -> counters, over queues.
    Count(CountArgs),
    /// Run the simulator in virtual time.
    Sim(sim::SimArgs),
    /// Receive records that `tidegate send` ships, to standard output or to the end of a file.
    Receive(ReceiveArgs),
    /// Ship a file's records, or standard input's, to `tidegate receive`: a pipe that survives a broken
    /// network.
    Send(SendArgs),
    /// Serve NATS clients.
    Serve(Box<serve::ServeArgs>),
    /// Serve NATS clients from several nodes on this machine, to try a cluster out.
    Cluster(cluster::ClusterArgs),
    /// Inspect, verify or repair the data directory of a stopped server.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Publish a message, or the lines of a file.
    Pub(publish::PubArgs),
    /// Print published messages.
    Sub(subscribe::SubArgs),
    /// List, show, create and remove streams.
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// Print the messages of a stream.
    Consume(consume::ConsumeArgs),
    /// Print a script that completes commands and flags in this shell.
    Completions {
        /// Write for this shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write a manual page of each command into a directory.
    Man {
        /// Write into this directory, which must exist.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// The arguments of `tidegate receive`.
#[derive(Args, Debug)]
pub(crate) struct ReceiveArgs {
    /// Listen on this address and port; port 0 takes a free port. Addresses beyond this machine need
    /// --tls-cert and --token-file.
    #[arg(long, value_name = "ADDR", default_value = ship::ADDRESS)]
    pub(crate) listen: String,
    /// Append to this file instead of writing to standard output. Acknowledged records are written and
    /// synced, and each session goes on where it stopped, whichever side was killed. The state for that is in
    /// FILE.tidegate.
    #[arg(long, value_name = "FILE")]
    pub(crate) append: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) records: RecordArgs,
    /// Listen beyond this machine without TLS or without a token: any machine can send records, or read them
    /// on the way.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Require TLS, and show senders this certificate: PEM, followed by the intermediate certificates.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Use this private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Let in only senders that have the same secret as this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The arguments of `tidegate send`.
#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// Send to `tidegate receive` at this name or address, with a port.
    #[arg(value_name = "ADDR")]
    pub(crate) address: String,
    /// Ship this file; `-` is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Continue the session of this name: a file from the record on that the receiver asks for. One sender at
    /// a time has a name; the newer sender takes it over. Default: a new session, which cannot be continued.
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Keep unacknowledged records of standard input in this directory. After a restart, the program sends
    /// these records first.
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// Limit the spool to so many bytes; KiB, MiB and GiB are understood. The program does not read standard
    /// input while the spool is full.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes, requires = "spool")]
    pub(crate) spool_limit: u64,
    #[command(flatten)]
    pub(crate) records: RecordArgs,
    /// Try to reach the receiver for this long: 500ms, 30s, 5m, 2h. Default: one attempt at the start, 60s
    /// after a lost connection.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Use TLS, and trust only the certificates in this PEM file. The receiver's certificate must have the
    /// name in ADDR.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Authenticate with the secret in this file. The program sends it only over TLS or within this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The form of a record, which both ends must set alike.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RecordArgs {
    /// Choose the format of records.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Limit a record to so many bytes; KiB and MiB are understood. At the receiver, each connection may need
    /// a few times as much memory.
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = record_bytes)]
    pub(crate) max_record: u32,
}

/// Parses a number of bytes with an optional unit.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim_start() {
        "" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(unit?));
    let bytes = bytes.filter(|bytes| (1..=1 << 50).contains(bytes));
    bytes.ok_or_else(|| "give bytes, or a number with KiB, MiB or GiB, up to 2^50 bytes".into())
}

fn record_bytes(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    let bytes = u32::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= 512 << 20);
    bytes.ok_or_else(|| "give at most 512MiB".into())
}

/// Parses a duration with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let ms = match &text[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number: Option<u32> = digits.parse().ok();
    let duration = number.and_then(|number| Some(Duration::from_millis(u64::from(number) * ms?)));
    duration.ok_or_else(|| "give a whole number with ms, s, m, h or d".into())
}

/// The arguments of `tidegate count`.
#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    /// Count the words of these files; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Choose the controller of the batches on both edges, of at most 1024 items: knee, knee:OBJECTIVE,
    /// greedy, fixed:LIMIT, fixed:LIMIT,LINGER, exponential, aimd:STEP, storm-aimd:CEILING or
    /// rueidis-stats:MAX_DELAY.
    #[arg(long, value_name = "NAME", default_value_t = Choice::KNEE, value_parser = str::parse::<Choice>)]
    pub(crate) controller: Choice,
    /// Read this many lines a second, even if the counting is late. Default: as fast as possible.
    #[arg(long, value_name = "LINES", value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rate: Option<u64>,
    /// Show this many of the most frequent words.
    #[arg(long, value_name = "K", default_value = "10")]
    pub(crate) top: NonZeroUsize,
    /// Run so many splitters, and as many counters.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u16).range(1..=64))]
    pub(crate) split: u16,
}
