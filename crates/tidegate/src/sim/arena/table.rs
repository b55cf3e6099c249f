//! The fixed cells of the arena, which tests replay, and a line of text for each cell with the figures of its
//! best settings.

use std::fmt;
use std::str::FromStr;

use super::cell::{Best, Cell, Effort, Kind, Marks, SEEDS};
use super::oracle::Setting;

/// The length of the runs of the fixed cells, short enough for tests.
pub const FIXED_EFFORT: Effort = Effort {
    items_max: 1_000_000,
};

/// The greatest number of items that a run of a fixed cell may have, with the items of its learning: more
/// items would make tests too slow.
const ITEMS_MAX: f64 = 500_000.0;

/// The greatest number of items that a run of a fixed cell at 95 % load may have. At this load learning takes
/// long.
const ITEMS_MAX_FULL: f64 = 3_000_000.0;

/// The number of fixed cells below 95 % load, which come first, and of those at 95 %, where few cells are
/// short.
const FIXED: (usize, usize) = (180, 20);

/// A fixed cell, the best fixed settings in it, and their figures on the first seed.
///
/// The text of an entry is one line: the seed, the settings by throughput, mean and 99th percentile as
/// limit/linger/number in flight, then the four figures of [`Marks`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The seed from which the cell's world is generated.
    pub seed: u32,
    /// The best fixed settings in the cell, which took a long search.
    pub best: Best,
    /// The figures of the best settings in a run with the first of the [`SEEDS`].
    pub marks: Marks,
}

impl Entry {
    /// Returns the entry of the table for `cell`, by a search for the best settings.
    #[must_use]
    pub fn of(cell: &Cell) -> Self {
        let best = cell.best(FIXED_EFFORT);
        Self {
            seed: cell.seed,
            best,
            marks: cell.marks(&best, SEEDS[0], FIXED_EFFORT),
        }
    }
}

/// Returns the fixed cells of the arena: the cells of the first seeds that satisfy the premises and have
/// short runs, with those at 95 % load last.
pub fn fixed_cells() -> impl Iterator<Item = Cell> {
    let cells = || (0..).filter_map(|seed| Cell::of(seed).ok());
    let is_full = |cell: &Cell| cell.kind() == Kind::Open(95);
    let is_short =
        |cell: &Cell, most| cell.learning_items() + cell.items(FIXED_EFFORT) as f64 <= most;
    let others = cells().filter(move |cell| !is_full(cell) && is_short(cell, ITEMS_MAX));
    let full = cells().filter(move |cell| is_full(cell) && is_short(cell, ITEMS_MAX_FULL));
    others.take(FIXED.0).chain(full.take(FIXED.1))
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        for s in [self.best.throughput, self.best.mean, self.best.p99] {
            write!(f, " {}/{}/{}", s.limit, s.linger, s.in_flight)?;
        }
        let m = &self.marks;
        write!(
            f,
            " {} {} {} {}",
            m.throughput, m.throughput_p99, m.mean, m.p99
        )
    }
}

/// The error of a line of text that is not an entry of the table of fixed cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryError(String);

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no entry of the table: expected a seed, three settings such as 64/0.5/1 and four numbers",
            self.0
        )
    }
}

impl std::error::Error for EntryError {}

impl FromStr for Entry {
    type Err = EntryError;

    fn from_str(line: &str) -> Result<Self, EntryError> {
        parse(line).ok_or_else(|| EntryError(line.into()))
    }
}

fn parse(line: &str) -> Option<Entry> {
    let mut words = line.split_whitespace();
    let seed = words.next()?.parse().ok()?;
    let mut settings = [setting(words.next()?)?; 3];
    for s in &mut settings[1..] {
        *s = setting(words.next()?)?;
    }
    let mut figures = [0.0; 4];
    for x in &mut figures {
        *x = words.next()?.parse().ok()?;
    }
    let [throughput, mean, p99] = settings;
    let entry = Entry {
        seed,
        best: Best {
            throughput,
            mean,
            p99,
        },
        marks: Marks {
            throughput: figures[0],
            throughput_p99: figures[1],
            mean: figures[2],
            p99: figures[3],
        },
    };
    words.next().is_none().then_some(entry)
}

fn setting(word: &str) -> Option<Setting> {
    let mut parts = word.split('/');
    let setting = Setting {
        limit: parts.next()?.parse().ok()?,
        linger: parts.next()?.parse().ok()?,
        in_flight: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_as_it_prints() {
        let cell = fixed_cells().next().unwrap();
        let entry = Entry::of(&cell);
        assert_eq!(entry.to_string().parse(), Ok(entry));
        let longer = format!("{entry} 1");
        assert!(longer.parse::<Entry>().is_err());
        let error = "17 64/0/1".parse::<Entry>().unwrap_err().to_string();
        assert!(error.contains("64/0.5/1"), "{error}");
    }
}
