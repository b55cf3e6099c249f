//! Lists the cures by which a turn of the event loop stays short. Each of them is a switch that only the
//! simulation can turn, to show that the loop without the cure lets a client starve others or cause an
//! election.
//!
//! The product has all cures, as constants.

/// The cures that the loop has: true means that the loop works as in the product, and false that a simulation
/// shows the harm without the cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cures {
    /// The loop reads connections for a bounded time in a turn, and each busy connection for a slice of it.
    pub read_slices: bool,
    /// The loop writes outboxes for a bounded time in a turn.
    pub write_budget: bool,
    /// The node delivers a message with many receivers in parts, so that other clients get their turn.
    pub spreading: bool,
    /// The pool's threads do handshakes and checks of passwords, and not the loop, which would keep clients
    /// waiting.
    pub pool: bool,
    /// The node removes the subscriptions of a client that has left in parts, so that other clients get their
    /// turn.
    pub leaving: bool,
    /// The loop accepts and closes a bounded number of connections in a turn, so that many new clients do not
    /// keep the others waiting.
    pub bounded_opening: bool,
    /// The group collects a page of a stream's subjects in parts, so that clients do not wait for a large
    /// stream.
    pub pages: bool,
    /// The nodes of a group prepare a purge by subject in parts, before its entry.
    pub foreseeing: bool,
    /// The node frees the memory of removed messages in parts, and subtracts them in parts from their
    /// segments.
    pub reclaiming: bool,
    /// A consumer looks in parts for the messages with which it begins, and so does a request for the last
    /// message of a pattern, and an entry with a publish that depends on one.
    pub searching: bool,
    /// A new leader takes up the consumers of its group in parts.
    pub taking_up: bool,
    /// All consumers of a group together deliver a bounded number of messages in a turn.
    pub deliveries: bool,
    /// The loop describes streams and consumers for a report in parts.
    pub reports: bool,
}

impl Cures {
    /// All cures, as the product has them.
    pub const ALL: Self = Self {
        read_slices: true,
        write_budget: true,
        spreading: true,
        pool: true,
        leaving: true,
        bounded_opening: true,
        pages: true,
        foreseeing: true,
        reclaiming: true,
        searching: true,
        taking_up: true,
        deliveries: true,
        reports: true,
    };
}

/// Returns the cures by which the loop decides how to work: those of the simulated machine, or all cures if
/// the loop runs on the real machine.
#[cfg(feature = "sim")]
pub(crate) fn cures() -> Cures {
    crate::simulated::cures()
}

/// Returns all cures, because only the simulation can turn one off.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn cures() -> Cures {
    Cures::ALL
}

/// Returns the most connections that the loop accepts or closes in one turn: `bound`, or any number if a
/// simulation turns the cure off.
pub(crate) fn openings_a_turn(bound: usize) -> usize {
    part(cures().bounded_opening, bound)
}

/// Returns the bound of a part of some work: `bound` if the loop has the cure that divides the work,
/// otherwise the whole work.
pub(crate) const fn part(is_cured: bool, bound: usize) -> usize {
    match is_cured {
        true => bound,
        // A caller may take a multiple of the bound, so the bound is far from the largest number.
        false => usize::MAX >> 8,
    }
}
