//! Tests that the queue does not have the defects of other queues. The numbers are those of
//! docs/regressions.md.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate::controller::Reason;
use tidegate::queue::{Builder, FlushError, Full, PushError, Queue, Wait, bounded};

/// Lets `time` pass without touching the queue under test.
fn pass(time: Duration) {
    let (idle, mut consumer) = bounded::<()>(1).expect("a capacity");
    let drained = consumer.blocking_recv_timeout(1, time, drop);
    assert!(drained.is_ok_and(|d| d.items == 0));
    drop(idle);
}

fn until<T: Send>(queue: &Queue<T>, f: impl Fn(&tidegate::queue::Metrics) -> bool) {
    while !f(&queue.metrics()) {
        thread::yield_now();
    }
}

/// Defect 4 of other queues: without decay while idle, the first items after a lull waited a whole tick. In
/// this queue they wake the consumer at once, at any limit of the producer.
#[test]
fn r04_the_first_item_after_a_lull_does_not_wait() {
    let (queue, mut consumer) = Builder::new(4096).wait(Wait::Park).build().unwrap();
    let mut producer = queue.fixed(1000).unwrap();
    let reader = thread::spawn(move || {
        let mut seen = 0;
        while consumer.blocking_recv(4096, |_| seen += 1).is_ok() {}
        seen
    });
    for i in 0..2500 {
        producer.blocking_push(i).unwrap();
    }
    // The consumer is settled: it now sleeps without a timeout, so only the push itself can wake it.
    until(&queue, |m| m.drained == 2500);
    until(&queue, |m| m.consumer_waits >= 2);
    pass(Duration::from_millis(4));
    producer.blocking_push(0).unwrap();
    until(&queue, |m| m.drained == 2501);
    drop((producer, queue));
    assert_eq!(reader.join().unwrap(), 2501);
}

/// Defect 6 of other queues: a bulk insert exceeded the bound silently.
#[test]
fn r06_many_items_never_exceed_the_capacity() {
    let (queue, mut consumer) = Builder::new(5).full(Full::Reject).build().unwrap();
    let mut items: Vec<_> = (0..12).collect();
    assert_eq!(
        queue.try_push_many(&mut items),
        Err(FlushError::Full { left: 7 })
    );
    assert_eq!(queue.metrics().population, 5);
    assert_eq!(items, (5..12).collect::<Vec<_>>());
    assert_eq!(
        queue.blocking_push_many(&mut items),
        Err(FlushError::Full { left: 7 })
    );
    let mut out = Vec::new();
    consumer.drain_into(&mut out, 100);
    assert_eq!(out, [0, 1, 2, 3, 4]);
}

/// Defect 11 of other queues: a timer made empty batches.
#[test]
fn r11_no_batch_is_empty() {
    let (queue, mut consumer) = bounded::<u8>(4).unwrap();
    let mut producer = queue.fixed(2).unwrap();
    producer.blocking_flush().unwrap();
    producer
        .flush_if_due(tidegate::Time::from_nanos(u64::MAX / 2))
        .unwrap();
    consumer
        .blocking_recv_timeout(4, Duration::from_millis(3), drop)
        .unwrap();
    assert_eq!(consumer.drain(4, drop).items, 0);
    let m = queue.metrics();
    assert_eq!((m.drains.batches(), m.flushes.batches()), (0, 0));
}

/// Defect 12 of other queues: a shutdown lost the last partial batch, or items pushed during the shutdown.
#[test]
fn r12_closing_loses_nothing_that_was_taken() {
    for round in 0..200 {
        let (queue, mut consumer) = bounded(8).unwrap();
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let mut producer = queue.fixed(3).unwrap();
                thread::spawn(move || {
                    let mut taken = 0u32;
                    while producer.blocking_push(taken).is_ok() {
                        taken += 1;
                    }
                    // The consumer fetches items that a closed ring did not take, or the producer
                    // still has them.
                    (taken, producer)
                })
            })
            .collect();
        let mut seen = 0;
        for _ in 0..round % 7 {
            seen += consumer.blocking_recv(4, drop).unwrap().items;
        }
        queue.close();
        while let Ok(batch) = consumer.blocking_recv(4, drop) {
            seen += batch.items;
        }
        let mut taken = 0;
        for producer in producers {
            let (n, producer) = producer.join().unwrap();
            taken += n as usize;
            assert_eq!(producer.buffered(), 0);
        }
        assert_eq!(seen, taken);
    }
}

/// Defects 13 and 14 of other queues: buffers outlived their producers or their queue, and the queue silently
/// discarded the items in them.
#[test]
fn r13_r14_buffers_go_with_their_producers_and_their_queue() {
    let witness = Arc::new(());
    let (queue, mut consumer) = bounded(4).unwrap();
    for _ in 0..1000 {
        let mut producer = queue.fixed(100).unwrap();
        producer.blocking_push(witness.clone()).unwrap();
        drop(producer);
        consumer.drain(4, drop);
    }
    assert_eq!(
        (queue.metrics().buffers, Arc::strong_count(&witness)),
        (0, 1)
    );

    // The ring has no room when the producer is dropped. The consumer fetches the remaining items, then
    // forgets the buffer.
    let mut producer = queue.fixed(100).unwrap();
    for _ in 0..10 {
        producer.blocking_push(witness.clone()).unwrap();
    }
    drop(producer);
    assert_eq!(queue.metrics().buffers, 1);
    let mut seen = 0;
    while seen < 10 {
        seen += consumer.blocking_recv(3, drop).unwrap().items;
    }
    pass(Duration::from_millis(2));
    assert_eq!(consumer.drain(3, drop).items, 0);
    assert_eq!(queue.metrics().buffers, 0);

    // A closed queue must keep no items, even while a handle exists.
    let mut producer = queue.fixed(100).unwrap();
    for _ in 0..10 {
        producer.blocking_push(witness.clone()).unwrap();
    }
    drop(consumer);
    assert_eq!(
        (queue.metrics().buffers, Arc::strong_count(&witness)),
        (0, 1)
    );
    assert!(matches!(
        producer.blocking_push(witness.clone()),
        Err(PushError::Closed(_))
    ));
    assert_eq!(Arc::strong_count(&witness), 1);
}

/// Defect 15 of other queues: the items that a partial accept left over lost their order or their count.
#[test]
fn r15_leftovers_keep_order_and_count() {
    let (queue, mut consumer) = bounded(3).unwrap();
    let mut producer = queue.fixed(7).unwrap();
    let mut out = Vec::new();
    for i in 0..7 {
        producer.try_push(i).unwrap();
    }
    assert_eq!((producer.buffered(), consumer.backlog()), (4, 3));
    assert_eq!(producer.try_flush(), Err(FlushError::Full { left: 4 }));
    for i in 7..10 {
        producer.try_push(i).unwrap();
    }
    assert_eq!(producer.buffered(), 7);
    assert_eq!(producer.try_push(10), Err(PushError::Full(10)));
    consumer.drain_into(&mut out, 2);
    producer.try_push(10).unwrap();
    assert_eq!(producer.buffered() + consumer.backlog(), 9);
    drop((producer, queue));
    while consumer.blocking_recv_into(&mut out, 2).is_ok() {}
    assert_eq!(out, (0..11).collect::<Vec<_>>());
}

/// Defect 19 of other queues: low rates took whole cores. In this queue the consumer sleeps, and after one
/// linger only an item wakes it.
#[test]
fn r19_an_idle_queue_causes_no_wake_ups() {
    let (queue, mut consumer) = Builder::new(64)
        .linger(Duration::from_millis(1))
        .build()
        .unwrap();
    let mut producer = queue.fixed(10).unwrap();
    let reader = thread::spawn(move || {
        let mut seen = 0;
        while consumer.blocking_recv(64, |_: u32| seen += 1).is_ok() {}
        seen
    });
    until(&queue, |m| m.linger_wakes == 1 && m.consumer_waits == 2);
    pass(Duration::from_millis(60));
    let m = queue.metrics();
    assert_eq!(
        (m.consumer_waits, m.linger_wakes, m.consumer_wakes),
        (2, 1, 0)
    );
    // A slow stream of items costs one wake-up for each item, and no further wake-up after a linger.
    for i in 0..20 {
        pass(Duration::from_millis(2));
        producer.blocking_push(i).unwrap();
        until(&queue, |m| {
            m.drained > u64::from(i) && m.consumer_waits > 2 + u64::from(i)
        });
    }
    let m = queue.metrics();
    assert_eq!((m.linger_wakes, m.consumer_wakes), (1, 20));
    assert_eq!(m.flushes.batches_for(Reason::Drained), 20);
    drop((producer, queue));
    assert_eq!(reader.join().unwrap(), 20);
}

/// The consumer may sweep the buffer of a producer that waits for room. A call for room then finds the
/// producer without items, and the producer must pass the call on to the next in line. It once did not; with
/// few slots and many producers, all of them slept.
#[test]
fn a_call_for_room_that_is_not_needed_is_passed_on() {
    for _ in 0..200 {
        let builder = Builder::new(1)
            .linger(Duration::from_nanos(1))
            .wait(Wait::Park);
        let (queue, mut consumer) = builder.build::<u32>().unwrap();
        queue.try_push(0).unwrap();
        let (done, finished) = std::sync::mpsc::sync_channel(3);
        for i in 1..=3 {
            let mut producer = queue.fixed(4).unwrap();
            let done = done.clone();
            thread::spawn(move || {
                producer.blocking_push(i).unwrap();
                producer.blocking_flush().unwrap();
                done.send(i).unwrap();
            });
        }
        while queue.metrics().producer_waits < 3 {
            thread::yield_now();
        }
        // The consumer frees one slot and calls the first in line. Before that producer is awake, it sweeps
        // all three buffers.
        let mut items = 0;
        while items < 4 {
            consumer.drain(8, |_| items += 1);
        }
        for _ in 0..3 {
            finished
                .recv_timeout(Duration::from_secs(20))
                .expect("everybody is called");
        }
    }
}
