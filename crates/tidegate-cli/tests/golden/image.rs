//! Writes directories as golden fixtures, each file as annotated text for reviewers, and restores the files
//! from the text at their full lengths.

use std::fs;
use std::path::Path;

use super::hex::{self, Fields, Text};
use super::{entry, segment};

/// Writes a fixture for each file in the directory `from` into the directory `to`.
pub(crate) fn keep(from: &Path, to: &Path, how: &str) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        if file.file_type().unwrap().is_dir() {
            keep(&file.path(), &to.join(&name), how);
            continue;
        }
        let bytes = fs::read(file.path()).unwrap();
        let mut text = Text::new(how);
        text.section(&name);
        match &*name {
            // The test leaves the lock out, because the program that opens the directory creates it.
            "lock" => continue,
            "version" | "members" => {
                fs::write(to.join(&name), bytes).unwrap();
                continue;
            }
            "catalog" => segment::catalog(&bytes, &mut text),
            _ if name.ends_with(".seg") => segment::segment(&bytes, &mut text, &entry::record),
            _ if name.starts_with("state-") => entry::checkpoint(&bytes, &mut text),
            "session" => session(&bytes, &mut text),
            _ if name.ends_with(".spool") => spooled(&bytes, &mut text),
            _ if name.ends_with(".tidegate") => received(&bytes, &mut text),
            _ => {
                text.length(bytes.len() as u64);
                text.sparse(&bytes, 0, bytes.len(), "");
            }
        }
        let sections = hex::read(&text.0);
        assert!(sections[0].bytes() == bytes, "{name} as text is not whole");
        fs::write(to.join(format!("{name}.hex")), text.0).unwrap();
    }
}

/// Writes the fields of a spool's file `session`: slots of 60 bytes in format 1, manifests at the offsets 0
/// and 4096 in format 2.
fn session(bytes: &[u8], text: &mut Text) {
    text.length(bytes.len() as u64);
    let manifests = bytes.chunks(4096).zip([0, 4096]);
    let manifests: Vec<_> = manifests
        .filter(|(slot, _)| slot.starts_with(b"TGSPOOL2"))
        .collect();
    for (slot, at) in &manifests {
        text.at(*at);
        let mut f = Fields::new(slot, text);
        f.bytes(8, "magic and version");
        f.number(8, "generation");
        f.bytes(16, "session it was begun for");
        f.bytes(16, "session its records travel in");
        f.number(8, "base");
        f.number(8, "number of the oldest record");
        f.number(8, "first record of the newest segment");
        f.number(8, "durable bytes of that segment");
        f.number(8, "number of the next record");
        f.bytes(4, "CRC32C");
    }
    if !manifests.is_empty() {
        return;
    }
    for slot in bytes.chunks(60) {
        let mut f = Fields::new(slot, text);
        f.bytes(8, "magic and version");
        f.number(8, "generation");
        f.bytes(16, "session it was begun for");
        f.bytes(16, "session its records travel in");
        f.number(8, "base");
        f.bytes(4, "CRC32C");
    }
}

/// Writes the fields of a segment of a spool in format 1 or 2.
fn spooled(bytes: &[u8], text: &mut Text) {
    text.length(bytes.len() as u64);
    let mut f = Fields::new(bytes, text);
    while !f.rest.is_empty() {
        let len = f.number(4, "record: length") as usize;
        f.bytes(4, "CRC32C of number and payload");
        f.bytes(len, "payload");
    }
}

/// Writes the fields of the receiver's state file, which has two slots.
fn received(bytes: &[u8], text: &mut Text) {
    text.length(bytes.len() as u64);
    let slot = bytes.len() / 2;
    for at in [0, slot] {
        text.at(at as u64);
        let mut f = Fields::new(&bytes[at..at + slot], text);
        f.bytes(8, "magic");
        let version = f.number(4, "version");
        let sessions = f.number(4, "sessions");
        f.number(8, "generation");
        f.number(8, "bytes of the file that count");
        f.number(4, "how many of its last bytes were checked");
        f.bytes(4, "their CRC32C");
        if version >= 2 {
            f.number(4, "1 if the receiver ended in order");
        }
        for _ in 0..sessions {
            f.bytes(16, "session");
            f.bytes(8, "epoch");
            f.number(8, "position");
            f.number(8, "generation of its last change");
        }
        f.bytes(4, "CRC32C of everything before");
    }
}

/// Restores the files of the fixture `from` in the directory `to`.
pub(crate) fn restore(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        if file.file_type().unwrap().is_dir() {
            restore(&file.path(), &to.join(&name));
        } else if let Some(name) = name.strip_suffix(".hex") {
            let text = fs::read_to_string(file.path()).unwrap();
            hex::read(&text)[0].restore(&to.join(name));
        } else {
            fs::copy(file.path(), to.join(name)).unwrap();
        }
    }
}

/// Copies the files of a directory, except for its lock.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let to = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            copy(&file.path(), &to);
        } else if file.file_name() != "lock" {
            fs::copy(file.path(), to).unwrap();
        }
    }
}
