//! The status messages of a consumer, as header blocks.
//!
//! Owns their texts, which clients compare: they are exact. Leaves when one is sent to [`super::Consumer`]
//! and its parts.

/// The header that says how much of a payload is not sent.
pub(super) const MESSAGE_SIZE: &str = "Nats-Msg-Size";

/// A block of nothing but a status.
pub(super) fn plain(code: u16, description: &str) -> Vec<u8> {
    format!("NATS/1.0 {code} {description}\r\n\r\n").into_bytes()
}

/// A status about a pull that ends with something left over.
pub(super) fn leftover(code: u16, description: &str, messages: u64, bytes: u64) -> Vec<u8> {
    format!(
        "NATS/1.0 {code} {description}\r\nNats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// A sign of life: the last numbers given, and what the receiver should answer if it is waited for.
pub(super) fn heartbeat(consumer_seq: u64, stream_seq: u64, stalled: Option<&str>) -> Vec<u8> {
    let stalled = stalled.map_or_else(String::new, |s| format!("Nats-Consumer-Stalled: {s}\r\n"));
    format!(
        "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {consumer_seq}\r\nNats-Last-Stream: {stream_seq}\r\n{stalled}\r\n"
    )
    .into_bytes()
}
