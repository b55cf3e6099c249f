//! Tests of streams that clients or the operator restrict to nodes with certain tags.

use serde_json::{Value, json};

use super::nodes::{Nodes, Place, ask, until};
use super::placed::{create, keepers};

/// Prepares three nodes: n1 has the tags ssd and az:a, n2 ssd and az:b, and n3 hdd and az:b. The function
/// adds `more` to each node's configuration.
fn tagged(more: &str) -> (Nodes, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let all = ["ssd, az:a", "SSD, az:b", "hdd, az:b"];
    let places = (0..3).zip(all).map(|(node, tags)| {
        let mut place = Place::here(node);
        let file = directory.path().join(&place.name);
        let tags: Vec<_> = tags.split(", ").map(|tag| format!("{tag:?}")).collect();
        let text = format!("server_tags: [{}]\n{more}\n", tags.join(", "));
        std::fs::write(&file, text).unwrap();
        place.flags = vec!["-c".into(), file.to_str().unwrap().into()];
        place
    });
    (Nodes::at(places.collect()), directory)
}

fn config(name: &str, replicas: usize, tags: &[&str]) -> Value {
    json!({
        "name": name, "subjects": [format!("{name}.>")], "num_replicas": replicas,
        "placement": {"tags": tags},
    })
}

/// Creates a stream, and returns the nodes that keep it.
fn made(nodes: &Nodes, name: &str, replicas: usize, tags: &[&str]) -> Vec<usize> {
    let config = config(name, replicas, tags);
    let what = format!("STREAM.CREATE.{name}");
    let made = nodes.until("a stream with tags", || ask(&nodes.url(2), &what, &config));
    let shown = &made["config"]["placement"]["tags"];
    assert!(tags.is_empty() || *shown == json!(tags), "{made}");
    keepers(nodes, &nodes.info(name))
}

fn refused(nodes: &Nodes, config: &Value) -> String {
    let what = format!("STREAM.CREATE.{}", config["name"].as_str().unwrap());
    let refused = ask(&nodes.url(0), &what, config).unwrap_err();
    assert!(refused.contains("10005"), "{refused}");
    refused
}

#[test]
fn streams_go_to_nodes_with_their_tags_and_move_to_them() {
    let (mut nodes, _files) = tagged("");
    (0..3).for_each(|node| nodes.spawn(node));
    nodes.wait_serving();
    assert_eq!(made(&nodes, "A", 1, &["az:a"]), [0]);
    assert_eq!(made(&nodes, "B", 1, &["SSD", "az:b"]), [1]);
    assert_eq!(made(&nodes, "C", 1, &["hdd"]), [2]);
    assert_eq!(made(&nodes, "D", 3, &[]).len(), 3);
    let none = refused(&nodes, &config("E", 1, &["gpu"]));
    assert!(none.contains("nodes with the tags gpu"), "{none}");
    refused(&nodes, &config("E", 1, &["hdd", "az:a"]));
    refused(&nodes, &config("E", 3, &["ssd"]));
    // An update moves the stream to a node with the new tags.
    let update = config("A", 1, &["hdd"]);
    nodes.until("an update of tags", || {
        ask(&nodes.url(0), "STREAM.UPDATE.A", &update)
    });
    nodes.until("a move to a node with the new tags", || {
        let info = ask(&nodes.url(0), "STREAM.INFO.A", &json!({}))?;
        match info["cluster"]["leader"] == json!("n3") {
            true => Ok(()),
            false => Err(info.to_string()),
        }
    });
    // The leadership must go to a node with the tag for which a client asks.
    nodes.lead("D", 2);
    let to = json!({"placement": {"tags": ["az:a"]}});
    until("a leader with the tag", || match nodes.leader("D") {
        0 => Ok(()),
        other => {
            // On a busy machine the node with the tag may be behind, and then another node leads next.
            let asked = nodes.ask("STREAM.LEADER.STEPDOWN.D", &to);
            Err(format!("node {other} leads: {asked:?}"))
        }
    });
}

#[test]
fn the_nodes_of_a_stream_have_different_tags_of_the_operators_kind() {
    let (mut nodes, _files) = tagged("jetstream { unique_tag: \"az:\" }");
    (0..3).for_each(|node| nodes.spawn(node));
    create(&nodes, 0, "A", 1);
    // n2 and n3 are in one zone, so three nodes in three zones do not exist.
    refused(&nodes, &json!({"name": "B", "num_replicas": 3}));
    let mut in_one = config("B", 3, &["az:b"]);
    refused(&nodes, &in_one);
    in_one["num_replicas"] = json!(1);
    ask(&nodes.url(1), "STREAM.CREATE.B", &in_one).unwrap();
}
