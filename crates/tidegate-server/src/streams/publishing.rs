//! The state between publishers and streams that no entry holds: batches that are not whole yet, and the
//! acknowledgements of each stream.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate::boundary::DecisionLog;
use tidegate_stream::api::puback::PubAck;
use tidegate_stream::ingest::{Atomic, AtomicLimits, Fast, FastLimits};
use tidegate_stream::schema::number::StreamNumber;

use super::batches;

/// The bytes of an atomic batch, at most: half of what a segment of the log holds.
const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// See the [module](self).
pub(super) struct Publishing {
    pub(super) atomic: Atomic,
    pub(super) fast: Fast,
    pub(super) batches: batches::Pending,
    /// Acknowledgements of fast-ingest batches that are queued for their publishers and not written yet.
    pub(super) acked_fast: u64,
    pub(super) pub_acks: HashMap<StreamNumber, PubAck, RandomState>,
    /// For publishers to a stream that is deleted.
    pub(super) nameless: PubAck,
    /// Takes the decisions about acknowledgements, under this name.
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

    /// Writes the decisions about acknowledgements into `log`, under `name`.
    pub(super) fn log_to(&mut self, log: DecisionLog, name: String) {
        self.fast.log_to(&log, &name);
        self.decisions = Some((log, name));
    }

    /// Forgets all batches, because this node leads no more.
    pub(super) fn close_batches(&mut self) {
        self.atomic = new_atomic();
        self.fast = Fast::new(FastLimits::default());
        if let Some((log, name)) = &self.decisions {
            self.fast.log_to(log, name);
        }
        self.batches = batches::Pending::default();
    }

    /// Forgets a stream that is deleted or has left.
    pub(super) fn handle_stream_gone(&mut self, stream: StreamNumber) {
        self.pub_acks.remove(&stream);
        self.end_batches(stream);
    }

    /// Ends the batches for a stream.
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
