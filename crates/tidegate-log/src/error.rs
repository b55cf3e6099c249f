//! The errors that the log returns to its callers, one enum for each operation.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{Damage, Lsn};

/// The reason why the log accepts nothing more: a write or a sync failed. Bytes that the log wrote since the
/// last successful sync may or may not be durable, and no later sync can show which of them are. So the
/// process should end, and learn the state of these bytes by opening the log again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The operation of the log that failed, such as `syncing the log`.
    pub doing: &'static str,
    /// The error that the system reported for the operation.
    pub error: Arc<io::Error>,
    /// The position up to which the log is durable. The log has reported no later position as durable, so a
    /// caller must count later batches as unknown.
    pub durable: Lsn,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} failed: {}; the log is durable up to {} and accepts nothing more: end the process and open the log again",
            self.doing, self.error, self.durable
        )
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.error)
    }
}

/// The reasons why an opening or an inspection of a log fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has opened the log and holds the lock of the log's directory.
    InUse,
    /// A newer version of this crate wrote a file of the log, in a format that this version does not know.
    Newer {
        /// The name of the file.
        name: String,
        /// The format version that the file names, which this crate cannot read.
        version: u32,
    },
    /// Bytes of the log that were durable are gone or unreadable, so an opening would lose acknowledged
    /// records.
    Damaged(Box<Damage>),
    /// The directory has no log, although the option
    /// [`Options::must_be_there`](crate::Options::must_be_there) requires that it has one.
    Gone,
    /// One of the log's options has a value that the log cannot use. The text says which option, and which
    /// values the log accepts.
    Options(&'static str),
    /// The operating system reported an error when the opening or the inspection used the log's files.
    Io {
        /// The operation of the log that failed, such as `syncing the log`.
        doing: &'static str,
        /// The error that the system reported for the operation.
        error: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { doing, error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => {
                f.write_str("the log's directory is in use: stop the process that has it, or choose another one")
            }
            Self::Newer { name, version } => write!(
                f,
                "{name} has format {version}, this version reads up to {}: use the version that wrote it, or a later one",
                crate::FORMAT_VERSION
            ),
            Self::Damaged(damage) => write!(
                f,
                "the log is damaged ({damage}): restore its files, or repair it, which lists the lost entries"
            ),
            Self::Gone => f.write_str("all files of the log are gone: restore them"),
            Self::Options(what) => f.write_str(what),
            Self::Io { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The reasons why the log did not accept a batch. A refused append has changed nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AppendError {
    /// The batch has no records.
    Empty,
    /// A record of the batch has kind 255, and only the log's own placeholders for lost records may have
    /// this kind.
    Kind,
    /// The batch has more bytes than one segment of the log can hold, so the log can never accept it.
    TooLarge {
        /// The number of bytes that the refused batch would take in the log. The caller must split the batch
        /// to fit into `most`.
        bytes: u64,
        /// The greatest number of bytes that a batch may take in the log: the room of one segment.
        most: u64,
    },
    /// The accepted batches that are not yet durable have reached the log's bound on their bytes or their
    /// number. The caller tries again once more of them are durable.
    Full {
        /// The number of bytes by which the refused batch would exceed the bound on bytes; 0 if the bound on
        /// the number of batches is the reason for the refusal.
        missing_bytes: u64,
    },
    /// The batch needs the next segment, which the keeper is still allocating. The caller tries again when
    /// the log next calls the waker.
    NotReady,
    /// The batch needs the next segment, for which the disk has no space. The caller frees disk space or
    /// releases segments, and tries again.
    DiskFull,
    /// A write or a sync of the log failed earlier, so the log accepts no more batches.
    Failed(Failure),
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a batch without records: give at least one"),
            Self::Kind => f.write_str("kind 255 is the log's own: use another one"),
            Self::TooLarge { bytes, most } => write!(
                f,
                "a batch of {bytes} bytes where at most {most} fit: split it, or use larger segments"
            ),
            Self::Full { missing_bytes } => write!(
                f,
                "too many accepted batches are not durable yet ({missing_bytes} bytes over the bound): try again once more are durable"
            ),
            Self::NotReady => {
                f.write_str("the next segment is being allocated: try again at the next wake-up")
            }
            Self::DiskFull => f.write_str(
                "no space for the next segment: make space or release segments, then try again",
            ),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for AppendError {}

/// The reasons why a reader cannot return a record of the log.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The log is not yet durable at the position that the caller wants to read.
    NotDurable {
        /// The position up to which the log is durable at the time of the read. The caller can wait until
        /// the log is durable behind the record.
        durable: Lsn,
    },
    /// The log has released the segment that held the record, so the record is gone.
    Released,
    /// The bytes at the position differ from the record that the log wrote there, or no record begins at that
    /// position.
    Damaged {
        /// The log position at which the caller wanted to read a record, for the report of the damage.
        at: Lsn,
    },
    /// The record was lost: a repair of the log could not save it, and put a placeholder in its place.
    Lost,
    /// The operating system returned an error when the reader read the log's file.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDurable { durable } => {
                write!(f, "the log is not durable there yet, only up to {durable}")
            }
            Self::Released => {
                f.write_str("the log has released the record's segment: read only retained records")
            }
            Self::Damaged { at } => write!(
                f,
                "no readable record at {at}: verify the log, or give a position that an append or an index gave"
            ),
            Self::Lost => f.write_str(
                "the record was damaged and a repair could not save it: fetch it from elsewhere",
            ),
            Self::Io(error) => write!(f, "reading the log: {error}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// The reasons why the log refuses to release a segment, by which the caller knows whether to try again
/// later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The log has no segment with the number that the caller wants to release, perhaps because it has
    /// released the segment before.
    Unknown,
    /// The log still writes to the segment that the caller wants to release, or no record behind that segment
    /// is durable yet.
    Open,
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no segment of this number: it may have been released before",
            Self::Open => {
                "nothing behind the segment is durable yet: append more, and release it afterwards"
            }
        })
    }
}

impl std::error::Error for ReleaseError {}
