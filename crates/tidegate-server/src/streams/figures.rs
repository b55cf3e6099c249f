//! Reads the figures of single streams and consumers for `/metrics`, pure.
//!
//! It reads only numbers that the streams keep anyway, and describes nothing, so that a turn of the event
//! loop can read many of them.

use tidegate_stream::api::view::ConsumerView as _;
use tidegate_stream::stream::{Stream, Transit};

use super::JetStream;

/// The messages of a stream for which the count of an asleep consumer's backlog takes as long as reading the
/// figures of one consumer: the count passes over the stream's blocks.
const MESSAGES_PER_READ: u64 = 1 << 18;

/// The figures of one stream, as `/metrics` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamFigures {
    pub(crate) name: String,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) subjects: u64,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) consumers: usize,
    /// True if this node serves the stream, so that a sum over all nodes can count it once.
    pub(crate) is_led: bool,
}

/// The figures of one consumer that this node serves, as `/metrics` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsumerFigures {
    pub(crate) stream: String,
    pub(crate) name: String,
    pub(crate) pending: u64,
    pub(crate) ack_pending: u64,
    pub(crate) waiting: u64,
    /// The number in the stream of the last delivered message, and (`ack_floor`) the number up to which
    /// receivers have acknowledged every delivery.
    pub(crate) delivered: u64,
    pub(crate) ack_floor: u64,
}

impl JetStream {
    /// Reads the figures of a stream that this group keeps.
    pub(crate) fn stream_figures(&self, stream: &Stream) -> StreamFigures {
        let state = stream.state();
        StreamFigures {
            name: stream.name().to_owned(),
            messages: state.messages,
            bytes: state.bytes,
            subjects: state.num_subjects,
            first_seq: match state.last_seq.get() {
                0 => 0,
                _ => state.first_seq.get(),
            },
            last_seq: state.last_seq.get(),
            consumers: stream.consumers_len() + self.consumers.unlogged_of(stream.id()),
            is_led: self.role.serves && stream.transit() == Transit::None,
        }
    }

    /// Reads the figures of at most `limit` consumers of a stream into `all`, in the order of their names:
    /// the consumers after the name `after`, or all. Takes the work from `room`, and ends once `room` is used
    /// up. Returns the name of the last consumer that it read, if the stream has further consumers.
    pub(crate) fn consumer_figures(
        &self,
        stream: &Stream,
        after: Option<&str>,
        limit: usize,
        room: &mut usize,
        all: &mut Vec<ConsumerFigures>,
    ) -> Option<String> {
        let (mut last, mut read) = (after, 0);
        for name in self.served_after(stream, after) {
            if read == limit || *room == 0 {
                // The empty name comes before all others.
                return Some(last.unwrap_or_default().to_owned());
            }
            last = Some(name);
            read += 1;
            *room -= 1;
            let Some(served) = self.served(0, stream, name) else {
                continue;
            };
            let mut figures = ConsumerFigures {
                stream: stream.name().to_owned(),
                name: name.to_owned(),
                pending: 0,
                ack_pending: 0,
                waiting: 0,
                delivered: 0,
                ack_floor: 0,
            };
            if let Some(live) = served.live() {
                let consumer = &live.consumer;
                figures.pending = consumer.num_pending();
                figures.ack_pending = consumer.num_ack_pending();
                figures.waiting = consumer.num_waiting();
                figures.delivered = consumer.delivered().stream_seq.get();
                figures.ack_floor = consumer.ack_floor().stream_seq.get();
            } else {
                let work = stream.state().messages / MESSAGES_PER_READ;
                *room = room.saturating_sub(usize::try_from(work).unwrap_or(usize::MAX));
                let counts = served.counts();
                figures.pending = counts.pending;
                figures.delivered = counts.delivered.stream_seq.get();
                figures.ack_floor = counts.ack_floor.stream_seq.get();
            }
            all.push(figures);
        }
        None
    }
}
