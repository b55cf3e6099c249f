//! Tests of a message that the disk of a single server damages and no client reads: the server must find the
//! damage, report it, and serve the other messages.

use std::time::{Duration, Instant};

use serde_json::json;

use super::flip::flip;
use super::raw::{PATIENCE, Raw};
use super::server::{Server, other};

/// The number of messages of 64 KiB. Together they have more bytes than the server keeps of its last writes
/// in memory, so that reads reach the disk.
const MESSAGES: u64 = 1000;

#[test]
fn messages_that_go_bad_on_the_disk_are_found_by_the_scrub_and_others_are_served() {
    if other().is_some() {
        println!("nats-server does not read again what it has, so this is not asked of it");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let flags = r#"exec "$0" "$@" --segment-bytes 8MiB --scrub-period 300ms"#;
    let server = Server::start_under(&data, &["sh", "-c", flags]);
    let mut raw = Raw::connect(&server.url).unwrap();
    raw.api("STREAM.CREATE.S", &json!({"name": "S", "subjects": ["s"]}));
    for n in 1..=MESSAGES {
        let mut payload = format!("{n}-").into_bytes();
        payload.resize(64 << 10, b'x');
        raw.publish("s", &n.to_string(), &payload).unwrap();
        assert_eq!(raw.message().unwrap().json()["seq"], json!(n));
    }
    flip(&data, 0, 1 << 20);
    let start = Instant::now();
    while !server.log().contains("are lost, such as") {
        assert!(start.elapsed() < PATIENCE, "{}", server.log());
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let lost: Vec<u64> = (1..=MESSAGES)
        .filter(|n| {
            let answer = raw.api("STREAM.MSG.GET.S", &json!({"seq": n}));
            answer.get("error").is_some()
        })
        .collect();
    assert_eq!(lost.len(), 1, "{lost:?}\n{}", server.log());
    let said = format!("such as message {} of stream S", lost[0]);
    assert!(server.log().contains(&said), "{}", server.log());
    // The damage makes the server write a checkpoint, because a start reads the log from the newest
    // checkpoint on and must not meet the damage.
    let has_checkpoint = || {
        let mut files = std::fs::read_dir(data.join("tidegate")).unwrap();
        files.any(|f| {
            f.unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("state-0")
        })
    };
    while !has_checkpoint() {
        assert!(start.elapsed() < 2 * PATIENCE, "{}", server.log());
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    let answer = raw.api("STREAM.MSG.GET.S", &json!({"seq": MESSAGES}));
    assert!(answer.get("error").is_none(), "{answer}");
}
