//! The errors of the store: when it opens a data directory, and when it writes an entry.

use std::io;

use thiserror::Error;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::members::MembersError;
use tidegate_log::{AppendError, Failure, Lsn};

/// The reason why the store refuses to open a data directory, or cannot open it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process holds the lock of the data directory, because a server or a tool is using it.
    #[error(
        "the data directory is in use: stop the process that has it, or choose another directory"
    )]
    InUse,
    /// A newer version of this program wrote the data directory, in a format that this version cannot read.
    #[error(
        "the data directory has format {version}, this version reads up to {}: use the version that wrote it, or a later one",
        super::VERSION
    )]
    Newer {
        /// The version of the format that the data directory names, which this program cannot read.
        version: u32,
    },
    /// A newer version of this program wrote one of the files in the directory, in a format that this
    /// version cannot read.
    #[error(
        "the file `{file}` of the data directory has format {version}, this version reads up to {reads}: \
         use the version that wrote it, or a later one"
    )]
    NewerFile {
        /// The name of the file in the data directory.
        file: String,
        /// The version of the format that the file names, which this program cannot read.
        version: u32,
        /// The newest version of the format that this program reads.
        reads: u32,
    },
    /// A newer version of this program wrote a record of the log, so this version would lose its content.
    #[error(
        "the log has a record of kind {kind} at {at}, this version reads up to {}: \
         use the version that wrote it, or a later one",
        crate::replica::records::KIND_LAST
    )]
    NewerRecord {
        /// The number of the record's kind, which this program does not know.
        kind: u8,
        /// The log position of the record of unknown kind.
        at: Lsn,
    },
    /// The file `version` of the data directory does not hold a version number.
    #[error(
        "the file `version` of the data directory holds no version: restore it, or run `tidegate log repair`; this version writes {}",
        super::VERSION
    )]
    Version,
    /// The members' file cannot be read. Only a check of the directory returns this error, because at a
    /// start the server itself reads the file.
    #[error(transparent)]
    Members(MembersError),
    /// The store cannot open the log.
    #[error("{0}")]
    Log(#[from] tidegate_log::OpenError),
    /// The log has records of a group of which this node, as configured, is no member, so the configuration
    /// has changed.
    #[error(
        "the log has records of group {group}, of which this node is no member as it is configured: use the configuration it had, \
         its cluster and `shards`"
    )]
    Stranger {
        /// The number of the group that the configuration does not give to this node.
        group: GroupId,
    },
    /// Bytes that this node has acknowledged are gone or unreadable. The text says which.
    #[error("{0}: restore the data directory from a copy")]
    Damaged(String),
    /// The operating system refused an operation on the data directory, so the store cannot open it.
    #[error("{doing}: {error}")]
    Io {
        /// The operation on the data directory that the operating system refused.
        doing: &'static str,
        /// The error with which the operating system refused the operation.
        error: io::Error,
    },
}

impl OpenError {
    /// Returns whether durable data of the directory is gone or unreadable, so that only a copy, a repair or
    /// other members can help. All other errors come from the operating system, another process that holds
    /// the directory, a newer program or a changed configuration.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        use tidegate_log::OpenError as Log;
        matches!(
            self,
            Self::Damaged(_)
                | Self::Version
                | Self::Members(MembersError::Damaged)
                | Self::Log(Log::Damaged(_) | Log::Gone)
        )
    }

    /// Returns the error for a log that ends before a checkpoint: durable records are lost.
    pub(super) fn ends_early(end: Lsn, checkpoint: Lsn) -> Self {
        Self::Damaged(format!(
            "the log ends at {end}, and the checkpoint covers it up to {checkpoint}"
        ))
    }

    /// Returns the error for a log that has lost its end. This node may have acknowledged the lost records
    /// to other members, so it must not vote without them.
    pub(super) fn shortened() -> Self {
        Self::Damaged("the last segment of the log has lost its end".to_owned())
    }

    /// Returns the error for a log that lacks records which this node may have acknowledged to other
    /// members.
    pub(super) fn lacks_entries() -> Self {
        let text = "the log lacks entries that other members may count on, so this node must not go on with it";
        Self::Damaged(text.to_owned())
    }

    pub(super) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { doing, error }
    }
}

/// The reason why the store did not accept an entry. A refused entry has changed nothing.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Too many bytes of entries wait to be written or committed. The caller tries again after the next
    /// wake-up.
    #[error(
        "too many bytes of entries wait to be written or committed: try again at the next wake-up"
    )]
    Full,
    /// The entry needs the next segment of the log, for which the disk has no space.
    #[error("no space on the disk: make some, or delete messages, and try again")]
    DiskFull,
    /// The entry does not fit into one segment of the log, so the store can never accept it.
    #[error("an entry of {bytes} bytes where at most {most} fit: split it")]
    TooLarge {
        /// The number of bytes that the refused entry would take in the log.
        bytes: u64,
        /// The greatest number of bytes that an entry may take in the log. The caller must split the entry
        /// to fit.
        most: u64,
    },
    /// Another member leads the group, so this member cannot propose the entry.
    #[error("this node does not lead its group: ask the leader")]
    NotLeader,
    /// A write or a sync of the log failed, so nothing more can become durable and the process must end.
    #[error("{0}")]
    Failed(Failure),
}

impl From<AppendError> for WriteError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::TooLarge { bytes, most } => Self::TooLarge { bytes, most },
            AppendError::DiskFull => Self::DiskFull,
            AppendError::Failed(failure) => Self::Failed(failure),
            // The log's other errors that can occur here are temporary: its queue is full, or the next
            // segment is not allocated yet.
            _ => Self::Full,
        }
    }
}
