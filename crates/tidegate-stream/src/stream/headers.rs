//! The headers of a published message by which the publisher asks the stream for something, such as a time to
//! live or a check of the last message's number.
//!
//! The parser reads the header block once, looks for the names that a stream knows, and ignores all other
//! headers, even malformed ones. As in nats-server, so that clients get the results that they know, the case
//! of names matters, the first of several headers with one name counts, and an empty value counts as missing.

use crate::consumer::duration;

/// The headers of a published message by which the publisher asks the stream for something, such as a time to
/// live or a check of the last message's number. A field is `None` if the publisher has left the header out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// `Nats-Msg-Id`: the id of the message, by which the stream recognises a message that its publisher
    /// sends twice.
    pub msg_id: Option<&'a [u8]>,
    /// `Nats-Expected-Stream`: the name of the stream that the publisher expects to store the message;
    /// another stream refuses the message.
    pub expected_stream: Option<&'a [u8]>,
    /// `Nats-Expected-Last-Msg-Id`: the id that the stream's last message must have; otherwise the stream
    /// refuses this message.
    pub expected_last_msg_id: Option<&'a [u8]>,
    /// `Nats-Expected-Last-Sequence`: the number that the stream's last message must have; otherwise the
    /// stream refuses this message.
    pub expected_last_seq: Option<&'a [u8]>,
    /// `Nats-Expected-Last-Subject-Sequence`: the number that the last message of the subject must have;
    /// otherwise the stream refuses this message.
    pub expected_last_subject_seq: Option<&'a [u8]>,
    /// `Nats-Expected-Last-Subject-Sequence-Subject`: the subject, or pattern, to which the expected number
    /// refers, in place of the message's own subject. A publisher can so depend on another subject.
    pub expected_subject: Option<&'a [u8]>,
    /// `Nats-Rollup`: the older messages that this message replaces, of its subject (`sub`) or all (`all`).
    /// The stream removes them.
    pub rollup: Option<&'a [u8]>,
    /// `Nats-TTL`: the time after which the publisher wants the stream to remove the message.
    pub ttl: Option<&'a [u8]>,
    /// `Nats-Marker-Reason`: tells consumers that the message is a marker, and why the messages of its
    /// subject are gone.
    pub marker_reason: Option<&'a [u8]>,
    /// `KV-Operation`: the operation of a key-value client; `PURGE` makes the message a marker, which leaves
    /// no further marker when it expires.
    pub kv_operation: Option<&'a [u8]>,
    /// `Nats-Incr`: the amount that the message adds to a counter. This server refuses counters, and the
    /// publisher gets an error.
    pub incr: Option<&'a [u8]>,
    /// `Nats-Schedule`: the schedule by which the publisher wants the server to publish the message. This
    /// server refuses schedules, and the publisher gets an error.
    pub schedule: Option<&'a [u8]>,
}

impl<'a> Asked<'a> {
    /// Reads, from a message's header block, the headers by which the publisher asks the stream for
    /// something, so that the stream can check and obey them.
    #[must_use]
    pub fn read(block: &'a [u8]) -> Self {
        let mut asked = Self::default();
        for line in lines(block) {
            let Some(colon) = memchr::memchr(b':', line) else {
                continue;
            };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            let Some(field) = asked.field(name) else {
                continue;
            };
            let value = value.trim_ascii();
            if field.is_none() && !value.is_empty() {
                *field = Some(value);
            }
        }
        asked
    }

    fn field(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        Some(match name {
            b"KV-Operation" => &mut self.kv_operation,
            _ => match name.strip_prefix(b"Nats-")? {
                b"Msg-Id" => &mut self.msg_id,
                b"Expected-Stream" => &mut self.expected_stream,
                b"Expected-Last-Msg-Id" => &mut self.expected_last_msg_id,
                b"Expected-Last-Sequence" => &mut self.expected_last_seq,
                b"Expected-Last-Subject-Sequence" => &mut self.expected_last_subject_seq,
                b"Expected-Last-Subject-Sequence-Subject" => &mut self.expected_subject,
                b"Rollup" => &mut self.rollup,
                b"TTL" => &mut self.ttl,
                b"Marker-Reason" => &mut self.marker_reason,
                b"Incr" => &mut self.incr,
                b"Schedule" => &mut self.schedule,
                _ => return None,
            },
        })
    }

    /// Returns whether the message is a marker: a message by which consumers learn that the messages of its
    /// subject are gone.
    pub(super) fn is_marker(&self) -> bool {
        self.marker_reason.is_some() || self.kv_operation == Some(b"PURGE")
    }
}

/// The time to live that a publisher asks for in the header `Nats-TTL`, after which the stream removes the
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ttl {
    /// The publisher asks for no time to live of its own; the stream's age limit applies.
    Unset,
    /// The publisher asks the stream never to remove the message by age, even if the stream has an age limit.
    Never,
    Seconds(u64),
}

impl Ttl {
    /// Parses the value of the header `Nats-TTL`: whole seconds, a duration in Go's notation of at least a
    /// second, or `never`. Returns `None` for any other value, for which the stream refuses the message.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        if value.eq_ignore_ascii_case(b"never") {
            return Some(Self::Never);
        }
        let seconds = match number(value) {
            Some(seconds) => seconds,
            None => {
                let ns = duration::parse(std::str::from_utf8(value).ok()?)?;
                u64::try_from(ns / 1_000_000_000).ok().filter(|s| *s > 0)?
            }
        };
        Some(match seconds {
            0 => Self::Unset,
            n => Self::Seconds(n),
        })
    }
}

/// Parses a number that consists only of decimal digits; `None` if the value is anything else or does not fit
/// into a `u64`. nats-server reads the numbers in headers in this way too.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Iterates over the lines of a header block. Leaves out the first line, because it only states the protocol
/// version.
fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', rest)?;
        let (line, after) = rest.split_at(end);
        rest = &after[1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
    .skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_requests() {
        let block = b"NATS/1.0\r\nNats-Msg-Id: a b \r\nfoo:bar\r\nNats-Rollup:sub\r\nNats-Msg-Id: c\r\nnats-ttl: 5\r\nNats-TTL:\r\n\r\n";
        let asked = Asked::read(block);
        let expected = Asked {
            msg_id: Some(b"a b"),
            rollup: Some(b"sub"),
            ..Asked::default()
        };
        assert_eq!(asked, expected);
        for odd in [
            &b""[..],
            b"NATS/1.0",
            b"\n\n:\n",
            b"NATS/1.0\r\nNats-TTL: 5",
        ] {
            assert_eq!(Asked::read(odd), Asked::default());
        }
    }

    #[test]
    fn times_to_live() {
        let read = |s: &str| Ttl::read(s.as_bytes());
        assert_eq!(read("5"), Some(Ttl::Seconds(5)));
        assert_eq!(read("0"), Some(Ttl::Unset));
        assert_eq!(read("1m30s"), Some(Ttl::Seconds(90)));
        assert_eq!(read("1.5h"), Some(Ttl::Seconds(5400)));
        assert_eq!(read("2.999s"), Some(Ttl::Seconds(2)));
        assert_eq!(read(".5m"), Some(Ttl::Seconds(30)));
        assert_eq!(read("Never"), Some(Ttl::Never));
        for bad in [
            "",
            "-1",
            "1x",
            "500ms",
            "1s-",
            "s",
            "1.s.",
            "99999999999h",
            "1e3",
            "0s",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
