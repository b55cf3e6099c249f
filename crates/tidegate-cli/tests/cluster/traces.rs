//! Tests of traced messages in a cluster: tools must be able to join the reports of the nodes on the path.

use serde_json::{Value, json};

use super::nodes::Nodes;
use super::raw::Raw;

#[test]
fn the_reports_of_a_path_name_their_hops() {
    let nodes = Nodes::start(3);
    let mut publisher = Raw::connect(&nodes.url(0)).unwrap();
    let mut receiver = Raw::connect(&nodes.url(1)).unwrap();
    receiver.send(b"SUB traced 7\r\nSUB known 8\r\n").unwrap();
    nodes.until("the first node to know the receiver", || {
        publisher.publish("known", "reach", b"").unwrap();
        publisher
            .publish(&format!("{}mark", publisher.inbox.clone()), "none", b"")
            .unwrap();
        let mut unheard = false;
        loop {
            let message = publisher.message().unwrap();
            match message.subject.ends_with("mark") {
                true if unheard => return Err("no node has a listener".to_owned()),
                true => return Ok(()),
                false => unheard = true,
            }
        }
    });
    let to = format!("Nats-Trace-Dest: {}trace", publisher.inbox);
    publisher.publish_with("traced", "none", &[&to, "Nats-Trace-Only: true"]);
    let mut reports: Vec<Value> = (0..2)
        .map(|_| publisher.message().unwrap().json())
        .collect();
    // The node of the client reports without a hop of its own.
    reports.sort_by_key(|report| report["hops"].as_u64() != Some(1));
    let [first, second] = &reports[..] else {
        unreachable!("two reports");
    };
    assert_eq!(
        first["request"]["header"]["Nats-Trace-Hop"],
        Value::Null,
        "{first}"
    );
    let egress = &first["events"][1];
    assert_eq!(egress["name"], second["server"]["name"], "{first} {second}");
    assert_eq!(
        second["request"]["header"]["Nats-Trace-Hop"],
        json!([egress["hop"]]),
        "{first} {second}"
    );
}
