//! Keeps the deadlines of client connections in order, at most one for each connection. A changed deadline
//! replaces the old one, so that an idle node wakes up only for a deadline that still holds.

use std::collections::BTreeSet;

use tidegate::Time;

use crate::party::ClientKey;

/// Keeps the deadline of each client connection, by the connection's key, so that the node finds the earliest
/// one.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Time, ClientKey)>,
    /// The deadline of each key in `order`, indexed by key; `Time::NEVER` for a key without a deadline. With
    /// it the node finds the old deadline to replace.
    armed: Vec<Time>,
}

impl Timers {
    /// Sets the deadline of the connection `key`, in place of its old one, so that the node wakes for it.
    pub(crate) fn arm(&mut self, key: ClientKey, at: Time) {
        if self.armed.len() <= key.index() {
            self.armed.resize(key.index() + 1, Time::NEVER);
        }
        let old = std::mem::replace(&mut self.armed[key.index()], at);
        if old == at {
            return;
        }
        if old != Time::NEVER {
            self.order.remove(&(old, key));
        }
        if at != Time::NEVER {
            self.order.insert((at, key));
        }
    }

    /// Returns the earliest deadline of all connections; `None` if no connection has a deadline. The driver
    /// sleeps until then at most.
    pub(crate) fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the key of the connection with the earliest deadline, so that the node handles it; `None` if no
    /// deadline is at or before `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<ClientKey> {
        let (at, key) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.order.pop_first();
        self.armed[key.index()] = Time::NEVER;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_deadline_a_key_in_order() {
        let (mut t, at) = (Timers::default(), Time::from_nanos);
        let (one, two) = (ClientKey::new(1), ClientKey::new(2));
        t.arm(one, at(5));
        t.arm(two, at(3));
        t.arm(one, at(1));
        assert_eq!((t.next(), t.pop(at(0))), (Some(at(1)), None));
        assert_eq!(
            (t.pop(at(9)), t.pop(at(9)), t.pop(at(9))),
            (Some(one), Some(two), None)
        );
        t.arm(one, at(5));
        t.arm(one, Time::NEVER);
        assert_eq!(t.next(), None);
    }
}
