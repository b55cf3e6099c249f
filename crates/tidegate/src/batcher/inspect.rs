//! Inspections of a handler's state from outside, between two batches.
//!
//! Visits do not queue with the items: the actor runs a visit as soon as the
//! handler is free, even if items wait.

use std::any::{Any, type_name};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::error::InspectError;
use super::handle::Handle;
use super::mend::catch;
use super::reply::{ReplyError, Request, lock, pair};
use super::shared::Entry;
use crate::controller::Snapshot;

impl<T: Send, R: Send, M: Send> Handle<T, R, M> {
    /// Runs `look` on the handler between two batches and returns its result. The closure names the
    /// handler's type: `handle.inspect(|wal: &Wal| wal.len())`.
    ///
    /// # Errors
    /// The actor ended, its handler is of another type, `look` panicked (which the actor survives), or the
    /// actor's own handler makes the call.
    pub async fn inspect<H: 'static, V: Send + 'static>(
        &self,
        look: impl FnOnce(&H) -> V + Send + 'static,
    ) -> Result<V, InspectError> {
        self.not_in_handler().map_err(InspectError::WouldBlock)?;
        self.visit(look).await.map_err(lost)?
    }

    /// Runs `look` on the handler like [`inspect`](Self::inspect); blocks the thread.
    ///
    /// # Errors
    /// As for `inspect`; [`InspectError::WouldBlock`] where the thread must not wait.
    pub fn blocking_inspect<H: 'static, V: Send + 'static>(
        &self,
        look: impl FnOnce(&H) -> V + Send + 'static,
    ) -> Result<V, InspectError> {
        self.may_block().map_err(InspectError::WouldBlock)?;
        self.visit(look).wait().map_err(lost)?
    }

    /// Returns a snapshot of the controller's knowledge and counts, taken between two batches. Where one
    /// batch runs at a time, the call waits for the handler, without a deadline; [`stats`](Handle::stats)
    /// does not wait.
    ///
    /// # Errors
    /// The actor ended, or its own handler makes the call.
    pub async fn controller(&self) -> Result<Snapshot, InspectError> {
        self.not_in_handler().map_err(InspectError::WouldBlock)?;
        self.ask(|_, snapshot| *snapshot).await.map_err(lost)
    }

    /// Returns a snapshot like [`controller`](Self::controller); blocks the thread.
    ///
    /// # Errors
    /// As for `controller`; [`InspectError::WouldBlock`] where the thread must not wait.
    pub fn blocking_controller(&self) -> Result<Snapshot, InspectError> {
        self.may_block().map_err(InspectError::WouldBlock)?;
        self.ask(|_, snapshot| *snapshot).wait().map_err(lost)
    }

    fn visit<H: 'static, V: Send + 'static>(
        &self,
        look: impl FnOnce(&H) -> V + Send + 'static,
    ) -> Request<Result<V, InspectError>> {
        self.ask(move |handler, _| match handler.downcast_ref() {
            Some(handler) => Ok(look(handler)),
            None => Err(InspectError::OtherType {
                asked: type_name::<H>(),
            }),
        })
    }

    fn ask<V: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Any, &Snapshot) -> V + Send + 'static,
    ) -> Request<V> {
        let (reply, request) = pair();
        let put = self.shared.inbox.put(Box::new(move |handler, snapshot| {
            reply.send(look(handler, snapshot));
        }));
        if put {
            // If the queue has no room for the wake, the actor is awake anyway.
            let _ = self.shared.queue.push_past_line(Entry::Wake);
        }
        request
    }
}

fn lost(error: ReplyError) -> InspectError {
    match error {
        ReplyError::Panicked => InspectError::Panicked,
        _ => InspectError::Ended,
    }
}

type Visit = Box<dyn FnOnce(&dyn Any, &Snapshot) + Send>;

/// Visits that wait for the handler to be free.
pub(super) struct Inbox {
    any: AtomicBool,
    /// The waiting visits; `None` once the actor ended.
    visits: Mutex<Option<Vec<Visit>>>,
    /// The waker of an actor that sleeps without looking at its queue.
    actor: Mutex<Option<Waker>>,
}

impl Inbox {
    pub(super) const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            visits: Mutex::new(Some(Vec::new())),
            actor: Mutex::new(None),
        }
    }

    fn put(&self, visit: Visit) -> bool {
        let mut visits = lock(&self.visits);
        let Some(waiting) = &mut *visits else {
            drop(visits);
            return false;
        };
        waiting.push(visit);
        self.any.store(true, Ordering::Release);
        drop(visits);
        if let Some(actor) = lock(&self.actor).take() {
            actor.wake();
        }
        true
    }

    /// Returns whether a visit waits. If none waits, the next visit wakes the task.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let old = lock(&self.actor).replace(cx.waker().clone());
        drop(old);
        // A visitor sets its mark before it looks for the waker, so that this read sees the mark of
        // a visitor that found no waker.
        match self.any.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Runs the waiting visits.
    pub(super) fn serve(&self, handler: &dyn Any, snapshot: &Snapshot) {
        if !self.any.swap(false, Ordering::Acquire) {
            return;
        }
        let visits = lock(&self.visits).as_mut().map(std::mem::take);
        for visit in visits.into_iter().flatten() {
            // If a visit panics, its reply reports the panic.
            let _ = catch(|| visit(handler, snapshot));
        }
    }

    /// Refuses every later visit, and drops the waiting ones.
    pub(super) fn close(&self) {
        let visits = lock(&self.visits).take();
        drop(visits);
    }
}
