//! Tests of the server with the commands of the `nats` program, which checks the server's answers against
//! schemas.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::server::Server;

struct Nats {
    program: PathBuf,
    server: Server,
}

impl Nats {
    fn start() -> Option<Self> {
        Some(Self {
            program: tidegate_testing::nats()?,
            server: Server::start(),
        })
    }

    fn run(&self, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(&self.program);
        command
            .args(["-s", &self.server.url, "--timeout=20s"])
            .args(args);
        // The user's own contexts and colours must not affect the test.
        for variable in ["NATS_URL", "NATS_CONTEXT"] {
            command.env_remove(variable);
        }
        let home = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
        let output = command
            .env("XDG_CONFIG_HOME", home)
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    #[track_caller]
    fn good(&self, args: &[&str]) -> String {
        let (good, text) = self.run(args);
        assert!(good, "nats {args:?}: {text}\n{}", self.server.log());
        assert!(
            !text.to_lowercase().contains("schema"),
            "nats {args:?}: {text}"
        );
        text
    }

    /// Runs a command that must succeed and print all of these texts.
    #[track_caller]
    fn says(&self, args: &[&str], parts: &[&str]) {
        let text = self.good(args);
        for part in parts {
            assert!(text.contains(part), "nats {args:?}: no `{part}` in {text}");
        }
    }

    #[track_caller]
    fn fails(&self, args: &[&str], part: &str) {
        let (good, text) = self.run(args);
        assert!(!good && text.contains(part), "nats {args:?}: {text}");
    }

    /// Returns the JSON that a command prints.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let text = self.good(args);
        let start = text
            .find(['{', '['])
            .unwrap_or_else(|| panic!("nats {args:?}: {text}"));
        serde_json::from_str(text[start..].trim())
            .unwrap_or_else(|e| panic!("nats {args:?}: {e}: {text}"))
    }
}

#[test]
fn streams() {
    let Some(nats) = Nats::start() else { return };
    nats.says(&["account", "info"], &["JetStream", "Streams"]);
    nats.says(&["stream", "ls"], &["No Streams"]);
    nats.says(
        &[
            "stream",
            "add",
            "ORDERS",
            "--subjects=orders.*",
            "--storage=file",
            "--replicas=1",
            "--retention=limits",
            "--discard=old",
            "--max-msgs=-1",
            "--max-msgs-per-subject=100",
            "--max-bytes=-1",
            "--max-age=1d",
            "--max-msg-size=-1",
            "--dupe-window=2m",
            "--no-allow-rollup",
            "--no-deny-delete",
            "--no-deny-purge",
            "--defaults",
        ],
        &["Stream ORDERS was created", "orders.*"],
    );
    for i in 0..5 {
        nats.says(
            &[
                "pub",
                "-J",
                &format!("orders.{}", i % 2),
                &format!("order {i}"),
            ],
            &["Stored in Stream: ORDERS"],
        );
    }
    let info = nats.json(&["stream", "info", "ORDERS", "--json"]);
    assert_eq!(info["state"]["messages"], json!(5));
    assert_eq!(info["state"]["num_subjects"], json!(2));
    assert_eq!(info["config"]["max_age"], json!(86_400_000_000_000_u64));
    nats.says(
        &["stream", "info", "ORDERS"],
        &["Information for Stream ORDERS", "Messages: 5"],
    );
    nats.says(&["stream", "state", "ORDERS"], &["Messages: 5"]);
    nats.says(&["stream", "ls"], &["ORDERS"]);
    nats.says(&["stream", "find"], &["ORDERS"]);
    nats.says(&["stream", "report"], &["ORDERS"]);
    nats.says(&["stream", "subjects", "ORDERS"], &["orders.0", "orders.1"]);
    nats.says(&["stream", "get", "ORDERS", "2"], &["order 1"]);
    nats.says(
        &["stream", "get", "ORDERS", "--last-for=orders.0"],
        &["order 4"],
    );
    nats.says(&["stream", "rmm", "ORDERS", "2", "--force"], &[]);
    nats.fails(&["stream", "get", "ORDERS", "2"], "no message found");
    nats.says(
        &["stream", "edit", "ORDERS", "--max-msgs=3", "--force"],
        &["Stream ORDERS was updated"],
    );
    assert_eq!(
        nats.json(&["stream", "info", "ORDERS", "--json"])["state"]["messages"],
        json!(3)
    );
    nats.says(
        &["stream", "purge", "ORDERS", "--subject=orders.0", "--force"],
        &["Messages: "],
    );
    nats.says(&["stream", "purge", "ORDERS", "--force"], &["Messages: 0"]);
    nats.says(
        &["stream", "copy", "ORDERS", "COPY", "--subjects=copy.*"],
        &["Stream COPY was created"],
    );
    nats.says(&["stream", "seal", "COPY", "--force"], &[]);
    nats.fails(&["pub", "-J", "copy.a", "x"], "sealed");
    nats.says(&["stream", "rm", "ORDERS", "--force"], &[]);
    nats.fails(&["stream", "info", "ORDERS"], "could not pick a Stream");
    nats.fails(
        &["stream", "add", "X", "--subjects=copy.a", "--defaults"],
        "subjects overlap",
    );
}

#[test]
fn queues_and_interest() {
    let Some(nats) = Nats::start() else { return };
    let add = |name: &str, retention: &str| {
        let (subjects, retention) = (
            format!("--subjects={name}.*"),
            format!("--retention={retention}"),
        );
        let add = ["stream", "add", name, &subjects, &retention, "--defaults"];
        nats.says(&add, &[&format!("Stream {name} was created")]);
    };
    add("JOBS", "work");
    nats.says(&["stream", "info", "JOBS"], &["WorkQueue"]);
    nats.says(&["pub", "-J", "JOBS.a", "job"], &["Stored in Stream: JOBS"]);
    nats.says(
        &["consumer", "add", "JOBS", "WORKER", "--pull", "--defaults"],
        &["WORKER"],
    );
    nats.fails(
        &["consumer", "add", "JOBS", "OTHER", "--pull", "--defaults"],
        "10099",
    );
    nats.says(&["consumer", "next", "JOBS", "WORKER", "--ack"], &["job"]);
    let fields =
        |name: &str| nats.json(&["stream", "info", name, "--json"])["state"]["messages"].clone();
    while fields("JOBS") != json!(0) {}
    add("NEWS", "interest");
    nats.says(&["stream", "info", "NEWS"], &["Interest"]);
    nats.says(
        &["pub", "-J", "NEWS.a", "nobody"],
        &["Stored in Stream: NEWS"],
    );
    assert_eq!(fields("NEWS"), json!(0));
    nats.says(
        &["consumer", "add", "NEWS", "READER", "--pull", "--defaults"],
        &["READER"],
    );
    nats.says(
        &["pub", "-J", "NEWS.a", "somebody"],
        &["Stored in Stream: NEWS"],
    );
    assert_eq!(fields("NEWS"), json!(1));
    nats.says(&["consumer", "rm", "NEWS", "READER", "--force"], &[]);
    while fields("NEWS") != json!(0) {}
}

#[test]
fn consumers() {
    let Some(nats) = Nats::start() else { return };
    nats.good(&["stream", "add", "S", "--subjects=s.*", "--defaults"]);
    for i in 0..10 {
        nats.good(&["pub", "-J", "s.a", &format!("message {i}")]);
    }
    nats.says(
        &[
            "consumer",
            "add",
            "S",
            "PULL",
            "--pull",
            "--ack=explicit",
            "--deliver=all",
            "--wait=30s",
            "--filter=s.a",
            "--defaults",
        ],
        &["Consumer S > PULL", "Pull Mode: true"],
    );
    nats.says(
        &["consumer", "next", "S", "PULL", "--ack"],
        &["message 0", "Acknowledged message"],
    );
    nats.says(
        &["consumer", "next", "S", "PULL", "--count=3", "--ack"],
        &["message 1", "message 3"],
    );
    nats.says(
        &["consumer", "next", "S", "PULL", "--no-ack"],
        &["message 4"],
    );
    let info = nats.json(&["consumer", "info", "S", "PULL", "--json"]);
    assert_eq!(info["num_ack_pending"], json!(1), "{info}");
    assert_eq!(info["num_pending"], json!(5), "{info}");
    assert_eq!(info["ack_floor"]["stream_seq"], json!(4), "{info}");
    nats.good(&["consumer", "reset", "S", "PULL", "--sequence=3", "--force"]);
    let info = nats.json(&["consumer", "info", "S", "PULL", "--json"]);
    assert_eq!(info["num_ack_pending"], json!(0), "{info}");
    assert_eq!(info["num_pending"], json!(8), "{info}");
    nats.says(&["consumer", "ls", "S"], &["PULL"]);
    nats.says(&["consumer", "report", "S"], &["PULL"]);
    nats.says(
        &["consumer", "edit", "S", "PULL", "--wait=10s", "--force"],
        &["PULL"],
    );
    assert_eq!(
        nats.json(&["consumer", "info", "S", "PULL", "--json"])["config"]["ack_wait"],
        json!(10_000_000_000_u64)
    );
    nats.says(
        &[
            "consumer",
            "add",
            "S",
            "PUSH",
            "--target=deliver.here",
            "--ack=none",
            "--deliver=last",
            "--replay=instant",
            "--defaults",
        ],
        &["Consumer S > PUSH"],
    );
    nats.says(&["consumer", "rm", "S", "PUSH", "--force"], &[]);
    nats.says(&["consumer", "rm", "S", "PULL", "--force"], &[]);
    nats.fails(
        &["consumer", "info", "S", "PULL"],
        "could not select Consumer",
    );
    // The program creates an ordered consumer for itself.
    nats.says(
        &["sub", "s.*", "--stream=S", "--count=10", "--all", "--raw"],
        &["message 0", "message 9"],
    );
}

#[test]
fn key_value() {
    let Some(nats) = Nats::start() else { return };
    nats.says(
        &["kv", "add", "CONF", "--history=5", "--ttl=1h"],
        &["CONF", "History Kept: 5"],
    );
    nats.says(&["kv", "put", "CONF", "a", "one"], &["one"]);
    nats.says(&["kv", "put", "CONF", "a", "two"], &["two"]);
    nats.says(&["kv", "create", "CONF", "b", "new"], &["new"]);
    nats.fails(&["kv", "create", "CONF", "b", "newer"], "key exists");
    nats.says(&["kv", "update", "CONF", "a", "three", "2"], &["three"]);
    nats.fails(
        &["kv", "update", "CONF", "a", "four", "2"],
        "wrong last sequence",
    );
    nats.says(&["kv", "get", "CONF", "a", "--raw"], &["three"]);
    nats.says(&["kv", "history", "CONF", "a"], &["one", "two", "three"]);
    nats.says(&["kv", "ls", "CONF"], &["a", "b"]);
    nats.says(&["kv", "del", "CONF", "b", "--force"], &[]);
    nats.fails(&["kv", "get", "CONF", "b"], "key not found");
    nats.says(&["kv", "revert", "CONF", "a", "1", "--force"], &["one"]);
    nats.says(&["kv", "purge", "CONF", "a", "--force"], &[]);
    nats.says(&["kv", "info", "CONF"], &["CONF"]);
    nats.says(&["kv", "compact", "CONF", "--force"], &[]);
    nats.says(&["kv", "ls"], &["CONF"]);
    nats.says(&["kv", "rm", "CONF", "--force"], &[]);
    nats.fails(&["kv", "get", "CONF", "a"], "not found");
}

/// The name of the consumer that `nats bench` uses by default.
const CONSUMER: &str = "nats-bench";

#[test]
fn benches() {
    let Some(nats) = Nats::start() else { return };
    let bench = |args: &[&str]| {
        let common = ["--msgs=2000", "--no-progress", "--stream=B"];
        nats.says(&[&["bench", "js"], args, &common].concat(), &["msgs/sec"]);
    };
    for how in ["async", "sync", "batch"] {
        bench(&[
            "pub",
            how,
            "b",
            "--create",
            "--purge",
            "--clients=4",
            "--size=100",
        ]);
    }
    bench(&["consume", "--clients=2"]);
    // The consumer stays after the run, and has no message left for another run, so the test removes it.
    nats.good(&["consumer", "rm", "B", CONSUMER, "--force"]);
    bench(&["fetch", "--clients=2"]);
    bench(&["ordered"]);
    bench(&["get", "sync"]);
    bench(&["get", "batch"]);
    nats.good(&["kv", "add", "BENCH"]);
    for what in ["put", "get"] {
        nats.says(
            &[
                "bench",
                "kv",
                what,
                "--msgs=500",
                "--no-progress",
                "--bucket=BENCH",
            ],
            &["msgs/sec"],
        );
    }
}
