//! Tests of messages that the disks of nodes damage and no client reads: each node must find the damage and
//! fetch the messages from another node.

use serde_json::json;

use super::flip::flip;
use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::{Nodes, Place, other};

const PUBLISHERS: usize = 4;

#[test]
fn messages_that_go_bad_on_a_disk_come_back_without_being_read() {
    if other().is_some() {
        println!("nats-server does not read again what it has, so this is not asked of it");
        return;
    }
    let flags = ["--segment-bytes", "8MiB", "--scrub-period", "300ms"];
    let place = |node| Place {
        flags: flags.map(String::from).into(),
        ..Place::here(node)
    };
    let mut nodes = Nodes::start_at((0..3).map(place).collect());
    nodes.add_stream("R", "R.>");
    let leader = nodes.leader("R");
    let follower = (leader + 1) % 3;
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    let load = Load::new("R", PUBLISHERS, 64);
    acked.extend(load.run(&nodes.urls(), &mut next, || {
        // The load fills more than two segments of the log.
        load.wait_acked(&nodes, 30_000);
    }));
    nodes.wait_current("R");
    flip(nodes.data(follower), 0, 1 << 20);
    flip(nodes.data(leader), 1, 2 << 20);
    for node in [follower, leader] {
        nodes.until("what was damaged to be whole", || {
            match nodes.said(node, "no message is missing").is_empty() {
                false => Ok(()),
                true => Err("not yet".into()),
            }
        });
    }
    for node in 0..3 {
        let damaged = nodes.varz(node)["log"]["damaged_bytes"].as_u64().unwrap();
        assert_eq!(damaged > 0, node == follower || node == leader);
    }
    // The node must also start, because the checkpoint covers the damaged segment.
    nodes.kill(follower);
    nodes.spawn(follower);
    check(&same_everywhere(&nodes, "R"), &acked, &next);
    for node in 0..3 {
        let lost = nodes.said(node, "are lost");
        assert!(lost.is_empty(), "{lost:?}");
    }
    assert_eq!(nodes.info("R")["state"]["messages"], json!(acked.len()));
}
