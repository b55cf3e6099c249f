//! Golden fixtures of a cluster: the data directories of its three nodes, with the list of the members, the
//! logs of the groups, and the committed entries.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::listing::configuration;
use super::program::{Program, free_ports, today, until};
use super::raw::Raw;
use super::{VERSIONS, fixtures, image};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Starts the three nodes of a cluster on the data in `data`. Returns their processes and their URLs.
fn start(program: &Path, data: &Path) -> (Vec<Program>, Vec<String>) {
    let ports = free_ports::<6>();
    let routes = ports[3..]
        .iter()
        .map(|p| format!("nats-route://127.0.0.1:{p}"));
    let routes = routes.collect::<Vec<_>>().join(",");
    let mut nodes = Vec::new();
    let mut urls = Vec::new();
    for (at, name) in NODES.iter().enumerate() {
        let data = data.join(name);
        let (client, peer) = (
            ports[at].to_string(),
            format!("nats://127.0.0.1:{}", ports[at + 3]),
        );
        let args = [
            "serve",
            "--data",
            data.to_str().unwrap(),
            "-a",
            "127.0.0.1",
            "-p",
            &client,
            "-n",
            name,
            "--cluster",
            &peer,
            "--cluster_name",
            "tide",
            "--routes",
            &routes,
        ];
        nodes.push(Program::start(program, &args));
        urls.push(format!("127.0.0.1:{client}"));
    }
    for node in &nodes {
        node.line("Server is ready");
    }
    (nodes, urls)
}

/// Sends a request to the nodes, one after the other, until one of them answers without an error.
fn ask(urls: &[String], what: &str, body: &Value) -> Value {
    until(what, || {
        urls.iter().find_map(|url| {
            let mut raw = Raw::connect(url).ok()?;
            let answer = raw.try_api(what, body).ok()?;
            answer.get("error").is_none().then_some(answer)
        })
    })
}

fn publish(urls: &[String], subject: &str, payload: &str) {
    until(subject, || {
        let mut raw = Raw::connect(&urls[0]).ok()?;
        raw.publish(subject, "puback", payload.as_bytes()).ok()?;
        let answer = raw.message().ok()?;
        answer.json().get("seq").cloned()
    });
}

fn config(name: &str, replicas: u32) -> Value {
    let subject = format!("{}.*", name.to_lowercase());
    json!({"name": name, "subjects": [subject], "num_replicas": replicas})
}

fn messages(urls: &[String], stream: &str) -> String {
    let info = ask(urls, &format!("STREAM.INFO.{stream}"), &json!({}));
    let last = info["state"]["last_seq"].as_u64().unwrap();
    let mut text = format!("stream {stream} {}\n", configuration(&info["config"]));
    for seq in 1..=last {
        let get = format!("STREAM.MSG.GET.{stream}");
        let got = ask(urls, &get, &json!({"seq": seq}));
        text.push_str(&format!("  {}\n", got["message"]));
    }
    text
}

fn listing(urls: &[String]) -> String {
    let mut text: String = ["THREE", "ONE"].map(|s| messages(urls, s)).concat();
    let info = ask(urls, "CONSUMER.INFO.THREE.worker", &json!({}));
    text.push_str(&format!(
        "consumer worker {} {}
",
        configuration(&info["config"]),
        info["ack_floor"]
    ));
    text
}

pub(crate) fn record(program: &Path, to: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (nodes, urls) = start(program, &data);
    // All nodes keep the stream THREE. Only one node keeps the stream ONE, which belongs to another group.
    for (name, replicas) in [("THREE", 3), ("ONE", 1)] {
        ask(
            &urls,
            &format!("STREAM.CREATE.{name}"),
            &config(name, replicas),
        );
        for n in 1..=4 {
            let subject = format!("{}.{n}", name.to_lowercase());
            publish(&urls, &subject, &format!("{name} {n}"));
        }
    }
    let durable = json!({"stream_name": "THREE", "config": {"durable_name": "worker", "ack_policy": "explicit"}});
    ask(&urls, "CONSUMER.DURABLE.CREATE.THREE.worker", &durable);
    let text = listing(&urls);
    for node in nodes {
        node.stop();
    }
    let how = "The data directory of a node of a cluster of three, written by record() in tests/golden/cluster.rs.";
    image::keep(&data, &to.join("data"), how);
    fs::write(to.join("listing.txt"), text).unwrap();
}

#[test]
fn a_cluster_goes_on_with_the_directories_of_each_version() {
    for version in VERSIONS {
        let from = fixtures(version).join("cluster");
        let directory = tempfile::tempdir().unwrap();
        image::restore(&from.join("data"), directory.path());
        for name in NODES {
            for look in ["inspect", "verify"] {
                let data = directory.path().join(name);
                let out = Command::new(today())
                    .args(["log", look])
                    .arg(data)
                    .output()
                    .unwrap();
                assert!(out.status.success(), "{version} {name}: {out:?}");
            }
        }
        let (_nodes, urls) = start(today(), directory.path());
        let kept = fs::read_to_string(from.join("listing.txt")).unwrap();
        assert_eq!(listing(&urls), kept, "{version}");
        publish(&urls, "three.5", "today");
        let all = messages(&urls, "THREE");
        assert!(all.contains("\"seq\":5"), "{all}");
    }
}
