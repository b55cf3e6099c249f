//! Serves consumers: handles their messages, acknowledgements, interest and resets.

pub(crate) mod acks;
pub(crate) mod consumers;
pub(crate) mod interest;
pub(crate) mod resets;
pub(crate) mod unlogged;

/// The id of a consumer on this node, which no later consumer gets.
pub(crate) type Key = u64;
