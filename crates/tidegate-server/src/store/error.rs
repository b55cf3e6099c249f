//! What can go wrong with a data directory, and with a write to it.

use std::io;

use thiserror::Error;
use tidegate_log::{AppendError, Failure};

/// Why a data directory cannot be opened. Nothing was changed then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the data directory is in use: stop the process that has it, or choose another directory"
    )]
    InUse,
    /// A newer version wrote it.
    #[error(
        "the data directory has format {version}, this version reads up to {}: use the version that wrote it, or a later one",
        super::open::VERSION
    )]
    Newer {
        /// Its format.
        version: u32,
    },
    /// A newer version wrote one of its files.
    #[error(
        "the file `{file}` of the data directory has format {version}, this version reads up to {reads}: \
         use the version that wrote it, or a later one"
    )]
    NewerFile {
        /// The file's name.
        file: String,
        /// Its format.
        version: u32,
        /// The format this version writes.
        reads: u32,
    },
    /// A newer version wrote a record of the log.
    #[error(
        "the log has a record of kind {kind} at {at}, this version reads up to {}: \
         use the version that wrote it, or a later one",
        crate::replica::records::KIND_LAST
    )]
    NewerRecord {
        /// Its kind.
        kind: u8,
        /// Where it is.
        at: tidegate_log::Lsn,
    },
    /// The file that says its format does not.
    #[error(
        "the file `version` of the data directory holds no version: restore it; this version writes {}",
        super::open::VERSION
    )]
    Version,
    /// The log cannot be opened.
    #[error("{0}")]
    Log(#[from] tidegate_log::OpenError),
    /// The log has records of a group that this node does not know to be a member of.
    #[error(
        "the log has records of group {group}, of which this node is no member as it is configured: use the configuration it had, \
         its cluster and `shards`"
    )]
    Stranger {
        /// Its number.
        group: u32,
    },
    /// Bytes that were acknowledged are gone or unreadable.
    #[error("{0}: restore the data directory from a copy")]
    Damaged(String),
    /// The system refused something.
    #[error("{doing}: {error}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl OpenError {
    /// Returns whether what was durable is gone or unreadable, and not the system or another process in the
    /// way.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        use tidegate_log::OpenError as Log;
        matches!(
            self,
            Self::Damaged(_) | Self::Version | Self::Log(Log::Damaged(_) | Log::Gone)
        )
    }

    pub(super) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { doing, error }
    }
}

/// Why an entry was not accepted. Nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Too much waits to be written or committed.
    #[error("too much waits to be written: try again at the next wake-up")]
    Full,
    /// There is no space for the next segment of the log.
    #[error("no space on the disk: make some, or delete messages, and try again")]
    DiskFull,
    /// It would not fit into a segment of the log.
    #[error("an entry of {bytes} bytes where at most {most} fit: split it")]
    TooLarge {
        /// What it takes.
        bytes: u64,
        /// The most it may take.
        most: u64,
    },
    /// Another member of the group decides.
    #[error("this node does not lead its group: ask the leader")]
    NotLeader,
    /// A write or a sync failed: the process must end.
    #[error("{0}")]
    Failed(Failure),
}

impl From<AppendError> for WriteError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::TooLarge { bytes, most } => Self::TooLarge { bytes, most },
            AppendError::DiskFull => Self::DiskFull,
            AppendError::Failed(failure) => Self::Failed(failure),
            // Full, and the next segment not there yet; records without fault are refused for nothing else.
            _ => Self::Full,
        }
    }
}
