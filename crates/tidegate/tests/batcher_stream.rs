//! Tests the adapter that gathers the items of a stream into batches.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "futures")]

mod batcher_common;

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use batcher_common::Gbs;
use futures_core::Stream;
use tidegate::batcher::{Batched, BatchedExt};
use tidegate::controller::{
    Bounds, BoundsError, Controller, Event, Fixed, Reason, Recorder, replay,
};

/// A stream to which the test adds items, so that the test decides which items are ready.
#[derive(Clone, Default)]
struct Source(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    ready: VecDeque<u32>,
    ended: bool,
    polls: usize,
    waker: Option<Waker>,
}

impl Source {
    fn feed(&self, items: impl IntoIterator<Item = u32>) {
        self.0.lock().unwrap().ready.extend(items);
    }
}

impl Stream for Source {
    type Item = u32;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        let mut state = self.0.lock().unwrap();
        state.polls += 1;
        match state.ready.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None if state.ended => Poll::Ready(None),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn next<C: Controller>(batches: &mut Batched<Source, C>) -> Poll<Option<Vec<u32>>> {
    let mut cx = Context::from_waker(Waker::noop());
    pin!(batches).poll_next(&mut cx)
}

#[test]
fn ready_items_come_in_batches_within_the_limit() {
    let source = Source::default();
    let mut batches = source.clone().batched(Gbs::new(2, 8).controller());
    assert_eq!(next(&mut batches), Poll::Pending);
    source.feed(1..=9);
    assert_eq!(next(&mut batches), Poll::Ready(Some(vec![1, 2])));
    assert_eq!(next(&mut batches), Poll::Ready(Some(vec![3, 4, 5, 6])));
    assert_eq!(next(&mut batches), Poll::Ready(Some(vec![7, 8, 9])));
    assert_eq!(next(&mut batches), Poll::Pending);
    source.feed([10]);
    source.0.lock().unwrap().ended = true;
    assert_eq!(next(&mut batches), Poll::Ready(Some(vec![10])));
    assert_eq!(next(&mut batches), Poll::Ready(None));
    assert_eq!(next(&mut batches), Poll::Ready(None));
    let counts = batches.boundary().snapshot().counts;
    assert_eq!((counts.batches(), counts.items), (4, 10));
    assert_eq!(counts.batches_for(Reason::Closing), 1);
}

#[test]
fn regression_10_nothing_is_emitted_or_pulled_without_demand() {
    let source = Source::default();
    let mut batches = source.clone().batched(Gbs::fixed(4).controller());
    source.feed(1..=100);
    assert_eq!(source.0.lock().unwrap().polls, 0);
    assert_eq!(next(&mut batches), Poll::Ready(Some(vec![1, 2, 3, 4])));
    assert_eq!(source.0.lock().unwrap().polls, 4, "no item more");
}

#[test]
fn regression_11_no_batch_of_a_stream_is_empty() {
    let source = Source::default();
    let mut rule = Gbs::fixed(4);
    rule.linger_ns = 1;
    let mut batches = source.clone().batched(rule.controller());
    for _ in 0..10 {
        assert_eq!(next(&mut batches), Poll::Pending);
    }
    source.0.lock().unwrap().ended = true;
    assert_eq!(next(&mut batches), Poll::Ready(None));
}

#[test]
fn a_stream_that_is_always_ready_is_bounded() {
    let source = Source::default();
    source.feed(0..10_000);
    let mut batches = source.clone().batched(Gbs::fixed(u64::MAX).controller());
    let Poll::Ready(Some(batch)) = next(&mut batches) else {
        panic!("ready");
    };
    assert_eq!(batch.len(), 8192);
    let error = source.batched_within(Gbs::fixed(1).controller(), Bounds::items(0, 1));
    assert_eq!(error.err(), Some(BoundsError::ZeroItems));
}

#[test]
fn an_error_ends_a_batch_and_comes_after_it_by_itself() {
    struct Results(VecDeque<Result<u32, &'static str>>);
    impl Stream for Results {
        type Item = Result<u32, &'static str>;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.pop_front())
        }
    }
    let results = Results([Err("first"), Ok(1), Ok(2), Err("second"), Ok(3)].into());
    let mut batches = results.try_batched(Gbs::new(8, 8).controller());
    let mut cx = Context::from_waker(Waker::noop());
    let mut next = || pin!(&mut batches).poll_next(&mut cx);
    assert_eq!(next(), Poll::Ready(Some(Err("first"))));
    assert_eq!(next(), Poll::Ready(Some(Ok(vec![1, 2]))));
    assert_eq!(next(), Poll::Ready(Some(Err("second"))));
    assert_eq!(next(), Poll::Ready(Some(Ok(vec![3]))));
    assert_eq!(next(), Poll::Ready(None));
}

#[test]
fn the_decisions_of_a_stream_can_be_recorded_and_replayed() {
    let source = Source::default();
    let recorder = Recorder::new(Fixed::new(2).controller(), 100);
    let mut batches = source.clone().batched(recorder);
    source.feed(1..=5);
    for _ in 0..3 {
        assert!(next(&mut batches).is_ready());
    }
    source.0.lock().unwrap().ended = true;
    assert_eq!(next(&mut batches), Poll::Ready(None));
    assert_eq!(batches.boundary().running(), 0);
    let log = batches.boundary().controller().log();
    replay(&mut Fixed::new(2).controller(), log).unwrap();
    let ids = |of: fn(&Event) -> Option<u64>| -> Vec<u64> {
        log.iter().filter_map(|entry| of(&entry.event)).collect()
    };
    let started = ids(|event| match event {
        Event::Started { id, .. } => Some(id.get()),
        _ => None,
    });
    let done = ids(|event| match event {
        Event::Done { id, .. } => Some(id.get()),
        _ => None,
    });
    assert_eq!(started, [0, 1, 2], "each batch has a name of its own");
    assert_eq!(done, started);
}
