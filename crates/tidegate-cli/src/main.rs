//! The program `tidegate`: parses what is asked for, runs it, and turns the outcome into an exit code.

mod args;
mod bench;
mod client;
mod cluster;
mod count;
mod input;
mod interrupt;
mod log;
mod serve;
mod ship;
mod sim;
mod topology;

use std::alloc::System;
use std::process::ExitCode;

use clap::Parser as _;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use args::{Cli, Command};

/// Counts allocations, for the benches: two added numbers each.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Something asked for that cannot be had: exit code 2, as for any other wrong argument.
#[derive(Debug)]
struct Usage(String);

impl Usage {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn main() -> ExitCode {
    let cli = Cli::parse_from(serve::with_two_dashes(std::env::args_os()));
    let outcome = interrupt::listen()
        .map_err(Into::into)
        .and_then(|()| match &cli.command {
            Command::Count(args) => count::run(args),
            Command::Bench(bench) => bench::run(bench),
            Command::Sim(args) => sim::run(args).map(|()| ExitCode::SUCCESS),
            Command::Receive(args) => ship::receive(args),
            Command::Send(args) => ship::send(args),
            Command::Serve(args) => serve::run(args),
            Command::Cluster(args) => cluster::run(args),
            Command::Log(command) => log::run(command),
            Command::Pub(args) => client::publish::run(args),
            Command::Sub(args) => client::subscribe::run(args),
            Command::Stream(command) => client::stream::run(command),
            Command::Consume(args) => client::consume::run(args),
        });
    match outcome {
        Ok(code) => code,
        // Whoever read our output has enough.
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tidegate: {}", line(&e));
            ExitCode::from(if e.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// An error and its causes in one line. Many say their cause themselves: those are not said twice.
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
