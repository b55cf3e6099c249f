//! Keeps the state between publishers and streams that the log does not hold: batches that publishers have
//! not completed, and the writers of each stream's PubAcks.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate::boundary::DecisionLog;
use tidegate_stream::api::puback::PubAck;
use tidegate_stream::ingest::{Atomic, AtomicLimits, Fast, FastLimits};
use tidegate_stream::schema::number::StreamNumber;

use super::batches;

/// The limit on the bytes of an atomic batch: half of a segment of the log, because the batch must fit into
/// one entry.
const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Keeps, on the leader, the open batches and the PubAck writers of one group's streams, see the
/// [module](self).
pub(super) struct Publishing {
    pub(super) atomic: Atomic,
    pub(super) fast: Fast,
    pub(super) batches: batches::Pending,
    /// The number of flow acknowledgements that still wait in outboxes until the node writes them. The
    /// controller of flow acknowledgements gets their share of the cost of that write.
    pub(super) acked_fast: u64,
    pub(super) pub_acks: HashMap<StreamNumber, PubAck, RandomState>,
    /// The writer with which the node answers publishers if a client has deleted the stream meanwhile. These
    /// answers name no stream.
    pub(super) nameless: PubAck,
    /// The log into which the controller of flow acknowledgements writes its decisions, and the controller's
    /// name in this log; `None` if the operator wants no record.
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

    /// Makes the controller write its decisions about flow acknowledgements into `log`, under `name`, so that
    /// an operator can read them.
    pub(super) fn log_to(&mut self, log: DecisionLog, name: String) {
        self.fast.log_to(&log, &name);
        self.decisions = Some((log, name));
    }

    /// Forgets all open batches, because this node no longer leads the group, and only the leader completes
    /// batches.
    pub(super) fn close_batches(&mut self) {
        self.atomic = new_atomic();
        self.fast = Fast::new(FastLimits::default());
        if let Some((log, name)) = &self.decisions {
            self.fast.log_to(log, name);
        }
        self.batches = batches::Pending::default();
    }

    /// Forgets the PubAck writer and the open batches of a stream that a client deletes or that has moved to
    /// another group, because this group answers no more publishers of the stream.
    pub(super) fn handle_stream_gone(&mut self, stream: StreamNumber) {
        self.pub_acks.remove(&stream);
        self.end_batches(stream);
    }

    /// Forgets the open atomic and fast-ingest batches of a stream that is gone or no longer takes such
    /// batches, so that they take no memory.
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
