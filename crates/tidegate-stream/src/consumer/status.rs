//! Writes the statuses of a consumer, messages that have only headers, as header blocks. By a status a client
//! learns, for example, why its pull has ended.
//!
//! This module owns the exact texts of the statuses, which clients compare. [`super::Consumer`] and its parts
//! decide when to send a status.

use super::state::Position;

/// The header by which a receiver learns the length of a payload that the consumer does not send
/// (`headers_only`).
pub(super) const MESSAGE_SIZE: &str = "Nats-Msg-Size";
/// The headers of a heartbeat, and of an acknowledgement by flow control: the number of the last delivery,
/// and the number of its message in the stream.
pub(super) const LAST_CONSUMER: &str = "Nats-Last-Consumer";
pub(super) const LAST_STREAM: &str = "Nats-Last-Stream";

/// Returns a header block that has only a status: a code and a text, which the client's library understands.
pub(super) fn plain(code: u16, description: &str) -> Vec<u8> {
    format!("NATS/1.0 {code} {description}\r\n\r\n").into_bytes()
}

/// Returns the status of a pull that ends before it has got all its messages; the status states the messages
/// and bytes that the pull still lacks, so that its client knows how much to ask for again.
pub(super) fn leftover(code: u16, description: &str, messages: u64, bytes: u64) -> Vec<u8> {
    format!(
        "NATS/1.0 {code} {description}\r\nNats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// Returns a heartbeat, by which a client knows that the consumer is alive. The heartbeat states the position
/// of the last delivery and, while flow control waits for the receiver, the subject to which the receiver
/// must answer.
pub(super) fn heartbeat(last: Position, stalled: Option<&str>) -> Vec<u8> {
    let Position {
        consumer_seq,
        stream_seq,
    } = last;
    let stalled = stalled.map_or_else(String::new, |s| format!("Nats-Consumer-Stalled: {s}\r\n"));
    format!(
        "NATS/1.0 100 Idle Heartbeat\r\n{LAST_CONSUMER}: {consumer_seq}\r\n{LAST_STREAM}: {stream_seq}\r\n{stalled}\r\n"
    )
    .into_bytes()
}
