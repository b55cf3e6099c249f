//! Simulates a receiver that sends cumulative acknowledgements, and shows how often it acknowledges all
//! messages received so far. Times are in microseconds.

use super::Rng;
use crate::Time;
use crate::controller::{BatchId, Controller, Event, Load, Reason, When};

/// The time that the simulated receiver takes to receive a message, in microseconds.
const MESSAGE: f64 = 2.0;
/// The time that the simulated receiver takes to send an acknowledgement, in microseconds.
const ACK: f64 = 20.0;

/// The cost of an acknowledgement in nanoseconds, for controllers that know the cost from the start and need
/// not learn it.
pub const ACK_NS: f64 = ACK * 1e3;

/// The result of a simulated run of a receiver that sends acknowledgements, to compare controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AckRun {
    /// The number of acknowledgements that the receiver sent in a second of simulated time.
    pub acks_per_s: f64,
    /// The share of the time that the receiver spent sending acknowledgements, which a cost budget limits.
    pub share: f64,
    /// The median lag from a message's receipt to its acknowledgement, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the lag from a message's receipt to its acknowledgement, in microseconds.
    pub p99_us: f64,
    /// The mean number of messages that one acknowledgement covers.
    pub messages: f64,
}

/// Simulates a receiver of `n` messages, which arrive as a Poisson process with `rate` messages a
/// microsecond. The controller `c` decides when the receiver acknowledges all messages received so far.
pub fn acknowledge(rate: f64, c: &mut dyn Controller, n: usize, seed: u32) -> AckRun {
    let mut rng = Rng::new(seed);
    let (mut t, mut now, mut acks) = (0.0, 0.0f64, 0u64);
    let mut pending: Vec<f64> = Vec::new();
    let mut lags = Vec::with_capacity(n);
    let mut due = f64::INFINITY;
    let mut send = |now: &mut f64, pending: &mut Vec<f64>, c: &mut dyn Controller, reason| {
        let batch = Load::items(pending.len() as u64);
        *now += ACK;
        c.on(
            at(*now),
            Event::Started {
                id: BatchId::default(),
                batch,
                left: Load::default(),
                reason,
            },
        );
        c.on(
            at(*now),
            Event::Done {
                id: BatchId::default(),
                cost_ns: ACK_NS as u64,
                ok: true,
            },
        );
        acks += 1;
        lags.extend(pending.drain(..).map(|x| *now - x));
    };
    for _ in 0..n {
        t += rng.exponential(rate);
        if !pending.is_empty() && t > now && due < t {
            now = now.max(due);
            send(&mut now, &mut pending, c, Reason::Pace);
        }
        now = now.max(t) + MESSAGE;
        pending.push(now);
        let backlog = Load::items(pending.len() as u64);
        let d = c.on(
            at(now),
            Event::Ready {
                backlog,
                oldest: at(pending[0]),
            },
        );
        match d.when {
            When::Now => send(&mut now, &mut pending, c, d.reason),
            When::At(u) | When::After { until: u, .. } => due = u.as_nanos() as f64 / 1e3,
        }
    }
    if !pending.is_empty() {
        send(&mut now, &mut pending, c, Reason::Closing);
    }
    lags.sort_unstable_by(f64::total_cmp);
    let q = |q: f64| lags[(q * (lags.len() - 1) as f64) as usize];
    AckRun {
        acks_per_s: acks as f64 / now * 1e6,
        share: acks as f64 * ACK / now,
        p50_us: q(0.5),
        p99_us: q(0.99),
        messages: n as f64 / acks as f64,
    }
}

fn at(us: f64) -> Time {
    Time::from_nanos((us * 1e3).round() as u64)
}
