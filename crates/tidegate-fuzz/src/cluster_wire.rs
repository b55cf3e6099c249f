//! A fuzz target for the code that reads the bytes of another node. The target cuts the bytes at any place.
//! A decoded frame must encode to the same frame. A channel must end with an error or continue, wherever the
//! target cuts the bytes. The channel must accept no frame from a peer that has not proved in the greeting
//! that it knows the secret.

use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::channel::{Channel, Effect};
use tidegate_cluster::members::{Members, MembersFile};
use tidegate_cluster::proof::Secret;
use tidegate_cluster::roster::{Me, Roster};
use tidegate_cluster::wire::{FRAME_BYTES_MAX, Read, read};
use tidegate_nats::outbox::Outbox;

fn roster() -> Roster {
    let me = Me {
        cluster: "tide".into(),
        name: "n1".into(),
        id: 1,
        life: 2,
        streams: false,
        shards: 1,
        client_url: ":4222".into(),
        tags: Vec::new(),
        secret: Secret::new("a secret"),
    };
    Roster::new(me, 1, None)
}

/// Feeds `input` to a channel in pieces of `piece` bytes. Returns the number of bytes that the channel has
/// used, whether it has failed, and its output, so that the target can compare two ways of cutting.
fn hear(input: &[u8], piece: usize) -> (usize, bool, Vec<u8>) {
    let (now, roster) = (Time::from_nanos(1), roster());
    let mut channel = Channel::answer(now, [7; 32], Duration::from_secs(1), None);
    let (mut used, mut end) = (0, 0);
    while end < input.len() {
        end = (end + piece.max(1)).min(input.len());
        loop {
            match channel.next(now, &input[used..end], &roster) {
                Ok((Effect::Need(need), 0)) => {
                    assert!(need > end - used);
                    break;
                }
                Ok((Effect::Open(_) | Effect::Frame(_), _)) => panic!("the secret was not proved"),
                Ok((_, n)) => used += n,
                Err(_) => return (used, true, channel.out.to_vec()),
            }
        }
    }
    (used, false, channel.out.to_vec())
}

/// Runs the fuzz target on one input: one byte with the length of the pieces, and then the bytes of the peer.
/// Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let Some((&piece, bytes)) = data.split_first() else {
        return;
    };
    if let Ok(Read::Frame(frame, used)) = read(bytes, FRAME_BYTES_MAX) {
        assert!(used <= bytes.len());
        let mut out = Outbox::default();
        frame.write(&mut out);
        let again = out.to_vec();
        assert_eq!(
            read(&again, FRAME_BYTES_MAX),
            Ok(Read::Frame(frame, again.len()))
        );
    }
    if let Some(members) = Members::decode(bytes) {
        let mut again = Vec::new();
        members.encode(&mut again);
        assert_eq!(Members::decode(&again), Some(members));
    }
    if let Ok(file) = MembersFile::decode(bytes) {
        assert_eq!(MembersFile::decode(file.encode().as_bytes()), Ok(file));
    }
    let whole = hear(bytes, usize::MAX);
    let pieces = hear(bytes, usize::from(piece));
    assert_eq!(whole, pieces, "where bytes are cut changes nothing");
}
