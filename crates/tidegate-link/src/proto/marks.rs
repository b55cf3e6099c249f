//! The marks of a receiver: where batches of messages end. A mark maps the number of a batch's last message
//! to a position in bytes and, in the plain protocol, to the id of that message.
//!
//! The handler reports later that it is done with the messages up to a number. The receiver must then know
//! how many bytes of the client's window are free, and which id the acknowledgement repeats. Storing that for
//! each message would cost more than the message, so the receiver stores a mark for each batch. A receiver
//! with 1024 marks forgets every second one. A number between two marks counts as the mark before it.

use std::collections::VecDeque;

use crate::Seq;

/// The greatest number of marks that a receiver keeps, to bound its memory.
const MARKS_MAX: usize = 1024;

/// A receiver's record of the end of one batch, from which it acknowledges the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of the batch's last message, up to which the handler may be done.
    pub(super) end: Seq,
    /// The number of bytes of frames up to the end of the batch, since the connection began.
    pub(super) pos: u64,
    /// The id that a plain client gave to the batch's last message, for its acknowledgement; 0 in a session.
    pub(super) id: u64,
}

/// The marks of batches that the handler is not done with, in the order of their messages.
#[derive(Debug, Default)]
pub(super) struct Marks(VecDeque<Mark>);

impl Marks {
    pub(super) fn push(&mut self, mark: Mark) {
        if self.0.len() >= MARKS_MAX {
            // A receiver with as many marks as it may have forgets every second one. It keeps the last mark,
            // so that it can acknowledge every message received.
            let mut odd = self.0.len().is_multiple_of(2);
            self.0.retain(|_| {
                odd = !odd;
                odd
            });
        }
        self.0.push_back(mark);
    }

    /// Forgets the marks of batches that end at message `seq` or before, because the handler is done with
    /// them; returns the last of them.
    pub(super) fn reach(&mut self, seq: Seq) -> Option<Mark> {
        let mut last = None;
        while self.0.front().is_some_and(|m| m.end <= seq) {
            last = self.0.pop_front();
        }
        last
    }

    /// Returns the mark of the first batch that the handler is not done with. The end of that batch stands
    /// for any place inside of it.
    pub(super) fn next(&self) -> Option<Mark> {
        self.0.front().copied()
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.0.len() <= MARKS_MAX);
        let ordered = |a: &Mark, b: &Mark| a.end < b.end && a.pos <= b.pos;
        assert!(
            self.0
                .iter()
                .zip(self.0.iter().skip(1))
                .all(|(a, b)| ordered(a, b))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(n: u64) -> Mark {
        Mark {
            end: Seq::new(n),
            pos: n * 10,
            id: n - 1,
        }
    }

    #[test]
    fn too_many_marks_are_thinned_and_the_last_stays() {
        let mut marks = Marks::default();
        for n in 1..=5000 {
            marks.push(mark(n));
            marks.check_invariants();
            assert_eq!(marks.0.back(), Some(&mark(n)));
        }
        assert_eq!(marks.reach(Seq::new(5000)), Some(mark(5000)));
        assert_eq!(marks.next(), None);
    }

    #[test]
    fn a_position_between_marks_reaches_the_one_before() {
        let mut marks = Marks::default();
        for n in [3, 7, 9] {
            marks.push(mark(n));
        }
        assert_eq!(marks.reach(Seq::new(2)), None);
        assert_eq!(marks.reach(Seq::new(8)), Some(mark(7)));
        assert_eq!(marks.next(), Some(mark(9)));
    }
}
