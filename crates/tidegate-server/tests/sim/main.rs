//! The whole cluster in one thread from one seed: real stores, groups and streams on simulated disks, clocks and networks.
//!
//! `SEED=7 cargo test --features sim --test sim -- --nocapture` runs that seed alone, and says what happens in it.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod bugs;
mod client;
mod coverage;
mod dice;
mod ledger;
mod model;
mod net;
mod node;
mod oracle;
mod world;

use coverage::Coverage;
use world::{Plan, World};

#[test]
fn seeds() {
    let one: Option<u64> = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let mut seen = Coverage::default();
    let seeds = one.map_or(1..=100, |seed| seed..=seed);
    let start = std::time::Instant::now();
    for seed in seeds {
        let plan = Plan {
            seed,
            bug: None,
            trace: one.is_some(),
        };
        match World::run(plan) {
            Ok(covered) => seen.merge(&covered),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{seen}{:?}", start.elapsed());
}
