//! The bound on new TLS connections a second (`connection_rate_limit`). Pure.

use std::time::Duration;

use tidegate::Time;

/// The connections of the current second.
#[derive(Debug, Default)]
pub(super) struct TlsRate {
    /// The end of the second, which begins with the first connection after the one before.
    until: Time,
    count: u64,
}

impl TlsRate {
    /// Counts a connection. Returns whether the server may go on with it, by this limit; 0 is no limit.
    pub(super) fn admits(&mut self, now: Time, limit: u64) -> bool {
        if now >= self.until {
            *self = Self {
                until: now + Duration::from_secs(1),
                count: 0,
            };
        }
        self.count += 1;
        limit == 0 || self.count <= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_each_second() {
        let mut rate = TlsRate::default();
        let mut now = Time::from_nanos(5);
        for _ in 0..3 {
            let admitted = (0..10).filter(|_| rate.admits(now, 4));
            assert_eq!(admitted.count(), 4);
            now = now + Duration::from_secs(1);
        }
        assert!((0..1000).all(|_| rate.admits(now, 0)));
    }
}
