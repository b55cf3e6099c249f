//! The replicated log of a group, pure: what may be proposed, what must be written and in which order, what is committed.
//!
//! **[`Group::propose`] -> [`Group::poll_append`] -> the log -> [`Group::handle_appended`] -> [`Group::handle_durable`] ->
//! [`Group::poll_committed`].** Consensus is the crate `raft`; here stands what it leaves to its user: the entries it may ask
//! for (`tail`), the form of what is written ([`records`]), and the order in which it is told. Writing is the store's.

mod group;
pub mod records;
mod tail;

pub use group::{Batch, Committed, Group, GroupOptions, ProposeError, Proposed, Restored};
