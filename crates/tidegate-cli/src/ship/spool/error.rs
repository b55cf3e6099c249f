//! The errors of the spool, and their texts.

use std::io;
use std::path::{Path, PathBuf};

use tidegate_log::{AppendError, Damage, DamageKind, Failure, OpenError, ReadError};

/// The reasons why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(in crate::ship) enum SpoolError {
    /// The system refused an operation.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path of the file or the directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another process uses the spool.
    #[error("{}: another sender uses this spool: end that one, or give another directory", .0.display())]
    Locked(PathBuf),
    /// The spool belongs to another session.
    #[error("{}: the spool of another session: send under its name, or give another directory", .0.display())]
    OtherSession(PathBuf),
    /// A version 0.1 of this program wrote the spool.
    #[error("{}: a spool of tidegate 0.1, which only that version can empty: run its `tidegate send` with these arguments \
        and < /dev/null until it ends, then give another directory and another --session", .0.display())]
    Old(PathBuf),
    /// Durable records are missing or changed.
    #[error("{what}, so {lost} would be lost: bring the file back from a copy, or give up all the spool holds: \
        remove {} and send under another --session", directory.display())]
    Damaged {
        /// The damage, by the paths of the damaged files.
        what: String,
        /// The records that are not readable.
        lost: String,
        /// The directory of the spool.
        directory: PathBuf,
    },
    /// The file `session` is missing or changed, although there are records.
    #[error("{}: missing or damaged, so the format of the files beside it is not known: bring the file \
        back from a copy, or give the records up: remove {} and send under another --session",
        path.display(), directory.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The directory of the spool.
        directory: PathBuf,
    },
    /// A later version of this program wrote the spool.
    #[error("{}: written by a later version of tidegate (format {version}): use that one", path.display())]
    Later {
        /// The path of the file.
        path: PathBuf,
        /// The format version.
        version: String,
    },
    /// The receiver has records that this spool never had.
    #[error(
        "the receiver has {received} records of this session, the spool only {spooled}: it is not the spool they came \
        from; send under another name"
    )]
    Behind {
        /// The number of records that the receiver has.
        received: u64,
        /// The number of records that were spooled.
        spooled: u64,
    },
    /// The receiver lacks records that the spool has already removed.
    #[error(
        "the receiver has {received} records of this session, but the spool begins after {removed} that were acknowledged: \
        the receiver lost some; send under another name"
    )]
    Ahead {
        /// The number of records that the receiver has.
        received: u64,
        /// The number of records acked and removed.
        removed: u64,
    },
    /// A write or a sync failed, and the spool accepts nothing more.
    #[error("{}: {} failed: {}", path.display(), failure.doing, failure.error)]
    Failed {
        /// The directory of the spool.
        path: PathBuf,
        /// The log's failure.
        failure: Failure,
    },
}

impl SpoolError {
    /// Explains why the log does not open. `lost` names the records that are not readable.
    pub(super) fn open(directory: &Path, error: OpenError, lost: String) -> Self {
        let path = directory.to_owned();
        match error {
            OpenError::InUse => Self::Locked(path),
            OpenError::Newer { name, version } => Self::Later {
                path: directory.join(name),
                version: version.to_string(),
            },
            OpenError::Damaged(damage) => Self::Damaged {
                what: described(directory, &damage),
                lost,
                directory: path,
            },
            OpenError::Io { error, .. } => Self::Io { path, error },
            error => Self::Io {
                path,
                error: io::Error::other(error),
            },
        }
    }

    /// Explains why the log does not accept a batch.
    pub(super) fn append(directory: &Path, error: AppendError) -> Self {
        let path = directory.to_owned();
        match error {
            AppendError::Failed(failure) => Self::Failed { path, failure },
            AppendError::DiskFull => Self::Io {
                path,
                error: io::ErrorKind::StorageFull.into(),
            },
            error => Self::Io {
                path,
                error: io::Error::other(error),
            },
        }
    }

    /// Explains why record `number` cannot be read.
    pub(super) fn read(directory: &Path, error: ReadError, number: u64) -> Self {
        let directory = directory.to_owned();
        match error {
            ReadError::Io(error) => Self::Io {
                path: directory,
                error,
            },
            error => Self::Damaged {
                what: format!("{}: {error}", directory.display()),
                lost: format!("records from {number} on"),
                directory,
            },
        }
    }
}

/// Describes damage by the paths of the files.
fn described(directory: &Path, damage: &Damage) -> String {
    let mut parts = Vec::new();
    if damage.catalog {
        let catalog = directory.join("catalog");
        parts.push(format!("{}: missing or damaged", catalog.display()));
    }
    for segment in &damage.segments {
        let path = directory.join(format!("{:020}.seg", segment.segment));
        let what = match segment.what {
            DamageKind::Missing => "is missing",
            DamageKind::Header => "its first page is damaged",
            DamageKind::Shortened => "is shorter than it was made",
            _ => "is damaged",
        };
        parts.push(format!("{}: {what}", path.display()));
    }
    parts.join("; ")
}
