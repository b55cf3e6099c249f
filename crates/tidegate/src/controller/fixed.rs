//! Limits that never move: a constant, and none at all.

use super::{Observed, Rule, Ruled};

/// The same limit always, greedy by default: a batch takes what waits, up to the limit. With a linger it
/// becomes what most libraries call batch size and `linger_ms`: a batch below the limit waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    limit: u64,
    linger_ns: u64,
    in_flight: u32,
}

impl Fixed {
    /// Batches of up to `limit` items, nobody waits.
    #[must_use]
    pub const fn new(limit: u64) -> Self {
        Self {
            limit,
            linger_ns: 0,
            in_flight: 1,
        }
    }

    /// The same, but a smaller batch waits for company for `linger`, counted from its oldest item.
    #[must_use]
    pub fn with_linger(self, linger: std::time::Duration) -> Self {
        Self {
            linger_ns: crate::nanos(linger),
            ..self
        }
    }

    /// The same, but up to `batches` batches run at once where the boundary allows that.
    #[must_use]
    pub const fn with_in_flight(self, batches: u32) -> Self {
        Self {
            in_flight: batches,
            ..self
        }
    }

    /// As a [`Controller`](super::Controller).
    #[must_use]
    pub const fn controller(self) -> Ruled<Self> {
        Ruled::new(self)
    }
}

impl Rule for Fixed {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn observe(&mut self, _: Observed) {}

    fn linger_ns(&self) -> u64 {
        self.linger_ns
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

/// Takes everything that waits, always; only the hard bounds limit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greedy;

impl Greedy {
    /// As a [`Controller`](super::Controller) that runs up to `batches` batches at once, where the boundary
    /// allows that.
    #[must_use]
    pub fn with_in_flight(self, batches: u32) -> Ruled<Self> {
        self.controller().with_in_flight(batches)
    }

    /// As a [`Controller`](super::Controller).
    #[must_use]
    pub const fn controller(self) -> Ruled<Self> {
        Ruled::new(self)
    }
}

impl Rule for Greedy {
    fn limit(&self) -> u64 {
        u64::MAX
    }

    fn observe(&mut self, _: Observed) {}
}
