//! Golden fixtures as text: bytes in hexadecimal, with each field and its name on a separate
//! line. So a difference between two versions names the field that changed.
//!
//! ```text
//! # a comment, to the end of the line
//! [a name]          a section begins: bytes of their own
//! length 65536      the section is a file of this many bytes; where no line says otherwise they are zero
//! at 4096           the next bytes stand there
//! 54675331 00       bytes
//! ```
//!
//! [`check`] compares the output of the current program with the kept file. `GOLDEN=write` adds a missing
//! file, and refuses to change an existing one: the files of a version stay as that version wrote them.

// Each of the crates that share this file uses only a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// The number of bytes that a line of a fixture shows.
const LINE: usize = 32;
/// The shortest run of zeros, in bytes, that a fixture omits.
const ZEROS: usize = 64;

/// The text of a fixture under construction.
#[derive(Default)]
pub(crate) struct Text(pub(crate) String);

impl Text {
    /// Creates a fixture that starts with these comment lines.
    pub(crate) fn new(comment: &str) -> Self {
        let mut text = Self::default();
        comment.lines().for_each(|line| text.comment(line));
        text
    }

    pub(crate) fn comment(&mut self, line: &str) {
        let _ = writeln!(self.0, "{}", format!("# {line}").trim_end());
    }

    pub(crate) fn section(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n[{name}]");
    }

    /// Writes a line that declares the section as a file of this many bytes.
    pub(crate) fn length(&mut self, bytes: u64) {
        let _ = writeln!(self.0, "length {bytes}");
    }

    /// Writes a line with the offset of the next bytes.
    pub(crate) fn at(&mut self, offset: u64) {
        let _ = writeln!(self.0, "at {offset}");
    }

    /// Writes a field that is not a number: its bytes in hexadecimal, with its name.
    pub(crate) fn bytes(&mut self, bytes: &[u8], what: &str) {
        let printable = |b: &u8| matches!(b, b' '..=b'~');
        if !bytes.is_empty() && bytes.len() <= LINE && bytes.iter().all(printable) {
            let text = String::from_utf8_lossy(bytes);
            return self.lines(bytes, &format!("{what}: {text}"));
        }
        self.lines(bytes, what);
    }

    /// Writes a field that is a text: first the text as comment lines, then its bytes in hexadecimal.
    pub(crate) fn text(&mut self, bytes: &[u8], what: &str) {
        for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
            self.comment(&format!(
                "{what}: {}",
                line.replace('\r', "\\r").replace('\n', "\\n")
            ));
        }
        self.lines(bytes, "");
    }

    /// Writes a field that is a little-endian number: its bytes in hexadecimal, with its name and value.
    pub(crate) fn number(&mut self, bytes: &[u8], what: &str) {
        self.lines(bytes, &format!("{what}: {}", number(bytes)));
    }

    fn lines(&mut self, bytes: &[u8], what: &str) {
        for (n, line) in bytes.chunks(LINE).enumerate() {
            let words: Vec<String> = line.chunks(4).map(hex).collect();
            let words = words.join(" ");
            match n == 0 && !what.is_empty() {
                true => writeln!(self.0, "{words:<26} # {what}").unwrap(),
                false => writeln!(self.0, "{words}").unwrap(),
            }
        }
    }

    /// Writes the bytes of a file from `from` to `to`, without runs of zeros.
    pub(crate) fn sparse(&mut self, file: &[u8], from: usize, to: usize, what: &str) {
        let mut at = from;
        while at < to {
            let zeros = file[at..to].iter().take_while(|b| **b == 0).count();
            if zeros >= ZEROS || at + zeros == to {
                at += zeros;
                continue;
            }
            // The run of bytes to write ends at the next long run of zeros.
            let mut end = at + zeros;
            let mut run = 0;
            while end < to && run < ZEROS {
                run = if file[end] == 0 { run + 1 } else { 0 };
                end += 1;
            }
            let end = end - run;
            self.at(at as u64);
            self.bytes(&file[at..end], what);
            at = end;
        }
    }
}

/// Parses a little-endian number of at most 16 bytes.
pub(crate) fn number(bytes: &[u8]) -> u128 {
    let byte = |n, b: &u8| n << 8 | u128::from(*b);
    bytes.iter().rev().fold(0, byte)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Takes fields from the front of the bytes, and writes each field to the fixture.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) text: &'a mut Text,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(rest: &'a [u8], text: &'a mut Text) -> Self {
        Self { rest, text }
    }

    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Takes a number of this many bytes, and writes it to the fixture.
    pub(crate) fn number(&mut self, len: usize, what: &str) -> u64 {
        let taken = self.take(len);
        self.text.number(taken, what);
        number(taken) as u64
    }

    pub(crate) fn bytes(&mut self, len: usize, what: &str) -> &'a [u8] {
        let taken = self.take(len);
        self.text.bytes(taken, what);
        taken
    }

    /// Takes a length of four bytes, and then the field of that length, and writes both to the fixture.
    pub(crate) fn counted(&mut self, what: &str) -> &'a [u8] {
        let len = self.number(4, &format!("{what}: length")) as usize;
        self.bytes(len, what)
    }

    pub(crate) fn rest(&mut self, what: &str) -> &'a [u8] {
        self.bytes(self.rest.len(), what)
    }
}

/// A section read from a fixture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) name: String,
    /// The length of the section in bytes, if it is a file.
    pub(crate) length: Option<u64>,
    /// The runs of the section's bytes, each with the offset at which it begins.
    pub(crate) runs: Vec<(u64, Vec<u8>)>,
}

impl Section {
    /// Returns the bytes of a short section as one list, with zeros between the runs.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let end = |(at, bytes): &(u64, Vec<u8>)| *at + bytes.len() as u64;
        let len = self
            .length
            .or_else(|| self.runs.iter().map(end).max())
            .unwrap_or(0);
        let mut all = vec![0; usize::try_from(len).unwrap()];
        for (at, bytes) in &self.runs {
            let at = usize::try_from(*at).unwrap();
            all[at..at + bytes.len()].copy_from_slice(bytes);
        }
        all
    }

    /// Creates the file that the section describes, for a test that opens it. The file is sparse between the
    /// runs.
    pub(crate) fn restore(&self, to: &Path) {
        let mut file = fs::File::create(to).unwrap();
        file.set_len(self.length.unwrap_or(0)).unwrap();
        for (at, bytes) in &self.runs {
            file.seek(SeekFrom::Start(*at)).unwrap();
            file.write_all(bytes).unwrap();
        }
    }
}

/// Returns the sections of a fixture; lines before the first header form a section without a name.
pub(crate) fn read(text: &str) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    let mut at = 0;
    for line in text.lines() {
        let line = line.split('#').next().unwrap().trim();
        let section = sections.last_mut().unwrap();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let name = name.to_owned();
            sections.push(Section {
                name,
                ..Section::default()
            });
            at = 0;
        } else if let Some(length) = line.strip_prefix("length ") {
            section.length = Some(length.parse().unwrap());
        } else if let Some(offset) = line.strip_prefix("at ") {
            at = offset.parse().unwrap();
        } else if !line.is_empty() {
            let digits: Vec<u8> = line.bytes().filter(|b| *b != b' ').collect();
            let byte = |pair: &[u8]| {
                let pair = std::str::from_utf8(pair).unwrap();
                u8::from_str_radix(pair, 16).unwrap()
            };
            let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
            let end = at + bytes.len() as u64;
            match section.runs.last_mut() {
                Some((from, run)) if *from + run.len() as u64 == at => run.extend(bytes),
                _ => section.runs.push((at, bytes)),
            }
            at = end;
        }
    }
    if sections[0] == Section::default() {
        sections.remove(0);
    }
    sections
}

/// Returns whether the environment asks for missing fixtures to be written (`GOLDEN=write`).
pub(crate) fn writes() -> bool {
    std::env::var_os("GOLDEN").is_some_and(|how| how == "write")
}

/// Compares the current bytes with the kept fixture. Prints the first line that differs.
#[track_caller]
pub(crate) fn check(path: &Path, today: &str) {
    if !path.exists() {
        assert!(
            writes(),
            "{} is not there: GOLDEN=write adds the fixtures of a new version",
            path.display()
        );
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, today).unwrap();
        return;
    }
    let kept = fs::read_to_string(path).unwrap();
    if kept == today {
        return;
    }
    let mut section = "";
    for (n, (kept, today)) in kept.lines().zip(today.lines()).enumerate() {
        if kept.starts_with('[') {
            section = kept;
        }
        assert!(
            kept == today,
            "{}:{}: {section} differs from what this version always wrote; what is on disk and on the wire changes with a \
             new version number only, whose fixtures lie beside the old ones\n  kept:  {kept}\n  today: {today}",
            path.display(),
            n + 1
        );
    }
    panic!("{}: one ends before the other", path.display());
}
