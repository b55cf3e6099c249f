//! The future of the reply to one command, with its timeout and its retry.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::command::Cmd;
use crate::conn::{Conn, Pending};
use crate::error::{CommandError, Executed};
use crate::pipeline::{Answer, Outcome, Submission};
use crate::reply::{FromReply, Value};

/// The future of the reply to one command, converted to a `T`. If the program drops the future after the
/// command was queued, the server still executes the command and the client discards the reply.
#[must_use = "a command was submitted; await its reply, or use `forget`"]
pub struct Reply<T = Value> {
    state: State,
    _type: PhantomData<fn() -> T>,
}

enum State {
    Pending(Pending),
    /// The future of a command with a timeout of its own or with a retry, or of a command that waits for a
    /// connection of the pool.
    Boxed(Pin<Box<dyn Future<Output = Result<Value, CommandError>> + Send>>),
    Refused(Box<CommandError>),
    Done,
}

impl<T: FromReply> Reply<T> {
    /// Submits `cmd` on `conn`, and limits the wait for its reply if the command has a timeout of its own.
    pub(crate) fn on(conn: Arc<Conn>, cmd: Cmd) -> Self {
        let what = submission(&cmd, true);
        let bound = cmd.timeout;
        let pending = Pending::new(conn, what, |out| cmd.encode(out));
        match bound {
            None => Self::pending(pending),
            Some(bound) => Self::boxed(within(bound, only(pending))),
        }
    }

    pub(crate) const fn pending(pending: Pending) -> Self {
        Self::new(State::Pending(pending))
    }

    pub(crate) fn boxed(
        reply: impl Future<Output = Result<Value, CommandError>> + Send + 'static,
    ) -> Self {
        Self::new(State::Boxed(Box::pin(reply)))
    }

    pub(crate) fn refused(error: CommandError) -> Self {
        Self::new(State::Refused(Box::new(error)))
    }

    const fn new(state: State) -> Self {
        Self {
            state,
            _type: PhantomData,
        }
    }
}

impl<T: FromReply> Future for Reply<T> {
    type Output = Result<T, CommandError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let value = match &mut self.state {
            State::Pending(pending) => match ready!(pending.poll_outcome(cx))? {
                Some(Outcome::One(value)) => value,
                _ => return Poll::Ready(Err(CommandError::Closed)),
            },
            State::Boxed(reply) => {
                let value = ready!(reply.as_mut().poll(cx));
                self.state = State::Done;
                value?
            }
            State::Refused(e) => return Poll::Ready(Err((**e).clone())),
            State::Done => return Poll::Ready(Err(CommandError::Closed)),
        };
        Poll::Ready(T::from_reply(value).map_err(CommandError::from))
    }
}

/// Returns the submission of one command to the pipeline; `wanted` says whether the program wants the reply.
pub(crate) fn submission(cmd: &Cmd, wanted: bool) -> Submission {
    Submission {
        commands: 1,
        wanted,
        urgent: cmd.hints.urgent,
        own: false,
        answer: Answer::Replies,
    }
}

async fn only(pending: Pending) -> Result<Value, CommandError> {
    match pending.await? {
        Some(Outcome::One(value)) => Ok(value),
        _ => Err(CommandError::Closed),
    }
}

/// Submits a read-only command now, and once more if the connection breaks before the reply arrives. The
/// second try does no harm, because the command only reads.
pub(crate) fn retried(
    conn: Arc<Conn>,
    cmd: Cmd,
) -> impl Future<Output = Result<Value, CommandError>> {
    let first = Reply::<Value>::on(Arc::clone(&conn), cmd.clone());
    async move {
        match first.await {
            Err(CommandError::Lost { .. }) => Reply::on(conn, cmd).await,
            other => other,
        }
    }
}

/// Waits for `reply`, but at most for `bound`, so that no caller waits for ever.
pub(crate) async fn within(
    bound: Duration,
    reply: impl Future<Output = Result<Value, CommandError>>,
) -> Result<Value, CommandError> {
    tokio::time::timeout(bound, reply)
        .await
        .unwrap_or(Err(CommandError::TimedOut(Executed::Maybe)))
}
