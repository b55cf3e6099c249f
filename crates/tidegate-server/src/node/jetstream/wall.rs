//! The time entries carry: wall-clock time that never goes back.

use tidegate::Time;

/// Microseconds since the Unix epoch, told from the loop's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wall {
    /// Wall-clock time when the loop's clock stood at zero.
    origin_us: u64,
    /// The latest time that was told.
    told_us: u64,
}

impl Wall {
    /// It is `us` now: told anew from time to time, because wall clocks are set.
    pub(super) const fn set(&mut self, now: Time, us: u64) {
        self.origin_us = us.saturating_sub(now.as_nanos() / 1000);
    }

    /// Entries of before carry times up to this one.
    pub(super) fn not_before(&mut self, us: u64) {
        self.told_us = self.told_us.max(us);
    }

    /// The time at `now`: at least what was told before.
    pub(super) fn tell(&mut self, now: Time) -> u64 {
        self.told_us = self.told_us.max(self.peek(now));
        self.told_us
    }

    /// The same, for whoever only looks.
    pub(super) const fn peek(&self, now: Time) -> u64 {
        self.origin_us + now.as_nanos() / 1000
    }

    /// When the wall clock shows `us`, on the loop's clock; at zero if that was before it.
    pub(super) const fn when(&self, us: u64) -> Time {
        Time::from_nanos(us.saturating_sub(self.origin_us).saturating_mul(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let at = |us: u64| Time::from_nanos(us * 1000);
        let mut wall = Wall::default();
        wall.set(at(10), 1010);
        wall.not_before(1005);
        assert_eq!((wall.tell(at(12)), wall.peek(at(12))), (1012, 1012));
        assert_eq!(wall.when(1020), at(20));
        wall.set(at(20), 500);
        assert_eq!((wall.tell(at(21)), wall.peek(at(21))), (1012, 501));
        assert_eq!(wall.when(3), Time::ZERO);
    }
}
