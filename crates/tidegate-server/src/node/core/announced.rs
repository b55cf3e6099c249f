//! What other nodes were told that streams here want to hear: for each stream, so that a change of one costs what that one is.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::node::jetstream::JetStream;

/// What was announced, by group and stream, and as of which change.
#[derive(Debug, Default)]
pub(super) struct Announced(HashMap<(u32, u32), (u64, Patterns), RandomState>);

type Patterns = Vec<Box<[u8]>>;

/// What is to be said now.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub(super) wanted: Patterns,
    pub(super) unwanted: Patterns,
}

impl Announced {
    /// What has changed since this was asked last, as of now.
    pub(super) fn compare<'a>(&mut self, all: impl Iterator<Item = &'a JetStream>) -> Changed {
        let mut changed = Changed::default();
        let mut before = std::mem::take(&mut self.0);
        for streams in all {
            for (stream, version) in streams.reasons() {
                let key = (streams.group(), stream);
                let known = match before.remove(&key) {
                    Some(same) if same.0 == version => {
                        self.0.insert(key, same);
                        continue;
                    }
                    known => known.into_iter().flat_map(|(_, patterns)| patterns),
                };
                let patterns = streams.interest_for(stream);
                changed.wanted.extend(patterns.iter().cloned());
                changed.unwanted.extend(known);
                self.0.insert(key, (version, patterns));
            }
        }
        changed
            .unwanted
            .extend(before.into_values().flat_map(|(_, p)| p));
        changed
    }
}
