//! A leader that is asked to go, or to end: whoever listens to a consumer that ends with its lead is told at
//! once.
//!
//! In nats-server such a consumer stays where it is when another node leads its stream.

use serde_json::json;

use super::nodes::{Nodes, other};
use super::raw::Raw;

#[test]
fn listeners_of_lost_consumers_are_told() {
    if other().is_some() {
        return;
    }
    let mut nodes = Nodes::start(3);
    nodes.add_stream("H", "H.>");
    for ends in [false, true] {
        let leader = nodes.leader("H");
        // At another node, and at the one that goes.
        let at = [(leader + 1) % nodes.len(), leader];
        let mut clients = at.map(|node| Raw::connect(&nodes.url(node)).unwrap());
        for client in &mut clients {
            // By itself it would be silent for longer than this test waits.
            let ordered = json!({"stream_name": "H", "config": {
                "deliver_subject": format!("{}messages", client.inbox),
                "ack_policy": "none", "mem_storage": true, "idle_heartbeat": 600_000_000_000_u64,
            }});
            let made = client.api("CONSUMER.CREATE.H", &ordered);
            assert!(made.get("error").is_none(), "{made}");
        }
        match ends {
            false => nodes.lead("H", at[0]),
            true => nodes.end(leader),
        }
        for client in &mut clients {
            let told = client.message().unwrap();
            assert!(told.subject.ends_with("messages"), "{told:?}");
            let headers = told.headers();
            assert!(headers.contains("Nats-Last-Consumer: 1\r\n"), "{headers}");
        }
    }
}
