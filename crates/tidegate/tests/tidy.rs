//! Checks that lints cannot make: pure modules stay pure, the engine needs no runtime, and the documentation
//! of every file says what the file owns.

// Clippy recognizes tests by their attribute only; these helpers belong to tests, too.
#![allow(clippy::unwrap_used)]

#[path = "tidy/imports.rs"]
mod imports;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::imports::Imports;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with(['.', '_']) {
            rust_files(&path, out);
        } else if name.ends_with(".rs") {
            out.push(path);
        }
    }
}

fn ours() -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    for dir in [
        "crates",
        "bench/load",
        "bench/peers/rust",
        "bench/peers/redis-rs",
        "examples",
        "fuzz",
    ] {
        rust_files(&root.join(dir), &mut files);
    }
    files.sort();
    let name = |p: &PathBuf| {
        p.strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .into_owned()
    };
    files
        .iter()
        .map(|p| (name(p), std::fs::read_to_string(p).unwrap()))
        .collect()
}

/// Returns the lines of `text` that are compiled into the product, with their numbers. They exclude comments
/// and the item after a `#[cfg(test)]`, which rustfmt ends with a closing line of the same indentation.
fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut skipped: Option<usize> = None;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let Some(start) = skipped else {
            match code {
                "#[cfg(test)]" => skipped = Some(indent),
                _ if code.starts_with("//") => {}
                _ => return Some((i + 1, line)),
            }
            return None;
        };
        // Further attributes of the item, or its documentation, are part of it.
        let ends = indent == start && (code.ends_with(['}', ';']) || code.ends_with("},"));
        if ends && !code.starts_with("#[") && !code.starts_with("//") {
            skipped = None;
        }
        None
    })
}

/// Returns the first line of the product with a word of `banned`, and that word.
fn impure<'a>(text: &str, banned: &[&'a str]) -> Option<(usize, &'a str)> {
    product_lines(text).find_map(|(i, line)| {
        let found = banned.iter().find(|word| line.contains(*word));
        Some((i, *found?))
    })
}

/// Tests that the purity test also checks the code behind a test module.
#[test]
fn code_behind_a_test_module_is_checked() {
    let text = "\
//! Owns x; `Instant` is a word here.
#[cfg(test)]
pub(super) mod joined;
use std::mem;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    fn now() {
        Instant::now();
    }
}
impl X {
    #[cfg(test)]
    fn clock(&self) -> Instant {
        Instant::now()
    }

    fn leak(&self) {
        let _ = Instant::now();
    }
}
";
    assert_eq!(impure(text, &["Instant"]), Some((19, "Instant")));
    let pure = text.replace("let _ = Instant::now();", "");
    assert_eq!(impure(&pure, &["Instant"]), None);
}

/// Modules that decide read no clock, no random source, no socket and no file; their tests may.
#[test]
fn pure_modules_do_no_io() {
    let pure = [
        "crates/tidegate/src/boundary/",
        "crates/tidegate/src/controller/",
        "crates/tidegate/src/sim/",
        "crates/tidegate/src/batcher/core.rs",
        "crates/tidegate/src/batcher/patience.rs",
        "crates/tidegate-cli/src/top/alarms.rs",
        "crates/tidegate-cli/src/top/document.rs",
        "crates/tidegate-cli/src/top/state/",
        "crates/tidegate-cli/src/top/view/",
        "crates/tidegate-cli/src/top/words.rs",
        "crates/tidegate-link/src/proto/",
        "crates/tidegate-link/src/frame.rs",
        "crates/tidegate-link/src/hello.rs",
        "crates/tidegate-link/src/seq.rs",
        "crates/tidegate-link/src/client/front.rs",
        "crates/tidegate-link/src/server/patience.rs",
        "crates/tidegate-stream/src/api/",
        "crates/tidegate-stream/src/schema/",
        "crates/tidegate-cluster/src/",
        "crates/tidegate-stream/src/consumer/",
        "crates/tidegate-stream/src/ingest/",
        "crates/tidegate-monitor/src/",
        "crates/tidegate-nats/src/",
        "crates/tidegate-stream/src/stream/",
        "crates/tidegate-server/src/sessions",
        "crates/tidegate-server/src/streams",
        "crates/tidegate-server/src/fair.rs",
        "crates/tidegate-server/src/monitor/alarms.rs",
        "crates/tidegate-server/src/monitor/overview.rs",
        "crates/tidegate-server/src/party.rs",
        "crates/tidegate-server/src/event_loop/handshakes.rs",
        "crates/tidegate-server/src/event_loop/read_queue.rs",
        "crates/tidegate-server/src/event_loop/tls_rate.rs",
        "crates/tidegate-server/src/sessions/timers.rs",
        "crates/tidegate-raft/src/catchup/",
        "crates/tidegate-raft/src/replica/",
        "crates/tidegate-raft/src/store/applying.rs",
        "crates/tidegate-raft/src/store/checkpoint.rs",
        "crates/tidegate-raft/src/store/chunks.rs",
        "crates/tidegate-raft/src/store/live.rs",
        "crates/tidegate-raft/src/store/seen.rs",
        "crates/tidegate-raft/src/store/staged.rs",
        "crates/tidegate-redis/src/pipeline",
        "crates/tidegate-redis/src/policy",
        "crates/tidegate-redis/src/pulse.rs",
        "crates/tidegate-redis/src/trial.rs",
        "crates/tidegate-log/src/batch.rs",
        "crates/tidegate-log/src/catalog.rs",
        "crates/tidegate-log/src/gather.rs",
        "crates/tidegate-log/src/growth.rs",
        "crates/tidegate-log/src/index.rs",
        "crates/tidegate-log/src/planner.rs",
        "crates/tidegate-log/src/record.rs",
        "crates/tidegate-log/src/recovery.rs",
        "crates/tidegate-log/src/segment.rs",
        "crates/tidegate-log/src/syncs.rs",
    ];
    let banned = [
        "std::io",
        "std::fs",
        "std::net",
        "std::thread",
        "std::env",
        "Instant",
        "SystemTime",
        "tokio",
        "Clock",
    ];
    for listed in pure {
        let there = ours().iter().any(|(name, _)| name.starts_with(listed));
        assert!(there, "{listed} of the list of pure modules does not exist");
    }
    for (name, text) in ours() {
        if !pure.iter().any(|p| name.starts_with(p)) || name.contains("/tests/") {
            continue;
        }
        if let Some((line, found)) = impure(&text, &banned) {
            panic!("{name}:{line}: {found} in a pure module");
        }
    }
}

/// Crates that decide depend on no event loop, no runtime, no TLS and no random source.
#[test]
fn pure_crates_depend_on_no_io() {
    for name in [
        "tidegate-cluster",
        "tidegate-monitor",
        "tidegate-nats",
        "tidegate-stream",
    ] {
        let path = root().join("crates").join(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(path).unwrap();
        let (_, rest) = manifest.split_once("[dependencies]").unwrap();
        let dependencies = rest.split_once("\n[").map_or(rest, |(first, _)| first);
        assert!(dependencies.contains("tidegate"), "{name}");
        for banned in [
            "mio",
            "rustls",
            "tokio",
            "rand",
            "getrandom",
            "rustix",
            "hyper",
        ] {
            let named = |line: &str| line.split(['=', '.', ' ']).next() == Some(banned);
            assert!(
                !dependencies.lines().any(named),
                "{name} depends on {banned}"
            );
        }
    }
}

/// Returns the sources of each crate, each named by its path below the crate's `src`.
fn crates() -> BTreeMap<String, Vec<(String, String)>> {
    let mut crates: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for (name, text) in ours() {
        let inner = name
            .strip_prefix("crates/")
            .and_then(|n| n.split_once("/src/"));
        if let Some((crate_name, file)) = inner {
            let files = crates.entry(crate_name.to_owned()).or_default();
            files.push((file.to_owned(), text));
        }
    }
    crates
}

/// Imports go one way between folders; at most five files import each other in a circle. Prints the graph
/// (`-- --nocapture imports`).
#[test]
fn imports_go_one_way() {
    let mut mistakes = Vec::new();
    for (name, sources) in crates() {
        let imports = Imports::of(&sources);
        println!("{name}");
        imports.lines().for_each(|line| println!("  {line}"));
        for circle in imports.folder_circles() {
            mistakes.push(format!("{name}: folders {circle:?}"));
        }
        let too_large = |c: &Vec<&str>| c.len() > 5;
        for circle in imports.file_circles().into_iter().filter(too_large) {
            let inside = imports.within(&circle).join("\n  ");
            mistakes.push(format!("{name}: {} files\n  {inside}", circle.len()));
        }
    }
    assert!(mistakes.is_empty(), "circles:\n{}", mistakes.join("\n"));
}

/// The graph of imports sees circles between files and between folders, through braces and inline paths.
#[test]
fn circles_of_imports_are_found() {
    let of = |files: &[(&str, &str)]| {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Imports::of(&files.iter().map(owned).collect::<Vec<_>>())
    };
    let imports = of(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a/mod.rs", "mod x;\nuse self::x::X;\n"),
        (
            "a/x.rs",
            "use super::Y;\nuse crate::b::{\n    self,\n    z::{Z, W},\n};\n",
        ),
        ("b/mod.rs", "pub mod z;\n"),
        ("b/z.rs", "fn f() { crate::a::x::g(); }\n"),
    ]);
    assert_eq!(imports.folder_circles(), [["a", "b"]]);
    assert_eq!(imports.file_circles(), [["a/x.rs", "b/z.rs"]]);
    let one_way = of(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        (
            "a.rs",
            "use crate::b::B;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
        ),
        (
            "b.rs",
            "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
        ),
    ]);
    assert!(one_way.file_circles().is_empty() && one_way.folder_circles().is_empty());
}

/// Returns the files that the trees of ARCHITECTURE.md list, and the directories without files of their own.
fn listed(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut root = None;
    let mut path: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("crates/") && line.ends_with("/src/") {
            root = Some(line.to_owned());
            continue;
        }
        let Some(root) = root.as_ref().filter(|_| !line.starts_with("```")) else {
            root = None;
            continue;
        };
        let depth = (line.len() - line.trim_start().len()) / 2 - 1;
        let Some(name) = line.split_whitespace().next() else {
            continue;
        };
        path.truncate(depth);
        all.push(format!("{root}{}{name}", path.concat()));
        let folder = name.strip_suffix(".rs").map(|module| format!("{module}/"));
        path.push(folder.unwrap_or_else(|| name.to_owned()));
    }
    all
}

#[test]
fn the_map_lists_every_module() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let listed = listed(&text);
    let gone: Vec<_> = listed.iter().filter(|p| !root().join(p).exists()).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md lists {gone:?}");
    // A directory without files of its own in the tree stands for all of its files.
    let summed_up = |name: &str| {
        let above = listed
            .iter()
            .filter(|l| l.ends_with('/') && name.starts_with(l.as_str()));
        above.max_by_key(|l| l.len()).is_some_and(|folder| {
            let mut inside = listed.iter().filter(|l| l.starts_with(folder.as_str()));
            inside.all(|l| l == folder)
        })
    };
    let missing: Vec<_> = ours()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("crates/") && name.contains("/src/"))
        .filter(|name| !name.ends_with("/tests.rs") && !name.contains("/tests/"))
        // Each of these two crates stands in the tree as a whole: one has a single helper, the other a file
        // for each fuzz target.
        .filter(|name| !name.starts_with("crates/tidegate-testing/"))
        .filter(|name| !name.starts_with("crates/tidegate-fuzz/"))
        .filter(|name| !listed.contains(name) && !summed_up(name))
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md lacks {missing:#?}");
}

#[test]
fn every_file_says_what_it_owns() {
    let silent: Vec<_> = ours()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(n, _)| n)
        .collect();
    assert!(
        silent.is_empty(),
        "these do not open with `//!`: {silent:?}"
    );
}

/// A file past a thousand lines fails the test. A file past five hundred should perhaps be split, and is only
/// printed.
#[test]
fn files_stay_readable() {
    for (name, text) in ours() {
        let lines = text.lines().count();
        if lines > 500 {
            println!("{name}: {lines} lines: is there a seam?");
        }
        assert!(lines <= 1000, "{name} has {lines} lines");
    }
}

/// The program `tidegate` contains no bench: neither the crates of measurements nor the features
/// that only they use.
#[test]
fn the_product_carries_no_bench() {
    let tree = tree(&["-p", "tidegate-cli", "-e", "normal,features"]);
    assert!(tree.contains("tidegate-server"), "{tree}");
    for part in [
        "stats_alloc",
        "tidegate-bench",
        "tidegate-load",
        "tidegate-redis",
        "feature \"lab\"",
    ] {
        assert!(!tree.contains(part), "{part} is in the product:\n{tree}");
    }
}

/// Two examples with the same name would overwrite each other's program.
#[test]
fn every_example_has_a_name_of_its_own() {
    let mut names = BTreeMap::new();
    for (file, _) in ours() {
        let parts: Vec<_> = file.split('/').collect();
        if let ["crates", _, "examples", name] = parts[..] {
            let other = names.insert(name.to_owned(), file.clone());
            assert!(other.is_none(), "{other:?} and {file}");
        }
    }
    assert!(names.len() > 5, "{names:?}");
}

#[test]
fn unsafe_code_stays_in_the_ring() {
    for (name, text) in ours() {
        let allowed = name == "crates/tidegate/src/queue/ring/mod.rs"
            || !name.starts_with("crates/tidegate/src/");
        assert!(
            allowed || !text.contains("allow(unsafe_code)"),
            "{name} allows unsafe code"
        );
    }
}

/// The engine's default features need no runtime, and in fact no crate at all.
#[test]
fn the_engine_depends_on_nothing_by_default() {
    let tree = tree(&["-p", "tidegate", "-e", "normal"]);
    assert_eq!(tree.lines().count(), 1, "{tree}");
}

/// Returns the output of `cargo tree` with these arguments, which lists the dependencies.
fn tree(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none"])
        .args(args)
        .current_dir(root())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{error}");
    String::from_utf8(out.stdout).unwrap()
}
