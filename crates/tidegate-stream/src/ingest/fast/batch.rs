//! One fast-ingest batch: its positions, and their changes.

use std::collections::VecDeque;

use tidegate::Time;

use super::Ticket;
use crate::ingest::answer::{Answer, What};
use crate::ingest::pacing::Spacing;
use crate::ingest::reply::Control;
use crate::schema::error::ApiError;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// An open batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) stream: StreamNumber,
    pub(super) id: Vec<u8>,
    pub(super) life: u32,
    pub(super) gap_ok: bool,
    pub(super) spacing: Spacing,
    /// The reply subject of the last message, to which the publisher subscribes.
    pub(super) reply: Vec<u8>,
    pub(super) heard: Time,
    /// The number of the last message received.
    pub(super) received: u64,
    /// Up to this number all messages are stored, or, with `gap_ok`, stored, refused or missing.
    pub(super) persisted: u64,
    /// Up to this number all messages are acknowledged; never above `persisted`.
    pub(super) acked: u64,
    /// The time at which the first unacknowledged message was stored.
    pub(super) persisted_since: Option<Time>,
    /// The number of proposed messages with an unknown outcome.
    pub(super) in_flight: u64,
    /// One of the proposed messages may be refused, so the batch holds the messages behind it.
    pub(super) uncertain: bool,
    pub(super) held: VecDeque<HeldMessage>,
    pub(super) held_bytes: usize,
    /// The number of the last stored message in the stream.
    pub(super) stream_seq: StreamSeq,
    /// The batch accepts no more messages. It has ended once all messages up to `received` are stored.
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
    /// Accepts a message by its number, and returns whether to store it. If not, the batch ends.
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

    /// Refuses a message, which ends the batch.
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
