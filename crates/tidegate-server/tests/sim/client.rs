//! Simulates clients: each client publishes numbered messages, waits for acknowledgements as its window
//! requires, and sends unanswered messages again with their ids. A client decides only which messages it
//! sends; the world carries them.

use tidegate_cluster::groups::GroupId;

use std::collections::BTreeMap;

use crate::dice::Dice;
use crate::member::has_origins;
use crate::tapping::TAPPED;

/// A client's message on its way into a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The group that keeps the stream.
    pub(crate) group: GroupId,
    pub(crate) client: usize,
    pub(crate) number: u64,
    pub(crate) subject: Vec<u8>,
    pub(crate) headers: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Request {
    pub(crate) const fn reply(&self, told: Told) -> Reply {
        Reply {
            client: self.client,
            number: self.number,
            told,
        }
    }

    /// Makes the answer of a node that does not lead the group, so that the client asks another node.
    pub(crate) const fn elsewhere(&self) -> Reply {
        self.reply(Told::Elsewhere)
    }
}

/// A node's reply to a client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) client: usize,
    pub(crate) number: u64,
    pub(crate) told: Told,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Stored {
        stream: u32,
        seq: u64,
        again: bool,
    },
    /// The node refused the message, because the last sequence of the subject differs from the expected one.
    Wrong {
        last: u64,
    },
    Refused(String),
    /// The node does not lead the group, so the client must ask another node.
    Elsewhere,
}

/// The facts in a node's acknowledgement, which the oracle checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acked {
    pub(crate) stream: u32,
    pub(crate) seq: u64,
    pub(crate) crc: u32,
    /// The highest sequence that a client knew as acknowledged in the stream before it first sent this
    /// message.
    pub(crate) floor: u64,
    pub(crate) again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The client publishes one message after the other.
    Sync,
    /// The client has up to this number of unanswered messages.
    Async(usize),
    /// The client publishes one message after the other, each on the condition that no other client has
    /// published meanwhile. Some clients share a subject.
    Conditional,
    /// The client has up to this number of unanswered messages, into a stream that keeps only the last
    /// messages.
    Limited(usize),
    /// The client has up to this number of unanswered messages, into a work queue.
    Queue(usize),
    /// The client has up to this number of unanswered messages, into a stream with retention by interest.
    Interest(usize),
    /// The client has up to this number of unanswered messages, into a work queue that a stream reads by a
    /// consumer.
    Tapped(usize),
}

struct Out {
    request: Request,
    sent_us: u64,
    floor: u64,
}

/// A client of the world, see the [module](self).
pub(crate) struct Client {
    id: usize,
    /// The group that keeps the client's stream.
    pub(crate) group: GroupId,
    kind: Kind,
    dice: Dice,
    out: BTreeMap<u64, Out>,
    next: u64,
    /// The node to which the client sends its requests.
    pub(crate) node: usize,
    /// The nodes that keep the group, among which the client chooses.
    nodes: Vec<usize>,
    expected: u64,
    last_acked: u64,
    patience_us: u64,
    pub(crate) stopped: bool,
}

impl Client {
    /// Creates a client of the group with this number on these nodes.
    pub(crate) fn new(
        id: usize,
        (group, nodes): (GroupId, Vec<usize>),
        limited: bool,
        dice: &mut Dice,
    ) -> Self {
        let kind = match id % 5 {
            0 if id % 10 == 5 => Kind::Queue(dice.range(1, 16) as usize),
            1 if id % 10 == 6 => Kind::Interest(dice.range(1, 16) as usize),
            0 => Kind::Sync,
            1 if !limited => Kind::Async(dice.range(2, 16) as usize),
            2 => Kind::Conditional,
            4 if id % 10 == 4 && has_origins() => Kind::Tapped(dice.range(1, 16) as usize),
            3 => Kind::Limited(1),
            _ if limited => Kind::Limited(dice.range(4, 48) as usize),
            _ => Kind::Async(dice.range(4, 48) as usize),
        };
        Self {
            id,
            group,
            kind,
            out: BTreeMap::new(),
            next: 1,
            node: dice.pick(&nodes),
            nodes,
            expected: 0,
            last_acked: 0,
            patience_us: dice.range(200_000, 1_500_000),
            stopped: false,
            dice: dice.fork(),
        }
    }

    /// Returns the requests that the client sends now, and the time of the next call. `floor` is the highest
    /// sequence that the nodes have acknowledged so far.
    pub(crate) fn act(&mut self, now: u64, floor: u64) -> (Vec<Request>, u64) {
        let mut sending = Vec::new();
        for out in self.out.values_mut() {
            if out.sent_us + self.patience_us <= now {
                out.sent_us = now;
                sending.push(out.request.clone());
            }
        }
        if !sending.is_empty() {
            self.node = self.dice.pick(&self.nodes);
        }
        let window = match self.kind {
            Kind::Async(window)
            | Kind::Limited(window)
            | Kind::Queue(window)
            | Kind::Interest(window)
            | Kind::Tapped(window) => window,
            _ => 1,
        };
        if !self.stopped {
            let room = window.saturating_sub(self.out.len()) as u64;
            let count = if room > 0 {
                self.dice.range(1, room.min(12))
            } else {
                0
            };
            for _ in 0..count {
                let request = self.message();
                let out = Out {
                    request: request.clone(),
                    sent_us: now,
                    floor,
                };
                self.out.insert(request.number, out);
                sending.push(request);
            }
        }
        (sending, now + self.dice.range(2_000, 40_000))
    }

    fn message(&mut self) -> Request {
        let number = self.next;
        self.next += 1;
        let id = self.id;
        let mut headers = format!("NATS/1.0\r\nNats-Msg-Id: {id}-{number}\r\n");
        let subject = match self.kind {
            Kind::Sync | Kind::Async(_) => format!("s.{id}"),
            Kind::Conditional => {
                let line = format!("Nats-Expected-Last-Subject-Sequence: {}\r\n", self.expected);
                headers.push_str(&line);
                "s.shared".to_owned()
            }
            Kind::Limited(_) => format!("t.{}", number % 7),
            Kind::Queue(_) => format!("q.{}", number % 2),
            Kind::Interest(_) => format!("i.{}", number % 3),
            Kind::Tapped(_) => format!("p.{}", number % 3),
        };
        headers.push_str("\r\n");
        let len = match self.dice.below(20) {
            0 => self.dice.range(1_000, 6_000),
            1..=5 => self.dice.range(100, 600),
            _ => self.dice.range(0, 60),
        };
        let mut payload = format!("{id}-{number} ").into_bytes();
        payload.extend((0..len).map(|n| (n * 7 + number) as u8));
        Request {
            group: self.group,
            client: id,
            number,
            subject: subject.into_bytes(),
            headers: headers.into_bytes(),
            payload,
        }
    }

    /// Handles a node's reply. Returns the acknowledgement if it is the first for its message.
    pub(crate) fn handle_reply(
        &mut self,
        now: u64,
        reply: &Reply,
    ) -> Result<Option<Acked>, String> {
        let Some(out) = self.out.get_mut(&reply.number) else {
            return Ok(None);
        };
        match &reply.told {
            Told::Elsewhere => {
                // The client sends the message again soon, to another node.
                out.sent_us =
                    (now + self.dice.range(10_000, 80_000)).saturating_sub(self.patience_us);
                Ok(None)
            }
            Told::Wrong { last } => {
                if self.kind != Kind::Conditional {
                    return Err(format!(
                        "client {} expected nothing, and {last} is the last",
                        self.id
                    ));
                }
                self.expected = *last;
                self.out.remove(&reply.number);
                Ok(None)
            }
            Told::Refused(why) => Err(format!("client {} is refused: {why}", self.id)),
            Told::Stored { stream, seq, again } => {
                let acked = Acked {
                    stream: *stream,
                    seq: *seq,
                    crc: crc32c::crc32c(&out.request.payload),
                    floor: out.floor,
                    again: *again,
                };
                self.out.remove(&reply.number);
                let ordered =
                    matches!(self.kind, Kind::Sync | Kind::Conditional | Kind::Limited(1));
                if ordered {
                    if acked.seq <= self.last_acked {
                        return Err(format!(
                            "client {}: message {} has number {seq} after {}",
                            self.id, reply.number, self.last_acked
                        ));
                    }
                    self.last_acked = acked.seq;
                }
                self.expected = acked.seq;
                Ok(Some(acked))
            }
        }
    }

    /// Returns the number of the client's stream; the leader creates the streams in this order.
    pub(crate) fn stream(&self) -> u32 {
        match self.kind {
            Kind::Limited(_) => 2,
            Kind::Queue(_) => 3,
            Kind::Interest(_) => 4,
            Kind::Tapped(_) => TAPPED.get(),
            _ => 1,
        }
    }

    /// Ends the client, because its stream is lost with the acknowledged messages.
    pub(crate) fn end(&mut self) {
        self.stopped = true;
        self.out.clear();
    }

    /// Returns whether the nodes have answered every message of the client.
    pub(crate) fn is_done(&self) -> bool {
        self.out.is_empty()
    }
}
