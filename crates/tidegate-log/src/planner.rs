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
    /// True if disk space is reserved for all of `room`, and the reservation does not grow with later
    /// segments.
    whole: bool,
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

/// The error of the planner if a batch needs the next segment before the keeper has allocated that segment,
/// or a part of a segment before the keeper has reserved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSegment;

/// The disk space that the keeper has allocated for the log, in which the planner may place batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    /// The highest number of an allocated segment.
    pub(crate) ready: u64,
    /// The number of bytes at the front of each segment for which disk space is reserved.
    pub(crate) reserved: u64,
    /// True if the keeper found no disk space to reserve more of the segments, or to allocate one.
    pub(crate) short: bool,
}

impl Planner {
    /// Creates a planner that places the next batch at `next`, in the segment that begins at `base` and holds
    /// `room_bytes` bytes of batches. If the segment is `whole`, disk space is reserved for all of them.
    /// Behind that segment come the segments from the number `following` on, with files of `segment_bytes`
    /// bytes each.
    pub(crate) const fn new(
        (segment, base, room_bytes, whole): (u64, Lsn, u64, bool),
        next: Lsn,
        following: u64,
        segment_bytes: u64,
    ) -> Self {
        Self {
            segment,
            base,
            next,
            room: room_bytes,
            whole,
            following,
            room_following: room(segment_bytes),
        }
    }

    /// Returns the greatest number of bytes that a batch may have: the room of one whole segment, because a
    /// batch cannot span two.
    pub(crate) const fn most(&self) -> u64 {
        self.room_following
    }

    /// Returns the position at which the next batch begins.
    pub(crate) const fn next(&self) -> Lsn {
        self.next
    }

    /// Returns the number of bytes of batches for which the allocated segments still have reserved room. The
    /// appender refuses batches beyond that.
    pub(crate) fn left(&self, allocated: Allocated) -> u64 {
        let here = self.reserved_room(allocated);
        let following = self.room_following.min(room(allocated.reserved));
        here.saturating_sub(self.next.since(self.base)) + self.ahead(allocated.ready) * following
    }

    /// Returns the number of bytes of batches for which the reserved part of the current segment has room in
    /// all.
    fn reserved_room(&self, allocated: Allocated) -> u64 {
        match self.whole {
            true => self.room,
            false => self.room.min(room(allocated.reserved)),
        }
    }

    /// Returns the number of allocated segments, with numbers up to `ready`, in which the planner has placed
    /// no batch yet. The appender asks the keeper for more segments only if this number is low.
    pub(crate) const fn ahead(&self, ready: u64) -> u64 {
        (ready + 1).saturating_sub(self.following)
    }

    /// Leaves the rest of the current segment unused, so that the next batch begins the next segment. Returns
    /// false and changes nothing if the current segment has no batch, or if the keeper has not allocated the
    /// next segment.
    pub(crate) const fn leave(&mut self, allocated: Allocated) -> bool {
        let used = self.next.since(self.base);
        if used == 0 || self.ahead(allocated.ready) == 0 {
            return false;
        }
        self.room = used;
        self.whole = true;
        true
    }

    /// Places a batch of `bytes` bytes into the reserved part of one of the allocated segments. Changes
    /// nothing if these parts have no room for the batch.
    ///
    /// A batch that fits into the current segment waits until the keeper has reserved more of it. In a short
    /// log the keeper cannot, so the planner leaves the rest of the current segment unused, and the batch
    /// gets the room that is reserved in the next one.
    pub(crate) fn place(&mut self, bytes: u64, allocated: Allocated) -> Result<Place, NoSegment> {
        let behind = self.next.since(self.base) + bytes;
        if behind > self.reserved_room(allocated) {
            let waits = behind <= self.room && !allocated.short;
            let ready = self.following <= allocated.ready && bytes <= room(allocated.reserved);
            if waits || !ready {
                return Err(NoSegment);
            }
            self.segment = self.following;
            self.following += 1;
            self.base = self.next;
            self.room = self.room_following;
            self.whole = false;
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
        let here = (4, Lsn::new(100), room(16384), false);
        let up_to = |ready| Allocated {
            ready,
            reserved: 16384,
            short: false,
        };
        let mut p = Planner::new(here, Lsn::new(160), 6, 16384);
        let place = p.place(1000, up_to(4)).unwrap();
        assert_eq!((place.segment, place.at), (4, Lsn::new(160)));
        let before = p.next;
        assert_eq!(p.place(p.most(), up_to(5)), Err(NoSegment));
        let place = p.place(p.most(), up_to(6)).unwrap();
        assert_eq!((place.segment, place.base, place.at), (6, before, before));
        assert_eq!(p.place(8, up_to(6)), Err(NoSegment), "exactly full");
        assert_eq!((p.left(up_to(6)), p.left(up_to(8))), (0, 2 * p.most()));
    }
    #[test]
    fn a_batch_waits_for_the_reservation_and_in_a_short_log_takes_the_next_segment() {
        let here = (0, Lsn::ZERO, room(65536), false);
        let mut p = Planner::new(here, Lsn::ZERO, 1, 65536);
        let mut now = Allocated {
            ready: 1,
            reserved: 16384,
            short: false,
        };
        let reserved = room(16384);
        assert_eq!(p.left(now), 2 * reserved);
        p.place(reserved, now).unwrap();
        assert_eq!(p.place(8, now), Err(NoSegment), "not reserved yet");
        now.short = true;
        assert_eq!(p.clone().place(8, now).unwrap().segment, 1);
        assert_eq!(p.place(reserved + 8, now), Err(NoSegment));
        now.reserved = 32768;
        assert_eq!(p.place(8, now).unwrap().segment, 0);
        assert_eq!(p.left(now), 2 * room(32768) - reserved - 8);
    }

    #[test]
    fn a_segment_that_is_left_takes_no_further_batch() {
        let here = (0, Lsn::ZERO, room(16384), false);
        let mut p = Planner::new(here, Lsn::ZERO, 1, 16384);
        let mut now = Allocated {
            ready: 1,
            reserved: 16384,
            short: false,
        };
        assert!(!p.leave(now), "the segment has no batch");
        p.place(1000, now).unwrap();
        now.ready = 0;
        assert!(!p.leave(now), "no segment follows");
        now.ready = 1;
        assert!(p.leave(now));
        assert_eq!(p.left(now), room(16384));
        let place = p.place(8, now).unwrap();
        assert_eq!((place.segment, place.at), (1, Lsn::new(1000)));
        assert_eq!(p.left(now), room(16384) - 8);
    }

    #[test]
    fn a_segment_that_is_reserved_whole_is_filled() {
        let here = (0, Lsn::ZERO, room(65536), true);
        let mut p = Planner::new(here, Lsn::ZERO, 1, 16384);
        let now = Allocated {
            ready: 1,
            reserved: 8192,
            short: false,
        };
        p.place(room(65536), now).unwrap();
        assert_eq!(p.left(now), room(8192));
        assert_eq!(p.place(8, now).unwrap().segment, 1);
        assert_eq!(p.place(room(8192), now), Err(NoSegment));
    }
}
