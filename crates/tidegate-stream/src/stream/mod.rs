//! Streams as a replicated state machine: committed log entries go in, outcomes and effects come out. The
//! state machine uses no clock, no file and no socket.
//!
//! [`Streams`] holds all streams of a group; [`Stream`] is one of them. An entry ([`Encoder`], [`Entry`])
//! holds many commands and one time; [`Streams::apply`] answers each command with an [`Outcome`] and reports
//! the changes as [`Effect`]s. [`Streams::apply`] itself makes all checks and assigns all numbers, so that
//! the entries alone determine the content of a stream.

mod block;
mod by_number;
mod changes;
mod chunked;
mod command;
mod consumers;
mod content;
mod dedup;
mod discarded;
mod expected;
mod expiry;
mod filter;
mod foreseen;
mod headers;
mod history;
mod home;
mod index;
mod intake;
mod lookup;
mod mapping;
mod matcher;
#[cfg(test)]
mod model;
mod moving;
mod outcome;
mod placement;
mod publish;
mod residents;
mod restoring;
mod retention;
pub mod rules;
mod schedule;
mod shared;
mod single;
mod snapshot;
mod streams;
mod subjects;
mod taking_in;
#[cfg(test)]
mod tests;
mod wanted;
mod wire;

pub use command::{
    Buffer, COMMAND_HEADER_BYTES, Command, Commands, ENTRY_HEADER_BYTES, EncodeError, Encoder,
    Entry, EntryError, Kind, Place, VERSION,
};
pub use consumers::{ConsumerRequest, HOLDER_PREFIX, StreamConsumer, StreamView, consumer_filter};
pub use filter::Filter;
pub use headers::Asked;
pub use history::Removed;
pub use home::Home;
pub use index::Bulk;
pub use intake::{Intake, Origin, Progress, Row};
pub use lookup::{LastOf, LastPerSubject, Lasts};
pub use mapping::Republished;
pub use moving::{Cursor, Export, Need, Stage, Transit};
pub use outcome::{Effect, Outcome};
pub use placement::{Course, Filling, Moving, Placement, Renewal, Thaw};
pub use residents::Resident;
pub use restoring::{RestoreEnd, RestorePart};
pub use shared::SharedConfig;
pub use single::{Stored, Stream, StreamState};
pub use snapshot::{Chunks, Snapshot};
pub use streams::{AccountLimits, DeleteRequest, Held, PurgeRequest, Streams, Usage};
pub use subjects::Name;
pub use wire::RestoreError;
