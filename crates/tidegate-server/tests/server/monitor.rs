//! The monitor over HTTP, as a scraper reads it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
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

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    http(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    )
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
    assert_eq!(get(monitor.address(), "/connz?state=asleep").0, 400);
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
