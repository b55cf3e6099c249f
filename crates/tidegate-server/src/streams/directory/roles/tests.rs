//! Tests a node that begins to lead and stops leading.

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_cluster::interest::InterestUpdate;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::Lsn;
use tidegate_nats::connect::Info;
use tidegate_raft::replica::{Committed, Index, Term};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{AccountLimits, Command, Encoder, Kind, Streams};

use super::{ASKING, SETTLING};
use crate::config::{Settings, StreamSettings};
use crate::party::ClientKey;
use crate::sessions::Node;
use crate::streams::JetStream;
use crate::streams::serving::live::Unread;

const NOW: Time = Time::from_nanos(1);

/// Creates a node with a stream, and with a consumer of the stream in the log.
fn node() -> Node {
    node_with(br#"{"config":{"name":"C","durable_name":"C","ack_policy":"explicit"}}"#)
}

fn node_with(consumer: &[u8]) -> Node {
    let mut entry = Vec::new();
    let mut encoder = Encoder::begin(&mut entry, 1);
    let stream = br#"{"name":"S","subjects":["s"]}"#;
    for command in [
        Command::new(Kind::CreateStream, StreamNumber::NONE, b"", stream),
        Command::new(Kind::CreateConsumer, StreamNumber::FIRST, b"C", consumer),
    ] {
        encoder.command(&command).unwrap();
    }
    let mut node = Node::new(Settings::default(), Info::default(), 1);
    let kept = StreamSettings::new("not used".into());
    let streams = JetStream::new(NOW, kept, Streams::new(AccountLimits::NONE), 1);
    node.attach_streams(streams);
    let committed = Committed {
        index: Index::new(1),
        term: Term::new(1),
        lsn: Lsn::new(1),
        data: entry.into(),
    };
    node.handle_committed(GroupSlot::DIRECTORY, NOW, &committed)
        .unwrap();
    node
}

#[test]
fn a_former_leader_has_nothing_to_do() {
    // The consumer is awake, because its configuration has a timer.
    let mut node = node_with(
        br#"{"config":{"name":"C","durable_name":"C","ack_policy":"explicit","inactive_threshold":3600000000000}}"#,
    );
    assert_eq!(node.streams_deadline(), None);
    node.handle_leading(GroupSlot::DIRECTORY, NOW);
    assert_eq!(node.directory().unwrap().consumers_len(), 1);
    assert_eq!(node.streams_deadline(), Some(Time::ZERO));
    node.handle_following(GroupSlot::DIRECTORY, NOW);
    assert_eq!(node.directory().unwrap().consumers_len(), 0);
    assert_eq!(node.streams_deadline(), None);
}

/// Checks that a consumer with a filter never sleeps, because an answer would search the stream for the count
/// of its messages.
#[test]
fn a_consumer_with_a_filter_is_awake_from_the_start() {
    for filter in [r#""filter_subject":"s""#, r#""filter_subjects":["s"]"#] {
        let config = format!(
            r#"{{"config":{{"name":"C","durable_name":"C","ack_policy":"explicit",{filter}}}}}"#
        );
        let mut node = node_with(config.as_bytes());
        node.handle_leading(GroupSlot::DIRECTORY, NOW);
        assert_eq!(node.streams_deadline(), Some(Time::ZERO), "{filter}");
    }
}

#[test]
fn a_consumer_that_no_client_uses_costs_a_leader_no_work() {
    let mut node = node();
    node.handle_leading(GroupSlot::DIRECTORY, NOW);
    assert_eq!(node.directory().unwrap().consumers_len(), 1);
    assert_eq!(node.streams_deadline(), None);
    let lines = [
        "CONNECT {}",
        "SUB r 1",
        "PUB $JS.API.CONSUMER.INFO.S.C r 0\r\n",
        "PUB $JS.API.CONSUMER.NAMES.S r 0\r\n",
        "PUB $JS.API.CONSUMER.LIST.S r 0\r\n",
    ];
    let key = client(&mut node, &lines);
    let heard = told(&mut node, key);
    assert_eq!(heard.matches(r#""ack_floor""#).count(), 2, "{heard}");
    assert!(heard.contains(r#""consumers":["C"]"#), "{heard}");
    assert_eq!(node.streams_deadline(), None);
    // A client's pull wakes the consumer, so that the node serves it.
    let key = client(
        &mut node,
        &[
            "CONNECT {}",
            "SUB p 1",
            "PUB $JS.API.CONSUMER.MSG.NEXT.S.C p 0\r\n",
        ],
    );
    assert!(node.streams_deadline().is_some());
    told(&mut node, key);
    node.handle_following(GroupSlot::DIRECTORY, NOW);
    assert_eq!(node.directory().unwrap().consumers_len(), 0);
}

/// Connects a client to the node, and lets it send these lines.
fn client(node: &mut Node, lines: &[&str]) -> ClientKey {
    let key = node.handle_accepted(NOW, ([127, 0, 0, 1], 1).into(), false, false);
    let text: String = lines.iter().flat_map(|line| [*line, "\r\n"]).collect();
    let any = Load::new(u64::MAX, u64::MAX);
    node.handle_received(NOW, key, text.as_bytes(), any);
    key
}

/// Takes the bytes that the node has for the client after a turn of the streams.
fn told(node: &mut Node, key: ClientKey) -> String {
    told_at(NOW, node, key)
}

fn told_at(now: Time, node: &mut Node, key: ClientKey) -> String {
    node.serve_streams(GroupSlot::DIRECTORY, now, &Unread)
        .unwrap();
    let text = node.outbox(key).to_vec();
    node.handle_written(NOW, key, text.len());
    String::from_utf8(text).unwrap()
}

/// Makes a peer announce that it leads the group, so that this node follows.
fn another_leads(node: &mut Node) {
    let told = InterestUpdate {
        id: 1,
        members: 1,
        pattern: b"$TG.GROUP.1",
        queue: None,
    };
    node.handle_interest(PeerSlot::new(0), &told).unwrap();
}

#[test]
fn listeners_of_a_lost_consumer_hear_where_to_get_another() {
    let mut node = node();
    node.join_cluster(Vec::new());
    node.handle_leading(GroupSlot::DIRECTORY, NOW);
    let ordered = r#"{"stream_name":"S","config":{"deliver_subject":"d","ack_policy":"none","idle_heartbeat":5000000000}}"#;
    let create = format!("PUB $JS.API.CONSUMER.CREATE.S r {}", ordered.len());
    let key = client(
        &mut node,
        &[
            r#"CONNECT {"headers":true}"#,
            "SUB d 1",
            "SUB r 2",
            &create,
            ordered,
        ],
    );
    assert!(told(&mut node, key).contains("consumer_create_response"));
    assert_eq!(node.directory().unwrap().consumers_len(), 2);
    node.handle_following(GroupSlot::DIRECTORY, NOW);
    assert!(!node.directory().unwrap().has_handed_over(NOW));
    assert_eq!(told(&mut node, key), "");
    another_leads(&mut node);
    assert_eq!(told(&mut node, key), "");
    let later = NOW + SETTLING;
    let said = told_at(later, &mut node, key);
    assert!(said.contains("Nats-Last-Consumer: 1\r\n"), "{said}");
    let streams = node.directory().unwrap();
    assert!(!streams.has_handed_over(later));
    assert!(streams.has_handed_over(later + ASKING));
    assert_eq!(node.streams_deadline(), None);
}

#[test]
fn without_a_leader_no_client_gets_an_answer_that_looks_like_a_message() {
    let mut node = node();
    node.join_cluster(Vec::new());
    let connect = r#"CONNECT {"headers":true,"no_responders":true}"#;
    let ask = |what| format!("PUB $JS.API.{what} r 0");
    for (what, answer) in [
        ("DIRECT.GET.S.s", "NATS/1.0 503"),
        ("STREAM.INFO.S", "\"err_code\":10008"),
    ] {
        let key = client(&mut node, &[connect, "SUB r 1", &ask(what), ""]);
        let said = told(&mut node, key);
        assert!(said.contains(answer), "{what}: {said}");
    }
    let pull = ask("CONSUMER.MSG.NEXT.S.C");
    let key = client(&mut node, &[connect, "SUB r 1", &pull, ""]);
    assert!(!told(&mut node, key).contains("MSG r"));
    another_leads(&mut node);
    assert_eq!(told(&mut node, key), "");
    let said = told_at(NOW + SETTLING, &mut node, key);
    assert!(said.contains("NATS/1.0 409 Leadership Change"), "{said}");
}
