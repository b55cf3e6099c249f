//! Delivers messages: the path of a message from the stream to a receiver.
//!
//! This module owns the order of deliveries (redeliveries before new messages, the last message of each
//! subject before later messages) and every cause that holds delivery up: no receiver, a slow receiver, flow
//! control, a pause, too many unacknowledged messages, a message that the source is still reading.
//! [`super::pulls`] and [`super::push`] own the rules of the receivers.

use super::changes::End;
use super::live::{Consumer, MESSAGE_DELETED, Receiver};
use super::pending::Unacked;
use super::pulls::Front;
use super::redelivery::Live;
use super::reply::{AckNumbers, put_decimal};
use super::seam::{Delivery, Fetch, Message, Ready, Sink, Source};
use super::status;
use crate::schema::config::AckPolicy;
use crate::schema::sequence::StreamSeq;

/// The reason why [`Consumer::deliver`] stopped, which tells the caller when to call it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The consumer delivered every message that it can: call again after the next event, or at the deadline.
    Idle,
    /// The consumer has delivered its budget of messages, the sink is full, or the consumer is not prepared:
    /// call again in the next turn.
    More,
    /// The source (the stream) is still reading a message from disk: call again when it has read the message.
    Reading,
    /// The connections of the receivers still have many bytes to write: call again after one of these
    /// connections has written.
    Behind,
}

/// The message that the consumer delivers next, and whether it has delivered that message before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// A message that the consumer has delivered before; it is due again, because no receiver has
    /// acknowledged it.
    Again { seq: StreamSeq, deliveries: u32 },
    /// The last message of its subject, which the consumer delivers before all other new messages, because
    /// its deliver policy says so.
    Last { seq: StreamSeq },
    /// A message that the consumer has never delivered, at its position in the stream.
    New { seq: StreamSeq },
}

/// The result of one step of [`Consumer::deliver`]: the consumer continues with the next message, has no
/// further message, or stops with a reason.
enum Flow {
    On,
    /// The consumer has no further message to deliver now, so an answer to a pull that does not wait is due.
    End,
    Stop(Progress),
}

impl Consumer {
    /// Delivers messages to the receivers, at most `budget` of them, so that other consumers get their turn.
    /// Subtracts the messages at which it has looked from the budget, which a caller may share among
    /// consumers. Does nothing before the consumer is prepared.
    pub fn deliver(
        &mut self,
        now: u64,
        budget: &mut usize,
        source: &mut impl Source,
        sink: &mut impl Sink,
    ) -> Progress {
        if !self.is_prepared() {
            return Progress::More;
        }
        let mut ready = match &mut self.receiver {
            Receiver::Pull(pulls) => {
                pulls.begin();
                Ready::Yes
            }
            Receiver::Push(push) => push.ready(sink),
        };
        while *budget > 0 {
            if sink.is_full() {
                return Progress::More;
            }
            *budget -= 1;
            match self.step(now, &mut ready, source, sink) {
                Flow::On => {}
                Flow::Stop(progress) => return progress,
                Flow::End => {
                    if let Receiver::Pull(pulls) = &mut self.receiver {
                        pulls.end_of_messages(sink);
                    }
                    return Progress::Idle;
                }
            }
        }
        Progress::More
    }

    fn step(
        &mut self,
        now: u64,
        ready: &mut Ready,
        source: &mut impl Source,
        sink: &mut impl Sink,
    ) -> Flow {
        if let Some(progress) = self.held_up(now, *ready, sink) {
            return Flow::Stop(progress);
        }
        if now < self.settings.pause_until_us {
            return Flow::End;
        }
        let next = match self.next(now, source, sink) {
            Ok(next) => next,
            Err(step) => return step,
        };
        let (Next::Again { seq, .. } | Next::Last { seq } | Next::New { seq }) = next;
        match source.message(seq) {
            Fetch::Ready(message) => {
                if self.is_early(now, next, message.time_us) {
                    return Flow::Stop(Progress::Idle);
                }
                self.send(now, next, &message, ready, sink);
            }
            Fetch::Pending => return Flow::Stop(Progress::Reading),
            Fetch::Gone => {
                let there = source.contains(seq);
                self.pass_over(now, next, there, sink);
            }
        }
        Flow::On
    }

    /// Returns the reason why no receiver can take a message now; `None` if a receiver can take one. The
    /// caller then calls again after the right event.
    fn held_up(&mut self, now: u64, ready: Ready, sink: &mut impl Sink) -> Option<Progress> {
        let receiver = match &mut self.receiver {
            Receiver::Pull(pulls) => match pulls.front(now, sink) {
                Front::Ready => None,
                Front::Behind => Some(Progress::Behind),
                Front::None => Some(Progress::Idle),
            },
            Receiver::Push(push) => match ready {
                Ready::Yes if push.is_stalled() || push.rate_deadline(now).is_some() => {
                    Some(Progress::Idle)
                }
                Ready::Yes => None,
                Ready::Behind => Some(Progress::Behind),
                Ready::Nobody => Some(Progress::Idle),
            },
        };
        // If the consumer has too many changes, the caller must first take a delta. [`Consumer::deadline`]
        // then returns a time in the past, so that the caller does so at once.
        receiver.or_else(|| self.changes.is_full().then_some(Progress::Idle))
    }

    fn next(
        &mut self,
        now: u64,
        source: &mut impl Source,
        sink: &mut impl Sink,
    ) -> Result<Next, Flow> {
        while let Some(seq) = self.redelivery.next() {
            let deliveries = self.pending.get(seq).map_or(0, |u| u.deliveries);
            if deliveries < self.settings.max_deliver {
                let deliveries = deliveries + 1;
                return Ok(Next::Again { seq, deliveries });
            }
            // An update of the configuration has lowered the delivery limit since the consumer queued this
            // message, so the consumer gives the message up.
            self.exhaust(now, seq, sink);
        }
        if self.awaits_acks() && self.pending.len() >= self.settings.max_unacked {
            return Err(Flow::Stop(Progress::Idle));
        }
        if let Some(seq) = self.skip.peek() {
            return Ok(Next::Last { seq });
        }
        match source.next_at(self.cursor) {
            Some(seq) => {
                self.cursor = seq;
                Ok(Next::New { seq })
            }
            None => {
                self.cursor = self.cursor.max(source.last_seq().next());
                self.replay = None;
                Err(Flow::End)
            }
        }
    }

    /// Returns whether it is too early to deliver this message in a replay at original speed, in which the
    /// consumer keeps the intervals at which the stream stored the messages.
    fn is_early(&mut self, now: u64, next: Next, time_us: u64) -> bool {
        let (Some(replay), Next::New { seq }) = (&mut self.replay, next) else {
            return false;
        };
        if seq > replay.until {
            self.replay = None;
            return false;
        }
        if let Some((came, given)) = replay.last {
            let due = given.saturating_add(time_us.saturating_sub(came));
            replay.due_us = Some(due).filter(|due| *due > now);
        }
        replay.due_us.is_some()
    }

    fn send(
        &mut self,
        now: u64,
        next: Next,
        message: &Message<'_>,
        ready: &mut Ready,
        sink: &mut impl Sink,
    ) {
        let (seq, deliveries, left) = match next {
            Next::Again { seq, deliveries } => (seq, deliveries, self.num_pending()),
            Next::Last { seq } | Next::New { seq } => {
                (seq, 1, self.num_pending().saturating_sub(1))
            }
        };
        let reply = self.replies.write(&AckNumbers {
            deliveries: u64::from(deliveries),
            stream_seq: seq,
            consumer_seq: self.delivered.consumer_seq.after(1),
            time_ns: message.time_us.saturating_mul(1000),
            pending: left,
        });
        let (headers, payload) = if self.settings.headers_only {
            without_payload(&mut self.headers, message.headers, message.payload.len());
            (&self.headers[..], &[][..])
        } else {
            (message.headers, message.payload)
        };
        let bytes = (message.subject.len() + reply.len() + headers.len() + payload.len()) as u64;
        let delivery = Delivery {
            subject: message.subject,
            reply,
            headers,
            payload,
        };
        match &mut self.receiver {
            Receiver::Pull(pulls) => {
                if !pulls.front_takes(bytes, sink) {
                    return;
                }
                pulls.serve(now, bytes, sink, |sink, to| sink.message(to, &delivery));
            }
            Receiver::Push(push) => {
                *ready = sink.message(&push.subject, &delivery);
                push.note_sent(now, bytes, sink);
            }
        }
        if let Some(replay) = &mut self.replay {
            replay.last = Some((message.time_us, now));
        }
        self.note_delivered(now, next);
        self.ask_for_acks(sink);
    }

    fn note_delivered(&mut self, now: u64, next: Next) {
        self.last_delivery_us = Some(now);
        self.used_us = now;
        self.delivered.consumer_seq = self.delivered.consumer_seq.after(1);
        if let Next::Again { seq, deliveries } = next {
            let wait = self.settings.wait_us(deliveries);
            let Some(unacked) = self.pending.get_mut(seq) else {
                return;
            };
            unacked.deliveries = deliveries;
            unacked.due_us = now.saturating_add(wait);
            self.redelivery.dequeue(unacked);
            self.changes.note_touched(now, seq, &mut unacked.live);
            self.redelivery
                .schedule(now.saturating_add(wait), seq, &self.pending);
            return;
        }
        self.delivered.stream_seq = self.go_on(next);
        self.changes.note_new(now);
        if !self.awaits_acks() {
            self.ack_floor = self.delivered;
            self.changes
                .note_end(now, self.delivered.stream_seq, End::Settled);
            return;
        }
        let due_us = now.saturating_add(self.settings.wait_us(1));
        let redelivers = self.settings.redelivers;
        self.pending.insert(Unacked {
            stream_seq: self.delivered.stream_seq,
            consumer_seq: self.delivered.consumer_seq,
            due_us,
            deliveries: 1,
            live: Live::default(),
        });
        if redelivers {
            self.redelivery
                .schedule(due_us, self.delivered.stream_seq, &self.pending);
        }
    }

    /// Asks the receiver for acknowledgements by flow control, if as many messages as the configuration
    /// allows await one.
    fn ask_for_acks(&mut self, sink: &mut impl Sink) {
        let full = self.pending.len() >= self.settings.max_unacked;
        if let Receiver::Push(push) = &mut self.receiver
            && full
            && self.settings.ack == AckPolicy::FlowControl
        {
            push.ask(sink);
        }
    }

    /// Advances the consumer's position past the message `next`, so that the consumer continues behind it,
    /// and returns the number of that message.
    pub(super) fn go_on(&mut self, next: Next) -> StreamSeq {
        match next {
            Next::Again { seq, .. } => seq,
            Next::Last { seq } => {
                self.skip.advance();
                seq
            }
            Next::New { seq } => {
                self.cursor = seq.next();
                self.ahead = self.ahead.saturating_sub(1);
                seq
            }
        }
    }

    /// Advances past a message that the consumer cannot deliver, because the stream no longer holds it or
    /// (`there`) this node cannot read it. Another node may have the message undamaged, so the consumer gives
    /// such a message up and does not settle it.
    fn pass_over(&mut self, now: u64, next: Next, there: bool, sink: &mut impl Sink) {
        let keeps = there && self.changes.lists_settled();
        match next {
            Next::Again { seq, .. } if keeps => self.give_up(now, seq),
            Next::Again { seq, .. } => self.terminate(now, seq, MESSAGE_DELETED, sink),
            Next::Last { .. } | Next::New { .. } => {
                let seq = self.go_on(next);
                if keeps {
                    // The consumer counts the message as delivered, because a delta can list only messages up
                    // to the last delivery as given up.
                    self.delivered.stream_seq = self.delivered.stream_seq.max(seq);
                    if !self.awaits_acks() {
                        self.ack_floor = self.delivered;
                    }
                    self.give_up(now, seq);
                }
            }
        }
    }
}

/// Writes the headers of a message for a consumer that sends no payloads, and adds a header that tells the
/// receiver the length of the payload. `headers` is the message's block of headers, or empty.
pub fn without_payload(out: &mut Vec<u8>, headers: &[u8], payload_bytes: usize) {
    out.clear();
    match headers.strip_suffix(b"\r\n") {
        Some(headers) => out.extend_from_slice(headers),
        None => out.extend_from_slice(b"NATS/1.0\r\n"),
    }
    out.extend_from_slice(status::MESSAGE_SIZE.as_bytes());
    out.extend_from_slice(b": ");
    put_decimal(out, payload_bytes as u64);
    out.extend_from_slice(b"\r\n\r\n");
}
