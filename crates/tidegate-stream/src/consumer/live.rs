//! A consumer on the node that serves it: its [`State`], and all parts that the log does not keep.
//!
//! Owns the choice of the receiver for each message, and the time of each delivery. [`super::deliver`] holds
//! the path of a message to a receiver, [`super::acks`] the path of an acknowledgement back; both are parts
//! of [`Consumer`].
//!
//! Invariants, beside those of [`State`]: each pending message either is in the redelivery queue or has a due
//! time; `ahead` is the count of matching messages at or after `cursor`.

use tidegate_nats::subject;

use super::changes::Changes;
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

/// A consumer on the node that serves it.
///
/// Times are microseconds since the Unix epoch and never go back. The caller reports events through the
/// `handle_*` functions. Then [`Consumer::deliver`] sends the messages that can be delivered,
/// [`Consumer::poll_delta`] returns the changes to write to the log, and [`Consumer::deadline`] returns the
/// time of the next call ([`Consumer::handle_timeouts`], then `deliver`). All three are cheap when there is
/// nothing to do.
///
/// A crash loses the changes that no durable delta holds. The consumer then repeats those deliveries under
/// the same numbers; a message is redelivered if its acknowledgement was not answered; and the consumer
/// refills the redelivery queue from the due times. Pulls, heartbeats and flow control end with the node, and
/// receivers start again.
#[derive(Clone, Debug)]
pub struct Consumer {
    pub(super) stream: String,
    pub(super) name: String,
    pub(super) settings: Settings,
    pub(super) delivered: Position,
    pub(super) ack_floor: Position,
    pub(super) pending: Pending<Live>,
    pub(super) redelivery: Redelivery,
    pub(super) changes: Changes,
    /// The last message of each subject, delivered before all other new messages.
    pub(super) skip: Skip,
    /// The lowest number that a new message can have.
    pub(super) cursor: StreamSeq,
    /// The number of matching messages from `cursor` on.
    pub(super) ahead: u64,
    pub(super) receiver: Receiver,
    pub(super) replay: Option<Replay>,
    pub(super) replies: Replies,
    /// The buffer for the headers that the consumer makes for one message.
    pub(super) headers: Vec<u8>,
    pub(super) last_delivery_us: Option<u64>,
    pub(super) last_ack_us: Option<u64>,
    /// The last time at which a client used the consumer.
    pub(super) used_us: u64,
}

/// The receiver of the messages.
#[derive(Clone, Debug)]
pub(super) enum Receiver {
    Pull(Pulls),
    Push(Box<Push>),
}

/// The state of replay at original speed: the consumer delivers messages as far apart as they were stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay {
    /// The last message that is replayed.
    pub(super) until: StreamSeq,
    /// The times at which the last replayed message was stored and delivered.
    pub(super) last: Option<(u64, u64)>,
    /// The time at which the next message is due.
    pub(super) due_us: Option<u64>,
}

/// The names of a consumer, and whether the log keeps its state.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Its stream's name.
    pub stream: &'a str,
    /// Its name.
    pub consumer: &'a str,
    /// True if the log keeps the consumer's state. Otherwise the consumer yields no deltas and answers
    /// acknowledgements at once.
    pub logged: bool,
}

/// The numbers that an info request about a consumer returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The number of the last delivery, and the highest message delivered.
    pub delivered: Position,
    /// The time of the last delivery on this node.
    pub last_delivery_us: Option<u64>,
    /// The position up to which every delivery is acknowledged.
    pub ack_floor: Position,
    /// The time of the last acknowledgement on this node.
    pub last_ack_us: Option<u64>,
    /// Messages delivered and not acknowledged.
    pub num_ack_pending: u64,
    /// The part of them that was delivered more than once.
    pub num_redelivered: u64,
    /// Pulls that wait for messages.
    pub num_waiting: u64,
    /// Messages that were never delivered.
    pub num_pending: u64,
    /// True if a client listens to the deliver subject of a push consumer.
    pub push_bound: bool,
    /// The time until a paused consumer resumes delivery, in microseconds; `None` if it is not paused.
    pub pause_remaining_us: Option<u64>,
}

/// The reason for which a consumer ends on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A client deleted it.
    Deleted,
    /// Another node serves it now.
    LeadershipChange,
    /// Only this node had it, and another node leads now: the consumer no longer exists.
    Lost,
    /// The node shuts down.
    Shutdown,
}

impl Consumer {
    /// Starts a consumer from `state`. `source` shows the messages that its filters pass. From now on, the
    /// caller reports every message that the stream stores or removes.
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
            changes: Changes::new(identity.logged, state.delivered.stream_seq),
            skip: Skip::default(),
            cursor: StreamSeq::ZERO,
            ahead: 0,
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
            used_us: now,
            settings,
        };
        consumer.look_ahead(state, source);
        for unacked in state.pending.iter() {
            consumer.pending.insert(unacked.with(Live::default()));
            consumer
                .redelivery
                .schedule(unacked.due_us, unacked.stream_seq, &consumer.pending);
        }
        consumer.drop_missing(now, source);
        consumer
    }

    /// Sets the messages still to be delivered, from the last delivery in `state`.
    fn look_ahead(&mut self, state: &State, source: &mut impl Source) {
        let delivered = state.delivered.stream_seq;
        self.skip = Skip::default();
        self.cursor = delivered.saturating_next();
        if state.resume > delivered
            && let Some(mut last) = source.last_per_subject()
        {
            last.retain(|seq| *seq > delivered && *seq <= state.resume);
            self.skip = Skip::new(last);
            self.cursor = state.resume.saturating_next();
        }
        self.ahead = source.count_from(self.cursor);
    }

    /// Restarts the consumer from `state`, which was reset. The log applied the reset, or the node did so
    /// itself for a consumer that the log does not keep. Pulls and flow control stay as they are. The
    /// consumer answers each receiver that waits for an answer to its acknowledgement: the log has recorded
    /// all acknowledgements that it can.
    pub fn handle_reset(&mut self, state: &State, source: &mut impl Source, sink: &mut impl Sink) {
        self.changes.handle_reset(state.delivered.stream_seq, sink);
        self.delivered = state.delivered;
        self.ack_floor = state.ack_floor;
        self.pending = Pending::default();
        self.redelivery = Redelivery::default();
        (self.last_delivery_us, self.last_ack_us) = (None, None);
        if let Some(replay) = &mut self.replay {
            (replay.last, replay.due_us) = (None, None);
        }
        self.look_ahead(state, source);
    }

    /// Returns whether all deltas that were taken are durable.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.changes.is_settled()
    }

    /// Applies a changed configuration. `source` shows the messages that the new filters pass.
    pub fn handle_update(&mut self, now: u64, config: &ConsumerConfig, source: &mut impl Source) {
        self.settings = Settings::new(&self.stream, &self.name, config);
        match (&mut self.receiver, &self.settings.push) {
            (Receiver::Pull(pulls), _) => pulls.set_limits(self.settings.pulls),
            (Receiver::Push(push), Some(settings)) => push.update(settings.clone()),
            // The rules forbid this change: a push consumer stays a push consumer.
            (Receiver::Push(_), None) => {}
        }
        if self.skip.left() > 0
            && let Some(last) = source.last_per_subject()
        {
            self.skip.retain(|seq| last.binary_search(&seq).is_ok());
        }
        self.ahead = source.count_from(self.cursor);
        self.used_us = now;
    }

    /// Handles a pull request; its messages and statuses go to `reply`.
    pub fn handle_pull(&mut self, now: u64, reply: &[u8], body: &[u8], sink: &mut impl Sink) {
        if reply.is_empty() {
            return;
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
            // A receiver that expects heartbeats misses them and asks again later; a status would make it ask
            // again at once.
            if !pulls.push(now, reply, &request) && request.heartbeat_ns == 0 {
                sink.status(reply, b"", &status::plain(409, "Exceeded MaxWaiting"));
            }
        }
    }

    /// Resumes the pulls that match `pattern`, to which clients subscribed; until now, no client listened for
    /// them.
    pub fn handle_subscribed(&mut self, pattern: &[u8]) {
        if let Receiver::Pull(pulls) = &mut self.receiver {
            pulls.handle_subscribed(pattern);
        }
    }

    /// Returns the subjects of the pulls that no client listens for, if they changed since the last call. The
    /// caller reports subscriptions that match one of them by [`Consumer::handle_subscribed`].
    pub fn take_away(&mut self) -> Option<Vec<Box<[u8]>>> {
        match &mut self.receiver {
            Receiver::Pull(pulls) => pulls.take_away(),
            Receiver::Push(_) => None,
        }
    }

    /// Sets apart the pulls that no client listens for, so that they do not count as waiting, and checks
    /// whether a client listens to the deliver subject.
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

    /// Returns whether a client listens for a waiting pull or to the deliver subject.
    fn is_used(&self) -> bool {
        match &self.receiver {
            Receiver::Pull(pulls) => pulls.len() > 0,
            Receiver::Push(push) => push.active,
        }
    }

    /// Handles the receiver's answer to a flow control request, published to `subject`.
    pub fn handle_flow(&mut self, subject: &[u8]) {
        if let Receiver::Push(push) = &mut self.receiver {
            push.handle_flow(subject);
        }
    }

    /// Counts a message that the stream stored. Returns whether a call of [`Consumer::deliver`] may deliver
    /// it.
    pub fn handle_stored(&mut self, seq: StreamSeq, subject: &[u8]) -> bool {
        let wanted = seq >= self.cursor && self.wants(subject);
        self.ahead += u64::from(wanted);
        wanted && self.is_used()
    }

    /// Handles the removal of a message from the stream.
    pub fn handle_removed(
        &mut self,
        now: u64,
        seq: StreamSeq,
        subject: &[u8],
        sink: &mut impl Sink,
    ) {
        if seq >= self.cursor {
            if self.wants(subject) {
                self.ahead = self.ahead.saturating_sub(1);
            }
        } else if !self.skip.remove(seq) && self.pending.get(seq).is_some() {
            self.terminate(now, seq, MESSAGE_DELETED, sink);
        }
    }

    /// Handles the removal of many messages: counts the remaining ones. Replaces one
    /// [`Consumer::handle_removed`] for each of them.
    pub fn handle_purged(&mut self, now: u64, source: &mut impl Source) {
        self.ahead = source.count_from(self.cursor);
        self.skip.retain(|seq| source.contains(seq));
        self.drop_missing(now, source);
    }

    fn drop_missing(&mut self, now: u64, source: &impl Source) {
        let missing = |seq: &StreamSeq| !source.contains(*seq);
        let seqs = self.pending.iter().map(|u| u.stream_seq);
        let gone: Vec<StreamSeq> = seqs.filter(missing).collect();
        for seq in gone {
            self.drop_pending(now, seq);
        }
    }

    /// Handles all that is due: queues messages for redelivery, ends pulls, and sends heartbeats.
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
            Receiver::Push(push) => push.handle_timeouts(now, last, sink),
        }
        if self.unused_us().is_some_and(|at| at <= now) && self.is_used() {
            self.look_for_users(now, sink);
        }
    }

    /// Checks whether a client still listens, after no client used the consumer for its inactivity threshold.
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
    /// [`Consumer::poll_delta`]. It is later than `now`: the caller has called them for `now` already.
    pub fn deadline(&mut self, now: u64) -> Option<u64> {
        let (receiver, rate) = match &self.receiver {
            Receiver::Pull(pulls) => (pulls.deadline(), None),
            Receiver::Push(push) => (push.deadline(), push.rate_deadline(now)),
        };
        let deadlines = [
            receiver,
            rate,
            self.redelivery.deadline(&self.pending),
            self.changes.deadline(),
            self.replay.and_then(|r| r.due_us),
            Some(self.settings.pause_until_us),
            self.unused_us(),
        ];
        deadlines.into_iter().flatten().filter(|at| *at > now).min()
    }

    /// Returns whether no client used the consumer for its inactivity threshold, so that the caller deletes
    /// it.
    #[must_use]
    pub fn is_abandoned(&self, now: u64) -> bool {
        !self.is_used() && self.unused_us().is_some_and(|at| at <= now)
    }

    /// Returns the time at which the inactivity threshold passes if no client uses the consumer until then.
    fn unused_us(&self) -> Option<u64> {
        let inactive = self.settings.inactive_us?;
        Some(self.used_us.saturating_add(inactive))
    }

    /// Returns the changes since the last delta once they are worth a record in the log. The caller proposes
    /// them as the command that changes this consumer, and calls [`Consumer::handle_delta_durable`] when that
    /// is durable. The caller must be able to propose them when it calls this.
    pub fn poll_delta(&mut self, now: u64) -> Option<Vec<u8>> {
        self.changes.deadline().filter(|at| *at <= now)?;
        self.take_delta(now)
    }

    /// Returns the changes since the last delta even if they are few: for a node that is about to end.
    pub fn take_delta(&mut self, now: u64) -> Option<Vec<u8>> {
        self.changes
            .take(now, self.delivered, self.ack_floor, &mut self.pending)
    }

    /// Marks the oldest delta in flight as durable and applied, and answers the receivers that wait for it.
    pub fn handle_delta_durable(&mut self, sink: &mut impl Sink) {
        self.changes.handle_durable(sink);
    }

    /// Ends the consumer on this node, and sends a status to its pulls.
    pub fn handle_end(&mut self, ending: Ending, sink: &mut impl Sink) {
        let pulls = match &mut self.receiver {
            Receiver::Pull(pulls) => pulls,
            Receiver::Push(push) if ending == Ending::Lost => {
                return push.tell_lost(self.delivered, sink);
            }
            Receiver::Push(_) => return,
        };
        match ending {
            Ending::Deleted | Ending::Lost => pulls.end_all(409, "Consumer Deleted", false, sink),
            Ending::LeadershipChange => pulls.end_all(409, "Leadership Change", false, sink),
            Ending::Shutdown => pulls.end_all(409, "Server Shutdown", true, sink),
        }
    }

    /// Returns whether the consumer's filters pass `subject`.
    #[must_use]
    pub fn wants(&self, subject: &[u8]) -> bool {
        let filters = &self.settings.filters;
        filters.is_empty() || filters.iter().any(|f| subject::contains(f, subject))
    }

    /// Returns whether a message is pending that the filters do not pass: the filters have changed since its
    /// delivery.
    pub fn awaits_unwanted(&self, source: &mut impl Source) -> bool {
        let mut seqs = self.pending.iter().map(|u| u.stream_seq);
        seqs.any(|seq| source.next_at(seq) != Some(seq))
    }

    /// Returns the number of messages that were never delivered.
    #[must_use]
    pub fn num_pending(&self) -> u64 {
        self.ahead + self.skip.left()
    }

    /// Returns the numbers that an info request returns.
    #[must_use]
    pub fn info(&self, now: u64) -> Info {
        let again = self.pending.iter().filter(|u| u.deliveries > 1);
        let (num_waiting, push_bound) = match &self.receiver {
            Receiver::Pull(pulls) => (pulls.len() as u64, false),
            Receiver::Push(push) => (0, push.active),
        };
        Info {
            delivered: self.delivered,
            last_delivery_us: self.last_delivery_us,
            ack_floor: self.ack_floor,
            last_ack_us: self.last_ack_us,
            num_ack_pending: self.pending.len() as u64,
            num_redelivered: again.count() as u64,
            num_waiting,
            num_pending: self.num_pending(),
            push_bound,
            pause_remaining_us: self
                .settings
                .pause_until_us
                .checked_sub(now)
                .filter(|left| *left > 0),
        }
    }

    /// Returns whether the consumer delivers nothing until a receiver acknowledges a message.
    pub(super) fn is_held_up(&self) -> bool {
        self.awaits_acks()
            && self.redelivery.queued() == 0
            && self.pending.len() >= self.settings.max_unacked
    }

    /// Returns whether deliveries wait for acknowledgements.
    pub(super) fn awaits_acks(&self) -> bool {
        self.settings.ack != AckPolicy::None
    }

    /// Panics if an invariant does not hold: for tests.
    pub fn check_invariants(&self, source: &mut impl Source) {
        self.pending.check_invariants();
        self.redelivery.check_invariants(&self.pending);
        assert!(self.ack_floor.consumer_seq <= self.delivered.consumer_seq);
        assert!(self.ack_floor.stream_seq <= self.delivered.stream_seq);
        assert!(self.pending.len() <= UNACKED_MAX);
        for unacked in self.pending.iter() {
            assert!(unacked.stream_seq > self.ack_floor.stream_seq);
            assert!(unacked.stream_seq <= self.delivered.stream_seq);
        }
        assert_eq!(self.ahead, source.count_from(self.cursor), "messages ahead");
    }
}

/// The reason that an advisory gives for a pending message that the stream no longer holds.
pub(super) const MESSAGE_DELETED: &str = "Unacknowledged message was deleted";
