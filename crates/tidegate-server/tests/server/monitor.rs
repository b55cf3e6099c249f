//! Tests the monitor over HTTP, as a program that collects figures reads it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use tidegate_server::Monitor;

use super::raw::{PATIENCE, Raw};
use super::start;

fn http(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        text.split_once("\r\n\r\n")
            .map_or(String::new(), |(_, body)| body.into()),
    )
}

pub(super) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    http(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    )
}

/// Readers that send half a request take no place from a reader with a whole one, whichever came first.
#[test]
fn half_requests_make_room() {
    let server = start("");
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    let half = || {
        let mut stream = TcpStream::connect(monitor.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /hea").unwrap();
        stream
    };
    let mut halves: Vec<TcpStream> = (0..100).map(|_| half()).collect();
    let (status, body) = get(monitor.address(), "/healthz");
    assert_eq!(status, 200, "{body}");
    // The monitor has closed the oldest one.
    let mut rest = Vec::new();
    let end = halves[0].read_to_end(&mut rest);
    assert!(end.is_err() || rest.is_empty(), "{rest:?}");
}

#[test]
fn closed_connections() {
    let server = start("authorization { user: ann, password: secret }");
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    let json = |path: &str| -> Value {
        let (status, body) = get(monitor.address(), path);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let mut ann = Raw::connect(&server);
    let hello = |pass| {
        let user = "\"verbose\":false,\"name\":\"n\",\"user\":\"ann\"";
        format!("CONNECT {{{user},\"pass\":\"{pass}\"}}\r\n")
    };
    ann.done(&hello("secret"));
    let mut eve = Raw::connect(&server);
    eve.send(hello("wrong"));
    eve.rest();
    let closed = json("/connz?state=closed");
    assert_eq!(
        (&closed["total"], &closed["num_connections"]),
        (&1.into(), &1.into())
    );
    let eve = &closed["connections"][0];
    assert_eq!(eve["reason"], "Authentication Failure");
    assert!(eve["stop"].as_str().unwrap() >= eve["start"].as_str().unwrap());
    assert_eq!(json("/connz")["total"], 1);
    let all = json("/connz?state=any");
    let kinds: Vec<bool> = all["connections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["reason"].is_string())
        .collect();
    assert_eq!(kinds, [false, true]);
    let refused = |path: &str, error: &str| {
        assert_eq!(get(monitor.address(), path), (400, format!("{error}\n")));
    };
    refused("/connz?state=asleep", "Error decoding state for asleep");
    refused("/connz?sort=name", "invalid sorting option: name");
    let error = "sort by stop only valid on closed connections";
    refused("/connz?sort=stop", error);
    refused("/accountz?acc=other", "Account other does not exist");
    let account = json("/accountz?acc=$G");
    assert_eq!(account["account_detail"]["account_name"], "$G", "{account}");
    // A second connection ends, for another reason.
    drop(ann);
    let begun = std::time::Instant::now();
    while json("/connz?state=closed")["total"] != 2 {
        assert!(begun.elapsed() < PATIENCE);
    }
    let order = |sort: &str| -> Vec<u64> {
        let listed = json(&format!("/connz?state=closed&sort={sort}"));
        let connections = listed["connections"].as_array().unwrap();
        connections
            .iter()
            .map(|c| c["cid"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(order("reason"), [2, 1]);
    assert_eq!(order("stop"), [1, 2]);
    assert_eq!(order("cid"), [1, 2]);
}

#[test]
fn health_checks() {
    let directory = tempfile::tempdir().unwrap();
    let config = format!("jetstream {{ store_dir: {:?} }}", directory.path());
    let server = start(&config);
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    let mut client = Raw::connect(&server);
    client.done("CONNECT {\"verbose\":false}\r\nSUB r.a 1\r\n");
    let consumer =
        json!({"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    ask(
        &mut client,
        &[(
            "STREAM.CREATE.S".to_owned(),
            json!({"name": "S", "subjects": ["s"]}),
        )],
    );
    ask(&mut client, &[("CONSUMER.CREATE.S.C".to_owned(), consumer)]);
    let check = |options: &str| -> (u16, Value) {
        let (status, body) = get(monitor.address(), &format!("/healthz?{options}"));
        (status, serde_json::from_str(&body).unwrap())
    };
    for options in [
        "",
        "js-enabled-only=true",
        "js-server-only=1",
        "js-meta-only=true",
        "details=true",
        "account=$G",
        "account=$G&stream=S",
        "account=%24G&stream=S&consumer=C&details=true",
        // These checks end before they look at streams.
        "js-enabled-only=true&account=$G&stream=T",
        "js-server-only=true&account=other",
    ] {
        assert_eq!(check(options), (200, json!({"status": "ok"})), "{options}");
    }
    let no_stream = r#"JetStream stream "T" not found on account "$G""#;
    let no_consumer = r#"JetStream consumer "D" not found for stream "S" on account "$G""#;
    let no_account = r#"JetStream account "other" not found"#;
    let bad = r#""account" must not be empty when checking stream health"#;
    for (options, code, status, error) in [
        ("account=$G&stream=T", 404, "unavailable", no_stream),
        (
            "account=$G&stream=S&consumer=D",
            404,
            "unavailable",
            no_consumer,
        ),
        ("account=other", 404, "unavailable", no_account),
        ("account=other&stream=S", 404, "unavailable", no_account),
        ("stream=S", 400, "error", bad),
        (
            "account=$G&consumer=C",
            400,
            "error",
            r#""stream" must not be empty when checking consumer health"#,
        ),
    ] {
        let body = json!({"status": status, "error": error});
        assert_eq!(check(options), (code, body), "{options}");
    }
    for (options, code, detail) in [
        (
            "account=$G&stream=T",
            404,
            json!({"type": "STREAM", "account": "$G", "stream": "T", "error": no_stream}),
        ),
        (
            "account=$G&stream=S&consumer=D",
            404,
            json!({"type": "CONSUMER", "account": "$G", "stream": "S", "consumer": "D", "error": no_consumer}),
        ),
        (
            "account=other",
            404,
            json!({"type": "ACCOUNT", "account": "other", "error": no_account}),
        ),
        (
            "stream=S",
            400,
            json!({"type": "BAD_REQUEST", "error": bad}),
        ),
    ] {
        let body = json!({"status": "error", "errors": [detail]});
        assert_eq!(check(&format!("{options}&details=true")), (code, body));
    }
    assert_eq!(get(monitor.address(), "/healthz?details=perhaps").0, 400);
    // A server without streams has none to check, as in nats-server.
    let plain = start("");
    let monitor = Monitor::start("127.0.0.1", 0, plain.handle.clone()).unwrap();
    assert_eq!(
        get(monitor.address(), "/healthz?account=$G&stream=S").0,
        200
    );
}

#[test]
fn figures() {
    let server = start("");
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    let at = monitor.address();
    let mut a = Raw::connect(&server);
    a.done("CONNECT {\"verbose\":false,\"name\":\"ann\",\"lang\":\"go\",\"version\":\"1\"}\r\nSUB a.* 1\r\nSUB b q 2\r\n");
    let mut b = Raw::connect(&server);
    b.done("CONNECT {\"verbose\":false}\r\nPUB a.x 5\r\nhello\r\nPUB a.x 5\r\nhello\r\nPUB none 1\r\nx\r\n");
    let json = |path: &str| -> Value {
        let (status, body) = get(at, path);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    assert_eq!(json("/healthz")["status"], "ok");
    let v = json("/varz");
    let numbers = [
        "connections",
        "total_connections",
        "subscriptions",
        "in_msgs",
        "in_bytes",
        "out_msgs",
        "out_bytes",
        "slow_consumers",
    ];
    let seen: Vec<u64> = numbers.iter().map(|n| v[n].as_u64().unwrap()).collect();
    assert_eq!(seen, [2, 2, 2, 3, 11, 2, 10, 0]);
    assert!(v["mem"].as_u64().unwrap() > 0 && v["now"].as_str().unwrap().ends_with('Z'));
    assert!(
        v["batching"]["socket_writes"]["batches"].as_u64().unwrap() > 0,
        "{v}"
    );
    let c = json("/connz?subs=1");
    let ann = c["connections"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == "ann")
        .unwrap();
    assert_eq!(
        (ann["out_msgs"].as_u64(), ann["lang"].as_str()),
        (Some(2), Some("go"))
    );
    assert_eq!(ann["subscriptions_list"].as_array().unwrap().len(), 2);
    assert_eq!(
        json("/connz?limit=1&offset=1")["connections"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let listed = |path: &str| json(path)["subscriptions_list"].as_array().cloned();
    assert_eq!(json("/subsz")["num_subscriptions"], 2);
    assert_eq!(listed("/subsz"), None);
    assert_eq!(listed("/subsz?subs=1&acc=%24G").unwrap().len(), 2);
    let matching = listed("/subsz?subs=1&test=b").unwrap();
    assert_eq!(
        (&matching[0]["subject"], &matching[0]["qgroup"]),
        (&"b".into(), &"q".into())
    );
    assert_eq!(json("/subsz?subs=1&acc=other")["total"], 0);
    assert_eq!(get(at, "/subsz?subs=1&test=b.*").0, 400);
    let (_, metrics) = get(at, "/metrics");
    assert!(
        metrics.contains("tidegate_in_messages_total 3\n") && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    assert_eq!(get(at, "/connz?limit=x").0, 400);
    assert_eq!(get(at, "/nothing").0, 404);
    assert_eq!(
        http(
            at,
            "POST /varz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        .0,
        405
    );
    assert_eq!(http(at, "nonsense\r\n\r\n").0, 400);
}

/// Sends requests at `$JS.API.`, and waits for the server's answers.
pub(super) fn ask(client: &mut Raw, requests: &[(String, Value)]) {
    for (what, body) in requests {
        let body = body.to_string();
        let subject = format!("$JS.API.{what}");
        client.send(format!("PUB {subject} r.a {}\r\n{body}\r\n", body.len()));
    }
    for (what, _) in requests {
        client.until("MSG r.a");
        let answer = client.until("}\r\n");
        assert!(!answer.contains("\"error\""), "{what}: {answer}");
    }
}

#[test]
fn publishes_into_streams_are_timed_until_their_acknowledgements() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&format!(
        "jetstream {{ store_dir: {:?} }}",
        directory.path()
    ));
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    let json = |path: &str| -> Value {
        let (status, body) = get(monitor.address(), path);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let mut client = Raw::connect(&server);
    client.done("CONNECT {\"verbose\":false}\r\nSUB r.* 1\r\n");
    let file = ("S", json!({"name": "S", "subjects": ["s"]}));
    let memory = json!({"name": "M", "subjects": ["m"], "storage": "memory"});
    for (name, config) in [file, ("M", memory)] {
        ask(&mut client, &[(format!("STREAM.CREATE.{name}"), config)]);
    }
    let none = json("/varz")["publish_ack_ns"].clone();
    assert_eq!((&none["count"], &none["p50"]), (&0.into(), &Value::Null));
    let mut publish = |subject: &str, len: usize| {
        client.send(format!("PUB {subject} r.p 1\r\nx\r\n").repeat(len));
        for _ in 0..len {
            client.until("\"seq\":");
        }
    };
    publish("s", 100);
    publish("m", 20);
    // A message without a reply subject has no acknowledgement, and so has a message that no stream takes.
    let mut other = Raw::connect(&server);
    other.done("CONNECT {\"verbose\":false}\r\nPUB s 1\r\nx\r\nPUB none r.p 1\r\nx\r\n");
    let times = json("/varz")["publish_ack_ns"].clone();
    assert_eq!(times["count"], 120, "{times}");
    let of = |name: &str| times[name].as_u64().unwrap();
    assert!(0 < of("p50") && of("p50") <= of("p99") && of("p99") <= of("max"));
    let (_, metrics) = get(monitor.address(), "/metrics");
    for line in [
        "tidegate_publish_ack_seconds_count 120\n",
        "tidegate_publish_ack_seconds_bucket{le=\"+Inf\"} 120\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // The overview shows the acknowledgements since an earlier sample, and takes a sample a second.
    let overview = || json("/overview?history=60");
    let begun = std::time::Instant::now();
    overview();
    let seen = loop {
        publish("s", 1);
        let seen = overview();
        if !seen["ack_ns"].is_null() {
            break seen;
        }
        assert!(begun.elapsed() < PATIENCE, "{seen}");
    };
    let now = &seen["ack_ns"];
    assert!(
        now["count"].as_u64() > Some(0) && now["span_ms"].as_u64() > Some(0),
        "{now}"
    );
    assert!(now["p50"].as_u64() <= now["p99"].as_u64(), "{now}");
    let last = |name: &str| seen["history"][name].as_array().unwrap().last().cloned();
    assert!(last("ack_p99_ns").unwrap().is_u64(), "{seen}");
}

#[test]
fn a_page_of_streams_is_the_same_in_any_number_of_parts() {
    let directory = tempfile::tempdir().unwrap();
    let config = format!("jetstream {{ store_dir: {:?} }}", directory.path());
    let server = start(&config);
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    let mut client = Raw::connect(&server);
    client.done("CONNECT {\"verbose\":false}\r\nSUB r.a 1\r\n");
    let names: Vec<String> = (0..150).map(|n| format!("S{n:03}")).collect();
    let made = names.iter().map(|name| {
        let config = json!({"name": name, "subjects": [name], "max_msgs": 1});
        (format!("STREAM.CREATE.{name}"), config)
    });
    ask(&mut client, &made.collect::<Vec<_>>());
    // One stream has more consumers than the loop describes in a part, some of which the log does not keep.
    let consumers: Vec<String> = (0..140).map(|n| format!("c{n:03}")).collect();
    let made = consumers.iter().zip(0..).map(|(name, n)| {
        let mut config = json!({"name": name, "ack_policy": "explicit"});
        match n % 10 {
            0 => config["ack_policy"] = "none".into(),
            _ => config["durable_name"] = name.as_str().into(),
        }
        if n % 10 == 0 {
            config["mem_storage"] = true.into();
            config["max_deliver"] = 1.into();
            config["inactive_threshold"] = 300_000_000_000_u64.into();
        }
        let body = json!({"stream_name": "S010", "config": config, "action": ""});
        (format!("CONSUMER.CREATE.S010.{name}"), body)
    });
    ask(&mut client, &made.collect::<Vec<_>>());
    let page = |path: &str| {
        let (status, body) = get(monitor.address(), path);
        assert_eq!(status, 200, "{body}");
        let all: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (&all["streams"], &all["consumers"]),
            (&150.into(), &140.into())
        );
        let details = &all["account_details"][0]["stream_detail"];
        details.as_array().cloned().unwrap_or_default()
    };
    let named = |details: &[Value]| -> Vec<String> {
        let names = details.iter().map(|d| d["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    assert_eq!(named(&page("/jsz?streams=1")), names);
    for (offset, limit) in [(0, 1), (5, 100), (100, 64), (149, 9), (150, 9), (9, 3)] {
        let path = format!("/jsz?consumers=1&offset={offset}&limit={limit}");
        let details = page(&path);
        let end = names.len().min(offset + limit);
        assert_eq!(named(&details), names[offset.min(150)..end], "{path}");
        for stream in &details {
            assert_eq!(stream["config"]["max_msgs"], 1);
            let listed = stream["consumer_detail"].as_array().unwrap();
            match stream["name"] == "S010" {
                true => assert_eq!(named(listed), consumers),
                false => assert!(listed.is_empty()),
            }
        }
    }
    let got = |path: &str| -> Value {
        let (status, body) = get(monitor.address(), path);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    // Lists in the order of a figure have the number of all that the search finds.
    let sorted = got("/jsz?streams=1&sort=consumers&limit=2");
    let details = &sorted["account_details"][0]["stream_detail"];
    assert_eq!(named(details.as_array().unwrap()), ["S010", "S000"]);
    assert_eq!(sorted["found"], 150);
    let found = got("/jsz?streams=1&sort=name&search=S01&offset=3&limit=70");
    let details = &found["account_details"][0]["stream_detail"];
    assert_eq!(named(details.as_array().unwrap()), names[13..20]);
    assert_eq!(found["found"], 10);
    for path in [
        "/consumerz?",
        "/consumerz?sort=pending&",
        "/consumerz?stream=S010&",
    ] {
        let all = got(&format!("{path}offset=30&limit=100"));
        assert_eq!((&all["total"], &all["offset"]), (&140.into(), &30.into()));
        let listed = all["consumers"].as_array().unwrap();
        assert_eq!(named(listed), consumers[30..130], "{path}");
        assert!(
            listed
                .iter()
                .all(|c| c["stream_name"] == "S010" && c["type"].is_null())
        );
    }
    let found = got("/consumerz?search=c13");
    assert_eq!(
        named(found["consumers"].as_array().unwrap()),
        consumers[130..]
    );
    assert_eq!(got("/consumerz?search=S010&limit=1")["total"], 140);
    assert_eq!(got("/consumerz?stream=S011")["total"], 0);
    let pages = |what: &str, offset: usize| {
        let mut client = Raw::connect(&server);
        client.done("CONNECT {\"verbose\":false}\r\nSUB r.b 1\r\n");
        let body = json!({"offset": offset}).to_string();
        client.send(format!(
            "PUB $JS.API.{what} r.b {}\r\n{body}\r\n",
            body.len()
        ));
        client.until("MSG r.b");
        client.until("\r\n");
        let body = client.until("}\r\n");
        serde_json::from_str::<Value>(body.trim()).unwrap()
    };
    let list = pages("CONSUMER.NAMES.S010", 95);
    assert_eq!((&list["total"], &list["offset"]), (&140.into(), &95.into()));
    assert_eq!(list["consumers"], json!(consumers[95..]));
    let list = pages("CONSUMER.LIST.S010", 139);
    assert_eq!(
        named(list["consumers"].as_array().unwrap()),
        consumers[139..]
    );
    assert_eq!(pages("CONSUMER.LIST.S010", 999)["offset"], 140);
    assert_eq!(pages("STREAM.NAMES", 148)["streams"], json!(names[148..]));
}
