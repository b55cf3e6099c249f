//! Tests that a node that lost its disk can rejoin the cluster, and then counts as a full replica.

use std::time::Instant;

use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::{Nodes, other};

const PUBLISHERS: usize = 3;

#[test]
fn a_lost_disk_is_made_good() {
    if other().is_some() {
        return println!("--rejoin is ours: not asked of another server");
    }
    let mut nodes = Nodes::start(3);
    nodes.add_stream("R", "R.>");
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    // In the first round a follower loses its disk, in the second the leader.
    for of_leader in [false, true] {
        let load = Load::new("R", PUBLISHERS, 32);
        let told = load.run(&nodes.urls(), &mut next, || {
            load.wait_acked(&nodes, 1000);
            let leader = nodes.leader("R");
            let node = (leader + usize::from(!of_leader)) % nodes.len();
            nodes.kill(node);
            nodes.lose_disk(node);
            load.wait_resumed(&nodes, Instant::now());
            nodes.spawn_with(node, &["--rejoin"]);
            load.wait_acked(&nodes, 500);
            nodes.wait_healthy(node);
            // The test kills the third node: the rejoined node and the remaining node must have every
            // message, and serve publishers.
            let third = (node + 1) % nodes.len();
            nodes.kill(third);
            load.wait_resumed(&nodes, Instant::now());
            nodes.spawn(third);
            load.wait_acked(&nodes, 500);
            nodes.wait_healthy(third);
            // A further start with `--rejoin` must change nothing.
            nodes.kill(node);
            nodes.spawn_with(node, &["--rejoin"]);
            nodes.wait_healthy(node);
        });
        acked.extend(told);
    }
    check(&same_everywhere(&nodes, "R"), &acked, &next);
}
