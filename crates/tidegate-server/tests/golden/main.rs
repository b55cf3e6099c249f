//! Checks that formats on disk and between nodes stay, byte by byte, as the version that they name wrote
//! them. Each field stands on a line of its own, so that a difference shows the field.
//!
//! Each folder is a version of a format: `entries`, `state`, `checkpoint`, `members`, `raft`, and `cluster`
//! for everything on which nodes have to agree. `v1` is a data directory of the first version
//! (`tests/store/golden.rs`). A change of bytes needs a new number of its version; then `GOLDEN=write cargo
//! test -p tidegate-server --test golden` adds that folder, and never changes an existing one.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod agreed;
mod catch_up;
mod commands;
mod consensus;
mod damaged;
mod disk;
mod entry;
mod flow;
mod frames;
mod greeting;
#[path = "../../../tidegate-log/tests/golden/hex.rs"]
mod hex;
mod listing;
mod origins;
mod restoring;
mod retaining;

use std::path::{Path, PathBuf};

/// Returns the path of a fixture of this format in this version.
fn fixture(format: &str, version: impl std::fmt::Display, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format)
        .join(format!("v{version}"))
        .join(name)
}
