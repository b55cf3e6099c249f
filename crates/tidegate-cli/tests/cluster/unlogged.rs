//! Tests of a consumer without replicas: the test kills the node that serves it, and then the node that
//! serves it next. The consumer's listener on another node must notice each loss at once by new deliveries,
//! although no client publishes and no heartbeat is due.

use serde_json::json;

use super::nodes::{Nodes, other};
use super::placed::publish;
use super::raw::Raw;

/// Reads deliveries until message `last` of the stream arrives with the same consumer sequence.
fn read_to(client: &mut Raw, last: u64) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let (seq, message) = client.delivered().unwrap();
        let reply = message.reply.unwrap();
        let by_consumer = reply.split('.').nth(6).and_then(|n| n.parse().ok());
        assert_eq!(by_consumer, Some(seq), "{reply}");
        all.push(seq);
        if seq == last {
            return all;
        }
    }
}

#[test]
fn listeners_go_on_when_node_after_node_is_killed() {
    if other().is_some() {
        println!("in nats-server such a consumer begins anew where it was, when that node is back");
        return;
    }
    let mut nodes = Nodes::start(3);
    nodes.add_stream("L", "L.>");
    let stays = (nodes.leader("L") + 1) % nodes.len();
    let mut client = Raw::connect(&nodes.url(stays)).unwrap();
    let mut publisher = Raw::connect(&nodes.url(stays)).unwrap();
    assert_eq!(publish(&mut publisher, "L.x", "one"), Ok(1));
    let leader = nodes.leader("L");
    let commands = || nodes.monitor(leader, "/jsz").unwrap()["log"]["commands"].as_u64();
    let before = commands();
    // Regular heartbeats come only after ten minutes, so the listener cannot notice the loss by a heartbeat.
    let ordered = json!({"stream_name": "L", "config": {
        "deliver_subject": format!("{}messages", client.inbox), "ack_policy": "none", "mem_storage": true,
        "max_deliver": 1, "flow_control": true, "idle_heartbeat": 600_000_000_000_u64,
    }});
    client
        .publish(
            "$JS.API.CONSUMER.CREATE.L",
            "made",
            ordered.to_string().as_bytes(),
        )
        .unwrap();
    assert!(client.message().unwrap().subject.ends_with(".made"));
    assert_eq!(read_to(&mut client, 1), [1]);
    nodes.until("the log to be told that it lasts", || {
        match commands() == before {
            true => Err("it was not".into()),
            false => Ok(()),
        }
    });
    // The log has the consumer's entry before the messages that the stream acknowledges from now on.
    assert_eq!(publish(&mut publisher, "L.x", "two"), Ok(2));
    assert_eq!(read_to(&mut client, 2), [2]);
    for _ in 0..2 {
        let leader = nodes.leader("L");
        if leader == stays {
            // The consumer must also start over after a handover of the leadership.
            nodes.lead("L", (stays + 1) % nodes.len());
            assert_eq!(read_to(&mut client, 2), [1, 2]);
        }
        let leader = nodes.leader("L");
        nodes.kill(leader);
        assert_eq!(read_to(&mut client, 2), [1, 2]);
        nodes.spawn(leader);
        nodes.wait_healthy(leader);
        nodes.wait_current("L");
    }
}
