//! Answers queries of clients, consumers and moves about the messages of a stream: the first and the last
//! number, the removed messages, and the last message of each subject up to a given number.

use std::collections::VecDeque;
use std::sync::Arc;

use super::block::Block;
use super::filter::Filter;
use super::single::Stream;
use super::streams::Streams;
use super::subjects::Name;
use crate::schema::sequence::StreamSeq;

/// The removed messages of a stream at one moment, between its first message and its last. The list shares
/// the blocks of the stream's index, so that another thread can list a million numbers.
#[derive(Clone, Debug)]
pub struct Removed {
    first_seq: StreamSeq,
    last_seq: StreamSeq,
    blocks: VecDeque<Arc<Block>>,
    tail: Block,
}

impl Removed {
    /// Iterates over the runs of removed messages in rising order, each with its first number and its last,
    /// so that a long gap costs only one item.
    pub fn runs(&self) -> impl Iterator<Item = (StreamSeq, StreamSeq)> {
        let blocks = self.blocks.iter().map(|block| &**block).chain([&self.tail]);
        let held = blocks.flat_map(|block| block.live().iter().map(|bit| block.seq(bit)));
        let mut at = self.first_seq;
        held.chain([self.last_seq.next()]).filter_map(move |seq| {
            let run = (seq > at).then(|| (at, seq.prev()));
            at = seq.next();
            run
        })
    }
}

/// The number of subjects that take as long to look at as the search for an older message of one subject. A
/// query measures its parts in subjects.
const SEARCH_COST: usize = 64;

impl Stream {
    /// Returns the removed messages between the stream's first message and its last. The call takes time for
    /// each block of 256 messages, because it shares each block.
    #[must_use]
    pub fn removed(&self) -> Removed {
        let (blocks, tail) = self.content.index.shared();
        Removed {
            first_seq: self.content.first_seq,
            last_seq: self.content.last_seq,
            blocks,
            tail,
        }
    }

    /// Returns the number of the stream's first message; in an empty stream, the number that the next message
    /// will get. Consumers start at this number or above.
    #[must_use]
    pub const fn first_seq(&self) -> StreamSeq {
        self.content.first_seq
    }

    /// Returns the number of the last message that the stream ever stored; 0 before the first message.
    /// Consumers wait for messages above this number.
    #[must_use]
    pub const fn last_seq(&self) -> StreamSeq {
        self.content.last_seq
    }

    /// Looks at up to `len` of the stream's subjects, from place `from` on. Returns the subjects among them
    /// that the filter passes, each with its count of messages, and the place of the next subject; `None`
    /// once no subject is left. So a query over many subjects spreads over several turns of the node.
    #[must_use]
    pub fn subjects_part(
        &self,
        filter: &Filter,
        from: usize,
        len: usize,
    ) -> (Vec<(Name, u64)>, Option<usize>) {
        let (part, next) = self.content.subjects.part(from, len);
        let found = part.filter(|(_, name, _)| filter.matches(name));
        let found = found.map(|(_, name, stat)| (Name::clone(name), stat.count.into()));
        (found.collect(), next)
    }

    /// Looks at up to `len` of the stream's subjects, from place `from` on. Returns the number of the last
    /// message of each of them that the filter passes, in no particular order, and the place of the next
    /// subject; `None` once no subject is left. If `up_to` is given, a subject with messages above this
    /// number counts with its last message up to it; the search for that message takes as long as a look at
    /// 64 subjects. A subject keeps its place as long as it has messages, so a query in several calls does
    /// not miss it.
    #[must_use]
    pub fn lasts_part(
        &self,
        filter: &Filter,
        from: usize,
        len: usize,
        up_to: Option<StreamSeq>,
    ) -> (Vec<StreamSeq>, Option<usize>) {
        let content = &self.content;
        let (part, next) = content.subjects.part(from, len);
        let (mut lasts, mut searches) = (Vec::new(), 0);
        for (id, name, stat) in part {
            if !filter.matches(name) {
                continue;
            }
            let last = content.last_of(id);
            let Some(up_to) = up_to.filter(|to| last.is_some_and(|last| last > *to)) else {
                lasts.extend(last);
                continue;
            };
            lasts.extend(content.index.prev_of(id, up_to, stat.first));
            searches += SEARCH_COST;
            if searches >= len {
                return (lasts, Some(id as usize + 1));
            }
        }
        (lasts, next)
    }

    /// Counts the messages that the filter passes among up to `len` numbers, from number `from` on. Returns
    /// the count, and the number from which to go on; `None` once no message is left. So a count over a large
    /// stream spreads over several turns of the node.
    #[must_use]
    pub fn count_part(
        &self,
        from: StreamSeq,
        len: u64,
        filter: &mut Filter,
    ) -> (u64, Option<StreamSeq>) {
        let from = from.max(self.content.first_seq);
        let end = from.saturating_after(len);
        let count = self.content.count_between(from, end, filter);
        (count, (end <= self.content.last_seq).then_some(end))
    }

    /// Returns whether the stream holds message `seq`, and the message is the last of a subject that the
    /// filter passes. A consumer that delivers only the last messages of subjects asks this.
    #[must_use]
    pub fn is_last(&self, seq: StreamSeq, filter: &Filter) -> bool {
        let content = &self.content;
        let subject = content.index.get(seq).map(|slot| slot.subject);
        subject.is_some_and(|id| {
            let wanted = content.subjects.name(id).is_some_and(|n| filter.matches(n));
            wanted && content.last_of(id) == Some(seq)
        })
    }
}

impl Streams {
    /// Returns the time of the latest log entry that this node applied to the streams, in microseconds since
    /// 1970. The streams read no clock, so this time is their present.
    #[must_use]
    pub const fn now_us(&self) -> u64 {
        self.now_us
    }
}
