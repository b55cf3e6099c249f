//! The codec of RESP, Redis's protocol: it encodes commands into a connection's buffer, and decodes replies
//! in the read buffer.
//!
//! This module handles the versions RESP2 and RESP3. It decodes simple strings, errors, integers, bulks
//! (strings of bytes) and nulls itself: it copies short bulks out of the read buffer, and reads long ones
//! into memory of their own. For nested replies it only measures the length, with a scanner that bounds the
//! depth and the bytes and resumes at the byte where it stopped; `nested` then builds the values.
//! [`FromReply`](crate::FromReply) gives replies their meaning.
//!
//! Invariants: no bytes from a server cause a panic; no announced length alone determines the
//! size of an allocation.

use bytes::Bytes;

use crate::nested;
use crate::reply::{ServerError, Value};

/// Appends the RESP header of a command that has `args` arguments, its name included, before these arguments.
pub(crate) fn put_header(out: &mut Vec<u8>, args: u32) {
    out.push(b'*');
    out.extend_from_slice(itoa::Buffer::new().format(args).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends one argument as a RESP bulk string.
pub(crate) fn put_bulk(out: &mut Vec<u8>, arg: &[u8]) {
    out.reserve(arg.len() + 16);
    put_bulk_header(out, arg.len());
    out.extend_from_slice(arg);
    out.extend_from_slice(b"\r\n");
}

/// Appends the RESP header of an argument of `len` bytes, before these bytes.
pub(crate) fn put_bulk_header(out: &mut Vec<u8>, len: usize) {
    match len {
        n @ 0..=9 => out.extend_from_slice(&[b'$', b'0' + n as u8, b'\r', b'\n']),
        n => {
            out.push(b'$');
            out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The limits on the size of a reply that the decoder accepts, so that a server cannot fill the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The greatest number of bytes of one reply, with all its nested replies; a larger reply is an error.
    pub(crate) reply_bytes_max: usize,
}

/// The greatest number of levels of a nested reply, which bounds the decoder's recursion. Redis sends at most
/// a handful.
pub(crate) const DEPTH_MAX: usize = 32;
/// The greatest number of bytes of one line of a reply, so that the decoder does not wait for an endless
/// line: of a line that announces a length, of a number, a simple string or an error.
const LINE_MAX: usize = 64 << 10;
/// The capacity of the read buffer in bytes, which is the greatest number of bytes that one read returns.
const BUFFER: usize = 64 << 10;
/// The length, in bytes, from which the decoder reads a bulk into memory of its own, and hands it on without
/// a copy.
const LARGE: usize = 16 << 10;
/// The greatest number of bytes of memory that the decoder allocates for an announced bulk before the bulk's
/// bytes arrive, because a server may announce more than it sends.
const LARGE_STEP: usize = 1 << 20;

/// The errors of bytes that are no RESP reply. The client cannot use the connection any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A reply begins with this byte, which stands for no type of RESP.
    UnknownType(u8),
    /// A length or a number in a reply is malformed.
    BadNumber,
    /// A line or a bulk in a reply does not end in CR LF.
    BadEnd,
    /// A line of a reply is longer than the decoder accepts, 64 KiB.
    LineTooLong,
    /// A nested reply has more levels than the decoder accepts, 32; Redis sends at most a handful.
    TooDeep,
    /// A reply is larger than the bound that the program configured.
    TooLarge,
    /// A reply came that no command asked for.
    Unasked,
    /// A reply has a form that Redis never sends: a streamed reply, an attribute inside of a reply, a
    /// malformed double or boolean.
    Unsupported,
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownType(byte) => write!(
                f,
                "expected a RESP reply, got one beginning with byte 0x{byte:02x}: is this port a Redis server's, and is TLS set on both sides or on none"
            ),
            Self::BadNumber => f.write_str("expected a number in a RESP reply, got something else"),
            Self::BadEnd => f.write_str("expected CR LF at the end of a RESP line or bulk"),
            Self::LineTooLong => write!(f, "expected a RESP line of at most {LINE_MAX} bytes"),
            Self::TooDeep => write!(f, "expected a reply of at most {DEPTH_MAX} levels"),
            Self::TooLarge => f.write_str("the reply is larger than the configured bound: raise reply_bytes_max or ask for less"),
            Self::Unasked => f.write_str("the server sent a reply that no command asked for"),
            Self::Unsupported => f.write_str("expected a reply Redis sends, got a streamed, attributed or malformed one"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Decodes the bytes that a connection reads into replies. The driver feeds the decoder through
/// [`space`](Self::space) and [`filled`](Self::filled), then calls [`next`](Self::next) until that returns
/// `None`.
#[derive(Debug)]
pub(crate) struct Decoder {
    buf: Vec<u8>,
    start: usize,
    end: usize,
    large: Option<Large>,
    scan: Scan,
    limits: Limits,
}

/// A long bulk that the decoder reads into memory of its own, to hand it on without a copy: its bytes and the
/// CR LF after them.
#[derive(Debug)]
struct Large {
    buf: Vec<u8>,
    filled: usize,
    len: usize,
}

/// The state of the scanner that measures a nested reply as its bytes arrive, so that it can go on where it
/// stopped.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    /// The number of elements still to come, for each open level of nesting.
    stack: Vec<u64>,
    active: bool,
    /// True if the decoder measures an attribute, which describes the next reply. The decoder drops
    /// attributes.
    attribute: bool,
}

enum Progress {
    Done,
    More,
}

impl Decoder {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            buf: vec![0; BUFFER],
            start: 0,
            end: 0,
            large: None,
            scan: Scan::default(),
            limits,
        }
    }

    /// Returns the part of the buffer for the next bytes; it is never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if let Some(large) = &mut self.large {
            let whole = large.len + 2;
            if large.filled == large.buf.len() && large.filled < whole {
                let more = large.buf.len().max(LARGE_STEP);
                large.buf.resize((large.filled + more).min(whole), 0);
            }
            if large.filled < whole {
                return &mut large.buf[large.filled..];
            }
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buf.len() > 16 * BUFFER {
                self.buf = vec![0; BUFFER];
            }
        }
        if self.buf.len() - self.end < BUFFER / 4 && self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buf.len() {
            let doubled = self.buf.len() * 2;
            self.buf.resize(doubled, 0);
        }
        &mut self.buf[self.end..]
    }

    /// Records that the driver put `n` bytes into the buffer from [`space`](Self::space), for the decoder to
    /// decode.
    pub(crate) fn filled(&mut self, n: usize) {
        match &mut self.large {
            Some(large) if large.filled < large.len + 2 => large.filled += n,
            _ => self.end += n,
        }
    }

    /// Returns whether the decoder holds a part of a reply that has not arrived completely, so that the end
    /// of the connection here is an error.
    pub(crate) fn is_midway(&self) -> bool {
        self.large.is_some() || self.start < self.end
    }

    /// Returns the next whole reply, or `None` if more bytes must be read first.
    pub(crate) fn next(&mut self) -> Result<Option<Value>, ProtocolError> {
        if let Some(large) = &self.large {
            return if large.filled == large.len + 2 {
                self.take_large().map(Some)
            } else {
                Ok(None)
            };
        }
        loop {
            if self.scan.active {
                match self.scan_on()? {
                    Progress::More => return Ok(None),
                    Progress::Done if self.scan.attribute => {
                        self.start += self.scan.at;
                        self.scan.active = false;
                        continue;
                    }
                    Progress::Done => return self.take_nested().map(Some),
                }
            }
            let data = &self.buf[self.start..self.end];
            let Some(&kind) = data.first() else {
                return Ok(None);
            };
            match kind {
                b'*' | b'%' | b'~' | b'>' | b'|' | b'!' | b'=' => {
                    self.scan.at = 0;
                    self.scan.stack.clear();
                    self.scan.active = true;
                    self.scan.attribute = kind == b'|';
                }
                b'$' => return self.bulk(),
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => return self.line(kind),
                other => return Err(ProtocolError::UnknownType(other)),
            }
        }
    }

    fn line(&mut self, kind: u8) -> Result<Option<Value>, ProtocolError> {
        let data = &self.buf[self.start..self.end];
        let Some(len) = line_len(data)? else {
            return Ok(None);
        };
        let body = &data[1..len];
        let value = match (kind, body) {
            (b'+', b"OK") => Value::Simple(Bytes::from_static(b"OK")),
            (b':', _) => Value::Int(int(body)?),
            _ => line_value(kind, Bytes::copy_from_slice(body))?,
        };
        self.start += len + 2;
        Ok(Some(value))
    }

    fn bulk(&mut self) -> Result<Option<Value>, ProtocolError> {
        let data = &self.buf[self.start..self.end];
        let Some(head) = line_len(data)? else {
            return Ok(None);
        };
        let Some(len) = length(&data[1..head])? else {
            self.start += head + 2;
            return Ok(Some(Value::Nil));
        };
        if len > self.limits.reply_bytes_max as u64 {
            return Err(ProtocolError::TooLarge);
        }
        let (body, len) = (head + 2, len as usize);
        if len >= LARGE && data.len() < body + len + 2 {
            let here = &data[body..];
            let mut buf = Vec::with_capacity((len + 2).min(LARGE_STEP.max(here.len())));
            buf.extend_from_slice(here);
            let filled = buf.len();
            buf.resize(buf.capacity().min(len + 2), 0);
            self.large = Some(Large { buf, filled, len });
            (self.start, self.end) = (0, 0);
            return Ok(None);
        }
        if data.len() < body + len + 2 {
            return Ok(None);
        }
        if &data[body + len..body + len + 2] != b"\r\n" {
            return Err(ProtocolError::BadEnd);
        }
        let bytes = Bytes::copy_from_slice(&data[body..body + len]);
        self.start += body + len + 2;
        Ok(Some(Value::Bulk(bytes)))
    }

    fn take_large(&mut self) -> Result<Value, ProtocolError> {
        let Some(mut large) = self.large.take() else {
            return Err(ProtocolError::Unsupported);
        };
        if &large.buf[large.len..] != b"\r\n" {
            return Err(ProtocolError::BadEnd);
        }
        large.buf.truncate(large.len);
        Ok(Value::Bulk(Bytes::from(large.buf)))
    }

    fn take_nested(&mut self) -> Result<Value, ProtocolError> {
        let end = self.start + self.scan.at;
        let frame = Bytes::copy_from_slice(&self.buf[self.start..end]);
        self.start = end;
        self.scan.active = false;
        nested::build(&frame)
    }

    /// Continues to measure the nested reply at the start of the buffer, from the byte at which the scanner
    /// stopped.
    fn scan_on(&mut self) -> Result<Progress, ProtocolError> {
        let data = &self.buf[self.start..self.end];
        let scan = &mut self.scan;
        loop {
            if scan.at > self.limits.reply_bytes_max {
                return Err(ProtocolError::TooLarge);
            }
            let Some(rest) = data.get(scan.at..).filter(|r| !r.is_empty()) else {
                return Ok(Progress::More);
            };
            let Some(len) = line_len(rest)? else {
                return Ok(Progress::More);
            };
            // An empty line has no type byte, so it is no RESP reply.
            let Some(body) = rest[..len].get(1..) else {
                return Err(ProtocolError::UnknownType(rest[0]));
            };
            let top = scan.at == 0;
            let mut children = None;
            let mut next = scan.at + len + 2;
            match rest[0] {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
                b'$' | b'!' | b'=' => {
                    if let Some(n) = length(body)? {
                        if n > self.limits.reply_bytes_max as u64 {
                            return Err(ProtocolError::TooLarge);
                        }
                        let end = next + n as usize;
                        if data.len() < end + 2 {
                            return Ok(Progress::More);
                        }
                        if &data[end..end + 2] != b"\r\n" {
                            return Err(ProtocolError::BadEnd);
                        }
                        next = end + 2;
                    }
                }
                b'*' | b'~' => children = length(body)?,
                b'>' if top => children = length(body)?,
                b'%' => children = length(body)?.map(|n| n.saturating_mul(2)),
                b'|' if top => children = length(body)?.map(|n| n.saturating_mul(2)),
                b'>' | b'|' => return Err(ProtocolError::Unsupported),
                other => return Err(ProtocolError::UnknownType(other)),
            }
            scan.at = next;
            match children {
                Some(n) if n > 0 => {
                    // An element has at least three bytes, so a longer list exceeds the bound on the bytes of
                    // a reply.
                    if n > self.limits.reply_bytes_max as u64 / 3 {
                        return Err(ProtocolError::TooLarge);
                    }
                    if scan.stack.len() == DEPTH_MAX {
                        return Err(ProtocolError::TooDeep);
                    }
                    scan.stack.push(n);
                }
                _ => {
                    while let Some(left) = scan.stack.last_mut() {
                        *left -= 1;
                        if *left > 0 {
                            break;
                        }
                        scan.stack.pop();
                    }
                }
            }
            if scan.stack.is_empty() {
                return Ok(Progress::Done);
            }
        }
    }
}

/// Decodes the whole replies at the start of `wire`, in RESP2 or RESP3, and ignores an incomplete reply at
/// the end. For tools that read captured traffic: a client decodes while it reads.
///
/// # Errors
/// Bytes that are no reply of Redis.
pub fn decode(wire: &[u8]) -> Result<Vec<Value>, ProtocolError> {
    let limits = Limits {
        reply_bytes_max: wire.len(),
    };
    let mut decoder = Decoder::new(limits);
    let mut values = Vec::new();
    let mut rest = wire;
    loop {
        while let Some(value) = decoder.next()? {
            values.push(value);
        }
        if rest.is_empty() {
            return Ok(values);
        }
        let space = decoder.space();
        let n = rest.len().min(space.len());
        space[..n].copy_from_slice(&rest[..n]);
        decoder.filled(n);
        rest = &rest[n..];
    }
}

/// Builds the value of a reply that is one line, from its type and the rest of the line.
pub(crate) fn line_value(kind: u8, body: Bytes) -> Result<Value, ProtocolError> {
    Ok(match kind {
        b'+' => Value::Simple(body),
        b':' => Value::Int(int(&body)?),
        b'-' => Value::Error(ServerError::parse(&body)),
        b'_' if body.is_empty() => Value::Nil,
        b'#' if *body == *b"t" || *body == *b"f" => Value::Bool(*body == *b"t"),
        b',' => Value::Double(double(&body)?),
        b'(' if is_big_number(&body) => Value::BigNumber(body),
        _ => return Err(ProtocolError::Unsupported),
    })
}

/// Returns the length of the line at the start of `data` without its CR LF; `None` until the
/// line is complete.
pub(crate) fn line_len(data: &[u8]) -> Result<Option<usize>, ProtocolError> {
    match data.iter().take(LINE_MAX + 2).position(|&b| b == b'\r') {
        Some(at) if at > LINE_MAX => Err(ProtocolError::LineTooLong),
        Some(at) => match data.get(at + 1) {
            None => Ok(None),
            Some(b'\n') => Ok(Some(at)),
            Some(_) => Err(ProtocolError::BadEnd),
        },
        None if data.len() > LINE_MAX => Err(ProtocolError::LineTooLong),
        None => Ok(None),
    }
}

/// Parses the length that a bulk, a list or a map announces; `None` for -1, the null of RESP2.
pub(crate) fn length(body: &[u8]) -> Result<Option<u64>, ProtocolError> {
    match int(body)? {
        -1 => Ok(None),
        n => u64::try_from(n)
            .map(Some)
            .map_err(|_| ProtocolError::BadNumber),
    }
}

fn int(body: &[u8]) -> Result<i64, ProtocolError> {
    let (negative, digits) = match body {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, body),
    };
    if digits.is_empty() || digits.len() > 19 {
        return Err(ProtocolError::BadNumber);
    }
    // The digits are summed up below zero, because `i64` holds one more negative number than positive
    // numbers.
    let mut n: i64 = 0;
    for &d in digits {
        if !d.is_ascii_digit() {
            return Err(ProtocolError::BadNumber);
        }
        n = n
            .checked_mul(10)
            .and_then(|n| n.checked_sub(i64::from(d - b'0')))
            .ok_or(ProtocolError::BadNumber)?;
    }
    if negative {
        Ok(n)
    } else {
        n.checked_neg().ok_or(ProtocolError::BadNumber)
    }
}

fn double(body: &[u8]) -> Result<f64, ProtocolError> {
    std::str::from_utf8(body)
        .ok()
        .filter(|s| {
            s.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        })
        .and_then(|s| s.parse().ok())
        .ok_or(ProtocolError::Unsupported)
}

fn is_big_number(body: &[u8]) -> bool {
    let digits = body
        .strip_prefix(b"-")
        .or_else(|| body.strip_prefix(b"+"))
        .unwrap_or(body);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests;
