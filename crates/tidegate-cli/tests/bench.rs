//! `tidegate bench` as a program: the document's form, results kept, and peers that answer, fail and hang.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// In an empty directory: no peers but the test's own.
fn bench(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("bench")
        .args(args)
        .args(["--effort", "smoke"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn document(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn peer(directory: &Path, name: &str, script: &str) {
    let home = directory.join("bench/peers").join(name);
    std::fs::create_dir_all(&home).unwrap();
    let start = home.join("start");
    std::fs::write(&start, script).unwrap();
    std::fs::set_permissions(&start, std::fs::Permissions::from_mode(0o755)).unwrap();
}

const KEYS: [&str; 17] = [
    "system",
    "version",
    "case",
    "controller",
    "ops_per_s",
    "q1",
    "q3",
    "rounds",
    "p50_us",
    "p99_us",
    "mean_us",
    "batches",
    "batch_mean",
    "batch_max",
    "cpu_s",
    "allocs",
    "rss_mb",
];

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().unwrap()
}

fn row<'a>(document: &'a Value, system: &str) -> &'a Value {
    rows(document)
        .iter()
        .find(|row| row["system"] == system)
        .unwrap()
}

#[test]
fn every_bench_prints_the_same_document() {
    let directory = tempfile::tempdir().unwrap();
    for (name, args) in [
        ("queue", &["queue", "--only", "1 producer"][..]),
        ("mailbox", &["mailbox"]),
        ("topology", &["topology"]),
        ("topology", &["topology", "--soak", "1"]),
    ] {
        let document = document(&bench(directory.path(), &[args, &["--json"]].concat()));
        assert_eq!(document["bench"], name);
        assert!(document["machine"].as_str().unwrap().contains("cores"));
        assert!(document.get("commit").is_some());
        assert!(rows(&document).len() >= 2, "{args:?}");
        for row in rows(&document) {
            for key in KEYS {
                assert!(row.get(key).is_some(), "{args:?}: {key} in {row}");
            }
            assert_eq!(row["system"], "tidegate");
            assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{args:?}: {row}");
        }
    }
}

#[test]
fn link_stands_beside_bare_sockets_in_every_case() {
    let directory = tempfile::tempdir().unwrap();
    let document = document(&bench(directory.path(), &["link", "--json"]));
    assert_eq!(document["bench"], "link");
    let of = |system: &str| -> Vec<_> {
        let rows = rows(&document).iter();
        let of_it = rows.filter(|row| row["system"] == system);
        of_it.map(|row| row["case"].as_str().unwrap()).collect()
    };
    let (ours, bare) = (of("tidegate"), of("bare sockets"));
    assert!(bare.len() >= 9, "{bare:?}");
    assert!(bare.iter().all(|case| ours.contains(case)), "{ours:?}");
    for row in rows(&document) {
        for key in KEYS {
            assert!(row.get(key).is_some(), "{key} in {row}");
        }
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
        let compared = row["ratio"].get("bare sockets ping-pong");
        let compared = compared.or_else(|| row["ratio"].get("bare sockets writes drained"));
        assert_eq!(compared.is_some(), row["system"] == "tidegate", "{row}");
    }
}

#[test]
fn mailbox_prints_the_table_of_the_pull_request() {
    let directory = tempfile::tempdir().unwrap();
    let output = bench(directory.path(), &["mailbox", "--only", "PR 29"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "elapsed ms",
        "msg/s",
        "batches",
        "batch mean",
        "batch p50",
        "batch p95",
        "batch max",
        "heap a batch, mean KB",
        "heap a batch, p50 KB",
        "heap a batch, max KB",
        "heap peak KB",
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}: {text}");
    }
    for controller in [
        "knee",
        "exponential",
        "aimd:32",
        "aimd:64",
        "aimd:128",
        "fixed:8192",
        "greedy",
    ] {
        assert!(text.contains(controller), "{controller}");
    }
}

#[test]
fn a_peer_is_asked_in_every_round_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    peer(
        directory.path(),
        "quick",
        r#"#!/bin/sh
while read -r verb rest; do
    case "$verb $rest" in
        hello*) echo 'a line for people'; echo '{"systems":[{"system":"quick","version":"1.2"}]}' ;;
        *batch=10*) echo '{"error":"mode=batch is not supported by quick"}' ;;
        *) echo '{"system":"quick","ops_per_s":1000.0,"checksum_ok":true,"batch_mean":1.0,"ours":7}' ;;
    esac
done
"#,
    );
    let args = ["queue", "--peers", "--json", "--only", "1 producer, single"];
    let single = document(&bench(directory.path(), &args));
    let quick = row(&single, "quick");
    assert_eq!(
        (&quick["version"], &quick["ops_per_s"], &quick["rounds"]),
        (&"1.2".into(), &1000.0.into(), &2.into())
    );
    assert_eq!(quick["ours"], 7.0, "what else a peer says is kept");
    let ratio = row(&single, "tidegate")["ratio"]["quick single"]
        .as_f64()
        .unwrap();
    assert!(ratio > 1.0, "{ratio}");
    // A system that has no such thing is not part of the case.
    let batch = document(&bench(
        directory.path(),
        &[
            "queue",
            "--peers",
            "--json",
            "--only",
            "1 producer, batch 10",
        ],
    ));
    assert!(
        rows(&batch)
            .iter()
            .all(|row| row["system"] == "tidegate" || row["case"] != "1 producer, batch 10")
    );
}

#[test]
fn a_hanging_peer_is_killed_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    // Its child would outlive it: the whole group is killed.
    let pid = directory.path().join("pid");
    let script = format!(
        "#!/bin/sh\nread -r hello\necho '{{\"systems\":[{{\"system\":\"slow\",\"version\":\"1\"}}]}}'\nread -r ask\nsleep 1000 &\necho $! > {}\nwait\n",
        pid.display()
    );
    peer(directory.path(), "slow", &script);
    let args = [
        "queue",
        "--peers",
        "--json",
        "--peer-timeout",
        "2",
        "--only",
        "1 producer, single",
    ];
    let document = document(&bench(directory.path(), &args));
    let note = row(&document, "slow")["note"].as_str().unwrap();
    assert!(
        note.starts_with("hung: no answer to `queue system=slow ") && note.ends_with("within 2 s"),
        "{note}"
    );
    assert!(row(&document, "tidegate")["ops_per_s"].is_f64());
    let pid = std::fs::read_to_string(pid).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    // It is killed already, but dies when it next runs.
    let gone = (0..1_000_000).any(|_| {
        std::thread::yield_now();
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
    assert!(gone, "its child is still there");
}

#[test]
fn a_peer_that_is_not_built_names_the_command() {
    let directory = tempfile::tempdir().unwrap();
    peer(
        directory.path(),
        "absent",
        "#!/bin/sh\necho 'not built: run bench/peers/install.sh absent' >&2\nexit 3\n",
    );
    let args = ["queue", "--peers", "--json", "--only", "1 producer, single"];
    let output = bench(directory.path(), &args);
    let document = document(&output);
    assert_eq!(
        row(&document, "absent")["note"],
        "not built: run bench/peers/install.sh absent"
    );
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("absent: not built: run bench/peers/install.sh absent"),
        "{errors}"
    );
    // And none at all.
    let empty = tempfile::tempdir().unwrap();
    let output = bench(empty.path(), &args);
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("bench/peers/install.sh")
    );
}

#[test]
fn finished_cells_are_kept_and_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let args = [
        "queue",
        "--json",
        "--resume",
        "kept.jsonl",
        "--only",
        "single",
    ];
    let first = document(&bench(directory.path(), &args));
    assert_eq!(rows(&first).len(), 2);
    // A run cut short in the middle of a line.
    let path = directory.path().join("kept.jsonl");
    let kept = std::fs::read_to_string(&path).unwrap();
    let half = kept.rfind("2 producers, single").unwrap() + 10;
    std::fs::write(&path, &kept[..half]).unwrap();
    let second = document(&bench(directory.path(), &args));
    assert_eq!(rows(&first)[0], rows(&second)[0], "measured once");
    assert_eq!(rows(&second).len(), 2);
    let third = document(&bench(directory.path(), &args));
    assert_eq!(rows(&third), rows(&second));
}
