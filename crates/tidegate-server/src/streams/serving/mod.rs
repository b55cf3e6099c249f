//! Serves consumers: handles their deliveries, acknowledgements, interest and resets.

pub(crate) mod acks;
pub(crate) mod asleep;
pub(crate) mod consumers;
pub(crate) mod interest;
pub(crate) mod live;
pub(crate) mod preparing;
pub(crate) mod resets;
pub(crate) mod unlogged;

/// The id of a consumer on this node. No later consumer gets the same id.
pub(crate) type Key = u64;
