//! Keeps the client connections with bytes to write, in the order in which the event loop writes them. The
//! code is pure.
//!
//! Writing a long outbox takes the loop milliseconds, and writing a thousand of them seconds. So connections
//! with little to write go first, and a connection with a long outbox writes a part and then queues again
//! behind the rest.

use std::collections::VecDeque;

use crate::party::ClientKey;

/// The greatest length of a short outbox, in bytes. The event loop writes longer outboxes later, because they
/// take it long.
const LONG: usize = 4 * 1024;
/// Among this number of connections in a row, the list names at least one with a long outbox, as long as it
/// has one. So short outboxes cannot starve long outboxes.
const ONE_LONG_IN: u32 = 8;

/// Keeps the client connections with bytes that the event loop must write; the [module](self) describes their
/// order.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    short: VecDeque<ClientKey>,
    long: VecDeque<ClientKey>,
    /// The number of connections with short outboxes that the event loop has taken since the last long one,
    /// by which a long outbox gets its turn.
    in_a_row: u32,
}

impl Dirty {
    /// Adds a connection with `bytes` bytes, which the event loop must write.
    #[inline]
    pub(super) fn push(&mut self, key: ClientKey, bytes: usize) {
        match bytes <= LONG {
            true => self.short.push_back(key),
            false => self.long.push_back(key),
        }
    }

    /// Takes the next connection to write, in the order that the [module](self) describes; `None` if no
    /// connection has bytes to write. `bytes` returns the bytes that wait for a connection now: an outbox
    /// that has grown long since its connection came into the list goes with the long ones.
    pub(super) fn pop(&mut self, bytes: impl Fn(ClientKey) -> usize) -> Option<ClientKey> {
        while self.in_a_row + 1 < ONE_LONG_IN
            && let Some(key) = self.short.pop_front()
        {
            if bytes(key) > LONG {
                self.long.push_back(key);
                continue;
            }
            self.in_a_row += 1;
            return Some(key);
        }
        self.in_a_row = 0;
        self.long.pop_front().or_else(|| self.short.pop_front())
    }

    /// Returns whether no connection has bytes for the event loop to write.
    pub(super) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// Returns whether the connection `key` is in the list, for the node's check of its invariants.
    pub(super) fn contains(&self, key: ClientKey) -> bool {
        self.short.contains(&key) || self.long.contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_outboxes_go_first_and_long_ones_are_not_left_out() {
        let mut dirty = Dirty::default();
        for at in 0..3 {
            dirty.push(ClientKey::new(at), LONG + 1);
        }
        for at in 10..26 {
            dirty.push(ClientKey::new(at), LONG);
        }
        let order: Vec<usize> = std::iter::from_fn(|| dirty.pop(|_| 0))
            .map(ClientKey::index)
            .collect();
        let first: Vec<usize> = (10..17).chain([0]).chain(17..24).chain([1]).collect();
        assert_eq!(order[..16], first);
        assert_eq!(order.len(), 19);
        assert!(dirty.is_empty());
    }

    /// The outbox of a subscriber was short and has grown since; another client got a `PONG` later and goes
    /// first.
    #[test]
    fn outboxes_that_have_grown_long_let_short_ones_pass() {
        let mut dirty = Dirty::default();
        (0..3).for_each(|at| dirty.push(ClientKey::new(at), 10));
        let bytes = |key: ClientKey| if key.index() < 2 { LONG + 1 } else { 10 };
        let order: Vec<usize> = std::iter::from_fn(|| dirty.pop(bytes))
            .map(ClientKey::index)
            .collect();
        assert_eq!(order, [2, 0, 1]);
    }
}
