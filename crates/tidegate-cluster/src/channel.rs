//! The state machine of one connection to or from a peer: handles the greeting, then frames, and knows the
//! deadlines after which the connection counts as dead.
//!
//! [`Channel::out`] holds only the frames of the greeting and the pongs. The frames that a node sends as the
//! dialer after the greeting wait in a separate outbox of the node.

use std::time::Duration;

use tidegate::Time;
use tidegate_nats::outbox::Outbox;

use super::Kind;
use super::greeting::{Greeting, GreetingError, Introduction, Judge};
use super::proof::{Binding, Side};
use super::refusal::Refusal;
use super::wire::{FRAME_BYTES_MAX, Frame, GREETING_BYTES_MAX, Read, WireError, read};

/// The interval at which the dialer sends pings and the dialled node sends pongs, so that each sees that the
/// other is alive. The dialled node does not wait for a ping, because it may have a lot to read before it
/// reaches the ping.
pub const PING_EVERY: Duration = Duration::from_secs(3);
/// The time without a byte from the peer after which a node closes an open channel, because the peer or the
/// network must have failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The time that a greeting may take, from the dial or from the end of the TLS handshake on, so that a
/// silent stranger does not hold a connection.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// The number of waiting bytes from which on the dialled node queues no further pong: the dialer does not
/// read then, and pongs would only fill the outbox.
const PONGS_BYTES_MAX: usize = 1024;
/// The first bytes of a TLS connection: the type of a handshake record and the major version. By these bytes
/// a node tells TLS from a greeting: the length of a greeting's frame never begins with them and a third
/// byte other than 0.
const TLS_BEGINS: [u8; 2] = [0x16, 3];

/// The reason why a channel to or from a peer is over, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The greeting between the two nodes failed, so the channel was never open.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// The bytes that this node received from the peer are not a frame, so this node cannot find the next
    /// frame.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer sent a frame at the wrong time, or a frame that this kind of channel does not carry: for
    /// example a message during the greeting, or a Raft frame on a channel for routes.
    #[error(
        "the peer sent a frame that does not belong on this channel: run the same version of tidegate on all nodes"
    )]
    Order,
    /// The peer sent no byte for longer than `SILENCE_MAX`, so this node counts it as gone.
    #[error("the peer sent nothing for {} seconds", SILENCE_MAX.as_secs())]
    Silent,
    /// The peer did not complete the TLS handshake in the allowed time, so this node gives the connection
    /// up.
    #[error("the peer completed no TLS handshake within {0:?}")]
    Handshake(Duration),
    /// The peer did not complete the greeting within `GREETING_MAX`, so this node gives the connection up.
    #[error("the peer completed no greeting within {} seconds", GREETING_MAX.as_secs())]
    Late,
    /// The peer read no bytes for the write deadline, although bytes waited for it.
    #[error("the peer read nothing for {0:?}")]
    Deaf(Duration),
}

impl ChannelError {
    /// Returns the refusal, if a refusal by either node ended the channel; the node then waits longer before
    /// it dials again.
    #[must_use]
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Greeting(GreetingError::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }
}

/// The result of handling received bytes: the next step of the node that owns the channel.
#[derive(Debug)]
pub enum Effect<'a> {
    /// The channel needs more bytes: it continues once the input holds this number of bytes.
    Need(usize),
    /// The channel handled the frame itself, so the node has nothing to do.
    Done,
    /// The greeting is over and the channel is open. The field is the peer's introduction.
    Open(Introduction),
    /// The dialer sent this frame, and the node must handle it.
    Frame(Frame<'a>),
}

/// Returns whether these first three bytes of a connection begin a TLS handshake, so that a node without TLS
/// can refuse it.
#[must_use]
pub fn begins_tls(first: [u8; 3]) -> bool {
    first[..2] == TLS_BEGINS && first[2] != 0
}

#[derive(Debug)]
enum State {
    Greeting(Box<Greeting>),
    Open(Side, Kind),
}

/// The state machine of one connection to or from a peer; see the [module](self).
#[derive(Debug)]
pub struct Channel {
    state: State,
    /// The frames that wait to be sent to the peer: those of the greeting, and pongs.
    pub out: Outbox,
    since: Time,
    /// The time allowed for the TLS handshake that precedes the greeting; `None` without a TLS handshake or
    /// after it.
    handshake: Option<Duration>,
    heard: Time,
    /// The time since which the socket has accepted none of the bytes that wait for the peer; `None` if no
    /// bytes wait.
    blocked: Option<Time>,
    write_deadline: Duration,
}

impl Channel {
    /// Creates the channel of a connection that this node dialled. `nonce` is a random number for the
    /// proofs, and no other greeting uses it. `handshake` is the time allowed for a TLS handshake, if the
    /// channel uses TLS.
    #[must_use]
    pub fn dial(
        now: Time,
        kind: Kind,
        nonce: [u8; 32],
        write_deadline: Duration,
        handshake: Option<Duration>,
        judge: &dyn Judge,
    ) -> Self {
        let mut out = Outbox::default();
        let greeting = Greeting::dial(kind, nonce, judge, &mut out);
        Self::new(now, greeting, out, write_deadline, handshake)
    }

    /// Creates the channel of a connection that this node accepted. `nonce` is a random number for the
    /// proofs, and no other greeting uses it. `handshake` is the time allowed for a TLS handshake, if the
    /// channel uses TLS.
    #[must_use]
    pub fn answer(
        now: Time,
        nonce: [u8; 32],
        write_deadline: Duration,
        handshake: Option<Duration>,
    ) -> Self {
        let greeting = Greeting::answer(nonce, handshake.is_some());
        Self::new(now, greeting, Outbox::default(), write_deadline, handshake)
    }

    fn new(
        now: Time,
        greeting: Greeting,
        out: Outbox,
        write_deadline: Duration,
        handshake: Option<Duration>,
    ) -> Self {
        Self {
            state: State::Greeting(Box::new(greeting)),
            out,
            since: now,
            handshake,
            heard: now,
            blocked: None,
            write_deadline,
        }
    }

    /// Records that the TLS handshake is over, and starts the time for the greeting. `binding` binds the
    /// proofs of the greeting to this TLS session.
    pub fn handle_secured(&mut self, now: Time, binding: Binding) {
        (self.since, self.handshake) = (now, None);
        if let State::Greeting(greeting) = &mut self.state {
            greeting.bind(binding);
        }
    }

    /// Handles the next received frame in `input`. Returns the result of the frame and the number of bytes
    /// that the channel used.
    ///
    /// # Errors
    ///
    /// See [`ChannelError`]: the channel is over. The frames in [`Channel::out`] tell the peer the reason.
    pub fn next<'a>(
        &mut self,
        now: Time,
        input: &'a [u8],
        judge: &dyn Judge,
    ) -> Result<(Effect<'a>, usize), ChannelError> {
        let max = match &self.state {
            State::Greeting(greeting) => {
                if greeting.side() == Side::Dialled
                    && input.first_chunk().is_some_and(|f| begins_tls(*f))
                {
                    Refusal::OnlyTls.write(&mut self.out);
                    return Err(GreetingError::from(Refusal::OnlyTls).into());
                }
                GREETING_BYTES_MAX
            }
            State::Open(..) => FRAME_BYTES_MAX,
        };
        let (frame, used) = match read(input, max)? {
            Read::Need(need) => return Ok((Effect::Need(need), 0)),
            Read::Frame(frame, used) => (frame, used),
        };
        self.heard = now;
        Ok((self.take(frame, judge)?, used))
    }

    fn take<'a>(
        &mut self,
        frame: Frame<'a>,
        judge: &dyn Judge,
    ) -> Result<Effect<'a>, ChannelError> {
        let (side, kind) = match &mut self.state {
            State::Open(side, kind) => (*side, *kind),
            State::Greeting(greeting) => {
                let Some(theirs) = greeting.handle(&frame, judge, &mut self.out)? else {
                    return Ok(Effect::Done);
                };
                self.state = State::Open(greeting.side(), theirs.kind());
                return Ok(Effect::Open(theirs));
            }
        };
        match (side, kind, &frame) {
            (_, _, Frame::Refused { code, text }) => {
                Err(GreetingError::from(Refusal::theirs(*code, text)).into())
            }
            (Side::Dialer, _, Frame::Pong) => Ok(Effect::Done),
            (Side::Dialled, _, Frame::Ping) => Ok(Effect::Done),
            (Side::Dialled, Kind::Raft, Frame::Raft { .. } | Frame::Fetch { .. })
            | (
                Side::Dialled,
                Kind::Route,
                Frame::Members(_)
                | Frame::Vouch { .. }
                | Frame::Interest(_)
                | Frame::InterestEnd { .. }
                | Frame::InterestMembers { .. }
                | Frame::Message(_),
            ) => Ok(Effect::Frame(frame)),
            _ => Err(ChannelError::Order),
        }
    }

    /// Records that the peer is alive, because a part of a frame arrived, or because bytes wait in the
    /// socket that the node does not read for now.
    pub const fn handle_activity(&mut self, now: Time) {
        if matches!(self.state, State::Open(..)) {
            self.heard = now;
        }
    }

    /// Queues a pong for the dialer, to show that this node is alive, unless too many bytes wait. The caller
    /// must call this only on a channel that the peer dialled.
    pub fn pong(&mut self) {
        if self.out.len() < PONGS_BYTES_MAX {
            Frame::Pong.write(&mut self.out);
        }
    }

    /// Records a write to the socket. `progress` says whether the socket accepted any bytes, `waits` whether
    /// bytes still wait. The write deadline counts from the last progress.
    pub fn handle_written(&mut self, now: Time, progress: bool, waits: bool) {
        if !waits {
            self.blocked = None;
        } else if progress || self.blocked.is_none() {
            self.blocked = Some(now);
        }
    }

    /// Returns whether the greeting is over, so that the channel carries frames.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(..))
    }

    /// Returns the earliest time at which a deadline of the channel may pass, so that the caller must call
    /// [`Channel::overdue`] again.
    #[must_use]
    pub fn deadline(&self) -> Time {
        let dead = match self.state {
            State::Greeting(_) => self.since + self.handshake.unwrap_or(GREETING_MAX),
            State::Open(..) => self.heard + SILENCE_MAX,
        };
        let deaf = self.blocked.map(|at| at + self.write_deadline);
        deaf.map_or(dead, |deaf| dead.min(deaf))
    }

    /// Returns the reason if a deadline of the channel has passed at `now`, so that the node must close the
    /// channel; `None` if the channel goes on.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Option<ChannelError> {
        if now < self.deadline() {
            return None;
        }
        Some(match self.state {
            State::Greeting(_) => match self.handshake {
                Some(limit) => ChannelError::Handshake(limit),
                None => ChannelError::Late,
            },
            State::Open(..) if self.heard + SILENCE_MAX <= now => ChannelError::Silent,
            State::Open(..) => ChannelError::Deaf(self.write_deadline),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::Members;
    use super::super::roster::{Me, Roster};
    use super::*;
    use crate::proof::Secret;

    const WRITE: Duration = Duration::from_secs(10);

    fn roster() -> Roster {
        let me = Me {
            cluster: "tide".into(),
            name: "n1".into(),
            id: 1,
            life: 1,
            streams: false,
            shards: 1,
            client_url: ":4222".into(),
            tags: Vec::new(),
            secret: Secret::new("s"),
        };
        Roster::new(me, 1, None::<Members>)
    }

    #[test]
    fn a_handshake_has_its_own_time_and_the_greeting_begins_after_it() {
        let (start, limit) = (Time::from_nanos(1), Duration::from_secs(2));
        let mut channel = Channel::answer(start, [1; 32], WRITE, Some(limit));
        assert_eq!(channel.deadline(), start + limit);
        let late = channel.overdue(start + limit);
        assert_eq!(late, Some(ChannelError::Handshake(limit)));
        let secured = start + limit / 2;
        channel.handle_secured(secured, [9; 32]);
        assert_eq!(channel.overdue(start + limit), None);
        assert_eq!(channel.deadline(), secured + GREETING_MAX);
        let late = channel.overdue(secured + GREETING_MAX);
        assert_eq!(late, Some(ChannelError::Late));
    }

    #[test]
    fn a_tls_handshake_is_told_that_there_is_no_tls_here() {
        let (now, roster) = (Time::from_nanos(1), roster());
        let mut channel = Channel::answer(now, [1; 32], WRITE, None);
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
        assert!(matches!(
            channel.next(now, &hello[..2], &roster),
            Ok((Effect::Need(_), 0))
        ));
        let e = channel.next(now, &hello, &roster).unwrap_err();
        assert_eq!(e.refusal(), Some(&Refusal::OnlyTls));
        let mut told = Outbox::default();
        Refusal::OnlyTls.write(&mut told);
        assert_eq!(channel.out.to_vec(), told.to_vec());
        // With 0 as the third byte, the three bytes begin the length of a frame.
        assert!(!begins_tls([0x16, 3, 0]));
    }
}
