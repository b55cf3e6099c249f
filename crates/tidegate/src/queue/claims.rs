//! The cost of an expensive claim, by the number of items claimed. The module remembers the upper decile of
//! the costs of each number for long.
//!
//! The time of one claim says little. The ring's cache lines are near or far in turns, as short as a time
//! slice and as long as minutes, and now and then the scheduler interrupts a claim in the middle. A limit
//! that suits expensive claims is larger than cheap claims need and does no harm there, since an idle
//! consumer fetches the items of a buffer; a limit that suits cheap claims is too small for expensive ones.
//! So the controller receives the cost that nine claims in ten stay below. Where a tenth of the claims or
//! more are far, that is the cost of a far claim, at any share; and an interrupted claim counts as one claim,
//! however long it took.
//!
//! The module keeps a few numbers of items, each with a histogram of quarter octaves, and halves the counts
//! now and then. It allocates nothing.

/// The number of sizes that the module remembers: the limit in force, a quarter of it, half as much again,
/// and the limits before the last change.
const SIZES: usize = 8;
/// The number of slots, of a quarter octave each, from 16 ns to 64 us; the first and the last slot also count
/// the costs beyond them.
const SLOTS: usize = 48;
/// The octave in which the first slot lies.
const LOWEST: u32 = 4;
/// The number of claims of one size that the histogram remembers: at least half as many, about a minute of a
/// busy producer's claims.
const CLAIMS: u32 = 1 << 18;

/// The expensive claims of each size.
#[derive(Default)]
pub(super) struct Claims {
    sizes: [Size; SIZES],
    clock: u64,
}

struct Size {
    items: u64,
    /// The number of the last claim of this size.
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
    /// Counts a claim of `items` that took `ns`. Returns the cost of an expensive claim of that size.
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

    /// Returns the cost that nine claims in ten stay below, as if the claims of a slot were spread evenly
    /// over the slot.
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

/// Returns the slot that counts a cost.
fn slot(ns: u64) -> usize {
    let ns = ns.max(1 << LOWEST);
    let octave = ns.ilog2();
    let quarter = (ns >> (octave - 2)) as usize & 3;
    (4 * (octave - LOWEST) as usize + quarter).min(SLOTS - 1)
}

/// Returns the lower end of a slot and its width.
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
        // One in a hundred interrupted, however long: next to nothing.
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
        // Nine in ten of the new kind, with the old ones halved once in CLAIMS.
        assert!((CLAIMS..4 * CLAIMS).contains(&takes), "{takes}");
    }

    #[test]
    fn the_size_not_seen_for_longest_gives_place() {
        let mut claims = Claims::default();
        for items in 1..=SIZES as u64 {
            claims.took(items, 1000);
        }
        claims.took(1, 1000);
        // In place of 2; 1 is still known.
        claims.took(100, 1000);
        assert!(claims.sizes.iter().any(|size| size.items == 1));
        assert!(claims.sizes.iter().all(|size| size.items != 2));
    }
}
