//! Handles the path of an acknowledgement from a receiver back to the consumer, and all other events that end
//! or delay the redelivery of a message. For a message that is due for redelivery, this module decides
//! whether the consumer delivers it again.
//!
//! This module owns the effect of each verb (the kind of acknowledgement) under each ack policy, and of an
//! answer to a flow control request under the ack policy `flow_control`.
//! [`super::verb`] parses the payloads, and [`super::changes`] decides when the consumer answers an
//! acknowledgement.

use tidegate_nats::headers;

use super::advisory::{Advisory, Event};
use super::changes::End;
use super::delta::UNACKED_MAX;
use super::live::{Consumer, Receiver};
use super::pending::Unacked;
use super::redelivery::Live;
use super::reply::AckNumbers;
use super::seam::Sink;
use super::sequence::ConsumerSeq;
use super::state::Position;
use super::status;
use super::verb::Verb;
use crate::schema::config::AckPolicy;
use crate::schema::sequence::StreamSeq;

impl Consumer {
    /// Handles an acknowledgement: `numbers` come from the acknowledgement's subject; `reply` is empty if the
    /// receiver does not wait for an answer. The consumer then no longer redelivers the message, or delays
    /// its redelivery. The consumer ignores an acknowledgement of a message that it never delivered, and does
    /// not answer it. If the message is already acknowledged, the consumer answers again.
    pub fn handle_ack(
        &mut self,
        now: u64,
        numbers: &AckNumbers,
        reply: &[u8],
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let verb = Verb::parse(payload);
        self.used_us = now;
        let seq = numbers.stream_seq;
        let known = (StreamSeq::FIRST..=self.delivered.stream_seq).contains(&seq)
            && (ConsumerSeq::new(1)..=self.delivered.consumer_seq).contains(&numbers.consumer_seq)
            && matches!(self.settings.ack, AckPolicy::All | AckPolicy::Explicit);
        if known {
            match verb {
                Some(Verb::Ack | Verb::Next(_)) => {
                    self.last_ack_us = Some(now);
                    self.sample(now, numbers, sink);
                    self.acknowledge(now, seq);
                }
                Some(Verb::Nak(delay_us)) => self.put_back(now, numbers, delay_us, sink),
                Some(Verb::Progress) => self.put_off(now, seq, None),
                Some(Verb::Term(reason)) => {
                    self.last_ack_us = Some(now);
                    self.advise_terminated(seq, numbers.consumer_seq, reason, sink);
                    self.acknowledge(now, seq);
                }
                // The consumer ignores a payload that is no verb. As in nats-server, a receiver that waits
                // for an answer still gets one.
                None => {}
            }
        }
        match verb {
            Some(Verb::Next(request)) => self.handle_pull(now, reply, request, sink),
            _ if known && !reply.is_empty() => self.changes.answer(reply, sink),
            _ => {}
        }
    }

    /// Handles the receiver's answer to a flow control request, which the receiver published to `subject`
    /// with the header block `headers`. The consumer may then send more bytes. Under the ack policy
    /// `flow_control` the headers state the last message that the receiver has for good, which acknowledges
    /// all messages up to it. The consumer ignores numbers that it never gave, and numbers up to its ack
    /// floor.
    pub fn handle_flow(&mut self, now: u64, subject: &[u8], headers: &[u8]) {
        let Receiver::Push(push) = &mut self.receiver else {
            return;
        };
        if !push.handle_flow(subject) || self.settings.ack != AckPolicy::FlowControl {
            return;
        }
        self.used_us = now;
        let (floor, delivered) = (self.ack_floor, self.delivered);
        let seq = number(headers, status::LAST_STREAM).map(StreamSeq::new);
        let consumer_seq = number(headers, status::LAST_CONSUMER).map(ConsumerSeq::new);
        let (Some(seq), Some(consumer_seq)) = (seq, consumer_seq) else {
            return;
        };
        let known = seq > floor.stream_seq
            && seq <= delivered.stream_seq
            && consumer_seq > floor.consumer_seq
            && consumer_seq <= delivered.consumer_seq;
        if known {
            self.last_ack_us = Some(now);
            self.acknowledge(now, seq);
        }
    }

    /// Publishes an advisory with the time from delivery to acknowledgement, so that operators see how fast
    /// receivers are, for the percentage of acknowledgements that the configuration sets (`sample_freq`).
    fn sample(&self, now: u64, numbers: &AckNumbers, sink: &mut impl Sink) {
        let percent = self.settings.sample_percent;
        // The multiplication by an odd number scrambles the message numbers, so that the sample spreads
        // evenly over successive messages.
        let scrambled = numbers.stream_seq.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if scrambled % 100 >= percent {
            return;
        }
        if let Some(unacked) = self.pending.get(numbers.stream_seq) {
            let delivered = unacked
                .due_us
                .saturating_sub(self.settings.wait_us(unacked.deliveries));
            let event = Event::Acked {
                consumer_seq: numbers.consumer_seq,
                ack_ns: now.saturating_sub(delivered).saturating_mul(1000),
            };
            sink.advisory(&self.advisory(unacked, event));
        }
    }

    pub(super) fn acknowledge(&mut self, now: u64, seq: StreamSeq) {
        if self.settings.ack == AckPolicy::Explicit {
            self.drop_pending(now, seq, End::Settled);
            self.settle_given_up(now, seq);
            return;
        }
        while let Some(unacked) = self.pending.pop_up_to(seq) {
            self.forget(now, unacked, End::Settled);
        }
        while let Some(first) = self.given_up.first().copied().filter(|first| *first <= seq) {
            self.settle_given_up(now, first);
        }
        self.move_floor();
    }

    /// Redelivers a message that the receiver refused: after `delay_us` microseconds, as the receiver asked,
    /// or at once if `delay_us` is 0.
    fn put_back(&mut self, now: u64, numbers: &AckNumbers, delay_us: u64, sink: &mut impl Sink) {
        let seq = numbers.stream_seq;
        let Some(unacked) = self.pending.get(seq) else {
            return;
        };
        let consumer_seq = numbers.consumer_seq;
        let advisory = self.advisory(unacked, Event::Nak { consumer_seq });
        sink.advisory(&advisory);
        self.put_off(now, seq, Some(delay_us));
        if delay_us == 0 {
            self.queue_again(now, seq, sink);
        }
    }

    /// Delays the redelivery of a message by `delay_us` microseconds, because the receiver still works on it
    /// or refused it; `None` stands for the wait that the configuration sets after a delivery.
    fn put_off(&mut self, now: u64, seq: StreamSeq, delay_us: Option<u64>) {
        let Some(unacked) = self.pending.get_mut(seq) else {
            return;
        };
        let wait = delay_us.unwrap_or_else(|| self.settings.wait_us(unacked.deliveries));
        unacked.due_us = now.saturating_add(wait);
        self.redelivery.dequeue(unacked);
        self.changes.note_touched(now, seq, &mut unacked.live);
        let due_us = unacked.due_us;
        self.redelivery.schedule(due_us, seq, &self.pending);
    }

    /// Queues a due message for redelivery, because no receiver has acknowledged it in time. If the message
    /// has reached its delivery limit, the consumer gives the message up instead.
    pub(super) fn queue_again(&mut self, now: u64, seq: StreamSeq, sink: &mut impl Sink) {
        let Some(unacked) = self.pending.get_mut(seq) else {
            return;
        };
        if unacked.deliveries < self.settings.max_deliver {
            self.redelivery.enqueue(unacked);
        } else {
            self.exhaust(now, seq, sink);
        }
    }

    /// Gives up a message that has reached its delivery limit: the consumer publishes an advisory, and no
    /// longer redelivers the message. So operators learn of messages that no receiver can handle.
    pub(super) fn exhaust(&mut self, now: u64, seq: StreamSeq, sink: &mut impl Sink) {
        if let Some(unacked) = self.pending.get(seq) {
            let advisory = self.advisory(unacked, Event::MaxDeliver);
            sink.advisory(&advisory);
            self.give_up(now, seq);
        }
    }

    /// Gives up a message, which the consumer delivers no more, although no receiver has acknowledged it. A
    /// stream that keeps messages for its consumers goes on keeping the message.
    pub(super) fn give_up(&mut self, now: u64, seq: StreamSeq) {
        if self.changes.lists_settled() {
            self.given_up.insert(seq);
            if self.given_up.len() > UNACKED_MAX {
                self.given_up.pop_first();
            }
        }
        match self.pending.get(seq) {
            Some(_) => self.drop_pending(now, seq, End::GivenUp),
            None => self.changes.note_end(now, seq, End::GivenUp),
        }
    }

    /// Notes that a receiver has acknowledged a message that the consumer had given up, or that the stream no
    /// longer holds it. The next delta then lists the message as settled.
    pub(super) fn settle_given_up(&mut self, now: u64, seq: StreamSeq) {
        if self.given_up.remove(&seq) {
            self.changes.note_end(now, seq, End::Settled);
        }
    }

    /// Ends the redelivery of a message for good, and publishes an advisory with the reason for operators.
    pub(super) fn terminate(
        &mut self,
        now: u64,
        seq: StreamSeq,
        reason: &str,
        sink: &mut impl Sink,
    ) {
        if let Some(unacked) = self.pending.get(seq) {
            self.advise_terminated(seq, unacked.consumer_seq, reason, sink);
        }
        self.drop_pending(now, seq, End::Settled);
    }

    fn advise_terminated(
        &self,
        seq: StreamSeq,
        consumer_seq: ConsumerSeq,
        reason: &str,
        sink: &mut impl Sink,
    ) {
        if let Some(unacked) = self.pending.get(seq) {
            let event = Event::Terminated {
                consumer_seq,
                reason,
            };
            sink.advisory(&self.advisory(unacked, event));
        }
    }

    fn advisory<'a>(&'a self, unacked: &Unacked<Live>, event: Event<'a>) -> Advisory<'a> {
        Advisory {
            stream: &self.stream,
            consumer: &self.name,
            stream_seq: unacked.stream_seq,
            deliveries: unacked.deliveries,
            event,
        }
    }

    /// Removes a message from the pending messages, which await an acknowledgement. The ack floor may then
    /// move up.
    pub(super) fn drop_pending(&mut self, now: u64, seq: StreamSeq, end: End) {
        if let Some(unacked) = self.pending.remove(seq) {
            self.forget(now, unacked, end);
            self.move_floor();
        }
    }

    fn forget(&mut self, now: u64, mut unacked: Unacked<Live>, end: End) {
        self.redelivery.dequeue(&mut unacked);
        self.changes.note_end(now, unacked.stream_seq, end);
    }

    /// Moves the consumer's ack floor, up to which every delivery is acknowledged, to just before the first
    /// pending message, so that clients see the progress.
    fn move_floor(&mut self) {
        let floor = self.pending.first().map_or(self.delivered, |u| Position {
            consumer_seq: u.consumer_seq.before(),
            stream_seq: u.stream_seq.prev(),
        });
        self.ack_floor = self.ack_floor.max(floor);
    }
}

/// Reads a number of a header; `None` if the block lacks the header, or the header is no number.
fn number(headers: &[u8], name: &str) -> Option<u64> {
    let value = headers::get(headers, name.as_bytes())?;
    std::str::from_utf8(value).ok()?.parse().ok()
}
