//! Simulates a stream that takes in the messages of a work queue by a consumer with the ack policy
//! `flow_control`. The leader reports to the real consumer how far the stream is, and proposes the consumer's
//! delta, as the server's leader does. The leader sometimes reports an earlier progress, as a late request
//! does, and clients reset, change and delete the consumer. Each report reaches a consumer that begins with
//! the state in the log, as after a change of leaders.
//!
//! The model computes from the entries alone: the stream takes in each message of the queue once and in
//! order, the consumer acknowledges no message that the stream lacks, and the queue keeps a message until the
//! consumer has acknowledged it.

use std::collections::BTreeSet;

use tidegate_stream::consumer::{Consumer, Fetch, Identity, Lasts, Record, Source};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Filter, Kind, Outcome, Stream, Streams};

use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::member::Member;
use crate::oracle::{Verdict, ensure};
use crate::retain::{Delta, held};

/// The number of the work queue, and (`TAPPER`) of the stream that takes in its messages, by their places in
/// the order of creation.
pub(crate) const TAPPED: StreamNumber = StreamNumber::new(7);
pub(crate) const TAPPER: StreamNumber = StreamNumber::new(8);
/// The name of the consumer, which the source of the stream names.
pub(crate) const NAME: &str = "C";

/// Chooses the next command about the consumer, if any: clients' requests, or the consumer's next delta after
/// the stream has reported that it has all messages up to `has`.
pub(crate) fn next_command(
    queue: &Stream,
    has: StreamSeq,
    now_us: u64,
    (heals, reports): (bool, bool),
    dice: &mut Dice,
    seen: &mut Coverage,
) -> Option<(Kind, Vec<u8>)> {
    let Some(consumer) = queue.consumer(NAME) else {
        return Some((Kind::CreateFlowConsumer, config(1000)));
    };
    let floor = consumer.state().ack_floor().stream_seq;
    if !heals && dice.chance(20) {
        return Some(match dice.below(3) {
            0 => {
                seen.hit("tapped consumers deleted");
                (Kind::DeleteConsumer, Vec::new())
            }
            1 => {
                seen.hit("tapped consumers changed");
                (Kind::CreateFlowConsumer, config(dice.range(1, 2000)))
            }
            _ => {
                seen.hit("tapped consumers reset");
                let to = dice.range(1, floor.next().get());
                (Kind::ResetConsumer, to.to_le_bytes().to_vec())
            }
        });
    }
    if has <= floor || !reports {
        return None;
    }
    let has = match heals || dice.chance(700) {
        true => has,
        false => StreamSeq::new(dice.range(floor.get(), has.get())),
    };
    let mut source = Seen {
        stream: queue,
        filter: Filter::all(),
    };
    let identity = Identity {
        stream: queue.name(),
        consumer: NAME,
        record: Record::Settled,
    };
    let (config, state) = (consumer.config().nameless(), consumer.state());
    let mut live = Consumer::new(now_us, identity, config, state, &mut source);
    if !live.handle_tapped(now_us, has, &mut source) {
        return None;
    }
    let delta = live.take_delta(now_us)?;
    seen.hit("tapped consumers acknowledge");
    Some((Kind::of_delta(&delta), delta))
}

fn config(max_ack_pending: u64) -> Vec<u8> {
    let text = format!(
        r#"{{"config":{{"durable_name":"{NAME}","name":"{NAME}","ack_policy":"flow_control","deliver_subject":"d","flow_control":true,"idle_heartbeat":1000000000,"max_deliver":-1,"max_ack_pending":{max_ack_pending}}}}}"#
    );
    text.into_bytes()
}

/// The work queue as its consumer reads it.
struct Seen<'a> {
    stream: &'a Stream,
    filter: Filter,
}

impl Source for Seen<'_> {
    fn first_seq(&self) -> StreamSeq {
        self.stream.first_seq()
    }

    fn last_seq(&self) -> StreamSeq {
        self.stream.last_seq()
    }

    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq> {
        self.stream.next_at(seq, &mut self.filter)
    }

    fn count_from(&mut self, seq: StreamSeq) -> u64 {
        self.stream.count_from(seq, &mut self.filter)
    }

    fn lasts(&mut self, _: usize, _: usize, _: Option<StreamSeq>) -> Option<Lasts> {
        None
    }

    fn counts_in_parts(&self) -> bool {
        false
    }

    fn count_part(&mut self, from: StreamSeq, _: u64) -> (u64, Option<StreamSeq>) {
        (self.count_from(from), None)
    }

    fn is_last(&mut self, _: StreamSeq) -> bool {
        false
    }

    fn contains(&self, seq: StreamSeq) -> bool {
        self.stream.contains(seq)
    }

    fn message(&mut self, _: StreamSeq) -> Fetch<'_> {
        Fetch::Pending
    }
}

/// The work queue and its consumer, as the model computes them from the entries.
#[derive(Debug, Default)]
pub(crate) struct Tapped {
    /// The messages that the stream has still to take in, and (`kept`) that the queue keeps.
    owed: BTreeSet<u64>,
    kept: BTreeSet<u64>,
    pub(crate) acknowledged: u64,
}

impl Tapped {
    /// Applies a command with its outcome to the model. `taken` is the number up to which the stream has
    /// taken in the messages of the queue.
    pub(crate) fn apply(
        &mut self,
        command: &Command<'_>,
        outcome: &Outcome,
        taken: u64,
    ) -> Verdict {
        if command.stream != TAPPED {
            return Ok(());
        }
        match (command.kind, outcome) {
            (Kind::Publish, Outcome::Stored { seq, .. }) => {
                self.owed.insert(seq.get());
                self.kept.insert(seq.get());
            }
            (Kind::SettlingDelta, Outcome::Done) => {
                let delta = Delta::decode(command.payload).ok_or("a delta that nobody wrote")?;
                let floor = delta.floor.1;
                ensure!(
                    floor <= taken,
                    "the consumer acknowledges message {floor}, and the stream has only those up to {taken}"
                );
                for seq in delta.settled {
                    ensure!(
                        seq <= taken && self.kept.remove(&seq),
                        "the consumer settles message {seq}, which it cannot have: {taken} are taken in"
                    );
                    self.acknowledged += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Records the messages that the stream takes in, and its progress after them.
    pub(crate) fn take(&mut self, rows: impl Iterator<Item = u64>, after: u64) -> Verdict {
        for seq in rows {
            ensure!(
                self.owed.remove(&seq),
                "the stream takes in message {seq} of the work queue a second time"
            );
        }
        let missed = self.owed.range(..=after).next();
        ensure!(
            missed.is_none(),
            "the stream leaves out message {missed:?} of the work queue, and is at {after}"
        );
        Ok(())
    }

    /// Checks that a node's work queue holds exactly the messages that its consumer has not acknowledged.
    pub(crate) fn check(&self, streams: &Streams) -> Verdict {
        let Some(queue) = streams.get(TAPPED) else {
            return Ok(());
        };
        let expected: Vec<u64> = self.kept.iter().copied().collect();
        ensure!(
            held(queue) == expected,
            "the tapped work queue holds {:?}, expected {expected:?}",
            held(queue)
        );
        Ok(())
    }

    /// Returns whether the work queue may have dropped this message, so that a read of it may find nothing.
    pub(crate) fn may_be_gone(&self, stream: u32, seq: u64) -> bool {
        stream == TAPPED.get() && !self.kept.contains(&seq)
    }
}

impl Member {
    /// Returns whether the work queue has no message that its consumer has still to acknowledge.
    pub(crate) fn tapped_all(&self) -> bool {
        let queue = self.streams.get(TAPPED);
        queue.is_none_or(|queue| queue.state().messages == 0)
    }
}
