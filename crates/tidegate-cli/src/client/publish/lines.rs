//! Reads the lines of an input one after the other. Drops each line feed and keeps all other bytes.

use std::io::{BufRead, Read as _};

/// The outcome of reading a line into the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line feed closed the line; the buffer does not contain it.
    Closed,
    /// The input ended without a line feed.
    Open,
    /// The line has more bytes than the caller allows; the rest is unread.
    TooLong,
    /// The input has no more lines.
    End,
}

/// Reads the next line of at most `bytes_max` bytes.
pub(super) fn read(
    input: &mut dyn BufRead,
    line: &mut Vec<u8>,
    bytes_max: usize,
) -> std::io::Result<Line> {
    line.clear();
    // One byte more than the limit, and the line feed, are enough to recognise a line that is too long.
    let got = input.take(bytes_max as u64 + 2).read_until(b'\n', line)?;
    if got == 0 {
        return Ok(Line::End);
    }
    let closed = line.last() == Some(&b'\n');
    if closed {
        line.pop();
    }
    Ok(match closed {
        _ if line.len() > bytes_max => Line::TooLong,
        true => Line::Closed,
        false => Line::Open,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_but_the_line_feed_is_kept() {
        let mut input: &[u8] = b"one\n\ntwo\r\n\xff\x00\n12345\n123456\nopen";
        let mut line = Vec::new();
        let mut next = |input: &mut &[u8]| {
            let kind = read(input, &mut line, 5).unwrap();
            (kind, line.clone())
        };
        assert_eq!(next(&mut input), (Line::Closed, b"one".to_vec()));
        assert_eq!(next(&mut input), (Line::Closed, b"".to_vec()));
        assert_eq!(next(&mut input), (Line::Closed, b"two\r".to_vec()));
        assert_eq!(next(&mut input), (Line::Closed, b"\xff\x00".to_vec()));
        assert_eq!(next(&mut input), (Line::Closed, b"12345".to_vec()));
        assert_eq!(next(&mut input).0, Line::TooLong);
        let mut input: &[u8] = b"open";
        assert_eq!(next(&mut input), (Line::Open, b"open".to_vec()));
        assert_eq!(next(&mut input).0, Line::End);
        let mut endless: &[u8] = &[b'x'; 100];
        assert_eq!(next(&mut endless).0, Line::TooLong);
        assert_eq!(endless.len(), 93);
    }
}
