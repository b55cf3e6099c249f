//! Encodes the changes of a consumer as bytes: one command in the log for all deliveries and acknowledgements
//! since the last such command.
//!
//! This module owns the layout of the bytes. Numbers are variable-length (seven bits a byte, low ones first;
//! differences that may be negative in zigzag). Messages that the consumer delivers in a row at one time form
//! one run of a few bytes, and an acknowledgement at the ack floor takes no bytes.
//!
//! ```text
//! version u8 = 1 | 2
//! delivered consumer_seq, stream_seq; ack floor consumer_seq, stream_seq
//! runs: count, then of each: stream_seq - end of the last run, length, consumer_seq,
//!       due_us - the last run's (zigzag), deliveries
//! removed above the floor: count, then of each: stream_seq - the last one
//! version 2 adds:
//! settled: count, then of each run: stream_seq - end of the last run, length
//! given up: count, then of each run: stream_seq - end of the last run, length
//! ```
//!
//! A run stands for `length` messages with successive numbers in stream and consumer. For any bytes, decoding
//! ends in a delta or an error, and allocates runs of at most [`UNACKED_MAX`] messages.
//!
//! Version 2 is for consumers of streams that keep a message only until consumers have settled it. It lists
//! every message that the consumer has settled, because a position cannot tell a settled message from a
//! message that the consumer passed over under an earlier filter, or gave up.

use std::ops::RangeInclusive;

use thiserror::Error;

use super::pending::Unacked;
use super::sequence::ConsumerSeq;
use super::state::{Position, State};
use crate::schema::sequence::StreamSeq;

/// The limit on the unacknowledged messages of one consumer, of its state and of one delta, which bounds the
/// memory of a node.
pub const UNACKED_MAX: usize = 1 << 20;

const VERSION: u8 = 1;
/// The version of a delta that also lists the messages that the consumer has settled and given up, for a
/// stream that keeps messages for its consumers.
const VERSION_SETTLING: u8 = 2;

/// The bound below which all numbers of deliveries and messages stay, so that adding 1 to a number never
/// overflows.
pub(super) const NUMBER_END: u64 = 1 << 62;

/// A delta: the changes of a consumer since its last delta, which each node applies to the consumer's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) delivered: Position,
    pub(super) ack_floor: Position,
    /// The messages that the consumer has delivered, redelivered or delayed since its last delta and that
    /// still await an acknowledgement. They are in the order of their numbers in the stream, so that they
    /// form runs.
    pub(super) unacked: Vec<Unacked>,
    /// The messages above the ack floor that have ceased to await an acknowledgement since the last delta, in
    /// the order of their numbers in the stream. A new leader does not redeliver them.
    pub(super) removed: Vec<StreamSeq>,
    /// The messages that the consumer has settled or given up since the last delta; `None` if the stream
    /// keeps messages regardless of consumers and needs no list.
    pub(super) settling: Option<Settling>,
}

/// Returns whether this delta lists the messages that the consumer has settled, so that it needs the command
/// for such deltas.
#[must_use]
pub fn lists_settled(delta: &[u8]) -> bool {
    delta.first() == Some(&VERSION_SETTLING)
}

/// Returns whether this delta lists a message that the consumer has settled, so that the stream may remove
/// the message.
#[must_use]
pub fn settles(delta: &[u8]) -> bool {
    let settling = Delta::decode(delta).ok().and_then(|d| d.settling);
    settling.is_some_and(|settling| !settling.settled.is_empty())
}

/// Returns the delta that moves a consumer without deliveries from this state to message `to`, and settles
/// the messages in these runs. Holders use it: they only keep messages of an origin. The runs must be in
/// rising order and end at `to` or before.
#[must_use]
pub fn settled_up_to(
    state: &State,
    to: StreamSeq,
    settled: &[RangeInclusive<StreamSeq>],
) -> Vec<u8> {
    let at = Position {
        stream_seq: to,
        ..state.delivered()
    };
    let delta = Delta {
        delivered: at,
        ack_floor: at,
        settling: Some(Settling {
            settled: settled.to_vec(),
            given_up: Vec::new(),
        }),
        ..Delta::default()
    };
    let mut out = Vec::new();
    delta.encode(&mut out);
    out
}

/// A run of messages with successive numbers in a stream, which takes as little memory as one number.
pub(crate) type Run = RangeInclusive<StreamSeq>;

/// The messages that a consumer has settled or given up, from which the stream knows the messages to remove,
/// as runs by rising number in the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settling {
    /// The messages that receivers have acknowledged or terminated, and those that the consumer delivered
    /// without expecting an acknowledgement. The stream may remove them.
    pub(super) settled: Vec<Run>,
    /// The messages that the consumer has given up: no receiver acknowledged them within the delivery limit,
    /// or the node cannot read them. The stream keeps them.
    pub(super) given_up: Vec<Run>,
}

/// The reason why a node cannot decode bytes as the state or a delta of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The bytes end before the end of the consumer's state or delta. The file or the transfer was cut off.
    #[error("a consumer's state ends too early")]
    Short,
    /// More bytes follow after the end of the consumer's state or delta. So the decoder does not trust the
    /// bytes.
    #[error("a consumer's state is followed by something else")]
    Long,
    /// Another version of the program wrote the state or delta; the field is the version of its layout, so
    /// that an operator can use that program.
    #[error(
        "a consumer's state is of version {0}, expected {VERSION} or {VERSION_SETTLING}: use the program that wrote it"
    )]
    Version(u8),
    /// The numbers in the consumer's state or delta contradict each other, so no consumer has written these
    /// bytes, and the node must not use them.
    #[error("a consumer's state contradicts itself")]
    Inconsistent,
    /// The state or delta has more unacknowledged messages, or more messages that the consumer has given up,
    /// than [`UNACKED_MAX`]. The decoder refuses it, because it would take too much memory.
    #[error("a consumer's state holds more than {UNACKED_MAX} unacknowledged messages")]
    Large,
}

impl Delta {
    /// Encodes the changes of the consumer, and appends the bytes to `out`, for a command of the log or a
    /// snapshot.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self.settling {
            None => VERSION,
            Some(_) => VERSION_SETTLING,
        });
        for p in [self.delivered, self.ack_floor] {
            put(out, p.consumer_seq.get());
            put(out, p.stream_seq.get());
        }
        let runs = || self.unacked.chunk_by(follows);
        put(out, runs().count() as u64);
        let (mut end, mut due) = (0, 0);
        for run in runs() {
            let first = &run[0];
            let seq = first.stream_seq.get();
            put(out, seq - end);
            put(out, run.len() as u64);
            put(out, first.consumer_seq.get());
            put(out, zigzag(first.due_us.wrapping_sub(due)));
            put(out, u64::from(first.deliveries));
            end = seq + run.len() as u64;
            due = first.due_us;
        }
        put(out, self.removed.len() as u64);
        let mut last = 0;
        for seq in &self.removed {
            put(out, seq.get() - last);
            last = seq.get();
        }
        if let Some(settling) = &self.settling {
            encode_runs(&settling.settled, out);
            encode_runs(&settling.given_up, out);
        }
    }

    /// Decodes the changes of a consumer from a delta that fills `bytes`, when a node applies the delta.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DeltaError> {
        let (version, mut rest) = bytes.split_first().ok_or(DeltaError::Short)?;
        if ![VERSION, VERSION_SETTLING].contains(version) {
            return Err(DeltaError::Version(*version));
        }
        let rest = &mut rest;
        let position = |rest: &mut &[u8]| {
            Ok(Position {
                consumer_seq: ConsumerSeq::new(get(rest)?),
                stream_seq: StreamSeq::new(get(rest)?),
            })
        };
        let mut delta = Self {
            delivered: position(rest)?,
            ack_floor: position(rest)?,
            ..Self::default()
        };
        let possible = |n: u64| n < NUMBER_END;
        if delta.ack_floor.max(delta.delivered) != delta.delivered
            || !possible(delta.delivered.consumer_seq.get())
            || !possible(delta.delivered.stream_seq.get())
        {
            return Err(DeltaError::Inconsistent);
        }
        delta.decode_runs(rest)?;
        let mut last = 0_u64;
        for _ in 0..get(rest)? {
            last = last
                .checked_add(get(rest)?)
                .ok_or(DeltaError::Inconsistent)?;
            delta.removed.push(StreamSeq::new(last));
        }
        if *version == VERSION_SETTLING {
            let settling = Settling {
                settled: delta.decode_settling(rest)?,
                given_up: delta.decode_settling(rest)?,
            };
            if len_of(&settling.given_up) > UNACKED_MAX as u64 {
                return Err(DeltaError::Large);
            }
            delta.settling = Some(settling);
        }
        if !rest.is_empty() {
            return Err(DeltaError::Long);
        }
        Ok(delta)
    }

    fn decode_settling(&self, rest: &mut &[u8]) -> Result<Vec<Run>, DeltaError> {
        let (mut runs, mut end) = (Vec::new(), 0_u64);
        for _ in 0..get(rest)? {
            let (gap, len) = (get(rest)?, get(rest)?);
            let first = end.checked_add(gap).ok_or(DeltaError::Inconsistent)?;
            end = first.checked_add(len).ok_or(DeltaError::Inconsistent)?;
            if len == 0 || first == 0 || end - 1 > self.delivered.stream_seq.get() {
                return Err(DeltaError::Inconsistent);
            }
            runs.push(StreamSeq::new(first)..=StreamSeq::new(end - 1));
        }
        Ok(runs)
    }

    fn decode_runs(&mut self, rest: &mut &[u8]) -> Result<(), DeltaError> {
        let (mut end, mut due) = (0_u64, 0_u64);
        for _ in 0..get(rest)? {
            let (gap, len, consumer_seq) = (get(rest)?, get(rest)?, get(rest)?);
            due = due.wrapping_add(unzigzag(get(rest)?));
            let deliveries = u32::try_from(get(rest)?).map_err(|_| DeltaError::Inconsistent)?;
            if len > (UNACKED_MAX - self.unacked.len()) as u64 {
                return Err(DeltaError::Large);
            }
            let first = end.checked_add(gap).ok_or(DeltaError::Inconsistent)?;
            end = first.checked_add(len).ok_or(DeltaError::Inconsistent)?;
            let last_delivery = consumer_seq
                .checked_add(len)
                .ok_or(DeltaError::Inconsistent)?;
            if len == 0
                || first == 0
                || consumer_seq == 0
                || deliveries == 0
                || end - 1 > self.delivered.stream_seq.get()
                || last_delivery - 1 > self.delivered.consumer_seq.get()
            {
                return Err(DeltaError::Inconsistent);
            }
            self.unacked.extend((0..len).map(|i| Unacked {
                stream_seq: StreamSeq::new(first + i),
                consumer_seq: ConsumerSeq::new(consumer_seq + i),
                due_us: due,
                deliveries,
                live: (),
            }));
        }
        Ok(())
    }
}

/// Returns whether the message `b`, which comes just after `a` in the delta, continues the run of messages of
/// `a`, so that one run encodes both.
fn follows(a: &Unacked, b: &Unacked) -> bool {
    b.stream_seq == a.stream_seq.next()
        && b.consumer_seq == a.consumer_seq.after(1)
        && b.due_us == a.due_us
        && b.deliveries == a.deliveries
}

/// Writes runs of message numbers, each as the distance to the run before, because small numbers take few
/// bytes.
fn encode_runs(runs: &[Run], out: &mut Vec<u8>) {
    put(out, runs.len() as u64);
    let mut end = 0;
    for run in runs {
        let (first, last) = (run.start().get(), run.end().get());
        put(out, first - end);
        put(out, last - first + 1);
        end = last + 1;
    }
}

/// Returns the number of messages in these runs, for the limit on the messages of a delta.
fn len_of(runs: &[Run]) -> u64 {
    let lens = runs.iter().map(|run| run.end().distance(*run.start()) + 1);
    lens.sum()
}

/// Returns the runs of these message numbers, which must be in rising order. Runs take fewer bytes in a delta
/// than single numbers.
pub(super) fn runs_of(seqs: impl IntoIterator<Item = StreamSeq>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for seq in seqs {
        match runs.last_mut() {
            Some(run) if run.end().next() == seq => *run = *run.start()..=seq,
            _ => runs.push(seq..=seq),
        }
    }
    runs
}

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn get(bytes: &mut &[u8]) -> Result<u64, DeltaError> {
    let mut n = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(DeltaError::Short)?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(DeltaError::Inconsistent);
        }
        n |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(n);
        }
    }
    Err(DeltaError::Inconsistent)
}

/// Encodes a difference, computed in wrapping arithmetic, so that a small difference of either sign becomes a
/// small number, which takes few bytes.
const fn zigzag(n: u64) -> u64 {
    (n << 1) ^ ((n as i64 >> 63) as u64)
}

const fn unzigzag(n: u64) -> u64 {
    (n >> 1) ^ (n & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::consumer::State;

    fn unacked(stream_seq: u64, consumer_seq: u64, due_us: u64, deliveries: u32) -> Unacked {
        Unacked {
            stream_seq: StreamSeq::new(stream_seq),
            consumer_seq: ConsumerSeq::new(consumer_seq),
            due_us,
            deliveries,
            live: (),
        }
    }

    #[test]
    fn a_batch_delivered_in_a_row_is_a_few_bytes() {
        let delta = Delta {
            delivered: Position {
                consumer_seq: ConsumerSeq::new(500),
                stream_seq: StreamSeq::new(10_500),
            },
            ack_floor: Position {
                consumer_seq: ConsumerSeq::new(0),
                stream_seq: StreamSeq::new(10_000),
            },
            unacked: (1..=500)
                .map(|n| unacked(10_000 + n, n, 1_700_000_000_000_000, 1))
                .collect(),
            ..Delta::default()
        };
        let mut bytes = Vec::new();
        delta.encode(&mut bytes);
        assert!(bytes.len() < 30, "{}", bytes.len());
        assert_eq!(Delta::decode(&bytes), Ok(delta));
    }

    #[test]
    fn contradictory_states_are_refused() {
        let case = |bytes: &[u8]| Delta::decode(bytes).unwrap_err();
        assert_eq!(case(&[]), DeltaError::Short);
        assert_eq!(case(&[3]), DeltaError::Version(3));
        assert_eq!(case(&[2, 9, 9, 0, 0, 0, 0]), DeltaError::Short);
        for run in [[0, 1], [1, 0], [1, 10]] {
            let [first, len] = run;
            assert_eq!(
                case(&[2, 9, 9, 0, 0, 0, 0, 0, 1, first, len]),
                DeltaError::Inconsistent
            );
        }
        assert_eq!(case(&[1, 0, 0, 0, 1, 0, 0]), DeltaError::Inconsistent);
        assert_eq!(
            case(&[1, 9, 9, 0, 0, 1, 9, 2, 1, 0, 1, 0]),
            DeltaError::Inconsistent
        );
        assert_eq!(
            case(&[1, 9, 9, 0, 0, 1, 9, 1, 1, 0, 0, 0]),
            DeltaError::Inconsistent
        );
        for zero in [[0, 1, 1], [1, 1, 0]] {
            let [first, len, consumer_seq] = zero;
            let bytes = [1, 9, 9, 0, 0, 1, first, len, consumer_seq, 0, 1, 0];
            assert_eq!(case(&bytes), DeltaError::Inconsistent);
        }
        let mut huge = vec![1];
        put(&mut huge, NUMBER_END);
        huge.extend([0, 0, 0, 0, 0]);
        assert_eq!(case(&huge), DeltaError::Inconsistent);
        assert_eq!(case(&[1, 9, 9, 0, 0, 0, 0, 0]), DeltaError::Long);
        assert_eq!(
            case(&[1, 9, 9, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0x7f, 1, 0, 1, 0]),
            DeltaError::Large
        );
        let mut long = vec![1];
        long.extend([0xff; 11]);
        assert_eq!(case(&long), DeltaError::Inconsistent);
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(
            raw in proptest::collection::btree_map(1_u64..5000, (1_u64..9000, any::<u64>(), 1_u32..9), 0..50),
            removed in proptest::collection::btree_set(any::<u64>(), 0..50),
            settling in proptest::option::of([
                proptest::collection::btree_set(1_u64..5000, 0..50),
                proptest::collection::btree_set(1_u64..60, 0..50),
            ]),
        ) {
            let runs = |seqs: &std::collections::BTreeSet<u64>| runs_of(seqs.iter().copied().map(StreamSeq::new));
            let delta = Delta {
                delivered: Position { consumer_seq: ConsumerSeq::new(9000), stream_seq: StreamSeq::new(5000) },
                ack_floor: Position { consumer_seq: ConsumerSeq::new(3), stream_seq: StreamSeq::ZERO },
                unacked: raw.into_iter().map(|(s, (c, d, n))| unacked(s, c, d, n)).collect(),
                removed: removed.into_iter().map(StreamSeq::new).collect(),
                settling: settling.map(|[a, b]| Settling { settled: runs(&a), given_up: runs(&b) }),
            };
            let mut bytes = Vec::new();
            delta.encode(&mut bytes);
            for cut in 0..bytes.len() {
                prop_assert!(Delta::decode(&bytes[..cut]).is_err());
            }
            prop_assert_eq!(Delta::decode(&bytes).unwrap(), delta);
            let mut state = State::starting_at(StreamSeq::FIRST);
            let settled = state.release(&bytes).unwrap().settled;
            prop_assert!(settled.iter().flat_map(|run| run.start().up_to(run.end().next())).all(|seq| !state.needs(seq)));
            state.check_invariants();
            prop_assert_eq!(State::decode(&state.encode()).unwrap(), state);
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut state = State::starting_at(StreamSeq::FIRST);
            for version in [None, Some(VERSION), Some(VERSION_SETTLING)] {
                let mut bytes = bytes.clone();
                if let (Some(version), Some(first)) = (version, bytes.first_mut()) {
                    *first = version;
                }
                if state.apply(&bytes).is_ok() {
                    state.check_invariants();
                }
            }
        }
    }
}
