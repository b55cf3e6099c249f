//! Tests look-ups by patterns in a stream with many subjects, for which a node needs several turns.

use serde_json::json;
use tidegate::Time;
use tidegate_cluster::groups::ALL;

use super::world::World;

/// Fills the stream A with `subjects` subjects.
fn filled(subjects: usize) -> World {
    let mut w = World::of(3);
    w.say(0, "SUB r.0.*.* 2\r\n");
    let config = json!({"name": "A", "subjects": ["a.*"], "num_replicas": 3, "allow_direct": true});
    w.ask(0, "STREAM.CREATE.A", &config);
    for n in 0..subjects {
        w.publish(0, &format!("a.{n}"), "r.p", "x");
    }
    w.settle();
    w.heard(0);
    w
}

/// Returns the reply subjects of the messages in `heard`, without their prefix, in order.
fn replies(heard: &str) -> Vec<String> {
    let lines = heard.lines().filter(|line| line.contains("MSG r.0."));
    let reply = |line: &str| line.split(' ').nth(1).unwrap()["r.0.".len()..].to_owned();
    lines.map(reply).collect()
}

const GET: &str = "$JS.API.STREAM.MSG.GET.A";
const DIRECT: &str = "$JS.API.DIRECT.GET.A";

/// Counts the turns of a search: no turn looks at more than its share of the subjects, and the loop goes on
/// until the request has its answer.
#[test]
fn a_search_for_a_pattern_takes_several_turns() {
    // By the constants for tests, all requests look at 16 subjects in a turn.
    for (ask, found) in [
        (r#"{"last_by_subj":"*.none"}"#, false),
        (r#"{"seq":1,"next_by_subj":"*.none"}"#, false),
        (r#"{"last_by_subj":"*.3"}"#, true),
        (r#"{"seq":1,"next_by_subj":"*.399"}"#, true),
    ] {
        let mut w = filled(400);
        w.publish(0, GET, "r.g.1", ask);
        let mut turns = 0;
        let heard = loop {
            w.turn();
            turns += 1;
            let heard = w.heard(0);
            if !heard.is_empty() {
                break heard;
            }
            let at = w.slot(0, ALL);
            let deadline = w.nodes[0].streams(at).unwrap().deadline(true);
            assert_eq!(deadline, Some(Time::ZERO), "{ask}: the loop sleeps");
        };
        // A search by messages looks at a block of 256 messages at once.
        let least = if ask.contains("next") { 1 } else { 24 };
        assert!(turns >= least, "{ask}: {turns}");
        assert_eq!(heard.contains("\"seq\":"), found, "{heard}");
        assert_eq!(heard.contains("10037"), !found, "{heard}");
    }
}

/// The requests of one asker keep their order, also behind a request that takes long, and another asker's
/// request does not wait for all of them.
#[test]
fn askers_take_turns_and_each_keeps_its_order() {
    let mut w = filled(200);
    for n in 1..=4 {
        w.publish(0, GET, &format!("r.a.{n}"), r#"{"last_by_subj":"*.none"}"#);
    }
    w.publish(0, GET, "r.a.5", r#"{"seq":1}"#);
    w.publish(0, GET, "r.b.1", r#"{"last_by_subj":"*.none"}"#);
    w.publish(0, GET, "r.c.1", r#"{"seq":1}"#);
    let mut order = Vec::new();
    for _ in 0..200 {
        w.turn();
        order.extend(replies(&w.heard(0)));
    }
    assert_eq!(order.len(), 7, "{order:?}");
    let place = |reply: &str| order.iter().position(|r| r == reply).unwrap();
    let of_a: Vec<&String> = order.iter().filter(|r| r.starts_with("a.")).collect();
    assert_eq!(of_a, ["a.1", "a.2", "a.3", "a.4", "a.5"]);
    assert_eq!(place("c.1"), 0, "a request without a search does not wait");
    assert!(place("b.1") < place("a.3"), "{order:?}");
}

/// A request for the last message of each subject counts the messages that come during its search.
#[test]
fn last_messages_are_those_at_the_end_of_the_search() {
    let mut w = filled(100);
    let ask = json!({"multi_last": ["*.7", "*.70", "*.later"]}).to_string();
    w.publish(0, DIRECT, "r.m.1", &ask);
    w.turn();
    w.publish(0, "a.7", "r.p", "y");
    w.publish(0, "a.later", "r.p", "z");
    w.settle();
    let heard = w.heard(0);
    for subject in ["a.70", "a.7", "a.later"] {
        let line = format!("Nats-Subject: {subject}\r\n");
        assert_eq!(heard.matches(&line).count(), 1, "{heard}");
    }
    assert!(heard.contains("Nats-Sequence: 101\r\n"), "{heard}");
    assert!(heard.contains("Nats-UpTo-Sequence: 102\r\n"), "{heard}");
    let before = json!({"multi_last": ["*.7", "*.later"], "up_to_seq": 100}).to_string();
    w.publish(0, DIRECT, "r.m.2", &before);
    w.settle();
    let heard = w.heard(0);
    assert!(heard.contains("Nats-Sequence: 8\r\n"), "{heard}");
    assert!(heard.contains("Nats-UpTo-Sequence: 100\r\n"), "{heard}");
    assert!(!heard.contains("a.later"), "{heard}");
    // Further subjects than one answer may have end the search early.
    let all = json!({"multi_last": ["*.*"], "batch": 3}).to_string();
    w.publish(0, DIRECT, "r.m.3", &all);
    w.settle();
    assert_eq!(w.heard(0).matches("Nats-Stream: A").count(), 3);
}

/// Requests with very many patterns take bounded memory while they wait.
#[test]
fn the_memory_of_waiting_requests_is_bounded() {
    let mut w = filled(200);
    let patterns: Vec<String> = (0..500).map(|n| format!("*.none{n}")).collect();
    let ask = json!({ "multi_last": patterns }).to_string();
    for n in 0..8 {
        w.publish(0, DIRECT, &format!("r.m.{n}"), &ask);
    }
    for _ in 0..40 {
        w.settle();
    }
    let heard = w.heard(0);
    // The constant for tests allows 64 KiB.
    let (found, refused) = (
        heard.matches("404 No Results"),
        heard.matches("NATS/1.0 503"),
    );
    let (found, refused) = (found.count(), refused.count());
    assert!((1..=3).contains(&found), "{found} answers: {heard}");
    assert_eq!(found + refused, 8, "{heard}");
}

/// An entry with a publish that depends on a pattern waits until all nodes have looked at the subjects, and
/// all of them decide the same.
#[test]
fn an_entry_with_a_pattern_waits_for_its_preparation() {
    // A stream with at most 256 subjects decides at once. By the constant for tests, a node looks at 16
    // subjects in a turn.
    let mut w = filled(300);
    let publish = |w: &mut World, reply: &str, pattern: &str, number: u64| {
        let name = "Nats-Expected-Last-Subject-Sequence";
        let depends = format!("{name}: {number}\r\n{name}-Subject: {pattern}\r\n");
        let headers = format!("NATS/1.0\r\n{depends}\r\n");
        let (len, all) = (headers.len(), headers.len() + 1);
        let reply = reply.replacen("r.", "r.0.", 1);
        w.say(0, format!("HPUB a.x {reply} {len} {all}\r\n{headers}x\r\n"));
    };
    publish(&mut w, "r.d.1", "*.17", 18);
    publish(&mut w, "r.d.2", "*.17", 17);
    publish(&mut w, "r.d.3", "*.none", 0);
    w.publish(0, "a.y", "r.d.4", "x");
    let mut turns = 0;
    let heard = loop {
        w.turn();
        turns += 1;
        let heard = w.heard(0);
        if !heard.is_empty() {
            break heard;
        }
        let at = w.slot(0, ALL);
        let deadline = w.nodes[0].streams(at).unwrap().deadline(true);
        assert_eq!(deadline, Some(Time::ZERO), "the loop sleeps");
        assert!(w.messages(0, "A") == Some(300));
    };
    assert!(turns >= 18, "{turns}");
    assert_eq!(replies(&heard), ["d.1", "d.2", "d.3", "d.4"]);
    assert!(heard.contains("wrong last sequence: 18"), "{heard}");
    w.settle();
    for node in 0..3 {
        assert_eq!(w.messages(node, "A"), Some(303));
    }
    // The results still hold, so a further entry does not wait.
    publish(&mut w, "r.d.5", "*.x", 302);
    w.settle();
    w.heard(0);
    publish(&mut w, "r.d.6", "*.17", 18);
    w.turn();
    w.turn();
    assert_eq!(replies(&w.heard(0)), ["d.6"]);
}
