//! Tests that threads and tasks that wait for room in one full queue get about equal shares of it.
//!
//! The test counts accepted items and stops at a total, so that a busy machine makes it slower and not wrong.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};
use std::thread;

use tidegate::queue::{Consumer, Queue, bounded};

/// Returns each producer's accepted items: first of `threads` blocking producers, then of `tasks`. The
/// run stops after about `total` items beyond the first of each producer. The consumer spends `work`
/// steps on each item.
fn shares(capacity: usize, threads: usize, tasks: usize, total: u64, work: u64) -> Vec<u64> {
    let (queue, mut consumer) = bounded::<u64>(capacity).unwrap();
    let counts: Vec<AtomicU64> = (0..threads + tasks).map(|_| AtomicU64::new(0)).collect();
    let counts: &'static [AtomicU64] = counts.leak();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let blocking: Vec<_> = counts[..threads]
        .iter()
        .map(|count| {
            let queue = queue.clone();
            thread::spawn(move || {
                while queue.blocking_push(0).is_ok() {
                    count.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for count in &counts[threads..] {
        let queue: Queue<u64> = queue.clone();
        runtime.spawn(async move {
            while queue.push(0).await.is_ok() {
                count.fetch_add(1, Relaxed);
            }
        });
    }
    let count = || {
        counts
            .iter()
            .map(|count| count.load(Relaxed))
            .collect::<Vec<_>>()
    };
    let mut drain = || {
        let drained = consumer.blocking_recv(usize::MAX, |_| {
            (0..work).for_each(|n| {
                black_box(n);
            });
        });
        drained.unwrap().items as u64
    };
    while count().contains(&0) {
        drain();
    }
    let before = count();
    let mut seen = 0;
    while seen < total {
        seen += drain();
    }
    let shares = count()
        .iter()
        .zip(before)
        .map(|(now, before)| now - before)
        .collect();
    queue.close();
    drop(consumer);
    blocking
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    shares
}

/// Asserts that the largest share is at most twice the smallest. The runs take turns, and each is long in
/// comparison with the time that a busy machine takes its processors away from a producer. The other
/// producers get the room that such a producer leaves.
fn assert_fair(capacity: usize, threads: usize, tasks: usize) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let shares = shares(capacity, threads, tasks, 1_000_000, 1_000);
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    let ratio = *most as f64 / *least as f64;
    println!("{capacity} slots, {threads} threads, {tasks} tasks: {ratio:.2} {shares:?}");
    assert!(*most <= 2 * *least, "{shares:?}");
}

#[test]
fn threads_and_tasks_share_a_full_queue() {
    assert_fair(64, 8, 8);
    assert_fair(1024, 8, 8);
}

#[test]
fn threads_alone_and_tasks_alone_share_a_full_queue() {
    assert_fair(64, 8, 0);
    assert_fair(64, 0, 8);
}

#[test]
fn two_threads_keep_their_share_beside_eight_tasks() {
    assert_fair(64, 2, 8);
}

#[test]
fn a_waiter_that_does_not_come_holds_no_other_up() {
    for capacity in [1, 2, 8] {
        let (queue, mut consumer) = bounded::<u64>(capacity).unwrap();
        (0..capacity as u64).for_each(|item| queue.try_push(item).unwrap());
        // The first push in line is never polled again.
        let mut first = Box::pin(queue.push(100));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        thread::scope(|s| {
            let pushing = s.spawn(|| (0..1000).try_for_each(|item| queue.blocking_push(item)));
            let mut got = 0;
            while got < capacity + 1000 {
                got += consumer.blocking_recv(8, drop).unwrap().items;
            }
            pushing.join().unwrap().unwrap();
        });
        assert!(falls_asleep(&mut consumer));
        assert!(first.as_mut().poll(&mut cx).is_ready());
    }
}

/// Lets the consumer go to sleep as a task. Returns whether it found no item.
fn falls_asleep(consumer: &mut Consumer<u64>) -> bool {
    consumer
        .poll_ready(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}
