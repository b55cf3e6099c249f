//! Writes and parses the subject to which a receiver acknowledges a message. The consumer writes this subject
//! for each delivery, and parses it from each acknowledgement.
//!
//! This module owns both forms of the subject. The consumer writes nine tokens,
//! `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time ns>.<pending>`; it also parses
//! eleven or more, with a domain and an account before the stream. To write a subject costs a few dozen
//! digits, into a buffer that the consumer reuses.

use super::sequence::ConsumerSeq;
use crate::schema::sequence::StreamSeq;

/// Writes the acknowledgement subjects for the deliveries of one consumer, in a buffer with the part that
/// never changes.
#[derive(Clone, Debug)]
pub(super) struct Replies {
    buffer: Vec<u8>,
    prefix_bytes: usize,
}

impl Replies {
    pub(super) fn new(stream: &str, consumer: &str) -> Self {
        let buffer = format!("$JS.ACK.{stream}.{consumer}.").into_bytes();
        Self {
            prefix_bytes: buffer.len(),
            buffer,
        }
    }

    /// Writes the acknowledgement subject for one delivery, and returns the subject, to which the receiver
    /// sends its acknowledgement.
    pub(super) fn write(&mut self, ack: &AckNumbers) -> &[u8] {
        self.buffer.truncate(self.prefix_bytes);
        let numbers = [
            ack.deliveries,
            ack.stream_seq.get(),
            ack.consumer_seq.get(),
            ack.time_ns,
            ack.pending,
        ];
        for (i, n) in numbers.into_iter().enumerate() {
            if i > 0 {
                self.buffer.push(b'.');
            }
            put_decimal(&mut self.buffer, n);
        }
        &self.buffer
    }
}

/// The numbers in the subject of an acknowledgement, by which the consumer knows the acknowledged delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckNumbers {
    /// The number of times that the consumer has delivered the message, with this delivery. A receiver sees
    /// from it whether this is a redelivery.
    pub deliveries: u64,
    /// The number of the message in its stream, by which the consumer finds the pending message.
    pub stream_seq: StreamSeq,
    /// The number of the delivery among all deliveries of the consumer, by which a receiver notices a missed
    /// message.
    pub consumer_seq: ConsumerSeq,
    /// The time at which the stream stored the message, in nanoseconds since the Unix epoch, which clients
    /// show to applications.
    pub time_ns: u64,
    /// The number of messages that passed the consumer's filters and that the consumer had still to deliver
    /// after this delivery, so that the receiver knows its backlog.
    pub pending: u64,
}

/// The parsed subject of an acknowledgement: the stream, the consumer and the numbers of the delivery. By
/// them the server finds the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSubject<'a> {
    /// The name of the stream that holds the acknowledged message.
    pub stream: &'a [u8],
    /// The name of the consumer that delivered the message, in that stream.
    pub consumer: &'a [u8],
    /// The numbers that identify the acknowledged delivery for the consumer.
    pub numbers: AckNumbers,
}

impl<'a> AckSubject<'a> {
    /// Parses an acknowledgement subject; `None` if the subject does not start with `$JS.ACK.` or has neither
    /// of the two forms, because then it acknowledges nothing.
    #[must_use]
    pub fn parse(subject: &'a [u8]) -> Option<Self> {
        let rest = subject.strip_prefix(b"$JS.ACK.")?;
        let mut dots = [rest.len(); TOKENS_MAX];
        let mut len = 1;
        for dot in memchr::memchr_iter(b'.', rest).take(TOKENS_MAX - 1) {
            dots[len - 1] = dot;
            len += 1;
        }
        // The loop has counted in `len` the tokens after `$JS.ACK.`: 7 in the short form, and at least 9 in
        // the form with domain and account.
        let first = match len {
            7 => 0,
            9.. => 2,
            _ => return None,
        };
        let token = |n: usize| {
            let at = first + n;
            let from = if at == 0 { 0 } else { dots[at - 1] + 1 };
            &rest[from..dots[at]]
        };
        Some(Self {
            stream: token(0),
            consumer: token(1),
            numbers: AckNumbers {
                deliveries: decimal(token(2))?,
                stream_seq: decimal(token(3)).map(StreamSeq::new)?,
                consumer_seq: decimal(token(4)).map(ConsumerSeq::new)?,
                time_ns: decimal(token(5))?,
                pending: decimal(token(6))?,
            },
        })
    }
}

/// The limit on the tokens after `$JS.ACK.` that the parser looks at, so that it takes bounded time: the nine
/// tokens of the longer form, and one more to notice that further tokens follow.
const TOKENS_MAX: usize = 10;

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    // Nineteen decimal digits always fit into a `u64`, so the loop over them needs no check for overflow.
    let (sure, rest) = digits.split_at(digits.len().min(19));
    let mut n = 0;
    for b in sure {
        n = n * 10 + digit(*b)?;
    }
    let more = |n: u64, b: &u8| n.checked_mul(10)?.checked_add(digit(*b)?);
    rest.iter().try_fold(n, more)
}

fn digit(b: u8) -> Option<u64> {
    b.is_ascii_digit().then(|| u64::from(b - b'0'))
}

/// Appends a number in decimal to an acknowledgement subject, two digits at a time, because the consumer does
/// this for each delivery.
pub(super) fn put_decimal(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while n >= 100 {
        let pair = 2 * (n % 100) as usize;
        n /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if n >= 10 {
        let pair = 2 * n as usize;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + n as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut n = 0;
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_are_read() {
        let v1 = AckSubject::parse(b"$JS.ACK.S.C.1.2.3.4.5").unwrap();
        assert_eq!((v1.stream, v1.consumer), (&b"S"[..], &b"C"[..]));
        assert_eq!(v1.numbers.pending, 5);
        for v2 in [
            "$JS.ACK._.hash.S.C.1.2.3.4.5",
            "$JS.ACK.hub.hash.S.C.1.2.3.4.5.token",
        ] {
            assert_eq!(AckSubject::parse(v2.as_bytes()), Some(v1), "{v2}");
        }
        for bad in [
            "",
            "$JS.ACK.",
            "$JS.ACK.S.C.1.2.3.4",
            "$JS.ACK.x.S.C.1.2.3.4.5",
            "$JS.ACK.S.C.1.2.3.4.x",
            "$JS.ACK.S.C.1.-2.3.4.5",
            "$JS.ACK.S.C.1..3.4.5",
            "$JS.ACK.S.C.1.18446744073709551616.3.4.5",
        ] {
            assert_eq!(AckSubject::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(n in any::<[u64; 5]>(), shift in 0_u32..64) {
            let numbers = AckNumbers {
                deliveries: n[0] >> shift,
                stream_seq: StreamSeq::new(n[1] >> shift),
                consumer_seq: ConsumerSeq::new(n[2]),
                time_ns: n[3] >> shift,
                pending: n[4] >> shift,
            };
            let mut replies = Replies::new("ORDERS", "new");
            replies.write(&AckNumbers { pending: u64::MAX, ..numbers });
            let subject = replies.write(&numbers).to_vec();
            let expected = format!(
                "$JS.ACK.ORDERS.new.{}.{}.{}.{}.{}",
                numbers.deliveries, numbers.stream_seq, numbers.consumer_seq, numbers.time_ns, numbers.pending
            );
            prop_assert_eq!(String::from_utf8(subject).unwrap(), expected.clone());
            prop_assert_eq!(AckSubject::parse(expected.as_bytes()).unwrap().numbers, numbers);
        }
    }
}
