//! The predicted rate against the simulator of one server ([`serve`]), which moves each message by itself.

use super::*;
use crate::sim::{Cost, poisson, serve};

/// The number of worlds that the test draws.
const WORLDS: u32 = 36;
const MESSAGE_BYTES: f64 = 600.0;

fn world(sync_ns: f64, message_ns: f64, noise: f64) -> Syncs {
    Syncs {
        sync_ns,
        byte_ns: message_ns / MESSAGE_BYTES,
        noise,
        message_bytes: MESSAGE_BYTES,
        bytes_max: 8 << 20,
    }
}

/// Returns the 99th percentile in nanoseconds that the other simulator measures at this rate.
fn measured(world: &Syncs, rate_per_s: f64, seed: u32) -> f64 {
    let ms = 1e-6;
    let items_max = world.bytes_max as f64 / MESSAGE_BYTES;
    let bounds = Bounds::items(1, items_max as u64);
    let mut knee = Knee::new(Objective::Lean, bounds).unwrap();
    let (a, b) = (world.sync_ns * ms, world.byte_ns * MESSAGE_BYTES * ms);
    let per_ms = rate_per_s / 1e3;
    let busy = (b * per_ms).min(0.98);
    let batch = (a * per_ms / (1.0 - busy)).clamp(1.0, items_max);
    let items = ((400.0 + 2_000.0 * world.noise) * batch).max(30_000.0);
    let mut rng = Rng::new(seed);
    let arrivals = poisson(per_ms, items / per_ms, &mut rng, 0.0);
    let mut cost = Cost::step(0.0, a, b, world.noise, seed);
    serve(&arrivals, &mut knee, &mut cost, 0.2).p99_ms / ms
}

/// The predicted rate and the bound name a point of the plane of rates and latencies. In each world the curve
/// of the other simulator passes within a tenth of this point: in rate, or, where the curve is so flat that
/// rates differ much at the same latency, in latency.
#[test]
fn the_predicted_rate_is_within_a_tenth_of_the_simulator() {
    let (mut by_rate, mut failures) = (0, Vec::new());
    for seed in 0..WORLDS {
        let mut rng = Rng::new(seed);
        let mut between = |low: f64, high: f64| low * (high / low).powf(rng.random());
        let (a, b) = (between(20e3, 20e6), between(100.0, 20e3));
        let bound = a * between(2.0, 50.0);
        let noise = [0.0, 0.05, 0.2][seed as usize % 3];
        let world = world(a, b, noise);
        let headroom = world.headroom(bound);
        let Headroom::UpTo(rate) = headroom else {
            panic!(
                "seed {seed}: {headroom:?} for a bound of {} syncs",
                bound / a
            );
        };
        let part = |factor: f64, from: u32| measured(&world, factor * rate, from + seed) / bound;
        let (below, above) = (part(0.9, 1000), part(1.1, 1000));
        if below <= 1.0 && above > 1.0 {
            by_rate += 1;
            continue;
        }
        // A run can have a costly trial of the controller, so the median of three counts.
        let mut runs = [1000, 2000, 3000].map(|from| part(1.0, from));
        runs.sort_unstable_by(f64::total_cmp);
        let at = runs[1];
        println!(
            "seed {seed}: {world:?}, bound {bound:.0}, {rate:.0}/s: {below:.3} {at:.3} {above:.3}"
        );
        if (at - 1.0).abs() > 0.1 {
            failures.push(seed);
        }
    }
    assert!(failures.is_empty(), "seeds {failures:?}");
    assert!(
        by_rate * 4 > WORLDS * 3,
        "only {by_rate} of {WORLDS} worlds by rate"
    );
}

#[test]
fn a_bound_below_a_sync_cannot_be_met() {
    let world = world(1e6, 500.0, 0.0);
    let Headroom::Never(least) = world.headroom(0.9e6) else {
        panic!("a sync alone takes longer");
    };
    assert!((0.99e6..1.1e6).contains(&least), "{least}");
    let Headroom::UpTo(rate) = world.headroom(1.2e6) else {
        panic!("messages that hardly ever meet keep the bound");
    };
    assert!(rate < 0.05e9 / 1e6, "{rate}");
}

/// A fit of few syncs can find all of the cost in the bytes.
#[test]
fn syncs_can_cost_by_the_byte_alone() {
    let by_the_byte = Syncs {
        sync_ns: 1.0,
        byte_ns: 15_500.0,
        noise: 0.05,
        message_bytes: 344.0,
        bytes_max: 8 << 20,
    };
    let message_ns = by_the_byte.lone_ns();
    assert!(matches!(
        by_the_byte.headroom(0.9 * message_ns),
        Headroom::Never(_)
    ));
    for bound in [20.0 * message_ns, 3.6e12] {
        let Headroom::UpTo(rate) = by_the_byte.headroom(bound) else {
            panic!("a bound of {bound} ns is far above the time of a message");
        };
        assert!(rate <= by_the_byte.rate_max(), "{rate}");
        assert!(rate > 0.3e9 / message_ns, "{rate}");
    }
}

#[test]
fn odd_costs_end_the_search() {
    let sound = world(1e6, 500.0, 0.05);
    let free = Syncs {
        byte_ns: 0.0,
        ..sound
    };
    let Headroom::UpTo(rate) = free.headroom(1e9) else {
        panic!("bytes cost nothing");
    };
    assert!(rate <= free.rate_max());
    for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let no_size = Syncs {
            message_bytes: odd,
            ..sound
        };
        let no_sync = Syncs {
            sync_ns: odd,
            ..sound
        };
        for world in [no_size, no_sync] {
            assert!(
                matches!(world.headroom(5e6), Headroom::Never(_)),
                "{world:?}"
            );
        }
        assert!(!matches!(sound.headroom(odd), Headroom::UpTo(r) if !r.is_finite()));
    }
}

#[test]
fn the_same_call_gives_the_same_result() {
    let world = world(300e3, 900.0, 0.1);
    assert_eq!(world.headroom(3e6), world.headroom(3e6));
}
