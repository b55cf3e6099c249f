//! The lock of a producer's buffer: a spin lock that yields, or loom's mutex in a build for loom.

#[cfg(loom)]
pub(super) use loomed::{Lock, Locked};
#[cfg(not(loom))]
pub(super) use spinning::{Lock, Locked};

/// The lock of a producer's buffer, as a spin lock. A thread holds it for a few dozen instructions, once a
/// batch. The lock costs half as much as a mutex, which needs a read-modify-write for its release, too.
/// Producer and consumer rarely want the lock at the same time; a thread that finds it held yields its core.
#[cfg(not(loom))]
mod spinning {
    use std::cell::UnsafeCell;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

    pub(crate) struct Lock<T> {
        held: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: only the thread that changed `held` to true (Acquire) reaches the value, until that thread
    // stores false (Release).
    unsafe impl<T: Send> Sync for Lock<T> {}

    pub(crate) struct Locked<'a, T>(&'a Lock<T>);

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self {
                held: AtomicBool::new(false),
                value: UnsafeCell::new(value),
            }
        }

        #[inline(always)]
        pub(crate) fn lock(&self) -> Locked<'_, T> {
            if self.held.swap(true, Acquire) {
                self.wait();
            }
            Locked(self)
        }

        #[cold]
        fn wait(&self) {
            loop {
                for _ in 0..16 {
                    std::hint::spin_loop();
                    if !self.held.load(Relaxed) && !self.held.swap(true, Acquire) {
                        return;
                    }
                }
                std::thread::yield_now();
            }
        }
    }

    impl<T> Deref for Locked<'_, T> {
        type Target = T;
        #[inline(always)]
        fn deref(&self) -> &T {
            // SAFETY: this guard holds the lock, so no other thread reaches the value.
            unsafe { &*self.0.value.get() }
        }
    }

    impl<T> DerefMut for Locked<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: this guard holds the lock, so no other thread reaches the value. The caller has
            // borrowed the guard mutably, so no other reference to the value exists.
            unsafe { &mut *self.0.value.get() }
        }
    }

    impl<T> Drop for Locked<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            self.0.held.store(false, Release);
        }
    }
}

/// The lock of a producer's buffer in a build for loom. It is loom's own mutex, because loom understands
/// how a thread waits for it.
#[cfg(loom)]
mod loomed {
    pub(crate) type Locked<'a, T> = loom::sync::MutexGuard<'a, T>;

    pub(crate) struct Lock<T>(loom::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Locked<'_, T> {
            crate::queue::sync::lock(&self.0)
        }
    }
}
