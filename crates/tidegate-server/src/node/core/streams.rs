//! The node's streams: which of its messages they take, what they say through it, when they are due.
//!
//! Owns only the joint. A node has the streams of several groups, each in a slot of its own: the first is the
//! group of all nodes, which also keeps the directory of all streams; without a cluster there is no other.
//! While streams speak they are out of the node, so whatever they say to a subject that a stream takes is
//! kept until they are back, and goes in then.

use bytes::Bytes;
use tidegate::Time;

use super::announced::Changed;
use super::asking::Way;
use super::fanout::Subscription;
use super::{NOBODY, Node, peers};
use crate::api::error::ApiError;
use crate::nats::parse::Publish;
use crate::node::jetstream::{JetStream, Messages, StreamStats, Taken};
use crate::replica::{Committed, Proposed};
use crate::store::Space;
use crate::stream::{Effect, EntryError, Held};

/// The subjects streams are asked, acknowledged and controlled by.
pub(super) const JETSTREAM: &[u8] = b"$JS.";

impl Node {
    /// From now on there are these streams, too, in the next slot.
    pub fn attach_streams(&mut self, streams: JetStream) {
        self.groups.push(streams.group());
        self.streams.push(Some(Box::new(streams)));
    }

    /// The streams in slot `at`, if there are any.
    #[must_use]
    pub fn streams(&self, at: usize) -> Option<&JetStream> {
        self.streams.get(at)?.as_deref()
    }

    /// The same, to say where messages lie.
    pub fn streams_mut(&mut self, at: usize) -> Option<&mut JetStream> {
        self.streams.get_mut(at)?.as_deref_mut()
    }

    /// How many slots there are.
    #[must_use]
    pub const fn streams_len(&self) -> usize {
        self.streams.len()
    }

    /// The streams of all slots.
    pub fn all_streams(&self) -> impl Iterator<Item = &JetStream> {
        self.streams.iter().flatten().map(|s| &**s)
    }

    fn all_streams_mut(&mut self) -> impl Iterator<Item = &mut JetStream> {
        self.streams.iter_mut().flatten().map(|s| &mut **s)
    }

    /// Their counts together.
    #[must_use]
    pub fn stream_stats(&self) -> StreamStats {
        let all = self.all_streams().map(JetStream::stats);
        all.fold(StreamStats::default(), StreamStats::and)
    }

    /// It is `us` microseconds after the Unix epoch.
    pub fn set_wall_clock(&mut self, now: Time, us: u64) {
        self.all_streams_mut()
            .for_each(|s| s.set_wall_clock(now, us));
    }

    /// Whether the disk has space for more messages.
    pub fn set_space(&mut self, space: Space) {
        self.all_streams_mut().for_each(|s| s.set_space(space));
    }

    /// The next entry to propose to the group in slot `at`, and for how many callers;
    /// [`Node::handle_proposed`] or [`Node::handle_refused`] must follow before it is asked again. The same
    /// entry comes again if neither did.
    pub fn poll_proposal(&mut self, at: usize, now: Time) -> Option<(Bytes, u64)> {
        self.streams_mut(at)?.poll_proposal(now)
    }

    /// The entry was taken by the group in slot `at`, to be there; proposing it took so long.
    pub fn handle_proposed(&mut self, at: usize, now: Time, there: Proposed, cost_ns: u64) {
        if let Some(streams) = self.streams_mut(at) {
            streams.handle_proposed(now, there, cost_ns);
            for key in streams.take_resumed() {
                self.resume(key);
            }
        }
    }

    /// The entry was not taken, and is not going to be: whoever waits for it is told why.
    pub fn handle_refused(&mut self, at: usize, now: Time, error: &ApiError) {
        self.with_streams(at, |streams, node| streams.handle_refused(node, now, error));
    }

    /// An entry of the group in slot `at` is committed: it is applied, and whoever waits for it is answered.
    /// What changed is what the store must know.
    ///
    /// # Errors
    /// It holds what this version does not know: the node must not go on.
    pub fn handle_committed(
        &mut self,
        at: usize,
        now: Time,
        entry: &Committed,
    ) -> Result<&[Effect], EntryError> {
        let done = self.with_streams(at, |streams, node| {
            streams.handle_committed(node, now, entry)
        });
        done.transpose()?;
        Ok(self.streams(at).map_or(&[], |s| s.effects()))
    }

    /// What the streams in slot `at` have to do besides: consumers and reads are served as far as possible,
    /// entries of streams in memory applied.
    ///
    /// # Errors
    /// As [`Node::handle_committed`].
    pub fn serve_streams(
        &mut self,
        at: usize,
        now: Time,
        messages: &mut dyn Messages,
    ) -> Result<(), EntryError> {
        if at == 0 && self.streams.len() > 1 {
            // Once a turn: the operator's limits are no sharper than that.
            let held = self.all_streams().map(|s| s.applied().held());
            let all = held.fold(Held::default(), Held::and);
            self.all_streams_mut().for_each(|s| s.set_held(all));
        }
        if at > 0 {
            self.with_streams(at, |streams, node| streams.reconcile(node, now));
            // Others know who serves a stream before whoever made it is answered.
            self.announce_streams();
        }
        if self.streams.len() > 1 {
            self.with_streams(at, |streams, node| streams.pull_moves(node, now));
        }
        let done = self.with_streams(at, |streams, node| streams.serve(node, now, messages));
        done.transpose().map(drop)
    }

    /// Everything that was in the log of the group in slot `at` is applied, and this node decides there.
    pub fn handle_leading(&mut self, at: usize, now: Time) {
        if let Some(streams) = self.streams_mut(at) {
            streams.handle_leading(now);
        }
    }

    /// Another node decides there, or nobody does.
    pub fn handle_following(&mut self, at: usize, now: Time) {
        self.with_streams(at, |streams, node| streams.handle_following(node, now));
    }

    /// The node is going to end: other nodes are not to send anything more for what it keeps alone.
    pub fn part_streams(&mut self, now: Time) {
        self.all_streams_mut().for_each(|s| s.handle_parting(now));
        self.announce_streams();
    }

    /// The node is going to end: whoever pulls is told, and what consumers know is proposed.
    pub fn stop_streams(&mut self, now: Time) {
        for at in 0..self.streams.len() {
            self.with_streams(at, |streams, node| streams.handle_stopping(node, now));
        }
    }

    /// Somebody began to listen.
    pub(super) fn subscribed(&mut self, pattern: &[u8]) {
        self.all_streams_mut()
            .for_each(|s| s.handle_subscribed(pattern));
    }

    /// A round of writes that carried so many copies of messages took so long.
    pub fn handle_flushed(&mut self, now: Time, copies: u64, cost_ns: u64) {
        self.all_streams_mut()
            .for_each(|s| s.handle_flushed(now, copies, cost_ns));
    }

    /// When [`Node::serve_streams`] is to be called next for all slots if nothing happens.
    #[must_use]
    pub fn streams_deadline(&self) -> Option<Time> {
        self.all_streams().filter_map(JetStream::deadline).min()
    }

    /// Returns whether nothing is on its way into a stream.
    #[must_use]
    pub fn streams_idle(&self) -> bool {
        self.all_streams().all(JetStream::is_idle)
    }

    /// A message from the connection `from`: whether streams take it.
    pub(super) fn capture(&mut self, now: Time, from: usize, message: &Publish<'_>) -> bool {
        if self.streams.is_empty() && self.peers.is_none() {
            return false;
        }
        let (at, taken) = match message.subject.starts_with(JETSTREAM) {
            true => {
                let asks = self.wants_to_know(from, message);
                self.ask(now, from, message, Way { passed: 0, asks })
            }
            false => self.publish_into(now, message),
        };
        match taken {
            Taken::No => false,
            Taken::Yes => true,
            Taken::Full => {
                self.hold_back(now, from, at);
                true
            }
        }
    }

    /// A message that is not of the API goes into the stream that takes it, of whatever group; by which slot
    /// it went.
    pub(super) fn publish_into(&mut self, now: Time, message: &Publish<'_>) -> (usize, Taken) {
        let Some(first) = self.streams_mut(0) else {
            return (0, Taken::No);
        };
        let taken = first.publish(now, message);
        if taken != Taken::No || self.streams.len() == 1 {
            return (0, taken);
        }
        let keeper = self
            .streams_mut(0)
            .and_then(|s| s.keeper_of(message.subject));
        let Some(at) = keeper.and_then(|group| self.slot_of_group(group)) else {
            return (0, Taken::No);
        };
        let of_group = self.streams_mut(at);
        (at, of_group.map_or(Taken::No, |s| s.publish(now, message)))
    }

    /// Returns whether a stream that would take messages of this subject is frozen here, and no other group
    /// keeps it as far as is known.
    pub(super) fn has_frozen(&mut self, subject: &[u8]) -> bool {
        let Some(directory) = self.streams_mut(0) else {
            return false;
        };
        let at = match directory.keeper_of(subject) {
            Some(group) => self.slot_of_group(group),
            None => Some(0),
        };
        at.and_then(|at| self.streams(at))
            .is_some_and(|streams| streams.has_frozen(subject))
    }

    /// The slot of the group with this number, if this node is a member.
    pub(in crate::node) fn slot_of_group(&self, group: u32) -> Option<usize> {
        self.groups.iter().position(|g| *g == group)
    }

    /// Lets the other nodes know what streams here want to hear, if that is news.
    pub fn announce_streams(&mut self) {
        let mut announced = std::mem::take(&mut self.announced);
        let mut changed = Changed::default();
        for streams in self.all_streams_mut() {
            let of = streams.take_interest_changed();
            announced.compare(streams, &of, &mut changed);
        }
        self.announced = announced;
        // In this order: what stays is never withdrawn.
        self.announce(changed.wanted.iter().map(|p| &**p));
        self.withdraw(changed.unwanted.iter().map(|p| &**p));
    }

    /// What streams say: to whoever listens at `to`. What waits for the fullest receiver by then; `None` if
    /// nobody listens.
    pub(in crate::node) fn say(
        &mut self,
        now: Time,
        to: &[u8],
        message: &Publish<'_>,
    ) -> Option<usize> {
        if self.is_leaders_own(to) {
            return None;
        }
        if self.streams.len() > 1 && !to.starts_with(INBOX) {
            // Those who speak have heard it themselves.
            let others = self.all_streams_mut();
            others.for_each(|streams| streams.handle_said(to, message));
        }
        self.route(now, NOBODY, to, message, None)
    }

    /// What waits for the fullest of those who listen at `to` (in `group`, if given); `None` if nobody does.
    pub(in crate::node) fn pending_at(&mut self, to: &[u8], group: Option<&[u8]>) -> Option<usize> {
        let all = self.sublist.matches(to).iter();
        let subs = all.map(|key| &self.subs[key as usize]);
        let wanted = subs.filter(|sub| group.is_none_or(|g| sub.queue.as_deref() == Some(g)));
        let pending = |sub: &Subscription| match (peers::slot_of(sub.conn), &self.peers) {
            (Some(slot), Some(peers)) => peers.pending(slot),
            _ => Some(self.entries[sub.conn].session.out.len()),
        };
        wanted.filter_map(pending).max()
    }

    /// This connection is not read until there is room.
    pub(super) fn hold_back(&mut self, now: Time, from: usize, at: usize) {
        match (peers::slot_of(from), &mut self.peers) {
            (Some(slot), Some(peers)) => peers.pause(slot, now + HELD_BACK),
            _ => match self.entries.get_mut(from) {
                Some(entry) => entry.session.pause(now + HELD_BACK),
                None => return,
            },
        }
        if let Some(streams) = self.streams_mut(at) {
            streams.handle_held_back(from);
        }
    }

    /// Whether a stream of those that do not speak takes messages of this subject.
    pub(in crate::node) fn collects(&self, subject: &[u8]) -> bool {
        self.streams.len() > 1 && self.all_streams().any(|s| s.collects(subject))
    }

    /// Lets the streams in slot `at` speak through the node.
    pub(in crate::node) fn with_streams<R>(
        &mut self,
        at: usize,
        f: impl FnOnce(&mut JetStream, &mut Self) -> R,
    ) -> Option<R> {
        let mut streams = self.streams.get_mut(at)?.take()?;
        let result = f(&mut streams, self);
        self.streams[at] = Some(streams);
        Some(result)
    }
}

/// Where clients wait for answers: streams that take these subjects are told no answers.
pub(in crate::node) const INBOX: &[u8] = b"_INBOX.";

/// How long a publisher is held back at most before there is another look.
const HELD_BACK: std::time::Duration = std::time::Duration::from_millis(100);
