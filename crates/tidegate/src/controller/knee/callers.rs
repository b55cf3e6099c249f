//! Counts the callers that call again and again, from the counts of calls and answers, so that the controller
//! knows how many callers are about to return.

/// Counts the known callers, and the missing callers among them. The number of known callers is the greatest
/// number of calls that were open at once lately. The missing callers are those known callers that have no
/// open call now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Callers {
    /// The number of calls that arrived and have no answer yet (the open calls).
    open: u64,
    /// The greatest number of open calls in the current stretch of [`WINDOW`] batches, and in the previous
    /// stretch.
    most: [u64; 2],
    batches: u32,
    /// True if the driver reports answers. Without such reports the number of missing callers is unknown.
    told: bool,
    /// The share of answers at which all known callers had an open call, as a moving average. A high share
    /// shows a closed loop.
    all: f64,
    /// The number of callers at the time when the loop was found to be closed (the same callers call again
    /// and again); 0 while the loop is open. A far other number later opens the loop.
    same: u64,
}

/// The number of batches in a stretch. The count of known callers covers the current stretch and the previous
/// one, so a caller that has left is forgotten after at most two stretches.
const WINDOW: u32 = 8;
/// The number of answers over which the share of answers with all callers present averages.
const OFTEN: f64 = 32.0;
/// The share of answers with all callers present from which on the loop counts as closed. In an open loop the
/// greatest number of open calls hardly ever occurs a second time.
const SAME: f64 = 0.3;
/// The divisor in the largest change of a closed loop: if the number of callers changes by more than one in
/// 16, the loop no longer counts as closed.
const CHANGED: u64 = 16;
/// The least number of callers of a closed loop, because a lone caller is always present.
const FEW: u64 = 2;

impl Callers {
    pub(super) const fn arrived(&mut self, calls: u64) {
        self.open = self.open.saturating_add(calls);
    }

    pub(super) fn answered(&mut self, calls: u64) {
        self.told = true;
        // Before this call subtracts the answers, the open calls include all present callers: those of the
        // answered batch and those queued behind that batch.
        let most = self.most();
        let all = self.open == most && self.open >= FEW;
        self.all += (if all { 1.0 } else { 0.0 } - self.all) / OFTEN;
        if self.same == 0 && self.all > SAME {
            self.same = most;
        } else if most.abs_diff(self.same) > self.same / CHANGED {
            self.same = 0;
        }
        self.most[0] = self.most[0].max(self.open);
        self.open = self.open.saturating_sub(calls);
    }

    pub(super) const fn started(&mut self) {
        self.batches += 1;
        if self.batches == WINDOW {
            self.most = [self.open, self.most[0]];
            self.batches = 0;
        }
    }

    /// Returns the greatest number of calls that were open at once lately: the number of known callers.
    fn most(&self) -> u64 {
        self.most[0].max(self.most[1])
    }

    /// Returns the number of callers if the loop is closed, because the same callers call again and again,
    /// for the search for the concurrency; `None` if the loop is open.
    pub(super) fn same(&self) -> Option<u64> {
        (self.same > 0).then(|| self.most())
    }

    /// Returns the number of missing callers, which are about to call again; `None` where the driver reports
    /// no answers.
    pub(super) fn missing(&self) -> Option<u64> {
        self.told.then(|| self.most().saturating_sub(self.open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_known_and_forgotten() {
        let mut c = Callers::default();
        assert_eq!(c.missing(), None, "answers were never told");
        for _ in 0..3 {
            c.arrived(8);
            c.started();
            c.answered(8);
        }
        assert_eq!(c.missing(), Some(8), "all of them think");
        c.arrived(7);
        assert_eq!(c.missing(), Some(1));
        for _ in 0..2 * WINDOW {
            c.started();
            c.answered(7);
            c.arrived(7);
        }
        assert_eq!(c.missing(), Some(0), "one has left");
        c.arrived(u64::MAX);
        c.arrived(1);
        assert_eq!(c.missing(), Some(0), "more than can be counted");
    }

    #[test]
    fn callers_that_always_come_back_are_the_same() {
        let mut c = Callers::default();
        c.arrived(8);
        for _ in 0..2 * WINDOW {
            c.started();
            c.answered(4);
            c.arrived(4);
        }
        assert_eq!(c.same(), Some(8));
        // Now and then, one caller too few or one too many comes back. The loop still counts as closed.
        for i in 0..4 * WINDOW {
            c.started();
            c.answered(4);
            c.arrived([3, 5, 4][i as usize % 3]);
        }
        assert_eq!(c.same(), Some(8));
    }

    #[test]
    fn callers_of_an_open_loop_are_not_the_same() {
        let mut c = Callers::default();
        for i in 0..10_000_u64 {
            c.started();
            c.arrived((i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 80);
            c.answered((c.open / 4).max(1));
            assert_eq!(c.same(), None);
        }
    }
}
