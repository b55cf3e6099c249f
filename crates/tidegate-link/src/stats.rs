//! The counters of clients and servers, read as snapshots. The I/O tasks count once per batch, read or write,
//! never per message.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of a client of the link, read at one moment, for a program's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// The number of bytes that the client has handed to the operating system since its start. Messages that
    /// the client sent again count again.
    pub bytes_written: u64,
    /// The number of calls in which the client wrote bytes to its socket.
    pub writes: u64,
    /// The number of calls in which the client read bytes from its socket.
    pub reads: u64,
    /// The number of acknowledgements that the client has received. One acknowledgement covers any number of
    /// messages.
    pub acks: u64,
    /// The number of connections that the client has made, the first included.
    pub connections: u64,
    /// The number of the client's attempts to connect again that failed.
    pub connect_failures: u64,
    /// The number of blocks of messages that the client's I/O task has taken from the senders.
    pub blocks: u64,
}

/// The counters of a server of the link, read at one moment, for a program's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// The number of connections that the server has accepted since its start.
    pub connections: u64,
    /// The number of the server's connections that are open now.
    pub connections_open: u64,
    /// The number of sessions that the server knows now.
    pub sessions: u64,
    /// The number of messages that the server has handed to handlers since its start.
    pub messages: u64,
    /// The number of batches that the server has handed to handlers since its start.
    pub batches: u64,
    /// The number of bytes that the server has read from all connections since its start.
    pub bytes_read: u64,
    /// The number of calls in which the server read bytes from a socket.
    pub reads: u64,
    /// The number of acknowledgements that the server has sent on all connections.
    pub acks: u64,
    /// The time that the server has spent on sending acknowledgements and other replies, in nanoseconds.
    pub ack_cost_ns: u64,
    /// The number of connections that ended because the client broke the protocol.
    pub errors_protocol: u64,
    /// The number of connections that the server refused because there were too many, because of a wrong
    /// token, or because their session was not available.
    pub refused: u64,
    /// The number of connections that failed by an error of the network or of the TLS handshake.
    pub errors_io: u64,
    /// The number of connections that ended because their handler failed or panicked.
    pub errors_handler: u64,
    /// The number of connections that ended because a newer connection took their session over.
    pub displaced: u64,
    /// The number of connections that ended because the server heard nothing from the client for the idle
    /// time.
    pub idle: u64,
    /// The number of connections that ended because the read buffers of all connections used up their memory.
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

/// Adds one to a counter that several tasks share.
pub(crate) fn bump(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `n` to a counter that several tasks share.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
