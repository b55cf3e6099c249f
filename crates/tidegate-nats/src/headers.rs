//! Reads a message's header block: `NATS/1.0␍␊`, lines `Name: value␍␊`, and an empty line.
//!
//! The header block may hold any bytes. The server reads only the headers that concern streams and tracing,
//! and stores and delivers the block unchanged. It ignores a line without a colon.

use memchr::memchr;

/// Returns the value of the first header with exactly this name, in the same case; `None` if the block has no
/// such header. Trims blanks around the value.
#[must_use]
pub fn get<'a>(block: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    lines(block).find_map(|(_, n, value)| (n == name).then_some(value))
}

/// Returns whether a message with the header block `block` asks only for a trace of its route, so that the
/// server must not deliver the message.
#[must_use]
pub fn asks_only_for_trace(block: &[u8]) -> bool {
    // The function first searches all bytes of the block for the header's name, which costs less than
    // splitting the lines. Nearly no message has the header.
    memchr::memmem::find(block, TRACE_ONLY).is_some()
        && get(block, TRACE_ONLY).is_some_and(|value| {
            [&b"1"[..], b"true", b"on"]
                .iter()
                .any(|on| value.eq_ignore_ascii_case(on))
        })
}

/// The name of the header with which a client asks the server to trace a message's route and not to deliver
/// the message, in nats-server's spelling.
const TRACE_ONLY: &[u8] = b"Nats-Trace-Only";

/// Returns `block` without the headers of this name; `None` if the block has no such header.
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

/// Iterates over the headers of `block`. Each item is the range of the header's line in `block`, the header's
/// name, and its value.
pub fn lines(block: &[u8]) -> impl Iterator<Item = (std::ops::Range<usize>, &[u8], &[u8])> {
    // The first line holds the protocol's version and an optional status, but no header.
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
    fn only_traced() {
        let with =
            |line: &str| asks_only_for_trace(format!("NATS/1.0\r\n{line}\r\n\r\n").as_bytes());
        for line in ["true", "TRUE", "1", "on"] {
            assert!(with(&format!("A: b\r\nNats-Trace-Only: {line}")), "{line}");
        }
        for line in [
            "Nats-Trace-Only: false",
            "Nats-Trace-Only:",
            "nats-trace-only: true",
            "A: Nats-Trace-Only: true",
            "Nats-Trace-Dest: x",
        ] {
            assert!(!with(line), "{line}");
        }
        assert!(!asks_only_for_trace(b""));
    }

    #[test]
    fn left_out() {
        let block = b"NATS/1.0\r\nA: b\r\nB: c\r\nA: d\r\n\r\n";
        assert_eq!(without(block, b"A").unwrap(), b"NATS/1.0\r\nB: c\r\n\r\n");
        assert_eq!(without(block, b"C"), None);
    }
}
