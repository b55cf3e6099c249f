//! Finds the streams with a pattern of subjects that overlaps a given pattern, without a comparison with all
//! patterns. The group refuses a stream with subjects that another stream takes. A stream owns its patterns;
//! the index calls it their owner.
//!
//! The index groups patterns by *shape*: the number of tokens, and the positions of wildcards. Two shapes
//! determine the positions at which two patterns both have a literal token; the patterns overlap if and only
//! if the tokens at those positions are equal. So for each shape and each such set of positions, one lookup
//! in a table of the tokens finds the overlapping patterns. (Srinivasan, Suri, Varghese: Packet
//! classification using tuple space search, 1999.) A lookup costs the logarithm of the table, and a search
//! needs one for each shape, with any number of patterns: streams have few shapes.
//!
//! The first search that needs a table builds it, and reads the patterns of its shape once for that. A shape
//! keeps at most [`TABLES_MAX`] tables; beyond that, a search compares the patterns of the shape one by one,
//! until some table has been unused for long. The answer depends on the patterns alone, not on the tables.

mod earlier;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tidegate_nats::subject::tokens;

use crate::schema::number::StreamNumber;
pub(crate) use earlier::Earlier;

/// The limit on the number of tables that the index keeps for one shape of patterns. Each table serves
/// searches by patterns of one other shape, and few groups have so many shapes. The limit bounds the memory.
const TABLES_MAX: usize = 16;
/// The number of searches after which the index may drop a table that no search has used, to make room for
/// another table of the shape.
const UNUSED_MAX: u64 = 1024;

/// The kind of a token of a pattern: a literal or a wildcard. The index groups patterns by these kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    Literal,
    /// The token is the wildcard `*`. It matches one token of a subject.
    Any,
    /// The token is the wildcard `>`. It matches all remaining tokens of a subject.
    Rest,
}

type Shape = Box<[Slot]>;
/// The positions in a pattern at which literal tokens stand, in rising order. A table of the index keeps the
/// tokens at such positions.
type Positions = Box<[u32]>;
/// A table of the patterns of one shape by some of their tokens: the key is the tokens at the table's
/// positions and the owner, and the value is the number of the owner's patterns with these tokens.
type Table = BTreeMap<(Box<[u8]>, StreamNumber), u32>;

/// The index of the patterns of subjects of all streams, each with the stream that owns it, so that a search
/// finds a stream with an overlapping pattern.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    shapes: BTreeMap<Shape, Patterns>,
    /// The number of searches so far. It serves as the clock by which the index finds unused tables.
    searches: u64,
    /// The cost of all searches so far: the number of lookups, of patterns compared, and of patterns added to
    /// new tables. A test checks that the cost stays low.
    #[cfg(test)]
    cost: u64,
}

/// The patterns of one shape, and the tables by which a search finds them.
#[derive(Debug)]
struct Patterns {
    /// The positions of all literal tokens of the shape. The table `whole` has all patterns of the shape by
    /// the tokens at these positions, so that a search without wildcards needs one lookup.
    literals: Positions,
    whole: Table,
    /// The tables by only some of the literal positions, each with the number of the last search that used
    /// it. A search looks up the positions that its pattern shares with the shape.
    tables: BTreeMap<Positions, (Table, u64)>,
}

impl Overlaps {
    /// Adds a pattern of a stream, its owner. The index counts how often an owner adds the same pattern, so
    /// that it can remove the pattern as often.
    pub(crate) fn insert(&mut self, pattern: &[u8], owner: StreamNumber) {
        let of_shape = self.shapes.entry(shape(pattern));
        let of_shape = of_shape.or_insert_with_key(Patterns::new);
        for (positions, table) in of_shape.all_tables() {
            *table.entry((key(pattern, positions), owner)).or_default() += 1;
        }
    }

    /// Removes a pattern of this owner once, so that a pattern that its owner added several times stays until
    /// the last removal.
    pub(crate) fn remove(&mut self, pattern: &[u8], owner: StreamNumber) {
        let shape = shape(pattern);
        let Some(of_shape) = self.shapes.get_mut(&shape) else {
            return;
        };
        for (positions, table) in of_shape.all_tables() {
            let entry = (key(pattern, positions), owner);
            if let Some(count) = table.get_mut(&entry) {
                *count -= 1;
                if *count == 0 {
                    table.remove(&entry);
                }
            }
        }
        if of_shape.whole.is_empty() {
            self.shapes.remove(&shape);
        }
    }

    /// Returns the lowest number of a stream, other than `except`, that has a pattern overlapping this
    /// pattern. It is the lowest so that all nodes find the same stream.
    pub(crate) fn find(
        &mut self,
        pattern: &[u8],
        except: Option<StreamNumber>,
    ) -> Option<StreamNumber> {
        self.searches += 1;
        let searches = self.searches;
        let mine = shape(pattern);
        let mut found: Option<StreamNumber> = None;
        #[cfg(test)]
        let mut cost = 0;
        for (shape, theirs) in &mut self.shapes {
            let Some(positions) = compared(&mine, shape) else {
                continue;
            };
            let tokens = key(pattern, &positions);
            let owner = match theirs.table(positions, searches) {
                Ok((table, _made)) => {
                    #[cfg(test)]
                    (cost += 1 + _made);
                    first(table, tokens, except)
                }
                Err(positions) => {
                    #[cfg(test)]
                    (cost += theirs.whole.len() as u64);
                    theirs.compare(&positions, &tokens, except)
                }
            };
            found = found.into_iter().chain(owner).min();
        }
        #[cfg(test)]
        (self.cost += cost);
        found
    }

    /// Returns the cost of all searches so far: lookups, compared patterns and patterns added to new tables.
    /// A test limits this cost.
    #[cfg(test)]
    pub(crate) const fn cost(&self) -> u64 {
        self.cost
    }

    /// Panics if an invariant of the index of patterns does not hold. Only tests call this, after each
    /// change.
    pub(crate) fn check_invariants(&self) {
        for (shape, patterns) in &self.shapes {
            assert!(!patterns.whole.is_empty(), "a shape without patterns");
            assert_eq!(*patterns.literals, *literals(shape));
            assert!(patterns.tables.len() <= TABLES_MAX);
            for (positions, (table, _)) in &patterns.tables {
                assert_eq!(*table, patterns.project(positions));
            }
        }
    }

    /// Returns the number of patterns in the index, counting a pattern once for each time that an owner added
    /// it. Tests compare it with the patterns of all streams.
    pub(crate) fn len(&self) -> usize {
        let counts = self.shapes.values().flat_map(|p| p.whole.values());
        counts.map(|count| *count as usize).sum()
    }
}

impl Patterns {
    fn new(shape: &Shape) -> Self {
        Self {
            literals: literals(shape),
            whole: Table::new(),
            tables: BTreeMap::new(),
        }
    }

    fn all_tables(&mut self) -> impl Iterator<Item = (&Positions, &mut Table)> {
        let fewer = self.tables.iter_mut();
        let fewer = fewer.map(|(positions, (table, _))| (positions, table));
        fewer.chain(std::iter::once((&self.literals, &mut self.whole)))
    }

    /// Returns the shape's table by these positions, built if it is missing, and the number of patterns that
    /// this call added to a new table. If the shape has no room for another table, returns the positions as
    /// the error, so that the caller compares all patterns instead.
    fn table(&mut self, positions: Positions, now: u64) -> Result<(&Table, u64), Positions> {
        if positions == self.literals {
            return Ok((&self.whole, 0));
        }
        let mut made = 0;
        if !self.tables.contains_key(&positions) {
            if self.tables.len() >= TABLES_MAX && !self.make_room(now) {
                return Err(positions);
            }
            let table = self.project(&positions);
            made = self.whole.len() as u64;
            self.tables.insert(positions.clone(), (table, now));
        }
        match self.tables.get_mut(&positions) {
            Some((table, used)) => {
                *used = now;
                Ok((table, made))
            }
            None => Err(positions),
        }
    }

    /// Drops the table of the shape that has been unused for longest, if it has been unused for more than
    /// [`UNUSED_MAX`] searches. Returns whether the shape has room for another table now.
    fn make_room(&mut self, now: u64) -> bool {
        let oldest = self.tables.iter().min_by_key(|(_, (_, used))| *used);
        let unused = oldest.filter(|(_, (_, used))| used + UNUSED_MAX < now);
        let unused = unused.map(|(positions, _)| positions.clone());
        unused.is_some_and(|positions| self.tables.remove(&positions).is_some())
    }

    /// Builds a table with all patterns of the shape, by the tokens that each pattern has at `positions`, so
    /// that later searches by these positions need one lookup.
    fn project(&self, positions: &Positions) -> Table {
        let mut table = Table::new();
        for ((literals, owner), count) in &self.whole {
            let key = self.part(literals, positions);
            *table.entry((key, *owner)).or_default() += count;
        }
        table
    }

    /// Returns the tokens that a pattern has at `positions`, joined by dots, as the key of a table has them;
    /// `literals` are the joined literal tokens of the pattern.
    fn part(&self, literals: &[u8], positions: &Positions) -> Box<[u8]> {
        let at = self.literals.iter().zip(tokens(literals));
        let wanted = at.filter(|(at, _)| positions.binary_search(at).is_ok());
        join(wanted.map(|(_, token)| token))
    }

    /// Returns the lowest number of an owner, other than `except`, that has a pattern with `tokens` at
    /// `positions`. Compares all patterns of the shape, because the shape has no table for `positions`.
    fn compare(
        &self,
        positions: &Positions,
        tokens: &[u8],
        except: Option<StreamNumber>,
    ) -> Option<StreamNumber> {
        let others = self.whole.keys().filter(|(_, of)| Some(*of) != except);
        let same = others.filter(|(literals, _)| *self.part(literals, positions) == *tokens);
        same.map(|(_, owner)| *owner).min()
    }
}

/// Returns the lowest number of an owner, other than `except`, that has a pattern with `tokens` in this
/// table. The table has the owners in rising order, so one lookup is enough.
fn first(table: &Table, tokens: Box<[u8]>, except: Option<StreamNumber>) -> Option<StreamNumber> {
    let from = (tokens, StreamNumber::NONE);
    let owners = table.range(&from..);
    let mut same = owners.take_while(|((other, _), _)| *other == from.0);
    let other = same.find(|((_, owner), _)| Some(*owner) != except);
    other.map(|((_, owner), _)| *owner)
}

fn shape(pattern: &[u8]) -> Shape {
    let slot = |token: &[u8]| match token {
        b"*" => Slot::Any,
        b">" => Slot::Rest,
        _ => Slot::Literal,
    };
    tokens(pattern).map(slot).collect()
}

fn literals(shape: &Shape) -> Positions {
    let literal = |(at, slot): (u32, &Slot)| (*slot == Slot::Literal).then_some(at);
    (0..).zip(shape).filter_map(literal).collect()
}

/// Returns the positions at which patterns of the shapes `a` and `b` both have a literal token: two such
/// patterns overlap if these tokens are equal. Returns `None` if patterns of these shapes never overlap.
fn compared(a: &Shape, b: &Shape) -> Option<Positions> {
    let open = |shape: &Shape| shape.last() == Some(&Slot::Rest);
    if a.len() != b.len() && !open(a) && !open(b) {
        return None;
    }
    let mut positions = Vec::new();
    for at in 0_u32.. {
        match (a.get(at as usize), b.get(at as usize)) {
            (None, None) | (Some(Slot::Rest), Some(_)) | (Some(_), Some(Slot::Rest)) => break,
            (Some(Slot::Literal), Some(Slot::Literal)) => positions.push(at),
            (Some(_), Some(_)) => {}
            (None, Some(_)) | (Some(_), None) => return None,
        }
    }
    Some(positions.into())
}

/// Returns the tokens that the pattern has at `positions`, joined by dots, as the key of a table has them.
fn key(pattern: &[u8], positions: &Positions) -> Box<[u8]> {
    let mut positions = positions.iter().copied().peekable();
    let at = (0_u32..).zip(tokens(pattern));
    join(at.filter_map(|(at, token)| positions.next_if_eq(&at).map(|_| token)))
}

/// Joins tokens by dots. The result is unambiguous, because a token is never empty and never contains a dot.
/// So tables can use it as a key.
fn join<'a>(tokens: impl Iterator<Item = &'a [u8]>) -> Box<[u8]> {
    let mut all = Vec::new();
    for token in tokens {
        if !all.is_empty() {
            all.push(b'.');
        }
        all.extend_from_slice(token);
    }
    all.into()
}
