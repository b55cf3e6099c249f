//! What comes of due work in the streams, noted in the store: which segments' messages came and went, and
//! where one lies now. Pure. What a node does in a turn and what it does with the log's rest at a start is
//! the same.

use super::{Due, Live, Relocated};
use crate::stream::{Effect, EntryError, Outcome, Place, Streams};

/// Which segments' messages came and went.
pub fn account(effects: &[Effect], live: &mut Live) {
    // Messages in memory lie nowhere.
    let nowhere = Place::default();
    for effect in effects {
        match effect {
            Effect::Stored { place, bytes, .. } if *place != nowhere => live.stored(*place, *bytes),
            Effect::Removed { place, bytes, .. } if *place != nowhere => {
                live.removed(*place, *bytes);
            }
            Effect::Purged { messages, .. } | Effect::StreamDeleted { messages, .. } => {
                let gone = messages.iter().filter(|(_, place, _)| *place != nowhere);
                gone.for_each(|(_, place, bytes)| live.removed(place, bytes));
            }
            _ => {}
        }
    }
}

/// A message lies elsewhere now.
pub fn relocate(streams: &mut Streams, moved: &Relocated, live: &mut Live) {
    let stored = streams.get(moved.stream).and_then(|s| s.message(moved.seq));
    if let Some(old) = stored
        && streams.relocate(moved.stream, moved.seq, old.place, moved.place)
    {
        live.removed(old.place, old.bytes);
        live.stored(moved.place, old.bytes);
    }
}

/// What a replay has done so far.
#[derive(Debug, Default)]
pub struct Replaying {
    entries: u64,
    outcomes: Vec<Outcome>,
    effects: Vec<Effect>,
    failed: Option<EntryError>,
}

impl Replaying {
    /// Does what is due, unless something before could not be done.
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

    /// What came of the last entry's commands.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// How many entries were applied.
    ///
    /// # Errors
    /// An entry could not be: the streams are not what they should be.
    pub fn finish(self) -> Result<u64, EntryError> {
        self.failed.map_or(Ok(self.entries), Err)
    }
}
