//! Wraps the rivals of the queue in two small traits, which push and drain with each rival's own best calls
//! for batches.
//!
//! Some rivals have no blocking wait (`disruptor`, `bare-ring`). A thread that waits for them spins briefly
//! and then yields. With more threads than cores a pure spin would take the processor from the side for which
//! the thread waits.

use std::hint;
use std::ops::Range;
use std::thread;

use disruptor::Producer as _;
use tokio::sync::mpsc;

use crate::ring;

/// The producing end of a rival's queue, which each producer's thread owns.
pub trait Push: Send {
    /// True if the rival can push several items in one call, so that `push_batch` is more than a loop over
    /// `push`.
    const BATCH_INSERT: bool;

    /// Pushes one item. Waits for room if the queue is full.
    fn push(&mut self, item: u64);

    /// Pushes the numbers of `items` in one call. Waits for room if the queue is full. The range is no longer
    /// than the queue's capacity.
    fn push_batch(&mut self, items: Range<u64>) {
        for item in items {
            self.push(item);
        }
    }
}

/// The consuming end of a rival's queue, which the consumer's thread owns.
pub trait Drain: Send {
    /// Waits for at least one item, passes all available items to `each`, and returns their number.
    fn drain(&mut self, each: impl FnMut(u64)) -> u64;
}

/// The wait between two attempts on a rival that has no blocking wait of its own.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    const SPINS: u32 = 32;

    #[inline]
    fn wait(&mut self) {
        if self.0 < Self::SPINS {
            self.0 += 1;
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

// --- bare-ring ---

/// The number of pauses between two looks of the consumer into an empty ring. Each look takes a cache line
/// away from the producer that writes to it. A microsecond without a look lets a backlog form, and doubles
/// the throughput at batches of one item.
const RING_PAUSES: u32 = 64;

/// The number of parts into which a drain divides the capacity: after each part the drain frees its slots. If
/// the drain freed slots only when the ring is empty, both sides would work in turns.
const RING_DRAIN_PARTS: u64 = 4;

pub struct RingDrain {
    consumer: ring::Consumer<u64>,
    limit: u64,
}

pub struct RingPush {
    producer: ring::Producer<u64>,
    /// The items of a batch. The producer pushes them as a slice, as a producer with a buffer would.
    batch: Vec<u64>,
}

impl Clone for RingPush {
    fn clone(&self) -> Self {
        Self {
            producer: self.producer.clone(),
            batch: Vec::new(),
        }
    }
}

pub fn bare_ring(capacity: usize) -> (RingPush, RingDrain) {
    let (producer, consumer) = ring::ring(capacity);
    let limit = (capacity as u64 / RING_DRAIN_PARTS).max(1);
    (
        RingPush {
            producer,
            batch: Vec::new(),
        },
        RingDrain { consumer, limit },
    )
}

impl Push for RingPush {
    const BATCH_INSERT: bool = true;

    #[inline]
    fn push(&mut self, item: u64) {
        let mut backoff = Backoff::default();
        while !self.producer.try_push(item) {
            backoff.wait();
        }
    }

    #[inline]
    fn push_batch(&mut self, items: Range<u64>) {
        self.batch.clear();
        self.batch.extend(items);
        let mut backoff = Backoff::default();
        while !self.producer.try_push_all(&self.batch) {
            backoff.wait();
        }
    }
}

impl Drain for RingDrain {
    #[inline]
    fn drain(&mut self, mut each: impl FnMut(u64)) -> u64 {
        let mut backoff = Backoff::default();
        loop {
            let n = self.consumer.drain(self.limit, |items| {
                items.iter().copied().for_each(&mut each)
            });
            if n > 0 {
                return n;
            }
            for _ in 0..RING_PAUSES {
                hint::spin_loop();
            }
            backoff.wait();
        }
    }
}

// --- crossbeam-channel: no batch calls; `try_iter` is its drain ---

pub fn crossbeam(
    capacity: usize,
) -> (
    crossbeam_channel::Sender<u64>,
    crossbeam_channel::Receiver<u64>,
) {
    crossbeam_channel::bounded(capacity)
}

impl Push for crossbeam_channel::Sender<u64> {
    const BATCH_INSERT: bool = false;

    #[inline]
    fn push(&mut self, item: u64) {
        self.send(item).expect("the receiver outlives its senders");
    }
}

impl Drain for crossbeam_channel::Receiver<u64> {
    #[inline]
    fn drain(&mut self, mut each: impl FnMut(u64)) -> u64 {
        each(
            self.recv()
                .expect("every item is counted before the senders go"),
        );
        let mut n = 1;
        for item in self.try_iter() {
            each(item);
            n += 1;
        }
        n
    }
}

// --- kanal: `drain_into` takes all under one lock; no batch send in 0.1 ---

pub struct KanalDrain {
    receiver: kanal::Receiver<u64>,
    batch: Vec<u64>,
}

pub fn kanal(capacity: usize) -> (kanal::Sender<u64>, KanalDrain) {
    let (sender, receiver) = kanal::bounded(capacity);
    (
        sender,
        KanalDrain {
            receiver,
            batch: Vec::with_capacity(capacity),
        },
    )
}

impl Push for kanal::Sender<u64> {
    const BATCH_INSERT: bool = false;

    #[inline]
    fn push(&mut self, item: u64) {
        self.send(item).expect("the receiver outlives its senders");
    }
}

impl Drain for KanalDrain {
    #[inline]
    fn drain(&mut self, each: impl FnMut(u64)) -> u64 {
        self.batch.clear();
        self.batch.push(
            self.receiver
                .recv()
                .expect("every item is counted before the senders go"),
        );
        self.receiver.drain_into(&mut self.batch).expect("as above");
        self.batch.iter().copied().for_each(each);
        self.batch.len() as u64
    }
}

// --- flume: `drain` takes all under one lock; no batch send ---

pub fn flume(capacity: usize) -> (flume::Sender<u64>, flume::Receiver<u64>) {
    flume::bounded(capacity)
}

impl Push for flume::Sender<u64> {
    const BATCH_INSERT: bool = false;

    #[inline]
    fn push(&mut self, item: u64) {
        self.send(item).expect("the receiver outlives its senders");
    }
}

impl Drain for flume::Receiver<u64> {
    #[inline]
    fn drain(&mut self, mut each: impl FnMut(u64)) -> u64 {
        each(
            self.recv()
                .expect("every item is counted before the senders go"),
        );
        let mut n = 1;
        // This call uses the inherent method of the type and not the trait's method of the same name.
        for item in flume::Receiver::drain(self) {
            each(item);
            n += 1;
        }
        n
    }
}

// --- tokio mpsc, from threads: `blocking_send`, `reserve_many`, `blocking_recv_many` ---

pub struct TokioPush {
    sender: mpsc::Sender<u64>,
    /// The runtime in which this thread waits for permits, because `reserve_many` has no blocking form. A
    /// current-thread runtime only parks the thread until the permits are free.
    runtime: tokio::runtime::Runtime,
}

impl Clone for TokioPush {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            runtime: parking_runtime(),
        }
    }
}

pub struct TokioDrain {
    receiver: mpsc::Receiver<u64>,
    batch: Vec<u64>,
    limit: usize,
}

fn parking_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers needs nothing of the system")
}

pub fn tokio(capacity: usize) -> (TokioPush, TokioDrain) {
    let (sender, receiver) = mpsc::channel(capacity);
    let batch = Vec::with_capacity(capacity);
    (
        TokioPush {
            sender,
            runtime: parking_runtime(),
        },
        TokioDrain {
            receiver,
            batch,
            limit: capacity,
        },
    )
}

impl Push for TokioPush {
    const BATCH_INSERT: bool = true;

    #[inline]
    fn push(&mut self, item: u64) {
        self.sender
            .blocking_send(item)
            .expect("the receiver outlives its senders");
    }

    #[inline]
    fn push_batch(&mut self, items: Range<u64>) {
        let n = (items.end - items.start) as usize;
        // The producer tries first without the runtime, because it seldom has to wait, and entering the
        // runtime for every batch would cost more than the permits do.
        let permits = match self.sender.try_reserve_many(n) {
            Ok(permits) => permits,
            Err(_full) => self
                .runtime
                .block_on(self.sender.reserve_many(n))
                .expect("the receiver outlives its senders"),
        };
        for (permit, item) in permits.zip(items) {
            permit.send(item);
        }
    }
}

impl Drain for TokioDrain {
    #[inline]
    fn drain(&mut self, each: impl FnMut(u64)) -> u64 {
        self.batch.clear();
        let n = self
            .receiver
            .blocking_recv_many(&mut self.batch, self.limit);
        assert!(n > 0, "every item is counted before the senders go");
        self.batch.iter().copied().for_each(each);
        n as u64
    }
}

// --- disruptor: multi producer, one event poller ---

type DisruptorProducer = disruptor::MultiProducer<u64, disruptor::SingleConsumerBarrier>;

#[derive(Clone)]
pub struct DisruptorPush(DisruptorProducer);

pub struct DisruptorDrain(disruptor::EventPoller<u64, disruptor::MultiProducerBarrier>);

pub fn disruptor(capacity: usize) -> (DisruptorPush, DisruptorDrain) {
    // The wait strategy applies only to consumer threads that the crate itself runs, and this program uses
    // none.
    let builder = disruptor::build_multi_producer(
        capacity.next_power_of_two().max(64),
        || 0,
        disruptor::BusySpinWithSpinLoopHint,
    );
    let (poller, builder) = builder.new_event_poller();
    (DisruptorPush(builder.build()), DisruptorDrain(poller))
}

impl Push for DisruptorPush {
    const BATCH_INSERT: bool = true;

    #[inline]
    fn push(&mut self, item: u64) {
        // The crate's own method `publish` would spin without yielding, so the peer tries again by itself.
        let mut backoff = Backoff::default();
        while self.0.try_publish(|slot| *slot = item).is_err() {
            backoff.wait();
        }
    }

    #[inline]
    fn push_batch(&mut self, items: Range<u64>) {
        let n = (items.end - items.start) as usize;
        let mut backoff = Backoff::default();
        loop {
            let published = self.0.try_batch_publish(n, |slots| {
                for (slot, item) in slots.zip(items.clone()) {
                    *slot = item;
                }
            });
            if published.is_ok() {
                return;
            }
            backoff.wait();
        }
    }
}

impl Drain for DisruptorDrain {
    #[inline]
    fn drain(&mut self, mut each: impl FnMut(u64)) -> u64 {
        let mut backoff = Backoff::default();
        loop {
            match self.0.poll() {
                Ok(mut guard) => {
                    let mut n = 0;
                    for item in &mut guard {
                        each(*item);
                        n += 1;
                    }
                    return n;
                }
                Err(_none) => backoff.wait(),
            }
        }
    }
}
