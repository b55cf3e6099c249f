//! The status messages of a consumer, as header blocks.
//!
//! Owns their texts, which clients compare: they are exact. Leaves when one is sent to [`super::Consumer`]
//! and its parts.

use super::state::Position;

/// The header with the length of a payload that is not sent.
pub(super) const MESSAGE_SIZE: &str = "Nats-Msg-Size";

/// Writes a header block with only a status.
pub(super) fn plain(code: u16, description: &str) -> Vec<u8> {
    format!("NATS/1.0 {code} {description}\r\n\r\n").into_bytes()
}

/// Writes the status of a pull that ends before it is full.
pub(super) fn leftover(code: u16, description: &str, messages: u64, bytes: u64) -> Vec<u8> {
    format!(
        "NATS/1.0 {code} {description}\r\nNats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// Writes a heartbeat: the last delivery, and the subject to answer if flow control waits.
pub(super) fn heartbeat(last: Position, stalled: Option<&str>) -> Vec<u8> {
    let Position {
        consumer_seq,
        stream_seq,
    } = last;
    let stalled = stalled.map_or_else(String::new, |s| format!("Nats-Consumer-Stalled: {s}\r\n"));
    format!(
        "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {consumer_seq}\r\nNats-Last-Stream: {stream_seq}\r\n{stalled}\r\n"
    )
    .into_bytes()
}
