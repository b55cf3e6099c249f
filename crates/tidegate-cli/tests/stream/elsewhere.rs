//! Tests of mirrors and sources with an origin on another server: a Tidegate server or, if installed, a
//! nats-server.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::backups::Rival;
use super::origins::{comes_to, get, has, publish, stream};
use super::raw::{PATIENCE, Raw};
use super::server::Server;

/// Returns a configuration that names the server at this address as the remote `hub`.
fn remote(url: &str) -> String {
    format!("jetstream {{ remotes {{ hub {{ url: \"nats://{url}\" }} }} }}")
}

fn external(name: &str) -> Value {
    json!({"name": name, "external": {"api": "$JS.hub.API"}})
}

/// Waits until the error of the stream's mirror contains these words.
fn complains(raw: &mut Raw, name: &str, words: &str) {
    comes_to(raw, name, |info| {
        let error = info["mirror"]["error"]["description"].as_str();
        error.is_some_and(|error| error.contains(words))
    });
}

/// Kills a server and starts another one on its data and with its configuration.
fn again(mut server: Server, data: &Path, config: &str) -> (Server, Raw) {
    server.kill();
    let server = Server::start_in(data, config);
    let raw = Raw::connect(&server.url).unwrap();
    (server, raw)
}

/// Publishes messages of several kinds to the origin, and removes some of them.
fn fill(hub: &mut Raw) -> u64 {
    let origin = json!({"name": "O", "subjects": ["o.>"], "storage": "file"});
    assert_eq!(stream(hub, "CREATE", &origin), 0);
    publish(hub, "o.a", 300);
    for headers in [
        &["Z: last", "A: first", "A: second"][..],
        &["Only:without a blank"],
        &["Blank:   many  "],
        // The client library that fetches messages cannot read these.
        &["a b: x"],
        &["no colon"],
    ] {
        hub.publish_with("o.h", "ack", headers);
        hub.message().unwrap();
    }
    hub.publish("o.large", "ack", &vec![b'x'; 700_000]).unwrap();
    hub.message().unwrap();
    for seq in [5, 6, 7, 200] {
        hub.api("STREAM.MSG.DELETE.O", &json!({ "seq": seq }));
    }
    306
}

/// Checks that the mirror has each message of the origin up to `last` as the origin has it.
fn same(hub: &mut Raw, raw: &mut Raw, last: u64) {
    for seq in 1..=last {
        let (mut theirs, mut ours) = (get(hub, "O", seq), get(raw, "M", seq));
        for message in [&mut theirs, &mut ours] {
            // nats-server shows nanoseconds, and this server keeps microseconds, so the test compares
            // microseconds.
            if let Some(time) = message["time"].as_str() {
                let time: String = time.trim_end_matches('Z').chars().take(26).collect();
                message["time"] = time.trim_end_matches('0').into();
            }
        }
        assert_eq!(theirs, ours, "message {seq}");
    }
}

#[test]
fn a_mirror_follows_a_stream_of_another_server() {
    let mut server = Server::start();
    let mut hub = Raw::connect(&server.url).unwrap();
    let last = fill(&mut hub);
    let (directory, config) = (tempfile::tempdir().unwrap(), remote(&server.url));
    let data = directory.path().join("data");
    let ours = Server::start_in(&data, &config);
    let mut raw = Raw::connect(&ours.url).unwrap();
    let mirror = json!({"name": "M", "storage": "file", "mirror": external("O")});
    assert_eq!(stream(&mut raw, "CREATE", &mirror), 0);
    let info = comes_to(&mut raw, "M", has(last - 4, last));
    assert_eq!(info["mirror"]["external"]["api"], "$JS.hub.API");
    same(&mut hub, &mut raw, last);
    // The mirror must continue where it was, after a crash of either side.
    server = server.restart_there();
    hub = Raw::connect(&server.url).unwrap();
    publish(&mut hub, "o.b", 10);
    comes_to(&mut raw, "M", has(last + 6, last + 10));
    let (_ours, mut raw) = again(ours, &data, &config);
    publish(&mut hub, "o.b", 10);
    comes_to(&mut raw, "M", has(last + 16, last + 20));
    same(&mut hub, &mut raw, last + 20);
    // A promoted mirror must keep its messages and take no further messages from its origin.
    let promoted = json!({"name": "M", "subjects": ["m"]});
    assert_eq!(stream(&mut raw, "UPDATE", &promoted), 0);
    publish(&mut raw, "m", 1);
    publish(&mut hub, "o.b", 1);
    comes_to(&mut raw, "M", has(last + 17, last + 21));
}

#[test]
fn a_mirror_follows_a_stream_of_nats_server() {
    let Some(rival) = Rival::start() else { return };
    let url = rival.url.trim_start_matches("nats://");
    let mut hub = Raw::connect(url).unwrap();
    let last = fill(&mut hub);
    let directory = tempfile::tempdir().unwrap();
    let ours = Server::start_in(&directory.path().join("data"), &remote(url));
    let mut raw = Raw::connect(&ours.url).unwrap();
    let mirror = json!({"name": "M", "storage": "file", "mirror": external("O")});
    assert_eq!(stream(&mut raw, "CREATE", &mirror), 0);
    comes_to(&mut raw, "M", has(last - 4, last));
    same(&mut hub, &mut raw, last);
    publish(&mut hub, "o.b", 10);
    comes_to(&mut raw, "M", has(last + 6, last + 10));
    let late = json!({"name": "L", "sources": [
        {"name": "O", "opt_start_seq": 100, "filter_subject": "o.a", "external": {"api": "$JS.hub.API"}},
        {"name": "O", "filter_subject": "o.h", "external": {"api": "$JS.hub.API"}},
    ]});
    assert_eq!(stream(&mut raw, "CREATE", &late), 0);
    comes_to(&mut raw, "L", has(205, 205));
}

/// Tests that the sources of a stream get each message once and in order, while either side crashes.
#[test]
fn sources_lose_and_repeat_nothing_while_both_sides_crash() {
    let mut server = Server::start();
    let mut hub = Raw::connect(&server.url).unwrap();
    for name in ["A", "B"] {
        let config = json!({"name": name, "subjects": [format!("{name}.>")], "storage": "file"});
        assert_eq!(stream(&mut hub, "CREATE", &config), 0);
    }
    let (directory, config) = (tempfile::tempdir().unwrap(), remote(&server.url));
    let data = directory.path().join("data");
    let mut ours = Server::start_in(&data, &config);
    let mut raw = Raw::connect(&ours.url).unwrap();
    let sources = json!({"name": "S", "storage": "file", "allow_direct": true, "sources": [external("A"), external("B")]});
    assert_eq!(stream(&mut raw, "CREATE", &sources), 0);
    for round in 0..6 {
        publish(&mut hub, "A.x", 150);
        publish(&mut hub, "B.x", 100);
        if round % 2 == 0 {
            (ours, raw) = again(ours, &data, &config);
        } else {
            server = server.restart_there();
            hub = Raw::connect(&server.url).unwrap();
        }
    }
    comes_to(&mut raw, "S", has(1500, 1500));
    let mut next = [("A:", 1), ("B:", 1)];
    for seq in 1..=1500 {
        let body = json!({ "seq": seq }).to_string();
        raw.publish("$JS.API.DIRECT.GET.S", "got", body.as_bytes())
            .unwrap();
        let message = raw.message().unwrap();
        let headers = message.headers();
        let source = headers.split("Nats-Stream-Source: ").nth(1).unwrap();
        let of = next.iter_mut().find(|(name, _)| source.starts_with(name));
        let (_, next) = of.unwrap();
        let number: u64 = source.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(number, *next, "{source}");
        *next += 1;
    }
    assert_eq!(next, [("A:", 901), ("B:", 601)]);
    drop(ours);
}

/// Creates a work queue with a consumer that takes acknowledgements by flow control.
fn queue_with_consumer(hub: &mut Raw) {
    let queue =
        json!({"name": "Q", "subjects": ["q.>"], "storage": "file", "retention": "workqueue"});
    assert_eq!(stream(hub, "CREATE", &queue), 0);
    let config = json!({"durable_name": "C", "ack_policy": "flow_control", "deliver_subject": "d",
        "max_ack_pending": 100});
    let body = json!({"stream_name": "Q", "config": config});
    let made = hub.api("CONSUMER.CREATE.Q.C", &body);
    assert!(made.get("error").is_none(), "{made}");
}

/// Returns a stream that takes in the messages of the work queue by its consumer.
fn by_consumer() -> Value {
    let mut queue = external("Q");
    queue["consumer"] = json!({"name": "C", "deliver_subject": "d"});
    json!({"name": "S", "storage": "file", "sources": [queue]})
}

#[test]
fn a_work_queue_gives_each_message_once_while_both_sides_crash() {
    let mut server = Server::start();
    let mut hub = Raw::connect(&server.url).unwrap();
    let (directory, config) = (tempfile::tempdir().unwrap(), remote(&server.url));
    let data = directory.path().join("data");
    let mut ours = Server::start_in(&data, &config);
    let mut raw = Raw::connect(&ours.url).unwrap();
    assert_eq!(stream(&mut raw, "CREATE", &by_consumer()), 0);
    comes_to(&mut raw, "S", |info| !info["sources"][0]["error"].is_null());
    queue_with_consumer(&mut hub);
    for round in 0..4 {
        publish(&mut hub, "q.x", 250);
        if round % 2 == 0 {
            (ours, raw) = again(ours, &data, &config);
        } else {
            server = server.restart_there();
            hub = Raw::connect(&server.url).unwrap();
        }
    }
    comes_to(&mut raw, "S", has(1000, 1000));
    comes_to(&mut hub, "Q", has(0, 1000));
    drop(ours);
}

#[test]
fn a_work_queue_of_nats_server_gives_each_message_once() {
    let Some(rival) = Rival::start() else { return };
    let url = rival.url.trim_start_matches("nats://");
    let mut hub = Raw::connect(url).unwrap();
    queue_with_consumer(&mut hub);
    let directory = tempfile::tempdir().unwrap();
    let (data, config) = (directory.path().join("data"), remote(url));
    let ours = Server::start_in(&data, &config);
    let mut raw = Raw::connect(&ours.url).unwrap();
    assert_eq!(stream(&mut raw, "CREATE", &by_consumer()), 0);
    publish(&mut hub, "q.x", 300);
    comes_to(&mut raw, "S", has(300, 300));
    let (_ours, mut raw) = again(ours, &data, &config);
    publish(&mut hub, "q.x", 300);
    comes_to(&mut raw, "S", has(600, 600));
    comes_to(&mut hub, "Q", has(0, 600));
}

#[test]
fn a_consumer_elsewhere_that_is_gone_is_missed() {
    let server = Server::start();
    let mut hub = Raw::connect(&server.url).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let ours = Server::start_in(&data, &remote(&server.url));
    let mut raw = Raw::connect(&ours.url).unwrap();
    queue_with_consumer(&mut hub);
    assert_eq!(stream(&mut raw, "CREATE", &by_consumer()), 0);
    publish(&mut hub, "q.x", 20);
    comes_to(&mut raw, "S", has(20, 20));
    hub.api("CONSUMER.DELETE.Q.C", &json!({}));
    comes_to(&mut raw, "S", |info| !info["sources"][0]["error"].is_null());
    publish(&mut hub, "q.x", 20);
    let config = json!({"durable_name": "C", "ack_policy": "flow_control", "deliver_subject": "e"});
    let body = json!({"stream_name": "Q", "config": config});
    hub.api("CONSUMER.CREATE.Q.C", &body);
    comes_to(&mut raw, "S", |info| {
        let error = info["sources"][0]["error"]["description"].as_str();
        error.is_some_and(|error| error.contains("delivers to"))
    });
    hub.api("CONSUMER.DELETE.Q.C", &json!({}));
    queue_with_consumer(&mut hub);
    comes_to(&mut raw, "S", has(40, 40));
    comes_to(&mut hub, "Q", has(0, 40));
    comes_to(&mut raw, "S", |info| info["sources"][0]["error"].is_null());
}

#[test]
fn a_mirror_of_a_server_that_is_away_says_so() {
    let mut server = Server::start();
    let mut hub = Raw::connect(&server.url).unwrap();
    let origin = json!({"name": "O", "subjects": ["o"], "storage": "file"});
    assert_eq!(stream(&mut hub, "CREATE", &origin), 0);
    publish(&mut hub, "o", 5);
    server.kill();
    let directory = tempfile::tempdir().unwrap();
    let ours = Server::start_in(&directory.path().join("data"), &remote(&server.url));
    let mut raw = Raw::connect(&ours.url).unwrap();
    let mirror = json!({"name": "M", "storage": "file", "mirror": external("O")});
    assert_eq!(stream(&mut raw, "CREATE", &mirror), 0);
    complains(&mut raw, "M", "refused");
    let info = raw.api("STREAM.INFO.M", &json!({}));
    assert_eq!(
        (&info["mirror"]["active"], &info["mirror"]["lag"]),
        (&json!(-1), &json!(0)),
        "{info}"
    );
    let _server = server.restart_there();
    let info = comes_to(&mut raw, "M", has(5, 5));
    assert!(info["mirror"]["active"].as_i64().unwrap() >= 0, "{info}");
}

#[test]
fn a_mirror_says_why_it_cannot_follow() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().join("there");
    let mut server = Server::start_in(&there, "");
    let mut hub = Raw::connect(&server.url).unwrap();
    let ours = Server::start_in(&directory.path().join("here"), &remote(&server.url));
    let mut raw = Raw::connect(&ours.url).unwrap();
    let unknown =
        json!({"name": "M", "mirror": {"name": "O", "external": {"api": "$JS.west.API"}}});
    assert_eq!(stream(&mut raw, "CREATE", &unknown), 10052);
    let odd = json!({"name": "M", "mirror": {"name": "O", "external": {"api": "west"}}});
    assert_eq!(stream(&mut raw, "CREATE", &odd), 10052);
    let mirror = json!({"name": "M", "storage": "file", "mirror": external("O")});
    assert_eq!(stream(&mut raw, "CREATE", &mirror), 0);
    complains(&mut raw, "M", "remote hub: stream not found");
    // A work queue as the origin could lose messages on the way, so the mirror must refuse it.
    let queue = json!({"name": "O", "subjects": ["o"], "retention": "workqueue"});
    assert_eq!(stream(&mut hub, "CREATE", &queue), 0);
    complains(&mut raw, "M", "has retention workqueue");
    hub.api("STREAM.DELETE.O", &json!({}));
    let origin = json!({"name": "O", "subjects": ["o"], "storage": "file"});
    assert_eq!(stream(&mut hub, "CREATE", &origin), 0);
    publish(&mut hub, "o", 5);
    comes_to(&mut raw, "M", has(5, 5));
    // The test restarts the remote with an old copy of its data, as an operator might by mistake.
    server.kill();
    let copy = directory.path().join("copy");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(&there)
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    server = server.restart_there();
    hub = Raw::connect(&server.url).unwrap();
    publish(&mut hub, "o", 5);
    comes_to(&mut raw, "M", has(10, 10));
    server.kill();
    complains(&mut raw, "M", "remote hub: ");
    std::fs::remove_dir_all(&there).unwrap();
    std::fs::rename(&copy, &there).unwrap();
    server = server.restart_there();
    complains(&mut raw, "M", "ends at message 5, before message 10");
    // The remote gives the numbers of the lost messages again.
    hub = Raw::connect(&server.url).unwrap();
    publish(&mut hub, "o", 7);
    complains(&mut raw, "M", "is another one than here");
    hub.api("STREAM.DELETE.O", &json!({}));
    assert_eq!(stream(&mut hub, "CREATE", &origin), 0);
    complains(&mut raw, "M", "was deleted and created again");
    let info = raw.api("STREAM.INFO.M", &json!({}));
    assert_eq!(info["state"]["messages"], 10);
    // The server must serve its own streams while the other server is away.
    server.kill();
    let own = json!({"name": "P", "subjects": ["p"]});
    assert_eq!(stream(&mut raw, "CREATE", &own), 0);
    let begun = Instant::now();
    publish(&mut raw, "p", 10);
    assert!(begun.elapsed() < PATIENCE);
}
