//! Writes PubAcks, the acknowledgements to publishers, as bytes at the end of a buffer. The server writes one
//! PubAck for each message of a stream, so a fast writer matters.

use super::json::write_string;
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

/// Writes the PubAcks, the answers to publishers, of one stream. The head `{"stream":"S","seq":` is the same
/// for all messages, so the writer encodes it only once.
///
/// ```
/// use tidegate_stream::api::puback::PubAck;
/// use tidegate_stream::schema::sequence::StreamSeq;
///
/// let ack = PubAck::new("S", None);
/// let mut out = Vec::new();
/// ack.stored(&mut out, StreamSeq::new(17));
/// assert_eq!(out, br#"{"stream":"S","seq":17}"#);
/// ```
#[derive(Clone, Debug)]
pub struct PubAck {
    head: Vec<u8>,
    /// The end of each PubAck as JSON: `,"domain":"D"}` or, without a domain, `}`. The writer encodes it only
    /// once.
    tail: Vec<u8>,
}

impl PubAck {
    /// Creates the writer of PubAcks for the stream `stream`, on a server that belongs to `domain`, which the
    /// PubAcks name.
    #[must_use]
    pub fn new(stream: &str, domain: Option<&str>) -> Self {
        let mut head = b"{\"stream\":".to_vec();
        write_string(&mut head, stream.as_bytes());
        head.extend_from_slice(b",\"seq\":");
        let mut tail = Vec::new();
        if let Some(domain) = domain {
            tail.extend_from_slice(b",\"domain\":");
            write_string(&mut tail, domain.as_bytes());
        }
        tail.push(b'}');
        Self { head, tail }
    }

    /// Appends the PubAck for a message that the stream has stored as number `seq`, so that the publisher
    /// knows that the message is safe.
    pub fn stored(&self, out: &mut Vec<u8>, seq: StreamSeq) {
        self.seq(out, seq);
        out.extend_from_slice(&self.tail);
    }

    /// Appends the PubAck for a duplicate: the stream has already stored a message with the same id, as
    /// number `seq`. The publisher learns that number.
    pub fn duplicate(&self, out: &mut Vec<u8>, seq: StreamSeq) {
        self.seq(out, seq);
        out.extend_from_slice(b",\"duplicate\":true");
        out.extend_from_slice(&self.tail);
    }

    /// Appends the PubAck for a batch that the stream has stored: the number of the batch's last message in
    /// the stream, the batch's id, and the count of its messages. One answer acknowledges the whole batch.
    pub fn batch(&self, out: &mut Vec<u8>, seq: StreamSeq, id: &[u8], count: u64) {
        self.seq(out, seq);
        out.extend_from_slice(b",\"batch\":");
        write_string(out, id);
        out.extend_from_slice(b",\"count\":");
        write_number(out, count);
        out.extend_from_slice(&self.tail);
    }

    /// Appends the answer to the publisher of a message that the server or the stream refused. The publisher
    /// learns the reason from `error`.
    pub fn refused(&self, out: &mut Vec<u8>, error: &ApiError) {
        out.extend_from_slice(b"{\"error\":");
        write_error(out, error);
        out.push(b',');
        out.extend_from_slice(&self.head[1..]);
        out.push(b'0');
        out.extend_from_slice(&self.tail);
    }

    fn seq(&self, out: &mut Vec<u8>, seq: StreamSeq) {
        out.extend_from_slice(&self.head);
        write_number(out, seq.get());
    }
}

/// Appends an error as JSON, in the form that all answers of the JetStream API have, so that clients read it
/// alike.
pub fn write_error(out: &mut Vec<u8>, error: &ApiError) {
    out.extend_from_slice(b"{\"code\":");
    write_number(out, error.code.into());
    out.extend_from_slice(b",\"err_code\":");
    write_number(out, error.err_code.into());
    out.extend_from_slice(b",\"description\":");
    write_string(out, error.description.as_bytes());
    out.push(b'}');
}

/// Appends the number `n` in decimal to the bytes of an answer, without an allocation.
pub fn write_number(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        // The cast loses nothing: `n % 10` is a single decimal digit, which fits into a `u8`.
        #[allow(clippy::cast_possible_truncation)]
        let digit = (n % 10) as u8;
        digits[at] = b'0' + digit;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sequence::nth;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn answers() {
        let ack = PubAck::new("S", None);
        assert_eq!(text(|o| ack.stored(o, nth(1))), r#"{"stream":"S","seq":1}"#);
        assert_eq!(
            text(|o| ack.duplicate(o, nth(4))),
            r#"{"stream":"S","seq":4,"duplicate":true}"#
        );
        assert_eq!(
            text(|o| ack.batch(o, nth(9), b"id", 3)),
            r#"{"stream":"S","seq":9,"batch":"id","count":3}"#
        );
        assert_eq!(
            text(|o| ack.refused(o, &ApiError::wrong_last_sequence(3))),
            r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}"#
        );
    }

    #[test]
    fn names_are_escaped_and_domains_named() {
        let ack = PubAck::new("a\"b", Some("hub"));
        assert_eq!(
            text(|o| ack.stored(o, nth(u64::MAX))),
            r#"{"stream":"a\"b","seq":18446744073709551615,"domain":"hub"}"#
        );
    }

    #[test]
    fn numbers() {
        for n in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            assert_eq!(text(|o| write_number(o, n)), n.to_string());
        }
    }
}
