//! Names the commit that the program is built from, for `tidegate --version`.

use std::path::Path;
use std::process::Command;

fn main() {
    let commit = published().or_else(checked_out);
    let suffix = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=TIDEGATE_COMMIT={suffix}");
    println!("cargo::rerun-if-changed=build.rs");
}

/// Returns the commit that cargo recorded when it packed the published package; `None` in a repository.
fn published() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let commit = text.split_once("\"sha1\": \"")?.1.split_once('"')?.0;
    commit.get(..10).map(str::to_owned)
}

/// Returns the commit of the repository around this directory.
fn checked_out() -> Option<String> {
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=10", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
