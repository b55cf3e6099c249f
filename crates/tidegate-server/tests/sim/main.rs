//! Simulates the whole cluster in one thread from one seed: real stores, groups and streams on simulated
//! disks, clocks and networks. Each node has several groups in its one log, and each of them must keep the
//! invariants.
//!
//! ```text
//! # 1,000 seeds, and the planted bugs
//! cargo test -p tidegate-server --all-features --test sim
//! # that seed alone, with all its events
//! SEED=7 cargo test ... --test sim seeds -- --nocapture
//! # many, resumed where the last run stopped
//! SEEDS=1..=100000 SEEDS_DONE=target/sim-seeds cargo test --release ...
//! ```

// Clippy recognises tests by their attribute, and would not see that the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod audit;
mod bugs;
mod catch_up;
mod client;
mod consume;
mod coverage;
mod dice;
mod ledger;
mod member;
mod model;
mod net;
mod node;
mod oracle;
mod retain;
mod run;
mod taking;
mod tapping;
mod world;

use bugs::Bug;
use run::{first_failure, report};

/// The seeds that the test runs. Each seed takes some 30 ms of a core.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=1000;

/// The number of seeds within which the tests must find every planted bug.
const FOUND_WITHIN: u64 = 1000;

#[test]
fn seeds() {
    report(SEEDS);
}

/// Checks that the tests find a bug with all oracles, and also by only the effects that clients and other
/// nodes see.
fn is_found(bug: Bug) {
    for blind in [false, true] {
        let by = if blind { "from outside" } else { "on disks" };
        match first_failure(1..=FOUND_WITHIN, bug, blind) {
            Some(failure) => println!("{bug:?} is found {by}: {failure}"),
            None => panic!("{bug:?} is not found {by} in {FOUND_WITHIN} seeds"),
        }
    }
}

#[test]
fn an_ack_before_the_sync_is_found() {
    is_found(Bug::AckBeforeSync);
}

#[test]
fn a_vote_that_is_not_persisted_is_found() {
    is_found(Bug::VoteLost);
}

#[test]
fn a_lost_tail_that_is_cut_silently_is_found() {
    is_found(Bug::TailCut);
}

#[test]
fn a_stale_answer_to_an_append_is_found() {
    is_found(Bug::StaleAnswer);
}

#[test]
fn a_vote_written_after_the_entries_is_found() {
    is_found(Bug::VoteAfterEntries);
}

#[test]
fn ids_lost_in_a_checkpoint_are_found() {
    is_found(Bug::DedupLost);
}

#[test]
fn a_place_taken_without_asking_for_terms_is_found() {
    is_found(Bug::TermNotAsked);
}

#[test]
fn a_vote_before_everything_is_had_again_is_found() {
    is_found(Bug::VotesAtOnce);
}
