//! Applies entries and relocations to the streams, and keeps the counts of live bytes: the number of bytes
//! of messages that each segment of the log still holds. The running node and the replay at its start share
//! this pure code, so that both reach the same state.

use tidegate_stream::stream::{Effect, EntryError, Outcome, Place, Streams};

use super::{Due, Live, Relocated};

/// Adds the effects of an applied entry to the counts of live bytes: messages that the entry stored count,
/// and messages that it removed no longer do.
pub fn account(effects: &[Effect], live: &mut Live) {
    // A message of a stream that is only in memory has no place in the log, so its bytes do not count.
    let nowhere = Place::default();
    for effect in effects {
        match effect {
            Effect::Stored { place, bytes, .. } if *place != nowhere => live.stored(*place, *bytes),
            Effect::Removed { place, bytes, .. } if *place != nowhere => {
                live.removed(*place, *bytes);
            }
            Effect::Purged { messages, .. } | Effect::StreamDeleted { messages, .. } => {
                live.removed_together(messages.clone());
            }
            _ => {}
        }
    }
}

/// Notes the new place of a message that the store has copied, both in the message's stream and in the counts
/// of live bytes.
pub fn relocate(streams: &mut Streams, moved: &Relocated, live: &mut Live) {
    let stored = streams.get(moved.stream).and_then(|s| s.message(moved.seq));
    if let Some(old) = stored
        && streams.relocate(moved.stream, moved.seq, old.place, moved.place)
    {
        live.removed(old.place, old.bytes);
        live.stored(moved.place, old.bytes);
    }
}

/// Replays the log at the start of a node: applies its entries to the streams, and keeps the first failure.
#[derive(Debug, Default)]
pub struct Replaying {
    entries: u64,
    outcomes: Vec<Outcome>,
    effects: Vec<Effect>,
    failed: Option<EntryError>,
}

impl Replaying {
    /// Applies a step of the replay to the streams: an entry or a relocation. After an entry that failed,
    /// skips all further entries, because their state would be wrong.
    pub fn take(&mut self, streams: &mut Streams, due: &Due, live: &mut Live) {
        match due {
            Due::Entry(entry) if self.failed.is_none() => {
                self.entries += 1;
                self.outcomes.clear();
                self.effects.clear();
                let applied = streams.apply(
                    entry.lsn.get(),
                    &entry.data,
                    &mut self.outcomes,
                    &mut self.effects,
                );
                self.failed = applied.err();
                account(&self.effects, live);
            }
            Due::Relocated(moved) => relocate(streams, moved, live),
            Due::Entry(_) => {}
        }
    }

    /// Returns the outcomes of the commands in the entry that the replay applied last, for the caller's own
    /// records.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Ends the replay, and returns the number of entries that it applied.
    ///
    /// # Errors
    /// Returns the error if the streams could not apply an entry, because their state is wrong then.
    pub fn finish(self) -> Result<u64, EntryError> {
        self.failed.map_or(Ok(self.entries), Err)
    }
}
