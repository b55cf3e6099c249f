//! Tools that tests need: their locations, and a count of the tests that miss one.
//!
//! The harness of Rust's tests cannot ignore a test while it runs, so a test without its tool would pass
//! silently. [`missing`] makes it fail if `TIDEGATE_TESTS=all`, as in `.ci/run`. Otherwise the test ends
//! early, and `make test` prints each such test, and their number, at its end.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// Reports that the running test needs a missing tool; `tool` names the tool and the way to install it.
///
/// # Panics
/// If `TIDEGATE_TESTS` is `all`: then each test has to run.
pub fn missing(tool: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(
        std::env::var_os("TIDEGATE_TESTS").is_none_or(|tests| tests != "all"),
        "{test} needs {tool}"
    );
    println!("{test} is ignored: it needs {tool}");
    if let Some(path) = std::env::var_os("TIDEGATE_TESTS_IGNORED") {
        // The line goes out in one write: several test programs append at once.
        let line = format!("{test}: {tool}\n");
        let file = OpenOptions::new().create(true).append(true).open(path);
        let noted = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(noted.is_ok(), "the ignored test cannot be noted: {noted:?}");
    }
}

/// Returns the root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the `nats` program, a client of the servers under test. Reports it as [`missing`] if it is not
/// built.
#[must_use]
pub fn nats() -> Option<PathBuf> {
    let path = root().join("bench/peers/go-nats/bin/nats");
    if path.is_file() {
        return Some(path);
    }
    missing("the `nats` program (make deps-nats)");
    None
}

/// Returns a Python with the client nats.py. Reports it as [`missing`] if there is none.
#[must_use]
pub fn python_with_nats() -> Option<PathBuf> {
    let candidates = [
        root().join("target/nats-py/bin/python3"),
        PathBuf::from("python3"),
    ];
    let has_it = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import nats"]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let found = candidates.into_iter().find(has_it);
    if found.is_none() {
        missing("nats.py (make deps-python)");
    }
    found
}

/// Compiles the examples of the repository's documents here, in a crate that no package contains: a path to
/// them would leave the package of the crate that they describe.
#[cfg(doctest)]
mod docs {
    #[doc = include_str!("../../../docs/engine.md")]
    struct Engine;
    #[doc = include_str!("../../../docs/migration.md")]
    struct Migration;
    #[doc = include_str!("../../../docs/tuning.md")]
    struct Tuning;
    #[doc = include_str!("../../../docs/redis.md")]
    struct Redis;
}
