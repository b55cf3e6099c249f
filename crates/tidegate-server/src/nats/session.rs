//! One client connection, as a state: bytes in, [`Step`]s and an [`Outbox`] out.
//!
//! Owns the order of operations (greeting, CONNECT, credentials, then everything else), the options a client
//! chose, its permissions, its deadlines and what waits to be written to it. Leaves to the node whatever
//! concerns other connections: subscriptions and messages are answered as steps, which the node carries out.
//!
//! Polling order: [`Session::next`] until it answers [`Step::More`]; then read more. [`Session::deadline`]
//! after each event.

use std::collections::HashMap;
// An address is data: `core` has it, without any socket.
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
use super::subject;
use super::sublist::SubKey;
use crate::config::{Credentials, Settings, User};

/// How long a closing connection may take to read what it was sent last.
const CLOSING: Duration = Duration::from_secs(2);

/// What one operation asks of the node.
#[derive(Debug)]
pub enum Step<'a> {
    /// Nothing can be done before more bytes arrive, or before the node answers a [`Step::Verify`].
    More,
    /// Done; nothing is asked.
    Done,
    /// The client introduced itself; an INFO may follow now that its PONG is out.
    Greeted,
    /// Deliver this message.
    Publish(Publish<'a>),
    /// Add this subscription, then say [`Session::ok`].
    Subscribe {
        /// A well-formed pattern the client may subscribe to.
        subject: &'a [u8],
        /// Its queue group.
        queue: Option<&'a [u8]>,
        /// The client's name for it.
        sid: &'a [u8],
    },
    /// End this subscription after `max` messages in total, now if that is 0, then say [`Session::ok`].
    Unsubscribe {
        /// The client's name for it.
        sid: &'a [u8],
        /// Messages in total.
        max: u64,
    },
    /// Check a password against a slow hash, elsewhere, and answer with [`Session::handle_verified`].
    Verify {
        /// What the client gave.
        password: String,
        /// What the configuration says.
        hash: Arc<str>,
    },
    /// Close the connection.
    Close(CloseReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Expecting the end of the TLS handshake.
    Securing,
    /// Expecting CONNECT, because credentials are needed.
    Connecting,
    /// Its password is being checked.
    Verifying,
    Open,
    Closing,
}

/// Messages and bytes, in and out, as the server sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages published.
    pub in_msgs: u64,
    /// Their bytes, headers and payloads.
    pub in_bytes: u64,
    /// Messages delivered.
    pub out_msgs: u64,
    /// Their bytes.
    pub out_bytes: u64,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    /// The connection's number: never used twice in one process.
    pub cid: u64,
    /// The client's address.
    pub address: SocketAddr,
    /// When it was accepted.
    pub since: Time,
    /// When it last sent anything.
    pub active: Time,
    /// What it said of itself.
    pub options: Connect,
    /// Its traffic.
    pub traffic: Traffic,
    /// What waits to be written to it.
    pub out: Outbox,
    /// Its subscriptions by the names it gave them.
    pub subs: HashMap<Box<[u8]>, SubKey>,
    /// Whether TLS protects it.
    pub secured: bool,
    user: Option<Arc<User>>,
    /// Who it would be if the password being checked is right.
    claimed: Option<Arc<User>>,
    responses: Responses,
    parser: Parser,
    phase: Phase,
    greeted: bool,
    pings_out: u32,
    /// When the phase must be over, or the next PING is due.
    due: Time,
    /// Since when nothing could be written although something waits.
    blocked: Option<Time>,
    /// Until when nothing is read from it, because it is faster than a receiver.
    paused: Option<Time>,
}

impl Session {
    /// A connection accepted at `now`. With `securing` nothing is read as the protocol before
    /// [`Session::handle_secured`].
    #[must_use]
    pub fn new(
        now: Time,
        cid: u64,
        address: SocketAddr,
        securing: bool,
        settings: &Settings,
    ) -> Self {
        let mut session = Self {
            cid,
            address,
            since: now,
            active: now,
            options: Connect::default(),
            traffic: Traffic::default(),
            out: Outbox::default(),
            subs: HashMap::new(),
            secured: false,
            user: None,
            claimed: None,
            responses: Responses::default(),
            parser: Parser::default(),
            phase: Phase::Securing,
            greeted: false,
            pings_out: 0,
            due: now + settings.tls_timeout(),
            blocked: None,
            paused: None,
        };
        if !securing {
            session.open(now, settings);
        }
        session
    }

    /// The TLS handshake is over, or the client chose to do without.
    pub fn handle_secured(&mut self, now: Time, tls: bool, settings: &Settings) {
        if self.phase == Phase::Securing {
            self.secured = tls;
            self.open(now, settings);
        }
    }

    /// The next operation of `input` and how many bytes it took.
    #[inline]
    pub fn next<'a>(
        &mut self,
        now: Time,
        input: &'a [u8],
        settings: &Settings,
    ) -> (Step<'a>, usize) {
        if self.phase != Phase::Open && self.phase != Phase::Connecting {
            return (Step::More, 0);
        }
        // Nobody unknown makes the server keep a payload, or look at anything else.
        if self.phase == Phase::Connecting
            && input
                .first()
                .is_some_and(|b| !b.eq_ignore_ascii_case(&b'c'))
        {
            return (Step::Close(CloseReason::AuthenticationViolation), 0);
        }
        let limits = ParseLimits {
            control_line_bytes_max: settings.max_control_line,
            payload_bytes_max: settings.max_payload,
        };
        match self.parser.next(input, &limits) {
            Ok(None) => (Step::More, 0),
            Ok(Some((op, used))) => (self.operation(now, op, settings), used),
            Err(e) => {
                let reason = match e {
                    ParseError::Operation => CloseReason::ParseError,
                    ParseError::ControlLine => CloseReason::ControlLine,
                    ParseError::Payload => CloseReason::Payload,
                };
                (Step::Close(reason), 0)
            }
        }
    }

    /// The bytes there must be before [`Session::next`] can do anything.
    #[must_use]
    pub const fn need(&self) -> usize {
        self.parser.need()
    }

    /// The answer to a [`Step::Verify`].
    pub fn handle_verified(&mut self, now: Time, good: bool, settings: &Settings) -> Step<'static> {
        if self.phase != Phase::Verifying {
            return Step::Done;
        }
        match self.claimed.take().filter(|_| good) {
            Some(user) => self.admit(now, Some(user), settings),
            None => Step::Close(CloseReason::AuthenticationViolation),
        }
    }

    /// Bytes arrived.
    pub const fn handle_activity(&mut self, now: Time) {
        self.active = now;
        self.pings_out = 0;
    }

    /// The outbox could or could not be emptied; `progress` says whether anything was written.
    pub fn handle_written(&mut self, now: Time, progress: bool) {
        if self.out.is_empty() {
            self.blocked = None;
        } else if progress || self.blocked.is_none() {
            self.blocked = Some(now);
        }
    }

    /// A deadline has passed.
    pub fn handle_timeout(&mut self, now: Time, settings: &Settings) -> Step<'static> {
        if self.paused.is_some_and(|t| t <= now) {
            self.paused = None;
        }
        if self
            .blocked
            .is_some_and(|t| t + settings.write_deadline <= now)
        {
            return Step::Close(CloseReason::SlowDeadline);
        }
        if now < self.due {
            return Step::Done;
        }
        match self.phase {
            Phase::Securing => Step::Close(CloseReason::Tls),
            Phase::Connecting | Phase::Verifying => Step::Close(CloseReason::AuthenticationTimeout),
            Phase::Closing => Step::Close(CloseReason::ClientClosed),
            Phase::Open => self.ping(now, settings),
        }
    }

    /// When [`Session::handle_timeout`] is to be called.
    #[must_use]
    pub fn deadline(&self, settings: &Settings) -> Time {
        let mut at = self.due;
        if let Some(blocked) = self.blocked {
            at = at.min(blocked + settings.write_deadline);
        }
        if let Some(paused) = self.paused {
            at = at.min(paused);
        }
        at
    }

    /// Returns whether anything may be read from it now.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.paused.is_none() && !matches!(self.phase, Phase::Verifying | Phase::Closing)
    }

    /// Returns whether it only waits for its last bytes to be written.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.phase == Phase::Closing
    }

    /// Returns whether it was let in and is not on its way out.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Reads nothing from it until then: a receiver of its messages is behind.
    pub const fn pause(&mut self, until: Time) {
        self.paused = Some(until);
    }

    /// Reads from it again.
    pub const fn resume(&mut self) {
        self.paused = None;
    }

    /// From now on nothing is read; the client is told why, where there is a text for it.
    pub fn close(&mut self, now: Time, reason: CloseReason) {
        if let Some(text) = reason.text() {
            op::err(&mut self.out, text);
        }
        self.phase = Phase::Closing;
        self.due = now + CLOSING;
        self.paused = None;
    }

    /// `+OK`, for a client that asked for it.
    pub fn ok(&mut self) {
        if self.options.verbose {
            self.out.append(&[b"+OK\r\n"]);
        }
    }

    /// Sends an INFO that the client did not ask for, if it can read one.
    pub fn inform(&mut self, info: &Info) {
        if self.phase == Phase::Open && self.options.protocol >= 1 && self.greeted {
            info.write(&mut self.out);
        }
    }

    /// The permissions in force; `None`: everything is allowed.
    #[must_use]
    pub fn permissions(&self) -> Option<&Permissions> {
        self.user.as_ref().and_then(|u| u.permissions.as_ref())
    }

    /// The user's name, for monitoring.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_ref().map(|u| u.name.as_str())
    }

    /// Returns whether the settings, changed, still admit this connection; it takes over changed permissions.
    /// Its subscriptions are the caller's to look at.
    pub fn readmit(&mut self, settings: &Settings) -> bool {
        let Some(old) = &self.user else {
            return !settings.needs_credentials();
        };
        let new = settings
            .users
            .iter()
            .find(|u| u.name == old.name && u.secret == old.secret);
        self.user = new.cloned();
        self.user.is_some()
    }

    /// A message with a reply was delivered to it: it may answer.
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

    fn open(&mut self, now: Time, settings: &Settings) {
        if settings.needs_credentials() {
            self.phase = Phase::Connecting;
            self.due = now + settings.auth_timeout;
        } else {
            self.phase = Phase::Open;
            self.due = settings.ping_due(now);
        }
    }

    fn operation<'a>(&mut self, now: Time, op: Op<'a>, settings: &Settings) -> Step<'a> {
        match op {
            Op::Publish(message) => self.publish(now, message),
            Op::Ping => {
                self.out.append(&[b"PONG\r\n"]);
                if std::mem::replace(&mut self.greeted, true) {
                    Step::Done
                } else {
                    Step::Greeted
                }
            }
            Op::Pong => Step::Done,
            Op::Subscribe {
                subject,
                queue,
                sid,
            } => self.subscribe(subject, queue, sid, settings),
            Op::Unsubscribe { sid, max } => Step::Unsubscribe { sid, max },
            Op::Connect(json) => self.connect(now, json, settings),
        }
    }

    fn connect(&mut self, now: Time, json: &[u8], settings: &Settings) -> Step<'static> {
        let Ok(options) = serde_json::from_slice::<Connect>(json) else {
            return Step::Close(CloseReason::ParseError);
        };
        let wrong = if !(0..=1).contains(&options.protocol) {
            Some(text::INVALID_PROTOCOL)
        } else if options.no_responders && !options.headers {
            Some(text::NO_RESPONDERS_NEEDS_HEADERS)
        } else {
            None
        };
        if let Some(text) = wrong {
            op::err(&mut self.out, text);
            return Step::Close(CloseReason::Protocol);
        }
        self.options = options;
        let given = |s: &Option<String>| s.clone().filter(|s| !s.is_empty());
        let (user, password) = (given(&self.options.user), self.options.pass.take());
        let token = given(&self.options.auth_token);
        self.options.auth_token = None;
        match settings.check(user.as_deref(), password, token) {
            Credentials::NotNeeded => self.admit(now, None, settings),
            Credentials::Good(user) => self.admit(now, Some(user), settings),
            Credentials::Wrong => Step::Close(CloseReason::AuthenticationViolation),
            Credentials::Hashed {
                user,
                password,
                hash,
            } => {
                self.claimed = Some(user);
                self.phase = Phase::Verifying;
                Step::Verify { password, hash }
            }
        }
    }

    fn admit(&mut self, now: Time, user: Option<Arc<User>>, settings: &Settings) -> Step<'static> {
        self.user = user;
        self.phase = Phase::Open;
        self.due = settings.ping_due(now);
        self.ok();
        Step::Done
    }

    #[inline]
    fn publish<'a>(&mut self, now: Time, message: Publish<'a>) -> Step<'a> {
        self.traffic.in_msgs += 1;
        self.traffic.in_bytes += message.size() as u64;
        if message.headers.is_some() && !self.options.headers {
            return Step::Close(CloseReason::ParseError);
        }
        if self.options.pedantic && !subject::is_literal(message.subject) {
            op::err(&mut self.out, text::INVALID_PUBLISH_SUBJECT);
            return Step::Done;
        }
        if let Some(permissions) = self.user.as_ref().and_then(|u| u.permissions.as_ref()) {
            let allowed = permissions.may_publish(message.subject)
                || permissions.responses.is_some() && self.responses.take(now, message.subject);
            if !allowed {
                op::publish_violation(&mut self.out, message.subject);
                return Step::Done;
            }
        }
        self.ok();
        Step::Publish(message)
    }

    fn subscribe<'a>(
        &mut self,
        subject: &'a [u8],
        queue: Option<&'a [u8]>,
        sid: &'a [u8],
        settings: &Settings,
    ) -> Step<'a> {
        if !subject::is_pattern(subject) {
            op::err(&mut self.out, text::INVALID_SUBJECT);
            return Step::Done;
        }
        let allowed = self
            .permissions()
            .is_none_or(|p| p.may_subscribe(subject, queue));
        if !allowed {
            op::subscription_violation(&mut self.out, subject, queue);
            return Step::Done;
        }
        let full = settings.max_subscriptions > 0 && self.subs.len() >= settings.max_subscriptions;
        if full && !self.subs.contains_key(sid) {
            op::err(&mut self.out, text::MAX_SUBSCRIPTIONS);
            return Step::Done;
        }
        Step::Subscribe {
            subject,
            queue,
            sid,
        }
    }

    fn ping(&mut self, now: Time, settings: &Settings) -> Step<'static> {
        let quiet_until = self.active + settings.ping_interval;
        if now < quiet_until {
            self.due = settings.ping_due(self.active).max(now);
            return Step::Done;
        }
        if self.pings_out >= settings.ping_max {
            return Step::Close(CloseReason::Stale);
        }
        self.pings_out += 1;
        self.out.append(&[b"PING\r\n"]);
        self.due = settings.ping_due(now);
        Step::Done
    }
}
