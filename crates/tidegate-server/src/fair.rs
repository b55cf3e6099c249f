//! Shares work fairly among the addresses from which the work comes, with a queue for the loop's costly jobs.
//!
//! Each source has a separate line of items, and the lines take turns, so that a source with a thousand items
//! delays the first item of another source by one item. The queue decides only the order; the caller reads
//! the lengths and enforces the bounds. Each operation takes logarithmic time in the queue's length.

use core::net::IpAddr;
use std::collections::BTreeMap;

/// The source of work, among which the queue takes turns: an IPv4 address, or the /64 network of an IPv6
/// address, because one host usually has a whole network of that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(u128);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u128::from(v4.to_bits())),
            IpAddr::V6(v6) => Self(v6.to_bits() >> 64 << 64),
        }
    }
}

/// The ticket of a waiting item, with which the caller can remove the item from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    source: Source,
    number: u64,
}

/// A queue of items from many sources, which take turns.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    lines: BTreeMap<Source, Line<T>>,
    /// The order in which the sources take turns. Each source with items occurs once.
    turns: BTreeMap<u64, Source>,
    len: usize,
    /// The last number that the queue has given to a ticket or to a turn. The next ticket or turn gets the
    /// next number, so that each has its own.
    number: u64,
}

/// The waiting items of one source, at least one, and the number of the source's turn, by which the queue
/// finds it.
#[derive(Debug)]
struct Line<T> {
    turn: u64,
    /// The items by the number of their tickets, which is their order of arrival, so that the queue finds the
    /// newest and the oldest.
    items: BTreeMap<u64, T>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            lines: BTreeMap::new(),
            turns: BTreeMap::new(),
            len: 0,
            number: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Returns the number of waiting items of all sources, by which the caller bounds the queue.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue has no items of any source, so that the caller has no work.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of waiting items of this source, by which the caller bounds the source.
    pub(crate) fn len_of(&self, source: Source) -> usize {
        self.lines.get(&source).map_or(0, |line| line.items.len())
    }

    /// Returns the source with the most waiting items, which must make room in a full queue; `None` if no
    /// item waits.
    pub(crate) fn longest(&self) -> Option<Source> {
        let lines = self.lines.iter();
        let longest = lines.max_by_key(|(_, line)| line.items.len());
        longest.map(|(source, _)| *source)
    }

    /// Adds an item from this source. A source that had no waiting item gets its turn after all other
    /// sources. Returns the item's ticket, with which the caller can remove it.
    pub(crate) fn push(&mut self, source: Source, item: T) -> Ticket {
        self.number += 1;
        let number = self.number;
        let line = self.lines.entry(source).or_insert_with(|| {
            self.turns.insert(number, source);
            Line {
                turn: number,
                items: BTreeMap::new(),
            }
        });
        line.items.insert(number, item);
        self.len += 1;
        Ticket { source, number }
    }

    /// Removes the waiting item with this ticket, because its work is no longer needed. Returns `None` if the
    /// item has already left the queue.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let line = self.lines.get_mut(&ticket.source)?;
        let item = line.items.remove(&ticket.number)?;
        self.taken(ticket.source);
        Some(item)
    }

    /// Removes the oldest waiting item of this source, to make room for a newer one.
    pub(crate) fn remove_oldest(&mut self, source: Source) -> Option<T> {
        let (_, item) = self.lines.get_mut(&source)?.items.pop_first()?;
        self.taken(source);
        Some(item)
    }

    /// Takes the newest item of the next source in turn for which `may` returns true, because its client has
    /// waited least.
    pub(crate) fn pop_newest(&mut self, may: impl Fn(Source) -> bool) -> Option<(Source, T)> {
        let mut turns = self.turns.iter();
        let (turn, source) = turns.find(|(_, source)| may(**source))?;
        let (turn, source) = (*turn, *source);
        self.turns.remove(&turn);
        self.number += 1;
        let line = self.lines.get_mut(&source)?;
        line.turn = self.number;
        self.turns.insert(line.turn, source);
        let (_, item) = line.items.pop_last()?;
        self.taken(source);
        Some((source, item))
    }

    /// Updates the length and the order of turns after an item of this source has left the queue, so that
    /// sources without items have no turn.
    fn taken(&mut self, source: Source) {
        self.len -= 1;
        if let Some(line) = self.lines.get(&source).filter(|l| l.items.is_empty()) {
            self.turns.remove(&line.turn);
            self.lines.remove(&source);
        }
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let items: usize = self.lines.values().map(|line| line.items.len()).sum();
        assert_eq!(items, self.len);
        assert!(self.lines.values().all(|line| !line.items.is_empty()));
        assert_eq!(self.lines.len(), self.turns.len());
        for (turn, source) in &self.turns {
            assert_eq!(self.lines[source].turn, *turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(n: u8) -> Source {
        Source::from(IpAddr::from([10, 0, 0, n]))
    }

    #[test]
    fn addresses_of_one_network_are_one_source() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Push(u8),
        Remove(prop::sample::Index),
        RemoveOldest(u8),
        /// The test takes an item; the bits tell which sources may have their turn.
        PopNewest(u8),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0..4_u8).prop_map(Act::Push),
            1 => any::<prop::sample::Index>().prop_map(Act::Remove),
            1 => (0..4_u8).prop_map(Act::RemoveOldest),
            2 => Just(Act::PopNewest(15)),
            2 => (0..16_u8).prop_map(Act::PopNewest),
        ]
    }

    proptest! {
        /// Compares the queue with a plain list: the queue keeps each source's order, and serves no source
        /// twice while another source waits.
        #[test]
        fn sources_take_turns(acts in prop::collection::vec(act(), 1..200)) {
            let mut queue = FairQueue::default();
            let mut model: Vec<(u8, usize, Ticket)> = Vec::new();
            // The test counts the items of each other source that the queue has served while this source
            // waited.
            let mut passed = [[0_usize; 4]; 4];
            for (n, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Push(of) => {
                        if !model.iter().any(|(s, ..)| *s == of) {
                            passed[usize::from(of)] = [0; 4];
                        }
                        let ticket = queue.push(source(of), (of, n));
                        model.push((of, n, ticket));
                    }
                    Act::Remove(_) if model.is_empty() => {}
                    Act::Remove(at) => {
                        let (of, n, ticket) = model.remove(at.index(model.len()));
                        prop_assert_eq!(queue.remove(ticket), Some((of, n)));
                        prop_assert_eq!(queue.remove(ticket), None);
                    }
                    Act::RemoveOldest(of) => {
                        let at = model.iter().position(|(s, ..)| *s == of);
                        let oldest = at.map(|at| model.remove(at)).map(|(s, n, _)| (s, n));
                        prop_assert_eq!(queue.remove_oldest(source(of)), oldest);
                    }
                    Act::PopNewest(may) => {
                        let may_run = |of: u8| may & (1 << of) != 0;
                        let popped = queue.pop_newest(|s| (0..4).any(|of| s == source(of) && may_run(of)));
                        prop_assert_eq!(popped.is_none(), !model.iter().any(|m| may_run(m.0)));
                        let Some((from, (of, n))) = popped else { continue };
                        prop_assert_eq!(from, source(of));
                        let at = model.iter().rposition(|m| m.0 == of);
                        prop_assert_eq!(model.remove(at.unwrap()).1, n);
                        passed[usize::from(of)] = [0; 4];
                        for waiting in (0..4).filter(|of| may_run(*of)) {
                            if waiting != of && model.iter().any(|(s, ..)| *s == waiting) {
                                let times = &mut passed[usize::from(waiting)][usize::from(of)];
                                *times += 1;
                                prop_assert!(*times <= 1, "source {waiting} is passed over");
                            }
                        }
                    }
                }
                queue.check_invariants();
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                for of in 0..4 {
                    let len = model.iter().filter(|(s, ..)| *s == of).count();
                    prop_assert_eq!(queue.len_of(source(of)), len);
                }
                let most = queue.longest().map_or(0, |s| queue.len_of(s));
                prop_assert!((0..4).all(|of| queue.len_of(source(of)) <= most));
            }
        }
    }
}
