//! Decides how many zeros the writer writes ahead of the log's end.
//!
//! The space of a new segment is reserved and not yet written. On most file systems, the first sync of such
//! a page must also record that the page is now in use, which takes nearly as long as the sync of the bytes.
//! So a write that enters new pages also writes zeros behind them, and the next writes find pages in use.
//! PostgreSQL writes zeros to its new log files for the same reason (`wal_init_zero`).

use std::io::IoSlice;

use crate::segment::PAGE;

/// The bytes of zeros that a write adds. They delay one publish in 450 of a lone caller with 1 KiB. Among
/// lengths from 256 KiB to 2 MiB, this length served a hundred callers best, and ten nearly as well as 1 MiB
/// (`tidegate-bench callers`).
const AHEAD: u64 = 512 << 10;
/// The length of a write in bytes from which on the writer adds no zeros. Such a write enters many new pages
/// with one record, so zeros would cost more than they spare.
const WRITE_MAX: u64 = 128 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The part of a segment's file that is in use, from the front on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// The offset in the file behind the last byte that was written, zeros included.
    to: u64,
}

impl Used {
    /// Returns the state of a file that was never written to.
    pub(crate) const fn nothing() -> Self {
        Self { to: 0 }
    }

    /// Returns the state of a file that may be in use as a whole: the file of a released segment, or a file
    /// to which an earlier run of the log has written. The writer adds no zeros there.
    pub(crate) const fn all() -> Self {
        Self { to: u64::MAX }
    }

    /// Takes a write from offset `from` up to `to`, the end of a page, and returns the zeros that the same
    /// write should add, in bytes. They end at `reserved` at the latest, because behind it the file system
    /// may lack space.
    pub(crate) fn enter(&mut self, from: u64, to: u64, reserved: u64) -> u64 {
        if to <= self.to {
            return 0;
        }
        let short = to - from < WRITE_MAX;
        let ahead = (to + AHEAD).min(reserved / PAGE * PAGE);
        self.to = if short { ahead.max(to) } else { to };
        self.to - to
    }
}

/// Appends slices with `bytes` zeros, for a vectored write.
pub(crate) fn push_zeros(parts: &mut Vec<IoSlice<'_>>, bytes: u64) {
    let mut left = bytes as usize;
    while left > 0 {
        let n = left.min(ZEROS.len());
        parts.push(IoSlice::new(&ZEROS[..n]));
        left -= n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_write_to_new_pages_brings_zeros_for_the_next_writes() {
        let mut used = Used::nothing();
        assert_eq!(used.enter(0, 8192, 4 << 20), AHEAD);
        assert_eq!(used.enter(4096, 8192 + AHEAD, 4 << 20), 0);
        assert_eq!(used.enter(AHEAD, 12288 + AHEAD, 4 << 20), AHEAD);
    }

    #[test]
    fn zeros_end_with_the_reserved_part() {
        let mut used = Used::nothing();
        assert_eq!(used.enter(0, 8192, 16384 + 100), 8192);
        assert_eq!(used.enter(8192, 16384, 16384), 0);
        assert_eq!(used.enter(16384, 20480, 16384), 0);
    }

    #[test]
    fn a_long_write_and_a_used_file_need_no_zeros() {
        let mut used = Used::nothing();
        assert_eq!(used.enter(0, WRITE_MAX, 4 << 20), 0);
        assert_eq!(used.enter(0, 4096, 4 << 20), 0);
        assert_eq!(Used::all().enter(0, 8192, 4 << 20), 0);
    }

    #[test]
    fn the_slices_have_the_wanted_zeros() {
        let mut parts = Vec::new();
        push_zeros(&mut parts, AHEAD - 4096);
        assert_eq!(
            parts.iter().map(|p| p.len() as u64).sum::<u64>(),
            AHEAD - 4096
        );
    }
}
