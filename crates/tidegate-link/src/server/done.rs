//! The reports with which a session's handler says that it is done with messages. They come from any thread
//! and go to the connection that the session has at that time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use crate::Seq;

/// The reports of one session's handler, from which the receiver acknowledges: the highest number of a
/// message that the handler is done with, and the waker of the connection's task.
#[derive(Debug)]
pub(crate) struct Reports {
    done: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl Reports {
    /// Creates the reports of a session in which every message up to `done` is done.
    pub(crate) fn new(done: Seq) -> Self {
        Self {
            done: AtomicU64::new(done.get()),
            waker: Mutex::new(None),
        }
    }

    /// Returns the highest message number that the handler has reported as done, for the next
    /// acknowledgement.
    pub(crate) fn done(&self) -> Seq {
        Seq::new(self.done.load(Ordering::Acquire))
    }

    /// Stores `waker`, the connection's waker, which the handler's next report wakes.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut slot = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(old) => old.clone_from(waker),
            slot => *slot = Some(waker.clone()),
        }
    }
}

/// Reports which messages a handler has done, with [`Acks::WhenDone`](crate::Acks::WhenDone). A program can
/// send a clone to any thread, and the clone stays valid across connections of the session.
#[derive(Clone, Debug)]
pub struct Done(pub(crate) Arc<Reports>);

impl Done {
    /// Reports that every message up to and including `seq` is done, so that the server
    /// acknowledges it. A report below an earlier one changes nothing; a report beyond
    /// the last message received counts up to that message.
    pub fn done(&self, seq: Seq) {
        if self.0.done.fetch_max(seq.get(), Ordering::AcqRel) >= seq.get() {
            return;
        }
        let slot = &self.0.waker;
        let waker = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
