//! Answers a reader who browses the messages of a stream: finds them with the event loop, part by part, and
//! reads them from the log on a thread that may block. It changes nothing: no consumer takes part.
//!
//! The number of messages, of looks and of shown bytes has bounds.

use serde_json::{Value, json};
use tidegate_log::{Log, Lsn, Record};
use tidegate_nats::subject;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::Command;

use super::query::decode;
use crate::event_loop::report::browse::{Body, Browse, Browsed, Found, Part, Start};

/// The most messages of one answer, and (`LIMIT`) their number if the reader names none.
const LIMIT_MAX: usize = 64;
const LIMIT: usize = 20;
/// The most bytes of bodies in one answer, and the least and the most bytes of one body.
const SHOWN: usize = 256 * 1024;
const SHOWN_MIN: usize = 4 * 1024;
const SHOWN_MAX: usize = 64 * 1024;
/// The most bytes of the headers of one message.
const HEADERS_SHOWN: usize = 4 * 1024;
/// The most messages that one request looks at. The answer then says where the next one goes on.
const LOOKED_MAX: u64 = 500_000;
/// The longest name or pattern in a request, in bytes.
const TEXT_MAX: usize = 1024;

/// Reads the parameters of a request for messages.
///
/// # Errors
/// A parameter has a wrong value, or the stream is missing.
pub(super) fn parse(text: &str) -> Result<Browse, String> {
    const EXPECTED: &str =
        "expected /messages?stream=NAME, and one of seq=NUMBER, before=NUMBER and time=TIME";
    let (mut stream, mut pattern, mut start, mut limit) = (None, None, None, LIMIT);
    for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = decode(value)?;
        let value = &*value;
        if value.is_empty() {
            continue;
        }
        if value.len() > TEXT_MAX {
            return Err(format!("{key}: expected at most {TEXT_MAX} bytes"));
        }
        let number = || {
            let number = value.parse::<u64>().ok().filter(|n| *n > 0);
            number.ok_or_else(|| format!("{key}: expected a number from 1 on"))
        };
        let begins = match key {
            "stream" => {
                stream = Some(value.to_owned());
                None
            }
            "subject" if subject::is_pattern(value.as_bytes()) => {
                pattern = Some(value.to_owned());
                None
            }
            "subject" => {
                return Err("subject: expected a subject, with * and > as wildcards".into());
            }
            "limit" => {
                let wanted = usize::try_from(number()?).unwrap_or(LIMIT_MAX);
                limit = wanted.min(LIMIT_MAX);
                None
            }
            "seq" => Some(Start::Seq(number()?)),
            "before" => Some(Start::Before(number()?)),
            "time" => {
                let time = Timestamp::parse(value)
                    .ok_or("time: expected a time as in RFC 3339, such as 2026-11-27T08:00:00Z")?;
                Some(Start::Time(time.as_micros_up()))
            }
            _ => None,
        };
        if begins.is_some() && start.is_some() {
            return Err(EXPECTED.into());
        }
        start = start.or(begins);
    }
    Ok(Browse {
        stream: stream.ok_or(EXPECTED)?,
        subject: pattern,
        start: start.unwrap_or(Start::Newest),
        limit,
    })
}

/// The state of a look through several parts.
#[derive(Debug)]
pub(super) struct Looking {
    browse: Browse,
    /// The place at which the look of the reader began.
    begun: Start,
    parts: Vec<Found>,
    looked: u64,
    latest: Option<Part>,
}

/// The step after a part of a look.
#[derive(Debug)]
pub(super) enum Step {
    /// The loop is to look on.
    On(Browse),
    /// The look is complete: the messages are to be read.
    Read(Box<Page>),
    /// There is nothing to read, for this reason, with a status of HTTP.
    Nothing(u16, &'static str),
}

/// The messages of an answer, which are still to be read from the log.
#[derive(Debug)]
pub(super) struct Page {
    stream: String,
    limit: usize,
    first: u64,
    last: u64,
    found: Vec<Found>,
    older: Option<u64>,
    newer: Option<u64>,
    looked: u64,
    log: Log,
}

impl Looking {
    pub(super) const fn new(browse: Browse) -> Self {
        Self {
            begun: browse.start,
            browse,
            parts: Vec::new(),
            looked: 0,
            latest: None,
        }
    }

    /// Returns the look with which the loop begins.
    pub(super) fn first(&self) -> Browse {
        self.browse.clone()
    }

    /// Takes the loop's answer.
    pub(super) fn take(&mut self, browsed: Browsed) -> Step {
        let mut part = match browsed {
            Browsed::Part(part) => part,
            Browsed::Elsewhere => {
                return Step::Nothing(
                    404,
                    "only other nodes keep the stream: open the page of one of them",
                );
            }
            Browsed::UnknownStream => return Step::Nothing(404, "no stream has this name"),
            Browsed::NoStreams => {
                return Step::Nothing(404, "the server has no streams, or has not opened them yet");
            }
        };
        let found = std::mem::take(&mut part.found);
        match self.is_backwards() {
            true => drop(self.parts.splice(0..0, found)),
            false => self.parts.extend(found),
        }
        self.looked = self.looked.saturating_add(part.looked.max(1));
        let left = self.browse.limit.saturating_sub(self.parts.len());
        let next = part.next.filter(|_| left > 0 && self.looked < LOOKED_MAX);
        self.latest = Some(part);
        match next {
            Some(start) => Step::On(Browse {
                start,
                limit: left,
                ..self.browse.clone()
            }),
            None => self.page(),
        }
    }

    const fn is_backwards(&self) -> bool {
        matches!(self.begun, Start::Before(_) | Start::Newest)
    }

    fn page(&mut self) -> Step {
        let Some(part) = self.latest.take() else {
            return Step::Nothing(500, "the monitor lost its place");
        };
        let found = std::mem::take(&mut self.parts);
        let seqs = (found.first().map(|f| f.seq), found.last().map(|f| f.seq));
        let (older, newer) = match (self.begun, part.next) {
            (Start::Before(before), next) => {
                let newer = seqs.1.map_or(before, |seq| seq + 1);
                (next, Some(newer).filter(|seq| *seq <= part.last))
            }
            (Start::Newest, next) => (next, None),
            (Start::Seq(seq), next) => (Some(Start::Before(seqs.0.unwrap_or(seq))), seq_of(next)),
            // Without a message of that time or later, older ones end at the last message.
            (Start::Time(_), next) => {
                let before = seqs.0.unwrap_or_else(|| part.last.saturating_add(1));
                (Some(Start::Before(before)), seq_of(next))
            }
        };
        let older = seq_of(older).filter(|seq| *seq > part.first);
        Step::Read(Box::new(Page {
            stream: self.browse.stream.clone(),
            limit: self.browse.limit,
            first: part.first,
            last: part.last,
            found,
            older,
            newer,
            looked: self.looked,
            log: part.log,
        }))
    }
}

fn seq_of(start: Option<Start>) -> Option<u64> {
    match start? {
        Start::Seq(seq) | Start::Before(seq) => Some(seq),
        Start::Time(_) | Start::Newest => None,
    }
}

impl Page {
    /// Reads the messages from the log, and makes the answer. Blocks while it reads.
    pub(super) fn read(self) -> Value {
        let shown = (SHOWN / self.limit.max(1)).clamp(SHOWN_MIN, SHOWN_MAX);
        // Messages that one entry stored share its record.
        let mut record: Option<(u64, Record)> = None;
        let messages: Vec<Value> = self
            .found
            .iter()
            .map(|found| {
                let parts = match &found.body {
                    Body::Memory(bytes) => parts(bytes, 0, shown),
                    Body::Log(place) => {
                        if record.as_ref().is_none_or(|(lsn, _)| *lsn != place.lsn) {
                            let read = self.log.reader().read(Lsn::new(place.lsn), None);
                            record = read.ok().map(|read| (place.lsn, read));
                        }
                        let bytes = record.as_ref().map(|(_, record)| &record.payload[..]);
                        bytes.and_then(|bytes| parts(bytes, place.offset, shown))
                    }
                };
                message(found, parts)
            })
            .collect();
        json!({
            "stream": self.stream,
            "first_seq": self.first,
            "last_seq": self.last,
            "messages": messages,
            "older": self.older,
            "newer": self.newer,
            "looked": self.looked,
            "complete": self.looked < LOOKED_MAX,
        })
    }
}

/// The parts of a message as an answer shows them.
struct Parts {
    headers: Option<Value>,
    body: Value,
    body_bytes: usize,
}

/// Takes the message that the command at `offset` stored apart, with at most `shown` bytes of its body;
/// `None` if there is no such command, because the log is damaged there.
fn parts(entry: &[u8], offset: u32, shown: usize) -> Option<Parts> {
    let command = Command::read(entry, offset).ok()?;
    Some(Parts {
        headers: command.headers.map(|h| readable(h, HEADERS_SHOWN)),
        body: readable(command.payload, shown),
        body_bytes: command.payload.len(),
    })
}

fn message(found: &Found, parts: Option<Parts>) -> Value {
    let mut out = json!({
        "seq": found.seq,
        "time": Timestamp::from_micros(found.time_us).to_string(),
        "subject": String::from_utf8_lossy(&found.subject),
        "bytes": found.bytes,
    });
    match parts {
        Some(parts) => {
            out["headers"] = parts.headers.into();
            out["body"] = parts.body;
            out["body_bytes"] = parts.body_bytes.into();
        }
        None => {
            out["error"] =
                "the message cannot be read from the log of this node now; the stream may have removed it"
                    .into();
        }
    }
    out
}

/// Makes the form of bytes in an answer: `text` if they are text without control characters other than line
/// ends and tabulators, and `hex` otherwise; `cut` if there are more than `shown` bytes.
fn readable(bytes: &[u8], shown: usize) -> Value {
    let cut = bytes.len() > shown;
    let part = &bytes[..bytes.len().min(shown)];
    let text = match std::str::from_utf8(part) {
        Ok(text) => Some(text),
        // The bound may fall within a character.
        Err(e) if cut && e.error_len().is_none() => {
            std::str::from_utf8(&part[..e.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    match text.filter(|text| text.chars().all(is_plain)) {
        Some(text) => json!({ "text": text, "cut": cut }),
        None => json!({ "hex": hex(part), "cut": cut }),
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
    digits.map(|d| char::from(DIGITS[usize::from(d)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let browse = parse("stream=S&subject=a.*.%3E&seq=7&limit=1000&x=y").unwrap();
        let wanted = Browse {
            stream: "S".into(),
            subject: Some("a.*.>".into()),
            start: Start::Seq(7),
            limit: LIMIT_MAX,
        };
        assert_eq!(browse, wanted);
        assert_eq!(parse("stream=S&seq=").unwrap().start, Start::Newest);
        let time = parse("stream=S&time=1970-01-01T00%3A00%3A01.5Z").unwrap();
        assert_eq!(time.start, Start::Time(1_500_000));
        for wrong in [
            "",
            "stream=",
            "seq=1",
            "stream=S&seq=0",
            "stream=S&seq=x",
            "stream=S&seq=1&before=2",
            "stream=S&time=yesterday",
            "stream=S&subject=a..b",
            "stream=S&limit=-1",
            "stream=%2",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&format!("stream={}", "x".repeat(TEXT_MAX + 1))).is_err());
    }

    #[test]
    fn bytes_become_text_or_digits() {
        assert_eq!(
            readable(b"a\n\tb<i>", 9),
            json!({ "text": "a\n\tb<i>", "cut": false })
        );
        assert_eq!(
            readable(b"a\x1b[2J", 9),
            json!({ "hex": "611b5b324a", "cut": false })
        );
        assert_eq!(
            readable(&[0xff, 0], 9),
            json!({ "hex": "ff00", "cut": false })
        );
        assert_eq!(
            readable("aé".as_bytes(), 2),
            json!({ "text": "a", "cut": true })
        );
        assert_eq!(readable(b"", 2), json!({ "text": "", "cut": false }));
        // A wrong byte at the end of the whole body is no cut character.
        assert_eq!(
            readable(&[0x61, 0xc3], 2),
            json!({ "hex": "61c3", "cut": false })
        );
    }
}
