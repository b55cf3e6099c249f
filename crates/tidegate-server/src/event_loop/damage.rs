//! Handles damage that the scrub finds in the log: looks up the messages in the damaged range, asks other
//! nodes for them, and logs the outcome. Each turn of the loop does a bounded part of that, so that clients
//! do not wait.
//!
//! A damaged range without any message that a stream still has needs no repair. A node without a cluster
//! cannot ask other nodes: it logs the lost messages, and serves all other messages.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::slots::{GroupSlot, PerGroup};
use tidegate_log::Lsn;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

use tidegate_stream::stream::Streams;

/// The greatest number of damaged ranges that the loop handles at the same moment, so that they take bounded
/// memory. The scrub finds further ranges again in its next round.
const RANGES_MAX: usize = 256;
/// The time after which the loop searches a damaged range again for messages that other nodes have not sent
/// yet.
const AGAIN: Duration = Duration::from_secs(1);

/// A damaged range of the log, and the progress of the search in it for messages that streams still need.
#[derive(Debug)]
struct Found {
    range: Range<u64>,
    at: Time,
    /// The group, and the message of the group, at which the loop continues the search in the next turn.
    from: (GroupSlot, (StreamNumber, StreamSeq)),
    /// The number of messages that the loop's first search found in the damaged range, for the log line.
    messages: u64,
    /// The result of the current search so far, which the loop logs at the end: the number of messages that
    /// other nodes may still send; then (`lost`, `example`) the number of messages that no node has, and one
    /// of these.
    coming: u64,
    lost: u64,
    example: Option<(GroupSlot, StreamNumber, StreamSeq)>,
    first: bool,
}

/// Keeps the damaged ranges in which the loop still looks for messages, see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Damage {
    ranges: VecDeque<Found>,
}

impl Damage {
    /// Records a range of the log that the scrub found damaged, so that the loop searches it for messages.
    pub(super) fn handle_found(&mut self, now: Time, range: &Range<Lsn>) {
        let range = range.start.get()..range.end.get();
        let known = self.ranges.iter().any(|f| f.range == range);
        if known || self.ranges.len() == RANGES_MAX {
            return;
        }
        self.ranges.push_back(Found {
            range,
            at: now,
            from: (GroupSlot::FIRST, (StreamNumber::NONE, StreamSeq::ZERO)),
            messages: 0,
            coming: 0,
            lost: 0,
            example: None,
            first: true,
        });
    }

    /// Returns the time at which the loop must next call [`turn`](Self::turn) to search a range.
    pub(super) fn deadline(&self) -> Time {
        let times = self.ranges.iter().map(|f| f.at);
        times.min().unwrap_or(Time::NEVER)
    }

    /// Searches one range for messages that streams still need, a bounded number in a turn. `ask` asks other
    /// nodes for a message, given its group, stream and number, and returns whether a node may send the
    /// message.
    pub(super) fn turn(
        &mut self,
        now: Time,
        groups: &PerGroup<&Streams>,
        mut ask: impl FnMut(GroupSlot, StreamNumber, StreamSeq) -> bool,
    ) {
        let Some(at) = self.ranges.iter().position(|f| f.at <= now) else {
            return;
        };
        let found = &mut self.ranges[at];
        let (group, from) = found.from;
        let Some(streams) = groups.get(group) else {
            return;
        };
        let (lying, next) = streams.residents_in(&found.range, from);
        for message in lying {
            match ask(group, message.stream, message.seq) {
                true => found.coming += 1,
                false => {
                    found.lost += 1;
                    let example = (group, message.stream, message.seq);
                    found.example.get_or_insert(example);
                }
            }
        }
        let following = group
            .next(groups.len())
            .map(|group| (group, (StreamNumber::NONE, StreamSeq::ZERO)));
        if let Some(next) = next.map(|next| (group, next)).or(following) {
            found.from = next;
            return;
        }
        found.tell(groups);
        if found.coming == 0 {
            self.ranges.remove(at);
            return;
        }
        (found.from, found.at, found.first) = (
            (GroupSlot::FIRST, (StreamNumber::NONE, StreamSeq::ZERO)),
            now + AGAIN,
            false,
        );
        (found.coming, found.lost, found.example) = (0, 0, None);
    }
}

impl Found {
    /// Logs the result of the search through the whole range, for the operator.
    fn tell(&mut self, groups: &PerGroup<&Streams>) {
        let Range { start, end } = self.range;
        if self.first {
            self.messages = self.coming + self.lost;
            match self.messages {
                0 => tracing::info!(
                    "the scrub found the log damaged from byte {start} to byte {end}, but no stream needs a message in that range any more: check the disk"
                ),
                messages => tracing::error!(
                    "the scrub found the log damaged from byte {start} to byte {end}, and {messages} messages with it: in a cluster the server asks the other nodes for these messages"
                ),
            }
        }
        if self.coming == 0 && self.lost == 0 && self.messages > 0 {
            let messages = self.messages;
            tracing::warn!(
                "the server has fetched each of the {messages} messages in the log's damaged part from byte {start} to byte {end} again from another node, or the message's stream has removed it: no message is missing, but check the disk"
            );
        }
        if let (0, Some((group, stream, seq))) = (self.coming, self.example) {
            let of = groups.get(group).and_then(|streams| streams.get(stream));
            let (lost, name) = (self.lost, of.map_or("", |s| s.name()));
            tracing::error!(
                "{lost} messages of the log's damaged part from byte {start} to byte {end} are lost, such as message {seq} of stream {name}, because no other node can send them: the server serves all other messages"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_stream::stream::{AccountLimits, Command, Encoder, Kind, Place};

    const CONFIG: &[u8] = br#"{"name":"S","subjects":["s"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,"duplicate_window":0}"#;

    /// Creates a stream with message n at the log position 100 n.
    fn streams() -> Streams {
        let mut streams = Streams::new(AccountLimits::NONE);
        for n in 0..=20u64 {
            let mut entry = Vec::new();
            let mut encoder = Encoder::begin(&mut entry, 1_000_000);
            let command = match n {
                0 => Command::new(Kind::CreateStream, StreamNumber::NONE, b"", CONFIG),
                _ => Command::new(Kind::Publish, StreamNumber::FIRST, b"s", b"text"),
            };
            encoder.command(&command).unwrap();
            let applied = streams.apply(n * 100, &entry.into(), &mut Vec::new(), &mut Vec::new());
            applied.unwrap();
        }
        streams
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn range(from: u64, to: u64) -> Range<Lsn> {
        Lsn::new(from)..Lsn::new(to)
    }

    fn turn(damage: &mut Damage, now: Time, streams: &Streams, comes: bool) -> Vec<u64> {
        let mut asked = Vec::new();
        damage.turn(now, &PerGroup::from_iter([streams]), |_, _, seq| {
            asked.push(seq.get());
            comes
        });
        asked
    }

    #[test]
    fn damaged_messages_are_fetched_until_none_is_left() {
        let (mut streams, mut damage) = (streams(), Damage::default());
        damage.handle_found(at(0), &range(450, 700));
        damage.handle_found(at(0), &range(450, 700));
        assert_eq!(turn(&mut damage, at(0), &streams, true), [5, 6]);
        assert_eq!(damage.deadline(), at(1));
        assert!(turn(&mut damage, at(0), &streams, true).is_empty());
        let stream = streams.by_name("S").unwrap();
        for seq in [5, 6] {
            let from = streams
                .get(stream)
                .unwrap()
                .place(StreamSeq::new(seq))
                .unwrap();
            let to = Place {
                lsn: 9000 + seq,
                ..from
            };
            assert!(streams.relocate(stream, StreamSeq::new(seq), from, to));
        }
        assert!(turn(&mut damage, at(1), &streams, true).is_empty());
        assert_eq!(damage.deadline(), Time::NEVER);
    }

    #[test]
    fn messages_that_no_node_has_are_not_fetched_again_until_found_again() {
        let (streams, mut damage) = (streams(), Damage::default());
        damage.handle_found(at(0), &range(1000, 1001));
        assert_eq!(turn(&mut damage, at(0), &streams, false), [10]);
        assert_eq!(damage.deadline(), Time::NEVER);
        damage.handle_found(at(5), &range(1000, 1001));
        assert_eq!(turn(&mut damage, at(5), &streams, false), [10]);
    }

    #[test]
    fn ranges_are_bounded() {
        let mut damage = Damage::default();
        for n in 0..2 * RANGES_MAX as u64 {
            damage.handle_found(at(0), &range(n, n + 1));
        }
        assert_eq!(damage.ranges.len(), RANGES_MAX);
    }
}
