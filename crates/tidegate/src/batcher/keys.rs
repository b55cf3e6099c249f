//! Order per key: at most one batch in flight holds items of a key.
//!
//! While a batch runs, its keys are busy. The actor sets an entry of a busy key aside, in order, and takes
//! this entry first once that batch is done; entries of other keys pass it. The number set aside is bounded:
//! when that many entries wait for busy keys, the actor takes nothing more out of the queue. Entries that a
//! batch gave back come before those set aside for its keys.
//!
//! Invariants: a key is busy from the gathering of its batch until that batch is done; an entry is set
//! aside only while its key is busy; the entries of a key never pass each other.

use std::collections::{HashMap, VecDeque};

use super::handler::Op;
use super::shared::Entry;

/// The function that returns the key of an item: items of equal keys keep their order.
pub(super) type KeyOf<T> = Box<dyn Fn(&T) -> u64 + Send + Sync>;

pub(super) struct Keys<T, R, M> {
    of: KeyOf<T>,
    busy: HashMap<u64, Busy<T, R, M>>,
    /// The keys of the batch being gathered.
    gathering: Vec<u64>,
    /// The number of the batch being gathered.
    turn: u64,
    /// True if the latest entry made its key busy.
    fresh: bool,
    held: usize,
    held_max: usize,
    /// Empty lists, kept to reuse their memory.
    spare: Vec<Vec<u64>>,
}

struct Busy<T, R, M> {
    /// The number of the batch that holds the key.
    turn: u64,
    held: VecDeque<Entry<T, R, M>>,
}

impl<T, R, M> Keys<T, R, M> {
    /// Keeps the order of items for which `of` returns equal keys, and sets at most `held_max` items aside.
    pub(super) fn new(of: KeyOf<T>, held_max: usize) -> Self {
        Self {
            of,
            busy: HashMap::new(),
            gathering: Vec::new(),
            turn: 0,
            fresh: false,
            held: 0,
            held_max: held_max.max(1),
            spare: Vec::new(),
        }
    }

    /// Returns the number of entries set aside.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Returns how many more entries the actor may take out of the queue.
    pub(super) const fn room(&self) -> usize {
        self.held_max.saturating_sub(self.held)
    }

    /// Returns the entry if the batch being gathered may take it, and sets it aside otherwise.
    pub(super) fn admit(&mut self, entry: Entry<T, R, M>) -> Option<Entry<T, R, M>> {
        self.fresh = false;
        let key = match &entry {
            Entry::Cast(_, item) | Entry::Call(_, item, _) => (self.of)(item),
            Entry::Retry(retried) => match &retried.op {
                Op::Cast(item) | Op::Call(item, _) => (self.of)(item),
                Op::Info(_) => return Some(entry),
            },
            Entry::Info(_) | Entry::Wake => return Some(entry),
        };
        if let Some(busy) = self.busy.get_mut(&key) {
            if busy.turn == self.turn {
                return Some(entry);
            }
            busy.held.push_back(entry);
            self.held += 1;
            return None;
        }
        let busy = Busy {
            turn: self.turn,
            held: VecDeque::new(),
        };
        self.busy.insert(key, busy);
        self.gathering.push(key);
        self.fresh = true;
        Some(entry)
    }

    /// Undoes the last admission, because the batch does not take the entry after all.
    pub(super) fn refuse(&mut self) {
        if std::mem::take(&mut self.fresh)
            && let Some(key) = self.gathering.pop()
        {
            self.busy.remove(&key);
        }
    }

    /// Ends the gathering of a batch. Returns its keys, to be released when the batch is done.
    pub(super) fn seal(&mut self) -> Vec<u64> {
        self.turn += 1;
        self.fresh = false;
        let spare = self.spare.pop().unwrap_or_default();
        std::mem::replace(&mut self.gathering, spare)
    }

    /// Releases the keys of a batch that is done. The entries set aside for them
    /// come next, before those in `stash`.
    pub(super) fn release(&mut self, mut keys: Vec<u64>, stash: &mut VecDeque<Entry<T, R, M>>) {
        let mut next = VecDeque::new();
        for key in keys.drain(..) {
            if let Some(mut busy) = self.busy.remove(&key) {
                self.held -= busy.held.len();
                next.append(&mut busy.held);
            }
        }
        next.into_iter()
            .rev()
            .for_each(|entry| stash.push_front(entry));
        if self.spare.len() < SPARES {
            self.spare.push(keys);
        }
    }

    /// Returns every entry set aside, at the end of the actor.
    pub(super) fn end(&mut self) -> impl Iterator<Item = Entry<T, R, M>> {
        self.held = 0;
        let busy = std::mem::take(&mut self.busy);
        busy.into_values().flat_map(|busy| busy.held)
    }

    /// Frees memory of empty lists and of the table of busy keys.
    pub(super) fn shrink(&mut self) {
        self.spare.clear();
        self.busy.shrink_to(SPARES);
    }
}

/// The most empty lists kept, and the least capacity kept for busy keys.
const SPARES: usize = 64;
