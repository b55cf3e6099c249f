//! The errors of the log, one enum per operation.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{Damage, Lsn};

/// The reason why the log accepts nothing more: a write or a sync failed. Bytes written
/// since the last sync may or may not be durable, and no later sync could tell: the
/// process should end, and learn their state by opening the log again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The operation that failed.
    pub doing: &'static str,
    /// The system's error.
    pub error: Arc<io::Error>,
    /// The log is durable up to this position, and never reported a later one as durable.
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

/// The reasons why a log cannot be opened or inspected.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has locked the directory.
    InUse,
    /// A file was written by a newer version.
    Newer {
        /// The name of the file.
        name: String,
        /// The version of the file.
        version: u32,
    },
    /// Bytes that were durable are gone or cannot be read.
    Damaged(Box<Damage>),
    /// There is no log, although [`Options::must_be_there`](crate::Options::must_be_there) requires one.
    Gone,
    /// An option is impossible.
    Options(&'static str),
    /// The system reported an error.
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
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

/// The reasons why the log did not accept a batch. The log is unchanged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AppendError {
    /// The batch has no records.
    Empty,
    /// A record has the kind that is reserved for the log.
    Kind,
    /// The batch would not fit into a segment of its own.
    TooLarge {
        /// The bytes of the batch.
        bytes: u64,
        /// The most a batch may take.
        most: u64,
    },
    /// The backlog is full: try again when more has become durable.
    Full {
        /// The missing bytes; 0 if the number of batches is the limit.
        missing_bytes: u64,
    },
    /// The keeper is allocating the next segment: try again at the next wake-up.
    NotReady,
    /// There is no space for the next segment: make some, or release segments, and try again.
    DiskFull,
    /// A write or a sync of the log failed before.
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
                "too much waits to be written ({missing_bytes} bytes over the bound): try again when something became durable"
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

/// The reasons why a record cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The log is not yet durable at this position.
    NotDurable {
        /// The end of the durable part of the log.
        durable: Lsn,
    },
    /// The segment of the record was released.
    Released,
    /// The bytes at the position are not the record that was written, or no record begins there.
    Damaged {
        /// The position of these bytes.
        at: Lsn,
    },
    /// A repair of the log could not save the record.
    Lost,
    /// The system failed to read.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDurable { durable } => {
                write!(
                    f,
                    "nothing durable is there: the log is durable up to {durable}"
                )
            }
            Self::Released => f.write_str("its segment was released: read only retained entries"),
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

/// The reasons why a segment was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseError {
    /// There is no segment of this number.
    Unknown,
    /// The log still writes to the segment, or nothing behind the segment is durable yet.
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
