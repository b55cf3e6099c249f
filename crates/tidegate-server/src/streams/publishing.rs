//! The state between publishers and streams that the log does not hold: batches that are not complete, and
//! the writers of each stream's acknowledgements.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate::boundary::DecisionLog;
use tidegate_stream::api::puback::PubAck;
use tidegate_stream::ingest::{Atomic, AtomicLimits, Fast, FastLimits};
use tidegate_stream::schema::number::StreamNumber;

use super::batches;

/// The most bytes of an atomic batch: half of the bytes that a segment of the log holds.
const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The batches and the writers of acknowledgements of one group's streams, see the [module](self).
pub(super) struct Publishing {
    pub(super) atomic: Atomic,
    pub(super) fast: Fast,
    pub(super) batches: batches::Pending,
    /// The number of acknowledgements of fast-ingest batches that wait in outboxes and are not written yet.
    pub(super) acked_fast: u64,
    pub(super) pub_acks: HashMap<StreamNumber, PubAck, RandomState>,
    /// The writer of answers to publishers of a stream that is deleted.
    pub(super) nameless: PubAck,
    /// The log of the controller's decisions about acknowledgements, and the name in this log.
    decisions: Option<(DecisionLog, String)>,
}

impl Publishing {
    pub(super) fn new(domain: Option<&str>) -> Self {
        Self {
            atomic: new_atomic(),
            fast: Fast::new(FastLimits::default()),
            batches: batches::Pending::default(),
            acked_fast: 0,
            pub_acks: HashMap::default(),
            nameless: PubAck::new("", domain),
            decisions: None,
        }
    }

    /// Makes the controller write its decisions about acknowledgements into `log`, under `name`.
    pub(super) fn log_to(&mut self, log: DecisionLog, name: String) {
        self.fast.log_to(&log, &name);
        self.decisions = Some((log, name));
    }

    /// Forgets all batches, because this node no longer leads.
    pub(super) fn close_batches(&mut self) {
        self.atomic = new_atomic();
        self.fast = Fast::new(FastLimits::default());
        if let Some((log, name)) = &self.decisions {
            self.fast.log_to(log, name);
        }
        self.batches = batches::Pending::default();
    }

    /// Forgets a stream that is deleted or has moved to another group.
    pub(super) fn handle_stream_gone(&mut self, stream: StreamNumber) {
        self.pub_acks.remove(&stream);
        self.end_batches(stream);
    }

    /// Forgets the open batches of a stream.
    pub(super) fn end_batches(&mut self, stream: StreamNumber) {
        self.atomic.handle_stream_gone(stream);
        self.fast.handle_stream_gone(stream);
    }
}

fn new_atomic() -> Atomic {
    Atomic::new(AtomicLimits {
        batch_bytes_max: BATCH_BYTES_MAX,
        ..AtomicLimits::default()
    })
}
