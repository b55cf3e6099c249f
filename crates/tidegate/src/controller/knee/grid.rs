//! The grid of sizes that limits take, so that a limit does not follow each change of the costs: the numbers
//! 2^e and 1.5·2^e.

/// The ratios of target to limit between which a limit stays as it is, so that noise does not move it: about
/// a third lower and a third higher, e^-0.29 and e^0.29. Both are constants because `ln` differs by platform.
const STAY: (f64, f64) = (0.748_263_567_578_565_2, 1.336_427_488_025_472);

/// Returns `limit` while the target is within a third of the limit; otherwise the grid size [`nearest`] to
/// the target.
#[inline]
pub(super) fn nearest_kept(target: f64, limit: f64) -> f64 {
    let ratio = target.max(1.0) / limit;
    if ratio > STAY.0 && ratio < STAY.1 {
        limit
    } else {
        nearest(target)
    }
}

/// Returns the nearest size of the grid {2^e, 1.5·2^e}, by ratio. The border between two grid sizes is
/// their geometric mean.
#[inline]
pub(super) fn nearest(target: f64) -> f64 {
    let x = target.clamp(1.0, (1u64 << 62) as f64);
    let low = (1u64 << (x as u64).ilog2()) as f64;
    let (mid, high) = (low * 1.5, low * 2.0);
    if x * x < low * mid {
        low
    } else if x * x < mid * high {
        mid
    } else {
        high
    }
}
