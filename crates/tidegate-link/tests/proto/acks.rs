//! Tests the cost and the lag of acknowledgements, in virtual time.

use std::time::Duration;

use super::pair::{MS, Rng, US, payload};
use tidegate::Time;
use tidegate_link::Seq;
use tidegate_link::frame::Layout;
use tidegate_link::proto::{Receiver, ReceiverConfig, cadence};

struct Outcome {
    share: f64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// Simulates `n` messages with Poisson arrivals at `per_s` a second; the server spends `cost_ns` on each
/// acknowledgement.
fn acknowledge(per_s: f64, n: u64, cost_ns: u64) -> Outcome {
    let config = ReceiverConfig {
        frame_max: 1000,
        window: 16 << 20,
        when_done: false,
        idle: Duration::ZERO,
    };
    let mut r = Receiver::plain(Time::ZERO, config, cadence());
    let (mut rng, mut now, mut acks) = (Rng(1), Time::ZERO, 0);
    let (mut waiting, mut lags) = (Vec::new(), Vec::new());
    let mut arrival = Time::ZERO;
    for seq in 1..=n {
        let uniform = (rng.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        arrival = arrival.after((-uniform.ln() / per_s * 1e9) as u64);
        // The receiver sends the acknowledgements that fall due before the next message arrives.
        loop {
            while let Some(len) = r.poll_transmit(now).map(<[u8]>::len) {
                now = now.after(cost_ns);
                r.wrote(now, len, cost_ns);
                acks += 1;
                lags.extend(waiting.drain(..).map(|at: Time| now.since(at)));
            }
            match r.poll_timeout() {
                Some(t) if t < arrival => now = now.max(t),
                _ => break,
            }
        }
        now = now.max(arrival);
        let mut frame = Vec::new();
        Layout::Plain.encode(Seq::new(seq), &payload(seq), &mut frame);
        let batch = r.handle_read(now, &frame).expect("a message");
        assert_eq!(batch.count, 1);
        waiting.push(now);
    }
    lags.sort_unstable();
    let at = |q: f64| lags[(q * (lags.len() - 1) as f64) as usize];
    Outcome {
        share: (acks * cost_ns) as f64 / now.as_nanos() as f64,
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        max_ns: at(1.0),
    }
}

/// Tests that acknowledgements take at most 1 % of a core, and that an acknowledgement lags at most by twice
/// its cost, divided by that share.
#[test]
fn acknowledgements_keep_to_their_budget_and_are_not_late() {
    for cost_ns in [5 * US, 10 * US, 20 * US] {
        let o = acknowledge(10_000.0, 200_000, cost_ns);
        println!(
            "{cost_ns} ns each: {:.3} % of a core, lag p50 {} p99 {}",
            o.share * 100.0,
            o.p50_ns,
            o.p99_ns
        );
        assert!(o.share <= 0.0101, "{}", o.share);
        assert!(o.p99_ns <= 2 * cost_ns * 100, "{}", o.p99_ns);
    }
}

/// An acknowledgement waits at most 5 ms, even if the budget of 1 % of a core would make it wait longer.
#[test]
fn none_is_later_than_five_milliseconds() {
    let o = acknowledge(10_000.0, 50_000, 200 * US);
    assert!(o.max_ns <= 5 * MS + 200 * US, "{}", o.max_ns);
}

#[test]
fn at_light_load_every_message_is_acknowledged_at_once() {
    let o = acknowledge(100.0, 5_000, 20 * US);
    assert!(
        o.p50_ns <= 20 * US && o.share <= 0.01,
        "{} {}",
        o.p50_ns,
        o.share
    );
}
