//! Compares the throughput and the latency of the default controller with those of the best fixed settings,
//! by group of cells.

use std::sync::LazyLock;

use tidegate::sim::arena::{Cell, Entry, FIXED_EFFORT, Kind, Regret, fixed_cells};

use super::{in_parallel, ours, seeds, table};

/// Runs every cell of the table under the default controller, on the first seed, and compares its figures
/// with those of the best settings.
fn play() -> Vec<(Cell, Regret)> {
    let table = table();
    let runs = in_parallel(table.len(), |i| {
        let play = |&seed| {
            let cell = Cell::of(table[i].seed).unwrap();
            let outcome = cell.play(seed, FIXED_EFFORT, &mut ours(&cell.world));
            let regret = cell.regret(&outcome, &table[i].marks);
            (cell, regret)
        };
        let world = Cell::of(table[i].seed).unwrap().world;
        seeds(&world).iter().map(play).collect::<Vec<_>>()
    });
    runs.into_iter().flatten().collect()
}

/// The figures of the controller in a group of cells, each as a share of the best fixed setting's figure,
/// best first.
struct Shares {
    name: &'static str,
    /// The shares, each with the seed of its cell, so that a failure can name the cell.
    sorted: Vec<(f64, u32)>,
}

impl Shares {
    /// Collects the shares of a group of cells. `share` returns `None` for cells outside the group, and
    /// `more` says that a larger share is better.
    fn of(
        name: &'static str,
        cells: &[(Cell, Regret)],
        more: bool,
        share: impl Fn(&Cell, &Regret) -> Option<f64>,
    ) -> Self {
        let shares = cells
            .iter()
            .filter_map(|(c, r)| Some((share(c, r)?, c.seed)));
        let mut sorted: Vec<_> = shares.collect();
        sorted.sort_by(|a, b| {
            if more {
                b.0.total_cmp(&a.0)
            } else {
                a.0.total_cmp(&b.0)
            }
        });
        let shares = Self { name, sorted };
        let worst: Vec<_> = shares.sorted.iter().rev().take(5).collect();
        println!(
            "{name}: {} runs, median {:.3}, 95 % are as good as {:.3}; worst (share, seed) {worst:.3?}",
            shares.sorted.len(),
            shares.at(0.5),
            shares.at(0.95),
        );
        shares
    }

    fn at(&self, part: f64) -> f64 {
        let rank = (self.sorted.len() as f64 * part).ceil() as usize;
        self.sorted[rank.max(1) - 1].0
    }

    /// Asserts a share of at least `median` in the median and of at least `most` in 95 % of the cells.
    fn at_least(&self, median: f64, most: f64) {
        let found = (self.at(0.5), self.at(0.95));
        assert!(
            found.0 >= median && found.1 >= most,
            "{}: {found:.3?}",
            self.name
        );
    }

    /// Asserts a share of at most `median` in the median and of at most `most` in 95 % of the cells.
    fn at_most(&self, median: f64, most: f64) {
        let found = (self.at(0.5), self.at(0.95));
        assert!(
            found.0 <= median && found.1 <= most,
            "{}: {found:.3?}",
            self.name
        );
    }
}

/// The figures of the controller by group, either of the cells with one batch at a time or of those with
/// several.
struct Groups {
    throughput: Shares,
    closed_p99: Shares,
    open_mean: Shares,
    open_p99: Shares,
    full_mean: Shares,
    full_p99: Shares,
}

fn is_full(cell: &Cell) -> bool {
    cell.kind() == Kind::Open(95)
}

impl Groups {
    fn of(several: bool) -> Self {
        static PLAYED: LazyLock<Vec<(Cell, Regret)>> = LazyLock::new(play);
        let group = |name, more, share: fn(&Cell, &Regret) -> Option<f64>| {
            Shares::of(name, &PLAYED, more, |cell, regret| {
                let is_in = (cell.world.in_flight_max > 1) == several;
                is_in.then(|| share(cell, regret)).flatten()
            })
        };
        Self {
            throughput: group("throughput", true, |_, r| r.throughput),
            closed_p99: group("closed p99", false, |_, r| r.throughput.and(r.p99)),
            open_mean: group("open mean", false, |c, r| r.mean.filter(|_| !is_full(c))),
            open_p99: group("open p99", false, |c, r| {
                r.mean.and(r.p99).filter(|_| !is_full(c))
            }),
            full_mean: group("mean at 95 %", false, |c, r| r.mean.filter(|_| is_full(c))),
            full_p99: group("p99 at 95 %", false, |c, r| {
                r.mean.and(r.p99).filter(|_| is_full(c))
            }),
        }
    }
}

#[test]
fn one_batch_at_a_time_is_close_to_the_best_setting() {
    let ours = Groups::of(false);
    // The goal is a share of 0.95 in the median and of 0.90 in 95 % of the cells.
    ours.throughput.at_least(0.95, 0.89);
    // The goal is a share of 1.3 in all cells.
    ours.closed_p99.at_most(1.3, 1.95);
    // The goal is a share of 1.15 in the median and of 1.5 in 95 % of the cells.
    ours.open_mean.at_most(1.15, 4.4);
    // The goal is a share of 1.15 in the median and of 1.5 in 95 % of the cells.
    ours.open_p99.at_most(1.15, 5.6);
    // The goal is a share of 1.15 in the median and of 2.0 in 95 % of the cells.
    ours.full_mean.at_most(1.15, 20.0);
    // The goal is a share of 1.15 in the median and of 2.0 in 95 % of the cells.
    ours.full_p99.at_most(1.15, 8.2);
}

#[test]
fn several_batches_at_once_are_close_to_the_best_setting() {
    let ours = Groups::of(true);
    // The goal is a share of 0.95 in the median and of 0.90 in 95 % of the cells.
    ours.throughput.at_least(0.945, 0.75);
    // The goal is a share of 1.3 in all cells.
    ours.closed_p99.at_most(1.25, 2.0);
    // The goal is a share of 1.15 in the median and of 1.5 in 95 % of the cells.
    ours.open_mean.at_most(1.9, 125.0);
    // The goal is a share of 1.15 in the median and of 1.5 in 95 % of the cells.
    ours.open_p99.at_most(2.5, 95.0);
    // The goal is a share of 1.15 in the median and of 2.0 in 95 % of the cells.
    ours.full_mean.at_most(3.8, 36.0);
    // The goal is a share of 1.15 in the median and of 2.0 in 95 % of the cells.
    ours.full_p99.at_most(3.4, 50.0);
}

#[test]
fn the_table_is_that_of_these_worlds() {
    let table = table();
    assert_eq!(table.len(), 200);
    for (cell, entry) in fixed_cells().zip(&table).take(20) {
        assert_eq!(cell.seed, entry.seed);
    }
    in_parallel(table.len() / 25, |i| {
        let entry = &table[25 * i];
        let again = Entry::of(&Cell::of(entry.seed).unwrap());
        assert_eq!(again.best, entry.best, "seed {}", entry.seed);
        let pairs = [
            (again.marks.throughput, entry.marks.throughput),
            (again.marks.throughput_p99, entry.marks.throughput_p99),
            (again.marks.mean, entry.marks.mean),
            (again.marks.p99, entry.marks.p99),
        ];
        for (a, b) in pairs {
            assert!((a - b).abs() <= 1e-6 * b, "seed {}: {a}, {b}", entry.seed);
        }
    });
}
