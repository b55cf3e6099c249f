//! Tests that the present program opens files that programs of earlier versions wrote in real sessions: a
//! data directory, the directories of a cluster's nodes, and a receiver's file. It must refuse the spool
//! beside the receiver's file. The fixtures lie in `tests/golden/<version>`, as annotated hexadecimal.
//!
//! After a release, `cargo test -p tidegate-cli --test golden record` adds the directory of the new version,
//! and refuses to change an existing one. It needs the environment variables `GOLDEN=write GOLDEN_VERSION=v2
//! GOLDEN_PROGRAM=path/to/its/tidegate`.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod cluster;
#[path = "../../../tidegate-server/tests/golden/entry.rs"]
mod entry;
#[path = "../../../tidegate-log/tests/golden/hex.rs"]
mod hex;
mod image;
mod listing;
mod program;
#[allow(dead_code)] // The tests of streams use the rest.
#[path = "../stream/raw.rs"]
mod raw;
#[path = "../../../tidegate-log/tests/golden/segment.rs"]
mod segment;
mod ship;
mod single;

use std::path::{Path, PathBuf};

/// The versions of the program that have fixtures.
const VERSIONS: [&str; 2] = ["v1", "v2"];

/// Returns the directory of a version's fixtures.
fn fixtures(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(version)
}

/// Returns the directory for the fixtures of a version, and the program that writes the files. Returns `None`
/// if the environment does not ask for a recording.
fn recorded() -> Option<(PathBuf, PathBuf)> {
    let version = std::env::var("GOLDEN_VERSION").ok()?;
    let program = std::env::var_os("GOLDEN_PROGRAM")?;
    hex::writes().then(|| (fixtures(&version), PathBuf::from(program)))
}

/// Records each fixture that is missing, and leaves existing ones unchanged.
#[test]
fn record_what_another_version_writes() {
    let Some((to, program)) = recorded() else {
        // The environment asks for no recording, so all versions must have their directories.
        for version in VERSIONS {
            assert!(fixtures(version).is_dir(), "{version} has no fixtures");
        }
        return;
    };
    for (name, record) in [
        ("single", single::record as fn(&Path, &Path)),
        ("cluster", cluster::record),
        ("ship", ship::record),
    ] {
        let to = to.join(name);
        match to.exists() {
            true => println!("{} is there, and stays as it is", to.display()),
            false => record(&program, &to),
        }
    }
}
