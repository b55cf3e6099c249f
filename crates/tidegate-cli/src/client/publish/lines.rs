//! Reads the lines of an input for `tidegate pub`, on a thread of its own, so that the publisher can send
//! meanwhile. The thread drops each line feed and keeps all other bytes.
//!
//! The thread passes on all complete lines after each read, so that the lines of a slow pipe do not wait for
//! each other.

use std::io::{ErrorKind, Read};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

/// The greatest number of bytes that the reading thread reads at once, as one block of lines.
const READ: usize = 64 << 10;
/// The greatest number of blocks of lines that wait for the publisher, so that a fast input takes little
/// memory. The thread makes about one block of each read.
const AHEAD: usize = 8;

/// A line of the input, which the publisher sends as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line that ended in a line feed; the bytes do not contain the line feed.
    Closed(Bytes),
    /// The last line of the input, which has no line feed at its end.
    Open(Bytes),
    /// The line has more bytes than the server accepts in a message. The thread has not read the line's rest.
    TooLong,
}

enum Part {
    /// Lines that line feeds closed; the bytes contain the line feeds.
    Closed(Bytes),
    Last(Line),
}

/// The publisher's end of the reading thread, which gives out the lines that the thread has read.
pub(super) struct Lines {
    parts: mpsc::Receiver<std::io::Result<Part>>,
    closed: Bytes,
}

impl Lines {
    /// Starts the reading thread. The thread ends at the end of the input, at an error, at a line of more
    /// than `bytes_max` bytes, or once the publisher has dropped the lines.
    pub(super) fn of(input: impl Read + Send + 'static, bytes_max: usize) -> Self {
        let (sender, parts) = mpsc::channel(AHEAD);
        std::thread::spawn(move || {
            if let Err(error) = read(input, bytes_max, &sender) {
                // An error here means only that the caller has dropped the lines and reads no more.
                let _ = sender.blocking_send(Err(error));
            }
        });
        Self {
            parts,
            closed: Bytes::new(),
        }
    }

    /// Returns the next line; `None` at the end of the input. A caller that cancels the wait loses no line.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.closed) {
                let line = self.closed.slice(..end);
                drop(self.closed.split_to(end + 1));
                return Ok(Some(Line::Closed(line)));
            }
            match self.parts.recv().await.transpose()? {
                None => return Ok(None),
                Some(Part::Closed(lines)) => self.closed = lines,
                Some(Part::Last(line)) => return Ok(Some(line)),
            }
        }
    }
}

/// Reads to the end of the input and sends its lines, or stops once the publisher has dropped the lines.
fn read(
    mut input: impl Read,
    bytes_max: usize,
    sender: &mpsc::Sender<std::io::Result<Part>>,
) -> std::io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        let filled = buffer.len();
        buffer.resize(filled + READ, 0);
        let read = loop {
            match input.read(&mut buffer[filled..]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome?,
            }
        };
        buffer.truncate(filled + read);
        let ended = read == 0;
        let mut parts = Vec::new();
        if let Some(last) = memchr::memrchr(b'\n', &buffer[filled..]) {
            parts.push(Part::Closed(buffer.split_to(filled + last + 1).freeze()));
        }
        if buffer.len() > bytes_max {
            parts.push(Part::Last(Line::TooLong));
        } else if ended && !buffer.is_empty() {
            parts.push(Part::Last(Line::Open(std::mem::take(&mut buffer).freeze())));
        }
        let over = ended || matches!(parts.last(), Some(Part::Last(_)));
        for part in parts {
            if sender.blocking_send(Ok(part)).is_err() {
                return Ok(());
            }
        }
        if over {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_byte_but_the_line_feed_is_kept() {
        // Each read of the chained input ends where one of its parts ends, so the test has lines over several
        // reads.
        let input = (&b"one\n\ntw"[..]).chain(&b"o\r\n\xff\x00\n12345\n123456\nop"[..]);
        let mut lines = Lines::of(input.chain(&b"en"[..]), 5);
        for line in [&b"one"[..], b"", b"two\r", b"\xff\x00", b"12345", b"123456"] {
            assert_eq!(
                lines.next().await.unwrap(),
                Some(Line::Closed(Bytes::from(line)))
            );
        }
        let open = Some(Line::Open("open".into()));
        assert_eq!(lines.next().await.unwrap(), open);
        assert_eq!(lines.next().await.unwrap(), None);
        let mut endless = Lines::of(std::io::repeat(b'x'), 5);
        assert_eq!(endless.next().await.unwrap(), Some(Line::TooLong));
        assert_eq!(endless.next().await.unwrap(), None);
    }
}
