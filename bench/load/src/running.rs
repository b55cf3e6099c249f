//! Runs a load: a runtime on a thread of its own, the callers as its tasks, and the measurements of their
//! commands.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;

use crate::histogram::Histogram;
use crate::pacer::Pacer;
use crate::request::{Ask, Command};

/// The number of keys that the bench has filled with values. Caller n uses the key n modulo this number.
const KEYS: usize = 1024;
/// Without a fixed rate, the callers measure the time of one command in this many, because a reading of the
/// clock costs as much as some clients do.
const TIMED_EVERY: u64 = 8;

/// A Redis client that a load measures. Each caller has a clone, and the clones may share state such as a
/// connection.
pub trait Client: Clone + Send + 'static {
    /// True if the client's calls block their thread. Each caller then gets an operating-system thread
    /// without a runtime.
    const BLOCKS: bool = false;
    /// Connects to Redis with the settings of the request.
    fn connect(ask: &Ask) -> impl Future<Output = Result<Self, String>> + Send;
    /// Sends PUBLISH with `message` to `channel`, and waits for the reply.
    fn publish(
        &mut self,
        channel: &str,
        message: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// Sends GET, and returns the length of the value in bytes, so that the caller can check it.
    fn get(&mut self, key: &str) -> impl Future<Output = Result<usize, String>> + Send;
    /// Sends SET, and waits for the reply.
    fn set(&mut self, key: &str, value: &str) -> impl Future<Output = Result<(), String>> + Send;
}

/// Returns the number of allocations of the process so far, and their bytes, for the cost of a command.
pub type Allocated = fn() -> (u64, u64);

/// A running load with its callers, their runtime and their counters. The drop of this value ends the load.
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    counting: AtomicBool,
    latency: Histogram,
    done: Vec<Counter>,
    failed: OnceLock<String>,
    pacer: Option<Pacer>,
}

/// The counter of one caller's commands, on cache lines of its own, so that callers do not slow each other
/// down.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

impl Running {
    /// Connects to Redis, starts the callers, and lets them run for the warm-up of the request.
    ///
    /// # Errors
    /// No runtime, no connection, or a failure of a caller during the warm-up.
    pub fn start<C: Client>(ask: &Ask) -> Result<Self, String> {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            counting: AtomicBool::new(false),
            latency: Histogram::default(),
            done: (0..ask.callers).map(|_| Counter::default()).collect(),
            failed: OnceLock::new(),
            pacer: ask.rate.map(Pacer::new),
        });
        let runtime = runtime(ask).map_err(|e| format!("no runtime: {e}"))?;
        let (sender, connected) = sync_channel(1);
        let (ask, within) = (ask.clone(), Arc::clone(&shared));
        let warm_up = ask.warm_up;
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                match C::connect(&ask).await {
                    Ok(client) => {
                        let callers = call_all(&client, &ask, &within);
                        // The thread that started this one waits for this message, so the send succeeds.
                        let _ = sender.send(Ok(()));
                        callers.join_all().await;
                    }
                    Err(e) => drop(sender.send(Err(e))),
                }
            });
        });
        let running = Self {
            shared,
            thread: Some(thread),
        };
        let gone = || "the callers' thread ended".to_owned();
        connected.recv().unwrap_or_else(|_| Err(gone()))?;
        thread::sleep(warm_up);
        running.check()?;
        Ok(running)
    }

    /// Measures the load for the time `window`. If no command has an answer by then, because other programs
    /// use the machine, measures for longer.
    ///
    /// # Errors
    /// The failure of a caller, or no answer at all.
    pub fn measure(&self, window: Duration, allocated: Allocated) -> Result<Value, String> {
        let shared = &self.shared;
        shared.latency.clear();
        shared.counting.store(true, Relaxed);
        let before = allocated();
        let (start, cpu, ops) = (Instant::now(), cpu(), shared.ops());
        shared.pass(window, ops);
        let (ops, cpu) = (shared.ops() - ops, self::cpu() - cpu);
        let elapsed = start.elapsed().as_secs_f64();
        let after = allocated();
        shared.counting.store(false, Relaxed);
        self.check()?;
        if ops == 0 {
            return Err(format!("no command was answered within {elapsed:.1} s"));
        }
        let us = |ns: Option<f64>| ns.map(|ns| ns / 1e3);
        Ok(json!({
            "ops": ops,
            "ops_per_s": ops as f64 / elapsed,
            "elapsed_s": elapsed,
            "cpu_s": cpu.as_secs_f64(),
            "allocs": after.0 - before.0,
            "alloc_bytes": after.1 - before.1,
            "mean_us": us(shared.latency.mean()),
            "p50_us": us(shared.latency.quantile(0.5)),
            "p99_us": us(shared.latency.quantile(0.99)),
        }))
    }

    fn check(&self) -> Result<(), String> {
        self.shared.failed.get().cloned().map_or(Ok(()), Err)
    }
}

/// Ends the callers; each caller ends after the answer for which it waits.
impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(pacer) = &self.shared.pacer {
            pacer.close();
        }
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, it has printed the reason.
            let _ = thread.join();
        }
    }
}

fn runtime(ask: &Ask) -> std::io::Result<Runtime> {
    let mut builder = match ask.workers {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder
        .worker_threads(ask.workers)
        .max_blocking_threads(ask.callers + 1)
        .enable_all()
        .build()
}

fn call_all<C: Client>(client: &C, ask: &Ask, shared: &Arc<Shared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for who in 0..ask.callers {
        let (shared, command) = (Arc::clone(shared), ask.command);
        let caller = Caller {
            client: client.clone(),
            command,
            key: format!("key:{}", who % KEYS),
            value: "x".repeat(ask.value_bytes),
        };
        let calls = async move {
            if let Err(e) = caller.run(who, &shared).await {
                // The load reports only the first failure; later ones likely have the same cause.
                let _ = shared.failed.set(e);
            }
        };
        if ask.threads && C::BLOCKS {
            // If the caller's thread panicked, it has printed the reason.
            tasks.spawn_blocking(move || drop(thread::spawn(move || wait_for(calls)).join()));
        } else if ask.threads {
            tasks.spawn_blocking(move || Handle::current().block_on(calls));
        } else {
            tasks.spawn(calls);
        }
    }
    if ask.rate.is_some() {
        let shared = Arc::clone(shared);
        tasks.spawn(async move {
            if let Some(pacer) = &shared.pacer
                && let Err(e) = pacer.run().await
            {
                let _ = shared.failed.set(format!("the timer: {e}"));
            }
        });
    }
    tasks
}

/// Polls a future until it is ready. The client's calls block this thread by themselves, so only the pacer
/// makes the future wait.
fn wait_for(calls: impl Future<Output = ()>) {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut calls = pin!(calls);
    while calls
        .as_mut()
        .poll(&mut Context::from_waker(&waker))
        .is_pending()
    {
        thread::park();
    }
}

struct Caller<C> {
    client: C,
    command: Command,
    key: String,
    value: String,
}

impl<C: Client> Caller<C> {
    async fn run(mut self, who: usize, shared: &Shared) -> Result<(), String> {
        let mut turn = 0u64;
        while !shared.stop.load(Relaxed) {
            let start = match &shared.pacer {
                Some(pacer) => match pacer.take().await {
                    Some(due) => Some(due),
                    None => break,
                },
                None => turn.is_multiple_of(TIMED_EVERY).then(Instant::now),
            };
            self.call(who as u64 + turn).await?;
            turn += 1;
            shared.done[who].0.store(turn, Relaxed);
            if let Some(start) = start.filter(|_| shared.counting.load(Relaxed)) {
                shared.latency.record(start.elapsed().as_nanos() as u64);
            }
        }
        Ok(())
    }

    async fn call(&mut self, turn: u64) -> Result<(), String> {
        match self.command {
            Command::Publish => self.client.publish("tidegate", &self.value).await,
            Command::Mix if turn.is_multiple_of(5) => self.client.set(&self.key, &self.value).await,
            Command::Set => self.client.set(&self.key, &self.value).await,
            Command::Get | Command::Mix => {
                let bytes = self.client.get(&self.key).await?;
                if bytes != self.value.len() {
                    let wanted = self.value.len();
                    return Err(format!("GET answered {bytes} bytes, not {wanted}"));
                }
                Ok(())
            }
        }
    }
}

impl Shared {
    /// Waits for `window`. If the callers have not completed more than `ops` commands by then, waits longer,
    /// up to a bound.
    fn pass(&self, window: Duration, ops: u64) {
        let start = Instant::now();
        thread::sleep(window);
        while self.ops() == ops && self.failed.get().is_none() && start.elapsed() < window * 100 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn ops(&self) -> u64 {
        self.done.iter().map(|done| done.0.load(Relaxed)).sum()
    }
}

/// Returns the processor time that the whole process has used so far.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
