//! The subjects of streams here that the node announced to its peers. The announcements are kept for each
//! stream, so that a change of one stream costs the size of that stream, however many others there are.

use std::collections::BTreeSet;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::streams::{InterestChanged, JetStream};
use tidegate_cluster::groups::GroupId;
use tidegate_stream::schema::number::StreamNumber;

/// The announced patterns, by group and stream, with the version of the stream's interest that they
/// come from.
#[derive(Debug, Default)]
pub(super) struct Announced(
    HashMap<GroupId, HashMap<StreamNumber, (u64, Patterns), RandomState>, RandomState>,
);

type Patterns = Vec<Box<[u8]>>;

/// The announcements to make and to withdraw now.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub(super) wanted: Patterns,
    pub(super) unwanted: Patterns,
}

impl Announced {
    /// Adds the changes of these streams since the last comparison.
    pub(super) fn compare(
        &mut self,
        streams: &JetStream,
        of: &InterestChanged,
        changed: &mut Changed,
    ) {
        let known = self.0.entry(streams.group()).or_default();
        let mut look = |stream: StreamNumber, version: Option<u64>| {
            let before = known.get(&stream);
            if before.map(|(version, _)| *version) == version {
                return;
            }
            let patterns = version.map(|version| (version, streams.interest_for(stream)));
            let wanted = patterns.iter().flat_map(|(_, patterns)| patterns);
            changed.wanted.extend(wanted.cloned());
            let before = match patterns {
                Some(patterns) => known.insert(stream, patterns),
                None => known.remove(&stream),
            };
            changed
                .unwanted
                .extend(before.into_iter().flat_map(|(_, patterns)| patterns));
        };
        match of {
            InterestChanged::Of(some) => {
                for stream in some {
                    look(*stream, streams.reason_of(*stream));
                }
            }
            InterestChanged::All => {
                let reasons = streams.reasons();
                for (stream, version) in &reasons {
                    look(*stream, Some(*version));
                }
                let heard: BTreeSet<StreamNumber> =
                    reasons.iter().map(|(stream, _)| *stream).collect();
                let over = |stream: &StreamNumber| !heard.contains(stream);
                let over: Vec<StreamNumber> = known.keys().copied().filter(over).collect();
                for stream in over {
                    let before = known.remove(&stream);
                    let patterns = before.into_iter().flat_map(|(_, patterns)| patterns);
                    changed.unwanted.extend(patterns);
                }
            }
        }
    }
}
