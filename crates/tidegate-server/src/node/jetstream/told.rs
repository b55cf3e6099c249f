//! What leaders of groups tell each other: by messages at `$TG.>`, which are no client's to say or to hear.
//!
//! A group's leader listens at `$TG.GROUP.<number>`, which also says that the group has one; who serves a
//! stream listens at `$TG.STREAM.<name>`, where nothing is ever said: it is handed what is asked of that
//! stream ([`crate::node::core`]). A node without room for messages listens at `$TG.FULL.<id>`, where nothing
//! is ever said either.

use serde::{Deserialize, Serialize};
use tidegate::Time;

use super::JetStream;
use super::gathering::Reported;
use crate::api::answer::Kind as Answer;
use crate::node::core::Node;
use crate::stream::{Cursor, Moving};

/// What these subjects begin with.
pub(in crate::node) const PREFIX: &[u8] = b"$TG.";
const GROUP: &str = "$TG.GROUP.";
/// What the subject begins with at which who serves a stream says that it does.
pub(in crate::node) const STREAM: &str = "$TG.STREAM.";

/// Something a leader says to another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::node) enum Told {
    /// To who leads the group of a stream: the directory has changed it with the entry `index`; whoever asked
    /// for that waits at the message's reply.
    Changed {
        /// How.
        change: Change,
        /// Its number in the directory.
        stream: u32,
        /// The entry.
        index: u64,
    },
    /// To who leads the directory: these streams are made.
    Made(Vec<u32>),
    /// To who leads a group: what there is to be said of these streams, and of all together, is asked under
    /// this number.
    Report {
        /// Which question.
        question: u64,
        /// Their numbers in the directory.
        streams: Vec<u32>,
    },
    /// To who leads the directory: the answer.
    Reported(Reported),
    /// To who leads the group that keeps a stream which moves: what there is behind `from` is asked for.
    Export {
        /// Its number in the directory.
        stream: u32,
        moving: Moving,
        from: Cursor,
    },
    /// To who leads the group that the stream moves to: the answer.
    Exported {
        stream: u32,
        moving: Moving,
        from: Cursor,
        /// An entry's bytes. They are no JSON, and follow it.
        #[serde(skip)]
        entry: Vec<u8>,
    },
    /// To who leads the directory: this stream is frozen, and the group it moves to does not go on.
    Stalled { stream: u32, moving: Moving },
    /// To who leads the directory: the group that this stream moves to has all of it.
    Moved { stream: u32, moving: Moving },
}

impl Told {
    /// As a message's payload: JSON, and what is none behind it.
    pub(in crate::node) fn encode(&self) -> Option<Vec<u8>> {
        let mut payload = serde_json::to_vec(self).ok()?;
        if let Self::Exported { entry, .. } = self {
            payload.extend_from_slice(entry);
        }
        Some(payload)
    }

    pub(in crate::node) fn decode(payload: &[u8]) -> Option<Self> {
        let mut values = serde_json::Deserializer::from_slice(payload).into_iter::<Self>();
        let mut told = values.next()?.ok()?;
        let rest = &payload[values.byte_offset()..];
        match &mut told {
            Self::Exported { entry, .. } => entry.extend_from_slice(rest),
            _ if !rest.is_empty() => return None,
            _ => {}
        }
        Some(told)
    }
}

/// What was done to an entry of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::node) enum Change {
    Created,
    Updated,
    Deleted,
}

/// The change that whoever waits for this answer asked for.
pub(super) const fn changed(kind: Answer) -> Option<Change> {
    match kind {
        Answer::StreamCreate => Some(Change::Created),
        Answer::StreamUpdate => Some(Change::Updated),
        Answer::StreamDelete => Some(Change::Deleted),
        _ => None,
    }
}

impl Change {
    pub(super) const fn answered_by(self) -> Answer {
        match self {
            Self::Created => Answer::StreamCreate,
            Self::Updated => Answer::StreamUpdate,
            Self::Deleted => Answer::StreamDelete,
        }
    }
}

/// Where a group's leader listens.
pub(in crate::node) fn subject_of_group(group: u32) -> String {
    format!("{GROUP}{group}")
}

/// Where who serves a stream says that it does.
pub(in crate::node) fn subject_of_stream(name: &str) -> String {
    format!("{STREAM}{name}")
}

/// Where a node says that it has no room for messages.
pub(in crate::node) fn subject_of_full(id: u64) -> String {
    format!("$TG.FULL.{id:016x}")
}

/// The group whose leader listens at this subject.
pub(in crate::node) fn group_at(subject: &[u8]) -> Option<u32> {
    let number = subject.strip_prefix(GROUP.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

impl JetStream {
    /// A leader of another group says something; whoever is to be answered waits at `reply`.
    pub(in crate::node) fn handle_told(
        &mut self,
        node: &mut Node,
        now: Time,
        reply: Option<&[u8]>,
        told: Told,
    ) {
        match told {
            Told::Changed {
                change,
                stream,
                index,
            } => {
                if let Some(reply) = reply {
                    self.await_change(node, now, reply, change, (stream, index));
                }
            }
            Told::Made(streams) if self.serves => self.propose_made(now, &streams),
            Told::Report { question, streams } if self.serves => {
                let reported = self.report(now, question, &streams);
                let group = crate::cluster::groups::ALL;
                node.tell_group(now, group, None, Told::Reported(reported));
            }
            Told::Reported(reported) if self.serves => self.reported(node, now, reported),
            Told::Export {
                stream,
                moving,
                from,
            } if self.serves => self.handle_export(stream, moving, from),
            Told::Exported {
                stream,
                moving,
                from,
                entry,
            } if self.serves => self.handle_exported(now, stream, moving, from, &entry),
            Told::Stalled { stream, moving } if self.serves => {
                self.renew_move(node, now, stream, moving);
            }
            Told::Moved { stream, moving } if self.serves => {
                self.propose_moved(now, stream, moving);
            }
            // It does not lead any more.
            _ => {}
        }
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_comes_back() {
        let told = Told::Changed {
            change: Change::Updated,
            stream: 7,
            index: 9,
        };
        let json = serde_json::to_string(&told).unwrap();
        assert_eq!(
            json,
            r#"{"changed":{"change":"updated","stream":7,"index":9}}"#
        );
        assert!(matches!(
            serde_json::from_str(&json),
            Ok(Told::Changed { stream: 7, .. })
        ));
        let exported = Told::Exported {
            stream: 7,
            moving: Moving { to: 1, number: 2 },
            from: Cursor::START,
            entry: b"{}\0 x".to_vec(),
        };
        let payload = exported.encode().unwrap();
        assert!(matches!(
            Told::decode(&payload),
            Some(Told::Exported { stream: 7, entry, .. }) if entry == b"{}\0 x"
        ));
        assert!(Told::decode(br#"{"made":[1]}"#).is_some());
        assert!(Told::decode(br#"{"made":[1]}x"#).is_none() && Told::decode(b"").is_none());
        assert_eq!(group_at(subject_of_group(4097).as_bytes()), Some(4097));
        assert_eq!(group_at(b"$TG.GROUP.x"), None);
        assert_eq!(group_at(b"$TG.STREAM.1"), None);
    }
}
