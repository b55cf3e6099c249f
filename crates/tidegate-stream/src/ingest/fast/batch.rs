//! One fast-ingest batch: the numbers up to which the server has received, stored and acknowledged its
//! messages, so that each acknowledgement covers only stored ones.

use std::collections::VecDeque;

use tidegate::Time;

use super::Ticket;
use crate::ingest::answer::{Answer, What};
use crate::ingest::pacing::Spacing;
use crate::ingest::reply::Control;
use crate::schema::error::ApiError;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// An open fast-ingest batch. The numbers of messages are numbers in the batch, from 1, unless a field says
/// otherwise. The batch ends with its publisher's commit or with an error.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) stream: StreamNumber,
    pub(super) id: Vec<u8>,
    pub(super) life: u32,
    pub(super) gap_ok: bool,
    pub(super) spacing: Spacing,
    /// The reply subject of the batch's latest message, to which the server sends the answers, because the
    /// publisher listens there.
    pub(super) reply: Vec<u8>,
    pub(super) heard: Time,
    /// The number in the batch of the last message that the server has received. The next message must have
    /// the number after it.
    pub(super) received: u64,
    /// The number in the batch up to which the stream has stored all messages of the batch. In a batch with
    /// `gap_ok`, messages that are missing or refused also count. The server may acknowledge up to it.
    pub(super) persisted: u64,
    /// The number in the batch up to which the server has acknowledged all messages to the publisher; never
    /// above `persisted`, because an acknowledgement promises storage.
    pub(super) acked: u64,
    /// The time since which stored messages of the batch wait for an acknowledgement; `None` if no stored
    /// message waits. The controller limits this wait.
    pub(super) persisted_since: Option<Time>,
    /// The number of messages that the server has proposed and that have no outcome yet. The batch cannot end
    /// before they have one.
    pub(super) in_flight: u64,
    /// True if the state machine may refuse one of the proposed messages, so that the batch holds later
    /// messages back. In a batch that ends at the first gap, nothing may be stored behind a refused message.
    pub(super) uncertain: bool,
    pub(super) held: VecDeque<HeldMessage>,
    pub(super) held_bytes: usize,
    /// The number, in the stream, of the last message of the batch that the stream stored. The final answer
    /// tells it to the publisher.
    pub(super) stream_seq: StreamSeq,
    /// True if the batch accepts no more messages. The batch has ended once all messages up to `received`
    /// have an outcome, and the publisher then gets the final answer.
    pub(super) ending: bool,
}

#[derive(Debug)]
pub(super) struct HeldMessage {
    pub(super) seq: u64,
    pub(super) certain: bool,
    pub(super) subject: Vec<u8>,
    pub(super) headers: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl Batch {
    /// Checks the number of the batch's next message, and tells the publisher of a gap. Returns whether the
    /// stream may store the message; if not, the batch ends.
    pub(super) fn take(&mut self, control: Control<'_>, answers: &mut Vec<Answer>) -> bool {
        let (expected, seq) = (self.received + 1, control.seq);
        if seq != expected {
            self.answer(What::Gap { expected, seq }, answers);
            if !self.gap_ok || seq < expected {
                self.ending = true;
                return false;
            }
        }
        self.received = seq;
        true
    }

    pub(super) fn propose(&mut self, key: u32, seq: u64, certain: bool) -> Ticket {
        self.in_flight += 1;
        self.uncertain = !certain;
        Ticket {
            batch: key,
            life: self.life,
            seq,
        }
    }

    /// Ends the batch before message `seq`, which the stream refused, and tells the publisher the error. The
    /// batch drops the messages that it holds back.
    pub(super) fn fail(&mut self, seq: u64, error: ApiError, answers: &mut Vec<Answer>) {
        self.answer(What::Error { seq, error }, answers);
        self.received = seq - 1;
        self.persisted = self.persisted.min(self.received);
        self.held.clear();
        self.held_bytes = 0;
        self.ending = true;
    }

    pub(super) const fn unacked(&self) -> u64 {
        self.persisted - self.acked
    }

    pub(super) fn must_ack(&self) -> bool {
        self.unacked() >= u64::from(self.spacing.get())
    }

    pub(super) fn ack(&mut self, open: usize, answers: &mut Vec<Answer>) {
        let under_way = self.received - self.acked;
        self.acked = self.persisted;
        self.persisted_since = None;
        let (seq, msgs) = (self.acked, self.spacing.choose(under_way, open));
        self.answer(What::Flow { seq, msgs }, answers);
    }

    pub(super) fn answer(&self, what: What, answers: &mut Vec<Answer>) {
        if !self.reply.is_empty() {
            answers.push(Answer {
                stream: self.stream,
                to: self.reply.clone(),
                what,
            });
        }
    }
}
