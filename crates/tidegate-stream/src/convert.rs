//! Conversions of numbers that clients and operators set, which may be negative or huge. Each conversion
//! returns a value, and none panics. A number of the program itself always fits; the code that converts such
//! a number asserts that.

/// Returns the number, or 0 for a negative one.
pub(crate) fn or_zero(n: i64) -> u64 {
    n.max(0).unsigned_abs()
}

/// Returns the number if it is positive; in a configuration, any other number stands for no limit.
pub(crate) fn positive(n: i64) -> Option<u64> {
    Some(or_zero(n)).filter(|n| *n > 0)
}

/// Returns the number, or the highest number of the type if `n` does not fit.
pub(crate) fn saturating_u64(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Returns the number, or the highest number of the type if `n` does not fit.
pub(crate) fn saturating_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Returns the number, or the highest number of the type if `n` does not fit.
pub(crate) fn saturating_u16(n: u64) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// Returns the number, or the highest number of the type if `n` does not fit.
pub(crate) fn saturating_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_end_at_its_ends() {
        assert_eq!([-1, 0, 7].map(or_zero), [0, 0, 7]);
        assert_eq!([i64::MIN, i64::MAX].map(or_zero), [0, i64::MAX as u64]);
        assert_eq!([-1, 0, 7].map(positive), [None, None, Some(7)]);
        assert_eq!([7, u128::MAX].map(saturating_u64), [7, u64::MAX]);
        assert_eq!([7, u64::MAX].map(saturating_u32), [7, u32::MAX]);
        assert_eq!([7, u64::MAX].map(saturating_u16), [7, u16::MAX]);
        assert_eq!(saturating_usize(7), 7);
    }
}
