//! Requests and answers of nodes that catch up: the decoder reads or refuses any bytes, and a decoded message
//! equals the sent one.

use bytes::Bytes;
use tidegate_raft::catchup::wire::{self, Answer, Frame, MessagesEncoder, encode_state};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Ok(frame) = wire::decode(&Bytes::copy_from_slice(data)) else {
        return;
    };
    let again = match frame {
        Frame::Ask(ask) => ask.encode(),
        Frame::Answer(Answer::State {
            index,
            offset,
            total,
            bytes,
        }) => encode_state(index, offset, total, &bytes),
        Frame::Answer(Answer::Messages {
            stream,
            first,
            next,
            messages,
        }) => {
            let mut encoder = MessagesEncoder::begin(stream, first);
            for (seq, entry) in &messages {
                encoder.message(*seq, entry);
            }
            encoder.end(next)
        }
    };
    assert_eq!(again, data);
}
