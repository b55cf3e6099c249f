//! Writes a backup in the form of nats-server 2.15, entry by entry, so that nats-server can restore it too.

use serde::Serialize;

use super::archive::{CONSUMERS, Header, MAGIC, STATE, State};
use super::consumer::{Pair, Pending, State as ConsumerState};
use super::s2;
use crate::consumer::State as Position;
use crate::schema::config::ConsumerConfig;
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

/// The facts about a stream with which a backup begins. A reader checks the rest against them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The counts, numbers and times of the stream's messages at the beginning of the backup.
    pub state: crate::stream::StreamState,
    /// The time at which the server created the stream, in microseconds since 1970.
    pub created_us: u64,
    /// The number of consumers that the backup has, so that a reader knows where the messages begin.
    pub consumers: usize,
}

/// A consumer as the caller puts it into the backup.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerFacts<'a> {
    /// The name of the consumer, which becomes the name of its entry.
    pub name: &'a str,
    /// The time at which the server created the consumer, in microseconds since 1970.
    pub created_us: u64,
    /// The consumer's configuration, which a restored consumer has too.
    pub config: &'a ConsumerConfig,
    /// The deliveries and acknowledgements of the consumer, from which a restored consumer continues.
    pub state: &'a Position,
}

/// Writes a backup of one stream: [`Writer::begin`], the consumers, the messages, [`Writer::end`]. The caller
/// takes the compressed bytes out as they come, and sends them to the client.
#[derive(Debug)]
pub struct Writer {
    plain: Vec<u8>,
    out: Vec<u8>,
    encoder: snap::raw::Encoder,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            plain: Vec::new(),
            out: Vec::new(),
            encoder: snap::raw::Encoder::new(),
        }
    }
}

impl Writer {
    /// Writes the beginning of a backup: the mark of the format, and the state of the stream.
    pub fn begin(&mut self, now_us: u64, summary: &Summary) {
        s2::begin(&mut self.out);
        self.plain.extend_from_slice(MAGIC);
        let Summary {
            state,
            created_us,
            consumers,
        } = *summary;
        let time = |us: u64| match us {
            0 => Timestamp::ZERO,
            us => Timestamp::from_micros(us),
        };
        // The writer states 0 as the first number of a stream that never had a message, as nats-server does.
        let untouched = state.last_seq == StreamSeq::ZERO && state.first_seq == StreamSeq::FIRST;
        let state = State {
            messages: state.messages,
            bytes: state.bytes,
            first_seq: if untouched { 0 } else { state.first_seq.get() },
            first_ts: time(state.first_time_us),
            last_seq: state.last_seq.get(),
            last_ts: time(state.last_time_us),
            consumer_count: consumers as i64,
            created: Some(time(created_us)),
        };
        self.described(STATE, now_us, &state);
    }

    /// Writes a consumer with its state, in the JSON of nats-server.
    pub fn consumer(&mut self, now_us: u64, facts: &ConsumerFacts<'_>) {
        #[derive(Serialize)]
        struct Entry<'a> {
            config: &'a ConsumerConfig,
            state: &'a ConsumerState,
            created: Timestamp,
        }
        let pair = |at: crate::consumer::Position| Pair {
            consumer_seq: at.consumer_seq.get(),
            stream_seq: at.stream_seq.get(),
        };
        let pending = facts.state.pending();
        let wait_us = (facts.config.ack_wait.max(0) / 1000) as u64;
        let state = ConsumerState {
            delivered: pair(facts.state.delivered()),
            ack_floor: pair(facts.state.ack_floor()),
            pending: pending
                .iter()
                .map(|u| {
                    // The message becomes due again after the consumer's wait, so the writer computes the
                    // time of the delivery from the due time.
                    let delivered_us = u.due_us.saturating_sub(wait_us);
                    let pending = Pending {
                        sequence: u.consumer_seq.get(),
                        timestamp: i64::try_from(u128::from(delivered_us) * 1000)
                            .unwrap_or(i64::MAX),
                    };
                    (u.stream_seq.get(), pending)
                })
                .collect(),
            redelivered: pending
                .iter()
                .filter(|u| u.deliveries > 1)
                .map(|u| (u.stream_seq.get(), u64::from(u.deliveries) - 1))
                .collect(),
        };
        let entry = Entry {
            config: facts.config,
            state: &state,
            created: Timestamp::from_micros(facts.created_us),
        };
        self.described(&format!("{CONSUMERS}{}", facts.name), now_us, &entry);
    }

    /// Writes a message of the stream, with its number. `time_us` is the time at which the stream stored it,
    /// in microseconds since 1970.
    pub fn message(
        &mut self,
        seq: StreamSeq,
        time_us: u64,
        subject: &[u8],
        headers: &[u8],
        payload: &[u8],
    ) {
        let header = Header {
            name: subject.len() as u64,
            time_ns: i64::try_from(u128::from(time_us) * 1000).unwrap_or(i64::MAX),
            seq: seq.get(),
            headers: headers.len() as u64,
            payload: payload.len() as u64,
        };
        header.put(&mut self.plain);
        for part in [subject, headers, payload] {
            self.plain.extend_from_slice(part);
        }
        self.compress(false);
    }

    /// Writes the end mark, by which a reader knows that the backup is whole.
    pub fn end(&mut self) {
        Header::default().put(&mut self.plain);
        self.compress(true);
    }

    /// Returns the number of bytes that the caller can take now, so that it can send full chunks.
    #[must_use]
    pub fn ready_bytes(&self) -> usize {
        self.out.len()
    }

    /// Takes at most `max` bytes of the backup out of the writer, to send them to the client.
    pub fn take(&mut self, max: usize) -> Vec<u8> {
        let rest = self.out.split_off(max.min(self.out.len()));
        std::mem::replace(&mut self.out, rest)
    }

    fn described(&mut self, name: &str, now_us: u64, what: &impl Serialize) {
        let json = serde_json::to_vec(what);
        let json = json.unwrap_or_else(|e| unreachable!("numbers and texts are JSON: {e}"));
        let header = Header {
            name: name.len() as u64,
            time_ns: i64::try_from(u128::from(now_us) * 1000).unwrap_or(i64::MAX),
            payload: json.len() as u64,
            ..Header::default()
        };
        header.put(&mut self.plain);
        self.plain.extend_from_slice(name.as_bytes());
        self.plain.extend_from_slice(&json);
        self.compress(false);
    }

    /// Compresses the whole frames that have gathered, or everything at the end of the backup.
    fn compress(&mut self, all: bool) {
        let mut frames = self.plain.chunks_exact(s2::FRAME_BYTES_MAX);
        for frame in &mut frames {
            s2::frame(frame, &mut self.encoder, &mut self.out);
        }
        let mut rest = frames.remainder().to_vec();
        if all && !rest.is_empty() {
            s2::frame(&rest, &mut self.encoder, &mut self.out);
            rest.clear();
        }
        self.plain = rest;
    }
}
