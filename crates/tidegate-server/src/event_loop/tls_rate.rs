//! Limits the number of TLS handshakes that the server begins in a second (`connection_rate_limit`), so that
//! many new clients do not keep it busy. The code is pure.

use std::time::Duration;

use tidegate::Time;

/// Counts the connections that begin TLS within one second, so that the loop can refuse those beyond the
/// limit.
#[derive(Debug, Default)]
pub(super) struct TlsRate {
    /// The end of the second in which `count` counts connections. The first connection after this time begins
    /// the next second.
    until: Time,
    count: u64,
}

impl TlsRate {
    /// Counts a connection that begins TLS. Returns whether the loop may begin the handshake: the connection
    /// is within the `limit` of this second, or `limit` is 0, which admits all.
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
