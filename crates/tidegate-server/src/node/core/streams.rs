//! The node's streams: which of its messages they take, what they say through it, when they are due.
//!
//! Owns only the joint. While streams speak they are out of the node, so whatever they say to a subject that a stream takes is kept
//! until they are back, and goes in then.

use bytes::Bytes;
use tidegate::Time;

use super::fanout::Subscription;
use super::{NOBODY, Node, peers};
use crate::api::error::ApiError;
use crate::nats::parse::Publish;
use crate::node::jetstream::{JetStream, Messages, StreamStats, Taken};
use crate::replica::{Committed, Proposed};
use crate::store::Space;
use crate::stream::{Effect, EntryError};

/// The subjects streams are asked, acknowledged and controlled by.
const JETSTREAM: &[u8] = b"$JS.";

impl Node {
    /// From now on there are streams.
    pub fn attach_streams(&mut self, streams: JetStream) {
        self.streams = Some(Box::new(streams));
    }

    /// The streams, if there are any.
    #[must_use]
    pub fn streams(&self) -> Option<&JetStream> {
        self.streams.as_deref()
    }

    /// The same, to say where messages lie.
    pub fn streams_mut(&mut self) -> Option<&mut JetStream> {
        self.streams.as_deref_mut()
    }

    /// Their counts.
    #[must_use]
    pub fn stream_stats(&self) -> StreamStats {
        self.streams.as_ref().map(|s| s.stats()).unwrap_or_default()
    }

    /// It is `us` microseconds after the Unix epoch.
    pub fn set_wall_clock(&mut self, now: Time, us: u64) {
        if let Some(streams) = &mut self.streams {
            streams.set_wall_clock(now, us);
        }
    }

    /// Whether the disk has space for more messages.
    pub fn set_space(&mut self, space: Space) {
        if let Some(streams) = &mut self.streams {
            streams.set_space(space);
        }
    }

    /// The next entry to propose, and for how many callers; [`Node::handle_proposed`] or [`Node::handle_refused`] must follow
    /// before it is asked again. The same entry comes again if neither did.
    pub fn poll_proposal(&mut self, now: Time) -> Option<(Bytes, u64)> {
        self.streams.as_mut()?.poll_proposal(now)
    }

    /// The entry was taken by the group, to be there; proposing it took so long.
    pub fn handle_proposed(&mut self, now: Time, at: Proposed, cost_ns: u64) {
        if let Some(streams) = &mut self.streams {
            streams.handle_proposed(now, at, cost_ns);
            for key in streams.take_resumed() {
                self.resume(key);
            }
        }
    }

    /// The entry was not taken, and is not going to be: whoever waits for it is told why.
    pub fn handle_refused(&mut self, now: Time, error: &ApiError) {
        self.with_streams(|streams, node| streams.handle_refused(node, now, error));
    }

    /// An entry is committed: it is applied, and whoever waits for it is answered. What changed is what the store must know.
    ///
    /// # Errors
    /// It holds what this version does not know: the node must not go on.
    pub fn handle_committed(
        &mut self,
        now: Time,
        entry: &Committed,
    ) -> Result<&[Effect], EntryError> {
        let done = self.with_streams(|streams, node| streams.handle_committed(node, now, entry));
        done.transpose()?;
        Ok(self.streams.as_ref().map_or(&[], |s| s.effects()))
    }

    /// What streams have to do besides: consumers and reads are served as far as possible, entries of streams in memory applied.
    ///
    /// # Errors
    /// As [`Node::handle_committed`].
    pub fn serve_streams(
        &mut self,
        now: Time,
        messages: &mut dyn Messages,
    ) -> Result<(), EntryError> {
        let done = self.with_streams(|streams, node| streams.serve(node, now, messages));
        done.transpose().map(drop)
    }

    /// Everything that was in the log is applied, and this node decides.
    pub fn handle_leading(&mut self, now: Time) {
        if let Some(streams) = &mut self.streams {
            streams.handle_leading(now);
        }
    }

    /// Another node decides, or nobody does.
    pub fn handle_following(&mut self, now: Time) {
        self.with_streams(|streams, node| streams.handle_following(node, now));
    }

    /// The node is going to end: whoever pulls is told, and what consumers know is proposed.
    pub fn stop_streams(&mut self, now: Time) {
        self.with_streams(|streams, node| streams.handle_stopping(node, now));
    }

    /// Somebody began to listen.
    pub(super) fn subscribed(&mut self, pattern: &[u8]) {
        if let Some(streams) = &mut self.streams {
            streams.handle_subscribed(pattern);
        }
    }

    /// A round of writes that carried so many copies of messages took so long.
    pub fn handle_flushed(&mut self, now: Time, copies: u64, cost_ns: u64) {
        if let Some(streams) = &mut self.streams {
            streams.handle_flushed(now, copies, cost_ns);
        }
    }

    /// When [`Node::serve_streams`] is to be called next if nothing happens.
    #[must_use]
    pub fn streams_deadline(&self) -> Option<Time> {
        self.streams.as_ref().and_then(|s| s.deadline())
    }

    /// Whether nothing is on its way into a stream.
    #[must_use]
    pub fn streams_idle(&self) -> bool {
        self.streams.as_ref().is_none_or(|s| s.is_idle())
    }

    /// A message from the connection `from`: whether streams take it.
    pub(super) fn capture(&mut self, now: Time, from: usize, message: &Publish<'_>) -> bool {
        let Some(streams) = self.streams.as_mut() else {
            return false;
        };
        let taken = match message.subject.starts_with(JETSTREAM) {
            true => self
                .with_streams(|streams, node| streams.handle_request(node, now, message))
                .unwrap_or(Taken::No),
            false => streams.publish(now, message),
        };
        match taken {
            Taken::No => false,
            Taken::Yes => true,
            Taken::Full => {
                self.hold_back(now, from);
                true
            }
        }
    }

    /// Whether another node wants messages of this subject.
    pub(in crate::node) fn peers_want(&mut self, subject: &[u8]) -> bool {
        let matches = self.sublist.matches(subject);
        let mut all = matches.plain.iter().chain(matches.groups().flatten());
        all.any(|key| peers::slot_of(self.subs[*key as usize].conn).is_some())
    }

    /// Lets the other nodes know what streams here want to hear, if that is news.
    pub fn announce_streams(&mut self) {
        let Some(streams) = &mut self.streams else {
            return;
        };
        if !streams.take_interest_changed() {
            return;
        }
        let wanted = streams.interest();
        // In this order: what stays is never withdrawn.
        self.announce(wanted.iter().map(|p| &**p));
        let before = std::mem::replace(&mut self.announced, wanted);
        self.withdraw(before.iter().map(|p| &**p));
    }

    /// What streams say: to whoever listens at `to`. What waits for the fullest receiver by then; `None` if nobody listens.
    pub(in crate::node) fn say(
        &mut self,
        now: Time,
        to: &[u8],
        message: &Publish<'_>,
    ) -> Option<usize> {
        self.route(now, NOBODY, to, message, None)
    }

    /// What waits for the fullest of those who listen at `to` (in `group`, if given); `None` if nobody does.
    pub(in crate::node) fn pending_at(&mut self, to: &[u8], group: Option<&[u8]>) -> Option<usize> {
        let matches = self.sublist.matches(to);
        let all = matches.plain.iter().chain(matches.groups().flatten());
        let subs = all.map(|key| &self.subs[*key as usize]);
        let wanted = subs.filter(|sub| group.is_none_or(|g| sub.queue.as_deref() == Some(g)));
        let pending = |sub: &Subscription| match (peers::slot_of(sub.conn), &self.peers) {
            (Some(slot), Some(peers)) => peers.pending(slot),
            _ => Some(self.entries[sub.conn].session.out.len()),
        };
        wanted.filter_map(pending).max()
    }

    /// This connection is not read until there is room.
    fn hold_back(&mut self, now: Time, from: usize) {
        match (peers::slot_of(from), &mut self.peers) {
            (Some(slot), Some(peers)) => peers.pause(slot, now + HELD_BACK),
            _ => match self.entries.get_mut(from) {
                Some(entry) => entry.session.pause(now + HELD_BACK),
                None => return,
            },
        }
        if let Some(streams) = &mut self.streams {
            streams.handle_held_back(from);
        }
    }

    /// Lets the streams speak through the node.
    fn with_streams<R>(&mut self, f: impl FnOnce(&mut JetStream, &mut Self) -> R) -> Option<R> {
        let mut streams = self.streams.take()?;
        let result = f(&mut streams, self);
        self.streams = Some(streams);
        Some(result)
    }
}

/// How long a publisher is held back at most before there is another look.
const HELD_BACK: std::time::Duration = std::time::Duration::from_millis(100);
