//! Writes the server's operations (MSG, HMSG, -ERR) into an [`Outbox`]: the counterpart of [`super::parse`].
//!
//! The server prepares a message for many receivers once ([`Delivery`]). The copies differ only in the sid,
//! the receiver's name for its subscription. So a copy needs no formatting, only appends. Outboxes with a
//! backlog share one copy of the payload, to save memory.

use bytes::Bytes;

use super::outbox::{CHUNK_BYTES, Outbox};
use super::parse::Publish;

/// The texts of `-ERR`, spelled as nats-server spells them, because some clients close the connection at an
/// unknown text.
pub mod text {
    #![allow(missing_docs)]
    pub const UNKNOWN_OPERATION: &str = "Unknown Protocol Operation";
    pub const AUTHORIZATION_VIOLATION: &str = "Authorization Violation";
    pub const AUTHENTICATION_TIMEOUT: &str = "Authentication Timeout";
    pub const MAX_PAYLOAD: &str = "Maximum Payload Violation";
    pub const MAX_CONTROL_LINE: &str = "maximum control line exceeded";
    pub const MAX_CONNECTIONS: &str = "maximum connections exceeded";
    pub const THROTTLED: &str = "Connection throttling is active. Please try again later.";
    pub const MAX_SUBSCRIPTIONS: &str = "maximum subscriptions exceeded";
    pub const STALE: &str = "Stale Connection";
    pub const INVALID_PROTOCOL: &str = "invalid client protocol";
    pub const NO_RESPONDERS_NEEDS_HEADERS: &str = "no responders requires headers support";
    pub const TLS_REQUIRED: &str = "Secure Connection - TLS Required";
    pub const INVALID_SUBJECT: &str = "Invalid Subject";
    pub const INVALID_PUBLISH_SUBJECT: &str = "Invalid Publish Subject";
}

/// Appends the error line `-ERR '<text>'` to the client's outbox, to tell the client why the server refuses
/// an operation.
pub fn err(out: &mut Outbox, text: &str) {
    out.append(&[b"-ERR '", text.as_bytes(), b"'\r\n"]);
}

/// Appends the error `-ERR 'Permissions Violation for Publish to "<subject>"'` to the outbox of a client
/// that may not publish to the subject.
pub fn publish_violation(out: &mut Outbox, subject: &[u8]) {
    out.append(&[
        b"-ERR 'Permissions Violation for Publish to \"",
        subject,
        b"\"'\r\n",
    ]);
}

/// Appends `-ERR 'Permissions Violation for Subscription to "<subject>" [using queue "<queue>"]'` to the
/// outbox of a client that may not subscribe to the subject.
pub fn subscription_violation(out: &mut Outbox, subject: &[u8], queue: Option<&[u8]>) {
    let start: &[u8] = b"-ERR 'Permissions Violation for Subscription to \"";
    match queue {
        Some(queue) => out.append(&[start, subject, b"\" using queue \"", queue, b"\"'\r\n"]),
        None => out.append(&[start, subject, b"\"'\r\n"]),
    }
}

/// Appends the status message 503 for a request on `subject` that no subscription matches. The message goes
/// to the requester's subscription `sid` on `reply`, so that the requester need not wait for its timeout.
/// The message has headers and no payload.
pub fn no_responders(out: &mut Outbox, reply: &[u8], sid: &[u8], subject: &[u8]) {
    let head: &[u8] = b"NATS/1.0 503\r\nNats-Subject: ";
    let mut digits = Digits::default();
    let len = digits.write((head.len() + subject.len() + 4) as u64);
    let len = digits.get(len);
    out.append(&[
        b"HMSG ",
        reply,
        b" ",
        sid,
        b" ",
        len,
        b" ",
        len,
        b"\r\n",
        head,
        subject,
        b"\r\n\r\n\r\n",
    ]);
}

/// The least number of bytes of headers and payload together for which outboxes share one copy. Each outbox
/// keeps an entry for a shared copy, and the entry takes more memory than a copy of a smaller payload.
const SHARED_BYTES_MIN: usize = 128;
/// The least number of bytes of headers and payload together for which outboxes share one copy even if they
/// are short. A copy of such a payload for each receiver would take the server longer than an entry, and
/// more memory: a thousand copies of 60 kB take 60 MB.
pub const SHARED_ALWAYS_BYTES: usize = 16 * 1024;

/// Writes one message to its receivers: the server prepares the message once, and writes it for each
/// receiver. A `Delivery` keeps its buffers from one message to the next, so that a message costs no
/// allocation.
#[derive(Debug, Default)]
pub struct Delivery {
    /// The start of the operation, equal for all receivers: `MSG <subject> ` or `HMSG <subject> `
    head: Vec<u8>,
    /// The rest of the control line behind the sid, equal for all receivers: ` [reply ][#headers ]#total␍␊`
    tail: Vec<u8>,
    digits: Digits,
    /// The headers and the payload in one buffer that outboxes share; `None` until a receiver with a backlog
    /// needs it.
    shared: Option<Bytes>,
}

impl Delivery {
    /// Prepares `message` for its receivers: formats the parts of the operation that are equal for all of
    /// them. If `with_headers` is false, leaves the headers out, for clients that cannot read headers.
    pub fn prepare(&mut self, message: &Publish<'_>, with_headers: bool) {
        let headers = message.headers.filter(|_| with_headers);
        self.shared = None;
        self.head.clear();
        self.head
            .extend_from_slice(if headers.is_some() { b"HMSG " } else { b"MSG " });
        self.head.extend_from_slice(message.subject);
        self.head.push(b' ');
        self.tail.clear();
        self.tail.push(b' ');
        if let Some(reply) = message.reply {
            self.tail.extend_from_slice(reply);
            self.tail.push(b' ');
        }
        if let Some(headers) = headers {
            let at = self.digits.write(headers.len() as u64);
            self.tail.extend_from_slice(self.digits.get(at));
            self.tail.push(b' ');
        }
        let size = headers.map_or(0, <[u8]>::len) + message.payload.len();
        let at = self.digits.write(size as u64);
        self.tail.extend_from_slice(self.digits.get(at));
        self.tail.extend_from_slice(b"\r\n");
    }

    /// Appends the prepared message for the subscription `sid` to the receiver's outbox `out`. `headers`
    /// must be empty if the caller prepared the message without headers.
    #[inline]
    pub fn write(&self, out: &mut Outbox, sid: &[u8], headers: &[u8], payload: &[u8]) {
        out.append(&[&self.head, sid, &self.tail, headers, payload, b"\r\n"]);
    }

    /// Appends the prepared message like [`write`](Self::write), or only a reference to one copy that the
    /// receivers' outboxes share, because slow receivers would otherwise take much memory: if the message has
    /// `several` receivers and is large, or is not small and at least [`CHUNK_BYTES`] already wait in `out`.
    /// Returns the number of bytes of headers and payload that it has copied for this receiver.
    #[inline]
    pub fn write_copy(
        &mut self,
        out: &mut Outbox,
        sid: &[u8],
        headers: &[u8],
        payload: &[u8],
        several: bool,
    ) -> usize {
        let len = headers.len() + payload.len();
        let shares = match out.len() < CHUNK_BYTES {
            true => len >= SHARED_ALWAYS_BYTES,
            false => len >= SHARED_BYTES_MIN,
        };
        if !several || !shares {
            self.write(out, sid, headers, payload);
            return len;
        }
        let copy = || [headers, payload].concat().into();
        let shared = self.shared.get_or_insert_with(copy).clone();
        out.append(&[&self.head, sid, &self.tail]);
        out.append_shared(shared);
        out.append(&[b"\r\n"]);
        0
    }
}

/// Formats numbers in decimal, right-aligned in an array. This costs less than a formatter for each message.
#[derive(Debug, Default)]
struct Digits([u8; 20]);

impl Digits {
    /// Writes the digits of `n` at the end of the array, and returns the index of the first digit.
    const fn write(&mut self, mut n: u64) -> usize {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                return at;
            }
        }
    }

    fn get(&self, at: usize) -> &[u8] {
        &self.0[at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(f: impl FnOnce(&mut Outbox)) -> String {
        let mut out = Outbox::default();
        f(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn messages() {
        let message = |headers, payload| Publish {
            subject: b"a.b",
            reply: Some(b"r"),
            headers,
            payload,
        };
        let mut d = Delivery::default();
        let plain = message(None, b"hello");
        d.prepare(&plain, true);
        assert_eq!(
            written(|out| d.write(out, b"12", b"", plain.payload)),
            "MSG a.b 12 r 5\r\nhello\r\n"
        );
        let headed = message(Some(&b"NATS/1.0\r\n\r\n"[..]), b"hi");
        d.prepare(&headed, true);
        assert_eq!(
            written(|out| d.write(out, b"1", headed.header_block(), headed.payload)),
            "HMSG a.b 1 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
        );
        d.prepare(&headed, false);
        assert_eq!(
            written(|out| d.write(out, b"1", b"", headed.payload)),
            "MSG a.b 1 r 2\r\nhi\r\n"
        );
    }

    #[test]
    fn copies_are_the_same_bytes_where_receivers_are_behind() {
        let payload = [b'p'; 300];
        let message = Publish {
            subject: b"a",
            reply: None,
            headers: Some(&b"NATS/1.0\r\n\r\n"[..]),
            payload: &payload,
        };
        let (mut d, behind) = (Delivery::default(), vec![b'x'; CHUNK_BYTES]);
        for with_headers in [true, false] {
            d.prepare(&message, with_headers);
            let headers = if with_headers {
                message.header_block()
            } else {
                b""
            };
            let (mut copied, mut shared) = (Outbox::default(), Outbox::default());
            copied.append(&[&behind]);
            shared.append(&[&behind]);
            d.write(&mut copied, b"1", headers, &payload);
            d.write_copy(&mut shared, b"1", headers, &payload, true);
            assert_eq!(copied.to_vec(), shared.to_vec());
            assert!(shared.slices().count() > copied.slices().count());
        }
    }

    /// Counts the bytes that the server copies for a receiver that is not behind: none of a large message
    /// with several receivers.
    #[test]
    fn receivers_share_a_large_payload_at_once() {
        for (len, several, copied) in [
            (SHARED_ALWAYS_BYTES - 1, true, SHARED_ALWAYS_BYTES - 1),
            (SHARED_ALWAYS_BYTES, false, SHARED_ALWAYS_BYTES),
            (SHARED_ALWAYS_BYTES, true, 0),
        ] {
            let payload = vec![b'p'; len];
            let message = Publish {
                subject: b"a",
                reply: None,
                headers: None,
                payload: &payload,
            };
            let mut d = Delivery::default();
            d.prepare(&message, true);
            let (mut whole, mut out) = (Outbox::default(), Outbox::default());
            d.write(&mut whole, b"1", b"", &payload);
            assert_eq!(d.write_copy(&mut out, b"1", b"", &payload, several), copied);
            assert_eq!(whole.to_vec(), out.to_vec());
        }
    }

    #[test]
    fn statuses_and_errors() {
        assert_eq!(
            written(|out| no_responders(out, b"_INBOX.1", b"2", b"svc")),
            "HMSG _INBOX.1 2 35 35\r\nNATS/1.0 503\r\nNats-Subject: svc\r\n\r\n\r\n"
        );
        assert_eq!(
            written(|out| err(out, text::STALE)),
            "-ERR 'Stale Connection'\r\n"
        );
        assert_eq!(
            written(|out| subscription_violation(out, b"a", Some(b"q"))),
            "-ERR 'Permissions Violation for Subscription to \"a\" using queue \"q\"'\r\n"
        );
    }
}
