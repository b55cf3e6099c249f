//! Tests that threads and tasks that wait for room in an actor bounded in bytes get about equal shares of it.
//!
//! The test counts accepted items and stops at a total, so that a busy machine makes it slower and not wrong.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use batcher_common::{LONG, until};
use tidegate::batcher::{Builder, Handle, each_batch};
use tidegate::controller::{Bounds, Fixed};

/// The bound on the bytes that may wait for the actor.
const BOUND: u64 = 1_000;

/// The number and the bytes of a producer's accepted items, to compare producers.
#[derive(Clone, Copy, Debug)]
struct Share {
    items: u64,
    bytes: u64,
}

#[derive(Default)]
struct Count {
    items: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    fn add(&self, bytes: u64) {
        self.items.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn read(&self) -> Share {
        Share {
            items: self.items.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

/// A function that returns the weight, in bytes, of the item with this number. No two producers use the same
/// numbers.
type Sizes = fn(u64) -> u64;

const MIXED: Sizes = mixed;
const LARGE: Sizes = large;

/// Returns a weight of 1 to 100 bytes. The order of the weights differs from producer to producer.
fn mixed(n: u64) -> u64 {
    let drawn = n.wrapping_mul(6_364_136_223_846_793_005) >> 33;
    [1, 3, 10, 30, 100][(drawn % 5) as usize]
}

/// Returns a weight of nine tenths of the bound, so that two items never fit.
fn large(_: u64) -> u64 {
    BOUND * 9 / 10
}

/// Returns each producer's accepted items, first of the blocking threads, then of the tasks. The run stops
/// after about `total` items beyond the first of each producer. An item weighs as many bytes as its value.
fn shares(threads: &[Sizes], tasks: &[Sizes], total: u64) -> Vec<Share> {
    // The tests of this file run one after the other, and each is long in comparison with the time that a
    // busy machine takes its processors away from a producer. The other producers get the room that such a
    // producer leaves.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let handled = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&handled);
    let handle: Handle<u64> = Builder::new()
        .weigh(|bytes: &u64| *bytes)
        .capacity_bytes(BOUND)
        .spawn(each_batch(move |items: &mut Vec<u64>| {
            (0..1_000 * items.len()).for_each(|n| {
                black_box(n);
            });
            seen.fetch_add(items.len() as u64, Relaxed);
        }))
        .unwrap();
    let counts: Vec<_> = threads
        .iter()
        .chain(tasks)
        .map(|_| Count::default())
        .collect();
    let counts: &'static [Count] = counts.leak();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let sending: Vec<_> = threads
        .iter()
        .zip(counts)
        .zip(0_u64..)
        .map(|((size, count), seed)| {
            let (handle, size) = (handle.clone(), *size);
            thread::spawn(move || {
                let items = (seed << 32..).map(size);
                for bytes in items {
                    if handle.blocking_cast(bytes).is_err() {
                        break;
                    }
                    count.add(bytes);
                }
            })
        })
        .collect();
    for ((size, count), seed) in tasks.iter().zip(&counts[threads.len()..]).zip(100_u64..) {
        let (handle, size) = (handle.clone(), *size);
        runtime.spawn(async move {
            let items = (seed << 32..).map(size);
            for bytes in items {
                if handle.cast(bytes).await.is_err() {
                    break;
                }
                count.add(bytes);
            }
        });
    }
    until(|| counts.iter().all(|count| count.read().items > 0));
    let before: Vec<_> = counts.iter().map(Count::read).collect();
    let end = handled.load(Relaxed) + total;
    until(|| handled.load(Relaxed) >= end);
    let after = counts.iter().map(Count::read);
    let shares = after
        .zip(before)
        .map(|(after, before)| Share {
            items: after.items - before.items,
            bytes: after.bytes - before.bytes,
        })
        .collect();
    handle.blocking_stop("enough", LONG).unwrap();
    sending
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    shares
}

/// Asserts that the largest share is at most twice the smallest.
fn assert_fair(shares: &[Share]) {
    for of in [|share: &Share| share.items, |share: &Share| share.bytes] {
        let shares: Vec<_> = shares.iter().map(of).collect();
        let (least, most) = (*shares.iter().min().unwrap(), *shares.iter().max().unwrap());
        println!("{:.2} {shares:?}", most as f64 / least as f64);
        assert!(most <= 2 * least, "{shares:?}");
    }
}

#[test]
fn threads_and_tasks_share_the_bytes_of_a_full_actor() {
    assert_fair(&shares(&[MIXED; 8], &[MIXED; 8], 300_000));
}

#[test]
fn threads_alone_and_tasks_alone_share_them() {
    assert_fair(&shares(&[MIXED; 8], &[], 300_000));
    assert_fair(&shares(&[], &[MIXED; 8], 300_000));
}

#[test]
fn two_threads_keep_their_share_of_bytes_beside_eight_tasks() {
    assert_fair(&shares(&[MIXED; 2], &[MIXED; 8], 300_000));
}

#[test]
fn a_sender_in_line_ends_each_wait_for_company() {
    let linger = Duration::from_secs(3_600);
    let fixed = Fixed::new(100).with_linger(linger).controller();
    let bounds = Bounds {
        age_max: linger,
        ..Bounds::default()
    };
    let handled = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&handled);
    let handle = Builder::new()
        .controller(fixed)
        .bounds(bounds)
        // One waiting item leaves room for one byte, too little for another item.
        .weigh(|_| 3)
        .capacity_bytes(4)
        .spawn(each_batch(move |items: &mut Vec<u64>| {
            seen.fetch_add(items.len() as u64, Relaxed);
        }))
        .unwrap();
    thread::scope(|s| {
        for n in 0..5 {
            let handle = &handle;
            s.spawn(move || handle.blocking_cast(n).unwrap());
        }
        // Each item gets room once the actor takes the item before it. No later item ends the wait of the
        // last.
        until(|| handled.load(Relaxed) == 4);
    });
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(handled.load(Relaxed), 5);
}

#[test]
fn large_items_do_not_starve_behind_small_ones() {
    let (one, many) = ([LARGE], [MIXED; 8]);
    for (threads, tasks) in [(&one[..], &many[..]), (&many[..], &one[..])] {
        let shares = shares(threads, tasks, 30_000);
        println!("{shares:?}");
        let is_large = |share: &&Share| share.bytes == share.items * large(0);
        let largest = shares.iter().filter(is_large).map(|share| share.bytes);
        let others = shares.iter().filter(|share| !is_large(share));
        let most = others.map(|share| share.bytes).max().unwrap();
        assert!(2 * largest.max().unwrap() >= most, "{shares:?}");
    }
}
