//! Answers of servers for tests.

/// A server's `/boundaries?history=5`.
pub(super) const BOUNDARIES: &str = include_str!("boundaries.json");
