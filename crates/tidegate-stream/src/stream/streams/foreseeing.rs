//! The purge by subject that this node prepares, because the group will soon have an entry with it, and the
//! entry should not take long.
//!
//! The leader prepares a purge before it proposes the purge ([`Streams::foresee`]). The leader tells the
//! other nodes by a hint in the log, so that they prepare the purge at the same time: the payload of a
//! [`Kind::Expire`] command, which a node may also ignore.

use super::super::command::{Command, Kind};
use super::super::filter::{Filter, Reach};
use super::super::foreseen::Foreseen;
use super::Streams;
use crate::schema::number::StreamNumber;

/// The number of messages that take as long to look at as one subject takes to compare with a pattern.
const MESSAGES_A_SUBJECT: u64 = 4;

/// The purge that this node prepares: its stream, and the results so far. A node prepares one purge of a
/// group at a time, which bounds the memory for results.
#[derive(Debug, Default)]
pub(super) struct Foreseeing(Option<(StreamNumber, Foreseen)>);

impl Foreseeing {
    /// Takes the results for a purge of this stream by this filter; `None` if the node has prepared another
    /// purge or none, and the purge must do all the work itself.
    pub(super) fn take(&mut self, stream: StreamNumber, filter: &str) -> Option<Foreseen> {
        let of = |(id, foreseen): &mut (_, Foreseen)| *id == stream && foreseen.is_for(filter);
        self.0.take_if(of).map(|(_, foreseen)| foreseen)
    }

    /// Begins to prepare the purge that a hint in the log names, unless the payload is empty and so no hint.
    /// A node that has begun already goes on.
    pub(super) fn handle_hint(&mut self, stream: StreamNumber, payload: &[u8]) {
        let pattern = std::str::from_utf8(payload).ok().filter(|p| !p.is_empty());
        let known = |pattern: &str| {
            let known = self.0.as_ref();
            known.is_some_and(|(id, foreseen)| *id == stream && foreseen.is_for(pattern))
        };
        if let Some(pattern) = pattern.filter(|pattern| !known(pattern)) {
            self.0 = Some((stream, Foreseen::new(pattern)));
        }
    }
}

impl Streams {
    /// Returns the command that makes all nodes of the group prepare a purge of this stream by this pattern,
    /// for the leader to propose.
    #[must_use]
    pub const fn hint(stream: StreamNumber, pattern: &str) -> Command<'_> {
        Command::new(Kind::Expire, stream, b"", pattern.as_bytes())
    }

    /// Begins to prepare a purge of a stream by a pattern on this node, and drops the results for another
    /// purge. The leader calls this before it proposes the purge.
    pub fn foresee(&mut self, stream: StreamNumber, pattern: &str) {
        self.foreseeing.0 = Some((stream, Foreseen::new(pattern)));
    }

    /// Drops the results for a purge that will not come: its leader has gone, or has refused it. They share
    /// blocks of the stream's index and copy others, and so would keep much memory until another purge.
    pub fn forget_foreseen(&mut self) {
        self.foreseeing.0 = None;
    }

    /// Returns whether this node has prepared the purge of this stream by this pattern, so that the leader
    /// can propose the purge.
    #[must_use]
    pub fn is_foreseen(&self, stream: StreamNumber, pattern: &str) -> bool {
        let foreseen = self.foreseeing.0.as_ref();
        foreseen.is_some_and(|(id, f)| *id == stream && f.is_for(pattern) && f.is_complete())
    }

    /// Returns whether [`Streams::go_on_foreseeing`] has work left, so that the node calls it again between
    /// other work.
    #[must_use]
    pub fn is_foreseeing(&self) -> bool {
        let foreseen = self.foreseeing.0.as_ref();
        foreseen.is_some_and(|(_, foreseen)| !foreseen.is_complete())
    }

    /// Continues to prepare a purge, in parts so that other work can go on: looks at up to `limit` subjects,
    /// or at blocks of messages for about as long. Returns the number of subjects that take as long as this
    /// part.
    pub fn go_on_foreseeing(&mut self, limit: usize) -> usize {
        let Some((id, foreseen)) = &mut self.foreseeing.0 else {
            return 0;
        };
        match self.streams.get(*id) {
            Some(stream) if !foreseen.is_complete() => foreseen.go_on(&stream.content, limit),
            Some(_) => 0,
            // A client deleted the stream meanwhile, so no purge needs the results.
            None => {
                self.foreseeing.0 = None;
                0
            }
        }
    }

    /// Returns whether a purge of this stream by this pattern (empty for all subjects) takes long at its
    /// entry unless the nodes have prepared it: it compares more than `limit` subjects with the pattern, or
    /// looks at more than four times as many messages.
    #[must_use]
    pub fn must_foresee(&self, stream: StreamNumber, pattern: &str, limit: u64) -> bool {
        let Some(content) = self.streams.get(stream).map(|stream| &stream.content) else {
            return false;
        };
        let messages = limit.saturating_mul(MESSAGES_A_SUBJECT);
        match Filter::new(Some(pattern).filter(|p| !p.is_empty())).reach(&content.subjects) {
            Reach::All | Reach::One(None) => false,
            Reach::One(Some(id)) => u64::from(content.subjects.stat(id).count) > messages,
            Reach::Patterns => content.subjects.len() as u64 > limit || content.messages > messages,
        }
    }
}
