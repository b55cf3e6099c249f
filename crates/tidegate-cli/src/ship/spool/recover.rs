//! Checks a spool at rest: the manifest's promises against the contents of the segments.
//!
//! A crash may leave an unfinished batch at the end of the newest segment, behind the bytes that the manifest
//! covers. The start cuts that tail off. Any other missing or changed byte is damage, and the start refuses
//! the spool: a number given to one record is never given to another.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::codec::{self, Extent, Owner};
use super::{Segment, SpoolError, name, read_block};
use crate::ship::disk::{Bytes, Disk};

/// The contents of the segments.
pub(super) struct Recovered<F> {
    /// In order, without gaps, never empty, and durable.
    pub(super) segments: VecDeque<Segment<F>>,
    /// Segments of acked records that a crash kept the writer from removing.
    pub(super) released: Vec<u64>,
    /// The bytes of an unfinished batch, which the start cut off.
    pub(super) cut_bytes: u64,
}

/// Opens every segment, checks it, and cuts the newest behind its last whole record. With `is_doubtful` one
/// slot of the manifest is not whole, so the newest segment must end with a whole record.
///
/// `extent` is `None` for a spool of the first format. Then the newest segment ends where its whole records
/// end, unless a whole record lies behind a bad one.
pub(super) fn recover<D: Disk>(
    disk: &D,
    mut firsts: Vec<u64>,
    owner: &Owner,
    extent: Option<&Extent>,
    is_doubtful: bool,
) -> Result<Recovered<D::File>, SpoolError> {
    let check = Check {
        disk,
        extent,
        is_doubtful,
        oldest: extent.map_or_else(|| firsts.first().copied(), |extent| Some(extent.first)),
    };
    let mut released = Vec::new();
    match extent {
        Some(extent) => {
            released.extend(firsts.extract_if(.., |first| *first < extent.first));
            // An empty segment holds nothing: a missing one is created again.
            if extent.bytes == 0 && firsts.last().is_none_or(|last| *last < extent.segment) {
                firsts.push(extent.segment);
            }
            for wanted in [extent.first, extent.segment] {
                if !firsts.contains(&wanted) {
                    return Err(check.missing(wanted));
                }
            }
        }
        None if firsts.is_empty() && owner.base == 0 => firsts.push(1),
        None if firsts.first().is_none_or(|first| *first <= owner.base) => {
            return Err(check.missing(owner.base + 1));
        }
        None => {}
    }
    let mut recovered = Recovered {
        segments: VecDeque::new(),
        released,
        cut_bytes: 0,
    };
    for (at, &first) in firsts.iter().enumerate() {
        if let Some(before) = recovered.segments.back()
            && before.next != first
        {
            return Err(check.gap(before.first, before.next, first));
        }
        let (segment, cut) = check.segment(first, firsts.get(at + 1).copied())?;
        recovered.segments.push_back(segment);
        recovered.cut_bytes += cut;
    }
    Ok(recovered)
}

struct Check<'a, D> {
    disk: &'a D,
    extent: Option<&'a Extent>,
    is_doubtful: bool,
    oldest: Option<u64>,
}

impl<D: Disk> Check<'_, D> {
    /// Opens one segment, cuts it behind its last whole record and makes it durable. Also returns the number
    /// of bytes cut off.
    fn segment(
        &self,
        first: u64,
        successor: Option<u64>,
    ) -> Result<(Segment<D::File>, u64), SpoolError> {
        let path = self.path(first);
        let on = |error| SpoolError::Io {
            path: path.clone(),
            error,
        };
        let marked = self.extent.filter(|extent| extent.segment == first);
        let floor = marked.map_or(0, |extent| extent.bytes);
        let file = Arc::new(self.disk.open(OsStr::new(&name(first))).map_err(on)?);
        let bytes = file.bytes().map_err(on)?.unwrap_or_default();
        let walk = walk(&*file, first, bytes, floor).map_err(on)?;
        let (next, end) = (walk.next, walk.end);
        // The last lost record, if the records end here.
        let last = match (successor, self.extent) {
            (Some(successor), _) => Some(successor - 1),
            (None, Some(extent)) => Some(extent.next - 1),
            (None, None) => None,
        };
        let lost = |what: String| self.damaged(path.clone(), what, next, last);
        if end < floor {
            return Err(match end < bytes {
                true => lost(format!("record {next} at byte {end} is damaged")),
                false => lost(format!("ends after {end} of {floor} bytes")),
            });
        }
        if let Some(extent) = marked
            && floor > 0
            && walk.next_at_floor != Some(extent.next)
        {
            let what = format!("is another file: record {} ends elsewhere", extent.next - 1);
            return Err(lost(what));
        }
        if end < bytes {
            // A segment is durable before it gets a successor.
            let behind = match self.extent {
                None => whole_behind(&*file, next, end, bytes).map_err(on)?,
                // The writer begins a batch once the previous batch's manifest is durable, so a crash tears a
                // slot or a batch, and never both.
                Some(_) => self.is_doubtful,
            };
            if successor.is_some() || behind {
                return Err(lost(format!("record {next} at byte {end} is damaged")));
            }
            file.set_bytes(end).map_err(on)?;
        }
        file.sync().map_err(on)?;
        let segment = Segment {
            first,
            next,
            bytes: end,
            file,
        };
        Ok((segment, bytes - end))
    }

    fn path(&self, first: u64) -> PathBuf {
        self.disk.path(OsStr::new(&name(first)))
    }

    fn missing(&self, first: u64) -> SpoolError {
        let last = self.extent.map(|extent| extent.next - 1);
        self.damaged(self.path(first), "is missing".into(), first, last)
    }

    /// Describes a gap: the segment that begins with `before` ends with record `next` - 1, and the one behind
    /// it begins with another record.
    fn gap(&self, before: u64, next: u64, first: u64) -> SpoolError {
        let behind = self.path(first);
        let what = match next < first {
            true if next == before => {
                format!("is empty, and the next segment is {}", behind.display())
            }
            true => format!(
                "ends with record {}, and the next segment is {}: it was cut, or {} was removed",
                next - 1,
                behind.display(),
                self.path(next).display()
            ),
            false => format!(
                "holds record {first}, with which {} begins",
                behind.display()
            ),
        };
        self.damaged(
            self.path(before),
            what,
            next.min(first),
            Some(first.max(next) - 1),
        )
    }

    fn damaged(&self, path: PathBuf, what: String, first: u64, last: Option<u64>) -> SpoolError {
        let directory = path.parent().map(PathBuf::from).unwrap_or_default();
        let records = |first: u64, last: Option<u64>| match last {
            Some(last) if last > first => format!("records {first} to {last}"),
            Some(_) => format!("record {first}"),
            None => format!("records from {first} on"),
        };
        let newest = self.extent.map(|extent| extent.next - 1);
        SpoolError::Damaged {
            path,
            what,
            lost: records(first, last),
            held: records(self.oldest.unwrap_or(1), newest),
            directory,
        }
    }
}

/// The end of a segment's whole records.
struct Walk {
    /// The number after the last whole record.
    next: u64,
    /// The offset after it.
    end: u64,
    /// The number of the record at the offset `floor`, if a record ends there.
    next_at_floor: Option<u64>,
}

fn walk(file: &impl Bytes, first: u64, bytes: u64, floor: u64) -> io::Result<Walk> {
    let mut walk = Walk {
        next: first,
        end: 0,
        next_at_floor: None,
    };
    let mut buffer = Vec::new();
    while walk.end < bytes {
        let mut rest = read_block(file, walk.end, bytes, &mut buffer)?;
        let start = walk.next;
        while let Some((_, left)) = codec::decode(walk.next, rest) {
            walk.next += 1;
            walk.end += (rest.len() - left.len()) as u64;
            rest = left;
            if walk.end == floor {
                walk.next_at_floor = Some(walk.next);
            }
        }
        if walk.next == start {
            break;
        }
    }
    Ok(walk)
}

/// Returns whether a whole record follows the bad record `number` at byte `at`. A tail that a crash left has
/// no whole record behind it.
fn whole_behind(file: &impl Bytes, number: u64, at: u64, end: u64) -> io::Result<bool> {
    // The rest is at most one segment and one batch.
    let mut rest = vec![0; (end - at) as usize];
    file.read_at(at, &mut rest)?;
    let record = |number, offset: usize| {
        let found = rest
            .get(offset..)
            .and_then(|bytes| codec::decode(number, bytes));
        found.is_some()
    };
    // If only payloads are bad, the lengths lead from record to record.
    let (mut behind, mut offset) = (number, 0_usize);
    while let Some(bytes) = rest.get(offset..).and_then(codec::bytes) {
        offset = offset.saturating_add(bytes as usize);
        behind += 1;
        if record(behind, offset) {
            return Ok(true);
        }
    }
    // If a length is bad, the next record may begin at any byte.
    Ok((1..rest.len()).any(|offset| record(number + 1, offset)))
}
