//! Tests mirrors and sources in a cluster while the test kills the leaders of both streams.

use std::time::Duration;

use serde_json::{Value, json};

use super::nodes::{Nodes, Place};
use super::raw::Raw;

/// The longest wait for the acknowledgement of one message, after which the publisher sends it again.
const ATTEMPT: Duration = Duration::from_secs(3);
const MESSAGES: u64 = 150;

/// Publishes one message with an id, and reads the answer, so that a repeated message is stored once.
fn publish(url: &str, subject: &str, id: u64) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let mut raw = Raw::connect_within(url, ATTEMPT).map_err(text)?;
    let block = format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
    let (inbox, len) = (&raw.inbox, block.len());
    let out = format!("HPUB {subject} {inbox}ack {len} {len}\r\n{block}\r\n");
    raw.send(out.as_bytes()).map_err(text)?;
    let answer = raw.message().map_err(text)?;
    let value: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    match value["seq"].as_u64() {
        Some(_) if value.get("error").is_none() => Ok(()),
        _ => Err(value.to_string()),
    }
}

/// Publishes one message to any node until a stream stores it.
fn store(nodes: &Nodes, subject: &str, id: u64) {
    nodes.until("a message to be stored", || {
        let mut failed = Err("no node is there".to_owned());
        for node in 0..nodes.len() {
            failed = publish(&nodes.url(node), subject, id);
            if failed.is_ok() {
                break;
            }
        }
        failed
    });
}

fn create(nodes: &Nodes, config: &Value) {
    let name = config["name"].as_str().unwrap();
    nodes.until("a stream to be made", || {
        nodes.ask(&format!("STREAM.CREATE.{name}"), config)
    });
}

fn wait_for(nodes: &Nodes, name: &str, messages: u64, last: u64) {
    nodes.until("all messages to be there", || {
        let info = nodes.ask(&format!("STREAM.INFO.{name}"), &json!({}))?;
        let state = &info["state"];
        match state["messages"] == messages && state["last_seq"] == last {
            true => Ok(()),
            false => Err(info.to_string()),
        }
    });
}

#[test]
fn no_message_is_lost_or_repeated_when_leaders_die() {
    let mut nodes = Nodes::start(3);
    create(
        &nodes,
        &json!({"name": "O", "subjects": ["o"], "num_replicas": 3}),
    );
    let queue =
        json!({"name": "Q", "subjects": ["q"], "retention": "workqueue", "num_replicas": 1});
    create(&nodes, &queue);
    create(
        &nodes,
        &json!({"name": "M", "mirror": {"name": "O"}, "num_replicas": 1}),
    );
    let sourced =
        json!({"name": "F", "sources": [{"name": "Q"}, {"name": "M"}], "num_replicas": 3});
    create(&nodes, &sourced);
    nodes.until("the origin to name its mirror", || {
        let info = nodes.ask("STREAM.INFO.O", &json!({}))?;
        let name = |at: usize| &info["alternates"][at]["name"];
        match name(0) == "O" && name(1) == "M" {
            true => Ok(()),
            false => Err(info.to_string()),
        }
    });
    for id in 1..=MESSAGES {
        for subject in ["o", "q"] {
            store(&nodes, subject, id);
        }
        if id % 30 == 0 {
            let of = ["O", "Q", "M", "F"][(id / 30 % 4) as usize];
            let node = nodes.leader(of);
            nodes.kill(node);
            nodes.spawn(node);
        }
    }
    wait_for(&nodes, "M", MESSAGES, MESSAGES);
    wait_for(&nodes, "F", 2 * MESSAGES, 2 * MESSAGES);
    wait_for(&nodes, "Q", 0, MESSAGES);
}

#[test]
fn a_consumer_feeds_a_source_each_message_once_when_leaders_die() {
    let mut nodes = Nodes::start(3);
    let queue =
        json!({"name": "Q", "subjects": ["q"], "retention": "workqueue", "num_replicas": 3});
    create(&nodes, &queue);
    let consumer =
        json!({"durable_name": "C", "ack_policy": "flow_control", "deliver_subject": "d"});
    nodes.until("a consumer to be made", || {
        let body = json!({"stream_name": "Q", "config": consumer});
        nodes.ask("CONSUMER.CREATE.Q.C", &body)
    });
    let by = json!({"name": "Q", "consumer": {"name": "C", "deliver_subject": "d"}});
    create(
        &nodes,
        &json!({"name": "F", "sources": [by], "num_replicas": 3}),
    );
    for id in 1..=MESSAGES {
        store(&nodes, "q", id);
        if id % 30 == 0 {
            let node = nodes.leader(["Q", "F"][(id / 30 % 2) as usize]);
            nodes.kill(node);
            nodes.spawn(node);
        }
    }
    wait_for(&nodes, "F", MESSAGES, MESSAGES);
    wait_for(&nodes, "Q", 0, MESSAGES);
}

/// Starts three nodes that know the other cluster as the remote `hub`.
fn nodes_with_hub(hub: &Nodes) -> (Nodes, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let urls: Vec<String> = (0..hub.len())
        .map(|node| format!("\"nats://{}\"", hub.url(node)))
        .collect();
    let text = format!(
        "jetstream {{ remotes {{ hub {{ urls: [{}] }} }} }}\n",
        urls.join(", ")
    );
    let places = (0..3).map(|node| {
        let mut place = Place::here(node);
        let file = directory.path().join(&place.name);
        std::fs::write(&file, &text).unwrap();
        place.flags = vec!["-c".into(), file.to_str().unwrap().into()];
        place
    });
    (Nodes::start_at(places.collect()), directory)
}

#[test]
fn a_mirror_of_another_cluster_survives_the_leaders_of_both() {
    let mut hub = Nodes::start(3);
    create(
        &hub,
        &json!({"name": "O", "subjects": ["o"], "num_replicas": 3}),
    );
    let (mut nodes, _files) = nodes_with_hub(&hub);
    let origin = json!({"name": "O", "external": {"api": "$JS.hub.API"}});
    create(
        &nodes,
        &json!({"name": "M", "mirror": origin, "num_replicas": 3}),
    );
    create(
        &nodes,
        &json!({"name": "S", "sources": [origin], "num_replicas": 1}),
    );
    for id in 1..=MESSAGES {
        store(&hub, "o", id);
        if id % 30 == 0 {
            let both = match id % 60 {
                0 => (&mut hub, "O"),
                _ => (&mut nodes, "M"),
            };
            let (of, stream) = both;
            let node = of.leader(stream);
            of.kill(node);
            of.spawn(node);
        }
    }
    wait_for(&nodes, "M", MESSAGES, MESSAGES);
    wait_for(&nodes, "S", MESSAGES, MESSAGES);
}
