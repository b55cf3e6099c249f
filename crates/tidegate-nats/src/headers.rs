//! Reads a message's header block: `NATS/1.0␍␊`, lines `Name: value␍␊`, and an empty line.
//!
//! The header block may hold any bytes. The server reads only the headers that concern streams and tracing,
//! and stores and delivers the block unchanged. A line without a colon is no header, and the reader skips
//! it.

use memchr::memchr;

/// Returns the value of the first header with exactly this name, in the same case; `None` if the block has
/// no such header. Trims blanks around the value, because clients may write them.
#[must_use]
pub fn get<'a>(block: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    lines(block).find_map(|(_, n, value)| (n == name).then_some(value))
}

/// A request for a trace in the headers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest<'a> {
    /// The subject to which the servers report the message's path.
    pub to: &'a [u8],
    /// True if the servers must neither deliver nor store the message.
    pub only: bool,
}

/// Returns the request for a trace in the header block `block`; `None` if the block has no such request, or
/// one for reports to a subject that is none.
#[must_use]
pub fn trace_of(block: &[u8]) -> Option<TraceRequest<'_>> {
    // The function first searches all bytes of the block for the header's name, which costs less than
    // splitting the lines. Nearly no message has the header.
    memchr::memmem::find(block, TRACE_TO)?;
    let to = get(block, TRACE_TO).filter(|to| crate::subject::is_literal(to))?;
    let only = get(block, TRACE_ONLY).is_some_and(|value| {
        [&b"1"[..], b"true", b"on"]
            .iter()
            .any(|on| value.eq_ignore_ascii_case(on))
    });
    Some(TraceRequest { to, only })
}

/// The names of the headers with which a client asks for a trace of a message's path, in nats-server's
/// spelling.
const TRACE_TO: &[u8] = b"Nats-Trace-Dest";
const TRACE_ONLY: &[u8] = b"Nats-Trace-Only";

/// Returns a copy of `block` without the headers of this name, before the server delivers the message;
/// `None` if the block has no such header.
#[must_use]
pub fn without(block: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    get(block, name)?;
    let mut left = Vec::with_capacity(block.len());
    let mut kept = 0;
    for (line, n, _) in lines(block) {
        if n == name {
            left.extend_from_slice(&block[kept..line.start]);
            kept = line.end;
        }
    }
    left.extend_from_slice(&block[kept..]);
    Some(left)
}

/// Iterates over the headers of `block`. Each item is the range of the header's line in `block`, so that a
/// caller can cut the line out, the header's name, and its value.
pub fn lines(block: &[u8]) -> impl Iterator<Item = (std::ops::Range<usize>, &[u8], &[u8])> {
    // The iterator begins behind the first line, because that line holds the protocol's version and an
    // optional status, but no header.
    let mut at = memchr(b'\n', block).map_or(block.len(), |i| i + 1);
    std::iter::from_fn(move || {
        loop {
            let rest = block.get(at..).filter(|rest| !rest.is_empty())?;
            let start = at;
            let end = memchr(b'\n', rest).map_or(block.len(), |i| at + i + 1);
            at = end;
            let line = block[start..end].trim_ascii_end();
            if let Some(colon) = memchr(b':', line) {
                return Some((start..end, &line[..colon], line[colon + 1..].trim_ascii()));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found() {
        let block = b"NATS/1.0\r\nA: b\r\nNats-Msg-Id:  x y \r\nA: c\r\nEmpty:\r\nno colon\r\n\r\n";
        assert_eq!(get(block, b"A"), Some(&b"b"[..]));
        assert_eq!(get(block, b"Nats-Msg-Id"), Some(&b"x y"[..]));
        assert_eq!(get(block, b"Empty"), Some(&b""[..]));
        assert_eq!(get(block, b"a"), None);
        assert_eq!(get(block, b"Nats"), None);
        assert_eq!(lines(block).count(), 4);
    }

    #[test]
    fn broken_blocks_hold_what_they_hold() {
        for block in [
            &b""[..],
            b"\n",
            b"NATS/1.0",
            b"NATS/1.0\r\nA",
            b"NATS/1.0\r\n\r\n",
        ] {
            assert_eq!(get(block, b"A"), None);
            assert_eq!(without(block, b"A"), None);
        }
        assert_eq!(get(b"NATS/1.0\r\nA:b", b"A"), Some(&b"b"[..]));
    }

    #[test]
    fn traced() {
        let with = |lines: &str| {
            let block = format!("NATS/1.0\r\n{lines}\r\n\r\n");
            trace_of(block.as_bytes()).map(|t| (t.to.to_vec(), t.only))
        };
        let to = |only| Some((b"t.x".to_vec(), only));
        for line in ["true", "TRUE", "1", "on"] {
            let lines = format!("A: b\r\nNats-Trace-Dest: t.x\r\nNats-Trace-Only: {line}");
            assert_eq!(with(&lines), to(true), "{line}");
        }
        assert_eq!(with("Nats-Trace-Dest: t.x"), to(false));
        assert_eq!(
            with("Nats-Trace-Dest: t.x\r\nNats-Trace-Only: false"),
            to(false)
        );
        for lines in [
            "Nats-Trace-Only: true",
            "Nats-Trace-Dest: a.*",
            "Nats-Trace-Dest:",
            "nats-trace-dest: t.x",
            "A: Nats-Trace-Dest: t.x",
        ] {
            assert_eq!(with(lines), None, "{lines}");
        }
        assert_eq!(trace_of(b""), None);
    }

    #[test]
    fn left_out() {
        let block = b"NATS/1.0\r\nA: b\r\nB: c\r\nA: d\r\n\r\n";
        assert_eq!(without(block, b"A").unwrap(), b"NATS/1.0\r\nB: c\r\n\r\n");
        assert_eq!(without(block, b"C"), None);
    }
}
