//! Tests batches that never end, or end much later than others: the default controller lets other batches run
//! beside them.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::sync::mpsc::{Receiver, sync_channel};

use batcher_common::LONG;
use tidegate::batcher::{Builder, Handle, OwnedBatch, Request};

type Owned = OwnedBatch<u64, u64>;
type H = Handle<u64, u64>;

/// Starts an actor under the default controller that gives its batches to the test.
fn dispatched(builder: Builder<u64>) -> (H, Receiver<Owned>) {
    let (to_test, batches) = sync_channel(1000);
    let handle = builder
        .spawn_dispatcher(move |batch| to_test.send(batch).unwrap())
        .unwrap();
    (handle, batches)
}

fn send(handle: &H, item: u64) -> Request<u64> {
    handle.try_send_request(item).unwrap()
}

fn next(batches: &Receiver<Owned>) -> Owned {
    batches.recv_timeout(LONG).unwrap()
}

fn answer(mut batch: Owned) {
    let mut items = Vec::new();
    batch.take_items(&mut items);
    batch.answer(items.iter().map(|_| 1));
    batch.done();
}

/// Acts as a lone caller that makes `n` calls and gets an answer to each call before the next.
fn calls(handle: &H, batches: &Receiver<Owned>, n: u64) {
    for i in 0..n {
        let request = send(handle, i);
        answer(next(batches));
        assert_eq!(request.blocking_wait().unwrap(), 1);
    }
}

#[test]
fn the_first_batch_of_all_does_not_hold_up_the_others() {
    let (handle, batches) = dispatched(Builder::new());
    let _waits = send(&handle, 0);
    let stuck = next(&batches);
    calls(&handle, &batches, 20);
    drop(stuck);
}

#[test]
fn a_batch_that_hangs_after_a_lone_callers_calls_does_not_hold_up_the_others() {
    let (handle, batches) = dispatched(Builder::new());
    calls(&handle, &batches, 200);
    let _waits = send(&handle, 0);
    let stuck = next(&batches);
    calls(&handle, &batches, 100);
    drop(stuck);
}

#[test]
fn sixty_batches_that_hang_one_after_the_other_leave_room_for_the_last_ones() {
    let (handle, batches) = dispatched(Builder::new());
    let mut stuck = Vec::new();
    let mut waits = Vec::new();
    for i in 0..60 {
        waits.push(send(&handle, i));
        stuck.push(next(&batches));
        calls(&handle, &batches, 8);
    }
    drop(stuck);
}

#[test]
fn other_keys_pass_a_key_that_hangs() {
    let (handle, batches) = dispatched(Builder::new().key(|item: &u64| *item));
    let _waits = send(&handle, 1_000_000);
    let stuck = next(&batches);
    let _waits_too = send(&handle, 1_000_000);
    calls(&handle, &batches, 20);
    drop(stuck);
}

#[test]
fn no_batch_starts_beside_as_many_as_may_run() {
    let (handle, batches) = dispatched(Builder::new().in_flight_max(2));
    let _first = send(&handle, 0);
    let first = next(&batches);
    let _second = send(&handle, 1);
    let second = next(&batches);
    let third = send(&handle, 2);
    assert!(batches.try_recv().is_err());
    answer(first);
    answer(next(&batches));
    assert_eq!(third.blocking_wait().unwrap(), 1);
    drop(second);
}
