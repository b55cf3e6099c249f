//! Looks for streams of nats-server in the data directory of a server that has none of its own, because a
//! `store_dir` of nats-server may name it. Neither server reads the other's streams.

use std::path::{Path, PathBuf};

/// The most entries of a directory at which the search looks, so that a large directory does not delay the
/// start.
const ENTRIES_MAX: usize = 1024;

/// Returns a warning for the operator if this directory has streams of nats-server and none of this server.
/// The caller asks before the server opens the directory.
pub(super) fn warning(directory: &Path) -> Option<String> {
    if directory.join("tidegate").exists() {
        return None;
    }
    // nats-server adds `jetstream` to its `store_dir`, unless that is the last part already.
    let roots = [directory.join("jetstream"), directory.to_path_buf()];
    let found = roots.iter().find_map(|root| Some((root, streams(root)?)));
    let (root, stream) = found?;
    Some(format!(
        "clients do not find the streams of nats-server in {}, such as {stream}, because this server does not read them: docs/from-nats-server.md has the way in, by a backup of each stream",
        root.display()
    ))
}

/// Returns the name of a stream that nats-server keeps below this directory, in `ACCOUNT/streams/STREAM`.
fn streams(root: &Path) -> Option<String> {
    entries(root).find_map(|account| {
        let stream = entries(&account.join("streams")).next()?;
        Some(stream.file_name()?.to_string_lossy().into_owned())
    })
}

/// Iterates over the directories in this directory; over none if it cannot be read.
fn entries(of: &Path) -> impl Iterator<Item = PathBuf> {
    let read = std::fs::read_dir(of).ok();
    let entries = read.into_iter().flatten().take(ENTRIES_MAX);
    entries.filter_map(|entry| Some(entry.ok()?.path()).filter(|path| path.is_dir()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_nats_server_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let warns = |below: &str| warning(&directory.path().join(below)).is_some();
        let make = |path: &str| std::fs::create_dir_all(directory.path().join(path)).unwrap();
        assert!(!warns("none") && !warns(""));
        make("a/jetstream/$G/streams");
        assert!(!warns("a"), "an account without streams");
        make("a/jetstream/$G/streams/ORDERS/msgs");
        assert!(warns("a") && warns("a/jetstream"));
        make("a/tidegate");
        assert!(!warns("a"), "the server's own streams are there");
    }
}
