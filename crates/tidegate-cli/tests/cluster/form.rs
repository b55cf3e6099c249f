//! Tests that a cluster forms, and that clients can use every node of it.

use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::Nodes;

#[test]
fn every_node_takes_what_is_published() {
    let nodes = Nodes::start(3);
    nodes.add_stream("S", "S.>");
    let mut acked = Acked::new();
    let mut next = [0];
    for node in 0..nodes.len() {
        // The publisher sends each message after the acknowledgement of the message before, so the stream
        // must keep the order of the messages, through any node.
        let load = Load::new("S", 1, 1);
        acked.extend(load.run(&[nodes.url(node)], &mut next, || {
            load.wait_acked(&nodes, 100)
        }));
    }
    let content = same_everywhere(&nodes, "S");
    check(&content, &acked, &next);
    let numbers: Vec<_> = acked.iter().map(|((_, n), seq)| (*n + 1, *seq)).collect();
    assert!(numbers.iter().all(|(n, seq)| n == seq), "{numbers:?}");
}
