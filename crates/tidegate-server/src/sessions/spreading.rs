//! Delivers messages with very many receivers a part at a time, so that no message keeps the event loop from
//! its clients.
//!
//! A copy costs a fraction of a microsecond, and a message may have a million receivers. So the node delivers
//! such a message to [`PART`] receivers at a time, or to fewer if the copies are long, and several such
//! messages take turns. Until the last part
//! the node reads nothing from the publisher, so that each subscriber gets the publisher's messages in their
//! order. A subscription that ends during the delivery gets no copy, and neither does a subscription that
//! began after the message.
//!
//! The node does not divide its own messages, because each of them has few receivers, and no publisher could
//! wait.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate_cluster::wire::{InterestId, Routed, ids};
use tidegate_nats::op::SHARED_ALWAYS_BYTES;
use tidegate_nats::parse::Publish;
use tidegate_nats::sublist::Matches;

use super::Node;
use super::fanout::{BYTES_A_RECEIVER, Reached, Sender};
use super::routes::Chosen;
use crate::cures::cures;
use crate::party::Party;

/// The greatest number of receivers that a message reaches within one call of the node. If a message has more
/// receivers, the node delivers it in parts, so that no call takes long.
#[cfg(not(test))]
pub(super) const AT_ONCE: usize = 512;
#[cfg(test)]
pub(super) const AT_ONCE: usize = 2;
/// The number of receivers to which the node delivers a part of a divided message.
const PART: usize = AT_ONCE / 2;
/// The greatest number of parts, of all divided deliveries together, that the node delivers in one turn, so
/// that no turn takes long.
const PARTS: usize = 4;

/// The messages that the node has delivered to only a part of their many receivers so far. Each publisher has
/// at most one of them, because the node reads nothing from a publisher until all receivers of its message
/// have had their turn.
#[derive(Debug, Default)]
pub(super) struct Spreading(VecDeque<Spread>);

#[derive(Debug)]
struct Spread {
    sender: Sender,
    message: Owned,
    came: Option<Came>,
    matches: Matches,
    /// The number of the first subscription that the node made after the message. The node gives
    /// subscriptions from this number on no copy, because they came after the message.
    before: u64,
    reached: Reached,
    copies: u64,
    chosen: Chosen,
    /// True if the node must send the requester the status `no responders` in case no receiver gets the
    /// message.
    unheard: bool,
}

/// A copy of a message and of the subject that the subscriptions match, in one buffer. The node keeps it
/// because the publisher's bytes are gone before the last part.
#[derive(Debug)]
struct Owned {
    bytes: Box<[u8]>,
    /// The lengths of the message's subject, reply, headers and payload, which follow one another in `bytes`;
    /// behind them `to`, the subject that the subscriptions match, if the message's own subject differs.
    subject: usize,
    reply: Option<usize>,
    headers: Option<usize>,
    payload: usize,
    to: Option<usize>,
}

/// The parts of a peer's frame besides the message itself, which the node keeps until it has delivered the
/// message to all receivers.
#[derive(Debug)]
struct Came {
    plain: bool,
    asks: bool,
    passed: u8,
    /// The ids of the queue groups, in rising order: each part looks for those that it reaches.
    groups: Box<[u8]>,
}

impl Owned {
    fn new(message: &Publish<'_>, to: &[u8]) -> Self {
        let other = (to != message.subject).then_some(to);
        let parts = [
            message.subject,
            message.reply.unwrap_or_default(),
            message.header_block(),
            message.payload,
            other.unwrap_or_default(),
        ];
        Self {
            bytes: parts.concat().into(),
            subject: message.subject.len(),
            reply: message.reply.map(<[u8]>::len),
            headers: message.headers.map(<[u8]>::len),
            payload: message.payload.len(),
            to: other.map(<[u8]>::len),
        }
    }

    /// Reads the message, and the subject that the subscriptions match, from the copy, for the next part.
    fn read(&self) -> (Publish<'_>, &[u8]) {
        let (subject, rest) = self.bytes.split_at(self.subject);
        let (reply, rest) = rest.split_at(self.reply.unwrap_or(0));
        let (headers, rest) = rest.split_at(self.headers.unwrap_or(0));
        let (payload, to) = rest.split_at(self.payload);
        let message = Publish {
            subject,
            reply: self.reply.map(|_| reply),
            headers: self.headers.map(|_| headers),
            payload,
        };
        (message, if self.to.is_some() { to } else { subject })
    }
}

/// Returns whether the node divides the delivery of a message of `bytes` bytes to `receivers` receivers,
/// because it would take longer than a delivery of an empty message to [`AT_ONCE`] receivers. A simulation
/// may turn the division off.
pub(super) fn is_divided(receivers: usize, bytes: usize) -> bool {
    let copied = match bytes < SHARED_ALWAYS_BYTES {
        true => bytes,
        false => 0,
    };
    cures().spreading && receivers * (1 + copied / BYTES_A_RECEIVER) > AT_ONCE
}

/// Sorts ids of queue groups as a peer's frame has them.
fn sorted(groups: &[u8]) -> Box<[u8]> {
    let mut all: Vec<InterestId> = ids(groups).collect();
    all.sort_unstable();
    all.into_iter().flat_map(InterestId::to_le_bytes).collect()
}

impl Spreading {
    /// Returns whether the node has no message to deliver further: each has reached all its receivers, and
    /// the driver may sleep.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes a publisher that has gone from its messages on their way, because a new connection may get its
    /// key.
    pub(super) fn forget(&mut self, from: Party) {
        let all = self.0.iter_mut();
        for spread in all.filter(|spread| spread.sender.from == Some(from)) {
            spread.sender.from = None;
        }
    }

    /// Records that a stream took the message that `from` published last. The stream answers the requester,
    /// so the node sends no status `no responders` even if no subscriber gets the message.
    pub(super) fn handle_taken(&mut self, from: Party) {
        if let Some(spread) = self.0.back_mut()
            && spread.sender.from == Some(from)
        {
            spread.unheard = false;
        }
    }
}

impl Node {
    /// Delivers a message to the first of its receivers, and stops reading from its publisher until the other
    /// receivers have it, too, so that the messages keep their order. Returns the backlog of the fullest
    /// receiver so far in bytes; `None` if all receivers had their turn and none got the message.
    pub(super) fn spread(
        &mut self,
        now: Time,
        sender: Sender,
        to: &[u8],
        message: &Publish<'_>,
        came: Option<&Routed<'_>>,
        matches: Matches,
    ) -> Option<usize> {
        let mut spread = Spread {
            sender,
            message: Owned::new(message, to),
            came: came.map(|came| Came {
                plain: came.plain,
                asks: came.asks,
                passed: came.passed,
                groups: sorted(came.groups),
            }),
            matches,
            before: self.next_sub + 1,
            reached: Reached::default(),
            copies: 0,
            chosen: Chosen::default(),
            unheard: came.map_or(sender.wants, |came| came.asks && !came.plain),
        };
        let (all, pending) = self.deliver_part(now, &mut spread, AT_ONCE);
        if all {
            return spread.reached.any.then_some(pending);
        }
        self.set_spreading(sender.from, true);
        self.spreading.0.push_back(spread);
        Some(pending)
    }

    /// Delivers further parts of the messages on their way. The messages take turns, so that none waits for
    /// another.
    pub(super) fn go_on_spreading(&mut self, now: Time) {
        for _ in 0..PARTS {
            let Some(mut spread) = self.spreading.0.pop_front() else {
                return;
            };
            let (all, _) = self.deliver_part(now, &mut spread, PART);
            if !all {
                self.spreading.0.push_back(spread);
                continue;
            }
            self.set_spreading(spread.sender.from, false);
            if !spread.reached.any && spread.unheard {
                let (message, _) = spread.message.read();
                match (&spread.came, spread.sender.from) {
                    (Some(_), _) => self.tell_nobody_is_there(now, &message),
                    (None, Some(Party::Client(key))) => self.no_responders(key, &message),
                    (None, _) => {}
                }
            }
        }
    }

    /// Delivers one part of a message. Returns whether this part was the last one, so that the publisher may
    /// go on, and the backlog of its fullest receiver in bytes.
    fn deliver_part(&mut self, now: Time, spread: &mut Spread, limit: usize) -> (bool, usize) {
        let (message, to) = spread.message.read();
        let came = spread.came.as_ref().map(|came| Routed {
            plain: came.plain,
            groups: &came.groups,
            asks: came.asks,
            handed: false,
            passed: came.passed,
            to: None,
            message,
        });
        if let Some(peers) = &mut self.peers {
            peers.choose_again(std::mem::take(&mut spread.chosen));
        }
        self.sublist.gather(&mut spread.matches, limit);
        let sender = spread.sender;
        let mut fanout = self.fanout(now, sender, to, &message, came.as_ref(), spread.before);
        fanout.copies = spread.copies;
        fanout.is_sorted = true;
        let all = fanout.deliver_part(&spread.matches, &mut spread.reached, limit);
        let routed = if all { fanout.send_to_peers() } else { 0 };
        let (copies, behind, pending) = (fanout.copies, fanout.behind, fanout.pending_bytes);
        let copied = fanout.copied;
        if let Some(peers) = &mut self.peers {
            spread.chosen = peers.take_chosen();
        }
        let fresh = copies - spread.copies;
        spread.copies = copies;
        self.count_copies(fresh, routed, message.size() as u64, copied);
        self.settle(now, sender.from, behind);
        (all, pending)
    }

    /// Records whether a message of the publisher `from` has reached only a part of its receivers. After the
    /// last receiver the node reads from the publisher again, so that its messages keep their order.
    fn set_spreading(&mut self, from: Option<Party>, on: bool) {
        match (from, &mut self.peers) {
            (Some(Party::Client(key)), _) => {
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.spreading = on;
                    if !on {
                        self.resumed.push(key);
                    }
                }
            }
            (Some(Party::Peer(slot)), Some(peers)) => peers.set_spreading(slot, on),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_in_order() {
        let ids = |all: [u64; 3]| all.map(u64::to_le_bytes).concat();
        assert_eq!(*sorted(&ids([300, 2, u64::MAX])), *ids([2, 300, u64::MAX]));
        assert!(sorted(b"").is_empty());
    }

    #[test]
    fn a_message_comes_back_from_its_buffer() {
        let whole = Publish {
            subject: b"a.b",
            reply: Some(b"r"),
            headers: Some(b"NATS/1.0\r\n\r\n"),
            payload: b"text",
        };
        let bare = Publish {
            reply: None,
            headers: None,
            payload: b"",
            ..whole
        };
        for message in [whole, bare] {
            assert_eq!(Owned::new(&message, b"a.b").read(), (message, &b"a.b"[..]));
            assert_eq!(Owned::new(&message, b"to").read(), (message, &b"to"[..]));
        }
    }
}
