//! The client: a handle many tasks share, and the futures of replies.
//!
//! Leaves everyday commands to `commands`, contiguous runs to `pipelined`, connections of one's own to `pool`.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::command::Cmd;
use crate::config::{Config, Shared};
use crate::conn::{Conn, Pending};
use crate::error::{CommandError, ConnectError};
use crate::pipeline::{Answer, Outcome, Submission};
use crate::pubsub::Registry;
use crate::reply::{FromReply, Value};
use crate::stats::Stats;

/// A Redis client over one connection that many tasks share. Clones are handles on the same connection; it closes when the
/// last one is dropped and everything submitted is answered.
///
/// Commands are submitted when they are made, in that order, and their replies awaited when that suits: awaiting one is
/// not needed for the next to leave.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) conn: Arc<Conn>,
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

/// Connects with this configuration.
///
/// # Errors
/// As of [`Client::open`].
pub async fn connect(config: Config) -> Result<Client, ConnectError> {
    Client::open(config).await
}

impl Client {
    /// Connects to the server a URL names, with the defaults for all it does not say.
    ///
    /// # Errors
    /// An address nobody can connect to, a server that refuses, or one that is none.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::open(Config::from_url(url)?).await
    }

    /// Connects with this configuration. Must be called in a tokio runtime with I/O and time enabled; the connection's task
    /// lives there.
    ///
    /// # Errors
    /// As of [`connect`](Self::connect).
    pub async fn open(config: Config) -> Result<Self, ConnectError> {
        config.check()?;
        let tls = config.login.tls.as_ref().map(|t| t.client_config()).transpose()?;
        let mut plan = config.policy.plan(config.limits.commands_max)?;
        plan.manner.spin = plan.manner.spin && config.spin.unwrap_or(true);
        let shared = Shared {
            login: Arc::new(config.login),
            limits: Arc::new(config.limits),
        };
        let registry = Arc::new(Registry::default());
        let conn = Conn::open(&shared, tls, plan, Some(registry)).await?;
        Ok(Self {
            inner: Arc::new(Inner { conn }),
        })
    }

    /// Submits `cmd`; its reply is awaited when that suits.
    pub fn send<T: FromReply>(&self, cmd: Cmd) -> Reply<T> {
        Reply::new(Arc::clone(&self.inner.conn), cmd)
    }

    /// Submits a command known to belong on the shared connection.
    pub(crate) fn send_shared<T: FromReply>(&self, cmd: Cmd) -> Reply<T> {
        Reply::new(Arc::clone(&self.inner.conn), cmd)
    }

    /// What was measured so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.conn.stats()
    }
}

/// The reply to come of one command, as a `T`. Dropped, the command is still executed and its reply thrown away.
#[must_use = "a command was submitted; await its reply, or use `forget`"]
pub struct Reply<T = Value> {
    pending: Pending<Cmd>,
    _type: PhantomData<fn() -> T>,
}

impl<T> Reply<T> {
    pub(crate) fn new(conn: Arc<Conn>, cmd: Cmd) -> Self {
        let what = Submission {
            commands: 1,
            bytes: cmd.bytes(),
            wanted: true,
            urgent: cmd.hints.urgent,
            answer: Answer::Replies,
        };
        Self {
            pending: Pending::new(conn, what, cmd),
            _type: PhantomData,
        }
    }
}

impl<T: FromReply> Future for Reply<T> {
    type Output = Result<T, CommandError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.pending.poll_outcome(cx).map(|outcome| match outcome? {
            Some(Outcome::One(value)) => T::from_reply(value).map_err(CommandError::from),
            _ => Err(CommandError::Closed),
        })
    }
}
