//! What a node wants to hear: each pattern with each queue group once, however many of its clients listen there.
//!
//! Ids are drawn here and never used twice, so that a message on its way to a queue group that has ended cannot reach another.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::wire::InterestId;

/// Patterns, with how often each is wanted.
#[derive(Debug, Default)]
pub struct Wanted {
    all: HashMap<Box<[u8]>, Want, RandomState>,
    /// The last id drawn.
    last: InterestId,
    /// Scratch for looking up.
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Want {
    id: InterestId,
    count: u64,
}

/// A pattern and a queue group have no blank in them.
const BETWEEN: u8 = b' ';

impl Wanted {
    /// Somebody listens there: the id it goes by, and whether it is the first.
    pub fn add(&mut self, pattern: &[u8], queue: Option<&[u8]>) -> (InterestId, bool) {
        self.look_for(pattern, queue);
        if let Some(want) = self.all.get_mut(&self.key[..]) {
            want.count += 1;
            return (want.id, false);
        }
        self.last += 1;
        let want = Want {
            id: self.last,
            count: 1,
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
            return None;
        }
        self.all.remove(&self.key[..]).map(|want| want.id)
    }

    /// Id, pattern and queue group of each.
    pub fn iter(&self) -> impl Iterator<Item = (InterestId, &[u8], Option<&[u8]>)> {
        self.all.iter().map(|(key, want)| {
            let (pattern, queue) = match memchr::memchr(BETWEEN, key) {
                Some(at) => (&key[..at], Some(&key[at + 1..])),
                None => (&key[..], None),
            };
            (want.id, pattern, queue)
        })
    }

    /// How many different ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
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
        let mut all: Vec<_> = wanted.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [(1, &b"a.*"[..], None), (2, b"a.*", Some(&b"q"[..]))]);
        assert_eq!(wanted.remove(b"a.*", None), Some(1));
        assert_eq!(wanted.remove(b"a.*", None), None);
        assert_eq!(wanted.remove(b"a.*", Some(b"q")), Some(2));
        assert!(wanted.is_empty());
        assert_eq!(wanted.add(b"a.*", None), (3, true), "no id is used twice");
    }
}
