//! A fuzz target for the code that reads the bytes of NATS clients. The target cuts the bytes at any place.
//! The node must keep its invariants, and must answer with the same bytes wherever the target cuts the
//! input.

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_nats::connect::Info;
use tidegate_nats::settings::SessionSettings;
use tidegate_server::Node;
use tidegate_server::config::Settings;

const ANY: Load = Load::new(u64::MAX, u64::MAX);

/// Returns the bytes that the node sends to two clients if the first client sends `input`, cut after every
/// `piece` bytes.
fn talk(input: &[u8], piece: usize) -> [Vec<u8>; 2] {
    let settings = Settings {
        sessions: SessionSettings {
            max_payload: 1024,
            max_control_line: 128,
            ..SessionSettings::default()
        },
        max_pending: 1 << 20,
        ..Settings::default()
    };
    let mut node = Node::new(settings, Info::default(), 1);
    let now = Time::from_nanos(1);
    let address = "127.0.0.1:1".parse().expect("an address");
    let keys = [0, 1].map(|_| node.handle_accepted(now, address, false, false));
    node.handle_received(
        now,
        keys[1],
        b"CONNECT {\"verbose\":false}\r\nSUB > 1\r\nSUB a q 2\r\n",
        ANY,
    );
    let mut sent = [Vec::new(), Vec::new()];
    let mut held = Vec::new();
    for part in input.chunks(piece.max(1)) {
        held.extend_from_slice(part);
        // The node stops after a bounded amount of work, so that its driver can look at the time. The target
        // then calls the node again.
        let mut more = true;
        while more && node.contains(keys[0]) {
            let received = node.handle_received(now, keys[0], &held, ANY);
            held.drain(..received.used);
            more = received.full;
        }
        node.check_invariants();
        while let Some(key) = node.poll_dirty() {
            let bytes = node.outbox(key).to_vec();
            node.handle_written(now, key, bytes.len());
            sent[usize::from(key == keys[1])].extend(bytes);
        }
    }
    sent
}

/// Runs the fuzz target on one input: one byte with the length of the pieces, and then the bytes of the
/// client. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let Some((&piece, bytes)) = data.split_first() else {
        return;
    };
    assert_eq!(talk(bytes, usize::from(piece)), talk(bytes, usize::MAX));
}
