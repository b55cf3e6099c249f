//! The primitives of which the queue is made: those of std, or those of loom when its models run (`--cfg
//! loom`).
//!
//! Counters for metrics use std in both cases: no decision rests on them, and every counter would multiply
//! the states of a model.

#[cfg(not(loom))]
mod imp {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::yield_now;

    /// Keeps the compiler from moving a load before an earlier store. The linger covers the reordering that
    /// the processor may still do (see "How the consumer never misses an item while it sleeps" in the
    /// module's documentation).
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

/// Locks `mutex` even after a panic of another holder: every critical section here keeps
/// its data consistent at each step.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A value with cache lines of its own: two, because the adjacent-line prefetcher fetches pairs.
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
