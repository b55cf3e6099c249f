//! Replicates the log of a group as a pure state machine: takes proposals, and returns the records to write,
//! the messages to send and the committed entries.
//!
//! **[`Group::propose`] -> [`Group::poll_append`] -> the log -> [`Group::handle_appended`] ->
//! [`Group::handle_durable`] -> [`Group::poll_committed`].** Between members: **[`Group::poll_message`] ->
//! [`wire`] -> [`Group::step`]**, with [`Group::tick`] for time. Consensus is the crate `raft`. This module
//! adds the parts that `raft` leaves to its user: the entries that `raft` asks for (`tail`) and their
//! positions in the log (`history`), the form of the records ([`records`]) and of the messages ([`wire`]),
//! the checks of other members' messages (`step`), and the order in which the member sends messages
//! (`outbox`). The store writes the records, and the event loop sends the messages.

mod group;
mod history;
mod id;
mod outbox;
pub mod records;
mod step;
mod tail;
pub mod wire;

pub use group::{
    Batch, CatchUp, Committed, ELECTION_TICKS, ENTRY_BYTES_MAX, Group, GroupOptions,
    HEARTBEAT_TICKS, Lagging, LoggedEntry, PeerProgress, ProposeError, RANK_TICKS, Restored, Role,
    TransferError, Unneeded,
};
pub use history::{History, Point};
pub use id::{EntryId, Index, Term};
pub use raft::eraftpb::{Message, MessageType};
pub use step::StepError;
