//! One fast-ingest batch: its positions, and what changes them.

use std::collections::VecDeque;

use tidegate::Time;

use super::Ticket;
use crate::api::error::ApiError;
use crate::ingest::answer::{Answer, What};
use crate::ingest::pacing::Spacing;
use crate::ingest::reply::Control;

/// An open batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) stream: u32,
    pub(super) id: Vec<u8>,
    pub(super) life: u32,
    pub(super) gap_ok: bool,
    pub(super) spacing: Spacing,
    /// The reply subject of the last message: where the batch's publisher listens.
    pub(super) reply: Vec<u8>,
    pub(super) heard: Time,
    /// The number of the last message that came.
    pub(super) received: u64,
    /// Up to here all messages are stored, or, with `gap_ok`, stored, refused or missing.
    pub(super) persisted: u64,
    /// Up to here they are acknowledged; never above `persisted`.
    pub(super) acked: u64,
    /// When the first message that is not acknowledged was stored.
    pub(super) persisted_since: Option<Time>,
    /// Messages proposed whose outcome is not known.
    pub(super) in_flight: u64,
    /// One of them may be refused: what comes behind it is held.
    pub(super) uncertain: bool,
    pub(super) held: VecDeque<HeldMessage>,
    pub(super) held_bytes: usize,
    /// The last stored message's number in the stream.
    pub(super) stream_seq: u64,
    /// Nothing more is taken; when all is stored up to `received`, the batch has ended.
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
    /// Takes a message by its number: whether it is to be stored. If not, the batch ends.
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

    /// A message is refused in a batch that ends there.
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
