//! What publishers of fast-ingest batches are told, and how it is written.

use crate::api::error::ApiError;
use crate::api::puback::{PubAck, write_error, write_number};

/// Something to tell a publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The stream its batch is for.
    pub stream: u32,
    /// Where to send it; never empty.
    pub to: Vec<u8>,
    /// What to say.
    pub what: What,
}

/// What a publisher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Everything up to `seq` is stored; the next acknowledgement is for `msgs` messages at most.
    Flow {
        /// The highest number of the batch that is stored with all before it.
        seq: u64,
        /// How many messages the next acknowledgement is for.
        msgs: u16,
    },
    /// Messages are missing.
    Gap {
        /// The number that was expected.
        expected: u64,
        /// The number that came.
        seq: u64,
    },
    /// A message is not stored.
    Error {
        /// Its number.
        seq: u64,
        /// Why.
        error: ApiError,
    },
    /// The batch has ended.
    End {
        /// The last message's number in the stream.
        stream_seq: u64,
        /// The batch.
        id: Vec<u8>,
        /// The last message's number in the batch.
        count: u64,
    },
    /// There is no batch.
    Refused(ApiError),
}

impl Answer {
    /// Writes it as JSON; `ack` is its stream's.
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
