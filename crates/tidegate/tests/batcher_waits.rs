//! Tests the waits of an actor that is a task. It lets callers return before it takes the next batch, and
//! spends waits that are too short for the runtime's timer without that timer. The runtime has one thread, so
//! the order of tasks decides every outcome.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use batcher_common::*;
use tidegate::batcher::{AsyncHandler, Builder, Handled, Handler};
use tidegate::controller::{Fixed, Greedy};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};

/// A handler that handles a batch once the gate gives it a permit, so that the test decides when batches end.
struct Gated {
    inner: Scripted,
    gate: Arc<Semaphore>,
}

impl AsyncHandler for Gated {
    type Item = u64;
    type Reply = u64;
    type Info = &'static str;

    async fn handle_batch(&mut self, batch: &mut B) -> Handled {
        self.gate.acquire().await?.forget();
        Handler::handle_batch(&mut self.inner, batch)
    }
}

fn run<F: Future>(future: F) -> F::Output {
    runtime(true).block_on(future)
}

fn runtime(timer: bool) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    if timer {
        builder.enable_time();
    }
    builder.build().unwrap()
}

/// Starts `callers` tasks that call the actor without end.
fn call_without_end(handle: &H, callers: u64) -> Vec<JoinHandle<()>> {
    let caller = |n| {
        let handle = handle.clone();
        async move { while handle.call(n).await.is_ok() {} }
    };
    (0..callers).map(|n| tokio::spawn(caller(n))).collect()
}

/// Returns the sizes of the first two batches. Four callers find the actor free, and four other callers call
/// while it works.
async fn sizes_of_two_groups(builder: Builder<u64>) -> Vec<usize> {
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
    let inner = Scripted::new(&log);
    let gated = Gated {
        inner,
        gate: Arc::clone(&gate),
    };
    let handle: H = builder.spawn_task(gated).await.unwrap();
    let mut callers = call_without_end(&handle, 4);
    while handle.stats().items < 4 {
        yield_now().await;
    }
    callers.extend(call_without_end(&handle, 4));
    while handle.backlog().items < 4 {
        yield_now().await;
    }
    gate.add_permits(2);
    while log.sizes().len() < 2 {
        yield_now().await;
    }
    handle.close();
    gate.add_permits(8);
    for caller in callers {
        caller.await.unwrap();
    }
    log.sizes()[..2].to_vec()
}

#[test]
fn callers_that_were_answered_come_back_before_the_next_batch_is_taken() {
    let sizes = run(sizes_of_two_groups(Builder::new()));
    assert_eq!(sizes, [4, 8], "the groups merge");
}

#[test]
fn a_rule_that_anticipates_no_callers_takes_the_items_that_wait() {
    let builder = Builder::new().controller(Greedy.controller());
    let sizes = run(sizes_of_two_groups(builder));
    assert_eq!(sizes, [4, 4], "the groups take turns");
}

/// Makes `calls` calls to an actor of `builder`, on a runtime without a timer.
fn call_without_timer(builder: Builder<u64>, calls: u64) {
    let calls_made = runtime(false).block_on(async {
        let handler = Scripted::new(&Log::default());
        let handle: H = builder.spawn_task(handler).await.unwrap();
        for n in 0..calls {
            assert_eq!(handle.call(n).await.unwrap(), n * 10);
        }
        handle.stats().items
    });
    assert_eq!(calls_made, calls);
}

#[test]
fn an_actor_that_rests_sets_no_timer() {
    call_without_timer(Builder::new(), 10);
}

#[test]
fn a_wait_shorter_than_the_timer_tells_is_made_without_it() {
    for linger_us in [1, 200, 1900] {
        let linger = Duration::from_micros(linger_us);
        let fixed = Fixed::new(100).with_linger(linger);
        call_without_timer(Builder::new().controller(fixed.controller()), 10);
    }
}

/// The actor waits a short linger thousands of times, which takes more than its budget of waiting.
#[test]
fn calls_beyond_the_budget_of_waiting_are_answered() {
    let fixed = Fixed::new(2).with_linger(Duration::from_micros(31));
    call_without_timer(Builder::new().controller(fixed.controller()), 2_000);
}

#[test]
fn a_long_wait_needs_no_timer_of_the_runtime() {
    let fixed = || Fixed::new(100).with_linger(Duration::from_millis(20));
    call_without_timer(Builder::new().controller(fixed()), 3);
    runtime(false).block_on(async {
        let handle = Builder::new()
            .controller(fixed().with_in_flight(2))
            .spawn_shared(async |items: Vec<u64>| items)
            .await
            .unwrap();
        assert_eq!(handle.call(7).await.unwrap(), 7);
    });
}

#[test]
fn several_batches_at_once_wait_without_the_timer_too() {
    let fixed = Fixed::new(100)
        .with_linger(Duration::from_micros(200))
        .with_in_flight(2);
    runtime(false).block_on(async {
        let handle = Builder::new()
            .controller(fixed.controller())
            .spawn_shared(async |items: Vec<u64>| items)
            .await
            .unwrap();
        for n in 0..10 {
            assert_eq!(handle.call(n).await.unwrap(), n);
        }
    });
}
