//! What a stream looked like up to an earlier message, and its two ends.

use std::ops::Range;

use super::command::Place;
use super::filter::Filter;
use super::one::Stream;
use super::streams::Streams;

impl Stream {
    /// The first message's number; without messages, the next one's.
    #[must_use]
    pub const fn first_seq(&self) -> u64 {
        self.content.first_seq
    }

    /// The number of the last message there was; 0 before the first.
    #[must_use]
    pub const fn last_seq(&self) -> u64 {
        self.content.last_seq
    }

    /// Of each wanted subject the last message numbered `up_to` or lower, in no particular order; `None` if that is more than `max`.
    #[must_use]
    pub fn last_per_subject_up_to(
        &self,
        filter: &Filter,
        up_to: u64,
        max: usize,
    ) -> Option<Vec<u64>> {
        let mut seqs = Vec::new();
        for (id, name, stat) in self.content.subjects.iter() {
            if !filter.matches(name) {
                continue;
            }
            let last = self.content.last_of(id);
            let last = match last {
                Some(last) if last > up_to => self.content.index.prev_of(id, up_to, stat.first),
                last => last,
            };
            seqs.extend(last);
            if seqs.len() > max {
                return None;
            }
        }
        Some(seqs)
    }
}

impl Streams {
    /// Messages whose records stand at these positions of the log, in order of streams and numbers: those after a stream and a number,
    /// `max` at most. Looks at every message.
    #[must_use]
    pub fn lying_in(
        &self,
        lsns: &Range<u64>,
        after: (u32, u64),
        max: usize,
    ) -> Vec<(u32, u64, Place)> {
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        let mut found = Vec::new();
        for id in ids.into_iter().filter(|id| *id >= after.0) {
            let stream = &self.streams[&id];
            if stream.in_memory() {
                continue;
            }
            let from = if id == after.0 { after.1 + 1 } else { 0 };
            for block in stream.content.index.blocks_from(from) {
                for bit in block.live().iter() {
                    let place = block.get(bit).map(|slot| slot.place);
                    if let Some(place) = place.filter(|p| lsns.contains(&p.lsn))
                        && block.seq(bit) >= from
                    {
                        found.push((id, block.seq(bit), place));
                        if found.len() == max {
                            return found;
                        }
                    }
                }
            }
        }
        found
    }

    /// The latest entry's time, in microseconds since 1970.
    #[must_use]
    pub const fn now_us(&self) -> u64 {
        self.now_us
    }
}
