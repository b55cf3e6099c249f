//! The benches of streams:
//!
//! - `tidegate-bench stream`: publishes to streams and reads them, on our server beside nats-server with its
//!   defaults and nats-server with a sync before every acknowledgement. The `nats` program drives the servers
//!   if it can.
//! - `tidegate-bench cluster`: publishes to streams of three replicas. Each system is three nodes on this
//!   machine, and the clients connect to any of them. With `--full` the bench also measures our server with
//!   up to 50 ms between the nodes, beside fixed settings of the replication.
//! - `tidegate-bench callers`: measures few callers that wait for each acknowledgement, beside nats-server,
//!   Redis and PostgreSQL, and with `--league` further durable stores, with one load for all of them.
//! - `tidegate-bench raft`: measures the gain of each step from nats-server's way of writing replicated
//!   streams to ours, on such a cluster.
//!
//! Every server is a process with a directory of its own, and takes part in every round. The processor time
//! in the results is the servers', from /proc, over the whole run of the load.

mod bare;
mod callers;
mod cell;
mod distances;
mod field;
mod load;
mod pair;
mod program;
mod server;
mod servers;
mod steps;
mod syscalls;

use std::cell::RefCell;

use tidegate_raft::lab::RaftStep;

use super::OURS;
use super::peers::Peers;
use super::rounds::Contestant;
use super::session::Session;
use crate::options::{BenchArgs, Effort};
pub(crate) use callers::{CallersArgs, run as run_callers};
use cell::{Cell, Work, cells, cells_of_clusters, cells_of_distances, cells_of_steps};
pub(crate) use field::Directory;
use field::Field;
pub(crate) use pair::{Measured, Pair, Traffic};
use server::{Kind, Programs};
pub(crate) use server::{Membership, Server, product};

/// The number of nodes of a cluster, and of replicas of each stream in a cluster.
const NODES: usize = 3;

/// Returns the arguments with the default number of rounds of the benches `stream` and `cluster`. In a full
/// run at normal effort the number is three, because there are many cells.
pub(super) fn defaults(args: &BenchArgs) -> BenchArgs {
    let mut args = args.clone();
    if args.effort == Effort::Normal && args.full {
        args.rounds.get_or_insert(3);
    }
    args
}

/// Runs the cells of `tidegate-bench stream`, with single servers.
pub(crate) fn run(session: &mut Session) -> anyhow::Result<()> {
    run_cells(session, 1, &cells(session.args.full))
}

/// Runs the cells of `tidegate-bench cluster`, with clusters.
pub(crate) fn run_clusters(session: &mut Session) -> anyhow::Result<()> {
    run_cells(session, NODES, &cells_of_clusters(NODES, session.args.full))?;
    if session.args.full {
        distances::run(session, &cells_of_distances(NODES))?;
    }
    Ok(())
}

/// Returns the arguments with the default number of rounds of `tidegate-bench raft`. At normal effort the
/// number is three, because there are many steps and each measurement forms a cluster.
pub(super) fn defaults_of_steps(args: &BenchArgs) -> BenchArgs {
    let mut args = args.clone();
    if args.effort == Effort::Normal {
        args.rounds.get_or_insert(3);
    }
    args
}

/// Runs the cells that measure each step of the replication, on this disk and on a disk with slower syncs.
pub(crate) fn run_steps(session: &mut Session) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let version = programs.version();
    let field = RefCell::new(Field::new(NODES, programs, session)?);
    for cell in &cells_of_steps(NODES) {
        if session.wants(&cell.name) {
            let contestants = contestants(session.args.peers, version.as_ref(), &field, cell);
            session.cell_with(&cell.name, contestants, steps::compare)?;
        }
    }
    Ok(())
}

fn run_cells(session: &mut Session, nodes: usize, cells: &[Cell]) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let version = programs.version();
    let field = RefCell::new(Field::new(nodes, programs, session)?);
    for cell in cells {
        if session.wants(&cell.name) {
            let contestants = contestants(session.args.peers, version.as_ref(), &field, cell);
            session.cell(&cell.name, contestants)?;
        }
    }
    Ok(())
}

/// Returns the contestants of a cell: our server, and with `peers` nats-server.
fn contestants<'a>(
    peers: bool,
    version: Option<&String>,
    field: &'a RefCell<Field>,
    cell: &'a Cell,
) -> Vec<Contestant<'a, Peers>> {
    let kinds = match cell.work {
        Work::Slowed => vec![Kind::OursSlow, Kind::OursSlowGreedy],
        Work::Steps { slow } => {
            let step = |step| Kind::Step { step, slow };
            // The bench cannot slow nats-server's disk, so nats-server takes no part in cells with slow
            // syncs.
            let peer = (peers && !slow).then_some(Kind::NatsAlways);
            RaftStep::STEPS.map(step).into_iter().chain(peer).collect()
        }
        _ if !peers => vec![Kind::Ours],
        Work::Core { .. } => vec![Kind::Ours, Kind::Nats],
        _ => vec![Kind::Ours, Kind::Nats, Kind::NatsAlways],
    };
    let kinds = kinds.into_iter();
    let mut all: Vec<_> = kinds
        .map(|kind| contestant(kind, version, field, cell))
        .collect();
    if cell.work == Work::Lone {
        all.push(Contestant {
            system: "bare write + fdatasync".into(),
            version: None,
            controller: None,
            subject: false,
            run: Box::new(move |_: &mut Peers| {
                let field = field.borrow();
                let (directory, window) = field.ground();
                bare::run(directory, cell.bytes, window).map_err(|e| format!("{e:#}"))
            }),
        });
    }
    all
}

fn contestant<'a>(
    kind: Kind,
    version: Option<&String>,
    field: &'a RefCell<Field>,
    cell: &'a Cell,
) -> Contestant<'a, Peers> {
    let (system, controller) = match kind {
        Kind::Ours | Kind::OursSlow => (OURS, None),
        Kind::Step { step, .. } => (OURS, Some(steps::name(step).to_owned())),
        Kind::OursSlowGreedy => (OURS, Some("without anticipation".to_owned())),
        Kind::Distant { fixed, .. } => (OURS, fixed.map(distances::name)),
        Kind::Nats => ("nats-server default", None),
        Kind::NatsAlways => ("nats-server always", None),
    };
    let version = match kind {
        Kind::Nats | Kind::NatsAlways => version.cloned(),
        _ => Some(env!("CARGO_PKG_VERSION").into()),
    };
    let mut messages = None;
    Contestant {
        system: system.into(),
        version,
        controller,
        subject: match kind {
            Kind::Ours | Kind::OursSlow => true,
            Kind::Distant { fixed, .. } => fixed.is_none(),
            _ => false,
        },
        run: Box::new(move |_: &mut Peers| {
            let mut field = field.borrow_mut();
            let messages = match messages {
                Some(messages) => messages,
                None => *messages.insert(field.calibrated(kind, cell)?),
            };
            field.measure(kind, cell, messages)
        }),
    }
}
