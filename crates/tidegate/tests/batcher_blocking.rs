//! Tests blocking calls where a thread must not block: they return a typed error with the item, and never
//! hang.
//!
//! Before these errors existed, each test on a runtime of one thread hung for ever, because the actor's task
//! never ran again.

#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::WouldBlock;
use tidegate::batcher::*;
use tokio::runtime::{Builder as Runtimes, Runtime};

const LONG: Duration = Duration::from_secs(60);

fn one_thread() -> Runtime {
    Runtimes::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
}

async fn echo(capacity: usize) -> Handle<u64, u64> {
    let echo = map_batch(|items: &mut Vec<u64>| std::mem::take(items));
    let builder = Builder::new().capacity(capacity);
    builder.spawn_task(echo).await.unwrap()
}

#[test]
fn casts_beyond_the_room_come_back_on_a_runtime_of_one_thread() {
    one_thread().block_on(async {
        let handle = echo(1024).await;
        let mut accepted = 0;
        for item in 0..20_000 {
            match handle.blocking_cast(item) {
                Ok(()) => accepted += 1,
                Err(SendError::WouldBlock(back, WouldBlock::InTask)) => assert_eq!(back, item),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(accepted, 1024);
        let error = handle.blocking_cast_many([1, 2]).unwrap_err();
        assert_eq!((error.sent, error.rest), (0, vec![1, 2]));
        assert_eq!(error.error, SendError::WouldBlock((), WouldBlock::InTask));
        // The async form gets room as soon as the actor runs.
        handle.cast_many(0..20_000).await.unwrap();
        handle.drain(LONG).await.unwrap();
        assert_eq!(handle.stats().items, 1024 + 20_000);
    });
}

#[test]
fn buffered_casts_beyond_the_room_come_back_on_a_runtime_of_one_thread() {
    one_thread().block_on(async {
        let handle = echo(1024).await;
        let mut caster = handle.buffered();
        let mut accepted = 0;
        for item in 0..20_000 {
            match caster.blocking_cast(item) {
                Ok(()) => accepted += 1,
                Err(SendError::WouldBlock(back, WouldBlock::InTask)) => assert_eq!(back, item),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(accepted >= 1024, "{accepted}");
        let stay = caster.buffered();
        let error = caster.blocking_flush().unwrap_err();
        assert!(error.to_string().contains("async form"), "{error}");
        assert_eq!(caster.buffered(), stay);
        for item in 0..20_000 {
            caster.cast(item).await.unwrap();
        }
        caster.flush().await.unwrap();
        drop(caster);
        handle.drain(LONG).await.unwrap();
        assert_eq!(handle.stats().items, accepted + 20_000);
    });
}

#[test]
fn waits_for_an_answer_come_back_on_a_runtime_of_one_thread() {
    one_thread().block_on(async {
        let handle = echo(16).await;
        let refused = |error: CallError<u64>| {
            matches!(
                error,
                CallError::Send(SendError::WouldBlock(7, WouldBlock::InTask))
            )
        };
        assert!(refused(handle.blocking_call(7).unwrap_err()));
        assert!(refused(handle.blocking_call_timeout(7, LONG).unwrap_err()));
        assert_eq!(handle.call(7).await.unwrap(), 7);
        assert_eq!(handle.call_timeout(7, LONG).await.unwrap(), 7);

        let task = InspectError::WouldBlock(WouldBlock::InTask);
        assert_eq!(handle.blocking_controller().unwrap_err(), task);
        assert_eq!(handle.blocking_inspect(|_: &u8| ()).unwrap_err(), task);
        assert!(handle.controller().await.unwrap().counts.items >= 2);
        assert!(!handle.size_costs().await.unwrap().as_slice().is_empty());
        assert_eq!(handle.blocking_size_costs().unwrap_err(), task);

        let mut request = handle.send_request(8).await.unwrap();
        let waited = request.blocking_wait_timeout(LONG);
        assert!(
            matches!(waited, Some(Err(ReplyError::WouldBlock(_)))),
            "{waited:?}"
        );
        assert!(request.blocking_wait_timeout(Duration::ZERO).is_none());
        assert_eq!(request.wait_timeout(LONG).await.unwrap().unwrap(), 8);

        let mut all = Requests::new();
        all.add("nine", handle.send_request(9).await.unwrap());
        let waited = ReceiveError::WouldBlock(WouldBlock::InTask);
        assert_eq!(all.blocking_receive().unwrap_err(), waited);
        assert_eq!(all.blocking_wait_all(LONG).unwrap_err(), waited);
        let (label, answer) = all.receive_timeout(LONG).await.unwrap();
        assert_eq!((label, answer.unwrap()), ("nine", 9));
        assert!(all.wait_all(LONG).await.unwrap().is_empty());

        let refused = handle.blocking_drain(LONG).unwrap_err();
        assert!(
            matches!(refused, StopError::WouldBlock(WouldBlock::InTask)),
            "{refused}"
        );
        assert!(refused.source().is_some());
        handle.drain(LONG).await.unwrap();
        assert!(
            handle.blocking_stop("late", LONG).unwrap().is_empty(),
            "no wait is left"
        );
    });
}

#[test]
fn blocking_threads_of_a_runtime_may_block() {
    let many = Runtimes::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    many.block_on(async {
        let handle = echo(16).await;
        let asking = handle.clone();
        let from_blocking = tokio::task::spawn_blocking(move || asking.blocking_call(1));
        assert_eq!(from_blocking.await.unwrap().unwrap(), 1);
        let asking = handle.clone();
        let in_place = async move { tokio::task::block_in_place(|| asking.blocking_call(2)) };
        assert_eq!(tokio::spawn(in_place).await.unwrap().unwrap(), 2);
        let asking = handle.clone();
        let refused = tokio::spawn(async move { asking.blocking_call(3) })
            .await
            .unwrap();
        assert!(matches!(
            refused,
            Err(CallError::Send(SendError::WouldBlock(3, _)))
        ));
        handle.drain(LONG).await.unwrap();
    });
}

#[test]
fn a_queue_of_its_own_refuses_to_block_a_task() {
    use tidegate::queue::{FlushError, PushError, RecvError, bounded};
    let why = WouldBlock::InTask;
    one_thread().block_on(async {
        let (queue, mut consumer) = bounded::<u32>(2).unwrap();
        assert_eq!(
            consumer.blocking_recv(8, drop),
            Err(RecvError::WouldBlock(why))
        );
        assert_eq!(consumer.blocking_wait(), Err(RecvError::WouldBlock(why)));
        let mut items = vec![1, 2, 3];
        let stays = Err(FlushError::WouldBlock { left: 1, why });
        assert_eq!(queue.blocking_push_many(&mut items), stays);
        assert_eq!(items, [3]);
        assert_eq!(queue.blocking_push(4), Err(PushError::WouldBlock(4, why)));
        let mut producer = queue.fixed(2).unwrap();
        producer.blocking_push_slice(&[5, 6]).unwrap();
        assert_eq!(
            producer.blocking_push(7),
            Err(PushError::WouldBlock(7, why))
        );
        assert_eq!(
            producer.blocking_flush(),
            Err(FlushError::WouldBlock { left: 2, why })
        );
        let pushing = tokio::spawn(async move {
            queue.push_many(&mut items).await.unwrap();
            producer.flush().await.unwrap();
        });
        let mut out = Vec::new();
        while consumer.recv(8, |item| out.push(item)).await.is_ok() {}
        pushing.await.unwrap();
        out.sort_unstable();
        assert_eq!(out, [1, 2, 3, 5, 6]);
    });
}

/// Starts an actor on a thread and one on a task. In each batch the handler makes `call` with a handle to its
/// own actor, and answers with the outcome.
fn from_within(
    call: fn(&Handle<u64, Option<WouldBlock>>) -> Option<WouldBlock>,
) -> [Option<WouldBlock>; 2] {
    let start = || {
        let own: Arc<OnceLock<Handle<u64, Option<WouldBlock>>>> = Arc::default();
        let inner = Arc::clone(&own);
        let handler = map_batch(move |items: &mut Vec<u64>| {
            let outcome = call(inner.wait());
            items.iter().map(|_| outcome).collect()
        });
        (own, Builder::new().capacity(2), handler)
    };
    let answer = |own: &OnceLock<_>, handle: Handle<u64, Option<WouldBlock>>| {
        own.set(handle.clone()).unwrap();
        let answer = handle.blocking_call(0).unwrap();
        // The handler owns a handle to its own actor, so the actor would not end by itself.
        handle.blocking_stop("done", LONG).unwrap();
        answer
    };
    let (own, builder, handler) = start();
    let thread = answer(&own, builder.spawn(handler).unwrap());
    let runtime = Runtimes::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let (own, builder, handler) = start();
    let task = answer(&own, runtime.block_on(builder.spawn_task(handler)).unwrap());
    [thread, task]
}

fn received(error: ReceiveError) -> Option<WouldBlock> {
    match error {
        ReceiveError::WouldBlock(why) => Some(why),
        error => panic!("{error}"),
    }
}

fn sent<T: std::fmt::Debug>(error: SendError<T>) -> Option<WouldBlock> {
    match error {
        SendError::WouldBlock(_, why) => Some(why),
        error => panic!("{error}"),
    }
}

/// Polls `future` once and returns its output. A future that must not wait in a handler is ready at its first
/// poll.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits for its own actor"),
    }
}

#[test]
fn a_handler_does_not_wait_for_its_own_actor() {
    let own = [Some(WouldBlock::InHandler); 2];
    assert_eq!(
        from_within(|h| match h.blocking_call(1).unwrap_err() {
            CallError::Send(error) => sent(error),
            error => panic!("{error}"),
        }),
        own
    );
    assert_eq!(
        from_within(|h| match now(h.call(1)).unwrap_err() {
            CallError::Send(error) => sent(error),
            error => panic!("{error}"),
        }),
        own
    );
    assert_eq!(
        from_within(|h| match h.blocking_controller().unwrap_err() {
            InspectError::WouldBlock(why) => Some(why),
            error => panic!("{error}"),
        }),
        own
    );
    assert_eq!(
        from_within(|h| match now(h.controller()).unwrap_err() {
            InspectError::WouldBlock(why) => Some(why),
            error => panic!("{error}"),
        }),
        own
    );
    assert_eq!(
        from_within(|h| sent(h.blocking_cast_many(0..9).unwrap_err().error)),
        own
    );
    assert_eq!(
        from_within(|h| sent(now(h.cast_many(0..9)).unwrap_err().error)),
        own
    );
    assert_eq!(
        from_within(|h| {
            let mut caster = h.buffered_by(1);
            let cast = (0..9).try_for_each(|item| caster.blocking_cast(item));
            sent(cast.unwrap_err())
        }),
        own
    );
    assert_eq!(
        from_within(|h| {
            let request = h.blocking_send_request(1).unwrap();
            match request.blocking_wait().unwrap_err() {
                ReplyError::WouldBlock(why) => Some(why),
                error => panic!("{error}"),
            }
        }),
        own
    );
    assert_eq!(
        from_within(|h| {
            let request = now(h.send_request(1)).unwrap();
            match now(request).unwrap_err() {
                ReplyError::WouldBlock(why) => Some(why),
                error => panic!("{error}"),
            }
        }),
        own
    );
    assert_eq!(
        from_within(|h| {
            let mut request = now(h.send_request(1)).unwrap();
            match now(request.wait_timeout(LONG)).unwrap().unwrap_err() {
                ReplyError::WouldBlock(why) => Some(why),
                error => panic!("{error}"),
            }
        }),
        own
    );
    assert_eq!(
        from_within(|h| {
            let mut all = Requests::new();
            all.add((), now(h.send_request(1)).unwrap());
            received(now(all.receive()).unwrap_err())
        }),
        own
    );
    assert_eq!(
        from_within(|h| {
            let mut all = Requests::new();
            all.add((), now(h.send_request(1)).unwrap());
            let refused = now(all.wait_all(LONG)).unwrap_err();
            assert_eq!(all.len(), 1);
            received(refused)
        }),
        own
    );
    assert_eq!(
        from_within(|h| match h.blocking_drain(LONG).unwrap_err() {
            StopError::WouldBlock(why) => Some(why),
            error => panic!("{error}"),
        }),
        own
    );
    assert_eq!(
        from_within(|h| match now(h.stop("", LONG)).unwrap_err() {
            StopError::WouldBlock(why) => Some(why),
            error => panic!("{error}"),
        }),
        own
    );
}

#[test]
fn an_actor_whose_runtime_shuts_down_says_so() {
    let runtime = one_thread();
    let handle = runtime.block_on(Builder::new().spawn_task(Never)).unwrap();
    let [seen, unseen] = runtime.block_on(async {
        let seen = handle.send_request(1).await.unwrap();
        while handle.backlog().items > 0 {
            tokio::task::yield_now().await;
        }
        [seen, handle.send_request(2).await.unwrap()]
    });
    drop(runtime);
    assert!(matches!(seen.blocking_wait(), Err(ReplyError::Abandoned)));
    assert!(matches!(unseen.blocking_wait(), Err(ReplyError::Abandoned)));
    assert!(matches!(handle.ended(), Some(StopReason::Abandoned)));
    let error = handle.blocking_drain(LONG).unwrap_err();
    assert!(matches!(error, StopError::Ended(StopReason::Abandoned)));
    assert!(error.to_string().contains("runtime"), "{error}");
    assert_eq!(handle.blocking_stop("", LONG).unwrap(), [2]);
    assert_eq!(handle.stats().panics, 0);
}

/// A handler that takes each call out of its batch and never answers, so that callers wait.
struct Never;

impl AsyncHandler for Never {
    type Item = u64;
    type Reply = ();
    type Info = Infallible;

    async fn handle_batch(&mut self, batch: &mut Batch<u64, ()>) -> Handled {
        let _held: Vec<_> = batch.drain().collect();
        std::future::pending().await
    }
}
