//! The receiver of a push consumer: where messages go, how many bytes may be under way, how fast, and when to
//! say something.
//!
//! Owns flow control (a window of bytes: at half of it the receiver is asked to answer, at the whole of it
//! delivery stops until it does; each answer doubles the window up to [`WINDOW_MAX`]), the rate limit and
//! idle heartbeats. Leaves what is sent to [`super::Consumer`].

use super::seam::{Ready, Sink};
use super::status;

/// The widest window of flow control.
const WINDOW_MAX: u64 = 32 << 20;
/// The first one.
const WINDOW_MIN: u64 = WINDOW_MAX / 16;
/// What a rate limit lets through at once after a pause, in microseconds of its rate.
const BURST_US: u64 = 100_000;

/// A push consumer's receiver.
#[derive(Clone, Debug)]
pub(super) struct Push {
    pub(super) subject: Box<[u8]>,
    pub(super) group: Option<Box<[u8]>>,
    /// Whether somebody listens.
    pub(super) active: bool,
    heartbeat_us: u64,
    beat_us: u64,
    rate: Option<Rate>,
    flow: Option<Flow>,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    bits_per_second: u64,
    /// When all that was sent would have been, at this rate.
    sent_us: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    /// `$JS.FC.<stream>.<consumer>.`
    prefix: String,
    window: u64,
    /// Sent and not answered for.
    bytes: u64,
    asked: Option<Asked>,
    requests: u64,
}

#[derive(Clone, Debug)]
struct Asked {
    subject: String,
    /// What an answer stands for.
    bytes: u64,
}

/// How a push consumer is set up.
#[derive(Clone, Debug, Default)]
pub(super) struct PushSettings {
    pub(super) subject: Box<[u8]>,
    pub(super) group: Option<Box<[u8]>>,
    pub(super) heartbeat_us: u64,
    pub(super) rate_limit_bps: u64,
    /// The start of the subjects that answer flow control, if there is any.
    pub(super) flow_prefix: Option<String>,
}

impl Push {
    pub(super) fn new(now: u64, settings: PushSettings) -> Self {
        let mut push = Self {
            subject: Box::default(),
            group: None,
            active: false,
            heartbeat_us: settings.heartbeat_us,
            beat_us: now.saturating_add(settings.heartbeat_us),
            rate: None,
            flow: settings.flow_prefix.clone().map(|prefix| Flow {
                prefix,
                window: WINDOW_MIN,
                bytes: 0,
                asked: None,
                requests: 0,
            }),
        };
        push.update(settings);
        push
    }

    /// Takes over what may be changed: the subject, the group and the rate.
    pub(super) fn update(&mut self, settings: PushSettings) {
        self.subject = settings.subject;
        self.group = settings.group;
        let sent_us = self.rate.map_or(0, |r| r.sent_us);
        self.rate = (settings.rate_limit_bps > 0).then_some(Rate {
            bits_per_second: settings.rate_limit_bps,
            sent_us,
        });
    }

    /// Returns whether flow control waits for an answer before more is sent.
    pub(super) fn is_stalled(&self) -> bool {
        self.flow.as_ref().is_some_and(|f| f.bytes > f.window)
    }

    /// When the rate limit lets more through, if not now.
    pub(super) fn rate_deadline(&self, now: u64) -> Option<u64> {
        self.rate.map(|r| r.sent_us).filter(|sent| *sent > now)
    }

    /// Whether somebody listens and can take more.
    pub(super) fn ready(&mut self, sink: &mut impl Sink) -> Ready {
        let ready = sink.ready(&self.subject, self.group.as_deref());
        self.active = ready != Ready::Nobody;
        ready
    }

    /// Counts a message of so many bytes as sent, and asks the receiver to answer when it is time.
    pub(super) fn note_sent(&mut self, now: u64, bytes: u64, sink: &mut impl Sink) {
        self.beat_us = now.saturating_add(self.heartbeat_us);
        if let Some(rate) = &mut self.rate {
            let took = u128::from(bytes) * 8_000_000 / u128::from(rate.bits_per_second);
            let took = u64::try_from(took).unwrap_or(u64::MAX);
            let from = rate.sent_us.max(now.saturating_sub(BURST_US));
            rate.sent_us = from.saturating_add(took);
        }
        let Some(flow) = &mut self.flow else {
            return;
        };
        flow.bytes += bytes;
        if flow.asked.is_none() && flow.bytes > flow.window / 2 {
            flow.requests += 1;
            let subject = format!("{}{}", flow.prefix, flow.requests);
            let headers = status::plain(100, "FlowControl Request");
            sink.status(&self.subject, subject.as_bytes(), &headers);
            flow.asked = Some(Asked {
                subject,
                bytes: flow.bytes,
            });
        }
    }

    /// The receiver answered: whether it was to the last question.
    pub(super) fn handle_flow(&mut self, subject: &[u8]) -> bool {
        let Some(flow) = &mut self.flow else {
            return false;
        };
        match flow.asked.take() {
            Some(asked) if asked.subject.as_bytes() == subject => {
                flow.window = (2 * flow.window).min(WINDOW_MAX);
                flow.bytes -= asked.bytes;
                true
            }
            asked => {
                flow.asked = asked;
                false
            }
        }
    }

    /// Gives a sign of life if it is time; `last` holds the last numbers given.
    pub(super) fn handle_timeouts(&mut self, now: u64, last: (u64, u64), sink: &mut impl Sink) {
        if self.heartbeat_us == 0 || now < self.beat_us {
            return;
        }
        self.beat_us = now.saturating_add(self.heartbeat_us);
        if self.active {
            let asked = self.flow.as_ref().and_then(|f| f.asked.as_ref());
            let stalled = asked.map(|a| a.subject.as_str());
            let headers = status::heartbeat(last.0, last.1, stalled);
            sink.status(&self.subject, b"", &headers);
        }
    }

    /// There is no consumer any more, and the protocol has no word for it. A sign of life with a number that
    /// was never given looks like a message that was missed: an ordered consumer is made anew at once then,
    /// not when two signs of life were missed.
    pub(super) fn tell_lost(&mut self, last: (u64, u64), sink: &mut impl Sink) {
        if self.heartbeat_us > 0 {
            let headers = status::heartbeat(last.0 + 1, last.1, None);
            sink.status(&self.subject, b"", &headers);
        }
    }

    /// When [`Push::handle_timeouts`] has something to do.
    pub(super) fn deadline(&self) -> Option<u64> {
        (self.heartbeat_us > 0 && self.active).then_some(self.beat_us)
    }
}
