//! Gives entries and consumers the wall-clock time: the time that this module returns never goes back and
//! never stands still.
//!
//! If an operator sets the wall clock forward, the returned time follows at once. If an operator sets the
//! wall clock back, or if the wall clock is behind the time in the log, the returned time runs at seven
//! eighths of the normal pace until the two agree. So no consumer has to wait until the wall clock has caught
//! up.

use tidegate::Time;

/// While the returned time is ahead of the wall clock, [`WallTime`] slows it by one microsecond in this
/// number of microseconds, until the two agree, so that no consumer's timer stands still.
const SLOWING: u64 = 8;

/// Keeps the wall-clock time for entries and consumers, in microseconds since the Unix epoch, derived from
/// the event loop's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WallTime {
    /// The wall-clock time at which the event loop's clock shows zero, in microseconds since the Unix epoch.
    /// The returned time is this time plus the time on the event loop's clock.
    origin_us: u64,
    /// The time at which the node last compared `origin_us` with the wall clock, from which it computes how
    /// far the returned time may slow down.
    compared: Time,
    /// The latest time that [`WallTime::tell`] returned, in microseconds since the Unix epoch. No later
    /// returned time is earlier.
    told_us: u64,
}

impl WallTime {
    /// Makes sure that no returned time from `now` on is before `us`, because earlier entries carry times up
    /// to `us`.
    pub(super) fn not_before(&mut self, now: Time, us: u64) {
        self.told_us = self.told_us.max(us);
        let passed_us = now.as_nanos() / 1000;
        self.origin_us = self.origin_us.max(us.saturating_sub(passed_us));
    }

    /// Records that the wall clock shows `us` at `now`. The node repeats this call, because operators and
    /// time daemons set wall clocks.
    pub(super) fn set(&mut self, now: Time, us: u64) {
        let origin_us = us.saturating_sub(now.as_nanos() / 1000);
        let passed_us = now.since(self.compared) / 1000;
        let slowed_us = self.origin_us.saturating_sub(passed_us / SLOWING);
        self.origin_us = origin_us.max(slowed_us);
        // If the period was too short for one microsecond of slowing, `compared` stays, so that the period
        // counts together with the next one.
        if origin_us >= slowed_us || passed_us >= SLOWING {
            self.compared = now;
        }
    }

    /// Returns the wall-clock time at `now`, in microseconds since the Unix epoch. No returned time is before
    /// an earlier returned time.
    pub(super) fn tell(&mut self, now: Time) -> u64 {
        self.told_us = self.told_us.max(self.peek(now));
        self.told_us
    }

    /// Returns the wall-clock time at `now`, in microseconds since the Unix epoch, for a comparison only.
    /// Does not record the time as returned, so that [`WallTime::tell`] may later return an earlier time.
    pub(super) const fn peek(&self, now: Time) -> u64 {
        self.origin_us + now.as_nanos() / 1000
    }

    /// Returns the time on the event loop's clock, for a timer, at which the wall-clock time reaches `us`, or
    /// zero if the wall-clock time reached `us` before the clock's start.
    pub(super) const fn when(&self, us: u64) -> Time {
        Time::from_nanos(us.saturating_sub(self.origin_us).saturating_mul(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1000)
    }

    #[test]
    fn it_follows_forward_at_once() {
        let mut wall = WallTime::default();
        wall.not_before(at(10), 1005);
        wall.set(at(10), 1010);
        assert_eq!((wall.tell(at(12)), wall.when(1020)), (1012, at(20)));
        wall.set(at(20), 9020);
        assert_eq!((wall.tell(at(21)), wall.when(3)), (9021, Time::ZERO));
    }

    /// An operator sets the wall clock back by ten seconds, or the wall clock starts that far behind the log.
    /// The returned time goes on without a pause, and agrees with the wall clock in the end.
    #[test]
    fn it_never_goes_back_and_never_stands_still() {
        for restarted in [false, true] {
            let (start, back) = (100 * SECOND, 10 * SECOND);
            let mut wall = WallTime::default();
            if restarted {
                wall.not_before(Time::ZERO, start);
            } else {
                wall.set(Time::ZERO, start);
            }
            let mut before = wall.tell(Time::ZERO);
            let mut agreed = None;
            // The test compares the clocks about every 30 ms, at intervals that differ a little, as the event
            // loop does.
            let mut now = 0;
            while now < 90 * SECOND {
                now += 30_000 + now % 7;
                let shown = start - back + now;
                wall.set(at(now), shown);
                let told = wall.tell(at(now));
                let pace = (told - before) * 100 / 30_000;
                assert!((87..=101).contains(&pace), "{pace} per cent at {now}");
                assert!(told >= shown);
                if told == shown {
                    agreed.get_or_insert(now);
                }
                before = told;
            }
            let agreed = agreed.expect("they agree");
            assert!((79 * SECOND..82 * SECOND).contains(&agreed), "{agreed}");
        }
    }

    #[test]
    fn looks_too_close_to_count_add_up() {
        let mut wall = WallTime::default();
        wall.set(Time::ZERO, 1000 * SECOND);
        for us in 1..=1_000_000 {
            wall.set(at(us), 900 * SECOND + us);
        }
        let ahead = wall.peek(at(SECOND)) - 900 * SECOND - SECOND;
        assert_eq!(ahead, 100 * SECOND - SECOND / SLOWING);
    }
}
