//! Publishes messages again, under another subject, once the group has committed them, for streams with a
//! `republish` configuration.
//!
//! Only the leader publishes a message again: it sends the message before the PubAck, to subscribers on all
//! nodes and to the streams that take the new subject. Around a change of leaders, two more nodes do so: the
//! old leader publishes the messages that it has proposed and that are committed later. A node that has won
//! an election, and does not serve yet, publishes the recent messages that it commits. So a message may be
//! published twice, and it is published at least once unless the leader dies between the commit and its
//! sends. The headers let a subscriber notice both.
//!
//! The work of a turn is bounded. The messages that remain wait here, and their bytes count for the bound at
//! which the node stops reading from publishers.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate::Time;
use tidegate_stream::api::republish::Republication;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Effect, Republished};

use super::JetStream;
use super::context::Context;

/// The number of messages that the streams of a group publish again in one turn of the loop, so that no turn
/// takes long.
const A_TURN: usize = 1024;
/// The number of bytes of messages that may wait to be published again. Above it the node stops reading from
/// publishers, so that these messages do not fill its memory.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The age of a message, in microseconds, up to which a node that has won an election publishes the message
/// again when it commits it. After a restart of all nodes, the new leader may commit again a log that the
/// leader before had committed long ago.
const RECENT_US: u64 = 30_000_000;

/// Keeps the messages of one group's streams that wait until the node publishes them again, see the
/// [module](self).
#[derive(Debug, Default)]
pub(super) struct Republishing {
    waiting: VecDeque<Waiting>,
    /// The number of bytes of the waiting messages, by which the node knows when to stop reading from
    /// publishers.
    bytes: usize,
    /// The number of messages that the streams have published again in this turn, which [`A_TURN`] bounds.
    sent: usize,
    /// True if the node stopped publishing in this turn, because a log has no room for more messages. The
    /// turn that makes room continues.
    blocked: bool,
    /// The number of messages for which the node has drawn a random number since its start. The node makes
    /// the next random number from it.
    drawn: u64,
}

/// A committed message that waits until the node publishes it again, because a turn is bounded.
#[derive(Debug)]
struct Waiting {
    stream: StreamNumber,
    seq: StreamSeq,
    bytes: usize,
    facts: Republished,
    /// The entry that holds the message; the node reads the message from its bytes.
    entry: Bytes,
}

impl Republishing {
    /// Returns whether no message waits to be published again, so that the node may stop.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether so many bytes wait to be published again that the node should stop reading from
    /// publishers.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes > WAITING_BYTES_MAX
    }

    /// Returns whether messages wait only because the node had published enough in the last turn, so that the
    /// event loop starts another turn at once.
    pub(super) fn is_due(&self) -> bool {
        !self.waiting.is_empty() && !self.blocked
    }

    /// Begins a turn: from now on the streams may publish [`A_TURN`] more messages, so that the turn stays
    /// short.
    pub(super) const fn begin_turn(&mut self) {
        self.sent = 0;
    }

    /// Returns a number for the random tokens of a message's subject. The number differs for each node and
    /// each message, so that the messages spread over the subjects.
    pub(super) const fn draw(&mut self, seed: u64) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        seed ^ self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn pop(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop_front()?;
        self.bytes -= next.bytes;
        Some(next)
    }
}

impl JetStream {
    /// Publishes the messages again that the group has just committed, as far as the turn allows; a later
    /// turn publishes the others. `entry` stored the messages, and `effects` are its changes; `own` is true
    /// if this node proposed it.
    pub(super) fn republish(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        entry: &Bytes,
        effects: &[Effect],
        own: bool,
    ) {
        let leads = self.role.serves || own;
        if !leads && !self.role.elected {
            return;
        }
        let recent = self.wall.peek(now).saturating_sub(RECENT_US);
        for effect in effects {
            let Effect::Stored {
                stream,
                seq,
                bytes,
                republished: Some(facts),
                ..
            } = effect
            else {
                continue;
            };
            if leads || facts.time_us >= recent {
                let bytes = *bytes as usize;
                self.republishing.bytes += bytes;
                self.republishing.waiting.push_back(Waiting {
                    stream: *stream,
                    seq: *seq,
                    bytes,
                    facts: *facts,
                    entry: entry.clone(),
                });
            }
        }
        self.serve_republishing(cx, now);
    }

    /// Publishes the waiting messages again, until the turn has published enough or a log has no room.
    pub(super) fn serve_republishing(&mut self, cx: &mut Context<'_>, now: Time) {
        self.republishing.blocked = false;
        while self.republishing.sent < A_TURN && !cx.outputs.are_many() {
            if self.entries.is_full() {
                self.republishing.blocked = !self.republishing.is_empty();
                return;
            }
            let Some(next) = self.republishing.pop() else {
                return;
            };
            self.republishing.sent += 1;
            if !self.republish_one(cx, now, &next) {
                self.republishing.blocked = true;
                self.republishing.bytes += next.bytes;
                self.republishing.waiting.push_front(next);
                return;
            }
        }
    }

    /// Publishes one message again, unless the configuration does not ask for it any more. Returns false if
    /// the log of a stream that takes the message has no room, so that the caller tries again later.
    fn republish_one(&mut self, cx: &mut Context<'_>, now: Time, of: &Waiting) -> bool {
        let random = self.republishing.draw(self.speech.seed);
        let Some(stream) = self.streams.get(of.stream) else {
            return true;
        };
        let read = Command::read(&of.entry, of.facts.offset);
        let command = read.expect("the streams have applied this command");
        let to = stream.republished_subject(command.subject, random);
        let (Some(to), Some(rule)) = (to, &stream.config().republish) else {
            return true;
        };
        // A destination with functions may yield a subject of the stream itself, although their texts do not
        // overlap. The node then leaves the message out, because the message would come back without end.
        if self.streams.taker(&to).is_some_and(|s| s.id() == of.stream) {
            return true;
        }
        if cx.around.is_full_at(&to) {
            return false;
        }
        let headers_only = rule.headers_only;
        let mut block = Vec::new();
        let message = Republication {
            stream: stream.name(),
            subject: command.subject,
            seq: of.seq,
            time_us: of.facts.time_us,
            last: of.facts.last,
            headers: command.headers.unwrap_or_default(),
            bytes: headers_only.then_some(command.payload.len()),
        };
        message.write(&mut block);
        let payload = match headers_only {
            true => b"",
            false => command.payload,
        };
        self.voice(cx, now).say(&to, &to, None, &block, payload);
        true
    }

    /// Records whether this node has won the last election of the group, so that it leads as soon as it has
    /// applied every entry that was committed before. A node that has won publishes recent messages again
    /// even before it serves.
    pub(crate) const fn set_elected(&mut self, elected: bool) {
        self.role.elected = elected;
    }
}

#[cfg(test)]
mod tests;
