//! Refuses calls that would block a thread that must not block, so that the caller gets an error and no
//! thread hangs.
//!
//! A thread that polls a task must not sleep: on a runtime of one thread, the task that would wake the
//! sleeper never runs. The thread of an actor's handler must not wait for that same actor. Without a check
//! both waits would hang silently. Each blocking call of the crate therefore runs [`check`] just before it
//! blocks, and returns a typed error instead. A call that need not wait runs no check.

use std::cell::Cell;
use std::error::Error;
use std::fmt;

/// The reason why a call must not block its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WouldBlock {
    /// The thread polls a tokio task, or the future of `block_on`. The crate detects this only with the
    /// feature `tokio`; without it such a call blocks the worker thread. A call that need not wait
    /// succeeds, so a test without load may not show the mistake.
    InTask,
    /// The actor's own handler makes the call, and the call waits for that actor. The crate detects this only
    /// on the thread or in the future that runs the handler. It does not detect such a call in a thread or
    /// task that the handler starts and waits for, nor in the code elsewhere that finishes an
    /// [`OwnedBatch`](crate::batcher::OwnedBatch). Such a wait may never end.
    InHandler,
}

impl fmt::Display for WouldBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InTask => {
                "the call would block a thread that polls a tokio task: use the async form, or \
                 `spawn_blocking`"
            }
            Self::InHandler => {
                "the handler of an actor calls its own actor and would wait for itself: send with a `try_` form, or wait \
                 outside the handler"
            }
        })
    }
}

impl Error for WouldBlock {}

/// Identifies an actor, so that a blocking call can detect a handler that calls its own actor. The id is the
/// address of the state that both ends of the actor's queue share.
pub(crate) type ActorId = usize;

/// Checks whether this thread may block until `actor` acts, so that a forbidden wait is an error and no hang.
///
/// # Errors
/// The thread must not block.
#[cold]
pub(crate) fn check(actor: ActorId) -> Result<(), WouldBlock> {
    check_handler(actor)?;
    check_task()
}

/// Checks like [`check`] whether a future may wait for `actor`. A future may wait anywhere except in the
/// actor's own handler.
///
/// # Errors
/// The handler of `actor` polls the future.
pub(crate) fn check_handler(actor: ActorId) -> Result<(), WouldBlock> {
    match CURRENT.try_with(Cell::get) {
        Ok(Some(current)) if current == actor => Err(WouldBlock::InHandler),
        _ => Ok(()),
    }
}

/// Checks whether this thread may block, like [`check`], for a call that waits for no particular actor.
///
/// # Errors
/// The thread polls a task, so it must not block.
#[cfg(feature = "tokio")]
pub(crate) fn check_task() -> Result<(), WouldBlock> {
    // Most threads belong to no runtime, so for them this check costs one read of a thread-local variable.
    if tokio::runtime::Handle::try_current().is_ok() && polls_task() {
        return Err(WouldBlock::InTask);
    }
    Ok(())
}

/// Accepts every thread: without the feature `tokio` the crate knows no tasks.
///
/// # Errors
/// Returns no error.
#[cfg(not(feature = "tokio"))]
pub(crate) const fn check_task() -> Result<(), WouldBlock> {
    Ok(())
}

/// Returns whether this thread polls a tokio task, or the future of `block_on`, and so must not block.
///
/// tokio gives each poll of a task a budget of steps. `spawn_blocking`, `block_in_place` and plain threads
/// have no budget. No public function of tokio distinguishes the two cases. This function therefore spends
/// steps until the budget ends, and then restores the budget. A budget has at most 255 steps, so a thread
/// that spends 256 steps has no budget.
#[cfg(feature = "tokio")]
fn polls_task() -> bool {
    use std::task::{Context, Poll, Waker};
    use tokio::task::coop::{has_budget_remaining, poll_proceed};

    if !has_budget_remaining() {
        return true;
    }
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(_restores) = poll_proceed(&mut cx) else {
        return true;
    };
    for _ in 0..=u8::MAX {
        if !has_budget_remaining() {
            return true;
        }
        match poll_proceed(&mut cx) {
            // Only the guard of the first step, `_restores`, may restore the budget. `made_progress` keeps
            // the guard of this further step from restoring it, too.
            Poll::Ready(step) => step.made_progress(),
            Poll::Pending => return true,
        }
    }
    false
}

thread_local! {
    /// The actor that currently runs its handler on this thread, so that calls which would wait for it fail.
    static CURRENT: Cell<Option<ActorId>> = const { Cell::new(None) };
}

/// Marks this thread as running the handler of `actor`, until the mark is dropped. Meanwhile the checks
/// refuse calls that would wait for `actor`.
pub(crate) struct Enter(Option<ActorId>);

impl Enter {
    pub(crate) fn new(actor: ActorId) -> Self {
        Self(
            CURRENT
                .try_with(|current| current.replace(Some(actor)))
                .ok()
                .flatten(),
        )
    }
}

impl Drop for Enter {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|current| current.set(self.0));
    }
}

#[cfg(all(test, feature = "tokio", not(loom)))]
mod tests {
    use super::*;
    use tokio::runtime::Builder;
    use tokio::task::coop;

    fn here() -> Option<WouldBlock> {
        check_task().err()
    }

    #[test]
    fn tasks_and_block_on_are_found_and_threads_are_not() {
        assert_eq!(here(), None);
        let one = Builder::new_current_thread().build().unwrap();
        let many = Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        for runtime in [&one, &many] {
            let (root, task, blocking, thread) = runtime.block_on(async {
                (
                    here(),
                    tokio::spawn(async { here() }).await.unwrap(),
                    tokio::task::spawn_blocking(here).await.unwrap(),
                    std::thread::spawn(here).join().unwrap(),
                )
            });
            assert_eq!(
                (root, task),
                (Some(WouldBlock::InTask), Some(WouldBlock::InTask))
            );
            assert_eq!((blocking, thread), (None, None));
        }
        let entered = one.enter();
        assert_eq!(
            here(),
            None,
            "a thread that merely entered a runtime may block"
        );
        drop(entered);
        let in_place = many.block_on(async {
            tokio::spawn(async { tokio::task::block_in_place(here) })
                .await
                .unwrap()
        });
        assert_eq!(in_place, None);
    }

    #[test]
    fn the_look_costs_the_task_no_budget() {
        let one = Builder::new_current_thread().build().unwrap();
        one.block_on(async {
            for _ in 0..1000 {
                assert_eq!(here(), Some(WouldBlock::InTask));
                assert!(coop::has_budget_remaining());
            }
            while coop::has_budget_remaining() {
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                if let std::task::Poll::Ready(step) = coop::poll_proceed(&mut cx) {
                    step.made_progress();
                }
            }
            assert_eq!(here(), Some(WouldBlock::InTask));
            assert!(!coop::has_budget_remaining());
        });
    }

    #[test]
    fn a_handler_is_found_within_another() {
        let outer = Enter::new(1);
        assert_eq!(check(1), Err(WouldBlock::InHandler));
        let inner = Enter::new(2);
        assert_eq!(check(2), Err(WouldBlock::InHandler));
        drop(inner);
        assert_eq!(check(1), Err(WouldBlock::InHandler));
        drop(outer);
        assert_eq!(check(1), Ok(()));
    }
}
