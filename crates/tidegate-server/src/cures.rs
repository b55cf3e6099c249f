//! The cures by which a turn of the event loop stays short. Each of them is a switch that only the simulation
//! can turn, to show that the loop without the cure lets a client starve others or cause an election.
//!
//! The product has all cures, as constants.

/// The cures of the loop: true stands for the loop as the product has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cures {
    /// A turn reads connections for a bounded time, and a busy connection for a slice of it.
    pub read_slices: bool,
    /// A turn writes outboxes for a bounded time.
    pub write_budget: bool,
    /// A message with many receivers reaches them in parts.
    pub spreading: bool,
    /// Handshakes and checks of passwords run on the pool's threads.
    pub pool: bool,
    /// The subscriptions of a client that left go in parts.
    pub leaving: bool,
    /// A turn accepts and closes a bounded number of connections.
    pub bounded_opening: bool,
    /// A page of a stream's subjects is collected in parts.
    pub pages: bool,
}

impl Cures {
    /// The loop as the product has it.
    pub const ALL: Self = Self {
        read_slices: true,
        write_budget: true,
        spreading: true,
        pool: true,
        leaving: true,
        bounded_opening: true,
        pages: true,
    };
}

/// Returns the cures of the simulated machine; all cures outside of the simulation.
#[cfg(feature = "sim")]
pub(crate) fn cures() -> Cures {
    crate::simulated::cures()
}

/// Returns all cures: only the simulation can turn one off.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn cures() -> Cures {
    Cures::ALL
}

/// Returns the most connections that one turn accepts or closes, which the product bounds by `bound`.
pub(crate) fn openings_a_turn(bound: usize) -> usize {
    match cures().bounded_opening {
        true => bound,
        false => usize::MAX,
    }
}
