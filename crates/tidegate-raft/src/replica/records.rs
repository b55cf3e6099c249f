//! Defines the records that a group writes to the log: their kinds, and the meaning of their fields.
//!
//! | kind | index | term | payload |
//! | --- | --- | --- | --- |
//! | entry | Raft's index | Raft's term | the entry's bytes; none in the entry a new leader begins with |
//! | hard state | the vote | the term | none |
//! | relocated | the stream's sequence | the stream's id | one message in the form of an entry |
//! | fetched | the same | the same | the same |
//! | committed | the commit index | 0 | none |
//! | installed | the entry's index | its term | none |
//!
//! Later records override earlier ones. The last hard state counts. An entry replaces all entries from its
//! index on. An entry may be written again unchanged, with all entries behind it, so that the log can release
//! their old records. `committed` refers to the entries that are valid at its position; a sole member writes
//! none, because it has committed every durable entry. `installed` records that the member took over a
//! checkpoint of that index from another member: no earlier entry counts, and the log continues with the next
//! index. A `relocated` message is in the member's own state. A `fetched` message belongs to a state that the
//! member is taking over, and is in no state until that one is complete.

use bytes::Bytes;
use tidegate_cluster::groups::GroupId;
use tidegate_log::Record;

use super::id::{EntryId, Index, Term};

/// An entry of the replicated log.
pub const KIND_ENTRY: u8 = 1;
/// The term and the vote.
pub const KIND_HARD_STATE: u8 = 2;
/// A message appended again, so that the log can release its old segment.
pub const KIND_RELOCATED: u8 = 3;
/// The index up to which entries are committed.
pub const KIND_COMMITTED: u8 = 4;
/// A state that was taken over from another member.
pub const KIND_INSTALLED: u8 = 5;
/// A message of another member's state.
pub const KIND_FETCHED: u8 = 6;

/// The last known kind: only a newer program writes a higher one.
pub const KIND_LAST: u8 = KIND_FETCHED;

/// The data that a member must not forget, besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The highest term that the member has seen.
    pub term: Term,
    /// The candidate that it voted for in this term; 0 for none.
    pub vote: u64,
}

/// Returns the record of an entry.
#[must_use]
pub const fn entry(group: GroupId, id: EntryId, payload: Bytes) -> Record {
    Record {
        group: group.get(),
        kind: KIND_ENTRY,
        index: id.index.get(),
        term: id.term.get(),
        payload,
    }
}

/// Returns the record of a hard state.
#[must_use]
pub const fn hard_state(group: GroupId, state: HardState) -> Record {
    Record {
        group: group.get(),
        kind: KIND_HARD_STATE,
        index: state.vote,
        term: state.term.get(),
        payload: Bytes::new(),
    }
}

/// Returns the record of a commit index.
#[must_use]
pub const fn committed(group: GroupId, index: Index) -> Record {
    Record {
        group: group.get(),
        kind: KIND_COMMITTED,
        index: index.get(),
        term: 0,
        payload: Bytes::new(),
    }
}

/// Returns the record of a state taken over as of this entry.
#[must_use]
pub const fn installed(group: GroupId, state: EntryId) -> Record {
    Record {
        group: group.get(),
        kind: KIND_INSTALLED,
        index: state.index.get(),
        term: state.term.get(),
        payload: Bytes::new(),
    }
}
