//! The duty of writing the log. One thread has it at a time, and only this thread writes and syncs. The log
//! thread has the duty, until the thread that appends wants it: after its next sync the log thread offers the
//! duty. A thread that appends and has the duty writes and syncs its batches itself, so that no other thread
//! must be woken for a batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate::Clock;

use crate::driver::{Driver, Next};
use crate::shared::{Shared, lock};

/// The holder of the duty, and the driver while it passes from one thread to the other.
enum Holder {
    LogThread,
    /// The log thread waits for its driver, and the appender may take it.
    Offered(Box<Driver>),
    /// The caller has taken the driver in a [`Duty`].
    Caller,
    /// The caller has returned the driver, and the log thread must go on with it.
    Returned(Box<Driver>),
}

/// The place at which the log thread and a caller pass the duty to each other.
pub(crate) struct Passing {
    wanted: AtomicBool,
    holder: Mutex<Holder>,
    returned: Condvar,
}

impl Default for Passing {
    fn default() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            holder: Mutex::new(Holder::LogThread),
            returned: Condvar::new(),
        }
    }
}

impl Passing {
    /// Notes whether the caller wants the duty. Withdraws an offer that the caller no longer wants.
    pub(crate) fn want(&self, wants: bool) {
        self.wanted.store(wants, Ordering::Release);
        if !wants {
            let mut holder = lock(&self.holder);
            *holder = match std::mem::replace(&mut *holder, Holder::LogThread) {
                Holder::Offered(driver) => Holder::Returned(driver),
                other => other,
            };
            self.returned.notify_all();
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Takes the driver if the log thread offers it.
    fn take(&self) -> Option<Box<Driver>> {
        let mut holder = lock(&self.holder);
        match std::mem::replace(&mut *holder, Holder::Caller) {
            Holder::Offered(driver) => {
                self.wanted.store(false, Ordering::Release);
                Some(driver)
            }
            other => {
                *holder = other;
                None
            }
        }
    }

    fn give_back(&self, driver: Box<Driver>) {
        *lock(&self.holder) = Holder::Returned(driver);
        self.returned.notify_all();
    }

    /// Offers the log thread's driver to the caller, and blocks until the caller returns it or withdraws its
    /// wish. `offered` runs once the offer stands, so that the caller learns of it.
    pub(crate) fn offer(&self, driver: Box<Driver>, offered: impl FnOnce()) -> Box<Driver> {
        let mut holder = lock(&self.holder);
        if !self.is_wanted() {
            return driver;
        }
        *holder = Holder::Offered(driver);
        drop(holder);
        offered();
        let mut holder = lock(&self.holder);
        loop {
            match std::mem::replace(&mut *holder, Holder::LogThread) {
                Holder::Returned(driver) => return driver,
                other => *holder = other,
            }
            let woken = self.returned.wait(holder);
            holder = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The duty of writing the log, taken from the log thread by
/// [`Appender::take_duty`](crate::Appender::take_duty). Nothing becomes durable unless the holder calls
/// [`commit`](Self::commit) after each append. A drop returns the duty to the log thread, which goes on with
/// the batches that wait; the appender's close waits for that.
pub struct Duty {
    /// `None` only while the duty is being dropped.
    driver: Option<Box<Driver>>,
    shared: Arc<Shared>,
    clock: Clock,
}

/// The result of [`Duty::commit`]. The holder of the duty must commit again after the time `again`, if
/// there is one, because further batches wait or the log is to note its end on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Committed {
    /// The batches that the controller let go are durable.
    Synced {
        /// The time after which the holder must commit again.
        again: Option<Duration>,
    },
    /// No batch waits, or the controller lets none go yet.
    Nothing {
        /// The time after which the holder must commit again.
        again: Option<Duration>,
    },
    /// A write or a sync has failed: [`Log::failure`](crate::Log::failure) returns the failure.
    Failed,
}

impl Duty {
    pub(crate) fn take(shared: &Arc<Shared>, clock: Clock) -> Option<Self> {
        let mut driver = shared.passing.take()?;
        driver.set_waking(false);
        Some(Self {
            driver: Some(driver),
            shared: Arc::clone(shared),
            clock,
        })
    }

    /// Writes and syncs batches that wait, as many as the controller puts together, and blocks until they are
    /// durable or the sync has failed. Calls the callbacks of the batches, but not the log's
    /// [waker](crate::Options::waker): the caller learns of the new durable position by the return.
    pub fn commit(&mut self) -> Committed {
        let Some(driver) = &mut self.driver else {
            return Committed::Failed;
        };
        if self.shared.failure().is_some() {
            // A sync after a failed one may report success, although the disk has lost what the failed one
            // covered.
            return Committed::Failed;
        }
        let now = self.clock.now();
        match driver.step(now, false) {
            Ok(Next::Sync) => match driver.sync(&self.clock) {
                Ok(()) => Committed::Synced {
                    again: Some(driver.next_step(self.clock.now())),
                },
                Err(_) => Committed::Failed,
            },
            Ok(Next::Wait(until)) => Committed::Nothing {
                again: until.map(|at| at - now),
            },
            Ok(Next::End) => Committed::Nothing { again: None },
            Err(_) => Committed::Failed,
        }
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            if std::thread::panicking() {
                // The panic may have come in the middle of a commit, so the state of the batches is unknown.
                let error = std::io::Error::other("the thread with the duty panicked");
                self.shared.fail("syncing the log", error);
            }
            driver.set_waking(true);
            self.shared.passing.give_back(driver);
            // The last commit called no waker.
            self.shared.wake();
        }
    }
}

impl std::fmt::Debug for Duty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duty").finish_non_exhaustive()
    }
}
