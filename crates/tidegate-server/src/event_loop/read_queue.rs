//! Chooses the client connections that one turn of the event loop reads, and how long each of them may keep
//! the loop, so that none starves: start-time fair queueing by the time of the loop (P. Goyal, H. Vin and H.
//! Cheng, 1996).
//!
//! The work of one connection can take long: a read of 64 KiB holds thousands of publishes, each with any
//! number of receivers. A connection therefore keeps the loop for one [`SLICE`], and for the step within
//! which the slice ends, because the node looks at the clock only after some operations and copies. The rest
//! of the connection's bytes waits for its next slice. Connections with work get equal shares of the time. A
//! connection with a step longer than its slice waits until the other connections have had as much time. A
//! connection that has used less than its share goes first. A turn reads for [`BUDGET`], so that Raft, timers
//! and writes wait at most for this time and one step.
//!
//! The queue decides the order and keeps the accounts. The caller reads, measures, and reports the time. Each
//! operation takes logarithmic time in the number of waiting connections.

use crate::cures::cures;
use crate::party::ClientKey;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The longest time for which one turn reads client connections. So timers and writes do not wait longer.
/// Only the step within which this time ends may exceed it.
pub(super) const BUDGET: Duration = Duration::from_micros(500);
/// The longest time for which one connection may keep the loop while other connections wait, so that all get
/// their turn soon. Only the step within which this time ends may exceed it.
const SLICE: Duration = Duration::from_micros(100);
/// The advantage of a connection that was idle. *Served time* is the virtual clock of fair queueing: a
/// connection moves ahead on it by the time for which it keeps the loop. The next slice of an idle connection
/// starts this much before the latest start of a slice so far, so that the loop reads it before busy
/// connections.
const HEAD_START: Duration = SLICE;

/// The client connections with something to read. The loop reads the connection with the earliest start of
/// its next slice first, so that shares are equal.
#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    /// The waiting connections, each with the start of its next slice on the clock of served time in
    /// nanoseconds, the number of its arrival in the queue, and its key. The loop reads the first connection
    /// in this order next.
    waiting: BinaryHeap<Reverse<(u64, u64, ClientKey)>>,
    /// The latest start so far of a slice that the loop read, in nanoseconds on the clock of served time. A
    /// connection that was idle joins the queue near this start, so that it gains no credit.
    clock: u64,
    /// The start of the slice that the loop read last, in nanoseconds on the clock of served time. From it
    /// the queue computes the connection's next start. It need not be the latest start so far.
    start: u64,
    arrivals: u64,
    spent: Duration,
}

/// The account of one connection, by which the queue keeps shares equal: the earliest start of its next
/// slice, in nanoseconds on the clock of served time. The queue computes it as the start of the last slice
/// plus the time for which the connection then kept the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share(u64);

impl ReadQueue {
    /// Returns whether no connection waits until the loop reads it, so that the loop may sleep.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues a connection with its account, so that the loop reads it. The connection must not be in the
    /// queue yet.
    pub(super) fn push(&mut self, key: ClientKey, share: Share) {
        self.arrivals += 1;
        let start = share
            .0
            .max(self.clock.saturating_sub(HEAD_START.as_nanos() as u64));
        self.waiting.push(Reverse((start, self.arrivals, key)));
    }

    /// Begins the reading of a turn, for which the loop has the whole [`BUDGET`] again.
    pub(super) fn begin_turn(&mut self) {
        self.spent = Duration::ZERO;
    }

    /// Takes the connection that the loop reads next, for one slice; `None` if no connection waits, or if the
    /// turn has used up its time for reading. The caller must then call [`handle_read`](Self::handle_read).
    pub(super) fn next(&mut self) -> Option<ClientKey> {
        if self.spent >= BUDGET && cures().read_slices {
            return None;
        }
        let Reverse((start, _, key)) = self.waiting.pop()?;
        self.clock = start.max(self.clock);
        self.start = start;
        Some(key)
    }

    /// Returns how long the connection of the last [`next`](Self::next) may keep the loop now: one [`SLICE`]
    /// or, if no other connection waits, the rest of the turn's [`BUDGET`].
    pub(super) fn slice(&self) -> Duration {
        match self.waiting.is_empty() {
            _ if !cures().read_slices => Duration::MAX,
            true => BUDGET.saturating_sub(self.spent),
            false => SLICE,
        }
    }

    /// Records that the connection of the last [`next`](Self::next) kept the loop for `took`. Returns the
    /// connection's new account, which decides its next place.
    pub(super) fn handle_read(&mut self, took: Duration) -> Share {
        self.spent += took;
        // The cast loses nothing, because a `u64` holds more than five hundred years in nanoseconds.
        Share(self.start + took.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    /// Plays one turn of the loop over connections that all have more to read; each reading costs
    /// `cost(key)`.
    fn turn(
        queue: &mut ReadQueue,
        served: &mut BTreeMap<ClientKey, Duration>,
        cost: impl Fn(ClientKey) -> Duration,
    ) {
        queue.begin_turn();
        while let Some(key) = queue.next() {
            let took = cost(key);
            *served.entry(key).or_default() += took;
            let share = queue.handle_read(took);
            queue.push(key, share);
        }
    }

    /// Ten publishers have operations of 3 ms each, and another connection has a ping now and then, which
    /// must not wait for all of them.
    #[test]
    fn a_light_connection_goes_before_heavy_ones() {
        let (mut queue, mut served) = (ReadQueue::default(), BTreeMap::new());
        for at in 0..10 {
            queue.push(ClientKey::new(at), Share::default());
        }
        let light = ClientKey::new(10);
        let mut share = Share::default();
        for _ in 0..10 {
            turn(&mut queue, &mut served, |_| 3000 * MICRO);
        }
        for _ in 0..100 {
            queue.push(light, share);
            queue.begin_turn();
            let mut order = Vec::new();
            while let Some(key) = queue.next() {
                order.push(key);
                let took = if key == light { MICRO } else { 3000 * MICRO };
                let next = queue.handle_read(took);
                match key == light {
                    true => share = next,
                    false => queue.push(key, next),
                }
            }
            assert!(order.contains(&light) && order.len() == 2, "{order:?}");
        }
    }

    proptest! {
        /// Checks that connections that always have more to read get equal time, within one operation and one
        /// slice; a turn spends its budget and one operation more at most.
        #[test]
        fn shares_are_equal(costs in prop::collection::vec(1_u64..2000, 1..12), turns in 50_usize..200) {
            let mut queue = ReadQueue::default();
            for at in 0..costs.len() {
                queue.push(ClientKey::new(at), Share::default());
            }
            let mut served = BTreeMap::new();
            let cost = |key: ClientKey| Duration::from_micros(costs[key.index()]);
            let most = costs.iter().copied().max().unwrap_or(0);
            for _ in 0..turns {
                let before: Duration = served.values().sum();
                turn(&mut queue, &mut served, cost);
                let took = served.values().sum::<Duration>() - before;
                prop_assert!(took < BUDGET + Duration::from_micros(most));
                prop_assert_eq!(queue.waiting.len(), costs.len());
            }
            let of = |at| served.get(&ClientKey::new(at)).copied().unwrap_or_default();
            let times: Vec<_> = (0..costs.len()).map(of).collect();
            let (least, greatest) = (times.iter().min().unwrap(), times.iter().max().unwrap());
            prop_assert!(*greatest - *least <= Duration::from_micros(2 * most), "{:?}", times);
        }
    }
}
