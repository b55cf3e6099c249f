//! Tests actors with several batches at once. A dispatcher gives each batch to the test, which finishes them
//! in any order; shared handlers run as tasks and wait at gates. Every promise of the batcher holds with
//! several batches in flight.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use batcher_common::{LONG, block_on, until};
use tidegate::batcher::{
    Batch, Builder, Dispatcher, Flow, Handle, Handled, Op, OwnedBatch, ReplyError, Request,
    SharedHandler, StopError, StopReason,
};
use tidegate::controller::{BatchId, Event, Fixed, Recorder, Snapshot, replay};

type Owned = OwnedBatch<u64, u64>;
type H = Handle<u64, u64>;

/// Returns a builder for at most `n` batches at once, of at most `limit` items each.
fn several(limit: u64, n: u32) -> Builder<u64> {
    let fixed = Fixed::new(limit).with_in_flight(n);
    Builder::new().controller(fixed.controller())
}

/// Starts an actor that gives its batches to the test.
fn dispatched(builder: Builder<u64>) -> (H, Receiver<Owned>) {
    let (to_test, batches) = sync_channel(100);
    let handle = builder
        .spawn_dispatcher(move |batch| to_test.send(batch).unwrap())
        .unwrap();
    (handle, batches)
}

fn next(batches: &Receiver<Owned>) -> Owned {
    batches.recv_timeout(LONG).unwrap()
}

fn cast(handle: &H, item: u64) {
    handle.try_cast(item).unwrap();
}

fn send(handle: &H, item: u64) -> Request<u64> {
    handle.try_send_request(item).unwrap()
}

fn drain(handle: &H) -> Result<(), StopError> {
    handle.blocking_drain(LONG)
}

/// Asks the actor for a drain without waiting for its end. Returns the error that the actor has not ended.
fn ask_drain(handle: &H) -> StopError {
    handle.blocking_drain(Duration::ZERO).unwrap_err()
}

fn stop(handle: &H, within: Duration) -> Result<Vec<u64>, StopError> {
    handle.blocking_stop("enough", within)
}

async fn snapshot(handle: &H) -> Snapshot {
    handle.controller().await.unwrap()
}

fn items(batch: &Owned) -> Vec<u64> {
    let of = |op: &Op<u64, u64, _>| match op {
        Op::Cast(item) | Op::Call(item, _) => Some(*item),
        _ => None,
    };
    batch.ops().iter().filter_map(of).collect()
}

/// Answers ten times each item and finishes the batch.
fn finish(mut batch: Owned) {
    let mut items = Vec::new();
    batch.take_items(&mut items);
    batch.answer(items.into_iter().map(|n| n * 10));
    batch.done();
}

fn draw(seed: &mut u64, below: usize) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % below
}

#[test]
fn as_many_batches_run_as_the_controller_allows_and_no_more() {
    let (handle, batches) = dispatched(several(1, 3));
    (0..5).for_each(|n| cast(&handle, n));
    let [first, second, third] = [(); 3].map(|()| next(&batches));
    assert_eq!(
        [&first, &second, &third].map(items),
        [vec![0], vec![1], vec![2]]
    );
    assert!(batches.try_recv().is_err());
    finish(second);
    let fourth = next(&batches);
    assert_eq!(items(&fourth), [3]);
    assert!(batches.try_recv().is_err());
    finish(first);
    finish(fourth);
    finish(next(&batches));
    finish(third);
    drain(&handle).unwrap();
    assert_eq!(handle.stats().batches, 5);
}

#[test]
fn the_bound_on_batches_holds_for_any_decision() {
    let (handle, batches) = dispatched(several(1, 1000).in_flight_max(2));
    (0..6).for_each(|n| cast(&handle, n));
    let mut running = VecDeque::from([next(&batches), next(&batches)]);
    for _ in 0..4 {
        assert!(batches.try_recv().is_err());
        finish(running.pop_front().unwrap());
        running.push_back(next(&batches));
    }
    running.into_iter().for_each(finish);
    drain(&handle).unwrap();
}

#[test]
fn without_a_bound_64_batches_run_and_every_bound_counts() {
    let bounded = |in_flight_max| {
        several(1, 1000).bounds(tidegate::controller::Bounds {
            in_flight_max,
            ..Default::default()
        })
    };
    for (builder, most) in [
        (several(1, 1000), 64),
        (bounded(None), 64),
        (bounded(Some(5)), 5),
        (bounded(Some(1)), 1),
        (bounded(Some(1)).in_flight_max(3), 3),
    ] {
        let (handle, batches) = dispatched(builder);
        (0..100).for_each(|n| cast(&handle, n));
        let running: Vec<_> = (0..most).map(|_| next(&batches)).collect();
        assert!(batches.try_recv().is_err(), "more than {most}");
        running.into_iter().for_each(finish);
        (most..100).for_each(|_| finish(next(&batches)));
        drain(&handle).unwrap();
    }
}

#[test]
fn stats_and_snapshots_say_how_many_batches_run_and_may() {
    let (handle, batches) = dispatched(several(1, 4));
    (0..3).for_each(|n| cast(&handle, n));
    let mut running: Vec<_> = (0..3).map(|_| next(&batches)).collect();
    let seen = block_on(snapshot(&handle));
    assert_eq!((seen.running, seen.in_flight), (3, 4));
    let stats = handle.stats();
    assert_eq!((stats.running, stats.in_flight), (3, 4));
    let line = "running now: 3 batches of at most 4 at once";
    assert!(stats.to_string().contains(line), "{stats}");
    finish(running.remove(0));
    until(|| handle.stats().running == 2);
    running.into_iter().for_each(finish);
    drain(&handle).unwrap();
    assert_eq!(handle.stats().running, 0);
}

#[test]
fn a_batch_dropped_counts_as_failed_and_its_callers_are_told() {
    let (handle, batches) = dispatched(several(1, 4));
    let requests: Vec<_> = (0..3).map(|n| send(&handle, n)).collect();
    drop(next(&batches));
    let mut second = next(&batches);
    second.fail("disk full");
    second.done();
    finish(next(&batches));
    let answers: Vec<_> = requests.into_iter().map(block_on).collect();
    assert!(matches!(answers[0], Err(ReplyError::NoReply)));
    assert!(matches!(answers[1], Err(ReplyError::Failed(_))));
    assert!(matches!(answers[2], Ok(20)));
    drain(&handle).unwrap();
    let stats = handle.stats();
    assert_eq!((stats.batches, stats.failed, stats.panics), (3, 2, 0));
}

#[test]
fn a_visitor_is_let_in_while_every_batch_runs() {
    let (handle, batches) = dispatched(several(1, 2));
    (0..3).for_each(|n| cast(&handle, n));
    let running = [next(&batches), next(&batches)];
    let counts = block_on(snapshot(&handle)).counts;
    assert_eq!(counts.batches(), 2);
    running.into_iter().for_each(finish);
    finish(next(&batches));
    drain(&handle).unwrap();
}

#[test]
fn a_dispatcher_that_panics_loses_one_batch() {
    let (to_test, batches) = sync_channel(100);
    let handle: H = several(1, 4)
        .spawn_dispatcher(move |batch: Owned| match items(&batch)[..] {
            [1] => batcher_common::quiet_panic(),
            _ => to_test.send(batch).unwrap(),
        })
        .unwrap();
    let requests: Vec<_> = (0..3).map(|n| send(&handle, n)).collect();
    finish(next(&batches));
    finish(next(&batches));
    let answers: Vec<_> = requests.into_iter().map(block_on).collect();
    assert!(matches!(answers[1], Err(ReplyError::Panicked)));
    assert!(matches!((&answers[0], &answers[2]), (Ok(0), Ok(20))));
    drain(&handle).unwrap();
    let stats = handle.stats();
    assert_eq!((stats.batches, stats.failed, stats.panics), (3, 1, 1));
}

#[test]
fn a_drain_waits_for_every_batch_in_flight() {
    let (handle, batches) = dispatched(several(1, 2));
    let requests: Vec<_> = (0..4).map(|n| send(&handle, n)).collect();
    let (first, second) = (next(&batches), next(&batches));
    assert!(matches!(ask_drain(&handle), StopError::TimedOut { .. }));
    assert!(handle.try_cast(9).is_err());
    finish(second);
    finish(next(&batches));
    finish(next(&batches));
    assert!(handle.ended().is_none(), "the first batch still runs");
    finish(first);
    drain(&handle).unwrap();
    let answers: Vec<_> = requests.into_iter().map(|r| block_on(r).unwrap()).collect();
    assert_eq!(answers, [0, 10, 20, 30]);
}

#[test]
fn a_stop_lets_the_batches_in_flight_finish_and_gives_the_rest_back_in_order() {
    let (handle, batches) = dispatched(several(2, 2).key(|n: &u64| n % 10));
    // The items 11 and 21 have the key of item 1, so they wait for the batch that holds item 1.
    for n in [1, 2, 11, 3, 21, 4] {
        cast(&handle, n);
    }
    let waiting = send(&handle, 31);
    let (first, second) = (next(&batches), next(&batches));
    assert!(stop(&handle, Duration::ZERO).is_err());
    let taken = [items(&first), items(&second)].concat();
    finish(second);
    assert!(handle.ended().is_none());
    finish(first);
    let mut left = stop(&handle, LONG).unwrap();
    assert!(matches!(block_on(waiting), Err(ReplyError::Stopped)));
    let ones: Vec<_> = [&taken[..], &left[..]].concat();
    let ones: Vec<_> = ones.into_iter().filter(|n| n % 10 == 1).collect();
    assert_eq!(ones, [1, 11, 21, 31]);
    left.extend(taken);
    left.sort_unstable();
    assert_eq!(left, [1, 2, 3, 4, 11, 21, 31]);
}

#[test]
fn dropping_the_last_handle_handles_everything() {
    let (to_test, batches) = sync_channel(100);
    let ended = Arc::new(Mutex::new(None));
    struct Last(SyncSender<Owned>, Arc<Mutex<Option<String>>>);
    impl Dispatcher<u64, u64> for Last {
        fn dispatch(&mut self, batch: Owned) {
            self.0.send(batch).unwrap();
        }

        fn terminate(&mut self, reason: &StopReason) {
            *self.1.lock().unwrap() = Some(reason.to_string());
        }
    }
    let last = Last(to_test, Arc::clone(&ended));
    let handle: H = several(1, 2).spawn_dispatcher(last).unwrap();
    (0..4).for_each(|n| cast(&handle, n));
    drop(handle);
    let held = [next(&batches), next(&batches)];
    assert!(ended.lock().unwrap().is_none());
    held.into_iter().for_each(finish);
    finish(next(&batches));
    finish(next(&batches));
    // The actor drops the dispatcher at its end, and the dispatcher owns the channel.
    assert!(batches.recv_timeout(LONG).is_err());
    let reason = ended.lock().unwrap().clone().unwrap();
    assert_eq!(reason, StopReason::Released.to_string());
}

#[test]
fn callers_that_gave_up_are_skipped_also_while_their_key_is_busy() {
    let (handle, batches) = dispatched(several(1, 2).key(|n: &u64| n % 10));
    let first = send(&handle, 1);
    let running = next(&batches);
    drop(send(&handle, 11));
    let third = send(&handle, 21);
    finish(running);
    assert_eq!(block_on(first).unwrap(), 10);
    let running = next(&batches);
    assert_eq!(items(&running), [21]);
    finish(running);
    assert_eq!(block_on(third).unwrap(), 210);
    drain(&handle).unwrap();
    assert_eq!(handle.stats().cancelled, 1);
}

#[test]
fn idleness_is_told_when_nothing_waits_and_no_batch_runs() {
    struct Idle(SyncSender<Owned>, Arc<AtomicUsize>);
    impl Dispatcher<u64, u64> for Idle {
        fn dispatch(&mut self, batch: Owned) {
            self.0.send(batch).unwrap();
        }

        fn idle(&mut self) {
            self.1.fetch_add(1, SeqCst);
        }
    }
    let ((to_test, batches), idle) = (sync_channel(100), Arc::new(AtomicUsize::new(0)));
    let handle: H = several(1, 2)
        .spawn_dispatcher(Idle(to_test, Arc::clone(&idle)))
        .unwrap();
    until(|| idle.load(SeqCst) == 1);
    cast(&handle, 1);
    cast(&handle, 2);
    let (first, second) = (next(&batches), next(&batches));
    finish(first);
    until(|| handle.stats().service_ns.quantile(1.0) > 0);
    assert_eq!(idle.load(SeqCst), 1, "a batch still runs");
    finish(second);
    until(|| idle.load(SeqCst) == 2);
    drain(&handle).unwrap();
}

/// Items are `key + 100 * number`. Batches end in any order. The actor hands out each item once, in the order
/// of its key, and no key is in two batches at once.
#[test]
fn keys_keep_their_order_and_pass_each_other() {
    for seed in 0..30 {
        let mut seed = seed;
        let (limit, n) = (1 + draw(&mut seed, 6), 1 + draw(&mut seed, 8));
        let builder = several(limit as u64, n as u32).capacity(64);
        let (handle, batches) = dispatched(builder.key(|n: &u64| n % 100));
        let keys = 1 + draw(&mut seed, 12) as u64;
        let (mut sent, mut seen) = (HashMap::<u64, u64>::new(), HashMap::<u64, u64>::new());
        let (mut running, mut total, mut handled) = (Vec::<Owned>::new(), 0, 0);
        while handled < 600 {
            if total < 600 && draw(&mut seed, 3) > 0 {
                let key = draw(&mut seed, keys as usize) as u64;
                let number = sent.entry(key).or_default();
                let accepted = handle.try_cast(key + 100 * *number).is_ok();
                *number += u64::from(accepted);
                total += usize::from(accepted);
            } else if !running.is_empty() && draw(&mut seed, 2) > 0 {
                let at = draw(&mut seed, running.len());
                let batch = running.swap_remove(at);
                handled += batch.len();
                finish(batch);
            }
            let batch = match batches.try_recv() {
                Ok(batch) => batch,
                // No batch runs and items remain, so the actor must hand out the next batch.
                Err(_) if running.is_empty() && total == 600 && handled < 600 => next(&batches),
                Err(_) => continue,
            };
            for item in items(&batch) {
                let number = seen.entry(item % 100).or_default();
                assert_eq!(item / 100, *number, "key {} out of order", item % 100);
                *number += 1;
            }
            let keys = |b: &Owned| {
                items(b)
                    .into_iter()
                    .map(|n| n % 100)
                    .collect::<HashSet<_>>()
            };
            for other in &running {
                assert!(
                    keys(other).is_disjoint(&keys(&batch)),
                    "a key in two batches"
                );
            }
            running.push(batch);
            assert!(running.len() <= n, "more than {n} at once");
        }
        assert_eq!(sent, seen);
        drain(&handle).unwrap();
    }
}

#[test]
fn items_of_a_busy_key_are_bounded_and_others_pass_them() {
    let (handle, batches) = dispatched(several(1, 4).capacity(8).key(|n: &u64| n % 10));
    cast(&handle, 1);
    let busy = next(&batches);
    cast(&handle, 11);
    cast(&handle, 2);
    let other = next(&batches);
    assert_eq!(items(&other), [2], "2 passes 11");
    // The actor accepts as many items as the queue's capacity, sets as many aside, and then refuses more.
    let mut accepted = vec![11];
    let mut refused = 0;
    while refused < 1000 {
        match handle.try_cast(21 + 10 * (accepted.len() as u64 - 1)) {
            Ok(()) => {
                accepted.push(21 + 10 * (accepted.len() as u64 - 1));
                refused = 0;
            }
            Err(_) => {
                refused += 1;
                std::thread::yield_now();
            }
        }
        assert!(accepted.len() <= 16 + 8, "{} accepted", accepted.len());
    }
    assert_eq!(handle.backlog().items, accepted.len() as u64);
    finish(other);
    finish(busy);
    let mut order = Vec::new();
    while order.len() < accepted.len() {
        let batch = next(&batches);
        order.extend(items(&batch));
        finish(batch);
    }
    assert_eq!(order, accepted);
    drain(&handle).unwrap();
}

#[test]
fn a_key_function_that_panics_loses_its_item_only() {
    let builder = several(10, 2).key(|n: &u64| match n {
        7 => batcher_common::quiet_panic(),
        n => *n,
    });
    let (handle, batches) = dispatched(builder);
    let lost = send(&handle, 7);
    assert!(matches!(block_on(lost), Err(ReplyError::Panicked)));
    let kept = send(&handle, 8);
    finish(next(&batches));
    assert_eq!(block_on(kept).unwrap(), 80);
    drain(&handle).unwrap();
    assert_eq!(handle.stats().panics, 1);
}

#[test]
fn the_events_of_several_batches_replay_and_each_batch_ends_once() {
    let fixed = || Fixed::new(3).with_in_flight(4).controller();
    let recorder = Arc::new(Mutex::new(Recorder::new(fixed(), 100_000)));
    let (handle, batches) = dispatched(Builder::new().controller(Arc::clone(&recorder)));
    let mut seed = 3;
    let mut running = Vec::new();
    let requests: Vec<_> = (0..200).map(|n| send(&handle, n)).collect();
    let mut handled = 0;
    while handled < 200 {
        match batches.try_recv() {
            Ok(batch) => running.push(batch),
            Err(_) if running.is_empty() => running.push(next(&batches)),
            Err(_) => {
                let batch: Owned = running.swap_remove(draw(&mut seed, running.len()));
                handled += batch.len();
                finish(batch);
            }
        }
    }
    for (n, request) in (0..).zip(requests) {
        assert_eq!(block_on(request).unwrap(), n * 10);
    }
    drain(&handle).unwrap();
    let recorder = recorder.lock().unwrap();
    let log = recorder.log();
    replay(&mut fixed(), log).unwrap();
    let (mut open, mut ids) = (HashSet::new(), HashSet::<BatchId>::new());
    for (at, entry) in log.iter().enumerate() {
        match entry.event {
            Event::Started { id, .. } => {
                assert!(open.insert(id) && ids.insert(id), "{id:?} is fresh");
                assert!(open.len() <= 4);
            }
            Event::Done { id, .. } => {
                assert!(open.remove(&id), "{id:?} runs");
                let next = log.get(at + 1).map(|e| e.event);
                assert!(matches!(next, Some(Event::Expected { .. })), "{next:?}");
            }
            _ => {}
        }
    }
    assert!(open.is_empty());
}

// ---- shared handlers, as tasks

/// A gate at which tasks wait until the test opens it.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    fn open(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        state.1.drain(..).for_each(Waker::wake);
    }

    async fn pass(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A handler that counts the batches it works on now, waits at the gate, and answers ten times each item. It
/// panics at item 13, and returns an error at item 77.
struct Gated {
    gate: Gate,
    inside: Arc<AtomicUsize>,
}

impl SharedHandler for Gated {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;

    async fn handle_batch(&self, batch: &mut Batch<u64, u64>) -> Handled {
        self.inside.fetch_add(1, SeqCst);
        self.gate.pass().await;
        let mut items = Vec::new();
        batch.take_items(&mut items);
        if items.contains(&13) {
            batcher_common::quiet_panic();
        }
        if items.contains(&99) {
            return Ok(Flow::stop("99"));
        }
        if items.contains(&77) {
            "not a number".parse::<u64>()?;
        }
        batch.answer(items.into_iter().map(|n| n * 10));
        Ok(Flow::Continue)
    }
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        n => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(n);
            builder
        }
    };
    builder.enable_time().build().unwrap()
}

async fn gated(builder: Builder<u64>) -> (H, Gate, Arc<AtomicUsize>) {
    let (gate, inside) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let handler = Gated {
        gate: gate.clone(),
        inside: Arc::clone(&inside),
    };
    let handle = builder.spawn_shared_handler(handler).await.unwrap();
    (handle, gate, inside)
}

async fn until_async(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_shared_handler_works_on_several_batches_and_a_panic_loses_one() {
    for threads in [0, 2] {
        runtime(threads).block_on(async {
            let (handle, gate, inside) = gated(several(1, 4)).await;
            let requests: Vec<_> = [1, 13, 3, 4, 5].map(|n| send(&handle, n)).into();
            until_async(|| inside.load(SeqCst) == 4).await;
            gate.open();
            let mut answers = Vec::new();
            for request in requests {
                answers.push(request.await);
            }
            assert!(matches!(answers[1], Err(ReplyError::Panicked)));
            drop(answers.remove(1));
            let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
            assert_eq!(answers, [10, 30, 40, 50]);
            until_async(|| handle.stats().panics == 1).await;
            assert_eq!(handle.stats().failed, 1);
        });
    }
}

#[test]
fn an_error_of_a_shared_handler_fails_its_own_callers_and_the_actor_goes_on() {
    runtime(2).block_on(async {
        let (handle, gate, inside) = gated(several(1, 2)).await;
        let (bad, good) = (send(&handle, 77), send(&handle, 1));
        until_async(|| inside.load(SeqCst) == 2).await;
        gate.open();
        let error = bad.await.unwrap_err();
        assert!(
            matches!(&error, ReplyError::Failed(cause) if cause.to_string().contains("invalid digit")),
            "{error:?}"
        );
        assert_eq!(good.await.unwrap(), 10);
        assert_eq!(send(&handle, 2).await.unwrap(), 20);
    });
}

#[test]
fn a_shared_handler_may_stop_its_actor_and_the_other_batches_finish() {
    runtime(2).block_on(async {
        let (handle, gate, inside) = gated(several(1, 2)).await;
        let (other, last) = (send(&handle, 1), send(&handle, 99));
        until_async(|| inside.load(SeqCst) == 2).await;
        gate.open();
        assert_eq!(other.await.unwrap(), 10);
        assert!(matches!(last.await, Err(ReplyError::NoReply)));
        until_async(|| handle.ended().is_some()).await;
        assert!(matches!(handle.ended(), Some(StopReason::Handler(_))));
    });
}

#[test]
fn a_runtime_that_ends_answers_every_caller_of_every_batch() {
    let runtime = runtime(2);
    let (handle, requests) = runtime.block_on(async {
        let (handle, _gate, inside) = gated(several(1, 3)).await;
        let requests: Vec<_> = (1..8).map(|n| send(&handle, n)).collect();
        until_async(|| inside.load(SeqCst) == 3).await;
        (handle, requests)
    });
    drop(runtime);
    for request in requests {
        assert!(block_on(request).is_err());
    }
    assert!(handle.ended().is_some());
    assert!(handle.try_cast(1).is_err());
    assert_eq!(stop(&handle, LONG).unwrap(), [4, 5, 6, 7]);
}

#[test]
fn closures_answer_with_nothing_or_a_reply_each_or_an_error() {
    runtime(0).block_on(async {
        let each = Builder::new().spawn_shared(async |_: Vec<u64>| {}).await;
        let request = each.unwrap().try_send_request(1).unwrap();
        request.await.unwrap();

        let doubled = Builder::new()
            .spawn_shared(async |items: Vec<u64>| items.iter().map(|n| n * 2).collect::<Vec<_>>())
            .await
            .unwrap();
        assert_eq!(doubled.try_send_request(4).unwrap().await.unwrap(), 8);

        let parsed = Builder::new()
            .controller(Fixed::new(1).with_in_flight(2).controller())
            .spawn_shared(|items: Vec<&'static str>| async move {
                let mut numbers = Vec::new();
                for item in items {
                    numbers.push(item.parse::<u64>()?);
                }
                Ok::<_, std::num::ParseIntError>(numbers)
            })
            .await
            .unwrap();
        let (good, bad) = (
            parsed.try_send_request("7").unwrap(),
            parsed.try_send_request("x").unwrap(),
        );
        assert_eq!(good.await.unwrap(), 7);
        assert!(matches!(bad.await, Err(ReplyError::Failed(_))));
        until_async(|| parsed.stats().failed == 1).await;

        let short = Builder::new()
            .spawn_shared(async |_: Vec<u64>| Vec::<u64>::new())
            .await
            .unwrap();
        let answer = short.try_send_request(1).unwrap().await;
        assert!(matches!(
            answer,
            Err(ReplyError::ResultCount {
                items: 1,
                results: 0
            })
        ));
    });
}

#[test]
fn a_dispatcher_on_a_runtime_spawns_tasks_that_own_their_batches() {
    for threads in [0, 2] {
        runtime(threads).block_on(async {
            let gate = Gate::default();
            let inside = Arc::new(AtomicUsize::new(0));
            let (open, entered) = (gate.clone(), Arc::clone(&inside));
            let handle: H = several(1, 3)
                .spawn_dispatcher_task(move |batch: Owned| {
                    let (gate, inside) = (gate.clone(), Arc::clone(&inside));
                    tokio::spawn(async move {
                        inside.fetch_add(1, SeqCst);
                        gate.pass().await;
                        finish(batch);
                    });
                })
                .unwrap();
            let requests: Vec<_> = (1..=5).map(|n| send(&handle, n)).collect();
            until_async(|| entered.load(SeqCst) == 3).await;
            open.open();
            for (n, request) in (1..).zip(requests) {
                assert_eq!(request.await.unwrap(), n * 10);
            }
            drop(handle);
        });
    }
}

#[test]
fn no_batch_at_once_is_refused() {
    let bounds = tidegate::controller::Bounds {
        in_flight_max: Some(0),
        ..Default::default()
    };
    for builder in [several(1, 2).in_flight_max(0), several(1, 2).bounds(bounds)] {
        let refused = builder.spawn_dispatcher(|batch: Owned| batch.done());
        let error = refused.map(|_: H| ()).unwrap_err();
        assert!(error.to_string().contains("0 batches in flight"), "{error}");
    }
}

/// A handler that doubles each item, panics at every multiple of 50, and counts the batches it works on now.
struct Hostile {
    inside: AtomicUsize,
    most: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<u64>>>,
}

impl SharedHandler for Hostile {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;

    async fn handle_batch(&self, batch: &mut Batch<u64, u64>) -> Handled {
        struct Leave<'a>(&'a AtomicUsize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        let _leave = Leave(&self.inside);
        self.most.fetch_max(inside, SeqCst);
        let mut items = Vec::new();
        batch.take_items(&mut items);
        self.seen.lock().unwrap().extend(&items);
        for _ in 0..items[0] % 7 {
            tokio::task::yield_now().await;
        }
        if items.iter().any(|n| n.is_multiple_of(50)) {
            batcher_common::quiet_panic();
        }
        batch.answer(items.into_iter().map(|n| n * 2));
        Ok(Flow::Continue)
    }
}

#[test]
fn many_callers_panics_and_cancellations_lose_no_item_and_no_answer() {
    const EACH: u64 = 3000;
    for keyed in [false, true] {
        let (most, seen) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let handler = Hostile {
            inside: AtomicUsize::new(0),
            most: Arc::clone(&most),
            seen: Arc::clone(&seen),
        };
        let builder = several(4, 8).capacity(256);
        let builder = match keyed {
            true => builder.key(|n: &u64| n / EACH),
            false => builder,
        };
        let runtime = runtime(2);
        let handle = runtime
            .block_on(builder.spawn_shared_handler(handler))
            .unwrap();
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                let handle = handle.clone();
                std::thread::spawn(move || {
                    let (mut answered, mut lost, mut dropped) = (0, 0, 0);
                    let mut pending = VecDeque::new();
                    for n in caller * EACH..(caller + 1) * EACH {
                        let mut request = handle.try_send_request(n);
                        while request.is_err() {
                            std::thread::yield_now();
                            request = handle.try_send_request(n);
                        }
                        if n.is_multiple_of(11) {
                            drop(request);
                            dropped += 1;
                            continue;
                        }
                        pending.push_back((n, request.unwrap()));
                        let ready = if pending.len() > 16 {
                            pending.pop_front()
                        } else {
                            None
                        };
                        settle(ready, &mut answered, &mut lost);
                    }
                    pending
                        .into_iter()
                        .for_each(|p| settle(Some(p), &mut answered, &mut lost));
                    (answered, lost, dropped)
                })
            })
            .collect();
        let told: Vec<_> = callers.into_iter().map(|c| c.join().unwrap()).collect();
        drain(&handle).unwrap();
        let total: u64 = told.iter().map(|(a, l, d)| a + l + d).sum();
        assert_eq!(total, 4 * EACH);
        assert!(
            told.iter()
                .all(|&(answered, lost, _)| answered > 0 && lost > 0)
        );
        let stats = handle.stats();
        let mut seen: Vec<u64> = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(seen.len() as u64 + stats.cancelled, 4 * EACH);
        assert_eq!(stats.items, seen.len() as u64);
        if keyed {
            for caller in 0..4 {
                let own = seen.iter().filter(|&&n| n / EACH == caller);
                assert!(
                    own.is_sorted(),
                    "the items of caller {caller} stay in order"
                );
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len() as u64, stats.items, "each item is handled once");
        assert!(most.load(SeqCst) <= 8);
    }
}

fn settle(request: Option<(u64, Request<u64>)>, answered: &mut u64, lost: &mut u64) {
    let Some((n, request)) = request else { return };
    match block_on(request) {
        Ok(value) => {
            assert_eq!(value, n * 2);
            *answered += 1;
        }
        Err(ReplyError::Panicked) => *lost += 1,
        Err(error) => panic!("{n}: {error}"),
    }
}
