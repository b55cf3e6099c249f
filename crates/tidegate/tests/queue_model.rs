//! Tests the queue with random operations against a model of the accepted items, and checks the invariants of
//! the queue after each operation.

// The closures of the macro keep clippy from recognizing the test.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate::controller::{Observed, Rule, Ruled};
use tidegate::queue::{Builder, Consumer, Full, Producer, PushError, Queue};

#[derive(Clone, Debug)]
enum Op {
    New(u8),
    Push(usize),
    Overflow(usize),
    Many(usize, usize),
    Flush(usize),
    Drop(usize),
    Drain(usize),
    Into(usize),
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => any::<u8>().prop_map(Op::New),
        20 => any::<usize>().prop_map(Op::Push),
        5 => any::<usize>().prop_map(Op::Overflow),
        5 => (any::<usize>(), 0..9usize).prop_map(|(p, n)| Op::Many(p, n)),
        3 => any::<usize>().prop_map(Op::Flush),
        2 => any::<usize>().prop_map(Op::Drop),
        4 => (0..9usize).prop_map(Op::Drain),
        4 => (0..9usize).prop_map(Op::Into),
        1 => Just(Op::Close),
    ]
}

/// An item of the test: the number of its producer, its number among that producer's items, and a witness
/// that the queue drops the item once.
type Item = (usize, u64, Arc<()>);

/// A rule with a limit that changes all the time, so that the buffers are cut at many sizes.
struct Wandering(u64);
impl Rule for Wandering {
    fn limit(&self) -> u64 {
        self.0
    }
    fn observe(&mut self, batch: Observed) {
        self.0 = (self.0 * 5 + batch.batch.items) % 7 + 1;
    }
}

struct Run {
    queue: Queue<Item>,
    consumer: Consumer<Item>,
    producers: Vec<(usize, Producer<Item>)>,
    witness: Arc<()>,
    /// The numbers of each producer's accepted items that the consumer has not handed out yet.
    taken: Vec<VecDeque<u64>>,
    next: Vec<u64>,
    drops: bool,
    drained: u64,
    gone: u64,
}

impl Run {
    fn item(&mut self, who: usize) -> Item {
        self.next[who] += 1;
        (who, self.next[who], self.witness.clone())
    }

    fn seen(&mut self, items: Vec<Item>) {
        self.drained += items.len() as u64;
        for (who, seq, _) in items {
            let first = self.taken[who].pop_front();
            if self.drops {
                // The queue may have dropped older items, but never reorders.
                let mut first = first;
                while first.is_some_and(|f| f < seq) {
                    self.gone += 1;
                    first = self.taken[who].pop_front();
                }
                assert_eq!(first, Some(seq));
            } else {
                assert_eq!(first, Some(seq), "lost, twice or out of order");
            }
        }
    }

    fn step(&mut self, op: Op) {
        let len = self.producers.len().max(1);
        match op {
            Op::New(kind) => {
                let who = self.next.len();
                self.next.push(0);
                self.taken.push(VecDeque::new());
                let n = usize::from(kind / 3) % 7 + 1;
                let producer = match kind % 3 {
                    0 => self.queue.producer(),
                    1 => self.queue.fixed(n).unwrap(),
                    _ => self
                        .queue
                        .controlled(n, Box::new(Ruled::new(Wandering(1))))
                        .unwrap(),
                };
                self.producers.push((who, producer));
            }
            Op::Drain(limit) => {
                let mut out = Vec::new();
                let batch = self.consumer.drain(limit, |i| out.push(i));
                assert!(batch.items == out.len() && batch.items <= limit);
                self.seen(out);
            }
            Op::Into(limit) => {
                let mut out = Vec::new();
                let batch = self.consumer.drain_into(&mut out, limit);
                assert!(batch.items == out.len() && batch.items <= limit);
                self.seen(out);
            }
            Op::Close => self.queue.close(),
            Op::Push(at) | Op::Overflow(at) | Op::Flush(at) | Op::Drop(at) | Op::Many(at, _)
                if self.producers.get(at % len).is_none() => {}
            Op::Push(at) | Op::Overflow(at) => {
                let who = self.producers[at % len].0;
                let item = self.item(who);
                let seq = item.1;
                let producer = &mut self.producers[at % len].1;
                let outcome = match op {
                    Op::Overflow(_) => producer.push_or_overflow(item),
                    _ => producer.try_push(item),
                };
                match outcome {
                    Ok(()) => self.taken[who].push_back(seq),
                    Err(PushError::Full(back) | PushError::Closed(back)) => assert_eq!(back.1, seq),
                    Err(_) => unreachable!(),
                }
            }
            Op::Many(at, n) => {
                // The test calls `push` only where it never waits, because the test has one thread.
                let who = self.producers[at % len].0;
                let mut items: Vec<_> = (0..n).map(|_| self.item(who)).collect();
                let all: Vec<_> = items.iter().map(|i| i.1).collect();
                if self.drops {
                    let _ = self.producers[at % len].1.blocking_push_many(&mut items);
                } else {
                    while let Some(item) = (!items.is_empty()).then(|| items.remove(0)) {
                        if let Err(back) = self.producers[at % len].1.try_push(item) {
                            items.insert(0, back.into_item());
                            break;
                        }
                    }
                }
                let left = items.len();
                assert!(
                    items
                        .iter()
                        .map(|i| i.1)
                        .eq(all[n - left..].iter().copied())
                );
                self.taken[who].extend(&all[..n - left]);
            }
            Op::Flush(at) => {
                let producer = &mut self.producers[at % len].1;
                if producer.try_flush().is_ok() {
                    assert_eq!(producer.buffered(), 0);
                }
            }
            Op::Drop(at) => drop(self.producers.swap_remove(at % len)),
        }
        self.check();
    }

    fn check(&self) {
        let m = self.queue.metrics();
        assert!(m.population <= m.capacity + m.overflow);
        let held = self.taken.iter().map(VecDeque::len).sum::<usize>() as u64;
        assert_eq!(m.drained, self.drained);
        assert_eq!(m.drains.items, m.drained);
        // The other items are in the ring, in the lane, in buffers or in the consumer's hand, or the queue
        // dropped them on purpose.
        let here = (self.consumer.backlog() + m.buffered) as u64;
        assert_eq!(here + m.dropped_oldest, held + self.gone);
        // Each of these items holds one reference to the witness, so their count shows lost items and double
        // drops.
        assert_eq!(Arc::strong_count(&self.witness) as u64, here + 1);
    }

    fn finish(mut self) {
        self.producers.clear();
        let queue = self.queue.clone();
        drop(std::mem::replace(&mut self.queue, queue));
        self.queue.close();
        let mut out = Vec::new();
        while self.consumer.blocking_recv_into(&mut out, 5).is_ok() {}
        self.seen(out);
        self.gone += self.taken.iter().map(VecDeque::len).sum::<usize>() as u64;
        let m = self.queue.metrics();
        assert_eq!(self.gone, m.dropped_oldest);
        assert_eq!((m.population, m.buffered, m.buffers), (0, 0, 0));
        assert_eq!(Arc::strong_count(&self.witness), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_twice_or_out_of_order(
        capacity in 1..9usize,
        lane in 0..4usize,
        drops in any::<bool>(),
        ops in prop::collection::vec(op(), 0..120),
    ) {
        let full = if drops { Full::DropOldest } else { Full::Wait };
        let (queue, consumer) = Builder::new(capacity)
            .overflow(lane)
            .full(full)
            .linger(std::time::Duration::from_micros(20))
            .build()
            .unwrap();
        let mut run = Run {
            queue,
            consumer,
            producers: Vec::new(),
            witness: Arc::new(()),
            taken: Vec::new(),
            next: Vec::new(),
            drops,
            drained: 0,
            gone: 0,
        };
        run.step(Op::New(0));
        run.step(Op::New(13));
        for op in ops {
            run.step(op);
        }
        run.finish();
    }
}
