//! The synchronization primitives of the queue: those of std, or those of loom if loom runs its models
//! (`--cfg loom`).
//!
//! Counters for metrics use std in both cases: no decision depends on them, and every counter would
//! multiply the states of a model.

#[cfg(not(loom))]
mod imp {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::yield_now;

    /// Keeps the compiler from moving a load before an earlier store. The processor may still reorder them;
    /// the consumer's second sweep, a millisecond after it raised its flag, makes up for that (see "How the
    /// consumer never misses an item while it sleeps" in the module's documentation).
    #[inline(always)]
    pub(crate) fn light_barrier() {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;

    pub(crate) fn light_barrier() {
        fence(std::sync::atomic::Ordering::SeqCst);
    }
}

pub(super) use imp::*;
pub(super) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Locks `mutex`, even if another holder of the lock panicked: every critical section of the queue keeps
/// its data consistent at each step.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A value with cache lines of its own, so that writes to other values do not slow it down. It takes two
/// lines (128 bytes), because the prefetcher of the processor fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
