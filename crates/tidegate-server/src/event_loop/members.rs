//! The members' file in the data directory. The server reads the file at the start, and writes it as a whole
//! when its content changes: when the server draws its id, when the cluster is formed, when the log begins,
//! and when the node rejoins.
//!
//! The server writes the new file beside the old one, syncs it, renames it, and syncs the directory: a crash
//! leaves the old file or the new one.

use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;

use tidegate_cluster::members::{Member, MembersError, MembersFile};
use tidegate_log::{Disk, Storage};

use tidegate_raft::store::VERSION_FILE;

const FILE: &str = "members";
const NEW: &str = "members-new";

/// The reason why a node cannot take its identity from the data directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The system refuses to read or write the file.
    #[error("the file `members` cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// The file is damaged, or belongs to another node or cluster.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// The file belongs to a cluster, and the operator started the server without a cluster.
    #[error(
        "the data directory belongs to a node of cluster `{0}`: say --cluster and --routes, or use another directory"
    )]
    Clustered(String),
    /// The data directory belongs to a server that ran alone.
    #[error(
        "the data directory is of a server that ran alone, or has lost its file `members`; the nodes of a cluster begin with empty ones: use another directory, and --rejoin if this was a member's"
    )]
    Alone,
}

/// Opens the directory that holds the members' file of a data directory.
pub(super) fn storage(data: &Path) -> Result<Disk, IdentityError> {
    Ok(Disk::open(data.join("tidegate"))?)
}

/// Reads the members' file, if there is one.
pub(super) fn load(storage: &dyn Storage) -> Result<Option<MembersFile>, IdentityError> {
    let file = match storage.open(FILE) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let bytes = usize::try_from(file.bytes()?).map_err(|_| MembersError::Damaged)?;
    // The bound on the bytes is far more than 32 members with the longest names take.
    let mut text = vec![0; bytes.min(1 << 16)];
    let read = file.read_at(&mut text, 0)?;
    text.truncate(read);
    Ok(Some(MembersFile::decode(&text)?))
}

/// Replaces the members' file durably.
pub(super) fn save(storage: &dyn Storage, file: &MembersFile) -> io::Result<()> {
    let to = storage.create(NEW)?;
    to.write_at(&[IoSlice::new(file.encode().as_bytes())], 0)?;
    to.sync()?;
    storage.rename(NEW, FILE)?;
    storage.sync_names()
}

/// Returns the identity of this node in the cluster, from the directory. If the directory has none, creates
/// an identity with the id `fresh` and writes it to the members' file.
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
    // Other nodes cannot have agreed to the decisions of a server that ran alone.
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

/// Notes durably in the members' file that the node has a log. The node promises other nodes nothing before
/// that.
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

/// Checks that the directory does not belong to a cluster.
pub(super) fn check_alone(storage: &dyn Storage) -> Result<(), IdentityError> {
    match load(storage)? {
        Some(file) => Err(IdentityError::Clustered(file.cluster)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
