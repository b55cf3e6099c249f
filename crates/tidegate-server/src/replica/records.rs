//! What a group writes into the log: the kinds of its records and what their fields mean. Decides nothing.
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
//! Records count in the order they were written: the last hard state counts, and an entry takes the place of
//! all entries from its index on; it may be the same again, and all behind it with it, so that the log can
//! let go of where they stood. `committed` speaks of the entries as they stand where it was written; a member
//! that is alone writes none, because it has committed whatever is durable. `installed` says that a
//! checkpoint of that index was taken over from another member: no entry before it counts, and the log goes
//! on with the one after that index. A message that is `relocated` is in the member's own state; one that is
//! `fetched` is in a state that is being taken over, and in none until that is whole.

use bytes::Bytes;
use tidegate_log::Record;

/// An entry of the replicated log.
pub const KIND_ENTRY: u8 = 1;
/// Term and vote.
pub const KIND_HARD_STATE: u8 = 2;
/// A message appended again, so that the segment it was in can go.
pub const KIND_RELOCATED: u8 = 3;
/// Up to where entries are committed.
pub const KIND_COMMITTED: u8 = 4;
/// The state as of an entry was taken over from another member.
pub const KIND_INSTALLED: u8 = 5;
/// A message of another member, of whose state it is a part.
pub const KIND_FETCHED: u8 = 6;

/// The last kind there is: a record of a higher one is a newer program's.
pub const KIND_LAST: u8 = KIND_FETCHED;

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

/// The record of a commit index.
#[must_use]
pub const fn committed(group: u32, index: u64) -> Record {
    Record {
        group,
        kind: KIND_COMMITTED,
        index,
        term: 0,
        payload: Bytes::new(),
    }
}

/// The record of a state taken over as of this entry.
#[must_use]
pub const fn installed(group: u32, index: u64, term: u64) -> Record {
    Record {
        group,
        kind: KIND_INSTALLED,
        index,
        term,
        payload: Bytes::new(),
    }
}
