//! A fuzz target for the decoder of checkpoints. The target gives the decoder any bytes, for which the
//! decoder must return a checkpoint or an error. The target also encodes a checkpoint and flips one of its
//! bits; the decoder must refuse the changed bytes.

use tidegate_log::Lsn;
use tidegate_raft::replica::records::HardState;
use tidegate_raft::replica::{EntryId, Term};
use tidegate_raft::store::checkpoint::{Encoder, Header, decode};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    if let Ok((header, state)) = decode(data) {
        assert!(state.len() + 16 * header.live.len() < data.len());
    }
    let Some((&[at, bit, index, next], state)) = data.split_first_chunk() else {
        return;
    };
    let header = Header {
        entry: EntryId::new(index.into(), bit.into()),
        hard_state: HardState {
            term: Term::new(at.into()),
            vote: 1,
        },
        next: Lsn::new(u64::from(next)),
        live: vec![(0, at.into()); usize::from(bit) % 5],
    };
    let (mut encoder, mut bytes) = Encoder::begin(&header);
    for part in state.chunks(7) {
        encoder.part(part);
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(&encoder.end());
    assert_eq!(decode(&bytes), Ok((header, state)));
    let at = usize::from(at) * 31 % bytes.len();
    bytes[at] ^= 1 << (bit % 8);
    assert!(decode(&bytes).is_err());
}
