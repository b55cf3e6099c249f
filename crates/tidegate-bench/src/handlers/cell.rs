//! Defines the cells of the bench `handlers`: a cell is a kind of handler under a load of callers. Pure.

/// A kind of handler, which does real work for batches of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Postgres,
    Sqlite,
    Http,
    Append,
    Padded,
    Upsert,
    /// A handler that only counts items, for tests and for the cost of the contestants themselves. The bench
    /// runs this handler only if a pattern names it.
    Memory,
}

impl Kind {
    /// The handlers that the bench runs if the user chooses no others.
    pub(super) const ALL: [Self; 6] = [
        Self::Postgres,
        Self::Sqlite,
        Self::Http,
        Self::Append,
        Self::Padded,
        Self::Upsert,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
            Self::Http => "http",
            Self::Append => "append",
            Self::Padded => "padded",
            Self::Upsert => "upsert",
            Self::Memory => "memory",
        }
    }

    /// Returns the numbers of batches in flight that the handler supports. A handler with one file or one
    /// state takes one batch at a time.
    pub(super) const fn in_flight(self) -> &'static [u32] {
        match self {
            Self::Postgres | Self::Http => &[1, 2, 4],
            _ => &[1],
        }
    }

    /// Returns whether this build has the handler: the databases need the feature `peers`.
    pub(super) const fn is_built(self) -> bool {
        cfg!(feature = "peers") || !matches!(self, Self::Postgres | Self::Sqlite)
    }
}

/// The way in which callers send items to a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// A closed loop of this many callers: each caller calls again after its answer.
    Callers(u32),
    /// An open loop with Poisson arrivals, at this percentage of the handler's capacity.
    Poisson(u32),
}

const CALLERS: [u32; 5] = [1, 4, 16, 64, 256];
const PERCENTS: [u32; 6] = [10, 30, 60, 80, 90, 95];

/// A cell of the bench: a handler under a load, in which the bench compares the contestants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) kind: Kind,
    pub(super) load: Load,
}

impl Cell {
    /// Returns the cell's name on the command line and in results, such as `http/callers-16`.
    pub(super) fn name(self) -> String {
        match self.load {
            Load::Callers(n) => format!("{}/callers-{n}", self.kind.name()),
            Load::Poisson(percent) => format!("{}/poisson-{percent}", self.kind.name()),
        }
    }

    fn matches(self, pattern: &str) -> bool {
        let name = self.name();
        let (kind, load) = name.split_once('/').unwrap_or((&name, ""));
        fits(pattern, &name) || fits(pattern, kind) || fits(pattern, load)
    }
}

fn all(kinds: &[Kind]) -> impl Iterator<Item = Cell> {
    let loads = || {
        let callers = CALLERS.into_iter().map(Load::Callers);
        callers.chain(PERCENTS.into_iter().map(Load::Poisson))
    };
    kinds
        .iter()
        .flat_map(move |&kind| loads().map(move |load| Cell { kind, load }))
}

/// Selects cells by `patterns`, separated by commas: a handler, a load, or a cell, each with `*` for any
/// text. Without patterns, selects every cell but those of [`Kind::Memory`].
///
/// # Errors
///
/// A pattern fits no cell. The text of the error names the forms.
pub(super) fn select(patterns: Option<&str>) -> Result<Vec<Cell>, String> {
    let Some(patterns) = patterns else {
        return Ok(all(&Kind::ALL).collect());
    };
    let mut selected: Vec<Cell> = Vec::new();
    for pattern in patterns.split(',').map(str::trim) {
        // A pattern that names only a load does not select [`Kind::Memory`], the handler that only counts
        // items: a pattern must name that handler.
        let named = all(&Kind::ALL)
            .chain(all(&[Kind::Memory]).filter(|_| pattern.starts_with(Kind::Memory.name())));
        let fitting: Vec<Cell> = named.filter(|cell| cell.matches(pattern)).collect();
        if fitting.is_empty() {
            return Err(format!(
                "no cell fits `{pattern}`: expected a handler ({}), a load (callers-{}, poisson-{}) or both, \
                 such as http/callers-16 or */poisson-9*",
                join(Kind::ALL.map(Kind::name)),
                join(CALLERS),
                join(PERCENTS)
            ));
        }
        for cell in fitting {
            if !selected.contains(&cell) {
                selected.push(cell);
            }
        }
    }
    Ok(selected)
}

fn join<T: ToString>(parts: impl IntoIterator<Item = T>) -> String {
    let parts: Vec<_> = parts.into_iter().map(|part| part.to_string()).collect();
    parts.join("|")
}

/// Returns whether the whole `text` matches `pattern`, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|&at| rest.is_char_boundary(at))
                .any(|at| fits(tail, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patterns: &str) -> Vec<String> {
        let cells = select(Some(patterns)).unwrap();
        cells.into_iter().map(Cell::name).collect()
    }

    #[test]
    fn a_pattern_names_a_handler_a_load_or_a_cell() {
        assert_eq!(select(None).unwrap().len(), 66);
        assert_eq!(names("http").len(), 11);
        assert_eq!(names("callers-1").len(), 6);
        assert_eq!(names("http/callers-1"), ["http/callers-1"]);
        assert_eq!(
            names("sqlite/callers-*4, http/callers-4,sqlite/callers-4"),
            ["sqlite/callers-4", "sqlite/callers-64", "http/callers-4"]
        );
        assert_eq!(names("*/poisson-9*").len(), 12);
        assert_eq!(names("memory/poisson-30"), ["memory/poisson-30"]);
    }

    #[test]
    fn a_pattern_that_fits_nothing_is_refused_with_the_forms() {
        for pattern in ["oracle", "http/callers-2", "", "callers", "http,nosuch"] {
            let error = select(Some(pattern)).unwrap_err();
            assert!(error.contains("postgres|sqlite"), "{error}");
            assert!(error.contains("callers-1|4|16|64|256"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
