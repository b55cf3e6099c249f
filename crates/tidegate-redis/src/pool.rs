//! The pool of dedicated connections, with a bound: for blocking commands, transactions, and large commands
//! or replies.
//!
//! A connection returns to the pool only if no command is in flight on it and no command changed its state.
//! Otherwise the pool closes it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::Reply;
use crate::command::{Cmd, Kind, ToArgs, cmd};
use crate::config::Shared;
use crate::conn::Conn;
use crate::error::{CommandError, Executed};
use crate::policy::Policy;
use crate::reply::FromReply;

pub(crate) struct Pool {
    shared: Shared,
    tls: Option<Arc<ClientConfig>>,
    idle: Mutex<Vec<Arc<Conn>>>,
    permits: Arc<Semaphore>,
}

/// The timeout of commands on the pool's connections: longer than any program runs, because a blocking
/// command waits for as long as its own arguments say.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 2_000_000_000);

impl Pool {
    pub(crate) fn new(shared: &Shared, tls: Option<Arc<ClientConfig>>) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(
            shared.limits.pool_max.min(Semaphore::MAX_PERMITS),
        ));
        let mut limits = (*shared.limits).clone();
        limits.timeout = FOREVER;
        Arc::new(Self {
            shared: Shared {
                login: Arc::clone(&shared.login),
                limits: Arc::new(limits),
            },
            tls,
            idle: Mutex::new(Vec::new()),
            permits,
        })
    }

    /// Takes an idle connection of the pool, or opens a connection. If the pool has as many connections in
    /// use as it may, the call waits at most `patience` for one of them to return.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Dedicated, CommandError> {
        let permit = tokio::time::timeout(patience, Arc::clone(&self.permits).acquire_owned())
            .await
            .map_err(|_| CommandError::TimedOut(Executed::No))?
            .map_err(|_| CommandError::Closed)?;
        while let Some(conn) = self.pop() {
            if conn.lock().closed().is_none() {
                return Ok(self.dedicated(conn, permit));
            }
        }
        let plan = Policy::Off
            .plan(self.shared.limits.commands_max)
            .map_err(|e| CommandError::Connect(Arc::new(e.into())))?;
        let conn = Conn::open(&self.shared, self.tls.clone(), plan, None)
            .await
            .map_err(|e| CommandError::Connect(Arc::new(e)))?;
        Ok(self.dedicated(conn, permit))
    }

    fn pop(&self) -> Option<Arc<Conn>> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn dedicated(self: &Arc<Self>, conn: Arc<Conn>, permit: OwnedSemaphorePermit) -> Dedicated {
        Dedicated {
            conn,
            pool: Arc::clone(self),
            _permit: permit,
            clean: true,
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        while let Some(conn) = self.pop() {
            conn.drain();
        }
    }
}

/// A connection for one caller: for `WATCH`, `SELECT`, blocking commands, and other commands that would
/// disturb the callers of the shared connection. Its drop returns the connection to the pool, or closes the
/// connection if a command changed its state or is in flight.
pub struct Dedicated {
    pub(crate) conn: Arc<Conn>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
    clean: bool,
}

impl std::fmt::Debug for Dedicated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dedicated")
            .field("clean", &self.clean)
            .finish_non_exhaustive()
    }
}

impl Dedicated {
    /// Submits `cmd` on the dedicated connection, and returns the future of its reply.
    pub fn send<T: FromReply>(&mut self, cmd: Cmd) -> Reply<T> {
        if cmd.needs_own_connection() == Some(Kind::Stateful) {
            self.clean = false;
        }
        Reply::on(Arc::clone(&self.conn), cmd)
    }

    /// Watches keys: the server executes the next transaction on this connection only if no client changes
    /// the keys before.
    pub fn watch(&mut self, keys: impl ToArgs) -> Reply<()> {
        self.send(cmd("WATCH").arg(keys))
    }
}

impl Drop for Dedicated {
    fn drop(&mut self) {
        let idle = {
            let pipeline = self.conn.lock();
            pipeline.is_idle() && pipeline.closed().is_none()
        };
        if self.clean && idle {
            let mut pool = self
                .pool
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            pool.push(Arc::clone(&self.conn));
        } else {
            self.conn.abort();
        }
    }
}
