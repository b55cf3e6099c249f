//! A client for operating-system threads: a thread that waits for a reply meanwhile writes and reads for the
//! shared connection.
//!
//! This module chooses the thread that drives the connection, that is, runs its writes, reads and timers.
//! While calls are frequent, one of the calling threads drives until its own reply arrives; then another
//! waiting thread takes over. So a lone caller writes and reads by itself, as on a plain connection, and each
//! of several callers is woken once. While calls are rare, the connection's own thread drives: for keepalive,
//! reconnects and commands without a waiting caller.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tidegate::{Clock, nanos};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Notify, oneshot};

use crate::call::Reply;
use crate::client::Client;
use crate::config::Config;
use crate::error::{CommandError, ConnectError};
use crate::policy::Policy;
use crate::reply::FromReply;
use crate::stats::Stats;

/// The time between two calls below which calls count as frequent. While calls are frequent, the calling
/// threads drive the connection, in place of the connection's own thread.
const OFTEN: Duration = Duration::from_millis(2);
/// The interval at which the connection's own thread checks for further calls, while callers drive the
/// connection. After an interval without a call, the thread drives the connection again: 5 ms to 10 ms after
/// the last call.
const QUIET: Duration = Duration::from_millis(5);

/// A Redis client for operating-system threads. Clones share the connection, which ends when the last clone
/// is dropped. In this client [`Policy::Auto`] flushes at once, as [`Policy::Latency`] does, and does not
/// wait for callers.
///
/// If the closure of [`wait`](Self::wait) also submits commands without awaiting their replies, the client
/// writes them together with the command that the call waits for.
///
/// ```no_run
/// use tidegate_redis::{BlockingClient, Config};
///
/// let redis = BlockingClient::open(Config::from_url("redis://localhost")?)?;
/// let n = redis.wait(|client| client.incr("n"))?;
/// # let _: i64 = n;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BlockingClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    seat: Arc<Seat>,
    thread: Thread,
    /// The runtime of the connection's task. This field stands before `_last`, so that a caller drops its
    /// `Arc` while the connection's thread still holds another: the last drop of a runtime must not happen on
    /// a caller's thread.
    runtime: Arc<Runtime>,
    /// The sender that keeps the connection's own thread running. Its drop, with the last clone of the
    /// client, ends the thread; commands without a reply by then fail.
    _last: oneshot::Sender<()>,
}

/// Chooses the thread that drives the connection: the connection's own thread or a calling thread.
#[derive(Debug)]
struct Seat {
    /// True if the connection's own thread drives the connection, or is about to; calling threads then only
    /// wait.
    own: AtomicBool,
    /// True once a thread of another tokio runtime has called. Such a thread cannot drive the connection, so
    /// the connection's own thread drives from then on.
    stays: AtomicBool,
    /// Tells the connection's own thread to stop driving the connection, because callers drive it from now
    /// on.
    leave: Notify,
    calls: AtomicU64,
    clock: Clock,
    /// The time of the last call that a caller made while the connection's own thread drove the connection,
    /// to see whether calls are frequent.
    last_ns: AtomicU64,
}

impl BlockingClient {
    /// Connects to the server, and starts the thread that drives the connection while no caller waits.
    ///
    /// # Errors
    /// Like [`Client::open`]; [`ConnectError::Runtime`] if no thread can be started.
    pub fn open(mut config: Config) -> Result<Self, ConnectError> {
        config.callers_block = true;
        if matches!(config.policy, Policy::Auto) {
            // If a flush waited for the callers' next commands, Redis would be idle meanwhile, because
            // threads wake slowly: measured with 8 to 64 threads.
            config.policy = Policy::Latency;
        }
        let (opened, open) = sync_channel(1);
        let (sender, last) = oneshot::channel();
        let seat = Arc::new(Seat::new());
        let its = Arc::clone(&seat);
        let own = thread::Builder::new()
            .name("tidegate-redis".to_owned())
            .spawn(move || {
                // With an event interval of 2, the caller that drives the runtime looks for its own reply
                // after at most two polls of the connection's task.
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .event_interval(2)
                    .build();
                let Ok(runtime) = runtime.map(Arc::new) else {
                    return;
                };
                let client = runtime.block_on(Client::open(config));
                // If `open` has ended, its thread takes no client, and the send fails. `drive` then returns
                // at once, so the failure needs no handling.
                let _ = opened.send((client, Arc::clone(&runtime)));
                drop(opened);
                its.drive(&runtime, last);
            })
            .map_err(|_| ConnectError::Runtime)?;
        let (client, runtime) = open.recv().map_err(|_| ConnectError::Runtime)?;
        Ok(Self {
            shared: Arc::new(Shared {
                client: client?,
                seat,
                thread: own.thread().clone(),
                runtime,
                _last: sender,
            }),
        })
    }

    /// Runs `call`, which submits a command, and blocks the thread until the reply arrives.
    ///
    /// # Errors
    /// The error with which the command fails.
    pub fn wait<T: FromReply>(
        &self,
        call: impl FnOnce(&Client) -> Reply<T>,
    ) -> Result<T, CommandError> {
        let Shared {
            client,
            seat,
            thread,
            runtime,
            ..
        } = &*self.shared;
        if Handle::try_current().is_ok() {
            // A thread that runs a tokio runtime must not drive another one. The connection's own thread
            // drives instead.
            if !seat.stays.swap(true, Ordering::Relaxed) {
                thread.unpark();
            }
            let _entered = runtime.enter();
            return block_on(call(client));
        }
        seat.called();
        runtime.block_on(async { call(client).await })
    }

    /// Returns the measurements of the client's connection so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.client.stats()
    }
}

impl Seat {
    fn new() -> Self {
        Self {
            own: AtomicBool::new(true),
            stays: AtomicBool::new(false),
            leave: Notify::new(),
            calls: AtomicU64::new(0),
            clock: Clock::start(),
            last_ns: AtomicU64::new(0),
        }
    }

    /// Runs the connection's own thread. The thread drives the connection until callers drive it, and then
    /// checks at intervals of `QUIET` whether callers still come.
    fn drive(&self, runtime: &Runtime, mut last: oneshot::Receiver<()>) {
        loop {
            let gone = runtime.block_on(async {
                tokio::select! {
                    _ = &mut last => true,
                    () = self.leave.notified() => false,
                }
            });
            if gone {
                return;
            }
            let mut seen = self.calls.load(Ordering::Relaxed).wrapping_sub(1);
            while !self.stays.load(Ordering::Relaxed) && seen != self.calls.load(Ordering::Relaxed)
            {
                seen = self.calls.load(Ordering::Relaxed);
                thread::park_timeout(QUIET);
            }
            self.own.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a call from a thread that can drive the connection. Once calls are frequent, stops the
    /// connection's own thread, so that callers drive.
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.own.load(Ordering::Relaxed) || self.stays.load(Ordering::Relaxed) {
            return;
        }
        let now = self.clock.now().as_nanos();
        let before = self.last_ns.swap(now, Ordering::Relaxed);
        let often = before > 0 && now.saturating_sub(before) < nanos(OFTEN);
        if often && self.own.swap(false, Ordering::Relaxed) {
            self.leave.notify_one();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => return out,
            Poll::Pending => thread::park(),
        }
    }
}
