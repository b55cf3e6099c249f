//! Serves consumers: their messages, acknowledgements, interest and resets.

pub(crate) mod acks;
pub(crate) mod consumers;
pub(crate) mod interest;
pub(crate) mod resets;
pub(crate) mod unlogged;

/// Names a consumer on this node; never used again.
pub(crate) type Key = u64;
