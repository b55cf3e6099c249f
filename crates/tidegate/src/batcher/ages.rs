//! Estimates the age of the oldest entry that waits in an actor's queue or stash, by which the actor keeps
//! the bound on the age of items.

use std::collections::VecDeque;

use crate::Time;

/// Estimates the age of the oldest waiting entry from marks among the entries. Producers set at most one
/// mark a batch, because each mark costs a reading of the clock.
#[derive(Default)]
pub(super) struct Ages {
    /// Marks that tell the ages of entries, each with a position in the sequence of entries and a time: the
    /// entries from this position on arrived at this time or later.
    marks: VecDeque<(u64, Time)>,
    /// The time of the last mark that left the queue. No waiting entry arrived before this time.
    pub(super) passed: Time,
    /// True if the queue was empty after the last mark left it. The time of that mark then says nothing
    /// about later entries.
    empty: bool,
    /// The position, in the sequence of all entries, from which the next mark of a producer counts.
    next: u64,
    /// The number of entries that left the queue. The actor's stash holds `stashed` of these entries, which
    /// still wait.
    pub(super) popped: u64,
    pub(super) stashed: u64,
}

impl Ages {
    /// Records a mark that a producer set at time `at`, and places the next mark behind the `backlog`
    /// waiting entries.
    pub(super) fn mark(&mut self, at: Option<Time>, backlog: u64) {
        if let Some(at) = at {
            if self.marks.len() < 64 {
                self.marks.push_back((self.next, at));
            }
            self.next = self.head() + backlog;
        }
    }

    /// Returns the earliest time at which the oldest of the `backlog` waiting entries can have arrived.
    pub(super) fn oldest(&mut self, now: Time, backlog: u64) -> Time {
        if backlog == 0 {
            self.empty = true;
            return now;
        }
        let head = self.head();
        while let Some(&(position, at)) = self.marks.front()
            && position <= head
        {
            self.passed = at.min(now);
            self.empty = false;
            self.marks.pop_front();
        }
        if std::mem::take(&mut self.empty) {
            // The queue was empty at the last call, so all waiting entries arrived since then. The oldest of
            // them has no mark of its own yet, so it counts as new.
            self.passed = now;
        }
        self.passed
    }

    fn head(&self) -> u64 {
        self.popped - self.stashed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn ages_follow_the_marks() {
        let mut ages = Ages::default();
        assert_eq!(ages.oldest(at(10), 0), at(10));
        ages.mark(Some(at(12)), 5);
        assert_eq!(ages.oldest(at(20), 5), at(12));
        // Three of the five entries leave the queue; the next mark lies behind all five.
        ages.popped = 3;
        ages.mark(Some(at(25)), 4);
        assert_eq!(ages.oldest(at(30), 4), at(12));
        ages.popped = 5;
        assert_eq!(ages.oldest(at(31), 2), at(25));
        ages.popped = 7;
        assert_eq!(ages.oldest(at(40), 0), at(40));
        // Items without a mark of their own are younger than the previous mark.
        assert_eq!(ages.oldest(at(1000), 1), at(1000));
    }
}
