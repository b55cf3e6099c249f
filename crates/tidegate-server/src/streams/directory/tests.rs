//! Tests streams that several groups keep, in small scenes.

mod large;
mod look_ups;
mod restoring;
mod walk;
mod world;

use std::time::Duration;

use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_cluster::roster::PeerSlot;
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::stream::{AccountLimits, Home, Streams};

use crate::config::StreamSettings;
use crate::streams::JetStream;
use crate::streams::context::Surroundings as _;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

pub(crate) use self::world::World;

pub(crate) fn config(name: &str, replicas: usize) -> Value {
    let subject = format!("{}.>", name.to_lowercase());
    json!({"name": name, "subjects": [subject], "num_replicas": replicas})
}

fn error(answer: &Value) -> Value {
    answer["error"]["err_code"].clone()
}

#[test]
fn a_stream_of_one_replica_goes_to_one_node_and_is_served_there() {
    let mut w = World::of(3);
    for (i, name) in ["A", "B", "C"].into_iter().enumerate() {
        let made = w.create(i, name, 1);
        assert_eq!(made["config"]["name"], name, "{made}");
        assert_eq!(made["did_create"], true);
        let group = w.group_of(name);
        assert_eq!(w.kept(2, name), Some(Home::Elsewhere { group, made: true }));
    }
    let owners: BTreeSet<usize> = ["A", "B", "C"].iter().map(|n| w.owner_of(n)).collect();
    assert_eq!(owners.len(), 3, "each node keeps one");
    let owner = w.owner_of("B");
    for node in 0..3 {
        w.publish(node, "b.x", "r.p", "hello");
        w.settle();
        let heard = w.heard(node);
        assert_eq!(heard.matches("\"stream\":\"B\"").count(), 1, "{heard}");
        let info = w.ask(node, "STREAM.INFO.B", &Value::Null);
        assert_eq!(info["state"]["messages"], node + 1, "{info}");
    }
    assert_eq!(w.messages(owner, "B"), Some(3));
    assert_eq!(w.messages((owner + 1) % 3, "B"), None);
    let purged = w.ask((owner + 1) % 3, "STREAM.PURGE.B", &Value::Null);
    assert_eq!(purged["purged"], 3);
}

#[test]
fn three_replicas_of_three_nodes_are_kept_by_all_and_of_five_by_three() {
    let mut w = World::of(3);
    assert_eq!(w.create(1, "A", 3)["did_create"], true);
    assert_eq!(w.kept(1, "A"), Some(Home::Here));
    let mut w = World::of(5);
    let mut groups = BTreeSet::new();
    for name in ["A", "B", "C", "D", "E"] {
        assert_eq!(w.create(4, name, 3)["did_create"], true);
        groups.insert(w.group_of(name));
    }
    assert_eq!(groups.len(), 5, "each set of three keeps one");
    w.publish(0, "c.x", "r.p", "hello");
    w.settle();
    let kept = (0..5)
        .filter(|node| w.messages(*node, "C") == Some(1))
        .count();
    assert_eq!(kept, 3);
}

#[test]
fn shards_share_the_streams_of_all_nodes() {
    let mut w = World::sharded(3, 2);
    for name in ["A", "B", "C", "D"] {
        assert_eq!(w.create(1, name, 3)["did_create"], true);
    }
    let here = |name: &&&str| w.kept(0, name) == Some(Home::Here);
    assert_eq!(["A", "B", "C", "D"].iter().filter(here).count(), 2);
    assert_eq!(w.group_of("B"), GroupId::new(2));
}

#[test]
fn made_many_at_once_they_are_spread() {
    let mut w = World::of(3);
    for i in 0..6 {
        let name = format!("S{i}");
        let body = config(&name, 1).to_string();
        w.publish(1, &format!("$JS.API.STREAM.CREATE.{name}"), "r.a", &body);
    }
    w.settle();
    let mut kept = BTreeMap::<GroupId, usize>::new();
    for i in 0..6 {
        *kept.entry(w.group_of(&format!("S{i}"))).or_default() += 1;
    }
    assert!(kept.values().all(|n| *n == 2), "{kept:?}");
}

#[test]
fn changes_and_deletions_are_answered_once_the_keeping_group_has_them() {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    w.create(0, "B", 1);
    let owner = w.owner_of("B");
    let mut changed = config("B", 1);
    changed["subjects"] = json!(["b.>", "bb"]);
    let updated = w.ask(2, "STREAM.UPDATE.B", &changed);
    assert_eq!(updated["config"]["subjects"], json!(["b.>", "bb"]));
    w.publish(2, "bb", "r.p", "x");
    w.settle();
    assert!(w.heard(2).contains("\"seq\":1"));
    // The cluster refuses more replicas than it has nodes.
    changed["num_replicas"] = json!(5);
    let refused = w.ask(2, "STREAM.UPDATE.B", &changed);
    assert_eq!(error(&refused), 10005, "{refused}");
    assert_eq!(w.ask(1, "STREAM.DELETE.B", &Value::Null)["success"], true);
    assert_eq!((w.messages(owner, "B"), w.kept(0, "B")), (None, None));
    assert_eq!(error(&w.ask(2, "STREAM.INFO.B", &Value::Null)), 10059);
    w.publish(2, "bb", "r.p", "x");
    w.settle();
    assert!(w.heard(2).contains("503"), "nobody takes it any more");
    // After the deletion, a client creates another stream under the name, which has no message of the first.
    assert_eq!(w.create(2, "B", 1)["state"]["messages"], 0);
    assert_eq!(
        w.create(2, "B", 1)["did_create"],
        true,
        "just so, it is there"
    );
    let mut other = config("B", 1);
    other["max_msgs"] = json!(5);
    assert_eq!(error(&w.ask(1, "STREAM.CREATE.B", &other)), 10058);
}

#[test]
fn consumers_are_served_where_the_stream_is() {
    let mut w = World::of(3);
    for name in ["A", "B", "C"] {
        w.create(0, name, 1);
    }
    let owner = w.owner_of("C");
    for node in 0..3 {
        let name = format!("D{node}");
        let create =
            json!({"stream_name": "C", "config": {"durable_name": name, "ack_policy": "explicit"}});
        let made = w.ask(node, &format!("CONSUMER.DURABLE.CREATE.C.{name}"), &create);
        assert_eq!(made["name"], name, "{made}");
        assert_eq!(w.nodes[node].directory().unwrap().consumers_len(), 0);
        // No node answers a pull from a consumer that does not exist, so the client gets no message.
        w.publish(node, "$JS.API.CONSUMER.MSG.NEXT.C.none", "r.n", "");
    }
    let names = w.ask((owner + 1) % 3, "CONSUMER.NAMES.C", &Value::Null);
    assert_eq!(names["consumers"], json!(["D0", "D1", "D2"]));
    let info = w.ask((owner + 2) % 3, "CONSUMER.INFO.C.D1", &Value::Null);
    assert_eq!(info["name"], "D1");
    assert_eq!(
        error(&w.ask(1, "CONSUMER.INFO.C.none", &Value::Null)),
        10014
    );
    let account = w.ask(2, "INFO", &Value::Null);
    assert_eq!(
        (&account["consumers"], &account["streams"]),
        (&json!(3), &json!(3))
    );
}

#[test]
fn a_group_with_a_directory_that_is_behind_deletes_nothing() {
    let mut w = World::of(3);
    for name in ["A", "B", "C"] {
        w.create(0, name, 1);
    }
    let name = ["A", "B", "C"]
        .into_iter()
        .find(|n| w.owner_of(n) == 2)
        .unwrap();
    let subject = format!("{}.x", name.to_lowercase());
    w.publish(0, &subject, "r.p", "x");
    w.settle();
    // The test gives the node an older directory than its groups' state, as after a start.
    let at = w.slot(2, w.group_of(name));
    let empty = Streams::new(AccountLimits::NONE);
    let all = w.nodes[2].directory_mut().unwrap();
    all.replace(w.now, 0, empty);
    w.settle();
    assert_eq!(w.messages(2, name), Some(1));
    let open = w.nodes[2].streams(at).unwrap();
    assert!(
        !open
            .interest()
            .iter()
            .any(|i| i.starts_with(b"$TG.STREAM."))
    );
}

#[test]
fn streams_kept_by_a_restarted_node_open_once_it_has_heard_of_all_changes() {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    w.create(0, "B", 1);
    let (owner, group) = (w.owner_of("B"), w.group_of("B"));
    assert_eq!(owner, 1);
    let at = w.slot(owner, group);
    // The test gives the node an old copy of the directory, as after a start: the node has not heard the
    // later changes.
    let begun = |w: &mut World| {
        let limits = AccountLimits {
            replicated: true,
            ..AccountLimits::NONE
        };
        let mut fresh = Streams::new(limits);
        let all = w.nodes[owner].directory_mut().unwrap();
        std::mem::swap(all.applied_mut(), &mut fresh);
        let kept = StreamSettings::new("not used".into());
        let mut directory = JetStream::new(w.now, kept, fresh, 2).of_group(ALL);
        directory.set_cluster(3, ClusterInfo::default(), None);
        directory.set_groups(w.groups.clone());
        *w.nodes[owner].directory_mut().unwrap() = directory;
        w.nodes[owner].handle_following(at, w.now);
        w.nodes[owner].announce_streams();
        w.nodes[owner].handle_leading(at, w.now);
        w.settle();
    };
    begun(&mut w);
    w.publish(0, "b.x", "r.p", "x");
    w.settle();
    assert!(w.heard(0).contains("503"));
    // A client that asks meanwhile gets its answer once the node's directory is current.
    w.publish(owner, "$JS.API.STREAM.INFO.B", "r.a", "");
    assert_eq!(w.heard(owner), "");
    assert!(
        !w.nodes[owner]
            .streams(at)
            .unwrap()
            .is_open(DirectoryNumber::new(2))
    );
    w.nodes[owner].directory_mut().unwrap().set_current();
    w.turn();
    assert!(
        w.nodes[owner]
            .streams(at)
            .unwrap()
            .is_open(DirectoryNumber::new(2))
    );
    w.settle();
    let heard = w.heard(owner);
    let answers = heard.matches("stream_info_response").count();
    assert!(answers == 1 && heard.contains("\"state\""), "{heard}");
    w.publish(0, "b.x", "r.p", "x");
    w.settle();
    assert!(w.heard(0).contains("\"seq\":1"));
}

#[test]
fn a_node_about_to_end_is_sent_nothing_more_and_finishes_its_work() {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    w.create(0, "B", 1);
    let owner = w.owner_of("B");
    assert_eq!(owner, 1);
    let at = w.slot(owner, w.group_of("B"));
    w.publish(0, "b.x", "r.p", "x");
    let now = w.now;
    w.nodes[owner].part_streams(now);
    let over = |w: &World, now| w.nodes[owner].streams(at).unwrap().has_handed_over(now);
    assert!(!over(&w, now));
    w.settle();
    assert!(w.heard(0).contains("\"seq\":1"));
    w.publish(0, "b.x", "r.p", "x");
    w.settle();
    assert!(w.heard(0).contains("503"));
    // A node that stops serves its own clients until it closes their connections.
    w.publish(owner, "b.x", "r.p", "x");
    w.settle();
    assert!(w.heard(owner).contains("\"seq\":2"));
    assert!(over(&w, now + Duration::from_secs(1)));
}

#[test]
fn requests_to_a_node_that_is_behind_wait_for_it() {
    let mut w = World::of(3);
    for name in ["A", "B"] {
        w.create(0, name, 1);
    }
    // The third node is to keep the stream, but has not received the directory's entry for it.
    w.hold(2);
    let body = config("C", 1).to_string();
    w.publish(0, "$JS.API.STREAM.CREATE.C", "r.a", &body);
    w.settle();
    assert_eq!(w.heard(0), "");
    assert_eq!(w.owner_of("C"), 2);
    w.release(2);
    assert!(w.heard(0).contains("\"did_create\":true"));
    // A node asks the directory's leader about a stream that the node's own directory does not have.
    w.hold(1);
    assert_eq!(w.ask(0, "STREAM.DELETE.C", &Value::Null)["success"], true);
    assert_eq!(error(&w.ask(1, "STREAM.INFO.C", &Value::Null)), 10059);
    w.release(1);
}

#[test]
fn a_stream_lost_with_its_disk_is_not_created_again() {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    w.create(0, "B", 1);
    let (owner, group) = (w.owner_of("B"), w.group_of("B"));
    w.publish(0, "b.x", "r.p", "x");
    w.settle();
    w.heard(0);
    w.follow(group);
    let at = w.slot(owner, group);
    let empty = Streams::new(AccountLimits::NONE);
    let now = w.now;
    w.nodes[owner]
        .streams_mut(at)
        .unwrap()
        .replace(now, 0, empty);
    w.lead(group, owner);
    w.settle();
    assert_eq!(w.messages(owner, "B"), None);
    w.publish(2, "b.x", "r.p", "x");
    for node in 0..3 {
        let info = w.ask(node, "STREAM.INFO.B", &Value::Null);
        assert_eq!(error(&info), 10008, "{node}: {info}");
    }
    assert_eq!(error(&w.create(2, "B", 1)), 10118, "it is said why");
    assert_eq!(w.ask(1, "STREAM.DELETE.B", &Value::Null)["success"], true);
    assert_eq!(w.create(2, "B", 1)["state"]["messages"], 0);
}

#[test]
fn without_an_owner_there_is_one_answer() {
    let mut w = World::of(3);
    for name in ["A", "B", "C"] {
        w.create(0, name, 1);
    }
    let name = ["A", "B", "C"]
        .into_iter()
        .find(|n| w.owner_of(n) == 1)
        .unwrap();
    let group = w.group_of(name);
    w.follow(group);
    for node in 0..3 {
        let info = w.ask(node, &format!("STREAM.INFO.{name}"), &Value::Null);
        assert_eq!(error(&info), 10008, "{node}");
        let info = w.ask(node, "STREAM.INFO.NONE", &Value::Null);
        assert_eq!(error(&info), 10059, "{node}");
        // Direct reads and publishes find no responder. The owner keeps a pull, and answers it once the group
        // has a leader again.
        w.publish(
            node,
            &format!("$JS.API.DIRECT.GET.{name}"),
            "r.d",
            "{\"seq\":1}",
        );
        w.settle();
        assert!(w.heard(node).contains("503"), "{node}");
    }
    let deleted = w.ask(2, &format!("STREAM.DELETE.{name}"), &Value::Null);
    assert_eq!(deleted["success"], true);
    w.lead(group, 1);
    w.settle();
    assert_eq!(w.messages(1, name), None);
}

#[test]
fn requests_before_the_serving_node_is_known_are_passed_on() {
    let mut w = World::of(3);
    for name in ["A", "B", "C"] {
        w.create(0, name, 1);
    }
    let name = ["A", "B", "C"]
        .into_iter()
        .find(|n| w.owner_of(n) == 1)
        .unwrap();
    let group = w.group_of(name);
    w.follow(group);
    // The client asks at the directory's leader, at another node, and at the node that is going to serve the
    // stream.
    for node in 0..3 {
        w.publish(node, &format!("$JS.API.STREAM.INFO.{name}"), "r.a", "");
        w.turn();
    }
    w.lead(group, 1);
    w.settle();
    for node in 0..3 {
        let heard = w.heard(node);
        let answers = heard.matches("stream_info_response").count();
        assert_eq!(
            (answers, heard.contains("err_code")),
            (1, false),
            "{node}: {heard}"
        );
    }
}

/// Returns the number of answers to `STREAM.INFO`, and the error code of the last answer, null if it has
/// none.
fn infos(heard: &str) -> (usize, Value) {
    let bodies: Vec<&str> = heard.lines().filter(|l| l.starts_with('{')).collect();
    let last = bodies.last().copied().unwrap_or("null");
    let last: Value = serde_json::from_str(last).unwrap();
    (bodies.len(), last["error"]["err_code"].clone())
}

#[test]
fn requests_for_a_stream_not_known_yet_are_answered() {
    // The asked node's directory gets the stream before the node learns which node serves the stream, or
    // after that.
    for behind in [false, true] {
        let mut w = World::of(3);
        w.create(0, "A", 1);
        if behind {
            w.hold(2);
        }
        w.slow.insert((1, 2));
        w.create(0, "B", 1);
        assert_eq!((w.owner_of("B"), w.kept(2, "B").is_none()), (1, behind));
        w.publish(2, "$JS.API.STREAM.INFO.B", "r.a", "");
        w.publish(2, "$JS.API.CONSUMER.NAMES.B", "r.b", "");
        w.settle();
        w.hurry(1, 2);
        let heard = w.heard(2);
        assert_eq!(infos(&heard), (2, Value::Null), "{behind}: {heard}");
    }
}

#[test]
fn requests_to_a_node_that_serves_no_more_are_passed_on() {
    for again in [Some(1), None] {
        let mut w = World::of(3);
        w.create(0, "A", 1);
        w.create(0, "B", 1);
        assert_eq!(w.owner_of("B"), 1);
        // The test holds back the announcement, so the asked node does not learn that the other node has
        // stopped serving.
        w.slow.insert((1, 2));
        let group = w.group_of("B");
        w.follow(group);
        w.publish(2, "$JS.API.STREAM.INFO.B", "r.a", "");
        w.publish(2, "$JS.ACK.B.C.1.1.1.1.0", "r.b", "");
        w.publish(2, "$JS.API.DIRECT.GET.B", "r.c", "{\"seq\":1}");
        w.turn();
        if let Some(node) = again {
            w.lead(group, node);
        }
        w.settle();
        w.hurry(1, 2);
        let heard = w.heard(2);
        let code = again.map_or_else(|| json!(10008), |_| Value::Null);
        assert_eq!(infos(&heard), (1, code), "{heard}");
        // A message that no node keeps for later finds no responder.
        assert_eq!(heard.matches("NATS/1.0 503\r\n").count(), 2, "{heard}");
    }
}

#[test]
fn a_node_without_streams_yet_passes_on_what_is_asked() {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    w.create(0, "B", 1);
    w.create(0, "C", 3);
    assert_eq!(w.owner_of("B"), 1);
    let durable =
        json!({"stream_name": "B", "config": {"durable_name": "D", "ack_policy": "explicit"}});
    w.ask(0, "CONSUMER.CREATE.B.D", &durable);
    w.begin_as_guest(2, "hub");
    for what in ["STREAM.INFO.B", "STREAM.INFO.C", "STREAM.NAMES", "INFO"] {
        let answer = w.ask(2, what, &Value::Null);
        assert!(answer["error"].is_null(), "{what}: {answer}");
    }
    let none = w.ask(2, "STREAM.INFO.NONE", &Value::Null);
    assert_eq!(error(&none), 10059, "{none}");
    w.publish(2, "b.x", "r.p", "x");
    w.settle();
    assert!(w.heard(2).contains("\"seq\":1"));
    w.publish(2, "$JS.API.CONSUMER.MSG.NEXT.B.D", "r.n", "");
    w.settle();
    let heard = w.heard(2);
    let start = heard.find("$JS.ACK.B.D.").expect(&heard);
    let ack = heard[start..].split(' ').next().unwrap().to_owned();
    w.publish(2, &ack, "r.k", "+ACK");
    w.settle();
    assert_eq!(w.heard(2), "MSG r.2.k 1 0\r\n\r\n");
    let info = w.ask(2, "CONSUMER.INFO.B.D", &Value::Null);
    assert_eq!(info["ack_floor"]["stream_seq"], 1, "{info}");
    // The node hands on requests for its own domain, which it knows from its settings alone. Requests for
    // other domains find no responder.
    for (domain, passed_on) in [("hub", 1), ("other", 0)] {
        let before = w.nodes[0].peer_view(PeerSlot::new(2)).traffic.in_msgs;
        w.publish(2, &format!("$JS.{domain}.API.INFO"), "r.a", "");
        let handed = w.nodes[0].peer_view(PeerSlot::new(2)).traffic.in_msgs - before;
        assert_eq!(handed, passed_on, "{domain}");
        assert!(w.heard(2).contains("503"), "{domain}");
    }
    // Without a leader of the group of all nodes, the other nodes have no node to which they can hand
    // requests.
    w.follow(ALL);
    w.publish(2, "$JS.API.STREAM.NAMES", "r.a", "");
    w.publish(2, "$JS.API.CONSUMER.MSG.NEXT.C.D", "r.n", "");
    w.publish(2, "c.x", "r.p", "x");
    assert_eq!(w.heard(2).matches("503").count(), 3);
}

#[test]
fn only_publishers_that_ask_hear_that_a_handed_on_message_found_no_taker() {
    // Each case sets the client's options `headers` and `no_responders`, because both are needed for a
    // status.
    for (headers, wants) in [(true, true), (true, false), (false, false)] {
        let mut w = World::of(3);
        w.create(0, "A", 1);
        w.create(0, "B", 1);
        assert_eq!(w.owner_of("B"), 1);
        let connect = json!({"verbose": false, "headers": headers, "no_responders": wants});
        w.say(2, format!("CONNECT {connect}\r\n"));
        // The test holds back the announcement, so the client's node does not learn that the other node no
        // longer serves the stream.
        w.slow.insert((1, 2));
        w.follow(w.group_of("B"));
        let before = w.nodes[1].peer_view(PeerSlot::new(2)).traffic.in_msgs;
        w.publish(2, "$JS.ACK.B.C.1.1.1.1.0", "r.b", "+ACK");
        w.publish(2, "$JS.API.DIRECT.GET.B", "r.c", "{\"seq\":1}");
        assert_eq!(
            w.nodes[1].peer_view(PeerSlot::new(2)).traffic.in_msgs,
            before + 2
        );
        w.settle();
        w.hurry(1, 2);
        let heard = w.heard(2);
        // A client without headers must get no message, because an empty message would mean that the
        // acknowledgement succeeded.
        let told = heard.matches("NATS/1.0 503\r\n").count();
        assert_eq!(told, if wants { 2 } else { 0 }, "{heard}");
        assert_eq!(heard.is_empty(), !wants, "{heard}");
    }
}

#[test]
fn a_publisher_beside_a_subscriber_hears_that_no_node_serves_the_stream() {
    for home in [1, 3] {
        let mut w = World::of(3);
        w.create(0, "A", 1);
        w.create(0, "B", home);
        w.say(2, "SUB b.> 9\r\n");
        w.settle();
        w.heard(2);
        w.publish(2, "b.x", "r.1", "x");
        w.settle();
        let heard = w.heard(2);
        assert!(heard.contains("MSG b.x 9 r.2.1 1\r\nx"), "{heard}");
        assert!(heard.contains(r#""stream":"B""#), "{heard}");
        let group = if home == 1 { w.group_of("B") } else { ALL };
        w.follow(group);
        w.settle();
        w.publish(2, "b.x", "r.2", "x");
        let heard = w.heard(2);
        assert!(heard.contains("MSG b.x 9 r.2.2 1\r\nx"), "{heard}");
        assert!(heard.contains("10008"), "{heard}");
        // No stream takes this subject, so only the subscriber answers.
        w.say(2, "SUB c.> 8\r\n");
        w.settle();
        w.publish(2, "other.c", "r.3", "x");
        w.publish(2, "c.x", "r.4", "x");
        let heard = w.heard(2);
        assert!(heard.contains("r.2.4 1\r\nx"), "{heard}");
        assert!(!heard.contains("10008"), "{heard}");
    }
}

#[test]
fn requests_to_a_former_leader_are_passed_on() {
    for other in [Some(1), None] {
        let mut w = World::of(3);
        w.create(0, "A", 3);
        w.slow.insert((0, 2));
        w.follow(ALL);
        if let Some(node) = other {
            w.lead(ALL, node);
            w.pump();
        }
        for what in ["STREAM.NAMES", "STREAM.INFO.A", "STREAM.INFO.NONE"] {
            w.publish(2, &format!("$JS.API.{what}"), "r.a", "");
            w.settle();
            w.hurry(0, 2);
            w.slow.insert((0, 2));
            let heard = w.heard(2);
            let code = match (other, what) {
                (None, _) => json!(10008),
                (Some(_), "STREAM.INFO.NONE") => json!(10059),
                (Some(_), _) => Value::Null,
            };
            assert_eq!(infos(&heard), (1, code), "{what}: {heard}");
        }
    }
}

#[test]
fn questions_that_wait_are_answered_when_their_leader_goes() {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    w.create(0, "B", 1);
    w.follow(w.group_of("B"));
    w.publish(2, "$JS.API.STREAM.INFO.B", "r.a", "");
    w.turn();
    assert_eq!(w.heard(2), "");
    w.follow(ALL);
    assert_eq!(infos(&w.heard(2)), (1, json!(10008)));
}

#[test]
fn a_stream_costs_two_interests() {
    let mut w = World::of(3);
    let interests = |w: &World| {
        (0..3)
            .map(|at| w.nodes[2].peer_view(PeerSlot::new(at)).interests)
            .sum::<usize>()
    };
    let before = interests(&w);
    for name in ["A", "B"] {
        w.create(2, name, 1);
        w.create(2, &format!("{name}3"), 3);
    }
    // Each node announces one interest for the subject of each stream, and one for the stream's name.
    assert_eq!(interests(&w) - before, 4 * 2);
}

#[test]
fn clients_that_listen_to_the_api_hear_each_request_once() {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    w.create(0, "B", 1);
    assert_eq!(w.owner_of("B"), 1);
    for node in 0..3 {
        w.say(node, "SUB $JS.API.STREAM.> 7\r\n");
    }
    for node in 0..3 {
        let info = w.answers(node, "STREAM.INFO.B", &Value::Null);
        assert_eq!(info.len(), 1, "{info:?}");
        w.publish(node, "$JS.API.STREAM.NAMES", "none", "");
        for hearer in 0..3 {
            let heard = w.heard(hearer);
            let requests = heard.matches("MSG $JS.API.STREAM.").count();
            let expected = if hearer == node { 1 } else { 2 };
            assert_eq!(requests, expected, "{node} at {hearer}: {heard}");
        }
    }
}

#[test]
fn members_of_a_queue_group_that_listened_to_the_api_are_not_missed() {
    let mut w = World::of(3);
    w.say(1, "SUB $JS.API.STREAM.> q 7\r\n");
    w.settle();
    // The test holds back the announcement, so the client's node does not learn that the members of the queue
    // group have gone.
    w.slow.insert((1, 2));
    w.say(1, "UNSUB 7\r\n");
    let before = w.nodes[1].peer_view(PeerSlot::new(2)).traffic.in_msgs;
    w.publish(2, "$JS.API.STREAM.NAMES", "r.a", "");
    assert_eq!(
        w.nodes[1].peer_view(PeerSlot::new(2)).traffic.in_msgs,
        before + 1
    );
    w.settle();
    w.hurry(1, 2);
    let heard = w.heard(2);
    assert!(!heard.contains("503"), "{heard}");
    assert_eq!(heard.matches("stream_names_response").count(), 1, "{heard}");
}

#[test]
fn no_stream_is_created_without_a_group_to_keep_it() {
    let mut w = World::of(3);
    for group in w.groups.clone() {
        if group.members.len() == 1 {
            w.follow(group.number);
        }
    }
    let refused = w.create(1, "A", 1);
    assert_eq!(error(&refused), 10005, "{refused}");
    assert_eq!(w.create(1, "A", 3)["did_create"], true);
}

#[test]
fn changes_of_a_stream_without_a_leader_wait_for_one() {
    let second = GroupId::new(2);
    let mut w = World::sharded(3, 2);
    w.create(0, "A", 3);
    w.follow(second);
    // The directory's leader would choose the second group for the next stream, because it has the fewest
    // streams.
    let body = config("B", 3).to_string();
    w.publish(1, "$JS.API.STREAM.CREATE.B", "r.a", &body);
    w.settle();
    assert_eq!((w.heard(1).as_str(), w.group_of("B")), ("", second));
    w.lead(second, 2);
    w.settle();
    assert!(w.heard(1).contains("\"did_create\":true"));
    w.follow(second);
    let mut changed = config("B", 3);
    changed["max_msgs"] = json!(7);
    w.publish(1, "$JS.API.STREAM.UPDATE.B", "r.a", &changed.to_string());
    (0..3).for_each(|_| w.settle());
    assert!(w.heard(1).contains("10008"));
    w.lead(second, 1);
    w.settle();
    let info = w.ask(0, "STREAM.INFO.B", &Value::Null);
    assert_eq!(info["config"]["max_msgs"], 7, "it was decided");
}

#[test]
fn lists_name_what_is_missing() {
    let mut w = World::of(3);
    for name in ["A", "B", "C"] {
        w.create(0, name, 1);
    }
    w.create(0, "D", 3);
    w.publish(1, "b.x", "r.p", "hello");
    w.settle();
    w.heard(1);
    for node in 0..3 {
        let list = w.ask(node, "STREAM.LIST", &Value::Null);
        let streams = list["streams"].as_array().unwrap();
        let names: Vec<&Value> = streams.iter().map(|s| &s["config"]["name"]).collect();
        assert_eq!(names, ["A", "B", "C", "D"]);
        assert_eq!(streams[1]["state"]["messages"], 1);
        assert!(list["missing"].is_null(), "{list}");
    }
    // The node checks the operator's limits against the bytes of all its groups, not only of the group that
    // stores a message.
    let home = w.owner_of("B");
    let beside = w.nodes[home].directory().unwrap().room.beside;
    assert_eq!(beside.file_bytes, 38);
    let account = w.ask(2, "INFO", &Value::Null);
    assert_eq!(
        (&account["streams"], &account["storage"]),
        (&json!(4), &json!(38))
    );
    w.follow(w.group_of("B"));
    let list = w.ask(1, "STREAM.LIST", &Value::Null);
    assert_eq!(list["missing"], json!(["B"]));
    assert_eq!(list["streams"].as_array().unwrap().len(), 3);
    let names = w.ask(1, "STREAM.NAMES", &Value::Null);
    assert_eq!(names["streams"], json!(["A", "B", "C", "D"]));
}

#[test]
fn no_client_speaks_or_hears_as_a_leader() {
    let mut w = World::of(3);
    for name in ["A", "B", "C"] {
        w.create(0, name, 1);
    }
    let name = ["A", "B", "C"]
        .into_iter()
        .find(|n| w.owner_of(n) == 1)
        .unwrap();
    let group = w.group_of(name);
    let stream = w.nodes[0]
        .directory()
        .unwrap()
        .applied()
        .by_name(name)
        .unwrap();
    w.follow(group);
    // The nodes do not take a client that listens at a leader's subject for a leader, with any of these
    // patterns.
    w.say(
        2,
        format!(
            "SUB $TG.GROUP.{group} 7\r\nSUB $TG.STREAM.{name} 8\r\nSUB > 9\r\nSUB $TG.> 10\r\n"
        ),
    );
    w.settle();
    w.heard(2);
    assert!(w.nodes[0].leader_of(group).is_none());
    assert!(w.nodes[0].server_of(name).is_none());
    w.say(2, "UNSUB 9\r\nUNSUB 10\r\nUNSUB 7\r\nUNSUB 8\r\n");
    // The nodes deliver a message that a client publishes at a leader's subject to no leader.
    w.lead(group, 1);
    w.settle();
    w.say(1, "SUB $TG.> 11\r\n");
    let report = "{\"report\":{\"question\":1,\"streams\":[]}}";
    w.publish(2, &format!("$TG.GROUP.{group}"), "r.x", report);
    assert!(w.heard(2).contains("503"));
    let changed =
        format!("{{\"changed\":{{\"change\":\"deleted\",\"stream\":{stream},\"index\":0}}}}");
    w.publish(2, &format!("$TG.GROUP.{group}"), "r.x", &changed);
    // The nodes also do not deliver an answer to a leader's subject that a client names as its reply subject.
    w.publish(2, "$JS.API.STREAM.NAMES", &format!("$TG.GROUP.{group}"), "");
    w.settle();
    assert_eq!(w.heard(1), "");
    assert!(w.heard(2).contains("503"));
}

#[test]
fn messages_of_one_group_are_collected_by_another() {
    let mut w = World::of(3);
    let mut advisories = config("A", 1);
    advisories["subjects"] = json!(["$JS.EVENT.ADVISORY.CONSUMER.>"]);
    advisories["no_ack"] = json!(true);
    assert_eq!(w.ask(0, "STREAM.CREATE.A", &advisories)["did_create"], true);
    let home = w.owner_of("A");
    // All nodes keep the first stream, under the same leader; another node keeps the second stream.
    w.create(0, "D", 3);
    w.create(0, "B", 1);
    assert_ne!(w.owner_of("B"), home);
    for (stream, seen) in [("D", 1), ("B", 2)] {
        let create = json!({"stream_name": stream, "config": {"durable_name": "X", "ack_policy": "explicit"}});
        w.ask(1, &format!("CONSUMER.DURABLE.CREATE.{stream}.X"), &create);
        w.settle();
        assert_eq!(w.messages(home, "A"), Some(seen), "{stream}");
    }
}
