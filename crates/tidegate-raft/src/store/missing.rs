//! Lists the messages that a repair of the log has lost, by stream, for the operator's report.
//!
//! The streams know their messages from the newest checkpoint and from the entries that remain in the log. A
//! known message is lost if its record is missing from the log. If no checkpoint includes a lost entry, the
//! store knows only the entry's index.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tidegate_cluster::groups::GroupOf;
use tidegate_cluster::slots::PerGroup;
use tidegate_log::Lsn;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{AccountLimits, Streams};

use super::checkpoint;
use super::{OpenError, Opening, Options, Replaying};
use crate::replica::Index;

/// The losses of a repaired data directory: messages of known streams, and entries with unknown contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The streams that have lost messages, with their losses, in the order of the stream numbers.
    pub streams: Vec<MissingIn>,
    /// The indices of lost entries with unknown contents. The streams lack the effects of these entries, and
    /// may give later messages lower numbers than those that publishers got.
    pub entries: Vec<Range<Index>>,
}

/// The messages that one stream has lost, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingIn {
    /// The name of the stream that has lost messages.
    pub stream: String,
    /// The number of messages that the stream has lost.
    pub messages: u64,
    /// The numbers of the lost messages in the stream, as runs: the first and the last number of each.
    pub seqs: Vec<(StreamSeq, StreamSeq)>,
}

/// Returns the losses of the repaired data directory `dir`, for the report of the repair; `lost` are the
/// ranges of the log that the repair gave up. Opens the directory as the start of a node does.
///
/// # Errors
/// See [`OpenError`].
pub fn missing(dir: &Path, lost: &[Range<Lsn>]) -> Result<Missing, OpenError> {
    let mut options = Options::default();
    let mut opening = loop {
        match Opening::begin(dir, options.clone(), Arc::new(|| ())) {
            // This process does not know the groups of the directory. Each failed attempt names a group that
            // the options lack, so the loop adds that group and tries again.
            Err(OpenError::Stranger { group }) => options.groups.push(GroupOf {
                number: group,
                members: vec![options.id],
            }),
            opening => break opening?,
        }
    };
    let mut missing = Missing::default();
    let mut groups = PerGroup::new();
    for at in opening.slots() {
        let entries = opening.missing_entries(at);
        missing.entries.extend(entries.iter().cloned());
        let streams = match opening.take_state(at) {
            Some(state) => {
                let restored = Streams::restore(&state, AccountLimits::NONE);
                restored.map_err(|e| OpenError::Damaged(e.to_string()))?
            }
            None => Streams::new(AccountLimits::NONE),
        };
        groups.push((streams, Replaying::default()));
    }
    // This process does not know the real members of the directory's groups, so it only reads the log, and
    // must not act as a member.
    opening.look(|at, due, live| {
        let (streams, replaying) = &mut groups[at];
        replaying.take(streams, &due, live);
    })?;
    let damaged = |error: &dyn std::fmt::Display| OpenError::Damaged(error.to_string());
    for (streams, replaying) in groups {
        replaying.finish().map_err(|e| damaged(&e))?;
        missing.streams.extend(lying(&streams, lost));
    }
    Ok(missing)
}

/// Returns the messages of a checkpoint's streams that lie in the range `lost` of the log, and so are lost.
///
/// # Errors
/// Fails if the bytes are no checkpoint, or if the checkpoint's state cannot be read.
pub fn missing_from(checkpoint: &[u8], lost: &Range<Lsn>) -> Result<Vec<MissingIn>, OpenError> {
    let damaged = |error: &dyn std::fmt::Display| OpenError::Damaged(error.to_string());
    let (_, state) = checkpoint::decode(checkpoint).map_err(|e| damaged(&e))?;
    let streams = Streams::restore(state, AccountLimits::NONE).map_err(|e| damaged(&e))?;
    Ok(lying(&streams, std::slice::from_ref(lost)))
}

fn lying(streams: &Streams, lost: &[Range<Lsn>]) -> Vec<MissingIn> {
    let mut all = Vec::new();
    for range in lost {
        let (lsns, mut from) = (
            range.start.get()..range.end.get(),
            Some((StreamNumber::NONE, StreamSeq::ZERO)),
        );
        while let Some(at) = from {
            let (found, next) = streams.residents_in(&lsns, at);
            all.extend(found.into_iter().map(|l| (l.stream, l.seq)));
            from = next;
        }
    }
    all.sort_unstable();
    all.dedup();
    let mut missing: Vec<(StreamNumber, MissingIn)> = Vec::new();
    for (id, seq) in all {
        if missing.last().is_none_or(|(last, _)| *last != id) {
            let name = streams.get(id).map_or("", |s| s.name());
            let of = MissingIn {
                stream: name.to_owned(),
                messages: 0,
                seqs: Vec::new(),
            };
            missing.push((id, of));
        }
        let Some((_, of)) = missing.last_mut() else {
            continue;
        };
        of.messages += 1;
        match of.seqs.last_mut() {
            Some((_, last)) if last.next() == seq => *last = seq,
            _ => of.seqs.push((seq, seq)),
        }
    }
    missing.into_iter().map(|(_, of)| of).collect()
}
