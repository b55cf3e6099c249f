//! The statuses with which the server answers a request for messages that it refuses or cannot serve: header
//! blocks, which the server sends without a payload. Clients compare the texts.

/// The status for a request that requires a higher API level than this server has, so that the client does
/// not get a wrong answer.
pub const REQUIRED_API_LEVEL: &[u8] = b"NATS/1.0 412 Required Api Level\r\n\r\n";
/// The status for a request in which the client does not say which messages it wants.
pub const EMPTY_REQUEST: &[u8] = b"NATS/1.0 408 Empty Request\r\n\r\n";
/// The status for a request with a body that is not JSON, or that has a value of the wrong type. The server
/// cannot read the client's wish.
pub const MALFORMED_REQUEST: &[u8] = b"NATS/1.0 408 Malformed Request\r\n\r\n";
/// The status for a request with fields that contradict each other, so the server cannot tell the client's
/// wish.
pub const BAD_REQUEST: &[u8] = b"NATS/1.0 408 Bad Request\r\n\r\n";
/// The status for a request for one message or for successive messages, if the stream holds none of these.
/// The client then stops reading.
pub const MESSAGE_NOT_FOUND: &[u8] = b"NATS/1.0 404 Message Not Found\r\n\r\n";
/// The status for a request for the last messages of several subjects, if the stream has none of these
/// messages. The client then knows that the subjects are empty.
pub const NO_RESULTS: &[u8] = b"NATS/1.0 404 No Results\r\n\r\n";
/// The status for a request that matches more subjects than one answer may have. The client must ask for
/// fewer subjects.
pub const TOO_MANY_RESULTS: &[u8] = b"NATS/1.0 413 Too Many Results\r\n\r\n";
