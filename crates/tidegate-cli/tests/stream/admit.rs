//! Tests that a server answers everything with many requests of one client in flight at once, with pulls of
//! several connections, and with messages that the server only traces.

use serde_json::json;

use super::race;
use super::raw::Raw;
use super::server::Server;

/// Starts a server with a stream `S` that takes the subject `s`.
fn server() -> (Server, Raw) {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let made = raw.api("STREAM.CREATE.S", &json!({"name": "S", "subjects": ["s"]}));
    assert_eq!(made.get("error"), None, "{made}");
    (server, raw)
}

#[test]
fn members_that_create_one_durable_at_once_all_receive() {
    let (server, _raw) = server();
    let urls = [(); 3].map(|()| server.url.clone());
    race::no_member_is_deaf(&urls, "S", "s", 100);
}

#[test]
fn a_pull_outlasts_its_connection() {
    let (server, _raw) = server();
    race::a_pull_outlasts_its_connection([&server.url; 2], "S", "s");
}

#[test]
fn a_message_that_is_only_to_be_traced_is_neither_stored_nor_delivered() {
    let (server, mut raw) = server();
    let mut listener = Raw::connect(&server.url).unwrap();
    listener.send(b"SUB s 2\r\n").unwrap();
    listener.api("STREAM.INFO.S", &json!({}));
    let trace = format!("Nats-Trace-Dest: {}trace", raw.inbox);
    raw.publish_with("s", "ack", &[&trace, "Nats-Trace-Only: true"]);
    let traced = raw.message().unwrap();
    assert!(traced.subject.ends_with(".trace"), "{traced:?}");
    let events = traced.json()["events"].clone();
    let taken = events
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["type"] == "js");
    assert_eq!(taken.unwrap()["stream"], "S", "{events}");
    let nowhere = ["Nats-Trace-Dest: >", "Nats-Trace-Only: true"];
    raw.publish_with("s", "ack", &nowhere);
    raw.publish("s", "ack", b"after").unwrap();
    let ack = raw.message().unwrap().json();
    assert_eq!(ack["seq"], 1, "{ack}");
    assert_eq!(listener.message().unwrap().payload, b"after");
}
