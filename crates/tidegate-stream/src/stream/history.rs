//! Queries about the messages of a stream: the first and the last number, the removed messages, and the last
//! message of each subject up to a given number.

use super::filter::Filter;
use super::single::Stream;
use super::streams::Streams;
use crate::schema::sequence::StreamSeq;

impl Stream {
    /// Returns the number of the first message; without messages, the number of the next message.
    #[must_use]
    pub const fn first_seq(&self) -> StreamSeq {
        self.content.first_seq
    }

    /// Returns the number of the last message that the stream ever stored; 0 before the first message.
    #[must_use]
    pub const fn last_seq(&self) -> StreamSeq {
        self.content.last_seq
    }

    /// Returns the last message numbered `up_to` or lower of each subject that passes the filter, in no
    /// particular order; `None` if more than `max` subjects pass.
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
    /// Returns the time of the latest log entry that this node applied to the streams, in microseconds since
    /// 1970.
    #[must_use]
    pub const fn now_us(&self) -> u64 {
        self.now_us
    }
}
