//! A client for operating-system threads: a caller that waits for a reply serves the connection meanwhile.
//!
//! This module chooses the thread that drives the connection. While callers come often, one of them drives
//! the runtime of the connection's task until its own reply arrives; then another waiting caller takes its
//! place. So a lone caller writes and reads by itself, as on a plain connection, and each of several callers
//! is woken once. While calls are rare, the connection's own thread drives: for keepalive, reconnects and
//! commands without a waiting caller.

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

use crate::client::{Client, Reply};
use crate::config::Config;
use crate::error::{CommandError, ConnectError};
use crate::policy::Policy;
use crate::reply::FromReply;
use crate::stats::Stats;

/// Calls that follow each other within this time count as frequent.
const OFTEN: Duration = Duration::from_millis(2);
/// The connection's own thread takes over this long after the last call, or at most after twice this time.
const QUIET: Duration = Duration::from_millis(5);

/// A client for threads. Clones share the connection, which ends when the last one is dropped. Here
/// [`Policy::Auto`] flushes at once, as [`Policy::Latency`] does, and does not wait for callers.
///
/// A command without a waiting caller, sent from within [`wait`](Self::wait), leaves
/// with the command that the call waits for.
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
    /// The runtime. It is dropped before `_last`, so that a caller that holds a handle does not drop a
    /// runtime.
    runtime: Arc<Runtime>,
    /// The connection's thread ends at the drop of this sender, and gives up the commands submitted before.
    _last: oneshot::Sender<()>,
}

/// Chooses the thread that drives the connection.
#[derive(Debug)]
struct Seat {
    /// True if the connection's own thread drives, or is about to.
    own: AtomicBool,
    /// True if a caller that cannot drive has called: from then on the own thread always drives.
    stays: AtomicBool,
    /// Tells the own thread to let callers drive.
    leave: Notify,
    calls: AtomicU64,
    clock: Clock,
    /// The time of the last call that a caller made while the connection's own thread drove the connection.
    last_ns: AtomicU64,
}

impl BlockingClient {
    /// Connects, and starts the thread that serves the connection while no caller waits.
    ///
    /// # Errors
    /// Like [`Client::open`]; [`ConnectError::Runtime`] if no thread can be started.
    pub fn open(mut config: Config) -> Result<Self, ConnectError> {
        config.callers_block = true;
        if matches!(config.policy, Policy::Auto) {
            // Callers take so long to wake that a wait for them keeps Redis waiting: measured from 8 to 64
            // threads.
            config.policy = Policy::Latency;
        }
        let (opened, open) = sync_channel(1);
        let (sender, last) = oneshot::channel();
        let seat = Arc::new(Seat::new());
        let its = Arc::clone(&seat);
        let own = thread::Builder::new()
            .name("tidegate-redis".to_owned())
            .spawn(move || {
                // The driving caller looks for its own reply after a turn or two of the connection's task.
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .event_interval(2)
                    .build();
                let Ok(runtime) = runtime.map(Arc::new) else {
                    return;
                };
                let client = runtime.block_on(Client::open(config));
                // The opening thread waits for this message. If it does not wait, this thread has nothing
                // left to do.
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

    /// Runs `call` to submit a command, and waits for the reply.
    ///
    /// # Errors
    /// The errors of the command.
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
            // A thread of a runtime must not drive another runtime.
            if !seat.stays.swap(true, Ordering::Relaxed) {
                thread.unpark();
            }
            let _entered = runtime.enter();
            return block_on(call(client));
        }
        seat.called();
        runtime.block_on(async { call(client).await })
    }

    /// Returns the measurements so far.
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

    /// Runs the connection's own thread. It drives until callers drive, and then checks now and then whether
    /// they still do.
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

    /// Records a call from a thread that can drive.
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
