//! Runs each fuzz target on the inputs in its corpus, `fuzz/corpus/TARGET`, and on its seeds, to find
//! regressions without a fuzzer.
//!
//! The seeds are valid inputs, made by encoders or taken from golden fixtures. `SEEDS=write cargo test -p
//! tidegate-fuzz --test replay` writes the seeds into the corpus.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

#[path = "../../../tidegate-log/tests/golden/hex.rs"]
mod hex;
mod seeds;
mod wire;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tidegate_fuzz::{TARGETS, Target};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn corpus(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// Runs a target on an input, and names the input if the target panics, so that a developer can repeat the
/// run.
fn replay(name: &str, run: Target, input: &str, bytes: &[u8]) {
    let ran = catch_unwind(AssertUnwindSafe(|| run(bytes)));
    assert!(ran.is_ok(), "the target {name} panics on {input}");
}

#[test]
fn seeds_break_no_promise() {
    let write = std::env::var("SEEDS").as_deref() == Ok("write");
    for (name, run) in TARGETS {
        let seeds = seeds::of(name);
        assert!(!seeds.is_empty(), "the target {name} has no seed");
        for (seed, bytes) in seeds {
            if write {
                fs::create_dir_all(corpus(name)).unwrap();
                fs::write(corpus(name).join(&seed), &bytes).unwrap();
            }
            replay(name, *run, &format!("the seed {seed}"), &bytes);
        }
    }
}

#[test]
fn the_corpora_break_no_promise() {
    for (name, run) in TARGETS {
        let mut count = 0;
        for entry in fs::read_dir(corpus(name)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            replay(name, *run, &path.display().to_string(), &bytes);
            count += 1;
        }
        assert!(count > 0, "the target {name} has an empty corpus");
    }
}

/// Checks that each target has a program in `fuzz`, and that `make fuzz` runs it.
#[test]
fn each_target_has_its_program() {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    let programs: BTreeSet<&str> = manifest
        .split("[[bin]]")
        .skip(1)
        .filter_map(|bin| bin.split('"').nth(1))
        .collect();
    let targets: BTreeSet<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(programs, targets);
    for name in targets {
        let program = root().join(format!("fuzz/fuzz_targets/{name}.rs"));
        let text = fs::read_to_string(program).unwrap();
        assert!(text.contains(&format!("tidegate_fuzz::{name}::run(data)")));
    }
}
