//! Converts records between files or pipes and the link. A record is a line, or bytes with their length in
//! front.
//!
//! On the link, a line has no line feed; the receiver adds it again. The last line of an input may have no
//! line feed, and must arrive without one. The sender marks such a line by a line feed in front of it,
//! because no line contains a line feed. (If another program sends a message that begins with a line feed,
//! the receiver writes no line feed at its end.)
//!
//! The reader reads input in large blocks, which cost few system calls. It never splits a record, and refuses
//! a record larger than the user allows.

use std::io::{self, Read};
use std::ops::Range;

use clap::ValueEnum;

use crate::interrupt;

/// The form of a record in the input of the sender and the output of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Each record is a line, any bytes up to a line feed, as programs write their logs.
    #[default]
    Lines,
    /// Each record begins with its length, a u32 in little-endian order, so that a record may hold any bytes.
    Records,
}

impl Format {
    /// Appends a record that came over the link to `out`, in the form of the output.
    pub(super) fn put(self, payload: &[u8], out: &mut Vec<u8>) {
        match (self, payload) {
            (Self::Lines, [b'\n', unended @ ..]) => out.extend_from_slice(unended),
            (Self::Lines, line) => {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
            (Self::Records, bytes) => {
                // The length of a frame is a `u32`, so a payload's length fits.
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// The greatest number of bytes that the reader of records reads at once, in one system call.
const BLOCK: usize = 256 * 1024;
/// The length in bytes of the number in front of a record, which gives the record's length.
const PREFIX: usize = 4;

/// Cuts the sender's input into records. The caller alternates [`Records::read`] and [`Records::whole`].
#[derive(Debug)]
pub(super) struct Records<R> {
    source: R,
    format: Format,
    max: usize,
    buffer: Vec<u8>,
    /// The offset in `buffer` of the next record that the caller has not yet taken.
    start: usize,
    /// The offset in `buffer` at which the search for a line feed continues, because the bytes from `start`
    /// to this offset have none.
    searched: usize,
    ended: bool,
    /// True if `buffer` holds the last line, to which the input gave no line feed. The mark for it, a line
    /// feed, is in front of the line.
    unended: bool,
    place: Place,
}

/// The range of a record's payload in the buffer, and the offset at which the next record starts; `None`
/// while the buffer holds no whole record.
type Found = Option<(Range<usize>, usize)>;

/// The position of a record in the input, by which an error message names the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of records that the input has before this record.
    pub(super) records: u64,
    /// The number of bytes that the input has before this record.
    pub(super) bytes: u64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record {} at byte {}", self.records + 1, self.bytes)
    }
}

/// The reasons why the sender cannot ship its input, as the user reads them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum RecordError {
    /// The operating system refused an operation on the sender's input.
    #[error("{error}")]
    Io {
        /// The error of the operating system, which names the cause.
        error: io::Error,
    },
    /// A record of the input is larger than the user allows.
    #[error(
        "{place} is larger than {max} bytes: allow more with --max-record, here and at the receiver"
    )]
    TooLarge {
        /// The position of the too large record in the input, by which the user finds it.
        place: Place,
        /// The greatest number of bytes that the user allows a record to have, by --max-record.
        max: usize,
    },
    /// The input ends within a record that begins with its length, so the record's end is missing.
    #[error("{place} is cut off: the input ends after {found} of its {expected} bytes")]
    Truncated {
        /// The position of the unfinished record in the input, by which the user finds it.
        place: Place,
        /// The number of bytes that the input has of this record, with the length prefix.
        found: usize,
        /// The number of bytes that this record should have, with the length prefix.
        expected: usize,
    },
}

impl<R: Read> Records<R> {
    /// Creates a reader of the records in `source`, which refuses records of more than `max` bytes.
    pub(super) fn new(source: R, format: Format, max: u32) -> Self {
        Self {
            source,
            format,
            max: max as usize,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            ended: false,
            unended: false,
            place: Place::default(),
        }
    }

    /// Waits for a block of the input and reads it into the buffer. Returns false at the end of the input.
    /// Keeps the bytes of records that the caller has not taken yet.
    pub(super) fn read(&mut self) -> Result<bool, RecordError> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let had = self.buffer.len();
        self.buffer.resize(had + BLOCK, 0);
        let read = loop {
            match self.source.read(&mut self.buffer[had..]) {
                // A signal interrupted the read; unless the signal was Ctrl-C, the loop reads again.
                Err(e) if e.kind() == io::ErrorKind::Interrupted && !interrupt::asked() => {}
                read => break read,
            }
        };
        self.buffer.truncate(had + *read.as_ref().unwrap_or(&0));
        self.ended = read.map_err(|error| RecordError::Io { error })? == 0;
        self.unended = self.ended && had > 0 && self.format == Format::Lines;
        if self.unended {
            self.buffer.insert(0, b'\n');
        }
        Ok(!self.ended || had > 0)
    }

    /// Takes the next whole record from the buffer, and returns the range of its payload.
    fn take(&mut self) -> Result<Option<Range<usize>>, RecordError> {
        let found = match self.format {
            Format::Lines => self.line(),
            Format::Records => self.prefixed(),
        };
        let Some((payload, end)) = found? else {
            return Ok(None);
        };
        // A last line without a line feed has the mark, a line feed, in the buffer. The mark is not part of
        // the input, so it does not count.
        self.place.bytes += (end - self.start) as u64;
        self.place.records += 1;
        self.start = end;
        self.searched = end;
        Ok(Some(payload))
    }

    /// Takes every whole record in the buffer and returns the ranges of their payloads in
    /// [`Records::buffer`]. On an error, `records` has the ranges of the records before the faulty one.
    pub(super) fn whole(&mut self, records: &mut Vec<Range<usize>>) -> Result<(), RecordError> {
        records.clear();
        while let Some(record) = self.take()? {
            records.push(record);
        }
        Ok(())
    }

    /// Returns the buffer that holds the payloads, at the ranges that [`Records::whole`] returned.
    pub(super) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the source of the input.
    pub(super) const fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// Returns the source of the input, and drops the bytes that the caller has not taken.
    pub(super) fn into_source(self) -> R {
        self.source
    }

    /// Returns the number of bytes in the buffer that the caller has not taken as records.
    pub(super) const fn unread(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Returns whether the reader has read the input to its end.
    pub(super) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Takes `count` records and drops them, because the receiver already has them. If the input ends before
    /// that, returns the number of records taken.
    pub(super) fn skip(&mut self, count: u64) -> Result<Option<u64>, RecordError> {
        let end = self.place.records + count;
        while self.place.records < end {
            if self.take()?.is_none() && !self.read()? {
                return Ok(Some(self.place.records));
            }
        }
        Ok(None)
    }

    /// Finds the next whole line in the buffer, and returns its range and the start of the next line.
    fn line(&mut self) -> Result<Found, RecordError> {
        let (start, read) = (self.start, self.buffer.len());
        let end = match memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            // The last line has its mark, a line feed, in front, and this line feed does not end the line.
            _ if self.unended => read,
            Some(at) => self.searched + at,
            None => read,
        };
        let whole = end < read || (self.unended && start < end);
        self.searched = end;
        if end - start > self.max + usize::from(self.unended) {
            return Err(RecordError::TooLarge {
                place: self.place,
                max: self.max,
            });
        }
        Ok(whole.then(|| (start..end, (end + 1).min(read))))
    }

    fn prefixed(&self) -> Result<Found, RecordError> {
        let rest = &self.buffer[self.start..];
        let place = self.place;
        let Some(prefix) = rest.first_chunk::<PREFIX>() else {
            return self.short(rest.len(), PREFIX);
        };
        let payload = u32::from_le_bytes(*prefix) as usize;
        if payload > self.max {
            let max = self.max;
            return Err(RecordError::TooLarge { place, max });
        }
        if rest.len() < PREFIX + payload {
            return self.short(rest.len(), PREFIX + payload);
        }
        let start = self.start + PREFIX;
        Ok(Some((start..start + payload, start + payload)))
    }

    /// Decides about an unfinished record, of which the buffer holds `found` of `expected` bytes. Returns
    /// `None` if more input may complete the record, and an error if the input has ended.
    fn short(&self, found: usize, expected: usize) -> Result<Found, RecordError> {
        match self.ended && found > 0 {
            true => Err(RecordError::Truncated {
                place: self.place,
                found,
                expected,
            }),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reader that returns only a few bytes of the input at each read, so that records span several reads.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn all(
        input: &[u8],
        format: Format,
        max: u32,
        step: usize,
    ) -> Result<Vec<Vec<u8>>, RecordError> {
        let mut records = Records::new(Drip(input, step), format, max);
        let (mut all, mut places) = (Vec::new(), Vec::new());
        while records.read()? {
            records.whole(&mut places)?;
            let payloads = places
                .iter()
                .map(|place| records.buffer()[place.clone()].to_vec());
            all.extend(payloads);
        }
        Ok(all)
    }

    fn written(records: &[Vec<u8>], format: Format) -> Vec<u8> {
        let mut out = Vec::new();
        records
            .iter()
            .for_each(|record| format.put(record, &mut out));
        out
    }

    #[test]
    fn lines_and_the_last_one() {
        for step in [1, 2, 100] {
            let lines = |text: &str| all(text.as_bytes(), Format::Lines, 100, step).unwrap();
            assert_eq!(lines(""), Vec::<Vec<u8>>::new());
            assert_eq!(lines("\n"), [b""]);
            assert_eq!(lines("a\r\n\nb\n"), [&b"a\r"[..], b"", b"b"]);
            assert_eq!(lines("a\nb"), [&b"a"[..], b"\nb"]);
            assert_eq!(lines("ab"), [b"\nab"]);
        }
    }

    proptest! {
        #[test]
        fn records_are_written_as_they_were_read(
            input in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            step in 1usize..50,
        ) {
            let records = all(&input, Format::Lines, 200, step).unwrap();
            prop_assert_eq!(written(&records, Format::Lines), &input[..]);
            let newlines = input.iter().filter(|byte| **byte == b'\n').count();
            let unended = input.last().is_some_and(|byte| *byte != b'\n');
            prop_assert_eq!(records.len(), newlines + usize::from(unended));
        }

        #[test]
        fn prefixed_records_too(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
            step in 1usize..50,
            cut in any::<prop::sample::Index>(),
        ) {
            let input = written(&records, Format::Records);
            prop_assert_eq!(all(&input, Format::Records, 50, step).unwrap(), records);
            // The test cuts the input between two records or within a record.
            let cut = cut.index(input.len() + 1);
            match all(&input[..cut], Format::Records, 50, step) {
                Ok(fewer) => prop_assert_eq!(written(&fewer, Format::Records), &input[..cut]),
                Err(e) => prop_assert!(matches!(e, RecordError::Truncated { .. }), "{}", e),
            }
        }
    }

    #[test]
    fn a_record_too_large_is_named() {
        for step in [1, 1000] {
            let error = |input: &[u8], format| all(input, format, 3, step).unwrap_err().to_string();
            let place = "record 2 at byte 4 is larger than 3 bytes: ";
            assert!(error(b"abc\nabcd\n", Format::Lines).starts_with(place));
            assert!(error(b"abc\nabcd", Format::Lines).starts_with(place));
            assert!(error(b"\0\0\0\0\xff\xff\xff\xff", Format::Records).starts_with(place));
            assert_eq!(all(b"abc\nabc", Format::Lines, 3, step).unwrap().len(), 2);
        }
    }

    #[test]
    fn skipping_counts() {
        let mut records = Records::new(Drip(b"a\nb\nc", 2), Format::Lines, 9);
        assert_eq!(records.skip(2).unwrap(), None);
        assert_eq!(
            records.place,
            Place {
                records: 2,
                bytes: 4
            }
        );
        assert_eq!(records.skip(2).unwrap(), Some(3));
    }
}
