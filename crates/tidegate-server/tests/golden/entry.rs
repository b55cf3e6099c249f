//! Writes entries, checkpoints and the state in them as annotated text, one field after the other, so that a
//! person can read a difference.

// The crates that share this file use different parts of it, so some parts are unused in each.
#![allow(dead_code)]

use super::hex::{Fields, Text, number};

const KIND_ENTRY: u8 = 1;
const KIND_RELOCATED: u8 = 3;
const KIND_FETCHED: u8 = 6;

/// Writes the payload of a record of this kind as text.
pub(crate) fn record(kind: u8, payload: &[u8], text: &mut Text) {
    match kind {
        KIND_ENTRY | KIND_RELOCATED | KIND_FETCHED if !payload.is_empty() => entry(payload, text),
        _ => text.bytes(payload, "payload"),
    }
}

/// Writes an entry as text: its header, and each of its commands.
pub(crate) fn entry(bytes: &[u8], text: &mut Text) {
    let mut f = Fields::new(bytes, text);
    f.number(1, "entry: version");
    f.number(7, "zero");
    f.number(8, "time in microseconds");
    while !f.rest.is_empty() {
        let kind = f.number(1, "command: kind");
        f.number(1, "flags");
        let subject = f.number(2, "length of the subject") as usize;
        f.number(4, "stream");
        let headers = f.number(4, "length of the headers") as usize;
        let payload = f.number(4, "length of the payload") as usize;
        let subject = f.take(subject);
        text_or_bytes(subject, "subject", f.text);
        let headers = f.take(headers);
        f.text.text(headers, "headers");
        let payload = f.take(payload);
        match kind {
            // These kinds have configurations and requests as JSON.
            2 | 3 | 5 | 6 | 9 => f.text.text(payload, "payload"),
            8 | 15..=19 => f.text.bytes(payload, "payload: little-endian numbers"),
            _ => text_or_bytes(payload, "payload", f.text),
        }
    }
}

fn text_or_bytes(bytes: &[u8], what: &str, text: &mut Text) {
    match std::str::from_utf8(bytes) {
        Ok(all) if bytes.len() > 32 && !all.contains(|c: char| c.is_control()) => {
            text.text(bytes, what);
        }
        _ => text.bytes(bytes, what),
    }
}

/// Writes a checkpoint as text.
pub(crate) fn checkpoint(file: &[u8], text: &mut Text) {
    text.length(file.len() as u64);
    let mut f = Fields::new(file, text);
    f.bytes(4, "magic");
    f.bytes(4, "CRC32C of bytes 8 to 63");
    f.number(4, "version");
    f.number(4, "zero");
    f.number(8, "index");
    f.number(8, "term");
    f.number(8, "hard state: term");
    f.number(8, "hard state: vote");
    f.number(8, "next position");
    let segments = f.number(8, "segments");
    for _ in 0..segments {
        f.number(8, "segment: base");
        f.number(8, "segment: live bytes");
    }
    let body = f.rest.len() - 16;
    let body = f.take(body);
    state(body, f.text);
    f.number(8, "bytes of the state");
    f.bytes(4, "magic");
    f.bytes(4, "CRC32C of everything before it");
}

/// Writes all streams of a group as text, in version 3 or 4. After a stream's names its parts stand as bytes.
pub(crate) fn state(bytes: &[u8], text: &mut Text) {
    let version = bytes[0];
    let mut f = Fields::new(bytes, text);
    f.number(1, "state: version");
    f.number(7, "zero");
    f.number(8, "time in microseconds");
    f.number(4, "the last stream's number");
    let streams = f.number(4, "streams");
    if streams > 0 && version >= 3 {
        f.number(4, "stream: number");
        f.number(1, "which group keeps it: how");
        f.number(4, "which group keeps it: number");
        f.number(4, "moves");
        f.number(4, "moves to");
        f.number(1, "on its way: how");
        f.number(8, "on its way: how far");
        if version >= 4 {
            f.number(8, "sweep: first");
            f.number(8, "sweep: last");
        }
        if version >= 5 {
            for _ in 0..f.number(4, "origins") {
                f.counted("origin: key");
                f.number(4, "origin: number");
                f.number(8, "origin: created at");
                f.number(8, "origin: how far");
            }
        }
        f.number(8, "created at");
        let config = f.number(4, "configuration: length") as usize;
        let config = f.take(config);
        f.text.text(config, "configuration");
        f.counted("last message's id");
        f.number(8, "last number");
        f.number(8, "last time");
    }
    // The text has JSON on lines of its own, so that a person can read a change of a configuration.
    while let Some(at) = f.rest.windows(2).position(|w| w == b"{\"") {
        f.bytes(at, "state");
        let end = json_end(f.rest);
        let json = f.take(end);
        f.text.text(json, "configuration");
    }
    f.rest("state");
}

fn json_end(bytes: &[u8]) -> usize {
    let mut depth = 0_u32;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    bytes.len()
}

/// Reads the number of `len` bytes at this place.
pub(crate) fn number_at(bytes: &[u8], at: usize, len: usize) -> u64 {
    number(&bytes[at..at + len]) as u64
}
