//! The commands of the program `tidegate`, as a library. The program calls [`main`]. `tidegate-bench` uses
//! the common parts: the word count topology, the tables of results, and the server's flags.

mod args;
mod client;
mod cluster;
mod count;
mod doctor;
mod escape;
mod face;
mod headroom;
mod input;
pub mod interrupt;
mod log;
mod manual;
mod monitor;
mod output;
mod progress;
pub mod report;
pub mod serve;
mod ship;
mod sim;
mod tls_files;
mod top;
pub mod topology;
mod tune;
mod values;
mod why;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use args::{Cli, Command};

/// The error for a request that the program cannot carry out. The program exits with code 2, as after any
/// other wrong argument.
#[derive(Debug)]
pub struct Usage(String);

impl Usage {
    /// Creates the error from the text of `error`, which names the expected form.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Parses the command line, runs the command and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args_os().collect();
    if serve::as_nats_server::is_called(&args) {
        args = serve::as_nats_server::as_serve(args);
    }
    let args = serve::with_two_dashes(serve::with_version(args).into_iter());
    let command = args::command().color(face::of_help(&args));
    let parsed = command
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(said) => return explained(&said),
    };
    face::set(cli.face);
    code_of("tidegate", || {
        listen(&cli.command)?;
        run(&cli.command)
    })
}

/// Makes the first signal set a flag for commands that have work to finish. The other commands keep the
/// system's default action: the first signal ends them.
fn listen(command: &Command) -> std::io::Result<()> {
    match command {
        Command::Sim(_) | Command::Stream(_) => Ok(()),
        Command::Why(_) | Command::Headroom(_) => Ok(()),
        Command::Completions { .. } | Command::Man { .. } => Ok(()),
        Command::Log(log::LogCommand::Inspect(_) | log::LogCommand::Verify(_)) => Ok(()),
        // `serve`, `cluster` and `receive` give SIGTERM a meaning of their own.
        Command::Serve(_) | Command::Cluster(_) | Command::Receive(_) | Command::Log(_) => {
            interrupt::listen()
        }
        Command::Count(_)
        | Command::Send(_)
        | Command::Pub(_)
        | Command::Sub(_)
        | Command::Consume(_)
        | Command::Doctor(_)
        | Command::Top(_)
        | Command::Tune(_) => {
            interrupt::listen()?;
            interrupt::listen_to_term()
        }
    }
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Count(args) => count::run(args),
        Command::Sim(args) => sim::run(args).map(|()| ExitCode::SUCCESS),
        Command::Receive(args) => ship::receive(args),
        Command::Send(args) => ship::send(args),
        Command::Serve(args) => serve::run(args),
        Command::Cluster(args) => cluster::run(args, args::serve_args),
        Command::Log(command) => log::run(command),
        Command::Pub(args) => client::publish::run(args),
        Command::Sub(args) => client::subscribe::run(args),
        Command::Stream(command) => client::stream::run(command),
        Command::Consume(args) => client::consume::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Why(args) => why::run(args),
        Command::Headroom(args) => headroom::run(args),
        Command::Top(args) => top::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { directory } => manual::pages(directory),
    }
}

/// Runs a command of `program` so that the first Ctrl-C sets a flag, and turns the command's outcome into an
/// exit code. Prints an error as one line on standard error. A closed standard output is no error.
pub fn exit_code(program: &str, command: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    code_of(program, || {
        interrupt::listen()?;
        command()
    })
}

fn code_of(program: &str, command: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    match command() {
        Ok(code) => code,
        // The reader of standard output has closed it, which is no error.
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            face::complain(format_args!("{program}: {}", line(&e)));
            failed(&e)
        }
    }
}

/// Returns the exit code of a command that ended with this error.
fn failed(error: &anyhow::Error) -> ExitCode {
    match interrupt::caused(error) {
        true => interrupt::exit_code(),
        false => ExitCode::from(if error.is::<Usage>() { 2 } else { 1 }),
    }
}

/// Prints the help, the version, or the mistake that clap found in the arguments. Returns a failure if it
/// cannot write the help.
fn explained(said: &clap::Error) -> ExitCode {
    use std::io::Write as _;
    let written = said.print().and_then(|()| std::io::stdout().flush());
    match written {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            face::complain(format_args!("tidegate: standard output: {e}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(2)),
    }
}

/// Formats an error and its causes in one line for the user. Many errors contain the text of their cause, so
/// the line shows such a text only once.
fn line(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn a_cause_is_said_once() {
        let inner = anyhow!("address in use");
        let outer = inner.context("cannot listen on x: address in use");
        let outermost = outer.context("the server does not start");
        let said = super::line(&outermost);
        assert_eq!(
            said,
            "the server does not start: cannot listen on x: address in use"
        );
    }
}
