//! Tests of `tidegate doctor` on this machine: it needs no server, and leaves no file.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::process::{Command, Output};

use serde_json::Value;

fn doctor(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("doctor").args(args).output().unwrap()
}

fn levels(output: &Output) -> Vec<(String, String)> {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = document["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|f| {
        assert!(!text(&f["found"]).is_empty() && !text(&f["meaning"]).is_empty());
        (text(&f["check"]), text(&f["level"]))
    })
    .collect()
}

#[test]
fn a_machine_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("not/there/yet");
    let data = data.to_str().unwrap();
    let output = doctor(&["--data", data, "--json"]);
    let found = levels(&output);
    let checks: Vec<&str> = found.iter().map(|(check, _)| check.as_str()).collect();
    assert_eq!(checks[..3], ["sync", "file system", "space"]);
    let bad = found.iter().any(|(_, level)| level == "problem");
    assert_eq!(output.status.code(), Some(i32::from(bad)), "{found:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    // The same for people: two lines for each finding.
    let output = doctor(&["--data", data]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 2 * found.len(), "{text}");
}

#[test]
fn a_directory_without_writes_is_a_problem() {
    let output = doctor(&["--data", "/proc/self", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found = levels(&output);
    assert!(
        found.contains(&("sync".into(), "problem".into())),
        "{found:?}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = doctor(&["--data", file.path().join("below").to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("not a directory"), "{said}");
}
