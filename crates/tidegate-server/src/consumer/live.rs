//! A consumer on the node that serves it: what [`State`] says, and everything that needs no log.
//!
//! Owns who is given what, and when. [`super::deliver`] holds the way of a message out, [`super::acks`] the
//! way of an acknowledgement in; both are parts of [`Consumer`].
//!
//! Invariants, beside those of [`State`]: what is pending is either in the redelivery queue or has a due
//! time; `ahead` is the count of matching messages at or after `cursor`.

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
use crate::api::config::{AckPolicy, ConsumerConfig};
use crate::nats::subject;

/// A consumer on the node that serves it.
///
/// Times are microseconds since the Unix epoch and never go back. What happens is told by `handle_*`; then
/// [`Consumer::deliver`] gives out what can be given, [`Consumer::poll_delta`] says what the log should know,
/// and [`Consumer::deadline`] when to come again ([`Consumer::handle_timeouts`], then `deliver`). All three
/// are cheap when there is nothing to do.
///
/// What a crash loses is what no durable delta holds: deliveries are made again, under the same numbers;
/// acknowledgements that nobody was answered cost a redelivery; the redelivery queue is filled again from due
/// times. Pulls, heartbeats and flow control end with the node, and receivers begin anew.
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
    /// The last messages of each subject, given before all else.
    pub(super) skip: Skip,
    /// The first message that may be new.
    pub(super) cursor: u64,
    /// How many matching messages there are from `cursor` on.
    pub(super) ahead: u64,
    pub(super) receiver: Receiver,
    pub(super) replay: Option<Replay>,
    pub(super) replies: Replies,
    /// Headers made for one message.
    pub(super) headers: Vec<u8>,
    pub(super) last_delivery_us: Option<u64>,
    pub(super) last_ack_us: Option<u64>,
    /// When somebody last used it.
    pub(super) used_us: u64,
}

/// Who is given the messages.
#[derive(Clone, Debug)]
pub(super) enum Receiver {
    Pull(Pulls),
    Push(Box<Push>),
}

/// Messages are given as far apart as they came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay {
    /// The last message that is.
    pub(super) until: u64,
    /// When the last one came, and when it was given.
    pub(super) last: Option<(u64, u64)>,
    /// When the next is due.
    pub(super) due_us: Option<u64>,
}

/// Who a consumer is.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Its stream's name.
    pub stream: &'a str,
    /// Its name.
    pub consumer: &'a str,
    /// Whether the log keeps its state. One that the log does not know yields no deltas, and its
    /// acknowledgements are answered at once.
    pub logged: bool,
}

/// What is told of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The last delivery, and the highest message delivered.
    pub delivered: Position,
    /// When the last delivery was made, on this node.
    pub last_delivery_us: Option<u64>,
    /// What is acknowledged with everything before it.
    pub ack_floor: Position,
    /// When the last acknowledgement came, to this node.
    pub last_ack_us: Option<u64>,
    /// Messages delivered and not acknowledged.
    pub num_ack_pending: u64,
    /// Those of them that were delivered more than once.
    pub num_redelivered: u64,
    /// Pulls that wait.
    pub num_waiting: u64,
    /// Messages that were never delivered.
    pub num_pending: u64,
    /// Whether somebody listens (push).
    pub push_bound: bool,
    /// How long nothing is delivered, in microseconds, if the consumer is paused.
    pub pause_remaining_us: Option<u64>,
}

/// Why a consumer ends on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was deleted.
    Deleted,
    /// Another node serves it.
    LeadershipChange,
    /// It was this node's alone, and another one leads: there is none any more.
    Lost,
    /// The node ends.
    Shutdown,
}

impl Consumer {
    /// Takes up a consumer where its state says. `source` shows what its filters pass; from now on every
    /// message stored or removed has to be told.
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
            cursor: 0,
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

    /// What is to come after all that the state says was delivered.
    fn look_ahead(&mut self, state: &State, source: &mut impl Source) {
        let delivered = state.delivered.stream_seq;
        self.skip = Skip::default();
        self.cursor = delivered.saturating_add(1);
        if state.resume > delivered
            && let Some(mut last) = source.last_per_subject()
        {
            last.retain(|seq| *seq > delivered && *seq <= state.resume);
            self.skip = Skip::new(last);
            self.cursor = state.resume.saturating_add(1);
        }
        self.ahead = source.count_from(self.cursor);
    }

    /// Begins again where `state`, which was reset, says: for the log, or by itself where that does not keep
    /// this consumer. Pulls and flow control stay as they are; a receiver that waits to hear that its
    /// acknowledgement was recorded hears it, since all that could be is.
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

    /// Takes over a changed configuration. `source` shows what the new filters pass.
    pub fn handle_update(&mut self, now: u64, config: &ConsumerConfig, source: &mut impl Source) {
        self.settings = Settings::new(&self.stream, &self.name, config);
        match (&mut self.receiver, &self.settings.push) {
            (Receiver::Pull(pulls), _) => pulls.set_limits(self.settings.pulls),
            (Receiver::Push(push), Some(settings)) => push.update(settings.clone()),
            // Rules forbid it: a push consumer stays one.
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

    /// A pull request came, to be answered at `reply`.
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
            // A receiver that expects heartbeats misses them and asks again later; told, it would ask again
            // at once.
            if !pulls.push(now, reply, &request) && request.heartbeat_ns == 0 {
                sink.status(reply, b"", &status::plain(409, "Exceeded MaxWaiting"));
            }
        }
    }

    /// Clients listen to what this pattern matches: pulls that no client listened for go on.
    pub fn handle_subscribed(&mut self, pattern: &[u8]) {
        if let Receiver::Pull(pulls) = &mut self.receiver {
            pulls.handle_subscribed(pattern);
        }
    }

    /// The subjects of the pulls that no client listens for, if these have changed since this was asked last:
    /// the consumer is to be told of subscriptions that match one ([`Consumer::handle_subscribed`]).
    pub fn take_away(&mut self) -> Option<Vec<Box<[u8]>>> {
        match &mut self.receiver {
            Receiver::Pull(pulls) => pulls.take_away(),
            Receiver::Push(_) => None,
        }
    }

    /// Sets the pulls apart that no client listens for, so that they are not counted, and sees whether one
    /// listens to its deliver subject.
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

    /// Returns whether a pull waits that a client listens for, or one listens to the deliver subject.
    fn is_used(&self) -> bool {
        match &self.receiver {
            Receiver::Pull(pulls) => pulls.len() > 0,
            Receiver::Push(push) => push.active,
        }
    }

    /// The receiver answered a question of flow control, by publishing to `subject`.
    pub fn handle_flow(&mut self, subject: &[u8]) {
        if let Receiver::Push(push) = &mut self.receiver {
            push.handle_flow(subject);
        }
    }

    /// A message was stored. Says whether that may be worth a call of [`Consumer::deliver`].
    pub fn handle_stored(&mut self, seq: u64, subject: &[u8]) -> bool {
        let wanted = seq >= self.cursor && self.wants(subject);
        self.ahead += u64::from(wanted);
        wanted && self.is_used()
    }

    /// A message was removed from the stream.
    pub fn handle_removed(&mut self, now: u64, seq: u64, subject: &[u8], sink: &mut impl Sink) {
        if seq >= self.cursor {
            if self.wants(subject) {
                self.ahead = self.ahead.saturating_sub(1);
            }
        } else if !self.skip.remove(seq) && self.pending.get(seq).is_some() {
            self.terminate(now, seq, MESSAGE_DELETED, sink);
        }
    }

    /// Many messages were removed: what is left is counted again. Takes the place of telling each of them.
    pub fn handle_purged(&mut self, now: u64, source: &mut impl Source) {
        self.ahead = source.count_from(self.cursor);
        self.skip.retain(|seq| source.contains(seq));
        self.drop_missing(now, source);
    }

    fn drop_missing(&mut self, now: u64, source: &impl Source) {
        let missing = |seq: &u64| !source.contains(*seq);
        let seqs = self.pending.iter().map(|u| u.stream_seq);
        let gone: Vec<u64> = seqs.filter(missing).collect();
        for seq in gone {
            self.drop_pending(now, seq);
        }
    }

    /// What is due: messages to be delivered again, pulls that end, signs of life.
    pub fn handle_timeouts(&mut self, now: u64, sink: &mut impl Sink) {
        while let Some(seq) = self.redelivery.pop_due(now, &self.pending) {
            self.queue_again(now, seq, sink);
        }
        let last = (self.delivered.consumer_seq, self.delivered.stream_seq);
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

    /// Nothing has come for as long as a consumer stays that nobody uses: whether somebody still listens.
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

    /// When to call [`Consumer::handle_timeouts`], then [`Consumer::deliver`] and [`Consumer::poll_delta`]:
    /// later than `now`, by which these are taken to have been called.
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

    /// Returns whether nobody has used it for as long as its configuration says: it should be deleted.
    #[must_use]
    pub fn is_abandoned(&self, now: u64) -> bool {
        !self.is_used() && self.unused_us().is_some_and(|at| at <= now)
    }

    /// When nothing will have come for as long as a consumer stays that nobody uses.
    fn unused_us(&self) -> Option<u64> {
        let inactive = self.settings.inactive_us?;
        Some(self.used_us.saturating_add(inactive))
    }

    /// What changed since the last delta, once it is worth a place in the log: to be proposed, as the command
    /// that changes this consumer, and told by [`Consumer::handle_delta_durable`] when it is durable. Call it
    /// only when it can be proposed.
    pub fn poll_delta(&mut self, now: u64) -> Option<Vec<u8>> {
        self.changes.deadline().filter(|at| *at <= now)?;
        self.take_delta(now)
    }

    /// The same, whether it is worth it or not: before the node ends.
    pub fn take_delta(&mut self, now: u64) -> Option<Vec<u8>> {
        self.changes
            .take(now, self.delivered, self.ack_floor, &mut self.pending)
    }

    /// The oldest delta that was not is durable and applied: who waits for it is answered.
    pub fn handle_delta_durable(&mut self, sink: &mut impl Sink) {
        self.changes.handle_durable(sink);
    }

    /// The consumer ends on this node: its pulls are told.
    pub fn handle_end(&mut self, ending: Ending, sink: &mut impl Sink) {
        let pulls = match &mut self.receiver {
            Receiver::Pull(pulls) => pulls,
            Receiver::Push(push) if ending == Ending::Lost => {
                return push.tell_lost(
                    (self.delivered.consumer_seq, self.delivered.stream_seq),
                    sink,
                );
            }
            Receiver::Push(_) => return,
        };
        match ending {
            Ending::Deleted | Ending::Lost => pulls.end_all(409, "Consumer Deleted", false, sink),
            Ending::LeadershipChange => pulls.end_all(409, "Leadership Change", false, sink),
            Ending::Shutdown => pulls.end_all(409, "Server Shutdown", true, sink),
        }
    }

    /// Returns whether messages of this subject are for it.
    #[must_use]
    pub fn wants(&self, subject: &[u8]) -> bool {
        let filters = &self.settings.filters;
        filters.is_empty() || filters.iter().any(|f| subject::contains(f, subject))
    }

    /// Returns whether it waits for the acknowledgement of a message that its filters do not pass: they were
    /// others when it was delivered.
    pub fn awaits_unwanted(&self, source: &mut impl Source) -> bool {
        let mut seqs = self.pending.iter().map(|u| u.stream_seq);
        seqs.any(|seq| source.next_at(seq) != Some(seq))
    }

    /// How many messages were never delivered.
    #[must_use]
    pub fn num_pending(&self) -> u64 {
        self.ahead + self.skip.left()
    }

    /// What is told of it.
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

    /// Returns whether nothing is delivered until something is acknowledged.
    pub(super) fn is_held_up(&self) -> bool {
        self.awaits_acks()
            && self.redelivery.queued() == 0
            && self.pending.len() >= self.settings.max_unacked
    }

    /// Returns whether deliveries wait for acknowledgements.
    pub(super) fn awaits_acks(&self) -> bool {
        self.settings.ack != AckPolicy::None
    }

    /// Panics if something is not as it always should be: for tests.
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

/// Why a message is not delivered again that the stream does not hold any more.
pub(super) const MESSAGE_DELETED: &str = "Unacknowledged message was deleted";
