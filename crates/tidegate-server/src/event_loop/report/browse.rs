//! Finds messages of a stream for a reader who browses them, a part at a time, so that no turn of the loop
//! takes long. The loop gives the places of the messages, and the reader reads the log.

use bytes::Bytes;
use tidegate_log::Log;
use tidegate_raft::store::Store;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Filter, Place, Stream};

use crate::sessions::Node;

/// The most messages that the loop looks at in one part; in a look backwards the most numbers of messages.
const LOOKED: u64 = 1024;

/// A look at the messages of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Browse {
    pub(crate) stream: String,
    /// The pattern that the subjects of the messages must match; `None` finds all.
    pub(crate) subject: Option<String>,
    pub(crate) start: Start,
    /// The most messages that the reader wants.
    pub(crate) limit: usize,
}

/// The place in the stream at which a look begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Forwards from this number on.
    Seq(u64),
    /// Forwards from the first message of this time or later, in microseconds since 1970.
    Time(u64),
    /// Backwards from the message before this number.
    Before(u64),
    /// Backwards from the last message.
    Newest,
}

/// The loop's answer to a look.
#[derive(Clone, Debug)]
pub(crate) enum Browsed {
    Part(Part),
    /// Other nodes keep the stream, and this one does not.
    Elsewhere,
    /// No stream has this name.
    UnknownStream,
    /// The server has no streams, or has not opened them yet.
    NoStreams,
}

/// A part of the messages that a look finds, in the order of their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The numbers of the first and of the last message in the stream.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) found: Vec<Found>,
    /// The place at which the look goes on: `None` if there is no further message in its direction.
    pub(crate) next: Option<Start>,
    /// The number of messages or numbers that the loop has looked at.
    pub(crate) looked: u64,
    /// The node's log, from which the reader reads the messages.
    pub(crate) log: Log,
}

/// A message that a look finds.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) seq: u64,
    pub(crate) time_us: u64,
    /// The size of the message as the stream counts it.
    pub(crate) bytes: u64,
    pub(crate) subject: Vec<u8>,
    pub(crate) body: Body,
}

/// The bytes of a message, or their place.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// The command that stored a message of a stream in memory.
    Memory(Bytes),
    Log(Place),
}

/// Looks for messages in the streams of this node.
pub(crate) fn look(node: &Node, store: Option<&Store>, browse: &Browse) -> Browsed {
    let Some(store) = store else {
        return Browsed::NoStreams;
    };
    let mut all = node.all_streams();
    let Some(stream) = all.find_map(|of| of.kept(&browse.stream)) else {
        let listed = node
            .directory()
            .and_then(|d| d.applied().by_name(&browse.stream));
        return match listed {
            Some(_) => Browsed::Elsewhere,
            None => Browsed::UnknownStream,
        };
    };
    let state = stream.state();
    let (first, last) = (state.first_seq.get(), state.last_seq.get());
    let filter = match &browse.subject {
        Some(pattern) => Filter::new([pattern.as_bytes()]),
        None => Filter::all(),
    };
    let look = Look {
        stream,
        filter,
        first,
        last,
    };
    let limit = browse.limit;
    let (found, next, looked) = match browse.start {
        Start::Seq(seq) => look.forwards(seq, limit),
        Start::Time(us) => look.forwards(stream.seq_at_time(us).get(), limit),
        Start::Before(seq) => look.backwards(seq, limit),
        Start::Newest => look.backwards(last.saturating_add(1), limit),
    };
    Browsed::Part(Part {
        first,
        last,
        found,
        next,
        looked,
        log: store.log().clone(),
    })
}

struct Look<'a> {
    stream: &'a Stream,
    filter: Filter,
    first: u64,
    last: u64,
}

impl Look<'_> {
    fn forwards(&self, from: u64, limit: usize) -> (Vec<Found>, Option<Start>, u64) {
        let (mut at, mut looked, mut found) = (from.max(self.first), 0, Vec::new());
        while looked < LOOKED && found.len() < limit {
            let next = self.stream.next_at(StreamSeq::new(at), &mut Filter::all());
            let Some(seq) = next.map(StreamSeq::get) else {
                return (found, None, looked);
            };
            looked += 1;
            at = seq.saturating_add(1);
            found.extend(self.message(seq));
        }
        (found, (at <= self.last).then_some(Start::Seq(at)), looked)
    }

    /// Looks at the numbers below `before`. The stream finds messages only forwards, so this function walks
    /// over a bounded range, and keeps the newest ones.
    fn backwards(&self, before: u64, limit: usize) -> (Vec<Found>, Option<Start>, u64) {
        let end = before.min(self.last.saturating_add(1));
        let begin = end.saturating_sub(LOOKED).max(self.first);
        let (mut at, mut found) = (begin, Vec::new());
        while at < end
            && let Some(seq) = self.stream.next_at(StreamSeq::new(at), &mut Filter::all())
            && seq.get() < end
        {
            at = seq.get() + 1;
            found.extend(self.message(seq.get()));
        }
        let older = found.len().saturating_sub(limit);
        found.drain(..older);
        let rest = match found.first() {
            Some(oldest) if found.len() == limit => oldest.seq,
            _ => begin,
        };
        let next = (rest > self.first).then_some(Start::Before(rest));
        (found, next, end.saturating_sub(begin))
    }

    /// Returns the message with this number if its subject matches.
    fn message(&self, seq: u64) -> Option<Found> {
        let number = StreamSeq::new(seq);
        let stored = self.stream.message(number)?;
        if !self.filter.matches(&stored.subject) {
            return None;
        }
        let body = match self.stream.in_memory() {
            true => Body::Memory(self.stream.body(number)?.clone()),
            false => Body::Log(stored.place),
        };
        Some(Found {
            seq,
            time_us: stored.time_us,
            bytes: stored.bytes.into(),
            subject: stored.subject.to_vec(),
            body,
        })
    }
}
