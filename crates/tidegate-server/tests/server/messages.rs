//! Tests the reading of messages at the monitor: who may read, and which messages come in which form.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_server::config::MessageToken;
use tidegate_server::{Monitor, MonitorOptions};

use super::raw::{PATIENCE, Raw};
use super::{Running, start};

const TOKEN: &str = "a-token-of-the-test-0123";

fn monitor(server: &Running, token: Option<&str>) -> Monitor {
    let options = MonitorOptions {
        host: "127.0.0.1".into(),
        message_token: token.map(|token| MessageToken::new(token).unwrap()),
        ..MonitorOptions::default()
    };
    Monitor::start_with(&options, server.handle.clone()).unwrap()
}

/// Sends a GET request with this header, and returns the status, the head and the body of the answer.
fn ask(monitor: &Monitor, path: &str, header: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(monitor.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{header}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn read(monitor: &Monitor, query: &str) -> Value {
    let path = format!("/messages?{query}");
    let (status, _, body) = ask(monitor, &path, &format!("Authorization: Bearer {TOKEN}"));
    assert_eq!(status, 200, "{query}: {body}");
    serde_json::from_str(&body).unwrap()
}

fn seqs(answer: &Value) -> Vec<u64> {
    let all = answer["messages"].as_array().unwrap();
    all.iter().map(|m| m["seq"].as_u64().unwrap()).collect()
}

/// Creates a stream, and returns a client that publishes to it.
fn client(server: &Running, config: &Value) -> Raw {
    let mut client = Raw::connect(server);
    client.done("CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB r 1\r\n");
    let (name, config) = (config["name"].as_str().unwrap(), config.to_string());
    client.send(format!(
        "PUB $JS.API.STREAM.CREATE.{name} r {}\r\n{config}\r\n",
        config.len()
    ));
    client.until("\"did_create\":true");
    client
}

fn publish(client: &mut Raw, subject: &str, body: &[u8]) {
    client.send(format!("PUB {subject} r {}\r\n", body.len()));
    client.send(body);
    client.send("\r\n");
    client.until("\"seq\":");
}

#[test]
fn without_the_token_no_message_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&format!(
        "jetstream {{ store_dir: {:?} }}",
        directory.path()
    ));
    let config = json!({"name": "S", "subjects": ["s.>"]});
    publish(&mut client(&server, &config), "s.a", b"the secret body");
    let off = monitor(&server, None);
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let (status, _, body) = ask(&off, "/messages?stream=S", &bearer);
    assert_eq!(status, 403, "{body}");
    assert!(
        body.contains("message_token") && !body.contains("secret body"),
        "{body}"
    );
    let (_, _, overview) = ask(&off, "/overview", "X: y");
    assert!(overview.contains("\"shows_messages\":false"), "{overview}");
    let on = monitor(&server, Some(TOKEN));
    for header in [
        "X: y",
        "Authorization: Bearer",
        "Authorization: Bearer a-token-of-the-test-0124",
        &format!("Authorization: Basic {TOKEN}"),
        &format!("Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}"),
    ] {
        let (status, head, body) = ask(&on, "/messages?stream=S", header);
        assert_eq!(status, 401, "{header}: {body}");
        assert!(head.contains("www-authenticate: bearer"), "{head}");
        assert!(
            !body.contains("secret body") && !body.contains(TOKEN),
            "{body}"
        );
    }
    // The token is no parameter, so no address and no log of a proxy has it.
    let (status, ..) = ask(&on, &format!("/messages?stream=S&token={TOKEN}"), "X: y");
    assert_eq!(status, 401);
    let (status, head, body) = ask(&on, "/messages?stream=S", &bearer);
    assert_eq!(status, 200, "{body}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    assert!(body.contains("the secret body"), "{body}");
    let foreign = format!("{bearer}\r\nOrigin: http://evil.example");
    assert_eq!(ask(&on, "/messages?stream=S", &foreign).0, 403);
    for path in ["/varz", "/jsz?streams=1", "/overview?history=9", "/metrics"] {
        let (_, _, body) = ask(&on, path, "X: y");
        assert!(
            !body.contains("secret body") && !body.contains(TOKEN),
            "{path}"
        );
    }
}

#[test]
fn messages_come_by_number_subject_and_time() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&format!(
        "jetstream {{ store_dir: {:?} }}",
        directory.path()
    ));
    let monitor = monitor(&server, Some(TOKEN));
    for storage in ["file", "memory"] {
        let config =
            json!({"name": storage, "subjects": [format!("{storage}.>")], "storage": storage});
        let mut client = client(&server, &config);
        for n in 1..=100 {
            let subject = format!("{storage}.{}", if n % 10 == 0 { "ten" } else { "other" });
            publish(&mut client, &subject, format!("body {n}").as_bytes());
        }
        let get = |query: &str| read(&monitor, &format!("stream={storage}&{query}"));
        let newest = get("limit=3");
        assert_eq!(seqs(&newest), [98, 99, 100]);
        assert_eq!(newest["messages"][0]["body"]["text"], "body 98");
        assert_eq!(
            (&newest["older"], &newest["newer"]),
            (&98.into(), &Value::Null)
        );
        assert_eq!(
            (&newest["first_seq"], &newest["last_seq"]),
            (&1.into(), &100.into())
        );
        let older = get("before=98&limit=3");
        assert_eq!(
            (seqs(&older), &older["newer"]),
            (vec![95, 96, 97], &98.into())
        );
        let forwards = get("seq=5&limit=3");
        assert_eq!(seqs(&forwards), [5, 6, 7]);
        assert_eq!(
            (&forwards["older"], &forwards["newer"]),
            (&5.into(), &8.into())
        );
        assert_eq!(seqs(&get("before=3")), [1, 2]);
        assert_eq!(get("before=3")["older"], Value::Null);
        let tens = get(&format!("seq=1&subject={storage}.ten&limit=4"));
        assert_eq!(
            (seqs(&tens), &tens["newer"]),
            (vec![10, 20, 30, 40], &41.into())
        );
        let tens = get("subject=*.ten&limit=4");
        assert_eq!(
            (seqs(&tens), &tens["older"]),
            (vec![70, 80, 90, 100], &70.into())
        );
        let none = get(&format!("seq=1&subject={storage}.none"));
        assert_eq!(
            (seqs(&none), &none["looked"], &none["newer"]),
            (vec![], &100.into(), &Value::Null)
        );
        // The time of a message finds it again, and a time in the future finds none.
        let time = forwards["messages"][1]["time"].as_str().unwrap();
        let found = get(&format!("time={time}&limit=2"));
        let at = seqs(&found);
        assert!(at.len() == 2 && at[0] <= 6, "{found}");
        assert_eq!(get("time=2999-01-01T00%3A00%3A00Z")["messages"], json!([]));
        client.send(format!(
            "PUB $JS.API.STREAM.MSG.DELETE.{storage} r 9\r\n{{\"seq\":6}}\r\n"
        ));
        client.until("\"success\":true");
        assert_eq!(seqs(&get("seq=5&limit=2")), [5, 7]);
    }
    for (query, status) in [
        ("stream=none", 404),
        ("stream=file&seq=x", 400),
        ("seq=1", 400),
    ] {
        let bearer = format!("Authorization: Bearer {TOKEN}");
        let (got, _, body) = ask(&monitor, &format!("/messages?{query}"), &bearer);
        assert_eq!(got, status, "{query}: {body}");
    }
}

#[test]
fn bodies_are_bounded_and_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&format!(
        "jetstream {{ store_dir: {:?} }}",
        directory.path()
    ));
    let monitor = monitor(&server, Some(TOKEN));
    let mut client = client(&server, &json!({"name": "S", "subjects": ["s.>"]}));
    publish(&mut client, "s.<i>", b"<script>alert(1)</script>");
    publish(&mut client, "s.b", b"\x1b[2J\x00\xff");
    publish(&mut client, "s.c", &vec![b'x'; 200_000]);
    client.send("HPUB s.d r 22 27\r\nNATS/1.0\r\nA: b\x1b[2J\r\n\r\nhello\r\n");
    client.until("\"seq\":4");
    let all = read(&monitor, "stream=S&limit=64");
    let message = |at: usize| &all["messages"][at];
    assert_eq!(message(0)["subject"], "s.<i>");
    assert_eq!(
        message(0)["body"],
        json!({"text": "<script>alert(1)</script>", "cut": false})
    );
    assert_eq!(
        message(1)["body"],
        json!({"hex": "1b5b324a00ff", "cut": false})
    );
    assert_eq!(
        (&message(2)["body_bytes"], &message(2)["body"]["cut"]),
        (&200_000.into(), &true.into())
    );
    assert_eq!(message(2)["body"]["text"].as_str().unwrap().len(), 4096);
    let one = read(&monitor, "stream=S&seq=3&limit=1");
    assert_eq!(
        one["messages"][0]["body"]["text"].as_str().unwrap().len(),
        65536
    );
    // Control characters make headers digits as well.
    assert!(message(3)["headers"]["hex"].is_string(), "{all}");
    assert_eq!(message(3)["body"]["text"], "hello");
}
