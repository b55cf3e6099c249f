//! Collects the patterns to which a node's clients subscribe, so that the node can announce them to its
//! peers: each pair of a pattern and a queue group once, regardless of the number of subscribed clients.
//!
//! A node tells its peers the number of its clients that are members of each queue group, so that each
//! member gets its share of messages, no matter at which node a client publishes them. [`Wanted`] collects
//! the changes of that number, and the node sends only the last number. The node never uses the id of a
//! pattern again, so that a message on its way to an ended queue group cannot reach another group.
//! [`Wanted`] remembers an ended group for a while, so that the node can pass such a message on.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::wire::InterestId;

/// The greatest number of ended queue groups that a node remembers for messages on their way to them. The
/// bound limits the memory.
const ENDED_MAX: usize = 1024;

/// Knows the patterns to which a node's clients subscribe, with the number of subscriptions to each pattern;
/// see the [module](self).
#[derive(Debug, Default)]
pub struct Wanted {
    all: HashMap<Box<[u8]>, Want, RandomState>,
    /// The last id that the node gave to a pattern. The next new pattern gets the next higher id.
    last: InterestId,
    /// The keys of queue groups with a number of members that the node has not yet announced to its peers.
    /// Some of these groups may have ended since.
    changed: Vec<Box<[u8]>>,
    /// The queue groups that ended most recently, the newest at the end, so that the node can pass on late
    /// messages to them.
    ended: VecDeque<(InterestId, Box<[u8]>)>,
    /// The buffer in which a lookup builds the key of a pattern, kept so that no lookup allocates.
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Want {
    id: InterestId,
    count: u64,
    /// True while [`Wanted::changed`] holds the key of this pattern, so that the list holds each key only
    /// once.
    changed: bool,
}

/// A pattern in the form in which the node announces it to its peers, so that they send matching messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterestUpdate<'a> {
    /// The id that the node gave to the pattern, by which later frames name the pattern.
    pub id: InterestId,
    /// The number of subscriptions of the node's clients to this pattern, by which peers share out messages
    /// to a queue group.
    pub members: u32,
    /// The pattern to which clients of the node subscribe.
    pub pattern: &'a [u8],
    /// The queue group of these subscriptions; `None` for subscriptions outside of queue groups.
    pub queue: Option<&'a [u8]>,
}

/// The byte between a pattern and a queue group in a key. Patterns and names of queue groups cannot contain
/// this byte.
const BETWEEN: u8 = b' ';

impl Wanted {
    /// Adds a subscription of a client. Returns the pattern's id, and whether this is the first subscription
    /// to the pattern, so that the node must announce the pattern.
    pub fn add(&mut self, pattern: &[u8], queue: Option<&[u8]>) -> (InterestId, bool) {
        self.look_for(pattern, queue);
        if let Some(want) = self.all.get_mut(&self.key[..]) {
            want.count += 1;
            let id = want.id;
            self.note_change(queue);
            return (id, false);
        }
        self.last += 1;
        let want = Want {
            id: self.last,
            count: 1,
            changed: false,
        };
        self.all.insert(self.key.as_slice().into(), want);
        (self.last, true)
    }

    /// Removes a subscription of a client. Returns the pattern's id if this was the last subscription to the
    /// pattern, so that the node must announce the end.
    pub fn remove(&mut self, pattern: &[u8], queue: Option<&[u8]>) -> Option<InterestId> {
        self.look_for(pattern, queue);
        let want = self.all.get_mut(&self.key[..])?;
        want.count -= 1;
        if want.count > 0 {
            self.note_change(queue);
            return None;
        }
        let (key, want) = self.all.remove_entry(&self.key[..])?;
        if queue.is_some() {
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back((want.id, key));
        }
        Some(want.id)
    }

    /// Iterates over all patterns that have a subscription now, for the announcement to a newly connected
    /// peer.
    pub fn iter(&self) -> impl Iterator<Item = InterestUpdate<'_>> {
        self.all.iter().map(|(key, want)| told(key, want))
    }

    /// Returns whether the number of members of any queue group has changed since the last call of
    /// [`Wanted::take_changed`], so that the node must tell its peers.
    #[must_use]
    pub const fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Calls `tell` once for each queue group that still exists and has had a change of its number of members
    /// since the last call.
    pub fn take_changed(&mut self, mut tell: impl FnMut(InterestUpdate<'_>)) {
        for key in std::mem::take(&mut self.changed) {
            // An ended queue group needs no update. A queue group that ended and started again may be in the
            // list twice; its mark `changed` makes the node report the group at most once.
            if let Some(want) = self.all.get_mut(&key)
                && std::mem::take(&mut want.changed)
            {
                tell(told(&key, want));
            }
        }
    }

    /// Iterates over the ids and the names of the ended queue groups that the node remembers, so that it can
    /// pass late messages on.
    pub fn all_ended(&self) -> impl Iterator<Item = (InterestId, &[u8])> {
        let all = self.ended.iter();
        all.filter_map(|(id, key)| Some((*id, split(key).1?)))
    }

    /// Returns the number of different patterns with a subscription, for monitoring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether no client of the node subscribes to a pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Notes that the queue group in `key` gained or lost a member, so that the node tells its peers the new
    /// number.
    fn note_change(&mut self, queue: Option<&[u8]>) {
        if queue.is_some()
            && let Some(want) = self.all.get_mut(&self.key[..])
            && !std::mem::replace(&mut want.changed, true)
        {
            self.changed.push(self.key.as_slice().into());
        }
    }

    fn look_for(&mut self, pattern: &[u8], queue: Option<&[u8]>) {
        self.key.clear();
        self.key.extend_from_slice(pattern);
        if let Some(queue) = queue {
            self.key.push(BETWEEN);
            self.key.extend_from_slice(queue);
        }
    }
}

fn told<'a>(key: &'a [u8], want: &Want) -> InterestUpdate<'a> {
    let (pattern, queue) = split(key);
    InterestUpdate {
        id: want.id,
        members: u32::try_from(want.count).expect("subscriptions take more than a byte each"),
        pattern,
        queue,
    }
}

fn split(key: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(BETWEEN, key) {
        Some(at) => (&key[..at], Some(&key[at + 1..])),
        None => (key, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_are_told() {
        let mut wanted = Wanted::default();
        assert_eq!(wanted.add(b"a.*", None), (1, true));
        assert_eq!(wanted.add(b"a.*", None), (1, false));
        assert_eq!(wanted.add(b"a.*", Some(b"q")), (2, true));
        assert_eq!(wanted.remove(b"a.*", None), None);
        let mut all: Vec<_> = wanted.iter().map(|t| (t.id, t.pattern, t.queue)).collect();
        all.sort_unstable();
        assert_eq!(all, [(1, &b"a.*"[..], None), (2, b"a.*", Some(&b"q"[..]))]);
        assert_eq!(wanted.remove(b"a.*", None), Some(1));
        assert_eq!(wanted.remove(b"a.*", None), None);
        assert_eq!(wanted.remove(b"a.*", Some(b"q")), Some(2));
        assert!(wanted.is_empty());
        assert_eq!(wanted.add(b"a.*", None), (3, true), "no id is used twice");
    }

    fn changed(wanted: &mut Wanted) -> Vec<(InterestId, u32)> {
        let mut all = Vec::new();
        wanted.take_changed(|told| all.push((told.id, told.members)));
        all
    }

    #[test]
    fn the_last_change_of_a_number_is_announced() {
        let mut wanted = Wanted::default();
        for _ in 0..5 {
            wanted.add(b"a", Some(b"q"));
            wanted.add(b"a", None);
        }
        assert_eq!(wanted.remove(b"a", Some(b"q")), None);
        assert!(wanted.is_changed());
        assert_eq!(changed(&mut wanted), [(1, 4)]);
        assert_eq!(changed(&mut wanted), []);
        // The node announces only the last state of a queue group that ended and started again since the last
        // announcement.
        wanted.add(b"a", Some(b"q"));
        for _ in 0..5 {
            wanted.remove(b"a", Some(b"q"));
        }
        assert_eq!(wanted.add(b"a", Some(b"q")), (3, true));
        assert_eq!(changed(&mut wanted), []);
        wanted.add(b"a", Some(b"q"));
        assert_eq!(changed(&mut wanted), [(3, 2)]);
    }

    #[test]
    fn ended_subscriptions_are_known_for_a_while() {
        let mut wanted = Wanted::default();
        wanted.add(b"a", None);
        wanted.remove(b"a", None);
        assert_eq!(
            wanted.all_ended().count(),
            0,
            "nothing is passed on to those"
        );
        for _ in 0..=ENDED_MAX {
            wanted.add(b"a", Some(b"q"));
            wanted.remove(b"a", Some(b"q"));
        }
        assert_eq!(wanted.all_ended().next(), Some((3, &b"q"[..])));
        assert_eq!(wanted.all_ended().count(), ENDED_MAX);
    }
}
