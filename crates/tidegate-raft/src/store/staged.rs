//! Keeps the places of messages that this member fetched from another member for a state that is not
//! complete yet. The messages lie in this member's log. If the catch-up breaks off, even by a restart, the
//! next catch-up uses them again.
//!
//! A message takes sixteen bytes of memory here. The store drops all these messages when it writes a
//! checkpoint: from then on the log may release their segments.

use std::collections::BTreeMap;

use tidegate_log::Lsn;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{ENTRY_HEADER_BYTES, Place};

use super::Relocated;

/// Knows the fetched messages that no state of this member includes yet, each with its place in the log.
#[derive(Debug, Default)]
pub struct Staged {
    /// The number of each fetched message, and the position of its record in the log, by stream, in the order
    /// of the numbers.
    streams: BTreeMap<StreamNumber, Vec<(StreamSeq, u64)>>,
    /// The log position before which none of the fetched messages lies; `None` without fetched messages.
    from: Option<Lsn>,
    /// The number of bytes of log that the fetched messages take: the cost of fetching them again.
    bytes: u64,
}

impl Staged {
    /// Adds a message that this member has fetched, or notes its new place if the message is known already.
    pub(super) fn insert(&mut self, message: &Relocated) {
        let (seq, lsn) = (message.seq, message.place.lsn);
        self.note(Lsn::new(lsn), 0);
        let messages = self.streams.entry(message.stream).or_default();
        // Messages arrive mostly in the order of their numbers, so the insertion is mostly at the end, and
        // cheap.
        let after = messages.partition_point(|(at, _)| *at < seq);
        match messages.get_mut(after) {
            Some(known) if known.0 == seq => known.1 = lsn,
            _ => messages.insert(after, (seq, lsn)),
        }
    }

    /// Counts fetched messages that the store appended at this log position and that take `bytes` bytes in
    /// the log. The messages may not be durable yet.
    pub(super) fn note(&mut self, at: Lsn, bytes: u64) {
        self.from = Some(self.from.map_or(at, |from| from.min(at)));
        self.bytes += bytes;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns the log position before which none of the fetched messages lies; `None` without fetched
    /// messages.
    pub(super) const fn from(&self) -> Option<Lsn> {
        self.from
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the place of a fetched message in this member's log; `None` if the member has not fetched this
    /// message.
    #[must_use]
    pub fn place(&self, stream: StreamNumber, seq: StreamSeq) -> Option<Place> {
        let messages = self.streams.get(&stream)?;
        let at = messages.binary_search_by_key(&seq, |m| m.0).ok()?;
        Some(Place {
            lsn: messages[at].1,
            offset: ENTRY_HEADER_BYTES as u32,
        })
    }

    /// Returns the number of the first fetched message of this stream, with the number `from` or a higher
    /// one.
    #[must_use]
    pub fn next(&self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq> {
        let messages = self.streams.get(&stream)?;
        let at = messages.partition_point(|(seq, _)| *seq < from);
        messages.get(at).map(|(seq, _)| *seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_in_any_order_of_arrival_and_the_last_place_counts() {
        let mut apart = Staged::default();
        for (stream, seq, lsn) in [(1, 5, 50), (1, 7, 70), (2, 5, 90), (1, 6, 60), (1, 5, 55)] {
            let place = Place { lsn, offset: 0 };
            apart.insert(&Relocated {
                stream: StreamNumber::new(stream),
                seq: StreamSeq::new(seq),
                place,
            });
        }
        let lsn = |stream, seq| {
            let place = apart.place(StreamNumber::new(stream), StreamSeq::new(seq));
            place.map(|p| p.lsn)
        };
        let next = |stream, from| {
            let next = apart.next(StreamNumber::new(stream), StreamSeq::new(from));
            next.map(StreamSeq::get)
        };
        assert_eq!(
            [lsn(1, 5), lsn(1, 6), lsn(1, 7)],
            [Some(55), Some(60), Some(70)]
        );
        assert_eq!([lsn(2, 5), lsn(2, 6), lsn(3, 5)], [Some(90), None, None]);
        assert_eq!([next(1, 0), next(1, 6)], [Some(5), Some(6)]);
        assert_eq!([next(1, 8), next(3, 0)], [None, None]);
        assert_eq!((apart.from(), apart.bytes()), (Some(Lsn::new(50)), 0));
        for (at, bytes) in [(60, 5), (40, 6), (90, 7)] {
            apart.note(Lsn::new(at), bytes);
        }
        assert_eq!((apart.from(), apart.bytes()), (Some(Lsn::new(40)), 18));
    }
}
