//! Follows fast-ingest batches: the server stores the messages of a batch as they arrive, and acknowledges
//! many of them together.
//!
//! ```text
//! handle_message --Store--> proposed --handle_outcome--> stored --poll_acks--> acknowledged
//!        |                                    |
//!        +-- held behind a message that may be refused <-- poll_released
//! ```
//!
//! This module owns each batch's positions, its gaps, its end, its limits, and the times of acknowledgements
//! ([`super::pacing`]). The state machine of the stream decides whether the stream may store a message, when
//! it applies the message's log entry. The node that proposes a message keeps the [`Ticket`] of the message,
//! and reports the outcomes in the order of the log.
//!
//! An acknowledgement covers only stored messages. In a batch that ends at the first gap (`fail`), the stream
//! must store nothing behind a refused message. But the outcome of a message arrives after the node has
//! proposed later messages. So if the state machine may refuse a message for the state of the stream
//! (expected sequences, a full stream that discards new messages), the node holds the later messages back
//! until it knows the outcome. The node cannot foresee other refusals, such as for a full disk. Such a
//! refusal also ends the batch. The stream may then store messages that the node has already proposed, and
//! the batch does not count them. A publisher that sends these messages again stores them twice.
//!
//! Polling order: after messages and outcomes, call [`Fast::poll_released`] until it returns nothing, then
//! [`Fast::poll_acks`], so that one acknowledgement covers all known outcomes.

mod batch;

use std::collections::VecDeque;

use hashbrown::{Equivalent, HashMap};
use slab::Slab;
use tidegate::Time;
use tidegate::boundary::DecisionLog;
use tidegate::controller::{SizeCosts, Snapshot};
use tidegate_nats::headers;

use self::batch::{Batch, HeldMessage};
use super::answer::{Answer, What};
use super::idle::Idle;
use super::pacing::{Pacing, Spacing};
use super::reply::{Control, Op, PatternError};
use super::{ID_BYTES_MAX, Incoming};
use crate::schema::config::{Discard, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::level;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// The limits on the open fast-ingest batches of a server, which bound the memory that they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastLimits {
    /// The limit on the fast-ingest batches that are open for one stream at a time, so that one stream's
    /// publishers do not use up the server's limit.
    pub per_stream_max: usize,
    /// The limit on the fast-ingest batches that are open on the server at a time, which bounds their memory.
    pub open_max: usize,
    /// The limit on the messages that one batch holds back behind a message that the state machine may
    /// refuse, in bytes. The batch ends at this limit.
    pub held_bytes_max: usize,
}

impl Default for FastLimits {
    fn default() -> Self {
        Self {
            per_stream_max: 1000,
            open_max: 50_000,
            held_bytes_max: 16 << 20,
        }
    }
}

/// The action that the caller must take after it has handed a message of a batch to [`Fast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The caller proposes the message, and later reports its outcome with this ticket, so that the batch can
    /// acknowledge it.
    Store(Ticket),
    /// The caller does nothing: the batch holds the message back until it knows an earlier outcome, or the
    /// stream must not store the message because the batch has ended or failed.
    Done,
}

/// Identifies a proposed message of a batch, until the caller reports the message's outcome to
/// [`Fast::handle_outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    batch: u32,
    /// The number of the batch among the batches that have had the index `batch`, so that a late outcome of
    /// an ended batch does not count for a newer batch.
    life: u32,
    seq: u64,
}

/// The outcome of a proposed message of a batch, after the group has applied it. The batch's acknowledgements
/// depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persisted<'a> {
    /// The stream stored the batch's message under this number, so the batch can acknowledge it.
    Stored(StreamSeq),
    /// The message is a duplicate: the stream had already stored it, under this number. A duplicate counts as
    /// stored.
    Duplicate(StreamSeq),
    /// The stream refused the batch's message with this error, which the batch tells to the publisher.
    Refused(&'a ApiError),
}

/// A message that a batch held back behind another message, and that the caller must propose now, because the
/// earlier outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of the stream to which the publisher sent the message.
    pub stream: StreamNumber,
    /// The ticket with which the caller reports the outcome of the message to [`Fast::handle_outcome`], as
    /// for each proposed message.
    pub ticket: Ticket,
    /// The subject of the held message, under which the caller proposes it.
    pub subject: Vec<u8>,
    /// The complete header block of the held message; empty if the message has no headers.
    pub headers: Vec<u8>,
    /// The payload of the held message, as the publisher sent it.
    pub payload: Vec<u8>,
}

/// All open fast-ingest batches of a server, and the controller that decides when the server acknowledges
/// them.
#[derive(Debug)]
pub struct Fast {
    limits: FastLimits,
    batches: Slab<Batch>,
    names: HashMap<Name, u32, foldhash::fast::RandomState>,
    /// The number of open batches of each stream; a stream without open batches is not in the map, so that
    /// the map does not grow with old streams.
    of_stream: HashMap<StreamNumber, usize, foldhash::fast::RandomState>,
    lives: u32,
    /// The batches with stored messages that the server has not acknowledged, in the order in which they
    /// began to wait, so that the server acknowledges the oldest first.
    unacked: VecDeque<u32>,
    released: VecDeque<Held>,
    pacing: Pacing,
    idle: Idle,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Name {
    stream: StreamNumber,
    id: Box<[u8]>,
}

#[derive(Hash)]
struct NameRef<'a> {
    stream: StreamNumber,
    id: &'a [u8],
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.stream == name.stream && *self.id == *name.id
    }
}

impl Fast {
    /// Creates the state of a server that has no open fast-ingest batch, with the limits that the server
    /// sets.
    #[must_use]
    pub fn new(limits: FastLimits) -> Self {
        Self {
            limits,
            batches: Slab::new(),
            names: HashMap::default(),
            of_stream: HashMap::default(),
            lives: 0,
            unacked: VecDeque::new(),
            released: VecDeque::new(),
            pacing: Pacing::new(),
            idle: Idle::default(),
        }
    }

    /// Makes the controller of acknowledgements write its decisions into `log`, under `name`, so that an
    /// operator can read why it decided so.
    pub fn log_to(&mut self, log: &DecisionLog, name: &str) {
        self.pacing.log_to(log, name);
    }

    /// Handles a message of a fast-ingest batch for a stream with this configuration; `control` is the
    /// message's parsed reply subject. Appends answers for the publisher to `answers`, and tells the caller
    /// whether to propose the message.
    pub fn handle_message(
        &mut self,
        now: Time,
        stream: StreamNumber,
        config: &StreamConfig,
        control: Result<Control<'_>, PatternError>,
        message: &Incoming<'_>,
        answers: &mut Vec<Answer>,
    ) -> Verdict {
        let opened = self.open(now, stream, config, control, message);
        let (control, key) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                answers.push(Answer {
                    stream,
                    to: message.reply.to_vec(),
                    what: What::Refused(error),
                });
                return Verdict::Done;
            }
        };
        let Some(batch) = self.batches.get_mut(key as usize) else {
            return Verdict::Done;
        };
        batch.heard = now;
        batch.reply.clear();
        batch.reply.extend_from_slice(message.reply);
        if control.op == Op::Ping {
            self.ping(now, key, control.seq, answers);
            return Verdict::Done;
        }
        if batch.ending {
            // The batch accepts no more messages. The publisher waits for the answer that ends the batch, and
            // then repeats the messages that this answer does not count.
            return Verdict::Done;
        }
        if !batch.take(control, answers) {
            self.settle(now, key, answers);
            return Verdict::Done;
        }
        if control.op == Op::CommitEob {
            batch.received -= 1;
            batch.ending = true;
            self.settle(now, key, answers);
            return Verdict::Done;
        }
        batch.ending = control.op == Op::Commit;
        if control.seq == 1 && !batch.ending {
            let msgs = batch.spacing.get();
            batch.answer(What::Flow { seq: 0, msgs }, answers);
        }
        let certain = batch.gap_ok || !may_be_refused(config, message.headers);
        let bytes = message.subject.len() + message.headers.len() + message.payload.len();
        batch.spacing.weigh(bytes as u64);
        if !batch.uncertain {
            return Verdict::Store(batch.propose(key, control.seq, certain));
        }
        if batch.held_bytes + bytes > self.limits.held_bytes_max {
            // The batch holds back too many bytes, so it ends before this message. The stream still stores
            // the messages that the batch already holds back.
            let (seq, error) = (control.seq, ApiError::TOO_MANY_REQUESTS);
            batch.answer(What::Error { seq, error }, answers);
            batch.received = seq - 1;
            batch.ending = true;
            return Verdict::Done;
        }
        batch.held_bytes += bytes;
        batch.held.push_back(HeldMessage {
            seq: control.seq,
            certain,
            subject: message.subject.to_vec(),
            headers: message.headers.to_vec(),
            payload: message.payload.to_vec(),
        });
        Verdict::Done
    }

    /// Handles the outcome of a proposed message. Ignores an outcome for a batch that has ended, because its
    /// publisher has the final answer.
    pub fn handle_outcome(
        &mut self,
        now: Time,
        ticket: Ticket,
        outcome: Persisted<'_>,
        answers: &mut Vec<Answer>,
    ) {
        let batch = self.batches.get_mut(ticket.batch as usize);
        let Some(batch) = batch.filter(|batch| batch.life == ticket.life) else {
            return;
        };
        batch.in_flight -= 1;
        if batch.in_flight == 0 {
            batch.uncertain = false;
        }
        // In a batch that ends at the first gap, no message behind a refused message counts as stored,
        // because the publisher sends those again.
        let counts = ticket.seq <= batch.received;
        match outcome {
            Persisted::Stored(seq) if counts => batch.stream_seq = seq,
            Persisted::Duplicate(seq) if counts && batch.stream_seq == StreamSeq::ZERO => {
                batch.stream_seq = seq
            }
            Persisted::Refused(error) if counts && batch.gap_ok => {
                let (seq, error) = (ticket.seq, error.clone());
                batch.answer(What::Error { seq, error }, answers);
                if batch.ending && seq == batch.received {
                    // The stream refused the last message of the batch, so the batch ends with the message
                    // before it, and its count is one lower.
                    batch.received -= 1;
                }
            }
            Persisted::Refused(error) if counts && ticket.seq == 1 => {
                // The stream refused the first message of the batch. The publisher gets the same answer as
                // for a message outside of a batch.
                batch.answer(What::Refused(error.clone()), answers);
                self.close(ticket.batch);
                return;
            }
            Persisted::Refused(error) if counts => batch.fail(ticket.seq, error.clone(), answers),
            _ => {}
        }
        if counts {
            batch.persisted = ticket.seq.min(batch.received);
        }
        self.release(ticket.batch);
        self.settle(now, ticket.batch, answers);
    }

    /// Returns the next message that a batch held back and that the caller must propose now; `None` if no
    /// such message is left. A known outcome releases them.
    pub fn poll_released(&mut self) -> Option<Held> {
        self.released.pop_front()
    }

    /// Acknowledges stored messages, if the controller allows an acknowledgement now or a publisher may have
    /// stopped to wait for one. Returns whether it added acknowledgements to `answers`. If so, the caller
    /// sends them, then calls [`Fast::handle_acks_sent`].
    pub fn poll_acks(&mut self, now: Time, answers: &mut Vec<Answer>) -> bool {
        let (mut backlog, mut forced, mut oldest) = (0, 0_u64, now);
        for &key in &self.unacked {
            let batch = &self.batches[key as usize];
            backlog += batch.unacked();
            forced += u64::from(batch.must_ack());
            oldest = oldest.min(batch.persisted_since.unwrap_or(now));
        }
        if backlog == 0 {
            return false;
        }
        let allowed = self.pacing.allows(now, backlog, oldest);
        if !allowed && forced == 0 {
            return false;
        }
        let (open, mut acked) = (self.batches.len(), 0);
        for _ in 0..self.unacked.len() {
            let Some(key) = self.unacked.pop_front() else {
                break;
            };
            let batch = &mut self.batches[key as usize];
            if allowed || batch.must_ack() {
                acked += batch.unacked();
                batch.ack(open, answers);
            } else {
                self.unacked.push_back(key);
            }
        }
        self.pacing.started(now, acked, backlog - acked, !allowed);
        true
    }

    /// Records that the caller has sent the acknowledgements of [`Fast::poll_acks`], and that sending them
    /// took `cost_ns` nanoseconds, so that the controller learns the cost.
    pub fn handle_acks_sent(&mut self, now: Time, cost_ns: u64) {
        self.pacing.finished(now, cost_ns);
    }

    /// Forgets the batches for which no message has arrived for 10 s, except those with a proposed message
    /// that has no outcome yet. Their publishers have gone, and the memory is needed.
    pub fn handle_timeouts(&mut self, now: Time) {
        if !self.idle.is_due(now) {
            return;
        }
        let over = |batch: &Batch| batch.in_flight == 0 && Idle::is_over(now, batch.heard);
        let silent: Vec<usize> = self
            .batches
            .iter()
            .filter(|(_, b)| over(b))
            .map(|(k, _)| k)
            .collect();
        for key in silent {
            self.close(index(key));
        }
        let oldest = self.batches.iter().map(|(_, batch)| batch.heard).min();
        self.idle.looked(now, oldest);
    }

    /// Returns the time at which the caller must call [`Fast::poll_acks`] and [`Fast::handle_timeouts`],
    /// unless a message or an outcome arrives earlier. `None` if no call is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let acks = self.pacing.due().filter(|_| !self.unacked.is_empty());
        [acks, self.idle.deadline()].into_iter().flatten().min()
    }

    /// Forgets the open batches of a stream that a client has deleted, or that no longer accepts fast-ingest
    /// batches, because the stream stores no more of their messages.
    pub fn handle_stream_gone(&mut self, stream: StreamNumber) {
        let of_stream = self
            .batches
            .iter()
            .filter(|(_, batch)| batch.stream == stream);
        let keys: Vec<usize> = of_stream.map(|(key, _)| key).collect();
        for key in keys {
            self.close(index(key));
        }
        self.released.retain(|held| held.stream != stream);
    }

    /// Returns the number of open fast-ingest batches on the server, which its limit bounds.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.batches.len()
    }

    /// Returns a snapshot of the controller that decides when the server sends acknowledgements, for
    /// monitoring.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.pacing.snapshot()
    }

    /// Returns the costs of acknowledgements by size that this controller has measured, for monitoring.
    #[must_use]
    pub fn size_costs(&self) -> SizeCosts {
        self.pacing.size_costs()
    }

    /// Returns the parsed reply subject of a message and the index of its open batch; starts the batch at the
    /// batch's first message. Returns the error for a message that belongs to no batch.
    fn open<'a>(
        &mut self,
        now: Time,
        stream: StreamNumber,
        config: &StreamConfig,
        control: Result<Control<'a>, PatternError>,
        message: &Incoming<'_>,
    ) -> Result<(Control<'a>, u32), ApiError> {
        super::acceptable(config, message)?;
        if !config.allow_batched {
            return Err(ApiError::BATCH_DISABLED);
        }
        let control = control.map_err(|PatternError| ApiError::BATCH_INVALID_PATTERN)?;
        if control.id.len() > ID_BYTES_MAX {
            return Err(ApiError::BATCH_INVALID_ID);
        }
        let id = control.id;
        let known = self.names.get(&NameRef { stream, id }).copied();
        let sufficient = level::suffices(message.headers);
        let key = match known {
            Some(key) if sufficient => key,
            Some(key) => {
                self.close(key);
                return Err(ApiError::REQUIRED_API_LEVEL);
            }
            None if control.seq != 1 || control.op == Op::Ping => {
                return Err(ApiError::BATCH_UNKNOWN_ID);
            }
            None if !sufficient => return Err(ApiError::REQUIRED_API_LEVEL),
            None => self.start(now, stream, &control)?,
        };
        Ok((control, key))
    }

    fn start(
        &mut self,
        now: Time,
        stream: StreamNumber,
        control: &Control<'_>,
    ) -> Result<u32, ApiError> {
        let of_stream = self.of_stream.get(&stream).copied().unwrap_or(0);
        if of_stream >= self.limits.per_stream_max || self.batches.len() >= self.limits.open_max {
            return Err(ApiError::BATCH_TOO_MANY);
        }
        self.lives = self.lives.wrapping_add(1);
        let key = index(self.batches.insert(Batch {
            stream,
            id: control.id.to_vec(),
            life: self.lives,
            gap_ok: control.gap_ok,
            spacing: Spacing::new(control.flow),
            reply: Vec::new(),
            heard: now,
            received: 0,
            persisted: 0,
            acked: 0,
            persisted_since: None,
            in_flight: 0,
            uncertain: false,
            held: VecDeque::new(),
            held_bytes: 0,
            stream_seq: StreamSeq::ZERO,
            ending: false,
        }));
        let id = control.id.into();
        self.names.insert(Name { stream, id }, key);
        *self.of_stream.entry(stream).or_insert(0) += 1;
        self.idle.watch(now);
        Ok(key)
    }

    /// Answers a ping with the position of the batch. If messages that the publisher sent before the ping did
    /// not arrive, reports the gap first, so that the publisher can send them again.
    fn ping(&mut self, now: Time, key: u32, seq: u64, answers: &mut Vec<Answer>) {
        let batch = &mut self.batches[key as usize];
        if seq > batch.received {
            let (expected, next) = (batch.received + 1, seq + 1);
            batch.answer(
                What::Gap {
                    expected,
                    seq: next,
                },
                answers,
            );
            if batch.gap_ok && !batch.ending {
                batch.received = seq;
            } else {
                batch.ending = true;
            }
            if self.settle(now, key, answers) {
                return;
            }
        }
        let batch = &mut self.batches[key as usize];
        let (seq, msgs) = (batch.acked, batch.spacing.get());
        batch.answer(What::Flow { seq, msgs }, answers);
    }

    /// Releases messages that a batch held back, in order, up to the next message that the state machine may
    /// refuse: the messages behind this message must wait for its outcome.
    fn release(&mut self, key: u32) {
        let batch = &mut self.batches[key as usize];
        while !batch.uncertain {
            let Some(held) = batch.held.pop_front() else {
                break;
            };
            batch.held_bytes -= held.subject.len() + held.headers.len() + held.payload.len();
            self.released.push_back(Held {
                stream: batch.stream,
                ticket: batch.propose(key, held.seq, held.certain),
                subject: held.subject,
                headers: held.headers,
                payload: held.payload,
            });
        }
    }

    /// Updates a batch after a change: closes the batch if it has ended, otherwise queues the batch for an
    /// acknowledgement if it has unacknowledged messages. Returns whether it has closed the batch.
    fn settle(&mut self, now: Time, key: u32, answers: &mut Vec<Answer>) -> bool {
        let batch = &mut self.batches[key as usize];
        if batch.in_flight == 0 && batch.held.is_empty() {
            // All outcomes of the batch are known, so the acknowledgement may also cover missing, refused and
            // duplicate messages.
            batch.persisted = batch.received;
        }
        if batch.ending && batch.in_flight == 0 && batch.held.is_empty() {
            let end = What::End {
                stream_seq: batch.stream_seq,
                id: batch.id.clone(),
                count: batch.received,
            };
            batch.answer(end, answers);
            self.close(key);
            return true;
        }
        if batch.unacked() > 0 && batch.persisted_since.is_none() {
            batch.persisted_since = Some(now);
            self.unacked.push_back(key);
        }
        false
    }

    fn close(&mut self, key: u32) {
        let batch = self.batches.remove(key as usize);
        let name = NameRef {
            stream: batch.stream,
            id: &batch.id,
        };
        self.names.remove(&name);
        if let Some(count) = self.of_stream.get_mut(&batch.stream) {
            *count -= 1;
            if *count == 0 {
                self.of_stream.remove(&batch.stream);
            }
        }
        if batch.persisted_since.is_some() {
            self.unacked.retain(|&other| other != key);
        }
    }

    /// Panics if an invariant of the open batches does not hold. Tests call this after every step of a batch.
    #[cfg(test)]
    fn check_invariants(&self) {
        assert_eq!(self.names.len(), self.batches.len());
        assert_eq!(self.of_stream.values().sum::<usize>(), self.batches.len());
        for (key, batch) in &self.batches {
            assert!(batch.acked <= batch.persisted && batch.persisted <= batch.received);
            assert_eq!(
                batch.persisted_since.is_some(),
                self.unacked.contains(&index(key))
            );
            assert_eq!(batch.persisted_since.is_some(), batch.unacked() > 0);
            assert!(batch.spacing.get() >= 1);
            assert!(batch.held.is_empty() || batch.uncertain);
            assert!(batch.held_bytes <= self.limits.held_bytes_max);
            assert!(!(batch.ending && batch.in_flight == 0 && batch.held.is_empty()));
        }
    }
}

/// Returns whether the state machine may refuse a message with these headers because of the state that the
/// stream has when a node applies the message. The batch then holds later messages back.
fn may_be_refused(config: &StreamConfig, block: &[u8]) -> bool {
    let limited = config.max_msgs > 0 || config.max_bytes > 0 || config.discard_new_per_subject;
    // The header `Nats-Msg-Id` gives no reason to expect a refusal: the message may be a duplicate, and
    // duplicates count as stored.
    let checked = |name: &[u8]| name.starts_with(b"Nats-") && name != b"Nats-Msg-Id";
    (config.discard == Discard::New && limited)
        || headers::lines(block).any(|(_, name, _)| checked(name))
}

fn index(key: usize) -> u32 {
    u32::try_from(key).expect("far fewer batches than 2^32 may be open")
}

#[cfg(test)]
mod tests;
