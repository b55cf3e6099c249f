//! The outbox of a member: holds messages to other members back until the entries and votes that they
//! promise are durable, so that no crash breaks the promise. The code is pure.
//!
//! A leader may send its messages at once: each follower counts for the quorum by its own acknowledgement,
//! and the leader counts once its own log is durable. The messages of other members promise a vote or
//! entries. So they wait until the batch with which Raft returned them, and all batches before it, are
//! durable.

use std::collections::VecDeque;

use raft::eraftpb::{Message, MessageType};

/// Keeps a member's messages to other members, some until a batch is durable, the others until the caller
/// sends them; see the [module](self).
#[derive(Default)]
pub(super) struct Outbox {
    /// The messages held back, with Raft's number of the batch that must become durable first. The numbers
    /// grow.
    held: VecDeque<(u64, Vec<Message>)>,
    sending: VecDeque<Message>,
}

impl Outbox {
    /// Queues messages to other members that promise nothing undurable, so that this member may send them
    /// now.
    pub(super) fn send(&mut self, messages: Vec<Message>) {
        self.sending.extend(messages);
    }

    /// Holds messages to other members back until the batch with Raft's number `number` is durable, because
    /// they promise its contents.
    pub(super) fn hold(&mut self, number: u64, mut messages: Vec<Message>) {
        // While a batch waits for space in the log, heartbeats keep arriving. The member holds the answer to
        // only one heartbeat of a leader, the oldest, so that the outbox does not grow.
        messages.retain(|message| !self.holds_beat(message));
        if !messages.is_empty() {
            self.held.push_back((number, messages));
        }
    }

    /// Returns whether the message is one answer too many: it answers a heartbeat, and the outbox already
    /// holds an answer to this leader in this term.
    fn holds_beat(&self, message: &Message) -> bool {
        let beat = |m: &Message| m.get_msg_type() == MessageType::MsgHeartbeatResponse;
        let mut held = self.held.iter().flat_map(|(_, messages)| messages);
        beat(message) && held.any(|m| beat(m) && m.to == message.to && m.term == message.term)
    }

    /// Releases the messages of all batches up to this number, because these batches are durable. If several
    /// messages acknowledge entries to one leader in one term, keeps only the message with the highest
    /// index, because it acknowledges all earlier entries, too.
    pub(super) fn release(&mut self, number: u64) {
        let count = self.held.partition_point(|&(of, _)| of <= number);
        let released = self.held.drain(..count).flat_map(|(_, messages)| messages);
        let mut acks: Vec<Message> = Vec::new();
        for message in released {
            if !is_ack(&message) {
                self.sending.push_back(message);
                continue;
            }
            let same = |a: &&mut Message| a.to == message.to && a.term == message.term;
            match acks.iter_mut().find(same) {
                Some(ack) if ack.index <= message.index => *ack = message,
                Some(_) => {}
                None => acks.push(message),
            }
        }
        self.sending.extend(acks);
    }

    pub(super) fn poll(&mut self) -> Option<Message> {
        self.sending.pop_front()
    }
}

fn is_ack(message: &Message) -> bool {
    message.get_msg_type() == MessageType::MsgAppendResponse && !message.reject
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: MessageType, to: u64, term: u64, index: u64) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.to, message.term, message.index) = (to, term, index);
        message
    }

    #[test]
    fn messages_wait_for_their_batch_and_only_the_newest_acknowledgement_leaves() {
        use MessageType::{MsgAppendResponse as Ack, MsgHeartbeatResponse as Beat};
        let mut outbox = Outbox::default();
        outbox.hold(3, vec![message(Ack, 2, 5, 10), message(Beat, 2, 5, 0)]);
        outbox.hold(4, vec![message(Ack, 2, 5, 12)]);
        outbox.hold(5, vec![message(Ack, 2, 5, 11), message(Ack, 2, 6, 11)]);
        outbox.hold(6, vec![message(Ack, 2, 6, 12), message(Beat, 2, 5, 0)]);
        assert_eq!(outbox.poll(), None);
        outbox.release(5);
        let left: Vec<_> = std::iter::from_fn(|| outbox.poll())
            .map(|m| (m.get_msg_type(), m.term, m.index))
            .collect();
        assert_eq!(left, [(Beat, 5, 0), (Ack, 5, 12), (Ack, 6, 11)]);
        outbox.send(vec![message(Beat, 3, 7, 0)]);
        outbox.release(6);
        assert_eq!(outbox.poll().map(|m| m.to), Some(3));
        assert_eq!(outbox.poll().map(|m| m.index), Some(12));
    }
}
