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
    /// The subject to which the servers report the message's path; `None` if the header names a subject to
    /// which no client can publish, so that there are no reports.
    pub to: Option<&'a [u8]>,
    /// True if the servers must neither deliver nor store the message.
    pub only: bool,
}

/// Returns the request for a trace in the header block `block`; `None` if the block has no such request, or
/// if another server has turned it off.
#[must_use]
pub fn trace_of(block: &[u8]) -> Option<TraceRequest<'_>> {
    // The function first searches all bytes of the block for the header's name, which costs less than
    // splitting the lines. Nearly no message has the header.
    memchr::memmem::find(block, TRACE_TO)?;
    let to = get(block, TRACE_TO).filter(|to| !to.is_empty() && *to != TRACE_OFF)?;
    let only = get(block, TRACE_ONLY).is_some_and(|value| {
        [&b"1"[..], b"true", b"on"]
            .iter()
            .any(|on| value.eq_ignore_ascii_case(on))
    });
    let to = Some(to).filter(|to| crate::subject::is_literal(to));
    Some(TraceRequest { to, only })
}

/// The names of the headers with which a client asks for a trace of a message's path, in nats-server's
/// spelling.
const TRACE_TO: &[u8] = b"Nats-Trace-Dest";
const TRACE_ONLY: &[u8] = b"Nats-Trace-Only";
/// The value of `Nats-Trace-Dest` with which a nats-server passes on a message that it does not trace.
const TRACE_OFF: &[u8] = b"trace disabled";

/// The place in a trace at which a client publishes a message, as W3C Trace Context has it in the header
/// `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The number of the trace; it is not zero.
    pub trace_id: [u8; 16],
    /// The number of the client's own span, to which the server's span belongs; it is not zero.
    pub span_id: [u8; 8],
    /// True if the client records the trace.
    pub is_sampled: bool,
}

/// Returns the place in a trace that the header block `block` names; `None` if it names none, or in a form
/// that Trace Context does not allow.
#[must_use]
pub fn trace_parent(block: &[u8]) -> Option<TraceParent> {
    // As in `trace_of`, a search of all bytes comes first. Libraries also write the name with a capital.
    memchr::memmem::find(block, &TRACE_PARENT[1..])?;
    let mut all = lines(block);
    let (_, _, value) = all.find(|(_, name, _)| name.eq_ignore_ascii_case(TRACE_PARENT))?;
    let mut parts = value.splitn(5, |b| *b == b'-');
    let mut next = || parts.next();
    let (version, trace, span, flags) = (next()?, next()?, next()?, next()?);
    let [version] = from_hex(version)?;
    // Version 0 has four parts. Later versions may have more behind these, and version 255 is forbidden.
    if version == 0xff || version == 0 && next().is_some() {
        return None;
    }
    let [flags] = from_hex(flags)?;
    let parent = TraceParent {
        trace_id: from_hex(trace)?,
        span_id: from_hex(span)?,
        is_sampled: flags & 1 == 1,
    };
    (parent.trace_id != [0; 16] && parent.span_id != [0; 8]).then_some(parent)
}

const TRACE_PARENT: &[u8] = b"traceparent";

/// Reads bytes from lower-case hexadecimal digits, two for each.
fn from_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = 16 * digit(pair[0])? + digit(pair[1])?;
    }
    Some(bytes)
}

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
            trace_of(block.as_bytes()).map(|t| (t.to.map(<[u8]>::to_vec), t.only))
        };
        let to = |only| Some((Some(b"t.x".to_vec()), only));
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
            "Nats-Trace-Dest:\r\nNats-Trace-Only: true",
            "Nats-Trace-Dest: trace disabled\r\nNats-Trace-Only: true",
            "nats-trace-dest: t.x",
            "A: Nats-Trace-Dest: t.x",
        ] {
            assert_eq!(with(lines), None, "{lines}");
        }
        for dest in ["a.*", ">", "a..b", "a b"] {
            let lines = format!("Nats-Trace-Dest: {dest}");
            assert_eq!(with(&lines), Some((None, false)), "{dest}");
            let lines = format!("{lines}\r\nNats-Trace-Only: 1");
            assert_eq!(with(&lines), Some((None, true)), "{dest}");
        }
        assert_eq!(trace_of(b""), None);
    }

    #[test]
    fn places_in_traces() {
        let with = |line: &str| trace_parent(format!("NATS/1.0\r\n{line}\r\n\r\n").as_bytes());
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let parent = with(&format!("A: b\r\ntraceparent: 00-{trace}-{span}-01")).unwrap();
        assert_eq!(parent.trace_id[..3], [0x4b, 0xf9, 0x2f]);
        assert_eq!(
            parent.span_id,
            [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]
        );
        assert!(parent.is_sampled);
        let again = with(&format!("Traceparent:00-{trace}-{span}-02"));
        assert!(!again.unwrap().is_sampled);
        assert!(with(&format!("traceparent: 01-{trace}-{span}-01-more-and-more")).is_some());
        let zero = "0".repeat(32);
        for wrong in [
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{zero}-{span}-01"),
            format!("00-{trace}-{}-01", &zero[..16]),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", &trace[1..]),
            format!("00-{trace}-{span}-1"),
            format!("00-{trace}-{span}-0g"),
            String::new(),
        ] {
            assert_eq!(with(&format!("traceparent: {wrong}")), None, "{wrong}");
        }
        assert_eq!(with(&format!("x-traceparent: 00-{trace}-{span}-01")), None);
        assert_eq!(trace_parent(b""), None);
    }

    #[test]
    fn left_out() {
        let block = b"NATS/1.0\r\nA: b\r\nB: c\r\nA: d\r\n\r\n";
        assert_eq!(without(block, b"A").unwrap(), b"NATS/1.0\r\nB: c\r\n\r\n");
        assert_eq!(without(block, b"C"), None);
    }
}
