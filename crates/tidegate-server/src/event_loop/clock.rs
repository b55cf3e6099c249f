//! Reads the clocks of the event loop: the monotonic clock, the wall clock, and the CPU clock of the loop's
//! thread.
//!
//! On a simulated machine all three show the virtual time, which the works of the loop advance. The product
//! has no simulated machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate::{Clock, Time};

/// The monotonic clock by which the event loop measures time.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopClock(Clock);

impl LoopClock {
    /// Starts the clock when the loop starts, at zero or at the virtual time of the simulated machine.
    pub(super) fn start() -> Self {
        Self(Clock::start())
    }

    /// Returns the time since the clock's start, or the virtual time of the simulated machine.
    #[inline]
    pub(super) fn now(&self) -> Time {
        #[cfg(feature = "sim")]
        if let Some(now) = crate::simulated::now() {
            return now;
        }
        self.0.now()
    }
}

/// Returns the wall-clock time of the machine, for the streams, in microseconds since the Unix epoch.
pub(super) fn wall_clock_us() -> u64 {
    #[cfg(feature = "sim")]
    if let Some(us) = crate::simulated::wall_clock_us() {
        return us;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

/// Returns the CPU time that the calling thread has used so far, by which the loop measures its turns.
pub(super) fn cpu_time() -> Duration {
    #[cfg(feature = "sim")]
    if let Some(now) = crate::simulated::now() {
        return Duration::from_nanos(now.as_nanos());
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The casts lose nothing, because a thread's CPU clock begins at 0.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
