//! Defines the messages that the leaders of groups send to each other, at `$TG.>`. No message of a client
//! reaches a leader at these subjects, and no client receives such a message.
//!
//! A group's leader listens at `$TG.GROUP.<number>`, which also shows that the group has a leader. The node
//! that serves a stream listens at `$TG.STREAM.<name>`. No node ever sends a message to that subject: the
//! subscription shows the other nodes to which node they hand the requests for that stream
//! ([`crate::sessions`]). A node without room for messages listens at `$TG.FULL.<id>`, where no node ever
//! sends a message either.

pub(crate) mod taking;

use serde::{Deserialize, Serialize};
use tidegate::Time;
use tidegate_cluster::groups::GroupId;
use tidegate_stream::api::answer::Kind as Answer;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::stream::{Cursor, Moving};

use self::taking::{Answer as Given, Request};
use super::gathering::Reported;
use crate::streams::JetStream;
use crate::streams::context::Context;

/// The prefix of the subjects at which only leaders and nodes listen, never clients.
pub(crate) const PREFIX: &[u8] = b"$TG.";
const GROUP: &str = "$TG.GROUP.";
/// The prefix of the subjects at which a node listens to show the other nodes that it has no room for
/// messages.
pub(crate) const FULL: &str = "$TG.FULL.";
/// The prefix of the subject at which a node listens to show the other nodes that it serves a stream.
pub(crate) const STREAM: &str = "$TG.STREAM.";

/// A message from the leader of one group to the leader of another group, so that the groups agree about
/// their streams.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeaderMessage {
    /// Tells the leader of a stream's group that the directory has changed the stream by the entry `index`.
    /// The client that asked for the change waits at the message's reply subject.
    Changed {
        /// The kind of change that the stream's group must make.
        change: Change,
        /// The directory number of the stream that the directory changed, by which the group finds the
        /// stream.
        stream: DirectoryNumber,
        /// The index of the log entry by which the group of all nodes changed the directory. The group's
        /// leader answers the client only after that entry.
        index: u64,
    },
    /// Tells the leader of the directory that the sender's group has created the streams with these directory
    /// numbers, so that the directory marks them as created.
    Made(Vec<DirectoryNumber>),
    /// Tells the leader of the directory that the restoration of the streams with these directory numbers has
    /// failed in the sender's group, so that the directory deletes them.
    Abandoned(Vec<DirectoryNumber>),
    /// Asks the leader of a group for the state of the streams in `streams`, and for the sums over all
    /// streams of the group.
    Report {
        /// The number of the question, which the report repeats, by which the leader of the directory finds
        /// the client's request.
        question: u64,
        /// The directory numbers of the streams about which the directory's leader asks, because a client's
        /// list shows them.
        streams: Vec<DirectoryNumber>,
    },
    /// Brings the report of a group, the answer to `Report`, to the leader of the directory, which adds it to
    /// the client's answer.
    Reported(Reported),
    /// Asks the leader of a moving stream's home group for the part of the stream that follows the cursor
    /// `from`, so that the target can import that part.
    Export {
        /// The directory number of the moving stream, by which the home group finds it.
        stream: DirectoryNumber,
        moving: Moving,
        from: Cursor,
    },
    /// Answers `Export`: brings the asked part of a stream to the leader of the group to which the stream
    /// moves.
    Exported {
        stream: DirectoryNumber,
        moving: Moving,
        from: Cursor,
        /// The bytes of a log entry that imports the part into the target's copy. These bytes are not JSON,
        /// so they follow the JSON in the payload.
        #[serde(skip)]
        entry: Vec<u8>,
    },
    /// Tells the leader of the directory that this frozen stream's move has stalled, so that it calls the
    /// move off: the target group no longer asks for parts of the stream.
    Stalled {
        stream: DirectoryNumber,
        moving: Moving,
    },
    /// Asks the leader of an origin's group for messages that a mirror or another stream takes in.
    Take(Box<Request>),
    /// Answers `Take`: brings the messages to the leader of the group of the stream that takes them in, which
    /// proposes them.
    Given {
        /// The directory number of the stream that takes in the messages, by which its leader finds the work
        /// for the origin.
        target: DirectoryNumber,
        /// The key of that stream's source, by which its leader finds the work for the origin.
        key: String,
        /// The messages, or the error with which the origin's leader refuses the request.
        answer: Given,
    },
    /// Tells the leader of the directory that this stream's target group has the whole stream, so that the
    /// directory lists the stream there.
    Moved {
        stream: DirectoryNumber,
        moving: Moving,
    },
}

impl LeaderMessage {
    /// Encodes the message as the payload that a leader sends: JSON, followed by the bytes of an exported
    /// entry, if there is one.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut payload = serde_json::to_vec(self).ok()?;
        match self {
            Self::Exported { entry, .. } => payload.extend_from_slice(entry),
            Self::Given { answer, .. } => payload.extend_from_slice(&answer.entry),
            _ => {}
        }
        Some(payload)
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut values = serde_json::Deserializer::from_slice(payload).into_iter::<Self>();
        let mut told = values.next()?.ok()?;
        let rest = &payload[values.byte_offset()..];
        match &mut told {
            Self::Exported { entry, .. } => entry.extend_from_slice(rest),
            Self::Given { answer, .. } => answer.entry.extend_from_slice(rest),
            _ if !rest.is_empty() => return None,
            _ => {}
        }
        Some(told)
    }
}

/// The kind of change that the directory made to a stream: the stream's group must make the same change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    Created,
    Updated,
    Deleted,
    /// A client restores the stream from a backup, so the group creates it empty and fills it from the
    /// backup.
    Restoring,
}

/// Converts the kind of a client's API request into the kind of change that the directory's leader forwards
/// to the stream's group; `None` if such a request changes no stream.
pub(crate) const fn changed(kind: Answer) -> Option<Change> {
    match kind {
        Answer::StreamCreate => Some(Change::Created),
        Answer::StreamUpdate => Some(Change::Updated),
        Answer::StreamDelete => Some(Change::Deleted),
        Answer::StreamRestore => Some(Change::Restoring),
        _ => None,
    }
}

impl Change {
    pub(crate) const fn answered_by(self) -> Answer {
        match self {
            Self::Created => Answer::StreamCreate,
            Self::Updated => Answer::StreamUpdate,
            Self::Deleted => Answer::StreamDelete,
            Self::Restoring => Answer::StreamRestore,
        }
    }
}

/// Returns the subject at which the leader of this group listens for messages of other leaders.
pub(crate) fn subject_of_group(group: GroupId) -> String {
    format!("{GROUP}{group}")
}

/// Returns the subject at which a node listens to show the other nodes that it serves the stream of this
/// name.
pub(crate) fn subject_of_stream(name: &str) -> String {
    format!("{STREAM}{name}")
}

/// Returns the subject at which the node with this id listens to show the other nodes that it has no room for
/// messages.
pub(crate) fn subject_of_full(id: u64) -> String {
    format!("{FULL}{id:016x}")
}

/// Reads the group from a subject at which a group's leader listens, so that a node learns the leader's
/// place; `None` for another subject.
pub(crate) fn group_at(subject: &[u8]) -> Option<GroupId> {
    let number = subject.strip_prefix(GROUP.as_bytes())?;
    let number = std::str::from_utf8(number).ok()?.parse();
    number.ok().map(GroupId::new)
}

impl JetStream {
    /// Handles a message from another group's leader, such as a change to make or a part of a stream. The
    /// client that waits for an answer, if any, waits at `reply`.
    pub(crate) fn handle_leader_message(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: Option<&[u8]>,
        told: LeaderMessage,
    ) {
        match told {
            LeaderMessage::Changed {
                change,
                stream,
                index,
            } => {
                if let Some(reply) = reply {
                    self.await_change(cx, now, reply, change, (stream, index));
                }
            }
            LeaderMessage::Made(streams) if self.role.serves => self.propose_made(now, &streams),
            LeaderMessage::Abandoned(streams) if self.role.serves => {
                self.handle_abandoned(now, &streams);
            }
            LeaderMessage::Report { question, streams } if self.role.serves => {
                let reported = self.report(now, question, &streams);
                let group = tidegate_cluster::groups::ALL;
                cx.tell_group(group, None, LeaderMessage::Reported(reported));
            }
            LeaderMessage::Reported(reported) if self.role.serves => {
                self.reported(cx, now, reported)
            }
            LeaderMessage::Export {
                stream,
                moving,
                from,
            } if self.role.serves => self.handle_export(stream, moving, from),
            LeaderMessage::Exported {
                stream,
                moving,
                from,
                entry,
            } if self.role.serves => self.handle_exported(now, stream, moving, from, &entry),
            LeaderMessage::Take(request) if self.role.serves => {
                self.giving.handle_request(now, *request);
            }
            LeaderMessage::Given {
                target,
                key,
                answer,
            } if self.role.serves => self.note_answer(target, key, answer),
            LeaderMessage::Stalled { stream, moving } if self.role.serves => {
                self.renew_move(cx, now, stream, moving);
            }
            LeaderMessage::Moved { stream, moving } if self.role.serves => {
                self.propose_moved(now, stream, moving);
            }
            // This node does not lead the group any more, so it ignores the message.
            _ => {}
        }
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests {
    use tidegate_cluster::groups::ALL;

    use super::*;

    #[test]
    fn announcements_come_back() {
        let told = LeaderMessage::Changed {
            change: Change::Updated,
            stream: DirectoryNumber::new(7),
            index: 9,
        };
        let json = serde_json::to_string(&told).unwrap();
        assert_eq!(
            json,
            r#"{"changed":{"change":"updated","stream":7,"index":9}}"#
        );
        assert!(matches!(
            serde_json::from_str(&json),
            Ok(LeaderMessage::Changed { stream, .. }) if stream == DirectoryNumber::new(7)
        ));
        let exported = LeaderMessage::Exported {
            stream: DirectoryNumber::new(7),
            moving: Moving {
                to: ALL,
                number: tidegate_stream::schema::number::MoveNumber::new(2),
            },
            from: Cursor::START,
            entry: b"{}\0 x".to_vec(),
        };
        let payload = exported.encode().unwrap();
        assert!(matches!(
            LeaderMessage::decode(&payload),
            Some(LeaderMessage::Exported { stream, entry, .. })
                if stream == DirectoryNumber::new(7) && entry == b"{}\0 x"
        ));
        assert!(LeaderMessage::decode(br#"{"made":[1]}"#).is_some());
        assert!(
            LeaderMessage::decode(br#"{"made":[1]}x"#).is_none()
                && LeaderMessage::decode(b"").is_none()
        );
        let group = GroupId::new(4097);
        assert_eq!(group_at(subject_of_group(group).as_bytes()), Some(group));
        assert_eq!(group_at(b"$TG.GROUP.x"), None);
        assert_eq!(group_at(b"$TG.STREAM.1"), None);
    }
}
