//! The answers to publishers of fast-ingest batches, and their encoding.

use crate::api::puback::{PubAck, write_error, write_number};
use crate::schema::error::ApiError;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// An answer to a publisher of a fast-ingest batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The stream of the batch.
    pub stream: StreamNumber,
    /// The subject to which the caller sends the answer; never empty.
    pub to: Vec<u8>,
    /// The content of the answer.
    pub what: What,
}

/// The content of an answer to a publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The stream stores every message of the batch up to `seq`. The next acknowledgement covers at most
    /// `msgs` messages.
    Flow {
        /// The number in the batch up to which the stream stores every message.
        seq: u64,
        /// The most messages that the next acknowledgement covers.
        msgs: u16,
    },
    /// Messages of the batch are missing.
    Gap {
        /// The number that the server expected.
        expected: u64,
        /// The number that the server received.
        seq: u64,
    },
    /// The stream refused a message.
    Error {
        /// The number of the refused message in the batch.
        seq: u64,
        /// The reason.
        error: ApiError,
    },
    /// The batch has ended, and the stream stores its messages.
    End {
        /// The number of the last message in the stream.
        stream_seq: StreamSeq,
        /// The id of the batch.
        id: Vec<u8>,
        /// The number of the last message in the batch.
        count: u64,
    },
    /// The server refused the batch.
    Refused(ApiError),
}

impl Answer {
    /// Writes the answer as JSON. `ack` is the writer of the answer's stream.
    pub fn write(&self, ack: &PubAck, out: &mut Vec<u8>) {
        match &self.what {
            What::Flow { seq, msgs } => {
                out.extend_from_slice(b"{\"type\":\"ack\",\"seq\":");
                write_number(out, *seq);
                out.extend_from_slice(b",\"msgs\":");
                write_number(out, u64::from(*msgs));
            }
            What::Gap { expected, seq } => {
                out.extend_from_slice(b"{\"type\":\"gap\",\"last_seq\":");
                write_number(out, *expected);
                out.extend_from_slice(b",\"seq\":");
                write_number(out, *seq);
            }
            What::Error { seq, error } => {
                out.extend_from_slice(b"{\"type\":\"err\",\"seq\":");
                write_number(out, *seq);
                out.extend_from_slice(b",\"error\":");
                write_error(out, error);
            }
            What::End {
                stream_seq,
                id,
                count,
            } => return ack.batch(out, *stream_seq, id, *count),
            What::Refused(error) => return ack.refused(out, error),
        }
        out.push(b'}');
    }
}
