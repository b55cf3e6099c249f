//! Tests handlers that fail, and handlers that are closures.
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::error::Error;
use std::fmt;

use batcher_common::driver::Driver;
use batcher_common::{LONG, builder};
use tidegate::batcher::*;

tests! {
    an_error_fails_the_callers_of_its_batch_and_the_actor_goes_on
    an_error_reaches_callers_after_the_handler_took_their_replies
    an_error_leaves_answers_and_kept_replies_alone
    a_fold_fails_with_its_batch
    closures_return_nothing_a_flow_or_a_result
    one_item_may_fail_by_itself
}

/// The error that the handlers of these tests return for an odd item.
#[derive(Debug, PartialEq)]
struct Odd(u64);

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is odd", self.0)
    }
}

impl Error for Odd {}

fn even(item: u64) -> Result<u64, Odd> {
    if item % 2 == 1 {
        Err(Odd(item))
    } else {
        Ok(item)
    }
}

/// Returns the number in the cause that the error of a failed call carries.
fn cause<T: fmt::Debug>(answer: Result<T, CallError<u64>>) -> u64 {
    let error = answer.unwrap_err();
    error.source().unwrap().downcast_ref::<Odd>().unwrap().0
}

/// A handler that calls one function with each batch, so that a test can give any function.
struct Handling<F>(F);

impl<F: FnMut(&mut Batch<u64, u64>) -> Handled + Send + 'static> Handler for Handling<F> {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Handled {
        (self.0)(batch)
    }
}

fn an_error_fails_the_callers_of_its_batch_and_the_actor_goes_on<D: Driver>() {
    let handler = Handling(|batch: &mut Batch<u64, u64>| {
        let mut items = Vec::new();
        batch.take_items(&mut items);
        for &item in &items {
            even(item)?;
        }
        batch.answer(items);
        Ok(Flow::Continue)
    });
    let handle = D::start(builder(), handler).unwrap();
    assert_eq!(handle.blocking_call(2).unwrap(), 2);
    assert_eq!(cause(handle.blocking_call(3)), 3);
    assert_eq!(handle.blocking_call(4).unwrap(), 4);
    assert_eq!(handle.stats().failed, 1);
    handle.blocking_drain(LONG).unwrap();
}

fn an_error_reaches_callers_after_the_handler_took_their_replies<D: Driver>() {
    let handler = Handling(|batch: &mut Batch<u64, u64>| {
        for op in batch.drain() {
            if let Op::Call(item, reply) = op {
                reply.send(even(item)?);
            }
        }
        Ok(Flow::Continue)
    });
    let handle = D::start(builder(), handler).unwrap();
    assert_eq!(cause(handle.blocking_call(3)), 3);
    assert_eq!(handle.blocking_call(4).unwrap(), 4);
}

fn an_error_leaves_answers_and_kept_replies_alone<D: Driver>() {
    let mut kept = Vec::new();
    let handler = Handling(move |batch: &mut Batch<u64, u64>| {
        for op in batch.drain() {
            match op {
                Op::Call(0, reply) => drop(reply),
                Op::Call(1, reply) => kept.push(reply),
                Op::Call(2, _) => kept.drain(..).for_each(|reply| reply.send(1)),
                _ => {}
            }
        }
        // The handler has already dropped a reply, before its batch fails. The caller of that reply gets no
        // cause.
        if kept.is_empty() {
            Ok(Flow::Continue)
        } else {
            Err("kept".into())
        }
    });
    let handle = D::start(builder(), handler).unwrap();
    let dropped = handle.blocking_call(0).unwrap_err();
    assert!(
        matches!(dropped, CallError::Reply(ReplyError::NoReply)),
        "{dropped:?}"
    );
    let kept = handle.blocking_send_request(1).unwrap();
    let dropped = handle.blocking_call(2).unwrap_err();
    assert!(
        matches!(dropped, CallError::Reply(ReplyError::NoReply)),
        "{dropped:?}"
    );
    assert_eq!(kept.blocking_wait().unwrap(), 1);
    let stats = handle.stats();
    handle.blocking_drain(LONG).unwrap();
    assert!(stats.failed <= 1, "{stats}");
}

struct Folding;

impl Fold for Folding {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;
    type Batch = Vec<(u64, Reply<u64>)>;

    fn start(&mut self) -> Self::Batch {
        Vec::new()
    }

    fn append(
        &mut self,
        batch: &mut Self::Batch,
        op: Op<u64, u64, std::convert::Infallible>,
    ) -> Append {
        if let Op::Call(item, reply) = op {
            batch.push((item, reply));
        }
        Append::Continue
    }

    fn handle_batch(&mut self, batch: Self::Batch) -> Handled {
        for (item, reply) in batch {
            reply.send(even(item)?);
        }
        Ok(Flow::Continue)
    }
}

fn a_fold_fails_with_its_batch<D: Driver>() {
    let handle = D::start(builder(), Folded::new(Folding)).unwrap();
    assert_eq!(cause(handle.blocking_call(5)), 5);
    assert_eq!(handle.blocking_call(6).unwrap(), 6);
}

fn closures_return_nothing_a_flow_or_a_result<D: Driver>() {
    let nothing = D::start(builder(), each_batch(|_: &mut Vec<u64>| {})).unwrap();
    nothing.blocking_call(1).unwrap();
    let flow = each_batch(|_: &mut Vec<u64>| Flow::stop("enough"));
    let flow = D::start(builder(), flow).unwrap();
    flow.blocking_call(1).unwrap();
    let ended = flow.blocking_drain(LONG).unwrap_err();
    assert_eq!(ended.source().unwrap().to_string(), "enough");
    let result =
        each_batch(|items: &mut Vec<u64>| items.drain(..).try_for_each(|n| even(n).map(drop)));
    let result = D::start(builder(), result).unwrap();
    result.blocking_call(2).unwrap();
    assert_eq!(cause(result.blocking_call(3)), 3);
    let all = |items: &mut Vec<u64>| items.drain(..).map(even).collect::<Result<Vec<_>, _>>();
    let all = D::start(builder(), try_map_batch(all)).unwrap();
    assert_eq!(all.blocking_call(2).unwrap(), 2);
    assert_eq!(cause(all.blocking_call(3)), 3);
    // The cause of a failed batch may also be a text.
    let text = each_batch(|_: &mut Vec<u64>| Err::<(), _>("no"));
    let text = D::start(builder(), text).unwrap();
    let error = text.blocking_call(1).unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "no");
}

fn one_item_may_fail_by_itself<D: Driver>() {
    let each = |items: &mut Vec<u64>| items.drain(..).map(even).collect();
    let handle = D::start(builder(), map_results(each)).unwrap();
    let requests = [1, 2, 3, 4].map(|item| handle.blocking_send_request(item).unwrap());
    let answers = requests.map(|request| request.blocking_wait().map_err(CallError::Reply));
    let [one, two, three, four] = answers;
    assert_eq!((cause(one), cause(three)), (1, 3));
    assert_eq!((two.unwrap(), four.unwrap()), (2, 4));
    assert_eq!(handle.stats().failed, 0);
}

#[cfg(feature = "tokio")]
#[test]
fn async_closures_are_handlers_of_tasks() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let each = spawn_task(async |items: Vec<u64>| {
            tokio::task::yield_now().await;
            items.into_iter().try_for_each(|item| even(item).map(drop))
        });
        let each = each.await.unwrap();
        each.call(2).await.unwrap();
        assert_eq!(cause(each.call(3).await), 3);
        each.call(4).await.unwrap();

        let map = map_batch_async(async |items: Vec<u64>| items.iter().map(|n| n * 10).collect());
        let map = Builder::new().spawn_task(map).await.unwrap();
        assert_eq!(map.call(2).await.unwrap(), 20);

        let all = async |items: Vec<u64>| items.into_iter().map(even).collect::<Result<_, _>>();
        let all = Builder::new()
            .spawn_task(try_map_batch_async(all))
            .await
            .unwrap();
        assert_eq!(all.call(2).await.unwrap(), 2);
        assert_eq!(cause(all.call(3).await), 3);
    });
}

/// A closure of each form returns the same outcome.
#[cfg(feature = "tokio")]
#[test]
fn closures_of_each_form_return_the_same_outcomes() {
    fn tens(items: Vec<u64>) -> Result<Vec<u64>, Odd> {
        let tens = |item| even(item).map(|item| item * 10);
        items.into_iter().map(tens).collect()
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let handles = [
            spawn(|items: &mut Vec<u64>| tens(std::mem::take(items))).unwrap(),
            spawn_task(async |items| tens(items)).await.unwrap(),
            Builder::new()
                .spawn_shared(async |items| tens(items))
                .await
                .unwrap(),
        ];
        for handle in handles {
            assert_eq!(handle.call(2).await.unwrap(), 20);
            assert_eq!(cause(handle.call(3).await), 3);
        }
    });
}

#[test]
fn the_path_from_a_call_to_its_cause_is_whole() {
    let handle = spawn(|_: &mut Vec<u64>| Err::<(), _>(Odd(9))).unwrap();
    let error: Box<dyn Error> = Box::new(handle.blocking_call(1).unwrap_err());
    let chain: Vec<_> = std::iter::successors(Some(&*error), |&error| error.source()).collect();
    assert_eq!(chain.last().unwrap().downcast_ref(), Some(&Odd(9)));
}

/// Checks at compile time that a handle may cross `catch_unwind`, so that a program can use it after a panic.
#[test]
fn a_handle_is_used_after_a_panic_beside_it() {
    fn crosses<V: std::panic::UnwindSafe + std::panic::RefUnwindSafe>(_: &V) {}
    let handle = spawn(|_: &mut Vec<std::cell::Cell<u64>>| {}).unwrap();
    crosses(&handle);
    let used = std::panic::catch_unwind(|| {
        handle.blocking_cast(std::cell::Cell::new(7)).unwrap();
        panic!("user code");
    });
    assert!(used.is_err());
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(handle.stats().items, 1);
}

#[test]
fn reasons_to_stop_are_compared_by_their_causes() {
    let asked =
        |text: &str| StopReason::Asked(Cause::from(Box::<dyn Error + Send + Sync>::from(text)));
    assert_eq!(StopReason::Drained, StopReason::Drained);
    assert_ne!(StopReason::Drained, StopReason::Released);
    assert_eq!(asked("disk full"), asked("disk full"));
    assert_ne!(asked("disk full"), asked("disk empty"));
}
