//! Tests of the program `tidegate-bench`: its JSON document, the results that it keeps, and its handling of
//! peers that answer, fail or hang.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Runs the bench in `directory`, in which it finds only the peers that the test has put there.
fn bench(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
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
        ("redis", &["redis", "--only", "PUBLISH 64 B, RTT 0, 256"]),
        ("redis", &["redis", "--only", "20 64 B, RTT 1 ms, 16"]),
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
    // The bench gives a system no row in a case if the system lacks the feature.
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
    // The peer's child would outlive the peer, so the test checks that the bench kills the whole process
    // group.
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
    // The bench has sent the signal already, but the child dies only when the kernel next runs it.
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
    // The bench also runs in a directory without any peers, and names the way to install them.
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
    // The test cuts a line in the middle, as an interrupted run may leave it.
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

/// Creates a peer that answers like a Redis client without any contact to Redis. The peer writes its requests
/// to the file `asked`, so that the test can check them.
fn redis_client(directory: &Path, measure: &str) {
    let script = format!(
        r#"#!/bin/sh
while read -r verb rest; do
    echo "$verb $rest" >>{}/asked
    case "$verb" in
        hello) echo '{{"systems":[{{"system":"rueidis","version":"1.2"}}]}}' ;;
        load) echo '{{}}' ;;
        measure) {measure} ;;
        rest) echo '{{}}' ;;
    esac
done
"#,
        directory.display()
    );
    peer(directory, "scripted", &script);
}

fn asked(directory: &Path) -> Vec<String> {
    let asked = std::fs::read_to_string(directory.join("asked")).unwrap_or_default();
    asked.lines().map(str::to_owned).collect()
}

#[test]
fn redis_clients_are_loaded_measured_and_rested() {
    let directory = tempfile::tempdir().unwrap();
    let answer = r#"echo '{"ops":1000,"ops_per_s":5e4,"elapsed_s":0.02,"cpu_s":0.004,"allocs":2000,"alloc_bytes":64000,"p50_us":3}'"#;
    redis_client(directory.path(), answer);
    let case = "GET 64 B, RTT 1 ms, 16 callers";
    let args = ["redis", "--peers", "--json", "--only", case];
    let document = document(&bench(directory.path(), &args));
    assert_eq!(document["bench"], "redis");
    let rivals: Vec<_> = rows(&document)
        .iter()
        .filter(|row| row["system"] == "rueidis")
        .collect();
    let settings: Vec<_> = rivals
        .iter()
        .map(|row| row["controller"].as_str())
        .collect();
    assert_eq!(settings, [Some("no delay"), Some("20 us"), Some("100 us")]);
    for row in rivals {
        for (key, value) in [
            ("ops_per_s", 5e4),
            ("client_cpu_us", 4.0),
            ("allocs_per_op", 2.0),
            ("alloc_bytes_per_op", 64.0),
            ("p50_us", 3.0),
            ("rounds", 2.0),
        ] {
            assert_eq!(row[key].as_f64(), Some(value), "{key}: {row}");
        }
        // The peer never calls Redis, so Redis counts only the bench's own requests. These may take too
        // little time for Redis's clock, and now and then Redis reads from an empty socket.
        assert!(row["redis_cpu_us"].is_f64(), "{row}");
        let commands = row["commands_per_read"].as_f64().unwrap();
        assert!(commands > 0.0 && commands <= 1.0, "{row}");
    }
    let asked = asked(directory.path());
    let loads: Vec<_> = asked
        .iter()
        .filter(|line| line.starts_with("load"))
        .collect();
    assert_eq!(loads.len(), 6, "three settings, two rounds: {asked:?}");
    for (load, rest) in loads
        .iter()
        .zip(asked.iter().filter(|line| line.starts_with("rest")))
    {
        assert!(
            load.contains(" command=get value=64 callers=16 rate=0 delay_us="),
            "{load}"
        );
        assert_eq!(rest.trim_end(), "rest");
    }
}

#[test]
fn a_redis_client_that_fails_is_rested_and_noted() {
    let directory = tempfile::tempdir().unwrap();
    redis_client(directory.path(), r#"echo '{"error":"WRONGTYPE of it"}'"#);
    let args = [
        "redis",
        "--peers",
        "--json",
        "--only",
        "SET 64 B, RTT 0, 2 callers",
    ];
    let document = document(&bench(directory.path(), &args));
    assert_eq!(row(&document, "rueidis")["note"], "WRONGTYPE of it");
    let verbs: Vec<_> = asked(directory.path())
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let turn = ["load", "measure", "rest"];
    assert_eq!(verbs, [&["hello"][..], &turn, &turn, &turn].concat());
}

#[test]
fn without_a_redis_server_the_command_that_installs_it_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["redis", "--effort", "smoke"])
        .current_dir(directory.path())
        .env("PATH", directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("apt-get install redis-server"), "{errors}");
}

#[test]
fn the_redis_server_ends_with_the_bench_even_if_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    // The peer never answers, so that the bench stays in the middle of a cell. The peer ends when its input
    // ends.
    redis_client(directory.path(), "read -r _");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["redis", "--peers", "--effort", "smoke"])
        .args(["--only", "GET 64 B, RTT 0, 2 callers"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let addr = loop {
        let asked = asked(directory.path());
        if asked.iter().any(|line| line.starts_with("measure")) {
            let load = asked.iter().find(|line| line.starts_with("load")).unwrap();
            let addr = load.split(' ').find_map(|word| word.strip_prefix("addr="));
            break addr.unwrap().to_owned();
        }
        assert!(
            Instant::now() < until,
            "it did not get to measuring: {asked:?}"
        );
        std::thread::yield_now();
    };
    assert!(TcpStream::connect(&addr).is_ok());
    bench.kill().unwrap();
    bench.wait().unwrap();
    while TcpStream::connect(&addr).is_ok() {
        assert!(Instant::now() < until, "Redis is still there");
        std::thread::yield_now();
    }
}

fn handlers(directory: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["handlers", "--quick"])
        .args(args)
        .current_dir(directory)
        .env("TIDEGATE_BENCH_DIR", directory.join("files"))
        .env("TIDEGATE_POSTGRES", directory.join("nothing"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn handlers_are_measured_once_and_their_verdict_is_printed_again() {
    let directory = tempfile::tempdir().unwrap();
    let cells = "memory/callers-4,memory/poisson-10,append/callers-1";
    let args = [
        "--cells",
        cells,
        "--seconds",
        "0.03",
        "--out",
        "results.jsonl",
    ];
    let (code, first, errors) = handlers(directory.path(), &args);
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("3 cells to run, 0 kept"), "{errors}");
    for text in [
        "where we lose",
        "memory/callers-4 (",
        "memory/poisson-10, ",
        "append/callers-1 (",
        "tidegate (default)",
        "fixed (limit 16)",
        "fdatasync",
        "wall time",
        "ours / best setting, median over 3 cells",
    ] {
        assert!(first.contains(text), "{text}: {first}");
    }
    assert!(!first.contains("failed:"), "{first}");
    let kept = std::fs::read_to_string(directory.path().join("results.jsonl")).unwrap();
    let lines: Vec<Value> = kept
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let cells = lines.iter().filter(|line| line.get("cell").is_some());
    assert_eq!((lines.len(), cells.count()), (5, 3), "{kept}");
    // The second run of the bench uses the kept results.
    let (code, second, errors) = handlers(directory.path(), &args);
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("0 cells to run, 3 kept"), "{errors}");
    let tables = |text: &str| {
        let tables = text.split_once("\n\n").unwrap().1;
        tables.rsplit_once("\n\n").unwrap().0.to_owned()
    };
    assert_eq!(tables(&first), tables(&second));
    // The bench has removed the handlers' files.
    let files = std::fs::read_dir(directory.path().join("files")).unwrap();
    assert_eq!(files.count(), 0);
}

#[test]
fn handlers_refuses_cells_that_do_not_exist_and_parts_it_lacks_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let lacking = match cfg!(feature = "peers") {
        true => "apt-get install postgresql",
        false => "--features peers",
    };
    for (args, text) in [
        (&["--cells", "oracle"][..], "no cell fits `oracle`"),
        (&["--cells", "http,http/callers-2"], "http/callers-16"),
        (&["--cells", "append/callers-4,postgres/callers-4"], lacking),
    ] {
        let (code, output, errors) = handlers(directory.path(), args);
        assert_eq!(code, Some(2), "{args:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
        assert!(errors.contains(text), "{args:?}: {errors}");
        // The bench reports the error before it runs a cell.
        assert_eq!(output, "");
    }
    if cfg!(not(feature = "peers")) {
        let (code, _, errors) = handlers(directory.path(), &["--peers"]);
        assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.contains("--features peers"), "{errors}");
    }
}

#[test]
fn handlers_lists_its_cells() {
    let directory = tempfile::tempdir().unwrap();
    let (code, output, _) = handlers(
        directory.path(),
        &["--list", "--cells", "http,*/poisson-95"],
    );
    assert_eq!(code, Some(0));
    let names: Vec<_> = output.lines().collect();
    assert_eq!(names.len(), 11 + 5, "{names:?}");
    assert_eq!(names[..2], ["http/callers-1", "http/callers-4"]);
}

fn arena(directory: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .arg("arena")
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The arguments of short runs of the arena, by which the tests prove only that the bench works.
const ARENA_QUICK: [&str; 6] = ["--cells", "4", "--items", "20000", "--rounds", "2"];

#[test]
fn arena_prints_the_same_for_a_seed_with_and_without_its_cache() {
    let directory = tempfile::tempdir().unwrap();
    let args = [&ARENA_QUICK[..], &["--seed", "3", "--jobs", "2"]].concat();
    let (code, first, errors) = arena(directory.path(), &args);
    assert_eq!(code, Some(0), "{errors}");
    for text in [
        "where we lose",
        "where greedy is ahead",
        "one batch at a time",
        "throughput, saturated and closed",
        "while it learns, throughput",
        "not resolved to 5 %",
    ] {
        assert!(first.contains(text), "{text}: {first}");
    }
    let cache = directory.path().join("target/arena.jsonl");
    let kept = std::fs::read_to_string(&cache).unwrap();
    assert_eq!(kept.lines().filter(|line| !line.is_empty()).count(), 4);
    // The first output comes from figures in the cache, the second from a run with one job.
    assert_eq!(arena(directory.path(), &args).1, first);
    assert_eq!(std::fs::read_to_string(&cache).unwrap(), kept);
    let again = [
        &args[..6],
        &["--seed", "3", "--jobs", "1", "--cache", "other.jsonl"],
    ]
    .concat();
    assert_eq!(arena(directory.path(), &again).1, first);
}

#[test]
fn arena_shows_one_cell_and_writes_its_cells_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let (code, text, errors) = arena(
        directory.path(),
        &["--cells", "1", "--seed", "43", "--items", "20000"],
    );
    assert_eq!(code, Some(0), "{errors}");
    for part in [
        "seed 43",
        "best settings:",
        "exponential",
        "backlog by mode:",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let args = [&ARENA_QUICK[..], &["--family", "humps", "--json"]].concat();
    let (code, text, errors) = arena(directory.path(), &args);
    assert_eq!(code, Some(0), "{errors}");
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["bench"], "arena");
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        assert_eq!(cell["family"], "humps");
        assert_eq!(cell["contestants"][0]["who"], "ours");
        let scores = &cell["contestants"][0];
        let share = scores["throughput"]
            .as_f64()
            .or_else(|| scores["mean"].as_f64());
        assert!(share.is_some_and(|share| share > 0.0), "{cell}");
    }
    assert!(!document["goals"].as_array().unwrap().is_empty());
}

#[test]
fn arena_judges_the_backlog_of_open_loops() {
    let directory = tempfile::tempdir().unwrap();
    // Another test checks the promise in fixed cells. In this cell the controller keeps the promise.
    let args = ["--stability", "--cells", "1", "--seed", "43"];
    let (code, text, errors) = arena(directory.path(), &args);
    assert_eq!(code, Some(0), "{errors}{text}");
    assert!(
        text.contains("one batch at a time: 0 of 1 cells break the promise"),
        "{text}"
    );
    let args = [&args[..], &["--json"]].concat();
    let document: Value = serde_json::from_str(&arena(directory.path(), &args).1).unwrap();
    assert_eq!(document[0]["seed"], 43);
    assert_eq!(document[0]["modes"][0]["kept"], true);
}

#[test]
fn arena_refuses_what_it_does_not_know() {
    let directory = tempfile::tempdir().unwrap();
    for (args, text) in [
        (&["--family", "round"][..], "linear, sublinear"),
        (&["--cells", "0"], "1..="),
        (
            &["--stability", "--write-table", "table.txt"],
            "cannot be used with",
        ),
    ] {
        let (code, output, errors) = arena(directory.path(), args);
        assert_eq!((code, &output[..]), (Some(2), ""), "{args:?}: {errors}");
        assert!(errors.contains(text), "{args:?}: {errors}");
    }
}

/// Runs small attacks on `tidegate-bench serve`, because the program `tidegate` may not be built.
fn neighbours(directory: &Path, args: &[&str]) -> Output {
    let short = ["--before", "0.3", "--window", "0.5", "--after", "0.3"];
    let small = ["--scale", "0.002", "--bcrypt-cost", "4", "--json"];
    Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .arg("neighbours")
        .args(short)
        .args(small)
        .args(args)
        .current_dir(directory)
        .env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate-bench"))
        .env("TIDEGATE_BENCH_DIR", directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn neighbours_are_measured_before_during_and_after_an_attack() {
    let directory = tempfile::tempdir().unwrap();
    // There is no nats-server below this directory, so its rows must have a note about that.
    let attacks = [
        ("wildcards-alone", "attack_deliveries", &["--peers"][..]),
        ("purge-half", "attack_purged", &[]),
    ];
    for (attack, deed, peers) in attacks {
        let output = neighbours(directory.path(), &[&["--only", attack], peers].concat());
        let document = document(&output);
        assert_eq!(document["bench"], "neighbours");
        let ours: Vec<_> = rows(&document)
            .iter()
            .filter(|row| row["system"] == "tidegate")
            .collect();
        let names: Vec<_> = ours
            .iter()
            .map(|row| row["controller"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "publisher",
                "bare write + fdatasync",
                "subscriber",
                "ping",
                "bare echo",
                "login",
                "login with a hash",
                "server"
            ]
        );
        let (server, clients) = ours.split_last().unwrap();
        for row in clients {
            assert_eq!(
                (&row["case"], &row["failures"]),
                (&attack.into(), &0.into())
            );
            for key in ["p50_us", "p99_us", "p999_us", "worst_us", "count"] {
                assert!(row[key].as_f64().unwrap() > 0.0, "{key}: {row}");
            }
            for phase in ["before", "after"] {
                let count = &row[format!("{phase}_count")];
                assert!(count.as_u64().unwrap() > 0, "{phase}: {row}");
            }
        }
        assert!(clients[0]["excess_p999_us"].is_f64(), "{}", clients[0]);
        assert_eq!(server["carried_out"], true, "{server}");
        for key in ["rss_before_mb", "rss_mb", "rss_after_mb", deed] {
            assert!(server[key].as_f64().unwrap() > 0.0, "{key}: {server}");
        }
        let theirs = rows(&document)
            .iter()
            .filter(|row| row["system"] != "tidegate");
        let notes: Vec<_> = theirs.map(|row| row["note"].as_str().unwrap()).collect();
        assert_eq!(notes.len(), peers.len(), "{notes:?}");
        assert!(
            notes.iter().all(|note| note.contains("no nats-server")),
            "{notes:?}"
        );
        // The bench has removed the servers' files.
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn neighbours_lists_its_attacks_and_refuses_others() {
    let directory = tempfile::tempdir().unwrap();
    let output = neighbours(directory.path(), &["--list", "--only", "hellos"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    let output = neighbours(directory.path(), &["--only", "kindness"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("wildcards-alone"), "{errors}");
}

/// Makes a few streams, consumers or subjects on `tidegate-bench serve`, because the program `tidegate` may
/// not be built.
fn many(directory: &Path, args: &[&str]) -> Output {
    let short = ["--idle", "0.1", "--rest-max", "0.5", "--json"];
    Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .arg("many")
        .args(short)
        .args(args)
        .current_dir(directory)
        .env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate-bench"))
        .env("TIDEGATE_BENCH_DIR", directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn many_things_are_made_and_survive_a_kill_and_a_stop() {
    let directory = tempfile::tempdir().unwrap();
    let cells = [
        ("streams-100k", "0.001", 100),
        ("consumers-100k", "0.003", 300),
        ("subjects-1m", "0.001", 1000),
    ];
    for (cell, scale, count) in cells {
        // There is no nats-server below this directory, so its row must have a note about that.
        let args = ["--only", cell, "--scale", scale, "--peers"];
        let document = document(&many(directory.path(), &args));
        assert_eq!(document["bench"], "many");
        let [ours, theirs] = rows(&document) else {
            panic!("{document}");
        };
        assert_eq!(ours["case"], cell);
        let made = ours["made"].as_f64().unwrap();
        assert_eq!(made, f64::from(count), "{ours}");
        for key in [
            "ops_per_s",
            "rss_mb",
            "alone_p50_us",
            "alone_p99_us",
            "alone_sync_us",
            "sync_us",
            "p50_us",
            "p99_us",
            "start_after_kill_ms",
            "stop_ms",
            "start_after_stop_ms",
        ] {
            assert!(ours[key].as_f64().unwrap() > 0.0, "{key}: {ours}");
        }
        assert!(ours["bytes_each"].is_f64() && ours["idle_cpu_percent"].is_f64());
        assert_eq!(ours["consumer_ms"].is_f64(), cell == "subjects-1m");
        assert_eq!(ours["last_consumer_ms"].is_f64(), cell == "subjects-1m");
        // The note must not report a loss. It may report that the server did not come to rest on a busy
        // machine.
        let note = ours["note"].as_str().unwrap_or_default();
        assert!(!note.contains("the server has"), "{ours}");
        let note = theirs["note"].as_str().unwrap();
        assert!(note.contains("no nats-server"), "{note}");
        // The bench has removed the servers' files.
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn many_makes_streams_on_a_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["--cluster", "--only", "r3", "--scale", "0.002"];
    let document = document(&many(directory.path(), &args));
    let [ours] = rows(&document) else {
        panic!("{document}");
    };
    assert_eq!(
        (&ours["case"], &ours["made"]),
        (&"streams-20k-r3".into(), &40.0.into())
    );
    for key in [
        "ops_per_s",
        "rss_mb",
        "start_after_kill_ms",
        "start_after_stop_ms",
    ] {
        assert!(ours[key].as_f64().unwrap() > 0.0, "{key}: {ours}");
    }
    let note = ours["note"].as_str().unwrap_or_default();
    assert!(!note.contains("made"), "{ours}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn many_makes_and_deletes_streams_in_a_loop() {
    let directory = tempfile::tempdir().unwrap();
    let output = many(directory.path(), &["--churn", "1"]);
    let document = document(&output);
    let rows = rows(&document);
    assert_eq!(rows.len(), 10, "{document}");
    for row in rows {
        assert!(row["rss_mb"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["log_mb"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert!(rows[9]["streams"].as_f64().unwrap() > 0.0);
    let table = many(directory.path(), &["--churn", "1", "--peers"]);
    assert_eq!(table.status.code(), Some(2));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn many_lists_its_cells_and_refuses_others() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["--list", "--only", "streams", "--scale", "0.1"];
    let text = String::from_utf8(many(directory.path(), &args).stdout).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("streams-1k: 100 streams"), "{text}");
    let output = many(directory.path(), &["--only", "few"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("subjects-1m"), "{errors}");
}
