//! The state machine of one client connection: takes the client's bytes, and returns [`Action`]s for the
//! node and an [`Outbox`] for the client.
//!
//! A session enforces the order of operations (greeting, CONNECT, credentials, then all other operations).
//! The session owns the options that the client chose, the client's permissions, the connection's deadlines,
//! and the bytes that wait to be written to the client. Effects on other connections belong to the node: the
//! session returns subscriptions and messages as actions, and the node carries them out.
//!
//! The node calls [`Session::next`] until it returns [`Action::More`], and then reads more bytes. After each
//! event the node calls [`Session::deadline`], to arm its timer.

// `core::net` rather than `std::net`, because an address is plain data and this crate uses no sockets.
use core::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;

pub use super::close::CloseReason;
use super::connect::{Connect, Info};
use super::op::{self, text};
use super::outbox::Outbox;
use super::parse::{Op, ParseError, ParseLimits, Parser, Publish};
use super::permissions::{Permissions, Responses};
use super::settings::{Account, Credentials, SessionSettings, User};
use super::subject;
use super::sublist::SubKey;
use super::system;
use crate::collections::ByteMap;

/// The time that a client has to read the last bytes of a closing connection, such as an `-ERR`.
const CLOSING: Duration = Duration::from_secs(2);

/// The action that one operation of a client requires of the node, because it concerns more than this
/// session.
#[derive(Debug)]
pub enum Action<'a> {
    /// The session waits for more bytes from the client, or for the node's answer to [`Action::Verify`].
    More,
    /// The session handled the operation itself, so the node has nothing to do.
    Done,
    /// The client sent its first PING, which ends its greeting, and the session put the PONG into the outbox.
    /// The node may send a further INFO from now on.
    Greeted,
    /// The client published this message: the node delivers it to the subscriptions that match its subject.
    Publish(Publish<'a>),
    /// The node adds a subscription for the client, then calls [`Session::ok`].
    Subscribe {
        /// The well-formed pattern to which the client subscribes. The client's permissions allow it.
        subject: &'a [u8],
        /// The queue group that the client joins with its subscription; `None` if it joins none.
        queue: Option<&'a [u8]>,
        /// The name (sid) that the client gives its new subscription. Deliveries carry this name.
        sid: &'a [u8],
    },
    /// The node ends a subscription of the client after `max` messages in total, or now if `max` is 0, and
    /// then calls [`Session::ok`].
    Unsubscribe {
        /// The name (sid) by which the client knows the subscription.
        sid: &'a [u8],
        /// The total number of messages after which the subscription ends; 0 ends it now.
        max: u64,
    },
    /// The node checks the client's password against a bcrypt hash on another thread, because that is slow,
    /// then calls [`Session::handle_verified`].
    Verify {
        /// The password that the client sent in its CONNECT.
        password: String,
        /// The configured bcrypt hash, which the password must match.
        hash: Arc<str>,
    },
    /// The node must close the client's connection, for this reason.
    Close(CloseReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The session waits for the end of the TLS handshake.
    Securing,
    /// The session accepts only CONNECT, because the client must first present its credentials.
    Connecting,
    /// The session waits for the node's check of the client's password.
    Verifying,
    Open,
    Closing,
}

/// The counts of messages and bytes of one connection, for monitoring: `in` from the client to the server,
/// `out` from the server to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of messages that the client has published.
    pub in_msgs: u64,
    /// The number of bytes that the client has published, in headers and payloads.
    pub in_bytes: u64,
    /// The number of messages that the server has delivered to the client.
    pub out_msgs: u64,
    /// The number of bytes that the server has delivered to the client, in headers and payloads.
    pub out_bytes: u64,
}

/// The state of one client connection; see the [module](self).
#[derive(Debug)]
pub struct Session {
    /// The connection's number, by which monitoring and logs know it. No other connection of this process
    /// has the number.
    pub cid: u64,
    /// The client's address, for monitoring and logs.
    pub address: SocketAddr,
    /// The time at which the server accepted the connection, for monitoring.
    pub since: Time,
    /// The time at which bytes last arrived from the client. The next PING depends on it.
    pub active: Time,
    /// The options and facts that the client stated in its CONNECT, which the session and the node obey.
    pub options: Connect,
    /// The numbers of messages and bytes that the connection has carried so far, for monitoring.
    pub traffic: Traffic,
    /// The bytes that the node still has to write to the client.
    pub out: Outbox,
    /// The client's subscriptions, by the names (sids) that the client gave them, so that an UNSUB finds
    /// them.
    pub subs: ByteMap<SubKey>,
    /// True if TLS protects the connection, for monitoring.
    pub secured: bool,
    /// True once the server has admitted the client by its CONNECT. A second CONNECT does not count as a
    /// login.
    pub admitted: bool,
    user: Option<Arc<User>>,
    /// True from the admission of the client by its CONNECT until the node has learned of the admission.
    newly_admitted: bool,
    /// The user that the client becomes if the node finds that the password is right.
    claimed: Option<Arc<User>>,
    responses: Responses,
    parser: Parser,
    phase: Phase,
    greeted: bool,
    pings_out: u32,
    /// The time at which the session's current phase must end; in the open phase, the time at which the
    /// session must send the next PING.
    due: Time,
    /// The rest of the client's time for the TLS handshake, while the handshake waits in the server's queue
    /// and the client's time stands still.
    left: Duration,
    /// The time since which the socket has accepted none of the bytes that wait in the outbox; `None` if no
    /// bytes wait for the socket. The write deadline counts from it.
    blocked: Option<Time>,
    /// The time until which the server reads nothing from the client, because the client publishes faster
    /// than a receiver of its messages reads; `None` while the server reads.
    paused: Option<Time>,
}

impl Session {
    /// Creates the session of a connection that the server accepted at `now`. `handshake` is the time that a
    /// TLS handshake may take; then the session parses no input before [`Session::handle_secured`]. With
    /// `None` the session parses input at once.
    #[must_use]
    pub fn new(
        now: Time,
        cid: u64,
        address: SocketAddr,
        handshake: Option<Duration>,
        settings: &SessionSettings,
    ) -> Self {
        let mut session = Self {
            cid,
            address,
            since: now,
            active: now,
            options: Connect::default(),
            traffic: Traffic::default(),
            out: Outbox::default(),
            subs: ByteMap::default(),
            secured: false,
            admitted: false,
            user: None,
            newly_admitted: false,
            claimed: None,
            responses: Responses::default(),
            parser: Parser::default(),
            phase: Phase::Securing,
            greeted: false,
            pings_out: 0,
            due: now + handshake.unwrap_or_default(),
            left: Duration::ZERO,
            blocked: None,
            paused: None,
        };
        if handshake.is_none() {
            session.open(now, settings);
        }
        session
    }

    /// Records that the client has completed the TLS handshake (`tls` is true), or has chosen to connect
    /// without TLS.
    pub fn handle_secured(&mut self, now: Time, tls: bool, settings: &SessionSettings) {
        if self.phase == Phase::Securing {
            self.secured = tls;
            self.open(now, settings);
        }
    }

    /// Stops the client's time for the TLS handshake, because the handshake now waits in the server's queue
    /// and not for the client.
    pub fn handle_queued(&mut self, now: Time) {
        if self.phase == Phase::Securing && self.due != Time::NEVER {
            self.left = self.due - now;
            self.due = Time::NEVER;
        }
    }

    /// Lets the rest of the client's time for the TLS handshake run again, because the handshake has left the
    /// server's queue.
    pub fn handle_unqueued(&mut self, now: Time) {
        if self.phase == Phase::Securing && self.due == Time::NEVER {
            self.due = now + self.left;
        }
    }

    /// Handles the next operation of the client in `input`. Returns the action that the operation requires
    /// of the node, and the number of bytes that the operation took.
    #[inline]
    pub fn next<'a>(
        &mut self,
        now: Time,
        input: &'a [u8],
        settings: &SessionSettings,
    ) -> (Action<'a>, usize) {
        if self.phase != Phase::Open && self.phase != Phase::Connecting {
            return (Action::More, 0);
        }
        // Before the client has presented its credentials, the session parses nothing but CONNECT, so that
        // the client cannot make the server buffer a payload.
        if self.phase == Phase::Connecting
            && input
                .first()
                .is_some_and(|b| !b.eq_ignore_ascii_case(&b'c'))
        {
            return (Action::Close(CloseReason::AuthenticationViolation), 0);
        }
        let limits = ParseLimits {
            control_line_bytes_max: settings.max_control_line,
            payload_bytes_max: settings.max_payload,
        };
        match self.parser.next(input, &limits) {
            Ok(None) => (Action::More, 0),
            Ok(Some((op, used))) => (self.operation(now, op, settings), used),
            Err(e) => {
                let reason = match e {
                    ParseError::Operation => CloseReason::ParseError,
                    ParseError::ControlLine => CloseReason::ControlLine,
                    ParseError::Payload => CloseReason::Payload,
                };
                (Action::Close(reason), 0)
            }
        }
    }

    /// Returns the number of input bytes that [`Session::next`] needs to make progress, so that the node
    /// makes room for them.
    #[must_use]
    pub const fn need(&self) -> usize {
        self.parser.need()
    }

    /// Handles the node's answer to [`Action::Verify`]: `good` is true if the password matches the hash.
    pub fn handle_verified(
        &mut self,
        now: Time,
        good: bool,
        settings: &SessionSettings,
    ) -> Action<'static> {
        if self.phase != Phase::Verifying {
            return Action::Done;
        }
        match self.claimed.take().filter(|_| good) {
            Some(user) => self.admit(now, Some(user), settings),
            None => Action::Close(CloseReason::AuthenticationViolation),
        }
    }

    /// Records that bytes arrived from the client at `now`, so that the session need not send a PING soon.
    pub const fn handle_activity(&mut self, now: Time) {
        self.active = now;
        self.pings_out = 0;
    }

    /// Records a write of outbox bytes to the socket. `progress` says whether the socket accepted any of
    /// them; a socket that accepts none for too long ends the connection.
    pub fn handle_written(&mut self, now: Time, progress: bool) {
        if self.out.is_empty() {
            self.blocked = None;
        } else if progress || self.blocked.is_none() {
            self.blocked = Some(now);
        }
    }

    /// Handles each of the session's deadlines that has passed: the end of a pause, the write deadline, and
    /// the end of a phase or the next PING.
    pub fn handle_timeout(&mut self, now: Time, settings: &SessionSettings) -> Action<'static> {
        if self.paused.is_some_and(|t| t <= now) {
            self.paused = None;
        }
        if self
            .blocked
            .is_some_and(|t| t + settings.write_deadline <= now)
        {
            return Action::Close(CloseReason::SlowDeadline);
        }
        if now < self.due {
            return Action::Done;
        }
        match self.phase {
            Phase::Securing => Action::Close(CloseReason::Tls),
            Phase::Connecting | Phase::Verifying => {
                Action::Close(CloseReason::AuthenticationTimeout)
            }
            Phase::Closing => Action::Close(CloseReason::ClientClosed),
            Phase::Open => self.ping(now, settings),
        }
    }

    /// Returns the time at which the node must call [`Session::handle_timeout`], so that it can arm its
    /// timer.
    #[must_use]
    pub fn deadline(&self, settings: &SessionSettings) -> Time {
        let mut at = self.due;
        if let Some(blocked) = self.blocked {
            at = at.min(blocked + settings.write_deadline);
        }
        if let Some(paused) = self.paused {
            at = at.min(paused);
        }
        at
    }

    /// Returns whether the server may read from the client now: not during a pause, a check of the password
    /// or a close.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.paused.is_none() && !matches!(self.phase, Phase::Verifying | Phase::Closing)
    }

    /// Returns whether the node is still checking the client's password.
    #[must_use]
    pub fn is_verifying(&self) -> bool {
        self.phase == Phase::Verifying
    }

    /// Returns whether the connection is closing, so that only the last bytes are still to be written.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.phase == Phase::Closing
    }

    /// Returns whether the session handles all operations: the server has admitted the client, and the
    /// connection is not closing.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Stops reading from the client until `until`, because a receiver of the client's messages is behind.
    pub const fn pause(&mut self, until: Time) {
        self.paused = Some(until);
    }

    /// Ends a pause, so that the server reads from the client again.
    pub const fn resume(&mut self) {
        self.paused = None;
    }

    /// Begins to close the connection: stops reading from the client, and sends the client the text of
    /// `reason`, if the reason has one.
    pub fn close(&mut self, now: Time, reason: CloseReason) {
        if let Some(text) = reason.text() {
            op::err(&mut self.out, text);
        }
        self.phase = Phase::Closing;
        self.due = now + CLOSING;
        self.paused = None;
    }

    /// Writes `+OK` to the outbox after a successful operation, if the client asked for such answers in its
    /// CONNECT.
    pub fn ok(&mut self) {
        if self.options.verbose {
            self.out.append(&[b"+OK\r\n"]);
        }
    }

    /// Sends an INFO that the client did not ask for, if the client's protocol level allows that and its
    /// greeting is over.
    pub fn inform(&mut self, info: &Info) {
        if self.phase == Phase::Open && self.options.protocol >= 1 && self.greeted {
            info.write(&mut self.out);
        }
    }

    /// Returns the permissions of the client's user, for checks of subscriptions and deliveries; `None`
    /// allows everything.
    #[must_use]
    pub fn permissions(&self) -> Option<&Permissions> {
        self.user.as_ref().and_then(|u| u.permissions.as_ref())
    }

    /// Returns the name of the client's user, for monitoring.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_ref().map(|u| u.name.as_str())
    }

    /// Returns whether the server has admitted the client by its CONNECT since the last call, so that the
    /// node reports each login once.
    #[inline]
    pub fn take_newly_admitted(&mut self) -> bool {
        std::mem::take(&mut self.newly_admitted)
    }

    /// Returns the account of the client, which decides which messages can reach the client.
    #[must_use]
    pub fn account(&self) -> Account {
        self.user.as_ref().map_or(Account::Global, |u| u.account)
    }

    /// Returns whether reloaded settings still admit the client, and adopts its changed permissions. The
    /// caller then checks the client's subscriptions against the new permissions.
    pub fn readmit(&mut self, settings: &SessionSettings) -> bool {
        let Some(old) = &self.user else {
            return settings.is_open();
        };
        self.user = settings.admits_still(old);
        self.user.is_some()
    }

    /// Records that the server delivered a message with the reply subject `reply` to the client, so that the
    /// client may answer the message.
    #[inline]
    pub fn may_answer(&mut self, now: Time, reply: Option<&[u8]>) {
        let rule = self
            .user
            .as_ref()
            .and_then(|u| u.permissions.as_ref()?.responses);
        if let (Some(rule), Some(reply)) = (rule, reply) {
            self.responses.allow(now, reply, rule);
        }
    }

    fn open(&mut self, now: Time, settings: &SessionSettings) {
        if settings.needs_credentials() {
            self.phase = Phase::Connecting;
            self.due = now + settings.auth_timeout;
        } else {
            self.phase = Phase::Open;
            self.due = settings.ping_due(now);
        }
    }

    fn operation<'a>(&mut self, now: Time, op: Op<'a>, settings: &SessionSettings) -> Action<'a> {
        match op {
            Op::Publish(message) => self.publish(now, message),
            Op::Ping => {
                self.out.append(&[b"PONG\r\n"]);
                if std::mem::replace(&mut self.greeted, true) {
                    Action::Done
                } else {
                    Action::Greeted
                }
            }
            Op::Pong => Action::Done,
            Op::Subscribe {
                subject,
                queue,
                sid,
            } => self.subscribe(subject, queue, sid, settings),
            Op::Unsubscribe { sid, max } => Action::Unsubscribe { sid, max },
            Op::Connect(json) => self.connect(now, json, settings),
        }
    }

    fn connect(&mut self, now: Time, json: &[u8], settings: &SessionSettings) -> Action<'static> {
        let Ok(mut options) = Connect::parse(json) else {
            return Action::Close(CloseReason::ParseError);
        };
        options.headers &= settings.headers;
        let wrong = if !(0..=1).contains(&options.protocol) {
            Some(text::INVALID_PROTOCOL)
        } else if options.no_responders && !options.headers {
            Some(text::NO_RESPONDERS_NEEDS_HEADERS)
        } else {
            None
        };
        if let Some(text) = wrong {
            op::err(&mut self.out, text);
            return Action::Close(CloseReason::Protocol);
        }
        self.options = options;
        let given = |s: &Option<String>| s.clone().filter(|s| !s.is_empty());
        let (user, password) = (given(&self.options.user), self.options.pass.take());
        let token = given(&self.options.auth_token);
        self.options.auth_token = None;
        match settings.check(user.as_deref(), password, token) {
            Credentials::NotNeeded => self.admit(now, None, settings),
            Credentials::Good(user) => self.admit(now, Some(user), settings),
            Credentials::Wrong => Action::Close(CloseReason::AuthenticationViolation),
            Credentials::Hashed {
                user,
                password,
                hash,
            } => {
                self.claimed = Some(user);
                self.phase = Phase::Verifying;
                // The client's time for the login stands still during the check of its password, because the
                // check waits for the server's threads and not for the client.
                self.due = Time::NEVER;
                Action::Verify { password, hash }
            }
        }
    }

    fn admit(
        &mut self,
        now: Time,
        user: Option<Arc<User>>,
        settings: &SessionSettings,
    ) -> Action<'static> {
        self.user = user;
        self.newly_admitted = !self.admitted;
        self.admitted = true;
        self.phase = Phase::Open;
        self.due = settings.ping_due(now);
        self.ok();
        Action::Done
    }

    #[inline]
    fn publish<'a>(&mut self, now: Time, message: Publish<'a>) -> Action<'a> {
        self.traffic.in_msgs += 1;
        self.traffic.in_bytes += message.size() as u64;
        if message.headers.is_some() && !self.options.headers {
            return Action::Close(CloseReason::ParseError);
        }
        // The session refuses subjects in the inner form of the system account, so that no client can reach
        // that account by its subjects.
        let apart =
            system::is_inner(message.subject) || message.reply.is_some_and(system::is_inner);
        if apart || self.options.pedantic && !subject::is_literal(message.subject) {
            op::err(&mut self.out, text::INVALID_PUBLISH_SUBJECT);
            return Action::Done;
        }
        if let Some(permissions) = self.user.as_ref().and_then(|u| u.permissions.as_ref()) {
            let allowed = permissions.may_publish(message.subject)
                || permissions.responses.is_some() && self.responses.take(now, message.subject);
            if !allowed {
                op::publish_violation(&mut self.out, message.subject);
                return Action::Done;
            }
        }
        self.ok();
        Action::Publish(message)
    }

    fn subscribe<'a>(
        &mut self,
        subject: &'a [u8],
        queue: Option<&'a [u8]>,
        sid: &'a [u8],
        settings: &SessionSettings,
    ) -> Action<'a> {
        if !subject::is_pattern(subject) {
            op::err(&mut self.out, text::INVALID_SUBJECT);
            return Action::Done;
        }
        let allowed = self
            .permissions()
            .is_none_or(|p| p.may_subscribe(subject, queue));
        if !allowed {
            op::subscription_violation(&mut self.out, subject, queue);
            return Action::Done;
        }
        let full = settings.max_subscriptions > 0 && self.subs.len() >= settings.max_subscriptions;
        if full && !self.subs.contains_key(sid) {
            op::err(&mut self.out, text::MAX_SUBSCRIPTIONS);
            return Action::Done;
        }
        Action::Subscribe {
            subject,
            queue,
            sid,
        }
    }

    fn ping(&mut self, now: Time, settings: &SessionSettings) -> Action<'static> {
        let quiet_until = self.active + settings.ping_interval;
        if now < quiet_until {
            self.due = settings.ping_due(self.active).max(now);
            return Action::Done;
        }
        if self.pings_out >= settings.ping_max {
            return Action::Close(CloseReason::Stale);
        }
        self.pings_out += 1;
        self.out.append(&[b"PING\r\n"]);
        self.due = settings.ping_due(now);
        Action::Done
    }
}
