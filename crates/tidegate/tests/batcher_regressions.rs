//! Tests that an actor, with each of its drivers, does not have the defects of other projects. The numbers
//! are those of docs/regressions.md.
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use batcher_common::driver::Driver;
use batcher_common::*;
use tidegate::batcher::*;
use tidegate::controller::{Bounds, Reason};

tests! {
    regression_5_an_early_finish_does_not_grow_the_limit
    regression_6_bulk_sends_do_not_exceed_the_limit
    regression_7_callers_that_gave_up_are_not_handled
    regression_8_a_timeout_fires_while_the_handler_is_busy
    regression_11_no_batch_is_empty
    regression_12_a_drain_handles_the_last_partial_batch
    regression_12_items_sent_during_the_close_are_handled_or_given_back
    regression_15_a_partial_send_gives_the_rest_back_in_order
    regression_16_a_panic_loses_only_its_own_batch
    regression_17_too_few_results_are_a_typed_error
    regression_18_an_oversized_item_goes_alone_or_is_refused
    regression_20_a_failed_batch_does_not_end_the_actor
    regression_20_dropping_the_last_handle_drains
}

/// A handler that ends its batch after each item divisible by 5, to test batches that the handler ends early.
struct Fives(Scripted);

impl Handler for Fives {
    type Item = u64;
    type Reply = u64;
    type Info = &'static str;

    fn append(&mut self, batch: &mut B, op: Op<u64, u64, &'static str>) -> Append {
        let finish = matches!(op, Op::Cast(n) if n % 5 == 0);
        batch.push(op);
        if finish {
            Append::Finish
        } else {
            Append::Continue
        }
    }

    fn handle_batch(&mut self, batch: &mut B) -> Handled {
        Handler::handle_batch(&mut self.0, batch)
    }
}

fn regression_5_an_early_finish_does_not_grow_the_limit<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let builder = builder().controller(Gbs::new(8, 8192).controller());
    let handle = D::start(builder, Fives(handler)).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many(1..=100).unwrap();
    hold.let_go();
    until(|| log.items().len() == 101);
    assert!(
        log.sizes()[1..].iter().all(|&n| n == 5),
        "{:?}",
        log.sizes()
    );
    assert_eq!(handle.blocking_controller().unwrap().limit, 8);
    assert_eq!(handle.stats().batches_for(Reason::Asked), 21);
}

fn regression_6_bulk_sends_do_not_exceed_the_limit<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let builder = builder().controller(Gbs::fixed(10).controller());
    let handle = D::start(builder, handler).unwrap();
    hold.busy(&handle);
    assert_eq!(handle.blocking_cast_many(1..=95).unwrap(), 95);
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.sizes(), [1, 10, 10, 10, 10, 10, 10, 10, 10, 10, 5]);
}

fn regression_7_callers_that_gave_up_are_not_handled<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let builder = builder()
        .controller(Gbs::fixed(2).controller())
        .weigh(|_| 7);
    let handle = D::start(builder, handler).unwrap();
    hold.busy(&handle);
    for n in 100..103 {
        drop(handle.blocking_send_request(n).unwrap());
    }
    let error = handle.blocking_call_timeout(103, Duration::from_millis(1));
    assert!(matches!(error, Err(CallError::TimedOut)));
    handle.blocking_cast_many([1, 2, 3]).unwrap();
    drop(handle.blocking_send_request(104).unwrap());
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
    // The actor skips cancelled calls, so they do not fill batches either.
    assert_eq!(log.batches(), [vec![0], vec![1, 2], vec![3]]);
    let stats = handle.stats();
    assert_eq!((stats.cancelled, stats.items, stats.bytes), (5, 4, 28));
    assert_eq!(handle.backlog().bytes, 0, "they hold no room");
}

fn regression_8_a_timeout_fires_while_the_handler_is_busy<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    let error = handle
        .blocking_call_timeout(1, Duration::from_millis(2))
        .unwrap_err();
    assert!(matches!(error, CallError::TimedOut));
    let mut request = handle.blocking_send_request(2).unwrap();
    assert!(
        request
            .blocking_wait_timeout(Duration::from_millis(2))
            .is_none()
    );
    hold.let_go();
    assert_eq!(
        request.blocking_wait().unwrap(),
        20,
        "a request may be waited for again"
    );
    assert_eq!(log.items(), [0, 2]);
}

fn regression_11_no_batch_is_empty<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let mut rule = Gbs::fixed(100);
    rule.linger_ns = 1_000_000;
    let handle = D::start(builder().controller(rule.controller()), handler).unwrap();
    hold.busy(&handle);
    for n in 1..=10 {
        drop(handle.blocking_send_request(n).unwrap());
    }
    hold.let_go();
    until(|| handle.stats().cancelled == 10);
    handle.blocking_inspect(|_: &Scripted| ()).unwrap();
    handle.blocking_call(11).unwrap();
    assert_eq!(log.batches(), [vec![0], vec![11]]);
    assert_eq!(handle.stats().batches, 2);
    assert_eq!(handle.blocking_controller().unwrap().counts.batches(), 2);
}

fn regression_12_a_drain_handles_the_last_partial_batch<D: Driver>() {
    let log = Log::default();
    let mut rule = Gbs::fixed(1000);
    rule.linger_ns = u64::MAX / 2;
    let bounds = Bounds {
        age_max: Duration::MAX,
        ..Bounds::default()
    };
    let patient = builder().controller(rule.controller()).bounds(bounds);
    let handle = D::start(patient, Scripted::new(&log)).unwrap();
    let call = handle.blocking_send_request(1).unwrap();
    handle.blocking_cast(2).unwrap();
    handle.blocking_drain(LONG).unwrap();
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(call.blocking_wait().unwrap(), 10);
    assert_eq!(log.items(), [1, 2]);
    assert_eq!(
        log.all().last().unwrap(),
        &Saw::Terminated("drained".into())
    );
}

fn regression_12_items_sent_during_the_close_are_handled_or_given_back<D: Driver>() {
    for round in 0..20 {
        let log = Log::default();
        let handle = D::start(builder().capacity(64), Scripted::new(&log)).unwrap();
        let accepted = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for sender in 0..3 {
                let (handle, accepted) = (handle.clone(), &accepted);
                s.spawn(move || {
                    if sender == 0 {
                        let mut caster = handle.buffered_by(7);
                        while caster.blocking_cast(1).is_ok() {
                            accepted.fetch_add(1, Ordering::SeqCst);
                        }
                        return;
                    }
                    loop {
                        match handle.blocking_cast(1) {
                            Ok(()) => accepted.fetch_add(1, Ordering::SeqCst),
                            Err(error) => break assert_eq!(error.into_item(), 1),
                        };
                    }
                });
            }
            until(|| accepted.load(Ordering::SeqCst) > 100);
            if round % 2 == 0 {
                handle.blocking_drain(LONG).unwrap();
            } else {
                let back = handle.blocking_stop("now", LONG).unwrap();
                accepted.fetch_sub(back.len(), Ordering::SeqCst);
            }
        });
        assert_eq!(log.items().len(), accepted.load(Ordering::SeqCst));
    }
}

fn regression_15_a_partial_send_gives_the_rest_back_in_order<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder().capacity(4).full(Full::Reject), handler).unwrap();
    hold.busy(&handle);
    let error = handle.blocking_cast_many(1..=10).unwrap_err();
    assert_eq!((error.sent, error.error.is_closed()), (4, false));
    assert_eq!(error.rest, [5, 6, 7, 8, 9, 10]);
    hold.let_go();
    until(|| log.items().len() == 5);
    handle
        .blocking_cast_many(error.rest.into_iter().take(3))
        .unwrap();
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.items(), [0, 1, 2, 3, 4, 5, 6, 7]);
    let error = handle.blocking_cast_many([8, 9]).unwrap_err();
    assert_eq!(
        (error.sent, error.error.is_closed(), error.rest),
        (0, true, vec![8, 9])
    );
}

fn regression_16_a_panic_loses_only_its_own_batch<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| {
        let has = |n| {
            batch
                .ops()
                .iter()
                .any(|op| matches!(op, Op::Cast(m) if *m == n))
        };
        // The callers learn of a panic with replies moved out, and with all replies still in the batch.
        if has(666) {
            let mut ops = batch.drain();
            let _moved = ops.next();
            quiet_panic();
        }
        if has(667) {
            batch.take_items(&mut Vec::new());
            quiet_panic();
        }
        if has(668) {
            quiet_panic();
        }
        answer(batch)
    });
    let builder = builder().controller(Gbs::fixed(3).controller());
    let handle = D::start(builder, handler).unwrap();
    hold.busy(&handle);
    let before = handle.blocking_send_request(1).unwrap();
    handle.blocking_cast_many([2, 3]).unwrap();
    let lost = [666, 667, 668].map(|n| {
        let moved = handle.blocking_send_request(4).unwrap();
        handle.blocking_cast(n).unwrap();
        [moved, handle.blocking_send_request(5).unwrap()]
    });
    let after = handle.blocking_send_request(6).unwrap();
    hold.let_go();
    assert_eq!(before.blocking_wait().unwrap(), 10);
    for call in lost.into_iter().flatten() {
        assert!(matches!(call.blocking_wait(), Err(ReplyError::Panicked)));
    }
    assert_eq!(after.blocking_wait().unwrap(), 60);
    handle.blocking_drain(LONG).unwrap();
    let stats = handle.stats();
    assert_eq!((stats.panics, stats.failed, stats.batches), (3, 3, 6));
}

fn regression_17_too_few_results_are_a_typed_error<D: Driver>() {
    for results in [0, 2, 4] {
        let log = Log::default();
        let (handler, hold) = Scripted::held_with(&log, move |batch| {
            if batch.len() == 3 {
                batch.take_items(&mut Vec::new());
                batch.answer(vec![7; results]);
            }
            answer(batch)
        });
        let handle = D::start(builder(), handler).unwrap();
        hold.busy(&handle);
        let calls = [1, 2, 3].map(|n| handle.blocking_send_request(n).unwrap());
        hold.let_go();
        for call in calls {
            let error = call.blocking_wait().unwrap_err();
            let ReplyError::ResultCount { items, results: r } = error else {
                panic!("{error}");
            };
            assert_eq!((items, r), (3, results));
        }
        assert_eq!(handle.blocking_call(1).unwrap(), 10, "the actor goes on");
        assert_eq!(handle.stats().failed, 1);
    }
    let short = map_batch(|items: &mut Vec<u64>| items.iter().skip(1).copied().collect());
    let handle = D::start(builder(), short).unwrap();
    assert!(matches!(
        handle.blocking_call(1),
        Err(CallError::Reply(ReplyError::ResultCount {
            items: 1,
            results: 0
        }))
    ));
}

fn regression_18_an_oversized_item_goes_alone_or_is_refused<D: Driver>() {
    let bounds = Bounds {
        bytes_max: 100,
        ..Bounds::default()
    };
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let weighed = || builder().weigh(|n| *n).bounds(bounds);
    let handle = D::start(weighed(), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 500, 2, 3]).unwrap();
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.batches(), [vec![0], vec![1], vec![500], vec![2, 3]]);
    let handle = D::start(weighed().oversized(Oversized::Refuse), Scripted::new(&log)).unwrap();
    handle.blocking_cast(100).unwrap();
    let refused = SendError::Oversized {
        item: 101,
        bytes: 101,
        limit: 100,
    };
    assert_eq!(handle.blocking_cast(101), Err(refused.clone()));
    assert_eq!(handle.try_cast(101), Err(refused.clone()));
    assert_eq!(block_on(handle.cast(101)), Err(refused.clone()));
    assert_eq!(handle.buffered().blocking_cast(101), Err(refused));
}

fn regression_20_a_failed_batch_does_not_end_the_actor<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| {
        if batch.len() == 2 {
            batch.fail("disk full");
        }
        answer(batch)
    });
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    let [a, b] = [1, 2].map(|n| handle.blocking_send_request(n).unwrap());
    hold.let_go();
    let (Err(ReplyError::Failed(a)), Err(ReplyError::Failed(b))) =
        (a.blocking_wait(), b.blocking_wait())
    else {
        panic!("both failed");
    };
    assert!(Arc::ptr_eq(&a, &b), "one cause, shared");
    assert_eq!(handle.blocking_call(3).unwrap(), 30);
    assert_eq!(handle.stats().failed, 1);
}

fn regression_20_dropping_the_last_handle_drains<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2, 3]).unwrap();
    let other = handle.clone();
    drop(handle);
    other.blocking_cast(4).unwrap();
    let call = other.blocking_send_request(5).unwrap();
    drop(other);
    hold.let_go();
    assert_eq!(call.blocking_wait().unwrap(), 50);
    let end = Saw::Terminated("drained after its last handle was dropped".into());
    until(|| log.count(&end) == 1);
    assert_eq!(log.items(), [0, 1, 2, 3, 4, 5]);
}
