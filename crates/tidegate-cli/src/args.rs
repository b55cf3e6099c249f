//! The command line: the commands with their arguments, defaults and limits. This module takes no decisions.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, value_parser};
use tidegate::controller::Choice;

use crate::client::{consume, publish, stream, subscribe};
use crate::face::Face;
use crate::ship::args::{ReceiveArgs, SendArgs};
use crate::{cluster, doctor, headroom, log, serve, sim, top, tune, values, why};

/// The program's version and commit, which `tidegate --version` prints so that a bug report can name them.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("TIDEGATE_COMMIT"));
/// The exit codes of all commands, which clap prints at the end of the help of `tidegate` for authors of
/// scripts.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration, 130 interrupted by Ctrl-C, 143 by SIGTERM (serve, cluster and receive end as asked: 0)";

/// The environment variables that hold secrets. They count as set even if they are empty, see [`command`].
const SECRETS: [&str; 3] = ["TIDEGATE_PASS", "TIDEGATE_AUTH", "TIDEGATE_CLUSTER_SECRET"];

/// Serve NATS streams, ship records, and batch anything without choosing a size or a delay.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = VERSION, propagate_version = true, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) face: Face,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the description of the command line. An environment variable that is empty counts as not set, but
/// not the variable of a secret: a server must not start without the secret that a mistake left empty.
pub(crate) fn command() -> clap::Command {
    without_empty_variables(Cli::command())
}

/// Parses the words of a command line of `serve`, with the program's name first, for commands that start
/// servers as child processes.
///
/// # Errors
/// The mistake in the words, or the help that they ask for.
pub(crate) fn serve_args(words: Vec<OsString>) -> Result<Box<serve::ServeArgs>, clap::Error> {
    let matches = command().try_get_matches_from(words)?;
    match Cli::from_arg_matches(&matches)?.command {
        Command::Serve(args) => Ok(args),
        _ => unreachable!("the first argument is `serve`"),
    }
}

fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_unset = |name: &std::ffi::OsStr| {
        let is_secret = SECRETS.iter().any(|secret| name == *secret);
        !is_secret && std::env::var_os(name).is_some_and(|value| value.is_empty())
    };
    let command = command.mut_args(|arg| match arg.get_env().is_some_and(is_unset) {
        true => arg.env(None::<&'static str>),
        false => arg,
    });
    command.mut_subcommands(without_empty_variables)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server for NATS clients, with durable streams.
    Serve(Box<serve::ServeArgs>),
    /// Run several nodes of a cluster on this machine, to try a cluster out.
    Cluster(cluster::ClusterArgs),
    /// List, show, create and remove streams.
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// Publish a message, or the lines of a file. A stream that takes the subject stores them.
    Pub(publish::PubArgs),
    /// Print the messages that clients publish from now on.
    Sub(subscribe::SubArgs),
    /// Print the messages that a stream has stored.
    Consume(consume::ConsumeArgs),
    /// Watch a running server in the terminal: rates, batches, streams, connections, and alarms in words.
    Top(top::TopArgs),
    /// Explain why an acknowledged message took its time: the sync that made it durable, the waits before the
    /// sync, and the time that a sync at once would have taken.
    Why(why::WhyArgs),
    /// Predict how many messages a second a server takes before the 99th percentile of its latency breaks a
    /// bound.
    Headroom(headroom::HeadroomArgs),
    /// Predict from a recorded trace how each controller would serve it, and say which one to use.
    Tune(tune::TuneArgs),
    /// Measure this machine as a server would use it, and say what each figure means.
    Doctor(doctor::DoctorArgs),
    /// Inspect, verify or repair the data directory of a stopped server, after a fault of its disk.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Ship a file's records, or standard input's, to `tidegate receive`: a pipe that survives a broken
    /// network.
    Send(SendArgs),
    /// Receive records that `tidegate send` ships, to standard output or to the end of a file.
    Receive(ReceiveArgs),
    /// Count the words of files, to show the engine: a reader sends lines through queues to splitters, and
    /// the splitters send words to counters.
    Count(CountArgs),
    /// Simulate the engine's batching in virtual time, and print the figures of each controller.
    Sim(sim::SimArgs),
    /// Print a script that completes commands and flags in this shell.
    Completions {
        /// Write the completions for this shell, such as bash or zsh.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write a manual page of each command into a directory.
    Man {
        /// Write the manual pages into this directory, which must exist.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// The arguments with which the user runs `tidegate count`.
#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    /// Count the words of these files; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Choose the controller that decides the sizes of the batches, of at most 1024 items, from the reader to
    /// the splitters and on to the counters: knee, knee:OBJECTIVE, greedy, fixed:LIMIT, fixed:LIMIT,LINGER,
    /// exponential, aimd:STEP, storm-aimd:CEILING or rueidis-stats:MAX_DELAY. docs/controllers.md explains
    /// each of them.
    #[arg(long, value_name = "NAME", default_value_t = Choice::KNEE, value_parser = str::parse::<Choice>)]
    pub(crate) controller: Choice,
    /// Read this many lines a second, to show the batches of a slow source; the reader does not wait for the
    /// counters. Default: as fast as possible.
    #[arg(long, value_name = "LINES", value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rate: Option<u64>,
    /// Show this many of the most frequent words, instead of all words.
    #[arg(long, value_name = "K", default_value = "10", value_parser = values::top)]
    pub(crate) top: NonZeroUsize,
    /// Run this many splitters, which cut lines into words, and as many counters, to use several cores.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u16).range(1..=64))]
    pub(crate) split: u16,
}
