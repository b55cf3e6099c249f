//! The work that large removals leave behind: a command removes a million messages at once for all queries,
//! and so that the event loop does not stop, the node frees their memory later, in parts
//! ([`Streams::reclaim`]).
//!
//! This work is no part of the state that nodes compare: each node does it at its own pace, and a checkpoint
//! does not hold it.

use std::collections::BTreeSet;

use super::super::discarded::Discarded;
use super::super::single::Stream;
use super::Streams;
use crate::schema::number::StreamNumber;

/// The work that large removals have left on this node, and that [`Streams::reclaim`] does in parts.
#[derive(Debug, Default)]
pub(super) struct Reclaiming {
    /// The streams for which the node has work left.
    streams: BTreeSet<StreamNumber>,
    /// The collections of deleted streams, which the node frees in parts.
    discarded: Discarded,
}

impl Reclaiming {
    /// Notes that a command has changed the stream, and may have left work, so that the node does that work
    /// later.
    #[inline]
    pub(super) fn note(&mut self, stream: &Stream) {
        if stream.content.is_reclaiming() {
            self.streams.insert(stream.id);
        }
    }

    /// Takes over the work for a stream that the caller deletes, so that the collections of the stream are
    /// freed too.
    pub(super) fn handle_deleted(&mut self, stream: &mut Stream) {
        self.streams.remove(&stream.id);
        self.discarded.append(stream.content.take_discarded());
    }
}

impl Streams {
    /// Returns whether [`Streams::reclaim`] has work left, so that the node calls it again between other
    /// work.
    #[must_use]
    pub fn is_reclaiming(&self) -> bool {
        !self.reclaiming.streams.is_empty() || !self.reclaiming.discarded.is_empty()
    }

    /// Does up to `parts` parts of the work that large removals have left. A part frees at most 256 messages,
    /// 256 names of subjects and 256 items of other collections. No query and no snapshot shows how much of
    /// this work is done, but the leader learns the next expiry of messages with their own time to live only
    /// after it. Returns the number of parts that it has done.
    pub fn reclaim(&mut self, parts: usize) -> usize {
        for done in 0..parts {
            if !self.is_reclaiming() {
                return done;
            }
            self.reclaiming.discarded.free_part();
            let Some(id) = self.reclaiming.streams.first().copied() else {
                continue;
            };
            let stream = self.streams.get_mut_unsaved(id);
            let stream = stream.expect("a deleted stream has no work left");
            stream.content.reclaim();
            if !stream.content.is_reclaiming() {
                self.reclaiming.streams.remove(&id);
                self.schedule.renew(stream);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests;
