//! Connects the node with its streams: hands them the messages that clients publish into them, and publishes
//! the messages that the streams send.
//!
//! A node keeps the streams of several groups, each group in a separate slot ([`GroupSlot`]).
//! [`Node::with_streams`] takes the streams of a slot out of the node while they handle an event, and carries
//! out the event's outputs before any streams handle the next event.

use bytes::Bytes;
use tidegate::Time;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::slots::GroupSlot;
use tidegate_nats::parse::Publish;
use tidegate_nats::sublist::Matches;
use tidegate_nats::system::is_inner;
use tidegate_raft::replica::{Committed, EntryId};
use tidegate_raft::store::Space;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::stream::{Effect, EntryError, Held, Place};

use super::Node;
use super::announced::Changed;
use super::fanout::Subscription;
use crate::party::Party;
use crate::streams::context::{
    Context, INBOX, Leader, Listeners, Output, Outputs, Surroundings, Way,
};
use crate::streams::directory::leader_message::{
    LeaderMessage, subject_of_group, subject_of_stream,
};
use crate::streams::subject_pages::PageJob;
use crate::streams::taking::{Fetched, Request};
use crate::streams::{JetStream, Messages, StreamStats, Taken};

/// The prefix of the subjects at which clients reach the streams' API, acknowledge messages and answer flow
/// control.
pub(super) const JETSTREAM: &[u8] = b"$JS.";

impl Node {
    /// Adds the streams of a group to the node, in the next free slot, once the driver has opened the store.
    pub(crate) fn attach_streams(&mut self, streams: JetStream) {
        self.groups.push(streams.group());
        self.streams.push(Some(Box::new(streams)));
    }

    /// Returns the streams in slot `at`, for the driver's questions; `None` if the node has no such slot.
    #[must_use]
    pub(crate) fn streams(&self, at: GroupSlot) -> Option<&JetStream> {
        self.streams.get(at)?.as_deref()
    }

    /// Returns the streams in slot `at`, mutable, so that the driver can note new places of messages.
    pub(crate) fn streams_mut(&mut self, at: GroupSlot) -> Option<&mut JetStream> {
        self.streams.get_mut(at)?.as_deref_mut()
    }

    /// Returns the streams of the group of all nodes, which also keeps the directory of all streams; `None`
    /// if this node has no streams.
    #[must_use]
    pub(crate) fn directory(&self) -> Option<&JetStream> {
        self.streams(GroupSlot::DIRECTORY)
    }

    /// Returns the streams of the group that also keeps the directory, mutable, so that the driver can change
    /// their state.
    pub(crate) fn directory_mut(&mut self) -> Option<&mut JetStream> {
        self.streams_mut(GroupSlot::DIRECTORY)
    }

    /// Returns the slots of the groups on this node in order, so that the driver can serve each.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = GroupSlot> + use<> {
        self.streams.slots()
    }

    /// Iterates over the streams of all groups on this node, for figures of the whole node.
    pub(crate) fn all_streams(&self) -> impl Iterator<Item = &JetStream> {
        self.streams.iter().flatten().map(|s| &**s)
    }

    pub(crate) fn all_streams_mut(&mut self) -> impl Iterator<Item = &mut JetStream> {
        self.streams.iter_mut().flatten().map(|s| &mut **s)
    }

    /// Returns the sum of the counts of the streams of all groups, for the monitor.
    #[must_use]
    pub(crate) fn stream_stats(&self) -> StreamStats {
        let all = self.all_streams().map(JetStream::stats);
        all.fold(StreamStats::default(), StreamStats::and)
    }

    /// Sets the streams' wall clock to `us` microseconds after the Unix epoch, at the monotonic time `now`,
    /// because the node reads no clock itself.
    pub fn set_wall_clock(&mut self, now: Time, us: u64) {
        self.all_streams_mut()
            .for_each(|s| s.set_wall_clock(now, us));
    }

    /// Tells the streams whether the disk has space for more messages, by which they accept or refuse
    /// messages.
    pub fn set_space(&mut self, space: Space) {
        self.all_streams_mut().for_each(|s| s.set_space(space));
    }

    /// Returns the next entry to propose to the group in slot `at`, and the number of clients that wait for
    /// its outcome. The driver must call [`Node::handle_proposed`] or [`Node::handle_refused`] before it
    /// takes the next entry; until then this function returns this entry again.
    pub fn poll_proposal(&mut self, at: GroupSlot, now: Time) -> Option<(Bytes, u64)> {
        self.streams_mut(at)?.poll_proposal(now)
    }

    /// Records that the group in slot `at` accepted the entry of [`Node::poll_proposal`] and gave it the id
    /// `there`, by which the streams later find its waiters, and that the proposal took `cost_ns`
    /// nanoseconds.
    pub fn handle_proposed(&mut self, at: GroupSlot, now: Time, there: EntryId, cost_ns: u64) {
        if let Some(streams) = self.streams_mut(at) {
            streams.handle_proposed(now, there, cost_ns);
            for publisher in streams.take_resumed() {
                self.resume(publisher);
            }
        }
    }

    /// Records that the group in slot `at` refused the entry of [`Node::poll_proposal`] for good. The clients
    /// that wait for the entry get the error.
    pub fn handle_refused(&mut self, at: GroupSlot, now: Time, error: &ApiError) {
        self.with_streams(now, at, |streams, cx| {
            streams.handle_refused(cx, now, error)
        });
    }

    /// Prepares the next committed entry of the group in slot `at`, a part in each turn. Returns whether the
    /// node may apply the entry now. Otherwise the driver asks again in its next turn.
    pub fn prepare(&mut self, at: GroupSlot, entry: &Bytes) -> bool {
        self.streams_mut(at).is_none_or(|s| s.prepare(entry))
    }

    /// Applies a committed entry of the group in slot `at`, and answers the clients that wait for it. Returns
    /// the effects of the entry, by which the driver tells the store of new and removed messages.
    ///
    /// # Errors
    /// The entry holds data unknown to this version, so the node must stop.
    pub fn handle_committed(
        &mut self,
        at: GroupSlot,
        now: Time,
        entry: &Committed,
    ) -> Result<&[Effect], EntryError> {
        let done = self.with_streams(now, at, |streams, cx| {
            streams.handle_committed(cx, now, entry)
        });
        done.transpose()?;
        Ok(self.streams(at).map_or(&[], |s| s.effects()))
    }

    /// Does the work that remains for the streams in slot `at` in this turn: serves consumers and reads as
    /// far as possible, and applies entries of streams in memory.
    ///
    /// # Errors
    /// An entry holds data unknown to this version, so the node must stop.
    pub(crate) fn serve_streams(
        &mut self,
        at: GroupSlot,
        now: Time,
        messages: &dyn Messages,
    ) -> Result<(), EntryError> {
        if at == GroupSlot::DIRECTORY && self.streams.len() > 1 {
            // The node adds up the bytes of all groups only once a turn, to save time. Within a turn the
            // groups together may therefore exceed the operator's limits.
            let held = self.all_streams().map(|s| s.applied().held());
            let all = held.fold(Held::default(), Held::and);
            self.all_streams_mut().for_each(|s| s.set_held(all));
        }
        if at != GroupSlot::DIRECTORY {
            self.with_streams(now, at, |streams, cx| streams.reconcile(cx, now));
            // The node announces a new stream before it answers the stream's creator, so that peers already
            // know this node as the stream's server.
            self.announce_streams();
        }
        if self.streams.len() > 1 {
            self.with_streams(now, at, |streams, cx| streams.pull_moves(cx, now));
        }
        let begun = self.with_streams(now, at, |streams, cx| streams.serve(cx, now, messages));
        begun.transpose()?;
        // The node serves each consumer as a separate event, so that it sends the messages of one consumer
        // before it serves the next.
        while let Some(key) = self.streams_mut(at).and_then(JetStream::next_consumer) {
            self.with_streams(now, at, |streams, cx| {
                streams.serve_consumer(cx, now, key, messages);
            });
        }
        let ended = self.with_streams(now, at, |streams, cx| streams.end_turn(cx, now));
        ended.transpose()?;
        // The node lets publishers go on that messages to publish again have held back.
        let resumed = self.streams_mut(at).map(JetStream::take_resumed);
        for publisher in resumed.into_iter().flatten() {
            self.resume(publisher);
        }
        Ok(())
    }

    /// Returns the place of the next message that the store must read, and the slot of the message's group,
    /// so that the driver starts the read.
    pub fn poll_wanted(&mut self) -> Option<(GroupSlot, Place)> {
        self.wanted.pop_front()
    }

    /// Returns whether a page of subjects waits for a thread of the pool, so that the driver gives it to a
    /// free one.
    #[cfg(test)]
    pub(crate) fn has_page(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Returns the next request for messages of an origin in another cluster. The driver must pass the answer
    /// to [`Node::handle_fetched`], or drop the request.
    pub(crate) fn poll_fetch(&mut self) -> Option<Box<Request>> {
        self.fetches.pop_front()
    }

    /// Hands the messages of an origin in another cluster to the streams that take them in.
    pub(crate) fn handle_fetched(&mut self, now: Time, fetched: Fetched) {
        let Some(at) = self.slot_of_group(fetched.group) else {
            return;
        };
        let told = LeaderMessage::Given {
            target: fetched.target,
            key: fetched.key,
            answer: fetched.answer,
        };
        self.with_streams(now, at, |streams, cx| {
            streams.handle_leader_message(cx, now, None, told);
        });
    }

    /// Takes the next page of subjects, for a thread of the pool to encode, and the slot of its group. The
    /// driver must pass the encoded answer to [`Node::handle_page`].
    pub(crate) fn poll_page(&mut self) -> Option<(GroupSlot, Box<PageJob>)> {
        self.pages.pop_front()
    }

    /// Sends the encoded answer to the client at `reply` that asked the streams in slot `at`. Refuses the
    /// client's request if there is no answer because the encoding failed.
    pub(crate) fn handle_page(
        &mut self,
        now: Time,
        at: GroupSlot,
        reply: &[u8],
        body: Option<&[u8]>,
    ) {
        self.with_streams(now, at, |streams, cx| {
            streams.handle_page(cx, now, reply, body);
        });
    }

    /// Makes the streams in slot `at` serve clients, because this node leads their group and has applied each
    /// committed entry.
    pub fn handle_leading(&mut self, at: GroupSlot, now: Time) {
        if let Some(streams) = self.streams_mut(at) {
            streams.handle_leading(now);
        }
    }

    /// Makes the streams in slot `at` stop serving clients, because this node no longer leads their group.
    pub fn handle_following(&mut self, at: GroupSlot, now: Time) {
        self.with_streams(now, at, |streams, cx| streams.handle_following(cx, now));
    }

    /// Withdraws the subjects of the streams that only this node keeps, because the node stops. Peers then
    /// send no further messages with these subjects to this node.
    pub fn part_streams(&mut self, now: Time) {
        self.all_streams_mut().for_each(|s| s.handle_parting(now));
        self.announce_streams();
    }

    /// Ends the pulls of all consumers and proposes the consumers' state, because the node stops, so that
    /// clients do not wait and the next leader knows the state.
    pub fn stop_streams(&mut self, now: Time) {
        for at in self.streams.slots() {
            self.with_streams(now, at, |streams, cx| streams.handle_stopping(cx, now));
        }
    }

    /// Tells the streams of all groups that a client or a peer has subscribed to `pattern`, so that consumers
    /// with waiting messages deliver them.
    pub(super) fn subscribed(&mut self, pattern: &[u8]) {
        self.all_streams_mut()
            .for_each(|s| s.handle_subscribed(pattern));
    }

    /// Records that the driver wrote `copies` copies of messages to sockets in `cost_ns` nanoseconds. The
    /// controllers of flow acknowledgements learn their share of this cost, by which they decide how often to
    /// send.
    pub fn handle_flushed(&mut self, now: Time, copies: u64, cost_ns: u64) {
        self.all_streams_mut()
            .for_each(|s| s.handle_flushed(now, copies, cost_ns));
    }

    /// Records that the driver has written all acknowledgements that the streams have sent until now, so that
    /// the monitor shows the time from publishes to their acknowledgements. A client's acknowledgements count
    /// as written at the last write to this client, and a peer's at `now`.
    pub fn handle_acks_written(&mut self, now: Time) {
        let (entries, acks) = (&self.entries, &mut self.ack_times);
        for streams in self.streams.iter_mut().flatten() {
            for publishes in streams.take_answered() {
                let written = match publishes.from {
                    Party::Client(key) => match entries.get(key).filter(|entry| !entry.gone) {
                        Some(entry) => entry.written,
                        // The client has gone without its acknowledgements.
                        None => continue,
                    },
                    Party::Peer(_) => now,
                };
                // The acknowledgement may go to another client, to which the loop wrote until `now`.
                let end = if written < publishes.at { now } else { written };
                acks.record(end.since(publishes.at), publishes.len.into());
            }
        }
    }

    /// Returns the time at which the driver must call [`Node::serve_streams`] for all slots, if no event
    /// makes it call earlier; `None` if no time is set.
    #[must_use]
    pub fn streams_deadline(&self) -> Option<Time> {
        let current = self.directory().is_some_and(JetStream::is_current);
        self.all_streams().filter_map(|s| s.deadline(current)).min()
    }

    /// Returns whether the streams of this node have no unfinished work, so that the node may stop: no
    /// command waits to be applied, and no API request waits for a change.
    #[must_use]
    pub fn streams_idle(&self) -> bool {
        self.all_streams().all(JetStream::is_idle)
    }

    /// Offers a message that `from` published to the streams of this node. Returns whether a stream takes the
    /// message, so that its publisher gets no `no responders`.
    pub(super) fn capture(&mut self, now: Time, from: Party, message: &Publish<'_>) -> bool {
        if self.streams.is_empty() && self.peers.is_none() {
            return false;
        }
        let (at, taken) = match message.subject.starts_with(JETSTREAM) {
            true => {
                let asks = self.wants_to_know(Some(from), message);
                self.ask(now, from, message, Way { passed: 0, asks })
            }
            false => self.publish_into(now, Some(from), message),
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

    /// Offers a published message outside of the streams' API to the stream that has its subject, in any
    /// group of this node. Returns the slot of that stream's group; the directory's slot if no stream on this
    /// node has the subject. The node stops reading from the publisher if that group's log is behind. The
    /// node measures the time to the acknowledgement of a message `from` a client or a peer.
    pub(super) fn publish_into(
        &mut self,
        now: Time,
        from: Option<Party>,
        message: &Publish<'_>,
    ) -> (GroupSlot, Taken) {
        let Some(directory) = self.directory_mut() else {
            return (GroupSlot::DIRECTORY, Taken::No);
        };
        let taken = directory.publish(now, from, message);
        if taken != Taken::No || self.streams.len() == 1 {
            return (GroupSlot::DIRECTORY, taken);
        }
        let home = self
            .directory_mut()
            .and_then(|s| s.home_of(message.subject));
        let Some(at) = home.and_then(|group| self.slot_of_group(group)) else {
            return (GroupSlot::DIRECTORY, Taken::No);
        };
        let of_group = self.streams_mut(at);
        let taken = of_group.map(|s| s.publish(now, from, message));
        (at, taken.unwrap_or(Taken::No))
    }

    /// Answers the publisher of a message that subscribers received and no stream took with an error, if a
    /// stream should have taken the message, so that the publisher does not wait in vain.
    pub(super) fn answer_unserved(&mut self, now: Time, message: &Publish<'_>) {
        if message.reply.is_some() && !message.subject.starts_with(JETSTREAM) {
            self.with_streams(now, GroupSlot::DIRECTORY, |streams, cx| {
                streams.answer_unserved(cx, now, message);
            });
        }
    }

    /// Returns whether the stream with this subject is frozen on this node, in the group that keeps the
    /// stream by this node's copy of the directory. No group takes messages for such a stream, so the
    /// publisher must get `no responders`.
    pub(super) fn has_frozen(&mut self, subject: &[u8]) -> bool {
        let Some(directory) = self.directory_mut() else {
            return false;
        };
        let at = match directory.home_of(subject) {
            Some(group) => self.slot_of_group(group),
            None => Some(GroupSlot::DIRECTORY),
        };
        at.and_then(|at| self.streams(at))
            .is_some_and(|streams| streams.has_frozen(subject))
    }

    /// Returns the slot of this group; `None` if this node is not a member of the group and so does not have
    /// its streams.
    pub(crate) fn slot_of_group(&self, group: GroupId) -> Option<GroupSlot> {
        self.groups.position(|g| *g == group)
    }

    /// Announces the subjects of this node's streams to the peers, and withdraws subjects that these streams
    /// no longer have, if the subjects have changed, so that the peers send the right messages.
    pub fn announce_streams(&mut self) {
        let mut announced = std::mem::take(&mut self.announced);
        let mut changed = Changed::default();
        for streams in self.all_streams_mut() {
            let of = streams.take_interest_changed();
            announced.compare(streams, &of, &mut changed);
        }
        self.announced = announced;
        // The node announces before it withdraws, so that peers never lack a subject that another stream
        // keeps.
        self.announce(changed.wanted.iter().map(|p| &**p));
        self.withdraw(changed.unwanted.iter().map(|p| &**p));
    }

    /// Delivers a message that streams publish, such as an answer or a delivery, to the subscribers of the
    /// subject `to`. Returns the backlog of the fullest receiver in bytes; `None` if the message has no
    /// receiver.
    pub(crate) fn say(&mut self, now: Time, to: &[u8], message: &Publish<'_>) -> Option<usize> {
        if self.is_leaders_own(to) {
            return None;
        }
        self.route(now, None, to, message, None)
    }

    /// Stops reading from the publisher `from`, because too many bytes wait for the log of the streams in
    /// slot `at`. The node reads again once the log has room, and after 100 ms at the latest.
    pub(super) fn hold_back(&mut self, now: Time, from: Party, at: GroupSlot) {
        match (from, &mut self.peers) {
            (Party::Peer(slot), Some(peers)) => peers.pause(slot, now + HELD_BACK),
            (Party::Peer(_), None) => return,
            (Party::Client(key), _) => match self.entries.get_mut(key) {
                Some(entry) => entry.session.pause(now + HELD_BACK),
                None => return,
            },
        }
        if let Some(streams) = self.streams_mut(at) {
            streams.handle_held_back(from);
        }
    }

    /// Lets the streams in slot `at` handle an event, and then carries out the event's outputs in order. An
    /// output may be an event for the streams of another group on this node; such events wait until all
    /// outputs of the first event are carried out.
    pub(crate) fn with_streams<R>(
        &mut self,
        now: Time,
        at: GroupSlot,
        f: impl FnOnce(&mut JetStream, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let result = self.handle_in(now, at, f)?;
        while let Some(event) = self.inner.pop_front() {
            self.handle_inner(now, event);
        }
        Some(result)
    }

    fn handle_in<R>(
        &mut self,
        now: Time,
        at: GroupSlot,
        f: impl FnOnce(&mut JetStream, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let mut streams = self.streams.get_mut(at)?.take()?;
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut cx = Context {
            around: &*self,
            outputs: &mut outputs,
        };
        let result = f(&mut streams, &mut cx);
        self.carry_out_all(now, at, &mut outputs);
        self.streams[at] = Some(streams);
        self.outputs = outputs;
        Some(result)
    }

    /// Carries out the outputs of the streams in slot `from`. These streams are still taken out of the node,
    /// so they do not receive the messages that they themselves publish: because they took these messages in
    /// already.
    fn carry_out_all(&mut self, now: Time, from: GroupSlot, outputs: &mut Outputs) {
        let (list, bytes) = outputs.parts();
        for output in list {
            match output {
                Output::Say(spans) => {
                    let (to, message) = spans.read(bytes);
                    let apart = to.starts_with(INBOX) || is_inner(to) || self.is_leaders_own(to);
                    if self.streams.len() > 1 && !apart {
                        let others = self.all_streams_mut();
                        others.for_each(|streams| streams.handle_said(to, &message));
                    }
                    self.say(now, to, &message);
                }
                Output::Tell { group, reply, told } => {
                    self.tell_leader(now, from, group, reply, told)
                }
                Output::Hand { peer, way, message } => {
                    let (_, message) = message.read(bytes);
                    self.hand(now, None, peer, &message, way);
                }
                Output::Read(place) => self.wanted.push_back((from, place)),
                Output::Encode(job) => self.pages.push_back((from, job)),
                Output::Fetch(request) => self.fetches.push_back(request),
                Output::Ask { group, message } => {
                    let (_, message) = message.read(bytes);
                    self.inner
                        .push_back(Inner::Asked(group, Asked::new(&message)));
                }
            }
        }
        outputs.clear();
    }

    fn handle_inner(&mut self, now: Time, event: Inner) {
        match event {
            Inner::LeaderMessage { group, reply, told } => {
                let Some(at) = self.slot_of_group(group) else {
                    return;
                };
                self.handle_in(now, at, |streams, cx| {
                    streams.handle_leader_message(cx, now, reply.as_deref(), told);
                });
            }
            Inner::Asked(group, asked) => {
                let Some(at) = self.slot_of_group(group) else {
                    return;
                };
                self.handle_in(now, at, |streams, cx| {
                    streams.handle_request(cx, now, &asked.message())
                });
            }
        }
    }
}

impl Surroundings for Node {
    fn listeners(&self, to: &[u8], group: Option<&[u8]>) -> Option<Listeners> {
        let mut scratch = Matches::default();
        let all = self.sublist.find(to, &mut scratch).iter();
        let subs = all.map(|key| &self.subs[key as usize]);
        let wanted = subs.filter(|sub| group.is_none_or(|g| sub.queue.as_deref() == Some(g)));
        let of = |sub: &Subscription| {
            let pending = match (sub.owner, &self.peers) {
                (Party::Peer(slot), Some(peers)) => {
                    if peers.is_void(slot, sub.number) {
                        return None;
                    }
                    peers.pending(slot)?
                }
                (Party::Peer(_), None) => return None,
                (Party::Client(key), _) => self.entries[key].session.out.len(),
            };
            let left = match sub.max {
                0 => u64::MAX,
                max => max.saturating_sub(sub.delivered),
            };
            Some(Listeners { pending, left })
        };
        wanted.filter_map(of).reduce(|a, b| Listeners {
            pending: a.pending.max(b.pending),
            left: a.left.max(b.left),
        })
    }

    fn collects(&self, subject: &[u8]) -> bool {
        self.streams.len() > 1 && self.all_streams().any(|s| s.collects(subject))
    }

    fn is_full_at(&self, subject: &[u8]) -> bool {
        let full = |s: &JetStream| s.holds_back() && s.collects(subject);
        self.streams.len() > 1 && self.all_streams().any(full)
    }

    fn streams_of(&self, group: GroupId) -> Option<&JetStream> {
        self.streams(self.slot_of_group(group)?)
    }

    fn leader_of(&self, group: GroupId) -> Option<Leader> {
        if self.streams_of(group).is_some_and(JetStream::serves) {
            return Some(Leader::Here);
        }
        let slot = self.peer_at(subject_of_group(group).as_bytes())?;
        let connected = self.has_channel_to(slot);
        Some(Leader::Peer { connected })
    }

    fn server_of(&self, stream: &str) -> Option<PeerSlot> {
        self.peer_at(subject_of_stream(stream).as_bytes())
    }

    fn is_full(&self, id: u64) -> bool {
        Self::is_full(self, id)
    }
}

/// An event that the streams of one group cause for the streams of another group on this node. The node keeps
/// it until the first streams have finished.
#[derive(Debug)]
pub(super) enum Inner {
    /// A message to the leader of this group from the leader of another group. This node leads both groups,
    /// so the message need not leave the node.
    LeaderMessage {
        group: GroupId,
        reply: Option<Box<[u8]>>,
        told: LeaderMessage,
    },
    /// Another group's streams hand a message with a subject under `$JS.` on to this group, which is on this
    /// node, too.
    Asked(GroupId, Asked),
}

/// An owned copy of a message with a subject under `$JS.`, which waits until the streams of a group handle
/// it, because the publisher's bytes may be gone by then.
#[derive(Debug)]
pub(super) struct Asked {
    subject: Box<[u8]>,
    reply: Option<Box<[u8]>>,
    headers: Option<Box<[u8]>>,
    payload: Box<[u8]>,
}

impl Asked {
    fn new(message: &Publish<'_>) -> Self {
        Self {
            subject: message.subject.into(),
            reply: message.reply.map(Into::into),
            headers: message.headers.map(Into::into),
            payload: message.payload.into(),
        }
    }

    fn message(&self) -> Publish<'_> {
        Publish {
            subject: &self.subject,
            reply: self.reply.as_deref(),
            headers: self.headers.as_deref(),
            payload: &self.payload,
        }
    }
}

/// The longest pause of a publisher while too many bytes wait for the log of its streams. After this time the
/// node reads from the publisher again, even if as many bytes still wait.
const HELD_BACK: std::time::Duration = std::time::Duration::from_millis(100);
