//! Plans the place of the next batch in the log, as a pure state machine. The appender gives a batch its
//! position when it accepts the batch, long before the log thread writes it, so that the caller knows the
//! position at once. The planner places batches only into segments that the keeper thread has allocated.

use crate::Lsn;
use crate::options::room;

/// Gives each accepted batch its place in the log. The next batch begins where the last accepted one ends,
/// or at the beginning of the next segment.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    segment: u64,
    base: Lsn,
    next: Lsn,
    /// The bytes of batches that the current segment can hold in all, including those already placed in it.
    room: u64,
    /// The number of the segment that the planner uses when the current one is full. Later segments have the
    /// next higher numbers.
    following: u64,
    /// The bytes of batches that each later segment can hold in all, and so the greatest length of a batch.
    room_following: u64,
}

/// The place of a batch, at which the log thread writes it: its position, and the number and the beginning
/// of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) base: Lsn,
    pub(crate) at: Lsn,
}

/// The error of the planner if a batch needs the next segment before the keeper has allocated that segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSegment;

impl Planner {
    /// Creates a planner that places the next batch at `next`, in the segment that begins at `base` and holds
    /// `room_bytes` bytes of batches. Behind that segment come the segments from the number `following` on,
    /// with files of `segment_bytes` bytes each.
    pub(crate) const fn new(
        (segment, base, room_bytes): (u64, Lsn, u64),
        next: Lsn,
        following: u64,
        segment_bytes: u64,
    ) -> Self {
        Self {
            segment,
            base,
            next,
            room: room_bytes,
            following,
            room_following: room(segment_bytes),
        }
    }

    /// Returns the greatest number of bytes that a batch may have: the room of one whole segment, because a
    /// batch cannot span two.
    pub(crate) const fn most(&self) -> u64 {
        self.room_following
    }

    /// Returns the number of bytes of batches for which the segments with numbers up to `ready`, which are
    /// allocated, still have room. The appender refuses batches beyond that.
    pub(crate) const fn left(&self, ready: u64) -> u64 {
        self.room - self.next.since(self.base) + self.ahead(ready) * self.room_following
    }

    /// Returns the number of allocated segments, with numbers up to `ready`, in which the planner has placed
    /// no batch yet. The appender asks the keeper for more segments only if this number is low.
    pub(crate) const fn ahead(&self, ready: u64) -> u64 {
        (ready + 1).saturating_sub(self.following)
    }

    /// Places a batch of `bytes` bytes into one of the allocated segments, which have numbers up to `ready`.
    /// Changes nothing if these segments have no room for the batch.
    pub(crate) fn place(&mut self, bytes: u64, ready: u64) -> Result<Place, NoSegment> {
        if self.next.since(self.base) + bytes > self.room {
            if self.following > ready {
                return Err(NoSegment);
            }
            self.segment = self.following;
            self.following += 1;
            self.base = self.next;
            self.room = self.room_following;
        }
        let at = self.next;
        self.next = at.after(bytes);
        Ok(Place {
            segment: self.segment,
            base: self.base,
            at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_each_other_across_segments() {
        let here = (4, Lsn::new(100), room(16384));
        let mut p = Planner::new(here, Lsn::new(160), 6, 16384);
        let place = p.place(1000, 4).unwrap();
        assert_eq!((place.segment, place.at), (4, Lsn::new(160)));
        let before = p.next;
        assert_eq!(p.place(p.most(), 5), Err(NoSegment));
        let place = p.place(p.most(), 6).unwrap();
        assert_eq!((place.segment, place.base, place.at), (6, before, before));
        assert_eq!(p.place(8, 6), Err(NoSegment), "exactly full");
        assert_eq!((p.left(6), p.left(8)), (0, 2 * p.most()));
    }
}
