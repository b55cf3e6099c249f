//! A consumer on the node that serves it, which delivers messages to receivers: its [`State`], and all parts
//! that the log does not keep.
//!
//! This module owns the choice of the receiver for each message, and the time of each delivery.
//! [`super::deliver`] holds the methods of [`Consumer`] that bring a message to a receiver, [`super::acks`]
//! those that handle an acknowledgement.
//!
//! Invariants, beside those of [`State`]: each pending message either is in the redelivery queue or has a due
//! time, unless the consumer takes acknowledgements by flow control and redelivers none; `ahead` is the count
//! of messages from `cursor` on that pass the filters. Tests check them after each event.

use std::collections::BTreeSet;

use tidegate_nats::subject;

use super::changes::{Changes, End, Record};
use super::delta::UNACKED_MAX;
use super::pending::Pending;
use super::pulls::{Pulls, REQUEST_TIMEOUT};
use super::push::Push;
use super::redelivery::{Live, Redelivery};
use super::reply::Replies;
use super::request::PullRequest;
use super::seam::{Sink, Source};
use super::settings::Settings;
use super::skip::Skip;
use super::state::{Position, State};
use super::status;
use crate::schema::config::{AckPolicy, ConsumerConfig};
use crate::schema::sequence::StreamSeq;

/// The limit on the pulls that wait until a consumer is prepared, which bounds the memory. The consumer
/// refuses further pulls.
const EARLY_MAX: usize = 512;

/// A consumer on the node that serves it: it delivers messages, handles acknowledgements, and gathers the
/// changes for the log.
///
/// Times are microseconds since the Unix epoch and never go back. The caller reports events through the
/// `handle_*` functions. Then [`Consumer::deliver`] sends the messages that receivers can take,
/// [`Consumer::poll_delta`] returns the changes to write to the log, and [`Consumer::deadline`] returns the
/// time of the next call ([`Consumer::handle_timeouts`], then `deliver`). These three calls are cheap if the
/// consumer has nothing to do. Before `deliver`, the caller calls [`Consumer::prepare`] until the consumer is
/// prepared.
///
/// A crash loses the changes that no durable delta holds. The consumer then repeats those deliveries under
/// the same numbers. It redelivers a message if it had not answered the message's acknowledgement, and it
/// refills the redelivery queue from the due times. Pulls, heartbeats and flow control end with the node, and
/// receivers start them again.
#[derive(Clone, Debug)]
pub struct Consumer {
    pub(super) stream: String,
    pub(super) name: String,
    pub(super) settings: Settings,
    pub(super) delivered: Position,
    pub(super) ack_floor: Position,
    pub(super) pending: Pending<Live>,
    /// The messages that the consumer has given up, if its deltas list settled messages. The stream keeps
    /// these messages until a receiver acknowledges them.
    pub(super) given_up: BTreeSet<StreamSeq>,
    pub(super) redelivery: Redelivery,
    pub(super) changes: Changes,
    /// The list of messages, the last one of each subject, that the consumer delivers before all other new
    /// messages; empty unless the consumer's deliver policy wants these messages.
    pub(super) skip: Skip,
    /// The pulls that wait until the consumer is prepared, because the answer to some of them needs the
    /// number of pending messages.
    early: Vec<EarlyPull>,
    /// The number from which on the consumer looks for the next message to deliver for the first time.
    pub(super) cursor: StreamSeq,
    /// The number of messages from `cursor` on that pass the consumer's filters. Each delivery tells the
    /// receiver this number.
    pub(super) ahead: u64,
    /// While the consumer counts in parts, the number below which `ahead` counts the messages; `None` once
    /// the count is complete. Counting in parts keeps the turns of the event loop short.
    counted: Option<StreamSeq>,
    pub(super) receiver: Receiver,
    pub(super) replay: Option<Replay>,
    pub(super) replies: Replies,
    /// The buffer for the headers of a message that the consumer delivers without payload. The consumer
    /// reuses it, so that a delivery allocates no memory.
    pub(super) headers: Vec<u8>,
    pub(super) last_delivery_us: Option<u64>,
    pub(super) last_ack_us: Option<u64>,
    /// The time at which another stream last asked for the messages of this consumer, in microseconds since
    /// the Unix epoch; `None` if no stream takes in messages by the consumer.
    pub(super) tapped_us: Option<u64>,
    /// The time from which the inactivity threshold counts, in microseconds since the Unix epoch: the last
    /// time at which a client used the consumer, or the start of the consumer on this node if no client has
    /// used it since. After the threshold the server deletes the consumer.
    pub(super) used_us: u64,
}

/// A pull that arrived before the consumer was prepared: its reply subject and its body, which the consumer
/// handles as soon as it is prepared.
#[derive(Clone, Debug)]
struct EarlyPull {
    reply: Box<[u8]>,
    body: Box<[u8]>,
}

/// The receiver of a consumer's messages: pull requests of clients, or the deliver subject of a push
/// consumer. The kind never changes.
#[derive(Clone, Debug)]
pub(super) enum Receiver {
    Pull(Pulls),
    Push(Box<Push>),
}

/// The state of replay at original speed: the consumer delivers messages at the intervals at which the stream
/// stored them, as its configuration asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay {
    /// The number of the last message that the consumer replays at original speed. The consumer delivers
    /// later messages as soon as it can.
    pub(super) until: StreamSeq,
    /// The time at which the stream stored the last replayed message, and the time at which the consumer
    /// delivered that message, in microseconds since the Unix epoch; `None` before the first replayed
    /// message. From them the consumer computes when the next message is due.
    pub(super) last: Option<(u64, u64)>,
    /// The time at which the consumer may deliver the next message of the replay, in microseconds since the
    /// Unix epoch; `None` if that message need not wait. Until then the consumer keeps the interval of the
    /// stream.
    pub(super) due_us: Option<u64>,
}

/// The names of a consumer and of its stream, and the content of its deltas: the facts about a consumer that
/// its configuration does not state.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The name of the consumer's stream, which the acknowledgement subjects contain.
    pub stream: &'a str,
    /// The consumer's name, which the acknowledgement subjects contain.
    pub consumer: &'a str,
    /// The content of the consumer's deltas. With [`Record::None`] the consumer returns no deltas, and
    /// answers acknowledgements at once, because no log has to record them.
    pub record: Record,
}

/// The numbers and times of a consumer that a client sees in the answer to an info request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The number of the consumer's last delivery, and the highest number of a delivered message in the
    /// stream. Clients show both as the consumer's progress.
    pub delivered: Position,
    /// The time of the last delivery on this node, in microseconds since the Unix epoch; `None` if the
    /// consumer has made no delivery since this node began to serve it. The log does not record this time.
    pub last_delivery_us: Option<u64>,
    /// The ack floor: the position up to which receivers have acknowledged every delivery. Clients show it as
    /// the consumer's progress.
    pub ack_floor: Position,
    /// The time of the last acknowledgement on this node, in microseconds since the Unix epoch; `None` if
    /// none has arrived since this node began to serve the consumer. The log does not record this time.
    pub last_ack_us: Option<u64>,
    /// The number of messages that the consumer has delivered and that receivers have not acknowledged. At
    /// its limit the consumer stops.
    pub num_ack_pending: u64,
    /// The number of unacknowledged messages that the consumer has delivered more than once, because
    /// receivers failed or were slow.
    pub num_redelivered: u64,
    /// The number of pull requests that wait at the consumer for messages, without those that no client
    /// listens to.
    pub num_waiting: u64,
    /// The number of messages that pass the consumer's filters and that the consumer has never delivered,
    /// that is, the consumer's backlog.
    pub num_pending: u64,
    /// True if a client listens to the deliver subject of a push consumer, or another stream takes in
    /// messages by the consumer, so that the consumer delivers.
    pub push_bound: bool,
    /// The time until a paused consumer resumes delivery, in microseconds; `None` if the consumer is not
    /// paused.
    pub pause_remaining_us: Option<u64>,
}

/// The reason why this node stops serving a consumer. The clients of the consumer's waiting pulls get a
/// status that states this reason, so that they know whether to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A client deleted the consumer, or its stream, so pulls end.
    Deleted,
    /// Another node leads the group now, and serves the consumer from its state in the log, so clients can
    /// repeat their pulls.
    LeadershipChange,
    /// The log does not keep the consumer, and another node leads now: the consumer no longer exists, and its
    /// client must create it again.
    Lost,
    /// The node shuts down, so clients connect to another node.
    Shutdown,
}

impl Consumer {
    /// Starts a consumer from its `state`; `source` shows the messages of the stream that the consumer's
    /// filters pass. From now on, the caller reports every message that the stream stores or removes, so that
    /// the counts stay right.
    pub fn new(
        now: u64,
        identity: Identity<'_>,
        config: &ConsumerConfig,
        state: &State,
        source: &mut impl Source,
    ) -> Self {
        let settings = Settings::new(identity.stream, identity.consumer, config);
        let receiver = match &settings.push {
            Some(push) => Receiver::Push(Box::new(Push::new(now, push.clone()))),
            None => Receiver::Pull(Pulls::new(settings.pulls)),
        };
        let mut consumer = Self {
            stream: identity.stream.to_owned(),
            name: identity.consumer.to_owned(),
            delivered: state.delivered,
            ack_floor: state.ack_floor,
            pending: Pending::default(),
            redelivery: Redelivery::default(),
            given_up: state.given_up.clone(),
            changes: Changes::new(identity.record, state.delivered, state.ack_floor),
            skip: Skip::default(),
            early: Vec::new(),
            cursor: StreamSeq::ZERO,
            ahead: 0,
            counted: None,
            receiver,
            replay: settings.replay_original.then(|| Replay {
                until: source.last_seq(),
                last: None,
                due_us: None,
            }),
            replies: Replies::new(identity.stream, identity.consumer),
            headers: Vec::new(),
            last_delivery_us: None,
            last_ack_us: None,
            tapped_us: None,
            used_us: now,
            settings,
        };
        consumer.look_ahead(state, source);
        for unacked in state.pending.iter() {
            consumer.pending.insert(unacked.with(Live::default()));
            if consumer.settings.redelivers {
                let due_us = unacked.due_us;
                consumer
                    .redelivery
                    .schedule(due_us, unacked.stream_seq, &consumer.pending);
            }
        }
        consumer.drop_missing(now, source);
        consumer
    }

    /// Sets the position from which on the consumer delivers messages for the first time: after the last
    /// delivery in `state`. If the deliver policy wants the last message of each subject first, the consumer
    /// begins a search for these messages ([`Consumer::prepare`]).
    fn look_ahead(&mut self, state: &State, source: &mut impl Source) {
        let delivered = state.delivered.stream_seq;
        self.skip = Skip::default();
        self.cursor = delivered.saturating_next();
        if state.resume > delivered && source.lasts(0, 0, None).is_some() {
            let exact = source.last_seq() == state.resume;
            self.skip = Skip::search(delivered, state.resume, exact);
            self.cursor = state.resume.saturating_next();
        }
        self.count_ahead(source);
    }

    /// Counts the messages from the cursor on, or begins to count them in parts ([`Consumer::prepare`]) if
    /// the stream is large.
    fn count_ahead(&mut self, source: &mut impl Source) {
        (self.ahead, self.counted) = match source.counts_in_parts() {
            true => (0, Some(self.cursor)),
            false => (source.count_from(self.cursor), None),
        };
    }

    /// Returns whether `ahead` already covers this message number, so that a stored or removed message
    /// changes the count.
    fn has_counted(&self, seq: StreamSeq) -> bool {
        self.counted.is_none_or(|end| seq < end)
    }

    /// Starts the consumer again from `state`, after a client has reset it. The caller has applied the reset
    /// from the log or, for a consumer that the log does not keep, directly. Pulls and flow control stay as
    /// they are. The consumer answers each receiver that waits for an answer to its acknowledgement: after
    /// the reset no delta can record an earlier acknowledgement, so these receivers have nothing to wait for.
    pub fn handle_reset(&mut self, state: &State, source: &mut impl Source, sink: &mut impl Sink) {
        self.changes.handle_reset(state.delivered, sink);
        self.delivered = state.delivered;
        self.ack_floor = state.ack_floor;
        self.pending = Pending::default();
        self.given_up.clear();
        self.redelivery = Redelivery::default();
        (self.last_delivery_us, self.last_ack_us) = (None, None);
        if let Some(replay) = &mut self.replay {
            (replay.last, replay.due_us) = (None, None);
        }
        self.look_ahead(state, source);
    }

    /// Makes the deltas of the consumer list settled messages from now on, or not, because the stream's
    /// retention has changed.
    pub fn set_lists_settled(&mut self, lists: bool) {
        self.changes.set_lists_settled(lists);
    }

    /// Returns whether the next delta lists messages that the consumer has settled, so that the stream may
    /// remove them.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.changes.has_settled()
    }

    /// Returns whether the deltas of the consumer list settled messages, because the stream keeps messages
    /// only for its consumers.
    #[must_use]
    pub fn lists_settled(&self) -> bool {
        self.changes.lists_settled()
    }

    /// Returns whether the consumer knows the messages that it has to deliver first. Before that, the
    /// consumer delivers nothing, and its count of pending messages is incomplete.
    #[must_use]
    pub const fn is_prepared(&self) -> bool {
        self.skip.is_complete() && self.counted.is_none()
    }

    /// Continues the search for the messages that the consumer has to deliver first, or with the count of the
    /// messages after them: looks at up to `limit` subjects of the stream, or at twice as many messages. Once
    /// both are complete, the consumer handles the pulls that have waited for this.
    pub fn prepare(
        &mut self,
        now: u64,
        limit: usize,
        source: &mut impl Source,
        sink: &mut impl Sink,
    ) {
        if !self.skip.is_complete() {
            self.skip.go_on(limit, source);
        } else if let Some(from) = self.counted {
            let (count, next) = source.count_part(from, 2 * limit as u64);
            self.ahead += count;
            self.counted = next;
        }
        if self.is_prepared() {
            // The client that created the consumer had no answer before now, so the inactivity threshold
            // begins now.
            self.used_us = now;
            for EarlyPull { reply, body } in std::mem::take(&mut self.early) {
                self.handle_pull(now, &reply, &body, sink);
            }
        }
    }

    /// Returns whether all deltas of the consumer that the caller has taken are durable in the log, so that
    /// the caller can propose a reset after them.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.changes.is_settled()
    }

    /// Applies a changed configuration of the consumer. `source` shows the messages that the new filters
    /// pass, because the consumer must count again.
    pub fn handle_update(&mut self, now: u64, config: &ConsumerConfig, source: &mut impl Source) {
        self.settings = Settings::new(&self.stream, &self.name, config);
        match (&mut self.receiver, &self.settings.push) {
            (Receiver::Pull(pulls), _) => pulls.set_limits(self.settings.pulls),
            (Receiver::Push(push), Some(settings)) => push.update(settings.clone()),
            // A push consumer never becomes a pull consumer, because the rules for updates of a configuration
            // refuse that.
            (Receiver::Push(_), None) => {}
        }
        self.skip.handle_filtered();
        self.count_ahead(source);
        self.used_us = now;
    }

    /// Handles a pull request with the body `body`; the consumer sends the messages and statuses of this pull
    /// to `reply`. If the consumer cannot take the pull, it answers with a status that says why.
    pub fn handle_pull(&mut self, now: u64, reply: &[u8], body: &[u8], sink: &mut impl Sink) {
        if reply.is_empty() {
            return;
        }
        if !self.is_prepared() && matches!(self.receiver, Receiver::Pull(_)) {
            return self.hold_pull(now, reply, body, sink);
        }
        let num_pending = self.num_pending() + self.redelivery.queued() as u64;
        let mut refuse = |code, text: &str| sink.status(reply, b"", &status::plain(code, text));
        let Receiver::Pull(pulls) = &mut self.receiver else {
            return refuse(409, "Consumer is push based");
        };
        self.used_us = now;
        let request = match PullRequest::parse(body) {
            Ok(request) => request,
            Err(why) => return refuse(400, &format!("Bad Request - {why}")),
        };
        if let Some(text) = pulls.limits().exceeded(&request) {
            return refuse(409, &text);
        }
        if request.expired {
            let headers = status::leftover(408, REQUEST_TIMEOUT, 0, 0);
            return sink.status(reply, b"", &headers);
        }
        if request.no_wait {
            if num_pending == 0 && request.expires_ns == 0 {
                return refuse(404, "No Messages");
            }
            pulls.prune(now, sink);
            if num_pending > 0 && num_pending < pulls.asked() {
                let headers = status::plain(408, "Requests Pending");
                return sink.status(reply, b"", &headers);
            }
        }
        if !pulls.push(now, reply, &request) {
            pulls.prune(now, sink);
            // A receiver that expects heartbeats gets no status: without heartbeats it repeats its pull
            // later, while a status would make it repeat the pull at once.
            if !pulls.push(now, reply, &request) && request.heartbeat_ns == 0 {
                sink.status(reply, b"", &status::plain(409, "Exceeded MaxWaiting"));
            }
        }
    }

    /// Keeps a pull until the consumer knows how many messages are pending: that number decides the answer to
    /// some pulls.
    fn hold_pull(&mut self, now: u64, reply: &[u8], body: &[u8], sink: &mut impl Sink) {
        self.used_us = now;
        if self.early.len() < EARLY_MAX {
            let (reply, body) = (reply.into(), body.into());
            self.early.push(EarlyPull { reply, body });
        } else {
            sink.status(reply, b"", &status::plain(409, "Exceeded MaxWaiting"));
        }
    }

    /// Resumes the pulls with subjects that match `pattern`, to which a client has just subscribed. The
    /// consumer had set these pulls apart, because no client listened to their subjects, for example while
    /// the client was disconnected.
    pub fn handle_subscribed(&mut self, pattern: &[u8]) {
        if let Receiver::Pull(pulls) = &mut self.receiver {
            pulls.handle_subscribed(pattern);
        }
    }

    /// Returns the subjects of the pulls that no client listens to, if this list has changed since the last
    /// call. The caller reports a subscription that matches one of these subjects by
    /// [`Consumer::handle_subscribed`]. So a client that connects again gets its messages.
    pub fn take_away(&mut self) -> Option<Vec<Box<[u8]>>> {
        match &mut self.receiver {
            Receiver::Pull(pulls) => pulls.take_away(),
            Receiver::Push(_) => None,
        }
    }

    /// Handles a change of the clients' subscriptions: sets apart the pulls that no client listens to, so
    /// that they do not count as waiting, and checks whether a client listens to the deliver subject of a
    /// push consumer.
    pub fn handle_interest(&mut self, now: u64, sink: &mut impl Sink) {
        let used = self.is_used();
        match &mut self.receiver {
            Receiver::Pull(pulls) => pulls.prune(now, sink),
            Receiver::Push(push) => {
                push.ready(sink);
            }
        }
        if used || self.is_used() {
            self.used_us = now;
        }
    }

    /// Returns whether a client uses the consumer: whether it listens to the subject of a waiting pull, or to
    /// the deliver subject of a push consumer. An unused consumer reaches its inactivity threshold.
    fn is_used(&self) -> bool {
        match &self.receiver {
            Receiver::Pull(pulls) => pulls.len() > 0 || !self.early.is_empty(),
            Receiver::Push(push) => push.active,
        }
    }

    /// Counts a message that the stream has stored. Returns whether a call of [`Consumer::deliver`] may
    /// deliver this message, so that the caller makes that call.
    pub fn handle_stored(&mut self, seq: StreamSeq, subject: &[u8]) -> bool {
        let wanted = seq >= self.cursor && self.wants(subject);
        self.ahead += u64::from(wanted && self.has_counted(seq));
        wanted && self.is_used()
    }

    /// Handles the removal of one message from the stream: the consumer no longer counts or redelivers the
    /// message, because it cannot deliver the message.
    pub fn handle_removed(
        &mut self,
        now: u64,
        seq: StreamSeq,
        subject: &[u8],
        sink: &mut impl Sink,
    ) {
        if seq >= self.cursor {
            if self.has_counted(seq) && self.wants(subject) {
                self.ahead = self.ahead.saturating_sub(1);
            }
        } else if !self.skip.remove(seq) {
            if self.pending.get(seq).is_some() {
                self.terminate(now, seq, MESSAGE_DELETED, sink);
            } else {
                self.settle_given_up(now, seq);
            }
        }
    }

    /// Handles the removal of many messages from the stream, of which `last` has the highest number: counts
    /// the remaining messages if the consumer has not passed all removed ones. The caller calls this once,
    /// because one [`Consumer::handle_removed`] for each removed message takes longer.
    pub fn handle_purged(&mut self, now: u64, last: StreamSeq, source: &mut impl Source) {
        if last >= self.cursor {
            self.count_ahead(source);
        }
        self.skip.handle_purged();
        self.drop_missing(now, source);
    }

    fn drop_missing(&mut self, now: u64, source: &impl Source) {
        let missing = |seq: &StreamSeq| !source.contains(*seq);
        let seqs = self.pending.iter().map(|u| u.stream_seq);
        let gone: Vec<StreamSeq> = seqs.filter(missing).collect();
        for seq in gone {
            self.drop_pending(now, seq, End::Settled);
        }
        let given_up = self.given_up.iter().copied();
        for seq in given_up.filter(missing).collect::<Vec<_>>() {
            self.settle_given_up(now, seq);
        }
    }

    /// Handles all events that are due at `now`: queues messages for redelivery, ends expired pulls, and
    /// sends heartbeats. The caller calls this at [`Consumer::deadline`].
    pub fn handle_timeouts(&mut self, now: u64, sink: &mut impl Sink) {
        while let Some(seq) = self.redelivery.pop_due(now, &self.pending) {
            self.queue_again(now, seq, sink);
        }
        let last = self.delivered;
        let held_up = self.is_held_up();
        match &mut self.receiver {
            Receiver::Pull(pulls) => {
                if pulls.handle_timeouts(now, last, held_up, sink) {
                    self.used_us = now;
                }
            }
            Receiver::Push(push) => {
                let by_flow = self.settings.ack == AckPolicy::FlowControl;
                let unacked = by_flow && !self.pending.is_empty();
                push.handle_timeouts(now, last, unacked, sink);
            }
        }
        if self.unused_us().is_some_and(|at| at <= now) && self.is_used() {
            self.look_for_users(now, sink);
        }
    }

    /// Checks, after the inactivity threshold has passed without a use of the consumer, whether a client
    /// still listens; if a client does, that counts as a use, and the server keeps the consumer.
    fn look_for_users(&mut self, now: u64, sink: &mut impl Sink) {
        match &mut self.receiver {
            Receiver::Pull(pulls) => pulls.prune(now, sink),
            Receiver::Push(push) => {
                push.ready(sink);
            }
        }
        if self.is_used() {
            self.used_us = now;
        }
    }

    /// Returns the time at which to call [`Consumer::handle_timeouts`], then [`Consumer::deliver`] and
    /// [`Consumer::poll_delta`]. The time is later than `now`, because the caller has already delivered and
    /// polled for `now`. Its last call of [`Consumer::handle_timeouts`] may have been for an earlier time: a
    /// timeout that has passed since then is due at once.
    pub fn deadline(&mut self, now: u64) -> Option<u64> {
        let (receiver, rate) = match &self.receiver {
            Receiver::Pull(pulls) => (pulls.deadline(), None),
            Receiver::Push(push) => (push.deadline(), push.rate_deadline(now)),
        };
        let redelivery = self.redelivery.deadline(&self.pending);
        let unused = self.unused_us();
        let look = unused.filter(|_| self.is_used());
        let timeouts = [receiver, redelivery, look].map(|at| at.map(|at| at.max(now + 1)));
        let others = [
            rate,
            self.changes.deadline(),
            self.replay.and_then(|r| r.due_us),
            Some(self.settings.pause_until_us),
            unused,
        ];
        let others = others.into_iter().flatten().filter(|at| *at > now);
        others.chain(timeouts.into_iter().flatten()).min()
    }

    /// Returns whether no client has used the consumer for the inactivity threshold, so that the caller must
    /// delete the consumer and free its memory.
    #[must_use]
    pub fn is_abandoned(&self, now: u64) -> bool {
        self.is_prepared() && !self.is_used() && self.unused_us().is_some_and(|at| at <= now)
    }

    /// Returns the time at which the consumer counts as abandoned if no client uses it until then, in
    /// microseconds since the Unix epoch; `None` means never. The server then deletes the consumer.
    fn unused_us(&self) -> Option<u64> {
        let inactive = self.settings.inactive_us?;
        Some(self.used_us.saturating_add(inactive))
    }

    /// Returns the changes since the last delta as a new delta, once they are old or many enough for a record
    /// in the log. The caller proposes the delta as the command that changes this consumer, and calls
    /// [`Consumer::handle_delta_durable`] when that command is durable. The caller must call this only when
    /// it can propose a command, because the consumer forgets the changes.
    pub fn poll_delta(&mut self, now: u64) -> Option<Vec<u8>> {
        self.changes.deadline().filter(|at| *at <= now)?;
        self.take_delta(now)
    }

    /// Returns the changes since the last delta as a new delta, even if they are few. The caller uses this
    /// before another node takes the consumer over, so that the other node knows these changes.
    pub fn take_delta(&mut self, now: u64) -> Option<Vec<u8>> {
        self.changes
            .take(now, self.delivered, self.ack_floor, &mut self.pending)
    }

    /// Marks the oldest delta in flight as durable and applied, and answers the receivers that wait for this
    /// delta, because no crash can undo their acknowledgements now.
    pub fn handle_delta_durable(&mut self, sink: &mut impl Sink) {
        self.changes.handle_durable(sink);
    }

    /// Ends the consumer on this node, and sends a status with the reason to the pulls that wait, so that
    /// their clients do not wait in vain.
    pub fn handle_end(&mut self, ending: Ending, sink: &mut impl Sink) {
        let pulls = match &mut self.receiver {
            Receiver::Pull(pulls) => pulls,
            Receiver::Push(push) if ending == Ending::Lost => {
                return push.tell_lost(self.delivered, sink);
            }
            Receiver::Push(_) => return,
        };
        for EarlyPull { reply, .. } in std::mem::take(&mut self.early) {
            let headers = match ending {
                Ending::Deleted | Ending::Lost => status::plain(409, "Consumer Deleted"),
                Ending::LeadershipChange => status::plain(409, "Leadership Change"),
                Ending::Shutdown => status::plain(409, "Server Shutdown"),
            };
            sink.status(&reply, b"", &headers);
        }
        match ending {
            Ending::Deleted | Ending::Lost => pulls.end_all(409, "Consumer Deleted", false, sink),
            Ending::LeadershipChange => pulls.end_all(409, "Leadership Change", false, sink),
            Ending::Shutdown => pulls.end_all(409, "Server Shutdown", true, sink),
        }
    }

    /// Returns whether the consumer's filters pass messages of this subject, so that the caller need not call
    /// the consumer for others.
    #[must_use]
    pub fn wants(&self, subject: &[u8]) -> bool {
        let filters = &self.settings.filters;
        filters.is_empty() || filters.iter().any(|f| subject::contains(f, subject))
    }

    /// Returns whether any unacknowledged message does not pass the filters. If so, the filters have changed
    /// since the delivery of this message.
    pub fn awaits_unwanted(&self, source: &mut impl Source) -> bool {
        let mut seqs = self.pending.iter().map(|u| u.stream_seq);
        seqs.any(|seq| source.next_at(seq) != Some(seq))
    }

    /// Returns the number of messages that pass the consumer's filters and that the consumer has never
    /// delivered. Each delivery tells it to the receiver.
    #[must_use]
    pub fn num_pending(&self) -> u64 {
        self.ahead + self.skip.left()
    }

    /// Returns the number of delivered messages that receivers have not acknowledged, without a look at each
    /// of them, so that a metric may read it.
    #[must_use]
    pub fn num_ack_pending(&self) -> u64 {
        self.pending.len() as u64
    }

    /// Returns the number of pulls that wait for messages; 0 for a push consumer. A metric may read it.
    #[must_use]
    pub fn num_waiting(&self) -> u64 {
        match &self.receiver {
            Receiver::Pull(pulls) => pulls.len() as u64,
            Receiver::Push(_) => 0,
        }
    }

    /// Returns the last delivery of the consumer, so that a metric need not read the whole state.
    #[must_use]
    pub const fn delivered(&self) -> Position {
        self.delivered
    }

    /// Returns the delivery up to which receivers have acknowledged every delivery, for a metric.
    #[must_use]
    pub const fn ack_floor(&self) -> Position {
        self.ack_floor
    }

    /// Returns the numbers of the consumer that a client sees in the answer to an info request.
    #[must_use]
    pub fn info(&self, now: u64) -> Info {
        let again = self.pending.iter().filter(|u| u.deliveries > 1);
        let push_bound = match &self.receiver {
            Receiver::Pull(_) => false,
            Receiver::Push(push) => push.active || self.is_tapped(now),
        };
        Info {
            delivered: self.delivered,
            last_delivery_us: self.last_delivery_us,
            ack_floor: self.ack_floor,
            last_ack_us: self.last_ack_us,
            num_ack_pending: self.num_ack_pending(),
            num_redelivered: again.count() as u64,
            num_waiting: self.num_waiting(),
            num_pending: self.num_pending(),
            push_bound,
            pause_remaining_us: self
                .settings
                .pause_until_us
                .checked_sub(now)
                .filter(|left| *left > 0),
        }
    }

    /// Returns whether the consumer must wait for an acknowledgement before it delivers a message, because as
    /// many messages are unacknowledged as its configuration allows.
    pub(super) fn is_held_up(&self) -> bool {
        self.awaits_acks()
            && self.redelivery.queued() == 0
            && self.pending.len() >= self.settings.max_unacked
    }

    /// Returns whether the consumer expects acknowledgements of its deliveries, so that it keeps them
    /// pending.
    pub(super) fn awaits_acks(&self) -> bool {
        self.settings.ack != AckPolicy::None
    }

    /// Panics if an invariant of the consumer does not hold. Only tests call this, after each event.
    pub fn check_invariants(&self, source: &mut impl Source) {
        self.pending.check_invariants();
        self.redelivery
            .check_invariants(&self.pending, self.settings.redelivers);
        assert!(self.ack_floor.consumer_seq <= self.delivered.consumer_seq);
        assert!(self.ack_floor.stream_seq <= self.delivered.stream_seq);
        assert!(self.pending.len() <= UNACKED_MAX);
        for unacked in self.pending.iter() {
            assert!(unacked.stream_seq > self.ack_floor.stream_seq);
            assert!(unacked.stream_seq <= self.delivered.stream_seq);
        }
        for seq in &self.given_up {
            assert!(*seq <= self.delivered.stream_seq && self.pending.get(*seq).is_none());
        }
        if self.counted.is_none() {
            assert_eq!(self.ahead, source.count_from(self.cursor), "messages ahead");
        }
    }
}

/// The reason that the advisory states for a pending message that the stream no longer holds, as nats-server
/// words it.
pub(super) const MESSAGE_DELETED: &str = "Unacknowledged message was deleted";
