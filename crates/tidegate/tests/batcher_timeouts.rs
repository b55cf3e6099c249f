//! Tests sends with a deadline: they wait for room until the deadline at most, and give their item back.
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::time::Duration;

use batcher_common::{B, H, Hold, LONG, Log, Scripted, answer, block_on, builder, drain};
use tidegate::WouldBlock;
use tidegate::batcher::{Builder, Flow, Full, Op, Oversized, SendError};
use tidegate::controller::Bounds;

const SHORT: Duration = Duration::from_millis(2);

/// Starts an actor with a handler that stops in its first batch, and fills its queue.
fn full(builder: Builder<u64>) -> (H, Hold) {
    let (handler, hold) = Scripted::held(&Log::default());
    let handle = builder.spawn(handler).unwrap();
    hold.busy(&handle);
    while handle.try_cast(1).is_ok() {}
    (handle, hold)
}

/// Returns a builder with a bound in items and a builder with a bound in bytes, so that a test covers both.
fn bounds() -> [Builder<u64>; 2] {
    let bytes = builder().weigh(|_| 5).capacity_bytes(20);
    [builder().capacity(4), bytes]
}

#[test]
fn a_send_gives_its_item_back_when_its_time_is_over() {
    for bounded in bounds() {
        let (handle, hold) = full(bounded);
        let waiting = handle.backlog();
        for timeout in [Duration::ZERO, SHORT] {
            let casts = [
                block_on(handle.cast_timeout(7, timeout)),
                handle.blocking_cast_timeout(7, timeout),
                block_on(handle.send_request_timeout(7, timeout)).map(drop),
                handle.blocking_send_request_timeout(7, timeout).map(drop),
            ];
            for cast in casts {
                assert_eq!(cast, Err(SendError::TimedOut(7)));
            }
        }
        assert_eq!(handle.backlog(), waiting, "nothing of them stays");
        assert_eq!(handle.stats().rejected, 9);
        hold.let_go();
        drain(&handle);
    }
}

#[test]
fn a_message_comes_back_when_its_time_is_over() {
    let (handle, hold) = full(builder().capacity(4));
    let infos = [
        block_on(handle.info_timeout("late", SHORT)),
        handle.blocking_info_timeout("late", SHORT),
    ];
    for info in infos {
        assert_eq!(info, Err(SendError::TimedOut("late")));
    }
    hold.let_go();
    handle.blocking_info_timeout("in time", LONG).unwrap();
    block_on(handle.info_timeout("in time", LONG)).unwrap();
    drain(&handle);
}

#[test]
fn a_send_is_served_as_soon_as_there_is_room() {
    for bounded in bounds() {
        let (handle, hold) = full(bounded);
        std::thread::scope(|s| {
            let blocked = s.spawn(|| handle.blocking_cast_timeout(2, LONG));
            let called = s.spawn(|| {
                let request = handle.blocking_send_request_timeout(3, LONG)?;
                Ok::<_, SendError<u64>>(request.blocking_wait().unwrap())
            });
            let awaited = s.spawn(|| block_on(handle.cast_timeout(4, Duration::MAX)));
            hold.let_go();
            blocked.join().unwrap().unwrap();
            assert_eq!(called.join().unwrap().unwrap(), 30);
            awaited.join().unwrap().unwrap();
        });
        drain(&handle);
    }
}

#[test]
fn an_expired_send_delays_no_other() {
    for bounded in bounds() {
        let (handle, hold) = full(bounded);
        std::thread::scope(|s| {
            let last = s.spawn(|| handle.blocking_cast(2));
            handle.blocking_cast_timeout(3, SHORT).unwrap_err();
            block_on(handle.cast_timeout(3, SHORT)).unwrap_err();
            hold.let_go();
            last.join().unwrap().unwrap();
        });
        drain(&handle);
    }
}

#[test]
fn a_deadline_changes_no_other_refusal() {
    for bounded in bounds() {
        let (handle, hold) = full(bounded.full(Full::Reject));
        let refused = [
            handle.blocking_cast_timeout(7, LONG),
            block_on(handle.cast_timeout(7, LONG)),
        ];
        assert_eq!(refused, [Err(SendError::Full(7)), Err(SendError::Full(7))]);
        handle.close();
        let refused = [
            handle.blocking_cast_timeout(7, LONG),
            block_on(handle.cast_timeout(7, LONG)),
        ];
        assert_eq!(
            refused,
            [Err(SendError::Closed(7)), Err(SendError::Closed(7))]
        );
        hold.let_go();
    }
    let bounds = Bounds {
        bytes_max: 10,
        ..Bounds::default()
    };
    let refusing = builder().weigh(|n| *n).bounds(bounds);
    let refusing = refusing.oversized(Oversized::Refuse);
    let handle = refusing.spawn(Scripted::new(&Log::default())).unwrap();
    let refused = handle.blocking_cast_timeout(11, LONG);
    assert!(matches!(
        refused,
        Err(SendError::Oversized { item: 11, .. })
    ));
}

#[test]
fn a_handler_does_not_wait_for_its_own_actor() {
    for bounded in bounds() {
        let (to_handler, own) = std::sync::mpsc::sync_channel::<H>(1);
        let (seen, saw) = std::sync::mpsc::sync_channel(1);
        let handler = Scripted::with(&Log::default(), move |batch: &mut B| {
            if let Some(Op::Cast(0)) = batch.ops().first() {
                let own = own.recv().unwrap();
                while own.try_cast(1).is_ok() {}
                let refused = [
                    own.blocking_cast_timeout(7, LONG),
                    block_on(own.cast_timeout(7, LONG)),
                ];
                seen.send(refused).unwrap();
            }
            answer(batch);
            Flow::Continue
        });
        let handle = bounded.spawn(handler).unwrap();
        handle.blocking_cast(0).unwrap();
        to_handler.send(handle.clone()).unwrap();
        for refused in saw.recv_timeout(LONG).unwrap() {
            let in_handler = WouldBlock::InHandler;
            assert_eq!(refused, Err(SendError::WouldBlock(7, in_handler)));
        }
        drain(&handle);
    }
}

#[cfg(feature = "tokio")]
#[test]
fn a_task_must_not_block_and_may_await() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for bounded in bounds() {
        let (handle, hold) = full(bounded);
        runtime.block_on(async {
            let refused = handle.blocking_cast_timeout(7, LONG);
            let in_task = WouldBlock::InTask;
            assert_eq!(refused, Err(SendError::WouldBlock(7, in_task)));
            // The runtime of this test has no timer.
            let late = handle.cast_timeout(7, SHORT).await;
            assert_eq!(late, Err(SendError::TimedOut(7)));
            hold.let_go();
            handle.cast_timeout(8, LONG).await.unwrap();
        });
        drain(&handle);
    }
}
