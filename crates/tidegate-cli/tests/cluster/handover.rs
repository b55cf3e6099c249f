//! Tests a leader that steps down or ends, with a consumer that exists only on the leader: the consumer's
//! listener must learn of the change at once.
//!
//! In nats-server such a consumer stays on its node even if another node leads its stream.

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
        // One client is connected to another node than the leader, and one to the leader that steps down or
        // ends.
        let at = [(leader + 1) % nodes.len(), leader];
        let mut clients = at.map(|node| Raw::connect(&nodes.url(node)).unwrap());
        for client in &mut clients {
            // Regular heartbeats come only after ten minutes, so a message that arrives earlier tells the
            // listener of the change.
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
