//! What a node wants to hear: each pattern with each queue group once, however many of its clients listen
//! there.
//!
//! Of a queue group others are told how many members it has here, so that each member gets its share wherever
//! messages are published: changes of that number gather here, and only the last is told. Ids are drawn here
//! and never used twice, so that a message on its way to a queue group that has ended cannot reach another;
//! which group that was is known for a while, so that it can be passed on.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::wire::InterestId;

/// Queue groups that have ended and are still known, at most.
const ENDED_MAX: usize = 1024;

/// Patterns, with how often each is wanted.
#[derive(Debug, Default)]
pub struct Wanted {
    all: HashMap<Box<[u8]>, Want, RandomState>,
    /// The last id drawn.
    last: InterestId,
    /// Queue groups whose members are not as many as was told; some may have ended since.
    changed: Vec<Box<[u8]>>,
    /// The queue groups that ended last, the newest last.
    ended: VecDeque<(InterestId, Box<[u8]>)>,
    /// Scratch for looking up.
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Want {
    id: InterestId,
    count: u64,
    /// It is among those whose number has changed.
    changed: bool,
}

/// Something wanted, as others are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told<'a> {
    /// Its id.
    pub id: InterestId,
    /// How many listen there.
    pub members: u32,
    /// The pattern.
    pub pattern: &'a [u8],
    /// The queue group.
    pub queue: Option<&'a [u8]>,
}

/// A pattern and a queue group have no blank in them.
const BETWEEN: u8 = b' ';

impl Wanted {
    /// Somebody listens there: the id it goes by, and whether it is the first.
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

    /// One of those who listened there does no more: the id, if it was the last.
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

    /// All that is wanted now.
    pub fn iter(&self) -> impl Iterator<Item = Told<'_>> {
        self.all.iter().map(|(key, want)| told(key, want))
    }

    /// Returns whether the number of members of some queue group has changed since this was last taken.
    #[must_use]
    pub const fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Those queue groups that are still there, each once.
    pub fn take_changed(&mut self, mut tell: impl FnMut(Told<'_>)) {
        for key in std::mem::take(&mut self.changed) {
            // It may have ended, and begun anew.
            if let Some(want) = self.all.get_mut(&key)
                && std::mem::take(&mut want.changed)
            {
                tell(told(&key, want));
            }
        }
    }

    /// Pattern and queue group of one that has ended, if that is not too long ago.
    #[must_use]
    pub fn ended(&self, id: InterestId) -> Option<(&[u8], &[u8])> {
        let mut newest_first = self.ended.iter().rev();
        let (_, key) = newest_first.find(|(ended, _)| *ended == id)?;
        let (pattern, queue) = split(key);
        queue.map(|queue| (pattern, queue))
    }

    /// How many different ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The queue group at hand has a member more or fewer.
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

fn told<'a>(key: &'a [u8], want: &Want) -> Told<'a> {
    let (pattern, queue) = split(key);
    Told {
        id: want.id,
        members: u32::try_from(want.count).unwrap_or(u32::MAX),
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
    fn of_changes_of_a_number_the_last_is_told() {
        let mut wanted = Wanted::default();
        for _ in 0..5 {
            wanted.add(b"a", Some(b"q"));
            wanted.add(b"a", None);
        }
        assert_eq!(wanted.remove(b"a", Some(b"q")), None);
        assert!(wanted.is_changed());
        assert_eq!(changed(&mut wanted), [(1, 4)]);
        assert_eq!(changed(&mut wanted), []);
        // One that ends and begins anew before it is told is told as it is.
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
    fn what_has_ended_is_known_for_a_while() {
        let mut wanted = Wanted::default();
        wanted.add(b"a", None);
        wanted.remove(b"a", None);
        assert_eq!(wanted.ended(1), None, "nothing is passed on to those");
        for _ in 0..=ENDED_MAX {
            wanted.add(b"a", Some(b"q"));
            wanted.remove(b"a", Some(b"q"));
        }
        assert_eq!(wanted.ended(2), None);
        assert_eq!(wanted.ended(3), Some((&b"a"[..], &b"q"[..])));
        assert_eq!(wanted.ended.len(), ENDED_MAX);
    }
}
