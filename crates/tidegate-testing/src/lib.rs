//! Finds the external tools that tests need, and notes the tests that end early because a tool is missing,
//! so that `make test` can count them.
//!
//! The harness of Rust's tests cannot ignore a test while the test runs, so a test without its tool would
//! pass silently. [`missing`] makes such a test fail if `TIDEGATE_TESTS=all`, as in `.ci/run`. Otherwise the
//! test ends early, and `make test` prints each such test, and their number, at its end.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// Reports that the running test needs a missing tool. `tool` names the tool and the way to install it.
///
/// # Panics
/// Panics if `TIDEGATE_TESTS` is `all`, because a test without its tool must fail then.
pub fn missing(tool: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(
        std::env::var_os("TIDEGATE_TESTS").is_none_or(|tests| tests != "all"),
        "{test} needs {tool}"
    );
    println!("{test} is ignored: it needs {tool}");
    if let Some(path) = std::env::var_os("TIDEGATE_TESTS_IGNORED") {
        // The whole line goes into the file in one write, because several test programs append to this file
        // at the same time.
        let line = format!("{test}: {tool}\n");
        let file = OpenOptions::new().create(true).append(true).open(path);
        let noted = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(noted.is_ok(), "the ignored test cannot be noted: {noted:?}");
    }
}

/// Returns the path of the repository's root directory, where tests find tools and fixtures.
#[must_use]
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the path of the `nats` program, which tests use as a client of the server. Reports the program as
/// [`missing`] if it is not built.
#[must_use]
pub fn nats() -> Option<PathBuf> {
    let path = root().join("bench/peers/go-nats/bin/nats");
    if path.is_file() {
        return Some(path);
    }
    missing("the `nats` program (make deps-nats)");
    None
}

/// Returns a Python interpreter that can import the client nats.py. Reports nats.py as [`missing`] if no
/// interpreter can.
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

/// Compiles and runs the code examples of the documents and of the book as doc tests. The doc tests are in
/// this crate because it is never published: a published package cannot contain files from outside of its
/// crate.
#[cfg(doctest)]
mod docs {
    #[doc = include_str!("../../../docs/dashboard.md")]
    struct Dashboard;
    #[doc = include_str!("../../../docs/engine.md")]
    struct Engine;
    #[doc = include_str!("../../../docs/migration.md")]
    struct Migration;
    #[doc = include_str!("../../../docs/tuning.md")]
    struct Tuning;
    #[doc = include_str!("../../../docs/redis.md")]
    struct Redis;
    #[doc = include_str!("../../../docs/failure-modes.md")]
    struct FailureModes;
    #[doc = include_str!("../../../book/src/first-actor.md")]
    struct FirstActor;
    #[doc = include_str!("../../../book/src/decisions.md")]
    struct Decisions;
    #[doc = include_str!("../../../book/src/from-pipelining.md")]
    struct FromPipelining;
    #[doc = include_str!("../../../book/src/from-max-size.md")]
    struct FromMaxSize;
}
