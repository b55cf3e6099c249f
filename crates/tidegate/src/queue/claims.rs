//! Estimates the cost of an expensive claim, the step in which a producer reserves room in the ring for a
//! number of items. For each number of items, the estimate is the cost that nine claims in ten stay below.
//!
//! The time of one claim says little. The cache lines of the ring are near the producer's core for a while,
//! and then far from it for a while. Such a phase may be as short as a time slice or as long as minutes. Now
//! and then the scheduler interrupts a claim in the middle. A limit that suits expensive claims is larger
//! than cheap claims need and does no harm to them, since an idle consumer fetches the items of a buffer; a
//! limit that suits cheap claims is too small for expensive ones. So the controller receives the cost that
//! nine claims in ten stay below. If far cache lines make at least a tenth of the claims expensive, this is
//! the cost of such a claim. An interrupted claim counts as one claim, however long it took.
//!
//! For a few numbers of items, the module keeps a histogram of costs with buckets of a quarter octave. It
//! halves the counts now and then, so that recent claims weigh more. The module allocates no memory.

/// The number of claim sizes (items in a claim) that the module remembers. A controller uses few sizes at a
/// time: the limit in force, a quarter of it, half as much again, and the limits before the last change.
const SIZES: usize = 8;
/// The number of buckets of a histogram of costs. Each bucket is a quarter octave wide, and all of them reach
/// from 16 ns to 64 us. The first and the last bucket also count the costs beyond them.
const SLOTS: usize = 48;
/// The exponent of the octave with the lowest costs that the histogram distinguishes: 2^4 ns = 16 ns.
const LOWEST: u32 = 4;
/// The number of claims after which the histogram of one size halves its counts, so that it follows a change
/// of the costs. It remembers at least half as many claims, about a minute of a busy producer's claims.
const CLAIMS: u32 = 1 << 18;

/// The costs of a producer's claims by size, from which it estimates the cost of an expensive claim; for at
/// most 8 sizes.
#[derive(Default)]
pub(super) struct Claims {
    sizes: [Size; SIZES],
    clock: u64,
}

struct Size {
    items: u64,
    /// The number of the latest claim of this size, counted over all claims of the producer. A claim of a
    /// ninth size takes the place of the size that was used the longest time ago, the one with the lowest
    /// `last`.
    last: u64,
    claims: u32,
    slots: [u32; SLOTS],
}

impl Default for Size {
    fn default() -> Self {
        Self {
            items: 0,
            last: 0,
            claims: 0,
            slots: [0; SLOTS],
        }
    }
}

impl Claims {
    /// Counts a claim of `items` items that took `ns` nanoseconds. Returns the cost of an expensive claim
    /// of that size, in nanoseconds.
    pub(super) fn took(&mut self, items: u64, ns: u64) -> u64 {
        self.clock += 1;
        let at = match self.sizes.iter().position(|size| size.items == items) {
            Some(at) => at,
            None => self.oldest(),
        };
        let size = &mut self.sizes[at];
        if size.items != items {
            *size = Size {
                items,
                ..Size::default()
            };
        }
        size.last = self.clock;
        size.add(ns);
        size.dear()
    }

    fn oldest(&self) -> usize {
        let ages = self.sizes.iter().enumerate();
        ages.min_by_key(|(_, size)| size.last)
            .map_or(0, |(at, _)| at)
    }
}

impl Size {
    fn add(&mut self, ns: u64) {
        if self.claims == CLAIMS {
            self.slots.iter_mut().for_each(|count| *count /= 2);
            self.claims = self.slots.iter().sum();
        }
        self.slots[slot(ns)] += 1;
        self.claims += 1;
    }

    /// Returns the cost, in nanoseconds, that nine claims in ten stay below. Assumes that the claims counted
    /// in one bucket are spread evenly over the bucket.
    fn dear(&self) -> u64 {
        let mut above = f64::from(self.claims) / 10.0;
        for (at, &count) in self.slots.iter().enumerate().rev() {
            let count = f64::from(count);
            if count > above {
                let (low, width) = bounds(at);
                return (low + width * (1.0 - above / count)) as u64;
            }
            above -= count;
        }
        0
    }
}

/// Returns the bucket of the histogram that counts a cost of `ns` nanoseconds.
fn slot(ns: u64) -> usize {
    let ns = ns.max(1 << LOWEST);
    let octave = ns.ilog2();
    let quarter = (ns >> (octave - 2)) as usize & 3;
    (4 * (octave - LOWEST) as usize + quarter).min(SLOTS - 1)
}

/// Returns the lower end of a bucket and its width, both in nanoseconds, to interpolate within the bucket.
fn bounds(slot: usize) -> (f64, f64) {
    let quarter = f64::from(1u32 << (LOWEST - 2 + slot as u32 / 4));
    (quarter * (4 + slot % 4) as f64, quarter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_each_other_without_gaps() {
        let mut end = f64::from(1u32 << LOWEST);
        for at in 0..SLOTS {
            let (low, width) = bounds(at);
            assert_eq!(low, end);
            end = low + width;
            assert_eq!((slot(low as u64), slot(end as u64 - 1)), (at, at));
        }
        assert_eq!((slot(0), slot(u64::MAX)), (0, SLOTS - 1));
    }

    #[test]
    fn dear_is_what_nine_in_ten_stay_below() {
        let mut claims = Claims::default();
        let mut dear = 0;
        for ns in (100..1100).cycle().take(10_000) {
            dear = claims.took(64, ns);
        }
        assert!((980..=1020).contains(&dear), "{dear}");
        // The scheduler interrupts one claim in a hundred for a very long time, and the estimate hardly
        // changes.
        for i in 0..10_000u64 {
            let interrupted = i.is_multiple_of(100);
            let ns = if interrupted { 1 << 40 } else { 100 + i % 1000 };
            dear = claims.took(64, ns);
        }
        assert!((980..=1040).contains(&dear), "{dear}");
    }

    #[test]
    fn old_claims_fade() {
        let mut claims = Claims::default();
        for _ in 0..CLAIMS {
            claims.took(64, 1000);
        }
        let mut takes = 0;
        while claims.took(64, 100) > 200 {
            takes += 1;
        }
        // The estimate follows once nine of ten remembered claims have the new cost. The histogram halves the
        // counts of the old claims once in `CLAIMS` claims.
        assert!((CLAIMS..4 * CLAIMS).contains(&takes), "{takes}");
    }

    #[test]
    fn the_size_not_seen_for_longest_gives_place() {
        let mut claims = Claims::default();
        for items in 1..=SIZES as u64 {
            claims.took(items, 1000);
        }
        claims.took(1, 1000);
        // The new size of 100 items takes the place of the size of 2 items. The size of 1 item stays.
        claims.took(100, 1000);
        assert!(claims.sizes.iter().any(|size| size.items == 1));
        assert!(claims.sizes.iter().all(|size| size.items != 2));
    }
}
