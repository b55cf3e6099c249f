//! Simulates a durable consumer that the leader serves: the consumer reads message after message, and the
//! group replicates its position. The next leader continues from there: it leaves no message out, and no
//! position goes back.

use bytes::Bytes;
use tidegate_raft::store::Store;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Encoder, Kind};

use crate::member::Member;
use crate::oracle::{Oracle, ensure};

/// The consumer's name, and (`STREAM`) the number of its stream.
const NAME: &str = "worker";
const STREAM: StreamNumber = StreamNumber::FIRST;
/// The most messages that the consumer takes at once.
const TAKEN_MAX: u64 = 40;

/// The index and the term of the leader's proposal for the consumer that the group has not applied yet.
pub(crate) type Proposed = Option<(u64, u64)>;

impl Member {
    /// Returns the consumer's position, as far as this node has applied it.
    pub(crate) fn consumed(&self) -> Option<u64> {
        let consumer = self.streams.get(STREAM)?.consumer(NAME)?;
        Some(consumer.state().ack_floor().stream_seq.get())
    }

    /// Returns whether the consumer has taken all messages of its stream.
    pub(crate) fn consumed_all(&self) -> bool {
        let last = self
            .streams
            .get(STREAM)
            .map_or(0, |s| s.state().last_seq.get());
        last == 0 || self.consumed() == Some(last)
    }

    /// Makes the consumer take the next messages, if this node leads.
    pub(crate) fn serve(
        &mut self,
        store: &mut Store,
        now_us: u64,
        oracle: &Oracle,
    ) -> Result<(), String> {
        let group = store.group(self.at);
        let (term, applied) = (group.term().get(), self.applied.index.get());
        let waits = self
            .consuming
            .is_some_and(|(i, of)| of == term && i > applied);
        if !group.leads_settled() || waits || self.streams.get(STREAM).is_none() {
            return Ok(());
        }
        let mut buffer = Vec::new();
        let mut encoder = Encoder::begin(&mut buffer, now_us);
        let Some(from) = self.consumed() else {
            let config = format!(r#"{{"config":{{"durable_name":"{NAME}","name":"{NAME}"}}}}"#);
            let kind = Kind::CreateConsumer;
            let create = Command::new(kind, STREAM, NAME.as_bytes(), config.as_bytes());
            let _ = encoder.command(&create);
            return self.propose_consumed(store, buffer, term);
        };
        let mut upto = from;
        while upto < from + TAKEN_MAX {
            let next = upto + 1;
            let Some(place) = self
                .streams
                .get(STREAM)
                .and_then(|s| s.place(StreamSeq::new(next)))
            else {
                break;
            };
            let Some(crc) = self.message(store, place)? else {
                break;
            };
            let stored = oracle.model.streams.get(&STREAM.get());
            let stored = stored.and_then(|s| s.messages.get(&next));
            ensure!(
                stored == Some(&crc),
                "message {next} is delivered to a consumer as another"
            );
            upto = next;
        }
        if upto == from {
            return Ok(());
        }
        // The consumer delivers each message once and acknowledges it at once, so the delta has no runs and
        // nothing above the floor.
        let mut delta = vec![1];
        for n in [upto, upto, upto, upto, 0, 0] {
            put(&mut delta, n);
        }
        let kind = Kind::ConsumerDelta;
        let _ = encoder.command(&Command::new(kind, STREAM, NAME.as_bytes(), &delta));
        self.propose_consumed(store, buffer, term)
    }

    fn propose_consumed(
        &mut self,
        store: &mut Store,
        entry: Vec<u8>,
        term: u64,
    ) -> Result<(), String> {
        // If the log has no room, the leader tries again in the next turn.
        if let Ok(proposed) = store.propose(self.at, Bytes::from(entry), 1) {
            ensure!(
                proposed.term.get() == term,
                "what is proposed is of the term that is led"
            );
            self.consuming = Some((proposed.index.get(), term));
        }
        Ok(())
    }
}

/// Writes a number as the delta's format has it: seven bits a byte, the low bits first.
fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
