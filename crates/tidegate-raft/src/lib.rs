//! A member of Raft groups and its data directory. All groups of a node share one log.
//!
//! [`replica`] is a member of one group, around the consensus of the `raft` crate, and pure. [`store`] is the
//! data directory: the log, the checkpoints of each group, and the release of what no group needs.
//! [`catchup`] is the protocol by which a member fetches the state from another one, and pure.

pub mod catchup;
pub mod lab;
pub mod replica;
pub mod store;
