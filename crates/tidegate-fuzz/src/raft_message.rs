//! A fuzz target for the decoder of Raft messages between members. The target gives the decoder any bytes.
//! The decoder must return a message or an error, and a decoded message must encode to the same bytes. No
//! message may end the process of the receiving member.

use bytes::Bytes;
use tidegate_cluster::groups::ALL;
use tidegate_log::Lsn;
use tidegate_raft::replica::{Group, GroupOptions, Restored, wire};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok((group, message)) = wire::decode(&bytes) {
        let again = wire::encode(group, &message).expect("a decoded message");
        assert_eq!(again.concat(), data);
    }
    // The target also hands the input to a member of a group, as a sequence of messages. In front of each
    // message stand its length and a byte that chooses the other steps of the member. The target gives each
    // message a valid checksum, so that the fuzzer gets past the decoder's check.
    let options = GroupOptions {
        group: ALL,
        id: 1,
        voters: vec![1, 2, 3],
        uncommitted_bytes_max: 1 << 20,
        tail_bytes_max: 1 << 10,
        batch_bytes_max: 1 << 10,
        rejoined: None,
        lab: tidegate_raft::lab::Lab::NONE,
    };
    let mut member = Group::open(options, Restored::default());
    let (mut rest, mut end) = (data, 0);
    while let Some((&[len, does], after)) = rest.split_first_chunk() {
        let len = usize::from(len).min(after.len());
        let (message, next) = after.split_at(len);
        rest = next;
        let mut sealed = message.to_vec();
        if let Some(covered) = sealed.get(4..) {
            let crc = crc32c::crc32c(covered);
            sealed[..4].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok((_, message)) = wire::decode(&sealed.into()) {
            let _ = member.step(message);
        }
        (0..does & 31).for_each(|_| member.tick());
        if does & 32 != 0 {
            while let Some(batch) = member.poll_append() {
                let mut positions = Vec::new();
                for record in &batch.records {
                    positions.push(Lsn::new(end));
                    end += record.stored_bytes();
                }
                member.handle_appended(&positions, Lsn::new(end));
            }
        }
        if does & 64 != 0 {
            member.handle_durable(Lsn::new(end));
        }
        if does & 128 != 0 {
            while member.poll_committed().is_some() {}
        }
        while let Some((_, message)) = member.poll_message() {
            wire::encode(ALL, &message).expect("a message of a member");
        }
    }
}
