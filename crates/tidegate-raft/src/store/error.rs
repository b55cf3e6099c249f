//! Errors of opening a data directory, and of writing to it.

use std::io;

use thiserror::Error;
use tidegate_cluster::groups::GroupId;
use tidegate_log::{AppendError, Failure};

/// The reason why the store cannot open a data directory. The attempt has changed nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process holds the directory.
    #[error(
        "the data directory is in use: stop the process that has it, or choose another directory"
    )]
    InUse,
    /// A newer version wrote the directory.
    #[error(
        "the data directory has format {version}, this version reads up to {}: use the version that wrote it, or a later one",
        super::VERSION
    )]
    Newer {
        /// The version that the file or the directory has.
        version: u32,
    },
    /// A newer version wrote one of the directory's files.
    #[error(
        "the file `{file}` of the data directory has format {version}, this version reads up to {reads}: \
         use the version that wrote it, or a later one"
    )]
    NewerFile {
        /// The file's name.
        file: String,
        /// The version that the file or the directory has.
        version: u32,
        /// The newest version that this program reads.
        reads: u32,
    },
    /// A newer version wrote a record of the log.
    #[error(
        "the log has a record of kind {kind} at {at}, this version reads up to {}: \
         use the version that wrote it, or a later one",
        crate::replica::records::KIND_LAST
    )]
    NewerRecord {
        /// The kind of the record.
        kind: u8,
        /// The position of the record.
        at: tidegate_log::Lsn,
    },
    /// The version file of the directory holds no version.
    #[error(
        "the file `version` of the data directory holds no version: restore it; this version writes {}",
        super::VERSION
    )]
    Version,
    /// The store cannot open the log.
    #[error("{0}")]
    Log(#[from] tidegate_log::OpenError),
    /// The log has records of a group of which this node, as configured, is no member.
    #[error(
        "the log has records of group {group}, of which this node is no member as it is configured: use the configuration it had, \
         its cluster and `shards`"
    )]
    Stranger {
        /// The number of the group.
        group: GroupId,
    },
    /// Bytes that this node has acknowledged are gone or unreadable.
    #[error("{0}: restore the data directory from a copy")]
    Damaged(String),
    /// The operating system refused an operation.
    #[error("{doing}: {error}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl OpenError {
    /// Returns whether the reason is that durable data is gone or unreadable. Other reasons are refusals of
    /// the system, or another process that holds the directory.
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

/// The reason why the store did not accept an entry. Nothing has changed.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Too many bytes wait to be written or committed.
    #[error("too much waits to be written: try again at the next wake-up")]
    Full,
    /// There is no space for the next segment of the log.
    #[error("no space on the disk: make some, or delete messages, and try again")]
    DiskFull,
    /// The entry does not fit into a segment of the log.
    #[error("an entry of {bytes} bytes where at most {most} fit: split it")]
    TooLarge {
        /// The number of bytes that the entry takes.
        bytes: u64,
        /// The most bytes that an entry may take.
        most: u64,
    },
    /// Another member leads the group.
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
            // The other reasons are that the log's queue is full, or that the next segment is not allocated
            // yet. The log refuses valid records for no further reason.
            _ => Self::Full,
        }
    }
}
