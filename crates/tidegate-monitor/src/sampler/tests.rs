//! Tests the sampler: single cases, and any order of calls.

use super::*;
use proptest::prelude::*;
use tidegate::controller::{Bounds, Knee, Load, Objective, Reason};

const NOW: &str = "2026-11-27T05:00:00Z";

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn counted(name: &str, items: u64, batches: u64) -> Observed {
    let mut snapshot = Snapshot::default();
    snapshot.limit = 32;
    snapshot.binding = Some(Reason::Limit);
    snapshot.counts.items = items;
    snapshot.counts.by_reason.add(Reason::Drained, batches);
    Observed::new(name, "rows", snapshot, SizeCosts::default())
}

fn json(sampler: &Sampler, now: Time, history_s: Option<u64>) -> serde_json::Value {
    serde_json::to_value(sampler.boundaries(now, NOW, history_s)).unwrap()
}

#[test]
fn the_history_holds_differences_of_equal_length() {
    let mut sampler = Sampler::new();
    for (ms, items, batches) in [(0, 100, 10), (1000, 150, 12), (2000, 350, 13)] {
        sampler.record(at(ms), [counted("inserts", items, batches)]);
    }
    let all = json(&sampler, at(2500), Some(600));
    let one = &all["boundaries"][0];
    assert_eq!(one["history"]["items"], serde_json::json!([50, 200]));
    assert_eq!(one["history"]["batches"], serde_json::json!([2, 1]));
    assert_eq!(one["history"]["uptime_ms"], serde_json::json!([1000, 2000]));
    assert_eq!(
        one["history"]["by_reason"]["drained"],
        serde_json::json!([2, 1])
    );
    assert_eq!(one["rate_per_s"], 125.0);
    assert_eq!(one["reason"], "limit");
    assert_eq!(
        (&all["uptime_ms"], &all["now"]),
        (&2500.into(), &NOW.into())
    );
    let newest = json(&sampler, at(2500), Some(1));
    assert_eq!(
        newest["boundaries"][0]["history"]["items"],
        serde_json::json!([200])
    );
    let none = json(&sampler, at(2500), None);
    assert!(none["boundaries"][0].get("history").is_none());
}

#[test]
fn the_first_sample_shows_no_rate_and_no_counterfactual() {
    let mut sampler = Sampler::new();
    sampler.record(at(0), [counted("inserts", 7, 1)]);
    let all = json(&sampler, at(0), Some(600));
    let one = &all["boundaries"][0];
    assert!(one["rate_per_s"].is_null() && one["counterfactual"].is_null());
    assert!(one["model"].is_null());
    assert_eq!(one["history"]["items"], serde_json::json!([]));
    assert_eq!(one["sizes"], serde_json::json!([]));
}

#[test]
fn a_gap_without_readers_is_no_present_rate() {
    let mut sampler = Sampler::new();
    sampler.record(at(0), [counted("inserts", 0, 0)]);
    sampler.record(at(100_000), [counted("inserts", 1_000_000, 10)]);
    let one = json(&sampler, at(100_000), Some(600));
    assert!(one["boundaries"][0]["rate_per_s"].is_null());
    assert_eq!(
        one["boundaries"][0]["history"]["span_ms"],
        serde_json::json!([100_000])
    );
    sampler.record(at(101_000), [counted("inserts", 1_000_500, 11)]);
    assert_eq!(
        json(&sampler, at(101_000), None)["boundaries"][0]["rate_per_s"],
        500.0
    );
}

#[test]
fn a_boundary_that_is_replaced_or_gone_leaves_no_samples() {
    let mut sampler = Sampler::new();
    sampler.record(at(0), [counted("a", 10, 1), counted("b", 10, 1)]);
    sampler.record(at(1000), [counted("a", 3, 1), counted("b", 20, 2)]);
    let all = json(&sampler, at(1000), Some(600));
    assert_eq!(
        all["boundaries"][0]["history"]["items"],
        serde_json::json!([])
    );
    assert_eq!(
        all["boundaries"][1]["history"]["items"],
        serde_json::json!([10])
    );
    sampler.record(at(2000), [counted("b", 20, 2)]);
    let all = json(&sampler, at(2000), None);
    assert_eq!(all["boundaries"].as_array().unwrap().len(), 1);
}

#[test]
fn only_a_watched_sampler_goes_on() {
    let mut sampler = Sampler::new();
    assert!(sampler.is_due(at(0)) && !sampler.is_watched(at(0)));
    sampler.ask(at(5000));
    sampler.record(at(5000), []);
    assert!(!sampler.is_due(at(5999)) && sampler.is_due(at(6000)));
    assert_eq!(sampler.due_at(), at(6000));
    assert!(sampler.is_watched(at(14_999)) && !sampler.is_watched(at(15_000)));
    // A clock that goes back keeps the sampler as it is.
    sampler.ask(at(0));
    assert!(sampler.is_watched(at(14_999)) && !sampler.is_due(at(0)));
}

#[test]
fn the_controllers_measurements_reach_the_reader() {
    let bounds = Bounds::default();
    let knee = Knee::new(Objective::Lean, bounds).unwrap();
    let mut boundary = boundary::Boundary::new(knee, bounds).unwrap();
    let mut now = Time::ZERO;
    for n in [1, 8, 64, 512].repeat(4) {
        let cut = boundary::Cut::Forced(Reason::Drained);
        let cost_ns = 1_000_000 + 1000 * n;
        now = now.after(cost_ns);
        boundary
            .ran(now, Load::items(n), Load::default(), cut, cost_ns, true)
            .unwrap();
    }
    let mut sampler = Sampler::new();
    sampler.record(now, [Observed::of("inserts", "rows", &boundary)]);
    let text = sampler.observe(
        now.after(1_000_000_000),
        NOW,
        [Observed::of("inserts", "rows", &boundary)],
    );
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let one = &all["boundaries"][0];
    let sizes = one["sizes"].as_array().unwrap();
    let of = |i: usize, key: &str| sizes[i][key].as_f64().unwrap();
    assert_eq!(sizes.len(), 4);
    assert_eq!((of(1, "items"), of(1, "batches")), (8.0, 4.0));
    assert!((of(3, "cost_ns") - 1_512_000.0).abs() < 1.0);
    assert!((one["model"]["a_ns"].as_f64().unwrap() - 1e6).abs() < 1e3);
    assert!(
        one["counterfactual"]["greedy"]["items_per_s_max"]
            .as_f64()
            .unwrap()
            > 9e5
    );
    assert_eq!(one["size_unit"], "rows");
}

#[derive(Clone, Debug)]
enum Op {
    Ask(u64),
    Record(u64, Vec<(u8, u64)>),
    Read(u64, Option<u64>),
}

fn op() -> impl Strategy<Value = Op> {
    let time = 0..2_000_000u64;
    prop_oneof![
        1 => time.clone().prop_map(Op::Ask),
        6 => (time.clone(), proptest::collection::vec((0..70u8, 0..1000u64), 0..80))
            .prop_map(|(t, v)| Op::Record(t, v)),
        1 => (time, proptest::option::of(0..1000u64)).prop_map(|(t, h)| Op::Read(t, h)),
    ]
}

proptest! {
    /// In any order of calls, with clocks that go back, boundaries that come and go, and names that repeat,
    /// the sampler keeps its bounds, and its JSON has arrays of one length.
    #[test]
    fn any_order_of_calls_keeps_the_invariants(ops in proptest::collection::vec(op(), 1..60)) {
        let mut sampler = Sampler::new();
        for op in ops {
            match op {
                Op::Ask(ms) => sampler.ask(at(ms)),
                Op::Record(ms, all) => {
                    let all = all.into_iter();
                    sampler.record(at(ms), all.map(|(name, n)| counted(&name.to_string(), n, n / 3)));
                }
                Op::Read(ms, history_s) => {
                    for one in sampler.boundaries(at(ms), NOW, history_s).boundaries {
                        let Some(h) = one.history else { continue };
                        let len = h.uptime_ms.len();
                        prop_assert!(len < SAMPLES_MAX);
                        prop_assert_eq!(h.items.len(), len);
                        prop_assert!(h.by_reason.values().all(|v| v.len() == len));
                        let batches: u64 = h.by_reason.values().flatten().sum();
                        prop_assert_eq!(batches, h.batches.iter().sum::<u64>());
                    }
                }
            }
            sampler.check_invariants();
        }
    }
}

#[test]
fn the_ring_is_bounded() {
    let mut sampler = Sampler::new();
    for n in 0..2 * SAMPLES_MAX as u64 {
        sampler.record(at(n * 1000), [counted("inserts", n, n)]);
        sampler.check_invariants();
    }
    let all = sampler.boundaries(at(0), NOW, Some(u64::MAX));
    let history = all.boundaries[0].history.as_ref().unwrap();
    assert_eq!(history.items.len(), SAMPLES_MAX - 1);
    assert!(history.items.iter().all(|n| *n == 1));
}
