//! Tests the dashboard over HTTP: its files and headers, the checks of a browser's request, and the overview.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_server::{Monitor, MonitorOptions};

use super::raw::{PATIENCE, Raw};
use super::{Running, start};

struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

/// Sends a GET request with these headers, and reads the answer.
fn ask(monitor: &Monitor, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", monitor.address().port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    stream.write_all((request + "\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let headers = head.lines().skip(1).map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    });
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        headers: headers.collect(),
        body: body.to_owned(),
    }
}

fn monitor(server: &Running, options: MonitorOptions) -> Monitor {
    Monitor::start_with(&options, server.handle.clone()).unwrap()
}

fn local() -> MonitorOptions {
    MonitorOptions {
        host: "127.0.0.1".into(),
        ..MonitorOptions::default()
    }
}

const LOCAL: (&str, &str) = ("Host", "127.0.0.1:8222");
const BROWSER: (&str, &str) = ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)");
const REBOUND: (&str, &str) = ("Host", "evil.example:8222");

#[test]
fn the_page_and_its_files_have_strict_headers() {
    let server = start("");
    let base = "/one".to_owned();
    let monitor = monitor(&server, MonitorOptions { base, ..local() });
    assert!(monitor.shows_dashboard());
    for (path, kind) in [
        ("/one/dashboard", "text/html"),
        ("/one/dashboard/app.js", "text/javascript"),
        ("/one/dashboard/app.css", "text/css"),
        ("/one/dashboard/icon.svg", "image/svg+xml"),
    ] {
        let answer = ask(&monitor, path, &[LOCAL, BROWSER]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let of = |name: &str| answer.headers.get(name).map_or("", String::as_str);
        assert!(of("content-type").starts_with(kind), "{path}");
        assert_eq!(of("x-content-type-options"), "nosniff");
        assert_eq!(of("referrer-policy"), "no-referrer");
        assert_eq!(of("cross-origin-resource-policy"), "same-origin");
        let policy = of("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
    }
    assert_eq!(ask(&monitor, "/one/dashboard/x", &[LOCAL]).status, 404);
    assert_eq!(ask(&monitor, "/dashboard", &[LOCAL]).status, 404);
}

#[test]
fn a_browser_at_the_root_gets_the_page_and_a_program_the_index() {
    let server = start("");
    let base = "/one".to_owned();
    let on = monitor(&server, MonitorOptions { base, ..local() });
    let html = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    for root in ["/one", "/one/"] {
        let answer = ask(&on, root, &[LOCAL, html]);
        assert_eq!(
            (answer.status, &*answer.headers["location"]),
            (302, "/one/dashboard")
        );
        let index = ask(&on, root, &[LOCAL, ("Accept", "*/*")]);
        assert!(
            index.status == 200 && index.body.contains("/varz"),
            "{}",
            index.body
        );
    }
    let off = MonitorOptions {
        dashboard: Some(false),
        ..local()
    };
    let off = monitor(&server, off);
    let index = ask(&off, "/", &[LOCAL, html]);
    assert!(
        index.status == 200 && index.body.contains("/varz"),
        "{}",
        index.body
    );
}

#[test]
fn other_hosts_and_origins_are_refused() {
    let server = start("");
    let names = vec!["monitor.example".to_owned()];
    let named = MonitorOptions {
        dashboard_hosts: names,
        ..local()
    };
    let monitor = monitor(&server, named);
    let status = |path: &str, headers: &[(&str, &str)]| ask(&monitor, path, headers).status;
    let foreign = ("Origin", "http://evil.example");
    for path in ["/dashboard", "/dashboard/app.js"] {
        assert_eq!(status(path, &[LOCAL]), 200);
        assert_eq!(status(path, &[("Host", "monitor.example")]), 200);
        assert_eq!(status(path, &[REBOUND]), 403);
        assert_eq!(status(path, &[LOCAL, foreign]), 403);
        assert_eq!(status(path, &[LOCAL, ("Origin", "null")]), 403);
    }
    for path in [
        "/varz",
        "/connz",
        "/boundaries",
        "/overview",
        "/metrics",
        "/",
    ] {
        // A program that collects figures may use any name; a browser on this machine may not.
        assert_eq!(status(path, &[REBOUND]), 200, "{path}");
        assert_eq!(status(path, &[REBOUND, BROWSER]), 403, "{path}");
        assert_eq!(status(path, &[LOCAL, BROWSER]), 200, "{path}");
        assert_eq!(
            status(path, &[("Host", "monitor.example"), BROWSER]),
            200,
            "{path}"
        );
        assert_eq!(status(path, &[LOCAL, foreign]), 403, "{path}");
        assert_eq!(
            status(
                path,
                &[REBOUND, ("Origin", "http://evil.example:8222"), BROWSER]
            ),
            403
        );
        let twice = [LOCAL, ("Origin", "http://127.0.0.1:8222"), foreign];
        assert_eq!(status(path, &twice), 403, "{path}");
    }
    let own = ("Origin", "http://127.0.0.1:8222");
    assert_eq!(status("/boundaries", &[LOCAL, own, BROWSER]), 200);
}

#[test]
fn beyond_this_machine_the_dashboard_is_off_unless_it_is_set() {
    let server = start("");
    let open = || MonitorOptions {
        host: "0.0.0.0".into(),
        ..MonitorOptions::default()
    };
    let off = monitor(&server, open());
    assert!(!off.shows_dashboard());
    let answer = ask(&off, "/dashboard", &[LOCAL]);
    assert!(
        answer.status == 403 && answer.body.contains("--dashboard"),
        "{}",
        answer.body
    );
    assert_eq!(
        ask(&off, "/varz", &[("Host", "node.example"), BROWSER]).status,
        200
    );
    let on = MonitorOptions {
        dashboard: Some(true),
        ..open()
    };
    let on = monitor(&server, on);
    assert_eq!(ask(&on, "/dashboard", &[LOCAL]).status, 200);
    assert_eq!(
        ask(&on, "/dashboard", &[("Host", "node.example")]).status,
        403
    );
}

#[test]
fn the_overview_has_figures_and_a_history() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&format!(
        "jetstream {{ store_dir: {:?} }}",
        directory.path()
    ));
    let monitor = monitor(&server, local());
    let mut client = Raw::connect(&server);
    client.done("CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPUB a 2\r\nhi\r\n");
    let answer = ask(&monitor, "/overview?history=600", &[LOCAL]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let o: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(
        (&o["connections"], &o["in_msgs"], &o["out_bytes"]),
        (&1.into(), &1.into(), &2.into())
    );
    assert!(
        o["disk"]["total_bytes"].as_u64() > o["disk"]["free_bytes"].as_u64(),
        "{o}"
    );
    assert_eq!(
        (&o["disk"]["full_in_s"], &o["ack_ns"], &o["cluster"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(o["streams"]["streams"], 0);
    assert_eq!(o["alarms"], json!([]));
    let history = o["history"].as_object().unwrap();
    let len = history["uptime_ms"].as_array().unwrap().len();
    let nested = ["threads", "lag"];
    for (name, list) in history
        .iter()
        .filter(|(name, _)| !nested.contains(&name.as_str()))
    {
        assert_eq!(list.as_array().unwrap().len(), len, "{name}");
    }
    assert!(history["threads"].is_object());
    assert_eq!(ask(&monitor, "/overview?history=x", &[LOCAL]).status, 400);
}

#[test]
fn lists_are_searched_and_sorted() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&format!(
        "jetstream {{ store_dir: {:?} }}",
        directory.path()
    ));
    let monitor = monitor(&server, local());
    let mut ann = Raw::connect(&server);
    ann.done("CONNECT {\"verbose\":false,\"name\":\"ann\"}\r\nSUB r 1\r\n");
    let mut bob = Raw::connect(&server);
    bob.done("CONNECT {\"verbose\":false,\"name\":\"bob\"}\r\nPUB a 1\r\nx\r\nPUB a 1\r\nx\r\nPUB a 1\r\nx\r\n");
    for name in ["ORDERS", "OFFERS", "EVENTS"] {
        let config = json!({"name": name, "subjects": [name]}).to_string();
        let len = config.len();
        ann.send(format!(
            "PUB $JS.API.STREAM.CREATE.{name} r {len}\r\n{config}\r\n"
        ));
        ann.until("\"did_create\":true");
    }
    let get = |path: &str| -> Value {
        let answer = ask(&monitor, path, &[LOCAL]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    };
    let streams = |path: &str| -> Vec<String> {
        let all = get(path);
        let list = all["account_details"][0]["stream_detail"].as_array();
        let names = list
            .into_iter()
            .flatten()
            .map(|s| s["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    assert_eq!(streams("/jsz?streams=1&search=ERS"), ["OFFERS", "ORDERS"]);
    assert_eq!(streams("/jsz?streams=1&search=ERS&offset=1"), ["ORDERS"]);
    assert_eq!(streams("/jsz?streams=1&search=ERS&limit=1"), ["OFFERS"]);
    assert!(streams("/jsz?streams=1&search=nothing").is_empty());
    assert!(streams("/jsz?consumers=1&search=ORDERS").len() == 1);
    let names = |path: &str| -> Vec<String> {
        let list = get(path)["connections"].as_array().unwrap().clone();
        list.iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("/connz?sort=cid"), ["ann", "bob"]);
    assert_eq!(names("/connz?sort=subs"), ["ann", "bob"]);
    assert_eq!(names("/connz?search=bo"), ["bob"]);
    let last = names("/connz?sort=bytes_from&limit=1");
    assert_eq!(
        last,
        ["ann"],
        "the stream requests are larger than bob's messages"
    );
    assert_eq!(ask(&monitor, "/connz?sort=name", &[LOCAL]).status, 400);
}
