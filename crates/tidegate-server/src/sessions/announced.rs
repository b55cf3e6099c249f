//! Keeps the subjects of this node's streams that the node has announced to its peers. The node keeps the
//! announcements of each stream apart, so that a change of one stream costs the size of this stream,
//! independently of the number of other streams.

use std::collections::BTreeSet;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::streams::{InterestChanged, JetStream};
use tidegate_cluster::groups::GroupId;
use tidegate_stream::schema::number::StreamNumber;

/// The announced patterns, by group and stream, each with the version that the stream's interest had at the
/// announcement. If the interest now has another version, the node compares the patterns again.
#[derive(Debug, Default)]
pub(super) struct Announced(
    HashMap<GroupId, HashMap<StreamNumber, (u64, Patterns), RandomState>, RandomState>,
);

type Patterns = Vec<Box<[u8]>>;

/// The patterns that the node must announce to its peers now, and the patterns that it must withdraw, because
/// the streams' subjects have changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub(super) wanted: Patterns,
    pub(super) unwanted: Patterns,
}

impl Announced {
    /// Compares the announced patterns of one group's streams with the streams' present interest, adds the
    /// differences to `changed`, and records them as announced. Looks only at the streams in `of`, because
    /// the others have not changed.
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
