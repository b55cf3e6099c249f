//! Inspections: user code outside an actor looks at the handler's state between two batches.
//!
//! Inspections (*visits* in the code) do not queue with the items: the actor runs a visit as soon as the
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
use crate::controller::{SizeCosts, Snapshot};

impl<T: Send, R: Send, M: Send> Handle<T, R, M> {
    /// Runs the closure `look` on the handler between two batches, and returns the result of `look`. The
    /// closure names the handler's type: `handle.inspect(|wal: &Wal| wal.len())`.
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

    /// Runs `look` on the handler like [`inspect`](Self::inspect), but blocks the thread.
    ///
    /// # Errors
    /// The same as for `inspect`, and [`InspectError::WouldBlock`] if the thread must not wait.
    pub fn blocking_inspect<H: 'static, V: Send + 'static>(
        &self,
        look: impl FnOnce(&H) -> V + Send + 'static,
    ) -> Result<V, InspectError> {
        self.may_block().map_err(InspectError::WouldBlock)?;
        self.visit(look).wait().map_err(lost)?
    }

    /// Returns a snapshot of the controller's knowledge and counts. If the actor runs one batch at a time,
    /// the call waits, without a deadline, until the handler has finished its present batch.
    /// [`stats`](Handle::stats) does not wait for the handler.
    ///
    /// # Errors
    /// The actor ended, or its own handler makes the call.
    pub async fn controller(&self) -> Result<Snapshot, InspectError> {
        self.not_in_handler().map_err(InspectError::WouldBlock)?;
        self.ask(|_, seen| seen.snapshot).await.map_err(lost)
    }

    /// Returns the costs of batches by size that the controller has measured, for people and dashboards. The
    /// call waits like [`controller`](Self::controller).
    ///
    /// # Errors
    /// The same as for `controller`.
    pub async fn size_costs(&self) -> Result<SizeCosts, InspectError> {
        self.not_in_handler().map_err(InspectError::WouldBlock)?;
        self.ask(|_, seen| seen.size_costs).await.map_err(lost)
    }

    /// Returns a snapshot of the controller like [`controller`](Self::controller), but blocks the thread.
    ///
    /// # Errors
    /// The same as for `controller`, and [`InspectError::WouldBlock`] if the thread must not wait.
    pub fn blocking_controller(&self) -> Result<Snapshot, InspectError> {
        self.may_block().map_err(InspectError::WouldBlock)?;
        self.ask(|_, seen| seen.snapshot).wait().map_err(lost)
    }

    /// Returns the costs of batches by size like [`size_costs`](Self::size_costs), but blocks the thread.
    ///
    /// # Errors
    /// The same as for `controller`, and [`InspectError::WouldBlock`] if the thread must not wait.
    pub fn blocking_size_costs(&self) -> Result<SizeCosts, InspectError> {
        self.may_block().map_err(InspectError::WouldBlock)?;
        self.ask(|_, seen| seen.size_costs).wait().map_err(lost)
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
        look: impl FnOnce(&dyn Any, &Seen) -> V + Send + 'static,
    ) -> Request<V> {
        let (reply, request) = pair();
        let put = self.shared.inbox.put(Box::new(move |handler, seen| {
            reply.send(look(handler, seen));
        }));
        if put {
            // If the queue has no room for the wake entry, the actor is awake anyway, because it has items
            // to take.
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

type Visit = Box<dyn FnOnce(&dyn Any, &Seen) + Send>;

/// The state of the controller that a visit may look at.
pub(super) struct Seen {
    pub(super) snapshot: Snapshot,
    pub(super) size_costs: SizeCosts,
}

/// The visits (inspections of a handler) that wait until the handler is free.
pub(super) struct Inbox {
    any: AtomicBool,
    /// The waiting visits, in order; `None` after the actor ended, so that later visits are refused.
    visits: Mutex<Option<Vec<Visit>>>,
    /// The waker of an actor that runs several batches. While such an actor waits for a batch to end, it does
    /// not look at its queue, so an entry there does not wake it, and a visitor uses this waker.
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

    /// Returns ready if a visit waits for the handler. Otherwise the next visit wakes the task of `cx`.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let old = lock(&self.actor).replace(cx.waker().clone());
        drop(old);
        // A visitor sets `any` first and looks for the actor's waker then. So if a visitor found no waker,
        // this read of `any` sees that a visit waits.
        match self.any.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Runs the waiting visits on the handler, which is free between two batches.
    pub(super) fn serve(&self, handler: &dyn Any, seen: &Seen) {
        if !self.any.swap(false, Ordering::Acquire) {
            return;
        }
        let visits = lock(&self.visits).as_mut().map(std::mem::take);
        for visit in visits.into_iter().flatten() {
            // If a visit panics, the drop of its reply reports the panic to the visitor. The actor
            // continues.
            let _ = catch(|| visit(handler, seen));
        }
    }

    /// Drops the waiting visits, and refuses every later one, because the actor ended.
    pub(super) fn close(&self) {
        let visits = lock(&self.visits).take();
        drop(visits);
    }
}
