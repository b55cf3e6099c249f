//! The subject that acknowledges a message: written for each delivery, read when it comes back.
//!
//! Owns both forms. Nine tokens are written, `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time ns>.<pending>`;
//! eleven or more, with a domain and an account before the stream, are read too. Writing one costs a few dozen digits into a
//! buffer used again and again.

/// Writes acknowledgement subjects of one consumer.
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

    /// The subject for a delivery.
    pub(super) fn write(&mut self, ack: &AckNumbers) -> &[u8] {
        self.buffer.truncate(self.prefix_bytes);
        let numbers = [
            ack.deliveries,
            ack.stream_seq,
            ack.consumer_seq,
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

/// The numbers in an acknowledgement's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckNumbers {
    /// How often the message was delivered.
    pub deliveries: u64,
    /// The message's number in the stream.
    pub stream_seq: u64,
    /// The delivery's number.
    pub consumer_seq: u64,
    /// When the message was stored, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// How many messages waited behind it.
    pub pending: u64,
}

/// An acknowledgement's subject, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSubject<'a> {
    /// The stream's name.
    pub stream: &'a [u8],
    /// The consumer's name.
    pub consumer: &'a [u8],
    /// What it is about.
    pub numbers: AckNumbers,
}

impl<'a> AckSubject<'a> {
    /// Reads `$JS.ACK.` and what follows; `None` if it is none of the two forms.
    #[must_use]
    pub fn parse(subject: &'a [u8]) -> Option<Self> {
        let rest = subject.strip_prefix(b"$JS.ACK.")?;
        let mut tokens = rest.split(|b| *b == b'.');
        // `$JS` and `ACK` count as tokens too: nine, or eleven and more.
        match rest.iter().filter(|b| **b == b'.').count() + 3 {
            9 => {}
            n if n >= 11 => {
                tokens.nth(1)?;
            }
            _ => return None,
        }
        let (stream, consumer) = (tokens.next()?, tokens.next()?);
        let mut number = || decimal(tokens.next()?);
        Some(Self {
            stream,
            consumer,
            numbers: AckNumbers {
                deliveries: number()?,
                stream_seq: number()?,
                consumer_seq: number()?,
                time_ns: number()?,
                pending: number()?,
            },
        })
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |n, b| {
        let digit = b.checked_sub(b'0').filter(|d| *d < 10)?;
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Appends `n` in decimal, two digits a step.
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
        fn what_is_written_is_read(n in any::<[u64; 5]>(), shift in 0_u32..64) {
            let numbers = AckNumbers {
                deliveries: n[0] >> shift,
                stream_seq: n[1] >> shift,
                consumer_seq: n[2],
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
