//! Reads and writes the members' file in the data directory, which holds a node's identity in its cluster.
//! The server reads the file at its start, and rewrites it when its content changes: when the server draws
//! its id, when the cluster is formed, when the log begins, and when the node rejoins.
//!
//! The server writes a new file beside the old one, syncs it, renames it, and syncs the directory, so that a
//! crash leaves either the old file or the new one.

use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;

use tidegate_cluster::members::{Member, MembersError, MembersFile};
use tidegate_log::{Disk, Storage};

use tidegate_raft::store::{MEMBERS_FILE as FILE, VERSION_FILE};

const NEW: &str = "members-new";

/// The reason why a node cannot take its identity from the data directory, as the operator reads it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The operating system refuses to read or write the members' file, so the node has no identity.
    #[error("the server cannot read or write the file `members` of the data directory: {0}")]
    Io(#[from] io::Error),
    /// The members' file is damaged, or belongs to another node or cluster, so the node must not use it.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// The members' file belongs to a node of this cluster, but the operator started the server without a
    /// cluster.
    #[error(
        "the data directory belongs to a node of cluster `{0}`: start the server with --cluster and --routes, or with another directory"
    )]
    Clustered(String),
    /// The data directory belongs to a server that ran alone, or has lost its members' file, but the operator
    /// started the server in a cluster.
    #[error(
        "the data directory is of a server that ran alone, or has lost its file `members`; the nodes of a cluster begin with empty ones: use another directory, and --rejoin if this was a member's"
    )]
    Alone,
}

/// Opens the directory that holds the members' file, which is the folder `tidegate` in the data directory
/// `data`.
pub(super) fn storage(data: &Path) -> Result<Disk, IdentityError> {
    Ok(Disk::open(data.join("tidegate"))?)
}

/// Reads the members' file, from which the node learns its identity; `None` if the directory has no such
/// file.
pub(super) fn load(storage: &dyn Storage) -> Result<Option<MembersFile>, IdentityError> {
    let file = match storage.open(FILE) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let bytes = usize::try_from(file.bytes()?).map_err(|_| MembersError::Damaged)?;
    // The node reads at most 64 KiB of the members' file. A damaged length then takes no memory, and 32
    // members with the longest names take far less.
    let mut text = vec![0; bytes.min(1 << 16)];
    let read = file.read_at(&mut text, 0)?;
    text.truncate(read);
    Ok(Some(MembersFile::decode(&text)?))
}

/// Replaces the members' file durably, so that a crash leaves the old file or the new one.
pub(super) fn save(storage: &dyn Storage, file: &MembersFile) -> io::Result<()> {
    let to = storage.create(NEW)?;
    to.write_at(&[IoSlice::new(file.encode().as_bytes())], 0)?;
    to.sync()?;
    storage.rename(NEW, FILE)?;
    storage.sync_names()
}

/// Returns the identity of this node in the cluster, by which the other nodes recognise it, from the members'
/// file. If the directory has no such file, creates an identity with the id `fresh` and writes the file.
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
    // A server that ran alone has committed entries without the agreement of other nodes, so it cannot become
    // a member.
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

/// Records durably in the members' file that the node has a log. Before that the node promises nothing to
/// other nodes, so that it later recognises the loss of its log.
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

/// Checks that the directory does not belong to a node of a cluster, before a server runs alone with it and
/// commits entries without the other nodes.
pub(super) fn check_alone(storage: &dyn Storage) -> Result<(), IdentityError> {
    match load(storage)? {
        Some(file) => Err(IdentityError::Clustered(file.cluster)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
