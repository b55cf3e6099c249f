//! Tests the default controller in two hundred fixed cells of the arena: beside the best fixed settings in
//! `table.txt`, and by the promise of a stable backlog.
//!
//! `tidegate-bench arena --write-table` writes the table again after a change of the worlds or of the
//! simulator.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod backlogs;
mod regrets;

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate::controller::{Choice, Controller};
use tidegate::sim::arena::{Entry, SEEDS, World};

/// Returns the fixed cells and the figures of their best settings, as `table.txt` has them.
fn table() -> Vec<Entry> {
    let lines = include_str!("table.txt").lines();
    let entries = lines.filter(|line| !line.starts_with('#'));
    entries.map(|line| line.parse().unwrap()).collect()
}

/// Returns the default controller as the builder of an actor makes it.
fn ours(world: &World) -> Box<dyn Controller> {
    Choice::KNEE.build(world.bounds()).unwrap()
}

/// Returns the seeds of the runs in a world. Where several batches run at once, a single run is not
/// significant.
fn seeds(world: &World) -> &'static [u32] {
    let many = if world.in_flight_max > 1 { 4 } else { 1 };
    &SEEDS[..many]
}

/// Returns the results of `of` for the numbers from 0 to `n` - 1, in this order. Several threads compute
/// them, to save time.
fn in_parallel<T: Send>(n: usize, of: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    return mine;
                }
                mine.push((i, of(i)));
            }
        };
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}
