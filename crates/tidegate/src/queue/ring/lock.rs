//! The lock of a buffer.

#[cfg(loom)]
pub(super) use loomed::{Lock, Locked};
#[cfg(not(loom))]
pub(super) use spinning::{Lock, Locked};

/// A lock for a few dozen instructions, taken once a batch. It costs half as much as a mutex, which needs a
/// read-modify-write for its release, too. Producer and consumer rarely want the lock at the same time; a
/// thread that finds it held yields.
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

    // SAFETY: only the thread that changed `held` to true (Acquire) reaches the value,
    // until it stores false (Release).
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
            // SAFETY: this guard holds the lock.
            unsafe { &*self.0.value.get() }
        }
    }

    impl<T> DerefMut for Locked<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: this guard holds the lock, and is borrowed mutably.
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

/// loom's own lock, because loom understands how it waits.
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
