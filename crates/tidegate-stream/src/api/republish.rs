//! Writes the headers of a message that the leader publishes again for a stream, so that subscribers can tell
//! the stream's state from them.

use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

/// The facts about a stored message that its subscribers get as headers when the leader publishes it again.
#[derive(Clone, Copy, Debug)]
pub struct Republication<'a> {
    /// The name of the stream that stored the message.
    pub stream: &'a str,
    /// The subject under which the stream has stored the message, because the leader may publish it to
    /// another subject.
    pub subject: &'a [u8],
    /// The number of the message in the stream, by which a subscriber can read it there.
    pub seq: StreamSeq,
    /// The time at which the stream stored the message, in microseconds since 1970, as the stream has it.
    pub time_us: u64,
    /// The number of the subject's message before this one; 0 if this is the first one. A subscriber that has
    /// not received that message has missed it.
    pub last: StreamSeq,
    /// The message's own headers; empty if it has none. They come before the headers of the stream.
    pub headers: &'a [u8],
    /// The size of the payload in bytes, if the leader publishes only headers, so that a subscriber knows the
    /// size.
    pub bytes: Option<usize>,
}

impl Republication<'_> {
    /// Writes the message's own headers, followed by those of the stream. The names are nats-server's,
    /// because subscribers know them.
    pub fn write(&self, block: &mut Vec<u8>) {
        let own = self.headers.strip_suffix(b"\r\n");
        block.extend_from_slice(own.unwrap_or(b"NATS/1.0\r\n"));
        let mut line = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                block.extend_from_slice(part);
            }
        };
        line("Nats-Stream", self.stream.as_bytes());
        line("Nats-Subject", self.subject);
        line("Nats-Sequence", self.seq.get().to_string().as_bytes());
        let time = Timestamp::from_micros(self.time_us).to_string();
        line("Nats-Time-Stamp", time.as_bytes());
        line("Nats-Last-Sequence", self.last.get().to_string().as_bytes());
        if let Some(bytes) = self.bytes {
            line("Nats-Msg-Size", bytes.to_string().as_bytes());
        }
        block.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(headers: &[u8], bytes: Option<usize>) -> String {
        let message = Republication {
            stream: "S",
            subject: b"s.a",
            seq: StreamSeq::new(7),
            time_us: 1_500_000,
            last: StreamSeq::new(3),
            headers,
            bytes,
        };
        let mut block = Vec::new();
        message.write(&mut block);
        String::from_utf8(block).unwrap()
    }

    #[test]
    fn the_streams_headers_follow_those_of_the_message() {
        let own = "Nats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 7\r\n\
                   Nats-Time-Stamp: 1970-01-01T00:00:01.5Z\r\nNats-Last-Sequence: 3\r\n";
        assert_eq!(written(b"", None), format!("NATS/1.0\r\n{own}\r\n"));
        let with = written(b"NATS/1.0\r\nA: b\r\n\r\n", Some(12));
        let expected = format!("NATS/1.0\r\nA: b\r\n{own}Nats-Msg-Size: 12\r\n\r\n");
        assert_eq!(with, expected);
    }
}
