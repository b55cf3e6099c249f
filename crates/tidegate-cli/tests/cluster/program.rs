//! Tests of the `nats` program with a cluster that has a replica of everything on each node.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::nodes::Nodes;
use super::raw::Raw;

struct Nats {
    program: PathBuf,
    nodes: Nodes,
    urls: String,
}

impl Nats {
    fn start() -> Option<Self> {
        let program = tidegate_testing::nats()?;
        let nodes = Nodes::start(3);
        let urls: Vec<_> = nodes
            .urls()
            .iter()
            .map(|url| format!("nats://{url}"))
            .collect();
        let urls = urls.join(",");
        Some(Self {
            program,
            nodes,
            urls,
        })
    }

    fn run(&self, args: &[&str]) -> (bool, String) {
        let output = Command::new(&self.program)
            .args(["-s", &self.urls, "--timeout=20s"])
            .args(args)
            .env_remove("NATS_URL")
            .env_remove("NATS_CONTEXT")
            .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.success(),
            text + &String::from_utf8_lossy(&output.stderr),
        )
    }

    #[track_caller]
    fn says(&self, args: &[&str], parts: &[&str]) -> String {
        let (good, text) = self.run(args);
        assert!(good, "nats {args:?}: {text}\n{}", self.nodes.logs());
        assert!(
            !text.to_lowercase().contains("schema"),
            "nats {args:?}: {text}"
        );
        for part in parts {
            assert!(text.contains(part), "nats {args:?}: no `{part}` in {text}");
        }
        text
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let text = self.says(args, &[]);
        let start = text
            .find(['{', '['])
            .unwrap_or_else(|| panic!("{args:?}: {text}"));
        serde_json::from_str(text[start..].trim())
            .unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
    }
}

#[test]
fn streams_consumers_and_buckets_of_three_replicas() {
    let Some(nats) = Nats::start() else { return };
    nats.says(
        &[
            "stream",
            "add",
            "ORDERS",
            "--subjects=orders.*",
            "--replicas=3",
            "--defaults",
        ],
        &["Stream ORDERS was created", "Replicas: 3"],
    );
    for i in 0..6 {
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
    assert_eq!(info["state"]["messages"], json!(6), "{info}");
    assert_eq!(
        info["cluster"]["replicas"].as_array().map(Vec::len),
        Some(2),
        "{info}"
    );
    let leader = info["cluster"]["leader"].as_str().unwrap().to_owned();
    nats.says(&["stream", "report"], &["ORDERS", &format!("{leader}*")]);
    nats.says(
        &[
            "consumer",
            "add",
            "ORDERS",
            "PULL",
            "--pull",
            "--ack=explicit",
            "--deliver=all",
            "--defaults",
        ],
        &["Consumer ORDERS > PULL"],
    );
    // The test waits for an answer to each acknowledgement, because the leader's end could lose an
    // acknowledgement without an answer.
    let mut raw = Raw::connect(&nats.nodes.url(0)).unwrap();
    raw.publish("$JS.API.CONSUMER.MSG.NEXT.ORDERS.PULL", "pull", b"3")
        .unwrap();
    let pulled: Vec<_> = (0..3).map(|_| raw.message().unwrap()).collect();
    for (i, message) in pulled.iter().enumerate() {
        assert_eq!(message.payload, format!("order {i}").as_bytes());
        raw.publish(message.reply.as_ref().unwrap(), "ack", b"+ACK")
            .unwrap();
        assert!(raw.message().unwrap().subject.ends_with(".ack"));
    }
    // After the step-down, the next leader must know which messages were delivered and acknowledged.
    nats.says(
        &["stream", "cluster", "step-down", "ORDERS", "--force"],
        &[],
    );
    let next = nats.nodes.info("ORDERS");
    assert_ne!(next["cluster"]["leader"], json!(leader), "{next}");
    nats.says(
        &["consumer", "next", "ORDERS", "PULL", "--count=3", "--ack"],
        &["order 3", "order 5"],
    );
    nats.nodes.until("the acknowledgements to be there", || {
        let info = nats.json(&["consumer", "info", "ORDERS", "PULL", "--json"]);
        let good = info["ack_floor"]["stream_seq"] == json!(6) && info["num_pending"] == json!(0);
        if good { Ok(()) } else { Err(info.to_string()) }
    });
    nats.says(
        &["kv", "add", "CONF", "--history=5", "--replicas=3"],
        &["CONF"],
    );
    nats.says(&["kv", "put", "CONF", "a", "one"], &["one"]);
    nats.says(&["kv", "update", "CONF", "a", "two", "1"], &["two"]);
    let (good, text) = nats.run(&["kv", "update", "CONF", "a", "three", "1"]);
    assert!(!good && text.contains("wrong last sequence"), "{text}");
    nats.says(&["kv", "get", "CONF", "a", "--raw"], &["two"]);
    nats.says(&["kv", "history", "CONF", "a"], &["one", "two"]);
    let (good, text) = nats.run(&[
        "stream",
        "add",
        "MANY",
        "--subjects=m",
        "--replicas=5",
        "--defaults",
    ]);
    assert!(!good, "five replicas on three nodes: {text}");
    nats.says(&["stream", "rm", "ORDERS", "--force"], &[]);
    nats.says(&["kv", "rm", "CONF", "--force"], &[]);
}
