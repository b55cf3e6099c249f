//! Tests the default controller in worlds for which it was not designed: cost curves other than lines, loads
//! close to the capacity, noise, and callers that return. An earlier default failed in each of these worlds.

use tidegate::controller::{Bounded, Bounds, Controller, Greedy, Knee, Objective};
use tidegate::sim::arena::{Curve, Demand, Noise, Outcome, Server, Span, World, capacity, run};

const DISTINCT: Curve = Curve::Distinct {
    a: 1.0,
    b: 0.1,
    keys: 1000.0,
};
const POWER: Curve = Curve::Power {
    a: 0.0,
    c: 0.1,
    p: 0.8,
};
const ROOT: Curve = Curve::Power {
    a: 0.0,
    c: 1.0,
    p: 0.5,
};
const LINE: Curve = Curve::Linear {
    a: 3.0,
    b: 3.0 / 256.0,
};

/// Runs the world under the default controller and under the greedy rule, and measures both after `warm`
/// milliseconds, the time for learning.
fn both(world: &World, warm: f64) -> [Outcome; 2] {
    let bounds = Bounds::items(1, world.items_max);
    let span = Span {
        warm_ms: warm,
        batches: 2000,
        items: 200_000,
    };
    let capacity = capacity(world);
    let ours = Knee::new(Objective::Lean, bounds)
        .expect("valid bounds")
        .anticipating();
    let ours: Box<dyn Controller> = Box::new(ours);
    let greedy: Box<dyn Controller> = Box::new(Greedy.controller());
    [ours, greedy].map(|controller| {
        let mut controller = Bounded::new(controller, bounds).expect("valid bounds");
        run(world, 11, capacity, span, &mut controller)
    })
}

fn open(curve: &Curve, load: f64) -> World {
    World::new("", curve.clone(), Demand::Open(load))
}

/// Asserts that after learning the backlog does not grow, and that callers wait hardly longer than under
/// the greedy rule.
fn settles(world: &World, warm: f64, mean: f64) {
    let [ours, greedy] = both(world, warm);
    assert!(ours.slope < 0.01, "the backlog grows: {ours:?}");
    assert!(
        ours.mean <= mean * greedy.mean,
        "mean {} against {} ms: {ours:?}",
        ours.mean,
        greedy.mean
    );
}

#[test]
fn a_thousand_hot_keys_do_not_pile_up() {
    settles(&open(&DISTINCT, 0.3), 10_000.0, 1.1);
    settles(&open(&DISTINCT, 0.6), 20_000.0, 1.1);
}

#[test]
fn costs_that_grow_slower_than_the_batch_do_not_pile_up() {
    settles(&open(&POWER, 0.3), 2000.0, 1.1);
    settles(&open(&POWER, 0.6), 4000.0, 1.1);
    settles(&open(&ROOT, 0.3), 4000.0, 1.1);
}

#[test]
fn saturated_sublinear_costs_reach_what_the_largest_batch_does() {
    for curve in [&DISTINCT, &POWER, &ROOT] {
        let [ours, greedy] = both(&open(curve, 1.5), 15_000.0);
        assert!(
            ours.throughput >= 0.95 * greedy.throughput,
            "{} of {}: {curve:?}",
            ours.throughput,
            greedy.throughput
        );
    }
}

#[test]
fn items_that_get_cheaper_do_not_pile_up_at_eighty_per_cent() {
    let curve = Curve::Bend {
        a: 1.0,
        b: 0.1,
        at: 64,
        times: 0.25,
    };
    settles(&open(&curve, 0.8), 5000.0, 1.1);
}

#[test]
fn at_ninety_five_per_cent_the_limit_loosens() {
    let curve = Curve::Linear {
        a: 1.0,
        b: 10.0 / 256.0,
    };
    settles(&open(&curve, 0.95), 20_000.0, 1.15);
}

#[test]
fn padding_to_powers_of_two_is_no_worse_than_greedy() {
    let curve = Curve::Padded {
        a: 1.0,
        b: 0.01,
        to: 0,
    };
    settles(&open(&curve, 0.9), 5000.0, 1.5);
}

#[test]
fn a_server_that_admits_two_hundred_calls_a_second_is_no_slower() {
    let mut world = open(&Curve::Linear { a: 1.0, b: 0.01 }, 0.6);
    world.server = Server::Admits(5.0);
    settles(&world, 3000.0, 1.1);
}

#[test]
fn scattered_costs_are_no_changes() {
    for noise in [
        Noise::Bimodal {
            share: 0.2,
            times: 3.0,
        },
        Noise::LogNormal(1.0),
    ] {
        settles(&open(&LINE, 0.3).noise(noise), 3000.0, 1.1);
    }
}

#[test]
fn callers_that_restart_together_are_not_cut_into_parts_for_ever() {
    for callers in [256, 512] {
        let demand = Demand::Closed {
            callers,
            think: 0.05,
        };
        let world = World::new("", Curve::Linear { a: 2.0, b: 0.1 }, demand);
        let [ours, greedy] = both(&world.noise(Noise::LogNormal(0.1)), 2000.0);
        assert!(
            ours.throughput >= 0.99 * greedy.throughput,
            "{} of {}",
            ours.throughput,
            greedy.throughput
        );
    }
}

#[test]
fn callers_on_a_concave_cost_are_merged_into_one_batch() {
    let demand = Demand::Closed {
        callers: 16,
        think: 0.1,
    };
    let world = World::new("", DISTINCT, demand);
    let [ours, greedy] = both(&world, 500.0);
    assert!(
        ours.throughput >= 1.2 * greedy.throughput,
        "{} of {}",
        ours.throughput,
        greedy.throughput
    );
}
