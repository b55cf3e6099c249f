//! Tests of `CONSUMER.RESET` through any node of a cluster: a reset must survive the death of the node that
//! served it. Also checks that a stream's info names the account of its replicas.

use serde_json::json;

use super::nodes::{Nodes, ask};
use super::placed::publish;
use super::raw::Raw;

#[test]
fn a_consumer_begins_again_through_any_node() {
    let mut nodes = Nodes::start(3);
    nodes.add_stream("R", "R.>");
    let cluster = &nodes.info("R")["cluster"];
    assert_eq!(cluster["system_account"], true, "{cluster}");
    assert_eq!(cluster["traffic_account"], "$SYS", "{cluster}");
    let mut publisher = Raw::connect(&nodes.url(0)).unwrap();
    for seq in 1..=5 {
        assert_eq!(publish(&mut publisher, "R.x", "x"), Ok(seq));
    }
    let config =
        json!({"durable_name": "C", "ack_policy": "explicit", "ack_wait": 600_000_000_000_u64});
    let create = json!({"stream_name": "R", "config": config});
    nodes.until("a consumer to be made", || {
        nodes.ask("CONSUMER.DURABLE.CREATE.R.C", &create)
    });
    for node in 0..nodes.len() {
        let mut raw = Raw::connect(&nodes.url(node)).unwrap();
        let (next, first) = ("$JS.API.CONSUMER.MSG.NEXT.R.C", node as u64 + 1);
        // The deliveries must begin at the message that the previous reset named.
        raw.publish(next, "pull", br#"{"batch":3,"expires":20000000000}"#)
            .unwrap();
        for seq in first..first + 3 {
            let (delivered, message) = raw.delivered().unwrap();
            let reply = message.reply.unwrap();
            let by_consumer = reply.split('.').nth(6).and_then(|n| n.parse().ok());
            assert_eq!(
                (delivered, by_consumer),
                (seq, Some(seq - first + 1)),
                "{reply}"
            );
        }
        let answer = raw.api("CONSUMER.RESET.R.C", &json!({"seq": first + 1}));
        assert_eq!(answer["reset_seq"], first + 1, "{answer}");
    }
    let leader = nodes.leader("R");
    nodes.kill(leader);
    let other = nodes.url((leader + 1) % nodes.len());
    let info = nodes.until("another node to serve it", || {
        ask(&other, "CONSUMER.INFO.R.C", &json!({}))
    });
    for field in ["delivered", "ack_floor"] {
        assert_eq!(info[field]["consumer_seq"], 0, "{info}");
        assert_eq!(info[field]["stream_seq"], 3, "{info}");
    }
    assert_eq!(
        (&info["num_pending"], &info["num_ack_pending"]),
        (&json!(2), &json!(0))
    );
    let answer = nodes.until("it to begin again there", || {
        ask(&other, "CONSUMER.RESET.R.C", &json!({"seq": 1}))
    });
    assert_eq!(
        (&answer["reset_seq"], &answer["num_pending"]),
        (&json!(1), &json!(5))
    );
}
