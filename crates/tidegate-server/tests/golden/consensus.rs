//! Fixes the bytes of Raft's messages between members of a group.

use std::fs;

use bytes::Bytes;
use tidegate_cluster::groups::GroupId;
use tidegate_raft::replica::wire::{DecodeError, EncodeError, decode, encode};
use tidegate_raft::replica::{Message, MessageType};

use super::hex::{self, Fields, Text};
use super::{commands, fixture};

/// Returns whether nodes send this kind of message. The function lists every kind of Raft's, so the test does
/// not compile until a new kind stands here.
const fn is_sent(kind: MessageType) -> bool {
    match kind {
        MessageType::MsgAppend
        | MessageType::MsgAppendResponse
        | MessageType::MsgHeartbeat
        | MessageType::MsgHeartbeatResponse
        | MessageType::MsgRequestVote
        | MessageType::MsgRequestVoteResponse
        | MessageType::MsgRequestPreVote
        | MessageType::MsgRequestPreVoteResponse
        | MessageType::MsgSnapshot
        | MessageType::MsgTimeoutNow => true,
        MessageType::MsgHup
        | MessageType::MsgBeat
        | MessageType::MsgPropose
        | MessageType::MsgUnreachable
        | MessageType::MsgSnapStatus
        | MessageType::MsgCheckQuorum
        | MessageType::MsgTransferLeader
        | MessageType::MsgReadIndex
        | MessageType::MsgReadIndexResp => false,
    }
}

const KINDS: [MessageType; 19] = [
    MessageType::MsgHup,
    MessageType::MsgBeat,
    MessageType::MsgPropose,
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgUnreachable,
    MessageType::MsgSnapStatus,
    MessageType::MsgCheckQuorum,
    MessageType::MsgTransferLeader,
    MessageType::MsgTimeoutNow,
    MessageType::MsgReadIndex,
    MessageType::MsgReadIndexResp,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];

/// Makes one message of each kind that nodes send, with every field set that it can have.
fn samples() -> Vec<(String, Message)> {
    let mut samples = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| is_sent(*kind)) {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (0x1111, 0x2222, 5);
        (message.commit, message.commit_term, message.reject_hint) = (41, 4, 40);
        match kind {
            MessageType::MsgSnapshot => {
                let of = message.mut_snapshot().mut_metadata();
                (of.index, of.term) = (74, 4);
            }
            _ => (message.index, message.log_term) = (42, 4),
        }
        samples.push((format!("{kind:?}"), message.clone()));
        match kind {
            MessageType::MsgAppend => {
                // The append has an entry of a new leader, which is empty, and an entry with commands.
                let data = [Bytes::new(), commands::an_entry()];
                let entries = data.into_iter().zip(43..).map(|(data, index)| {
                    let mut entry = message.mut_entries().push_default().clone();
                    (entry.index, entry.term, entry.data) = (index, 5, data);
                    entry
                });
                let entries: Vec<_> = entries.collect();
                message.set_entries(entries.into());
                samples.push((format!("{kind:?} with entries"), message));
            }
            MessageType::MsgAppendResponse | MessageType::MsgRequestVoteResponse => {
                message.reject = true;
                samples.push((format!("{kind:?} that refuses"), message));
            }
            MessageType::MsgRequestVote => {
                message.context = Bytes::from_static(b"CampaignTransfer");
                samples.push((format!("{kind:?} that the leader asked for"), message));
            }
            _ => {}
        }
    }
    samples
}

/// The group that the written messages name.
const GROUP: GroupId = GroupId::new(0x1001);

fn written(message: &Message) -> Bytes {
    encode(GROUP, message).unwrap().concat().into()
}

fn describe(bytes: &[u8], text: &mut Text) {
    let mut f = Fields::new(bytes, text);
    f.bytes(4, "CRC32C of all that follows");
    f.number(1, "version");
    f.number(1, "kind");
    f.number(1, "flags");
    f.number(1, "zero");
    f.number(4, "group");
    let count = f.number(4, "entries");
    for what in [
        "from",
        "to",
        "term",
        "log term",
        "index",
        "commit",
        "commit term",
        "reject hint",
    ] {
        f.number(8, what);
    }
    for _ in 0..count {
        f.number(8, "entry: term");
        f.number(4, "length");
    }
    f.rest("the entries' bytes");
}

#[test]
fn messages_are_written_as_their_version_writes_them() {
    let mut text = Text::new(
        "One of each kind of Raft's messages between members. Written by samples() in tests/golden/consensus.rs.",
    );
    let mut version = 0;
    for (name, message) in samples() {
        let bytes = written(&message);
        version = bytes[4];
        text.section(&name);
        describe(&bytes, &mut text);
    }
    hex::check(&fixture("raft", version, "messages.hex"), &text.0);
}

#[test]
fn kept_messages_are_read_as_they_were_meant() {
    let text = fs::read_to_string(fixture("raft", 1, "messages.hex")).unwrap();
    let kept = hex::read(&text);
    assert_eq!(kept.len(), samples().len());
    for (section, (name, message)) in kept.iter().zip(samples()) {
        assert_eq!(section.name, name);
        assert_eq!(decode(&section.bytes().into()), Ok((GROUP, message)));
    }
}

#[test]
fn kinds_that_members_do_not_send_are_not_written() {
    for kind in KINDS {
        let mut message = Message::default();
        message.set_msg_type(kind);
        let refused = encode(GROUP, &message).err() == Some(EncodeError::Kind);
        assert_eq!(refused, !is_sent(kind), "{kind:?}");
    }
}

/// Returns the kinds that the decoder reads, by their numbers.
pub(crate) fn kinds() -> Vec<u8> {
    let known = |kind: &u8| changed(5, *kind).is_ok();
    (0..=u8::MAX).filter(known).collect()
}

/// Decodes a written message with one byte changed and the checksum corrected.
fn changed(at: usize, to: u8) -> Result<(GroupId, Message), DecodeError> {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgHeartbeat);
    let mut bytes = written(&message).to_vec();
    bytes[at] = to;
    let sum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    decode(&bytes.into())
}

#[test]
fn a_message_of_a_later_version_is_refused_by_name() {
    let refused = changed(4, 2).unwrap_err();
    assert_eq!(refused, DecodeError::Version { version: 2 });
    let says = "a message of version 2, this program reads 1: use the same version on all nodes";
    assert_eq!(refused.to_string(), says);
}
