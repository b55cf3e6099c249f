//! The line of callers that wait for room in the pipeline, by ticket, first come first served.
//!
//! A caller keeps its ticket until the pipeline accepts its commands or the caller gives up. The pipeline
//! calls the oldest callers, as many as it has room for. A called caller leaves the line and submits again.
//! If it finds no room, because newer callers were faster, it stands at its old place again.

use std::collections::BTreeMap;
use std::task::Waker;

/// The place of one caller in the line, which decides its turn; older callers have lower tickets.
pub(crate) type Ticket = u64;

#[derive(Default)]
pub(super) struct Line {
    /// The waker of each caller in the line, and the number of commands that the caller wants to submit.
    waiting: BTreeMap<Ticket, (Waker, u32)>,
    next: Ticket,
}

impl Line {
    /// Puts a caller into the line: at the place of its `ticket`, or at the end with a new ticket. Costs
    /// O(log n) for n callers in the line.
    pub(super) fn stand(&mut self, ticket: &mut Option<Ticket>, commands: u32, waker: &Waker) {
        let ticket = *ticket.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.waiting.insert(ticket, (waker.clone(), commands));
    }

    /// Takes the caller with this ticket out of the line, because the pipeline took its commands or it gave
    /// up.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Takes the oldest callers out of the line and collects their wakers, until the taken callers want to
    /// submit at least `commands` commands together. Costs O(log n) for each taken caller.
    pub(super) fn call(&mut self, commands: u64, wakers: &mut Vec<Waker>) {
        let mut called = 0;
        while called < commands
            && let Some((_, (waker, commands))) = self.waiting.pop_first()
        {
            called += u64::from(commands);
            wakers.push(waker);
        }
    }

    /// Empties the line, and collects the wakers of all its callers, so that each of them tries again.
    pub(super) fn call_all(&mut self, wakers: &mut Vec<Waker>) {
        let waiting = std::mem::take(&mut self.waiting);
        wakers.extend(waiting.into_values().map(|(waker, _)| waker));
    }
}
