//! The past of a stream up to an earlier message, and its two ends.

use super::filter::Filter;
use super::single::Stream;
use super::streams::Streams;
use crate::schema::sequence::StreamSeq;

impl Stream {
    /// The first message's number; without messages, the next one's.
    #[must_use]
    pub const fn first_seq(&self) -> StreamSeq {
        self.content.first_seq
    }

    /// The number of the last message ever stored; 0 before the first.
    #[must_use]
    pub const fn last_seq(&self) -> StreamSeq {
        self.content.last_seq
    }

    /// Returns the last message numbered `up_to` or lower of each subject that passes the filter, in no
    /// particular order; `None` if there are more than `max`.
    #[must_use]
    pub fn last_per_subject_up_to(
        &self,
        filter: &Filter,
        up_to: StreamSeq,
        max: usize,
    ) -> Option<Vec<StreamSeq>> {
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
    /// The latest entry's time, in microseconds since 1970.
    #[must_use]
    pub const fn now_us(&self) -> u64 {
        self.now_us
    }
}
