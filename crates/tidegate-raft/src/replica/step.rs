//! Checks the messages of other members before Raft gets them, so that a faulty or hostile node cannot harm
//! this one.
//!
//! The crate `raft` trusts its peers, and ends the process on impossible messages. So this module checks each
//! message of another member, and refuses with an error each message that a correct member never sends.

use tidegate_cluster::groups::GroupId;

use raft::eraftpb::{Message, MessageType};
use raft::{RawNode, StateRole};

use super::id::Index;
use super::tail::Tail;

/// The greatest index and term that a member accepts in a message. No real log ever reaches this number, and
/// sums of such numbers cannot overflow.
const NUMBER_MAX: u64 = 1 << 60;

/// The reason why a member refuses a message of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The message belongs to a group of which this node is no member.
    #[error("a message for group {group}, and this node is no member of that group")]
    WrongGroup {
        /// The number of the group that the message names.
        group: GroupId,
    },
    /// The message names another member as its receiver.
    #[error(
        "a message for member {to:x} has reached another member: check the routes in the nodes' configuration"
    )]
    NotForThis {
        /// The id of the receiver that the message names.
        to: u64,
    },
    /// The message names a sender that is no other member of the group.
    #[error(
        "a message names {from:x} as its sender, and that is no other member of the group: check the routes in the nodes' configuration"
    )]
    Unknown {
        /// The id of the sender that the message names.
        from: u64,
    },
    /// The message has a kind that correct members never send.
    #[error("a message of a kind that members do not send")]
    Kind,
    /// A leader counts on entries that this member does not have: this member has lost entries that it
    /// acknowledged. This member must not continue, because it could help to elect another member that lacks
    /// these entries, too.
    #[error(
        "this node's log ends at entry {last}, and it has acknowledged entries up to {acknowledged}: entries that it had written are lost"
    )]
    Forgotten {
        /// The index up to which this member has acknowledged entries, as the leader knows it.
        acknowledged: Index,
        /// The index of the last entry in this member's log: the entries behind it are lost.
        last: Index,
    },
    /// The message contradicts itself or this member's log, so no correct member sends it.
    #[error("a message that contradicts itself or this member's log: {what}")]
    Impossible {
        /// A text that names the contradiction in the message, for the log of the node.
        what: &'static str,
    },
    /// Too many bytes of this group's entries wait for the log, so this member takes no more entries for
    /// now. The leader sends the entries again.
    #[error(
        "too many bytes of entries wait to be written: the leader sends these entries again later"
    )]
    Full,
}

/// Checks whether a correct member of the group may have sent this message to this member, before Raft gets
/// the message.
pub(super) fn check(
    raft: &RawNode<Tail>,
    voters: &[u64],
    message: &Message,
) -> Result<(), StepError> {
    let this = raft.raft.id;
    if message.to != this {
        return Err(StepError::NotForThis { to: message.to });
    }
    if message.from == this || !voters.contains(&message.from) {
        let from = message.from;
        return Err(StepError::Unknown { from });
    }
    let impossible = |what| Err(StepError::Impossible { what });
    let numbers = [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
    ];
    if numbers.iter().any(|n| *n > NUMBER_MAX) {
        return impossible("it holds a number above 2^60, which no real log reaches");
    }
    // Raft would treat a message without a term as a message of this member itself, so the check refuses the
    // message.
    if message.term == 0 {
        return impossible("it names no term");
    }
    if message.request_snapshot != 0 {
        return impossible("it asks for a snapshot, and members fetch states in another way");
    }
    let log = &raft.raft.raft_log;
    let current = message.term == raft.raft.term;
    let state = raft.raft.state;
    match message.get_msg_type() {
        MessageType::MsgAppend => entries(message),
        MessageType::MsgHeartbeat
            if message.term >= raft.raft.term && message.commit > log.last_index() =>
        {
            Err(StepError::Forgotten {
                acknowledged: Index::new(message.commit),
                last: Index::new(log.last_index()),
            })
        }
        MessageType::MsgAppendResponse
            if current
                && state == StateRole::Leader
                && !message.reject
                && message.index > log.last_index() =>
        {
            impossible("it acknowledges entries that this leader has not sent")
        }
        MessageType::MsgSnapshot => {
            let of = message.get_snapshot().get_metadata();
            let sound =
                (1..=NUMBER_MAX).contains(&of.index) && (1..=message.term).contains(&of.term);
            // The log returns term 0 for an entry that it does not have, such as a compacted entry, and the
            // check cannot compare then.
            let contradicts = of.index <= log.committed
                && log
                    .term(of.index)
                    .is_ok_and(|term| term != 0 && term != of.term);
            match (sound, contradicts) {
                (true, false) => Ok(()),
                (true, true) => impossible("its snapshot contradicts a committed entry"),
                (false, _) => impossible("its snapshot names no entry"),
            }
        }
        MessageType::MsgRequestVoteResponse
            if current && state == StateRole::Candidate && log.persisted != log.last_index() =>
        {
            impossible("it votes before this member has asked for votes")
        }
        MessageType::MsgHeartbeat
        | MessageType::MsgAppendResponse
        | MessageType::MsgHeartbeatResponse
        | MessageType::MsgRequestVote
        | MessageType::MsgRequestVoteResponse
        | MessageType::MsgRequestPreVote
        | MessageType::MsgRequestPreVoteResponse
        | MessageType::MsgTimeoutNow => Ok(()),
        _ => Err(StepError::Kind),
    }
}

/// Checks the entries of a leader's message: they must be consecutive, follow the entry that the message
/// names, and have terms that do not decrease.
fn entries(message: &Message) -> Result<(), StepError> {
    let (mut index, mut term) = (message.index, message.log_term);
    let mut sound = (index == 0) == (term == 0) && term <= message.term;
    for entry in message.get_entries() {
        index += 1;
        sound &= entry.index == index && (term..=message.term).contains(&entry.term);
        sound &= entry.term > 0 && entry.get_entry_type() == raft::eraftpb::EntryType::EntryNormal;
        term = entry.term;
    }
    match sound {
        true => Ok(()),
        false => Err(StepError::Impossible {
            what: "its entries do not follow each other",
        }),
    }
}
