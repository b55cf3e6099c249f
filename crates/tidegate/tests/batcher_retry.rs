//! Tests items that a handler gives back for another try. The actor hands them out first, their callers keep
//! waiting, and every end of an actor accounts for them, in each form of handler.
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use batcher_common::driver::Driver;
use batcher_common::{B, Gbs, LONG, Log, Scripted, builder, call, drain, quiet_panic};
use tidegate::batcher::{Builder, Flow, Handle, Op, OwnedBatch, ReplyError};
use tidegate::controller::Fixed;

tests! {
    items_given_back_come_first_and_their_callers_wait_on
    tries_are_counted
    a_caller_that_gave_up_is_skipped_before_the_next_try
    a_call_with_a_deadline_ends_at_it_between_two_tries
    a_drain_handles_items_given_back
    a_stop_returns_items_given_back_before_the_others
    a_panic_loses_items_given_back_with_their_batch
    a_batch_that_fails_keeps_the_items_given_back
    items_given_back_need_no_room
    messages_can_be_given_back
}

/// Gives back the items for which `again` returns true, given the item and its try. Answers ten times
/// each other item.
fn answer_or_retry(batch: &mut B, mut again: impl FnMut(u64, u32) -> bool) -> Flow {
    let mut ops = batch.drain();
    while let Some(op) = ops.next() {
        let (Op::Cast(item) | Op::Call(item, _)) = op else {
            continue;
        };
        if again(item, ops.attempt()) {
            ops.retry(op);
        } else if let Op::Call(item, reply) = op {
            reply.send(item * 10);
        }
    }
    Flow::Continue
}

fn at_most(items: u64) -> Builder<u64> {
    builder().controller(Gbs::fixed(items).controller())
}

fn items_given_back_come_first_and_their_callers_wait_on<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| {
        answer_or_retry(batch, |item, attempt| item % 2 == 1 && attempt == 1)
    });
    let handle = D::start(at_most(3), handler).unwrap();
    hold.busy(&handle);
    let requests: Vec<_> = (1..=5)
        .map(|n| handle.try_send_request(n).unwrap())
        .collect();
    hold.let_go();
    let answers = requests.into_iter().map(|r| r.blocking_wait().unwrap());
    assert_eq!(answers.collect::<Vec<_>>(), [10, 20, 30, 40, 50]);
    let batches = [vec![0], vec![1, 2, 3], vec![1, 3, 4], vec![5], vec![5]];
    assert_eq!(log.batches(), batches);
    drain(&handle);
    let stats = handle.stats();
    assert_eq!((stats.retried, stats.items, stats.batches), (3, 9, 5));
    assert_eq!(stats.failed, 1, "one batch gave everything back");
    assert_eq!(stats.backlog.items, 0);
}

fn tries_are_counted<D: Driver>() {
    let log = Log::default();
    let handler = Scripted::with(&log, |batch| {
        let mut items = Vec::new();
        batch.take_items(&mut items);
        let tries: Vec<_> = (0..items.len()).map(|at| batch.attempt(at)).collect();
        let mut answers = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            if u64::from(tries[at]) < item {
                batch.retry(at, item);
            } else {
                answers.push(tries[at].into());
            }
        }
        batch.answer(answers);
        Flow::Continue
    });
    // The actor has the default controller, which counts the calls that arrive and the callers that return.
    let handle = D::start(builder(), handler).unwrap();
    let requests: Vec<_> = (1..=9)
        .map(|n| handle.try_send_request(n).unwrap())
        .collect();
    for (n, request) in (1..=9).zip(requests) {
        assert_eq!(request.blocking_wait().unwrap(), n);
    }
    assert_eq!(call(&handle, 5), 5);
    drain(&handle);
    assert_eq!(handle.stats().retried, (0..9).sum::<u64>() + 4);
}

fn a_caller_that_gave_up_is_skipped_before_the_next_try<D: Driver>() {
    let (entered, has_entered) = sync_channel(1);
    let (release, released) = sync_channel(1);
    let log = Log::default();
    let handler = Scripted::with(&log, move |batch| {
        let flow = answer_or_retry(batch, |_, attempt| attempt == 1);
        entered.send(()).unwrap();
        released.recv().unwrap();
        flow
    });
    let handle = D::start(builder(), handler).unwrap();
    let request = handle.try_send_request(1).unwrap();
    has_entered.recv().unwrap();
    drop(request);
    release.send(()).unwrap();
    drain(&handle);
    let stats = handle.stats();
    assert_eq!((stats.retried, stats.cancelled), (1, 1));
    assert_eq!(log.items(), [1]);
}

fn a_call_with_a_deadline_ends_at_it_between_two_tries<D: Driver>() {
    let log = Log::default();
    let handler = Scripted::with(&log, |batch| answer_or_retry(batch, |item, _| item == 1));
    let handle = D::start(builder(), handler).unwrap();
    let answer = handle.blocking_call_timeout(1, Duration::from_millis(5));
    assert!(matches!(
        answer,
        Err(tidegate::batcher::CallError::TimedOut)
    ));
    // The item would be tried for ever, but the actor drops it once its caller gives up.
    drain(&handle);
    assert_eq!(handle.stats().cancelled, 1);
}

fn a_drain_handles_items_given_back<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| {
        answer_or_retry(batch, |_, attempt| attempt < 3)
    });
    let handle = D::start(at_most(2), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2, 3]).unwrap();
    handle.close();
    hold.let_go();
    drain(&handle);
    let mut items = log.items();
    items.sort_unstable();
    assert_eq!(items, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
}

fn a_stop_returns_items_given_back_before_the_others<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| answer_or_retry(batch, |_, _| true));
    let handle = D::start(at_most(2), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2]).unwrap();
    let request = handle.try_send_request(3).unwrap();
    assert!(handle.blocking_stop("enough", Duration::ZERO).is_err());
    hold.let_go();
    assert_eq!(handle.blocking_stop("enough", LONG).unwrap(), [0, 1, 2, 3]);
    assert!(matches!(request.blocking_wait(), Err(ReplyError::Stopped)));
}

fn a_panic_loses_items_given_back_with_their_batch<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| {
        let flow = answer_or_retry(batch, |item, attempt| item < 5 && attempt == 1);
        if batch.len() == 3 {
            quiet_panic();
        }
        flow
    });
    let handle = D::start(at_most(3), handler).unwrap();
    hold.busy(&handle);
    let requests: Vec<_> = (1..=6)
        .map(|n| handle.try_send_request(n).unwrap())
        .collect();
    hold.let_go();
    // The handler gets these batches: item 0, then items 0 to 2, then 3 to 5, then 6.
    let answers: Vec<_> = requests.into_iter().map(|r| r.blocking_wait()).collect();
    assert!(
        answers[..4]
            .iter()
            .all(|answer| matches!(answer, Err(ReplyError::Panicked)))
    );
    assert!(matches!(answers[4..], [Ok(50), Ok(60)]));
    drain(&handle);
    assert_eq!(
        log.batches(),
        [vec![0], vec![0, 1, 2], vec![3, 4, 5], vec![6]]
    );
    assert_eq!((handle.stats().panics, handle.stats().retried), (2, 1));
}

fn a_batch_that_fails_keeps_the_items_given_back<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| {
        let first = batch.len() == 2;
        let mut items = Vec::new();
        batch.take_items(&mut items);
        if first {
            batch.retry(0, items[0]);
            batch.fail("disk full");
        } else {
            batch.answer(items.iter().map(|n| n * 10));
        }
        Flow::Continue
    });
    let handle = D::start(at_most(2), handler).unwrap();
    hold.busy(&handle);
    let [kept, failed] = [1, 2].map(|n| handle.try_send_request(n).unwrap());
    hold.let_go();
    assert!(matches!(failed.blocking_wait(), Err(ReplyError::Failed(_))));
    assert_eq!(kept.blocking_wait().unwrap(), 10);
    drain(&handle);
}

fn items_given_back_need_no_room<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| {
        answer_or_retry(batch, |_, attempt| attempt < 4)
    });
    let full = at_most(4).capacity(2).weigh(|_| 5).capacity_bytes(10);
    let handle = D::start(full, handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2]).unwrap();
    assert!(handle.try_cast(3).is_err(), "it is full");
    std::thread::scope(|s| {
        let sending = (10..14).map(|n| {
            s.spawn({
                let handle = handle.clone();
                move || (0..50).for_each(|_| handle.blocking_cast(n).unwrap())
            })
        });
        let sending: Vec<_> = sending.collect();
        hold.let_go();
        sending.into_iter().for_each(|one| one.join().unwrap());
    });
    drain(&handle);
    let stats = handle.stats();
    assert_eq!((stats.items, stats.retried), (4 * 203, 3 * 203));
    assert_eq!((stats.backlog.items, stats.backlog.bytes), (0, 0));
}

fn messages_can_be_given_back<D: Driver>() {
    let (seen, saw) = sync_channel(10);
    let log = Log::default();
    let handler = Scripted::with(&log, move |batch| {
        let mut ops = batch.drain();
        while let Some(op) = ops.next() {
            if let Op::Info(message) = op {
                seen.send((message, ops.attempt())).unwrap();
                if ops.attempt() < 3 {
                    ops.retry(Op::Info(message));
                }
            }
        }
        Flow::Continue
    });
    let handle = D::start(builder(), handler).unwrap();
    handle.blocking_info("tick").unwrap();
    drain(&handle);
    let seen: Vec<_> = saw.try_iter().collect();
    assert_eq!(seen, [("tick", 1), ("tick", 2), ("tick", 3)]);
}

type Owned = OwnedBatch<u64, u64>;

/// Starts an actor with at most `n` batches at once, of at most `limit` items each, and gives its
/// batches to the test.
fn dispatched(
    limit: u64,
    n: u32,
    change: impl FnOnce(Builder<u64>) -> Builder<u64>,
) -> (Handle<u64, u64>, Receiver<Owned>) {
    let fixed = Fixed::new(limit).with_in_flight(n);
    let (to_test, batches) = sync_channel(100);
    let handle = change(Builder::new().controller(fixed.controller()))
        .spawn_dispatcher(move |batch| to_test.send(batch).unwrap())
        .unwrap();
    (handle, batches)
}

fn next(batches: &Receiver<Owned>) -> (Owned, Vec<u64>) {
    let mut batch = batches.recv_timeout(LONG).unwrap();
    let mut items = Vec::new();
    batch.take_items(&mut items);
    (batch, items)
}

/// Answers ten times each item except those at the places `back`, gives those back, and finishes the batch.
fn finish((mut batch, items): (Owned, Vec<u64>), back: &[usize]) {
    back.iter().for_each(|at| batch.retry(*at, items[*at]));
    let done = (0..items.len()).filter(|at| !back.contains(at));
    batch.answer(done.map(|at| items[at] * 10).collect::<Vec<_>>());
    batch.done();
}

#[test]
fn items_of_an_owned_batch_come_again_before_later_items_of_their_key() {
    let (handle, batches) = dispatched(2, 2, |builder| builder.key(|n: &u64| n % 10));
    let requests: Vec<_> = [1, 2, 11, 21, 3, 31]
        .map(|n| handle.try_send_request(n).unwrap())
        .into();
    let (ones, other) = (next(&batches), next(&batches));
    let at = ones.1.iter().position(|n| *n == 1).unwrap();
    // Later items of the same key in the batch must be given back together with it.
    let back: Vec<_> = (at..ones.1.len())
        .filter(|at| ones.1[*at] % 10 == 1)
        .collect();
    finish(ones, &back);
    finish(other, &[]);
    let mut seen = Vec::<u64>::new();
    while seen.len() < 4 {
        let batch = next(&batches);
        seen.extend(batch.1.iter().filter(|n| **n % 10 == 1));
        if batch.1.contains(&1) {
            assert_eq!(batch.0.attempt(0), 2);
        }
        finish(batch, &[]);
    }
    assert_eq!(seen, [1, 11, 21, 31]);
    for (n, request) in [1, 2, 11, 21, 3, 31].into_iter().zip(requests) {
        assert_eq!(request.blocking_wait().unwrap(), n * 10);
    }
    handle.blocking_drain(LONG).unwrap();
}

#[test]
fn items_given_back_outlive_a_batch_that_is_dropped() {
    let (handle, batches) = dispatched(2, 1, |builder| builder);
    let [kept, lost] = [1, 2].map(|n| handle.try_send_request(n).unwrap());
    let (mut batch, items) = next(&batches);
    let pair = items == [1, 2];
    batch.retry(0, items[0]);
    drop(batch);
    let (batch, items) = next(&batches);
    assert_eq!(items[0], 1);
    assert_eq!(batch.attempt(0), 2);
    finish((batch, items), &[]);
    assert_eq!(kept.blocking_wait().unwrap(), 10);
    match lost.blocking_wait() {
        Err(ReplyError::NoReply) => assert!(pair),
        answer => assert_eq!(answer.unwrap(), 20),
    }
    handle.blocking_drain(LONG).unwrap();
}

/// Items are `key + 100 * number`. Batches end in any order and give random items back, each with the later
/// items of its key. The actor handles each item once, in the order of its key.
#[test]
fn random_tries_keep_the_order_of_each_key_and_lose_nothing() {
    let mut seed = 7_u64;
    let mut draw = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..20 {
        let (limit, n) = (1 + draw(6) as u64, 1 + draw(5) as u32);
        let (handle, batches) = dispatched(limit, n, |builder| {
            builder.capacity(32).key(|n: &u64| n % 100)
        });
        let keys = 1 + draw(8) as u64;
        let (mut sent, mut seen) = (HashMap::<u64, u64>::new(), HashMap::<u64, u64>::new());
        let (mut running, mut total, mut handled) = (Vec::new(), 0, 0);
        let mut given_back = 0;
        while handled < 300 {
            if total < 300 {
                let key = draw(keys as usize) as u64;
                let number = sent.entry(key).or_insert(0);
                if handle.try_cast(key + 100 * *number).is_ok() {
                    *number += 1;
                    total += 1;
                }
            }
            let waits = running.is_empty() && total > handled;
            while let Some(batch) = match waits && running.is_empty() {
                true => batches.recv_timeout(LONG).ok(),
                false => batches.try_recv().ok(),
            } {
                running.push(batch);
            }
            if running.is_empty() || (total < 300 && draw(3) > 0) {
                continue;
            }
            let mut batch = running.swap_remove(draw(running.len()));
            let mut items = Vec::new();
            batch.take_items(&mut items);
            let mut back = HashMap::new();
            for (at, item) in items.iter().enumerate() {
                let key = item % 100;
                if back.contains_key(&key) || draw(4) == 0 {
                    back.insert(key, ());
                    batch.retry(at, *item);
                    given_back += 1;
                } else {
                    let next = seen.entry(key).or_insert(0);
                    assert_eq!(item / 100, *next, "key {key}");
                    *next += 1;
                    handled += 1;
                }
            }
            batch.done();
        }
        assert_eq!(sent, seen);
        handle.blocking_drain(LONG).unwrap();
        assert_eq!(handle.stats().retried, given_back);
    }
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use super::*;
    use batcher_common::until;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use tidegate::batcher::{AsyncHandler, Batch, Handled, SharedHandler};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap()
    }

    /// Yields in each batch, and answers each item in its third try.
    async fn third_try(batch: &mut Batch<u64, u64>) -> Handled {
        let mut items = Vec::new();
        batch.take_items(&mut items);
        tokio::task::yield_now().await;
        let mut answers = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            match batch.attempt(at) {
                3 => answers.push(item * 10),
                _ => batch.retry(at, item),
            }
        }
        batch.answer(answers);
        Ok(Flow::Continue)
    }

    struct Third;

    impl AsyncHandler for Third {
        type Item = u64;
        type Reply = u64;
        type Info = std::convert::Infallible;

        async fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Handled {
            third_try(batch).await
        }
    }

    struct SharedThird(AtomicU64);

    impl SharedHandler for SharedThird {
        type Item = u64;
        type Reply = u64;
        type Info = std::convert::Infallible;

        async fn handle_batch(&self, batch: &mut Batch<u64, u64>) -> Handled {
            self.0.fetch_add(1, SeqCst);
            third_try(batch).await
        }
    }

    async fn calls(handle: Handle<u64, u64>) {
        let calling: Vec<_> = (0..32_u64)
            .map(|n| {
                let handle = handle.clone();
                tokio::spawn(async move { assert_eq!(handle.call(n).await.unwrap(), n * 10) })
            })
            .collect();
        for one in calling {
            one.await.unwrap();
        }
        handle.drain(LONG).await.unwrap();
        assert_eq!(handle.stats().retried, 64);
    }

    #[test]
    fn async_handlers_give_items_back() {
        runtime().block_on(async {
            calls(Builder::new().spawn_task(Third).await.unwrap()).await;
        });
    }

    #[test]
    fn shared_handlers_give_items_back() {
        runtime().block_on(async {
            let handler = SharedThird(AtomicU64::new(0));
            let fixed = Fixed::new(4).with_in_flight(4);
            let builder = Builder::new().controller(fixed.controller());
            calls(builder.spawn_shared_handler(handler).await.unwrap()).await;
        });
    }

    #[test]
    fn callers_of_items_given_back_learn_that_the_runtime_is_gone() {
        let runtime = runtime();
        let (to_test, batches) = sync_channel(100);
        let handle: Handle<u64, u64> = runtime.block_on(async {
            Builder::new()
                .spawn_dispatcher_task(move |batch: Owned| to_test.send(batch).unwrap())
                .unwrap()
        });
        let request = handle.try_send_request(1).unwrap();
        let batch = next(&batches);
        drop(runtime);
        until(|| handle.ended().is_some());
        finish(batch, &[0]);
        assert!(matches!(
            request.blocking_wait(),
            Err(ReplyError::Abandoned)
        ));
    }
}
