//! The callers that wait for room, by ticket, first come first served.
//!
//! A caller keeps its ticket until its commands are accepted or it gives up. The pipeline calls the oldest
//! callers, as many as there is room for. A called caller leaves the line; if it finds no room, because
//! newer commands were faster, it stands at its old place again.

use std::collections::BTreeMap;
use std::task::Waker;

/// The place of one caller in the line.
pub(crate) type Ticket = u64;

#[derive(Default)]
pub(super) struct Line {
    /// The callers that were not called since they last stood in line, with the number of their commands.
    waiting: BTreeMap<Ticket, (Waker, u32)>,
    next: Ticket,
}

impl Line {
    /// Puts a caller into the line at the place of `ticket`, or at the end. Costs O(log n).
    pub(super) fn stand(&mut self, ticket: &mut Option<Ticket>, commands: u32, waker: &Waker) {
        let ticket = *ticket.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.waiting.insert(ticket, (waker.clone(), commands));
    }

    /// Takes the caller with this ticket out of the line.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Collects the wakers of the oldest callers until these have at least `commands` commands together.
    /// Costs O(log n) for each caller.
    pub(super) fn call(&mut self, commands: u64, wakers: &mut Vec<Waker>) {
        let mut called = 0;
        while called < commands
            && let Some((_, (waker, commands))) = self.waiting.pop_first()
        {
            called += u64::from(commands);
            wakers.push(waker);
        }
    }

    /// Collects the wakers of all callers.
    pub(super) fn call_all(&mut self, wakers: &mut Vec<Waker>) {
        let waiting = std::mem::take(&mut self.waiting);
        wakers.extend(waiting.into_values().map(|(waker, _)| waker));
    }
}
