//! Streams as the API's answers look at them.

use crate::api::config::StreamConfig;
use crate::api::view::{StreamCounts, StreamView};
use crate::stream::{Filter, Stream};

/// A stream, and how many consumers it has on this node: the log does not know all of them.
pub(super) struct Shown<'a> {
    pub(super) stream: &'a Stream,
    pub(super) consumers: usize,
}

impl StreamView for Shown<'_> {
    fn config(&self) -> &StreamConfig {
        self.stream.config()
    }

    fn created_us(&self) -> u64 {
        self.stream.created_us()
    }

    fn counts(&self) -> StreamCounts {
        let state = self.stream.state();
        StreamCounts {
            messages: state.messages,
            bytes: state.bytes,
            first_seq: state.first_seq,
            first_us: (state.messages > 0).then_some(state.first_time_us),
            last_seq: state.last_seq,
            last_us: (state.last_time_us > 0).then_some(state.last_time_us),
            subjects: state.num_subjects,
            deleted: state.num_deleted,
            consumers: self.consumers,
        }
    }

    fn deleted(&self, limit: usize) -> Vec<u64> {
        self.stream.deleted(limit)
    }

    fn subjects(&self, pattern: &[u8], each: &mut dyn FnMut(&[u8], u64)) {
        for (name, count) in self.stream.subjects(&Filter::new([pattern])) {
            each(name, count);
        }
    }
}
