//! A consumer by which another stream takes in messages. That stream reads the messages itself, and states up
//! to which number it has them for good; the consumer then counts them as delivered and acknowledged at once.
//!
//! So no message is in flight between the two: a lost request, a crash or a change of leaders costs no
//! redelivery. A client that listens to the deliver subject still gets messages beside the other stream.

use super::changes::End;
use super::deliver::Next;
use super::live::Consumer;
use super::seam::Source;
use crate::schema::sequence::StreamSeq;

/// The most messages that one report of the other stream settles, so that no turn of the event loop takes
/// long. The stream repeats its report with each request.
const SETTLED_MAX: usize = if cfg!(test) { 3 } else { 4096 };
/// The time after the last request for which the consumer shows that another stream takes in its messages, in
/// microseconds. A stream that is alive asks about once a second.
const ASKED_US: u64 = 5_000_000;

impl Consumer {
    /// Records that another stream asks for the consumer's messages, and that it has all of them up to number
    /// `has` for good. The consumer counts them as delivered and acknowledged, a bounded number with each
    /// call. A consumer that is not prepared does so later. Returns whether the consumer has a change to
    /// write to the log.
    pub fn handle_tapped(&mut self, now: u64, has: StreamSeq, source: &mut impl Source) -> bool {
        self.used_us = now;
        self.tapped_us = Some(now);
        if !self.is_prepared() {
            return false;
        }
        let has = has.min(source.last_seq());
        let mut reached = has;
        for count in 0.. {
            let Some(next) = self.next_up_to(has, source) else {
                break;
            };
            if count == SETTLED_MAX || self.changes.is_full() {
                reached = self.delivered.stream_seq;
                break;
            }
            let seq = self.go_on(next);
            self.delivered.consumer_seq = self.delivered.consumer_seq.after(1);
            self.delivered.stream_seq = self.delivered.stream_seq.max(seq);
            self.changes.note_new(now);
            self.changes.note_end(now, seq, End::Settled);
            self.last_delivery_us = Some(now);
        }
        let before = self.ack_floor;
        if reached > before.stream_seq {
            self.acknowledge(now, reached);
        }
        let moved = self.ack_floor != before;
        if moved {
            self.last_ack_us = Some(now);
        }
        moved
    }

    /// Returns the first message up to number `has` that the consumer has never delivered.
    fn next_up_to(&self, has: StreamSeq, source: &mut impl Source) -> Option<Next> {
        if let Some(seq) = self.skip.peek() {
            return (seq <= has).then_some(Next::Last { seq });
        }
        let seq = source.next_at(self.cursor).filter(|seq| *seq <= has)?;
        Some(Next::New { seq })
    }

    /// Returns whether another stream has asked for the consumer's messages lately.
    pub(super) fn is_tapped(&self, now: u64) -> bool {
        let until = self.tapped_us.map(|at| at.saturating_add(ASKED_US));
        until.is_some_and(|until| now < until)
    }
}
