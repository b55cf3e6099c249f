//! Looking at a handler's state from outside, between two batches.
//!
//! Visits do not queue with the items: a visitor is let in as soon as the handler is free, whatever waits.

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
    /// Runs `look` on the handler between two batches and returns its result. The handler's type is the
    /// closure's: `handle.inspect(|wal: &Wal| wal.len())`.
    ///
    /// # Errors
    /// The actor ended, its handler is of another type, `look` panicked (which the actor survives), or the
    /// handler itself asks.
    pub async fn inspect<H: 'static, V: Send + 'static>(
        &self,
        look: impl FnOnce(&H) -> V + Send + 'static,
    ) -> Result<V, InspectError> {
        self.not_in_handler().map_err(InspectError::WouldBlock)?;
        self.visit(look).await.map_err(lost)?
    }

    /// As [`inspect`](Self::inspect), and blocks the thread.
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

    /// Returns what the controller knows and did, seen between two batches.
    ///
    /// # Errors
    /// The actor ended, or its own handler asks.
    pub async fn controller(&self) -> Result<Snapshot, InspectError> {
        self.not_in_handler().map_err(InspectError::WouldBlock)?;
        self.ask(|_, snapshot| *snapshot).await.map_err(lost)
    }

    /// As [`controller`](Self::controller), and blocks the thread.
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
            // If there is no room for it the actor is awake anyway.
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
    /// `None` once the actor ended.
    visits: Mutex<Option<Vec<Visit>>>,
    /// An actor that sleeps without looking at its queue.
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

    /// Returns whether a visitor waits; the task is woken when one comes.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let old = lock(&self.actor).replace(cx.waker().clone());
        drop(old);
        // The visitor's mark comes before its look at the waker.
        match self.any.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Lets the visitors in.
    pub(super) fn serve(&self, handler: &dyn Any, snapshot: &Snapshot) {
        if !self.any.swap(false, Ordering::Acquire) {
            return;
        }
        let visits = lock(&self.visits).as_mut().map(std::mem::take);
        for visit in visits.into_iter().flatten() {
            // A visitor that panics learns of it by its reply.
            let _ = catch(|| visit(handler, snapshot));
        }
    }

    /// Nobody is let in any more.
    pub(super) fn close(&self) {
        let visits = lock(&self.visits).take();
        drop(visits);
    }
}
