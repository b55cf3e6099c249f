//! Gives streams a voice, through which they send answers, statuses, deliveries and advisories. The node
//! sends these messages, as it sends the messages of clients, once the event that caused them is over.
//!
//! A message to a subject that a stream takes also goes into that stream: the voice keeps the message in
//! `said`, and the node publishes it into the stream at the end of the turn. Nearly all messages go to
//! inboxes, and for these the voice does not look for a stream.

use tidegate_nats::parse::Publish;
use tidegate_stream::consumer::{Advisory, Delivery, Ready, Sink};
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::Streams;

use super::JetStream;
use super::context::{Context, INBOX};
use super::reads::BEHIND_BYTES;

/// A message that the server's streams sent to a subject that a stream takes, so that it goes into the
/// stream.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) to: Box<[u8]>,
    pub(super) headers: Option<Box<[u8]>>,
    pub(super) payload: Box<[u8]>,
}

/// The voice of a group's streams during one event, through which the streams send answers, deliveries and
/// advisories.
pub(crate) struct Voice<'a> {
    pub(super) cx: Context<'a>,
    /// The streams of the group: the voice looks among them for a stream that takes a sent message.
    pub(super) streams: &'a Streams,
    pub(super) wall_us: u64,
    pub(super) speech: &'a mut Speech,
}

/// The sent messages that go into streams of this group, and the numbers from which the group makes unique
/// names.
#[derive(Debug)]
pub(super) struct Speech {
    /// The messages that the voice sent to subjects which streams of this group take, until the node
    /// publishes them.
    pub(super) said: Vec<Said>,
    /// The number that makes the names from this node differ from the names of other nodes.
    pub(super) seed: u64,
    /// The number of consumer names that this node has made for this group since its start. The next name
    /// comes from the next number.
    named: u64,
    /// The number of advisories that have got an id from this node since its start. The next id comes from
    /// the next number.
    advisories: u64,
}

impl Speech {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            said: Vec::new(),
            seed,
            named: 0,
            advisories: 0,
        }
    }

    /// Makes a name for a new consumer without a name of its own. No other consumer on any node has the name.
    pub(super) fn unique_name(&mut self) -> String {
        self.named += 1;
        unique(self.seed, self.named, 8)
    }

    /// Makes the id of the next advisory, unique among all advisories, by which a watcher can tell advisories
    /// apart. The streams send the advisory at `wall_us`, in microseconds since the Unix epoch.
    pub(super) fn next_advisory(&mut self, wall_us: u64) -> String {
        self.advisories += 1;
        unique(wall_us, self.advisories, 22)
    }
}

impl Voice<'_> {
    /// Sends a message to the listeners at `to`. The listeners see `subject` as the subject of the message,
    /// which for a delivery is the stored message's subject.
    pub(super) fn say(
        &mut self,
        to: &[u8],
        subject: &[u8],
        reply: Option<&[u8]>,
        headers: &[u8],
        payload: &[u8],
    ) {
        let headers = Some(headers).filter(|h| !h.is_empty());
        if !to.starts_with(INBOX) && takes(self.streams, to) {
            self.speech.said.push(Said {
                to: to.into(),
                headers: headers.map(Into::into),
                payload: payload.into(),
            });
        }
        let message = Publish {
            subject,
            reply,
            headers,
            payload,
        };
        self.cx.outputs.say(to, &message);
    }

    /// Returns whether a client listens at `to`, or a stream takes messages of this subject, so that the
    /// streams make a message for `to` only if it has a receiver.
    pub(super) fn is_heard(&mut self, to: &[u8]) -> bool {
        takes(self.streams, to)
            || self.cx.around.collects(to)
            || self.cx.pending_at(to, None).is_some()
    }

    /// Sends the client at `to` the answer to its request, a message that has a body and no headers.
    pub(super) fn answer_with(&mut self, to: &[u8], body: &[u8]) {
        self.say(to, to, None, b"", body);
    }

    /// Sends a status, a message that has headers and no payload, to the client at `to`.
    pub(super) fn status_to(&mut self, to: &[u8], headers: &[u8]) {
        self.say(to, to, None, headers, b"");
    }
}

impl Sink for Voice<'_> {
    fn ready(&mut self, to: &[u8], group: Option<&[u8]>) -> Ready {
        readiness(self.cx.pending_at(to, group))
    }

    fn message(&mut self, to: &[u8], delivery: &Delivery<'_>) -> Ready {
        let before = self.cx.pending_at(to, None);
        self.say(
            to,
            delivery.subject,
            Some(delivery.reply),
            delivery.headers,
            delivery.payload,
        );
        let bytes = delivery.headers.len() + delivery.payload.len();
        readiness(before.map(|pending| pending + bytes))
    }

    fn is_full(&self) -> bool {
        self.cx.outputs.are_many()
    }

    fn status(&mut self, to: &[u8], reply: &[u8], headers: &[u8]) {
        let reply = (!reply.is_empty()).then_some(reply);
        self.say(to, to, reply, headers, b"");
    }

    fn answer(&mut self, to: &[u8]) {
        self.answer_with(to, b"");
    }

    fn advisory(&mut self, advisory: &Advisory<'_>) {
        let subject = advisory.subject();
        if !self.is_heard(subject.as_bytes()) {
            return;
        }
        let id = self.speech.next_advisory(self.wall_us);
        let time = Timestamp::from_micros(self.wall_us).to_string();
        let body = advisory.json(&id, &time);
        self.answer_with(subject.as_bytes(), &body);
    }
}

/// Returns whether the streams may send a receiver further messages: they may if at most [`BEHIND_BYTES`]
/// bytes wait in its outbox, so that a slow receiver does not fill the node's memory. `pending` is that
/// number; `None` if no client listens.
const fn readiness(pending: Option<usize>) -> Ready {
    match pending {
        None => Ready::Nobody,
        Some(pending) if pending > BEHIND_BYTES => Ready::Behind,
        Some(_) => Ready::Yes,
    }
}

/// Returns whether a stream that this group keeps takes messages of this subject, so that the node publishes
/// sent messages into it.
pub(super) fn takes(streams: &Streams, subject: &[u8]) -> bool {
    streams.taker(subject).is_some_and(|s| s.home().is_here())
}

impl JetStream {
    /// Returns whether this node leads the group, and an open stream of the group takes messages of this
    /// subject, so that the node gives it messages of this subject.
    pub(crate) fn collects(&self, subject: &[u8]) -> bool {
        let taker = self
            .role
            .serves
            .then(|| self.streams.taker(subject))
            .flatten();
        taker.is_some_and(|stream| self.is_open_here(stream))
    }

    /// Keeps a message that another group's streams sent, if a stream of this group takes it. The node
    /// publishes the message into that stream at the end of the turn.
    pub(crate) fn handle_said(&mut self, to: &[u8], message: &Publish<'_>) {
        if self.collects(to) {
            self.speech.said.push(Said {
                to: to.into(),
                headers: message.headers.map(Into::into),
                payload: message.payload.into(),
            });
        }
    }
}

/// Makes a text of `len` letters and digits for a unique name. The text differs for each `number` as long as
/// the seed is the same.
pub(super) fn unique(seed: u64, number: u64, len: usize) -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // Multiplication by an odd number maps different numbers to different numbers, so this node never makes
    // the same text twice.
    let scrambled = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
    let mut n = (u128::from(seed) << 64) | u128::from(scrambled);
    let letter = |_| {
        let letter = LETTERS[(n % 62) as usize];
        n /= 62;
        letter as char
    };
    (0..len).map(letter).collect()
}
