//! Provides a minimal state for tests of the store: one stream that stores and deletes messages by number.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_raft::store::{Due, Live, LyingIn};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Encoder, Entry, Kind, Place, Resident};

/// The minimal state, see the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toy {
    pub(crate) seq: u64,
    pub(crate) messages: BTreeMap<u64, (Place, u32)>,
    /// The index of the last entry, by which the state checks that each entry comes once and in order.
    pub(crate) index: u64,
    pub(crate) relocated: u64,
}

impl Toy {
    pub(crate) fn handle(&mut self, due: Due, live: &mut Live) {
        match due {
            Due::Entry(entry) => {
                let index = entry.index.get();
                assert!(index > self.index, "{index} again");
                self.index = index;
                for command in Entry::decode(&entry.data).unwrap().commands() {
                    self.command(&command.unwrap(), entry.lsn.get(), live);
                }
            }
            Due::Relocated(moved) => {
                let Some((place, bytes)) = self.messages.get_mut(&moved.seq.get()) else {
                    return;
                };
                live.removed(*place, *bytes);
                live.stored(moved.place, *bytes);
                *place = moved.place;
                self.relocated += 1;
            }
        }
    }

    fn command(&mut self, command: &Command<'_>, lsn: u64, live: &mut Live) {
        if command.kind == Kind::Publish {
            self.seq += 1;
            let place = Place {
                lsn,
                offset: command.offset,
            };
            let bytes = command.payload.len() as u32;
            self.messages.insert(self.seq, (place, bytes));
            live.stored(place, bytes);
            return;
        }
        for seq in command.payload.chunks_exact(8) {
            let seq = u64::from_le_bytes(seq.try_into().unwrap());
            if let Some((place, bytes)) = self.messages.remove(&seq) {
                live.removed(place, bytes);
            }
        }
    }

    /// Looks through a hundred messages at once for those that lie in the asked segment.
    pub(crate) fn residents_in(
        &self,
        asked: &LyingIn,
    ) -> (Vec<Resident>, Option<(StreamNumber, StreamSeq)>) {
        let from = if asked.from.0 == StreamNumber::NONE {
            0
        } else {
            asked.from.1.get()
        };
        let looked: Vec<_> = self.messages.range(from..).take(100).collect();
        let next = looked
            .get(99)
            .map(|(seq, _)| (StreamNumber::FIRST, StreamSeq::new(**seq + 1)));
        let here = looked
            .into_iter()
            .filter(|(_, (place, _))| asked.lsns.contains(&place.lsn));
        let lying = here.map(|(&seq, &(place, _))| Resident {
            stream: StreamNumber::FIRST,
            seq: StreamSeq::new(seq),
            place,
        });
        (lying.collect(), next)
    }

    /// Encodes the state in parts, as the server encodes a large state.
    pub(crate) fn parts(&self) -> Vec<Vec<u8>> {
        let mut parts = vec![
            [self.seq, self.index, self.relocated]
                .map(u64::to_le_bytes)
                .concat(),
        ];
        for (seq, (place, bytes)) in &self.messages {
            let fields = [*seq, place.lsn, u64::from(place.offset), u64::from(*bytes)];
            parts.push(fields.map(u64::to_le_bytes).concat());
        }
        parts
    }

    pub(crate) fn restore(bytes: &[u8]) -> Self {
        let mut fields = bytes
            .chunks_exact(8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap()));
        let mut next = || fields.next();
        let mut toy = Self {
            seq: next().unwrap(),
            index: next().unwrap(),
            relocated: next().unwrap(),
            ..Self::default()
        };
        while let Some(seq) = next() {
            let place = Place {
                lsn: next().unwrap(),
                offset: next().unwrap() as u32,
            };
            toy.messages.insert(seq, (place, next().unwrap() as u32));
        }
        toy
    }
}

/// Returns the payload of the message with this number.
pub(crate) fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (seq * 31 + n * 7) as u8).collect()
}

/// Encodes an entry that stores `messages` messages of `len` bytes each, the first with the number `seq`.
pub(crate) fn store(seq: u64, messages: u64, len: usize) -> Bytes {
    let mut buffer = Vec::new();
    let mut encoder = Encoder::begin(&mut buffer, 1_000_000 + seq);
    for n in 0..messages {
        encoder
            .publish(StreamNumber::FIRST, b"a.b", None, &payload(seq + n, len))
            .unwrap();
    }
    buffer.into()
}

/// Encodes an entry that deletes these messages.
pub(crate) fn delete(seqs: impl IntoIterator<Item = u64>) -> Bytes {
    let seqs: Vec<u8> = seqs.into_iter().flat_map(u64::to_le_bytes).collect();
    let mut buffer = Vec::new();
    let mut encoder = Encoder::begin(&mut buffer, 1_000_000);
    encoder
        .command(&Command::new(
            Kind::DeleteMessage,
            StreamNumber::FIRST,
            b"",
            &seqs,
        ))
        .unwrap();
    buffer.into()
}
