//! Paces the deliveries to the receiver of a push consumer: its deliver subject, flow control, rate limit and
//! heartbeats.
//!
//! This module owns the rate limit, the idle heartbeats and flow control. For flow control, the consumer has
//! a window of bytes. Once half of the window is in flight, the consumer asks the receiver to answer; once
//! the whole window is in flight, the consumer stops until the receiver answers. Each answer doubles the
//! window up to [`WINDOW_MAX`]. If the answers are acknowledgements (ack policy `flow_control`), the consumer
//! also asks when as many messages as it allows await one, and along with a heartbeat while any message does.
//! [`super::Consumer`] owns the messages.

use super::seam::{Ready, Sink};
use super::state::Position;
use super::status;
use crate::convert::saturating_u64;

/// The widest window of flow control, in bytes. A consumer stops once more bytes than its window are in
/// flight, so that a slow receiver is not flooded.
const WINDOW_MAX: u64 = 32 << 20;
/// The window of flow control with which a push consumer starts, in bytes. Each answer of the receiver
/// doubles the window, up to [`WINDOW_MAX`]. A narrow window finds a slow receiver early.
const WINDOW_MIN: u64 = WINDOW_MAX / 16;
/// The longest pause that the rate limit makes up for, in microseconds: after it the consumer may send at
/// once as many bytes as the limit allows in this time.
const BURST_US: u64 = 100_000;

/// The receiver of a push consumer, with the state of its flow control, rate limit and heartbeats, by which
/// the consumer decides when to send.
#[derive(Clone, Debug)]
pub(super) struct Push {
    pub(super) subject: Box<[u8]>,
    pub(super) group: Option<Box<[u8]>>,
    /// True if a client listened to the consumer's deliver subject at the last check. Without one the
    /// consumer sends nothing.
    pub(super) active: bool,
    heartbeat_us: u64,
    beat_us: u64,
    rate: Option<Rate>,
    flow: Option<Flow>,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    bits_per_second: u64,
    /// The time up to which the bytes sent so far use up the limited rate, in microseconds since the Unix
    /// epoch. The consumer sends no further message before that time.
    sent_us: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    /// The prefix `$JS.FC.<stream>.<consumer>.` of the subjects to which the receiver answers flow control
    /// requests. A number completes the subject of each request.
    prefix: String,
    window: u64,
    /// The number of bytes in flight: the consumer has sent them, and no flow control answer of the receiver
    /// covers them yet. Beyond the window the consumer stops.
    bytes: u64,
    asked: Option<Asked>,
    requests: u64,
}

#[derive(Clone, Debug)]
struct Asked {
    subject: String,
    /// The number of bytes that the receiver's answer to this flow control request covers. The answer
    /// subtracts them from the bytes in flight.
    bytes: u64,
}

/// The settings of a push consumer, from its configuration, in the units in which this module uses them.
#[derive(Clone, Debug, Default)]
pub(super) struct PushSettings {
    pub(super) subject: Box<[u8]>,
    pub(super) group: Option<Box<[u8]>>,
    pub(super) heartbeat_us: u64,
    pub(super) rate_limit_bps: u64,
    /// The prefix of the subjects to which the receiver answers flow control requests; `None` if flow control
    /// is off and the consumer never waits for answers.
    pub(super) flow_prefix: Option<String>,
    /// True if the answers to flow control requests acknowledge messages. Each incarnation of the consumer
    /// then has subjects of its own for these answers, so that no late answer acknowledges messages of a
    /// later one.
    pub(super) takes_acks: bool,
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
                prefix: match settings.takes_acks {
                    true => format!("{prefix}{now:x}-"),
                    false => prefix,
                },
                window: WINDOW_MIN,
                bytes: 0,
                asked: None,
                requests: 0,
            }),
        };
        push.update(settings);
        push
    }

    /// Applies the settings that an update of the configuration may change: the deliver subject, the queue
    /// group and the rate limit. The other settings of a push consumer never change.
    pub(super) fn update(&mut self, settings: PushSettings) {
        self.subject = settings.subject;
        self.group = settings.group;
        let sent_us = self.rate.map_or(0, |r| r.sent_us);
        self.rate = (settings.rate_limit_bps > 0).then_some(Rate {
            bits_per_second: settings.rate_limit_bps,
            sent_us,
        });
    }

    /// Returns whether flow control stops the consumer until the receiver answers a request, because more
    /// bytes than the window are in flight.
    pub(super) fn is_stalled(&self) -> bool {
        self.flow.as_ref().is_some_and(|f| f.bytes > f.window)
    }

    /// Returns the time at which the rate limit allows more messages, in microseconds since the Unix epoch;
    /// `None` if the rate limit allows them now.
    pub(super) fn rate_deadline(&self, now: u64) -> Option<u64> {
        self.rate.map(|r| r.sent_us).filter(|sent| *sent > now)
    }

    /// Returns whether a client listens to the deliver subject and can take more messages, and remembers in
    /// `active` whether a client listens. Otherwise the consumer must wait.
    pub(super) fn ready(&mut self, sink: &mut impl Sink) -> Ready {
        let ready = sink.ready(&self.subject, self.group.as_deref());
        self.active = ready != Ready::Nobody;
        ready
    }

    /// Counts a message of `bytes` bytes as sent, and sends a flow control request if half of the window is
    /// in flight. The answer then comes before the whole window is in flight.
    pub(super) fn note_sent(&mut self, now: u64, bytes: u64, sink: &mut impl Sink) {
        self.beat_us = now.saturating_add(self.heartbeat_us);
        if let Some(rate) = &mut self.rate {
            let took = u128::from(bytes) * 8_000_000 / u128::from(rate.bits_per_second);
            let took = saturating_u64(took);
            let from = rate.sent_us.max(now.saturating_sub(BURST_US));
            rate.sent_us = from.saturating_add(took);
        }
        let Some(flow) = &mut self.flow else {
            return;
        };
        flow.bytes += bytes;
        if flow.bytes > flow.window / 2 {
            self.ask(sink);
        }
    }

    /// Sends a flow control request to the receiver, unless the receiver has still to answer one. The answer
    /// covers all bytes sent so far.
    pub(super) fn ask(&mut self, sink: &mut impl Sink) {
        let Some(flow) = self.flow.as_mut().filter(|flow| flow.asked.is_none()) else {
            return;
        };
        flow.requests += 1;
        let subject = format!("{}{}", flow.prefix, flow.requests);
        let headers = status::plain(100, "FlowControl Request");
        sink.status(&self.subject, subject.as_bytes(), &headers);
        flow.asked = Some(Asked {
            subject,
            bytes: flow.bytes,
        });
    }

    /// Handles the receiver's answer to a flow control request. An answer to the latest request doubles the
    /// window, and the consumer then no longer counts the bytes that it sent before that request. Returns
    /// whether the answer belongs to the latest request.
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

    /// Sends a heartbeat to the receiver if one is due; `last` is the last delivery, which the heartbeat
    /// states, so that the receiver notices a missed message. If the consumer waits for acknowledgements by
    /// flow control (`unacked`), also sends a flow control request.
    pub(super) fn handle_timeouts(
        &mut self,
        now: u64,
        last: Position,
        unacked: bool,
        sink: &mut impl Sink,
    ) {
        if self.heartbeat_us == 0 || now < self.beat_us {
            return;
        }
        self.beat_us = now.saturating_add(self.heartbeat_us);
        if self.active {
            let asked = self.flow.as_ref().and_then(|f| f.asked.as_ref());
            let stalled = asked.map(|a| a.subject.as_str());
            let headers = status::heartbeat(last, stalled);
            sink.status(&self.subject, b"", &headers);
            if unacked {
                self.ask(sink);
            }
        }
    }

    /// Tells the receiver that the consumer no longer exists. The protocol has no status for that, so the
    /// consumer sends a heartbeat with the number of a delivery that it never made. To the client this looks
    /// like a missed message, so the client recreates its ordered consumer at once rather than after two
    /// missed heartbeats.
    pub(super) fn tell_lost(&mut self, last: Position, sink: &mut impl Sink) {
        if self.heartbeat_us > 0 {
            let next = Position {
                consumer_seq: last.consumer_seq.after(1),
                ..last
            };
            let headers = status::heartbeat(next, None);
            sink.status(&self.subject, b"", &headers);
        }
    }

    /// Returns the time at which to call [`Push::handle_timeouts`], in microseconds since the Unix epoch.
    /// Without heartbeats or a listening client the consumer needs no such call.
    pub(super) fn deadline(&self) -> Option<u64> {
        (self.heartbeat_us > 0 && self.active).then_some(self.beat_us)
    }
}
