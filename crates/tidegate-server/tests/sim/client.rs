//! Clients: each publishes numbered messages, waits for acks as its window requires, and sends
//! unanswered messages again with the same id. A client decides only what to send; the world carries it.

use tidegate_cluster::groups::GroupId;

use std::collections::BTreeMap;

use crate::dice::Dice;

/// A message on its way into a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The group of its stream.
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

    /// The answer of a node that does not lead the group.
    pub(crate) const fn elsewhere(&self) -> Reply {
        self.reply(Told::Elsewhere)
    }
}

/// The result of a request.
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
    /// The last number of the subject differs from the expected one.
    Wrong {
        last: u64,
    },
    Refused(String),
    /// The node does not lead the group.
    Elsewhere,
}

/// The facts in an ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acked {
    pub(crate) stream: u32,
    pub(crate) seq: u64,
    pub(crate) crc: u32,
    /// The highest number acknowledged in the stream before the client first sent this message.
    pub(crate) floor: u64,
    pub(crate) again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One message after the other.
    Sync,
    /// Up to so many unanswered messages.
    Async(usize),
    /// One after the other, each only if no other client has published meanwhile; some clients
    /// share a subject.
    Conditional,
    /// Up to so many unanswered messages, into a stream that keeps only the last messages.
    Limited(usize),
    /// Up to so many unanswered messages, into a work queue.
    Queue(usize),
    /// Up to so many unanswered messages, into a stream by interest.
    Interest(usize),
}

struct Out {
    request: Request,
    sent_us: u64,
    floor: u64,
}

/// See the [module](self).
pub(crate) struct Client {
    id: usize,
    /// The group of its streams.
    pub(crate) group: GroupId,
    kind: Kind,
    dice: Dice,
    out: BTreeMap<u64, Out>,
    next: u64,
    /// The node that it sends to.
    pub(crate) node: usize,
    /// The nodes that keep the group.
    nodes: Vec<usize>,
    expected: u64,
    last_acked: u64,
    patience_us: u64,
    pub(crate) stopped: bool,
}

impl Client {
    /// Returns a client of the group with this number on these nodes.
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

    /// Returns the requests to send now, and the time of the next call. `floor` is the highest
    /// number acknowledged so far.
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
            | Kind::Interest(window) => window,
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

    /// Takes a reply. Returns the ack if it is the message's first.
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
                // Sends it again soon, to another node.
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

    /// The number of its stream; the streams are created in this order.
    pub(crate) fn stream(&self) -> u32 {
        match self.kind {
            Kind::Limited(_) => 2,
            Kind::Queue(_) => 3,
            Kind::Interest(_) => 4,
            _ => 1,
        }
    }

    /// Ends the client: its stream is lost, with the acknowledged messages.
    pub(crate) fn end(&mut self) {
        self.stopped = true;
        self.out.clear();
    }

    /// Returns whether every message is answered.
    pub(crate) fn is_done(&self) -> bool {
        self.out.is_empty()
    }
}
