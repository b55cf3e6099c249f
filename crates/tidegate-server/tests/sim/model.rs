//! Models streams in a minimal way: computes the outcome of an entry's commands from the entries alone, once,
//! beside the nodes. The model covers publishes with their ids and expectations, and the messages that
//! streams keep for their consumers. The model expects nothing of other commands.

use std::collections::{BTreeMap, HashMap};

use tidegate_stream::stream::{Asked, Entry, Kind, Outcome};

use crate::retain::Retained;
use crate::taking::Takers;

/// One stream of the model, with the ids and expectations that it knows.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    ids: HashMap<Vec<u8>, u64>,
    last_seq: u64,
    last_of: HashMap<Vec<u8>, u64>,
    /// The checksums of the payloads that the stream stored, by sequence.
    pub(crate) messages: BTreeMap<u64, u32>,
}

/// The model of a group's streams, see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) streams: BTreeMap<u32, Stream>,
    pub(crate) duplicates: u64,
    pub(crate) refused: u64,
    /// The model's contents of the streams that keep messages for their consumers.
    pub(crate) retained: Retained,
    /// The model's mirror and stream with a source.
    pub(crate) takers: Takers,
}

impl Model {
    /// Applies the next entry to the model. Returns an error for an outcome that a node cannot have.
    pub(crate) fn apply(&mut self, entry: &[u8], outcomes: &[Outcome]) -> Result<(), String> {
        let decoded = Entry::decode(entry).map_err(|e| e.to_string())?;
        let commands: Vec<_> = decoded.commands().collect();
        if commands.len() != outcomes.len() {
            return Err(format!(
                "{} commands have {} outcomes",
                commands.len(),
                outcomes.len()
            ));
        }
        for (command, outcome) in commands.into_iter().zip(outcomes) {
            let command = command.map_err(|e| e.to_string())?;
            self.retained.apply(&command, outcome)?;
            let last = self
                .streams
                .get(&command.stream.get())
                .map_or(0, |s| s.last_seq);
            if let Some(taken) = self.takers.apply(&command, outcome, last)? {
                if let Some(seq) = taken {
                    let stream = self.streams.entry(command.stream.get()).or_default();
                    stream.last_seq = seq;
                    let crc = crc32c::crc32c(command.payload);
                    stream.messages.insert(seq, crc);
                }
                continue;
            }
            if command.kind != Kind::Publish {
                continue;
            }
            let stream = self.streams.entry(command.stream.get()).or_default();
            let asked = Asked::read(command.headers.unwrap_or_default());
            let known = asked.msg_id.and_then(|id| stream.ids.get(id).copied());
            let last = stream.last_of.get(command.subject).copied().unwrap_or(0);
            let text = |n: u64| n.to_string().into_bytes();
            let wrong = asked
                .expected_last_seq
                .is_some_and(|n| n != text(stream.last_seq))
                || asked
                    .expected_last_subject_seq
                    .is_some_and(|n| n != text(last));
            let right = match (known, wrong, outcome) {
                (Some(seq), _, Outcome::Duplicate { seq: told, .. }) => {
                    self.duplicates += 1;
                    seq == told.get()
                }
                (None, true, Outcome::Refused { .. }) => {
                    self.refused += 1;
                    true
                }
                (None, false, Outcome::Stored { seq, .. }) => {
                    stream.last_seq += 1;
                    let n = stream.last_seq;
                    let crc = crc32c::crc32c(command.payload);
                    stream.messages.insert(n, crc);
                    stream.last_of.insert(command.subject.to_vec(), n);
                    if let Some(id) = asked.msg_id {
                        stream.ids.insert(id.to_vec(), n);
                    }
                    n == seq.get()
                }
                _ => false,
            };
            if !right {
                let id = String::from_utf8_lossy(asked.msg_id.unwrap_or_default()).into_owned();
                return Err(format!(
                    "message {id:?} to {:?} came to {outcome:?}: known as {known:?}, wrong {wrong}",
                    String::from_utf8_lossy(command.subject)
                ));
            }
        }
        Ok(())
    }
}
