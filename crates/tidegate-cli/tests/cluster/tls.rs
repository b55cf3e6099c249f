//! Tests of a cluster with TLS between its nodes: it must behave like a cluster without TLS. `tests/routes`
//! covers nodes that the others refuse.

use std::time::Instant;

use serde_json::json;

use super::certificates::Authority;
use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::{Nodes, Place, other};

const PUBLISHERS: usize = 4;

#[test]
fn three_nodes_speak_tls_and_one_is_killed() {
    if other().is_some() {
        println!("flags of our own, so not asked of nats-server");
        return;
    }
    let authority = Authority::new("ours");
    let place = |node: usize| {
        let place = Place::here(node);
        let flags = authority.certify(&place.name, &["127.0.0.1"]);
        Place { flags, ..place }
    };
    let mut nodes = Nodes::start_at((0..3).map(place).collect());
    nodes.add_stream("T", "T.>");
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    for window in [1, 64] {
        let load = Load::new("T", PUBLISHERS, window);
        let told = load.run(&nodes.urls(), &mut next, || {
            load.wait_acked(&nodes, 500);
            let leader = nodes.leader("T");
            nodes.kill(leader);
            load.wait_resumed(&nodes, Instant::now());
            nodes.spawn(leader);
            load.wait_acked(&nodes, 500);
        });
        acked.extend(told);
        nodes.wait_current("T");
    }
    // The load writes entries larger than any TLS record, and a node that was away must fetch some of them.
    let away = (nodes.leader("T") + 1) % 3;
    nodes.kill(away);
    let load = Load::new("T", PUBLISHERS, 1000);
    let urls: Vec<_> = (0..3)
        .filter(|n| *n != away)
        .map(|n| nodes.url(n))
        .collect();
    acked.extend(load.run(&urls, &mut next, || load.wait_acked(&nodes, 20_000)));
    nodes.spawn(away);
    nodes.wait_current("T");
    check(&same_everywhere(&nodes, "T"), &acked, &next);
    for node in 0..3 {
        let varz = nodes.varz(node);
        assert_eq!(varz["cluster"]["tls_required"], json!(true), "{varz}");
    }
}
