//! The messages of an answer: the entry in which the origin's side hands them to the stream's leader.

use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, ENTRY_HEADER_BYTES, Encoder, Intake, Kind, Progress, Row};

use crate::streams::directory::leader_message::taking::Answer;

/// The messages gathered for an answer, in order.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    rows: Vec<Row>,
    messages: Vec<u8>,
}

impl Parcel {
    /// Returns the number of messages.
    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether no message is gathered.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the bytes of the messages, as the answer carries them.
    pub(crate) const fn bytes(&self) -> usize {
        self.messages.len()
    }

    /// Adds the origin's next message.
    pub(crate) fn add(&mut self, row: Row, subject: &[u8], headers: &[u8], payload: &[u8]) {
        self.rows.push(row);
        let command = Command {
            headers: Some(headers).filter(|headers| !headers.is_empty()),
            ..Command::new(Kind::Publish, StreamNumber::NONE, subject, payload)
        };
        put(&mut self.messages, &command);
    }

    /// Makes the answer: the messages lead from the progress `from` to `to`, and the origin's last message
    /// has the number `last`.
    pub(crate) fn into_answer(
        self,
        from: Option<Progress>,
        to: Progress,
        last: StreamSeq,
    ) -> Answer {
        let intake = Intake {
            before: None,
            after: to,
            rows: self.rows,
        };
        let payload = intake.encode();
        let mut entry = Vec::new();
        let head = Command::new(Kind::TakeIn, StreamNumber::NONE, b"", &payload);
        put(&mut entry, &head);
        if !self.messages.is_empty() {
            entry.extend_from_slice(&self.messages[ENTRY_HEADER_BYTES..]);
        }
        Answer {
            state: Ok((from, to, last)),
            entry,
        }
    }
}

/// Adds a command to an entry, which it begins if the buffer is empty.
fn put(buffer: &mut Vec<u8>, command: &Command<'_>) {
    let mut encoder = match buffer.is_empty() {
        true => Encoder::begin(buffer, 0),
        false => Encoder::resume(buffer),
    };
    let written = encoder.command(command);
    debug_assert!(
        written.is_ok(),
        "an answer is far below the limits of an entry: {written:?}"
    );
}
