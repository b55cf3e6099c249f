//! Implements the node as a state machine: the node takes the events of all connections, and fills outboxes
//! and lists of actions for the driver. This module opens no socket and reads no clock.
//!
//! The node owns the sessions, the subscriptions, and the routing of messages between them. The driver (the
//! event loop) owns the sockets.
//!
//! After any `handle_*`, the driver writes the outboxes that [`Node::poll_dirty`] names (and calls
//! [`Node::handle_written`]), carries out [`Node::poll_verify`], reads again from the connections that
//! [`Node::poll_resumed`] names, and drops the connections that [`Node::poll_closed`] names. The driver calls
//! [`Node::handle_timeouts`] at [`Node::deadline`]. The node reuses the key of a connection once
//! [`Node::poll_closed`] has named it.
//!
//! Each client's outbox holds at most `max_pending` bytes; the outbox of a peer that keeps taking bytes may
//! hold four times as many. Long before that bound a receiver with a backlog makes its publishers pause
//! ([`STALL_BYTES`]), but only for a moment, so that one slow reader may slow others down but not stop them.
//! A publisher waits longer for a peer, as long as that peer keeps taking bytes.

pub(crate) mod ack_times;
mod announced;
mod asking;
pub(crate) mod audits;
mod changes;
mod dirty;
mod fanout;
#[cfg(test)]
pub(super) mod joined;
mod leaders;
mod leaving;
mod passwords;
mod polling;
mod queue_groups;
pub(crate) mod recently_closed;
pub(crate) mod routes;
mod slots;
mod spreading;
pub(crate) mod system;
#[cfg(test)]
mod tests;
pub(crate) mod timers;
pub(crate) mod traces;
pub(crate) mod view;

// The import is from `core::net` and not `std::net`, because an address is plain data and this module uses no
// sockets.
use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::slots::{GroupSlot, PerGroup};
use tidegate_cluster::wire::Routed;
use tidegate_nats::collections::ChunkedSlab;
use tidegate_nats::connect::Info;
use tidegate_nats::op::{self, Delivery};
use tidegate_nats::outbox::Pool;
use tidegate_nats::parse::Publish;
use tidegate_nats::session::{Action, CloseReason, Session, Traffic};
use tidegate_nats::settings::Account;
use tidegate_nats::sublist::{SubKey, Sublist};
use tidegate_nats::system as account;
use tidegate_stream::stream::Place;

use self::ack_times::AckTimes;
use self::announced::Announced;
use self::audits::Audits;
use self::dirty::Dirty;
use self::fanout::{Entry, Fanout, Reached, Sender, Subscription};
use self::leaving::Leaving;
use self::passwords::Passwords;
use self::recently_closed::{ClosedConnection, RecentlyClosed};
use self::routes::Peers;
use self::slots::Inner;
use self::spreading::Spreading;
use self::system::System;
use self::traces::{Notes, Traced};
use crate::config::Settings;
use crate::cost::{Work, spend};
use crate::party::{ClientKey, Party, PerClient};
use crate::sessions::timers::Timers;
use crate::streams::JetStream;
use crate::streams::context::Outputs;
use crate::streams::subject_pages::PageJob;
use crate::streams::taking::Request;

/// The backlog of a receiver, in bytes, at which the node pauses its publishers; three quarters of
/// `max_pending` if that is less.
pub(crate) const STALL_BYTES: usize = 8 * 1024 * 1024;
/// The limit on the work of one call of the node: after this many operations of one connection, or once the
/// outboxes have gathered this many further copies or bytes, the node returns to the driver, which then looks
/// at the clock. Only a single message may exceed the limit: up to 512 receivers get it within one call.
const STEP: Load = Load {
    items: 128,
    bytes: 64 * 1024,
};
/// The greatest number of visits of look-ups ([`Node::visits`]) in one call of the node. One look-up may
/// exceed it, because the node does not divide it.
pub(crate) const VISITS_A_STEP: u64 = 4096;
/// The greatest number of connections for which the node handles deadlines in one turn, so that no turn takes
/// long.
const TIMEOUTS_AT_ONCE: usize = 256;
/// The longest time for which the node pauses a publisher for one receiver with a large backlog, so that a
/// slow receiver stops no publisher.
const STALL: Duration = Duration::from_millis(10);

/// A password that the driver must check against a bcrypt hash on another thread, because the check is slow
/// on purpose.
#[derive(Debug)]
pub struct Verify {
    /// The key of the connection that sent the password; the driver passes it back to
    /// [`Node::handle_verified`], so that the node finds the connection.
    pub key: ClientKey,
    /// The number of the connection, by which the node recognises it, since a later connection may get its
    /// key.
    pub cid: u64,
    /// The password that the client sent, which a thread compares with the hash.
    pub password: String,
    /// The configured bcrypt hash, which the password must match.
    pub hash: Arc<str>,
}

/// The part of the driver's input that [`Node::handle_received`] has handled, by which the driver knows what
/// is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The number of input bytes that the node has used, and that the driver drops.
    pub used: usize,
    /// True if the node stopped after a part of the work. The driver then writes the outboxes if enough has
    /// gathered, and hands in the rest of the input later.
    pub full: bool,
}

/// The counts of a node since its start, which the monitor shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// The messages and bytes that the clients of all connections so far have published (`in`) and received
    /// (`out`), for the monitor.
    pub traffic: Traffic,
    /// The number of client connections that the node accepted since its start.
    pub total_connections: u64,
    /// The number of connections that the node closed because the client did not read its messages.
    pub slow_consumers: u64,
    /// The number of connections that the node closed because more than `max_pending` bytes waited for the
    /// client.
    pub slow_pending: u64,
    /// The number of connections that the node closed because the client did not answer PINGs.
    pub stale_connections: u64,
    /// The number of connections that the node refused because the client's credentials were wrong.
    pub auth_failures: u64,
    /// The number of times that the node paused a publisher because a receiver had a large backlog.
    pub stalls: u64,
    /// The number of copies of messages that the node sent to peers, which `traffic` does not include.
    pub routed_out: u64,
}

/// The state machine of one server: its connections, their subscriptions, its streams and its peers. The
/// event loop drives it, and so do tests.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    info: Info,
    entries: PerClient<Entry>,
    subs: ChunkedSlab<Subscription>,
    sublist: Sublist,
    timers: Timers,
    pool: Pool,
    whole: Delivery,
    bare: Delivery,
    dirty: Dirty,
    closed: VecDeque<(ClientKey, CloseReason)>,
    recently_closed: RecentlyClosed,
    resumed: Vec<ClientKey>,
    passwords: Passwords,
    /// The subscriptions that reached their maximum during the current delivery. The node removes them after
    /// the delivery, so the list is empty between deliveries.
    ended: Vec<SubKey>,
    slow: Vec<ClientKey>,
    gathered: Load,
    /// The buffer in which the node builds the subject that announces the server of a stream, kept so that no
    /// lookup of a server allocates.
    name: Vec<u8>,
    random: u64,
    next_cid: u64,
    stats: NodeStats,
    /// The times from publishes to their acknowledgements, for the monitor.
    ack_times: AckTimes,
    lame: Option<Lame>,
    leaving: Leaving,
    spreading: Spreading,
    /// The state of the system account, by which the node answers the account's clients.
    system: System,
    /// The time at which the node got its present settings, which the monitor shows.
    configured: Time,
    /// The number of subscriptions that the node has made so far, for clients and peers, from which the next
    /// subscription gets its number.
    next_sub: u64,
    /// The number of connections that have ended and are still in `entries`, because their key is still in
    /// use; the node does not count them as clients.
    gone: usize,
    /// The streams of each group, by slot; `None` while the streams of the slot handle an event, because they
    /// are then out of the node.
    streams: PerGroup<Option<Box<JetStream>>>,
    /// The outputs of the event that streams handle now, which the node carries out next. Empty between
    /// events.
    outputs: Outputs,
    /// The places of the messages that the store must read, each with the slot of its group, until the driver
    /// takes them.
    wanted: VecDeque<(GroupSlot, Place)>,
    /// The pages of subjects that a thread of the pool must encode, each with the slot of its group, until
    /// the driver takes them.
    pages: VecDeque<(GroupSlot, Box<PageJob>)>,
    /// The requests for messages of origins in other clusters, which a thread must fetch.
    fetches: VecDeque<Box<Request>>,
    /// The notes about the receivers of the message that the node delivers, if the message asks for a trace.
    tracing: Option<Box<Notes>>,
    /// The requests of clients to the streams' API that watchers shall see together with their answers.
    audits: Audits,
    /// The events that the streams of one group have caused for the streams of another group on this node,
    /// and that the other group's streams have not handled yet. The list is empty whenever the driver calls
    /// the node.
    inner: VecDeque<Inner>,
    /// The id of the group in each slot, by which the node finds the slot of a group.
    groups: PerGroup<GroupId>,
    /// The subjects of this node's streams that the node has announced to its peers, so that it announces
    /// only changes.
    announced: Announced,
    /// This node's id while its disk has no room for messages; otherwise `None`.
    full: Option<u64>,
    /// True if a peer has announced that a node has no disk space, and the event loop has not looked yet
    /// which groups that concerns.
    heard_of_full: bool,
    /// The node's state towards the other nodes of the cluster; `None` if the server is no part of a cluster,
    /// and so has no peers.
    peers: Option<Box<Peers>>,
}

/// The state of lame duck mode, in which the node closes its connections one by one: the time of the next
/// closing, and the interval between two.
#[derive(Clone, Copy, Debug)]
struct Lame {
    next: Time,
    every: Duration,
}

impl Node {
    /// Creates a node without connections. `seed` seeds the random numbers with which the node chooses among
    /// the members of queue groups.
    #[must_use]
    pub fn new(settings: Settings, info: Info, seed: u64) -> Self {
        Self {
            settings,
            info,
            entries: PerClient::new(),
            subs: ChunkedSlab::new(),
            sublist: Sublist::new(),
            timers: Timers::default(),
            pool: Pool::default(),
            whole: Delivery::default(),
            bare: Delivery::default(),
            dirty: Dirty::default(),
            closed: VecDeque::new(),
            recently_closed: RecentlyClosed::default(),
            resumed: Vec::new(),
            passwords: Passwords::default(),
            ended: Vec::new(),
            slow: Vec::new(),
            gathered: Load::default(),
            name: Vec::new(),
            random: seed | 1,
            next_cid: 1,
            stats: NodeStats::default(),
            ack_times: AckTimes::default(),
            lame: None,
            leaving: Leaving::default(),
            spreading: Spreading::default(),
            system: System::default(),
            configured: Time::ZERO,
            next_sub: 0,
            gone: 0,
            streams: PerGroup::new(),
            outputs: Outputs::default(),
            wanted: VecDeque::new(),
            pages: VecDeque::new(),
            fetches: VecDeque::new(),
            tracing: None,
            audits: Audits::default(),
            inner: VecDeque::new(),
            groups: PerGroup::new(),
            announced: Announced::default(),
            full: None,
            heard_of_full: false,
            peers: None,
        }
    }

    /// Adds a connection that the driver has accepted, and returns the key by which both name it. If
    /// `securing` is true, the connection's bytes belong to a TLS handshake until [`Node::handle_secured`];
    /// if `greet` is true, the node sends INFO now.
    pub fn handle_accepted(
        &mut self,
        now: Time,
        address: SocketAddr,
        securing: bool,
        greet: bool,
    ) -> ClientKey {
        let cid = self.next_cid;
        self.next_cid += 1;
        self.stats.total_connections += 1;
        let handshake = securing.then(|| self.settings.tls_timeout());
        let session = Session::new(now, cid, address, handshake, &self.settings.sessions);
        let key = self.entries.insert(Entry::new(session));
        if greet {
            self.handle_greet(key);
        }
        self.arm(key);
        key
    }

    /// Sends INFO to the client, so that the client can send CONNECT.
    pub fn handle_greet(&mut self, key: ClientKey) {
        let session = &mut self.entries[key].session;
        let info = Info {
            client_id: session.cid,
            client_ip: session.address.ip().to_string(),
            ..self.info.clone()
        };
        info.write(&mut session.out);
        self.touch(key);
    }

    /// Records that the client has completed the TLS handshake (`tls` is true), or has chosen to go on
    /// without TLS, so that the session accepts its operations.
    pub fn handle_secured(&mut self, now: Time, key: ClientKey, tls: bool) {
        self.entries[key]
            .session
            .handle_secured(now, tls, &self.settings.sessions);
        self.arm(key);
    }

    /// Stops the clock of the client's TLS handshake, because the handshake now waits in the server's queue
    /// and not for the client.
    pub(crate) fn handle_queued(&mut self, now: Time, key: ClientKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.session.handle_queued(now);
            self.arm(key);
        }
    }

    /// Starts the clock of the client's TLS handshake again, because the server waits for the client again.
    pub(crate) fn handle_unqueued(&mut self, now: Time, key: ClientKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.session.handle_unqueued(now);
            self.arm(key);
        }
    }

    /// Handles bytes that the driver read from a client: `input` is all of them that the node has not used
    /// yet. Stops early once the copies in all outboxes reach the messages or bytes of `limit`, so that the
    /// driver writes them, and after `STEP` of further work or `VISITS_A_STEP` at the latest.
    pub fn handle_received(
        &mut self,
        now: Time,
        key: ClientKey,
        input: &[u8],
        limit: Load,
    ) -> Received {
        let mut used = 0;
        let mut full = false;
        let mut operations = 0;
        let visits = self.visits() + VISITS_A_STEP;
        let step = Load {
            items: limit.items.min(self.gathered.items + STEP.items),
            bytes: limit.bytes.min(self.gathered.bytes + STEP.bytes),
        };
        if let Some(entry) = self.entries.get_mut(key) {
            entry.session.handle_activity(now);
        }
        while let Some(entry) = self.entries.get_mut(key).filter(|e| e.reads()) {
            let (action, n) = entry
                .session
                .next(now, &input[used..], &self.settings.sessions);
            used += n;
            operations += 1;
            spend(Work::Operation, 1);
            match action {
                Action::Publish(message) => self.publish(now, key, &message),
                Action::More => break,
                action => self.carry_out(now, key, action),
            }
            full = operations >= STEP.items || self.has_gathered(step) || self.visits() >= visits;
            if full {
                break;
            }
        }
        self.bound_replies(now, key);
        self.tell_connected(key);
        self.touch(key);
        self.arm(key);
        Received { used, full }
    }

    /// Closes the connection of a client that causes replies and does not read them, once more than
    /// `max_pending` bytes wait for the client, so that they do not fill the memory.
    fn bound_replies(&mut self, now: Time, key: ClientKey) {
        let entry = self.entries.get(key).filter(|e| !e.session.is_closing());
        if entry.is_some_and(|e| e.session.out.len() > self.settings.max_pending) {
            self.close(now, key, CloseReason::SlowPending);
        }
    }

    /// Returns the number of input bytes that the driver must read before the node can handle more of the
    /// connection's input.
    #[must_use]
    pub fn need(&self, key: ClientKey) -> usize {
        self.entries[key].session.need()
    }

    /// Returns whether the connection with this key exists and has not ended, because a key may outlive its
    /// connection.
    #[must_use]
    pub fn contains(&self, key: ClientKey) -> bool {
        self.entries.get(key).is_some_and(|entry| !entry.gone)
    }

    /// Records that bytes arrived from the client that do not complete an operation yet. They show that the
    /// client is alive, so the node need not ping it.
    pub fn handle_activity(&mut self, now: Time, key: ClientKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.session.handle_activity(now);
        }
    }

    /// Returns whether the client waits until a thread has checked its password, so that the driver can drop
    /// a client that has gone.
    pub(crate) fn is_verifying(&self, key: ClientKey) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|entry| entry.session.is_verifying())
    }

    /// Returns whether the driver may read from this connection: neither the node nor an unfinished delivery
    /// has paused it, so that its messages keep their order.
    #[must_use]
    pub fn reads(&self, key: ClientKey) -> bool {
        self.entries[key].reads()
    }

    /// Handles the outcome of a password check that [`Node::poll_verify`] handed out: `good` is true if the
    /// password is right. The node then admits the client, and otherwise closes its connection.
    pub fn handle_verified(&mut self, now: Time, key: ClientKey, cid: u64, good: bool) {
        let Some(entry) = self.entries.get_mut(key).filter(|e| e.session.cid == cid) else {
            return;
        };
        let step = entry
            .session
            .handle_verified(now, good, &self.settings.sessions);
        self.carry_out(now, key, step);
        self.tell_connected(key);
        self.touch(key);
        self.resumed.push(key);
        self.arm(key);
    }

    /// Records that the client's socket took `len` bytes. If the socket is full, these are fewer bytes than
    /// the outbox holds, and the rest waits. With a smaller backlog, the publishers that wait for this client
    /// go on.
    pub fn handle_written(&mut self, now: Time, key: ClientKey, len: usize) {
        let entry = &mut self.entries[key];
        entry.dirty = false;
        entry.written = now;
        entry.session.out.take(len, &mut self.pool);
        entry.session.handle_written(now, len > 0);
        let (pending, closing) = (entry.session.out.len(), entry.session.is_closing());
        if pending <= stall_bytes(&self.settings) / 2 && !entry.waiters.is_empty() {
            for waiter in std::mem::take(&mut entry.waiters) {
                self.resume(waiter);
            }
        }
        if closing && pending == 0 {
            self.finish(now, key);
        } else {
            self.arm(key);
        }
    }

    /// Closes a connection in the node for this reason: the client or an error has closed it, or the driver
    /// wants to close it. The node removes the client's subscriptions.
    pub fn handle_closed(&mut self, now: Time, key: ClientKey, reason: CloseReason) {
        self.close(now, key, reason);
    }

    /// Handles the connections' deadlines that have passed, and continues the tasks that the node does in
    /// parts to keep turns short: messages to many receivers, the removal of many subscriptions, and lame
    /// duck mode.
    pub fn handle_timeouts(&mut self, now: Time) {
        for _ in 0..TIMEOUTS_AT_ONCE {
            let Some(key) = self.timers.pop(now) else {
                break;
            };
            if !self.contains(key) {
                continue;
            }
            let paused = !self.entries[key].session.reads();
            let step = self.entries[key]
                .session
                .handle_timeout(now, &self.settings.sessions);
            // The time for a closing connection's last bytes is over, and the client has not read them, so
            // the node ends the connection now.
            let last_words_over = self.entries[key].session.is_closing();
            if last_words_over && matches!(step, Action::Close(_)) {
                self.finish(now, key);
                continue;
            }
            self.carry_out(now, key, step);
            if paused && self.entries.get(key).is_some_and(|e| e.session.reads()) {
                self.resumed.push(key);
            }
            self.touch(key);
            self.arm(key);
        }
        if let Some(peers) = &mut self.peers {
            peers.handle_timeouts(now);
        }
        self.go_on_spreading(now);
        self.go_on_leaving();
        self.limp(now);
    }

    fn carry_out(&mut self, now: Time, key: ClientKey, step: Action<'_>) {
        match step {
            Action::More | Action::Done => {}
            Action::Publish(message) => self.publish(now, key, &message),
            Action::Greeted => self.confirm(key),
            Action::Subscribe {
                subject,
                queue,
                sid,
            } => self.subscribe(key, subject, queue, sid),
            Action::Unsubscribe { sid, max } => self.unsubscribe(key, sid, max),
            Action::Verify { password, hash } => {
                let session = &self.entries[key].session;
                let verify = Verify {
                    key,
                    cid: session.cid,
                    password,
                    hash,
                };
                let displaced = self.passwords.push(session.address.ip(), verify);
                if let Some(displaced) = displaced {
                    // The queue of passwords is full and has dropped this check, so the node closes its
                    // connection: the check would have come after the client's timeout.
                    self.close(now, displaced.key, CloseReason::AuthenticationTimeout);
                }
            }
            Action::Close(reason) => self.close(now, key, reason),
        }
    }

    fn subscribe(&mut self, key: ClientKey, pattern: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
        let session = &self.entries[key].session;
        if !session.subs.contains_key(sid) {
            let filtered = session.permissions().is_some_and(|p| p.filters(pattern));
            let kept = system::kept(session.account(), pattern);
            let pattern = &*kept;
            self.system.subscriptions += usize::from(account::is_inner(pattern));
            let interest = match self.is_leaders_own(pattern) {
                // The messages between leaders must not reach clients, so peers do not learn of this
                // subscription.
                true => 0,
                false => self.want(pattern, queue),
            };
            self.next_sub += 1;
            spend(Work::Subscribe, 1);
            let sub = self.subs.insert(Subscription {
                owner: Party::Client(key),
                number: self.next_sub,
                sid: sid.into(),
                pattern: pattern.into(),
                queue: queue.map(Into::into),
                interest,
                members: 1,
                filtered,
                delivered: 0,
                max: 0,
            });
            let sub = SubKey::try_from(sub).expect("subscriptions take more than a byte each");
            let session = &mut self.entries[key].session;
            session.subs.insert(sid.into(), sub);
            self.sublist.insert(pattern, queue, sub);
            self.subscribed(pattern);
        }
        self.entries[key].session.ok();
    }

    fn unsubscribe(&mut self, key: ClientKey, sid: &[u8], max: u64) {
        let session = &mut self.entries[key].session;
        if let Some(sub) = session.subs.get(sid).copied() {
            let state = &mut self.subs[sub as usize];
            state.max = max;
            if max == 0 || state.delivered >= max {
                self.remove_subscription(sub);
            }
        }
        self.entries[key].session.ok();
    }

    fn remove_subscription(&mut self, key: SubKey) {
        spend(Work::Unsubscribe, 1);
        let sub = self.subs.remove(key as usize);
        self.sublist.remove(&sub.pattern, key);
        self.system.subscriptions -= usize::from(account::is_inner(&sub.pattern));
        match (sub.owner, &mut self.peers) {
            (Party::Peer(slot), Some(peers)) => peers.forget(slot, &sub.sid, key),
            (Party::Peer(_), None) => {}
            (Party::Client(key), _) => {
                self.entries[key].session.subs.remove(&sub.sid);
                if !self.is_leaders_own(&sub.pattern) {
                    self.unwant(&sub.pattern, sub.queue.as_deref());
                }
            }
        }
    }

    fn publish(&mut self, now: Time, key: ClientKey, message: &Publish<'_>) {
        self.stats.traffic.in_msgs += 1;
        self.stats.traffic.in_bytes += message.size() as u64;
        if self.entries[key].session.account() == Account::System {
            return self.publish_system(now, key, message);
        }
        // Only leaders may publish to the subjects of the messages between leaders, so the node does not
        // deliver this message.
        let own = self.is_leaders_own(message.subject);
        let from = Party::Client(key);
        self.note_request(now, key, message);
        let traced = match own {
            true => Traced::No,
            false => self.publish_traced(now, from, message, None),
        };
        let delivered = match traced {
            Traced::Done => return,
            Traced::Delivered(delivered) => delivered,
            Traced::No => {
                let to = message.subject;
                !own && self.route(now, Some(from), to, message, None).is_some()
            }
        };
        let taken = !own && self.capture(now, from, message);
        if taken {
            self.spreading.handle_taken(from);
        }
        if taken || message.reply.is_none() {
            return;
        }
        match delivered {
            true => self.answer_unserved(now, message),
            false if self.ask_system(Some(key), message) => {}
            false => self.no_responders(key, message),
        }
    }

    /// Delivers a message to the subscribers of the subject `to`. `from` is the publisher; `None` for a
    /// message of the node itself. `came` is the frame in which a peer sent the message; it names the
    /// receivers. The node passes a peer's message on to another node only for a queue group that has no
    /// members left on this node (`queue_groups`). A message with many receivers reaches a part of them now,
    /// and the others later ([`spreading`]).
    ///
    /// Returns the backlog of the fullest receiver in bytes; `None` if the message has no receiver.
    fn route(
        &mut self,
        now: Time,
        from: Option<Party>,
        to: &[u8],
        message: &Publish<'_>,
        came: Option<&Routed<'_>>,
    ) -> Option<usize> {
        // Streams answer a system client at a subject of its account, which the client sees without the
        // account's token.
        let outer;
        let message = match account::is_inner(message.subject) {
            true => {
                let subject = account::outer(message.subject);
                outer = Publish {
                    subject,
                    ..*message
                };
                &outer
            }
            false => message,
        };
        let of_system = account::is_inner(to);
        let wants = came.is_none() && !of_system && self.wants_to_know(from, message);
        let asks = match came {
            Some(came) => came.asks && !came.plain,
            None => wants && self.asks(to, message),
        };
        spend(Work::Publish, 1);
        if !self.audits.is_empty() {
            self.audit_answer(to, message);
        }
        let mut lent = self.sublist.lend(to);
        if lent.matches.is_empty() {
            self.sublist.put_back(lent);
            return None;
        }
        let client = from.and_then(Party::client);
        let entry = client.and_then(|key| self.entries.get(key));
        let sender = Sender {
            from,
            echo: entry.is_none_or(|entry| entry.session.options.echo),
            asks,
            wants,
        };
        if from.is_some() && spreading::is_divided(lent.matches.len(), message.size()) {
            if let Some(notes) = &mut self.tracing {
                let subs = &self.subs;
                let owner = |sub| subs.get(sub as usize).map(|sub: &Subscription| sub.owner);
                notes.note_first(&lent.matches, owner);
                if notes.only {
                    self.sublist.put_back(lent);
                    return Some(0);
                }
            }
            let matches = self.sublist.keep(lent);
            return self.spread(now, sender, to, message, came, matches);
        }
        self.sublist.gather(&mut lent.matches, usize::MAX);
        let mut reached = Reached::default();
        let mut fanout = self.fanout(now, sender, to, message, came, u64::MAX);
        fanout.deliver_part(&lent.matches, &mut reached, usize::MAX);
        let routed = fanout.send_to_peers();
        let (copies, behind, pending_bytes) = (fanout.copies, fanout.behind, fanout.pending_bytes);
        let copied = fanout.copied;
        self.count_copies(copies, routed, message.size() as u64, copied);
        self.sublist.put_back(lent);
        self.settle(now, from, behind);
        reached.any.then_some(pending_bytes)
    }

    /// Prepares the delivery of a message to the subscriptions with a number below `before`, because the node
    /// made only these before the message.
    fn fanout<'a, 'm>(
        &'a mut self,
        now: Time,
        sender: Sender,
        to: &'a [u8],
        message: &'a Publish<'m>,
        came: Option<&'a Routed<'m>>,
        before: u64,
    ) -> Fanout<'a, 'm> {
        self.whole.prepare(message, true);
        Fanout {
            now,
            sender,
            before,
            to,
            message,
            max_pending: self.settings.max_pending,
            stall_bytes: stall_bytes(&self.settings),
            whole: &mut self.whole,
            bare: &mut self.bare,
            bare_ready: false,
            several: false,
            entries: &mut self.entries,
            subs: &mut self.subs,
            peers: self.peers.as_deref_mut(),
            came,
            is_sorted: false,
            pool: &mut self.pool,
            random: &mut self.random,
            dirty: &mut self.dirty,
            ended: &mut self.ended,
            slow: &mut self.slow,
            tracing: self.tracing.as_deref_mut(),
            copies: 0,
            copied: 0,
            pending_bytes: 0,
            behind: None,
        }
    }

    /// Counts the copies of a message for clients (`copies`) and for peers (`routed`), for the monitor and
    /// for the decision when the driver writes. `copied` is the number of bytes that the node has copied for
    /// clients.
    fn count_copies(&mut self, copies: u64, routed: u64, size: u64, copied: usize) {
        spend(Work::Copy, copies + routed);
        spend(Work::CopyByte, copied as u64 + routed * size);
        self.stats.traffic.out_msgs += copies;
        self.stats.traffic.out_bytes += copies * size;
        self.stats.routed_out += routed;
        self.gathered.items += copies + routed;
        self.gathered.bytes += (copies + routed) * size;
    }

    /// Does the work that a delivery leaves undone while it borrows the sublist: ends subscriptions that
    /// reached their maximum, closes slow receivers, and pauses the publisher for a receiver with a large
    /// backlog.
    fn settle(&mut self, now: Time, from: Option<Party>, behind: Option<Party>) {
        while let Some(sub) = self.ended.pop() {
            self.remove_subscription(sub);
        }
        while let Some(key) = self.slow.pop() {
            self.close(now, key, CloseReason::SlowPending);
        }
        if let (Some(behind), Some(from)) = (behind, from)
            && behind != from
        {
            self.pause_for(now, behind, from);
        }
    }

    /// Pauses the publisher `from`, so that the receiver `behind` can catch up: until that receiver has read
    /// part of its backlog, or until the longest pause is over.
    fn pause_for(&mut self, now: Time, behind: Party, from: Party) {
        if from.client().is_some_and(|key| !self.entries.contains(key)) {
            return;
        }
        let (waiters, stall) = match (behind, &mut self.peers) {
            (Party::Client(key), _) => match self.entries.get_mut(key) {
                Some(entry) => (&mut entry.waiters, STALL),
                None => return,
            },
            (Party::Peer(slot), Some(peers)) => {
                let takes = peers.takes(now, slot);
                let stall = if takes { routes::TAKING_STALL } else { STALL };
                (peers.waiters(slot), stall)
            }
            (Party::Peer(_), None) => return,
        };
        if !waiters.contains(&from) {
            waiters.push(from);
        }
        match (from, &mut self.peers) {
            (Party::Client(key), _) => self.entries[key].session.pause(now + stall),
            (Party::Peer(slot), Some(peers)) => peers.pause(slot, now + routes::PEER_STALL),
            (Party::Peer(_), None) => {}
        }
        self.stats.stalls += 1;
    }

    /// Sends the status `no responders` to a requester, so that it does not wait in vain, if its CONNECT asks
    /// for that and it subscribes to the message's reply subject.
    fn no_responders(&mut self, from: ClientKey, message: &Publish<'_>) {
        let wanted = self
            .entries
            .get(from)
            .is_some_and(|e| e.session.options.no_responders);
        let Some(reply) = message.reply.filter(|_| wanted) else {
            return;
        };
        let at = system::kept(self.entries[from].session.account(), reply);
        let found = {
            let mut all = self.sublist.matches(&at).iter();
            all.find(|sub| self.subs[*sub as usize].owner == Party::Client(from))
        };
        let Some(sub) = found else { return };
        let state = &mut self.subs[sub as usize];
        state.delivered += 1;
        let over = state.max > 0 && state.delivered >= state.max;
        op::no_responders(
            &mut self.entries[from].session.out,
            reply,
            &state.sid,
            message.subject,
        );
        if over {
            self.remove_subscription(sub);
        }
        self.touch(from);
    }

    fn close(&mut self, now: Time, key: ClientKey, reason: CloseReason) {
        let Some(entry) = self.entries.get_mut(key).filter(|e| !e.gone) else {
            return;
        };
        if !entry.session.is_closing() {
            entry.reason = reason;
            entry.subscriptions = entry.session.subs.len();
            entry.session.close(now, reason);
            self.passwords.remove(entry.session.cid);
            self.stats.slow_consumers += u64::from(reason.is_slow_consumer());
            self.stats.slow_pending += u64::from(reason == CloseReason::SlowPending);
            self.stats.stale_connections += u64::from(reason == CloseReason::Stale);
            self.stats.auth_failures += u64::from(reason.is_failed_login());
            for waiter in std::mem::take(&mut entry.waiters) {
                self.resume(waiter);
            }
            self.leave(key);
        }
        // The client no longer reads, so the node drops the bytes that wait for the client instead of writing
        // them.
        let deaf = matches!(reason, CloseReason::ClientClosed | CloseReason::Io)
            || reason.is_slow_consumer();
        if deaf {
            self.finish(now, key);
        } else {
            self.touch(key);
            self.arm(key);
        }
    }

    /// Ends a closed connection: drops its unwritten bytes, moves its facts to the recently closed
    /// connections for the monitor, and tells the driver to drop the socket.
    fn finish(&mut self, now: Time, key: ClientKey) {
        self.tell_disconnected(now, key);
        let entry = &mut self.entries[key];
        let session = &mut entry.session;
        let past = ClosedConnection::take(session, now, entry.reason, entry.subscriptions);
        self.recently_closed.push(past);
        entry.session.out.clear(&mut self.pool);
        entry.gone = true;
        if entry.spreading {
            self.spreading.forget(Party::Client(key));
        }
        self.timers.arm(key, Time::NEVER);
        entry.dirty = false;
        self.passwords.remove(entry.session.cid);
        self.closed.push_back((key, entry.reason));
        self.gone += 1;
    }

    /// Frees the key of an ended connection for a new one, once the driver has dropped the socket and the
    /// node has removed all of the connection's subscriptions.
    fn forget(&mut self, key: ClientKey) {
        let entry = &self.entries[key];
        if entry.dropped && !entry.leaving {
            self.entries.remove(key);
            self.gone -= 1;
        }
    }

    fn resume(&mut self, party: Party) {
        match (party, &mut self.peers) {
            (Party::Peer(slot), Some(peers)) => peers.resume(slot),
            (Party::Peer(_), None) => {}
            (Party::Client(key), _) => {
                // The key may belong to a new connection by now, but it does no harm to resume that
                // connection, which is not paused.
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.session.resume();
                    self.resumed.push(key);
                }
            }
        }
    }

    /// Lists the connection for writing again, because its socket took only a part of the outbox, so that the
    /// driver writes the rest.
    pub fn handle_more_to_write(&mut self, key: ClientKey) {
        self.touch(key);
    }

    fn touch(&mut self, key: ClientKey) {
        if let Some(entry) = self.entries.get_mut(key)
            && !entry.gone
            && (!entry.session.out.is_empty() || entry.session.is_closing())
            && !std::mem::replace(&mut entry.dirty, true)
        {
            self.dirty.push(key, entry.session.out.len());
        }
    }

    fn arm(&mut self, key: ClientKey) {
        if let Some(entry) = self.entries.get(key).filter(|e| !e.gone) {
            self.timers
                .arm(key, entry.session.deadline(&self.settings.sessions));
        }
    }
}

fn stall_bytes(settings: &Settings) -> usize {
    STALL_BYTES.min(settings.max_pending / 4 * 3)
}
