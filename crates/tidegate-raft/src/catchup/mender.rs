//! The mender: fetches messages that are damaged in this node's log from the other members, so that readers
//! can have them again. The mender asks one member after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tidegate::Time;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

use super::wire::{Answer, Ask};
use crate::replica::Index;

/// The time for which the mender waits for an answer. Afterwards the mender asks the next member for the
/// message.
const NEXT: Duration = Duration::from_secs(1);
/// The greatest number of the mender's questions that may be without an answer at a time. The number is
/// lower than the bound on the questions that an asked member queues, so that the member drops none.
const ASKED_MAX: usize = 32;
/// The greatest number of damaged messages that the mender fetches at a time, and the greatest number that
/// it remembers as lost on all members. The mender ignores further damaged messages until a reader finds
/// their damage again.
const MESSAGES_MAX: usize = 4096;

/// Asks the other members for each damaged message until the message has arrived, or until all members lack
/// it.
#[derive(Debug)]
pub struct Mender {
    others: Vec<u64>,
    wanted: BTreeMap<(StreamNumber, StreamSeq), Wanted>,
    lost: BTreeSet<(StreamNumber, StreamSeq)>,
}

#[derive(Debug)]
struct Wanted {
    /// The place in `others` of the member that the mender asks next for the message. The mender asks at the
    /// time `at`.
    next: usize,
    at: Time,
    /// True while the mender's question for the message has no answer yet.
    asked: bool,
    /// The members that have answered that they lack the message. Once all other members are here, the
    /// message is lost.
    without: BTreeSet<u64>,
}

impl Mender {
    /// Creates a mender that knows of no damaged message yet. `others` are the other members of the group.
    #[must_use]
    pub const fn new(others: Vec<u64>) -> Self {
        Self {
            others,
            wanted: BTreeMap::new(),
            lost: BTreeSet::new(),
        }
    }

    /// Notes that a message of a stream is damaged in this member's log, so that the mender fetches it.
    /// Returns whether another member may have the message.
    pub fn handle_damaged(&mut self, now: Time, stream: StreamNumber, seq: StreamSeq) -> bool {
        if self.lost.contains(&(stream, seq)) || self.others.is_empty() {
            return false;
        }
        if self.wanted.len() < MESSAGES_MAX {
            self.wanted.entry((stream, seq)).or_insert_with(|| Wanted {
                next: 0,
                at: now,
                asked: false,
                without: BTreeSet::new(),
            });
        }
        true
    }

    /// Returns the next question, for the caller to send, and the member to ask; `None` if no question is
    /// due. `applied` is the last entry that this member has applied; the question names this entry, because
    /// only a member that has applied it, too, can answer.
    pub fn poll(&mut self, now: Time, applied: Index) -> Option<(u64, Ask)> {
        let more = self.asks_more();
        let is_due = |w: &Wanted| w.at <= now && (w.asked || more);
        let due = self.wanted.iter_mut().find(|(_, w)| is_due(w));
        let (&(stream, seq), wanted) = due?;
        wanted.asked = true;
        let to = self.others[wanted.next % self.others.len()];
        wanted.next += 1;
        wanted.at = now + NEXT;
        let ask = Ask::Messages {
            index: applied,
            stream,
            first: seq,
            last: seq,
        };
        Some((to, ask))
    }

    /// Returns the time at which the caller must call [`Mender::poll`] again; [`Time::NEVER`] while the
    /// mender wants no message.
    #[must_use]
    pub fn deadline(&self) -> Time {
        let more = self.asks_more();
        let these = self.wanted.values().filter(|w| w.asked || more);
        these.map(|w| w.at).min().unwrap_or(Time::NEVER)
    }

    /// Returns whether the mender may ask for a further message, because fewer than [`ASKED_MAX`] of its
    /// questions are without an answer.
    fn asks_more(&self) -> bool {
        self.wanted.values().filter(|w| w.asked).count() < ASKED_MAX
    }

    /// Handles an answer of member `from`. Returns the message in the answer if the mender asked for that
    /// message. The caller appends the message to the log, and then reports it as
    /// [mended](Self::handle_mended).
    pub fn handle_answer(
        &mut self,
        now: Time,
        from: u64,
        answer: &Answer,
    ) -> Option<(StreamNumber, StreamSeq, Bytes)> {
        let Answer::Messages {
            stream,
            first,
            messages,
            ..
        } = answer
        else {
            return None;
        };
        let key = (*stream, *first);
        let wanted = self.wanted.get_mut(&key)?;
        if let Some((_, entry)) = messages.iter().find(|(seq, _)| seq == first) {
            return Some((*stream, *first, entry.clone()));
        }
        wanted.without.insert(from);
        (wanted.at, wanted.asked) = (now, false);
        if self.others.iter().all(|id| wanted.without.contains(id)) {
            self.wanted.remove(&key);
            if self.lost.len() < MESSAGES_MAX {
                self.lost.insert(key);
            }
        }
        None
    }

    /// Notes that a damaged message now has an intact copy in the log, so that the mender no longer asks for
    /// it.
    pub fn handle_mended(&mut self, stream: StreamNumber, seq: StreamSeq) {
        self.wanted.remove(&(stream, seq));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(messages: &[u64]) -> Answer {
        let entry = |seq: &u64| (StreamSeq::new(*seq), Bytes::from_static(b"entry"));
        Answer::Messages {
            stream: StreamNumber::FIRST,
            first: StreamSeq::new(5),
            next: StreamSeq::new(6),
            messages: messages.iter().map(entry).collect(),
        }
    }

    #[test]
    fn questions_on_their_way_are_bounded_and_an_answer_makes_room() {
        let mut mender = Mender::new(vec![2]);
        for seq in 1..=100 {
            assert!(mender.handle_damaged(Time::ZERO, StreamNumber::FIRST, StreamSeq::new(seq)));
        }
        let asks =
            |m: &mut Mender, at| std::iter::from_fn(move || m.poll(at, Index::new(9))).count();
        assert_eq!(asks(&mut mender, Time::ZERO), ASKED_MAX);
        assert_eq!(mender.deadline(), Time::ZERO + NEXT);
        assert!(mender.handle_answer(Time::ZERO, 2, &answer(&[5])).is_some());
        mender.handle_mended(StreamNumber::FIRST, StreamSeq::new(5));
        assert_eq!(mender.deadline(), Time::ZERO);
        assert_eq!(asks(&mut mender, Time::ZERO), 1);
        assert_eq!(asks(&mut mender, Time::ZERO + NEXT), ASKED_MAX, "again");
    }

    #[test]
    fn nodes_are_asked_in_turn_until_one_has_the_message_or_none_has() {
        let mut mender = Mender::new(vec![2, 3]);
        let asked = |m: &mut Mender, s| {
            m.poll(Time::ZERO + Duration::from_secs(s), Index::new(9))
                .map(|(to, _)| to)
        };
        assert!(mender.handle_damaged(Time::ZERO, StreamNumber::FIRST, StreamSeq::new(5)));
        assert_eq!(asked(&mut mender, 0), Some(2));
        assert_eq!(asked(&mut mender, 0), None);
        assert!(
            mender.handle_damaged(Time::ZERO, StreamNumber::FIRST, StreamSeq::new(5)),
            "it is asked for already"
        );
        assert_eq!(asked(&mut mender, 1), Some(3));
        let came = mender.handle_answer(Time::ZERO, 3, &answer(&[5]));
        assert_eq!(
            came,
            Some((
                StreamNumber::FIRST,
                StreamSeq::new(5),
                Bytes::from_static(b"entry")
            ))
        );
        mender.handle_mended(StreamNumber::FIRST, StreamSeq::new(5));
        assert_eq!(mender.deadline(), Time::NEVER);
        assert!(mender.handle_damaged(Time::ZERO, StreamNumber::FIRST, StreamSeq::new(5)));
        assert_eq!(mender.handle_answer(Time::ZERO, 2, &answer(&[])), None);
        assert_eq!(asked(&mut mender, 0), Some(2));
        assert_eq!(mender.handle_answer(Time::ZERO, 3, &answer(&[])), None);
        assert!(
            !mender.handle_damaged(Time::ZERO, StreamNumber::FIRST, StreamSeq::new(5)),
            "no node has it"
        );
        assert_eq!(asked(&mut mender, 9), None);
    }
}
