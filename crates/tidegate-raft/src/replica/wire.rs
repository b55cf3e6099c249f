//! Encodes and decodes Raft's messages between members, in Tidegate's own format. The format has only the
//! fields that members use.
//!
//! ```text
//! 0     4         5      6       7   8       12      16     24   32     40
//! | crc | version | kind | flags | 0 | group | count | from | to | term |
//! 40         48      56       64            72            80
//! | log term | index | commit | commit term | reject hint |
//! | count times: term 8, length 4 | the entries' bytes, one after the other |
//! ```
//!
//! Integers are little-endian. The CRC32C covers all bytes after it. The entries have the indices that follow
//! `index`. A snapshot message holds only the snapshot's `index` and `log term`. Flag 1 marks a refusal, and
//! flag 2 an election that the leader asked for. Neither encoding nor decoding copies payloads.

use tidegate_cluster::groups::GroupId;

use bytes::Bytes;
use raft::eraftpb::{Entry, Message, MessageType};
use thiserror::Error;

use super::group::ENTRY_BYTES_MAX;

/// The version of the format of messages between members, so that nodes of different versions notice it. So
/// far only one version exists.
const VERSION: u8 = 1;
const HEADER: usize = 80;
const ENTRY: usize = 12;
const REFUSED: u8 = 1;
const FORCED: u8 = 2;
/// The context in which the crate `raft` notes that the leader asked a member to stand for election.
const FORCED_CONTEXT: &[u8] = b"CampaignTransfer";
/// The greatest number of entries that one message between members may hold, so that the receiver's work is
/// bounded.
pub const ENTRIES_MAX: usize = 1 << 16;
/// The greatest number of bytes that a message between members may have: room for an entry of the greatest
/// length, and a little more.
pub const MESSAGE_BYTES_MAX: usize =
    HEADER + ENTRIES_MAX * ENTRY + ENTRY_BYTES_MAX as usize + (1 << 20);

/// The kinds of messages between members: the place of a kind in this list is its number on the wire.
const KINDS: [MessageType; 10] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgTimeoutNow,
];

/// The reason why a member cannot encode a message to another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message has a kind that members never send, so the format has no number for it.
    #[error("a message of a kind that members do not send")]
    Kind,
    /// The message has more entries or bytes than the format allows, so the other member would refuse it.
    #[error(
        "a message of {bytes} bytes with {entries} entries: at most {MESSAGE_BYTES_MAX} and {ENTRIES_MAX} are sent"
    )]
    TooLarge {
        /// The length of the refused message in bytes.
        bytes: usize,
        /// The number of entries in the refused message.
        entries: usize,
    },
}

/// The reason why a member cannot decode the bytes that another member sent as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message is cut off, or differs from the bytes that the sender wrote.
    #[error("a message that is cut off or damaged: close the connection and connect again")]
    Damaged,
    /// A newer version of this program wrote the message, so this program cannot know its format.
    #[error(
        "a message of version {version}, this program reads {VERSION}: use the same version on all nodes"
    )]
    Version {
        /// The version of the format that the message names, which this program does not know.
        version: u8,
    },
    /// The checksum of the message is right, but its fields contradict each other: no member writes such a
    /// message.
    #[error("a message of another node has contradictory fields: {what}")]
    Meaningless {
        /// A text that names the contradiction in the message, for the log of the node.
        what: &'static str,
    },
}

/// Encodes a message to another member as parts that the caller writes one after the other. The first part
/// holds all fields; each further part is the payload of an entry.
///
/// # Errors
/// See [`EncodeError`].
pub fn encode(group: GroupId, message: &Message) -> Result<Vec<Bytes>, EncodeError> {
    let kind = message.get_msg_type();
    let kind = KINDS.iter().position(|k| *k == kind);
    let kind = kind.ok_or(EncodeError::Kind)? as u8;
    let entries = message.get_entries();
    let payloads: usize = entries.iter().map(|e| e.data.len()).sum();
    let bytes = HEADER + entries.len() * ENTRY + payloads;
    if entries.len() > ENTRIES_MAX || bytes > MESSAGE_BYTES_MAX {
        let entries = entries.len();
        return Err(EncodeError::TooLarge { bytes, entries });
    }
    let (mut index, mut log_term) = (message.index, message.log_term);
    if message.get_msg_type() == MessageType::MsgSnapshot {
        let of = message.get_snapshot().get_metadata();
        (index, log_term) = (of.index, of.term);
    }
    let mut flags = if message.reject { REFUSED } else { 0 };
    if message.context == FORCED_CONTEXT {
        flags |= FORCED;
    }
    let mut head = Vec::with_capacity(HEADER + entries.len() * ENTRY);
    head.extend_from_slice(&[0, 0, 0, 0, VERSION, kind, flags, 0]);
    head.extend_from_slice(&group.get().to_le_bytes());
    head.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for field in [
        message.from,
        message.to,
        message.term,
        log_term,
        index,
        message.commit,
        message.commit_term,
        message.reject_hint,
    ] {
        head.extend_from_slice(&field.to_le_bytes());
    }
    for entry in entries {
        head.extend_from_slice(&entry.term.to_le_bytes());
        head.extend_from_slice(&(entry.data.len() as u32).to_le_bytes());
    }
    let mut crc = crc32c::crc32c(&head[4..]);
    for entry in entries {
        crc = crc32c::crc32c_append(crc, &entry.data);
    }
    head[..4].copy_from_slice(&crc.to_le_bytes());
    let payloads = entries.iter().map(|e| e.data.clone());
    let payloads = payloads.filter(|data| !data.is_empty());
    Ok(std::iter::once(Bytes::from(head)).chain(payloads).collect())
}

/// Decodes a message, and returns it with the number of its group. The entries' bytes are slices of `bytes`,
/// to avoid a copy.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(bytes: &Bytes) -> Result<(GroupId, Message), DecodeError> {
    let head = bytes.first_chunk::<HEADER>().ok_or(DecodeError::Damaged)?;
    if u32_at(head, 0) != crc32c::crc32c(&bytes[4..]) {
        return Err(DecodeError::Damaged);
    }
    let (version, kind, flags) = (head[4], head[5], head[6]);
    if version != VERSION {
        return Err(DecodeError::Version { version });
    }
    let meaningless = |what| DecodeError::Meaningless { what };
    let kind = KINDS.get(usize::from(kind));
    let kind = *kind.ok_or_else(|| meaningless("its kind is unknown"))?;
    if flags & !(REFUSED | FORCED) != 0 || head[7] != 0 {
        return Err(meaningless("its flags are unknown"));
    }
    let mut message = Message::default();
    message.set_msg_type(kind);
    message.from = u64_at(head, 16);
    message.to = u64_at(head, 24);
    message.term = u64_at(head, 32);
    message.log_term = u64_at(head, 40);
    message.index = u64_at(head, 48);
    message.commit = u64_at(head, 56);
    message.commit_term = u64_at(head, 64);
    message.reject_hint = u64_at(head, 72);
    message.reject = flags & REFUSED != 0;
    if flags & FORCED != 0 {
        message.context = Bytes::from_static(FORCED_CONTEXT);
    }
    if kind == MessageType::MsgSnapshot {
        let of = message.mut_snapshot().mut_metadata();
        (of.index, of.term) = (u64_at(head, 48), u64_at(head, 40));
        (message.index, message.log_term) = (0, 0);
    }
    let count = u32_at(head, 12) as usize;
    if count > 0 && kind != MessageType::MsgAppend {
        return Err(meaningless("it has entries, but its kind has none"));
    }
    message.set_entries(entries(bytes, count, message.index)?.into());
    Ok((GroupId::new(u32_at(head, 8)), message))
}

fn entries(bytes: &Bytes, count: usize, mut index: u64) -> Result<Vec<Entry>, DecodeError> {
    let meaningless = |what| DecodeError::Meaningless { what };
    if count > ENTRIES_MAX {
        return Err(meaningless("it has too many entries"));
    }
    let mut at = HEADER + count * ENTRY;
    let table = bytes.get(HEADER..at);
    let table = table.ok_or_else(|| meaningless("entries that are not there"))?;
    let mut entries = Vec::with_capacity(count);
    for of in table.chunks_exact(ENTRY) {
        let end = at + u32_at(of, 8) as usize;
        if end > bytes.len() {
            return Err(meaningless("entries that are not there"));
        }
        index = index
            .checked_add(1)
            .ok_or_else(|| meaningless("the index of an entry is too high"))?;
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, u64_at(of, 0));
        entry.data = bytes.slice(at..end);
        entries.push(entry);
        at = end;
    }
    match at == bytes.len() {
        true => Ok(entries),
        false => Err(meaningless("it goes on behind its last entry")),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_cluster::groups::ALL;

    use super::*;

    fn joined(parts: &[Bytes]) -> Bytes {
        parts.concat().into()
    }

    fn message() -> impl Strategy<Value = Message> {
        let fields = prop::array::uniform8(any::<u64>());
        let entries = prop::collection::vec(
            (any::<u64>(), prop::collection::vec(any::<u8>(), 0..50)),
            0..6,
        );
        let flags = (any::<bool>(), any::<bool>());
        (0..KINDS.len(), fields, flags, entries).prop_map(|(kind, fields, flags, entries)| {
            let mut message = Message::default();
            message.set_msg_type(KINDS[kind]);
            let [
                from,
                to,
                term,
                log_term,
                index,
                commit,
                commit_term,
                reject_hint,
            ] = fields;
            (message.from, message.to, message.term) = (from, to, term);
            (message.commit, message.commit_term) = (commit, commit_term);
            (message.reject_hint, message.reject) = (reject_hint, flags.0);
            if flags.1 {
                message.context = Bytes::from_static(FORCED_CONTEXT);
            }
            if KINDS[kind] == MessageType::MsgSnapshot {
                let of = message.mut_snapshot().mut_metadata();
                (of.index, of.term) = (index, log_term);
                return message;
            }
            (message.log_term, message.index) = (log_term, index / 2);
            if KINDS[kind] == MessageType::MsgAppend {
                let entries = entries.into_iter().zip(index / 2 + 1..);
                let entries = entries.map(|((term, data), index)| {
                    let mut entry = Entry::default();
                    (entry.term, entry.index, entry.data) = (term, index, data.into());
                    entry
                });
                message.set_entries(entries.collect::<Vec<_>>().into());
            }
            message
        })
    }

    proptest! {
        #[test]
        fn messages_come_back_and_no_bit_may_differ(message in message(), group: u32, bit: prop::sample::Index) {
            let group = GroupId::new(group);
            let bytes = joined(&encode(group, &message).unwrap());
            prop_assert_eq!(decode(&bytes), Ok((group, message)));
            let mut other = bytes.to_vec();
            let bit = bit.index(other.len() * 8);
            other[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(&other.into()), Err(DecodeError::Damaged));
            let cut = bytes.slice(..bytes.len() - 1);
            prop_assert_eq!(decode(&cut), Err(DecodeError::Damaged));
        }
    }

    #[test]
    fn payloads_are_neither_copied_out_nor_in() {
        let data = Bytes::from(vec![7; 100]);
        let mut entry = Entry::default();
        (entry.term, entry.index, entry.data) = (1, 6, data.clone());
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.index, message.log_term, message.term) = (5, 1, 1);
        message.set_entries(vec![entry].into());
        let parts = encode(ALL, &message).unwrap();
        assert_eq!((parts.len(), parts[1].as_ptr()), (2, data.as_ptr()));
        let bytes = joined(&parts);
        let (_, back) = decode(&bytes).unwrap();
        assert_eq!(
            back.entries[0].data.as_ptr(),
            bytes[HEADER + ENTRY..].as_ptr()
        );
    }

    /// Sets the checksum of a message to the right value.
    fn sealed(mut bytes: Vec<u8>) -> Bytes {
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes.into()
    }

    #[test]
    fn well_formed_nonsense_is_refused() {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        assert_eq!(encode(ALL, &message), Err(EncodeError::Kind));
        message.set_msg_type(MessageType::MsgHeartbeat);
        let bytes = joined(&encode(ALL, &message).unwrap());
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = to;
            decode(&sealed(bytes))
        };
        assert!(changed(5, 2).is_ok());
        assert_eq!(changed(4, 2), Err(DecodeError::Version { version: 2 }));
        for (at, to) in [(5, 10), (6, 4), (7, 1), (12, 1), (15, 255)] {
            let refused = changed(at, to);
            assert!(
                matches!(refused, Err(DecodeError::Meaningless { .. })),
                "{at}"
            );
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(matches!(
            decode(&sealed(longer)),
            Err(DecodeError::Meaningless { .. })
        ));
    }
}
