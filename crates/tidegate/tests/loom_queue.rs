//! Checks models of the queue with loom: every interleaving of a few steps, weak memory included, up to a few
//! preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tidegate --release --test loom_queue`
//!
//! loom does not model time, so the models run settled: the flag `IDLING` is always up and every push into a
//! buffer takes the fence (see "How the consumer never misses an item while it sleeps" in the module's
//! documentation). A lost wake-up shows as a deadlock.
#![cfg(loom)]

use loom::thread;
use tidegate::queue::{Builder, Consumer, Full, PushError, Queue, Wait};

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

fn queue(capacity: usize) -> (Queue<u32>, Consumer<u32>) {
    Builder::new(capacity)
        .wait(Wait::Park)
        .build()
        .expect("a capacity")
}

/// Drains by blocking until the queue is closed, and returns all items.
fn rest(consumer: &mut Consumer<u32>) -> Vec<u32> {
    let mut all = Vec::new();
    while consumer.blocking_recv_into(&mut all, 8).is_ok() {}
    all
}

fn in_order(all: &[u32], of: impl Fn(u32) -> bool) -> Vec<u32> {
    all.iter().copied().filter(|&i| of(i)).collect()
}

#[test]
fn two_producers_and_a_sleeping_consumer() {
    model(1, || {
        let (queue, mut consumer) = queue(4);
        let other = queue.clone();
        let a = thread::spawn(move || {
            queue.blocking_push(1).unwrap();
            queue.blocking_push(2).unwrap();
        });
        let b = thread::spawn(move || {
            other.blocking_push_many(&mut vec![11, 12]).unwrap();
        });
        let all = rest(&mut consumer);
        assert_eq!(in_order(&all, |i| i < 10), [1, 2]);
        assert_eq!(in_order(&all, |i| i > 10), [11, 12]);
        a.join().unwrap();
        b.join().unwrap();
    });
}

#[test]
fn a_full_ring_makes_producers_wait() {
    model(2, || {
        let (queue, mut consumer) = queue(1);
        let a = thread::spawn(move || {
            queue.blocking_push_many(&mut vec![1, 2, 3]).unwrap();
        });
        assert_eq!(rest(&mut consumer), [1, 2, 3]);
        a.join().unwrap();
    });
}

#[test]
fn two_waiting_producers_are_both_called() {
    model(1, || {
        let (queue, mut consumer) = queue(1);
        queue.blocking_push(0).unwrap();
        let other = queue.clone();
        let a = thread::spawn(move || queue.blocking_push(1).unwrap());
        let b = thread::spawn(move || other.blocking_push(2).unwrap());
        let mut all = rest(&mut consumer);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        a.join().unwrap();
        b.join().unwrap();
    });
}

#[test]
fn a_quiet_producer_is_swept_or_flushes() {
    model(3, || {
        let (queue, mut consumer) = queue(2);
        let mut producer = queue.fixed(4).unwrap();
        drop(queue);
        let a = thread::spawn(move || {
            producer.blocking_push(1).unwrap();
            producer.blocking_push(2).unwrap();
            // The consumer must get both items without the producer's drop, so the thread returns
            // the producer.
            producer
        });
        let mut all = Vec::new();
        while all.len() < 2 {
            consumer.blocking_recv_into(&mut all, 8).unwrap();
        }
        assert_eq!(all, [1, 2]);
        let producer = a.join().unwrap();
        drop(producer);
        assert!(rest(&mut consumer).is_empty());
    });
}

#[test]
fn a_flush_and_a_sweep_keep_order() {
    model(3, || {
        let (queue, mut consumer) = queue(2);
        let mut producer = queue.fixed(2).unwrap();
        drop(queue);
        let a = thread::spawn(move || {
            for i in 1..4 {
                producer.blocking_push(i).unwrap();
            }
        });
        assert_eq!(rest(&mut consumer), [1, 2, 3]);
        a.join().unwrap();
    });
}

#[test]
fn items_taken_before_closing_are_handed_out() {
    model(2, || {
        let (queue, mut consumer) = queue(2);
        let closer = queue.clone();
        let mut producer = queue.fixed(2).unwrap();
        drop(queue);
        let a = thread::spawn(move || match producer.blocking_push(1) {
            Ok(()) => (producer, true),
            Err(PushError::Closed(1)) => (producer, false),
            Err(other) => panic!("{other:?}"),
        });
        let b = thread::spawn(move || closer.close());
        let all = rest(&mut consumer);
        // The queue is closed, so the items in the buffer of a late producer now return to that producer,
        // too.
        drop(consumer);
        let (producer, taken) = a.join().unwrap();
        assert_eq!(all.len(), usize::from(taken));
        b.join().unwrap();
        drop(producer);
    });
}

#[test]
fn dropping_the_consumer_gives_items_back_or_drops_them() {
    model(2, || {
        let (queue, consumer) = queue(1);
        let item = loom::sync::Arc::new(());
        let (typed, other) = Builder::new(1)
            .wait(Wait::Park)
            .build::<loom::sync::Arc<()>>()
            .expect("a capacity");
        drop((queue, consumer));
        let sent = item.clone();
        let a = thread::spawn(move || {
            let _ = typed.blocking_push(sent.clone());
            let _ = typed.blocking_push(sent);
        });
        drop(other);
        a.join().unwrap();
        assert_eq!(loom::sync::Arc::strong_count(&item), 1);
    });
}

#[test]
fn the_oldest_is_dropped_once() {
    model(2, || {
        let (queue, mut consumer) = Builder::new(1)
            .wait(Wait::Park)
            .full(Full::DropOldest)
            .build()
            .expect("a capacity");
        let metrics = queue.clone();
        let a = thread::spawn(move || {
            queue.blocking_push(1).unwrap();
            queue.blocking_push(2).unwrap();
        });
        let mut all = Vec::new();
        consumer.blocking_recv_into(&mut all, 8).unwrap();
        a.join().unwrap();
        consumer.drain_into(&mut all, 8);
        let dropped = metrics.metrics().dropped_oldest;
        assert_eq!(all.len() as u64 + dropped, 2);
        assert_eq!(all.last(), Some(&2));
    });
}

#[test]
fn the_lane_keeps_a_producers_order() {
    model(2, || {
        let (queue, mut consumer) = Builder::new(1)
            .wait(Wait::Park)
            .overflow(2)
            .build()
            .expect("a capacity");
        let a = thread::spawn(move || {
            queue.blocking_push(1).unwrap();
            queue.push_or_overflow(2).unwrap();
            queue.blocking_push(3).unwrap();
        });
        assert_eq!(rest(&mut consumer), [1, 2, 3]);
        a.join().unwrap();
    });
}

#[test]
fn a_task_waits_for_items_and_for_room() {
    model(2, || {
        let (queue, mut consumer) = queue(1);
        let a = thread::spawn(move || {
            loom::future::block_on(async {
                for i in 1..3 {
                    queue.push(i).await.unwrap();
                }
                drop(queue);
            });
        });
        let mut all = Vec::new();
        loom::future::block_on(async { while consumer.recv_into(&mut all, 8).await.is_ok() {} });
        assert_eq!(all, [1, 2]);
        a.join().unwrap();
    });
}

#[test]
fn a_push_during_the_close_is_refused_or_drained() {
    model(3, || {
        let (queue, mut consumer) = queue(2);
        let other = queue.clone();
        let push = thread::spawn(move || usize::from(other.blocking_push(1).is_ok()));
        let close = thread::spawn(move || queue.close());
        // The consumer drains without waiting, and finds the end of the queue by a drain without items.
        let mut got = 0;
        while !consumer.is_finished() {
            got += consumer.drain(2, drop).items;
            thread::yield_now();
        }
        assert_eq!(push.join().unwrap(), got);
        close.join().unwrap();
    });
}
