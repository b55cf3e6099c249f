//! Simulates the event loops of a server or a cluster in one thread from one seed, in virtual time: real
//! loops with their nodes, streams, stores and routes, on simulated sockets, disks and clocks. Each work of a
//! turn has the cost in a table (`costs.txt`, which the run prints), so a turn takes as long as its works. A
//! seed draws an attack; well-behaved clients measure how long they wait meanwhile.
//!
//! ```text
//! # the seeds, and the loop without each of its cures
//! cargo test -p tidegate-server --features sim --test busy
//! # that seed alone, with its long turns
//! SEED=7 cargo test ... --test busy seeds -- --nocapture
//! # many, resumed where the last run stopped
//! SEEDS=1..=100000 SEEDS_DONE=target/loop-seeds cargo test --release ... --test busy seeds
//! # a writer with thousands of messages in flight
//! WRITER_SEEDS=1..=1000 cargo test ... --test busy writer
//! ```

// Clippy recognises tests by their attribute, and would not see that the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod attack;
mod churn;
mod client;
// This simulation uses fewer ways of drawing than the simulated cluster, with which it shares the file.
#[allow(dead_code)]
#[path = "../sim/dice.rs"]
mod dice;
mod judge;
mod run;
mod tls;
mod world;
mod writers;

use attack::Attack;
use judge::Harm;
use run::{Plan, first_harm, report, run};

/// The seeds that a test runs by default.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=300;
/// The number of seeds within which a run without a cure must find harm.
const FOUND_WITHIN: u64 = 5;

#[test]
fn seeds() {
    report(SEEDS);
}

/// Checks that, until a cluster has a leader, its nodes wait for ticks and messages, and do not spin.
#[test]
fn nodes_without_a_leader_are_idle() {
    let costs = tidegate_server::Costs::parse(run::COSTS).unwrap();
    let world = world::World::new(1, 3, costs, false).unwrap();
    let (turns, time) = (world.turns.len(), world.sim.now());
    assert!(turns < 3000, "{turns} turns until {time:?}");
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for attack in Attack::ALL {
        let plan = Plan {
            attack,
            ..Plan::of(1)
        };
        assert_eq!(run(plan), run(plan), "{attack:?}");
    }
    let plan = Plan {
        attack: Attack::Come,
        servers: 3,
        heavy: false,
        crashes: true,
        ..Plan::of(1)
    };
    assert_eq!(run(plan), run(plan), "with a crash");
}

/// Runs an attack on a loop without its cure until a seed finds harm of this kind, so that the test shows
/// that the cure is needed.
fn is_found(attack: Attack, servers: usize, expected: impl Fn(&Harm) -> bool) {
    let plan = |seed| Plan {
        seed,
        attack,
        servers,
        heavy: true,
        crashes: false,
        cures: attack.without_cure().unwrap(),
        trace: false,
    };
    let mut seen = Vec::new();
    for seed in 1..=FOUND_WITHIN {
        match first_harm(seed..=seed, plan, |_, _| ()) {
            Some(found) if expected(&found.harm) => {
                println!("{found}");
                return;
            }
            other => seen.push(other.map(|found| found.to_string())),
        }
    }
    panic!("{attack:?} does no such harm in {FOUND_WITHIN} seeds: {seen:#?}");
}

const fn is_election(harm: &Harm) -> bool {
    matches!(harm, Harm::Election(_))
}

const fn is_starvation(harm: &Harm) -> bool {
    matches!(harm, Harm::Starved(_))
}

/// Returns whether the harm comes from one turn that kept all timers waiting: an election, or a client that
/// waited, or a late timer, whichever the run finds first.
const fn is_late(harm: &Harm) -> bool {
    matches!(harm, Harm::Election(_) | Harm::Starved(_) | Harm::Turn(_))
}

const fn is_long_turn(harm: &Harm) -> bool {
    matches!(harm, Harm::Turn(_))
}

#[test]
fn a_flood_without_slices_of_reads_causes_an_election() {
    is_found(Attack::Flood, 3, is_election);
}

#[test]
fn pings_without_slices_of_reads_starve_others() {
    is_found(Attack::Pings, 1, is_starvation);
}

#[test]
fn a_message_with_many_receivers_in_one_part_starves_others() {
    is_found(Attack::Spread, 1, is_starvation);
}

#[test]
fn unbounded_writes_starve_others() {
    is_found(Attack::Readers, 1, is_starvation);
}

#[test]
fn handshakes_on_the_loop_cause_an_election() {
    is_found(Attack::Reconnect, 3, is_election);
}

#[test]
fn unbounded_openings_and_closes_starve_others() {
    is_found(Attack::Come, 1, is_starvation);
}

#[test]
fn subscriptions_that_go_at_once_cause_an_election() {
    is_found(Attack::Leaver, 3, is_election);
}

#[test]
fn subjects_collected_at_once_make_a_turn_long() {
    is_found(Attack::Pages, 1, is_long_turn);
}

#[test]
fn messages_reclaimed_at_once_make_a_timer_late() {
    is_found(Attack::Purge, 1, is_long_turn);
}

#[test]
fn a_purge_prepared_at_once_makes_a_timer_late() {
    is_found(Attack::PurgeSubjects, 1, is_late);
}

#[test]
fn first_messages_of_a_consumer_searched_at_once_cause_an_election() {
    is_found(Attack::Consumers, 3, is_late);
}

#[test]
fn last_messages_of_patterns_looked_up_at_once_make_a_timer_late() {
    is_found(Attack::LookUps, 3, is_late);
}

/// Look-ups keep the bounds of a turn and of each wait, on one server and on three.
#[test]
fn look_ups_keep_the_bounds() {
    for (servers, heavy) in [(1, false), (3, false), (1, true), (3, true)] {
        let plan = |seed| Plan {
            attack: Attack::LookUps,
            servers,
            heavy,
            crashes: false,
            ..Plan::of(seed)
        };
        let found = first_harm(1..=3, plan, |_, _| ());
        let found = found.map(|found| found.to_string());
        assert_eq!(found, None, "{servers} servers");
    }
}

#[test]
fn unbounded_deliveries_of_many_consumers_cause_an_election() {
    is_found(Attack::Deliveries, 3, is_late);
}

#[test]
fn consumers_taken_up_at_once_make_a_timer_late() {
    is_found(Attack::StepDown, 3, is_late);
}

#[test]
fn streams_described_at_once_cause_an_election() {
    is_found(Attack::Lists, 3, is_late);
}
