//! How a handler that stores reports what is done: from any thread, to whichever connection its session has
//! then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use crate::Seq;

/// Reports of one session: the highest number done, and whom to wake for it.
#[derive(Debug)]
pub(crate) struct Reports {
    done: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl Reports {
    /// Of a session that starts with everything up to `done` behind it.
    pub(crate) fn new(done: Seq) -> Self {
        Self {
            done: AtomicU64::new(done.get()),
            waker: Mutex::new(None),
        }
    }

    /// The highest number reported.
    pub(crate) fn done(&self) -> Seq {
        Seq::new(self.done.load(Ordering::Acquire))
    }

    /// Wakes `waker` at the next report.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut slot = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(old) => old.clone_from(waker),
            slot => *slot = Some(waker.clone()),
        }
    }
}

/// Reports what a handler has done, with [`Acks::WhenDone`](crate::Acks::WhenDone). A clone can be sent to
/// any thread, and stays good across connections of the session.
#[derive(Clone, Debug)]
pub struct Done(pub(crate) Arc<Reports>);

impl Done {
    /// Every message up to and including `seq` is done: it will be acknowledged. A report below an earlier
    /// one changes nothing; one beyond what was received counts as far as that goes.
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
