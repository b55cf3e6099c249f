//! Tests that an actor behaves as gen_batch_server does: compares the batches of its benchmark, one by one.
#![allow(clippy::unwrap_used)]

mod batcher_common;

use batcher_common::*;
use tidegate::batcher::Builder;
use tidegate::controller::{Aimd, Exponential};

/// Returns the batches of 100,000 casts that wait when the server starts on them, as in the benchmark of
/// gen_batch_server's pull request 29.
fn backlog(builder: Builder<u64>) -> Vec<usize> {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = builder.capacity(100_000).spawn(handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many(0..100_000).unwrap();
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.items()[1..], (0..100_000).collect::<Vec<_>>());
    log.sizes()[1..].to_vec()
}

#[test]
fn exponential_takes_20_batches() {
    let sizes = backlog(builder().controller(Exponential::new().controller()));
    let mut expected = vec![32, 64, 128, 256, 512, 1024, 2048, 4096];
    expected.extend([8192; 11]);
    expected.push(1728);
    assert_eq!(sizes, expected);
}

#[test]
fn aimd_takes_79_or_56_or_40_batches() {
    for (step, batches, largest) in [(32, 79, 2496), (64, 56, 3488), (128, 40, 4896)] {
        let sizes = backlog(builder().controller(Aimd::new(step).controller()));
        let max = sizes.iter().copied().max();
        assert_eq!((sizes.len(), max), (batches, Some(largest)), "step {step}");
        let grown = sizes.windows(2).take(batches - 2);
        assert!(grown.into_iter().all(|w| w[1] == w[0] + step as usize));
    }
}

#[test]
fn partial_batches_halve_the_limit_down_to_the_least() {
    let log = Log::default();
    let mut rule = Gbs::new(32, 8192);
    rule.limit = 8192;
    let handle = builder()
        .controller(rule.controller())
        .spawn(Scripted::new(&log))
        .unwrap();
    let limits: Vec<u64> = (0..10)
        .map(|n| {
            handle.blocking_call(n).unwrap();
            handle.blocking_controller().unwrap().limit
        })
        .collect();
    assert_eq!(limits, [4096, 2048, 1024, 512, 256, 128, 64, 32, 32, 32]);
}

#[test]
fn a_lone_item_at_limit_one_is_no_reason_to_wait() {
    let log = Log::default();
    let handle = builder()
        .controller(Exponential::between(1, 8192).controller())
        .spawn(Scripted::new(&log))
        .unwrap();
    for n in 0..100 {
        assert_eq!(handle.blocking_call(n).unwrap(), n * 10);
    }
    let stats = handle.stats();
    assert_eq!((stats.batches, stats.items_max), (100, 1));
    assert_eq!(handle.blocking_controller().unwrap().counts.waits, 0);
}
