//! Tests streams that clients restore, in a group of all nodes and in a group of one node.

use serde_json::{Value, json};
use tidegate_stream::backup::{Summary, Writer};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::StreamState;

use super::world::World;
use super::{config, error};

/// Writes a backup of five messages, with sequences from 3 to 9 with gaps.
fn backup() -> Vec<u8> {
    let mut writer = Writer::default();
    let state = StreamState {
        messages: 5,
        bytes: 1000,
        first_seq: StreamSeq::new(3),
        last_seq: StreamSeq::new(9),
        last_time_us: 5_000_000,
        ..StreamState::default()
    };
    let summary = Summary {
        state,
        created_us: 4_000_000,
        consumers: 0,
    };
    writer.begin(5_000_000, &summary);
    for seq in [3, 4, 6, 7, 9] {
        let payload = vec![b'x'; 40_000];
        writer.message(StreamSeq::new(seq), 4_000_000 + seq, b"s.a", b"", &payload);
    }
    writer.end();
    writer.take(usize::MAX)
}

impl World {
    /// Asks the leader to restore the stream `S`, and returns the subject at which the leader takes chunks.
    fn begin(&mut self, node: usize, replicas: usize) -> String {
        let body = json!({"config": config("S", replicas), "state": {}});
        let answer = self.ask(node, "STREAM.RESTORE.S", &body);
        let to = answer["deliver_subject"].as_str();
        to.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Sends a chunk of the backup, and returns the text that the client gets as answer.
    fn chunk(&mut self, node: usize, to: &str, chunk: &[u8]) -> String {
        let mut bytes = format!("PUB {to} r.{node}.c {}\r\n", chunk.len()).into_bytes();
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
        self.say(node, bytes);
        for _ in 0..30 {
            self.turn();
        }
        self.heard(node)
    }

    fn code(&mut self, node: usize) -> Value {
        let info = self.ask(node, "STREAM.INFO.S", &Value::Null);
        error(&info)
    }
}

#[test]
fn a_stream_is_restored_on_one_node_and_on_all() {
    for replicas in [1, 3] {
        for node in 0..3 {
            let mut w = World::of(3);
            let to = w.begin(node, replicas);
            let backup = backup();
            let (a, b) = backup.split_at(backup.len() / 2);
            assert!(w.chunk(node, &to, a).contains("r."), "confirmed");
            // While the restoration runs, no client sees the stream, and no client can create another stream
            // of its name.
            assert_eq!(w.code((node + 1) % 3), 10059);
            let names = w.ask(node, "STREAM.NAMES", &Value::Null);
            assert_eq!(names["total"], 0, "{names}");
            let made = w.create(node, "S", replicas);
            assert_eq!(error(&made), 10058, "{made}");
            let body = json!({"config": config("S", replicas)});
            let again = w.ask(node, "STREAM.RESTORE.S", &body);
            assert_eq!(error(&again), 10130, "{again}");
            assert!(w.chunk(node, &to, b).contains("r."), "confirmed");
            assert_eq!(w.code(node), 10059);
            let heard = w.chunk(node, &to, b"");
            w.settle();
            let heard = heard + &w.heard(node);
            assert!(heard.contains("stream_create_response"), "{heard}");
            assert!(heard.contains("\"first_seq\":3"), "{heard}");
            for node in 0..3 {
                let info = w.ask(node, "STREAM.INFO.S", &Value::Null);
                assert_eq!(info["state"]["messages"], 5, "{info}");
                assert_eq!(info["state"]["last_seq"], 9, "{info}");
                assert_eq!(info["state"]["num_deleted"], 2, "{info}");
                assert_eq!(info["created"], "1970-01-01T00:00:04Z", "{info}");
            }
            w.publish(node, "s.x", "r.p", "hello");
            w.settle();
            let heard = w.heard(node);
            assert!(heard.contains("\"seq\":10"), "{heard}");
        }
    }
}

#[test]
fn a_failed_restoration_leaves_nothing() {
    for replicas in [1, 3] {
        // The client sends a damaged backup, so the leader gives the restoration up.
        let mut w = World::of(3);
        let to = w.begin(0, replicas);
        let mut damaged = backup();
        // The test damages the checksum of the backup's first chunk.
        damaged[15] ^= 1;
        let heard = w.chunk(0, &to, &damaged);
        w.settle();
        let heard = heard + &w.heard(0);
        assert!(heard.contains("10062"), "{heard}");
        assert_eq!(error(&w.create(0, "S", replicas)), Value::Null);
        // The client sends a backup that ends early, so the leader gives the restoration up.
        let mut w = World::of(3);
        let to = w.begin(0, replicas);
        let backup = backup();
        w.chunk(0, &to, &backup[..backup.len() - 20]);
        let heard = w.chunk(0, &to, b"");
        w.settle();
        let heard = heard + &w.heard(0);
        assert!(heard.contains("10062") && heard.contains("cut"), "{heard}");
        assert_eq!(error(&w.create(0, "S", replicas)), Value::Null);
        // The client goes before it has sent the end, so the leader gives the restoration up after a time.
        let mut w = World::of(3);
        let to = w.begin(0, replicas);
        w.chunk(0, &to, &backup);
        for _ in 0..7 {
            w.settle();
        }
        let heard = w.chunk(0, &to, b"");
        assert!(heard.contains("10062"), "{heard}");
        assert_eq!(error(&w.create(0, "S", replicas)), Value::Null);
    }
}

#[test]
fn a_new_leader_deletes_a_stream_in_restoration() {
    let mut w = World::of(3);
    let to = w.begin(0, 3);
    let backup = backup();
    w.chunk(0, &to, &backup[..backup.len() / 2]);
    let group = tidegate_cluster::groups::ALL;
    w.follow(group);
    w.lead(group, 1);
    w.settle();
    let heard = w.chunk(0, &to, &backup[backup.len() / 2..]);
    assert!(heard.contains("10062"), "{heard}");
    for _ in 0..7 {
        w.settle();
    }
    assert_eq!(error(&w.create(0, "S", 3)), Value::Null);

    // The same node leads again, as after a restart, and has lost the reader's state.
    let mut w = World::of(3);
    let to = w.begin(0, 1);
    w.chunk(0, &to, &backup[..backup.len() / 2]);
    let group = w.group_of("S");
    let owner = w.leaders[&group];
    w.follow(group);
    w.lead(group, owner);
    for _ in 0..7 {
        w.settle();
    }
    assert_eq!(w.code(0), 10059);
    assert_eq!(error(&w.create(0, "S", 1)), Value::Null);
    assert_eq!(w.messages(owner, "S").unwrap_or(0), 0);
}
