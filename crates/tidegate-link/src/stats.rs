//! The counters of clients and servers, read as snapshots. The I/O tasks count once per batch, read or write,
//! never per message.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Bytes handed to the system; those of messages that were sent again count again.
    pub bytes_written: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// Calls that read something.
    pub reads: u64,
    /// Acknowledgements that came.
    pub acks: u64,
    /// Connections made, the first included.
    pub connections: u64,
    /// Attempts to connect that failed.
    pub connect_failures: u64,
    /// Blocks handed from senders to the I/O task.
    pub blocks: u64,
}

/// The counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Sessions known now.
    pub sessions: u64,
    /// Messages handed to handlers.
    pub messages: u64,
    /// Batches handed to handlers.
    pub batches: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Calls that read something.
    pub reads: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// The cost of sending acknowledgements, nanoseconds.
    pub ack_cost_ns: u64,
    /// Connections that ended because the peer broke the protocol.
    pub errors_protocol: u64,
    /// Connections refused: limits, tokens, unavailable sessions.
    pub refused: u64,
    /// Connections that broke.
    pub errors_io: u64,
    /// Connections ended by an error of their handler.
    pub errors_handler: u64,
    /// Connections that ended because another one took their session over.
    pub displaced: u64,
    /// Connections that ended because the server heard nothing.
    pub idle: u64,
    /// Connections ended because the read buffers of all took too much memory.
    pub crowded: u64,
}

macro_rules! counters {
    ($name:ident => $snapshot:ident { $($field:ident),* $(,)? }) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name { $(pub(crate) $field: AtomicU64),* }

        impl $name {
            pub(crate) fn snapshot(&self) -> $snapshot {
                $snapshot { $($field: self.$field.load(Relaxed)),* }
            }
        }
    };
}

counters!(ClientCounters => ClientStats {
    bytes_written, writes, reads, acks, connections, connect_failures, blocks,
});

counters!(ServerCounters => ServerStats {
    connections, connections_open, sessions, messages, batches, bytes_read, reads, acks,
    ack_cost_ns, errors_protocol, refused, errors_io, errors_handler, displaced, idle, crowded,
});

/// Adds one to `counter`.
pub(crate) fn bump(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `n` to `counter`.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
