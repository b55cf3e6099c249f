//! Several commands at once: a pipeline keeps its commands next to each other on the connection, and a
//! transaction puts them between `MULTI` and `EXEC`.

use std::sync::Arc;

use crate::client::Client;
use crate::command::{Cmd, cmd};
use crate::conn::{Conn, Pending};
use crate::error::{CommandError, Executed};
use crate::pipeline::{Answer, Outcome, Submission};
use crate::pool::Dedicated;
use crate::reply::{FromReply, ReplyError, Value};
use crate::wire::Wire;

/// The encoded commands of a pipeline or a transaction, one after the other.
#[derive(Clone, Debug, Default)]
struct Run {
    bytes: Wire,
    commands: u32,
    urgent: bool,
    stateful: bool,
}

impl Run {
    fn push(&mut self, cmd: &Cmd) {
        cmd.encode(&mut self.bytes);
        self.commands += 1;
        self.urgent |= cmd.hints.urgent;
        self.stateful |= cmd.needs_own_connection().is_some();
    }

    /// Submits the commands on `conn`, and returns one reply for each.
    async fn on(self, conn: &Arc<Conn>) -> Result<Vec<Value>, CommandError> {
        let what = Submission {
            commands: self.commands,
            wanted: true,
            urgent: self.urgent,
            own: false,
            answer: Answer::Replies,
        };
        let encode = |out: &mut Wire| out.append(&self.bytes);
        match Pending::new(Arc::clone(conn), what, encode).await? {
            Some(Outcome::One(value)) => Ok(vec![value]),
            Some(Outcome::Many(values)) => Ok(values),
            _ => Err(CommandError::Closed),
        }
    }
}

/// Commands that the client writes together, in this order, with no other command of the client between them.
/// A pipeline is not a transaction: the server may execute commands of other clients in between.
#[derive(Debug)]
#[must_use = "nothing is sent before `run`"]
pub struct Pipeline {
    client: Client,
    run: Run,
}

impl Pipeline {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            run: Run::default(),
        }
    }

    /// Adds a command to the pipeline, behind the commands added before.
    pub fn cmd(mut self, cmd: Cmd) -> Self {
        self.run.push(&cmd);
        self
    }

    /// Adds a command to the pipeline in place, for use in a loop.
    pub fn push(&mut self, cmd: Cmd) {
        self.run.push(&cmd);
    }

    /// Returns the number of commands in the pipeline.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.run.commands as usize
    }

    /// Returns whether the pipeline has no commands.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.run.commands == 0
    }

    /// Sends the commands, and returns the replies in order, with refusals as
    /// [`Value::Error`]. A large pipeline takes a connection of the pool.
    ///
    /// # Errors
    /// No replies arrive, or the pipeline holds a command that needs a connection of its own. The refusal of
    /// one command does not fail the other commands.
    pub async fn run(self) -> Result<Vec<Value>, CommandError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        if self.run.stateful {
            return Err(CommandError::NotShared(
                "a pipeline cannot hold commands that block or change the connection: use a dedicated connection",
            ));
        }
        let inner = &self.client.inner;
        let limits = &inner.conn.shared.limits;
        if self.len() < limits.large_pipeline {
            return self.run.on(&inner.conn).await;
        }
        let own = inner.pool.lease(limits.timeout).await?;
        within(limits.timeout, self.run.on(&own.conn)).await
    }

    /// Sends the commands, and converts the replies to a tuple or a list: `(i64, String)`, `Vec<i64>`.
    ///
    /// # Errors
    /// Like [`run`](Self::run), and the first refusal or reply of another shape.
    pub async fn query<T: FromReply>(self) -> Result<T, CommandError> {
        Ok(T::from_reply(Value::Array(self.run().await?))?)
    }
}

/// A transaction: commands that the server executes as a unit, on a dedicated connection.
#[derive(Debug)]
#[must_use = "nothing is sent before `exec`"]
pub struct Transaction<'a> {
    run: Run,
    on: On<'a>,
}

#[derive(Debug)]
enum On<'a> {
    Pool(Client),
    Own(&'a Dedicated),
}

impl Transaction<'_> {
    pub(crate) fn pooled(client: Client) -> Self {
        Self::begin(On::Pool(client))
    }

    /// Adds a command to the transaction, behind the commands added before.
    pub fn cmd(mut self, cmd: Cmd) -> Self {
        self.run.push(&cmd);
        self
    }

    /// Executes the commands, and converts their replies to a tuple or a list. If the server aborted the
    /// transaction because a watched key changed, the reply is nil: ask for an `Option`, which is then
    /// `None`.
    ///
    /// # Errors
    /// The server refused a command as it arrived, and executed none; a command failed as the server executed
    /// the transaction; or no reply came.
    pub async fn exec<T: FromReply>(mut self) -> Result<T, CommandError> {
        if self.run.stateful {
            return Err(CommandError::NotShared(
                "a transaction cannot hold commands that block or change the connection",
            ));
        }
        self.run.push(&cmd("EXEC"));
        let mut replies = match self.on {
            On::Pool(client) => {
                let inner = &client.inner;
                let timeout = inner.conn.shared.limits.timeout;
                let own = inner.pool.lease(timeout).await?;
                within(timeout, self.run.on(&own.conn)).await?
            }
            On::Own(own) => self.run.on(&own.conn).await?,
        };
        let last = replies.pop().unwrap_or(Value::Nil);
        if let Value::Error(_) = last
            && let Some(first) = replies.iter().find(|r| matches!(r, Value::Error(_)))
        {
            return Err(ReplyError::unexpected("QUEUED", first).into());
        }
        Ok(T::from_reply(last)?)
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn on(own: &'a Dedicated) -> Self {
        Self::begin(On::Own(own))
    }

    fn begin(on: On<'a>) -> Self {
        let mut run = Run::default();
        run.push(&cmd("MULTI"));
        run.stateful = false;
        Self { run, on }
    }
}

async fn within<T>(
    timeout: std::time::Duration,
    replies: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::time::timeout(timeout, replies)
        .await
        .unwrap_or(Err(CommandError::TimedOut(Executed::Maybe)))
}

impl Dedicated {
    /// Starts a transaction on this connection. After [`watch`](Self::watch), ask `exec` for an `Option`: it
    /// is `None` if a watched key changed.
    pub fn transaction(&mut self) -> Transaction<'_> {
        Transaction::on(self)
    }
}

impl Client {
    /// Starts a pipeline, without commands at first, on the shared connection.
    pub fn pipeline(&self) -> Pipeline {
        Pipeline::new(self.clone())
    }

    /// Starts a transaction, without commands at first, which runs on a connection of the pool.
    pub fn transaction(&self) -> Transaction<'static> {
        Transaction::pooled(self.clone())
    }
}
