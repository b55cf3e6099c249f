//! `tidegate bench`: real time on this machine, the rivals beside it in the same rounds. The parts here, [`report`],
//! [`rounds`], [`peers`], [`session`] and [`machine`], know nothing of what is measured: every bench uses them.

mod latency;
mod link;
mod machine;
mod mailbox;
mod peers;
mod queue;
mod redis;
pub(crate) mod report;
mod rounds;
mod session;
mod soak;
mod stream;
mod text;
mod topology;

use std::process::ExitCode;

use crate::args::Bench;
use crate::interrupt;
use session::Session;

/// The name of our own system in every row.
pub(crate) const OURS: &str = "tidegate";

/// Runs a bench.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<ExitCode> {
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
