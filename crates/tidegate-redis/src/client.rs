//! The Redis client: a handle on one connection that many tasks share.
//!
//! Other modules add its methods: `commands` the everyday commands, `run` pipelines and transactions, and
//! `pool` dedicated connections. `call` has the futures of replies.

use std::sync::Arc;

use crate::call::{Reply, retried, submission, within};
use crate::command::{Args, Cmd, Kind, encode};
use crate::config::{Config, Shared};
use crate::conn::{Conn, Pending};
use crate::error::{CommandError, ConnectError};
use crate::pipeline::{Answer, Submission};
use crate::pool::{Dedicated, Pool};
use crate::pubsub::registry::Registry;
use crate::reply::{FromReply, Value};
use crate::stats::Stats;

/// A Redis client that shares one connection among many tasks. Clones are handles on the same connection. The
/// connection closes when the last clone is dropped and every submitted command is answered.
///
/// Each method submits its command when the program calls it, so the server receives the commands in the
/// order of the calls. The program may await a reply later: the next command leaves without waiting for it.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) conn: Arc<Conn>,
    pub(crate) pool: Arc<Pool>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.conn.drain();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.inner.conn.shared.login.address)
            .finish_non_exhaustive()
    }
}

/// Connects to the server of `config`, as [`Client::open`] does, for programs that begin with a
/// configuration.
///
/// # Errors
/// Like [`Client::open`].
pub async fn connect(config: Config) -> Result<Client, ConnectError> {
    Client::open(config).await
}

impl Client {
    /// Connects to the server that a URL names, with the defaults for all settings that the URL leaves out.
    ///
    /// # Errors
    /// An invalid URL, an address that does not connect, a server that refuses the login, or a peer that is
    /// no Redis server.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::open(Config::from_url(url)?).await
    }

    /// Connects to the server of `config`. The program must call this function in a tokio runtime with I/O
    /// and time enabled, which then runs the connection's task.
    ///
    /// # Errors
    /// Like [`connect`](Self::connect).
    pub async fn open(config: Config) -> Result<Self, ConnectError> {
        config.check()?;
        let tls = config
            .login
            .tls
            .as_ref()
            .map(|t| t.client_config())
            .transpose()?;
        let mut plan = config.policy.plan(config.limits.commands_max)?;
        plan.manner.spin = plan.manner.spin && config.spin.unwrap_or(true);
        if config.callers_block {
            plan.manner = plan.manner.for_threads();
        }
        let shared = Shared {
            login: Arc::new(config.login),
            limits: Arc::new(config.limits),
        };
        let registry = Arc::new(Registry::default());
        let pool = Pool::new(&shared, tls.clone());
        let conn = Conn::open(&shared, tls, plan, Some(registry)).await?;
        Ok(Self {
            inner: Arc::new(Inner { conn, pool }),
        })
    }

    /// Submits `cmd` and returns the future of its reply. A command that blocks or is marked as
    /// [`bulk`](Cmd::bulk) takes a connection of the pool. So it does not delay other commands, and the
    /// server may execute it before or after them.
    pub fn send<T: FromReply>(&self, cmd: Cmd) -> Reply<T> {
        match cmd.needs_own_connection() {
            Some(Kind::Stateful) => Reply::refused(CommandError::NotShared(
                "this command changes its connection: use a transaction, a subscription or a dedicated connection",
            )),
            Some(Kind::Blocking) => self.send_apart(cmd, true),
            None if cmd.hints.bulk => self.send_apart(cmd, false),
            None => self.send_shared(cmd),
        }
    }

    /// Submits `cmd` on the shared connection and discards its reply. The call never waits for room in the
    /// queue: it fails if the queue is full.
    ///
    /// # Errors
    /// If the queue is full, the client is closed, or the command does not belong on the shared connection.
    pub fn forget(&self, cmd: &Cmd) -> Result<(), CommandError> {
        if cmd.needs_own_connection().is_some() {
            return Err(CommandError::NotShared(
                "expected a command that neither blocks nor changes its connection",
            ));
        }
        let submitted = self
            .inner
            .conn
            .submit(submission(cmd, false), |out| cmd.encode(out));
        submitted.map(drop).map_err(CommandError::from)
    }

    /// Takes a dedicated connection from the pool. Only the caller uses it, until it drops the connection.
    ///
    /// # Errors
    /// The client cannot connect, or no connection of the pool is free within the timeout.
    pub async fn dedicated(&self) -> Result<Dedicated, CommandError> {
        let inner = &self.inner;
        inner.pool.lease(inner.conn.shared.limits.timeout).await
    }

    /// Submits a command on the shared connection. If the configuration allows retries, the client sends a
    /// read-only command once more after the connection broke.
    pub(crate) fn send_shared<T: FromReply>(&self, cmd: Cmd) -> Reply<T> {
        let conn = Arc::clone(&self.inner.conn);
        if self.inner.conn.shared.limits.retry_reads && cmd.is_read_only() {
            return Reply::boxed(retried(conn, cmd));
        }
        Reply::on(conn, cmd)
    }

    /// Submits one command on the shared connection; `write` puts its arguments straight into the
    /// connection's buffer.
    pub(crate) fn call<T: FromReply>(&self, write: impl Fn(&mut Args<'_>)) -> Reply<T> {
        let conn = &self.inner.conn;
        if conn.shared.limits.retry_reads {
            return self.send_shared(Cmd::of(write));
        }
        let what = Submission {
            commands: 1,
            wanted: true,
            urgent: false,
            own: false,
            answer: Answer::Replies,
        };
        Reply::pending(Pending::new(Arc::clone(conn), what, |out| {
            encode(out, &write)
        }))
    }

    /// Submits a command on a connection of the pool. The client waits for the reply for the command's own
    /// timeout. If the command has no timeout, the client waits for its own timeout, or without limit if the
    /// command blocks.
    fn send_apart<T: FromReply>(&self, cmd: Cmd, blocks: bool) -> Reply<T> {
        let pool = Arc::clone(&self.inner.pool);
        let timeout = self.inner.conn.shared.limits.timeout;
        Reply::boxed(async move {
            let mut own = pool.lease(timeout).await?;
            let bound = cmd.timeout.or_else(|| (!blocks).then_some(timeout));
            let reply = own.send::<Value>(cmd);
            match bound {
                None => reply.await,
                Some(bound) => within(bound, reply).await,
            }
        })
    }

    /// Returns the measurements of the shared connection so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.conn.stats()
    }
}
