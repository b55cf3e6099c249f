//! Tests requests about streams with many subjects or messages, for which the leader needs several turns.

use serde_json::{Value, json};
use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::api::answer::ClusterInfo;

use super::world::World;

/// Fills the stream A with `subjects` subjects, and gives each third subject two messages.
fn with_subjects(subjects: usize) -> World {
    let mut w = World::of(3);
    w.create(0, "A", 3);
    for n in (0..subjects).chain((0..subjects).step_by(3)) {
        w.publish(0, &format!("a.{n}"), "r.p", "x");
    }
    w.settle();
    w.heard(0);
    w
}

#[test]
fn the_subjects_of_a_large_stream_come_in_pages_as_those_of_a_small_one() {
    // By the constants for tests, the leader answers up to 64 subjects at once, and looks at 10 in a turn.
    for subjects in [64, 65, 100, 101] {
        let mut w = with_subjects(subjects);
        for (filter, all) in [
            (">", subjects),
            ("a.1*", 0),
            ("a.7", 1),
            ("a.*", subjects),
            ("b.>", 0),
        ] {
            for offset in [0, 1, 60, 1000] {
                let ask = json!({"subjects_filter": filter, "offset": offset});
                w.publish(0, "$JS.API.STREAM.INFO.A", "r.i", &ask.to_string());
                w.settle();
                let heard = w.heard(0);
                let body = heard.split("\r\n").nth(1).expect(&heard);
                let info: Value = serde_json::from_str(body).unwrap();
                let name = format!("{subjects} {filter} {offset}");
                assert_eq!(info["total"], all, "{name}: {info}");
                assert_eq!(info["offset"], offset.min(all), "{name}");
                let mut names: Vec<String> = (0..subjects).map(|n| format!("a.{n}")).collect();
                names.sort();
                names.retain(|n| all > 1 || (all == 1 && n == "a.7"));
                let expected: serde_json::Map<String, Value> = names
                    .into_iter()
                    .skip(offset)
                    .map(|n| {
                        let number: usize = n[2..].parse().unwrap();
                        (n, json!(if number.is_multiple_of(3) { 2 } else { 1 }))
                    })
                    .collect();
                let found = info["state"].get("subjects").cloned();
                let found = found.unwrap_or_else(|| json!({}));
                assert_eq!(found, Value::Object(expected), "{name}");
            }
        }
    }
}

#[test]
fn a_page_of_subjects_survives_a_deleted_stream_and_another_leader() {
    let ask = r#"{"subjects_filter":">"}"#;
    let mut w = with_subjects(200);
    w.publish(0, "$JS.API.STREAM.INFO.A", "r.i", ask);
    w.turn();
    w.publish(0, "$JS.API.STREAM.DELETE.A", "r.d", "");
    w.settle();
    let heard = w.heard(0);
    assert!(heard.contains("10059"), "{heard}");
    assert_eq!(heard.matches("stream_info_response").count(), 1, "{heard}");

    let mut w = with_subjects(200);
    for n in 0..70 {
        w.publish(0, "$JS.API.STREAM.INFO.A", &format!("r.i{n}"), ask);
    }
    w.turn();
    let heard = w.heard(0);
    assert_eq!(heard.matches("ask again later").count(), 6, "{heard}");
    w.follow(ALL);
    w.settle();
    assert_eq!(w.heard(0).matches("10008").count(), 64);
}

#[test]
fn many_removed_messages_are_listed_as_few_are() {
    let mut w = with_subjects(200);
    for seq in (2..200).step_by(2).chain([199]) {
        let body = json!({"seq": seq}).to_string();
        w.publish(0, "$JS.API.STREAM.MSG.DELETE.A", "r.d", &body);
    }
    w.settle();
    w.heard(0);
    let mut numbers: Vec<u64> = (2..200).step_by(2).chain([199]).collect();
    numbers.sort_unstable();
    for filter in ["", ">", "a.8"] {
        let ask = json!({"deleted_details": true, "subjects_filter": filter});
        let info = w.ask(0, "STREAM.INFO.A", &ask);
        assert_eq!(info["state"]["num_deleted"], numbers.len());
        assert_eq!(info["state"]["deleted"], json!(numbers));
        let subjects = info["state"]["subjects"].as_object();
        let listed = subjects.map_or(0, serde_json::Map::len);
        let expected = match filter {
            "" => 0,
            ">" => info["total"].as_u64().unwrap() as usize,
            _ => 1,
        };
        assert_eq!(listed, expected, "{filter}");
    }
}

#[test]
fn lists_of_streams_that_overlap_a_pattern_come_in_parts() {
    // By the constant for tests, the leader looks at 3 streams in a turn.
    let mut w = World::of(3);
    for name in ["A", "B", "C", "D", "E", "F", "G"] {
        w.create(0, name, 3);
    }
    let names = |list: &Value| list["streams"].clone();
    for (subject, listed) in [
        ("*.x", json!(["A", "B", "C", "D", "E", "F", "G"])),
        ("f.>", json!(["F"])),
        ("none", json!([])),
    ] {
        let list = w.ask(1, "STREAM.NAMES", &json!({ "subject": subject }));
        assert_eq!(names(&list), listed, "{subject}");
        assert_eq!(list["total"], listed.as_array().unwrap().len());
    }
    let list = w.ask(2, "STREAM.LIST", &json!({"subject": "*.x", "offset": 5}));
    let listed: Vec<&Value> = list["streams"].as_array().unwrap().iter().collect();
    assert_eq!(
        (listed.len(), &listed[0]["config"]["name"]),
        (2, &json!("F"))
    );
    // A client deletes a stream, or the leader goes, while requests wait.
    let ask = json!({"subject": ">"}).to_string();
    w.publish(0, "$JS.API.STREAM.NAMES", "r.n", &ask);
    w.turn();
    w.publish(0, "$JS.API.STREAM.DELETE.A", "r.d", "");
    w.settle();
    let heard = w.heard(0);
    assert_eq!(heard.matches("stream_names_response").count(), 1, "{heard}");
    for n in 0..70 {
        w.publish(0, "$JS.API.STREAM.NAMES", &format!("r.n{n}"), &ask);
    }
    w.turn();
    let heard = w.heard(0);
    let refused = heard.matches("ask again later").count();
    let answered = heard.matches("stream_names_response").count() - refused;
    assert!(refused > 0, "{heard}");
    w.follow(ALL);
    w.settle();
    let ended = w.heard(0).matches("10008").count();
    assert_eq!(refused + answered + ended, 70);
}

/// Creates a consumer of the stream A that begins with the last message of each subject.
fn make_consumer(w: &mut World, name: &str, filter: &str) {
    let body = json!({"stream_name": "A", "config": {
        "durable_name": name, "ack_policy": "explicit", "deliver_policy": "last_per_subject",
        "filter_subject": filter,
    }});
    let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.A.{name}");
    w.publish(0, &subject, "r.c", &body.to_string());
}

fn pending(heard: &str) -> Vec<u64> {
    let bodies = heard.lines().filter(|line| line.starts_with('{'));
    let infos = bodies.map(|body| serde_json::from_str::<Value>(body).unwrap());
    infos.filter_map(|i| i["num_pending"].as_u64()).collect()
}

#[test]
fn a_consumer_finds_the_last_messages_in_parts() {
    // By the constant for tests, a consumer looks at 3 subjects in a turn.
    let mut w = with_subjects(20);
    make_consumer(&mut w, "C", "a.*");
    w.turn();
    w.turn();
    assert_eq!(w.heard(0), "", "the answer waits");
    w.publish(0, "$JS.API.CONSUMER.INFO.A.C", "r.i", "");
    let pull = json!({"batch": 30, "no_wait": true}).to_string();
    w.publish(0, "$JS.API.CONSUMER.MSG.NEXT.A.C", "r.m", &pull);
    w.publish(0, "a.new", "r.p", "x");
    w.settle();
    let heard = w.heard(0);
    assert_eq!(pending(&heard).len(), 2, "{heard}");
    assert!(
        pending(&heard).iter().all(|n| *n == 20 || *n == 21),
        "{heard}"
    );
    for n in 0..20 {
        assert_eq!(heard.matches(&format!("MSG a.{n} 1 $JS.ACK")).count(), 1);
    }
    let info = w.ask(0, "CONSUMER.INFO.A.C", &Value::Null);
    assert_eq!(
        (&info["num_pending"], &info["num_ack_pending"]),
        (&0.into(), &21.into())
    );

    // A client deletes the consumer, or the leader goes, before the consumer has found its messages.
    make_consumer(&mut w, "D", "*.*");
    w.turn();
    w.turn();
    w.publish(0, "$JS.API.CONSUMER.INFO.A.D", "r.i", "");
    w.publish(0, "$JS.API.CONSUMER.DELETE.A.D", "r.d", "");
    w.settle();
    let heard = w.heard(0);
    assert_eq!(heard.matches("\"err_code\":10014").count(), 2, "{heard}");
    make_consumer(&mut w, "E", "*.*");
    w.turn();
    w.turn();
    w.follow(ALL);
    w.settle();
    assert_eq!(w.heard(0).matches("\"err_code\":10008").count(), 1);
    w.lead(ALL, 1);
    w.settle();
    let info = w.ask(1, "CONSUMER.INFO.A.E", &Value::Null);
    assert_eq!(info["num_pending"], 21);
}

#[test]
fn a_purge_by_subject_is_prepared_in_parts() {
    // By the constants for tests, the leader purges up to 8 subjects at once, and looks at 3 in a turn.
    let mut w = with_subjects(24);
    let purge = |filter: &str| json!({ "filter": filter }).to_string();
    w.publish(0, "$JS.API.STREAM.PURGE.A", "r.1", &purge("a.*"));
    w.turn();
    w.turn();
    assert_eq!(w.messages(0, "A"), Some(32), "the purge is not decided yet");
    // A second purge of the stream keeps its place behind the first, although it needs no preparation.
    w.publish(0, "$JS.API.STREAM.PURGE.A", "r.2", "{}");
    w.settle();
    let heard = w.heard(0);
    let (first, second) = (heard.find("\"purged\":32"), heard.find("\"purged\":0"));
    assert!(first < second && first.is_some(), "{heard}");
    for node in 0..3 {
        assert_eq!(w.messages(node, "A"), Some(0));
    }

    // A client deletes the stream, or the leader goes, before the nodes have prepared the purge.
    let mut w = with_subjects(24);
    w.publish(0, "$JS.API.STREAM.PURGE.A", "r.1", &purge("a.*"));
    w.turn();
    w.publish(0, "$JS.API.STREAM.DELETE.A", "r.d", "");
    w.settle();
    let heard = w.heard(0);
    assert!(
        heard.contains("10059") || heard.contains("\"purged\":32"),
        "{heard}"
    );
    let mut w = with_subjects(24);
    for n in 0..70 {
        w.publish(
            0,
            "$JS.API.STREAM.PURGE.A",
            &format!("r.{n}"),
            &purge("*.1"),
        );
    }
    w.turn();
    let refused = w.heard(0).matches("\"err_code\":10167").count();
    assert_eq!(refused, 6);
    w.follow(ALL);
    w.settle();
    assert_eq!(w.heard(0).matches("10008").count(), 64);
    w.lead(ALL, 2);
    w.settle();
    let purged = w.ask(2, "STREAM.PURGE.A", &json!({"filter": "a.*", "keep": 3}));
    assert_eq!(purged["purged"], 29);
}

/// Returns whether a node holds results for a purge of the stream A by this pattern.
fn is_foreseen(w: &World, node: usize, pattern: &str) -> bool {
    let streams = w.nodes[node].streams(w.slot(node, ALL)).unwrap().applied();
    let id = streams.by_name("A").expect("the stream is there");
    streams.is_foreseen(id, pattern)
}

/// A client deletes a stream and makes another one of the same name while requests about the first are being
/// carried out in parts. The requests end with the first stream, and do not touch the second.
#[test]
fn requests_in_parts_do_not_touch_a_later_stream_of_the_same_name() {
    let purge = json!({"filter": "a.*"}).to_string();
    let page = json!({"subjects_filter": ">"}).to_string();
    for turns in 0..6 {
        let mut w = with_subjects(70);
        w.publish(0, "$JS.API.STREAM.PURGE.A", "r.1", &purge);
        w.publish(0, "$JS.API.STREAM.INFO.A", "r.2", &page);
        make_consumer(&mut w, "C", "a.*");
        (0..turns).for_each(|_| w.turn());
        w.publish(0, "$JS.API.STREAM.DELETE.A", "r.d", "");
        w.settle();
        let heard = w.heard(0);
        let purges = heard.matches("stream_purge_response").count();
        let pages = heard.matches("stream_info_response").count();
        assert_eq!((purges, pages), (1, 1), "{turns} turns: {heard}");
        assert_eq!(heard.matches("consumer_create_response").count(), 1);

        w.create(0, "A", 3);
        for n in 0..30 {
            w.publish(0, &format!("a.{n}"), "r.p", "x");
        }
        w.settle();
        for node in 0..3 {
            assert_eq!(w.messages(node, "A"), Some(30), "{turns} turns");
            assert!(!is_foreseen(&w, node, "a.*"), "{turns} turns");
        }
        w.heard(0);
        let info = w.ask(0, "CONSUMER.INFO.A.C", &Value::Null);
        assert_eq!(info["error"]["err_code"], 10014, "{info}");
    }
}

/// The leader goes while the nodes prepare a purge. No node keeps the results, and the same purge under the
/// next leader has its whole effect.
#[test]
fn a_purge_that_does_not_come_leaves_no_results() {
    let purge = json!({"filter": "a.*"}).to_string();
    for turns in [1, 2, 4, 8] {
        let mut w = with_subjects(24);
        w.publish(0, "$JS.API.STREAM.PURGE.A", "r.1", &purge);
        (0..turns).for_each(|_| w.turn());
        assert_eq!(w.messages(0, "A"), Some(32), "the purge is not decided yet");
        w.follow(ALL);
        assert!(!is_foreseen(&w, 0, "a.*"));
        for node in 0..3 {
            let at = w.slot(node, ALL);
            let streams = w.nodes[node].streams_mut(at).unwrap();
            let cluster = ClusterInfo {
                leader: "n2".into(),
                ..ClusterInfo::default()
            };
            streams.set_cluster(3, cluster, None);
        }
        w.turn();
        for node in 0..3 {
            assert!(!is_foreseen(&w, node, "a.*"), "node {node}, {turns} turns");
            let streams = w.nodes[node].streams(w.slot(node, ALL)).unwrap();
            assert!(!streams.applied().is_foreseeing());
        }
        w.lead(ALL, 1);
        w.settle();
        w.heard(0);
        let purged = w.ask(1, "STREAM.PURGE.A", &json!({"filter": "a.*"}));
        assert_eq!(purged["purged"], 32);
        for node in 0..3 {
            assert_eq!(w.messages(node, "A"), Some(0));
        }
    }
}

/// A node that drains finishes the requests that take several turns before it calls itself idle.
#[test]
fn a_node_is_not_idle_while_requests_wait_for_their_turns() {
    let purge = json!({"filter": "a.*"}).to_string();
    let page = json!({"subjects_filter": ">"}).to_string();
    for (what, body, subjects) in [("PURGE", &purge, 24), ("INFO", &page, 70)] {
        let mut w = with_subjects(subjects);
        assert!(w.nodes[0].streams_idle());
        w.publish(0, &format!("$JS.API.STREAM.{what}.A"), "r.1", body);
        assert!(!w.nodes[0].streams_idle(), "{what}");
        w.turn();
        assert!(!w.nodes[0].streams_idle(), "{what}");
        w.settle();
        assert!(w.nodes[0].streams_idle(), "{what}");
        assert_eq!(w.heard(0).matches("_response").count(), 1, "{what}");
    }
}

/// Purges of one subject of a stream with many subjects do not wait for a preparation, unless the subject has
/// many messages.
#[test]
fn a_purge_of_one_subject_is_decided_at_once() {
    let mut w = with_subjects(24);
    w.publish(0, "$JS.API.STREAM.PURGE.A", "r.1", r#"{"filter":"a.3"}"#);
    w.turn();
    assert_eq!(w.messages(0, "A"), Some(30));
    w.settle();
    assert!(w.heard(0).contains("\"purged\":2"));
    // By the constant for tests, the leader purges up to 32 messages of a subject at once.
    for n in 0..40 {
        w.publish(0, "a.often", "r.p", &n.to_string());
    }
    w.settle();
    w.heard(0);
    w.publish(
        0,
        "$JS.API.STREAM.PURGE.A",
        "r.1",
        r#"{"filter":"a.often"}"#,
    );
    w.turn();
    assert_eq!(w.messages(0, "A"), Some(70), "the purge is not decided yet");
    w.settle();
    assert!(w.heard(0).contains("\"purged\":40"));
    assert_eq!(w.messages(2, "A"), Some(30));
}

/// A client deletes a stream while a request for many of its messages waits. The request ends with a status.
#[test]
fn a_read_of_a_deleted_stream_ends() {
    let mut w = World::of(3);
    let config = json!({"name": "A", "subjects": ["a.>"], "num_replicas": 3, "allow_direct": true});
    w.ask(0, "STREAM.CREATE.A", &config);
    for n in 0..5 {
        w.publish(0, &format!("a.{n}"), "r.p", "x");
    }
    w.settle();
    w.heard(0);
    let ask = r#"{"seq":1,"batch":5}"#;
    w.publish(0, "$JS.API.DIRECT.GET.A", "r.g", ask);
    w.settle();
    assert_eq!(w.heard(0).matches("Nats-Stream: A").count(), 5);
    w.publish(0, "$JS.API.STREAM.DELETE.A", "r.d", "");
    w.publish(0, "$JS.API.DIRECT.GET.A", "r.g", ask);
    w.settle();
    let heard = w.heard(0);
    assert!(heard.contains("NATS/1.0 404"), "{heard}");
    assert!(!heard.contains("Nats-Stream: A"), "{heard}");
}

/// Counts the answers of each turn to many requests for single messages: no turn answers more than its share,
/// and the loop goes on until all requests have their answers.
#[test]
fn requests_for_messages_are_answered_in_parts() {
    // By the constant for tests, the leader answers 8 requests in a turn.
    let mut w = World::of(3);
    w.create(0, "A", 3);
    w.publish(0, "a.x", "r.p", "x");
    w.settle();
    w.heard(0);
    for n in 0..50 {
        w.publish(
            0,
            "$JS.API.STREAM.MSG.GET.A",
            &format!("r.{n}"),
            r#"{"seq":1}"#,
        );
    }
    let mut answers = w.heard(0).matches("stream_msg_get_response").count();
    let mut turns = 0;
    while answers < 50 {
        w.turn();
        let of_turn = w.heard(0).matches("stream_msg_get_response").count();
        assert!((1..=8).contains(&of_turn), "{of_turn} answers in a turn");
        answers += of_turn;
        turns += 1;
        let at = w.slot(0, ALL);
        let deadline = w.nodes[0].streams(at).unwrap().deadline(true);
        assert_eq!(deadline == Some(Time::ZERO), answers < 50, "{answers}");
    }
    assert!(turns >= 6, "{turns} turns");
}
