//! Tests that a cluster answers every request if one client has many requests in flight and several
//! connections pull, through several nodes.

use serde_json::json;

use super::nodes::Nodes;
use super::race;

#[test]
fn members_at_three_nodes_that_create_one_durable_at_once_all_receive() {
    let nodes = Nodes::start(3);
    nodes.add_stream("ALL", "all");
    nodes.until("a stream of one replica", || {
        let config = json!({"name": "ONE", "subjects": ["one"], "num_replicas": 1});
        nodes.ask("STREAM.CREATE.ONE", &config)
    });
    race::no_member_is_deaf(&nodes.urls(), "ALL", "all", 100);
    race::no_member_is_deaf(&nodes.urls(), "ONE", "one", 100);
}

#[test]
fn a_pull_through_any_node_outlasts_its_connection() {
    let nodes = Nodes::start(3);
    nodes.add_stream("ALL", "all");
    let leader = nodes.leader("ALL");
    let url = |n: usize| nodes.url((leader + n) % 3);
    race::a_pull_outlasts_its_connection([&url(1), &url(2)], "ALL", "all");
}
