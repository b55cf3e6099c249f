//! Reads traces: the text of a decision log or of an event log, piece by piece, in bounded memory.

use std::collections::HashMap;

use super::error::{LINE_MAX, TraceError};
use super::stretch::{KEEP, Stretch};
use crate::boundary::{DECISIONS_HEADER, parse_bounds};
use crate::controller::{Bounds, Entry};

/// The header of the event log of one controller.
const LOG_HEADER: &str = "tidegate-log 2";
/// The name of the only boundary of an event log, which has no names.
const ONLY: &str = "controller";
/// The most boundaries that a reader keeps.
const BOUNDARIES_MAX: usize = 256;
/// The most records that a reader keeps of all boundaries together, each of at most 48 bytes.
const KEEP_ALL: usize = 4_000_000;
/// The number of first entries that a reader keeps of each boundary, to find its controller.
const FIRST: usize = 1000;

/// Reads a trace piece by piece, in at most some 250 MB of memory for a trace of any length.
///
/// ```
/// use tidegate::sim::tune::{TraceError, TraceReader};
///
/// let mut reader = TraceReader::new();
/// reader.handle_bytes(b"tidegate-decisions 1\nrows begins 1 64 1000 1000 1\nrows 5 blo")?;
/// let trace = reader.finish()?;
/// assert_eq!((trace.lines, trace.is_cut), (2, true));
/// assert_eq!(TraceReader::new().finish().err(), Some(TraceError::Empty));
/// # Ok::<(), TraceError>(())
/// ```
#[derive(Debug, Default)]
pub struct TraceReader {
    format: Option<Format>,
    /// The start of a line that has no end yet.
    partial: Vec<u8>,
    lines: u64,
    pub(super) boundaries: Vec<Recorded>,
    indexes: HashMap<String, usize>,
    /// The number of records in stretches, within [`KEEP_ALL`].
    pub(super) kept: usize,
    unnamed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decisions,
    Log,
}

/// A trace, as a [`TraceReader`] keeps it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trace {
    /// The boundaries of the trace, in the order in which they began.
    pub boundaries: Vec<Recorded>,
    /// The number of whole lines, the header included.
    pub lines: u64,
    /// True if the last line has no end, so that the reader left it out.
    pub is_cut: bool,
    /// The number of entries of boundaries beyond the first 256, which the reader left out.
    pub omitted: u64,
}

/// The part of one boundary's entries that a [`TraceReader`] keeps: the longest stretch without a gap, up to
/// a number of records, and counts of the rest.
#[non_exhaustive]
pub struct Recorded {
    /// The name of the boundary in the trace; `controller` in the log of one controller.
    pub name: String,
    /// The number of entries of this boundary in the trace.
    pub entries: u64,
    /// The number of entries that the recorder lost, because they came faster than the disk took them.
    pub lost: u64,
    /// The number of gaps that these losses left.
    pub gaps: u64,
    /// The number of entries with a time before the time of the entry above them.
    pub went_back: u64,
    /// The number of times that the boundary began, with a new controller each time.
    pub begins: u64,
    /// The number of entries after the kept part of their stretch, for which the memory bound left no room.
    pub not_kept: u64,
    /// False in the log of one controller, which has no bounds: the model then derives them.
    pub(super) has_bounds: bool,
    pub(super) best: Stretch,
    current: Stretch,
    /// True if the current stretch has reached the most records that it may keep.
    is_full: bool,
    last: u64,
    /// The first entries of the boundary, to find its controller.
    pub(super) first: Vec<Entry>,
    pub(super) first_bounds: Bounds,
}

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorded")
            .field("name", &self.name)
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

impl TraceReader {
    /// Creates a reader that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next bytes of the trace. A line may be cut anywhere.
    ///
    /// # Errors
    /// The bytes are not a trace of this release. The reader then has no further use.
    pub fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), TraceError> {
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial.is_empty() {
                self.line(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(&line[..line.len().min(LINE_MAX + 1)]);
                self.line(&whole)?;
                whole.clear();
                self.partial = whole;
            }
            bytes = rest;
        }
        if self.partial.len() + bytes.len() > LINE_MAX {
            return Err(self.too_long());
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the number of whole lines that the reader has read, for a progress line.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The trace is empty, or its first line is no header.
    pub fn finish(mut self) -> Result<Trace, TraceError> {
        if self.format.is_none() {
            return Err(match self.partial.is_empty() {
                true => TraceError::Empty,
                false => TraceError::Header,
            });
        }
        for boundary in &mut self.boundaries {
            boundary.keep_better();
        }
        Ok(Trace {
            boundaries: self.boundaries,
            lines: self.lines,
            is_cut: !self.partial.is_empty(),
            omitted: self.unnamed,
        })
    }

    fn too_long(&self) -> TraceError {
        match self.format {
            None => TraceError::Header,
            Some(_) => TraceError::Long {
                line: self.lines + 1,
            },
        }
    }

    fn line(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        if bytes.len() > LINE_MAX {
            return Err(self.too_long());
        }
        let text = std::str::from_utf8(bytes);
        let Some(format) = self.format else {
            self.format = Some(header(text.unwrap_or_default())?);
            self.lines = 1;
            return Ok(());
        };
        self.lines += 1;
        let line = self.lines;
        let text = text.map_err(|_| TraceError::Binary { line })?;
        match format {
            Format::Decisions => self.decision(text, line),
            Format::Log => {
                if self.boundaries.is_empty() {
                    self.add(ONLY, Recorded::new(ONLY, Bounds::items(1, u64::MAX), false));
                }
                let entry = text
                    .parse()
                    .map_err(|cause| TraceError::Line { line, cause })?;
                self.entry(0, &entry);
                Ok(())
            }
        }
    }

    fn decision(&mut self, text: &str, line: u64) -> Result<(), TraceError> {
        let wrong = |expected| TraceError::Form { line, expected };
        let (name, rest) = text
            .split_once(' ')
            .ok_or_else(|| wrong("the name of a boundary and an entry"))?;
        let index = self.indexes.get(name).copied();
        if let Some(bounds) = rest.strip_prefix("begins ") {
            let bounds = parse_bounds(bounds).filter(|bounds| bounds.check().is_ok());
            let bounds = bounds.ok_or_else(|| wrong("five numbers that are sound bounds"))?;
            match index {
                Some(index) => self.change(index, |boundary| boundary.begin(bounds)),
                None if self.boundaries.len() < BOUNDARIES_MAX => {
                    self.add(name, Recorded::new(name, bounds, true));
                }
                None => self.unnamed += 1,
            }
            return Ok(());
        }
        let lost = rest.strip_prefix("lost ").map(str::parse::<u64>);
        let Some(index) = index else {
            if self.boundaries.len() < BOUNDARIES_MAX {
                return Err(wrong("a line `begins` of this boundary before its entries"));
            }
            self.unnamed += 1;
            return Ok(());
        };
        match lost {
            Some(Ok(lost)) => self.change(index, |boundary| boundary.lose(lost)),
            Some(Err(_)) => return Err(wrong("the number of lost entries")),
            None => {
                let entry = rest
                    .parse()
                    .map_err(|cause| TraceError::Line { line, cause })?;
                self.entry(index, &entry);
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, recorded: Recorded) {
        self.indexes.insert(name.to_owned(), self.boundaries.len());
        self.boundaries.push(recorded);
    }

    fn entry(&mut self, index: usize, entry: &Entry) {
        let has_room = self.kept < KEEP_ALL;
        self.change(index, |boundary| boundary.handle(entry, has_room));
    }

    /// Changes a boundary, and counts the records that it keeps more, or gives up.
    fn change(&mut self, index: usize, change: impl FnOnce(&mut Recorded)) {
        let boundary = &mut self.boundaries[index];
        let before = boundary.kept();
        change(boundary);
        self.kept = (self.kept + boundary.kept()).saturating_sub(before);
    }
}

impl Recorded {
    fn new(name: &str, bounds: Bounds, has_bounds: bool) -> Self {
        Self {
            name: name.to_owned(),
            entries: 0,
            lost: 0,
            gaps: 0,
            went_back: 0,
            begins: 1,
            not_kept: 0,
            has_bounds,
            best: Stretch::new(bounds, true),
            current: Stretch::new(bounds, true),
            is_full: false,
            last: 0,
            first: Vec::new(),
            first_bounds: bounds,
        }
    }

    pub(super) fn kept(&self) -> usize {
        self.best.kept() + self.current.kept()
    }

    fn handle(&mut self, entry: &Entry, has_room: bool) {
        self.entries += 1;
        let now = entry.now.as_nanos();
        if now < self.last {
            self.went_back += 1;
            self.cut(self.current.bounds, false);
        }
        self.last = now;
        if self.entries <= FIRST as u64 && self.begins == 1 && self.gaps == 0 {
            self.first.push(*entry);
        }
        self.is_full |= !has_room || self.current.kept() >= KEEP;
        if self.is_full {
            self.not_kept += 1;
        } else {
            self.current.handle(entry);
        }
    }

    fn begin(&mut self, bounds: Bounds) {
        self.begins += 1;
        self.last = 0;
        self.cut(bounds, true);
    }

    fn lose(&mut self, entries: u64) {
        self.lost = self.lost.saturating_add(entries);
        self.gaps += 1;
        self.cut(self.current.bounds, false);
    }

    /// Ends the current stretch, and begins another one.
    fn cut(&mut self, bounds: Bounds, is_first: bool) {
        self.keep_better();
        self.current = Stretch::new(bounds, is_first);
        self.is_full = false;
    }

    /// Keeps the stretch with more batches.
    fn keep_better(&mut self) {
        if self.current.ran.len() >= self.best.ran.len() {
            let empty = Stretch::new(self.current.bounds, false);
            self.best = std::mem::replace(&mut self.current, empty);
        }
    }
}

fn header(text: &str) -> Result<Format, TraceError> {
    let text = text.trim_end();
    for (whole, format) in [
        (DECISIONS_HEADER, Format::Decisions),
        (LOG_HEADER, Format::Log),
    ] {
        if text == whole {
            return Ok(format);
        }
        let name = whole.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits =
            |v: &&str| !v.is_empty() && v.len() < 20 && v.bytes().all(|b| b.is_ascii_digit());
        if let Some(found) = text.strip_prefix(name).filter(digits) {
            return Err(TraceError::Version {
                found: found.to_owned(),
                expected: whole,
            });
        }
    }
    Err(TraceError::Header)
}
