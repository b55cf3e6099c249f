//! Tests that the default controller keeps the promise of a stable backlog, in the fixed cells of the arena
//! with an open loop.

use tidegate::sim::arena::{Cell, Kind, Stability};

use super::{in_parallel, ours, seeds, table};

/// The seeds of the cells with one batch at a time in which the default controller breaks the promise. The
/// goal is none.
const BROKEN: &[u32] = &[340];

/// The number of runs of cells with several batches at once that may break the promise. The goal is none.
const BROKEN_SEVERAL: usize = 57;

#[test]
fn the_backlog_is_stable_in_every_mode() {
    let is_open = |kind| matches!(kind, Kind::Open(_) | Kind::Bursts);
    let table = table();
    let cells = table.iter().map(|entry| Cell::of(entry.seed).unwrap());
    let cells: Vec<_> = cells.filter(|cell| is_open(cell.kind())).collect();
    let runs = cells.iter().flat_map(|cell| {
        let seeds = seeds(&cell.world).iter();
        seeds.map(move |&seed| (cell, seed))
    });
    let runs: Vec<(&Cell, u32)> = runs.collect();
    let broken = in_parallel(runs.len(), |i| {
        let (cell, seed) = runs[i];
        let modes = cell.stability(seed, &mut ours(&cell.world));
        let is_kept = |mode: &Stability| mode.is_kept() || mode.is_unresolved();
        let first = modes.iter().position(|mode| !is_kept(mode))?;
        println!(
            "seed {} under {seed}: {}, {}, {:?}: mode {first}: {:?}",
            cell.seed,
            cell.world.family(),
            cell.kind(),
            cell.world.server,
            modes[first]
        );
        Some((cell.seed, cell.world.in_flight_max > 1))
    });
    let of = |several| {
        let broken = broken.iter().flatten().filter(move |b| b.1 == several);
        broken.map(|b| b.0).collect::<Vec<_>>()
    };
    let (one, more) = (of(false), of(true));
    println!("broken: {one:?}; of several batches at once: {more:?}");
    assert!(one.iter().all(|seed| BROKEN.contains(seed)), "{one:?}");
    assert!(more.len() <= BROKEN_SEVERAL, "{more:?}");
}
