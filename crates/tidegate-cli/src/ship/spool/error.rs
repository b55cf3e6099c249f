//! The errors of the sender's spool, and their texts.

use std::io;
use std::path::{Path, PathBuf};

use tidegate_log::{AppendError, Damage, DamageKind, Failure, OpenError, ReadError};

/// The reasons why the sender cannot use a spool, as the user reads them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(in crate::ship) enum SpoolError {
    /// The operating system refused an operation on the spool.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path of the file or directory on which the operation failed.
        path: PathBuf,
        /// The error of the operating system, which names the cause.
        error: io::Error,
    },
    /// The process of another sender uses the spool, so this sender may not.
    #[error("{}: another sender uses this spool: end that one, or give another directory", .0.display())]
    Locked(PathBuf),
    /// The spool belongs to another session than the session that the user gave.
    #[error("{}: the spool of another session: send under its name, or give another directory", .0.display())]
    OtherSession(PathBuf),
    /// The version 0.1 of this program wrote the spool, in a format that only that version reads.
    #[error("{}: a spool of tidegate 0.1, which only that version can empty: run its `tidegate send` with these arguments \
        and < /dev/null until it ends, then give another directory and another --session", .0.display())]
    Old(PathBuf),
    /// Durable records of the spool are missing or changed, so the sender cannot ship all of them.
    #[error("{what}, so {lost} would be lost: bring the file back from a copy, or give up all the spool holds: \
        remove {} and send under another --session", directory.display())]
    Damaged {
        /// The damage to the log, described by the paths of the damaged files.
        what: String,
        /// The numbers of the records that the sender cannot read, as text.
        lost: String,
        /// The directory of the spool, which the message names.
        directory: PathBuf,
    },
    /// The file `session` is missing or changed, although the spool has records, so the sender does not know
    /// the spool's format.
    #[error("{}: missing or damaged, so the format of the files beside it is not known: bring the file \
        back from a copy, or give the records up: remove {} and send under another --session",
        path.display(), directory.display())]
    Unreadable {
        /// The path of the file that the error is about.
        path: PathBuf,
        /// The directory of the spool, which the message names.
        directory: PathBuf,
    },
    /// A later version of this program wrote the spool, in a format that this version does not know.
    #[error("{}: written by a later version of tidegate (format {version}): use that one", path.display())]
    Later {
        /// The path of the file that the error is about.
        path: PathBuf,
        /// The version of the spool's format that the file `session` names.
        version: String,
    },
    /// The receiver has more records of the session than this spool ever had, so they came from another
    /// spool.
    #[error(
        "the receiver has {received} records of this session, the spool only {spooled}: it is not the spool they came \
        from; send under another name"
    )]
    Behind {
        /// The number of records of the session that the receiver has.
        received: u64,
        /// The number of records of the session that the spool has had.
        spooled: u64,
    },
    /// The receiver lacks records of the session that the spool has already removed, so it has lost them.
    #[error(
        "the receiver has {received} records of this session, but the spool begins after {removed} that were acknowledged: \
        the receiver lost some; send under another name"
    )]
    Ahead {
        /// The number of records of the session that the receiver has.
        received: u64,
        /// The number of records that the receiver acked earlier and the spool removed.
        removed: u64,
    },
    /// A write or a sync of the spool's log failed, and the spool accepts nothing more.
    #[error("{}: {} failed: {}", path.display(), failure.doing, failure.error)]
    Failed {
        /// The directory of the spool, which the message names.
        path: PathBuf,
        /// The failure as the log reports it.
        failure: Failure,
    },
}

impl SpoolError {
    /// Explains to the user why the spool's log does not open. `lost` names the records that are not
    /// readable.
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

    /// Explains to the user why the spool's log does not accept a batch.
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

    /// Explains to the user why the spool cannot read record `number`.
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

/// Describes damage to the spool's log by the paths of the damaged files, so that the user can restore them.
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
            DamageKind::Shortened => "is shorter than at its creation",
            _ => "is damaged",
        };
        parts.push(format!("{}: {what}", path.display()));
    }
    parts.join("; ")
}
