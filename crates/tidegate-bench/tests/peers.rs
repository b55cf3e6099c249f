//! Tests of `tidegate-bench` with real rivals: `stream`, `cluster` and `raft` with the `nats` program as the
//! load and nats-server as the rival, and `handlers` with its own PostgreSQL server and other crates that
//! batch.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    // The bench leaves no files behind.
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
    // The bench leaves no files behind.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Creates a directory that other users can read, because PostgreSQL runs as another user than root.
fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), all).unwrap();
    directory
}

fn handlers(directory: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    command
        .args(["handlers", "--peers", "--quick"])
        .args(args)
        .current_dir(tidegate_testing::root())
        .env("TIDEGATE_BENCH_DIR", directory.path())
        .stdin(Stdio::null());
    command
}

/// Returns whether the bench ended at once because PostgreSQL is missing.
fn misses_postgres(code: Option<i32>, errors: &str) -> bool {
    let misses = code == Some(2) && errors.contains("apt-get install postgresql");
    if misses {
        tidegate_testing::missing("PostgreSQL (apt-get install postgresql)");
    }
    misses
}

#[test]
fn the_crates_that_batch_stand_beside_ours_at_every_handler() {
    let directory = open_directory();
    let out = directory.path().join("results.jsonl");
    let args = [
        "--cells",
        "callers-16,http/poisson-30",
        "--out",
        out.to_str().unwrap(),
    ];
    let output = handlers(&directory, &args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if misses_postgres(output.status.code(), &errors) {
        return;
    }
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("failed:"), "{text}");
    let kept = std::fs::read_to_string(&out).unwrap();
    let lines = kept.lines().filter(|line| !line.is_empty());
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let cells: Vec<&Value> = lines.iter().filter_map(|line| line.get("cell")).collect();
    assert_eq!(cells.len(), 7);
    for cell in cells {
        let played = &cell["played"];
        let rows = played["rows"].as_array().unwrap();
        for system in [
            "tidegate",
            "greedy",
            "fixed",
            "recv_many",
            "batch-aint-one",
            "ultra-batch",
            "amate",
        ] {
            let of_it = |row: &&Value| row["system"] == system;
            let row = rows
                .iter()
                .find(of_it)
                .unwrap_or_else(|| panic!("{system}: {played}"));
            let figure = |key: &str| row["rounds"][0][key].as_f64().unwrap_or_default();
            assert!(
                figure("ops_per_s") > 0.0 && figure("mean_us") > 1.0,
                "{row}"
            );
        }
    }
    // The bench has removed the files of the database and of the other handlers.
    let left: Vec<PathBuf> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(left, [out]);
}

#[test]
fn postgres_ends_with_the_bench_even_if_that_is_killed() {
    let directory = open_directory();
    let mut command = handlers(
        &directory,
        &["--cells", "postgres/callers-4", "--seconds", "300"],
    );
    let mut bench = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let files = directory
        .path()
        .join(format!("bench-handlers-{}", bench.id()));
    let data = files.join("postgres/data");
    let until = Instant::now() + Duration::from_secs(60);
    // PostgreSQL writes `ready` into the last line of the file `postmaster.pid` once it serves clients.
    while !std::fs::read_to_string(data.join("postmaster.pid"))
        .is_ok_and(|pid| pid.contains("ready"))
    {
        if let Some(status) = bench.try_wait().unwrap() {
            let mut errors = String::new();
            let mut pipe = bench.stderr.take().unwrap();
            std::io::Read::read_to_string(&mut pipe, &mut errors).unwrap();
            assert!(misses_postgres(status.code(), &errors), "{errors}");
            return;
        }
        assert!(Instant::now() < until, "it did not come up");
        std::thread::yield_now();
    }
    bench.kill().unwrap();
    bench.wait().unwrap();
    while data.exists() {
        assert!(Instant::now() < until, "PostgreSQL is still there");
        std::thread::yield_now();
    }
}

/// Runs `callers` with these rivals of the league.
fn league(directory: &tempfile::TempDir, rivals: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["callers", "--peers", "--league", "--json"])
        .args(["--effort", "smoke", "--rivals", rivals])
        .args(args)
        .current_dir(tidegate_testing::root())
        .env("TIDEGATE_BENCH_DIR", directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns whether the row says that its rival is not installed.
fn misses(row: &Value) -> bool {
    let note = row["note"].as_str().unwrap_or_default();
    let commands = ["bench/peers/install.sh", "apt-get install"];
    let misses = commands.iter().any(|command| note.contains(command));
    if misses {
        tidegate_testing::missing(note);
    }
    misses
}

#[test]
fn every_store_of_the_league_answers_the_same_load() {
    let directory = open_directory();
    let output = league(
        &directory,
        "always,postgres,sqlite,etcd,kafka,rabbitmq",
        &["--callers", "1,4", "--rounds", "1", "--full", "--resume"]
            .into_iter()
            .chain([directory.path().join("kept").to_str().unwrap()])
            .collect::<Vec<_>>(),
    );
    let document = document(&output);
    let systems = |callers: &str| -> Vec<&Value> {
        let of_it = |row: &&Value| row["case"].as_str().unwrap().contains(callers);
        rows(&document).iter().filter(of_it).collect()
    };
    for (callers, len) in [("1 caller,", 10), ("4 callers,", 10)] {
        let all = systems(callers);
        assert_eq!(all.len(), len, "{document}");
        for row in all {
            // On a slow machine no call may begin and end within the short measurement.
            assert!(row["ops_per_s"].is_number() || misses(row), "{row}");
        }
    }
    // The bench leaves no files behind but the kept cells.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_trace_proves_which_servers_sync_before_they_answer() {
    let directory = open_directory();
    let strace = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "true"])
        .output();
    if !strace.is_ok_and(|output| output.status.success()) {
        tidegate_testing::missing("strace (make deps-system), and leave to trace");
        return;
    }
    let output = league(
        &directory,
        "nats,redis,postgres,etcd,kafka,rabbitmq",
        &["--trace"],
    );
    let document = document(&output);
    let mut proved = 0;
    for row in rows(&document) {
        if misses(row) {
            continue;
        }
        let synced = row["after_sync"]
            .as_u64()
            .unwrap_or_else(|| panic!("{row}"));
        assert_eq!(row["answers"], 50, "{row}");
        if row["system"] == "nats-server default" {
            assert!(synced < 50, "{row}");
        } else {
            assert_eq!(synced, 50, "{row}");
            proved += 1;
        }
    }
    assert!(proved >= 1, "{document}");
}
