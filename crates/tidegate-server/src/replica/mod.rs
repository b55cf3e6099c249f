//! The replicated log of a group, pure: what may be proposed, what must be written and in which order, what
//! is committed.
//!
//! **[`Group::propose`] -> [`Group::poll_append`] -> the log -> [`Group::handle_appended`] ->
//! [`Group::handle_durable`] -> [`Group::poll_committed`].** And between members **[`Group::poll_message`] ->
//! [`wire`] -> [`Group::step`]**, with [`Group::tick`] for time. Consensus is the crate `raft`; here stands
//! what it leaves to its user: the entries it may ask for (`tail`, and where they are in the log: `history`),
//! the form of what is written ([`records`]) and sent ([`wire`]), what may be believed of others (`step`),
//! and the order in which everything is told (`outbox`). Writing is the store's, sending the cluster's.

mod group;
mod history;
mod outbox;
pub mod records;
mod step;
mod tail;
pub mod wire;

pub use group::{
    Batch, CatchUp, Committed, ELECTION_TICKS, ENTRY_BYTES_MAX, Group, GroupOptions,
    HEARTBEAT_TICKS, Lagging, LoggedEntry, PeerProgress, ProposeError, Proposed, RANK_TICKS,
    Restored, Role, TransferError, Unneeded,
};
pub use history::History;
pub use raft::eraftpb::{Message, MessageType};
pub use step::StepError;
