//! What a group writes into the log: the kinds of its records and what their fields mean. Decides nothing.
//!
//! | kind | index | term | payload |
//! | --- | --- | --- | --- |
//! | entry | Raft's index | Raft's term | the entry's bytes; none in the entry a new leader begins with |
//! | hard state | the vote | the term | none |
//! | relocated | the stream's sequence | the stream's id | one message in the form of an entry |
//!
//! The commit index is not written: whoever starts again learns it again, and what was applied before a checkpoint is in that.
//! Records count in the order they were written: the last hard state counts, and an entry takes the place of all entries
//! from its index on.

use bytes::Bytes;
use tidegate_log::Record;

/// An entry of the replicated log.
pub const KIND_ENTRY: u8 = 1;
/// Term and vote.
pub const KIND_HARD_STATE: u8 = 2;
/// A message appended again, so that the segment it was in can go.
pub const KIND_RELOCATED: u8 = 3;

/// What a member of a group must not forget, besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The highest term it has seen.
    pub term: u64,
    /// Whom it voted for in it; 0 for nobody.
    pub vote: u64,
}

/// The record of an entry.
#[must_use]
pub const fn entry(group: u32, index: u64, term: u64, payload: Bytes) -> Record {
    Record {
        group,
        kind: KIND_ENTRY,
        index,
        term,
        payload,
    }
}

/// The record of a hard state.
#[must_use]
pub const fn hard_state(group: u32, state: HardState) -> Record {
    Record {
        group,
        kind: KIND_HARD_STATE,
        index: state.vote,
        term: state.term,
        payload: Bytes::new(),
    }
}
