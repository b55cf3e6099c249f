//! The age of the oldest entry that waits.

use std::collections::VecDeque;

use crate::Time;

/// How old the oldest entry is, from marks in the stream of entries: one a batch at most.
#[derive(Default)]
pub(super) struct Ages {
    /// Items from this position on arrived at this time or later.
    marks: VecDeque<(u64, Time)>,
    /// The last mark passed: nothing that waits is older.
    pub(super) passed: Time,
    /// The queue was empty since that mark, so the mark tells no age of later items.
    empty: bool,
    /// Where the mark that is out will go.
    next: u64,
    /// Entries that left the queue, and those of them in the stash.
    pub(super) popped: u64,
    pub(super) stashed: u64,
}

impl Ages {
    /// A mark came back, and another goes out behind the `backlog` entries that wait.
    pub(super) fn mark(&mut self, at: Option<Time>, backlog: u64) {
        if let Some(at) = at {
            if self.marks.len() < 64 {
                self.marks.push_back((self.next, at));
            }
            self.next = self.head() + backlog;
        }
    }

    /// When the oldest of `backlog` entries arrived, at the earliest.
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
            // Its mark is still to come, or was another's.
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
        // Three of five leave; the next mark lies behind the five.
        ages.popped = 3;
        ages.mark(Some(at(25)), 4);
        assert_eq!(ages.oldest(at(30), 4), at(12));
        ages.popped = 5;
        assert_eq!(ages.oldest(at(31), 2), at(25));
        ages.popped = 7;
        assert_eq!(ages.oldest(at(40), 0), at(40));
        // Items without a mark of their own are younger than the mark before.
        assert_eq!(ages.oldest(at(1000), 1), at(1000));
    }
}
