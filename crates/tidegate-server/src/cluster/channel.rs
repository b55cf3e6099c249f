//! One connection to or from a peer, as a state: the greeting, then frames, and when it is dead.
//!
//! What the dialer says after the greeting is appended by others, to an outbox of theirs where they need it;
//! [`Channel::out`] is for what belongs to the connection itself.

use std::time::Duration;

use tidegate::Time;

use super::Kind;
use super::greeting::{Greeting, GreetingError, Introduction, Judge};
use super::proof::{Binding, Side};
use super::refusal::Refusal;
use super::wire::{FRAME_BYTES_MAX, Frame, GREETING_BYTES_MAX, Read, WireError, read};
use crate::nats::outbox::Outbox;

/// How often a dialer pings, and whoever was dialled says that it is there: it does so unasked, since it may
/// have a lot to read before it comes to a ping.
pub const PING_EVERY: Duration = Duration::from_secs(3);
/// After how much silence a channel is over.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// For a greeting, from the dial on.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// Pongs wait for a dialer that does not read up to here.
const PONGS_BYTES_MAX: usize = 1024;
/// How whoever speaks TLS begins: the type of a handshake's record and the major version. No length of a
/// greeting's frame has these bytes and a third that is not 0.
const TLS_BEGINS: [u8; 2] = [0x16, 3];

/// Why a channel is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// It was never open.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// What came is no frame.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A frame that has no place here.
    #[error(
        "a frame that does not belong on this channel: use versions of tidegate that go together"
    )]
    Order,
    /// Nothing was heard.
    #[error("nothing was heard for {} seconds", SILENCE_MAX.as_secs())]
    Silent,
    /// No TLS handshake.
    #[error("no TLS handshake within {0:?}")]
    Handshake(Duration),
    /// No greeting.
    #[error("no greeting within {} seconds", GREETING_MAX.as_secs())]
    Late,
    /// Nothing was taken.
    #[error("it read nothing for {0:?}")]
    Deaf(Duration),
}

impl ChannelError {
    /// The refusal, if it is one.
    #[must_use]
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Greeting(GreetingError::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }
}

/// What the bytes that came on a channel mean for its owner.
#[derive(Debug)]
pub enum Step<'a> {
    /// There must be so many bytes.
    Need(usize),
    /// Something that concerns nobody else.
    Done,
    /// The greeting is over: this is the other side.
    Open(Introduction),
    /// A frame of the dialer's.
    Frame(Frame<'a>),
}

/// Returns whether these first three bytes of a connection begin a TLS handshake.
#[must_use]
pub fn begins_tls(first: [u8; 3]) -> bool {
    first[..2] == TLS_BEGINS && first[2] != 0
}

#[derive(Debug)]
enum State {
    Greeting(Box<Greeting>),
    Open(Side, Kind),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Channel {
    state: State,
    /// What belongs to the connection itself.
    pub out: Outbox,
    since: Time,
    /// How long the TLS handshake may take that comes before the greeting.
    handshake: Option<Duration>,
    heard: Time,
    /// Since when nothing was taken although something waits.
    blocked: Option<Time>,
    write_deadline: Duration,
}

impl Channel {
    /// One that was dialled from here. `nonce` is random, and used nowhere else; `handshake` is how long a
    /// TLS handshake may take, where there is to be one.
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

    /// One that was accepted. `nonce` is random, and used nowhere else; `handshake` as for [`Channel::dial`].
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

    /// The TLS handshake is over: the greeting takes place in this session.
    pub fn handle_secured(&mut self, now: Time, binding: Binding) {
        (self.since, self.handshake) = (now, None);
        if let State::Greeting(greeting) = &mut self.state {
            greeting.bind(binding);
        }
    }

    /// What comes next in `input`, and how many bytes of it are done with.
    ///
    /// # Errors
    /// The channel is over; what waits in [`Channel::out`] tells the other side why.
    pub fn next<'a>(
        &mut self,
        now: Time,
        input: &'a [u8],
        judge: &dyn Judge,
    ) -> Result<(Step<'a>, usize), ChannelError> {
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
            Read::Need(need) => return Ok((Step::Need(need), 0)),
            Read::Frame(frame, used) => (frame, used),
        };
        self.heard = now;
        Ok((self.take(frame, judge)?, used))
    }

    fn take<'a>(&mut self, frame: Frame<'a>, judge: &dyn Judge) -> Result<Step<'a>, ChannelError> {
        let (side, kind) = match &mut self.state {
            State::Open(side, kind) => (*side, *kind),
            State::Greeting(greeting) => {
                let Some(theirs) = greeting.handle(&frame, judge, &mut self.out)? else {
                    return Ok(Step::Done);
                };
                self.state = State::Open(greeting.side(), theirs.kind());
                return Ok(Step::Open(theirs));
            }
        };
        match (side, kind, &frame) {
            (_, _, Frame::Refused { code, text }) => {
                Err(GreetingError::from(Refusal::theirs(*code, text)).into())
            }
            (Side::Dialer, _, Frame::Pong) => Ok(Step::Done),
            (Side::Dialled, _, Frame::Ping) => Ok(Step::Done),
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
            ) => Ok(Step::Frame(frame)),
            _ => Err(ChannelError::Order),
        }
    }

    /// Bytes of a frame arrived that is not complete yet, or there are some that are not to be read for now.
    pub const fn handle_activity(&mut self, now: Time) {
        if matches!(self.state, State::Open(..)) {
            self.heard = now;
        }
    }

    /// It is time to say that this node is there, on a channel that was dialled from elsewhere.
    pub fn pong(&mut self) {
        if self.out.len() < PONGS_BYTES_MAX {
            Frame::Pong.write(&mut self.out);
        }
    }

    /// Its socket took something (`progress`) or not; `waits` is whether anything still waits.
    pub fn handle_written(&mut self, now: Time, progress: bool, waits: bool) {
        if !waits {
            self.blocked = None;
        } else if progress || self.blocked.is_none() {
            self.blocked = Some(now);
        }
    }

    /// Returns whether the greeting is over.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(..))
    }

    /// When [`Channel::overdue`] may have an answer.
    #[must_use]
    pub fn deadline(&self) -> Time {
        let dead = match self.state {
            State::Greeting(_) => self.since + self.handshake.unwrap_or(GREETING_MAX),
            State::Open(..) => self.heard + SILENCE_MAX,
        };
        let deaf = self.blocked.map(|at| at + self.write_deadline);
        deaf.map_or(dead, |deaf| dead.min(deaf))
    }

    /// Why it is over by now, if it is.
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
    use crate::cluster::proof::Secret;

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
            Ok((Step::Need(_), 0))
        ));
        let e = channel.next(now, &hello, &roster).unwrap_err();
        assert_eq!(e.refusal(), Some(&Refusal::OnlyTls));
        let mut told = Outbox::default();
        Refusal::OnlyTls.write(&mut told);
        assert_eq!(channel.out.to_vec(), told.to_vec());
        // A frame of the length those bytes would be.
        assert!(!begins_tls([0x16, 3, 0]));
    }
}
