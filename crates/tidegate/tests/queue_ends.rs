//! Tests the public behaviour of the queue: order, room, closing, waiting, panics and drops, with one test
//! for each promise.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::controller::{Observed, Reason, Rule, Ruled};
use tidegate::queue::{
    Builder, Drained, Flush, FlushError, Full, PushError, QueueError, RecvError, Visit, Wait,
    bounded,
};
use tidegate::{Time, queue};

/// An executor for one future: parks the thread between polls.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => return out,
            Poll::Pending => thread::park(),
        }
    }
}

/// Drains the queue until it is closed, and returns all items.
fn rest<T: Send>(consumer: &mut queue::Consumer<T>) -> Vec<T> {
    let mut all = Vec::new();
    while consumer.blocking_recv_into(&mut all, usize::MAX).is_ok() {}
    all
}

#[test]
fn impossible_settings_say_what_is_allowed() {
    let zero = bounded::<u8>(0).err();
    assert_eq!(zero, Some(QueueError::ZeroCapacity));
    assert!(zero.is_some_and(|e| e.to_string().contains("at least 1")));
    let large = bounded::<u8>(usize::MAX).err();
    assert!(matches!(large, Some(QueueError::CapacityTooLarge { .. })));
    let linger = Builder::new(1).linger(Duration::ZERO).build::<u8>().err();
    assert_eq!(linger, Some(QueueError::ZeroLinger));
    let (queue, _consumer) = bounded::<u8>(1).unwrap();
    assert_eq!(queue.fixed(0).err(), Some(QueueError::ZeroLimit));
    assert!(matches!(
        queue.fixed(usize::MAX).err(),
        Some(QueueError::LimitTooLarge { .. })
    ));
}

#[test]
fn the_capacity_is_exact() {
    for capacity in [1, 2, 3, 5, 8, 100] {
        let (queue, mut consumer) = bounded(capacity).unwrap();
        for round in 0..3 {
            for i in 0..capacity {
                queue.try_push(round * capacity + i).unwrap();
            }
            assert_eq!(queue.try_push(0), Err(PushError::Full(0)));
            let mut out = Vec::new();
            let batch = consumer.drain_into(&mut out, usize::MAX);
            assert_eq!(batch.items, capacity);
            assert_eq!((batch.left, batch.reason), (0, Reason::Drained));
            assert!(
                out.iter()
                    .copied()
                    .eq(round * capacity..(round + 1) * capacity)
            );
        }
        assert_eq!(queue.metrics().insert_failures, 3);
    }
}

#[test]
fn a_limit_cuts_a_batch_and_says_what_is_left() {
    let (queue, mut consumer) = bounded(16).unwrap();
    queue.blocking_push_many(&mut (0..10).collect()).unwrap();
    let mut out = Vec::new();
    let batch = consumer.drain(4, |i| out.push(i));
    assert_eq!(
        (batch.items, batch.left, batch.reason),
        (4, 6, Reason::Limit)
    );
    assert_eq!(consumer.drain(0, |i| out.push(i)).items, 0);
    let batch = consumer.drain(6, |i| out.push(i));
    assert_eq!(
        (batch.items, batch.left, batch.reason),
        (6, 0, Reason::Drained)
    );
    assert_eq!(out, (0..10).collect::<Vec<_>>());
    let drains = consumer.metrics().drains;
    assert_eq!(
        (drains.batches(), drains.items, drains.items_max),
        (2, 10, 6)
    );
    assert_eq!(drains.batches_for(Reason::Limit), 1);
}

#[test]
fn the_end_of_a_batch_is_told_once_and_never_of_an_empty_one() {
    struct Log(Vec<u8>, Vec<usize>);
    impl Visit<u8> for Log {
        fn item(&mut self, item: u8) {
            self.0.push(item);
        }
        fn end_of_batch(&mut self, batch: Drained) {
            self.1.push(batch.items);
        }
    }
    let (queue, mut consumer) = bounded(8).unwrap();
    let mut log = Log(Vec::new(), Vec::new());
    consumer.drain_to(8, &mut log);
    queue.blocking_push_many(&mut vec![1, 2, 3]).unwrap();
    consumer.drain_to(2, &mut log);
    consumer.drain_to(2, &mut log);
    consumer.drain_to(2, &mut log);
    assert_eq!((log.0, log.1), (vec![1, 2, 3], vec![2, 1]));
}

#[test]
fn slices_and_vectors_keep_order_and_tell_what_is_left() {
    let all: Vec<u32> = (0..1000).collect();
    for limit in [0, 1, 3, 64, 4096] {
        let (queue, mut consumer) = bounded(16).unwrap();
        let mut producer = match limit {
            0 => queue.producer(),
            n => queue.fixed(n).unwrap(),
        };
        drop(queue);
        let pushed = all.clone();
        let pushing = thread::spawn(move || {
            for (i, part) in pushed.chunks(37).enumerate() {
                if i % 2 == 0 {
                    producer.blocking_push_slice(part).unwrap();
                } else {
                    producer.blocking_push_many(&mut part.to_vec()).unwrap();
                }
            }
        });
        assert_eq!(rest(&mut consumer), all, "limit {limit}");
        pushing.join().unwrap();
    }

    let (queue, mut consumer) = Builder::new(4).full(Full::Reject).build().unwrap();
    assert_eq!(
        queue.blocking_push_slice(&[1, 2, 3, 4, 5, 6]),
        Err(FlushError::Full { left: 2 })
    );
    let mut producer = queue.fixed(3).unwrap();
    assert_eq!(
        producer.blocking_push_slice(&[11, 12, 13, 14]),
        Err(FlushError::Full { left: 1 })
    );
    queue.close();
    assert_eq!(
        producer.blocking_push_slice(&[14, 15]),
        Err(FlushError::Closed { left: 2 })
    );
    let mut many = vec![16, 17];
    assert!(producer.blocking_push_many(&mut many).is_err());
    assert_eq!(many, [16, 17]);
    drop((queue, producer));
    assert_eq!(rest(&mut consumer), [1, 2, 3, 4, 11, 12, 13]);

    let (queue, mut consumer) = bounded(64).unwrap();
    let mut producer = queue.fixed(8).unwrap();
    producer.blocking_push_slice(&[1, 2, 3]).unwrap();
    queue.close();
    assert_eq!(
        producer.blocking_push_slice(&[4, 5]),
        Err(FlushError::Closed { left: 2 })
    );
    drop((queue, producer));
    assert_eq!(rest(&mut consumer), [1, 2, 3]);
}

#[test]
fn a_buffer_leaves_when_full_when_asked_and_when_dropped() {
    let (queue, mut consumer) = bounded(64).unwrap();
    let mut producer = queue.fixed(3).unwrap();
    let mut out = Vec::new();
    producer.blocking_push(1).unwrap();
    producer.blocking_push(2).unwrap();
    assert_eq!((producer.buffered(), consumer.backlog()), (2, 0));
    producer.blocking_push(3).unwrap();
    assert_eq!((producer.buffered(), consumer.backlog()), (0, 3));
    producer.blocking_push(4).unwrap();
    producer.blocking_flush().unwrap();
    producer.blocking_push(5).unwrap();
    drop(producer);
    consumer.drain_into(&mut out, 64);
    assert_eq!(out, [1, 2, 3, 4, 5]);
    let metrics = queue.metrics();
    let by = |reason| metrics.flushes.batches_for(reason);
    assert_eq!(
        (by(Reason::Limit), by(Reason::Asked), by(Reason::Closing)),
        (1, 1, 1)
    );
    assert_eq!((metrics.buffers, metrics.flushes.items), (0, 5));
}

#[test]
fn an_ended_producer_gives_back_what_no_flush_took() {
    let (queue, mut consumer) = bounded::<u8>(8).unwrap();
    let mut producer = queue.fixed(4).unwrap();
    for n in 0..6 {
        producer.blocking_push(n).unwrap();
    }
    assert_eq!(producer.into_unflushed(), [4, 5]);
    assert_eq!(queue.metrics().buffers, 0);
    queue.close();
    assert_eq!(rest(&mut consumer), [0, 1, 2, 3]);
}

#[test]
fn a_rejecting_queue_gives_the_item_back() {
    let (queue, mut consumer) = Builder::new(2).full(Full::Reject).build().unwrap();
    let mut producer = queue.fixed(2).unwrap();
    for i in 0..4 {
        producer.blocking_push(i).unwrap();
    }
    assert_eq!(producer.blocking_push(4), Err(PushError::Full(4)));
    assert_eq!(queue.blocking_push(5), Err(PushError::Full(5)));
    assert_eq!(producer.blocking_flush(), Err(FlushError::Full { left: 2 }));
    assert_eq!(queue.metrics().rejected, 2);
    drop((producer, queue));
    assert_eq!(rest(&mut consumer), [0, 1, 2, 3]);
}

#[test]
fn the_newest_or_the_oldest_is_dropped_and_counted() {
    let (queue, mut consumer) = Builder::new(4).full(Full::DropNewest).build().unwrap();
    for i in 0..10 {
        queue.blocking_push(i).unwrap();
    }
    queue.blocking_push_many(&mut vec![10, 11]).unwrap();
    assert_eq!(queue.metrics().dropped_newest, 8);
    drop(queue);
    assert_eq!(rest(&mut consumer), [0, 1, 2, 3]);

    let (queue, mut consumer) = Builder::new(4).full(Full::DropOldest).build().unwrap();
    for i in 0..10 {
        queue.blocking_push(i).unwrap();
    }
    assert_eq!(queue.metrics().dropped_oldest, 6);
    queue.blocking_push_many(&mut vec![10, 11]).unwrap();
    let mut producer = queue.fixed(3).unwrap();
    for i in 12..15 {
        producer.blocking_push(i).unwrap();
    }
    producer.blocking_flush().unwrap();
    drop((queue, producer));
    assert_eq!(rest(&mut consumer), [11, 12, 13, 14]);
}

#[test]
fn closed_both_ways() {
    let (queue, mut consumer) = bounded(4).unwrap();
    let mut producer = queue.fixed(4).unwrap();
    producer.blocking_push(1).unwrap();
    queue.blocking_push(2).unwrap();
    queue.close();
    assert_eq!(queue.blocking_push(3), Err(PushError::Closed(3)));
    assert_eq!(producer.blocking_push(3), Err(PushError::Closed(3)));
    assert_eq!(producer.try_push(3), Err(PushError::Closed(3)));
    assert_eq!(
        producer.blocking_flush(),
        Err(FlushError::Closed { left: 1 })
    );
    let mut all = rest(&mut consumer);
    all.sort_unstable();
    assert_eq!(all, [1, 2]);
    assert!(consumer.is_finished());
    assert_eq!(consumer.blocking_recv(1, |_| ()), Err(RecvError::Closed));
    assert_eq!(producer.blocking_push(3), Err(PushError::Closed(3)));

    let (queue, consumer) = bounded(4).unwrap();
    let mut producer = queue.fixed(4).unwrap();
    producer.blocking_push(1).unwrap();
    drop(consumer);
    assert_eq!(queue.blocking_push(3), Err(PushError::Closed(3)));
    assert_eq!(producer.blocking_push(3), Err(PushError::Closed(3)));
    assert_eq!(queue.metrics().buffers, 0);
}

/// In Apache Storm, a flush moves at least one item and may strand the rest. With two producers and batches
/// of 1000, a run of Storm never ended.
#[test]
fn two_producers_of_a_thousand_always_end() {
    for (capacity, limit) in [(64, 1000), (1024, 1000), (1, 1000), (1500, 1000)] {
        let (queue, mut consumer) = bounded(capacity).unwrap();
        let producers: Vec<_> = (0..2u64)
            .map(|who| {
                let mut producer = queue.fixed(limit).unwrap();
                thread::spawn(move || {
                    for i in 0..30_500 {
                        producer.blocking_push(i * 2 + who).unwrap();
                    }
                    producer.blocking_flush().unwrap();
                    assert_eq!(producer.buffered(), 0);
                })
            })
            .collect();
        drop(queue);
        let mut next = [0, 0];
        let mut items = 0;
        while let Ok(batch) = consumer.blocking_recv(256, |i: u64| {
            let who = (i % 2) as usize;
            assert_eq!(i / 2, next[who]);
            next[who] += 1;
        }) {
            items += batch.items;
        }
        assert_eq!(items, 61_000);
        for producer in producers {
            producer.join().unwrap();
        }
    }
}

#[test]
fn every_wait_strategy_moves_everything() {
    for wait in [Wait::Spin, Wait::Yield, Wait::Park, Wait::Progressive] {
        let (queue, mut consumer) = Builder::new(8).wait(wait).build().unwrap();
        let direct = queue.clone();
        let mut buffered = queue.fixed(5).unwrap();
        let threads = [
            thread::spawn(move || (0..5000u32).for_each(|i| direct.blocking_push(i).unwrap())),
            thread::spawn(move || (0..5000u32).for_each(|i| buffered.blocking_push(i).unwrap())),
        ];
        drop(queue);
        let all = rest(&mut consumer);
        assert_eq!(all.len(), 10_000);
        assert_eq!(all.iter().map(|&i| u64::from(i)).sum::<u64>(), 4999 * 5000);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_sleeping_consumer_takes_a_quiet_producers_item_at_once() {
    let (queue, mut consumer) = Builder::new(64).wait(Wait::Park).build().unwrap();
    let mut producer = queue.fixed(50).unwrap();
    let reader = thread::spawn(move || {
        let mut out = Vec::new();
        while out.len() < 3 {
            consumer.blocking_recv_into(&mut out, 64).unwrap();
        }
        (consumer, out)
    });
    while queue.metrics().consumer_waits == 0 {
        thread::yield_now();
    }
    for i in 0..3 {
        producer.blocking_push(i).unwrap();
    }
    // The consumer must get the items before the producer is flushed or dropped.
    let (consumer, out) = reader.join().unwrap();
    assert_eq!(out, [0, 1, 2]);
    drop((producer, consumer));
}

#[test]
fn a_panicking_drain_keeps_what_it_did_not_see() {
    for full in [Full::Wait, Full::DropOldest] {
        let (queue, mut consumer) = Builder::new(8).full(full).build().unwrap();
        queue.blocking_push_many(&mut (0..8).collect()).unwrap();
        let mut seen = Vec::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            consumer.drain(8, |i| {
                assert!(i != 3, "on purpose");
                seen.push(i);
            })
        }));
        assert!(panicked.is_err());
        queue
            .try_push(8)
            .expect("the slots of what was seen are free");
        drop(queue);
        assert_eq!(rest(&mut consumer), [4, 5, 6, 7, 8]);
        assert_eq!(seen, [0, 1, 2]);
    }
}

#[test]
fn the_lane_keeps_order_and_does_not_starve() {
    let (queue, mut consumer) = Builder::new(4).overflow(3).build().unwrap();
    let mut producer = queue.fixed(2).unwrap();
    for i in 0..9 {
        producer.push_or_overflow(i).unwrap();
    }
    let mut out = Vec::new();
    // The ring holds 4 items, the buffer 2 and the lane 3, so the queue accepts no further item.
    assert_eq!(queue.push_or_overflow(100), Err(PushError::Full(100)));
    while out.len() < 9 {
        consumer.blocking_recv_into(&mut out, 1).unwrap();
    }
    assert_eq!(out, (0..9).collect::<Vec<_>>());
    assert_eq!(queue.metrics().overflowed, 3);

    // The test keeps the ring full; the lane's item still comes at its place.
    let (queue, mut consumer) = Builder::new(4).overflow(3).build().unwrap();
    for i in 0..4 {
        queue.blocking_push(i).unwrap();
    }
    queue.push_or_overflow(4).unwrap();
    let mut out = Vec::new();
    for i in 5..9 {
        consumer.drain_into(&mut out, 1);
        queue.blocking_push(i).unwrap();
    }
    consumer.drain_into(&mut out, 5);
    assert_eq!(out[..5], [0, 1, 2, 3, 4]);
}

#[test]
fn tasks_and_threads_on_either_side() {
    let (queue, mut consumer) = bounded(4).unwrap();
    let task = queue.clone();
    let mut buffered = queue.fixed(3).unwrap();
    let threads = [
        thread::spawn(move || (0..500u32).for_each(|i| queue.blocking_push(i).unwrap())),
        thread::spawn(move || {
            block_on(async move {
                for i in 0..500 {
                    task.push(i).await.unwrap();
                }
            });
        }),
        thread::spawn(move || {
            block_on(async move {
                for i in 0..500 {
                    buffered.push(i).await.unwrap();
                }
                buffered.flush().await.unwrap();
            });
        }),
    ];
    let mut out = Vec::new();
    block_on(async { while consumer.recv_into(&mut out, 3).await.is_ok() {} });
    assert_eq!(out.len(), 1500);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_dropped_waiting_push_passes_its_turn_on() {
    let (queue, mut consumer) = bounded(1).unwrap();
    queue.blocking_push(0).unwrap();
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let wakes: Vec<_> = (0..2)
        .map(|_| Arc::new(Count(AtomicUsize::new(0))))
        .collect();
    let wakers: Vec<_> = wakes.iter().map(|w| Waker::from(w.clone())).collect();
    let count = |i: usize| wakes[i].0.load(Ordering::Relaxed);
    let mut first = Box::pin(queue.push(1));
    let mut second = Box::pin(queue.push(2));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(&wakers[0]))
            .is_pending()
    );
    assert!(
        second
            .as_mut()
            .poll(&mut Context::from_waker(&wakers[1]))
            .is_pending()
    );
    assert_eq!(consumer.drain(1, |_| ()).items, 1);
    assert_eq!((count(0), count(1)), (1, 0));
    drop(first);
    assert_eq!(count(1), 1);
    assert!(
        second
            .as_mut()
            .poll(&mut Context::from_waker(&wakers[1]))
            .is_ready()
    );
}

#[test]
fn a_stage_flushes_its_output_before_it_waits() {
    let (input, mut from) = bounded::<u32>(16).unwrap();
    let (output, mut to) = bounded::<u32>(16).unwrap();
    let mut out = output.fixed(10).unwrap();
    let stage = thread::spawn(move || {
        loop {
            if from
                .blocking_wait_flushing(&mut [&mut out as &mut dyn Flush])
                .is_err()
            {
                return;
            }
            from.drain(16, |i| out.blocking_push(i * 2).unwrap());
        }
    });
    input.blocking_push(21).unwrap();
    let mut got = None;
    // The consumer of the second queue does not sweep buffers in this test, so only a flush makes the item
    // visible.
    while to.backlog() == 0 {
        thread::yield_now();
    }
    to.drain(1, |i| got = Some(i));
    assert_eq!(got, Some(42));
    drop(input);
    stage.join().unwrap();
}

/// A rule for tests that doubles its limit after each full batch and resets it after any other.
struct Doubling(u64);
impl Rule for Doubling {
    fn limit(&self) -> u64 {
        self.0
    }
    fn observe(&mut self, batch: Observed) {
        self.0 = if batch.full { (self.0 * 2).min(32) } else { 1 };
    }
}

#[test]
fn a_controlled_producer_follows_its_controller() {
    let (queue, mut consumer) = bounded(1024).unwrap();
    let mut producer = queue
        .controlled(32, Box::new(Ruled::new(Doubling(1))))
        .unwrap();
    let mut limits = Vec::new();
    for i in 0..(1 + 2 + 4 + 8 + 16 + 32 + 32) {
        let before = producer.limit();
        producer.blocking_push(i).unwrap();
        if producer.limit() != before {
            limits.push(producer.limit());
        }
    }
    assert_eq!(limits, [2, 4, 8, 16, 32]);
    let flushes = queue.metrics().flushes;
    assert_eq!(
        (flushes.batches(), flushes.items, flushes.items_max),
        (7, 95, 32)
    );
    producer.blocking_push(0).unwrap();
    producer.blocking_flush().unwrap();
    assert_eq!(producer.limit(), 1);
    assert!(producer.controller().is_some());
    assert_eq!(consumer.drain(1024, |_| ()).items, 96);
}

#[test]
fn flush_if_due_waits_one_linger() {
    let (queue, consumer) = bounded(16).unwrap();
    let mut producer = queue.fixed(8).unwrap();
    producer.blocking_push(1).unwrap();
    producer.flush_if_due(Time::from_nanos(5)).unwrap();
    producer.flush_if_due(Time::from_nanos(999_000)).unwrap();
    assert_eq!(consumer.backlog(), 0);
    producer.flush_if_due(Time::from_nanos(1_000_005)).unwrap();
    assert_eq!((consumer.backlog(), producer.buffered()), (1, 0));
    assert_eq!(queue.metrics().flushes.batches_for(Reason::Linger), 1);
}

#[test]
fn a_timed_drain_ends_without_items() {
    let (queue, mut consumer) = bounded::<u8>(4).unwrap();
    let start = Instant::now();
    let batch = consumer
        .blocking_recv_timeout(4, Duration::from_millis(5), |_| ())
        .unwrap();
    assert_eq!(batch.items, 0);
    assert!(start.elapsed() >= Duration::from_millis(5));
    queue.blocking_push(1).unwrap();
    let batch = consumer
        .blocking_recv_timeout(4, Duration::from_secs(60), |_| ())
        .unwrap();
    assert_eq!(batch.items, 1);
    drop(queue);
    assert!(
        consumer
            .blocking_recv_timeout(4, Duration::from_secs(60), |_| ())
            .is_err()
    );
}
