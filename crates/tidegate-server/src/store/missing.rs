//! What a repair of the log has cost: which messages of which streams are gone.
//!
//! What the streams know of comes from the newest checkpoint and from the entries that are left; a message is
//! gone if it is known and its record is not there. Of entries that are lost and in no checkpoint nothing is
//! known but their indices.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tidegate_log::Lsn;

use super::{OpenError, Opening, Options, Replaying};
use crate::cluster::groups::GroupOf;
use crate::stream::{AccountLimits, Streams};

/// What is gone of a directory that was repaired: of streams, and entries of which nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// By stream, in the order of their numbers.
    pub streams: Vec<MissingIn>,
    /// Entries of which nothing is known: what they stored, deleted and changed has not happened, and numbers
    /// of messages stored after them may be lower than what was acknowledged.
    pub entries: Vec<Range<u64>>,
}

/// What is gone of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingIn {
    /// Its name.
    pub stream: String,
    /// How many messages.
    pub messages: u64,
    /// Their numbers: the first and the last of each run.
    pub seqs: Vec<(u64, u64)>,
}

/// What is gone of the streams in the data directory `dir`, where the log has lost what was at these
/// positions. The directory is opened as a start would.
///
/// # Errors
/// It cannot be opened.
pub fn missing(dir: &Path, lost: &[Range<Lsn>]) -> Result<Missing, OpenError> {
    let mut options = Options::default();
    let mut opening = loop {
        match Opening::begin(dir, options.clone(), Arc::new(|| ())) {
            // Which groups there are the log says, one at a time.
            Err(OpenError::Stranger { group }) => options.groups.push(GroupOf {
                number: group,
                members: vec![options.id],
            }),
            opening => break opening?,
        }
    };
    let mut missing = Missing::default();
    let mut groups = Vec::new();
    for at in 0..options.groups.len() {
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
    // Which members a group has is not known, so nothing may be done in its name.
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

fn lying(streams: &Streams, lost: &[Range<Lsn>]) -> Vec<MissingIn> {
    let mut all = Vec::new();
    for range in lost {
        let (lsns, mut from) = (range.start.get()..range.end.get(), Some((0, 0)));
        while let Some(at) = from {
            let (found, next) = streams.lying_in(&lsns, at);
            all.extend(found.into_iter().map(|l| (l.stream, l.seq)));
            from = next;
        }
    }
    all.sort_unstable();
    all.dedup();
    let mut missing: Vec<(u32, MissingIn)> = Vec::new();
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
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => of.seqs.push((seq, seq)),
        }
    }
    missing.into_iter().map(|(_, of)| of).collect()
}
