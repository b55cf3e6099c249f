//! Moments on a driver's clock.
//!
//! Deciding code never reads a clock: whoever drives it says what time it is. [`Time`] is that statement, an
//! integer count of nanoseconds since an origin the driver chose, so that a decision depends on nothing but
//! its inputs and replays bit for bit. [`Clock`] is the one place where a driver reads real time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant};

/// A moment: nanoseconds since the origin the driver chose. Only differences between moments of one driver
/// mean anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The driver's origin.
    pub const ZERO: Self = Self(0);
    /// Later than anything that will happen: "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `ns` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`, 0 if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `ns` nanoseconds later, [`Time::NEVER`] if that cannot be expressed.
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
    /// Zero if `earlier` is not earlier.
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

/// `d` in whole nanoseconds, saturating: 584 years is for ever.
#[must_use]
pub fn nanos(d: Duration) -> u64 {
    d.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(d.subsec_nanos()))
}

/// Real time for drivers: monotonic, with its origin at its creation.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that shows [`Time::ZERO`] now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The moment it is now. Costs what the platform's monotonic clock costs, some 20 to 40 ns.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_nanos(nanos(self.0.elapsed()))
    }

    /// `at` as the standard library's instant, for parking until then; `None` for [`Time::NEVER`], and for a
    /// moment that cannot be expressed.
    #[must_use]
    pub fn instant(&self, at: Time) -> Option<Instant> {
        // A timer set to a moment in centuries costs as much as any other.
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
