//! Tests of the replication steps that `tidegate-bench raft` compares: in each step the cluster must keep its
//! acknowledged messages, and its counters must show that the leader works as the step describes.

use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::{Nodes, Place, other};

const PUBLISHERS: usize = 2;

#[test]
fn every_step_keeps_what_it_acknowledges_and_makes_the_entries_and_syncs_it_is_named_for() {
    if other().is_some() {
        println!("nats-server has no such steps, so not run");
        return;
    }
    for step in ["a", "b", "c", "d", "e", "parallel", "all"] {
        let place = |node| Place {
            flags: vec!["--raft-step".into(), step.into()],
            ..Place::here(node)
        };
        let nodes = Nodes::start_at((0..3).map(place).collect());
        nodes.add_stream("S", "S.>");
        let mut acked = Acked::new();
        let mut next = [0; PUBLISHERS];
        let load = Load::new("S", PUBLISHERS, 20);
        acked.extend(load.run(&nodes.urls(), &mut next, || load.wait_acked(&nodes, 200)));
        let content = same_everywhere(&nodes, "S");
        check(&content, &acked, &next);
        let mut commands = 0;
        for node in 0..nodes.len() {
            // Each node counts the entries that it proposed as leader, and several nodes may have led. So the
            // test adds the counts of all nodes.
            let log = nodes.monitor(node, "/jsz").unwrap()["log"].clone();
            let count = |key: &str| log[key].as_u64().unwrap();
            commands += count("commands");
            let told = format!("{step}: {log}");
            if ["a", "b", "c"].contains(&step) {
                assert_eq!(count("commands"), count("entries"), "{told}");
            }
            if !["parallel", "all"].contains(&step) {
                assert!(count("syncs") >= count("entries"), "{told}");
            }
            match step {
                "a" => assert!(count("second_syncs") >= acked.len() as u64, "{told}"),
                _ => assert_eq!(count("second_syncs"), 0, "{told}"),
            }
        }
        assert!(commands >= acked.len() as u64, "{step}: {commands}");
    }
}
