//! The answers to publishers of fast-ingest batches, and their encoding as JSON, which the publishers'
//! libraries read.

use crate::api::puback::{PubAck, write_error, write_number};
use crate::schema::error::ApiError;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// An answer to the publisher of a fast-ingest batch, and the subject to which the caller sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The stream to which the publisher sends the batch. The answer names it.
    pub stream: StreamNumber,
    /// The publisher's reply subject, to which the caller sends the answer; never empty, because a message
    /// without a reply subject gets no answer.
    pub to: Vec<u8>,
    /// The content of the answer: progress, an error, or the end of the batch.
    pub what: What,
}

/// The content of an answer to the publisher of a fast-ingest batch, which tells the publisher how to
/// continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A flow acknowledgement: the stream stores every message of the batch up to number `seq`. The next
    /// acknowledgement covers at most `msgs` messages, which limits how many the publisher sends before it.
    Flow {
        /// The number in the batch up to which the stream stores every message. The publisher need not send
        /// those again.
        seq: u64,
        /// The limit on the messages that the next acknowledgement covers. The publisher paces itself by it.
        msgs: u16,
    },
    /// Messages of the batch did not arrive at the server, so the publisher may send them again.
    Gap {
        /// The number, in the batch, of the first message that did not arrive. The publisher can send the
        /// messages from there on again.
        expected: u64,
        /// The number, in the batch, of the next message that arrived or, after a ping, of the next message
        /// that the publisher will send. The gap ends before it.
        seq: u64,
    },
    /// The stream refused a message of the batch, and the publisher learns which one.
    Error {
        /// The number of the refused message in its batch, as the publisher gave it.
        seq: u64,
        /// The error that tells the publisher why the stream refused the message.
        error: ApiError,
    },
    /// The batch has ended, and the stream has stored its messages, so the publisher is done.
    End {
        /// The number, in the stream, of the last message of the batch that the stream stored. The publisher
        /// can depend on it later.
        stream_seq: StreamSeq,
        /// The id of the batch, as the publisher chose it.
        id: Vec<u8>,
        /// The number in the batch of the batch's last message, that is, the count of its messages.
        count: u64,
    },
    /// The server refused the batch as a whole, for this reason, and the publisher must not send more of it.
    Refused(ApiError),
}

impl Answer {
    /// Appends the answer as JSON to `out`. `ack` writes the parts that an answer shares with the PubAcks of
    /// the stream, because clients read both alike.
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
