//! Moments on a driver's clock, as plain numbers, so that decision code can be replayed.
//!
//! Decision code never reads a clock: its driver passes the current time as a [`Time`]. A [`Time`] is an
//! integer count of nanoseconds since an origin that the driver chose. A decision therefore depends only on
//! its inputs, and replays bit for bit. [`Clock`] is the one place where a driver reads real time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant};

/// A moment, in nanoseconds since the origin that the driver chose. Only differences between
/// moments of one driver are meaningful.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin of the driver's clock, from which its moments count.
    pub const ZERO: Self = Self(0);
    /// The latest moment. As a deadline it means "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the moment `ns` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the nanoseconds from `earlier` to `self`, or 0 if `earlier` is not before `self`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment `ns` nanoseconds later, or [`Time::NEVER`] if the count overflows.
    #[must_use]
    pub const fn after(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        self.after(nanos(d))
    }
}

impl Sub for Time {
    type Output = Duration;
    /// Returns the time from `earlier` to `self`, or zero if `earlier` is not before `self`.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.since(earlier))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => f.write_str("never"),
            Self(ns) => write!(f, "{ns}ns"),
        }
    }
}

/// Returns the duration `d` in whole nanoseconds. The count saturates at 584 years.
#[must_use]
pub fn nanos(d: Duration) -> u64 {
    d.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(d.subsec_nanos()))
}

/// A monotonic clock that gives a driver real time. Its origin is the moment of its creation.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts a clock that shows [`Time::ZERO`] now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the current moment. The call costs one reading of the platform's
    /// monotonic clock, some 20 to 40 ns.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_nanos(nanos(self.0.elapsed()))
    }

    /// Converts `at` into an instant of the standard library, so that a thread can park until that moment.
    /// Returns `None` for [`Time::NEVER`], and for a moment that an `Instant` cannot express.
    #[must_use]
    pub fn instant(&self, at: Time) -> Option<Instant> {
        // A timer that is set centuries ahead costs as much as any other timer, so the driver sets none for
        // `NEVER`.
        if at == Time::NEVER {
            return None;
        }
        self.0.checked_add(Duration::from_nanos(at.as_nanos()))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_no_instant() {
        let clock = Clock::start();
        assert_eq!(clock.instant(Time::NEVER), None);
        assert!(clock.instant(Time::from_nanos(5)).is_some());
    }

    #[test]
    fn arithmetic_saturates() {
        let t = Time::from_nanos(5);
        assert_eq!(t.since(Time::from_nanos(9)), 0);
        assert_eq!(Time::NEVER.after(1), Time::NEVER);
        assert_eq!(t + Duration::MAX, Time::NEVER);
        assert_eq!(Time::from_nanos(9) - t, Duration::from_nanos(4));
        assert_eq!(format!("{t:?} {:?}", Time::NEVER), "5ns never");
    }
}
