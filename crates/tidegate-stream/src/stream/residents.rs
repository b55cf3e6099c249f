//! Finds the messages that lie in a part of the log, for the compaction of the log, which wants to free that
//! part. Each search is bounded, so that it does not hold up the node.

use std::ops::Range;

use super::command::Place;
use super::streams::Streams;
use crate::bits::LEN;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// The limit on the blocks of message indexes that one search reads, of 256 messages each, so that the search
/// does not hold up the node.
const BLOCKS_MAX: usize = 256;

/// A message that lies in the log, and its place there, from which the compaction must move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The number of the stream that holds the message.
    pub stream: StreamNumber,
    /// The number of the message in its stream, by which the compaction tells the stream the new place.
    pub seq: StreamSeq,
    /// The place in the log at which the message lies. If the message has moved since, the stream keeps the
    /// newer place.
    pub place: Place,
}

impl Streams {
    /// Returns the messages with log records at positions in `lsns`, in the order of streams and numbers and
    /// beginning at `from`, as far as one bounded search goes. Also returns the place at which the next
    /// search must begin; `None` after the last message. The compaction of the log moves these messages.
    #[must_use]
    pub fn residents_in(
        &self,
        lsns: &Range<u64>,
        from: (StreamNumber, StreamSeq),
    ) -> (Vec<Resident>, Option<(StreamNumber, StreamSeq)>) {
        let (mut found, mut blocks) = (Vec::new(), 0);
        for stream in self.streams.from(from.0).filter(|s| !s.in_memory()) {
            let id = stream.id();
            let first = if id == from.0 {
                from.1
            } else {
                StreamSeq::ZERO
            };
            for block in stream.content.index.blocks_from(first) {
                if blocks == BLOCKS_MAX {
                    return (found, Some((id, block.first())));
                }
                blocks += 1;
                if block.lsn_base() >= lsns.end {
                    continue;
                }
                let bits = block.live().iter();
                let all = bits.filter_map(|bit| Some((block.seq(bit), block.get(bit)?.place)));
                let here = all.filter(|(seq, place)| *seq >= first && lsns.contains(&place.lsn));
                found.extend(here.map(|(seq, place)| Resident {
                    stream: id,
                    seq,
                    place,
                }));
            }
        }
        debug_assert!(found.len() <= BLOCKS_MAX * LEN);
        (found, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sequence::nth;
    use crate::stream::{AccountLimits, Command, Encoder, Kind, Outcome};

    fn limits() -> AccountLimits {
        AccountLimits {
            streams: u64::MAX,
            file_bytes: u64::MAX,
            memory_bytes: u64::MAX,
            replicated: false,
        }
    }

    fn apply(streams: &mut Streams, lsn: u64, write: impl FnOnce(&mut Encoder<'_, Vec<u8>>)) {
        let mut entry = Vec::new();
        write(&mut Encoder::begin(&mut entry, 1_000_000));
        let mut outcomes = Vec::new();
        streams
            .apply(lsn, &entry.into(), &mut outcomes, &mut Vec::new())
            .unwrap();
        let refused = |o: &Outcome| matches!(o, Outcome::Refused { .. });
        assert!(!outcomes.iter().any(refused), "{outcomes:?}");
    }

    #[test]
    fn a_message_is_found_where_it_lies_and_after_it_was_moved_where_it_lies_then() {
        let mut streams = Streams::new(limits());
        for name in ["a", "b"] {
            let config = format!(
                r#"{{"name":"{name}","subjects":["{name}.>"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,"duplicate_window":0}}"#
            );
            let command = Command::new(
                Kind::CreateStream,
                StreamNumber::NONE,
                b"",
                config.as_bytes(),
            );
            apply(&mut streams, 0, |e| {
                e.command(&command).unwrap();
            });
        }
        let (a, b) = (streams.by_name("a").unwrap(), streams.by_name("b").unwrap());
        // The streams get more messages than one search reads, so that the test needs several searches.
        for n in 1..=70_000u64 {
            apply(&mut streams, n * 8, |e| {
                e.publish(a, b"a.x", None, b"").unwrap();
                e.publish(b, b"b.x", None, b"").unwrap();
            });
        }
        let find = |streams: &Streams, lsns: Range<u64>| {
            let (mut all, mut from, mut looks) =
                (Vec::new(), Some((StreamNumber::NONE, StreamSeq::ZERO)), 0);
            while let Some(at) = from {
                let (found, next) = streams.residents_in(&lsns, at);
                all.extend(found.iter().map(|l| (l.stream, l.seq.get())));
                (from, looks) = (next, looks + 1);
            }
            (all, looks)
        };
        let (found, looks) = find(&streams, 800..816);
        assert_eq!(found, [(a, 100), (a, 101), (b, 100), (b, 101)]);
        assert!(looks > 1);
        let (from, to) = (streams.get(a).unwrap().place(nth(100)).unwrap(), 1 << 40);
        let to = Place { lsn: to, ..from };
        assert!(streams.relocate(a, nth(100), from, to));
        assert_eq!(find(&streams, 800..816).0, [(a, 101), (b, 100), (b, 101)]);
        assert_eq!(find(&streams, to.lsn..to.lsn + 8).0, [(a, 100)]);
    }
}
