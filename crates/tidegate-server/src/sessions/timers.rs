//! One deadline for each connection, in order. They are exact, so that an idle node wakes up only
//! for a deadline.

use std::collections::BTreeSet;

use tidegate::Time;

/// The deadlines of connections, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Time, usize)>,
    /// The deadline of each key in `order`; `Time::NEVER` if it has none.
    armed: Vec<Time>,
}

impl Timers {
    /// Sets the deadline of `key`.
    pub(crate) fn arm(&mut self, key: usize, at: Time) {
        if self.armed.len() <= key {
            self.armed.resize(key + 1, Time::NEVER);
        }
        let old = std::mem::replace(&mut self.armed[key], at);
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

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the first key with a deadline at or before `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<usize> {
        let (at, key) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.order.pop_first();
        self.armed[key] = Time::NEVER;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_deadline_a_key_in_order() {
        let (mut t, at) = (Timers::default(), Time::from_nanos);
        t.arm(1, at(5));
        t.arm(2, at(3));
        t.arm(1, at(1));
        assert_eq!((t.next(), t.pop(at(0))), (Some(at(1)), None));
        assert_eq!(
            (t.pop(at(9)), t.pop(at(9)), t.pop(at(9))),
            (Some(1), Some(2), None)
        );
        t.arm(1, at(5));
        t.arm(1, Time::NEVER);
        assert_eq!(t.next(), None);
    }
}
