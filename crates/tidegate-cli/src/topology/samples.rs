//! Measures the latency of sampled lines: the time from reading a line to counting its last word.
//!
//! The sampler gives a ticket to one line in a fixed number of lines. The ticket names an entry with the time
//! of the read and the number of the line's words that no counter has counted yet. The counter of the last
//! word measures the time. If the entry of a ticket is still in use, the sampler skips the line.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use tidegate::Time;

/// The number of a line's entry in [`Samples`], or [`Ticket::NONE`] for a line without a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

impl Ticket {
    /// The ticket of a line without a sample.
    pub(crate) const NONE: Self = Self(0);

    /// Returns whether the topology measures the line's latency.
    #[inline]
    pub(crate) const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// The entries of sampled lines, which all stages of the topology share without a lock.
pub(crate) struct Samples {
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    /// The time at which the reader read the line, in nanoseconds, from which the latency counts.
    read_at: AtomicU64,
    /// The number of the line's words that no counter has counted, plus one for the line itself until a
    /// splitter has split it; 0 if the entry is free.
    left: AtomicU32,
}

impl Samples {
    /// Creates `slots` entries, so that as many lines can be measured at once.
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
        }
    }

    /// Adds `more` words to the line's uncounted words. The caller must hold an unfinished part of the line,
    /// so that the line's entry is in use.
    pub(crate) fn add(&self, ticket: Ticket, more: u32) {
        if let Some(slot) = self.slot(ticket) {
            slot.left.fetch_add(more, Relaxed);
        }
    }

    /// Finishes one part of a line. After the last part, reads the clock and returns the line's latency in
    /// nanoseconds.
    pub(crate) fn finish(&self, ticket: Ticket, now: impl FnOnce() -> Time) -> Option<u64> {
        let slot = self.slot(ticket)?;
        // A stage reads the line's time before it finishes its part, because the reader may reuse the entry
        // as soon as it is free.
        let read_at = slot.read_at.load(Relaxed);
        (slot.left.fetch_sub(1, AcqRel) == 1).then(|| now().as_nanos().saturating_sub(read_at))
    }

    fn slot(&self, ticket: Ticket) -> Option<&Slot> {
        self.slots.get((ticket.0 as usize).checked_sub(1)?)
    }
}

/// Gives tickets to the lines of which the topology measures the latency.
pub(crate) struct Sampler<'a> {
    samples: &'a Samples,
    every: u32,
    until_next: u32,
    next: u32,
}

impl<'a> Sampler<'a> {
    /// Creates a sampler that gives a ticket to every `every`-th line, the first line included.
    pub(crate) const fn new(samples: &'a Samples, every: u32) -> Self {
        Self {
            samples,
            every,
            until_next: 0,
            next: 0,
        }
    }

    /// Returns whether [`next`](Self::next) needs the time. The caller reads the clock only then, because
    /// that costs more than the rest of a sampler's work.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.until_next == 0
    }

    /// Returns the ticket of the next line. The sampler uses `now` only if it [is due](Self::is_due).
    #[inline]
    pub(crate) fn next(&mut self, now: Time) -> Ticket {
        if self.until_next > 0 {
            self.until_next -= 1;
            return Ticket::NONE;
        }
        self.until_next = self.every.saturating_sub(1);
        let slot = &self.samples.slots[self.next as usize];
        if slot.left.load(Acquire) != 0 {
            return Ticket::NONE;
        }
        slot.read_at.store(now.as_nanos(), Relaxed);
        slot.left.store(1, Release);
        self.next = (self.next + 1) % self.samples.slots.len() as u32;
        Ticket(if self.next == 0 {
            self.samples.slots.len() as u32
        } else {
            self.next
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_takes_the_time() {
        let samples = Samples::new(2);
        let mut sampler = Sampler::new(&samples, 2);
        let at = Time::from_nanos;
        let first = sampler.next(at(100));
        assert!(first.is_some() && !sampler.next(at(101)).is_some());
        let second = sampler.next(at(200));
        assert!(second.is_some() && second != first);
        sampler.next(at(201));
        assert_eq!(sampler.next(at(300)), Ticket::NONE, "both slots are taken");

        samples.add(first, 2);
        assert_eq!(samples.finish(first, || at(400)), None);
        assert_eq!(samples.finish(first, || at(500)), None);
        assert_eq!(samples.finish(first, || at(600)), Some(500));
        assert_eq!(
            samples.finish(second, || at(700)),
            Some(500),
            "a line without words"
        );
        sampler.next(at(701));
        assert_eq!(sampler.next(at(800)), first);
        assert_eq!(samples.finish(Ticket::NONE, || at(900)), None);
    }
}
