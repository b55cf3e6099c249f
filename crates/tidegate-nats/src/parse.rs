//! Parses the bytes of a client into operations, one after the other. The parser allocates nothing, because
//! an operation borrows from the read buffer.
//!
//! This module knows the grammar (verbs, arguments, sizes, line ends), and checks two limits before it
//! accepts a payload. The session checks subjects, JSON and the order of operations. The caller keeps the
//! bytes that the parser did not consume, and calls again with more bytes behind them; [`Parser::need`] says
//! how many bytes the next call needs to make progress.

use memchr::memchr;

/// The length of the longest verb and the blank behind it, in bytes. A control line may be longer than the
/// limit by this many bytes, because the limit does not count the verb.
const VERB_BYTES_MAX: usize = 8;

/// The limits on the operations that a client sends, which bound the server's read buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// The greatest length in bytes of a control line, without its verb; the parser refuses longer lines.
    pub control_line_bytes_max: usize,
    /// The greatest number of bytes that the headers and the payload of one message may take together.
    pub payload_bytes_max: usize,
}

/// One operation that a client sends, in slices of the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// `CONNECT {json}`: the client states its options and credentials. The variant holds the JSON document.
    Connect(&'a [u8]),
    /// `PUB` or `HPUB`: the client publishes a message.
    Publish(Publish<'a>),
    /// `SUB subject [queue] sid`: the client subscribes to a pattern.
    Subscribe {
        /// The pattern of the subjects to which the client subscribes.
        subject: &'a [u8],
        /// The queue group that the client joins; `None` if the operation names none.
        queue: Option<&'a [u8]>,
        /// The name (sid) that the client gives its new subscription. Deliveries carry this name.
        sid: &'a [u8],
    },
    /// `UNSUB sid [max]`: the client ends a subscription, now or after a number of messages.
    Unsubscribe {
        /// The name (sid) by which the client knows the subscription.
        sid: &'a [u8],
        /// The total number of messages after which the subscription ends; 0 ends it now.
        max: u64,
    },
    /// `PING`: the client asks for a `PONG`.
    Ping,
    /// `PONG`: the client answers a `PING` of the server.
    Pong,
}

/// A message that a client publishes, in slices of the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// The subject to which the client publishes the message.
    pub subject: &'a [u8],
    /// The subject to which receivers may answer; `None` if the client expects no answer.
    pub reply: Option<&'a [u8]>,
    /// The complete header block of an `HPUB`; `None` for a `PUB`.
    pub headers: Option<&'a [u8]>,
    /// The message's payload, which the server does not interpret.
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Returns the number of bytes of the message's header block and payload together, which limits and
    /// counters use.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.header_block().len() + self.payload.len()
    }

    /// Returns the message's header block, for a delivery; empty for a `PUB`.
    #[must_use]
    pub const fn header_block(&self) -> &'a [u8] {
        match self.headers {
            Some(headers) => headers,
            None => b"",
        }
    }
}

/// The reason why the parser cannot parse the rest of a client's input. The caller then closes the
/// connection, because the next operation cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The verb is unknown, the arguments are wrong, or no line end follows the payload's stated size.
    #[error("unknown protocol operation: expected CONNECT, PUB, HPUB, SUB, UNSUB, PING or PONG")]
    Operation,
    /// A control line is longer than [`ParseLimits::control_line_bytes_max`], so the server would have to
    /// buffer too much.
    #[error("control line too long: raise max_control_line, or use shorter subjects")]
    ControlLine,
    /// A message is larger than [`ParseLimits::payload_bytes_max`], so the server does not buffer its
    /// payload.
    #[error("payload too large: raise max_payload, or send less")]
    Payload,
}

/// Parses one connection's input. The parser remembers how many bytes the next operation needs, so that it
/// does not parse an incomplete operation again and again.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    need: usize,
}

impl Parser {
    /// Returns the next operation at the front of `buf` and the number of its bytes, or `None` if `buf` does
    /// not hold a whole operation yet.
    ///
    /// The caller must pass a `buf` that starts where the last operation ended. While the parser returns
    /// `None`, the caller may only append to `buf`.
    ///
    /// # Errors
    /// See [`ParseError`]: the input violates the protocol or exceeds `limits`. The parser cannot go on with
    /// this connection's input.
    pub fn next<'a>(
        &mut self,
        buf: &'a [u8],
        limits: &ParseLimits,
    ) -> Result<Option<(Op<'a>, usize)>, ParseError> {
        if buf.len() < self.need.max(1) {
            return Ok(None);
        }
        if !matches!(buf[0] | 0x20, b'c' | b'p' | b'h' | b's' | b'u') {
            return Err(ParseError::Operation);
        }
        let line_max = limits.control_line_bytes_max + VERB_BYTES_MAX + 2;
        let Some(end) = memchr(b'\n', &buf[..buf.len().min(line_max)]) else {
            if buf.len() >= line_max {
                return Err(ParseError::ControlLine);
            }
            self.need = buf.len() + 1;
            return Ok(None);
        };
        let line = match &buf[..end] {
            [line @ .., b'\r'] => line,
            line => line,
        };
        self.line(buf, line, end + 1, limits)
    }

    /// Returns the number of bytes that the buffer must hold before [`Parser::next`] can return an
    /// operation, so that the caller makes room for them.
    #[must_use]
    pub const fn need(&self) -> usize {
        self.need
    }

    fn line<'a>(
        &mut self,
        buf: &'a [u8],
        line: &'a [u8],
        after: usize,
        limits: &ParseLimits,
    ) -> Result<Option<(Op<'a>, usize)>, ParseError> {
        let (verb, args) = split_verb(line);
        if args.len() > limits.control_line_bytes_max {
            return Err(ParseError::ControlLine);
        }
        let op = match verb {
            v if v.eq_ignore_ascii_case(b"PUB") => {
                return self.publish(buf, args, after, limits, false);
            }
            v if v.eq_ignore_ascii_case(b"HPUB") => {
                return self.publish(buf, args, after, limits, true);
            }
            v if v.eq_ignore_ascii_case(b"PING") => Op::Ping,
            v if v.eq_ignore_ascii_case(b"PONG") => Op::Pong,
            v if v.eq_ignore_ascii_case(b"SUB") => subscribe(args)?,
            v if v.eq_ignore_ascii_case(b"UNSUB") => unsubscribe(args)?,
            v if v.eq_ignore_ascii_case(b"CONNECT") => Op::Connect(args.trim_ascii()),
            _ => return Err(ParseError::Operation),
        };
        self.need = 0;
        Ok(Some((op, after)))
    }

    fn publish<'a>(
        &mut self,
        buf: &'a [u8],
        args: &'a [u8],
        after: usize,
        limits: &ParseLimits,
        with_headers: bool,
    ) -> Result<Option<(Op<'a>, usize)>, ParseError> {
        let (args, len) = split_args(args)?;
        let sizes = if with_headers { 2 } else { 1 };
        let reply = match len.checked_sub(sizes) {
            Some(1) => None,
            Some(2) => Some(args[1]),
            _ => return Err(ParseError::Operation),
        };
        let size = number(args[len - 1])?;
        let headers = with_headers
            .then(|| number(args[len - 2]))
            .transpose()?
            .map(|n| usize::try_from(n).map_err(|_| ParseError::Operation))
            .transpose()?;
        if size > limits.payload_bytes_max as u64 {
            return Err(ParseError::Payload);
        }
        // The conversion never fails, because the message's size is at most the limit, which is a `usize`.
        let size = usize::try_from(size).map_err(|_| ParseError::Payload)?;
        if headers.is_some_and(|h| h > size) {
            return Err(ParseError::Operation);
        }
        let total = after + size + 2;
        if buf.len() < total {
            self.need = total;
            return Ok(None);
        }
        let (body, end) = buf[after..total].split_at(size);
        if end != b"\r\n" {
            return Err(ParseError::Operation);
        }
        self.need = 0;
        let (headers, payload) = match headers {
            Some(len) => {
                let (headers, payload) = body.split_at(len);
                (Some(headers), payload)
            }
            None => (None, body),
        };
        let publish = Publish {
            subject: args[0],
            reply,
            headers,
            payload,
        };
        Ok(Some((Op::Publish(publish), total)))
    }
}

fn subscribe(args: &[u8]) -> Result<Op<'_>, ParseError> {
    let (args, len) = split_args(args)?;
    let (queue, sid) = match len {
        2 => (None, args[1]),
        3 => (Some(args[1]), args[2]),
        _ => return Err(ParseError::Operation),
    };
    Ok(Op::Subscribe {
        subject: args[0],
        queue,
        sid,
    })
}

fn unsubscribe(args: &[u8]) -> Result<Op<'_>, ParseError> {
    let (args, len) = split_args(args)?;
    let max = match len {
        1 => 0,
        2 => number(args[1])?,
        _ => return Err(ParseError::Operation),
    };
    Ok(Op::Unsubscribe { sid: args[0], max })
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Splits a control line into the verb and the arguments: the text behind the blank after the verb.
fn split_verb(line: &[u8]) -> (&[u8], &[u8]) {
    let head = &line[..line.len().min(VERB_BYTES_MAX)];
    match head.iter().position(|b| is_blank(*b)) {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &[]),
    }
}

/// Splits the arguments of a control line at blanks. Returns at most four arguments and their number; no
/// operation has more.
fn split_args(args: &[u8]) -> Result<([&[u8]; 4], usize), ParseError> {
    let mut out: [&[u8]; 4] = [&[]; 4];
    let mut len = 0;
    let mut at = 0;
    while at < args.len() {
        if is_blank(args[at]) {
            at += 1;
            continue;
        }
        let start = at;
        while at < args.len() && !is_blank(args[at]) {
            at += 1;
        }
        *out.get_mut(len).ok_or(ParseError::Operation)? = &args[start..at];
        len += 1;
    }
    Ok((out, len))
}

/// Parses a size or a count in decimal. Accepts at most 18 digits, so that sums of such numbers cannot
/// overflow.
fn number(text: &[u8]) -> Result<u64, ParseError> {
    if text.is_empty() || text.len() > 18 {
        return Err(ParseError::Operation);
    }
    text.iter().try_fold(0, |sum: u64, b| {
        b.is_ascii_digit()
            .then(|| sum * 10 + u64::from(b - b'0'))
            .ok_or(ParseError::Operation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ParseLimits = ParseLimits {
        control_line_bytes_max: 64,
        payload_bytes_max: 32,
    };

    fn one(text: &str) -> Result<Option<(Op<'_>, usize)>, ParseError> {
        Parser::default().next(text.as_bytes(), &LIMITS)
    }

    fn op(text: &str) -> Op<'_> {
        let (op, used) = one(text).unwrap().unwrap();
        assert_eq!(used, text.len());
        op
    }

    #[test]
    fn every_operation() {
        assert_eq!(op("PING\r\n"), Op::Ping);
        assert_eq!(op("pong\n"), Op::Pong);
        assert_eq!(op("CONNECT  {\"a\": 1}\r\n"), Op::Connect(b"{\"a\": 1}"));
        let p = |headers, reply, payload| {
            Op::Publish(Publish {
                subject: b"a.b",
                reply,
                headers,
                payload,
            })
        };
        assert_eq!(op("PUB a.b 5\r\nhello\r\n"), p(None, None, b"hello"));
        assert_eq!(op("pub  a.b\tr \t0 \r\n\r\n"), p(None, Some(b"r"), b""));
        assert_eq!(
            op("HPUB a.b r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
            p(Some(b"NATS/1.0\r\n\r\n"), Some(b"r"), b"hi")
        );
        let sub = |queue| Op::Subscribe {
            subject: b"a.*",
            queue,
            sid: b"7",
        };
        assert_eq!(op("SUB a.* 7\r\n"), sub(None));
        assert_eq!(op("SUB a.* q 7\r\n"), sub(Some(b"q")));
        assert_eq!(op("UNSUB 7\r\n"), Op::Unsubscribe { sid: b"7", max: 0 });
        assert_eq!(op("UNSUB 7 3\r\n"), Op::Unsubscribe { sid: b"7", max: 3 });
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "GET / HTTP/1.1\r\n",
            "\r\n",
            "PUB\r\n",
            "PUB a\r\n",
            "PUB a b c 5\r\n",
            "PUB a x\r\n",
            "PUB a -1\r\n",
            "PUB a 2\r\nabcd",
            "PUBLISH a 2\r\n",
            "SUB a\r\n",
            "SUB a b c d\r\n",
            "UNSUB\r\n",
            "UNSUB 1 x\r\n",
            "HPUB a 5 3\r\nabc\r\n",
            "HPUB a 3\r\nabc\r\n",
            "+OK\r\n",
            "\0",
            "PUB a 99999999999999999999\r\n",
        ] {
            assert_eq!(one(text), Err(ParseError::Operation), "{text:?}");
        }
    }

    #[test]
    fn limits_are_checked_before_the_payload_arrives() {
        assert_eq!(one("PUB a 33\r\n"), Err(ParseError::Payload));
        assert_eq!(one("PUB a 32\r\n"), Ok(None));
        let long = format!("SUB {} 1\r\n", "x".repeat(64));
        assert_eq!(one(&long), Err(ParseError::ControlLine));
        assert_eq!(one(&"P".repeat(73)), Ok(None));
        assert_eq!(one(&"P".repeat(74)), Err(ParseError::ControlLine));
    }

    #[test]
    fn a_cut_at_any_byte_changes_nothing() {
        let text = b"CONNECT {}\r\nPING\r\nSUB a.> q 12\r\nPUB a.b r 5\r\nhe\r\no\r\nHPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\nUNSUB 12 1\r\n";
        let all = |cuts: &[usize]| {
            let mut parser = Parser::default();
            let (mut seen, mut start) = (Vec::new(), 0);
            for end in cuts.iter().copied().chain([text.len()]) {
                while let Some((op, used)) = parser.next(&text[start..end], &LIMITS).unwrap() {
                    seen.push(format!("{op:?}"));
                    start += used;
                }
                assert!(start == end || parser.need() > end - start);
            }
            assert_eq!(start, text.len());
            seen
        };
        let whole = all(&[]);
        assert_eq!(whole.len(), 6);
        for cut in 0..text.len() {
            assert_eq!(all(&[cut]), whole, "cut at {cut}");
        }
        assert_eq!(all(&(0..text.len()).collect::<Vec<_>>()), whole);
    }
}
