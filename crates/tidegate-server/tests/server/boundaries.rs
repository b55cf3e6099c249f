//! Tests the answer to `/boundaries` over HTTP, as the dashboard and `tidegate top` read it.

use std::thread::scope;

use serde_json::Value;
use tidegate_server::Monitor;

use super::monitor::get;
use super::raw::Raw;
use super::start;

fn boundaries(monitor: &Monitor, query: &str) -> Value {
    let (status, body) = get(monitor.address(), &format!("/boundaries{query}"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn a_server_with_streams_shows_its_boundaries() {
    let directory = tempfile::tempdir().unwrap();
    let config = format!("jetstream {{ store_dir: {:?} }}", directory.path());
    let server = start(&config);
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    let mut client = Raw::connect(&server);
    client.done("CONNECT {\"verbose\":false}\r\nSUB r 1\r\n");
    let body = "{\"name\":\"S\",\"subjects\":[\"s\"]}";
    client.send(format!(
        "PUB $JS.API.STREAM.CREATE.S r {}\r\n{body}\r\n",
        body.len()
    ));
    client.until("MSG r");
    client.send("PUB s r 1\r\nx\r\n");
    client.until("\"seq\":1");
    let all = boundaries(&monitor, "?history=600");
    let list = all["boundaries"].as_array().unwrap();
    let names: Vec<&str> = list.iter().map(|b| b["name"].as_str().unwrap()).collect();
    let wanted = ["log_syncs", "entries", "socket_writes", "flow_acks"];
    assert_eq!(names, wanted);
    assert!(all["now"].as_str().unwrap().ends_with('Z'));
    assert!(all["uptime_ms"].is_u64() && all["sample_ms"] == 1000);
    for one in list {
        for number in [
            "limit",
            "in_flight",
            "running",
            "batches",
            "items",
            "bytes",
            "items_max",
            "waits",
            "waits_vain",
            "regret_ns",
            "resets",
            "clipped",
            "infeasible_ns",
        ] {
            assert!(one[number].is_u64(), "{number} of {one}");
        }
        let reasons = one["by_reason"].as_object().unwrap();
        let batches: u64 = reasons.values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(one["batches"], batches);
        assert!(one["infeasible"].is_boolean() && one["frozen"].is_boolean());
        for null in ["reason", "rate_per_s", "model", "counterfactual"] {
            assert!(one.get(null).is_some(), "{null} of {one}");
        }
        let len = one["history"]["uptime_ms"].as_array().unwrap().len();
        for list in [
            "limit",
            "in_flight",
            "items",
            "batches",
            "regret_ns",
            "span_ms",
        ] {
            assert_eq!(one["history"][list].as_array().unwrap().len(), len);
        }
    }
    assert_eq!(
        (&list[0]["unit"], &list[0]["size_unit"]),
        (&"commands".into(), &"bytes".into())
    );
    assert_eq!(list[2]["unit"], "messages");
    assert!(list[0]["items"].as_u64() > Some(0), "{all}");
    assert!(list[0]["sizes"][0]["cost_ns"].as_f64() > Some(0.0), "{all}");
    let without = boundaries(&monitor, "");
    assert!(without["boundaries"][0].get("history").is_none());
}

#[test]
fn a_server_without_streams_has_one_boundary_and_refuses_wrong_histories() {
    let server = start("");
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    let all = boundaries(&monitor, "");
    assert_eq!(all["boundaries"].as_array().unwrap().len(), 1);
    for wrong in ["0", "601", "x", ""] {
        let (status, body) = get(monitor.address(), &format!("/boundaries?history={wrong}"));
        assert_eq!((status, body.contains("1 to 600")), (400, true), "{body}");
    }
}

/// Requests that come together share one sample, so the history does not grow by the number of readers.
#[test]
fn readers_share_the_samples() {
    let server = start("");
    let monitor = Monitor::start("127.0.0.1", 0, server.handle.clone()).unwrap();
    scope(|s| {
        for _ in 0..16 {
            s.spawn(|| boundaries(&monitor, ""));
        }
    });
    let all = boundaries(&monitor, "?history=600");
    let seen = all["boundaries"][0]["history"]["span_ms"]
        .as_array()
        .unwrap();
    let all_spaced = seen.iter().all(|span| span.as_u64().unwrap() >= 999);
    assert!(all_spaced, "{all}");
}
