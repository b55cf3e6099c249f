//! A model of a pipelining client on one connection, to try controllers of its flushes: callers, a writer, a
//! server and a reader, each busy with one batch at a time.
//!
//! In the model all callers with replies that arrive together wake together. Real runtimes wake callers one
//! by one, so that a short delay gains more there than in this model. Times are in microseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Rng;
use crate::Time;
use crate::controller::{BatchId, Controller, Event, Load, When};

/// The time that the simulated writer takes for a batch, and for each of its items, in microseconds.
const WRITE: (f64, f64) = (5.0, 0.15);
/// The time that the simulated server takes for a batch, and for each of its requests, in microseconds.
const SERVE: (f64, f64) = (6.0, 0.6);
/// The time that the simulated reader takes for a batch, and for each of its replies, in microseconds.
const READ: (f64, f64) = (4.0, 0.15);
/// The mean time that a simulated caller thinks between an answer and its next call, in microseconds.
const THINK: f64 = 2.0;

/// The result of a simulated run of a pipelining client, to compare controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientRun {
    /// The number of requests that the client completed in a second of simulated time.
    pub ops_per_s: f64,
    /// The median latency of a request, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the latency of a request, in microseconds.
    pub p99_us: f64,
    /// The number of flushes for each thousand requests.
    pub flushes: f64,
    /// The processor time that the client used for a request, in microseconds.
    pub client_cpu_us: f64,
    /// The processor time that the server used for a request, in microseconds.
    pub server_cpu_us: f64,
    /// The mean number of requests in a flush, which share its cost.
    pub batch_mean: f64,
}

/// The source of the requests that the simulated client sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requests {
    /// A number of callers in a closed loop, each with one request at a time.
    Closed(u32),
    /// Requests that arrive as a Poisson process, at this rate in requests a microsecond.
    Open(f64),
}

#[derive(Clone, Copy)]
struct Item {
    issued: f64,
    sent: f64,
    batch: u64,
}

/// The events of the simulation. They happen in the order of their times, and at equal times in the order of
/// scheduling.
enum Scheduled {
    Request,
    Timer(u64),
    Written(Vec<Item>),
    AtServer(Vec<Item>),
    Served(Vec<Item>),
    AtReader(Vec<Item>),
    Read(Vec<Item>),
}

struct Sim<'a> {
    c: &'a mut dyn Controller,
    rng: Rng,
    now: f64,
    half_rtt: f64,
    schedule: BinaryHeap<Reverse<(u64, u64)>>,
    steps: Vec<Option<Scheduled>>,
    queue: Vec<Item>,
    /// The time, in microseconds, since which the client could flush the queue, because the queue holds a
    /// request and no write is in progress.
    since: f64,
    writing: bool,
    timer: u64,
    at_server: Vec<Item>,
    serving: bool,
    at_reader: Vec<Item>,
    reading: bool,
    flushes: u64,
    serves: u64,
    reads: u64,
    latencies: Vec<f64>,
    closed: bool,
}

impl Sim<'_> {
    fn push(&mut self, t: f64, step: Scheduled) {
        let seq = self.steps.len() as u64;
        self.steps.push(Some(step));
        self.schedule.push(Reverse((t.to_bits(), seq)));
    }

    fn at(&self, t: f64) -> Time {
        Time::from_nanos((t * 1e3).round() as u64)
    }

    /// Flushes the client's queue of requests or arms a timer, as the controller decides.
    fn decide(&mut self) {
        if self.writing || self.queue.is_empty() {
            return;
        }
        let n = self.queue.len() as u64;
        let ready = Event::Ready {
            backlog: Load::items(n),
            oldest: self.at(self.since),
        };
        let d = self.c.on(self.at(self.now), ready);
        self.timer += 1;
        if let When::At(t) | When::After { until: t, .. } = d.when {
            let t = t.as_nanos() as f64 / 1e3;
            if t > self.now {
                return self.push(t, Scheduled::Timer(self.timer));
            }
        }
        let started = Event::Started {
            id: BatchId::default(),
            batch: Load::items(n),
            left: Load::default(),
            reason: d.reason,
        };
        self.c.on(self.at(self.now), started);
        let mut batch = std::mem::take(&mut self.queue);
        for item in &mut batch {
            (item.sent, item.batch) = (self.now, n);
        }
        self.writing = true;
        self.flushes += 1;
        self.push(self.now + cost(WRITE, n), Scheduled::Written(batch));
    }

    fn serve(&mut self) {
        if !self.serving && !self.at_server.is_empty() {
            let batch = std::mem::take(&mut self.at_server);
            self.serving = true;
            self.serves += 1;
            self.push(
                self.now + cost(SERVE, batch.len() as u64),
                Scheduled::Served(batch),
            );
        }
    }

    fn read(&mut self) {
        if !self.reading && !self.at_reader.is_empty() {
            let batch = std::mem::take(&mut self.at_reader);
            self.reading = true;
            self.reads += 1;
            self.push(
                self.now + cost(READ, batch.len() as u64),
                Scheduled::Read(batch),
            );
        }
    }

    fn step(&mut self, step: Scheduled) {
        match step {
            Scheduled::Request => {
                if self.queue.is_empty() {
                    self.since = self.now;
                }
                self.queue.push(Item {
                    issued: self.now,
                    sent: 0.0,
                    batch: 0,
                });
                self.c.on(self.at(self.now), Event::Arrived(Load::items(1)));
                self.decide();
            }
            Scheduled::Timer(t) => {
                if t == self.timer {
                    self.decide();
                }
            }
            Scheduled::Written(batch) => {
                self.writing = false;
                let cost_ns = (cost(WRITE, batch.len() as u64) * 1e3).round() as u64;
                self.c.on(
                    self.at(self.now),
                    Event::Done {
                        id: BatchId::default(),
                        cost_ns,
                        ok: true,
                    },
                );
                self.push(self.now + self.half_rtt, Scheduled::AtServer(batch));
                self.since = self.now;
                self.decide();
            }
            Scheduled::AtServer(mut batch) => {
                self.at_server.append(&mut batch);
                self.serve();
            }
            Scheduled::Served(batch) => {
                self.serving = false;
                self.push(self.now + self.half_rtt, Scheduled::AtReader(batch));
                self.serve();
            }
            Scheduled::AtReader(mut batch) => {
                self.at_reader.append(&mut batch);
                self.read();
            }
            Scheduled::Read(batch) => self.finished(&batch),
        }
    }

    fn finished(&mut self, batch: &[Item]) {
        self.reading = false;
        for item in batch {
            self.latencies.push(self.now - item.issued);
            if self.closed {
                let t = self.now + self.rng.exponential(1.0 / THINK);
                self.push(t, Scheduled::Request);
            }
        }
        let first = batch[0];
        let took_ns = ((self.now - first.sent) * 1e3).round() as u64;
        let replied = Event::Replied {
            items: batch.len() as u64,
            batch: first.batch,
            took_ns,
        };
        self.c.on(self.at(self.now), replied);
        self.read();
    }
}

/// Runs the model of a client until `n` requests have their replies, over a link with a round trip of
/// `rtt_us`. The controller `c` decides when the client writes.
pub fn pipeline(
    requests: Requests,
    rtt_us: f64,
    c: &mut dyn Controller,
    n: usize,
    seed: u32,
) -> ClientRun {
    let mut s = Sim {
        c,
        rng: Rng::new(seed),
        now: 0.0,
        half_rtt: rtt_us / 2.0,
        schedule: BinaryHeap::new(),
        steps: Vec::new(),
        queue: Vec::new(),
        since: 0.0,
        writing: false,
        timer: 0,
        at_server: Vec::new(),
        serving: false,
        at_reader: Vec::new(),
        reading: false,
        flushes: 0,
        serves: 0,
        reads: 0,
        latencies: Vec::with_capacity(n),
        closed: matches!(requests, Requests::Closed(_)),
    };
    match requests {
        Requests::Closed(callers) => {
            for _ in 0..callers {
                let t = s.rng.random() * THINK;
                s.push(t, Scheduled::Request);
            }
        }
        Requests::Open(rate) => {
            let mut t = 0.0;
            for _ in 0..n {
                t += s.rng.exponential(rate);
                s.push(t, Scheduled::Request);
            }
        }
    }
    while s.latencies.len() < n
        && let Some(Reverse((t, seq))) = s.schedule.pop()
    {
        s.now = f64::from_bits(t);
        if let Some(step) = s.steps[seq as usize].take() {
            s.step(step);
        }
    }
    summary(s)
}

fn summary(mut s: Sim<'_>) -> ClientRun {
    let done = s.latencies.len().max(1) as f64;
    let mut l = s.latencies.split_off(s.latencies.len() / 10);
    l.sort_unstable_by(f64::total_cmp);
    let q = |q: f64| l[(q * (l.len() - 1) as f64) as usize];
    let (flushes, serves, reads) = (s.flushes as f64, s.serves as f64, s.reads as f64);
    ClientRun {
        ops_per_s: done / s.now * 1e6,
        p50_us: q(0.5),
        p99_us: q(0.99),
        flushes: flushes / done * 1000.0,
        client_cpu_us: (WRITE.0 * flushes + READ.0 * reads) / done + WRITE.1 + READ.1,
        server_cpu_us: SERVE.0 * serves / done + SERVE.1,
        batch_mean: done / flushes.max(1.0),
    }
}

fn cost((a, b): (f64, f64), n: u64) -> f64 {
    a + b * n as f64
}
