//! Tests of health checks of a cluster that ask about one stream or one consumer, as an operator's probes do.

use serde_json::{Value, json};

use super::nodes::Nodes;
use super::placed::{create, keepers};

/// Returns the answer of a node to the health check of a stream.
fn check(nodes: &Nodes, node: usize, options: &str) -> Result<Value, String> {
    nodes.monitor(node, &format!("/healthz?account=$G&{options}"))
}

fn is_well(nodes: &Nodes, node: usize, options: &str) -> Result<(), String> {
    let health = check(nodes, node, options)?;
    match health["status"] == "ok" {
        true => Ok(()),
        false => Err(health.to_string()),
    }
}

#[test]
fn a_check_of_a_stream_tells_its_nodes_from_the_others() {
    let mut nodes = Nodes::start(3);
    create(&nodes, 0, "S", 3);
    let alone = create(&nodes, 0, "P", 1);
    let keeper = keepers(&nodes, &alone)[0];
    let config = json!({"durable_name": "C", "ack_policy": "explicit"});
    let body = json!({"stream_name": "S", "config": config});
    nodes.until("a consumer", || nodes.ask("CONSUMER.CREATE.S.C", &body));
    for node in 0..3 {
        for options in ["stream=S", "stream=S&consumer=C", "details=true"] {
            nodes.until("a healthy stream", || is_well(&nodes, node, options));
        }
        let missing = check(&nodes, node, "stream=S&consumer=D").unwrap();
        let text = r#"JetStream consumer "D" not found for stream "S" on account "$G""#;
        assert_eq!(missing, json!({"status": "unavailable", "error": text}));
        match node == keeper {
            true => nodes.until("its keeper", || is_well(&nodes, node, "stream=P")),
            false => {
                let health = check(&nodes, node, "stream=P").unwrap();
                let text = r#"JetStream stream "P" not found on account "$G""#;
                assert_eq!(health, json!({"status": "unavailable", "error": text}));
            }
        }
    }
    // Without a majority the nodes elect no leader.
    nodes.kill(1);
    nodes.kill(2);
    nodes.until("the loss of the leader", || {
        let health = check(&nodes, 0, "stream=S&details=true")?;
        let error = &health["errors"][0];
        let is_seen = health["status"] == "error" && error["type"] == "JETSTREAM";
        is_seen.then_some(()).ok_or_else(|| health.to_string())
    });
    // The server itself is well, so nothing needs to start it again.
    for options in ["js-server-only=true", "js-enabled-only=true"] {
        is_well(&nodes, 0, options).unwrap();
    }
    nodes.spawn(1);
    nodes.until("another leader", || is_well(&nodes, 0, "stream=S"));
}
