//! Counts publishes by the time at which the event loop read them, so that the node measures the time from a
//! publish to its acknowledgement. Pure.
//!
//! The loop reads a connection at one time, so all publishes of one read share one entry. The entries stand
//! beside the waiters of a log entry, and then wait here until the loop has written the acknowledgements.

use tidegate::Time;

use crate::party::Party;

/// The most entries that wait for the loop's writes. The node does not measure further publishes, so that the
/// list stays bounded.
const ANSWERED_MAX: usize = 64 * 1024;

/// The publishes that the loop read from one publisher at the same time, and that one log entry stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publishes {
    /// The time at which the loop read the publishes.
    pub(crate) at: Time,
    /// The client or the peer from which the loop read them, and to which the acknowledgements go.
    pub(crate) from: Party,
    /// The number of publishes.
    pub(crate) len: u32,
}

/// Counts one more publish that the loop read at `at` from `from`.
#[inline]
pub(super) fn count(list: &mut Vec<Publishes>, at: Time, from: Party) {
    match list.last_mut() {
        Some(last) if last.at == at && last.from == from => last.len += 1,
        _ => list.push(Publishes { at, from, len: 1 }),
    }
}

/// The publishes that the streams have answered, until the loop has written the acknowledgements.
#[derive(Debug, Default)]
pub(super) struct Answered(Vec<Publishes>);

impl Answered {
    /// Adds the publishes of an applied entry, as far as the bound of the list allows.
    pub(super) fn add(&mut self, publishes: &[Publishes]) {
        let room = ANSWERED_MAX.saturating_sub(self.0.len());
        self.0.extend(publishes.iter().take(room));
    }

    /// Takes all publishes out of the list, and keeps its memory for the next ones.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Publishes> {
        self.0.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::party::ClientKey;

    #[test]
    fn publishes_of_one_read_share_an_entry() {
        let [a, b] = [1, 2].map(|key| Party::Client(ClientKey::new(key)));
        let [early, late] = [5, 6].map(Time::from_nanos);
        let mut list = Vec::new();
        for (at, from) in [(early, a), (early, a), (early, b), (late, b), (late, b)] {
            count(&mut list, at, from);
        }
        let lens: Vec<u32> = list.iter().map(|p| p.len).collect();
        assert_eq!(lens, [2, 1, 2]);
    }

    #[test]
    fn the_list_is_bounded() {
        let from = Party::Client(ClientKey::new(0));
        let one = Publishes {
            at: Time::ZERO,
            from,
            len: 1,
        };
        let mut answered = Answered::default();
        answered.add(&vec![one; ANSWERED_MAX - 1]);
        answered.add(&[one; 3]);
        assert_eq!(answered.drain().count(), ANSWERED_MAX);
        assert_eq!(answered.drain().count(), 0);
    }
}
