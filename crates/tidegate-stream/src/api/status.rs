//! Status messages that answer a request for messages: header blocks, sent without a payload.

/// The request requires a level this server does not have.
pub const REQUIRED_API_LEVEL: &[u8] = b"NATS/1.0 412 Required Api Level\r\n\r\n";
/// The request asks for nothing.
pub const EMPTY_REQUEST: &[u8] = b"NATS/1.0 408 Empty Request\r\n\r\n";
/// The body is not JSON, or has a value of the wrong type.
pub const MALFORMED_REQUEST: &[u8] = b"NATS/1.0 408 Malformed Request\r\n\r\n";
/// The request contradicts itself.
pub const BAD_REQUEST: &[u8] = b"NATS/1.0 408 Bad Request\r\n\r\n";
/// The stream has no such message.
pub const MESSAGE_NOT_FOUND: &[u8] = b"NATS/1.0 404 Message Not Found\r\n\r\n";
/// The stream has no such messages.
pub const NO_RESULTS: &[u8] = b"NATS/1.0 404 No Results\r\n\r\n";
/// More subjects match than one answer may hold.
pub const TOO_MANY_RESULTS: &[u8] = b"NATS/1.0 413 Too Many Results\r\n\r\n";
