//! Tests of a server with a full disk: it must refuse new messages, still serve the stored messages, and use
//! freed space.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::raw::{PATIENCE, Raw};
use super::server::{Server, other};

/// A file system in memory, as the server's disk. The test removes it at its end.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(mib: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={mib}m"),
            "tidegate-test",
        ]);
        let done = mount.arg(directory.path()).output();
        done.is_ok_and(|output| output.status.success())
            .then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // With a lazy unmount, a process that still has a file open keeps the file system until it closes the
        // file.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Fills the rest of the disk with a file, which the test later removes.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let block = vec![0; 1 << 16];
    while file.write_all(&block).is_ok() {}
}

/// Returns the bytes that the files in a directory take on the disk.
fn disk_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(of) if of.is_dir() => disk_bytes(&entry.path()),
        Ok(of) => of.blocks() * 512,
        // The server has removed the file meanwhile.
        Err(_) => 0,
    });
    bytes.sum()
}

#[test]
fn an_empty_server_takes_little_of_the_disk() {
    if other().is_some() {
        println!("this is a promise of ours, so it is not asked of nats-server");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start_in(&data, "");
    let taken = disk_bytes(&data);
    assert!(taken < 5_000_000, "an empty server takes {taken} bytes");
    server.good(&["stream", "add", "S", "--subjects", "s", "--storage", "file"]);
    let mut raw = Raw::connect(&server.url).unwrap();
    raw.publish("s", "ack", b"one").unwrap();
    raw.message().unwrap();
    let taken = disk_bytes(&data);
    assert!(taken < 5_000_000, "one message takes {taken} bytes");
    // The reservation must keep ahead of a client that publishes without a pause.
    let payload = vec![b'x'; 500_000];
    for seq in 2..300 {
        raw.publish("s", "ack", &payload).unwrap();
        let answer: Value = serde_json::from_slice(&raw.message().unwrap().payload).unwrap();
        assert_eq!(answer["seq"], json!(seq), "{answer}");
    }
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    if other().is_some() {
        println!("nats-server stops JetStream when its disk is full, so this is not asked of it");
        return;
    }
    let Some(disk) = Mounted::new(1024) else {
        tidegate_testing::missing("mounts of tmpfs (root)");
        return;
    };
    let server = Server::start_in(&disk.path().join("data"), "");
    server.good(&["stream", "add", "S", "--subjects", "s", "--storage", "file"]);
    let filler = disk.path().join("filler");
    fill(&filler);
    let mut raw = Raw::connect(&server.url).unwrap();
    let payload = |n: u64| format!("{n} {}", "x".repeat(500_000)).into_bytes();
    let mut stored = 0;
    let start = Instant::now();
    // The server first uses up the space that it has allocated ahead, so the test publishes until a refusal.
    let refusal = loop {
        raw.publish("s", "ack", &payload(stored)).unwrap();
        let answer: Value = serde_json::from_slice(&raw.message().unwrap().payload).unwrap();
        if answer.get("error").is_some() {
            break answer;
        }
        stored += 1;
        assert_eq!(answer["seq"], json!(stored));
        assert!(
            start.elapsed() < PATIENCE,
            "the disk is full, and {stored} messages are stored"
        );
    };
    assert_eq!(refusal["error"]["err_code"], json!(10047), "{refusal}");
    let read = |server: &Server| {
        let (code, out, err) = server.tidegate(&["consume", "S", "--until-end"]);
        assert_eq!(code, Some(0), "{err}");
        out
    };
    let line = |n: u64| [payload(n), b"\n".to_vec()].concat();
    let all: Vec<u8> = (0..stored).flat_map(line).collect();
    assert!(read(&server) == all, "what is there cannot be read");
    std::fs::remove_file(&filler).unwrap();
    let start = Instant::now();
    loop {
        raw.publish("s", "ack", &payload(stored)).unwrap();
        let answer: Value = serde_json::from_slice(&raw.message().unwrap().payload).unwrap();
        if answer.get("error").is_none() {
            break;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "there is space again, and still {answer}"
        );
    }
    // The server must find the same messages after a restart.
    let server = server.restart();
    let all: Vec<u8> = (0..=stored).flat_map(line).collect();
    assert!(
        read(&server) == all,
        "after the restart something is missing"
    );
}

/// Publishes until the server refuses a message, or until it stores one, as `refused` says. Returns the
/// number of messages stored until then.
fn publish_until(raw: &mut Raw, refused: bool) -> u64 {
    let payload = vec![b'x'; 500_000];
    let start = Instant::now();
    let mut stored = 0;
    loop {
        raw.publish("s", "ack", &payload).unwrap();
        let answer: Value = serde_json::from_slice(&raw.message().unwrap().payload).unwrap();
        let error = answer.get("error");
        stored += u64::from(error.is_none());
        if error.is_some() == refused {
            return stored;
        }
        assert!(start.elapsed() < PATIENCE, "still {answer}");
    }
}

/// Updates the configuration of stream S until the server refuses an update. Entries that are not messages
/// may use the rest of a full disk, except for the reserve.
fn update_until_refused(raw: &mut Raw) {
    let mut config = raw.api("STREAM.INFO.S", &json!({}))["config"].clone();
    let mut updates = 0;
    let refusal = loop {
        config["metadata"] = json!({ "pad": format!("{updates} {}", "x".repeat(100_000)) });
        let answer = raw.api("STREAM.UPDATE.S", &config);
        if answer.get("error").is_some() {
            break answer;
        }
        updates += 1;
        assert!(updates < 2000, "the disk is full, and nothing says so");
    };
    assert_eq!(refusal["error"]["err_code"], json!(10047), "{refusal}");
}

/// Tests a disk that is also too full for updates of a stream's configuration: a purge must still work, and
/// free the space that publishing needs.
#[test]
fn a_full_disk_can_be_purged() {
    if other().is_some() {
        println!("nats-server stops JetStream when its disk is full, so this is not asked of it");
        return;
    }
    let Some(disk) = Mounted::new(320) else {
        tidegate_testing::missing("mounts of tmpfs (root)");
        return;
    };
    let server = Server::start_in(&disk.path().join("data"), "");
    server.good(&["stream", "add", "S", "--subjects", "s", "--storage", "file"]);
    let mut raw = Raw::connect(&server.url).unwrap();
    let stored = publish_until(&mut raw, true);
    assert!(stored > 100, "only {stored} messages on a disk of 320 MiB");
    fill(&disk.path().join("filler"));
    update_until_refused(&mut raw);
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    let purged = raw.api("STREAM.PURGE.S", &json!({}));
    assert_eq!(purged["purged"], json!(stored), "{purged}");
    publish_until(&mut raw, false);
    let again = publish_until(&mut raw, true);
    assert!(again > 50, "{again} messages after {stored} were purged");
}

/// Tests a work queue on a full disk: receivers must be able to empty the queue, and that must free the space
/// that publishing needs.
#[test]
fn receivers_empty_a_work_queue_on_a_full_disk() {
    if other().is_some() {
        println!("nats-server stops JetStream when its disk is full, so this is not asked of it");
        return;
    }
    let Some(disk) = Mounted::new(320) else {
        tidegate_testing::missing("mounts of tmpfs (root)");
        return;
    };
    let server = Server::start_in(&disk.path().join("data"), "");
    let mut raw = Raw::connect(&server.url).unwrap();
    let config = json!({"name": "S", "subjects": ["s"], "retention": "workqueue"});
    assert!(raw.api("STREAM.CREATE.S", &config).get("error").is_none());
    let config = json!({"durable_name": "C", "ack_policy": "explicit"});
    let body = json!({"stream_name": "S", "config": config});
    let made = raw.api("CONSUMER.CREATE.S.C", &body);
    assert!(made.get("error").is_none(), "{made}");
    let stored = publish_until(&mut raw, true);
    fill(&disk.path().join("filler"));
    update_until_refused(&mut raw);
    for seq in 1..=stored {
        let next = "$JS.API.CONSUMER.MSG.NEXT.S.C";
        raw.publish(next, "pull", br#"{"batch":1}"#).unwrap();
        let message = raw.message().unwrap();
        let reply = message.reply.as_deref().unwrap();
        assert_eq!(reply.split('.').nth(5), Some(&*seq.to_string()));
        // The answer to the acknowledgement comes once the delta is durable.
        raw.publish(reply, "acked", b"+ACK").unwrap();
        assert!(raw.message().unwrap().payload.is_empty());
    }
    let info = raw.api("STREAM.INFO.S", &json!({}));
    assert_eq!(info["state"]["messages"], json!(0), "{info}");
    // The log frees its segments one after the other.
    let again: u64 = (0..50).map(|_| publish_until(&mut raw, false)).sum();
    assert_eq!(again, 50);
}

/// Publishes a message, and returns the server's answer.
fn publish_to(raw: &mut Raw, subject: &str, payload: &[u8]) -> Value {
    raw.publish(subject, "ack", payload).unwrap();
    serde_json::from_slice(&raw.message().unwrap().payload).unwrap()
}

/// Publishes a message again and again until the server stores it. Returns the number of refusals.
fn publish_patiently(raw: &mut Raw, subject: &str, payload: &[u8]) -> u64 {
    let start = Instant::now();
    let mut refused = 0;
    loop {
        let answer = publish_to(raw, subject, payload);
        if answer.get("error").is_none() {
            return refused;
        }
        assert_eq!(answer["error"]["err_code"], json!(10047), "{answer}");
        assert!(start.elapsed() < PATIENCE, "no room again: {answer}");
        refused += 1;
    }
}

fn create(raw: &mut Raw, config: &Value) {
    let name = config["name"].as_str().unwrap();
    let made = raw.api(&format!("STREAM.CREATE.{name}"), config);
    assert!(made.get("error").is_none(), "{made}");
}

fn messages(raw: &mut Raw, stream: &str) -> Value {
    raw.api(&format!("STREAM.INFO.{stream}"), &json!({}))["state"]["messages"].clone()
}

/// Tests a bound on the bytes of the streams that is shorter than a file of the log: the file is never full,
/// because the server refuses messages before. Removed messages must make room nevertheless.
#[test]
fn max_file_store_below_a_file_of_the_log_makes_room_again() {
    if other().is_some() {
        println!("nats-server counts the bytes of the messages alone, so this is not asked of it");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (data, config) = (
        directory.path().join("data"),
        "jetstream { max_file_store: 60MB }",
    );
    let mut server = Server::start_in(&data, config);
    let mut raw = Raw::connect(&server.url).unwrap();
    create(&mut raw, &json!({"name": "A", "subjects": ["a"]}));
    create(&mut raw, &json!({"name": "B", "subjects": ["b"]}));
    let payload = vec![b'x'; 250_000];
    let mut round = |remove: &dyn Fn(&mut Raw) -> Value| {
        let mut stored = 0;
        while publish_to(&mut raw, "a", &payload).get("error").is_none() {
            publish_patiently(&mut raw, "b", &payload);
            stored += 1;
            assert!(
                stored < 500,
                "no refusal after {stored} messages of each stream"
            );
        }
        let removed = remove(&mut raw);
        assert!(removed.get("error").is_none(), "{removed}");
        for _ in 0..4 {
            publish_patiently(&mut raw, "b", &payload);
        }
        stored
    };
    let purge_a = |raw: &mut Raw| raw.api("STREAM.PURGE.A", &json!({}));
    assert!(round(&purge_a) > 80);
    let fewer_b = |raw: &mut Raw| {
        let mut config = raw.api("STREAM.INFO.B", &json!({}))["config"].clone();
        config["max_msgs"] = json!(10);
        raw.api("STREAM.UPDATE.B", &config)
    };
    assert!(round(&fewer_b) > 30);
    let again = |raw: &mut Raw| {
        raw.api("STREAM.DELETE.A", &json!({}));
        raw.api("STREAM.CREATE.A", &json!({"name": "A", "subjects": ["a"]}))
    };
    assert!(round(&again) > 30);
    assert!(round(&purge_a) > 30);
    assert_eq!(messages(&mut raw, "B"), json!(10));
    server.kill();
    let server = Server::start_in(&data, config);
    let mut raw = Raw::connect(&server.url).unwrap();
    assert_eq!(messages(&mut raw, "A"), json!(0));
    assert_eq!(messages(&mut raw, "B"), json!(10));
    publish_patiently(&mut raw, "a", &payload);
}

/// Tests a bound on the bytes of the streams with messages that replace others all the time, between few that
/// stay: the server writes several times the bound, and keeps little of it.
#[test]
fn max_file_store_makes_room_for_messages_that_replace_others() {
    if other().is_some() {
        println!("nats-server counts the bytes of the messages alone, so this is not asked of it");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (data, config) = (
        directory.path().join("data"),
        "jetstream { max_file_store: 300MB }",
    );
    let mut server = Server::start_in(&data, config);
    let mut raw = Raw::connect(&server.url).unwrap();
    create(&mut raw, &json!({"name": "K", "subjects": ["k"]}));
    let replacing = json!({"name": "S", "subjects": ["s.*"], "max_msgs_per_subject": 1});
    create(&mut raw, &replacing);
    let payload = vec![b'x'; 500_000];
    let mut refused = 0;
    for n in 0..2000 {
        refused += publish_patiently(&mut raw, &format!("s.{}", n % 7), &payload);
        if n % 20 == 0 {
            refused += publish_patiently(&mut raw, "k", &payload[..10_000]);
        }
    }
    println!("{refused} refusals");
    assert_eq!(messages(&mut raw, "K"), json!(100));
    server.kill();
    let server = Server::start_in(&data, config);
    let mut raw = Raw::connect(&server.url).unwrap();
    assert_eq!(messages(&mut raw, "K"), json!(100));
    assert_eq!(messages(&mut raw, "S"), json!(7));
}
