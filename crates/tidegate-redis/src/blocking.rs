//! For callers that are operating-system threads: the connection's task on a thread of its own, and replies awaited by
//! sleeping.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::client::{Client, Reply};
use crate::config::Config;
use crate::error::{CommandError, ConnectError};
use crate::reply::FromReply;
use crate::stats::Stats;

/// A client for threads. Clones share the connection; its thread ends when the last one is dropped.
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
    client: Client,
    /// Timers of replies that have one run on the connection's thread.
    runtime: Handle,
    _thread: Arc<oneshot::Sender<()>>,
}

impl BlockingClient {
    /// Connects, and starts the thread that serves the connection.
    ///
    /// # Errors
    /// As of [`Client::open`]; [`ConnectError::Runtime`] if no thread can be started.
    pub fn open(config: Config) -> Result<Self, ConnectError> {
        let (opened, open) = sync_channel(1);
        let (sender, last) = oneshot::channel();
        thread::Builder::new()
            .name("tidegate-redis".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let Ok(runtime) = runtime else {
                    return;
                };
                runtime.block_on(async {
                    // Whoever opened it waits; nothing to do if it does not.
                    let _ = opened.send((Client::open(config).await, Handle::current()));
                    // Until the last handle goes. What it submitted before is given up with it.
                    let _ = last.await;
                });
            })
            .map_err(|_| ConnectError::Runtime)?;
        let (client, runtime) = open.recv().map_err(|_| ConnectError::Runtime)?;
        Ok(Self {
            client: client?,
            runtime,
            _thread: Arc::new(sender),
        })
    }

    /// Submits what `call` submits, and sleeps until its reply is there.
    ///
    /// # Errors
    /// As of the command.
    pub fn wait<T: FromReply>(
        &self,
        call: impl FnOnce(&Client) -> Reply<T>,
    ) -> Result<T, CommandError> {
        let _entered = self.runtime.enter();
        block_on(call(&self.client))
    }

    /// What was measured so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.client.stats()
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
