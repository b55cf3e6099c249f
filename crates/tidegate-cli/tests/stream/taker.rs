//! Attacks on a stream that takes in a work queue by a consumer, as operators and crashes make them: the
//! consumer goes or changes, the stream is full, two streams name one consumer, the queue is emptied, the
//! server dies. Each time the stream says what holds it up, goes on later, and has each message once.

use serde_json::{Value, json};

use super::flow::{by, consumer};
use super::origins::{comes_to, has, publish, stream};
use super::raw::Raw;
use super::server::{Server, other};

/// Creates the work queue Q with its consumer C.
fn queue(raw: &mut Raw) {
    let queue = json!({"name": "Q", "subjects": ["q.>"], "retention": "workqueue"});
    assert_eq!(stream(raw, "CREATE", &queue), 0);
    assert_eq!(consumer(raw, "Q", "C", json!({"max_ack_pending": 50})), 0);
}

/// Starts a server with the work queue, and the stream F that takes in its messages by the consumer.
fn start() -> (Server, Raw) {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    queue(&mut raw);
    let sourced = json!({"name": "F", "sources": [by("Q", "C")]});
    assert_eq!(stream(&mut raw, "CREATE", &sourced), 0);
    (server, raw)
}

/// Waits until F shows this error.
fn fails(raw: &mut Raw, code: u64) -> Value {
    comes_to(raw, "F", |info| {
        info["sources"][0]["error"]["err_code"] == code
    })
}

/// Waits until F has all of this number of messages, the queue none of them, and no error remains.
fn whole(raw: &mut Raw, messages: u64) {
    comes_to(raw, "F", has(messages, messages));
    comes_to(raw, "Q", |info| info["state"]["messages"] == 0);
    comes_to(raw, "F", |info| {
        let source = &info["sources"][0];
        source.get("error").is_none() && source["lag"] == 0
    });
}

#[test]
fn the_consumer_goes_and_comes_again() {
    let (server, mut raw) = start();
    publish(&mut raw, "q.a", 10);
    whole(&mut raw, 10);
    raw.api("CONSUMER.DELETE.Q.C", &json!({}));
    if other().is_none() {
        fails(&mut raw, 10014);
    }
    publish(&mut raw, "q.a", 5);
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    if other().is_none() {
        let info = fails(&mut raw, 10014);
        assert_eq!(info["state"]["messages"], 10);
    }
    assert_eq!(
        consumer(&mut raw, "Q", "C", json!({"max_ack_pending": 3})),
        0
    );
    whole(&mut raw, 15);
}

#[test]
fn the_consumer_changes() {
    if other().is_some() {
        println!("nats-server shows no error for a consumer that delivers elsewhere");
        return;
    }
    let (_server, mut raw) = start();
    publish(&mut raw, "q.a", 10);
    whole(&mut raw, 10);
    let elsewhere = json!({"max_ack_pending": 50, "deliver_subject": "elsewhere"});
    assert_eq!(consumer(&mut raw, "Q", "C", elsewhere), 0);
    let info = fails(&mut raw, 10045);
    let text = info["sources"][0]["error"]["description"].as_str().unwrap();
    assert!(text.contains("delivers to 'elsewhere'"), "{text}");
    publish(&mut raw, "q.a", 5);
    assert_eq!(
        consumer(&mut raw, "Q", "C", json!({"max_ack_pending": 1})),
        0
    );
    whole(&mut raw, 15);
    // The queue keeps the messages that the consumer no longer delivers.
    let some = json!({"max_ack_pending": 50, "filter_subject": "q.b"});
    assert_eq!(consumer(&mut raw, "Q", "C", some), 0);
    publish(&mut raw, "q.a", 3);
    publish(&mut raw, "q.b", 3);
    comes_to(&mut raw, "F", has(18, 18));
    comes_to(&mut raw, "Q", has(3, 21));
    let explicit = json!({"ack_policy": "explicit", "filter_subject": "q.b"});
    assert_ne!(consumer(&mut raw, "Q", "C", explicit), 0);
    publish(&mut raw, "q.b", 2);
    comes_to(&mut raw, "F", has(20, 20));
}

#[test]
fn the_stream_is_full_until_it_has_room() {
    if other().is_some() {
        println!("nats-server shows neither the lag nor the error of a stream that is full");
        return;
    }
    let (server, mut raw) = start();
    publish(&mut raw, "q.a", 10);
    whole(&mut raw, 10);
    let limited = |max: i64| json!({"name": "F", "sources": [by("Q", "C")], "max_msgs": max, "discard": "new"});
    assert_eq!(stream(&mut raw, "UPDATE", &limited(12)), 0);
    publish(&mut raw, "q.a", 6);
    let stuck = |info: &Value| info["sources"][0]["lag"] == 4;
    fails(&mut raw, 10077);
    comes_to(&mut raw, "F", |info| stuck(info) && has(12, 12)(info));
    comes_to(&mut raw, "Q", has(4, 16));
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    fails(&mut raw, 10077);
    comes_to(&mut raw, "F", stuck);
    comes_to(&mut raw, "Q", has(4, 16));
    assert_eq!(stream(&mut raw, "UPDATE", &limited(-1)), 0);
    whole(&mut raw, 16);
    drop(server);
}

#[test]
fn two_streams_name_one_consumer() {
    if other().is_some() {
        println!("nats-server gives the messages of one consumer to both streams");
        return;
    }
    let (mut server, mut raw) = start();
    let second = json!({"name": "G", "sources": [by("Q", "C")]});
    assert_eq!(stream(&mut raw, "CREATE", &second), 0);
    // The first stream keeps the consumer, whichever of the two asks first after a start.
    for round in 1..=4 {
        publish(&mut raw, "q.a", 10);
        server = server.restart();
        raw = Raw::connect(&server.url).unwrap();
        whole(&mut raw, 10 * round);
        let info = comes_to(&mut raw, "G", |info| {
            info["sources"][0]["error"]["err_code"] == 10045
        });
        assert_eq!(info["state"]["messages"], 0, "{info}");
    }
    raw.api("STREAM.DELETE.F", &json!({}));
    publish(&mut raw, "q.a", 5);
    comes_to(&mut raw, "G", has(5, 5));
    comes_to(&mut raw, "Q", |info| info["state"]["messages"] == 0);
}

#[test]
fn the_queue_is_emptied_or_made_again() {
    if other().is_some() {
        println!("nats-server may lose messages when it resets the consumer");
        return;
    }
    let (server, mut raw) = start();
    publish(&mut raw, "q.a", 10);
    whole(&mut raw, 10);
    let until = json!({"pause_until": "2100-01-01T00:00:00Z"});
    raw.api("CONSUMER.PAUSE.Q.C", &until);
    publish(&mut raw, "q.a", 5);
    comes_to(&mut raw, "F", |info| info["sources"][0]["lag"] == 5);
    raw.api("STREAM.PURGE.Q", &json!({}));
    raw.api("CONSUMER.PAUSE.Q.C", &json!({}));
    publish(&mut raw, "q.a", 2);
    whole(&mut raw, 12);
    raw.api("STREAM.DELETE.Q", &json!({}));
    fails(&mut raw, 10059);
    queue(&mut raw);
    publish(&mut raw, "q.a", 3);
    whole(&mut raw, 15);
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    publish(&mut raw, "q.a", 3);
    whole(&mut raw, 18);
    drop(server);
}

#[test]
fn the_server_dies_again_and_again() {
    let (mut server, mut raw) = start();
    for round in 1..=5 {
        publish(&mut raw, "q.a", 100);
        server = server.restart();
        raw = Raw::connect(&server.url).unwrap();
        if round == 3 {
            comes_to(&mut raw, "Q", |info| info["state"]["messages"] == 0);
        }
    }
    comes_to(&mut raw, "F", has(500, 500));
    comes_to(&mut raw, "Q", has(0, 500));
    let info = raw.api("CONSUMER.INFO.Q.C", &json!({}));
    assert_eq!(info["num_pending"], 0, "{info}");
}
