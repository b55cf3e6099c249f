//! Simulates a mirror of the first stream, a stream with the work queue as its source, and a stream that
//! takes in another work queue by a consumer ([`crate::tapping`]). The leader takes in messages as the
//! server's leader does, and sometimes proposes an intake twice. The model computes from the entries alone
//! which messages the streams have: the messages of their origin, each once and in order.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_raft::store::{Fetch, Store};
use tidegate_stream::consumer::settled_up_to;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Encoder, Intake, Kind, Origin, Outcome, Progress, Row};

use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::member::Member;
use crate::oracle::{Verdict, ensure};
use crate::retain::QUEUE;
use crate::tapping::{self, TAPPED, TAPPER, Tapped};

/// The numbers of the mirror and of the stream with a source, by their places in the order of creation.
const MIRROR: StreamNumber = StreamNumber::new(5);
const SOURCED: StreamNumber = StreamNumber::new(6);
/// The streams that take in messages: the stream, its origin, and the key of the source.
const TAKERS: [(StreamNumber, StreamNumber, &str); 3] = [
    (MIRROR, StreamNumber::FIRST, "S > >"),
    (SOURCED, QUEUE, "Q q.> >"),
    (TAPPER, TAPPED, "P:C=C > >"),
];
/// The name of the holder by which the work queue keeps its messages for the source.
const HOLDER: &str = "$TG.6.Q q.> >";
/// The most messages that the leader puts into one intake.
const TAKEN_MAX: u64 = 30;
/// A stream that is this number of messages behind its origin takes in as many as it can.
const FAR: u64 = 1000;
/// The most bytes of messages in an intake, so that two intakes fit into an entry.
const TAKEN_BYTES_MAX: usize = 4 << 10;

/// The streams that take in messages, as the model computes them from the entries.
#[derive(Debug, Default)]
pub(crate) struct Takers {
    progress: BTreeMap<StreamNumber, u64>,
    /// The publishes of the intake that the entries contain now, with their sequences in the origin; `None`
    /// if the stream refused the intake.
    rows: std::collections::VecDeque<Option<(StreamNumber, u64)>>,
    /// The sequences of the messages that the queue keeps for the source, and that the source has still to
    /// take in.
    owed: BTreeSet<u64>,
    holds: bool,
    /// The work queue with a consumer, by which a stream takes in its messages.
    pub(crate) tapped: Tapped,
    pub(crate) taken: u64,
    pub(crate) refused: u64,
}

impl Takers {
    /// Applies a command with its outcome to the model. Returns the sequence that the message gets if the
    /// command is a message of an intake; `Some(None)` if the stream refused the intake.
    pub(crate) fn apply(
        &mut self,
        command: &Command<'_>,
        outcome: &Outcome,
        last_seq: u64,
    ) -> Result<Option<Option<u64>>, String> {
        match command.kind {
            Kind::CreateConsumer if command.subject == HOLDER.as_bytes() => self.holds = true,
            Kind::Publish => {
                if let Some(row) = self.rows.pop_front() {
                    return Ok(Some(row.map(|(stream, seq)| match stream {
                        MIRROR => seq,
                        _ => last_seq + 1,
                    })));
                }
                if let (QUEUE, true, Outcome::Stored { seq, .. }) =
                    (command.stream, self.holds, outcome)
                {
                    self.owed.insert(seq.get());
                }
            }
            Kind::TakeIn => self.take(command, outcome)?,
            _ => {}
        }
        let taken = self.progress.get(&TAPPER).copied().unwrap_or(0);
        self.tapped.apply(command, outcome, taken)?;
        Ok(None)
    }

    fn take(&mut self, command: &Command<'_>, outcome: &Outcome) -> Verdict {
        let stream = command.stream;
        let intake = Intake::decode(command.payload).map_err(|e| e.to_string())?;
        let before = intake.before.map_or(0, |before| before.seq.get());
        let known = self.progress.get(&stream).copied().unwrap_or(0);
        let taken = *outcome == Outcome::Done;
        ensure!(
            taken == (before == known),
            "stream {stream} is at {known} in its origin, and an intake from {before} comes to {outcome:?}"
        );
        if !taken {
            self.refused += 1;
            self.rows.extend(intake.rows.iter().map(|_| None));
            return Ok(());
        }
        let after = intake.after.seq.get();
        let rows = intake.rows.iter().map(|row| row.seq.get());
        for seq in rows.clone() {
            if stream == SOURCED {
                self.owed.remove(&seq);
            }
            self.rows.push_back(Some((stream, seq)));
        }
        if stream == TAPPER {
            self.tapped.take(rows, after)?;
        }
        let all = intake.rows.len() as u64 == after - known;
        ensure!(
            stream != MIRROR || all,
            "the mirror lacks a message between {known} and {after}"
        );
        let missed = self.owed.range(..=after).next();
        ensure!(
            stream != SOURCED || missed.is_none(),
            "the work queue has removed message {missed:?} before the source had it"
        );
        self.taken += intake.rows.len() as u64;
        self.progress.insert(stream, after);
        Ok(())
    }
}

impl Member {
    /// Returns whether the node's streams have all messages of their origins.
    pub(crate) fn taken_all(&self) -> bool {
        TAKERS.iter().all(|taker| self.lag(taker) == 0) && self.tapped_all()
    }

    /// Returns the number of messages that the stream has still to take in from its origin.
    fn lag(&self, (target, origin, key): &(StreamNumber, StreamNumber, &str)) -> u64 {
        let Some(target) = self.streams.get(*target) else {
            return 0;
        };
        let progress = target.progress(key);
        let last = self.streams.get(*origin).map(|s| s.state().last_seq.get());
        last.unwrap_or(0) - progress.map_or(0, |p| p.seq.get())
    }

    /// Takes in the next messages of an origin, if this node leads, as the server's leader does.
    pub(crate) fn take_in(
        &mut self,
        store: &mut Store,
        now_us: u64,
        (heals, dice): (bool, &mut Dice),
        seen: &mut Coverage,
    ) -> Verdict {
        let group = store.group(self.at);
        let (term, applied) = (group.term().get(), self.applied.index.get());
        let waits = self.taking.is_some_and(|(i, of)| of == term && i > applied);
        if !group.leads_settled() || waits || self.streams.get(SOURCED).is_none() {
            return Ok(());
        }
        // The simulated segments are a thousandth of real ones. The leader pauses, because the intakes alone
        // would otherwise make it compact its log faster than a node that was away can fetch a state.
        if !heals && !dice.chance(100) {
            return Ok(());
        }
        let mut taker = dice.pick(&TAKERS);
        // The leader takes in for a stream that is far behind first, because steps of a random size would not
        // bring it to the end in time.
        let behind = TAKERS.into_iter().max_by_key(|taker| self.lag(taker));
        let behind = behind.filter(|taker| self.lag(taker) > FAR);
        let far = behind.is_some();
        taker = behind.unwrap_or(taker);
        let (target, origin, key) = taker;
        let (Some(of), Some(from)) = (self.streams.get(target), self.streams.get(origin)) else {
            return Ok(());
        };
        let progress = of.progress(key);
        let mut buffer = Vec::new();
        let mut encoder = Encoder::begin(&mut buffer, now_us);
        if origin == QUEUE {
            let Some(holder) = from.consumer(HOLDER) else {
                let config = format!(
                    r#"{{"config":{{"name":"{HOLDER}","ack_policy":"explicit","filter_subject":"q.>"}}}}"#
                );
                let kind = Kind::CreateConsumer;
                let create = Command::new(kind, QUEUE, HOLDER.as_bytes(), config.as_bytes());
                let _ = encoder.command(&create);
                return self.propose_taken(store, buffer, term);
            };
            let floor = holder.state().delivered().stream_seq;
            let has = progress.map_or(StreamSeq::ZERO, |p| p.seq);
            if has > floor && dice.chance(if far { 100 } else { 500 }) {
                let all = floor.next().up_to(has.next());
                let runs: Vec<_> = all.filter(|s| from.contains(*s)).map(|s| s..=s).collect();
                let delta = settled_up_to(holder.state(), has, &runs);
                let kind = Kind::SettlingDelta;
                let _ = encoder.command(&Command::new(kind, QUEUE, HOLDER.as_bytes(), &delta));
                seen.hit("holders settled");
                return self.propose_taken(store, buffer, term);
            }
        }
        let start = progress.map_or(0, |p| p.seq.get());
        if target == TAPPER && !heals && dice.chance(20) {
            seen.hit("takers by a consumer changed");
            let mut config = of.config().clone();
            config.description = dice.below(100).to_string();
            let kind = Kind::updating(of.config(), &config);
            let config = serde_json::to_vec(&config).map_err(|e| e.to_string())?;
            let _ = encoder.command(&Command::new(kind, target, b"", &config));
            return self.propose_taken(store, buffer, term);
        }
        if origin == TAPPED {
            let has = StreamSeq::new(start);
            let reports = dice.chance(if far { 100 } else { 500 });
            let (dice, seen) = (&mut *dice, &mut *seen);
            let next = tapping::next_command(from, has, now_us, (heals, reports), dice, seen);
            if let Some((kind, payload)) = next {
                let name = tapping::NAME.as_bytes();
                let _ = encoder.command(&Command::new(kind, TAPPED, name, &payload));
                return self.propose_taken(store, buffer, term);
            }
        }
        let (most, bytes_max) = match far {
            true => (FAR, 2 * TAKEN_BYTES_MAX),
            false => (dice.range(1, TAKEN_MAX), TAKEN_BYTES_MAX),
        };
        let last = from.state().last_seq.get().min(start + most);
        let (mut rows, mut messages, mut end) = (Vec::new(), Vec::new(), start);
        let mut held = 0;
        for seq in (start + 1..=last).map(StreamSeq::new) {
            if let Some(message) = from.message(seq) {
                held += message.bytes as usize;
                if held > bytes_max && !rows.is_empty() {
                    break;
                }
                match store.read(self.at, message.place) {
                    Fetch::Ready(bytes) => messages.push(bytes),
                    Fetch::Pending => break,
                    // A node that has just restarted may lack the entry that released the message, so it
                    // takes in nothing now.
                    _ => return Ok(()),
                }
                rows.push(Row {
                    seq,
                    time_us: message.time_us,
                });
            }
            end = seq.get();
        }
        if end == start {
            return Ok(());
        }
        let after = Progress {
            origin: Origin {
                number: DirectoryNumber::new(origin.get()),
                created_us: from.created_us(),
            },
            seq: StreamSeq::new(end),
        };
        let intake = Intake {
            before: progress,
            after,
            rows,
        };
        // The leader sometimes proposes the intake twice, as a leader may that does not know the outcome of
        // its proposal.
        let times = 1 + u64::from(!far && dice.chance(100));
        let payload = intake.encode();
        for _ in 0..times {
            let head = Command::new(Kind::TakeIn, target, key.as_bytes(), &payload);
            let _ = encoder.command(&head);
            for bytes in &messages {
                let message = Command::read(bytes, 0).map_err(|e| e.to_string())?;
                let _ = encoder.command(&Command {
                    stream: target,
                    headers: None,
                    ..message
                });
            }
        }
        self.propose_taken(store, buffer, term)
    }

    fn propose_taken(&mut self, store: &mut Store, entry: Vec<u8>, term: u64) -> Verdict {
        // If the log has no room, the leader tries again in the next turn.
        if let Ok(proposed) = store.propose(self.at, Bytes::from(entry), 1) {
            self.taking = Some((proposed.index.get(), term));
        }
        Ok(())
    }
}
