//! Decides how much disk space the log reserves for each of its segments, as a pure function of the log's
//! end. A new log reserves little, so that an empty log takes little of the disk. The reservation doubles
//! while the log grows, up to the whole length of a segment. From then on every segment is reserved whole
//! before the log writes to it.
//!
//! If the disk has no space for the next step, the log is *short*: it goes on with segments of the present
//! step, and releases give it their space back.
//!
//! A segment's file has its whole length from the beginning. Only the reservation grows, so the bytes of a
//! file do not depend on the steps.

use crate::Lsn;
use crate::segment::{FIRST_BATCH, PAGE};

/// The steps of the reservation, from the first one up to the whole length of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    first_bytes: u64,
    segment_bytes: u64,
}

impl Growth {
    /// Returns the steps from `first_bytes` up to `segment_bytes`, both whole pages.
    pub(crate) fn new(first_bytes: u64, segment_bytes: u64) -> Self {
        Self {
            first_bytes: first_bytes.min(segment_bytes),
            segment_bytes,
        }
    }

    /// Returns the bytes to reserve for each segment of a log that ends at position `end`: at least twice the
    /// bytes up to there, so that the keeper has time for the next step before the log needs it.
    pub(crate) fn at(self, end: Lsn) -> u64 {
        let least = end.get().saturating_add(FIRST_BATCH).saturating_mul(2);
        let mut bytes = self.first_bytes;
        while bytes < least.min(self.segment_bytes) {
            bytes = self.after(bytes);
        }
        bytes
    }

    /// Returns the step after a reservation of `bytes` bytes, for a caller that needs more room than the
    /// log's end calls for.
    pub(crate) fn after(self, bytes: u64) -> u64 {
        (2 * bytes).next_multiple_of(PAGE).min(self.segment_bytes)
    }

    /// Returns the step before a reservation of `bytes` bytes, at least the first one, for an opening on a
    /// disk without space for a segment of that length.
    pub(crate) fn before(self, bytes: u64) -> u64 {
        (bytes / 2).next_multiple_of(PAGE).max(self.first_bytes)
    }

    /// Returns whether a short log can go on with segments of which `bytes` bytes are reserved. If not, the
    /// disk counts as full.
    pub(crate) const fn suffices(self, bytes: u64) -> bool {
        bytes >= self.first_bytes
    }

    /// Returns whether a reservation of `bytes` bytes is the last step: a whole segment.
    pub(crate) const fn is_whole(self, bytes: u64) -> bool {
        bytes >= self.segment_bytes
    }

    /// Returns whether the steps suit a segment of `bytes` bytes, which an earlier run may have created with
    /// another length.
    pub(crate) const fn suits(self, bytes: u64) -> bool {
        bytes == self.segment_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reservation_doubles_with_the_log_up_to_a_whole_segment() {
        let growth = Growth::new(1 << 20, 48 << 20);
        let at = |end: u64| growth.at(Lsn::new(end)) >> 20;
        assert_eq!([at(0), at(500 << 10), at(520 << 10)], [1, 1, 2]);
        assert_eq!([at(3 << 20), at(9 << 20), at(17 << 20)], [8, 32, 48]);
        assert_eq!(at(u64::MAX), 48);
        assert_eq!(growth.after(32 << 20), 48 << 20);
        assert!(growth.is_whole(48 << 20) && !growth.is_whole(32 << 20));
        assert_eq!(
            [growth.before(32 << 20), growth.before(1 << 20)],
            [16 << 20, 1 << 20]
        );
        assert!(growth.suffices(1 << 20) && !growth.suffices((1 << 20) - PAGE));
    }

    #[test]
    fn a_short_segment_is_whole_from_the_beginning() {
        let growth = Growth::new(1 << 20, 64 << 10);
        assert_eq!(growth.at(Lsn::ZERO), 64 << 10);
        assert!(growth.is_whole(growth.at(Lsn::ZERO)));
    }
}
