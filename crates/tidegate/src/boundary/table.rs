//! The table of a boundary's running batches: of fixed length, allocated once, so that starting a batch
//! allocates no memory.
//!
//! The id of a batch holds the number of a slot and the number of the slot's earlier uses. So the table finds
//! an id in one step, hands no id out twice, and distinguishes an old id from an unknown one. The table
//! reuses free slots in the order in which they became free: while batches end in the order in which they
//! started, ids count up by one.

use super::BoundaryError;
use crate::Time;
use crate::controller::BatchId;

/// The greatest number of slots of a table. A table of this length takes some 2 MiB of memory.
pub(super) const IN_FLIGHT_MAX: u32 = crate::controller::IN_FLIGHT_MAX;

#[derive(Clone, Debug)]
pub(super) struct Table {
    slots: Box<[Slot]>,
    /// The numbers of the free slots of the table, in a ring with as many places as the table has slots. The
    /// first free slot is at the place `next`.
    free: Box<[u32]>,
    next: u32,
    running: u32,
    most: u32,
    /// The number of bits in the number of a slot: the table has 2^bits slots. An id holds a slot in these
    /// bits.
    bits: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The number of batches that have used the slot so far, its present batch included. An old id has a
    /// lower number, so that the table recognizes it.
    uses: u64,
    /// The moment at which the batch in the slot started, for its cost; `None` while the slot is free.
    since: Option<Time>,
}

impl Table {
    /// Creates a table for up to `most` batches at once, at least 1.
    pub(super) fn new(most: u32) -> Self {
        let most = most.clamp(1, IN_FLIGHT_MAX);
        let len = most.next_power_of_two();
        let empty = Slot {
            uses: 0,
            since: None,
        };
        Self {
            slots: vec![empty; len as usize].into_boxed_slice(),
            free: (0..len).collect(),
            next: 0,
            running: 0,
            most,
            bits: len.trailing_zeros(),
        }
    }

    pub(super) const fn running(&self) -> u32 {
        self.running
    }

    pub(super) const fn most(&self) -> u32 {
        self.most
    }

    const fn mask(&self) -> u32 {
        (1 << self.bits) - 1
    }

    /// Gives a batch that starts at `now` a slot of the table, and returns the batch's id.
    pub(super) fn insert(&mut self, now: Time) -> Result<BatchId, BoundaryError> {
        if self.running == self.most {
            return Err(BoundaryError::Full {
                in_flight_max: self.most,
            });
        }
        let at = self.free[self.next as usize];
        let slot = &mut self.slots[at as usize];
        let id = (slot.uses << self.bits) | u64::from(at);
        slot.uses += 1;
        slot.since = Some(now);
        self.next = (self.next + 1) & self.mask();
        self.running += 1;
        Ok(BatchId::new(id))
    }

    /// Removes a batch that is done from the table, and returns the moment at which the batch started.
    pub(super) fn remove(&mut self, id: BatchId) -> Result<Time, BoundaryError> {
        let at = (id.get() as u32) & self.mask();
        let use_of = id.get() >> self.bits;
        let slot = &mut self.slots[at as usize];
        if use_of >= slot.uses {
            return Err(BoundaryError::NeverStarted { id });
        }
        if use_of + 1 < slot.uses {
            return Err(BoundaryError::AlreadyDone { id });
        }
        let since = slot.since.take();
        let since = since.ok_or(BoundaryError::AlreadyDone { id })?;
        // The freed slot goes to the place behind the last free slot, so that slots are reused in the order
        // of release.
        let last = (self.next + self.slots.len() as u32 - self.running) & self.mask();
        self.free[last as usize] = at;
        self.running -= 1;
        Ok(since)
    }

    /// Asserts that each slot either runs a batch or is in the list of free slots exactly once.
    pub(super) fn check_invariants(&self) {
        assert!(self.running <= self.most);
        let running = self.slots.iter().filter(|slot| slot.since.is_some());
        assert_eq!(running.count(), self.running as usize);
        let len = self.slots.len() as u32;
        let mut seen = vec![false; len as usize];
        for n in 0..len - self.running {
            let at = self.free[((self.next + n) & self.mask()) as usize] as usize;
            assert!(self.slots[at].since.is_none(), "slot {at} runs and is free");
            assert!(
                !std::mem::replace(&mut seen[at], true),
                "slot {at} is free twice"
            );
        }
    }
}
