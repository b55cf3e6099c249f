//! Plans the place of the next batch. Pure: the appender assigns positions when it
//! accepts a batch, long before the log thread writes it, so that the caller knows them
//! at once. The keeper decides which segments may be used.

use crate::Lsn;
use crate::options::room;

/// The end of all accepted batches, where the next one begins.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    segment: u64,
    base: Lsn,
    next: Lsn,
    /// The bytes of batches the segment can hold.
    room: u64,
    /// The number of the next segment; later segments follow in order.
    following: u64,
    /// The bytes of batches each later segment can hold.
    room_following: u64,
}

/// The place of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) base: Lsn,
    pub(crate) at: Lsn,
}

/// The error if a batch needs the next segment before the keeper has made that segment ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSegment;

impl Planner {
    /// Creates a planner that places the next batch at `next`, in the segment that begins at `base`. Behind
    /// that segment come the segments from the number `following` on, of `segment_bytes` each.
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

    /// Returns the bytes of the largest batch that fits a segment.
    pub(crate) const fn most(&self) -> u64 {
        self.room_following
    }

    /// Returns the bytes of batches that still have room in the segments up to `ready`.
    pub(crate) const fn left(&self, ready: u64) -> u64 {
        self.room - self.next.since(self.base) + self.ahead(ready) * self.room_following
    }

    /// Returns the number of segments up to `ready` in which the planner has placed no batch.
    pub(crate) const fn ahead(&self, ready: u64) -> u64 {
        (ready + 1).saturating_sub(self.following)
    }

    /// Places a batch of `bytes` into a segment up to `ready`. Without room for the batch nothing changes.
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
