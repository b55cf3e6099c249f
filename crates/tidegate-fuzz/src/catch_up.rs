//! A fuzz target for the decoder of the questions and answers by which a node fetches the state of another
//! node. The target gives the decoder any bytes. The decoder must return an error, or a question or answer
//! that encodes to these bytes.

use bytes::Bytes;
use tidegate_raft::catchup::wire::{self, Answer, Frame, MessagesEncoder, encode_state};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
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
