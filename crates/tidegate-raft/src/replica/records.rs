//! Defines the records that a group writes to the log, from which a member continues after a restart: their
//! kinds, and the meaning of their fields.
//!
//! | kind | index | term | payload |
//! | --- | --- | --- | --- |
//! | entry | Raft's index | Raft's term | the entry's bytes; none in the entry a new leader begins with |
//! | hard state | the vote | the term | none |
//! | relocated | the message's number | the stream's id | one message in the form of an entry |
//! | fetched | the message's number | the stream's id | one message in the form of an entry |
//! | committed | the commit index | 0 | none |
//! | installed | the index of the state's last entry | that entry's term | none |
//!
//! Later records override earlier ones. The last hard state counts. An entry replaces all entries from its
//! index on. A group may write an entry again unchanged, with all entries behind it, so that the log can
//! release their old records. `committed` refers to the entries that are valid at its position; a sole member
//! writes no such record, because it has committed every durable entry. `installed` records that the member
//! took over a checkpoint of that index from another member: no earlier entry counts, and the log continues
//! with the next index. A `relocated` message is in the member's own state. A `fetched` message belongs to a
//! state that the member is taking over. Until that state is complete, the message is in no state.

use bytes::Bytes;
use tidegate_cluster::groups::GroupId;
use tidegate_log::Record;

use super::id::{EntryId, Index, Term};

/// The kind of a record that holds an entry of the group's Raft log, which the node replays at its start.
pub const KIND_ENTRY: u8 = 1;
/// The kind of a record that holds the member's term and vote, so that it never votes twice in a term.
pub const KIND_HARD_STATE: u8 = 2;
/// The kind of a record that holds a message which the store has written again, so that the log can release
/// the message's old segment.
pub const KIND_RELOCATED: u8 = 3;
/// The kind of a record that holds the group's commit index, up to which a node may apply entries at its
/// start.
pub const KIND_COMMITTED: u8 = 4;
/// The kind of a record that notes the takeover of another member's state, so that no earlier entry counts.
pub const KIND_INSTALLED: u8 = 5;
/// The kind of a record that holds a message fetched from another member, for a state that this member is
/// taking over.
pub const KIND_FETCHED: u8 = 6;

/// The highest kind of record that this program knows. A node refuses a log with a higher kind, because only
/// a newer program writes one.
pub const KIND_LAST: u8 = KIND_FETCHED;

/// Raft's hard state: the term and the vote, which a member must keep durably besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The highest term that the member has known. The member ignores messages of lower terms.
    pub term: Term,
    /// The id of the candidate for which the member voted in this term; 0 if it has not voted. The member
    /// votes only once in a term.
    pub vote: u64,
}

/// Returns the log record that makes a Raft entry durable.
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

/// Returns the log record that makes a member's term and vote durable.
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

/// Returns the log record that notes a group's commit index, for the next start of the node.
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

/// Returns the log record that notes the takeover of a state with the last entry `state`.
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
