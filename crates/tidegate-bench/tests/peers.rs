//! `tidegate-bench stream`, `cluster` and `raft` with the `nats` program as the load and nats-server as the
//! rival.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::process::{Command, Output};

use serde_json::Value;

fn document(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().unwrap()
}

fn stands_beside_nats_server(name: &str, only: &str, others: &[&str]) {
    if tidegate_testing::nats().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args([name, "--peers", "--json", "--effort", "smoke"])
        .args(["--only", only])
        .current_dir(tidegate_testing::root())
        .env("TIDEGATE_BENCH_DIR", directory.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document = document(&output);
    let systems = ["tidegate", "nats-server default", "nats-server always"];
    for system in systems.iter().chain(others) {
        let of_it = |row: &&Value| row["system"] == *system;
        let all: Vec<_> = rows(&document).iter().filter(of_it).collect();
        assert_eq!(all.len(), 1, "{system}: {document}");
        for row in all {
            assert!(row["ops_per_s"].as_f64().is_some_and(|n| n > 0.0), "{row}");
        }
    }
    // Nothing is left behind.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn streams_stand_beside_both_settings_of_nats_server() {
    stands_beside_nats_server("stream", "lone", &["bare write + fdatasync"]);
}

#[test]
fn clusters_stand_beside_both_settings_of_nats_server() {
    stands_beside_nats_server("cluster", "R3 sync, 100 clients", &[]);
}

#[test]
fn every_step_of_the_replication_is_measured_with_its_batches_beside_what_was_published() {
    if tidegate_testing::nats().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["raft", "--json", "--effort", "smoke"])
        .args(["--rounds", "1", "--only", "this disk"])
        .current_dir(tidegate_testing::root())
        .env("TIDEGATE_BENCH_DIR", directory.path())
        .output()
        .unwrap();
    let document = document(&output);
    let steps: Vec<_> = rows(&document).iter().map(|row| &row["step"]).collect();
    assert_eq!(steps, ["a", "b", "c", "d", "e", "parallel", "all"]);
    for row in rows(&document) {
        let step = row["step"].as_str().unwrap();
        let number = |key: &str| {
            row[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{key} in {row}"))
        };
        assert!(number("ops_per_s") > 0.0 && number("factor") > 0.0, "{row}");
        assert!(number("syncs_per_s") > 0.0 && number("messages") >= 200.0);
        let published = row.get("published_factor").is_some();
        assert_eq!(published, step.len() == 1, "{row}");
        if ["a", "b", "c"].contains(&step) {
            assert_eq!(number("commands_per_entry"), 1.0, "{row}");
        }
        if step.len() == 1 {
            assert!(number("entries_per_sync") <= 1.0, "{row}");
        }
        assert_eq!(number("second_syncs_per_s") > 0.0, step == "a", "{row}");
    }
    assert_eq!(rows(&document)[0]["factor"], 1.0);
    // Nothing is left behind.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
