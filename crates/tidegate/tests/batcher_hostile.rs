//! Tests the batch actor against hostile users: items that panic when dropped, futures polled for ever,
//! weights that starve others. The name of each test tells the defect that it once showed.
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use batcher_common::{Gbs, LONG, Log, Scripted, builder, until};
use tidegate::batcher::{
    Batch, Builder, CallError, Flow, Full, Handled, Handler, ReplyError, SpawnError, StopError,
};
use tidegate::controller::{Bounds, Load};

/// An item that panics when dropped, if its number is 7.
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 == 7 && !thread::panicking() {
            std::panic::resume_unwind(Box::new("a bomb"));
        }
    }
}

/// A handler that leaves casts in the batch and panics on demand.
struct Leaves;

impl Handler for Leaves {
    type Item = Bomb;
    type Reply = u64;
    type Info = Bomb;

    fn handle_batch(&mut self, batch: &mut Batch<Bomb, u64, Bomb>) -> Handled {
        for op in batch.ops() {
            if let tidegate::batcher::Op::Cast(Bomb(8)) = op {
                std::panic::resume_unwind(Box::new("after that"));
            }
        }
        Ok(Flow::Continue)
    }
}

/// Runs `test` with an actor on a thread and, where the feature is on, with one on a task.
fn leaves(test: impl Fn(tidegate::batcher::Handle<Bomb, u64, Bomb>)) {
    let two = || Builder::new().controller(Gbs::fixed(2).controller());
    test(two().spawn(Leaves).unwrap());
    #[cfg(feature = "tokio")]
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        test(runtime.block_on(two().spawn_task(Leaves)).unwrap());
    }
}

#[test]
fn an_item_that_panics_when_dropped_loses_only_its_batch() {
    leaves(|handle| {
        handle.blocking_cast(Bomb(7)).unwrap();
        handle.blocking_cast(Bomb(8)).unwrap();
        handle.blocking_cast(Bomb(7)).unwrap();
        let call = handle.blocking_call(Bomb(1));
        assert!(
            matches!(
                call,
                Err(CallError::Reply(ReplyError::NoReply | ReplyError::Panicked))
            ),
            "{call:?}"
        );
        assert!(handle.ended().is_none(), "{:?}", handle.ended());
        assert!(handle.stats().panics > 0);
        handle.blocking_drain(LONG).unwrap();
    });
}

#[test]
fn a_message_that_panics_when_dropped_at_the_end_leaves_no_caller_waiting() {
    leaves(|handle| {
        let (in_sender, entered) = std::sync::mpsc::sync_channel(1);
        let (release, out) = std::sync::mpsc::sync_channel::<()>(1);
        let held = {
            let handle = handle.clone();
            thread::spawn(move || {
                handle.blocking_inspect(move |_: &Leaves| {
                    in_sender.send(()).unwrap();
                    out.recv().unwrap();
                })
            })
        };
        entered.recv().unwrap();
        handle.blocking_info(Bomb(7)).unwrap();
        handle.blocking_cast(Bomb(1)).unwrap();
        let stopping = {
            let handle = handle.clone();
            thread::spawn(move || handle.blocking_stop("enough", Duration::from_secs(10)))
        };
        until(|| handle.is_closed());
        release.send(()).unwrap();
        held.join().unwrap().unwrap();
        let left = stopping.join().unwrap();
        assert!(
            !matches!(left, Err(StopError::TimedOut { .. })),
            "{:?}",
            left.err()
        );
    });
}

/// Tests a handler that panics with a payload which panics again when dropped.
#[test]
fn a_payload_that_panics_when_dropped_does_not_end_the_actor() {
    let mut first = true;
    let handle = Builder::<u64>::new()
        .spawn(tidegate::batcher::each_batch(move |_: &mut Vec<u64>| {
            if std::mem::take(&mut first) {
                std::panic::resume_unwind(Box::new(Bomb(7)));
            }
        }))
        .unwrap();
    assert!(matches!(
        handle.blocking_call(1),
        Err(CallError::Reply(ReplyError::Panicked))
    ));
    handle.blocking_call(2).unwrap();
}

/// Tests a defect: the actor once did not catch a panic in the handler's code before the first await.
#[cfg(feature = "tokio")]
#[test]
fn a_panic_before_the_first_await_loses_only_its_batch() {
    struct Eager(bool);
    impl tidegate::batcher::AsyncHandler for Eager {
        type Item = u64;
        type Reply = u64;
        type Info = std::convert::Infallible;
        #[allow(clippy::manual_async_fn)]
        fn handle_batch(
            &mut self,
            batch: &mut Batch<u64, u64>,
        ) -> impl Future<Output = Handled> + Send {
            if std::mem::take(&mut self.0) {
                batcher_common::quiet_panic();
            }
            async move {
                batch.take_items(&mut Vec::new());
                batch.answer([5]);
                Ok(Flow::Continue)
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let handle = runtime
        .block_on(Builder::new().spawn_task(Eager(true)))
        .unwrap();
    assert!(matches!(
        handle.blocking_call(1),
        Err(CallError::Reply(ReplyError::Panicked))
    ));
    assert_eq!(handle.blocking_call(2).unwrap(), 5);
}

/// A vector of items without a size always has a large capacity, which must not keep an idle actor awake.
#[test]
fn an_idle_actor_of_items_without_size_sleeps() {
    let handle = Builder::new()
        .name("nothings")
        .spawn(tidegate::batcher::each_batch(|_: &mut Vec<()>| ()))
        .unwrap();
    handle.blocking_call(()).unwrap();
    let switches = || {
        let tasks = std::fs::read_dir("/proc/self/task").ok()?;
        tasks.filter_map(Result::ok).find_map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let of = |key: &str| {
                let line = status.lines().find(|line| line.starts_with(key))?;
                line.split_whitespace().nth(1)
            };
            (of("Name:")? == "nothings").then(|| of("voluntary_ctxt").map(str::to_owned))?
        })
    };
    if switches().is_none() {
        return; // Other systems do not count context switches.
    }
    // Waits until the actor sleeps for good: after each wake-up it rests a second at a time.
    let (mut last, mut since, start) = (switches(), Instant::now(), Instant::now());
    while since.elapsed() < Duration::from_millis(2200) {
        assert!(start.elapsed() < Duration::from_secs(8), "still waking up");
        thread::park_timeout(Duration::from_millis(50));
        let now = switches();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    handle.blocking_call(()).unwrap();
}

#[cfg(feature = "futures")]
#[test]
fn an_endless_stream_says_so() {
    use std::pin::Pin;
    use std::task::Poll;
    use tidegate::batcher::BatchedExt;
    struct Endless;
    impl futures_core::Stream for Endless {
        type Item = u8;
        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u8>> {
            Poll::Ready(Some(1))
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (usize::MAX, None)
        }
    }
    let mut batches = Endless.batched(Gbs::fixed(3).controller());
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        let next = futures_core::Stream::poll_next(pin!(&mut batches), &mut cx);
        assert_eq!(next, Poll::Ready(Some(vec![1; 3])));
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Tests a defect: each poll of a sender once left one more waker in the line.
#[test]
fn a_sender_polled_often_waits_once() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let small = builder().weigh(|n| *n).capacity_bytes(10);
    let handle = small.spawn(handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast(10).unwrap();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut send = Box::pin(handle.cast(5));
    for _ in 0..1000 {
        let polled = send.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    assert!(
        Arc::strong_count(&count) <= 3,
        "{} wakers",
        Arc::strong_count(&count)
    );
    drop(send);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1, "its place is given up");
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
}

/// The actor once called a waker under a lock. A waker that runs its task at once then found that lock taken.
#[test]
fn a_waker_that_polls_at_once() {
    type Sending = Box<dyn Future<Output = ()> + Send>;
    struct Inline(std::sync::Mutex<Option<std::pin::Pin<Sending>>>, AtomicBool);
    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            let waker = Waker::from(self.clone());
            if let Ok(mut slot) = self.0.try_lock()
                && let Some(future) = &mut *slot
            {
                let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
                if polled.is_ready() {
                    *slot = None;
                    self.1.store(true, SeqCst);
                }
            }
        }
    }
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let small = builder().weigh(|n| *n).capacity_bytes(10);
    let handle = small.spawn(handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast(10).unwrap();
    let sender = handle.clone();
    let sending: Sending = Box::new(async move { sender.cast(5).await.unwrap() });
    let task = Arc::new(Inline(
        std::sync::Mutex::new(Some(sending.into())),
        AtomicBool::new(false),
    ));
    task.clone().wake();
    hold.let_go();
    until(|| task.1.load(SeqCst));
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.items(), [0, 10, 5]);
}

/// The actor once waited for further items that the bound on bytes kept out.
#[test]
fn no_linger_outlasts_the_room_for_bytes() {
    for full in [Full::Wait, Full::Reject] {
        let log = Log::default();
        let mut rule = Gbs::fixed(100);
        rule.linger_ns = u64::MAX / 2;
        let bounds = Bounds {
            age_max: Duration::MAX,
            ..Bounds::default()
        };
        let patient = builder()
            .controller(rule.controller())
            .bounds(bounds)
            .full(full)
            .weigh(|_| 1)
            .capacity_bytes(10);
        let handle = patient.spawn(Scripted::new(&log)).unwrap();
        let sender = handle.clone();
        let sending = thread::spawn(move || {
            for n in 0..35 {
                until(|| sender.blocking_cast(n).is_ok());
            }
        });
        let start = Instant::now();
        while !sending.is_finished() && start.elapsed() < Duration::from_secs(10) {
            thread::yield_now();
        }
        let through = sending.is_finished();
        handle.blocking_drain(LONG).unwrap();
        assert!(through, "{full:?}: {:?}", log.sizes());
    }
}

/// A call with a timeout once waited for room without a limit.
#[test]
fn a_call_times_out_while_there_is_no_room() {
    for bytes in [false, true] {
        let log = Log::default();
        let (handler, hold) = Scripted::held(&log);
        let small = if bytes {
            builder().weigh(|_| 1).capacity_bytes(1)
        } else {
            builder().capacity(1)
        };
        let handle = small.spawn(handler).unwrap();
        hold.busy(&handle);
        handle.blocking_cast(1).unwrap();
        let caller = handle.clone();
        let call = thread::spawn(move || caller.blocking_call_timeout(2, Duration::from_millis(5)));
        let start = Instant::now();
        while !call.is_finished() && start.elapsed() < Duration::from_secs(5) {
            thread::yield_now();
        }
        let timed_out = call.is_finished();
        hold.let_go();
        assert!(timed_out, "bytes: {bytes}");
        assert!(matches!(call.join().unwrap(), Err(CallError::TimedOut)));
        assert_eq!(handle.blocking_call_timeout(3, LONG).unwrap(), 30);
        handle.blocking_drain(LONG).unwrap();
        assert_eq!(log.items(), [0, 1, 3]);
    }
}

#[test]
fn a_thread_name_no_thread_can_have() {
    let handle = builder().name("a\0b").spawn(Scripted::new(&Log::default()));
    assert!(matches!(handle, Err(SpawnError::Thread(_))));
}

#[test]
fn nothing_waits_after_the_end() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = builder().weigh(|_| 8).spawn(handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2, 3]).unwrap();
    assert!(handle.blocking_stop("now", Duration::ZERO).is_err());
    hold.let_go();
    assert_eq!(handle.blocking_stop("now", LONG).unwrap(), [1, 2, 3]);
    assert_eq!(handle.backlog(), Load::default());
}

/// The actor once removed the entry by which an inspection wakes it from the queue, together with the waiting
/// items. The inspection then waited as long as the actor did.
#[test]
fn a_look_at_an_actor_that_waits_for_company_does_not_wait() {
    let mut rule = Gbs::fixed(1 << 40);
    rule.linger_ns = u64::MAX / 2;
    let bounds = Bounds {
        items_max: 1 << 40,
        age_max: Duration::MAX,
        ..Bounds::default()
    };
    let patient = builder().controller(rule.controller()).bounds(bounds);
    let handle = patient.spawn(Scripted::new(&Log::default())).unwrap();
    thread::scope(|s| {
        let looking = s.spawn(|| {
            // The items keep the actor awake, between two looks at its next action.
            for n in 0..20_000 {
                handle.blocking_cast(n).unwrap();
                handle.blocking_inspect(|_: &Scripted| ()).unwrap();
            }
        });
        let start = Instant::now();
        while !looking.is_finished() && start.elapsed() < Duration::from_secs(20) {
            thread::yield_now();
        }
        let through = looking.is_finished();
        handle.blocking_drain(LONG).unwrap();
        assert!(through);
    });
}

/// The slot once dropped a caller's old waker under its lock. That drop dropped the reply, which
/// takes the same lock.
#[test]
fn a_waker_that_owns_the_reply() {
    struct Keeps(Arc<std::sync::Mutex<Option<tidegate::batcher::Reply<()>>>>);
    impl Handler for Keeps {
        type Item = u64;
        type Reply = ();
        type Info = std::convert::Infallible;
        fn handle_batch(&mut self, batch: &mut Batch<u64>) -> Handled {
            if let Some(tidegate::batcher::Op::Call(_, reply)) = batch.drain().next() {
                *self.0.lock().unwrap() = Some(reply);
            }
            Ok(Flow::Continue)
        }
    }
    struct Owner(#[allow(dead_code)] tidegate::batcher::Reply<()>);
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }
    let kept = Arc::default();
    let handle = Builder::new().spawn(Keeps(Arc::clone(&kept))).unwrap();
    let mut request = handle.blocking_send_request(1).unwrap();
    until(|| kept.lock().unwrap().is_some());
    let polls = thread::spawn(move || {
        let waker = Waker::from(Arc::new(Owner(kept.lock().unwrap().take().unwrap())));
        let polled = pin!(&mut request).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(waker);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(&mut request).poll(&mut cx).is_pending());
        assert!(matches!(request.try_take(), Some(Err(ReplyError::NoReply))));
    });
    let start = Instant::now();
    while !polls.is_finished() && start.elapsed() < Duration::from_secs(10) {
        thread::yield_now();
    }
    assert!(polls.is_finished(), "locked twice");
    polls.join().unwrap();
}
