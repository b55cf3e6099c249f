//! Measures clusters with a delay between the nodes: our server with its controller beside fixed settings,
//! which are a number of commands in an entry and a number of entries in flight. For the delay, the bench
//! puts a proxy in front of the address at which each node receives the other nodes.
//!
//! For each cell the bench first tries every setting of the grid alone and once. Then it runs the best of
//! them beside our controller, in interleaved rounds.

use std::cell::RefCell;

use tidegate_cli::interrupt;
use tidegate_raft::lab::FixedEntries;

use super::cell::{Cell, Work};
use super::field::Field;
use super::server::{Kind, Programs};
use super::{NODES, contestant};
use crate::session::Session;

/// The grid of fixed settings: the numbers of commands in an entry, and (`IN_FLIGHT`) the numbers of entries
/// in flight.
const COMMANDS: [u64; 4] = [1, 16, 256, 4096];
const IN_FLIGHT: [usize; 4] = [1, 4, 16, 64];
/// The number of fixed settings that run beside our controller in the rounds.
const FINALISTS: usize = 3;

/// Returns the name in the results of a contestant with a fixed number of commands in an entry and of entries
/// in flight.
pub(super) fn name(fixed: FixedEntries) -> String {
    let FixedEntries {
        commands,
        in_flight,
    } = fixed;
    format!("fixed: {commands} an entry, {in_flight} in flight")
}

/// Runs the cells of clusters with a delay between the nodes, for `tidegate-bench cluster --full`.
pub(super) fn run(session: &mut Session, cells: &[Cell]) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let field = RefCell::new(Field::new(NODES, programs, session)?);
    for cell in cells {
        if session.wants(&cell.name) {
            run_cell(session, &field, cell)?;
        }
    }
    Ok(())
}

fn run_cell(session: &mut Session, field: &RefCell<Field>, cell: &Cell) -> anyhow::Result<()> {
    let Work::Distant { round_trip, .. } = cell.work else {
        return Ok(());
    };
    let kind = |fixed| Kind::Distant { round_trip, fixed };
    let mut best = Vec::new();
    for fixed in grid(session.is_smoke()) {
        if interrupt::asked() {
            return Ok(());
        }
        let (mut field, kind) = (field.borrow_mut(), kind(Some(fixed)));
        field.keep_only(&[]);
        let messages = field.calibrated(kind, cell);
        match messages.and_then(|messages| field.measure(kind, cell, messages)) {
            Ok(sample) => best.push((sample.ops_per_s, fixed)),
            Err(failure) => session.say(&format!("{}, {}: {failure}", cell.name, name(fixed))),
        }
    }
    best.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    field.borrow_mut().keep_only(&[]);
    let finalists = best.iter().take(FINALISTS).map(|(_, fixed)| Some(*fixed));
    let contestants = [None].into_iter().chain(finalists);
    let contestants = contestants.map(|fixed| contestant(kind(fixed), None, field, cell));
    session.cell(&cell.name, contestants.collect())?;
    field.borrow_mut().keep_only(&[]);
    Ok(())
}

fn grid(smoke: bool) -> Vec<FixedEntries> {
    let at = |commands| {
        IN_FLIGHT.map(|in_flight| FixedEntries {
            commands,
            in_flight,
        })
    };
    let all = COMMANDS.into_iter().flat_map(at);
    all.take(if smoke { 1 } else { usize::MAX }).collect()
}
