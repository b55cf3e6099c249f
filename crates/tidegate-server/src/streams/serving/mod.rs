//! Serves consumers on the leader: handles their deliveries, acknowledgements, interest and resets.

pub(crate) mod acks;
pub(crate) mod asleep;
pub(crate) mod consumers;
pub(crate) mod interest;
pub(crate) mod live;
pub(crate) mod preparing;
pub(crate) mod resets;
pub(crate) mod taking_up;
pub(crate) mod unlogged;

/// The id by which this node knows a consumer. No later consumer gets the id again.
pub(crate) type Key = u64;
