//! The members' file in the data directory: read at the start, written whole when it is drawn and when the
//! cluster is formed.
//!
//! It is written beside, synced, renamed, and the directory synced: a crash leaves the one or the other.

use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;

use tidegate_log::{Disk, Storage};

use crate::cluster::members::{Member, MembersError, MembersFile};
use crate::store::VERSION_FILE;

const FILE: &str = "members";
const NEW: &str = "members-new";

/// Why the identity in a data directory cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The system refuses.
    #[error("the file `members` cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// It is not this node's.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// It is a cluster's, and the server was started alone.
    #[error(
        "the data directory belongs to a node of cluster `{0}`: say --cluster and --routes, or use another directory"
    )]
    Clustered(String),
    /// It is of a server that ran alone.
    #[error(
        "the data directory is of a server that ran alone, or has lost its file `members`; the nodes of a cluster begin with empty ones: use another directory, and --rejoin if this was a member's"
    )]
    Alone,
}

/// The directory of the members' file of a data directory.
pub(super) fn storage(data: &Path) -> Result<Disk, IdentityError> {
    Ok(Disk::open(data.join("tidegate"))?)
}

/// What the file says, if there is one.
pub(super) fn load(storage: &dyn Storage) -> Result<Option<MembersFile>, IdentityError> {
    let file = match storage.open(FILE) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let bytes = usize::try_from(file.bytes()?).map_err(|_| MembersError::Damaged)?;
    // Thirty-two members of the longest names are far below.
    let mut text = vec![0; bytes.min(1 << 16)];
    let read = file.read_at(&mut text, 0)?;
    text.truncate(read);
    Ok(Some(MembersFile::decode(&text)?))
}

/// Makes this what the file says, durably.
pub(super) fn save(storage: &dyn Storage, file: &MembersFile) -> io::Result<()> {
    let to = storage.create(NEW)?;
    to.write_at(&[IoSlice::new(file.encode().as_bytes())], 0)?;
    to.sync()?;
    storage.rename(NEW, FILE)?;
    storage.sync_names()
}

/// Who this node of that cluster is: as the directory has it, or drawn now with the id `fresh` and written
/// down.
pub(super) fn identify(
    storage: &dyn Storage,
    cluster: &str,
    name: &str,
    fresh: u64,
) -> Result<MembersFile, IdentityError> {
    if let Some(file) = load(storage)? {
        file.check(cluster, name)?;
        return Ok(file);
    }
    // What one server decided alone, others cannot have decided too.
    if storage.list()?.iter().any(|name| name == VERSION_FILE) {
        return Err(IdentityError::Alone);
    }
    let file = MembersFile {
        cluster: cluster.into(),
        me: Member {
            name: name.into(),
            id: fresh,
        },
        rejoined: None,
        log_begun: false,
        members: None,
    };
    save(storage, &file)?;
    Ok(file)
}

/// There is a log, and what it is to keep may be promised from now on. Nothing is promised before.
pub(super) fn begin_log(storage: &dyn Storage, file: &mut MembersFile) -> io::Result<()> {
    if file.log_begun {
        return Ok(());
    }
    let begun = MembersFile {
        log_begun: true,
        ..file.clone()
    };
    save(storage, &begun)?;
    *file = begun;
    Ok(())
}

/// The directory is not a cluster's.
pub(super) fn check_alone(storage: &dyn Storage) -> Result<(), IdentityError> {
    match load(storage)? {
        Some(file) => Err(IdentityError::Clustered(file.cluster)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
