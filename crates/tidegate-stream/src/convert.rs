//! Converts the numbers that clients and operators set, which may be negative or huge. No conversion panics:
//! a number out of range becomes the nearest number that fits, or `None`. The numbers that the program itself
//! computes always fit; the code that converts such a number asserts that.

/// Returns the number of a configuration or a request as unsigned; a negative number becomes 0, because
/// clients mean by it that they set nothing.
pub(crate) fn or_zero(n: i64) -> u64 {
    n.max(0).unsigned_abs()
}

/// Returns the limit of a configuration if it is positive. 0 and negative numbers become `None`, because in a
/// configuration they mean that no limit applies.
pub(crate) fn positive(n: i64) -> Option<u64> {
    Some(or_zero(n)).filter(|n| *n > 0)
}

/// Converts `n` to a `u64`; a number that does not fit becomes `u64::MAX`, because the caller needs only a
/// bound.
pub(crate) fn saturating_u64(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Converts `n` to a `u32`; a number that does not fit becomes `u32::MAX`, because the caller needs only a
/// bound.
pub(crate) fn saturating_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Converts `n` to a `u16`; a number that does not fit becomes `u16::MAX`, because the caller needs only a
/// bound.
pub(crate) fn saturating_u16(n: u64) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// Converts `n` to a `usize`; a number that does not fit becomes `usize::MAX`, because the caller needs only
/// a bound.
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
