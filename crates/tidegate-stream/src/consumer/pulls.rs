//! Queues the pull requests (pulls) of a consumer that wait for messages, in the order in which they get
//! messages.
//!
//! This module owns the queue of pulls. The consumer gives one message to each pull in turn. A pull ends when
//! it has got all its messages; it ends with a status when it expires or cannot take the next message.
//! [`super::Consumer`] owns the messages.
//!
//! The queue sets apart a pull with a subject that no client listens to: the pull gets no messages, does not
//! count as a use of the consumer, and makes room for other pulls. If the client was disconnected for a
//! moment and listens again within [`AWAY_US`], the pull resumes; after that time, or when the pull expires,
//! the pull ends. nats-server ends such a pull at its next check, and checks less often.
//!
//! The consumer's `max_waiting` bounds the number of pulls, and [`WAITING_MAX`] bounds it for all consumers,
//! so that the pulls do not take too much memory.

use std::collections::VecDeque;

use tidegate_nats::subject;

use super::request::PullRequest;
use super::seam::{Ready, Sink};
use super::state::Position;
use super::{duration, status};

/// The limit on the pulls that wait at one consumer, even if its configuration sets no limit. It bounds the
/// memory.
pub(super) const WAITING_MAX: usize = 1 << 16;
/// The time for which the queue keeps a pull while no client listens to the pull's subject, in microseconds.
/// Clients wait for 2 s before they reconnect to the same server, and some wait longer after a failed
/// attempt.
pub(super) const AWAY_US: u64 = 10_000_000;

/// The limits that a consumer's configuration sets on its pull requests: the number that may wait, and the
/// amount that each may ask for; 0 is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PullLimits {
    pub(super) waiting: usize,
    pub(super) batch: u64,
    pub(super) expires_ns: u64,
    pub(super) bytes: u64,
}

impl PullLimits {
    /// Returns the text of the status for the first limit that a pull request exceeds; `None` if it exceeds
    /// none. The client of a refused pull gets this text.
    pub(super) fn exceeded(&self, request: &PullRequest) -> Option<String> {
        let over = |asked: u64, limit: u64| limit > 0 && asked > limit;
        if over(request.batch, self.batch) {
            Some(format!("Exceeded MaxRequestBatch of {}", self.batch))
        } else if over(request.expires_ns, self.expires_ns) {
            let expires = i64::try_from(self.expires_ns);
            let expires = expires.expect("the limit comes from an i64 of a configuration");
            let expires = duration::text(expires);
            Some(format!("Exceeded MaxRequestExpires of {expires}"))
        } else if over(request.max_bytes, self.bytes) {
            Some(format!("Exceeded MaxRequestMaxBytes of {}", self.bytes))
        } else {
            None
        }
    }
}

/// A pull request of a client that waits for messages of the consumer, with the amount that it still takes.
#[derive(Clone, Debug)]
struct Pull {
    reply: Box<[u8]>,
    /// The number of messages that the pull request still waits for, at least 1. The pull ends after the last
    /// of them.
    left: u64,
    /// The number of bytes that the pull still takes, if the request set a limit of bytes (`has_bytes`). The
    /// pull ends at a message that exceeds it.
    bytes_left: u64,
    has_bytes: bool,
    served: bool,
    no_wait: bool,
    /// The time at which the pull ends, in microseconds since the Unix epoch; `u64::MAX` if the pull ends
    /// only when it has got all its messages, because its client set no expiry.
    expires_us: u64,
    /// The interval of the heartbeats to the pull's client, in microseconds; 0 is no heartbeats. By
    /// heartbeats a client knows that the pull still waits.
    heartbeat_us: u64,
    /// The time of the next heartbeat to the pull's client, in microseconds since the Unix epoch; `u64::MAX`
    /// is never. Each message to the pull puts the heartbeat off.
    beat_us: u64,
    /// The number of the last turn in which the queue found that a client listens to the pull's subject, so
    /// that the queue asks only once a turn.
    seen: u64,
    /// The number of the last turn in which the connection of the pull's client still had many bytes to
    /// write, so that the pull gets no message in that turn.
    behind: u64,
    /// The time at which the pull ends if its client has not listened again by then, in microseconds since
    /// the Unix epoch. The queue sets this time when it sets the pull apart. The client may only have been
    /// disconnected for a moment.
    gone_us: u64,
}

impl Pull {
    fn deadline(&self) -> u64 {
        self.expires_us.min(self.beat_us)
    }

    /// Returns whether the pull ends when the consumer has no more messages. A pull with `no_wait` ends then,
    /// except while a pull with an expiry still waits for its first message.
    fn has_come_to_its_end(&self) -> bool {
        self.no_wait && (self.expires_us == u64::MAX || self.served)
    }

    fn end(&self, code: u16, description: &str, sink: &mut impl Sink) {
        let headers = status::leftover(code, description, self.left, self.bytes_left);
        sink.status(&self.reply, b"", &headers);
    }
}

/// The pulls that wait for messages at one consumer: the queue, and the pulls that it has set apart because
/// no client listens to them.
#[derive(Clone, Debug)]
pub(super) struct Pulls {
    limits: PullLimits,
    queue: VecDeque<Pull>,
    /// The pulls that no client listens to, in the order in which the queue has set them apart. They resume
    /// if their clients listen again.
    away: VecDeque<Pull>,
    /// True if the list `away` has changed since the last call of [`Pulls::take_away`], so that the caller
    /// learns the new list.
    away_changed: bool,
    /// A time, in microseconds since the Unix epoch, before which no pull ends and no heartbeat is due. It
    /// may be earlier than necessary. Before this time the queue need not look at its pulls.
    deadline_us: u64,
    turn: u64,
    /// The number of pulls at the end of the queue that cannot take a message in this turn, because their
    /// clients' connections still have many bytes to write.
    behind: usize,
    /// True if the queue may hold a pull with `no_wait`, which ends when the consumer has no more messages.
    /// Otherwise the queue need not look for one.
    no_wait: bool,
}

/// The state of the pull request at the front of the queue, which gets the next message. It decides whether
/// the consumer can deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// The pull at the front of the queue can take a message, because a client listens and its connection has
    /// room.
    Ready,
    /// Pulls wait in the queue, but the connections of all of their clients still have many bytes to write,
    /// so the consumer must wait.
    Behind,
    /// No pull request waits in the queue, so the consumer delivers nothing.
    None,
}

impl Pulls {
    pub(super) fn new(limits: PullLimits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            away: VecDeque::new(),
            away_changed: false,
            deadline_us: u64::MAX,
            // The number of the first turn is 1, because 0 marks a pull that the queue has not checked in any
            // turn.
            turn: 1,
            behind: 0,
            no_wait: false,
        }
    }

    pub(super) fn set_limits(&mut self, limits: PullLimits) {
        self.limits = limits;
    }

    pub(super) const fn limits(&self) -> &PullLimits {
        &self.limits
    }

    /// Returns the number of pulls in the queue. Pulls that are set apart, because no client listens, do not
    /// count, neither in reports nor as a use of the consumer.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of messages that all pulls in the queue together still take, by which the consumer
    /// decides whether a further pull without waiting can get any.
    pub(super) fn asked(&self) -> u64 {
        let add = |sum: u64, p: &Pull| sum.saturating_add(p.left);
        self.queue.iter().fold(0, add)
    }

    /// Adds a pull request at the end of the queue; returns false if the queue has no room, so that the
    /// consumer refuses the pull.
    pub(super) fn push(&mut self, now: u64, reply: &[u8], request: &PullRequest) -> bool {
        let most = self.limits.waiting.min(WAITING_MAX);
        if self.queue.len() >= most {
            return false;
        }
        if self.queue.len() + self.away.len() >= most {
            // The queue ends the oldest of the pulls without a listening client, to make room for the new
            // pull.
            self.away.pop_front();
            self.away_changed = true;
        }
        let at = |ns: u64| {
            if ns == 0 {
                u64::MAX
            } else {
                now.saturating_add(ns.div_ceil(1000))
            }
        };
        let pull = Pull {
            reply: reply.into(),
            left: request.batch,
            bytes_left: request.max_bytes,
            has_bytes: request.max_bytes > 0,
            served: false,
            no_wait: request.no_wait,
            expires_us: at(request.expires_ns),
            heartbeat_us: request.heartbeat_ns.div_ceil(1000),
            beat_us: at(request.heartbeat_ns),
            seen: 0,
            behind: 0,
            gone_us: u64::MAX,
        };
        if self.queue.is_empty() && self.away.is_empty() {
            // The time is that of an earlier pull, which has got its messages. It may have passed without a
            // timer, because a queue without pulls arms none.
            self.deadline_us = u64::MAX;
        }
        self.deadline_us = self.deadline_us.min(pull.deadline());
        self.no_wait |= pull.no_wait;
        self.queue.push_back(pull);
        // The new pull goes before the pulls with a busy connection, which stay at the end of the queue,
        // because they cannot take a message in this turn.
        if self.behind > 0 {
            let last = self.queue.len() - 1;
            self.queue.swap(last, last - self.behind);
        }
        true
    }

    /// Begins a turn of the event loop. In each turn the queue asks again which pulls have a client that
    /// listens, and which connections still have many bytes to write, because both change between turns.
    pub(super) fn begin(&mut self) {
        self.turn += 1;
        self.behind = 0;
    }

    /// Brings to the front of the queue a pull that can take a message. On the way, the queue ends the
    /// expired pulls at the front, and sets apart those that no client listens to.
    pub(super) fn front(&mut self, now: u64, sink: &mut impl Sink) -> Front {
        loop {
            let Some(pull) = self.queue.front_mut() else {
                return Front::None;
            };
            if pull.behind == self.turn {
                return Front::Behind;
            }
            if pull.expires_us <= now {
                pull.end(408, REQUEST_TIMEOUT, sink);
                self.queue.pop_front();
                continue;
            }
            if pull.seen == self.turn {
                return Front::Ready;
            }
            match sink.ready(&pull.reply, None) {
                Ready::Yes => pull.seen = self.turn,
                Ready::Behind => self.set_behind(),
                Ready::Nobody => {
                    if let Some(pull) = self.queue.pop_front() {
                        self.set_apart(now, pull);
                    }
                }
            }
        }
    }

    /// Sets apart a pull that no client listens to, for at most [`AWAY_US`]. The client may only have been
    /// disconnected for a moment.
    fn set_apart(&mut self, now: u64, mut pull: Pull) {
        pull.gone_us = now.saturating_add(AWAY_US);
        self.deadline_us = self.deadline_us.min(pull.gone_us.min(pull.expires_us));
        self.away.push_back(pull);
        self.away_changed = true;
    }

    /// Moves back to the queue the pulls that the queue has set apart and that match `pattern`, because a
    /// client has just subscribed to `pattern`.
    pub(super) fn handle_subscribed(&mut self, pattern: &[u8]) {
        let (back, away): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.away)
            .into_iter()
            .partition(|pull| subject::contains(pattern, &pull.reply));
        self.away = away;
        self.away_changed |= !back.is_empty();
        for pull in back {
            self.deadline_us = self.deadline_us.min(pull.deadline());
            self.no_wait |= pull.no_wait;
            // The pull goes before the pulls with a busy connection, which stay at the end of the queue,
            // because they cannot take a message in this turn.
            let at = self.queue.len() - self.behind;
            self.queue.insert(at, pull);
        }
    }

    /// Returns the subjects of the pulls that the queue has set apart, if this list has changed since the
    /// last call. The caller reports subscriptions to these subjects.
    pub(super) fn take_away(&mut self) -> Option<Vec<Box<[u8]>>> {
        let changed = std::mem::take(&mut self.away_changed);
        changed.then(|| self.away.iter().map(|pull| pull.reply.clone()).collect())
    }

    /// Returns whether the pull at the front of the queue can take a message of `bytes` bytes. If the message
    /// exceeds the pull's limit of bytes, the queue ends the pull.
    pub(super) fn front_takes(&mut self, bytes: u64, sink: &mut impl Sink) -> bool {
        let Some(pull) = self.queue.front() else {
            return false;
        };
        let takes = !pull.has_bytes || bytes <= pull.bytes_left;
        if !takes {
            pull.end(409, "Message Size Exceeds MaxBytes", sink);
            self.queue.pop_front();
        }
        takes
    }

    /// Sends a message of `bytes` bytes to the pull at the front of the queue, through `send`, and brings the
    /// next pull to the front, so that the pulls get messages in turn.
    pub(super) fn serve<S: Sink>(
        &mut self,
        now: u64,
        bytes: u64,
        sink: &mut S,
        send: impl FnOnce(&mut S, &[u8]) -> Ready,
    ) {
        let Some(pull) = self.queue.front_mut() else {
            return;
        };
        let ready = send(sink, &pull.reply);
        pull.served = true;
        pull.left -= 1;
        if pull.has_bytes {
            pull.bytes_left = pull.bytes_left.saturating_sub(bytes);
        }
        if pull.left == 0 || (pull.has_bytes && pull.bytes_left == 0) {
            if pull.bytes_left > 0 {
                pull.end(409, "Batch Completed", sink);
            }
            self.queue.pop_front();
            return;
        }
        if pull.heartbeat_us > 0 {
            pull.beat_us = now.saturating_add(pull.heartbeat_us);
        }
        if ready != Ready::Yes {
            self.set_behind();
        } else if self.queue.len() - self.behind > 1
            && let Some(pull) = self.queue.pop_front()
        {
            let at = self.queue.len() - self.behind;
            self.queue.insert(at, pull);
        }
    }

    fn set_behind(&mut self) {
        if let Some(mut pull) = self.queue.pop_front() {
            pull.behind = self.turn;
            self.behind += 1;
            self.queue.push_back(pull);
        }
    }

    /// Ends the pulls that do not wait for further messages (`no_wait`), because the consumer has no more
    /// messages now. Their clients get a status.
    pub(super) fn end_of_messages(&mut self, sink: &mut impl Sink) {
        if !self.no_wait {
            return;
        }
        self.retain(|pull| {
            let ends = pull.has_come_to_its_end();
            if ends {
                sink.status(&pull.reply, b"", &status::plain(404, NO_MESSAGES));
            }
            !ends
        });
        self.no_wait = self.queue.iter().any(|p| p.no_wait);
        self.retain_away(|pull| !pull.has_come_to_its_end());
    }

    fn retain_away(&mut self, keep: impl FnMut(&Pull) -> bool) {
        let before = self.away.len();
        self.away.retain(keep);
        self.away_changed |= self.away.len() < before;
    }

    /// Ends the pulls that have expired, and sends the heartbeats that are due; `last` is the last delivery,
    /// which heartbeats state. Sets apart a pull with a due heartbeat that no client listens to. Returns
    /// whether a pull has left the queue, which counts as a use of the consumer.
    ///
    /// While unacknowledged messages hold delivery up (`held_up`), also ends the pulls that do not wait for
    /// further messages, as nats-server does: otherwise a client that acknowledges slowly gets heartbeats for
    /// ever and never an end.
    pub(super) fn handle_timeouts(
        &mut self,
        now: u64,
        last: Position,
        held_up: bool,
        sink: &mut impl Sink,
    ) -> bool {
        if now < self.deadline_us {
            return false;
        }
        let before = self.queue.len();
        let due = self.first_deadline() <= now;
        if held_up && due {
            // This pass keeps expired pulls in the queue, because the next pass ends them with the status of
            // an expired pull.
            self.retain(|pull| {
                let ends = pull.expires_us > now && pull.has_come_to_its_end();
                if ends {
                    sink.status(&pull.reply, b"", &status::plain(404, NO_MESSAGES));
                }
                !ends
            });
        }
        let mut unheard = Vec::new();
        self.retain(|pull| {
            if pull.expires_us <= now {
                pull.end(408, REQUEST_TIMEOUT, sink);
                return false;
            }
            if pull.beat_us > now {
                return true;
            }
            pull.beat_us = now.saturating_add(pull.heartbeat_us);
            let heard = sink.ready(&pull.reply, None) != Ready::Nobody;
            match heard {
                true => sink.status(&pull.reply, b"", &status::heartbeat(last, None)),
                false => unheard.push(pull.clone()),
            }
            heard
        });
        for pull in unheard {
            self.set_apart(now, pull);
        }
        self.retain_away(|pull| pull.gone_us.min(pull.expires_us) > now);
        self.deadline_us = self.first_deadline();
        self.queue.len() < before
    }

    /// Ends the pulls in the queue that have expired, and sets apart the pulls that no client listens to, so
    /// that the rest count as a use of the consumer.
    pub(super) fn prune(&mut self, now: u64, sink: &mut impl Sink) {
        let mut unheard = Vec::new();
        self.retain(|pull| {
            let expired = pull.expires_us <= now;
            if expired {
                pull.end(408, REQUEST_TIMEOUT, sink);
                return false;
            }
            let heard = sink.ready(&pull.reply, None) != Ready::Nobody;
            if !heard {
                unheard.push(pull.clone());
            }
            heard
        });
        for pull in unheard {
            self.set_apart(now, pull);
        }
    }

    /// Ends all pulls, and sends a status to the pulls in the queue. With `leftover`, the status states the
    /// messages and bytes that each pull still lacks, so that its client knows how much to ask for again.
    pub(super) fn end_all(&mut self, code: u16, text: &str, leftover: bool, sink: &mut impl Sink) {
        for pull in self.queue.drain(..) {
            if leftover {
                pull.end(code, text, sink);
            } else {
                sink.status(&pull.reply, b"", &status::plain(code, text));
            }
        }
        self.behind = 0;
        self.away_changed |= !self.away.is_empty();
        self.away.clear();
    }

    /// Returns the time at which to call [`Pulls::handle_timeouts`], or a little earlier, in microseconds
    /// since the Unix epoch. `None` if no pull has an end or a heartbeat.
    pub(super) fn deadline(&self) -> Option<u64> {
        let some = !self.queue.is_empty() || !self.away.is_empty();
        (some && self.deadline_us < u64::MAX).then_some(self.deadline_us)
    }

    fn first_deadline(&self) -> u64 {
        let waiting = self.queue.iter().map(Pull::deadline);
        let away = self.away.iter().map(|p| p.gone_us.min(p.expires_us));
        waiting.chain(away).min().unwrap_or(u64::MAX)
    }

    fn retain(&mut self, mut keep: impl FnMut(&mut Pull) -> bool) {
        self.queue.retain_mut(|pull| keep(pull));
        let turn = self.turn;
        self.behind = self.queue.iter().filter(|p| p.behind == turn).count();
    }
}

pub(super) const REQUEST_TIMEOUT: &str = "Request Timeout";
const NO_MESSAGES: &str = "No Messages";
