//! Tests the queue against hostile users: items and wakers that call back, lengths that no memory can hold,
//! closing at the worst moment. The name of each test tells the defect that it once showed.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::queue::{Builder, Closed, FlushError, Full, PushError, Queue, Wait, bounded};

fn pass(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        thread::yield_now();
    }
}

/// Runs `f` on a thread of its own. Returns false if `f` does not end in time, because a deadlocked thread
/// cannot be joined.
fn ends(f: impl FnOnce() + Send + 'static) -> bool {
    let done = Arc::new(AtomicBool::new(false));
    let flag = done.clone();
    let thread = thread::spawn(move || {
        f();
        flag.store(true, SeqCst);
    });
    let start = Instant::now();
    while !thread.is_finished() && start.elapsed() < Duration::from_secs(20) {
        thread::yield_now();
    }
    done.load(SeqCst)
}

/// Returns a vector of `usize::MAX` values that take no memory.
fn nothings() -> Vec<()> {
    Vec::from([(); usize::MAX])
}

#[test]
fn more_items_of_no_size_than_positions() {
    let (queue, mut consumer) = bounded(3).unwrap();
    queue.blocking_push(()).unwrap();
    let mut items = nothings();
    let left = usize::MAX - 2;
    let full = Err(FlushError::Full { left });
    assert_eq!(queue.try_push_many(&mut items), full);
    assert_eq!((items.len(), consumer.backlog()), (left, 3));
    assert_eq!(consumer.drain(usize::MAX, drop).items, 3);
    assert_eq!(queue.metrics().arrived, 3);
}

/// The consumer once neither handed out an accepted item nor gave it back. It had settled, and it closed the
/// queue after the producer read the flags and before the producer's item became visible.
#[test]
fn an_item_pushed_into_a_buffer_during_the_close_is_not_stranded() {
    for limit in [4, 1000] {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(600) {
            let linger = Duration::from_micros(20);
            let (queue, mut consumer) = Builder::new(1 << 12).linger(linger).build().unwrap();
            let mut producer = queue.fixed(limit).unwrap();
            let go = AtomicBool::new(false);
            let (pushed, got, stranded) = thread::scope(|s| {
                let pusher = s.spawn(|| {
                    while !go.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                    let mut pushed = 0_u64;
                    while producer.blocking_push(pushed).is_ok() {
                        pushed += 1;
                    }
                    (pushed, producer)
                });
                // The consumer waits idle for so long that it settles: it then relies on producers to wake
                // it.
                let mut got = 0;
                let mut drop_it = |_| got += 1;
                let idle = Duration::from_millis(3);
                consumer
                    .blocking_recv_timeout(10, idle, &mut drop_it)
                    .unwrap();
                go.store(true, SeqCst);
                consumer.blocking_recv(1, &mut drop_it).unwrap();
                consumer.close();
                while consumer.blocking_recv(usize::MAX, &mut drop_it).is_ok() {}
                let (pushed, producer) = pusher.join().unwrap();
                (pushed, got, producer.buffered())
            });
            assert_eq!((got, stranded), (pushed, 0));
        }
    }
}

/// The queue once lost an item that a producer pushed directly into the ring during the close, because the
/// close reached the consumer before the ring.
#[test]
fn an_item_pushed_into_the_ring_during_the_close_is_not_stranded() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let (queue, mut consumer) = Builder::new(64)
            .overflow(4)
            .wait(Wait::Spin)
            .build()
            .unwrap();
        let ready = AtomicUsize::new(0);
        let meet = || {
            ready.fetch_add(1, SeqCst);
            while ready.load(SeqCst) < 3 {
                std::hint::spin_loop();
            }
        };
        thread::scope(|s| {
            let pusher = s.spawn(|| {
                meet();
                let mut pushed = 0_u64;
                loop {
                    match queue.try_push(pushed) {
                        Ok(()) => pushed += 1,
                        Err(PushError::Full(_)) => {}
                        Err(_) => break pushed,
                    }
                }
            });
            s.spawn(|| {
                meet();
                queue.close();
            });
            meet();
            let mut got = 0;
            while !consumer.is_finished() {
                got += consumer.drain(64, drop).items as u64;
            }
            assert_eq!(pusher.join().unwrap(), got);
        });
    }
}

/// Tests a defect: the consumer once trusted that one linger, even the shortest, is long enough for a store
/// to become visible.
#[test]
fn the_shortest_linger_loses_no_wake_up() {
    let (queue, mut consumer) = Builder::new(64)
        .linger(Duration::from_nanos(1))
        .wait(Wait::Park)
        .build()
        .unwrap();
    let mut producer = queue.fixed(64).unwrap();
    let got = Arc::new(AtomicU64::new(0));
    let seen = got.clone();
    let consumer = thread::spawn(move || {
        while consumer
            .blocking_recv(64, |_: u64| {
                seen.fetch_add(1, SeqCst);
            })
            .is_ok()
        {}
    });
    let start = Instant::now();
    let mut pushed = 0;
    while start.elapsed() < Duration::from_secs(2) {
        // The producer pushes a few items at a time, so that the consumer is about to sleep at every point of
        // a push.
        for _ in 0..=pushed % 3 {
            producer.blocking_push(pushed).unwrap();
            pushed += 1;
        }
        let waited = Instant::now();
        while got.load(SeqCst) < pushed {
            assert!(waited.elapsed() < Duration::from_secs(5), "slept through");
            std::hint::spin_loop();
        }
    }
    drop((queue, producer));
    consumer.join().unwrap();
}

/// Tests that a task, which has no timer and polls itself until producers know that it sleeps, does not do so
/// during a long linger.
#[test]
fn a_long_linger_does_not_keep_a_task_busy() {
    let (queue, mut consumer) = Builder::new(8)
        .linger(Duration::from_secs(3600))
        .build::<u8>()
        .unwrap();
    let _producer = queue.fixed(8).unwrap();
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let start = Instant::now();
    loop {
        let before = woken.0.load(SeqCst);
        assert!(consumer.poll_ready(&mut cx).is_pending());
        if woken.0.load(SeqCst) == before {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(1), "still polling");
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The task of a simple executor: its waker owns its future.
struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

impl Task {
    fn polled_once(future: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        let task = Arc::new(Self(Mutex::new(Some(Box::pin(future)))));
        let waker = Waker::from(task.clone());
        let mut slot = task.0.lock().unwrap();
        let polled = slot
            .as_mut()
            .unwrap()
            .as_mut()
            .poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(slot);
        task
    }
}

/// The queue once dropped the consumer's old waker while it held the waker's lock. That drop dropped the last
/// producer, which closes the queue.
#[test]
fn a_waker_that_owns_the_last_producer() {
    assert!(ends(|| {
        let (queue, mut consumer) = bounded::<u8>(1).unwrap();
        let task = Task::polled_once(async move {
            let _queue = queue;
            std::future::pending().await
        });
        let waker = Waker::from(task);
        assert!(
            consumer
                .poll_ready(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(waker);
        let mut cx = Context::from_waker(Waker::noop());
        while consumer.poll_ready(&mut cx) != Poll::Ready(Err(Closed)) {}
    }));
}

/// The queue once dropped the old waker of a producer in the line for room while it held the lock of the
/// line.
#[test]
fn a_waker_that_owns_another_waiting_push() {
    assert!(ends(|| {
        let (queue, _consumer) = bounded::<u8>(1).unwrap();
        queue.blocking_push(0).unwrap();
        let another = queue.clone();
        let task = Task::polled_once(async move {
            let mut push = std::pin::pin!(another.push(1));
            // The push waits with a waker other than that of its task.
            std::future::poll_fn(move |_| {
                let mut cx = Context::from_waker(Waker::noop());
                push.as_mut().poll(&mut cx).map(drop)
            })
            .await;
        });
        let mut push = Box::pin(queue.push(2));
        let waker = Waker::from(task);
        assert!(
            push.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(waker);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(push.as_mut().poll(&mut cx).is_pending());
    }));
}

/// The queue once dropped an item under a producer's lock. The drop of that item looks at the queue, or uses
/// its own producer.
#[test]
fn an_item_in_a_buffer_that_looks_back_when_dropped() {
    struct Looks(
        Queue<Self>,
        Arc<Mutex<Option<tidegate::queue::Producer<Self>>>>,
    );
    impl Drop for Looks {
        fn drop(&mut self) {
            let _ = self.0.metrics();
            if let Ok(mut producer) = self.1.try_lock()
                && let Some(producer) = &mut *producer
            {
                let _ = producer.try_flush();
            }
        }
    }
    assert!(ends(|| {
        let (queue, consumer) = bounded(8).unwrap();
        let producer = Arc::new(Mutex::new(Some(queue.fixed(8).unwrap())));
        let item = Looks(queue.clone(), producer.clone());
        let _ = producer
            .lock()
            .unwrap()
            .as_mut()
            .unwrap()
            .blocking_push(item);
        drop(consumer);
        drop(producer.lock().unwrap().take());
    }));
}

/// A batch once ended as if the queue were empty, although the consumer had just fetched a quiet
/// producer's items.
#[test]
fn items_fetched_from_a_quiet_producer_are_part_of_what_is_left() {
    let linger = Duration::from_micros(100);
    let (queue, mut consumer) = Builder::new(8).linger(linger).build().unwrap();
    let mut quiet = queue.fixed(8).unwrap();
    queue.blocking_push(1).unwrap();
    quiet.blocking_push(2).unwrap();
    pass(linger * 2);
    let drained = consumer.drain(8, drop);
    assert_eq!((drained.items, drained.left), (1, 1));
    assert_eq!(drained.left, consumer.backlog());
    let m = queue.metrics();
    assert_eq!(
        (m.arrived, m.drained, m.population, m.fetched),
        (2, 1, 0, 1)
    );
    assert_eq!(consumer.drain(8, drop).items, 1);
    let m = queue.metrics();
    assert_eq!((m.arrived, m.drained, m.fetched), (2, 2, 0));
}

/// A drain under the lock once stopped after the items of the overflow lane and reported the queue as empty.
#[test]
fn a_lane_beside_drop_oldest_does_not_end_a_batch() {
    let (queue, mut consumer) = Builder::new(4)
        .full(Full::DropOldest)
        .overflow(4)
        .build()
        .unwrap();
    for i in 0..4 {
        queue.blocking_push(i).unwrap();
    }
    queue.push_or_overflow(4).unwrap();
    let mut all = Vec::new();
    consumer.drain_into(&mut all, 2);
    queue.blocking_push_many(&mut vec![5, 6]).unwrap();
    let drained = consumer.drain_into(&mut all, 4);
    assert_eq!((drained.items, drained.left), (4, 1));
    consumer.drain_into(&mut all, 4);
    assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn every_item_given_back_for_lack_of_room_is_counted() {
    let (queue, _consumer) = Builder::new(2).full(Full::Reject).build().unwrap();
    let mut items = vec![1, 2, 3, 4, 5];
    assert!(queue.try_push_many(&mut items).is_err());
    assert_eq!(queue.metrics().rejected, 3);
    let mut producer = queue.fixed(2).unwrap();
    assert!(producer.blocking_push_many(&mut items).is_err());
    assert_eq!((items.len(), queue.metrics().rejected), (1, 4));
    items.push(6);
    assert!(producer.blocking_push_many(&mut items).is_err());
    assert_eq!((items.len(), queue.metrics().rejected), (2, 6));
}

/// A wait that yields once read the time only every 64 looks, and another thread may delay each look.
#[test]
fn a_deadline_is_kept_beside_busy_threads() {
    let stop = AtomicBool::new(false);
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let late = thread::scope(|s| {
        for _ in 0..2 * cores {
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        let late = [Wait::Yield, Wait::Progressive, Wait::Spin].map(|wait| {
            let (_queue, mut consumer) = Builder::new(8).wait(wait).build::<u8>().unwrap();
            let late = (0..5).map(|_| {
                let start = Instant::now();
                let empty = consumer.blocking_recv_timeout(1, Duration::from_millis(1), drop);
                assert_eq!(empty.unwrap().items, 0);
                start.elapsed()
            });
            (wait, late.min().unwrap())
        });
        stop.store(true, SeqCst);
        late
    });
    for (wait, late) in late {
        // This bound is the time of a few turns of the busy threads.
        assert!(late < Duration::from_millis(60), "{wait:?}: {late:?}");
    }
}
