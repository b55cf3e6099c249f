//! The program `tidegate-bench`: measures Tidegate in real time on this machine, with its rivals beside it in
//! the same rounds.
//!
//! This program owns all measurements, and the product contains none of it. [`rounds`], [`peers`],
//! [`session`] and [`machine`] serve every bench. The program counts its own allocations; those of the
//! servers that it starts do not count.

mod arena;
mod args;
mod compare;
mod costs;
mod features;
mod guard;
mod handlers;
mod latency;
mod link;
mod machine;
mod mailbox;
mod many;
mod neighbours;
mod options;
mod peers;
#[cfg(feature = "peers")]
mod postgres;
mod proxy;
mod queue;
mod redis;
mod report;
mod response;
mod rounds;
mod session;
mod soak;
mod stream;
mod systems;
mod text;
mod topology;
mod wire;

use std::alloc::System;
use std::process::ExitCode;

use clap::Parser as _;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tidegate_cli::interrupt;
pub(crate) use tidegate_cli::report::OURS;

use args::{Bench, Cli};
use session::Session;

/// The allocator of this program. It counts allocations, at the cost of two atomic additions for each.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let cli = Cli::parse_from(std::env::args_os());
    tidegate_cli::exit_code("tidegate-bench", || run(&cli.bench))
}

/// Runs the bench that the command line names.
fn run(bench: &Bench) -> anyhow::Result<ExitCode> {
    let session = match bench {
        Bench::Mailbox(args) => {
            let mut session = Session::open("mailbox", args)?;
            mailbox::run(&mut session)?;
            session
        }
        Bench::Queue(args) => {
            let mut session = Session::open("queue", args)?;
            queue::run(&mut session)?;
            session
        }
        Bench::Link(args) => {
            let mut session = Session::open("link", args)?;
            link::run(&mut session)?;
            session
        }
        Bench::Redis(args) => {
            let mut session = Session::open("redis", &redis::defaults(args))?;
            redis::run(&mut session)?;
            session
        }
        Bench::RedisCallers => {
            redis::serve_callers()?;
            return Ok(ExitCode::SUCCESS);
        }
        Bench::Stream(args) => {
            let mut session = Session::open("stream", &stream::defaults(args))?;
            stream::run(&mut session)?;
            session
        }
        Bench::Cluster(args) => {
            let mut session = Session::open("cluster", &stream::defaults(args))?;
            stream::run_clusters(&mut session)?;
            session
        }
        Bench::Callers(args) => {
            let mut session = Session::open("callers", &args.bench)?;
            if !stream::run_callers(&mut session, args)? {
                session.close()?;
                return Ok(ExitCode::from(1));
            }
            session
        }
        Bench::Compare(args) => return compare::run(args),
        Bench::Handlers(args) => return handlers::run(args),
        Bench::Arena(args) => return arena::run(args),
        Bench::Costs(args) => return costs::run(args),
        Bench::Many(args) => return many::run(args),
        Bench::Response(args) => return response::run(args),
        Bench::Report(args) => return report::run(args),
        Bench::Features(args) => return features::run(args),
        Bench::Neighbours(args) => return neighbours::run(args),
        Bench::NeighboursClients => {
            neighbours::serve_clients()?;
            return Ok(ExitCode::SUCCESS);
        }
        Bench::NeighboursAttackers => {
            neighbours::serve_attackers()?;
            return Ok(ExitCode::SUCCESS);
        }
        Bench::Serve(args) => return tidegate_cli::serve::run(args),
        Bench::Raft(args) => {
            let mut session = Session::open("raft", &stream::defaults_of_steps(args))?;
            stream::run_steps(&mut session)?;
            session
        }
        Bench::Topology(args) => {
            let mut session = Session::open("topology", &args.bench)?;
            topology::run(&mut session, args)?;
            session
        }
    };
    session.close()?;
    Ok(if interrupt::asked() {
        ExitCode::from(interrupt::EXIT_CODE)
    } else {
        ExitCode::SUCCESS
    })
}
