//! What earlier versions left on disk, written by their programs in real sessions, opened by today's program:
//! a data directory, those of the nodes of a cluster, a spool with a receiver's file. The fixtures lie in
//! `tests/golden/<version>`, as annotated hexadecimal.
//!
//! After a new version was released:
//! `GOLDEN=write GOLDEN_VERSION=v2 GOLDEN_PROGRAM=path/to/its/tidegate cargo test -p tidegate-cli --test golden record`
//! adds its folder, and refuses to change an existing one.

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

/// The versions with fixtures.
const VERSIONS: [&str; 2] = ["v1", "v2"];

/// The fixtures of a version.
fn fixtures(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(version)
}

/// The version to record, with the program that writes it, where that is asked for.
fn recorded() -> Option<(PathBuf, PathBuf)> {
    let version = std::env::var("GOLDEN_VERSION").ok()?;
    let program = std::env::var_os("GOLDEN_PROGRAM")?;
    hex::writes().then(|| (fixtures(&version), PathBuf::from(program)))
}

/// Each fixture is recorded by itself; an existing one is left alone.
#[test]
fn record_what_another_version_writes() {
    let Some((to, program)) = recorded() else {
        // Nothing was asked for: the folders of all versions are there.
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
