//! Tests that the controller counts each caller once, even if its answer arrives before the batch ends.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use batcher_common::LONG;
use tidegate::Time;
use tidegate::batcher::{Builder, OwnedBatch, Request};
use tidegate::controller::{Controller, Decision, Event, Reason, Snapshot, When};

type Owned = OwnedBatch<u64, u64>;

/// A controller that takes the whole backlog, and counts the calls without an answer by its events.
#[derive(Default)]
struct Count {
    open: u64,
    most: u64,
    arrived: u64,
    answered: u64,
}

impl Controller for Count {
    fn on(&mut self, _: Time, event: Event) -> Decision {
        match event {
            Event::Arrived(load) => {
                self.open += load.items;
                self.arrived += load.items;
                self.most = self.most.max(self.open);
            }
            Event::Expected { items } => {
                self.open = self.open.checked_sub(items).unwrap();
                self.answered += items;
            }
            _ => {}
        }
        Decision {
            limit_items: 1_000,
            limit_bytes: u64::MAX,
            in_flight: 8,
            when: When::Now,
            reason: Reason::Limit,
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
}

fn answer(batch: &mut Owned) {
    let mut items = Vec::new();
    batch.take_items(&mut items);
    batch.answer(items.iter().map(|_| 1));
}

fn next(batches: &Receiver<Owned>) -> Owned {
    batches.recv_timeout(LONG).unwrap()
}

/// Callers call again before the batch with their answers is done, because its handler still works.
#[test]
fn a_caller_with_an_answer_is_not_counted_twice() {
    let (to_test, batches) = sync_channel(1_000);
    let count = Arc::new(Mutex::new(Count::default()));
    let handle = Builder::new()
        .controller(Arc::clone(&count))
        .spawn_dispatcher(move |batch| to_test.send(batch).unwrap())
        .unwrap();
    let send = |n: u64| -> Vec<Request<u64>> {
        let sent = (0..n).map(|i| handle.try_send_request(i).unwrap());
        sent.collect()
    };
    let mut requests = send(4);
    let mut answered = Vec::new();
    for _ in 0..20 {
        let mut seen = 0;
        while seen < 4 {
            let mut batch = next(&batches);
            seen += batch.len();
            answer(&mut batch);
            answered.push(batch);
        }
        for request in requests.drain(..) {
            assert_eq!(request.blocking_wait().unwrap(), 1);
        }
        // The latest batches are not done yet, because a few batches may run at once.
        if answered.len() > 3 {
            answered.drain(..).for_each(Owned::done);
        }
        requests = send(4);
    }
    answered.drain(..).for_each(Owned::done);
    let mut seen = 0;
    while seen < 4 {
        let mut batch = next(&batches);
        seen += batch.len();
        answer(&mut batch);
        batch.done();
    }
    assert!(handle.blocking_drain(LONG).is_ok());
    let count = count.lock().unwrap();
    assert_eq!((count.arrived, count.answered, count.open), (84, 84, 0));
    assert_eq!(count.most, 4, "there are four callers");
}
