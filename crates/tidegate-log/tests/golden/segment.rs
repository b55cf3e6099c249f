//! Writes a log's files as annotated text, with the fields and offsets of docs/log-format.md, for the golden
//! tests.

// Each of the crates that share this file uses only a part of it.
#![allow(dead_code)]

use super::hex::{Fields, Text, number};

const FIRST_BATCH: usize = 4096;
const BATCH: usize = 48;
const RECORD: usize = 32;
const TRAILER: usize = 64;

/// Writes the file of a segment; `record` writes the content of a record of the given kind.
pub(crate) fn segment(file: &[u8], text: &mut Text, record: &dyn Fn(u8, &[u8], &mut Text)) {
    text.length(file.len() as u64);
    if file.iter().all(|b| *b == 0) {
        return text.comment("a spare: nothing was written to it");
    }
    let mut f = Fields::new(&file[..64], text);
    f.bytes(4, "magic");
    f.bytes(4, "CRC32C of bytes 8 to 63");
    f.number(4, "version");
    f.number(4, "zero");
    f.number(8, "segment");
    f.number(8, "base");
    f.bytes(8, "salt");
    f.number(8, "length while it is written to");
    f.rest("zero");
    let mut at = FIRST_BATCH;
    while file.get(at..at + 4) == Some(b"TgB1") {
        let head = &file[at..at + BATCH];
        let marker = number(&head[44..]) & 1 == 1;
        let end = at + BATCH + number(&head[32..36]) as usize;
        text.at(at as u64);
        batch(head, text);
        if marker {
            at += BATCH;
            break;
        }
        let mut next = at + BATCH;
        while next + RECORD <= end {
            next = one(file, next, text, record);
        }
        at = end;
    }
    let trailer = file.len() - TRAILER;
    if file[trailer..].starts_with(b"TgF1") {
        text.sparse(file, at, trailer, "index, and what an earlier use left");
        text.at(trailer as u64);
        let mut f = Fields::new(&file[trailer..], text);
        f.bytes(4, "magic");
        f.bytes(4, "CRC32C");
        f.number(8, "segment");
        f.number(8, "base");
        f.number(8, "end");
        f.number(8, "offset of the index");
        f.number(4, "bytes of the index");
        f.number(4, "records");
        f.number(4, "highest epoch");
        f.bytes(4, "CRC32C of the index");
        f.rest("zero");
    } else {
        text.sparse(file, at, file.len(), "what an earlier use left");
    }
}

fn batch(head: &[u8], text: &mut Text) {
    let mut f = Fields::new(head, text);
    f.bytes(4, "batch: magic");
    f.bytes(4, "CRC32C of seed, position and bytes 8 to 47");
    f.number(8, "segment");
    f.number(8, "position");
    f.number(8, "synced");
    f.number(4, "bytes of records");
    f.number(4, "records");
    f.number(4, "epoch");
    f.number(4, "flags");
}

/// Writes the fields of the record at offset `at` to the text, and returns the offset of the next record.
fn one(file: &[u8], at: usize, text: &mut Text, record: &dyn Fn(u8, &[u8], &mut Text)) -> usize {
    let (kind, len) = (file[at + 12], number(&file[at + 4..at + 8]) as usize);
    let end = at + RECORD + len.next_multiple_of(8);
    let mut f = Fields::new(&file[at..end], text);
    f.bytes(4, "record: CRC32C of seed, position and all that follows");
    f.number(4, "length");
    f.number(4, "group");
    f.number(1, "kind");
    f.number(3, "epoch");
    f.number(8, "index");
    f.number(8, "term");
    let payload = f.take(len);
    record(kind, payload, f.text);
    f.rest("zeros");
    end
}

/// Writes the payload of a record to the text as bytes, for records without known fields.
pub(crate) fn plain(_: u8, payload: &[u8], text: &mut Text) {
    text.bytes(payload, "payload");
}

/// Writes the fields of the catalog's file to the text.
pub(crate) fn catalog(file: &[u8], text: &mut Text) {
    text.length(file.len() as u64);
    let mut f = Fields::new(file, text);
    f.bytes(4, "magic");
    f.bytes(4, "CRC32C of all that follows");
    f.number(4, "version");
    let count = f.number(4, "segments");
    f.number(4, "last epoch given out");
    f.number(4, "zero");
    for _ in 0..count {
        f.number(8, "segment");
        f.bytes(8, "salt");
    }
}
